//! Arithmetic on numbers of a document.

use crate::form::{self, View};
use crate::print::print_scalar;

/// A number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// An integer above the largest signed one.
    Uint(u64),
    /// A float.
    Float(f64),
}

/// An operation on two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Their sum.
    Add,
    /// Their product.
    Multiply,
    /// The first to the power of the second.
    Power,
}

/// Why there is no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoResult {
    /// The result is not a number, or infinite.
    NotFinite,
    /// The result is an integer that does not fit.
    Overflow,
}

impl Number {
    /// The number that a node holds.
    pub fn of(value: View<'_>) -> Option<Number> {
        match value {
            View::Int(value) => Some(Number::Int(value)),
            View::Uint(value) => Some(Number::Uint(value)),
            View::Float(value) => Some(Number::Float(value)),
            _ => None,
        }
    }

    /// The number as a float.
    pub fn as_float(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Uint(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    /// Appends the node of the number.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Number::Int(value) => form::write_int(out, value),
            Number::Uint(value) => form::write_uint(out, value),
            Number::Float(value) => form::write_float(out, value),
        }
    }

    /// Combines two numbers: two integers to an integer, all others (those past 2^63 too) to a float.
    ///
    /// Errors: the integer does not fit, or there is no finite result.
    pub fn combine(self, operation: Operation, other: Number) -> Result<Number, NoResult> {
        if let (Number::Int(a), Number::Int(b)) = (self, other)
            && !(operation == Operation::Power && b < 0)
        {
            let exact = match operation {
                Operation::Add => a.checked_add(b),
                Operation::Multiply => a.checked_mul(b),
                Operation::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            };
            return exact.map(Number::Int).ok_or(NoResult::Overflow);
        }
        let (a, b) = (self.as_float(), other.as_float());
        let value = match operation {
            Operation::Add => a + b,
            Operation::Multiply => a * b,
            Operation::Power => a.powf(b),
        };
        if value.is_finite() { Ok(Number::Float(value)) } else { Err(NoResult::NotFinite) }
    }

    /// Appends the text of the number.
    pub fn print(self, out: &mut Vec<u8>) {
        let view = match self {
            Number::Int(value) => View::Int(value),
            Number::Uint(value) => View::Uint(value),
            Number::Float(value) => View::Float(value),
        };
        print_scalar(view, out);
    }
}

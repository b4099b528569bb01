//! Arithmetic on numbers of a document.

use crate::form::{self, FormView};
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
pub enum NumberOperation {
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
    pub fn of(value: FormView<'_>) -> Option<Number> {
        match value {
            FormView::Int(value) => Some(Number::Int(value)),
            FormView::Uint(value) => Some(Number::Uint(value)),
            FormView::Float(value) => Some(Number::Float(value)),
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
    pub fn combine(self, operation: NumberOperation, other: Number) -> Result<Number, NoResult> {
        if let (Number::Int(a), Number::Int(b)) = (self, other)
            && !(operation == NumberOperation::Power && b < 0)
        {
            let exact = match operation {
                NumberOperation::Add => a.checked_add(b),
                NumberOperation::Multiply => a.checked_mul(b),
                NumberOperation::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            };
            return exact.map(Number::Int).ok_or(NoResult::Overflow);
        }
        let (a, b) = (self.as_float(), other.as_float());
        let value = match operation {
            NumberOperation::Add => a + b,
            NumberOperation::Multiply => a * b,
            NumberOperation::Power => a.powf(b),
        };
        if value.is_finite() { Ok(Number::Float(value)) } else { Err(NoResult::NotFinite) }
    }

    /// Appends the text of the number.
    pub fn print(self, out: &mut Vec<u8>) {
        let view = match self {
            Number::Int(value) => FormView::Int(value),
            Number::Uint(value) => FormView::Uint(value),
            Number::Float(value) => FormView::Float(value),
        };
        print_scalar(view, out);
    }
}

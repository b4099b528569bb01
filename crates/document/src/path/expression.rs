//! Operands of conditions, and paths that compute a value: paths, literals, arithmetic and functions.

use super::function::Function;
use super::pattern::PathPattern;
use super::value::Operand;
use super::{PathStep, select};
use crate::doc::{Doc, DocNode, Names};
use crate::form::{self, FormView};
use crate::number::Number;
use crate::tree::NodePlace;

/// An expression.
#[derive(Clone, Debug)]
pub enum Expression {
    /// The values of a path from the child.
    Current(Vec<PathStep>),
    /// The values of a path from the root.
    Root(Vec<PathStep>),
    /// A node written into the path.
    Literal(Vec<u8>),
    /// A number with its sign changed, or only required to be one.
    Signed(Sign, Box<Expression>),
    /// Two numbers combined.
    Arithmetic(Box<Expression>, Arithmetic, Box<Expression>),
    /// A function of values; `None`: the name is unknown.
    Call(Option<Function>, Vec<Expression>),
    /// A text matches a pattern.
    Matches(Box<Expression>, PathPattern),
}

/// A sign before an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Sign {
    Plus,
    Minus,
}

/// An operation on two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Arithmetic {
    /// Returns the result; `None` after a division by zero.
    fn of(self, a: Number, b: Number) -> Option<Number> {
        if let (Number::Int(a), Number::Int(b)) = (a, b) {
            let exact = match self {
                Arithmetic::Add => a.checked_add(b),
                Arithmetic::Subtract => a.checked_sub(b),
                Arithmetic::Multiply => a.checked_mul(b),
                Arithmetic::Remainder => return a.checked_rem(b).map(Number::Int),
                Arithmetic::Divide => None,
            };
            if let Some(exact) = exact {
                return Some(Number::Int(exact));
            }
        }
        let (a, b) = (a.as_float(), b.as_float());
        let value = match self {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
            Arithmetic::Divide | Arithmetic::Remainder if b == 0.0 => return None,
            Arithmetic::Divide => a / b,
            Arithmetic::Remainder => a % b,
        };
        Some(Number::Float(value))
    }
}

impl Sign {
    fn of(self, number: Number) -> Number {
        match (self, number) {
            (Sign::Plus, number) => number,
            (Sign::Minus, Number::Int(value)) => {
                value.checked_neg().map_or(Number::Float(-(value as f64)), Number::Int)
            }
            (Sign::Minus, number) => Number::Float(-number.as_float()),
        }
    }
}

impl Expression {
    /// Returns true if `is_such` holds for any of its values.
    pub(super) fn any(
        &self,
        doc: Doc<'_>,
        at: NodePlace,
        mut is_such: impl FnMut(DocNode<'_>) -> bool,
    ) -> bool {
        let (start, steps) = match self {
            Expression::Literal(node) => return is_such(DocNode::new(Names::default(), node)),
            Expression::Current(steps) => (at, steps),
            Expression::Root(steps) => (doc.root_spot(), steps),
            other => return other.value(doc, at).any(is_such),
        };
        if steps.is_empty() {
            return is_such(doc.node(start));
        }
        select::find(doc, start, steps).into_iter().any(|found| is_such(doc.node(found)))
    }

    /// Its value for the node at `at`.
    pub(super) fn value<'v>(&'v self, doc: Doc<'v>, at: NodePlace) -> Operand<'v> {
        match self {
            Expression::Current(steps) => nodes(doc, at, steps),
            Expression::Root(steps) => nodes(doc, doc.root_spot(), steps),
            Expression::Literal(node) => Operand::Made(Made::written(node)),
            Expression::Signed(sign, inner) => match inner.value(doc, at).number() {
                Some(number) => Operand::of_number(sign.of(number)),
                None => Operand::Nothing,
            },
            Expression::Arithmetic(left, operation, right) => {
                let (left, right) = (left.value(doc, at).number(), right.value(doc, at).number());
                let result = left.zip(right).and_then(|(a, b)| operation.of(a, b));
                result.map_or(Operand::Nothing, Operand::of_number)
            }
            Expression::Call(None, _) => Operand::Nothing,
            Expression::Call(Some(function), words) => {
                function.call(words.iter().map(|word| word.value(doc, at)).collect())
            }
            Expression::Matches(term, pattern) => {
                let term = term.value(doc, at);
                let is_match = match term.single().map(DocNode::view) {
                    Some(FormView::Text(text)) => pattern.is_match(doc, at, text),
                    _ => false,
                };
                Operand::Made(Made::by(|out| out.push(if is_match { form::TRUE } else { form::FALSE })))
            }
        }
    }
}

fn nodes<'v>(doc: Doc<'v>, at: NodePlace, steps: &[PathStep]) -> Operand<'v> {
    if steps.is_empty() {
        return Operand::Node(doc.node(at));
    }
    let mut found: Vec<DocNode<'v>> =
        select::find(doc, at, steps).into_iter().map(|spot| doc.node(spot)).collect();
    match found.len() {
        0 => Operand::Nothing,
        1 => found.pop().map_or(Operand::Nothing, Operand::Node),
        _ => Operand::Nodes(found),
    }
}

pub(super) use super::value::Made;

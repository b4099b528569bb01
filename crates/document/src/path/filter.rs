//! Conditions in a path: operands and operators.

use std::cmp::Ordering;

use super::expression::Expression;
use super::pattern::PathPattern;
use super::value::{Operand, Quantifier};
use crate::compare::is_equal;
use crate::doc::{Doc, DocNode};
use crate::form::FormView;
use crate::tree::NodePlace;

/// A condition on a child.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Any of these holds.
    Any(Vec<Filter>),
    /// All of these hold.
    All(Vec<Filter>),
    /// This does not hold.
    Not(Box<Filter>),
    /// The value exists.
    Exists(Expression),
    /// The comparison of two values holds.
    Compare(Expression, Operator, Expression),
    /// A text matches a pattern.
    Matches(Expression, PathPattern),
}

/// The comparison of two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operator {
    Equal,
    Unequal,
    Below,
    AtMost,
    Above,
    AtLeast,
    Matches,
    In,
    NotIn,
    SubsetOf,
    AnyOf,
    NoneOf,
    Size,
    Empty,
}

impl Operator {
    /// The operators that are words, the longer of two that begin alike first.
    pub(super) const WORDS: [(&'static [u8], Operator); 8] = [
        (b"in", Operator::In),
        (b"nin", Operator::NotIn),
        (b"subsetof", Operator::SubsetOf),
        (b"anyof", Operator::AnyOf),
        (b"noneof", Operator::NoneOf),
        (b"sizeof", Operator::Size),
        (b"size", Operator::Size),
        (b"empty", Operator::Empty),
    ];
    /// Those that are signs.
    pub(super) const SIGNS: [(&'static [u8], Operator); 7] = [
        (b"==", Operator::Equal),
        (b"!=", Operator::Unequal),
        (b">=", Operator::AtLeast),
        (b"<=", Operator::AtMost),
        (b"=~", Operator::Matches),
        (b">", Operator::Above),
        (b"<", Operator::Below),
    ];

    fn allows(self, ordering: Ordering) -> bool {
        match self {
            Operator::Below => ordering.is_lt(),
            Operator::AtMost => ordering.is_le(),
            Operator::Above => ordering.is_gt(),
            Operator::AtLeast => ordering.is_ge(),
            _ => ordering.is_eq(),
        }
    }
}

impl Filter {
    /// Returns true if the condition holds for the node at `at`.
    pub(super) fn holds(&self, doc: Doc<'_>, at: NodePlace) -> bool {
        match self {
            Filter::Any(filters) => filters.iter().any(|filter| filter.holds(doc, at)),
            Filter::All(filters) => filters.iter().all(|filter| filter.holds(doc, at)),
            Filter::Not(filter) => !filter.holds(doc, at),
            Filter::Exists(term) => exists(&term.value(doc, at)),
            Filter::Compare(left, operator, right) => compare(doc, at, left, *operator, right),
            Filter::Matches(term, pattern) => term.any(doc, at, |node| match node.view() {
                FormView::Text(text) => pattern.is_match(doc, at, text),
                _ => false,
            }),
        }
    }
}

/// A boolean that was written or computed stands for itself; any other value exists, but for an empty list.
fn exists(value: &Operand<'_>) -> bool {
    match value {
        Operand::Nothing => false,
        Operand::Made(node) => !matches!(node.view(), FormView::Bool(false)),
        Operand::List(nodes) => !nodes.is_empty(),
        Operand::Node(_) | Operand::Nodes(_) => true,
    }
}

fn compare(doc: Doc<'_>, at: NodePlace, left: &Expression, operator: Operator, right: &Expression) -> bool {
    let values = || (left.value(doc, at), right.value(doc, at));
    match operator {
        Operator::Unequal => !is_any_equal(doc, at, left, right),
        Operator::Equal => is_any_equal(doc, at, left, right),
        Operator::In | Operator::NotIn => {
            let (left, right) = values();
            left.is_in(&right) == (operator == Operator::In)
        }
        Operator::SubsetOf => {
            let (left, right) = values();
            left.relates(&right, Quantifier::All)
        }
        Operator::AnyOf | Operator::NoneOf => {
            let (left, right) = values();
            left.relates(&right, Quantifier::Any) == (operator == Operator::AnyOf)
        }
        Operator::Size => {
            let (left, right) = values();
            right.any(|size| left.any_len(|len| super::value::whole_of(size) == Some(len as i64)))
        }
        Operator::Empty => {
            let (left, right) = values();
            right.any(|wanted| match wanted.view() {
                FormView::Bool(wanted) => left.any_len(|len| (len == 0) == wanted),
                _ => false,
            })
        }
        _ => left.any(doc, at, |a| {
            right.any(doc, at, |b| ordering(a, b).is_some_and(|ordering| operator.allows(ordering)))
        }),
    }
}

fn is_any_equal(doc: Doc<'_>, at: NodePlace, left: &Expression, right: &Expression) -> bool {
    left.any(doc, at, |a| right.any(doc, at, |b| is_same(a, b)))
}

/// Returns true if two nodes have the same value; numbers of both kinds are compared as numbers.
pub(super) fn is_same(a: DocNode<'_>, b: DocNode<'_>) -> bool {
    ordering(a, b).map_or_else(|| is_equal(a, b), Ordering::is_eq)
}

/// The order of two scalars of one kind; all numbers are one kind.
fn ordering(a: DocNode<'_>, b: DocNode<'_>) -> Option<Ordering> {
    match (a.view(), b.view()) {
        (FormView::Null, FormView::Null) => Some(Ordering::Equal),
        (FormView::Bool(a), FormView::Bool(b)) => Some(a.cmp(&b)),
        (FormView::Text(a), FormView::Text(b)) => Some(a.cmp(b)),
        (FormView::Int(a), FormView::Int(b)) => Some(a.cmp(&b)),
        (FormView::Uint(a), FormView::Uint(b)) => Some(a.cmp(&b)),
        (FormView::Int(_), FormView::Uint(_)) => Some(Ordering::Less),
        (FormView::Uint(_), FormView::Int(_)) => Some(Ordering::Greater),
        (a, b) => float_of(a)?.partial_cmp(&float_of(b)?),
    }
}

fn float_of(value: FormView<'_>) -> Option<f64> {
    match value {
        FormView::Int(value) => Some(value as f64),
        FormView::Uint(value) => Some(value as f64),
        FormView::Float(value) => Some(value),
        _ => None,
    }
}

//! Conditions in a path: operands and operators.

use std::cmp::Ordering;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

use super::{Step, select};
use crate::compare::is_equal;
use crate::doc::{Doc, Names, Node};
use crate::form::View;

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
    Exists(Term),
    /// The comparison of two values holds.
    Compare(Term, Operator, Term),
    /// A text matches a pattern.
    Matches(Term, Pattern),
}

/// An operand of a condition.
#[derive(Clone, Debug)]
pub enum Term {
    /// The values of a path from the child.
    Current(Vec<Step>),
    /// The values of a path from the root.
    Root(Vec<Step>),
    /// A node written into the path.
    Literal(Vec<u8>),
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
}

/// The right side of `=~`; a literal pattern is compiled once.
#[derive(Clone, Debug)]
pub struct Pattern {
    term: Term,
    compiled: OnceLock<Option<Regex>>,
}

/// Bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Pattern {
    pub(super) fn new(term: Term) -> Pattern {
        Pattern { term, compiled: OnceLock::new() }
    }

    fn is_match(&self, doc: Doc<'_>, at: usize, text: &[u8]) -> bool {
        let compiled = |pattern: Node<'_>| match pattern.view() {
            View::Text(pattern) => {
                let pattern = std::str::from_utf8(pattern).ok()?;
                RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build().ok()
            }
            _ => None,
        };
        if let Term::Literal(node) = &self.term {
            let regex = self.compiled.get_or_init(|| compiled(Node::new(Names::default(), node)));
            return regex.as_ref().is_some_and(|regex| regex.is_match(text));
        }
        self.term.any(doc, at, |pattern| compiled(pattern).is_some_and(|regex| regex.is_match(text)))
    }
}

impl Term {
    /// Returns true if `is_such` holds for any of its values.
    fn any(&self, doc: Doc<'_>, at: usize, mut is_such: impl FnMut(Node<'_>) -> bool) -> bool {
        let (start, steps) = match self {
            Term::Literal(node) => return is_such(Node::new(Names::default(), node)),
            Term::Current(steps) => (at, steps),
            Term::Root(steps) => (doc.root_at(), steps),
        };
        if steps.is_empty() {
            return is_such(doc.node(start));
        }
        select::find(doc, start, steps).into_iter().any(|found| is_such(doc.node(found)))
    }
}

impl Filter {
    /// Returns true if the condition holds for the node at `at`.
    pub(super) fn holds(&self, doc: Doc<'_>, at: usize) -> bool {
        match self {
            Filter::Any(filters) => filters.iter().any(|filter| filter.holds(doc, at)),
            Filter::All(filters) => filters.iter().all(|filter| filter.holds(doc, at)),
            Filter::Not(filter) => !filter.holds(doc, at),
            Filter::Exists(Term::Literal(node)) => {
                !matches!(Node::new(Names::default(), node).view(), View::Bool(false))
            }
            Filter::Exists(term) => term.any(doc, at, |_| true),
            Filter::Compare(left, Operator::Unequal, right) => !is_any_equal(doc, at, left, right),
            Filter::Compare(left, Operator::Equal, right) => is_any_equal(doc, at, left, right),
            Filter::Compare(left, operator, right) => left.any(doc, at, |a| {
                right.any(doc, at, |b| ordering(a, b).is_some_and(|ordering| operator.allows(ordering)))
            }),
            Filter::Matches(term, pattern) => term.any(doc, at, |node| match node.view() {
                View::Text(text) => pattern.is_match(doc, at, text),
                _ => false,
            }),
        }
    }
}

impl Operator {
    fn allows(self, ordering: Ordering) -> bool {
        match self {
            Operator::Below => ordering.is_lt(),
            Operator::AtMost => ordering.is_le(),
            Operator::Above => ordering.is_gt(),
            Operator::AtLeast => ordering.is_ge(),
            Operator::Equal | Operator::Unequal | Operator::Matches => ordering.is_eq(),
        }
    }
}

fn is_any_equal(doc: Doc<'_>, at: usize, left: &Term, right: &Term) -> bool {
    left.any(doc, at, |a| {
        right.any(doc, at, |b| match ordering(a, b) {
            Some(ordering) => ordering.is_eq(),
            None => is_equal(a, b),
        })
    })
}

/// The order of two scalars of one kind; all numbers are one kind.
fn ordering(a: Node<'_>, b: Node<'_>) -> Option<Ordering> {
    match (a.view(), b.view()) {
        (View::Null, View::Null) => Some(Ordering::Equal),
        (View::Bool(a), View::Bool(b)) => Some(a.cmp(&b)),
        (View::Text(a), View::Text(b)) => Some(a.cmp(b)),
        (View::Int(a), View::Int(b)) => Some(a.cmp(&b)),
        (View::Uint(a), View::Uint(b)) => Some(a.cmp(&b)),
        (View::Int(_), View::Uint(_)) => Some(Ordering::Less),
        (View::Uint(_), View::Int(_)) => Some(Ordering::Greater),
        (a, b) => float_of(a)?.partial_cmp(&float_of(b)?),
    }
}

fn float_of(value: View<'_>) -> Option<f64> {
    match value {
        View::Int(value) => Some(value as f64),
        View::Uint(value) => Some(value as f64),
        View::Float(value) => Some(value),
        _ => None,
    }
}

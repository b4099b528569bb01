//! Regular expressions in a path; one that is written in it is compiled once.

use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

use super::expression::Expression;
use crate::doc::{Doc, DocNode};
use crate::form::FormView;
use crate::tree::NodePlace;

/// The part of a text that must match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatchExtent {
    /// Any part.
    Part,
    /// All of it.
    Whole,
}

/// The pattern of `=~`, `match` and `search`.
#[derive(Clone, Debug)]
pub struct PathPattern {
    term: Box<Expression>,
    extent: MatchExtent,
    compiled: OnceLock<Option<Regex>>,
}

/// Bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl PathPattern {
    pub(super) fn new(term: Expression, extent: MatchExtent) -> PathPattern {
        PathPattern { term: Box::new(term), extent, compiled: OnceLock::new() }
    }

    /// Returns true if `text` matches.
    pub(super) fn is_match(&self, doc: Doc<'_>, at: NodePlace, text: &[u8]) -> bool {
        let compiled = |pattern: DocNode<'_>| match pattern.view() {
            FormView::Text(pattern) => {
                let pattern = std::str::from_utf8(pattern).ok()?;
                let whole;
                let pattern = match self.extent {
                    MatchExtent::Part => pattern,
                    MatchExtent::Whole => {
                        whole = format!("^(?:{pattern})$");
                        &whole
                    }
                };
                RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build().ok()
            }
            _ => None,
        };
        if let Expression::Literal(node) = &*self.term {
            let regex = self.compiled.get_or_init(|| compiled(DocNode::new(Default::default(), node)));
            return regex.as_ref().is_some_and(|regex| regex.is_match(text));
        }
        self.term.any(doc, at, |pattern| compiled(pattern).is_some_and(|regex| regex.is_match(text)))
    }
}

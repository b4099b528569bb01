//! Paths: the two grammars, and the nodes of a document that a path leads to.
//!
//! A path that begins with `$`, `$.` or `$[` leads to any number of nodes; any other is a legacy path, which means
//! its first node.

mod filter;
mod parse;
mod select;

use crate::doc::Doc;
pub use filter::Filter;
pub use parse::{LEN_MAX, STEPS_MAX};

/// A path that has been understood.
#[derive(Clone, Debug)]
pub struct Path {
    steps: Vec<Step>,
    is_legacy: bool,
}

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// `.name`, `['a']`, `['a','b']`.
    Names(Vec<Box<[u8]>>),
    /// `[1]`, `[1,-2]`.
    Indexes(Vec<i64>),
    /// `[start:end:step]`.
    Slice {
        /// First index.
        start: Option<i64>,
        /// Index behind the last one.
        end: Option<i64>,
        /// Distance, at least 1.
        step: usize,
    },
    /// `*`.
    All,
    /// `..`: the next step is applied to the node and everything below it.
    Deep,
    /// `[?(...)]`.
    Filter(Filter),
}

/// A path is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPath {
    /// The whole text of the error.
    pub text: String,
}

impl Path {
    /// Parses a path.
    ///
    /// Errors: invalid, longer than 64 KiB, or more than 4,096 steps.
    pub fn parse(text: &[u8]) -> Result<Path, BadPath> {
        let is_legacy = !matches!(text, [b'$'] | [b'$', b'.' | b'[', ..]);
        let steps = match text {
            b"." | b"$" => Vec::new(),
            _ if !is_legacy => parse::steps(text)?,
            [b'.', ..] => parse::steps(&[b"$", text].concat())?,
            _ => parse::steps(&[b"$.", text].concat())?,
        };
        Ok(Path { steps, is_legacy })
    }

    /// The root, as a legacy path.
    pub fn root() -> Path {
        Path { steps: Vec::new(), is_legacy: true }
    }

    /// Returns true if it is a legacy path.
    pub fn is_legacy(&self) -> bool {
        self.is_legacy
    }

    /// Returns true if it leads to the root and nowhere else.
    pub fn is_root(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns true if every step leads to one node at most.
    pub fn is_static(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::Names(names) => names.len() == 1,
            Step::Indexes(indexes) => indexes.len() == 1,
            _ => false,
        })
    }

    /// The last step and the path to the node that it starts from.
    pub fn split_last(&self) -> Option<(&Step, Path)> {
        let (last, before) = self.steps.split_last()?;
        Some((last, Path { steps: before.to_vec(), is_legacy: self.is_legacy }))
    }

    /// The starts of the nodes in `doc` that the path leads to, in walk order; a node may occur more than once.
    pub fn find(&self, doc: Doc<'_>) -> Vec<usize> {
        select::find(doc, doc.root_at(), &self.steps)
    }
}

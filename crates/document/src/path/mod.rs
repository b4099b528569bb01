//! Paths: the two grammars, and the nodes of a document that a path leads to.
//!
//! A path that begins with `$`, `$.` or `$[` leads to any number of nodes; any other is a legacy path, which means
//! its first node. JSON.GET, JSON.MGET and JSON.RESP take expressions as well.

mod expression;
mod filter;
mod function;
mod parse;
mod pattern;
mod select;
mod trace;
mod value;

use crate::doc::Doc;
use crate::tree::NodePlace;
pub use expression::Expression;
pub use filter::Filter;
pub use parse::{LEN_MAX, STEPS_MAX};
pub use trace::Trace;

/// A path that has been understood.
#[derive(Clone, Debug)]
pub struct JsonPath {
    steps: Vec<PathStep>,
    is_legacy: bool,
}

/// A path that leads to nodes, or an expression that computes values.
#[derive(Clone, Debug)]
pub enum PathQuery {
    /// A path.
    Path(JsonPath),
    /// An expression, such as `$.a + 1` or `$.a.length()`.
    Computed(Computed),
}

/// An expression over the root.
#[derive(Clone, Debug)]
pub struct Computed(Expression);

impl Computed {
    /// The values in `doc`, each a node of its own.
    pub fn values(&self, doc: Doc<'_>) -> Vec<Vec<u8>> {
        self.0.value(doc, doc.root_spot()).into_answer()
    }
}

impl PathQuery {
    /// Parses a path or an expression.
    ///
    /// Errors: as [`JsonPath::parse`].
    pub fn parse(text: &[u8]) -> Result<PathQuery, BadPath> {
        let is_legacy = !parse::is_rooted(text);
        let names = match text {
            [b'$', rest @ ..] if !is_legacy => parse::names_only(rest),
            _ if is_legacy => parse::names_only(text),
            _ => None,
        };
        if let Some(steps) = names {
            return Ok(PathQuery::Path(JsonPath { steps, is_legacy }));
        }
        let expression = match text {
            b"." | b"$" => Expression::Root(Vec::new()),
            _ if !is_legacy => parse::query(text)?,
            [b'.', ..] => parse::query(&[b"$", text].concat())?,
            _ => parse::query(&[b"$.", text].concat())?,
        };
        Ok(match expression {
            Expression::Root(steps) => PathQuery::Path(JsonPath { steps, is_legacy }),
            other => PathQuery::Computed(Computed(other)),
        })
    }
}

/// One step.
#[derive(Clone, Debug)]
pub enum PathStep {
    /// `.name`, `['a']`.
    Name(Box<[u8]>),
    /// `['a','b']`.
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

const COMPUTED: &str =
    "ERR computed/projection expressions are only supported by JSON.GET/JSON.MGET/JSON.RESP";

/// A path is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPath {
    /// The whole text of the error.
    pub text: String,
}

impl JsonPath {
    /// Parses a path.
    ///
    /// Errors: invalid, an expression, longer than 64 KiB, or more than 4,096 steps.
    pub fn parse(text: &[u8]) -> Result<JsonPath, BadPath> {
        match PathQuery::parse(text)? {
            PathQuery::Path(path) => Ok(path),
            PathQuery::Computed(_) => Err(BadPath { text: COMPUTED.to_owned() }),
        }
    }

    /// The root, as a legacy path.
    pub fn root() -> JsonPath {
        JsonPath { steps: Vec::new(), is_legacy: true }
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
            PathStep::Name(_) => true,
            PathStep::Indexes(indexes) => indexes.len() == 1,
            _ => false,
        })
    }

    /// The number of its steps if all of them are single names.
    pub fn names_len(&self) -> Option<usize> {
        select::are_names(&self.steps).then_some(self.steps.len())
    }

    /// The last step and the path to the node that it starts from.
    pub fn split_last(&self) -> Option<(&PathStep, JsonPath)> {
        let (last, before) = self.steps.split_last()?;
        Some((last, JsonPath { steps: before.to_vec(), is_legacy: self.is_legacy }))
    }

    /// The places of the nodes in `doc` that the path leads to, in walk order; a node may occur more than once.
    pub fn find(&self, doc: Doc<'_>) -> Vec<NodePlace> {
        select::find(doc, doc.root_spot(), &self.steps)
    }

    /// The first of these nodes.
    pub fn first(&self, doc: Doc<'_>) -> Option<NodePlace> {
        select::first(doc, doc.root_spot(), &self.steps)
    }

    /// The same nodes for a change, each once, with all that leads to them.
    pub fn trace(&self, doc: Doc<'_>) -> Trace {
        select::trace(doc, doc.root_spot(), &self.steps)
    }
}

/// A path from `$` of single names behind dots, as most are: it is followed without being parsed.
#[derive(Clone, Copy, Debug)]
pub struct PlainPath<'t> {
    names: &'t [u8],
}

impl<'t> PlainPath<'t> {
    /// The path, if it is such.
    pub fn of(text: &'t [u8]) -> Option<PlainPath<'t>> {
        let names = text.strip_prefix(b"$.").filter(|names| parse::are_plain(names))?;
        Some(PlainPath { names })
    }

    /// The node in `doc` that the path leads to. Cost: the members before those named.
    pub fn find(self, doc: Doc<'_>) -> Option<NodePlace> {
        select::find_each(doc, doc.root_spot(), self.names.split(|byte| *byte == b'.'))
    }
}

/// The search for the nodes that a path leads to, in steps.
#[derive(Clone, Debug)]
pub struct PathSearch {
    path: JsonPath,
    walk: select::PathWalk,
    found: Vec<NodePlace>,
}

impl PathSearch {
    /// Begins the search in `doc`.
    pub fn new(doc: Doc<'_>, path: JsonPath) -> PathSearch {
        PathSearch { path, walk: select::PathWalk::new(doc.root_spot()), found: Vec::new() }
    }

    /// Goes on until it has looked at about `children_max` more nodes. Returns true if that was the end.
    pub fn step(&mut self, doc: Doc<'_>, children_max: usize) -> bool {
        let PathSearch { path, walk, found } = self;
        walk.step(doc, &path.steps, children_max, &mut |_, spot| found.push(spot))
    }

    /// The places of the nodes, in walk order.
    pub fn into_found(self) -> Vec<NodePlace> {
        self.found
    }
}

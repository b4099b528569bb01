//! JSON documents: values found by paths, each of which may lead to many.
//!
//! The reply to a path that begins with `$` is an array with an element for each value. A legacy path means one
//! value, and a value that does not fit is an error.

pub mod append;
pub mod arrays;
pub mod change;
pub mod clear;
pub mod debug;
pub mod del;
mod each_later;
pub mod fault;
pub mod get;
pub mod index;
pub mod insert;
pub mod kind;
pub mod long_get;
pub mod long_set;
mod long_texts;
pub mod merge;
pub mod mset;
pub mod numbers;
pub mod objects;
pub mod pop;
pub mod read;
pub mod resp;
pub mod set;
pub mod shape;
pub mod strings;
#[cfg(test)]
mod tests;
pub mod toggle;
pub mod trim;

use darter_document::{Doc, DocNode, JsonPath, parse_into};
use darter_store::change::Class;
use darter_store::{Event, Keyed};
use darter_wire::Args;

use crate::{DataCommand, Fault};
use fault::{BAD_KEY, MISSING_KEY, bad_path, invalid};
use long_texts::Forms;

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    set::SET,
    get::GET,
    get::MGET,
    mset::MSET,
    merge::MERGE,
    del::DEL,
    del::FORGET,
    kind::TYPE,
    numbers::NUMINCRBY,
    numbers::NUMMULTBY,
    numbers::NUMPOWBY,
    toggle::TOGGLE,
    strings::STRAPPEND,
    strings::STRLEN,
    append::ARRAPPEND,
    index::ARRINDEX,
    insert::ARRINSERT,
    arrays::ARRLEN,
    pop::ARRPOP,
    trim::ARRTRIM,
    objects::OBJKEYS,
    objects::OBJLEN,
    clear::CLEAR,
    resp::RESP,
    debug::MEMORY,
    debug::HELP,
    debug::DEBUG,
];

const fn event(name: &'static str) -> Event {
    Event::new(Class::MODULE, name)
}

/// The document at a key.
///
/// Errors: the value is not a document.
fn document<'a>(place: &'a Keyed<'_>) -> Result<Option<Doc<'a>>, Fault> {
    place.document().map_err(|_| BAD_KEY)
}

/// The document at a key that must exist.
///
/// Errors: it is missing, or is not a document.
fn present<'a>(place: &'a Keyed<'_>) -> Result<Doc<'a>, Fault> {
    document(place)?.ok_or(MISSING_KEY)
}

/// Returns the path at argument `at`, or the root if that argument is missing.
///
/// Errors: invalid path.
fn path_at(args: Args<'_>, at: usize) -> Result<JsonPath, Fault> {
    args.get(at).map_or(Ok(JsonPath::root()), |text| JsonPath::parse(text).map_err(bad_path))
}

/// The node of a JSON text, with the names of `doc`.
///
/// Errors: it is not JSON.
fn node_of(text: &[u8], doc: Doc<'_>) -> Result<Vec<u8>, Fault> {
    let mut node = Vec::new();
    parse_into(text, doc.names, &mut node).map_err(invalid)?;
    Ok(node)
}

/// The nodes of the JSON texts from argument `first` on, some of which may have been parsed.
///
/// Errors: one is not JSON.
fn nodes_of(args: Args<'_>, first: usize, doc: Doc<'_>, forms: &Forms) -> Result<Vec<Vec<u8>>, Fault> {
    args.tail(first).iter().enumerate().map(|(nth, text)| forms.node(nth, text, doc)).collect()
}

/// Levels of containers in the deepest of these nodes.
fn depth_of(nodes: &[Vec<u8>]) -> usize {
    nodes.iter().map(|node| DocNode::new(Default::default(), node).depth()).max().unwrap_or(0)
}

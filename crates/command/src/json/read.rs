//! Answering a property of each value that a path leads to.

use darter_document::{Doc, Node, Path};
use darter_wire::Reply;

/// Answers an array with the output of `show` for each value that `path` leads to.
pub(super) fn reply_each(
    doc: Doc<'_>,
    path: &Path,
    reply: &mut Reply<'_>,
    show: impl Fn(Node<'_>, &mut Reply<'_>),
) {
    let found = path.find(doc);
    reply.array(found.len());
    found.into_iter().for_each(|at| show(doc.node(at), reply));
}

/// Answers a length, or null if it is missing.
pub(super) fn reply_len(len: Option<usize>, reply: &mut Reply<'_>) {
    match len {
        Some(len) => reply.int_len(len),
        None => reply.null(),
    }
}

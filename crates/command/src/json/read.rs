//! Answering a property of each value that a path leads to.

use darter_document::path::PathQuery;
use darter_document::{Doc, DocNode, JsonPath};
use darter_wire::Reply;

/// Documents above this are answered in slices, bytes.
pub(super) const LONG_BYTES_MIN: usize = 64 << 10;

/// Returns true if one of these queries may lead through much of a large document, or to a large value.
pub(super) fn is_long<'q>(
    doc: Doc<'_>,
    memory_bytes: usize,
    mut queries: impl Iterator<Item = &'q PathQuery>,
) -> bool {
    doc.is_pieced()
        && memory_bytes >= LONG_BYTES_MIN
        && queries.any(|query| {
            let PathQuery::Path(path) = query else { return false };
            let is_large = |spot| doc.node(spot).has_pieces();
            (!path.is_static() && !path.is_legacy()) || path.first(doc).is_some_and(is_large)
        })
}

/// Answers an array with the output of `show` for each value that `path` leads to.
pub(super) fn reply_each(
    doc: Doc<'_>,
    path: &JsonPath,
    reply: &mut Reply<'_>,
    show: impl Fn(DocNode<'_>, &mut Reply<'_>),
) {
    let found = path.find(doc);
    reply.array(found.len());
    found.into_iter().for_each(|at| show(doc.node(at), reply));
}

/// [`reply_each`] for a path or an expression.
pub(super) fn reply_query(
    doc: Doc<'_>,
    query: &PathQuery,
    reply: &mut Reply<'_>,
    show: impl Fn(DocNode<'_>, &mut Reply<'_>),
) {
    match query {
        PathQuery::Path(path) => reply_each(doc, path, reply, show),
        PathQuery::Computed(computed) => {
            let values = computed.values(doc);
            reply.array(values.len());
            values.iter().for_each(|value| show(DocNode::new(doc.names, value), reply));
        }
    }
}

/// Answers a length, or null if it is missing.
pub(super) fn reply_len(len: Option<usize>, reply: &mut Reply<'_>) {
    match len {
        Some(len) => reply.int_len(len),
        None => reply.null(),
    }
}

//! Members, fields and elements on their way into replies.

use darter_pack::entry::Item;
use darter_wire::Reply;

/// Answers an element as a string.
#[inline]
pub fn reply_item(reply: &mut Reply<'_>, item: Item<'_>) {
    match item {
        Item::Int(value) => reply.bulk_int(value),
        Item::Bytes(bytes) => reply.bulk(bytes),
    }
}

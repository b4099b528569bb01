//! Finding the value of a string that memcached may have stored, while its key is compared.

use darter_base::short::is_equal;

use super::{EXTRAS, KIND, RecordKind, TTL, WIDE, fixed_len, is_of, read_varint};
use crate::extras;

/// The relation of a record to a key.
pub(crate) enum ItemMatch {
    /// It belongs to another key.
    Other,
    /// It belongs to the key, but is not a text, or its key is wide.
    Key,
    /// It belongs to the key and is a text.
    Item(ItemAt),
}

/// Offsets of the parts of a text in its record.
#[derive(Clone, Copy)]
pub(crate) struct ItemAt {
    /// True if it has a deadline.
    pub has_deadline: bool,
    /// Offset of memcached's part; 0 without one.
    pub extras_at: usize,
    /// Offset of the value.
    pub start: usize,
    /// The first byte after the value.
    pub end: usize,
}

/// Compares the key of the record at the front of `tail`, and finds the parts of a text at the same time.
#[inline(always)]
pub(crate) fn match_item(tail: &[u8], key: &[u8]) -> ItemMatch {
    let [header, key_len, ..] = tail else { return ItemMatch::Other };
    if header & (KIND | WIDE) != RecordKind::Text as u8 {
        return if is_of(tail, key) { ItemMatch::Key } else { ItemMatch::Other };
    }
    if usize::from(*key_len) != key.len() {
        return ItemMatch::Other;
    }
    let (mut at, mut extras_at) = (fixed_len(*header), 0);
    if header & EXTRAS != 0
        && let Some(&first) = tail.get(at)
    {
        extras_at = at;
        at += extras::len_of(first);
    }
    let value_at = at + key.len();
    let Some((own, payload)) = tail.get(at..value_at).zip(tail.get(value_at..)) else {
        return ItemMatch::Other;
    };
    if !is_equal(own, key) {
        return ItemMatch::Other;
    }
    let (len, len_len) = read_varint(payload);
    let start = value_at + len_len;
    ItemMatch::Item(ItemAt { has_deadline: header & TTL != 0, extras_at, start, end: start + len })
}

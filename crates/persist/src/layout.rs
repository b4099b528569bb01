//! The encoding after the key for every type byte, as a table: enough to find the end of a value without building it.
//!
//! Covers the types of Redis up to 8 and Valkey up to 9, and ours. Types that two servers give the same number have a
//! separate number here (see [`foreign`]), assigned while a file is read. Called by the readers and by code that
//! rewrites entries.

use crate::cursor::{Cursor, CursorStop};
use crate::rdb::module;

/// A set whose members have deadlines: ours (and DUMP's) alone.
pub const SET_WITH_TTL: u8 = 32;
/// A sorted set whose members have deadlines: ours alone, too.
pub const ZSET_WITH_TTL: u8 = darter_store::rdb::TYPE_ZSET_WITH_TTL;
/// A hash whose fields have deadlines, as Redis 7.4 writes it.
pub const HASH_WITH_TTL: u8 = 24;
/// A value of a module: a number that names the module, and fields.
pub const MODULE_2: u8 = darter_store::module::TYPE_MODULE;
/// An array of Redis 8.8.
pub const ARRAY: u8 = darter_store::module::TYPE_ARRAY;

/// Our numbers for types that a file numbers differently.
pub mod foreign {
    /// Fields with an absolute deadline behind each, as Valkey 9 writes them (its number 22).
    pub const VALKEY_HASH: u8 = darter_store::rdb::TYPE_VALKEY_HASH;
    /// A rate limiter of Redis 8.8 (its number 33).
    pub const RATE_LIMITER: u8 = 202;

    /// The name of a value that can be skipped but not kept.
    pub fn strange(kind: u8) -> Option<&'static str> {
        match kind {
            RATE_LIMITER => Some("a rate limiter"),
            _ => None,
        }
    }
}

/// A piece of a value.
#[derive(Clone, Copy, Debug)]
pub enum Piece {
    /// A text.
    Text,
    /// A number, written as lengths are.
    Number,
    /// A number of bytes.
    Bytes(usize),
    /// A score as a short text.
    OldScore,
    /// These, one after another.
    Row(&'static [Piece]),
    /// A number, and that many times these pieces.
    Many(&'static [Piece]),
    /// Fields of a module up to their end.
    Fields,
    /// The place of the last insertion if there was one, and a number of places with elements.
    Elements,
}

use Piece::{Bytes, Elements, Fields, Many, Number, OldScore, Row, Text};

/// One type of value.
#[derive(Debug)]
pub struct Layout {
    /// Its type byte.
    pub kind: u8,
    /// The value's type as `TYPE` names it.
    pub name: &'static str,
    /// The pieces after the key.
    pub pieces: &'static [Piece],
}

const fn layout(kind: u8, name: &'static str, pieces: &'static [Piece]) -> Layout {
    Layout { kind, name, pieces }
}

const NODES: Piece = Many(&[Text, Text]);
// The part between the nodes of a stream and its groups since Redis 7.
const COUNTS: Piece = Row(&[Number; 8]);
// The part after them since Redis 8.6.
const IDEMPOTENCE: Piece = Row(&[Number, Number, PRODUCERS, Number, Number]);
const PENDING: Piece = Many(&[Bytes(16), Bytes(8), Number]);
const IDS: Piece = Many(&[Bytes(16)]);
const CONSUMERS: Piece = Many(&[Text, Bytes(8), IDS]);
const CONSUMERS_ACTIVE: Piece = Many(&[Text, Bytes(8), Bytes(8), IDS]);
const GROUPS: Piece = Many(&[Text, Number, Number, PENDING, CONSUMERS]);
const GROUPS_READ: Piece = Many(&[Text, Number, Number, Number, PENDING, CONSUMERS]);
const GROUPS_ACTIVE: Piece = Many(&[Text, Number, Number, Number, PENDING, CONSUMERS_ACTIVE]);

const GROUPS_GIVEN_BACK: Piece = Many(&[Text, Number, Number, Number, PENDING, CONSUMERS_ACTIVE, IDS]);
const PRODUCERS: Piece = Many(&[Text, Many(&[Text, Number, Number])]);

const LAYOUTS: &[Layout] = &[
    layout(0, "string", &[Text]),
    layout(1, "list", &[Many(&[Text])]),
    layout(2, "set", &[Many(&[Text])]),
    layout(3, "zset", &[Many(&[Text, OldScore])]),
    layout(4, "hash", &[Many(&[Text, Text])]),
    layout(5, "zset", &[Many(&[Text, Bytes(8)])]),
    layout(MODULE_2, "module", &[Number, Fields]),
    layout(9, "hash", &[Text]),
    layout(10, "list", &[Text]),
    layout(11, "set", &[Text]),
    layout(12, "zset", &[Text]),
    layout(13, "hash", &[Text]),
    layout(14, "list", &[Many(&[Text])]),
    layout(15, "stream", &[NODES, Number, Number, Number, GROUPS]),
    layout(16, "hash", &[Text]),
    layout(17, "zset", &[Text]),
    layout(18, "list", &[Many(&[Number, Text])]),
    layout(19, "stream", &[NODES, COUNTS, GROUPS_READ]),
    layout(20, "set", &[Text]),
    layout(21, "stream", &[NODES, COUNTS, GROUPS_ACTIVE]),
    layout(22, "hash", &[Many(&[Number, Text, Text])]),
    layout(23, "hash", &[Text]),
    layout(HASH_WITH_TTL, "hash", &[Bytes(8), Many(&[Number, Text, Text])]),
    layout(25, "hash", &[Bytes(8), Text]),
    layout(26, "stream", &[NODES, COUNTS, GROUPS_ACTIVE, IDEMPOTENCE]),
    layout(27, "stream", &[NODES, COUNTS, GROUPS_GIVEN_BACK, IDEMPOTENCE]),
    layout(ARRAY, "array", &[Elements]),
    layout(SET_WITH_TTL, "set", &[Many(&[Text, Number])]),
    layout(ZSET_WITH_TTL, "zset", &[Many(&[Text, Bytes(8), Number])]),
    layout(foreign::RATE_LIMITER, "rate limiter", &[Number]),
    layout(foreign::VALKEY_HASH, "hash", &[Many(&[Text, Text, Bytes(8)])]),
];

/// The layout under type byte `kind`, if it is known.
pub fn of(kind: u8) -> Option<&'static Layout> {
    let index = usize::from(*PLACES.get(usize::from(kind))?);
    LAYOUTS.get(index)
}

// The row of each type byte, 255 for none.
#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a table the compiler makes")]
const PLACES: [u8; 256] = {
    let mut places = [255; 256];
    let mut row = 0;
    while row < LAYOUTS.len() {
        places[LAYOUTS[row].kind as usize] = row as u8;
        row += 1;
    }
    places
};

/// One piece that was passed.
#[derive(Clone, Copy, Debug)]
pub enum LayoutToken<'a> {
    /// An encoded text, in any form.
    Text(&'a [u8]),
    /// Any other encoded bytes.
    Plain(&'a [u8]),
}

/// Passes over `pieces` and shows each to `visit`.
///
/// Errors: incomplete, or damaged.
pub fn walk<'a>(
    pieces: &[Piece],
    cursor: &mut Cursor<'a>,
    visit: &mut impl FnMut(LayoutToken<'a>),
) -> Result<(), CursorStop> {
    for piece in pieces {
        let start = cursor.at();
        match *piece {
            Text => visit(LayoutToken::Text(cursor.pass_text()?)),
            Number => {
                cursor.number()?;
                visit(LayoutToken::Plain(cursor.since(start)));
            }
            Bytes(len) => visit(LayoutToken::Plain(cursor.take(len)?)),
            OldScore => {
                // 253 to 255 stand for values without digits
                let len = cursor.byte()?;
                if len < 253 {
                    cursor.take(usize::from(len))?;
                }
                visit(LayoutToken::Plain(cursor.since(start)));
            }
            Row(inner) => walk(inner, cursor, visit)?,
            Fields => module::fields(cursor, visit)?,
            Elements => elements(cursor, visit)?,
            Many(inner) => {
                let count = cursor.number()?;
                visit(LayoutToken::Plain(cursor.since(start)));
                for _ in 0..count {
                    walk(inner, cursor, visit)?;
                }
            }
        }
    }
    Ok(())
}

fn elements<'a>(cursor: &mut Cursor<'a>, visit: &mut impl FnMut(LayoutToken<'a>)) -> Result<(), CursorStop> {
    let mut start = cursor.at();
    let count = cursor.number()?;
    if cursor.number()? != 0 {
        cursor.number()?;
    }
    for _ in 0..count {
        cursor.number()?;
        match cursor.number()? {
            0 | 3 => {
                visit(LayoutToken::Plain(cursor.since(start)));
                visit(LayoutToken::Text(cursor.pass_text()?));
                start = cursor.at();
            }
            // an integer, a double
            1 | 2 => drop(cursor.array::<8>()?),
            _ => return Err(cursor.bad("an element of an unknown kind in an array")),
        }
    }
    visit(LayoutToken::Plain(cursor.since(start)));
    Ok(())
}

/// Passes over the value of type byte `kind`; returns its bytes.
///
/// Errors: incomplete, damaged, or of an unknown type.
#[inline]
pub fn pass<'a>(kind: u8, cursor: &mut Cursor<'a>) -> Result<&'a [u8], CursorStop> {
    if kind == 0 {
        return cursor.pass_text();
    }
    let start = cursor.at();
    let layout = of(kind).ok_or_else(|| cursor.bad("a value of an unknown type"))?;
    walk(layout.pieces, cursor, &mut |_| {})?;
    Ok(cursor.since(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_number() {
        for row in LAYOUTS {
            assert_eq!(of(row.kind).map(|found| found.kind), Some(row.kind));
        }
        assert!(of(6).is_none() && of(8).is_none() && of(255).is_none());
    }

    #[test]
    fn a_count_that_lies_ends_with_the_bytes() {
        // a list that claims 2^63 elements
        let bytes = [0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, b'a'];
        assert_eq!(pass(1, &mut Cursor::new(&bytes)), Err(CursorStop::More));
    }

    #[test]
    fn a_value_ends_where_the_next_begins() {
        let bytes = [2, 1, b'a', 0xc0, 7, 99];
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(pass(1, &mut cursor), Ok(&bytes[..5]));
        assert_eq!(cursor.byte(), Ok(99));
    }
}

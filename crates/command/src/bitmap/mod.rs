//! Strings as rows of bits: bit 0 is the highest bit of the first byte.

pub mod bits;
pub mod count;
pub mod field;
pub mod op;

use darter_base::number;
use darter_store::Event;
use darter_store::change::Class;

use crate::{DataCommand, Env, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    bits::SETBIT,
    bits::GETBIT,
    count::BITCOUNT,
    count::BITPOS,
    op::BITOP,
    field::BITFIELD,
    field::BITFIELD_RO,
];

pub(crate) const SETBIT_EVENT: Event = Event::new(Class::STRING, "setbit");

const BAD_OFFSET: Fault = Fault::text("ERR bit offset is not an integer or out of range");

/// A bit's place: below the longest string's number of bits.
fn bit_offset(arg: &[u8], env: &Env) -> Result<u64, Fault> {
    let offset = number::parse_i64(arg).and_then(|n| u64::try_from(n).ok()).ok_or(BAD_OFFSET)?;
    if offset >> 3 >= env.proto_max_bulk_len { Err(BAD_OFFSET) } else { Ok(offset) }
}

/// Start and end of a range over `len` places, negative ones from the end: `None` when it is empty.
fn range(start: i64, end: i64, len: u64) -> Option<(u64, u64)> {
    if start < 0 && end < 0 && start > end {
        return None;
    }
    clipped_range(start, end, len)
}

/// Like [`range`], but all negative places before the first one mean the first.
fn clipped_range(start: i64, end: i64, len: u64) -> Option<(u64, u64)> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(len - 1));
    (start <= end && len > 0).then_some((start as u64, end as u64))
}

/// Bit `at` of `bytes`; past the end all bits are 0.
fn bit(bytes: &[u8], at: u64) -> bool {
    let byte = usize::try_from(at >> 3).ok().and_then(|i| bytes.get(i)).copied().unwrap_or(0);
    byte >> (7 - (at & 7)) & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clipped_as_redis_does() {
        assert_eq!(range(0, -1, 4), Some((0, 3)));
        assert_eq!(range(-2, -1, 4), Some((2, 3)));
        assert_eq!(range(-1, -2, 4), None);
        assert_eq!(range(5, 9, 4), None);
        assert_eq!(range(i64::MIN, i64::MAX, 4), Some((0, 3)));
        assert_eq!(range(0, 0, 0), None);
        assert_eq!((range(-5, -12, 1), clipped_range(-5, -12, 1)), (None, Some((0, 0))));
    }
}

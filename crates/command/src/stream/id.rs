//! Ids as clients write them: `ms-seq`, `ms`, `-`, `+`, `(ms-seq`, `ms-*`, `*`.

use darter_base::{number, short};
use darter_pack::tree::StreamId;

use crate::Fault;

const INVALID: Fault = Fault::text("ERR Invalid stream ID specified as stream command argument");
/// Redis looks at no longer text.
const TEXT_MAX: usize = 127;

/// An id that XADD is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewId {
    /// `*`: the time.
    Auto,
    /// `ms-*`: the next number of that millisecond.
    AutoSeq(u64),
    /// `ms-seq`.
    Given(StreamId),
}

/// A whole id; a missing number is `missing_seq`.
pub fn parse(arg: &[u8], missing_seq: u64) -> Result<StreamId, Fault> {
    if arg.len() > TEXT_MAX {
        return Err(INVALID);
    }
    let mut parts = arg.splitn(2, |&byte| byte == b'-');
    let ms = part(parts.next().unwrap_or_default())?;
    let seq = match parts.next() {
        None => missing_seq,
        Some(seq) => part(seq)?,
    };
    Ok(StreamId { ms, seq })
}

/// A number within an id. Redis reads it with C's `strtoull`, which takes blanks and a sign before it.
fn part(text: &[u8]) -> Result<u64, Fault> {
    number::parse_u64_digits(text).map_or_else(|| signed_part(text), Ok)
}

#[cold]
fn signed_part(text: &[u8]) -> Result<u64, Fault> {
    let text = text.trim_ascii_start();
    number::parse_u64_digits(text.strip_prefix(b"+").unwrap_or(text)).ok_or(INVALID)
}

/// An id to be added, except `*`.
pub fn parse_new(arg: &[u8]) -> Result<NewId, Fault> {
    match arg.strip_suffix(b"-*") {
        Some(ms) if arg.len() <= TEXT_MAX => number::parse_u64_digits(ms).map(NewId::AutoSeq).ok_or(INVALID),
        _ => parse(arg, 0).map(NewId::Given),
    }
}

fn parse_or_end(arg: &[u8], missing_seq: u64) -> Result<StreamId, Fault> {
    match arg {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => parse(arg, missing_seq),
    }
}

/// An id, or `-` or `+` for the lowest and the highest.
pub fn parse_loose(arg: &[u8]) -> Result<StreamId, Fault> {
    parse_or_end(arg, 0)
}

/// The first id of an interval.
pub fn first(arg: &[u8]) -> Result<StreamId, Fault> {
    match arg.strip_prefix(b"(") {
        Some(after) if !after.is_empty() => {
            next(parse(after, 0)?).ok_or(Fault::text("ERR invalid start ID for the interval"))
        }
        _ => parse_or_end(arg, 0),
    }
}

/// The last id of an interval.
pub fn last(arg: &[u8]) -> Result<StreamId, Fault> {
    match arg.strip_prefix(b"(") {
        Some(before) if !before.is_empty() => {
            previous(parse(before, u64::MAX)?).ok_or(Fault::text("ERR invalid end ID for the interval"))
        }
        _ => parse_or_end(arg, u64::MAX),
    }
}

/// The id after `id`; `None` after the highest.
pub fn next(id: StreamId) -> Option<StreamId> {
    match id.seq.checked_add(1) {
        Some(seq) => Some(StreamId { ms: id.ms, seq }),
        None => id.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
    }
}

/// The id before `id`; `None` before the lowest.
pub fn previous(id: StreamId) -> Option<StreamId> {
    match id.seq.checked_sub(1) {
        Some(seq) => Some(StreamId { ms: id.ms, seq }),
        None => id.ms.checked_sub(1).map(|ms| StreamId { ms, seq: u64::MAX }),
    }
}

/// A buffer for the text of an id: the longest has this many bytes.
pub type Room = [u8; 41];

/// The text of an id, in `room`.
pub fn print(room: &mut Room, id: StreamId) -> &[u8] {
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms).as_bytes(), seq.format(id.seq).as_bytes());
    let len = ms.len() + 1 + seq.len();
    let Some((text, _)) = room.split_at_mut_checked(len) else { return &[] };
    let (before, after) = text.split_at_mut(ms.len());
    short::copy(before, ms);
    if let [dash, after @ ..] = after {
        *dash = b'-';
        short::copy(after, seq);
    }
    text
}

/// The text of an id.
pub fn text(id: StreamId) -> Vec<u8> {
    print(&mut [0; 41], id).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let id = |ms, seq| StreamId { ms, seq };
        assert_eq!(parse(b"5", 7), Ok(id(5, 7)));
        assert_eq!(parse(b"5-3", 7), Ok(id(5, 3)));
        for bad in [&b""[..], b"-", b"+", b"5-", b"-5", b"5-3-1", b"a", b"5-a", b"18446744073709551616"] {
            assert_eq!(parse(bad, 0), Err(INVALID), "{bad:?}");
        }
        assert_eq!((parse(b"+5-+3", 0), parse(b" 5", 0)), (Ok(id(5, 3)), Ok(id(5, 0))));
        assert_eq!(parse_new(b"5-*"), Ok(NewId::AutoSeq(5)));
        assert_eq!(parse_new(b"*-*"), Err(INVALID));
        assert_eq!((first(b"-"), last(b"+")), (Ok(StreamId::MIN), Ok(StreamId::MAX)));
        assert_eq!((first(b"(5"), last(b"(5")), (Ok(id(5, 1)), Ok(id(5, u64::MAX - 1))));
        assert_eq!((first(b"("), first(b"(-")), (Err(INVALID), Err(INVALID)));
        assert!(first(b"(18446744073709551615-18446744073709551615").is_err());
        assert!(last(b"(0-0").is_err());
        assert_eq!((next(id(1, u64::MAX)), previous(id(1, 0))), (Some(id(2, 0)), Some(id(0, u64::MAX))));
        assert_eq!(text(StreamId::MAX), b"18446744073709551615-18446744073709551615");
        for id in [StreamId::MAX, StreamId::MIN, id(9, 10), id(99, 100), id(1000, 999)] {
            assert_eq!(text(id), format!("{}-{}", id.ms, id.seq).into_bytes());
        }
    }
}

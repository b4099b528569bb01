//! The most frequent requests, read by one function: `get` with one key, and `set` that wants an answer.
//!
//! Called by the server ahead of the decoder, which reads everything else. Nothing is refused here: a request that is
//! not complete and valid is left to the decoder.

use super::{KEY_BYTES_MAX, MemcacheLimits};

/// A request in its plainest form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief<'a> {
    /// Its key, of 1 to 250 bytes.
    pub key: &'a [u8],
    /// The item of a `set`; `None` for a `get`.
    pub item: Option<BriefItem<'a>>,
    /// Its length in bytes.
    pub consumed: usize,
}

/// The item to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BriefItem<'a> {
    /// The client's flags.
    pub flags: u32,
    /// Its expiry, in seconds as sent; never negative.
    pub exptime: i64,
    /// The value.
    pub value: &'a [u8],
}

/// The request at the start of `buf`, if it is `get <key>` or `set <key> <flags> <exptime> <bytes>` with single
/// spaces, plain numbers and a whole value within the limits; the decoder gives the same result.
///
/// Cost: O(line).
#[inline]
pub fn brief<'a>(buf: &'a [u8], limits: &MemcacheLimits) -> Option<Brief<'a>> {
    let (name, rest) = buf.split_first_chunk::<4>()?;
    let key_len = word_len(rest)?;
    if !(1..=KEY_BYTES_MAX).contains(&key_len) {
        return None;
    }
    let (key, rest) = rest.split_at_checked(key_len)?;
    match (name, rest) {
        (b"get ", [b'\r', b'\n', ..]) => Some(Brief { key, item: None, consumed: 4 + key_len + 2 }),
        (b"set ", [b' ', rest @ ..]) => {
            let (flags, rest) = number(rest, b' ')?;
            let (exptime, rest) = number(rest, b' ')?;
            let (value_len, rest) = number(rest, b'\r')?;
            let (flags, value_len) = (u32::try_from(flags).ok()?, usize::try_from(value_len).ok()?);
            if !limits.allow(key, flags, value_len) {
                return None;
            }
            let (value, rest) = rest.strip_prefix(b"\n")?.split_at_checked(value_len)?;
            let rest = rest.strip_prefix(b"\r\n")?;
            let item = BriefItem { flags, exptime: i64::try_from(exptime).ok()?, value };
            Some(Brief { key, item: Some(item), consumed: buf.len() - rest.len() })
        }
        _ => None,
    }
}

/// Bytes before the first space or control character.
#[inline]
fn word_len(text: &[u8]) -> Option<usize> {
    let mut len = 0;
    let mut rest = text.get(..KEY_BYTES_MAX + 8).unwrap_or(text);
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        // The lowest set bit is that of the first byte below 0x21; borrows affect only higher bits.
        let ends = word.wrapping_sub(0x2121_2121_2121_2121) & !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            return Some(len + ends.trailing_zeros() as usize / 8);
        }
        (len, rest) = (len + 8, after);
    }
    rest.iter().position(|&byte| byte <= b' ').map(|at| len + at)
}

/// The number of one to ten digits before `end`, and the bytes after `end`.
#[inline]
fn number(text: &[u8], end: u8) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, &byte) in text.iter().enumerate().take(DIGITS_MAX + 1) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return if byte == end && at > 0 { Some((value, text.get(at + 1..)?)) } else { None };
        }
        value = value * 10 + u64::from(digit);
    }
    None
}

/// More digits are the decoder's.
const DIGITS_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use darter_base::rng::Rng;

    use super::super::{MemcacheCommand, MemcacheDecoder, MemcacheStep, Store};
    use super::*;

    /// Checks that the decoder reads the same.
    fn check(buf: &[u8]) -> bool {
        let limits = MemcacheLimits { item_bytes_max: 1000, ..MemcacheLimits::default() };
        let Some(found) = brief(buf, &limits) else { return false };
        let step = MemcacheDecoder::new().next(buf, &limits);
        let MemcacheStep::Command { command, consumed } = step else { panic!("{step:?} of {buf:?}") };
        assert_eq!(consumed, found.consumed, "{buf:?}");
        match (command, found.item) {
            (MemcacheCommand::Get { keys, cas: false, touch: None }, None) => {
                assert_eq!(keys.collect::<Vec<_>>(), [found.key], "{buf:?}");
            }
            (
                MemcacheCommand::Store { store: Store::Set, key, flags, exptime, value, noreply: false },
                Some(item),
            ) => {
                assert_eq!((key, flags, exptime, value), (found.key, item.flags, item.exptime, item.value));
            }
            (command, _) => panic!("{command:?} of {buf:?}"),
        }
        true
    }

    #[test]
    fn plain_requests_are_read_and_no_others() {
        let long = "k".repeat(250);
        for plain in [
            "get k\r\n",
            "get 1234567\r\n",
            "get 12345678\r\nget x\r\n",
            "set k 0 0 5\r\nhello\r\n",
            "set k 4294967295 2592001 0\r\n\r\nget",
            &format!("get {long}\r\n"),
            &format!("set {long} 0 0 1\r\nx\r\n"),
        ] {
            assert!(check(plain.as_bytes()), "{plain:?}");
        }
        for other in [
            "",
            "get",
            "get ",
            "get \r\n",
            "get k",
            "get k\n",
            "get k\r",
            "get  k\r\n",
            "get k \r\n",
            "get a b\r\n",
            "get a\tb\r\n",
            "gets k\r\n",
            "GET k\r\n",
            "set k 0 0 5 noreply\r\nhello\r\n",
            "set k 0 0 5\r\nhello",
            "set k 0 0 5\r\nhello!\r\n",
            "set k 0 -1 5\r\nhello\r\n",
            "set k +1 0 5\r\nhello\r\n",
            "set k 0 0 1001\r\n",
            "set k 4294967296 0 1\r\nx\r\n",
            "set k 0 99999999999 1\r\nx\r\n",
            "set k 0 0  1\r\nx\r\n",
            "set k 0 0\r\n",
            &format!("get {long}k\r\n"),
        ] {
            assert!(!check(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_as_the_decoder_reads_them() {
        let parts: &[&[u8]] = &[
            b"get ",
            b"set ",
            b"k",
            b"key:0001",
            b" ",
            b"0",
            b"7",
            b"42",
            b"\r\n",
            b"\n",
            b"\r",
            b"-",
            b"x",
            b"\0",
        ];
        let (mut rng, mut read) = (Rng::new(7), 0);
        for _ in 0..60_000 {
            let mut buf = parts[(rng.next_u64() % 2) as usize].to_vec();
            for _ in 0..rng.next_u64() % 14 {
                buf.extend_from_slice(parts[(rng.next_u64() % parts.len() as u64) as usize]);
            }
            read += usize::from(check(&buf));
        }
        assert!(read > 500, "{read}");
    }
}

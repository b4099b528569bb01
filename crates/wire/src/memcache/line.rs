//! The words of a memcached line, and the numbers among them.

use darter_base::number;

/// Words between spaces, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Line<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|&b| b != b' ')?;
        let rest = self.0.get(start..)?;
        let (word, rest) = rest.split_at(memchr::memchr(b' ', rest).unwrap_or(rest.len()));
        self.0 = rest;
        Some(word)
    }
}

/// A decimal number with or without a plus sign; leading zeros are allowed.
pub(super) fn parse_u64(word: &[u8]) -> Option<u64> {
    number::parse_u64_digits(word.strip_prefix(b"+").unwrap_or(word))
}

/// Like `parse_u64`, within 32 bits.
pub(super) fn parse_u32(word: &[u8]) -> Option<u32> {
    parse_u64(word).and_then(|n| u32::try_from(n).ok())
}

/// A number of seconds with any sign.
pub(super) fn parse_seconds(word: &[u8]) -> Option<i64> {
    match word {
        [b'-', digits @ ..] => number::parse_u64_digits(digits).and_then(|n| 0i64.checked_sub_unsigned(n)),
        _ => parse_u64(word).and_then(|n| i64::try_from(n).ok()),
    }
}

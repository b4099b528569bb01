//! A string value to read, however its record keeps it.

use std::borrow::Cow;

use darter_base::long;

use crate::ascii7;

/// A string value, borrowed from its record.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    /// The bytes of the value.
    Plain(&'a [u8]),
    /// Seven-bit packed; the number is the length in characters.
    Packed(&'a [u8], usize),
}

impl<'a> Text<'a> {
    /// Length in bytes, unpacked.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Text::Plain(bytes) => bytes.len(),
            Text::Packed(_, len) => len,
        }
    }

    /// Returns true if the value is the empty string.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Appends the value to `out`.
    #[inline]
    pub fn write_to(self, out: &mut Vec<u8>) {
        match self {
            Text::Plain(bytes) => out.extend_from_slice(bytes),
            Text::Packed(packed, len) => ascii7::unpack(packed, len, out),
        }
    }

    /// The value as one slice; copies only a packed one.
    pub fn bytes(self) -> Cow<'a, [u8]> {
        match self {
            Text::Plain(bytes) => Cow::Borrowed(bytes),
            Text::Packed(packed, len) => {
                let mut out = Vec::with_capacity(len);
                ascii7::unpack(packed, len, &mut out);
                Cow::Owned(out)
            }
        }
    }

    /// The bytes `from..to` of the value, cut to its length. Cost: O(to - from), for any length of the value.
    pub fn range(self, from: usize, to: usize) -> Cow<'a, [u8]> {
        let to = to.min(self.len());
        let from = from.min(to);
        match self {
            Text::Plain(bytes) => Cow::Borrowed(&bytes[from..to]),
            Text::Packed(..) => {
                let mut out = Vec::with_capacity(to - from + 16);
                self.range_to(from, to, &mut out);
                Cow::Owned(out)
            }
        }
    }

    /// Appends the bytes `from..to` of the value, cut to its length, to `out`. Cost: as [`Text::range`].
    pub fn range_to(self, from: usize, to: usize, out: &mut Vec<u8>) {
        let to = to.min(self.len());
        let from = from.min(to);
        match self {
            Text::Plain(bytes) => long::append(out, &bytes[from..to]),
            Text::Packed(packed, len) => {
                let start = out.len();
                // eight characters are seven bytes; the rest after the last eight is not packed
                let (first, whole) = (from / 8, len / 8);
                let (end, chars) = match to.div_ceil(8) {
                    last if last <= whole => (last * 7, last.saturating_sub(first) * 8),
                    _ => (packed.len(), len - first * 8),
                };
                ascii7::unpack(&packed[first * 7..end.max(first * 7)], chars, out);
                out.truncate(start + to - first * 8);
                out.drain(start..start + from - first * 8);
            }
        }
    }

    /// Returns true if the value equals `other`.
    pub fn equals(self, other: &[u8]) -> bool {
        self.len() == other.len() && *self.bytes() == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_of_a_packed_text_is_that_of_the_text() {
        for len in 0..40 {
            let text: Vec<u8> = (0..len).map(|i| (i * 37 % 128) as u8).collect();
            let mut packed = vec![0; ascii7::packed_len(len)];
            ascii7::pack(&text, &mut packed);
            for from in 0..len + 2 {
                for to in 0..len + 2 {
                    let expected = text.get(from.min(len)..to.min(len)).unwrap_or_default();
                    assert_eq!(
                        *Text::Packed(&packed, len).range(from, to),
                        *expected,
                        "{from}..{to} of {len}"
                    );
                    assert_eq!(*Text::Plain(&text).range(from, to), *expected);
                }
            }
        }
    }
}

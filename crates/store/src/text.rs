//! A string value to read, however its record keeps it.

use std::borrow::Cow;

use crate::ascii7;

/// A string value, borrowed from its record.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    /// The bytes as they are.
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

    /// Whether the value is the empty string.
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

    /// The value as one slice; copies only what was packed.
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

    /// Whether the value equals `other`.
    pub fn equals(self, other: &[u8]) -> bool {
        self.len() == other.len() && *self.bytes() == *other
    }
}

//! A position in bytes that are not trusted.

use std::borrow::Cow;

use darter_base::number;

use super::{Corrupt, lzf};

/// Bytes to read from the front.
#[derive(Clone, Copy, Debug)]
pub struct RdbSource<'a> {
    bytes: &'a [u8],
}

/// A length as RDB writes it, or the mark of a specially written string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RdbLength {
    /// A number of bytes or elements.
    Plain(u64),
    /// A string in special form: 0 to 2 integers, 3 compressed.
    Special(u8),
}

impl<'a> RdbSource<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> RdbSource<'a> {
        RdbSource { bytes }
    }

    /// Bytes not yet read.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Corrupt> {
        let (&byte, rest) = self.bytes.split_first().ok_or(Corrupt)?;
        self.bytes = rest;
        Ok(byte)
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Corrupt)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(Corrupt)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// The next length or mark.
    pub fn length(&mut self) -> Result<RdbLength, Corrupt> {
        let first = self.byte()?;
        let low = first & 0x3f;
        match (first >> 6, first) {
            (0, _) => Ok(RdbLength::Plain(u64::from(low))),
            (1, _) => Ok(RdbLength::Plain(u64::from(low) << 8 | u64::from(self.byte()?))),
            (2, 0x80) => Ok(RdbLength::Plain(u64::from(u32::from_be_bytes(self.array()?)))),
            (2, 0x81) => Ok(RdbLength::Plain(u64::from_be_bytes(self.array()?))),
            (3, _) => Ok(RdbLength::Special(low)),
            _ => Err(Corrupt),
        }
    }

    /// The next number of elements. It may exceed the remaining input: do not allocate by it.
    pub fn count(&mut self) -> Result<u64, Corrupt> {
        match self.length()? {
            RdbLength::Plain(n) => Ok(n),
            RdbLength::Special(_) => Err(Corrupt),
        }
    }

    /// The next string, in any of its forms. Cost: a copy unless it is written plainly.
    pub fn text(&mut self) -> Result<Cow<'a, [u8]>, Corrupt> {
        match self.length()? {
            RdbLength::Plain(len) => {
                Ok(Cow::Borrowed(self.take(usize::try_from(len).map_err(|_| Corrupt)?)?))
            }
            RdbLength::Special(0) => Ok(decimal(i64::from(i8::from_le_bytes(self.array()?)))),
            RdbLength::Special(1) => Ok(decimal(i64::from(i16::from_le_bytes(self.array()?)))),
            RdbLength::Special(2) => Ok(decimal(i64::from(i32::from_le_bytes(self.array()?)))),
            RdbLength::Special(3) => {
                let packed_len = usize::try_from(self.count()?).map_err(|_| Corrupt)?;
                let len = usize::try_from(self.count()?).map_err(|_| Corrupt)?;
                lzf::unpack(self.take(packed_len)?, len).map(Cow::Owned)
            }
            RdbLength::Special(_) => Err(Corrupt),
        }
    }

    /// The next eight bytes as a double.
    pub fn double(&mut self) -> Result<f64, Corrupt> {
        Ok(f64::from_le_bytes(self.array()?))
    }
}

fn decimal(value: i64) -> Cow<'static, [u8]> {
    let mut out = Vec::with_capacity(number::I64_TEXT_MAX);
    number::write_i64(&mut out, value);
    Cow::Owned(out)
}

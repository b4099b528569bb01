//! Little-endian numbers without padding, as SCANDUMP headers have them.

use crate::CorruptSketch;

/// Takes numbers off the front of a header.
pub(crate) struct Unpacker<'a>(pub &'a [u8]);

impl Unpacker<'_> {
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], CorruptSketch> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(CorruptSketch)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub fn u64(&mut self) -> Result<u64, CorruptSketch> {
        self.take().map(u64::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, CorruptSketch> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, CorruptSketch> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn f64(&mut self) -> Result<f64, CorruptSketch> {
        self.take().map(f64::from_le_bytes)
    }
}

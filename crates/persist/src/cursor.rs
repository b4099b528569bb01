//! A position in bytes that are not trusted and may be incomplete.
//!
//! Used by everything that reads files here. Unlike `store`'s `RdbSource` it distinguishes wrong bytes from missing
//! bytes, and names the offset. A reader of a stream then asks for more and tries again.

use std::borrow::Cow;

use darter_store::rdb::RdbSource;

/// Longest text that is accepted: the limit of a record.
pub const TEXT_BYTES_MAX: u64 = u32::MAX as u64;

/// Why reading went no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CursorStop {
    /// The bytes end too early.
    More,
    /// The bytes are wrong.
    Bad(CursorFault),
}

/// A fault and its offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorFault {
    /// Bytes from the start of the input.
    pub at: usize,
    /// The fault, as part of a sentence.
    pub what: &'static str,
}

/// Bytes to read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    // at <= bytes.len()
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// Bytes read so far.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns true if all is read.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The bytes from `start` to here.
    #[inline]
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// The bytes not yet read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// A fault `what` at this offset.
    pub fn bad(&self, what: &'static str) -> CursorStop {
        CursorStop::Bad(CursorFault { at: self.at, what })
    }

    /// The next byte, which is not passed.
    #[inline]
    pub fn peek(&self) -> Result<u8, CursorStop> {
        self.bytes.get(self.at).copied().ok_or(CursorStop::More)
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, CursorStop> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], CursorStop> {
        let end = self.at.checked_add(len).ok_or(CursorStop::More)?;
        let taken = self.bytes.get(self.at..end).ok_or(CursorStop::More)?;
        self.at = end;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CursorStop> {
        let taken = self.rest().first_chunk::<N>().ok_or(CursorStop::More)?;
        self.at += N;
        Ok(*taken)
    }

    /// The next number as RDB writes lengths and small numbers.
    #[inline]
    pub fn number(&mut self) -> Result<u64, CursorStop> {
        let start = self.at;
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        match first {
            0..=0x3f => Ok(low),
            0x40..=0x7f => Ok(low << 8 | u64::from(self.byte()?)),
            0x80 => Ok(u64::from(u32::from_be_bytes(self.array()?))),
            0x81 => Ok(u64::from_be_bytes(self.array()?)),
            _ => {
                self.at = start;
                Err(self.bad("an invalid first byte of a length"))
            }
        }
    }

    /// Passes a text in any of its forms; returns its encoded bytes.
    #[inline]
    pub fn pass_text(&mut self) -> Result<&'a [u8], CursorStop> {
        let start = self.at;
        match self.peek()? {
            0xc0..=0xc2 => {
                let width = 1usize << (self.byte()? & 3);
                self.take(width)?;
            }
            0xc3 => {
                self.byte()?;
                let packed = self.text_len()?;
                self.text_len()?;
                self.take(packed)?;
            }
            0xc4..=0xff => return Err(self.bad("an invalid first byte of a text")),
            _ => {
                let len = self.text_len()?;
                self.take(len)?;
            }
        }
        Ok(self.since(start))
    }

    /// The next text. Cost: a copy unless it is written plainly.
    pub fn text(&mut self) -> Result<Cow<'a, [u8]>, CursorStop> {
        let start = self.at;
        let written = self.pass_text()?;
        RdbSource::new(written).text().map_err(|_| {
            CursorStop::Bad(CursorFault { at: start, what: "a compressed text that does not unpack" })
        })
    }

    fn text_len(&mut self) -> Result<usize, CursorStop> {
        let start = self.at;
        let len = self.number()?;
        if len > TEXT_BYTES_MAX {
            self.at = start;
            return Err(self.bad("a text of 4 GiB or more"));
        }
        usize::try_from(len).map_err(|_| self.bad("a text of 4 GiB or more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_is_wrong_are_told_apart() {
        assert_eq!(Cursor::new(&[]).byte(), Err(CursorStop::More));
        assert_eq!(Cursor::new(&[0x41]).number(), Err(CursorStop::More));
        assert_eq!(Cursor::new(&[0x41, 2]).number(), Ok(0x102));
        assert!(matches!(Cursor::new(&[0xc0, 2]).number(), Err(CursorStop::Bad(CursorFault { at: 0, .. }))));
        assert!(matches!(Cursor::new(&[0x82, 2]).number(), Err(CursorStop::Bad(CursorFault { at: 0, .. }))));
        assert_eq!(Cursor::new(&[3, b'a', b'b']).text(), Err(CursorStop::More));
        assert!(matches!(Cursor::new(&[0xc4]).text(), Err(CursorStop::Bad(_))));
        let huge = [0x81, 0, 0, 0, 1, 0, 0, 0, 0];
        assert!(matches!(Cursor::new(&huge).text(), Err(CursorStop::Bad(CursorFault { at: 0, .. }))));
        assert!(matches!(Cursor::new(&[0xc3, 1, 5, 9]).text(), Err(CursorStop::Bad(_))));
    }

    #[test]
    fn texts_of_every_form_are_passed_and_read() {
        let forms: [(&[u8], &[u8]); 5] = [
            (&[2, b'a', b'b'], b"ab"),
            (&[0xc0, 0xff], b"-1"),
            (&[0xc1, 0x2c, 1], b"300"),
            (&[0xc2, 0x70, 0x11, 1, 0], b"70000"),
            (&[0xc3, 5, 4, 0, b'x', 0x20, 0, 0], b"xxxx"),
        ];
        for (written, text) in forms {
            let mut cursor = Cursor::new(written);
            assert_eq!(cursor.pass_text(), Ok(written));
            assert!(cursor.is_done());
            if text.len() < 4 || written[0] != 0xc3 {
                assert_eq!(Cursor::new(written).text().as_deref(), Ok(text));
            }
        }
    }
}

//! Replies in RESP2 or RESP3, written straight into a connection's output.
//!
//! Every method of `Reply` appends one element; elements of an array follow its header. Nothing here can fail, and no
//! text from a caller can forge a reply: line ends in one-line replies become spaces.

use darter_base::{long, number, short};

/// A writer of replies over an output buffer.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    resp3: bool,
}

/// The position of an array of unknown length.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Deferred {
    at: usize,
}

impl<'a> Reply<'a> {
    /// A writer that appends to `out`, in RESP3 when `resp3`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, resp3: bool) -> Self {
        Self { out, resp3 }
    }

    /// Returns true if the client speaks RESP3.
    #[inline]
    pub fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// Changes the protocol from here on, after HELLO.
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// Bytes in the output, from its start.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "it is a mark to go back to, not a size")]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Removes everything after `mark`, an earlier result of `len`.
    pub fn truncate_to(&mut self, mark: usize) {
        self.out.truncate(mark);
    }

    /// The bytes written since `mark`.
    pub fn since(&self, mark: usize) -> &[u8] {
        self.out.get(mark..).unwrap_or_default()
    }

    /// Appends finished replies, without a copy if the output is empty.
    pub fn take_over(&mut self, mut made: Vec<u8>) {
        if self.out.is_empty() {
            *self.out = made;
        } else {
            self.out.append(&mut made);
        }
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A status line, such as `PONG`.
    pub fn status(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'+', text.as_ref());
    }

    /// An error line: `text` starts with its code, `ERR syntax error`.
    #[cold]
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'-', text.as_ref());
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        match usize::try_from(value) {
            Ok(value @ 0..=999) => self.length(b':', value),
            _ => self.number(b':', value),
        }
    }

    /// An integer whose decimal text is already known.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`len` is at most the room of `line`")]
    pub fn int_text(&mut self, digits: &[u8]) {
        debug_assert!(number::parse_i64(digits).is_some());
        // Built beside the output, so that it is appended with a known length.
        let mut line = [b':'; number::I64_TEXT_MAX + 4];
        let len = digits.len().min(number::I64_TEXT_MAX);
        short::copy(&mut line[1..=len], &digits[..len]);
        line[len + 1..len + 3].copy_from_slice(b"\r\n");
        let end = self.out.len() + len + 3;
        self.out.extend_from_slice(&line);
        self.out.truncate(end);
    }

    /// A length as an integer; saturates at the largest one.
    #[inline]
    pub fn int_len(&mut self, value: usize) {
        self.int(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_header(bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Like [`Reply::bulk`], for a string that is known to be long.
    #[inline(never)]
    pub fn bulk_long(&mut self, bytes: &[u8]) {
        self.bulk_header(bytes.len());
        long::append(self.out, bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A string, or the null of strings.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// The decimal text of `value` as a string.
    #[inline]
    pub fn bulk_int(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// A string in parts: its header, to be followed by `len` bytes through `raw` and then by `bulk_end`.
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        self.length(b'$', len);
    }

    /// A string of `len` bytes that `write` appends to the output.
    #[inline]
    pub fn bulk_with(&mut self, len: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.length(b'$', len);
        let start = self.out.len();
        write(self.out);
        debug_assert_eq!(self.out.len() - start, len, "the header told the length already");
        self.out.extend_from_slice(b"\r\n");
    }

    /// The end of a string in parts.
    #[inline]
    pub fn bulk_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// No value: `_`, and in RESP2 the null string.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" as &[u8] } else { b"$-1\r\n" });
    }

    /// No value where an array was expected: `_`, and in RESP2 the null array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" as &[u8] } else { b"*-1\r\n" });
    }

    /// The header of an array of `len` elements.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.length(b'*', len);
    }

    /// The header of a map of `pairs` keys and values; in RESP2 an array of twice as many.
    #[inline]
    pub fn map(&mut self, pairs: usize) {
        if self.resp3 {
            self.length(b'%', pairs);
        } else {
            self.length(b'*', pairs.saturating_mul(2));
        }
    }

    /// The header of a set of `len` members; in RESP2 an array.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.length(if self.resp3 { b'~' } else { b'*' }, len);
    }

    /// The header of a message of `len` elements that answers no command; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        self.length(if self.resp3 { b'>' } else { b'*' }, len);
    }

    /// The header of `pairs` attributes of the next element. RESP3 only: in RESP2 nothing is written and the caller
    /// must leave the pairs out; returns true if they must follow.
    pub fn attribute(&mut self, pairs: usize) -> bool {
        if self.resp3 {
            self.length(b'|', pairs);
        }
        self.resp3
    }

    /// A double; in RESP2 its text as a string.
    pub fn double(&mut self, value: f64) {
        let mark = self.out.len();
        if self.resp3 {
            self.out.push(b',');
            number::write_f64(self.out, value);
            self.bulk_end();
        } else {
            // Printed after a two-digit header, which nearly always fits; corrected otherwise.
            self.out.extend_from_slice(b"$00\r\n");
            let start = self.out.len();
            number::write_f64(self.out, value);
            let len = self.out.len() - start;
            // The text has 1 to 24 bytes.
            let digits = u8::try_from(len).unwrap_or(99);
            let (tens, units) = (b'0' + digits / 10, b'0' + digits % 10);
            if let Some([_, first, second, ..]) = self.out.get_mut(mark..) {
                (*first, *second) = if len >= 10 { (tens, units) } else { (units, tens) };
            }
            if len < 10 {
                self.out.remove(mark + 2);
            }
            self.bulk_end();
        }
    }

    /// A double that is already text; in RESP2 a string.
    pub fn double_text(&mut self, digits: &[u8]) {
        if self.resp3 {
            self.line(b',', digits);
        } else {
            self.bulk(digits);
        }
    }

    /// A whole number too large for an integer, as text; in RESP2 a string.
    pub fn big_number(&mut self, digits: &[u8]) {
        if self.resp3 {
            self.line(b'(', digits);
        } else {
            self.bulk(digits);
        }
    }

    /// True or false; in RESP2 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        let text: &[u8] = match (self.resp3, value) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        };
        self.out.extend_from_slice(text);
    }

    /// Text with a format of three letters (`txt`, `mkd`); in RESP2 a string without it.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        if self.resp3 {
            self.length(b'=', text.len() + 4);
            self.out.extend_from_slice(&format);
            self.out.push(b':');
            self.out.extend_from_slice(text);
            self.bulk_end();
        } else {
            self.bulk(text);
        }
    }

    /// Bytes that are replies already, or part of a string begun by `bulk_header`.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Begins an array whose length is not known; `end_array`, `end_map` or `end_set` must follow its elements.
    #[inline]
    pub fn begin_array(&mut self) -> Deferred {
        let at = self.out.len();
        self.out.extend_from_slice(b"*0\r\n");
        Deferred { at }
    }

    /// Ends an array of `len` elements. Cost: from 10 elements on, moves its bytes by one a further digit.
    #[inline]
    pub fn end_array(&mut self, begun: Deferred, len: usize) {
        self.patch(begun, b'*', len);
    }

    /// Ends a map of `pairs`; in RESP2 an array of twice as many.
    pub fn end_map(&mut self, begun: Deferred, pairs: usize) {
        if self.resp3 {
            self.patch(begun, b'%', pairs);
        } else {
            self.patch(begun, b'*', pairs.saturating_mul(2));
        }
    }

    /// Ends a set of `len` members; in RESP2 an array.
    pub fn end_set(&mut self, begun: Deferred, len: usize) {
        self.patch(begun, if self.resp3 { b'~' } else { b'*' }, len);
    }

    #[expect(clippy::indexing_slicing, reason = "the placeholder and room for more digits are there")]
    fn patch(&mut self, begun: Deferred, kind: u8, len: usize) {
        let digits = number::digits(len as u64);
        let old_len = self.out.len();
        let body = begun.at + PLACEHOLDER_LEN;
        debug_assert!(body <= old_len);
        if digits > 1 {
            self.out.resize(old_len + digits - 1, 0);
            self.out.copy_within(body..old_len, body + digits - 1);
        }
        let mut text = itoa::Buffer::new();
        let header = &mut self.out[begun.at..body + digits - 1];
        header[0] = kind;
        header[1..=digits].copy_from_slice(text.format(len).as_bytes());
        header[digits + 1..].copy_from_slice(b"\r\n");
    }

    #[inline]
    fn length(&mut self, kind: u8, len: usize) {
        let Some(&line) = SHORT_LINES.get(len) else {
            return self.number(kind, i64::try_from(len).unwrap_or(i64::MAX));
        };
        // One store of eight bytes, truncated to the length: cheaper than a store for each digit.
        let end = self.out.len() + (line >> 56) as usize;
        self.out.extend_from_slice(&(line | u64::from(kind)).to_le_bytes());
        self.out.truncate(end);
    }

    #[inline(never)]
    fn number(&mut self, kind: u8, value: i64) {
        self.out.push(kind);
        number::write_i64(self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        let start = self.out.len();
        self.out.extend_from_slice(text);
        for byte in self.out.iter_mut().skip(start) {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }
}

// `*0\r\n`, what `begin_array` leaves room with.
const PLACEHOLDER_LEN: usize = 4;

/// `.0\r\n` to `.999\r\n` as words, with room for the kind in the lowest byte and the line's length in the highest.
pub(crate) static SHORT_LINES: [u64; 1000] = short_lines();

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a table the compiler makes")]
const fn short_lines() -> [u64; 1000] {
    let mut lines = [0; 1000];
    let mut value = 0;
    while value < lines.len() {
        let digits = if value < 10 { 1 } else { 2 + (value >= 100) as usize };
        let mut line = [0, 0, 0, 0, 0, 0, 0, digits as u8 + 3];
        let (mut rest, mut at) = (value, digits);
        while at > 0 {
            line[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            at -= 1;
        }
        line[digits + 1] = b'\r';
        line[digits + 2] = b'\n';
        lines[value] = u64::from_le_bytes(line);
        value += 1;
    }
    lines
}

#[cfg(test)]
mod tests;

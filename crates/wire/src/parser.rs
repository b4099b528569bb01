//! The request side of RESP: finds the commands in the bytes a client sent, without copying them.
//!
//! One parser a connection. It keeps only the progress of an unfinished command, so that bytes are looked at once
//! however they were cut on the way. It never allocates by a length it was told, only by what has arrived.

use darter_base::number;

use crate::args::{OwnedArgs, Span};
use crate::error::ProtocolError;
use crate::inline;

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest argument, in bytes (`proto-max-bulk-len`).
    pub bulk_bytes_max: u64,
    /// Most arguments of one command; 9 are always allowed.
    pub args_max: u64,
    /// Longest line: of an inline command, and of a length.
    pub inline_bytes_max: usize,
    /// Whether the client may act; before that, commands have at most 10 arguments of at most 16 KiB.
    pub authenticated: bool,
}

impl Default for Limits {
    /// Redis' limits, for a client that has logged in.
    fn default() -> Self {
        Self { bulk_bytes_max: 512 << 20, args_max: 1 << 20, inline_bytes_max: 64 << 10, authenticated: true }
    }
}

/// What the bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A command in the first `consumed` bytes; its arguments were appended to the spans.
    Command {
        /// Length of the command in the buffer.
        consumed: usize,
    },
    /// A command typed as a line with quotes, which had to be copied to be unquoted; no spans were appended.
    Quoted {
        /// Length of the line in the buffer.
        consumed: usize,
        /// The unquoted words; at least one.
        args: Box<OwnedArgs>,
    },
    /// An empty line or array in the first `consumed` bytes; nothing to run.
    Empty {
        /// Length of it in the buffer.
        consumed: usize,
    },
    /// Not a whole command yet.
    More {
        /// Bytes that are needed at least, at most `bulk_bytes_max` plus 2.
        want: usize,
    },
    /// The client broke the protocol; it gets the error and is closed.
    Fail(ProtocolError),
}

/// The progress of a connection's unfinished command, 40 bytes.
#[derive(Debug, Default)]
pub struct Parser {
    /// Arguments that were complete when the bytes ran out, relative to the start of the command.
    partial: Vec<Span>,
    /// Bytes of the command that are understood: everything before the next argument.
    at: u32,
    /// Arguments still to come. 0: not inside an array.
    args_left: u32,
    /// Bytes after `at` that hold no end of line.
    scanned: u32,
}

impl Parser {
    /// A parser before the first byte of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no command is half read.
    pub fn is_idle(&self) -> bool {
        self.args_left == 0 && self.scanned == 0
    }

    /// Reads one command from the start of `buf`.
    ///
    /// `buf` starts at the first byte of the current command; after `More` it must start with the same bytes and hold
    /// more. `base` is the offset of `buf` in the buffer that the spans refer to. Spans are appended only for
    /// `Command`. Cost: about 25 instructions an argument; bytes of an argument are not looked at.
    #[inline]
    pub fn next(&mut self, buf: &[u8], base: u32, limits: &Limits, spans: &mut Vec<Span>) -> Step {
        // All of it then fits a span.
        if buf.len() + base as usize > u32::MAX as usize {
            return Step::Fail(ProtocolError::RequestTooLong);
        }
        // A new command of at most 9 arguments, by far the most common.
        if self.args_left == 0
            && let Some((args_len @ 1..=9, at)) = short_number(buf, b'*')
        {
            let mark = spans.len();
            let mut walk = Walk { buf, base, at, args_left: args_len, limits };
            return match walk.args(spans) {
                Ok(()) => {
                    self.scanned = 0;
                    Step::Command { consumed: walk.at }
                }
                Err(stop) => self.suspend(&walk, mark, spans, stop),
            };
        }
        self.next_slow(buf, base, limits, spans)
    }

    #[cold]
    fn next_slow(&mut self, buf: &[u8], base: u32, limits: &Limits, spans: &mut Vec<Span>) -> Step {
        let mut walk =
            Walk { buf, base: 0, at: self.at as usize, args_left: self.args_left as usize, limits };
        if walk.args_left == 0 {
            match buf.first() {
                None => return Step::More { want: 1 },
                Some(b'*') => match walk.array_header(self.scanned as usize) {
                    Ok(0) => return self.finish(Step::Empty { consumed: walk.at }),
                    Ok(args_len) => walk.args_left = args_len,
                    Err(stop) => return self.stop(&walk, stop),
                },
                Some(_) => return self.inline(&walk, base, spans),
            }
        } else if walk.array_stalls(self.scanned as usize) {
            // A length that trickles in is not read again from its start.
            self.scanned = (buf.len() - walk.at) as u32;
            return Step::More { want: 1 };
        }
        match walk.args(&mut self.partial) {
            Ok(()) => {
                let rebased =
                    self.partial.iter().map(|span| Span { start: span.start + base, len: span.len });
                spans.extend(rebased);
                self.finish(Step::Command { consumed: walk.at })
            }
            Err(stop) => self.stop(&walk, stop),
        }
    }

    /// Takes over the arguments read since `mark`, because the rest of their command is not there.
    #[cold]
    fn suspend(&mut self, walk: &Walk<'_>, mark: usize, spans: &mut Vec<Span>, stop: Stop) -> Step {
        let read = spans.drain(mark..);
        self.partial.extend(read.map(|span| Span { start: span.start - walk.base, len: span.len }));
        self.stop(walk, stop)
    }

    fn stop(&mut self, walk: &Walk<'_>, stop: Stop) -> Step {
        match stop {
            Stop::Line => {
                self.at = walk.at as u32;
                self.args_left = walk.args_left as u32;
                self.scanned = (walk.buf.len() - walk.at) as u32;
                Step::More { want: 1 }
            }
            Stop::Bulk { want } => {
                self.at = walk.at as u32;
                self.args_left = walk.args_left as u32;
                self.scanned = 0;
                Step::More { want }
            }
            Stop::Fail(error) => Step::Fail(error),
        }
    }

    fn finish(&mut self, step: Step) -> Step {
        self.at = 0;
        self.args_left = 0;
        self.scanned = 0;
        // A few spans are kept for the next cut; a giant command's are not.
        if self.partial.capacity() > SPANS_KEPT {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
        }
        step
    }

    /// A command typed as a line.
    fn inline(&mut self, walk: &Walk<'_>, base: u32, spans: &mut Vec<Span>) -> Step {
        let end = match walk.line_end(b'\n', self.scanned as usize) {
            Ok(Some(end)) => end,
            Ok(None) => return self.stop(walk, Stop::Line),
            Err(TooLong) => return Step::Fail(ProtocolError::InlineTooLong),
        };
        let consumed = end + 1;
        let line = &walk.buf[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mark = spans.len();
        if inline::split_plain(line, base, spans).is_some() {
            let empty = spans.len() == mark;
            return self.finish(if empty { Step::Empty { consumed } } else { Step::Command { consumed } });
        }
        match inline::split_quoted(line) {
            Ok(args) => self.finish(Step::Quoted { consumed, args: Box::new(args) }),
            Err(error) => Step::Fail(error),
        }
    }
}

/// A walk over the arguments of one array.
struct Walk<'a> {
    buf: &'a [u8],
    base: u32,
    // at <= buf.len(), at an argument's `$`
    at: usize,
    args_left: usize,
    limits: &'a Limits,
}

/// Why a walk ends before its array does.
enum Stop {
    /// In the middle of a length.
    Line,
    /// In the middle of an argument.
    Bulk {
        want: usize,
    },
    Fail(ProtocolError),
}

struct TooLong;

impl Walk<'_> {
    /// Reads arguments until none is left.
    #[inline]
    fn args(&mut self, spans: &mut Vec<Span>) -> Result<(), Stop> {
        while self.args_left > 0 {
            let rest = self.buf.get(self.at..).unwrap_or_default();
            let (len, header) = match short_number(rest, b'$') {
                Some(found) if found.0 as u64 <= self.limits.bulk_bytes_max => found,
                _ => self.bulk_header()?,
            };
            let start = self.at + header;
            let end = start + len;
            match self.buf.get(end..) {
                Some([b'\r', b'\n', ..]) => {}
                tail => return Err(self.bulk_stop(tail, end)),
            }
            // `next` has checked that base + buf.len() fits.
            spans.push(Span { start: self.base + start as u32, len: len as u32 });
            self.at = end + 2;
            self.args_left -= 1;
        }
        Ok(())
    }

    #[cold]
    fn bulk_stop(&self, tail: Option<&[u8]>, end: usize) -> Stop {
        match tail {
            Some([b'\r'] | []) | None => Stop::Bulk { want: end + 2 - self.buf.len() },
            _ => Stop::Fail(ProtocolError::BulkEnd),
        }
    }

    /// The length of the argument here, and of its header, by all the rules.
    #[cold]
    fn bulk_header(&self) -> Result<(usize, usize), Stop> {
        let end = match self.line_end(b'\r', 0) {
            Ok(Some(end)) => end,
            Ok(None) => return Err(Stop::Line),
            Err(TooLong) => return Err(Stop::Fail(ProtocolError::BulkLineTooLong)),
        };
        let digits = match &self.buf[self.at..end] {
            [b'$', digits @ ..] => digits,
            line => {
                let first = line.first().copied().unwrap_or(b'\r');
                return Err(Stop::Fail(ProtocolError::ExpectedDollar(first)));
            }
        };
        let len = number::parse_u64(digits).filter(|&len| len <= self.limits.bulk_bytes_max);
        let Some(len) = len.and_then(|len| u32::try_from(len).ok()) else {
            return Err(Stop::Fail(ProtocolError::BulkLength));
        };
        if !self.limits.authenticated && u64::from(len) > UNAUTHENTICATED_BULK_BYTES_MAX {
            return Err(Stop::Fail(ProtocolError::UnauthenticatedBulkLength));
        }
        match self.buf.get(end + 1) {
            Some(b'\n') => Ok((len as usize, end + 2 - self.at)),
            Some(_) => Err(Stop::Fail(ProtocolError::BulkLength)),
            None => Err(Stop::Line),
        }
    }

    /// Reads the header of an array; returns how many arguments follow. 0 also stands for a null array.
    fn array_header(&mut self, scanned: usize) -> Result<usize, Stop> {
        let end = match self.line_end(b'\r', scanned) {
            Ok(Some(end)) => end,
            Ok(None) => return Err(Stop::Line),
            Err(TooLong) => return Err(Stop::Fail(ProtocolError::MultibulkLineTooLong)),
        };
        let digits = self.buf.get(self.at + 1..end).unwrap_or_default();
        let args_len = number::parse_i64(digits)
            .filter(|&n| n <= i64::from(i32::MAX) && n <= self.limits.args_max.min(i64::MAX as u64) as i64);
        let Some(args_len) = args_len else {
            return Err(Stop::Fail(ProtocolError::MultibulkLength));
        };
        if !self.limits.authenticated && args_len > UNAUTHENTICATED_ARGS_MAX {
            return Err(Stop::Fail(ProtocolError::UnauthenticatedMultibulkLength));
        }
        match self.buf.get(end + 1) {
            Some(b'\n') => {
                self.at = end + 2;
                Ok(usize::try_from(args_len).unwrap_or(0))
            }
            Some(_) => Err(Stop::Fail(ProtocolError::MultibulkLength)),
            None => Err(Stop::Line),
        }
    }

    /// Whether the line here still has no end, `scanned` bytes of it having been seen; errors are left to the walk.
    fn array_stalls(&self, scanned: usize) -> bool {
        scanned > 0 && matches!(self.line_end(b'\r', scanned), Ok(None))
    }

    /// Offset in the buffer of the `mark` that ends the line at `at`; the first `scanned` bytes of it hold none.
    ///
    /// The same bytes give the same answer however they were cut, so a line that has arrived whole is too long as well.
    fn line_end(&self, mark: u8, scanned: usize) -> Result<Option<usize>, TooLong> {
        let line = self.buf.get(self.at..).unwrap_or_default();
        // Of the last byte seen one more look: its line feed may be what is missing.
        let from = scanned.saturating_sub(1).min(line.len());
        let found = memchr::memchr(mark, &line[from..]).map(|end| from + end);
        if found.unwrap_or(line.len()) > self.limits.inline_bytes_max {
            return Err(TooLong);
        }
        Ok(found.map(|end| self.at + end))
    }
}

/// The number of 1 to 4 digits, and its line's length, when `rest` starts with `kind`, the number and CR LF.
#[inline(always)]
fn short_number(rest: &[u8], kind: u8) -> Option<(usize, usize)> {
    let &[first, a, b, c, ref more @ ..] = rest else { return None };
    let digit = usize::from(a.wrapping_sub(b'0'));
    if first != kind || digit > 9 {
        return None;
    }
    if b == b'\r' {
        return (c == b'\n').then_some((digit, 4));
    }
    // No leading zero in front of more digits.
    let tens = usize::from(b.wrapping_sub(b'0'));
    if tens > 9 || digit == 0 {
        return None;
    }
    let number = digit * 10 + tens;
    match (c, more) {
        (b'\r', [b'\n', ..]) => Some((number, 5)),
        (b'0'..=b'9', [b'\r', b'\n', ..]) => Some((number * 10 + usize::from(c - b'0'), 6)),
        (b'0'..=b'9', [d @ b'0'..=b'9', b'\r', b'\n', ..]) => {
            Some((number * 100 + usize::from(c - b'0') * 10 + usize::from(d - b'0'), 7))
        }
        _ => None,
    }
}

const UNAUTHENTICATED_ARGS_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_BYTES_MAX: u64 = 16 << 10;
const SPANS_KEPT: usize = 64;

#[cfg(test)]
mod tests;

//! The request side of RESP: finds the commands in the bytes a client sent, without copying them.
//!
//! One parser a connection. It keeps only the progress of an unfinished command, so that bytes are examined once,
//! however they are split into packets. It never allocates by an announced length, only by the bytes received.

use darter_base::number;

use crate::args::{OwnedArgs, Span, narrow};
use crate::error::ProtocolError;
use crate::inline;
use crate::short::{digit, length_in};

/// Limits of a client's requests.
#[derive(Clone, Copy, Debug)]
pub struct ParserLimits {
    /// Longest argument, in bytes (`proto-max-bulk-len`); 9,999 are always allowed.
    pub bulk_bytes_max: u64,
    /// Most arguments of one command; 9 are always allowed.
    pub args_max: u64,
    /// Longest line: of an inline command, and of a length.
    pub inline_bytes_max: usize,
    /// True if the client may run commands; before that, commands have at most 10 arguments of at most 16 KiB.
    pub authenticated: bool,
}

impl Default for ParserLimits {
    /// Redis' limits, for a client that has logged in.
    fn default() -> Self {
        Self { bulk_bytes_max: 512 << 20, args_max: 1 << 20, inline_bytes_max: 64 << 10, authenticated: true }
    }
}

/// The result of reading the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub enum ParserStep {
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

/// The part that was parsed of a command that is incomplete, or not run yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParserProgress {
    /// Bytes of its whole arguments.
    pub args_bytes: usize,
    /// Bytes of the buffer before the first unparsed one.
    pub bytes: usize,
}

/// The progress of a connection's unfinished command, 40 bytes.
#[derive(Debug, Default)]
pub struct Parser {
    /// Arguments that were complete when the bytes ran out, relative to the start of the command.
    partial: Vec<Span>,
    /// Bytes of the command that are parsed: everything before the next argument.
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

    /// Returns true if no command is partly read.
    pub fn is_idle(&self) -> bool {
        self.args_left == 0 && self.scanned == 0
    }

    /// The parsed part of the unfinished command at the start of `buf`. Cost: a visit of each argument.
    pub fn progress(&self, buf: &[u8]) -> ParserProgress {
        let at = self.at as usize;
        // The length of a partly received argument is known.
        let header = match bulk_header(buf.get(at..).unwrap_or_default(), &ParserLimits::default()) {
            Ok((_, header)) if self.args_left > 0 => header,
            _ => 0,
        };
        ParserProgress {
            args_bytes: self.partial.iter().map(|span| span.len as usize).sum(),
            bytes: at + header,
        }
    }

    /// Memory it holds, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.partial.capacity() * size_of::<Span>()
    }

    /// Reads one command from the start of `buf`.
    ///
    /// `buf` starts at the first byte of the current command; after `More` it must start with the same bytes and hold
    /// more. `base` is the offset of `buf` in the buffer that the spans refer to. Spans are appended only for
    /// `Command`. Cost: about 40 instructions and 40 an argument; bytes of an argument are not examined.
    #[inline]
    pub fn next(
        &mut self,
        buf: &[u8],
        base: u32,
        limits: &ParserLimits,
        spans: &mut Vec<Span>,
    ) -> ParserStep {
        // All of it then fits a span.
        if buf.len() + base as usize > u32::MAX as usize {
            return ParserStep::Fail(ProtocolError::RequestTooLong);
        }
        if self.args_left == 0 {
            let mark = spans.len();
            if let Some(consumed) = short_command(buf, base, spans) {
                self.scanned = 0;
                return ParserStep::Command { consumed };
            }
            spans.truncate(mark);
        }
        self.next_slow(buf, base, limits, spans)
    }

    /// A command that continues, is long, or is not an array.
    #[inline(never)]
    fn next_slow(
        &mut self,
        buf: &[u8],
        base: u32,
        limits: &ParserLimits,
        spans: &mut Vec<Span>,
    ) -> ParserStep {
        let (mut at, mut args_left) = (self.at as usize, self.args_left as usize);
        let rest = buf.get(at..).unwrap_or_default();
        let scanned = self.scanned as usize;
        if args_left == 0 {
            match rest.first() {
                None => return ParserStep::More { want: 1 },
                Some(b'*') => match array_header(rest, scanned, limits) {
                    Ok((0, header)) => return self.finish(ParserStep::Empty { consumed: header }),
                    Ok((args_len, header)) => (args_left, at) = (args_len, header),
                    Err(stop) => return self.pause(buf, ParserPause { at, args_left, stop }),
                },
                Some(_) => return self.inline(buf, base, limits, spans),
            }
        } else if scanned > 0 && matches!(header_end(rest, scanned, limits), Ok(None)) {
            // A length that arrives in pieces is not parsed again from its start.
            return self.pause(buf, ParserPause { at, args_left, stop: ParserStop::Line });
        }
        if self.partial.is_empty() {
            let mark = spans.len();
            return match arguments(buf, base, at, args_left, limits, spans) {
                Ok(consumed) => self.finish(ParserStep::Command { consumed }),
                Err(pause) => {
                    let read = spans.drain(mark..);
                    self.partial.extend(read.map(|span| Span { start: span.start - base, len: span.len }));
                    self.pause(buf, pause)
                }
            };
        }
        match arguments(buf, 0, at, args_left, limits, &mut self.partial) {
            Ok(consumed) => {
                let rebased =
                    self.partial.iter().map(|span| Span { start: span.start + base, len: span.len });
                spans.extend(rebased);
                self.finish(ParserStep::Command { consumed })
            }
            Err(pause) => self.pause(buf, pause),
        }
    }

    fn pause(&mut self, buf: &[u8], pause: ParserPause) -> ParserStep {
        // The command lies in a buffer below 4 GiB, and has at most as many arguments.
        self.at = narrow(pause.at);
        self.args_left = narrow(pause.args_left);
        self.scanned = 0;
        match pause.stop {
            ParserStop::Line => {
                self.scanned = narrow(buf.len() - pause.at);
                ParserStep::More { want: 1 }
            }
            ParserStop::Bulk { want } => ParserStep::More { want },
            ParserStop::Fail(error) => ParserStep::Fail(error),
        }
    }

    fn finish(&mut self, step: ParserStep) -> ParserStep {
        self.at = 0;
        self.args_left = 0;
        self.scanned = 0;
        // A few spans are kept for the next cut; those of a giant command are freed.
        if self.partial.capacity() > SPANS_KEPT {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
        }
        step
    }

    /// A command typed as a line.
    fn inline(&mut self, buf: &[u8], base: u32, limits: &ParserLimits, spans: &mut Vec<Span>) -> ParserStep {
        let end = match line_end(buf, b'\n', self.scanned as usize, limits) {
            Ok(Some(end)) => end,
            Ok(None) => return self.pause(buf, ParserPause { at: 0, args_left: 0, stop: ParserStop::Line }),
            Err(RequestTooLong) => return ParserStep::Fail(ProtocolError::InlineTooLong),
        };
        let consumed = end + 1;
        let line = buf.get(..end).unwrap_or(buf);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mark = spans.len();
        if inline::split_plain(line, base, spans).is_some() {
            let empty = spans.len() == mark;
            return self.finish(if empty {
                ParserStep::Empty { consumed }
            } else {
                ParserStep::Command { consumed }
            });
        }
        match inline::split_quoted(line) {
            Ok(args) => self.finish(ParserStep::Quoted { consumed, args: Box::new(args) }),
            Err(error) => ParserStep::Fail(error),
        }
    }
}

/// The point at which the arguments of an array are incomplete.
struct ParserPause {
    /// Offset of the first argument that is not complete.
    at: usize,
    args_left: usize,
    stop: ParserStop,
}

/// The reason why reading stops before a command does.
enum ParserStop {
    /// In the middle of a length.
    Line,
    /// In the middle of an argument.
    Bulk {
        want: usize,
    },
    Fail(ProtocolError),
}

struct RequestTooLong;

/// Reads a whole command of the usual form: an array of 1 to 9 arguments, a name of at most 9 bytes, other arguments
/// of at most 999, completely received. Returns its length; `None` for everything else, with some spans appended.
///
/// Eight bytes are compared as one word: they hold `*2\r\n$3\r\n`, or the end of one argument and the length of the
/// next. No number in them exceeds any client's limits. Commands of two and three arguments have separate code
/// without a loop, which appends their spans together.
#[inline(always)]
fn short_command(buf: &[u8], base: u32, spans: &mut Vec<Span>) -> Option<usize> {
    let word = u64::from_le_bytes(*buf.first_chunk()?);
    if word & !(0xff << 8 | 0xff << 40) != u64::from_le_bytes(*b"*\0\r\n$\0\r\n") {
        return None;
    }
    let (args_len, len) = (digit(word, 1), digit(word, 5));
    if args_len.wrapping_sub(1) > 8 || len > 9 {
        return None;
    }
    // `next` has checked that base + buf.len() fits.
    let span = |(start, len): (usize, usize)| Span::new(start, len).after(base);
    let name = (8, len);
    let after = match args_len {
        2 => {
            let key = argument_after(buf, name)?;
            spans.extend_from_slice(&[span(name), span(key)]);
            key.0 + key.1
        }
        3 => {
            let key = argument_after(buf, name)?;
            let value = argument_after(buf, key)?;
            spans.extend_from_slice(&[span(name), span(key), span(value)]);
            value.0 + value.1
        }
        _ => {
            let mut last = name;
            spans.push(span(name));
            for _ in 1..args_len {
                last = argument_after(buf, last)?;
                spans.push(span(last));
            }
            last.0 + last.1
        }
    };
    (buf.get(after..)?.first_chunk() == Some(b"\r\n")).then_some(after + 2)
}

/// Start and length of the argument after the one at `(start, len)`.
#[inline(always)]
fn argument_after(buf: &[u8], (start, len): (usize, usize)) -> Option<(usize, usize)> {
    let end = start + len;
    let word = u64::from_le_bytes(*buf.get(end..)?.first_chunk()?);
    let (len, header) = length_in(word)?;
    Some((end + header, len))
}

/// Reads `args_len` arguments from `at` on; returns their end. Reserves room only for those received.
fn arguments(
    buf: &[u8],
    base: u32,
    at: usize,
    args_len: usize,
    limits: &ParserLimits,
    spans: &mut Vec<Span>,
) -> Result<usize, ParserPause> {
    let mut rest = buf.get(at..).unwrap_or_default();
    let span = |(start, len): (usize, usize)| Span::new(start, len).after(base);
    let mut done = 0;
    while done < args_len {
        let mut last = match argument(rest, limits) {
            Ok((data_len, len, tail)) => {
                rest = tail;
                (buf.len() - data_len, len)
            }
            Err(stop) => {
                return Err(ParserPause { at: buf.len() - rest.len(), args_left: args_len - done, stop });
            }
        };
        spans.push(span(last));
        done += 1;
        // Further arguments are mostly short: their headers are compared as one word, with the end of the argument
        // before.
        while done < args_len
            && let Some(next) = argument_after(buf, last)
            && let Some([b'\r', b'\n', end @ ..]) = buf.get(next.0 + next.1..)
        {
            (last, rest) = (next, end);
            spans.push(span(last));
            done += 1;
        }
    }
    Ok(buf.len() - rest.len())
}

/// The argument at the start of `rest`: the number of bytes from its data on, its length, and the bytes after it.
#[inline(always)]
fn argument<'a>(rest: &'a [u8], limits: &ParserLimits) -> Result<(usize, usize, &'a [u8]), ParserStop> {
    let (len, header) = bulk_header(rest, limits)?;
    match rest.get(header + len..) {
        Some([b'\r', b'\n', tail @ ..]) => Ok((rest.len() - header, len, tail)),
        tail => Err(bulk_stop(tail, rest, header + len + 2)),
    }
}

/// The result for an argument that is not followed by CR LF; it should end at `end` of `rest`.
#[cold]
fn bulk_stop(tail: Option<&[u8]>, rest: &[u8], end: usize) -> ParserStop {
    match tail {
        None | Some([] | [b'\r']) => ParserStop::Bulk { want: end - rest.len() },
        _ => ParserStop::Fail(ProtocolError::MissingCrlf),
    }
}

/// The length of the argument at the start of `rest`, and of its header.
#[inline(always)]
fn bulk_header(rest: &[u8], limits: &ParserLimits) -> Result<(usize, usize), ParserStop> {
    // Nearly always up to 4 digits.
    if let [b'$', first @ b'0'..=b'9', digits @ ..] = rest {
        let mut len = usize::from(first - b'0');
        for (at, &byte) in digits.iter().take(4).enumerate() {
            match byte {
                b'0'..=b'9' if len > 0 => len = len * 10 + usize::from(byte - b'0'),
                b'\r' if digits.get(at + 1) == Some(&b'\n') && len as u64 <= LIMIT_FLOOR => {
                    return Ok((len, at + 4));
                }
                _ => break,
            }
        }
    }
    any_bulk_header(rest, limits)
}

/// Like `bulk_header`, for every valid form.
#[cold]
fn any_bulk_header(rest: &[u8], limits: &ParserLimits) -> Result<(usize, usize), ParserStop> {
    let end = match header_end(rest, 0, limits) {
        Ok(Some(end)) => end,
        Ok(None) => return Err(ParserStop::Line),
        Err(RequestTooLong) => return Err(ParserStop::Fail(ProtocolError::BulkLineTooLong)),
    };
    let digits = match rest.get(..end).unwrap_or(rest) {
        [b'$', digits @ ..] => digits,
        line => {
            let first = line.first().copied().unwrap_or(b'\r');
            return Err(ParserStop::Fail(ProtocolError::ExpectedDollar(first)));
        }
    };
    let len = number::parse_u64(digits).filter(|&len| len <= limits.bulk_bytes_max.max(LIMIT_FLOOR));
    let Some(len) = len.and_then(|len| u32::try_from(len).ok()) else {
        return Err(ParserStop::Fail(ProtocolError::BulkLength));
    };
    if !limits.authenticated && u64::from(len) > UNAUTHENTICATED_BULK_BYTES_MAX {
        return Err(ParserStop::Fail(ProtocolError::UnauthenticatedBulkLength));
    }
    match rest.get(end + 1) {
        Some(b'\n') => Ok((len as usize, end + 2)),
        _ => Err(ParserStop::Fail(ProtocolError::MissingCrlf)),
    }
}

/// Number of arguments of the array at the start of `rest`, 0 also for a null array, and its header's length.
fn array_header(rest: &[u8], scanned: usize, limits: &ParserLimits) -> Result<(usize, usize), ParserStop> {
    let end = match header_end(rest, scanned, limits) {
        Ok(Some(end)) => end,
        Ok(None) => return Err(ParserStop::Line),
        Err(RequestTooLong) => return Err(ParserStop::Fail(ProtocolError::MultibulkLineTooLong)),
    };
    let args_max = i64::try_from(limits.args_max).unwrap_or(i64::MAX).min(i64::from(i32::MAX));
    let args_len = rest.get(1..end).and_then(number::parse_i64).filter(|&n| n <= args_max);
    let Some(args_len) = args_len else {
        return Err(ParserStop::Fail(ProtocolError::MultibulkLength));
    };
    if !limits.authenticated && args_len > UNAUTHENTICATED_ARGS_MAX {
        return Err(ParserStop::Fail(ProtocolError::UnauthenticatedMultibulkLength));
    }
    match rest.get(end + 1) {
        Some(b'\n') => Ok((usize::try_from(args_len).unwrap_or(0), end + 2)),
        _ => Err(ParserStop::Fail(ProtocolError::MissingCrlf)),
    }
}

/// Offset of the carriage return that ends the length at the start of `rest`, if the byte behind it was received too:
/// as in Redis, a length is not judged before.
fn header_end(rest: &[u8], scanned: usize, limits: &ParserLimits) -> Result<Option<usize>, RequestTooLong> {
    Ok(line_end(rest, b'\r', scanned, limits)?.filter(|end| end + 1 < rest.len()))
}

/// Offset of the `mark` that ends the line at the start of `rest`; its first `scanned` bytes hold none.
///
/// The result does not depend on how the bytes were split, so a complete line can be too long as well.
fn line_end(
    rest: &[u8],
    mark: u8,
    scanned: usize,
    limits: &ParserLimits,
) -> Result<Option<usize>, RequestTooLong> {
    // Examines the last byte seen again: it may be the mark, whose line feed was missing.
    let from = scanned.saturating_sub(1).min(rest.len());
    let found = rest.get(from..).and_then(|rest| memchr::memchr(mark, rest)).map(|end| from + end);
    if found.unwrap_or(rest.len()) > limits.inline_bytes_max {
        return Err(RequestTooLong);
    }
    Ok(found)
}

const UNAUTHENTICATED_ARGS_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_BYTES_MAX: u64 = 16 << 10;
/// Arguments of up to this length are allowed to every client, because the short parsers accept them unchecked. Redis'
/// own floor is 1 MiB.
const LIMIT_FLOOR: u64 = 9999;
const SPANS_KEPT: usize = 64;

#[cfg(test)]
mod tests;

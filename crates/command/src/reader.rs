//! Reads a command's arguments in order and turns bytes into types, once.

use darter_base::number;
use darter_wire::Args;

use crate::fault::Fault;

/// A position among the arguments of a command.
#[derive(Clone, Copy)]
pub struct ArgReader<'a> {
    args: Args<'a>,
    at: usize,
}

impl<'a> ArgReader<'a> {
    /// Starts at argument `at` (0 is the command's name).
    pub fn new(args: Args<'a>, at: usize) -> ArgReader<'a> {
        ArgReader { args, at }
    }

    /// Arguments not yet read.
    pub fn left(&self) -> usize {
        self.args.len().saturating_sub(self.at)
    }

    /// Returns true if everything is read.
    pub fn is_done(&self) -> bool {
        self.left() == 0
    }

    /// Index of the next argument.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next argument without reading it.
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.args.get(self.at)
    }

    /// The next argument; a missing one is a syntax error.
    pub fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let bytes = self.args.get(self.at).ok_or(Fault::Syntax)?;
        self.at += 1;
        Ok(bytes)
    }

    /// Passes over `n` arguments.
    pub fn skip(&mut self, n: usize) {
        self.at = self.at.saturating_add(n);
    }

    /// The next argument as an integer.
    pub fn int(&mut self) -> Result<i64, Fault> {
        number::parse_i64(self.bytes()?).ok_or(Fault::NotInteger)
    }

    /// The next argument as an integer of at least `min`, or the fault given.
    pub fn int_from(&mut self, min: i64, otherwise: Fault) -> Result<i64, Fault> {
        match number::parse_i64(self.bytes()?) {
            Some(n) if n >= min => Ok(n),
            _ => Err(otherwise),
        }
    }

    /// The next argument as a float.
    pub fn float(&mut self) -> Result<f64, Fault> {
        number::parse_f64(self.bytes()?).ok_or(Fault::NotFloat)
    }

    /// Reads the next argument if it is `word`, in any case.
    pub fn take(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|arg| is(arg, word));
        self.at += usize::from(found);
        found
    }

    /// Reads the next argument if it is `word` and at least `more` arguments follow it.
    pub fn take_with(&mut self, word: &str, more: usize) -> bool {
        self.left() > more && self.take(word)
    }

    /// A syntax error unless everything is read.
    pub fn end(&self) -> Result<(), Fault> {
        if self.is_done() { Ok(()) } else { Err(Fault::Syntax) }
    }

    /// The arguments not yet read.
    pub fn rest(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let args = self.args;
        (self.at..args.len()).map(move |at| args.at(at))
    }
}

/// `arg` as an integer.
pub fn int(arg: &[u8]) -> Result<i64, Fault> {
    number::parse_i64(arg).ok_or(Fault::NotInteger)
}

/// `arg` as a float.
pub fn float(arg: &[u8]) -> Result<f64, Fault> {
    number::parse_f64(arg).ok_or(Fault::NotFloat)
}

/// Returns true if `arg` is `word`, in any case. Cost: with a literal, two or three comparisons of words.
#[inline(always)]
pub fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// Returns true if `arg` is SYNC or ASYNC. Both are the same here, because freeing never blocks a client.
pub fn is_sync_or_async(arg: &[u8]) -> bool {
    is(arg, "SYNC") || is(arg, "ASYNC")
}

/// The timeout of a command that may wait, given in milliseconds; 0 is no limit.
///
/// Errors: it is no number, negative, or ends after the last time that a signed number of milliseconds holds.
pub fn timeout_in_ms(arg: &[u8], now_ms: u64) -> Result<u64, Fault> {
    let ms = number::parse_i64(arg).ok_or(Fault::text("ERR timeout is not an integer or out of range"))?;
    let ms = u64::try_from(ms).map_err(|_| Fault::text("ERR timeout is negative"))?;
    match now_ms.checked_add(ms).and_then(|end| i64::try_from(end).ok()) {
        Some(_) => Ok(ms),
        None => Err(Fault::text("ERR timeout is out of range")),
    }
}

/// The timeout of a command that may wait, given in seconds with decimals; `None` without a limit.
pub fn timeout_ms(arg: &[u8]) -> Result<Option<u64>, Fault> {
    const NO_FLOAT: Fault = Fault::text("ERR timeout is not a float or out of range");
    let seconds = number::parse_f64(arg).ok_or(NO_FLOAT)?;
    if seconds < 0.0 {
        return Err(Fault::text("ERR timeout is negative"));
    }
    let ms = (seconds * 1000.0).ceil();
    // 2^63 as a float: the first value that does not fit a signed number of milliseconds
    if ms >= 9_223_372_036_854_775_808.0 {
        return Err(Fault::text("ERR timeout is out of range"));
    }
    Ok((ms > 0.0).then_some(ms as u64))
}

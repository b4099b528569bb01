//! `EX`, `PX`, `EXAT`, `PXAT`: deadlines of keys in commands' options.

use crate::fault::Fault;
use crate::reader::{self, ArgReader};

/// The unit of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Unix time in seconds.
    UnixSeconds,
    /// Unix time in milliseconds.
    UnixMillis,
}

impl TimeUnit {
    /// Returns true if the time counts from 1970 and not from now.
    pub fn is_absolute(self) -> bool {
        matches!(self, TimeUnit::UnixSeconds | TimeUnit::UnixMillis)
    }

    fn scale(self) -> i64 {
        match self {
            TimeUnit::Seconds | TimeUnit::UnixSeconds => 1000,
            TimeUnit::Millis | TimeUnit::UnixMillis => 1,
        }
    }

    /// The Unix time in milliseconds that `n` of this unit mean; it may lie before 1970.
    pub fn unix_ms(self, n: i64, now_ms: u64) -> Option<i64> {
        let base = if self.is_absolute() { 0 } else { i64::try_from(now_ms).ok()? };
        n.checked_mul(self.scale())?.checked_add(base)
    }
}

/// A deadline as written: read first, converted later.
#[derive(Clone, Copy, Debug)]
pub struct Deadline<'a> {
    arg: &'a [u8],
    unit: TimeUnit,
}

impl<'a> Deadline<'a> {
    /// The number `arg` in `unit`.
    pub fn new(arg: &'a [u8], unit: TimeUnit) -> Deadline<'a> {
        Deadline { arg, unit }
    }

    /// Reads `EX n` or a similar option, if it comes next.
    pub fn take(reader: &mut ArgReader<'a>) -> Option<Deadline<'a>> {
        const WORDS: [(&str, TimeUnit); 4] = [
            ("EX", TimeUnit::Seconds),
            ("PX", TimeUnit::Millis),
            ("EXAT", TimeUnit::UnixSeconds),
            ("PXAT", TimeUnit::UnixMillis),
        ];
        let (_, unit) = WORDS.iter().find(|(word, _)| reader.take_with(word, 1))?;
        Some(Deadline { arg: reader.bytes().ok()?, unit: *unit })
    }

    /// Its unit.
    pub fn unit(self) -> TimeUnit {
        self.unit
    }

    /// The Unix time in milliseconds.
    ///
    /// Errors: not an integer; not positive or past the range, which names `command`.
    pub fn resolve(self, now_ms: u64, command: &'static str) -> Result<u64, Fault> {
        let n = reader::int(self.arg)?;
        let refused = Fault::InvalidExpire(command);
        if n <= 0 {
            return Err(refused);
        }
        self.unit.unix_ms(n, now_ms).and_then(|ms| u64::try_from(ms).ok()).ok_or(refused)
    }
}

/// Keeps the later of two deadlines of the same unit; different units must not be combined.
pub fn put<'a>(slot: &mut Option<Deadline<'a>>, deadline: Deadline<'a>) -> Result<(), Fault> {
    match slot {
        Some(there) if there.unit != deadline.unit => Err(Fault::Syntax),
        _ => {
            *slot = Some(deadline);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_unix_milliseconds_or_are_refused() {
        let of = |arg: &'static str, unit| Deadline::new(arg.as_bytes(), unit).resolve(1_000_000, "set");
        assert_eq!(of("10", TimeUnit::Seconds), Ok(1_010_000));
        assert_eq!(of("10", TimeUnit::Millis), Ok(1_000_010));
        assert_eq!(of("10", TimeUnit::UnixSeconds), Ok(10_000));
        assert_eq!(of("10", TimeUnit::UnixMillis), Ok(10));
        let refused = Err(Fault::InvalidExpire("set"));
        assert_eq!(of("0", TimeUnit::Seconds), refused);
        assert_eq!(of("-5", TimeUnit::UnixMillis), refused);
        assert_eq!(of("9223372036854775807", TimeUnit::Seconds), refused);
        assert_eq!(of("9223372036854775807", TimeUnit::Millis), refused);
        assert_eq!(of("9223372036854775", TimeUnit::UnixSeconds), Ok(9_223_372_036_854_775_000));
        assert_eq!(of("x", TimeUnit::Seconds), Err(Fault::NotInteger));
    }
}

//! CLIENT PAUSE: until when commands wait, and which.
//!
//! Written by CLIENT PAUSE and UNPAUSE, read by every thread once a turn and, while it is on, before each command.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use darter_command::Flags;

/// What a command may do that a pause of writes holds up: change data, or reach replicas.
pub const WRITES: Flags = Flags::WRITE.with(Flags::MAY_REPLICATE);

/// The pause that is on, if one is.
#[derive(Debug, Default)]
pub struct Pause {
    // Unix ms; 0 is no pause
    until_ms: AtomicI64,
    reads_too: AtomicBool,
}

impl Pause {
    /// Whether commands wait at `now_ms`.
    #[inline]
    pub fn is_on(&self, now_ms: u64) -> bool {
        self.until_ms.load(Relaxed) > now_ms as i64
    }

    /// When it ends, Unix ms; in the past when there is none.
    pub fn until_ms(&self) -> i64 {
        self.until_ms.load(Relaxed)
    }

    /// Whether all commands wait, not only those that may write.
    pub fn holds_reads(&self) -> bool {
        self.reads_too.load(Relaxed)
    }

    /// Starts a pause. When one is on, the later end and the stricter of the two stay.
    pub fn begin(&self, now_ms: u64, until_ms: i64, reads_too: bool) {
        if self.is_on(now_ms) {
            self.reads_too.fetch_or(reads_too, Relaxed);
            self.until_ms.fetch_max(until_ms, Relaxed);
        } else {
            self.reads_too.store(reads_too, Relaxed);
            self.until_ms.store(until_ms, Relaxed);
        }
    }

    /// Ends it.
    pub fn end(&self) {
        self.until_ms.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_end_stays_and_an_old_pause_does_not() {
        let pause = Pause::default();
        assert!(!pause.is_on(0));
        pause.begin(100, 500, true);
        pause.begin(100, 300, false);
        assert_eq!((pause.until_ms(), pause.holds_reads()), (500, true));
        assert!(pause.is_on(499) && !pause.is_on(500));
        pause.begin(600, 700, false);
        assert_eq!((pause.until_ms(), pause.holds_reads()), (700, false));
        pause.end();
        assert!(!pause.is_on(600));
    }
}

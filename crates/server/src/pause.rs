//! What makes commands wait, and which: CLIENT PAUSE, and work of the server that holds writers back.
//!
//! Written by CLIENT PAUSE and UNPAUSE, a failover and the end of the server; read by every thread once a turn and, while
//! it is on, before each command.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::Relaxed};

use darter_command::Flags;

/// What a command may do that a pause of writes holds up: change data, or reach replicas.
pub const WRITES: Flags = Flags::WRITE.with(Flags::MAY_REPLICATE);

/// The pause that is on, if one is.
#[derive(Debug, Default)]
pub struct Pause {
    // what clients asked for: Unix ms; 0 is no pause
    until_ms: AtomicI64,
    reads_too: AtomicBool,
    // work of the server that holds writers back
    holds: AtomicU32,
}

impl Pause {
    /// Whether commands wait at `now_ms`.
    #[inline]
    pub fn is_on(&self, now_ms: u64) -> bool {
        self.holds.load(Relaxed) > 0 || self.is_asked_for(now_ms)
    }

    fn is_asked_for(&self, now_ms: u64) -> bool {
        self.until_ms.load(Relaxed) > now_ms as i64
    }

    /// When it ends, Unix ms; in the past when there is none.
    pub fn until_ms(&self) -> i64 {
        if self.holds.load(Relaxed) > 0 { i64::MAX } else { self.until_ms.load(Relaxed) }
    }

    /// Whether all commands wait at `now_ms`, not only those that may write.
    pub fn holds_reads(&self, now_ms: u64) -> bool {
        self.reads_too.load(Relaxed) && self.is_asked_for(now_ms)
    }

    /// Starts a client's pause. When one is on, the later end and the stricter of the two stay.
    pub fn begin(&self, now_ms: u64, until_ms: i64, reads_too: bool) {
        if self.is_asked_for(now_ms) {
            self.reads_too.fetch_or(reads_too, Relaxed);
            self.until_ms.fetch_max(until_ms, Relaxed);
        } else {
            self.reads_too.store(reads_too, Relaxed);
            self.until_ms.store(until_ms, Relaxed);
        }
    }

    /// Ends what clients asked for.
    pub fn end(&self) {
        self.until_ms.store(0, Relaxed);
    }

    /// Holds writers back until [`Pause::release`]; what clients asked for is left alone.
    pub fn hold(&self) {
        self.holds.fetch_add(1, Relaxed);
    }

    /// Ends what [`Pause::hold`] began; once for each.
    pub fn release(&self) {
        let before = self.holds.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "nobody holds");
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
        assert_eq!((pause.until_ms(), pause.holds_reads(100)), (500, true));
        assert!(pause.is_on(499) && !pause.is_on(500) && !pause.holds_reads(500));
        pause.begin(600, 700, false);
        assert_eq!((pause.until_ms(), pause.holds_reads(600)), (700, false));
        pause.end();
        assert!(!pause.is_on(600));
    }

    #[test]
    fn the_server_and_clients_hold_writers_apart() {
        let pause = Pause::default();
        pause.begin(100, 500, true);
        pause.hold();
        pause.hold();
        pause.end();
        assert!(pause.is_on(1_000_000) && !pause.holds_reads(100));
        pause.release();
        pause.begin(100, 500, false);
        pause.release();
        assert!(pause.is_on(499) && !pause.is_on(500));
    }
}

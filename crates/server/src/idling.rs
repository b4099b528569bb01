//! Whether the server idles: then its threads do their housekeeping less often, and many idle threads cost little.
//!
//! Each thread notes here that it serves, and whoever is first to serve again wakes the others: what housekeeping shows
//! (`used_memory`, the keys of a database) is as fresh as ever from then on.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Between two rounds of housekeeping while the server idles.
pub const REST: Duration = Duration::from_millis(100);

/// The server idles when nothing has arrived for so long.
const IDLE_AFTER_MS: u64 = 200;
/// A thread that serves notes it so often.
const NOTE_MS: u64 = 10;

/// When the server last served.
#[derive(Debug, Default)]
pub struct Idling {
    // Unix milliseconds
    served_ms: AtomicU64,
}

impl Idling {
    /// Whether nothing has arrived for a while.
    pub fn is_on(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.served_ms.load(SeqCst)) >= IDLE_AFTER_MS
    }

    /// Notes that a thread serves whose clock says `now_ms`; returns true if the server idled, and the other threads are to be
    /// woken. `noted_ms` is when the thread last did so. Cost: a comparison, but for once in ten milliseconds.
    #[inline]
    pub fn end(&self, now_ms: u64, noted_ms: &mut u64) -> bool {
        if now_ms.abs_diff(*noted_ms) < NOTE_MS {
            return false;
        }
        *noted_ms = now_ms;
        now_ms.saturating_sub(self.served_ms.swap(now_ms, SeqCst)) >= IDLE_AFTER_MS
    }
}

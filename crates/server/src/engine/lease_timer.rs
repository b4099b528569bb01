//! How long shards are held in one piece, by the wall clock and in debug builds by what is touched.
//!
//! Called around the bodies of data commands that are timed, around each slice of a long answer, and around the end of
//! what was gathered. INFO tells of it; `darter-bench holds` and `crates/darter/tests/server/holds.rs` go by it.

use std::time::{Duration, Instant};

use darter_store::touched;

use crate::thread_state::ThreadState;

/// A time that shards are held.
pub struct LeaseTimer {
    began: Instant,
    blocks: u64,
}

impl LeaseTimer {
    /// Begins now.
    #[inline]
    pub fn begin() -> LeaseTimer {
        LeaseTimer { began: Instant::now(), blocks: touched::blocks() }
    }

    /// How long it has lasted.
    #[inline]
    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends it and notes it in the thread's counters; returns how long it was.
    pub fn end(self, local: &ThreadState) -> Duration {
        let took = self.took();
        self.note(local, took);
        took
    }

    /// Notes it, as long as `took`.
    pub fn note(&self, local: &ThreadState, took: Duration) {
        let stats = local.stats();
        stats.hold_times.add(took.as_nanos() as u64);
        let blocks = touched::blocks().wrapping_sub(self.blocks);
        if blocks > stats.hold_blocks_max.get() {
            stats.hold_blocks_max.set(blocks);
        }
    }
}

//! How long shards are held in one piece, by the wall clock and in debug builds by what is touched.
//!
//! Called around the bodies of data commands that are timed, around each slice of a long answer, and around the end of
//! what was gathered. INFO tells of it; `darter-bench holds` and `crates/darter/tests/holds.rs` go by it.

use std::time::{Duration, Instant};

use darter_store::touched;

use crate::core::Core;

/// A time that shards are held.
pub struct Hold {
    began: Instant,
    blocks: u64,
}

impl Hold {
    /// Begins now.
    #[inline]
    pub fn begin() -> Hold {
        Hold { began: Instant::now(), blocks: touched::blocks() }
    }

    /// How long it has lasted.
    #[inline]
    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends it and notes it in the thread's counters; returns how long it was.
    pub fn end(self, core: &Core) -> Duration {
        let took = self.took();
        self.note(core, took);
        took
    }

    /// Notes it, as long as `took`.
    pub fn note(&self, core: &Core, took: Duration) {
        let stats = core.stats();
        stats.hold_times.add(took.as_nanos() as u64);
        let blocks = touched::blocks().wrapping_sub(self.blocks);
        if blocks > stats.hold_blocks_max.get() {
            stats.hold_blocks_max.set(blocks);
        }
    }
}

//! How long more memory is used than the limit allows: for INFO, and for the log when a limit was set below what is used.
//!
//! Noted by the first thread's housekeeping and by the command that changes the limit. Nothing is evicted here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::relief;
use crate::core::Core;

/// The time for which there was too much, this time and before.
#[derive(Default)]
pub struct Overrun {
    // Unix milliseconds; 0: there is not too much.
    since_ms: AtomicU64,
    // Of the times that have ended.
    ended_ms: AtomicU64,
    // Its end is to be logged, as its beginning was.
    is_logged: AtomicBool,
}

impl Overrun {
    /// Milliseconds since there has been too much, at least one; 0 where there is not.
    pub fn current_ms(&self, now_ms: u64) -> u64 {
        match self.since_ms.load(Relaxed) {
            0 => 0,
            since_ms => now_ms.saturating_sub(since_ms).max(1),
        }
    }

    /// Milliseconds of all such times.
    pub fn total_ms(&self, now_ms: u64) -> u64 {
        self.ended_ms.load(Relaxed) + self.current_ms(now_ms)
    }
}

/// Notes whether there is too much now.
pub fn note(core: &Core) {
    let overrun = &core.shared.limit.overrun;
    if relief::excess_bytes(core) > 0 {
        _ = overrun.since_ms.compare_exchange(0, core.now_ms.max(1), Relaxed, Relaxed);
        return;
    }
    let since_ms = overrun.since_ms.swap(0, Relaxed);
    if since_ms == 0 {
        return;
    }
    let ms = core.now_ms.saturating_sub(since_ms).max(1);
    overrun.ended_ms.fetch_add(ms, Relaxed);
    if overrun.is_logged.swap(false, Relaxed) {
        tracing::info!("what is used fits maxmemory again, after {ms} ms");
    }
}

/// As [`note`], after the limit was changed: says so in the log if more is used than it allows.
pub fn note_change(core: &Core) {
    let excess_bytes = relief::excess_bytes(core);
    if excess_bytes > 0 && !core.shared.limit.overrun.is_logged.swap(true, Relaxed) {
        let what = if core.evicts { "keys go step by step" } else { "writes are refused" };
        tracing::warn!("{excess_bytes} bytes more are used than maxmemory allows now: {what} until it fits");
    }
    note(core);
}

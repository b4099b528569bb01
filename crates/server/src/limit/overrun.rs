//! How long more memory is used than the limit allows: for INFO, and for the log when a limit was set below what is used.
//!
//! Noted by the first thread's housekeeping and by the command that changes the limit. Nothing is evicted here.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::relief;
use crate::duration_counter::DurationCounter;
use crate::thread_state::ThreadState;

/// The time for which there is too much.
#[derive(Default)]
pub struct Overrun {
    /// This time and before.
    pub spell: DurationCounter,
    // Its end is to be logged, as its beginning was.
    is_logged: AtomicBool,
}

/// Notes whether there is too much now.
pub fn note(local: &ThreadState) {
    let overrun = &local.shared.limit.overrun;
    if let Some(ms) = overrun.spell.note(relief::excess_bytes(local) > 0, local.now_ms)
        && overrun.is_logged.swap(false, Relaxed)
    {
        tracing::info!("memory is within maxmemory again, after {ms} ms");
    }
}

/// As [`note`], after the limit was changed: says so in the log if more is used than it allows.
pub fn note_change(local: &ThreadState) {
    let excess_bytes = relief::excess_bytes(local);
    if excess_bytes > 0 && !local.shared.limit.overrun.is_logged.swap(true, Relaxed) {
        let what = if local.evicts { "keys go step by step" } else { "writes are refused" };
        tracing::warn!("{excess_bytes} bytes more are used than maxmemory allows now: {what} until it fits");
    }
    note(local);
}

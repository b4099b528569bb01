//! The last uses of keys: of all keys of a shard together, and in the extras of keys that keep the time.
//!
//! Called by every read and change of a key, and by housekeeping. `idle` answers from this.

use darter_slab::Handle;

use crate::extras::Extras;
use crate::record::{self, Record};
use crate::shard::Shard;

/// The last uses of keys of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uses {
    // Hits that are not uses: of EXISTS, TTL and TYPE.
    pub glances: u64,
    // Uses and changes when `note_uses` was last called.
    seen: u64,
    // Unix milliseconds; 0 before the first call.
    pub last_ms: u64,
}

impl Shard {
    /// Notes whether keys have been used since the last call. The time of a use is as exact as the calls are
    /// frequent.
    pub fn note_uses(&mut self, now_ms: u64) {
        let seen = self.counters.hits.wrapping_sub(self.uses.glances).wrapping_add(self.changes.total());
        if seen != self.uses.seen || self.uses.last_ms == 0 {
            self.uses = Uses { seen, last_ms: now_ms, ..self.uses };
        }
    }

    /// Keeps the time of a use in the record at `handle`, if it has room for one.
    #[inline]
    pub(crate) fn keep_use(&mut self, handle: Handle, now_ms: u64) {
        if (Record { tail: self.arena.tail(handle) }).extras_len() > 0 && !self.pauses_uses {
            Extras::note_use(record::extras_mut(self.arena.tail_mut(handle)), seconds(now_ms));
        }
    }
}

/// The time of a use as extras keep it.
pub(crate) fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX)
}

//! Expiry times of entries: the earliest one of a table, and the removal of expired entries.
//!
//! Called by the store's sweeper with the time and a budget. Each pack has a lower bound, so a pass opens only packs
//! with expired entries.

use darter_slab::Arena;

use super::scan::place_after;
use super::{EntryRef, Table};
use crate::pack::{Pack, PackPlace};

/// Expiry bookkeeping of a table that has, or had, an entry with an expiry time.
#[derive(Debug)]
pub(super) struct FieldTimes {
    /// Nothing expires before this; `u64::MAX` when nothing expires.
    bound_ms: u64,
    /// Place from which the running pass continues.
    next: u64,
    /// The bound that is valid when the pass reaches the end.
    next_bound_ms: u64,
}

/// The result of [`Table::expire_due`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expired {
    /// Entries removed.
    pub removed: usize,
    /// True if no expired entry is left.
    pub done: bool,
}

impl Table {
    /// No entry expires before this, in Unix milliseconds; `None` when none has an expiry time.
    #[inline]
    pub fn min_expiry_ms(&self) -> Option<u64> {
        self.times().map(|t| t.bound_ms).filter(|&ms| ms != u64::MAX)
    }

    #[inline]
    fn times(&self) -> Option<&FieldTimes> {
        self.side.as_ref()?.times.as_ref()
    }

    /// Nothing expires any more.
    pub(super) fn forget_times(&mut self) {
        if let Some(side) = &mut self.side {
            side.times = None;
            self.settle_side();
        }
    }

    /// Removes expired entries, passing each to `emit` first. Examines at most `packs_max` packs; the next call
    /// continues after them.
    pub fn expire_due(
        &mut self,
        arena: &mut Arena,
        now_ms: u64,
        packs_max: usize,
        mut emit: impl FnMut(EntryRef<'_>),
    ) -> Expired {
        let mut removed = 0;
        for _ in 0..packs_max {
            let Some(times) = self.times().filter(|t| t.bound_ms <= now_ms) else {
                return Expired { removed, done: true };
            };
            let x = times.next;
            let h = self.directory.find(arena, x);
            if h.is_none() {
                self.forget_times();
                return Expired { removed, done: true };
            }
            let depth = Pack::open(arena, h).head().depth();
            let (count, bound_ms) = self.expire_pack(arena, x, now_ms, &mut emit);
            removed += count;
            self.finish_pack(place_after(x, depth), bound_ms);
            if count != 0 {
                self.merge_if_small(arena, x);
            }
        }
        Expired { removed, done: self.times().is_none_or(|t| t.bound_ms > now_ms) }
    }

    /// Lowers the table's bound to `ms`.
    #[inline]
    pub(super) fn note_expiry(&mut self, ms: u64) {
        let none = FieldTimes { bound_ms: u64::MAX, next: 0, next_bound_ms: u64::MAX };
        let times = self.side.get_or_insert_default().times.get_or_insert(none);
        times.bound_ms = times.bound_ms.min(ms);
        times.next_bound_ms = times.next_bound_ms.min(ms);
    }

    fn finish_pack(&mut self, next: Option<u64>, bound_ms: u64) {
        let Some(times) = self.side.as_mut().and_then(|side| side.times.as_mut()) else { return };
        times.next_bound_ms = times.next_bound_ms.min(bound_ms);
        times.next = next.unwrap_or(0);
        if next.is_none() {
            times.bound_ms = times.next_bound_ms;
            times.next_bound_ms = u64::MAX;
            if times.bound_ms == u64::MAX {
                self.forget_times();
            }
        }
    }

    /// Removes the expired entries of the pack that holds `x`; returns their number and the pack's new bound.
    fn expire_pack(
        &mut self,
        arena: &mut Arena,
        x: u64,
        now_ms: u64,
        emit: &mut impl FnMut(EntryRef<'_>),
    ) -> (usize, u64) {
        let mut h = self.directory.find(arena, x);
        let pack = Pack::open(arena, h);
        if pack.min_expiry_ms() > now_ms {
            return (0, pack.min_expiry_ms());
        }
        self.before_pack_changes(arena, x);
        let (mut removed, mut bound_ms) = (0, u64::MAX);
        let mut index = 0;
        while index < Pack::open(arena, h).head().len() {
            let pack = Pack::open(arena, h);
            let at = pack.offset(index, self.kind);
            let entry = pack.entry(at, self.kind, arena, &self.spill);
            let expiry_ms = entry.expiry_ms().unwrap_or(u64::MAX);
            if expiry_ms <= now_ms {
                emit(entry);
                self.take_out(arena, x, h, PackPlace { index, at });
                h = self.directory.find(arena, x);
                removed += 1;
            } else {
                bound_ms = bound_ms.min(expiry_ms);
                index += 1;
            }
        }
        Pack::set_min_expiry(arena, h, bound_ms);
        (removed, bound_ms)
    }
}

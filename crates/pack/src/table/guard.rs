//! Writing a large table in steps, in its state at the start, while it changes.
//!
//! A guard records the part of hash space that is written: all before a place that advances, and the packs that were
//! written early because they were about to change. It works by places of keys, so splits and merges of packs do not
//! disturb it. Called by the store for snapshots and for clients that read a whole table. A table without a guard
//! pays one test of a null pointer.

use std::collections::BTreeMap;
use std::fmt;

use darter_slab::Arena;

use super::scan::place_after;
use super::{EntryRef, Table, place_of};
use crate::pack::Pack;

/// Takes the entries of a guarded table, each once.
pub trait Guarding: Send {
    /// The hash of a key, as the table's owner computes it.
    fn hash(&self, key: &[u8]) -> u64;
    /// Takes an entry.
    fn keep(&mut self, entry: EntryRef<'_>);
}

/// The written part of a table, for one of its writers.
pub(super) struct Guard {
    number: u32,
    // Everything before this place is; `None` is the end of hash space.
    next: Option<u64>,
    // Ranges beyond it that are, by first and last place; none overlap.
    early: BTreeMap<u64, u64>,
    keeper: Box<dyn Guarding>,
}

/// All guards of a table.
#[derive(Debug, Default)]
pub(super) struct Guards {
    all: Vec<Guard>,
}

impl Guards {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Guard {
    fn is_written(&self, x: u64) -> bool {
        self.next.is_none_or(|next| x < next) || self.is_early(x)
    }

    fn is_early(&self, x: u64) -> bool {
        self.early.range(..=x).next_back().is_some_and(|(_, &last)| x <= last)
    }

    /// Returns true if all places from `first` to `last` are written.
    fn covers(&self, first: u64, last: u64) -> bool {
        self.next.is_none_or(|next| last < next)
            || self.early.range(..=first).next_back().is_some_and(|(_, &end)| end >= last)
    }

    /// Returns true if a place from `first` to `last` is written, and others may be too.
    fn touches(&self, first: u64, last: u64) -> bool {
        self.next.is_none_or(|next| first < next)
            || self.early.range(..=last).next_back().is_some_and(|(_, &end)| end >= first)
    }

    /// Notes that all places from `first` to `last` are written.
    fn add(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first, last);
        while let Some((&start, &end)) =
            self.early.range(..=last).next_back().filter(|(_, end)| **end >= first)
        {
            self.early.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.early.insert(first, last);
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Guard").field("next", &self.next).field("early", &self.early.len()).finish()
    }
}

impl Table {
    /// Makes `keeper` take every present entry in its present state, in steps and before it changes. `number` must be
    /// unused by other guards of the table.
    pub fn guard(&mut self, number: u32, keeper: Box<dyn Guarding>) {
        debug_assert!(!self.is_guarded_by(number));
        let guard = Guard { number, next: Some(0), early: BTreeMap::new(), keeper };
        self.side.get_or_insert_default().guards.all.push(guard);
    }

    /// Returns true if the table has the guard of this number.
    pub fn is_guarded_by(&self, number: u32) -> bool {
        self.side.iter().flat_map(|side| &side.guards.all).any(|guard| guard.number == number)
    }

    /// Hands out entries of up to `packs_max` packs; returns true if all have been. Cost: some microseconds a pack.
    pub fn guard_step(&mut self, arena: &Arena, number: u32, packs_max: usize) -> bool {
        let Some(mut guards) = self.take_guards() else { return true };
        let guard = guards.all.iter_mut().find(|guard| guard.number == number);
        let is_done = guard.is_none_or(|guard| self.hand_out_next(guard, arena, packs_max));
        self.put_guards(guards);
        is_done
    }

    fn hand_out_next(&self, guard: &mut Guard, arena: &Arena, packs_max: usize) -> bool {
        for _ in 0..packs_max {
            let Some(x) = guard.next.filter(|_| !self.is_empty()) else { break };
            let (_, last) = self.hand_out(guard, arena, x);
            guard.next = last.checked_add(1);
            // `next` alone covers the parts before it that were written early.
            while let Some(first) = guard.early.first_entry().filter(|entry| *entry.get() <= last) {
                first.remove();
            }
        }
        guard.next.is_none() || self.is_empty()
    }

    /// Removes the guard of this number; returns its keeper.
    pub fn unguard(&mut self, number: u32) -> Option<Box<dyn Guarding>> {
        let guards = &mut self.side.as_mut()?.guards;
        let at = guards.all.iter().position(|guard| guard.number == number)?;
        let guard = guards.all.swap_remove(at);
        self.settle_side();
        Some(guard.keeper)
    }

    /// Takes the guards out, to work on them and the table. The caller must put them back.
    fn take_guards(&mut self) -> Option<Guards> {
        let guards = &mut self.side.as_mut()?.guards;
        (!guards.is_empty()).then(|| std::mem::take(guards))
    }

    fn put_guards(&mut self, guards: Guards) {
        self.side.get_or_insert_default().guards = guards;
    }

    #[inline]
    fn is_guarded(&self) -> bool {
        self.side.as_ref().is_some_and(|side| !side.guards.is_empty())
    }

    /// To be called before the entry at place `x` changes.
    #[inline]
    pub(super) fn before_change(&mut self, arena: &Arena, x: u64) {
        if self.is_guarded() {
            self.hand_out_first(arena, x, false);
        }
    }

    /// To be called before any entry of the pack that holds `x` changes.
    #[inline]
    pub(super) fn before_pack_changes(&mut self, arena: &Arena, x: u64) {
        if self.is_guarded() {
            self.hand_out_first(arena, x, true);
        }
    }

    #[cold]
    #[inline(never)]
    fn hand_out_first(&mut self, arena: &Arena, x: u64, whole_pack: bool) {
        let Some(mut guards) = self.take_guards() else { return };
        for guard in &mut guards.all {
            if self.is_empty() {
                // All later entries are younger than the guard.
                guard.next = None;
            } else if whole_pack || !guard.is_written(x) {
                let (first, last) = self.hand_out(guard, arena, x);
                guard.add(first, last);
            }
        }
        self.put_guards(guards);
    }

    /// Emits the entries not yet written of the pack that holds `x`; returns the pack's first and last place.
    fn hand_out(&self, guard: &mut Guard, arena: &Arena, x: u64) -> (u64, u64) {
        let pack = Pack::open(arena, self.directory.find(arena, x));
        let depth = pack.head().depth();
        let last = place_after(x, depth).map_or(u64::MAX, |after| after - 1);
        let first = x & !u64::MAX.checked_shr(depth).unwrap_or(0);
        if guard.covers(first, last) {
            return (first, last);
        }
        let has_written = guard.touches(first, last);
        let mut at = pack.first_at();
        for _ in 0..pack.head().len() {
            let entry = pack.entry(at, self.kind, arena, &self.spill);
            at += pack.entry_len(at, self.kind);
            if has_written {
                let mut digits = crate::decimal::Digits::new();
                if guard.is_written(place_of(guard.keeper.hash(entry.key().text(&mut digits)))) {
                    continue;
                }
            }
            guard.keeper.keep(entry);
        }
        (first, last)
    }
}

//! One numbered database's part of a shard.

use darter_base::hash::spread_slot_in;
use darter_index::{Index, ScanPosition};

use crate::labels::Labels;

/// The number at the cut of a database that is younger than the cut.
pub(crate) const YOUNGER: u16 = u16::MAX;

/// The index of one database and its counters.
pub struct Db {
    pub(crate) index: Index,
    pub(crate) expiring: usize,
    /// Keys with members that expire.
    pub(crate) timed: usize,
    /// Its number at the start of the running cut.
    pub(crate) cut_number: u16,
    /// Its time series.
    pub(crate) labels: Labels,
    /// Keys by slot: those of this shard's slots, in their spread order. Empty without keys, or without slots.
    pub(crate) slot_keys: Vec<u32>,
    /// The position up to which it is freed, after it was emptied.
    pub(crate) ruined_to: ScanPosition,
}

impl Db {
    pub(crate) fn new() -> Db {
        Db {
            index: Index::new(),
            expiring: 0,
            timed: 0,
            cut_number: YOUNGER,
            labels: Labels::default(),
            slot_keys: Vec::new(),
            ruined_to: ScanPosition::START,
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Counts a key that is new, in a shard of `slots` slots. Cost: with the first key, a table of 4 bytes a slot.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_in_slot(&mut self, hash: u64, slots: usize) {
        if self.slot_keys.is_empty() {
            self.slot_keys.resize(slots, 0);
        }
        if let Some(keys) = self.slot_keys.get_mut(usize::from(spread_slot_in(hash)) % slots) {
            *keys += 1;
        }
    }

    /// Counts a key that has gone.
    #[cold]
    #[inline(never)]
    pub(crate) fn uncount_in_slot(&mut self, hash: u64, slots: usize) {
        if let Some(keys) = self.slot_keys.get_mut(usize::from(spread_slot_in(hash)) % slots) {
            debug_assert!(*keys > 0);
            *keys -= 1;
        }
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots of the index at its present size.
    pub fn slots(&self) -> usize {
        self.index.slots()
    }

    /// Number of keys with a deadline.
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// Number of keys with members or fields that have a deadline.
    pub fn expiring_in_part(&self) -> usize {
        self.timed
    }
}

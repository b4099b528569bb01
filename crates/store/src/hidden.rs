//! Slots whose keys are in this process and not to be seen: they arrive as a whole, or have left and are being removed.
//!
//! Shared by all shards, written when the map of a cluster changes. Walks, counts, random keys, eviction and expiry leave these
//! keys out. A key that is named is found: routing decides who may name it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use darter_base::crc::SLOTS_LEN;
use darter_base::slot::slot_of;

use crate::record::Record;
use crate::shard::Shard;

/// See above: a bit for each slot.
#[derive(Debug)]
pub struct HiddenSlots {
    is_any: AtomicBool,
    bits: Box<[AtomicU64]>,
}

const WORDS: usize = SLOTS_LEN as usize / 64;

impl Default for HiddenSlots {
    fn default() -> HiddenSlots {
        HiddenSlots { is_any: AtomicBool::new(false), bits: (0..WORDS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl HiddenSlots {
    /// Replaces the slots.
    pub fn set(&self, slots: impl Iterator<Item = u16>) {
        let mut bits = [0; WORDS];
        for slot in slots {
            if let Some(word) = bits.get_mut(usize::from(slot) / 64) {
                *word |= 1 << (slot % 64);
            }
        }
        self.is_any.store(bits.iter().any(|word| *word != 0), Relaxed);
        self.bits.iter().zip(bits).for_each(|(kept, word)| kept.store(word, Relaxed));
    }

    /// Returns true if there are any.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// Returns true if the keys of `slot` are hidden.
    pub fn has(&self, slot: u16) -> bool {
        let word = self.bits.get(usize::from(slot) / 64).map_or(0, |word| word.load(Relaxed));
        word >> (slot % 64) & 1 == 1
    }

    /// Returns true if the key `name` is hidden. Cost: a load, or the slot of the key if there are hidden slots.
    #[inline]
    pub fn hides(&self, name: &[u8]) -> bool {
        self.is_any() && self.has(slot_of(name))
    }

    /// The hidden slots, in ascending order.
    pub fn slots(&self) -> impl Iterator<Item = u16> + '_ {
        let words = self.bits.iter().zip((0..SLOTS_LEN).step_by(64));
        words.flat_map(|(word, first)| {
            let bits = word.load(Relaxed);
            (0..64).filter(move |at| bits >> at & 1 == 1).map(move |at| first + at)
        })
    }
}

impl Shard {
    /// Returns true if a record is left out of what clients see of the database as a whole.
    #[inline]
    pub(crate) fn is_hidden(&self, record: Record<'_>) -> bool {
        self.hidden.hides(record.key())
    }

    /// Number of keys in a database that are not hidden.
    pub fn visible_len(&self, db: usize) -> usize {
        let len = self.dbs.get(db).map_or(0, |db| db.len());
        if len == 0 || !self.hidden.is_any() || self.slots == 0 {
            return len;
        }
        let here = |slot: &u16| self.has_slot(*slot);
        let hidden: usize =
            self.hidden.slots().filter(here).filter_map(|slot| self.slot_keys(db, slot)).sum();
        len.saturating_sub(hidden)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use darter_base::hash::KeyHasher;

    use super::*;
    use crate::change::Listeners;
    use crate::evict::{Order, Rule};
    use crate::expiry::Sweep;
    use crate::record::Expiry;
    use crate::{Keyed, Position};

    fn shard() -> (Shard, Arc<HiddenSlots>) {
        let mut shard = Shard::new(1, 0, KeyHasher::new(1).by_slot()).expect("address space");
        let hidden = Arc::new(HiddenSlots::default());
        shard.hide_slots(hidden.clone());
        shard.count_slots(1, 0);
        (shard, hidden)
    }

    fn put(shard: &mut Shard, name: &str, expiry: Expiry) {
        let hash = shard.key(name.as_bytes()).hash;
        let key = crate::Key { bytes: name.as_bytes(), hash };
        Keyed::find(shard, 0, key, 1).put_text(b"v", expiry).expect("room");
    }

    fn seen(shard: &Shard) -> Vec<String> {
        let (mut names, mut at) = (Vec::new(), Some(Position::START));
        while let Some(next) = at {
            at = shard.scan(0, next, |record| names.push(String::from_utf8_lossy(record.key()).into_owned()));
        }
        names.sort();
        names
    }

    #[test]
    fn hidden_keys_are_neither_seen_nor_removed_by_the_server() {
        let (mut shard, hidden) = shard();
        put(&mut shard, "{foo}1", Expiry::At(50));
        put(&mut shard, "{foo}2", Expiry::None);
        put(&mut shard, "{bar}1", Expiry::At(50));
        assert_eq!((shard.visible_len(0), seen(&shard).len()), (3, 3));
        hidden.set([slot_of(b"{foo}")].into_iter());
        assert_eq!((shard.visible_len(0), seen(&shard)), (1, vec!["{bar}1".to_owned()]));
        assert_eq!(shard.slot_keys(0, slot_of(b"{foo}")), Some(2), "they are counted by slot all the same");
        (0..50).for_each(|_| assert_eq!(shard.random_key(0, 1).as_deref(), Some(b"{bar}1".as_slice())));
        shard.changes.listen(Listeners::NOTIFY, true);
        let mut sweep = Sweep::default();
        (0..100).for_each(|_| {
            shard.sweep(&mut sweep, 100, 1000);
        });
        assert_eq!(shard.db(0).len(), 2, "the visible one has expired, the hidden one stays");
        assert_eq!(shard.random_key(0, 100), None);
        for order in [Order::Random, Order::LeastUsed, Order::SoonestExpiry] {
            shard.evict(Rule { order, only_expiring: false }, 100, 1, 10);
            assert_eq!(shard.db(0).len(), 2, "{order:?}");
        }
        hidden.set(std::iter::empty());
        assert_eq!(shard.visible_len(0), 2);
        (0..100).for_each(|_| {
            shard.sweep(&mut sweep, 100, 1000);
        });
        assert_eq!(seen(&shard), ["{foo}2"]);
    }
}

//! Slots whose keys are in this process and not to be seen: they arrive as a whole, or have left and are being removed.
//!
//! Shared by all shards, written when the map of a cluster changes. Walks, counts, random keys, eviction and expiry leave these
//! keys out. A key that is named is found: routing decides who may name it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use darter_base::crc::SLOTS_LEN;
use darter_base::slot::slot_of;

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
        self.is_any() && self.hides_some(name)
    }

    #[cold]
    #[inline(never)]
    fn hides_some(&self, name: &[u8]) -> bool {
        self.has(slot_of(name))
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

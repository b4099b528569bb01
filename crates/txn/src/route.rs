//! The shard of each key, and the sets of shards that a command needs.

use std::sync::Arc;

use darter_base::crc::SLOTS_LEN;
use darter_base::hash::{KeyHasher, hash_bits_of};
use darter_store::{HiddenSlots, Key, Links};
use smallvec::SmallVec;

/// Maps keys to shards; the same for the life of the process. Also knows the keys that name others.
///
/// With a hasher by slot (`cluster_mode yes`) all keys of a slot are in one shard.
#[derive(Clone, Debug)]
pub struct Router {
    hasher: KeyHasher,
    // What a hash is multiplied by before its top bits name the shard.
    factor: u64,
    shift: u32,
    shards_len: u16,
    links: Arc<Links>,
    hidden: Arc<HiddenSlots>,
}

impl Router {
    /// A router over `shards_len` shards, a power of two of at least 2.
    pub fn new(hasher: KeyHasher, shards_len: u16) -> Router {
        assert!(shards_len.is_power_of_two() && (2..=SLOTS_LEN).contains(&shards_len));
        let factor = if hasher.is_by_slot() { SLOT_FACTOR } else { FACTOR };
        let shift = 64 - shards_len.trailing_zeros();
        Router { hasher, factor, shift, shards_len, links: Arc::default(), hidden: Arc::default() }
    }

    /// The key with its hash.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hasher.hash_key(bytes) }
    }

    /// The shard of a hash. The index inside the shard uses the hash's own top, middle and low bits,
    /// so these bits are mixed once more.
    #[inline]
    pub fn shard_of(&self, hash: u64) -> u16 {
        (hash.wrapping_mul(self.factor) >> self.shift) as u16
    }

    /// The shard of a slot; `None` if its keys are in any.
    pub fn shard_of_slot(&self, slot: u16) -> Option<u16> {
        self.hasher.is_by_slot().then(|| self.shard_of(hash_bits_of(slot)))
    }

    /// Number of shards.
    pub fn shards_len(&self) -> u16 {
        self.shards_len
    }

    /// Keys whose values name others, shared by every shard.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// Slots whose keys are not to be seen, shared by every shard.
    pub fn hidden(&self) -> &Arc<HiddenSlots> {
        &self.hidden
    }

    /// The hasher of keys, members and fields.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }
}

/// Mixes all bits of a hash into its top bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Takes the slot of a hash to its top: what lies above it is gone, and what lies below does not carry.
const SLOT_FACTOR: u64 = 1 << 18;

/// Shards a command needs: ascending and distinct once [`LockSet::seal`]ed.
#[derive(Clone, Debug, Default)]
pub struct LockSet {
    ids: SmallVec<[u16; 8]>,
}

impl LockSet {
    /// The empty set.
    pub fn new() -> LockSet {
        LockSet::default()
    }

    /// The set of one.
    #[inline]
    pub fn one(id: u16) -> LockSet {
        LockSet { ids: SmallVec::from_slice(&[id]) }
    }

    /// Every shard there is.
    pub fn all(shards_len: u16) -> LockSet {
        LockSet { ids: (0..shards_len).collect() }
    }

    /// Adds a shard; a repeated one is fine.
    #[inline]
    pub fn add(&mut self, id: u16) {
        if self.ids.last() != Some(&id) {
            self.ids.push(id);
        }
    }

    /// Sorts and removes duplicates.
    #[inline]
    pub fn seal(&mut self) {
        if self.ids.len() > 1 {
            self.ids.sort_unstable();
            self.ids.dedup();
        }
    }

    /// The shards, ascending.
    #[inline]
    pub fn ids(&self) -> &[u16] {
        &self.ids
    }

    /// Returns true if no shard is needed.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_over_all_shards() {
        let router = Router::new(KeyHasher::new(1), 64);
        let mut counts = [0u32; 64];
        for n in 0..64_000u32 {
            counts[router.shard_of(router.key(&n.to_le_bytes()).hash) as usize] += 1;
        }
        assert!(counts.iter().all(|&n| (700..1300).contains(&n)), "{counts:?}");
    }

    #[test]
    fn a_slot_is_in_one_shard_and_slots_spread() {
        let router = Router::new(KeyHasher::new(1).by_slot(), 64);
        for n in 0..10_000u32 {
            let name = format!("key:{n}");
            let key = router.key(name.as_bytes());
            let slot = darter_base::slot::slot_of(name.as_bytes());
            assert_eq!(Some(router.shard_of(key.hash)), router.shard_of_slot(slot));
        }
        // A third of the slots, as one of three masters has it.
        let mut counts = [0u32; 64];
        (0..5461).for_each(|slot| counts[usize::from(router.shard_of_slot(slot).expect("one"))] += 1);
        assert!(counts.iter().all(|&n| (76..94).contains(&n)), "{counts:?}");
        assert_eq!(Router::new(KeyHasher::new(1), 64).shard_of_slot(5), None);
    }

    #[test]
    fn a_sealed_set_ascends() {
        let mut set = LockSet::new();
        for id in [5, 1, 5, 3, 3, 1] {
            set.add(id);
        }
        set.seal();
        assert_eq!(set.ids(), [1, 3, 5]);
    }
}

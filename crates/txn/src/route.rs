//! The shard of each key, and the sets of shards that a command needs.

use std::sync::Arc;

use darter_base::hash::KeyHasher;
use darter_store::{Key, Links};
use smallvec::SmallVec;

/// Maps keys to shards; the same for the life of the process. Also knows the keys that name others.
#[derive(Clone, Debug)]
pub struct Router {
    hasher: KeyHasher,
    shift: u32,
    shards_len: u16,
    links: Arc<Links>,
}

impl Router {
    /// A router over `shards_len` shards, a power of two of at least 2.
    pub fn new(hasher: KeyHasher, shards_len: u16) -> Router {
        assert!(shards_len.is_power_of_two() && shards_len >= 2);
        Router { hasher, shift: 64 - shards_len.trailing_zeros(), shards_len, links: Arc::default() }
    }

    /// The key with its hash.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hasher.hash(bytes) }
    }

    /// The shard of a hash. The index inside the shard uses the hash's own top, middle and low bits,
    /// so these bits are mixed once more.
    #[inline]
    pub fn shard_of(&self, hash: u64) -> u16 {
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as u16
    }

    /// Number of shards.
    pub fn shards_len(&self) -> u16 {
        self.shards_len
    }

    /// Keys whose values name others, shared by every shard.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// The hasher, for members and fields.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }
}

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
    fn a_sealed_set_ascends() {
        let mut set = LockSet::new();
        for id in [5, 1, 5, 3, 3, 1] {
            set.add(id);
        }
        set.seal();
        assert_eq!(set.ids(), [1, 3, 5]);
    }
}

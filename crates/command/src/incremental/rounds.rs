//! Keys grouped by shard, visited in slices, and watched from before each is read.
//!
//! Called by code that reads many keys as of one point in time. Memory: some 20 bytes for each key.

use std::sync::Arc;

use darter_store::change::Listeners;
use darter_txn::watch::{Lot, WatchFlag};
use darter_txn::{Router, ShardPart};

/// Keys to be visited shard by shard.
pub(super) struct Rounds {
    router: Router,
    len: usize,
    // Number of keys added so far.
    hashed: usize,
    // Hash and number of each key, by shard.
    by_shard: Vec<Vec<(u64, u32)>>,
    lot: Arc<Lot>,
    // Position of the next slice: the shard, and the key there.
    shard: usize,
    nth: usize,
}

/// Keys added in some 100 microseconds with no shard held.
pub(super) const KEYS_AT_ONCE: usize = 2048;

impl Rounds {
    /// For `len` keys of `db`; a change of any sets `flag`.
    pub fn new(db: usize, router: Router, len: usize, flag: &WatchFlag) -> Rounds {
        let lot = Arc::new(Lot::new(db, *router.hasher(), len, flag));
        let by_shard = vec![Vec::new(); usize::from(router.shards_len())];
        let mut rounds = Rounds { router, len, hashed: 0, by_shard, lot, shard: 0, nth: 0 };
        if rounds.is_full() {
            rounds.pass_empty();
        }
        rounds
    }

    /// Returns true if all keys have been added.
    pub fn is_full(&self) -> bool {
        self.hashed == self.len
    }

    /// Number of keys added, or skipped.
    pub fn taken(&self) -> usize {
        self.hashed
    }

    /// Adds the next key; `None` skips a number without a key.
    pub fn add(&mut self, key: Option<&[u8]>) {
        if let Some(key) = key {
            let hash = self.router.hasher().hash_key(key);
            let shard = usize::from(self.router.shard_of(hash));
            // No other reference exists before the first slice.
            if let (Some(lot), Some(there)) = (Arc::get_mut(&mut self.lot), self.by_shard.get_mut(shard)) {
                lot.add(hash);
                there.push((hash, self.hashed as u32));
            }
        }
        self.hashed += 1;
        if self.is_full() {
            self.pass_empty();
        }
    }

    /// The shard that is visited next; `None` before all keys are added, and after all visits.
    pub fn shard(&self) -> Option<u16> {
        let is_left = self.is_full() && self.shard < self.by_shard.len();
        // Below the number of shards, which is a u16.
        is_left.then_some(self.shard as u16)
    }

    /// Begins or continues a visit: its keys are watched from its first slice on.
    pub fn visit(&self, part: &mut ShardPart) {
        if self.nth == 0 {
            part.watches.add_lot(&self.lot);
            part.shard.changes.listen(Listeners::WATCH, true);
        }
    }

    /// Hash and number of the next key to read in this shard.
    pub fn next(&self) -> Option<(u64, usize)> {
        let (hash, nth) = self.by_shard.get(self.shard)?.get(self.nth)?;
        Some((*hash, *nth as usize))
    }

    /// Notes that this key has been read.
    pub fn pass(&mut self) {
        self.nth += 1;
    }

    /// Ends a slice, and the visit if no key is left here.
    pub fn leave(&mut self) {
        if self.by_shard.get(self.shard).is_some_and(|keys| self.nth >= keys.len()) {
            (self.shard, self.nth) = (self.shard + 1, 0);
            self.pass_empty();
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.hashed * (size_of::<(u64, u32)>() + 8)
    }

    /// Skips shards without keys.
    fn pass_empty(&mut self) {
        while self.by_shard.get(self.shard).is_some_and(Vec::is_empty) {
            self.shard += 1;
        }
    }
}

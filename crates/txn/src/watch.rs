//! WATCH: the connections that must learn of a changed key before their EXEC.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use darter_base::hash::KeyHasher;

/// A connection's flag: one of its watched keys has changed.
#[derive(Clone, Debug, Default)]
pub struct WatchFlag(Arc<AtomicBool>);

impl WatchFlag {
    /// Returns true if a watched key changed. Read with the shards of all watched keys held, so that the shard's own
    /// ordering is enough.
    pub fn is_dirty(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn is_same(&self, other: &WatchFlag) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Many keys, of any shards, that one command watches together: their hashes.
///
/// Its watches end with it. Another key sets the flag by mistake with probability 2^-30.
#[derive(Debug)]
pub struct Lot {
    db: usize,
    hasher: KeyHasher,
    // Upper halves of hashes, made odd, at the place given by the lower half or after it. 0 is an empty place. The
    // length is a power of two, and half of the places are empty.
    tags: Box<[u32]>,
    flag: WatchFlag,
}

impl Lot {
    /// An empty lot, with room for `keys_len` keys of `db`, that marks `flag`.
    pub fn new(db: usize, hasher: KeyHasher, keys_len: usize, flag: &WatchFlag) -> Lot {
        let len = keys_len.saturating_mul(2).max(2).next_power_of_two();
        Lot { db, hasher, tags: vec![0; len].into(), flag: flag.clone() }
    }

    /// Adds the key of this hash; does nothing if there is no room.
    pub fn add(&mut self, hash: u64) {
        let tag = tag_of(hash);
        if let Some(at) =
            self.places(hash).find(|at| self.tags.get(*at).is_some_and(|old| *old == 0 || *old == tag))
            && let Some(place) = self.tags.get_mut(at)
        {
            *place = tag;
        }
    }

    fn touch(&self, db: usize, key: &[u8]) {
        if db != self.db || self.flag.is_dirty() {
            return;
        }
        let hash = self.hasher.hash_key(key);
        let mut tags = self.places(hash).filter_map(|at| self.tags.get(at)).take_while(|tag| **tag != 0);
        if tags.any(|tag| *tag == tag_of(hash)) {
            self.flag.mark();
        }
    }

    /// Places in probing order.
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let (len, first) = (self.tags.len(), hash as usize);
        (0..len).map(move |n| first.wrapping_add(n) & (len - 1))
    }
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

/// The watches of one shard.
#[derive(Debug, Default)]
pub struct Watches {
    keys: HashMap<(usize, Box<[u8]>), Vec<WatchFlag>>,
    lots: Vec<Weak<Lot>>,
    added: usize,
}

/// After this many additions the table is searched for flags whose connection is closed.
const PRUNE_EVERY: usize = 1024;

impl Watches {
    /// Marks `flag` when `key` of `db` changes; returns false if it does already.
    pub fn add(&mut self, db: usize, key: &[u8], flag: &WatchFlag) -> bool {
        self.added += 1;
        if self.added >= PRUNE_EVERY {
            self.prune();
        }
        let flags = self.keys.entry((db, key.into())).or_default();
        let is_new = !flags.iter().any(|f| f.is_same(flag));
        if is_new {
            flags.push(flag.clone());
        }
        is_new
    }

    /// Forgets that `flag` watches `key`.
    pub fn remove(&mut self, db: usize, key: &[u8], flag: &WatchFlag) {
        let place = (db, Box::from(key));
        if let Some(flags) = self.keys.get_mut(&place) {
            flags.retain(|f| !f.is_same(flag) && !f.is_abandoned());
            if flags.is_empty() {
                self.keys.remove(&place);
            }
        }
    }

    /// Makes `lot` watch those of its keys that are in this shard, for as long as it exists.
    pub fn add_lot(&mut self, lot: &Arc<Lot>) {
        self.each_lot(|_| ());
        self.lots.push(Arc::downgrade(lot));
    }

    fn each_lot(&mut self, mut visit: impl FnMut(&Lot)) {
        self.lots.retain(|lot| lot.upgrade().inspect(|lot| visit(lot)).is_some());
    }

    /// `key` changed: every connection that watches it will refuse its EXEC.
    pub fn touch(&mut self, db: usize, key: &[u8]) {
        self.each_lot(|lot| lot.touch(db, key));
        if self.keys.is_empty() {
            return;
        }
        if let Some(flags) = self.keys.get(&(db, Box::from(key))) {
            flags.iter().for_each(WatchFlag::mark);
        }
    }

    /// Notes that keys of `db` are removed or exchanged: `is_affected` returns true for each affected key.
    pub fn touch_db(&mut self, db: usize, mut is_affected: impl FnMut(&[u8]) -> bool) {
        // A lot does not say which of its keys are in this shard.
        self.each_lot(|lot| {
            if lot.db == db {
                lot.flag.mark();
            }
        });
        for ((at, key), flags) in &self.keys {
            if *at == db && is_affected(key) {
                flags.iter().for_each(WatchFlag::mark);
            }
        }
    }

    /// Returns true if no connection watches a key here.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.lots.is_empty()
    }

    /// Number of watched keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    fn prune(&mut self) {
        self.added = 0;
        self.keys.retain(|_, flags| {
            flags.retain(|f| !f.is_abandoned());
            !flags.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watched_keys_mark() {
        let mut watches = Watches::default();
        let (a, b) = (WatchFlag::default(), WatchFlag::default());
        watches.add(0, b"x", &a);
        watches.add(1, b"x", &b);
        watches.touch(0, b"y");
        assert!(!a.is_dirty() && !b.is_dirty());
        watches.touch(0, b"x");
        assert!(a.is_dirty() && !b.is_dirty());
        watches.remove(0, b"x", &a);
        watches.remove(1, b"x", &b);
        assert!(watches.is_empty());
    }

    #[test]
    fn a_lot_marks_for_each_of_its_keys_and_for_no_other() {
        let hasher = KeyHasher::new(5);
        let name = |n: u32| n.to_le_bytes();
        for n in (0..2000).step_by(7) {
            let flag = WatchFlag::default();
            let mut lot = Lot::new(0, hasher, 1000, &flag);
            (0..1000).for_each(|n| lot.add(hasher.hash(&name(n))));
            let lot = Arc::new(lot);
            let mut watches = Watches::default();
            watches.add_lot(&lot);
            watches.touch(1, &name(n));
            assert!(!flag.is_dirty());
            watches.touch(0, &name(n));
            assert_eq!(flag.is_dirty(), n < 1000, "{n}");
            assert!(!watches.is_empty());
            drop(lot);
            watches.touch(0, b"another");
            assert!(watches.is_empty());
        }
    }

    #[test]
    fn flags_of_gone_connections_are_dropped() {
        let mut watches = Watches::default();
        for n in 0..5000u32 {
            watches.add(0, &n.to_le_bytes(), &WatchFlag::default());
        }
        assert!(watches.len() <= PRUNE_EVERY);
    }
}

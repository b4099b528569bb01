//! WATCH: which connections must hear that a key changed before their EXEC.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A connection's flag that something it watches has changed.
#[derive(Clone, Debug, Default)]
pub struct WatchFlag(Arc<AtomicBool>);

impl WatchFlag {
    /// Whether a watched key changed. Read with the shards of all watched keys held, so that the
    /// shard's own ordering is enough.
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

/// The watches of one shard.
#[derive(Debug, Default)]
pub struct Watches {
    keys: HashMap<(usize, Box<[u8]>), Vec<WatchFlag>>,
    added: usize,
}

/// After this many additions the table is searched for flags whose connection has gone.
const PRUNE_EVERY: usize = 1024;

impl Watches {
    /// Marks `flag` when `key` of `db` changes; false when it does already.
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

    /// `key` changed: every connection that watches it will refuse its EXEC.
    pub fn touch(&mut self, db: usize, key: &[u8]) {
        if self.keys.is_empty() {
            return;
        }
        if let Some(flags) = self.keys.get(&(db, Box::from(key))) {
            flags.iter().for_each(WatchFlag::mark);
        }
    }

    /// Keys of `db` vanish or are exchanged: `exists` tells which of the watched keys are affected.
    pub fn touch_db(&mut self, db: usize, mut is_affected: impl FnMut(&[u8]) -> bool) {
        for ((at, key), flags) in &self.keys {
            if *at == db && is_affected(key) {
                flags.iter().for_each(WatchFlag::mark);
            }
        }
    }

    /// Whether nobody watches anything here.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
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
    fn flags_of_gone_connections_are_dropped() {
        let mut watches = Watches::default();
        for n in 0..5000u32 {
            watches.add(0, &n.to_le_bytes(), &WatchFlag::default());
        }
        assert!(watches.len() <= PRUNE_EVERY);
    }
}

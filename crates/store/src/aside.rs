//! A second set of databases in a shard, which nobody sees: a snapshot is loaded there while the first is served.
//!
//! Called by a replica that keeps its data until that of its master has come. Records of both sets are in the same arena.

use crate::shard::Shard;

impl Shard {
    /// Begins a second set, empty. What a set before has is dropped.
    pub fn begin_aside(&mut self) {
        self.drop_aside();
        self.aside = self.dbs.iter().map(|_| self.new_db()).collect();
    }

    /// Calls `act` with the second set in the place of the first. No listener hears of what it does. A cut passes over it:
    /// these databases are younger, or were not there when it began.
    pub fn with_aside<R>(&mut self, act: impl FnOnce(&mut Shard) -> R) -> R {
        debug_assert!(!self.aside.is_empty(), "there is a second set");
        let changes = std::mem::take(&mut self.changes);
        std::mem::swap(&mut self.dbs, &mut self.aside);
        let done = act(self);
        std::mem::swap(&mut self.dbs, &mut self.aside);
        self.changes = changes;
        done
    }

    /// Has the second set in the place of the first, whose keys go. They are freed by [`Shard::free_some`].
    pub fn take_aside(&mut self) {
        debug_assert!(!self.aside.is_empty(), "there is a second set");
        (0..self.dbs.len()).for_each(|db| {
            self.flush_db(db);
        });
        self.dbs = std::mem::take(&mut self.aside);
        self.dbs_filled = self.dbs.len();
    }

    /// Drops the second set, if there is one.
    pub fn drop_aside(&mut self) {
        if !self.aside.is_empty() {
            self.with_aside(|shard| {
                (0..shard.dbs.len()).for_each(|db| {
                    shard.flush_db(db);
                });
            });
            self.aside = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;

    use crate::record::Expiry;
    use crate::shard::Shard;
    use crate::{Key, Keyed};

    fn hasher() -> KeyHasher {
        KeyHasher::new(9)
    }

    fn put(shard: &mut Shard, db: usize, name: &str, value: &[u8]) {
        let key = Key { bytes: name.as_bytes(), hash: hasher().hash(name.as_bytes()) };
        Keyed::find(shard, db, key, 1).put_text(value, Expiry::None).expect("room");
    }

    fn len(shard: &mut Shard, db: usize, name: &str) -> Option<usize> {
        let key = Key { bytes: name.as_bytes(), hash: hasher().hash(name.as_bytes()) };
        Keyed::find(shard, db, key, 1).text().ok().flatten().map(|text| text.len())
    }

    fn filled() -> Shard {
        let mut shard = Shard::new(2, 1, hasher()).expect("address space");
        for n in 0..500 {
            put(&mut shard, n % 2, &format!("old{n}"), &[b'o'; 100]);
        }
        shard.begin_aside();
        shard.with_aside(|shard| (0..700).for_each(|n| put(shard, n % 2, &format!("new{n}"), &[b'n'; 90])));
        shard
    }

    #[test]
    fn the_second_set_is_seen_by_nobody_until_it_is_taken() {
        let mut shard = filled();
        assert_eq!((shard.db(0).len(), shard.db(1).len()), (250, 250));
        assert!(len(&mut shard, 0, "old0").is_some() && len(&mut shard, 0, "new0").is_none());
        let both = shard.used_bytes();
        shard.take_aside();
        while !shard.free_some(64) {}
        assert_eq!((shard.db(0).len(), shard.db(1).len()), (350, 350));
        assert!(len(&mut shard, 0, "old0").is_none());
        assert_eq!(len(&mut shard, 1, "new1"), Some(90));
        assert!(shard.used_bytes() < both, "the first set is freed");
    }

    #[test]
    fn a_set_that_is_dropped_leaves_the_first_as_it_was() {
        let mut shard = filled();
        shard.drop_aside();
        while !shard.free_some(64) {}
        assert_eq!((shard.db(0).len(), len(&mut shard, 0, "old0")), (250, Some(100)));
        assert!(len(&mut shard, 0, "new0").is_none());
    }

    #[test]
    fn emptying_the_databases_that_are_seen_leaves_the_second_set() {
        let mut shard = filled();
        for db in 0..2 {
            shard.flush_db(db);
        }
        while !shard.free_some(64) {}
        put(&mut shard, 0, "later", b"x");
        shard.take_aside();
        assert_eq!(len(&mut shard, 0, "new698"), Some(90));
        assert!(len(&mut shard, 0, "later").is_none());
    }
}

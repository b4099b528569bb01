//! Walking a database: all its records, some of them, a random one.

use darter_index::ScanPosition;

use crate::object::Object;
use crate::record::{Record, RecordValue};
use crate::shard::{Key, Shard};

/// Expired keys sampled before one of them is shown, if expired keys stay.
const DEAD_TRIES_MAX: u32 = 100;
/// Hidden keys sampled before the others are searched for.
const HIDDEN_TRIES_MAX: u32 = 100;

impl Shard {
    /// Emits the records of the index line at `at`, expired ones too; returns the next position, `None` at the end.
    ///
    /// A key that is present from the first call to the last is emitted once, whatever changes meanwhile. Those of hidden
    /// slots are left out.
    pub fn scan(
        &self,
        db: usize,
        at: ScanPosition,
        mut emit: impl FnMut(Record<'_>),
    ) -> Option<ScanPosition> {
        self.scan_all(db, at, |record| {
            if !self.is_hidden(record) {
                emit(record);
            }
        })
    }

    /// [`Shard::scan`] with the records of hidden slots.
    pub fn scan_all(
        &self,
        db: usize,
        at: ScanPosition,
        mut emit: impl FnMut(Record<'_>),
    ) -> Option<ScanPosition> {
        let (arena, hasher) = (&self.arena, self.hasher);
        self.dbs[db].index.scan(
            at,
            |handle| hasher.hash_key(Record { tail: arena.tail(handle) }.key()),
            |handle| emit(Record { tail: arena.tail(handle) }),
        )
    }

    /// Shows the collection of a record, unless its value is a string.
    pub fn with_object<R>(
        &self,
        record: Record<'_>,
        look: impl FnOnce(&Object, &darter_slab::Arena) -> R,
    ) -> Option<R> {
        match record.value() {
            RecordValue::Text(_) | RecordValue::Packed(..) => None,
            RecordValue::Object(_, id) => Some(look(self.objects.get(id), &self.arena)),
            // a temporary root, which is forgotten: its block belongs to the record
            RecordValue::Folded(kind, block) => {
                Some(look(&Object::unfold(kind, block, &self.arena), &self.arena))
            }
        }
    }

    /// Bytes of a record's value: its text in stored form, or its collection.
    pub fn value_bytes(&self, record: Record<'_>) -> usize {
        match record.value() {
            RecordValue::Text(bytes) | RecordValue::Packed(bytes, _) => bytes.len(),
            RecordValue::Object(_, id) => self.objects.get(id).memory_bytes(),
            RecordValue::Folded(kind, block) => Object::unfold(kind, block, &self.arena).memory_bytes(),
        }
    }

    /// Length of a record's value: bytes of a string, or members of a collection, expired ones included.
    pub fn value_len(&self, record: Record<'_>) -> u64 {
        let len = self.with_object(record, |object, arena| match object {
            Object::List(list) => list.len(),
            Object::Set(set) => set.len(),
            Object::Zset(zset) => zset.len(),
            Object::Hash(table) => table.len() as u64,
            Object::Stream(stream) => stream.len(),
            Object::Module(value) => value.len(arena),
        });
        len.or_else(|| record.text().map(|text| text.len() as u64)).unwrap_or_default()
    }

    /// Emits every record of a database, dead ones too.
    pub fn each(&self, db: usize, mut emit: impl FnMut(Record<'_>)) {
        let arena = &self.arena;
        self.dbs[db].index.each(|handle| {
            let record = Record { tail: arena.tail(handle) };
            if !self.is_hidden(record) {
                emit(record);
            }
        });
    }

    /// Sum of the milliseconds left to some of the keys with a deadline, and the number of these keys. Examines up to
    /// `keys_max` keys and `lines_max` index lines.
    pub fn sample_ttl(&self, db: usize, now_ms: u64, keys_max: u64, lines_max: usize) -> (u64, u64) {
        let (mut sum, mut keys, mut lines) = (0u64, 0, 0);
        let mut at = Some(ScanPosition::START);
        while let Some(next) = at.filter(|_| keys < keys_max && lines < lines_max) {
            lines += 1;
            at = self.scan(db, next, |record| {
                if let Some(deadline_ms) = record.deadline_ms() {
                    keys += 1;
                    sum = sum.saturating_add(deadline_ms.saturating_sub(now_ms));
                }
            });
        }
        (sum, keys)
    }

    /// A random key that is alive at `now_ms`. Removes the expired keys it finds.
    pub fn random_key(&mut self, db: usize, now_ms: u64) -> Option<Vec<u8>> {
        let mut tries = 0;
        let mut hidden = 0;
        loop {
            let slot = self.dbs[db].index.sample(self.rng.next_u64())?;
            let record = self.record_at(db, slot);
            if self.is_hidden(record) {
                hidden += 1;
                if hidden > HIDDEN_TRIES_MAX {
                    return self.visible_key(db, now_ms);
                }
                continue;
            }
            let name = record.key().to_vec();
            tries += 1;
            // If expired keys stay, all keys may have expired. One of them is shown then, as in Redis.
            if !record.is_expired(now_ms) || self.keeps_dead() && tries > DEAD_TRIES_MAX {
                return Some(name);
            }
            let key = Key { bytes: &name, hash: self.hasher.hash_key(&name) };
            self.expire(db, key, slot);
        }
    }

    /// The first key that is not hidden. Removes the expired keys before it.
    fn visible_key(&mut self, db: usize, now_ms: u64) -> Option<Vec<u8>> {
        loop {
            let (mut found, mut at) = (None, Some(ScanPosition::START));
            while let Some(next) = at.filter(|_| found.is_none()) {
                at = self.scan(db, next, |record| {
                    found.get_or_insert_with(|| (record.key().to_vec(), record.is_expired(now_ms)));
                });
            }
            let (name, is_dead) = found?;
            let key = Key { bytes: &name, hash: self.hasher.hash_key(&name) };
            match self.locate(db, key).filter(|_| is_dead && !self.keeps_dead()) {
                Some(slot) => self.expire(db, key, slot),
                None => return Some(name),
            }
        }
    }

    /// Returns true if `name` is in the database, expired or not.
    pub fn holds(&self, db: usize, name: &[u8]) -> bool {
        self.locate(db, self.key(name)).is_some()
    }

    /// A name with its hash.
    pub fn key<'k>(&self, name: &'k [u8]) -> Key<'k> {
        Key { bytes: name, hash: self.hasher.hash_key(name) }
    }
}

impl Shard {
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
    use darter_base::slot::slot_of;

    use super::*;
    use crate::Keyed;
    use crate::change::Listeners;
    use crate::evict::{EvictionOrder, EvictionRule};
    use crate::expiry::ExpirySweep;
    use crate::hidden::HiddenSlots;
    use crate::record::Expiry;

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
        let (mut names, mut at) = (Vec::new(), Some(ScanPosition::START));
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
        let mut sweep = ExpirySweep::default();
        (0..100).for_each(|_| {
            shard.sweep(&mut sweep, 100, 1000);
        });
        assert_eq!(shard.db(0).len(), 2, "the visible one has expired, the hidden one stays");
        assert_eq!(shard.random_key(0, 100), None);
        for order in [EvictionOrder::Random, EvictionOrder::LeastUsed, EvictionOrder::SoonestExpiry] {
            shard.evict(EvictionRule { order, only_expiring: false }, 100, 1, 10);
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

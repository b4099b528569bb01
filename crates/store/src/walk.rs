//! Walking a database: all its records, some of them, a random one.

use darter_index::Position;

use crate::object::Object;
use crate::record::{Record, Value};
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
    pub fn scan(&self, db: usize, at: Position, mut emit: impl FnMut(Record<'_>)) -> Option<Position> {
        self.scan_all(db, at, |record| {
            if !self.is_hidden(record) {
                emit(record);
            }
        })
    }

    /// [`Shard::scan`] with the records of hidden slots.
    pub fn scan_all(&self, db: usize, at: Position, mut emit: impl FnMut(Record<'_>)) -> Option<Position> {
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
            Value::Text(_) | Value::Packed(..) => None,
            Value::Object(_, id) => Some(look(self.objects.get(id), &self.arena)),
            // a temporary root, which is forgotten: its block belongs to the record
            Value::Folded(kind, block) => Some(look(&Object::unfold(kind, block, &self.arena), &self.arena)),
        }
    }

    /// Bytes of a record's value: its text in stored form, or its collection.
    pub fn value_bytes(&self, record: Record<'_>) -> usize {
        match record.value() {
            Value::Text(bytes) | Value::Packed(bytes, _) => bytes.len(),
            Value::Object(_, id) => self.objects.get(id).memory_bytes(),
            Value::Folded(kind, block) => Object::unfold(kind, block, &self.arena).memory_bytes(),
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
        let mut at = Some(Position::START);
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
            let (mut found, mut at) = (None, Some(Position::START));
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

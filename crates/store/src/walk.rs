//! Looking over a database: all its records, some of them, a random one.

use darter_index::Position;

use crate::object::Object;
use crate::record::{Record, Value};
use crate::shard::{Key, Shard};

/// Dead keys that stay and are met before one of them is shown.
const DEAD_TRIES_MAX: u32 = 100;

impl Shard {
    /// Emits the records of the index line at `at`, dead ones too; returns where to go on, `None` at the end.
    ///
    /// A key that is there from the first call to the last is emitted once, whatever changes meanwhile.
    pub fn scan(&self, db: usize, at: Position, mut emit: impl FnMut(Record<'_>)) -> Option<Position> {
        let (arena, hasher) = (&self.arena, self.hasher);
        self.dbs[db].index.scan(
            at,
            |handle| hasher.hash(Record { tail: arena.tail(handle) }.key()),
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
            // made for the look and forgotten: its block belongs to the record
            Value::Folded(kind, block) => Some(look(&Object::unfold(kind, block, &self.arena), &self.arena)),
        }
    }

    /// Bytes that the value of a record takes: its text as it is kept, or its collection.
    pub fn value_bytes(&self, record: Record<'_>) -> usize {
        match record.value() {
            Value::Text(bytes) | Value::Packed(bytes, _) => bytes.len(),
            Value::Object(_, id) => self.objects.get(id).memory_bytes(),
            Value::Folded(kind, block) => Object::unfold(kind, block, &self.arena).memory_bytes(),
        }
    }

    /// How long the value of a record is: bytes of a string, members of a collection, those included whose time is up.
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
        self.dbs[db].index.each(|handle| emit(Record { tail: arena.tail(handle) }));
    }

    /// Milliseconds left to some of the keys with a deadline, added up, and how many these are. Looks at up to so many
    /// keys and index lines.
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

    /// A random key that is alive at `now_ms`; dead ones met on the way are removed.
    pub fn random_key(&mut self, db: usize, now_ms: u64) -> Option<Vec<u8>> {
        let mut tries = 0;
        loop {
            let slot = self.dbs[db].index.sample(self.rng.next_u64())?;
            let record = self.record_at(db, slot);
            let name = record.key().to_vec();
            tries += 1;
            // Where dead keys stay, all may be dead: one of them is shown then, as by Redis.
            if !record.is_expired(now_ms) || self.keeps_dead() && tries > DEAD_TRIES_MAX {
                return Some(name);
            }
            let key = Key { bytes: &name, hash: self.hasher.hash(&name) };
            self.expire(db, key, slot);
        }
    }

    /// Whether `name` is in the database, dead or alive.
    pub fn holds(&self, db: usize, name: &[u8]) -> bool {
        self.locate(db, self.key(name)).is_some()
    }

    /// A name with its hash.
    pub fn key<'k>(&self, name: &'k [u8]) -> Key<'k> {
        Key { bytes: name, hash: self.hasher.hash(name) }
    }
}

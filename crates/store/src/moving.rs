//! Values that move from one key to another: RENAME, MOVE and COPY.
//!
//! Within a shard a collection keeps its packs and only its record is written anew. Between shards, and for copies,
//! it is transferred in the format of DUMP.

use crate::change::Event;
use crate::error::ShardFull;
use crate::keyed::Keyed;
use crate::object::Object;
use crate::rdb;
use crate::record::{Record, RecordKind, RecordMeta, RecordPayload, RecordValue};
use crate::shard::{Key, Shard};
use crate::text::Text;
use crate::value_type::Type;

/// A copy of a key's value, with its deadline and marks.
#[derive(Debug)]
pub struct Loose {
    meta: RecordMeta,
    body: MovedBody,
}

#[derive(Debug)]
enum MovedBody {
    Text(Vec<u8>),
    Raw(Vec<u8>),
    Float(Vec<u8>),
    /// An RDB type byte, and the value as RDB writes it.
    Object(u8, Vec<u8>),
}

/// The deadline and the marks of a key, without its value.
#[derive(Debug)]
pub struct MovedHead(RecordMeta);

/// A record's value, detached from the arena so that the arena can be written.
enum Detached {
    Text(Vec<u8>),
    Raw(Vec<u8>),
    Float(Vec<u8>),
    Object(Type, u32),
    Folded(Type, u32),
}

impl Detached {
    fn of(record: Record<'_>) -> Detached {
        match record.value() {
            RecordValue::Text(bytes) => match record.kind() {
                RecordKind::Raw => Detached::Raw(bytes.to_vec()),
                RecordKind::Float => Detached::Float(bytes.to_vec()),
                _ => Detached::Text(bytes.to_vec()),
            },
            RecordValue::Packed(packed, len) => {
                Detached::Text(Text::Packed(packed, len).bytes().into_owned())
            }
            RecordValue::Object(kind, id) => Detached::Object(kind, id),
            RecordValue::Folded(kind, block) => Detached::Folded(kind, block),
        }
    }

    fn payload(&self) -> RecordPayload<'_> {
        match self {
            Detached::Text(bytes) => RecordPayload::of_text(bytes),
            Detached::Raw(bytes) => RecordPayload::Raw { prefix: bytes, len: bytes.len(), room: 0 },
            Detached::Float(bytes) => RecordPayload::Float(bytes),
            Detached::Object(kind, id) => RecordPayload::Object(*kind, *id),
            Detached::Folded(kind, block) => RecordPayload::Folded(*kind, *block),
        }
    }
}

impl Shard {
    /// Moves the value at `from` to `to`, both `(database, key)`, replacing any value there. Returns whether `from`
    /// existed. The caller reports the events.
    ///
    /// Errors: no room for the record; nothing changed.
    pub fn rename(
        &mut self,
        from: (usize, Key<'_>),
        to: (usize, Key<'_>),
        now_ms: u64,
    ) -> Result<bool, ShardFull> {
        let Some((_, handle)) = self.find(from.0, from.1, now_ms) else { return Ok(false) };
        self.write_first(from.0, from.1.hash);
        let record = Record { tail: self.arena.tail(handle) };
        let (meta, value) = (record.meta(), Detached::of(record));
        // Allocate the block first: nothing can fail afterwards.
        let handle = self.write_block(to.1.bytes, &meta, &value.payload())?;
        if let Some(slot) = self.locate(to.0, to.1) {
            self.remove_at(to.0, to.1, slot);
        }
        let Some(slot) = self.locate(from.0, from.1) else { unreachable!("found above, and not the target") };
        self.series_goes(from.0, handle);
        let old = self.dbs[from.0].index.remove(slot, from.1.hash);
        if self.slots > 0 {
            self.dbs[from.0].uncount_in_slot(from.1.hash, self.slots);
        }
        self.dbs[from.0].expiring -= usize::from(meta.deadline_ms.is_some());
        self.arena.free(old);
        let slot = self.adopt(to.0, to.1, handle, meta.deadline_ms, now_ms);
        if matches!(value, Detached::Object(Type::Series, _)) {
            self.series_came(to.0, to.1.bytes, handle);
        }
        if let Detached::Object(_, id) = value
            && let Some(ms) = self.objects.get(id).next_expiry_ms()
        {
            self.dbs[from.0].timed -= 1;
            self.dbs[to.0].timed += 1;
            self.dbs[to.0].index.note_expiry(slot, ms, now_ms);
        }
        Ok(true)
    }
}

impl Keyed<'_> {
    /// A copy of the value, if the key exists. Cost: O(value).
    pub fn copy(&self) -> Option<Loose> {
        let record = self.record()?;
        let body = match Detached::of(record) {
            Detached::Text(bytes) => MovedBody::Text(bytes),
            Detached::Raw(bytes) => MovedBody::Raw(bytes),
            Detached::Float(bytes) => MovedBody::Float(bytes),
            Detached::Object(..) | Detached::Folded(..) => {
                let (object, arena) = self.object()?;
                let mut out = Vec::new();
                rdb::write_object(object, arena, &mut out);
                MovedBody::Object(rdb::type_of(object), out)
            }
        };
        Some(Loose { meta: record.meta().without_cas(), body })
    }

    /// The deadline and the marks, if the key exists.
    pub fn head(&self) -> Option<MovedHead> {
        Some(MovedHead(self.record()?.meta().without_cas()))
    }

    /// Stores a copy that was built in this shard, with the deadline and the marks of its source, replacing any
    /// value.
    ///
    /// Errors: no room; the old value stays and `object` is lost.
    pub fn put_built(&mut self, object: Object, head: &MovedHead) -> Result<(), ShardFull> {
        let was_there = self.exists();
        self.put_object_with(object, &head.0)?;
        self.tell_replaced(was_there);
        Ok(())
    }

    /// Stores a copied value with its deadline and marks, replacing any value.
    ///
    /// Errors: no room; the old value stays.
    pub fn put_copy(&mut self, loose: &Loose) -> Result<(), ShardFull> {
        let was_there = self.exists();
        self.put_body(loose)?;
        self.tell_replaced(was_there);
        Ok(())
    }

    fn tell_replaced(&mut self, was_there: bool) {
        if was_there {
            // The old key is removed and this is a new one; the creation of a missing key was reported already.
            let name = self.name();
            self.shard.changes.push_uncounted(self.db, name, Event::NEW);
        }
    }

    fn put_body(&mut self, loose: &Loose) -> Result<(), ShardFull> {
        match &loose.body {
            MovedBody::Text(bytes) => self.put_payload(&loose.meta, &RecordPayload::of_text(bytes)),
            MovedBody::Raw(bytes) => self
                .put_payload(&loose.meta, &RecordPayload::Raw { prefix: bytes, len: bytes.len(), room: 0 }),
            MovedBody::Float(bytes) => self.put_payload(&loose.meta, &RecordPayload::Float(bytes)),
            MovedBody::Object(kind, bytes) => {
                let hasher = self.hasher();
                let object =
                    rdb::read_object(*kind, &mut rdb::RdbSource::new(bytes), self.arena_mut(), hasher);
                self.put_object_with(object.map_err(|_| ShardFull)?, &loose.meta)
            }
        }
    }
}

//! One key's position in its shard: the view that a command has of the keyspace.
//!
//! The lookup happens once, in the constructor, which removes an expired key.

mod module;

use darter_base::hash::KeyHasher;
use darter_index::IndexSlot;
use darter_slab::{Arena, Handle};

use crate::change::{Class, Event};
use crate::error::{RefusedWrite, ShardFull, WrongType};
use crate::object::{Collection, KeyView, Object};
use crate::record::{self, Expiry, Record, RecordKind, RecordMeta, RecordPayload, RecordValue};
use crate::shard::{Key, PINNED_BYTES_MIN, Shard, deadline_after};
use crate::text::Text;
use crate::value_type::Type;

/// A string of at least this many bytes gets spare room when it grows; the blocks of shorter ones are rounded up
/// anyway.
const ROOM_FROM_BYTES: usize = 1 << 20;
/// Limit of that room.
const ROOM_BYTES_MAX: usize = 32 << 20;

/// The result of changing a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edited<R> {
    /// The value that the change returned.
    pub result: R,
    /// The last member was removed, and the key with it.
    pub is_gone: bool,
}

/// A key, found or not, in a shard that is held.
pub struct Keyed<'a> {
    pub(crate) shard: &'a mut Shard,
    pub(crate) db: usize,
    key: Key<'a>,
    pub(crate) now_ms: u64,
    pub(crate) slot: Option<IndexSlot>,
    // The record, if there is one: the handle of the index at `slot`.
    handle: Handle,
    /// The key was removed with the last member of its collection.
    was_emptied: bool,
}

impl<'a> Keyed<'a> {
    /// Finds `key` in database `db` of `shard` as of `now_ms`.
    #[inline]
    pub fn find(shard: &'a mut Shard, db: usize, key: Key<'a>, now_ms: u64) -> Keyed<'a> {
        let (slot, handle) = match shard.find(db, key, now_ms) {
            Some((slot, handle)) => (Some(slot), handle),
            None => (None, Handle::NONE),
        };
        Keyed { shard, db, key, now_ms, slot, handle, was_emptied: false }
    }

    /// Finds `key` for a reading command: counts a hit or a miss.
    #[inline]
    pub fn read(shard: &'a mut Shard, db: usize, key: Key<'a>, now_ms: u64) -> Keyed<'a> {
        let mut keyed = Keyed::find(shard, db, key, now_ms);
        match keyed.slot {
            Some(slot) => {
                keyed.shard.counters.hits += 1;
                if keyed.shard.counts_uses {
                    keyed.shard.dbs[db].index.touch(slot);
                }
                let handle = keyed.shard.dbs[db].index.handle(slot);
                keyed.shard.keep_use(handle, now_ms);
            }
            None => keyed.miss(),
        }
        keyed
    }

    /// [`Keyed::read`] for a command that asks about the key, not for its value. It does not count as a use.
    pub fn untouched(shard: &'a mut Shard, db: usize, key: Key<'a>, now_ms: u64) -> Keyed<'a> {
        let mut keyed = Keyed::find(shard, db, key, now_ms);
        if keyed.exists() {
            keyed.shard.counters.hits += 1;
            keyed.shard.uses.glances += 1;
        } else {
            keyed.miss();
        }
        keyed
    }

    /// Counts a [`Keyed::untouched`] as a use after all.
    pub fn use_glanced(&mut self) {
        if self.exists() {
            self.shard.uses.glances -= 1;
            self.touch();
        }
    }

    fn miss(&mut self) {
        const MISS: Event = Event::new(Class::KEY_MISS, "keymiss");
        self.shard.counters.misses += 1;
        self.shard.changes.push_uncounted(self.db, self.key.bytes, MISS);
    }

    /// Lets a running cut write the key before it changes in place.
    #[inline]
    pub(crate) fn write_first(&mut self) {
        self.shard.write_first(self.db, self.key.hash);
    }

    /// The key's bytes.
    pub fn name(&self) -> &'a [u8] {
        self.key.bytes
    }

    /// The time the command runs at, Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns true if the key exists.
    #[inline]
    pub fn exists(&self) -> bool {
        self.slot.is_some()
    }

    /// The handle of the record, if the key exists.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.slot.map(|_| self.handle)
    }

    /// The record, if the key exists.
    #[inline]
    pub fn record(&self) -> Option<Record<'_>> {
        let slot = self.slot?;
        debug_assert_eq!(self.handle, self.shard.dbs[self.db].index.handle(slot), "the record has moved");
        Some(Record { tail: self.shard.arena.tail(self.handle) })
    }

    /// The type of the value, if the key exists.
    pub fn kind(&self) -> Option<Type> {
        self.record().map(Record::value_type)
    }

    /// The string value.
    ///
    /// Errors: the value has another type.
    #[inline]
    pub fn text(&self) -> Result<Option<Text<'_>>, WrongType> {
        match self.record() {
            None => Ok(None),
            Some(record) => record.text().map(Some).ok_or(WrongType),
        }
    }

    /// The string value for a reply, consuming `self`.
    ///
    /// Errors: the value has another type.
    #[inline]
    pub fn into_text(self) -> Result<Option<Text<'a>>, WrongType> {
        if self.slot.is_none() {
            return Ok(None);
        }
        let shard: &'a Shard = self.shard;
        Record { tail: shard.arena.tail(self.handle) }.text().map(Some).ok_or(WrongType)
    }

    /// Writes a string, whatever was there before.
    ///
    /// Errors: no room; the old value stays.
    #[inline]
    pub fn put_text(&mut self, value: &[u8], expiry: Expiry) -> Result<(), ShardFull> {
        match self.slot {
            Some(slot) => {
                let done = self.shard.overwrite(self.db, self.key, slot, value, expiry, self.now_ms);
                self.handle = self.shard.dbs[self.db].index.handle(slot);
                done
            }
            None => self.create(self.shard.payload_of(value), expiry),
        }
    }

    /// Writes a string that INCRBYFLOAT made; the deadline stays.
    ///
    /// Errors: no room; the old value stays.
    pub fn put_float(&mut self, value: &[u8]) -> Result<(), ShardFull> {
        let meta = self.record().map(Record::meta).unwrap_or_default();
        self.put_payload(&meta.without_cas(), &RecordPayload::Float(value))
    }

    fn create(&mut self, payload: RecordPayload<'_>, expiry: Expiry) -> Result<(), ShardFull> {
        let meta = RecordMeta { deadline_ms: deadline_of(expiry), ..RecordMeta::default() };
        self.put_payload(&meta, &payload)
    }

    /// Makes the string `len` bytes long (zeros are added, or the end is cut) and hands it out for
    /// change in place. The key is created when missing. Its deadline stays.
    ///
    /// Cost: a copy of the value when its block is too small; one that grows gets an eighth more.  Errors: no room; nothing changed.
    ///
    /// The value must be a string (see [`Keyed::text`]).
    pub fn edit_text(&mut self, len: usize) -> Result<&mut [u8], ShardFull> {
        match self.slot {
            None => self.create(RecordPayload::Raw { prefix: &[], len, room: 0 }, Expiry::None)?,
            Some(slot) => self.make_raw(slot, len)?,
        }
        Ok(record::raw_value_mut(self.shard.arena.tail_mut(self.handle)))
    }

    /// As [`Keyed::edit_text`]; true if the string took the block of a draft, whose bytes stand behind those that were there.
    pub fn edit_text_as_drafted(&mut self, len: usize) -> Result<(&mut [u8], bool), ShardFull> {
        let drafts_len = self.shard.drafts_len();
        self.edit_text(len)?;
        let is_drafted = self.shard.drafts_len() < drafts_len;
        Ok((record::raw_value_mut(self.shard.arena.tail_mut(self.handle)), is_drafted))
    }

    fn make_raw(&mut self, slot: IndexSlot, len: usize) -> Result<(), ShardFull> {
        self.write_first();
        let handle = self.handle;
        let record = Record { tail: self.shard.arena.tail(handle) };
        if record.kind() == RecordKind::Raw {
            let wanted = record.payload_at() + 4 + len;
            let size = self.shard.arena.size(handle);
            // A block that is read in slices must not change. Such a block is always long.
            let is_free = size < PINNED_BYTES_MIN || !self.shard.arena.is_pinned(handle);
            if wanted <= size && is_free && record.extras().is_none_or(|e| e.cas.is_none()) {
                record::raw_resize(self.shard.arena.tail_mut(handle), len);
                return Ok(());
            }
        }
        let meta = record.meta().without_cas();
        let Some(text) = record.text() else { unreachable!("the caller checked the type") };
        let kept = text.bytes();
        // A string that grows will probably grow again.
        let is_growing = len > kept.len() && len >= ROOM_FROM_BYTES;
        let room = if is_growing { (len / 8).min(ROOM_BYTES_MAX) } else { 0 };
        let prefix = kept[..kept.len().min(len)].to_vec();
        self.rewrite(slot, &meta, &RecordPayload::Raw { prefix: &prefix, len, room })
    }

    /// Removes the key; returns whether it was there. The caller reports the event.
    pub fn remove(&mut self) -> bool {
        match self.slot.take() {
            Some(slot) => {
                self.shard.remove_at(self.db, self.key, slot);
                true
            }
            None => false,
        }
    }

    /// The deadline in Unix milliseconds; `None` if the key is missing or has no deadline.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.record().and_then(Record::deadline_ms)
    }

    /// Sets or clears the deadline of a key; returns whether the key exists.
    ///
    /// Errors: no room for the longer record; nothing changed.
    pub fn set_deadline(&mut self, deadline_ms: Option<u64>) -> Result<bool, ShardFull> {
        let Some(slot) = self.slot else { return Ok(false) };
        self.write_first();
        let handle = self.handle;
        let record = Record { tail: self.shard.arena.tail(handle) };
        if let Some(ms) = deadline_ms
            && record.deadline_ms().is_some()
            && record::overwrite_deadline(self.shard.arena.tail_mut(handle), ms)
        {
            self.shard.dbs[self.db].index.note_expiry(slot, ms, self.now_ms);
            return Ok(true);
        }
        let record = Record { tail: self.shard.arena.tail(handle) };
        if record.deadline_ms() != deadline_ms {
            let meta = RecordMeta { deadline_ms, ..record.meta() };
            self.reshape(slot, meta)?;
        }
        Ok(true)
    }

    /// Rewrites the record with another head over the same payload bytes.
    pub(crate) fn reshape(&mut self, slot: IndexSlot, meta: RecordMeta) -> Result<(), ShardFull> {
        let record = Record { tail: self.shard.arena.tail(self.handle) };
        match record.value() {
            RecordValue::Object(kind, id) => self.rewrite(slot, &meta, &RecordPayload::Object(kind, id)),
            RecordValue::Folded(kind, block) => {
                let payload = RecordPayload::Folded(kind, block);
                self.rewrite(slot, &meta, &payload)
            }
            RecordValue::Text(bytes) if record.kind() == RecordKind::Raw => {
                let bytes = bytes.to_vec();
                let payload = RecordPayload::Raw { prefix: &bytes, len: bytes.len(), room: 0 };
                self.rewrite(slot, &meta, &payload)
            }
            RecordValue::Text(bytes) => {
                let is_float = record.kind() == RecordKind::Float;
                let bytes = bytes.to_vec();
                let payload =
                    if is_float { RecordPayload::Float(&bytes) } else { RecordPayload::Text(&bytes) };
                self.rewrite(slot, &meta, &payload)
            }
            RecordValue::Packed(packed, len) => {
                let bytes = Text::Packed(packed, len).bytes().into_owned();
                self.rewrite(slot, &meta, &RecordPayload::Packed(&bytes))
            }
        }
    }

    /// Marks the key so that eviction leaves it alone, or clears the mark; returns whether it changed.
    pub fn set_sticky(&mut self, on: bool) -> bool {
        let Some(slot) = self.slot else { return false };
        let handle = self.shard.dbs[self.db].index.handle(slot);
        if (Record { tail: self.shard.arena.tail(handle) }).is_sticky() == on {
            return false;
        }
        self.write_first();
        record::set_sticky(self.shard.arena.tail_mut(handle), on);
        true
    }

    /// The collection at the key, to read.
    ///
    /// Errors: the value has another type.
    pub fn view<T: Collection>(&self) -> Result<Option<KeyView<'_, T>>, WrongType> {
        let Some(record) = self.record() else { return Ok(None) };
        self.shard.view_of(record).map(Some)
    }

    /// Changes the collection at the key; `None` when the key is missing. A collection left without
    /// members is removed with its key: [`Edited::is_gone`] tells, and the caller reports `del`.
    ///
    /// Errors: the value has another type.
    pub fn edit<T: Collection, R>(
        &mut self,
        change: impl FnOnce(&mut T, &mut Arena, KeyHasher) -> R,
    ) -> Result<Option<Edited<R>>, WrongType> {
        let Some(record) = self.record() else { return Ok(None) };
        let (id, is_folded) = match record.value() {
            RecordValue::Object(kind, id) if kind == T::TYPE => (id, false),
            RecordValue::Folded(kind, block) if kind == T::TYPE => (block, true),
            _ => return Err(WrongType),
        };
        self.write_first();
        self.touch();
        if is_folded {
            return self.edit_folded(Handle::from_raw(id), change);
        }
        let shard = &mut *self.shard;
        if T::TYPE == Type::Series {
            shard.keep_series(id);
        }
        let is_kept = shard.begin_change(id);
        let Some(root) = T::of_mut(shard.objects.get_mut(id)) else { unreachable!("the record says so") };
        let before = root.next_expiry_ms();
        let result = change(root, &mut shard.arena, shard.hasher);
        let (after, is_gone) = (root.next_expiry_ms(), root.has_no_member());
        if root.is_unswept() {
            shard.note_unswept(id);
        }
        if is_kept {
            shard.end_change(id);
        }
        if before != after {
            self.note_members(before, after);
        }
        if is_gone {
            self.remove();
            self.was_emptied = true;
        } else if let Some(folded) = self.shard.objects.get(id).fold(&self.shard.arena) {
            self.overwrite_object(&folded);
            self.shard.objects.remove(id);
        }
        Ok(Some(Edited { result, is_gone }))
    }

    /// [`Keyed::edit`] of a collection without a root.
    #[inline(always)]
    fn edit_folded<T: Collection, R>(
        &mut self,
        block: Handle,
        change: impl FnOnce(&mut T, &mut Arena, KeyHasher) -> R,
    ) -> Result<Option<Edited<R>>, WrongType> {
        let shard = &mut *self.shard;
        let mut root = T::unfold(block, &shard.arena).ok_or(WrongType)?;
        let result = change(&mut root, &mut shard.arena, shard.hasher);
        let Some(now) = root.fold(&shard.arena) else {
            let is_gone = self.settle_unfolded(root);
            return Ok(Some(Edited { result, is_gone }));
        };
        // The root owns nothing but the block.
        std::mem::forget(root);
        if now != block {
            self.overwrite_object(&RecordPayload::Folded(T::TYPE, now.raw()));
        }
        Ok(Some(Edited { result, is_gone: false }))
    }

    /// Gives a root to a collection that needs one now, or removes the key if the collection is empty; returns true
    /// if it removed the key.
    #[inline(never)]
    pub(crate) fn settle_unfolded<T: Collection>(&mut self, root: T) -> bool {
        let (after, is_gone) = (root.next_expiry_ms(), root.has_no_member());
        let id = self.shard.objects.insert(root.wrap());
        self.overwrite_object(&RecordPayload::Object(T::TYPE, id));
        if after.is_some() {
            self.note_members(None, after);
        }
        if is_gone {
            self.remove();
            self.was_emptied = true;
        }
        is_gone
    }

    /// Updates the record of a collection that has moved.
    fn overwrite_object(&mut self, payload: &RecordPayload<'_>) {
        if self.slot.is_none() {
            return;
        }
        let handle = self.handle;
        self.shard.folds |= matches!(payload, RecordPayload::Folded(..));
        record::overwrite_object(self.shard.arena.tail_mut(handle), payload);
    }

    /// Changes the collection at the key, which is made by `make` when the key is missing.
    ///
    /// Errors: the value has another type, or there is no room for a record.
    pub fn edit_or_create<T: Collection, R>(
        &mut self,
        make: impl FnOnce() -> T,
        change: impl FnOnce(&mut T, &mut Arena, KeyHasher) -> R,
    ) -> Result<Edited<R>, RefusedWrite> {
        if !self.exists() {
            self.put_object(make().wrap(), Expiry::None)?;
        }
        match self.edit(change)? {
            Some(edited) => Ok(edited),
            None => unreachable!("created above"),
        }
    }

    /// Puts a collection at the key, whatever was there before.
    ///
    /// Errors: no room; the old value stays and `object` is lost.
    pub fn put_object(&mut self, object: Object, expiry: Expiry) -> Result<(), ShardFull> {
        let meta = match self.record() {
            Some(record) => RecordMeta {
                deadline_ms: deadline_after(record, expiry),
                extras: None,
                sticky: record.is_sticky(),
            },
            None => RecordMeta { deadline_ms: deadline_of(expiry), ..RecordMeta::default() },
        };
        self.put_object_with(object, &meta)
    }

    pub(crate) fn put_object_with(&mut self, object: Object, meta: &RecordMeta) -> Result<(), ShardFull> {
        let kind = object.kind();
        if let Some(folded) = object.fold(&self.shard.arena) {
            let done = self.put_payload(meta, &folded);
            if done.is_err() {
                self.shard.discard(object);
            }
            return done;
        }
        let id = self.shard.objects.insert(object);
        let (next_expiry, is_series) = {
            let object = self.shard.objects.get(id);
            (object.next_expiry_ms(), object.kind() == Type::Series)
        };
        self.shard.timed += usize::from(next_expiry.is_some());
        match self.put_payload(meta, &RecordPayload::Object(kind, id)) {
            Ok(()) => {
                self.shard.dbs[self.db].timed += usize::from(next_expiry.is_some());
                self.note_next_expiry(next_expiry);
                if is_series {
                    self.shard.series_came(self.db, self.key.bytes, self.handle);
                }
            }
            Err(full) => {
                let object = self.shard.objects.remove(id);
                self.shard.discard(object);
                return Err(full);
            }
        }
        Ok(())
    }

    /// Frees a collection without a key in steps.
    pub fn discard(&mut self, object: Object) {
        self.shard.discard(object);
    }

    /// Rewrites the record of an existing key.
    fn rewrite(
        &mut self,
        slot: IndexSlot,
        meta: &RecordMeta,
        payload: &RecordPayload<'_>,
    ) -> Result<(), ShardFull> {
        self.shard.rewrite(self.db, self.key, slot, meta, payload, self.now_ms)?;
        self.handle = self.shard.dbs[self.db].index.handle(slot);
        Ok(())
    }

    /// Writes the key's record, new or replaced.
    pub(crate) fn put_payload(
        &mut self,
        meta: &RecordMeta,
        payload: &RecordPayload<'_>,
    ) -> Result<(), ShardFull> {
        match self.slot {
            Some(slot) => self.rewrite(slot, meta, payload),
            None => {
                let slot = self.shard.create(self.db, self.key, meta, payload, self.now_ms)?;
                self.handle = self.shard.dbs[self.db].index.handle(slot);
                self.slot = Some(slot);
                Ok(())
            }
        }
    }

    /// The arena of this shard's collections.
    pub fn arena(&self) -> &Arena {
        &self.shard.arena
    }

    /// The arena, to build a collection before it is put.
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.shard.arena
    }

    /// The hasher of members and fields in this shard.
    pub fn hasher(&self) -> KeyHasher {
        self.shard.hasher
    }

    /// The collection at the key, of whatever type, and its arena; `None` for a string or a missing key.
    pub fn object(&self) -> Option<(&Object, &Arena)> {
        Some((self.shard.object_of(self.record()?)?, &self.shard.arena))
    }

    /// Hashes a member or field with this shard's hasher.
    pub fn hash(&self, member: &[u8]) -> u64 {
        self.shard.hasher.hash(member)
    }

    /// Randomness of the shard.
    pub fn random(&mut self) -> u64 {
        self.shard.rng.next_u64()
    }

    /// A fresh CAS token.
    pub fn next_cas(&mut self) -> u64 {
        self.shard.next_cas()
    }

    /// Reports an event of a change that was counted under another key (the source of a move).
    pub fn told(&mut self, event: Event) {
        self.shard.changes.push_uncounted(self.db, self.key.bytes, event);
    }

    /// Reports that `event` happened to the key.
    #[inline]
    pub fn changed(&mut self, event: Event) {
        if self.was_emptied && event == Event::DEL {
            // The change that removed the last member has been counted.
            self.shard.changes.push_uncounted(self.db, self.key.bytes, event);
        } else {
            self.shard.changes.push(self.db, self.key.bytes, event);
        }
    }

    /// Counts a change without an event; only the journal sees it.
    pub fn counted(&mut self) {
        self.shard.changes.count(1);
    }

    /// Notes a use of the key.
    #[inline]
    pub fn touch(&mut self) {
        let Some(slot) = self.slot else { return };
        if self.shard.counts_uses {
            self.shard.dbs[self.db].index.touch(slot);
        }
        self.shard.keep_use(self.handle, self.now_ms);
    }

    /// The eviction rank of the key, 0 to 7: hits since it came or eviction last passed it, up to three, plus four in
    /// the main part.
    pub fn eviction_rank(&self) -> u8 {
        self.slot.map_or(0, |slot| self.shard.dbs[self.db].index.eviction_rank(slot))
    }

    /// Sets the eviction rank of the key, 0 to 7, if uses are counted.
    pub fn set_standing(&mut self, standing: u8) {
        if let Some(slot) = self.slot
            && self.shard.remembers
        {
            self.shard.dbs[self.db].index.set_standing(slot, standing);
        }
    }

    /// Bytes that the key's record takes in its arena, and its share of the index.
    pub fn memory_bytes(&self) -> Option<usize> {
        let slot = self.slot?;
        let handle = self.shard.dbs[self.db].index.handle(slot);
        let record = self.shard.record_at(self.db, slot);
        let object = match record.value() {
            RecordValue::Object(_, id) => self.shard.objects.get(id).memory_bytes() + size_of::<Object>(),
            RecordValue::Folded(kind, block) => Object::unfold(kind, block, &self.shard.arena).memory_bytes(),
            _ => 0,
        };
        Some(self.shard.arena.size(handle) + object + size_of::<u32>() + 1)
    }
}

/// The deadline that a write with `expiry` gives a new key.
fn deadline_of(expiry: Expiry) -> Option<u64> {
    match expiry {
        Expiry::At(ms) => Some(ms),
        Expiry::None | Expiry::Keep => None,
    }
}

impl<'a> Record<'a> {
    /// The string value, if the value is a string.
    #[inline]
    pub fn text(self) -> Option<Text<'a>> {
        match self.value() {
            RecordValue::Text(bytes) => Some(Text::Plain(bytes)),
            RecordValue::Packed(packed, len) => Some(Text::Packed(packed, len)),
            RecordValue::Object(..) | RecordValue::Folded(..) => None,
        }
    }

    /// The type of the value.
    pub fn value_type(self) -> Type {
        match self.value() {
            RecordValue::Object(kind, _) | RecordValue::Folded(kind, _) => kind,
            _ => Type::String,
        }
    }

    /// Returns true if a string was grown or changed in place. `OBJECT ENCODING` shows it as `raw`.
    pub fn was_edited(self) -> bool {
        self.kind() == RecordKind::Raw
    }

    /// Returns true if a string was made by INCRBYFLOAT. `OBJECT ENCODING` never shows it as `int`.
    pub fn is_float(self) -> bool {
        self.kind() == RecordKind::Float
    }
}

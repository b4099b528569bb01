//! A shard: its databases, the arena their records live in, and the counters they share.
//!
//! The holder of a shard has `&mut Shard`; there is no locking in here.

use std::io;
use std::mem::offset_of;
use std::sync::Arc;

use darter_base::crc::SLOTS_LEN;
use darter_base::hash::{KeyHasher, hash_bits_of, spread_slot_in};
use darter_base::rng::Rng;
use darter_index::IndexSlot;
use darter_slab::{Arena, Handle, Lexicon};

use crate::change::{ChangeLog, Event};
use crate::cut::Cut;
use crate::db::Db;
use crate::draft::TextDraft;
use crate::error::{ShardFull, WrongType};
use crate::evict::Pressure;
use crate::folded::FoldScratch;
use crate::hidden::HiddenSlots;
use crate::links::Links;
use crate::object::{Collection, KeyView, Object};
use crate::reads::Reads;
use crate::record::{self, Expiry, Record, RecordKind, RecordMeta, RecordPayload};
use crate::slots::SlotKeys;
use crate::tidy::{Tidy, TidyCounters};
use crate::uses::Uses;
use crate::value_type::Type;

/// A key and its hash, computed once per command.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key's bytes.
    pub bytes: &'a [u8],
    /// `KeyHasher::hash` of them.
    pub hash: u64,
}

/// Counters of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys that had expired.
    pub expired: u64,
    /// Expired fields and members.
    pub expired_members: u64,
    /// Keys evicted to make room.
    pub evicted: u64,
}

/// One part of the keyspace, over all databases.
///
/// Shape: a GET or an overwriting SET writes only the first [`HOT_BYTES`]. They lie beside the ownership word, so
/// that a thread that takes the shard over from another waits for no further line.
#[repr(C)]
pub struct Shard {
    pub(crate) dbs: Vec<Db>,
    pub(crate) cut: Option<Box<Cut>>,
    // Uses of keys are counted, for eviction.
    pub(crate) counts_uses: bool,
    pub(crate) remembers: bool,
    // Uses are not noted for the time of one command.
    pub(crate) pauses_uses: bool,
    // Some record may hold a collection without a root.
    pub(crate) folds: bool,
    /// Hits, misses and similar.
    pub counters: Counters,
    /// The changes, for listeners.
    pub changes: ChangeLog,
    // No database from this number on has had a key yet.
    pub(crate) dbs_filled: usize,
    // Expired keys are hidden, but stay until the master removes them.
    keeps_dead: bool,
    // Expired keys are shown, for the time of one command of a client that imports.
    shows_dead: bool,
    // Number of `objects` with members that expire.
    pub(crate) timed: usize,
    pub(crate) arena: Arena,
    pub(crate) pressure: Pressure,
    pub(crate) objects: SlotKeys<Object>,
    pub(crate) hasher: KeyHasher,
    // Slots whose keys are here; 0 unless shards follow slots.
    pub(crate) slots: usize,
    // The number of the shard, which its slots have in their spread order.
    id: u16,
    pub(crate) hidden: Arc<HiddenSlots>,
    // Times that a database was emptied or exchanged as a whole.
    flushes: u64,
    // Times that a series came, went or got other labels.
    pub(crate) label_changes: u64,
    pub(crate) scratch: FoldScratch,
    /// Randomness for sampling.
    pub rng: Rng,
    /// Counters of moving records together.
    pub tidied: TidyCounters,
    pub(crate) uses: Uses,
    pub(crate) tidy: Tidy,
    lazy_free: Vec<Object>,
    // Streams with trimmed entries to free in steps, by their numbers, which may be reused by now.
    unswept: Vec<u32>,
    // Databases that were emptied and are freed in slices.
    pub(crate) ruins: Vec<Db>,
    // A second set of databases, which nobody sees (`aside`); empty without one.
    pub(crate) aside: Vec<Db>,
    pub(crate) reads: Option<Box<Reads>>,
    // Collections without a key that are still read or written in slices, by their numbers.
    pub(crate) orphans: Vec<u32>,
    // Collections that are being built, by their numbers.
    pub(crate) drafts: Vec<u32>,
    // Strings that are being built, with a mark for the one that the running command will take.
    pub(crate) text_drafts: Vec<TextDraft>,
    pub(crate) text_draft_used: Option<usize>,
    pub(crate) last_text_draft: u32,
    // The last CAS token, and the distance to the next one.
    cas: u64,
    cas_step: u64,
    // Keys whose values name others; shared by all shards.
    pub(crate) links: Arc<Links>,
    /// Answers of KEYS that were cut at `keys_output_limit`. An answer over several shards is counted by one of them.
    pub answers_cut: u64,
}

/// The space of two cache lines beside the ownership word and its queue.
pub const HOT_BYTES: usize = 96;
const _: () = assert!(offset_of!(Shard, changes) + ChangeLog::HOT_BYTES <= HOT_BYTES);

/// Values are not read in slices if their block is not longer than this.
pub(crate) const PINNED_BYTES_MIN: usize = 64 << 10;
/// The removal of a record of at least this many bytes is reported to the limit immediately.
pub(crate) const GIANT_BYTES: usize = 1 << 20;
/// Blocks of a deleted collection that are freed at once: some microseconds.
const BLOCKS_AT_ONCE: usize = 64;

impl Shard {
    /// An empty shard with `dbs` databases; `seed` starts its randomness.
    ///
    /// Errors: the kernel refuses the address range.
    pub fn new(dbs: usize, seed: u64, hasher: KeyHasher) -> io::Result<Shard> {
        Shard::within(None, dbs, seed, hasher)
    }

    /// The same with at most this many bytes of address space for its data; `None` for the maximum.
    ///
    /// Errors: the kernel refuses the address range.
    pub fn within(
        reserve_bytes: Option<usize>,
        dbs: usize,
        seed: u64,
        hasher: KeyHasher,
    ) -> io::Result<Shard> {
        Ok(Shard {
            dbs: (0..dbs).map(|_| Db::new()).collect(),
            dbs_filled: 0,
            arena: reserve_bytes.map_or_else(Arena::new, Arena::with_reserve)?,
            objects: SlotKeys::default(),
            hasher,
            slots: 0,
            id: 0,
            hidden: Arc::default(),
            flushes: 0,
            label_changes: 0,
            scratch: FoldScratch::default(),
            keeps_dead: false,
            shows_dead: false,
            timed: 0,
            changes: ChangeLog::default(),
            counters: Counters::default(),
            rng: Rng::new(seed),
            tidied: TidyCounters::default(),
            counts_uses: false,
            remembers: false,
            pauses_uses: false,
            uses: Uses::default(),
            folds: false,
            pressure: Pressure::default(),
            tidy: Tidy::default(),
            lazy_free: Vec::new(),
            unswept: Vec::new(),
            ruins: Vec::new(),
            aside: Vec::new(),
            cut: None,
            reads: None,
            orphans: Vec::new(),
            drafts: Vec::new(),
            text_drafts: Vec::new(),
            text_draft_used: None,
            last_text_draft: 0,
            cas: 0,
            cas_step: 1,
            answers_cut: 0,
            links: Arc::default(),
        })
    }

    /// Makes the shard share this table of keys that name others, before it has a key.
    pub fn share_links(&mut self, links: Arc<Links>) {
        self.links = links;
    }

    /// Makes the shard count keys by slot, before it has a key: it is number `id` of `shards` whose hasher is by slot.
    pub fn count_slots(&mut self, shards: usize, id: u16) {
        assert!(self.hasher.is_by_slot() && self.keys_len() == 0);
        (self.slots, self.id) = (usize::from(SLOTS_LEN) / shards, id);
    }

    /// Makes the shard hide keys of these slots, which all shards share.
    pub fn hide_slots(&mut self, hidden: Arc<HiddenSlots>) {
        self.hidden = hidden;
    }

    /// Returns true if a record is left out of what clients see of the database as a whole.
    #[inline]
    pub(crate) fn is_hidden(&self, record: Record<'_>) -> bool {
        self.hidden.hides(record.key())
    }

    /// Returns true if the keys of `slot` are in this shard; false unless shards follow slots.
    pub fn has_slot(&self, slot: u16) -> bool {
        usize::from(spread_slot_in(hash_bits_of(slot))).checked_div(self.slots) == Some(usize::from(self.id))
    }

    /// Times that a database of this shard was emptied or exchanged as a whole.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Keys of `slot` in a database of this shard, dead ones included; `None` unless shards follow slots.
    pub fn slot_keys(&self, db: usize, slot: u16) -> Option<usize> {
        let place = usize::from(spread_slot_in(hash_bits_of(slot))).checked_rem(self.slots)?;
        Some(self.dbs.get(db)?.slot_keys.get(place).map_or(0, |keys| *keys as usize))
    }

    /// Database `db`, to count.
    pub fn db(&self, db: usize) -> &Db {
        &self.dbs[db]
    }

    /// Number of databases.
    pub fn dbs_len(&self) -> usize {
        self.dbs.len()
    }

    /// Bytes of indexes, records and objects, which are compared with `maxmemory`.
    pub fn memory_bytes(&self) -> usize {
        self.arena.occupied_bytes()
            + self.arena.page_record_bytes()
            + self.index_bytes()
            + self.objects.bytes()
            + self.arena.lexicon().map_or(0, Lexicon::bytes)
            + self.filled_dbs().iter().map(|db| db.labels.bytes()).sum::<usize>()
    }

    /// Bytes of the indexes alone.
    pub fn index_bytes(&self) -> usize {
        // Two loops, because one over both would leave a call.
        let of = |dbs: &[Db]| dbs.iter().map(|db| db.index.bytes()).sum::<usize>();
        of(self.filled_dbs()) + of(&self.ruins) + of(&self.aside)
    }

    /// The databases up to the last that has had a key: most often one of many.
    #[inline]
    pub(crate) fn filled_dbs(&self) -> &[Db] {
        &self.dbs[..self.dbs_filled]
    }

    /// Bytes of live records, without the arena's slack.
    pub fn used_bytes(&self) -> usize {
        self.arena.used_bytes()
    }

    /// The next CAS token, unique within the shard, and within the process if shards take turns.
    pub fn next_cas(&mut self) -> u64 {
        self.cas += self.cas_step;
        self.cas
    }

    /// Sets the CAS tokens to start after `last`, in steps of `step`. No token is then repeated after a restart, nor
    /// by another of `step` shards whose `last` differs by less.
    pub fn start_cas(&mut self, last: u64, step: u64) {
        (self.cas, self.cas_step) = (last, step);
    }

    /// Makes room for about `keys` keys in a database that has none yet: before a snapshot is loaded. The caller must
    /// bound the number, which may come from a file.
    pub fn reserve(&mut self, db: usize, keys: usize) {
        if let Some(place) = self.dbs.get_mut(db) {
            place.index.reserve(keys);
            self.dbs_filled = self.dbs_filled.max(db + 1);
        }
    }

    /// Prefetches the index line that finding a key of this hash will look at.
    #[inline]
    pub fn prefetch_line(&self, db: usize, hash: u64) {
        if let Some(db) = self.dbs.get(db) {
            db.index.prefetch(hash);
        }
    }

    /// Prefetches the record that the index line names for this hash. The line should be cached by now.
    #[inline]
    pub fn prefetch_record(&self, db: usize, hash: u64) {
        if let Some(handle) = self.dbs.get(db).and_then(|db| db.index.find_handle(hash)) {
            self.arena.prefetch(handle);
        }
    }

    #[inline]
    pub(crate) fn locate(&self, db: usize, key: Key<'_>) -> Option<IndexSlot> {
        let arena = &self.arena;
        self.dbs[db].index.find(key.hash, |h| record::is_of(arena.tail(h), key.bytes))
    }

    #[inline]
    pub(crate) fn record_at(&self, db: usize, slot: IndexSlot) -> Record<'_> {
        Record { tail: self.arena.tail(self.dbs[db].index.handle(slot)) }
    }

    /// Finds a key that is alive at `now_ms`, and its record; removes an expired one.
    #[inline(always)]
    pub(crate) fn find(&mut self, db: usize, key: Key<'_>, now_ms: u64) -> Option<(IndexSlot, Handle)> {
        self.scratch.clear();
        let (arena, mut handle) = (&self.arena, Handle::NONE);
        let slot = self.dbs[db].index.find(key.hash, |there| {
            handle = there;
            record::is_of(arena.tail(there), key.bytes)
        })?;
        if (Record { tail: arena.tail(handle) }).is_expired(now_ms) && !self.shows_dead {
            self.expire(db, key, slot);
            return None;
        }
        Some((slot, handle))
    }

    /// Returns true if a record is visible to the running command, whose time is `now_ms`.
    pub fn shows(&self, record: Record<'_>, now_ms: u64) -> bool {
        !record.is_expired(now_ms) || self.shows_dead
    }

    /// Shows expired keys like others, or hides them again.
    pub fn show_dead(&mut self, on: bool) {
        self.shows_dead = on;
    }

    /// Returns the record of a key without removing an expired one, which is not shown.
    pub fn peek(&self, db: usize, key: Key<'_>, now_ms: u64) -> Option<Record<'_>> {
        let record = self.record_at(db, self.locate(db, key)?);
        self.shows(record, now_ms).then_some(record)
    }

    /// Keeps expired keys, though hidden, or removes them again on access. On a replica, the master removes them.
    pub fn keep_dead(&mut self, on: bool) {
        self.keeps_dead = on;
    }

    /// Returns true if dead keys stay.
    pub fn keeps_dead(&self) -> bool {
        self.keeps_dead
    }

    #[cold]
    pub(crate) fn expire(&mut self, db: usize, key: Key<'_>, slot: IndexSlot) {
        if self.keeps_dead {
            return;
        }
        self.remove_at(db, key, slot);
        self.counters.expired += 1;
        self.changes.push(db, key.bytes, Event::EXPIRED);
    }

    /// Removes the record at `slot` and everything it owns.
    pub(crate) fn remove_at(&mut self, db: usize, key: Key<'_>, slot: IndexSlot) {
        self.write_first(db, key.hash);
        let handle = self.dbs[db].index.remove(slot, key.hash);
        if self.slots > 0 {
            self.dbs[db].uncount_in_slot(key.hash, self.slots);
        }
        let record = Record { tail: self.arena.tail(handle) };
        if record.deadline_ms().is_some() {
            self.dbs[db].expiring -= 1;
        }
        self.dbs[db].timed -= usize::from(self.is_timed(handle));
        self.series_goes(db, handle);
        self.drop_object_of(handle);
        self.free_record(handle);
    }

    /// Frees a record's block. A giant is reported to the limit immediately, because others may wait for its room.
    pub(crate) fn free_record(&mut self, handle: Handle) {
        let before = self.arena.used_bytes();
        self.arena.free(handle);
        if before - self.arena.used_bytes() >= GIANT_BYTES {
            self.allow_nothing();
        }
    }

    /// Returns true if the record's collection has members that expire. One that is folded has none.
    fn is_timed(&self, handle: Handle) -> bool {
        let record = Record { tail: self.arena.tail(handle) };
        self.timed > 0
            && matches!(record.value(), record::RecordValue::Object(_, id) if self.objects.get(id).next_expiry_ms().is_some())
    }

    pub(crate) fn drop_object_of(&mut self, handle: Handle) {
        let record = Record { tail: self.arena.tail(handle) };
        match record.value() {
            record::RecordValue::Object(kind, id) => {
                if kind == Type::Series {
                    self.keep_series(id);
                }
                if self.is_gone_through(id) {
                    self.orphans.push(id);
                } else {
                    let object = self.objects.remove(id);
                    self.discard(object);
                }
            }
            record::RecordValue::Folded(kind, block) => {
                let object = Object::unfold(kind, block, &self.arena);
                self.discard(object);
            }
            _ => {}
        }
    }

    /// Frees a collection to which no key refers any more: immediately if it is small, else in steps by
    /// [`Shard::free_some`].
    pub(crate) fn discard(&mut self, mut object: Object) {
        self.timed -= usize::from(object.next_expiry_ms().is_some());
        if !object.free_step(&mut self.arena, BLOCKS_AT_ONCE) {
            self.lazy_free.push(object);
        }
    }

    /// Frees up to about `blocks_max` blocks of deleted collections and trimmed streams, or index lines of emptied
    /// databases; returns true if none is left.
    pub fn free_some(&mut self, blocks_max: usize) -> bool {
        if let Some(id) = self.unswept.last().copied() {
            self.sweep_trimmed(id, blocks_max);
        } else if let Some(object) = self.lazy_free.last_mut() {
            if object.free_step(&mut self.arena, blocks_max) {
                self.lazy_free.pop();
                self.tidied.buried += 1;
            }
        } else {
            return self.clear_ruins(blocks_max);
        }
        self.lazy_free_len() == 0 && self.ruins.is_empty()
    }

    /// Notes a trimmed stream, whose entries are freed in steps.
    #[cold]
    pub(crate) fn note_unswept(&mut self, id: u32) {
        if !self.unswept.contains(&id) {
            self.unswept.push(id);
        }
    }

    fn sweep_trimmed(&mut self, id: u32, blocks_max: usize) {
        let is_kept = self.begin_change(id);
        let is_swept = match self.objects.find_mut(id) {
            Some(Object::Stream(stream)) => stream.log_mut().sweep(&mut self.arena, blocks_max),
            Some(Object::Module(value)) => value.sweep(&mut self.arena, blocks_max),
            _ => true,
        };
        if is_kept {
            self.end_change(id);
        }
        if is_swept {
            self.unswept.retain(|other| *other != id);
        }
    }

    /// Number of deleted collections, and of trimmed streams, that still hold memory.
    pub fn lazy_free_len(&self) -> usize {
        self.lazy_free.len() + self.unswept.len()
    }

    /// Writes a record for a missing key.
    pub(crate) fn create(
        &mut self,
        db: usize,
        key: Key<'_>,
        meta: &RecordMeta,
        payload: &RecordPayload<'_>,
        now_ms: u64,
    ) -> Result<IndexSlot, ShardFull> {
        let handle = self.write_block(key.bytes, meta, payload)?;
        Ok(self.adopt(db, key, handle, meta.deadline_ms, now_ms))
    }

    /// Adds a record that is already written as that of a missing key.
    #[inline]
    pub(crate) fn adopt(
        &mut self,
        db: usize,
        key: Key<'_>,
        handle: Handle,
        deadline_ms: Option<u64>,
        now_ms: u64,
    ) -> IndexSlot {
        self.write_first(db, key.hash);
        self.dbs_filled = self.dbs_filled.max(db + 1);
        let (arena, hasher) = (&self.arena, &self.hasher);
        let place = &mut self.dbs[db];
        let slot =
            place.index.insert(key.hash, handle, |h| hasher.hash_key(Record { tail: arena.tail(h) }.key()));
        if let Some(ms) = deadline_ms {
            place.expiring += 1;
            place.index.note_expiry(slot, ms, now_ms);
        }
        if self.slots > 0 {
            place.count_in_slot(key.hash, self.slots);
        }
        self.wrote_first(db, key.hash);
        self.changes.push_uncounted(db, key.bytes, Event::NEW);
        slot
    }

    /// Replaces the record at `slot` by another for the same key. A replaced object is dropped
    /// unless the new payload still names it.
    pub(crate) fn rewrite(
        &mut self,
        db: usize,
        key: Key<'_>,
        slot: IndexSlot,
        meta: &RecordMeta,
        payload: &RecordPayload<'_>,
        now_ms: u64,
    ) -> Result<(), ShardFull> {
        self.write_first(db, key.hash);
        let old = self.dbs[db].index.handle(slot);
        let handle = self.write_block(key.bytes, meta, payload)?;
        let record = Record { tail: self.arena.tail(old) };
        let had_deadline = record.deadline_ms().is_some();
        let is_kept = match (record.value(), payload) {
            (record::RecordValue::Object(_, a), RecordPayload::Object(_, b)) => a == *b,
            (record::RecordValue::Folded(_, a), RecordPayload::Folded(_, b)) => a == *b,
            _ => false,
        };
        if !is_kept {
            self.dbs[db].timed -= usize::from(self.is_timed(old));
            self.series_goes(db, old);
            self.drop_object_of(old);
        }
        self.free_record(old);
        let place = &mut self.dbs[db];
        place.index.set_handle(slot, handle);
        place.expiring -= usize::from(had_deadline);
        if let Some(ms) = meta.deadline_ms {
            place.expiring += 1;
            place.index.note_expiry(slot, ms, now_ms);
        }
        Ok(())
    }

    pub(crate) fn write_block(
        &mut self,
        key: &[u8],
        meta: &RecordMeta,
        payload: &RecordPayload<'_>,
    ) -> Result<Handle, ShardFull> {
        if let RecordPayload::Text(value) = payload
            && self.text_draft_used.is_some()
            && let Some(handle) = self.take_text_draft(key, meta, value.len())
        {
            record::encode_text_head(self.arena.tail_mut(handle), key, meta, value.len());
            return Ok(handle);
        }
        if let RecordPayload::Raw { prefix, len, .. } = payload
            && self.text_draft_used.is_some()
            && let Some(handle) = self.take_raw_draft(key, meta, *len)
        {
            record::encode_raw_head(self.arena.tail_mut(handle), key, meta, prefix, *len);
            return Ok(handle);
        }
        let handle = self.arena.alloc(record::encoded_len(key, meta, payload)).ok_or(ShardFull)?;
        record::encode(self.arena.tail_mut(handle), key, meta, payload);
        self.folds |= matches!(payload, RecordPayload::Folded(..));
        Ok(handle)
    }

    /// Sets a string over an existing record: in place if the block's class stays the same.
    #[inline]
    pub(crate) fn overwrite(
        &mut self,
        db: usize,
        key: Key<'_>,
        slot: IndexSlot,
        value: &[u8],
        expiry: Expiry,
        now_ms: u64,
    ) -> Result<(), ShardFull> {
        self.write_first(db, key.hash);
        if self.counts_uses {
            self.dbs[db].index.touch(slot);
        }
        let handle = self.dbs[db].index.handle(slot);
        let record = Record { tail: self.arena.tail(handle) };
        let payload = self.payload_of(value);
        let at = record.payload_at();
        let (size, wanted) = (self.arena.size(handle), at + record::text_bytes(value));
        if matches!(record.kind(), RecordKind::Text)
            && matches!(payload, RecordPayload::Text(_))
            && record.extras().is_none()
            && wanted <= size
            && Arena::fits(wanted) == size
            && self.text_draft_used.is_none()
            && !self.is_read_in_place(handle, value)
        {
            let is_immortal = record.deadline_ms().is_none();
            let block = self.arena.tail_mut(handle);
            let has_head = match expiry {
                Expiry::Keep => true,
                Expiry::None => is_immortal,
                Expiry::At(ms) => record::overwrite_deadline(block, ms),
            };
            if has_head {
                record::overwrite_text(block, at, value);
                if let Expiry::At(ms) = expiry {
                    self.dbs[db].index.note_expiry(slot, ms, now_ms);
                }
                return Ok(());
            }
        }
        let record = Record { tail: self.arena.tail(handle) };
        let meta = RecordMeta {
            deadline_ms: deadline_after(record, expiry),
            extras: None,
            sticky: record.is_sticky(),
        };
        self.rewrite(db, key, slot, &meta, &payload, now_ms)
    }

    /// The payload for a string value: one that was built already stays unchanged.
    #[inline]
    pub(crate) fn payload_of<'v>(&self, value: &'v [u8]) -> RecordPayload<'v> {
        if self.text_draft_used.is_some() {
            RecordPayload::Text(value)
        } else {
            RecordPayload::of_text(value)
        }
    }

    /// Returns true if a record may not be overwritten in place, because its value is read in slices. `value` is the
    /// new value: if it is short, the old one has no reader.
    #[inline]
    pub(crate) fn is_read_in_place(&self, handle: Handle, value: &[u8]) -> bool {
        value.len() >= PINNED_BYTES_MIN && self.arena.is_pinned(handle)
    }

    /// Empties one database; returns its number of keys. Cost: independent of the keys. Its memory is freed with the
    /// arena if nothing else is there, else in steps by [`Shard::free_some`].
    pub fn flush_db(&mut self, db: usize) -> usize {
        self.flushes += 1;
        self.all_series_go(db);
        let empty = self.new_db();
        let old = std::mem::replace(&mut self.dbs[db], empty);
        let keys = old.len();
        if self.cut.is_none()
            && self.reads_len() == 0
            && self.drafts_len() == 0
            && self.dbs.iter().chain(&self.aside).all(Db::is_empty)
        {
            self.arena.clear();
            self.tidy = Tidy::default();
            self.objects = SlotKeys::default();
            self.lazy_free.clear();
            self.unswept.clear();
            self.ruins.clear();
            self.timed = 0;
        } else {
            self.set_aside(old);
        }
        // The command itself frees none of them.
        self.tidied.buried += keys as u64;
        self.changes.count(keys as u64);
        keys
    }

    pub(crate) fn new_db(&self) -> Db {
        let mut empty = Db::new();
        empty.index.remember(self.remembers);
        empty
    }

    /// Exchanges two databases.
    pub fn swap_dbs(&mut self, a: usize, b: usize) {
        self.flushes += 1;
        self.label_changes += 1;
        self.dbs.swap(a, b);
        self.dbs_filled = self.dbs_filled.max(a.max(b) + 1);
        self.changes.count(1);
    }
}

/// The deadline a record has after a write with `expiry`.
pub(crate) fn deadline_after(record: Record<'_>, expiry: Expiry) -> Option<u64> {
    match expiry {
        Expiry::None => None,
        Expiry::Keep => record.deadline_ms(),
        Expiry::At(ms) => Some(ms),
    }
}

impl Shard {
    /// The collection of a record found by [`Shard::peek`], to read; several keys may be read together.
    ///
    /// Errors: the value has another type.
    #[inline]
    pub fn view_of<T: Collection>(&self, record: Record<'_>) -> Result<KeyView<'_, T>, WrongType> {
        let root = self.object_of(record).and_then(T::of).ok_or(WrongType)?;
        Ok(KeyView { root, arena: &self.arena, hasher: self.hasher })
    }

    /// The collection of a record of this shard, if its value is one.
    #[inline]
    pub(crate) fn object_of(&self, record: Record<'_>) -> Option<&Object> {
        match record.value() {
            record::RecordValue::Object(_, id) => Some(self.objects.get(id)),
            record::RecordValue::Folded(kind, block) => {
                self.scratch.put(Object::unfold(kind, block, &self.arena))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_hears_of_a_giant_that_goes_at_once() {
        let hasher = KeyHasher::new(4);
        let mut shard = Shard::new(1, 0, hasher).expect("address space");
        let key = Key { bytes: b"giant", hash: hasher.hash(b"giant") };
        for ends in [(|place| assert!(place.remove())) as fn(&mut crate::Keyed<'_>), |place| {
            place.put_text(b"short", Expiry::None).expect("room")
        }] {
            let value = vec![0xff; 64 << 20];
            crate::Keyed::find(&mut shard, 0, key, 1).put_text(&value, Expiry::None).expect("room");
            let before = shard.memory_bytes();
            assert!(before - value.len() < 2 << 20, "{before} bytes for one of 64 MiB");
            shard.allow_growth(1 << 20);
            assert!(!shard.is_over_quota());
            ends(&mut crate::Keyed::find(&mut shard, 0, key, 1));
            assert!(shard.is_over_quota() && shard.memory_bytes() < 2 << 20, "{}", shard.memory_bytes());
        }
    }

    #[test]
    fn a_giant_that_grows_bit_by_bit_is_copied_seldom() {
        let hasher = KeyHasher::new(4);
        let mut shard = Shard::new(1, 0, hasher).expect("address space");
        let key = Key { bytes: b"giant", hash: hasher.hash(b"giant") };
        let (mut len, mut moves, mut last) = (2 << 20, 0, Handle::NONE);
        while len < 8 << 20 {
            crate::Keyed::find(&mut shard, 0, key, 1).edit_text(len).expect("room");
            let slot = shard.locate(0, key).expect("it is there");
            let now = shard.dbs[0].index.handle(slot);
            moves += usize::from(now != last);
            (last, len) = (now, len + 1000);
        }
        assert!(moves < 20, "{moves} copies");
    }

    #[test]
    fn a_value_of_the_same_length_is_overwritten_where_it_lies() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 0, hasher).expect("address space");
        // lengths around those that fill a block to its last byte
        for len in 0..130 {
            let (name, value) = (format!("key:{len:012}"), vec![b'v'; len]);
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            for (n, expiry) in
                [Expiry::None, Expiry::At(9_000), Expiry::At(9_500), Expiry::Keep].into_iter().enumerate()
            {
                let before = shard.locate(0, key).map(|slot| shard.dbs[0].index.handle(slot));
                let mut place = crate::Keyed::find(&mut shard, 0, key, 1);
                place.put_text(&value, expiry).expect("room");
                assert_eq!(place.deadline_ms(), [None, Some(9_000), Some(9_500), Some(9_500)][n]);
                let after = shard.locate(0, key).map(|slot| shard.dbs[0].index.handle(slot));
                // only the first write and the first deadline need another block
                assert_eq!(before == after, n > 1, "length {len}, write {n}");
            }
        }
    }
}

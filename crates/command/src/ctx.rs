//! The state that a running command body may use.

use std::sync::Arc;

use darter_base::hash::KeyHasher;
use darter_store::change::{JournalReaders, Noted, Vocabulary};
use darter_store::error::ShardFull;
use darter_store::error::WrongType;
use darter_store::rdb::Versions;
use darter_store::{Arena, Collection, Event, Key, Keyed, Record, Shard, Text};
use darter_txn::{ShardPart, ShardSet};
use darter_wire::{Args, OwnedArgs, Reply};

use crate::Fault;
use crate::hash::PACKS_AT_ONCE;
use crate::incremental::Staged;
use crate::slices::SlicesRest;
use crate::slot_usage::SlotUsage;

/// Limits and thresholds that commands read; a copy of the configuration.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field has its configuration parameter's name")]
pub struct Env {
    pub proto_max_bulk_len: u64,
    pub keys_output_limit: u64,
    pub list_max_listpack_size: i64,
    pub hash_max_listpack_entries: u64,
    pub hash_max_listpack_value: u64,
    pub set_max_intset_entries: u64,
    pub set_max_listpack_entries: u64,
    pub set_max_listpack_value: u64,
    pub zset_max_listpack_entries: u64,
    pub zset_max_listpack_value: u64,
    pub stream_node_max_bytes: u64,
    pub stream_node_max_entries: u64,
    pub stream_idmp_duration: u64,
    pub stream_idmp_maxsize: u64,
    pub hll_sparse_max_bytes: u64,
    /// `OBJECT FREQ` answers only under an LFU policy, `OBJECT IDLETIME` only without one.
    pub policy_is_lfu: bool,
    /// True if there is a memory limit and the policy counts uses.
    pub policy_counts_uses: bool,
    /// A cluster is emulated, or this server is a node of one.
    pub is_cluster: bool,
    /// A mark for each slot of this node; `None`: all slots are.
    pub own_slots: Option<Arc<[bool]>>,
    /// What commands of each slot have taken; `None`: that is not counted (`cluster-slot-stats-enabled`).
    pub slot_usage: Option<Arc<SlotUsage>>,
    /// Data is imported from another server: expired keys stay (`import-mode`).
    pub import_mode: bool,
    /// The versions that RESTORE accepts (`rdb-version-check`).
    pub restored_versions: Versions,
}

impl Default for Env {
    fn default() -> Env {
        Env {
            proto_max_bulk_len: 512 << 20,
            keys_output_limit: 0,
            list_max_listpack_size: -2,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            stream_node_max_bytes: 4096,
            stream_node_max_entries: 100,
            stream_idmp_duration: 100,
            stream_idmp_maxsize: 100,
            hll_sparse_max_bytes: 3000,
            policy_is_lfu: false,
            policy_counts_uses: false,
            is_cluster: false,
            own_slots: None,
            slot_usage: None,
            import_mode: false,
            restored_versions: Versions::Known,
        }
    }
}

/// Keys, fields or members that are prefetched together.
pub const AHEAD: usize = 32;

/// Returns true if word `at` of `len` begins [`AHEAD`] more that are worth prefetching together. Cost: one comparison
/// if there are fewer.
#[inline(always)]
pub fn begins_batch(at: usize, len: usize) -> bool {
    len >= AHEAD && at.is_multiple_of(AHEAD) && len - at >= AHEAD
}

/// A command that found nothing and wants to wait for one of its keys. After the timeout its reply is a null array.
#[derive(Debug)]
pub struct BlockingWait {
    /// Longest wait in milliseconds; `None` without a limit.
    pub timeout_ms: Option<u64>,
    /// Index of an argument that is a key to write to, not to wait for (BLMOVE's destination); 0 without one.
    pub dest: usize,
    /// Time at which it becomes ready without a change, Unix milliseconds.
    pub ready_at_ms: Option<u64>,
    /// The arguments to wait with, if their meaning depends on the present state (XREAD's `$`).
    pub args: Option<OwnedArgs>,
}

impl BlockingWait {
    /// A wait that ends with a change of a key; `dest` as above.
    pub fn for_a_key(timeout_ms: Option<u64>, dest: usize) -> BlockingWait {
        BlockingWait { timeout_ms, dest, ready_at_ms: None, args: None }
    }
}

/// Tells whether a client may read a key.
pub type MayRead = Box<dyn Fn(&[u8]) -> bool + Send>;

/// The state a command body runs in.
pub struct Ctx<'a> {
    /// Selected database.
    pub db: usize,
    /// Number of databases.
    pub dbs_len: usize,
    /// The time of the command, Unix milliseconds.
    pub now_ms: u64,
    /// Limits.
    pub env: &'a Env,
    /// False inside MULTI and scripts, which must not wait.
    pub may_wait: bool,
    /// True if a long answer may be left to slices, because its client can receive it in pieces.
    pub may_slice: bool,
    /// True if the body may run again when the slices of its work are done; false for a command that could wait then.
    pub may_repeat: bool,
    /// Set by a body that left the rest of its answer to slices, after it wrote the head.
    pub rest: Option<SlicesRest>,
    /// The complete result of slices, which the body must store now.
    pub staged: Option<Staged>,
    /// Set by a body that wants to wait for its keys; its output is discarded then.
    pub wait: Option<Box<BlockingWait>>,
    /// The key that became ready, while a waiting command is retried. Only its shard, and that of the destination, is
    /// held then.
    pub only_key: Option<&'a [u8]>,
    /// Whether the client may read a key that a body has found itself, by labels; `None`: any.
    pub may_read: Option<MayRead>,
    shards: ShardSet<'a>,
    first: Option<Key<'a>>,
}

impl<'a> Ctx<'a> {
    /// A context over `shards`. `first` is a key whose hash is known already.
    #[inline]
    pub fn new(
        shards: ShardSet<'a>,
        env: &'a Env,
        db: usize,
        dbs_len: usize,
        now_ms: u64,
        first: Option<Key<'a>>,
    ) -> Ctx<'a> {
        Ctx {
            db,
            dbs_len,
            now_ms,
            env,
            may_wait: true,
            may_slice: false,
            may_repeat: true,
            rest: None,
            staged: None,
            wait: None,
            only_key: None,
            may_read: None,
            shards,
            first,
        }
    }

    /// `name` with its hash.
    #[inline]
    pub fn key<'k>(&self, name: &'k [u8]) -> Key<'k> {
        match self.first {
            Some(first)
                if std::ptr::eq(first.bytes.as_ptr(), name.as_ptr()) && first.bytes.len() == name.len() =>
            {
                Key { bytes: name, hash: first.hash }
            }
            _ => self.shards.router().key(name),
        }
    }

    /// The place of `name`, for a command that writes.
    #[inline]
    pub fn at<'k>(&'k mut self, name: &'k [u8]) -> Keyed<'k> {
        let db = self.db;
        self.at_db(db, name)
    }

    /// The place of `name` in another database.
    #[inline]
    pub fn at_db<'k>(&'k mut self, db: usize, name: &'k [u8]) -> Keyed<'k> {
        let key = self.key(name);
        let now_ms = self.now_ms;
        Keyed::find(&mut self.shards.part_mut(key).shard, db, key, now_ms)
    }

    /// The place of `name`, for a command that reads: counts a hit or a miss.
    #[inline]
    pub fn read<'k>(&'k mut self, name: &'k [u8]) -> Keyed<'k> {
        let key = self.key(name);
        let (db, now_ms) = (self.db, self.now_ms);
        Keyed::read(&mut self.shards.part_mut(key).shard, db, key, now_ms)
    }

    /// The place of `name`, for a command that asks about it: counts a hit or a miss, but no use.
    pub fn untouched<'k>(&'k mut self, name: &'k [u8]) -> Keyed<'k> {
        let key = self.key(name);
        let (db, now_ms) = (self.db, self.now_ms);
        let mut place = Keyed::untouched(&mut self.shards.part_mut(key).shard, db, key, now_ms);
        // A key whose members have all expired counts as missing.
        place.expire_members(PACKS_AT_ONCE);
        place
    }

    /// Removes expired members of the collection at `name`, and the key with the last of them, for a command that
    /// takes values of any type. Cost: one comparison while no collection of the shard has members that expire.
    pub fn remove_lazily(&mut self, name: &[u8]) {
        let key = self.key(name);
        if self.shards.part_mut(key).shard.has_timed() {
            self.at(name).expire_members(PACKS_AT_ONCE);
        }
    }

    /// Moves the value at `from` to `to`, both `(database, key)`, replacing any value there. Returns whether `from`
    /// existed. The caller reports the events.
    ///
    /// Errors: no room; nothing changed. Cost: O(value) when the keys are in different shards.
    pub fn rename(&mut self, from: (usize, &[u8]), to: (usize, &[u8])) -> Result<bool, ShardFull> {
        if self.are_together(from.1, to.1) {
            let (source, target) = (self.key(from.1), self.key(to.1));
            let now_ms = self.now_ms;
            let shard = &mut self.shards.part_mut(source).shard;
            return shard.rename((from.0, source), (to.0, target), now_ms);
        }
        let Some(value) = self.at_db(from.0, from.1).copy() else { return Ok(false) };
        self.at_db(to.0, to.1).put_copy(&value)?;
        self.at_db(from.0, from.1).remove();
        Ok(true)
    }

    /// Returns true if the client may read `name`, which the body has found itself.
    pub fn may_read(&self, name: &[u8]) -> bool {
        self.may_read.as_ref().is_none_or(|may_read| may_read(name))
    }

    /// Returns true if two keys are in the same shard.
    pub fn are_together(&self, a: &[u8], b: &[u8]) -> bool {
        let router = self.shards.router();
        router.shard_of(self.key(a).hash) == router.shard_of(self.key(b).hash)
    }

    /// The string at `name`, for a command that reads nothing else.
    ///
    /// Errors: the value has another type.
    #[inline]
    pub fn read_text(&mut self, name: &[u8]) -> Result<Option<Text<'_>>, WrongType> {
        let key = self.key(name);
        let (db, now_ms) = (self.db, self.now_ms);
        self.shards.part_mut(key).shard.read_text(db, key, now_ms)
    }

    /// [`Ctx::read_text`] of the key at index 1 of `args`, the command's only one.
    #[inline]
    pub fn read_first_text<'k>(&'k mut self, args: Args<'k>) -> Result<Option<Text<'k>>, WrongType> {
        let key = self.first_key(args);
        let (db, now_ms) = (self.db, self.now_ms);
        self.shards.part_mut(key).shard.read_text(db, key, now_ms)
    }

    /// [`Ctx::set_text`] of the key at index 1 of `args`, the command's only one.
    #[inline]
    pub fn set_first_text(&mut self, args: Args<'_>, value: &[u8], event: Event) -> Result<(), ShardFull> {
        let key = self.first_key(args);
        let (db, now_ms) = (self.db, self.now_ms);
        self.shards.part_mut(key).shard.set_text(db, key, value, now_ms, event)
    }

    /// Passes the string at `name` to `change`, which may change it in place, if possible: see
    /// [`Shard::change_plain`].
    #[inline(always)]
    pub fn change_plain(
        &mut self,
        name: &[u8],
        event: Event,
        change: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let (key, db) = (self.key(name), self.db);
        self.shards.part_mut(key).shard.change_plain(db, key, event, change)
    }

    /// Changes the collection at `name` by `change`, which must not leave it empty. `make` creates a missing one.
    /// Reports the event that `event` derives from the result.
    ///
    /// Errors: those of `change`; the value has another type; no room.
    #[inline(always)]
    pub fn add_to<T: Collection, R>(
        &mut self,
        name: &[u8],
        make: impl FnOnce() -> T,
        change: impl Fn(&mut T, &mut Arena, KeyHasher) -> Result<R, Fault>,
        event: impl Fn(&R) -> Option<Event>,
    ) -> Result<R, Fault> {
        let Some(result) = self.add_plainly(name, &change) else {
            return self.add_slowly(name, make, change, event);
        };
        let done = result?;
        if let Some(event) = event(&done) {
            self.changed(name, event);
        }
        Ok(done)
    }

    #[inline(never)]
    fn add_slowly<T: Collection, R>(
        &mut self,
        name: &[u8],
        make: impl FnOnce() -> T,
        change: impl Fn(&mut T, &mut Arena, KeyHasher) -> Result<R, Fault>,
        event: impl Fn(&R) -> Option<Event>,
    ) -> Result<R, Fault> {
        let mut place = self.at(name);
        place.expire_members(PACKS_AT_ONCE);
        let done = place.edit_or_create(make, change)?.result?;
        if let Some(event) = event(&done) {
            place.changed(event);
        }
        Ok(done)
    }

    /// Passes the collection at `name` to `change`, which must not leave it empty: see [`Shard::add_plainly`].
    #[inline(always)]
    pub fn add_plainly<T: Collection, R>(
        &mut self,
        name: &[u8],
        change: impl FnOnce(&mut T, &mut Arena, KeyHasher) -> R,
    ) -> Option<R> {
        let (key, db, now_ms) = (self.key(name), self.db, self.now_ms);
        self.shards.part_mut(key).shard.add_plainly(db, key, now_ms, change)
    }

    /// Reports that `event` happened to `name`.
    #[inline]
    pub fn changed(&mut self, name: &[u8], event: Event) {
        let (key, db) = (self.key(name), self.db);
        self.shards.part_mut(key).shard.changes.push(db, name, event);
    }

    /// Returns the readers of the journal of `name`'s shard. A body asks before it makes words for [`Ctx::journal_as`].
    pub fn journal_readers(&self, name: &[u8]) -> JournalReaders {
        self.shards.part(self.key(name)).shard.changes.journal_readers()
    }

    /// Has the journal write these words in the place of the command, which has changed `name`: run again at any time,
    /// they leave what it left.
    pub fn journal_as<'w>(
        &mut self,
        name: &[u8],
        vocabulary: Vocabulary,
        words: impl IntoIterator<Item = &'w [u8]>,
    ) {
        let what = Noted::Said(words.into_iter().collect(), vocabulary);
        self.journal(name, what);
    }

    /// Has the journal write the removal of `name` in the place of the command.
    pub fn journal_removal(&mut self, name: &[u8]) {
        self.journal(name, Noted::Removed);
    }

    fn journal(&mut self, name: &[u8], what: Noted) {
        let (key, db) = (self.key(name), self.db);
        self.shards.part_mut(key).shard.changes.say(db, name, what);
    }

    /// Reports `event` as [`Ctx::changed`] does, and returns the readers of the journal.
    #[inline]
    pub fn changed_for(&mut self, name: &[u8], event: Event) -> JournalReaders {
        let (key, db) = (self.key(name), self.db);
        let changes = &mut self.shards.part_mut(key).shard.changes;
        changes.push(db, name, event);
        changes.journal_readers()
    }

    /// The key at index 1 of `args`, the command's only one. Its hash is known already, except in a job that waited.
    #[inline]
    fn first_key<'k>(&self, args: Args<'k>) -> Key<'k>
    where
        'a: 'k,
    {
        match self.first {
            Some(first) => first,
            None => self.shards.router().key(args.at(1)),
        }
    }

    /// Sets a string without condition or deadline and reports `event`.
    ///
    /// Errors: no room; the old value stays.
    #[inline]
    pub fn set_text(&mut self, name: &[u8], value: &[u8], event: Event) -> Result<(), ShardFull> {
        let key = self.key(name);
        let (db, now_ms) = (self.db, self.now_ms);
        self.shards.part_mut(key).shard.set_text(db, key, value, now_ms, event)
    }

    /// Returns a key's record without changing or counting anything; several may be read together.
    pub fn peek(&self, name: &[u8]) -> Option<(&Shard, Record<'_>)> {
        let key = self.key(name);
        let shard = &self.shards.part(key).shard;
        shard.peek(self.db, key, self.now_ms).map(|record| (shard, record))
    }

    /// Returns true if a retried waiting command must skip this key, because another one became ready.
    pub fn skips(&self, name: &[u8]) -> bool {
        self.only_key.is_some_and(|only| only != name)
    }

    /// Ends a body that found nothing: it waits if that is allowed, else it replies immediately.
    pub fn wait_or_reply(&mut self, wait: BlockingWait, reply: &mut Reply<'_>) {
        if self.may_wait {
            self.wait = Some(Box::new(wait));
        } else {
            reply.null_array();
        }
    }

    /// Prefetches up to [`AHEAD`] of the keys that are read next: the lines of the index, then the records.
    pub fn look_ahead(&self, names: Args<'_>) {
        let mut keys = [0; AHEAD];
        for (name, hash) in names.iter().zip(&mut keys) {
            let key = self.key(name);
            *hash = key.hash;
            self.shards.part(key).shard.prefetch_line(self.db, key.hash);
        }
        for (bytes, &hash) in names.iter().zip(&keys) {
            self.shards.part(Key { bytes, hash }).shard.prefetch_record(self.db, hash);
        }
    }

    /// Returns true if the shard of `name` is held.
    pub fn covers(&self, name: &[u8]) -> bool {
        self.shards.covers(self.key(name))
    }

    /// All held parts with their shard numbers, ascending.
    pub fn each_part(&mut self, visit: impl FnMut(u16, &mut ShardPart)) {
        self.shards.each_mut(visit);
    }

    /// Part of shard `id`, if held.
    pub fn part(&mut self, id: u16) -> Option<&mut ShardPart> {
        self.shards.by_id(id)
    }

    /// Number of shards of the whole keyspace.
    pub fn shards_len(&self) -> u16 {
        self.shards.router().shards_len()
    }

    /// The shards, for the executor's own work around a body.
    pub fn shards_mut(&mut self) -> &mut ShardSet<'a> {
        &mut self.shards
    }
}

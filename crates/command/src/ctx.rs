//! What a command body may touch while it runs.

use darter_base::hash::KeyHasher;
use darter_store::keyed::WrongType;
use darter_store::rdb::Versions;
use darter_store::shard::Full;
use darter_store::{Arena, Collection, Event, Key, Keyed, Record, Shard, Text};
use darter_txn::{Part, ShardSet};
use darter_wire::{Args, OwnedArgs, Reply};

use crate::Fault;
use crate::gather::Kept;
use crate::hash::PACKS_AT_ONCE;
use crate::slices::Rest;

/// Limits and thresholds that commands read; a copy of the configuration.
#[derive(Clone, Copy, Debug)]
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
    /// There is a memory limit, under a policy that goes by uses.
    pub policy_counts_uses: bool,
    /// A cluster is emulated.
    pub is_cluster: bool,
    /// Data is imported from elsewhere: dead keys stay (`import-mode`).
    pub import_mode: bool,
    /// What RESTORE takes (`rdb-version-check`).
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
            import_mode: false,
            restored_versions: Versions::Known,
        }
    }
}

/// Keys, fields or members that are asked for ahead at once.
pub const AHEAD: usize = 32;

/// Whether word `at` of `len` begins [`AHEAD`] more that are worth asking for together. Cost: one comparison where there
/// are fewer.
#[inline(always)]
pub fn begins_batch(at: usize, len: usize) -> bool {
    len >= AHEAD && at.is_multiple_of(AHEAD) && len - at >= AHEAD
}

/// A command that found nothing and wants to wait for one of its keys; it is answered a null array when the time is up.
#[derive(Debug)]
pub struct Wait {
    /// Milliseconds to wait at most; `None` is for ever.
    pub timeout_ms: Option<u64>,
    /// Index of an argument that is a key to write to, not to wait for (BLMOVE's destination); 0 is none.
    pub dest: usize,
    /// When time alone will have something for it, Unix milliseconds.
    pub ripe_ms: Option<u64>,
    /// The arguments to wait with, where they must not mean later what they mean now (XREAD's `$`).
    pub args: Option<OwnedArgs>,
}

impl Wait {
    /// One that a change of a key ends; `dest` as above.
    pub fn for_a_key(timeout_ms: Option<u64>, dest: usize) -> Wait {
        Wait { timeout_ms, dest, ripe_ms: None, args: None }
    }
}

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
    /// False inside MULTI and scripts, where nothing may wait.
    pub may_wait: bool,
    /// Whether a long answer may be left to steps: its client can take it bit by bit.
    pub may_slice: bool,
    /// Whether the body may run once more, when what it has left to slices is there: not one that could wait then.
    pub may_repeat: bool,
    /// Set by a body that did so after it wrote the head of its answer.
    pub rest: Option<Rest>,
    /// What the body is to store: the result that it has left to slices, complete now.
    pub kept: Option<Kept>,
    /// Set by a body that wants to wait for its keys; what it wrote is taken back then.
    pub wait: Option<Box<Wait>>,
    /// The key that became ready, while a waiting command is looked at again: only its shard (and the
    /// destination's) is held then.
    pub only_key: Option<&'a [u8]>,
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
            kept: None,
            wait: None,
            only_key: None,
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
    pub fn glance<'k>(&'k mut self, name: &'k [u8]) -> Keyed<'k> {
        let key = self.key(name);
        let (db, now_ms) = (self.db, self.now_ms);
        let mut place = Keyed::glance(&mut self.shards.part_mut(key).shard, db, key, now_ms);
        // A key whose members are all dead is not there.
        place.expire_members(PACKS_AT_ONCE);
        place
    }

    /// Has members of the collection at `name` go whose time is up, and the key with the last of them: for a command that
    /// takes values of any type. Cost: a comparison while no collection of the shard has members that expire.
    pub fn bury(&mut self, name: &[u8]) {
        let key = self.key(name);
        if self.shards.part_mut(key).shard.has_timed() {
            self.at(name).expire_members(PACKS_AT_ONCE);
        }
    }

    /// Moves what is at `from` to `to`, both `(database, key)`, over whatever is there; returns whether
    /// there was something. The caller reports the events.
    ///
    /// Errors: no room; nothing changed. Cost: O(value) when the keys are in different shards.
    pub fn rename(&mut self, from: (usize, &[u8]), to: (usize, &[u8])) -> Result<bool, Full> {
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

    /// Whether two keys are in the same shard.
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
    pub fn set_first_text(&mut self, args: Args<'_>, value: &[u8], event: Event) -> Result<(), Full> {
        let key = self.first_key(args);
        let (db, now_ms) = (self.db, self.now_ms);
        self.shards.part_mut(key).shard.set_text(db, key, value, now_ms, event)
    }

    /// Gives `change` the string at `name` to be changed in place, where that can be: see [`Shard::change_plain`].
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

    /// Changes the collection at `name`, which `make` makes where there is none, by `change`, which does not leave it
    /// empty; reports the event that `event` finds in what came of it.
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

    /// Gives `change`, which does not leave it empty, the collection at `name`: see [`Shard::add_plainly`].
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

    /// The key at index 1 of `args`, the command's only one: hashed already, but for a job that waited.
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
    pub fn set_text(&mut self, name: &[u8], value: &[u8], event: Event) -> Result<(), Full> {
        let key = self.key(name);
        let (db, now_ms) = (self.db, self.now_ms);
        self.shards.part_mut(key).shard.set_text(db, key, value, now_ms, event)
    }

    /// Looks at a key without changing or counting anything; several may be looked at together.
    pub fn peek(&self, name: &[u8]) -> Option<(&Shard, Record<'_>)> {
        let key = self.key(name);
        let shard = &self.shards.part(key).shard;
        shard.peek(self.db, key, self.now_ms).map(|record| (shard, record))
    }

    /// Whether a waiting command, looked at again, must pass over this key: another one became ready.
    pub fn skips(&self, name: &[u8]) -> bool {
        self.only_key.is_some_and(|only| only != name)
    }

    /// Ends a body that found nothing: it waits where that is allowed, else it is answered at once.
    pub fn wait_or_reply(&mut self, wait: Wait, reply: &mut Reply<'_>) {
        if self.may_wait {
            self.wait = Some(Box::new(wait));
        } else {
            reply.null_array();
        }
    }

    /// Asks for the memory of keys that are looked at next, up to [`AHEAD`] of them: the lines of the index, then records.
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

    /// Whether the shard of `name` is held.
    pub fn covers(&self, name: &[u8]) -> bool {
        self.shards.covers(self.key(name))
    }

    /// All held parts with their shard numbers, ascending.
    pub fn each_part(&mut self, visit: impl FnMut(u16, &mut Part)) {
        self.shards.each_mut(visit);
    }

    /// Part of shard `id`, if held.
    pub fn part(&mut self, id: u16) -> Option<&mut Part> {
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

//! From a command to its shards: taken at once where they are free, else the command waits in an inbox as a job.

use darter_latch::Grant;
use darter_reactor::Token;
use darter_store::{Key, Shard};
use darter_txn::{LockSet, ShardSet};
use darter_wire::memcache::{
    MemcacheCommand, MemcacheDecoder, MemcacheError, MemcacheLimits, MemcacheStep as Decoded, Store,
};
use smallvec::SmallVec;

use super::connection::args_of;
use super::detail::{Detail, DetailOperation};
use super::life::Life;
use super::store::{StoreMode, StoreWanted};
use super::{DB, MemcachedCounts, count, flush, meta, read, store};
use crate::engine::cluster::{moving, route};
use crate::engine::origin::{ChangedBy, Origin};
use crate::engine::{commit, lease, plan};
use crate::exec::{self, CommandCall, Ran, Sees};
use crate::job::{Job, JobBody, Shards};
use crate::thread_state::ThreadState;

/// Keys of a `get` whose memory is asked for ahead of time together.
const KEYS_AHEAD: usize = 32;
/// With fewer keys that is not worth it.
const KEYS_AHEAD_MIN: usize = 4;

/// What a command is run with besides its key.
pub(super) struct ExecutionContext {
    /// The time of the command, Unix milliseconds.
    pub now_ms: u64,
    /// The counters of the thread that runs it.
    pub counts: &'static MemcachedCounts,
    /// Largest items.
    pub limits: MemcacheLimits,
    /// Where commands are noted by prefix, if they are.
    pub detail: Option<&'static Detail>,
}

impl ExecutionContext {
    #[inline]
    pub fn new(local: &ThreadState) -> ExecutionContext {
        ExecutionContext {
            now_ms: local.now_ms,
            counts: &local.stats().memcached,
            limits: MemcacheLimits {
                item_bytes_max: local.live.memcached_item_size_max,
                ..MemcacheLimits::default()
            },
            detail: local.shared.memcached_detail.is_on().then_some(&local.shared.memcached_detail),
        }
    }

    /// The time in seconds.
    #[inline]
    pub fn now_s(&self) -> u32 {
        (self.now_ms / 1000) as u32
    }

    /// Notes what a classic command did with a key, while a client wants to know.
    #[inline]
    pub fn note(&self, key: Key<'_>, deed: DetailOperation) {
        if let Some(detail) = self.detail {
            detail.note(key.bytes, deed);
        }
    }

    /// Answers an error.
    pub fn error(&self, error: MemcacheError, out: &mut Vec<u8>) {
        write_error(error, out);
    }
}

/// Answers an error.
pub(super) fn write_error(error: MemcacheError, out: &mut Vec<u8>) {
    out.extend_from_slice(error.text().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The one key of a command, if it has exactly one.
pub(super) fn key_of<'c>(command: &'c MemcacheCommand<'_>) -> Option<&'c [u8]> {
    match command {
        MemcacheCommand::Store { key, .. }
        | MemcacheCommand::Delete { key, .. }
        | MemcacheCommand::Count { key, .. }
        | MemcacheCommand::Touch { key, .. } => Some(key),
        MemcacheCommand::Meta(meta) => Some(&meta.key),
        MemcacheCommand::MetaDebug { key, .. } => Some(key),
        _ => None,
    }
}

/// Runs a command with keys. `raw` are its bytes, `hash` that of its key if it has one.
pub(super) fn run(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    raw: &[u8],
    command: &MemcacheCommand<'_>,
    hash: Option<u64>,
) -> Ran {
    if let MemcacheCommand::Get { keys, cas, touch } = command {
        if local.shows_dead_apart {
            return post_get(local, call, keys.clone(), *cas, *touch);
        }
        return get(local, call, keys.clone(), *cas, *touch);
    }
    let Some(bytes) = key_of(command) else { return Ran::Done };
    let hash = hash.unwrap_or_else(|| local.shared.router.hasher().hash_key(bytes));
    let key = Key { bytes, hash };
    let id = local.shared.router.shard_of(hash);
    if local.shows_dead_apart {
        // What a command sees of dead keys is asked of its row where a job runs.
        return post(local, call, raw.into(), LockSet::one(id));
    }
    let context = ExecutionContext::new(local);
    let done = on_shard(local, call.session.id, key, |shard| apply(&context, shard, key, command, call.out));
    if done { Ran::Done } else { post(local, call, raw.into(), LockSet::one(id)) }
}

/// Takes a shard, works on it, tells what changed and lets it go; false when it is busy.
#[inline]
pub(super) fn on_shard(
    local: &mut ThreadState,
    client: u64,
    key: Key<'_>,
    work: impl FnOnce(&mut Shard),
) -> bool {
    let id = local.shared.router.shard_of(key.hash);
    let Some(mut held) = lease::take_one(&local.shared.cells[usize::from(id)]) else { return false };
    work(&mut held.shard);
    if held.shard.changes.has_pending() || held.shard.is_over_quota() {
        let mut grant = Shards::from(held);
        commit::values(local, &mut grant, ChangedBy(client), DB, std::iter::once(key.bytes));
        lease::release(local, grant);
    } else {
        lease::release_one(local, held);
    }
    true
}

/// `get` and its kin: key after key, each with its shard. From the first busy shard on the rest is a job.
fn get<'k>(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    mut keys: impl Iterator<Item = &'k [u8]> + Clone,
    with_cas: bool,
    touch: Option<i64>,
) -> Ran {
    let context = ExecutionContext::new(local);
    let life = touch.map(|seconds| Life::of(seconds, context.now_ms));
    let shared = local.shared;
    let router = &shared.router;
    loop {
        let mut left = keys.clone();
        let ahead: SmallVec<[Key<'_>; KEYS_AHEAD]> =
            keys.by_ref().take(KEYS_AHEAD).map(|bytes| router.key(bytes)).collect();
        if ahead.is_empty() {
            break;
        }
        if ahead.len() >= KEYS_AHEAD_MIN {
            let shared = local.shared;
            exec::prefetch(local, DB, false, ahead.iter().map(|key| exec::cell_of(shared, key.hash)));
        }
        for key in ahead {
            let out = &mut *call.out;
            let done = on_shard(local, call.session.id, key, |shard| {
                read::get(&context, shard, key, with_cas, life, out);
            });
            if !done {
                return post_get(local, call, left, with_cas, touch);
            }
            left.next();
        }
    }
    call.out.extend_from_slice(b"END\r\n");
    Ran::Done
}

/// Leaves the keys that a `get` has not answered yet to a job.
#[cold]
fn post_get<'k>(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
    with_cas: bool,
    touch: Option<i64>,
) -> Ran {
    let mut line = match (touch, with_cas) {
        (None, false) => b"get".to_vec(),
        (None, true) => b"gets".to_vec(),
        (Some(seconds), false) => format!("gat {seconds}").into_bytes(),
        (Some(seconds), true) => format!("gats {seconds}").into_bytes(),
    };
    let shared = local.shared;
    let (router, mut wanted) = (&shared.router, LockSet::new());
    for key in keys {
        line.push(b' ');
        line.extend_from_slice(key);
        wanted.add(router.shard_of(router.key(key).hash));
    }
    wanted.seal();
    line.extend_from_slice(b"\r\n");
    post(local, call, line.into(), wanted)
}

/// Runs a command on its key, with the shard held.
fn apply(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    command: &MemcacheCommand<'_>,
    out: &mut Vec<u8>,
) {
    let mark = out.len();
    let is_quiet = match *command {
        MemcacheCommand::Store { store, flags, exptime, value, noreply, .. } => {
            let (way, cas) = match store {
                Store::Set => (StoreMode::Set, 0),
                Store::Add => (StoreMode::Add, 0),
                Store::Replace => (StoreMode::Replace, 0),
                Store::Append => (StoreMode::Append, 0),
                Store::Prepend => (StoreMode::Prepend, 0),
                Store::Cas(cas) => (StoreMode::Cas, cas),
            };
            let life = Life::of(exptime, context.now_ms);
            let wanted = StoreWanted { cas, ..StoreWanted::of(way, value, flags, life) };
            context.note(key, DetailOperation::Set);
            store::classic(context, shard, key, &wanted, out);
            noreply
        }
        MemcacheCommand::Delete { noreply, .. } => {
            context.note(key, DetailOperation::Delete);
            read::delete(context, shard, key, out);
            noreply
        }
        MemcacheCommand::Count { delta, decrement, noreply, .. } => {
            count::classic(context, shard, key, count::CountStep { delta, decrement }, out);
            noreply
        }
        MemcacheCommand::Touch { exptime, noreply, .. } => {
            read::touch(context, shard, key, Life::of(exptime, context.now_ms), out);
            noreply
        }
        MemcacheCommand::Meta(ref meta) => {
            meta::run(context, shard, key, meta, out);
            false
        }
        MemcacheCommand::MetaDebug { base64, .. } => {
            read::debug(context, shard, key, base64, out);
            false
        }
        _ => false,
    };
    if is_quiet {
        out.truncate(mark);
    }
}

/// Leaves a command in the inbox of the shards it needs.
#[cold]
fn post(local: &mut ThreadState, call: CommandCall<'_>, raw: Box<[u8]>, wanted: LockSet) -> Ran {
    local.stats().contended.add(1);
    queue(local, origin(local, call.session.id, call.token), raw, wanted, Grant::empty());
    Ran::Stalled
}

/// Leaves a command in the inbox of a shard it lacks, with those it has.
pub(super) fn queue(local: &ThreadState, origin: Origin, raw: Box<[u8]>, wanted: LockSet, grant: Shards) {
    Job::new(origin, JobBody::Memcached(raw), wanted, grant).enqueue(local);
}

/// Whose a command of memcached is.
pub(super) fn origin(local: &ThreadState, client: u64, token: Token) -> Origin {
    Origin { token, client, db: DB, ..Origin::nobody(local.thread) }
}

/// Runs a command that waited for its shards, wherever this thread is, and passes on what changed.
pub fn run_job(local: &mut ThreadState, grant: &mut Shards, origin: Origin, raw: &[u8], out: &mut Vec<u8>) {
    // It was within the limits when it came.
    let limits = MemcacheLimits {
        item_bytes_max: u32::MAX,
        line_bytes_max: usize::MAX,
        get_line_bytes_max: usize::MAX,
    };
    let Decoded::Command { command, .. } = MemcacheDecoder::new().next(raw, &limits) else { return };
    if let MemcacheCommand::FlushAll { noreply, .. } = command {
        return flush::granted(local, grant, origin, noreply, out);
    }
    if local.shared.cluster.is_on() {
        let entry = local.shared.verbs.of(&command);
        let args = args_of(entry, &command);
        let mut line = route::refusal_after_wait(local, origin.link, entry, args.args());
        if line.is_none() {
            line = moving::refusal(local, grant, origin.routed(), entry, args.args());
        }
        if let Some(line) = line {
            // The map has changed while the command waited for its shards.
            return out.extend_from_slice(&[b"SERVER_ERROR ", &*line, b"\r\n"].concat());
        }
    }
    let sees = Sees::of(local, local.shared.verbs.of(&command), false);
    sees.begin(grant.iter_mut().map(|held| &mut held.shard));
    apply_all(local, plan::set_of(&local.shared.router, grant), &command, out);
    sees.end(local, grant.iter_mut().map(|held| &mut held.shard));
    match &command {
        MemcacheCommand::Get { keys, .. } => {
            commit::values(local, grant, origin.changed_by(), DB, keys.clone())
        }
        command => commit::values(local, grant, origin.changed_by(), DB, key_of(command).into_iter()),
    }
}

/// Runs a command on its keys, whose shards are all held.
fn apply_all(local: &ThreadState, mut set: ShardSet<'_>, command: &MemcacheCommand<'_>, out: &mut Vec<u8>) {
    let context = ExecutionContext::new(local);
    let router = &local.shared.router;
    match command {
        MemcacheCommand::Get { keys, cas, touch } => {
            let life = touch.map(|seconds| Life::of(seconds, context.now_ms));
            for bytes in keys.clone() {
                let key = router.key(bytes);
                read::get(&context, &mut set.part_mut(key).shard, key, *cas, life, out);
            }
            out.extend_from_slice(b"END\r\n");
        }
        command => {
            if let Some(bytes) = key_of(command) {
                let key = router.key(bytes);
                apply(&context, &mut set.part_mut(key).shard, key, command, out);
            }
        }
    }
}

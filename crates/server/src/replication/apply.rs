//! What a master sends, run here: a batch of commands with their shards held, transactions whole.
//!
//! The clock stands still at zero while a batch runs: nothing expires by itself on a replica. Commands of streams note
//! times and get the clock of this machine.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;

use darter_command::Fault;
use darter_command::spec::Inlined;
use darter_command::string::kernel;
use darter_latch::Grant;
use darter_persist::entry::{self, Entries};
use darter_replica::form::Former;
use darter_replica::merge::Merger;
use darter_store::change::{Class, Loss};
use darter_store::{Event, Key, Keyed};
use darter_txn::{LockSet, ShardSet};
use darter_wire::Args;

use super::ReplicationState;
use super::batch::{Act, ApplyBatch, ApplyStep, marks_of};
use super::crew;
use super::link::LinkCard;
use super::split::selected;
use crate::engine::apply::{Applied, Journalled, NotApplied};
use crate::engine::commit;
use crate::engine::origin::{ChangedBy, Origin};
use crate::exec;
use crate::job::{Job, JobBody, Shards};
use crate::journal::note;
use crate::pubsub;
use crate::registry::CommandEntry;
use crate::shared::Shared;
use crate::snapshot;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use crate::tracking;

/// What happened to a key that a RESTORE has made.
const RESTORED: Event = Event::new(Class::GENERIC, "restore");
/// A backlog is trimmed when it is longer than it may be by this.
const TRIM_BYTES: u64 = 1 << 20;
/// Steps whose keys are asked for together.
const AHEAD: usize = 32;

/// What became of a batch.
pub enum ApplyOutcome {
    /// It was run.
    Ran,
    /// The link was ended before, and nothing was run.
    Stopped,
    /// Nothing may be applied now.
    Later,
}

/// Runs a batch with its shards held.
///
/// Errors: a command is unknown here; what came before it was run.
pub fn apply(
    local: &mut ThreadState,
    grant: &mut Shards,
    info: &LinkCard,
    batch: &Arc<ApplyBatch>,
) -> Result<ApplyOutcome, String> {
    let replication = &local.shared.replication;
    let _applying = lock(&replication.applying);
    if info.is_stopped() {
        return Ok(ApplyOutcome::Stopped);
    }
    if replication.is_held() || local.shared.snapshots.loading.is_on() {
        return Ok(ApplyOutcome::Later);
    }
    let ran = run(local, grant, batch);
    let mut state = replication.state();
    if ran.is_ok() {
        append(&mut state, batch);
    } else {
        // Some of it may have run: what is here is no state that the master had.
        state.is_continuous = false;
    }
    // Who follows is to get it, and what is too old is to go; else the next look is soon enough.
    let backlog_bytes = local.live.replication.backlog_bytes;
    let kept_bytes = state.backlog.len().max(state.records.bytes());
    let is_due = !state.replicas.is_empty() || kept_bytes > backlog_bytes + TRIM_BYTES;
    drop(state);
    if is_due {
        local.shared.journal.intake.poke();
    }
    ran.map(|()| ApplyOutcome::Ran)
}

/// Has what was run follow in the stream of this server.
fn append(state: &mut ReplicationState, batch: &ApplyBatch) {
    let Some(last) = batch.records.last() else { return state.backlog.append(batch.stream()) };
    let mut bytes = Vec::new();
    if state.wants_resp() {
        let mut merger = Merger::new(1, state.records.next());
        batch.records.iter().for_each(|chunk| merger.push(0, chunk.bytes.clone()));
        let mut former = Former::default();
        // What was cut into a batch is whole.
        let _ = merger.drain(|head, body| drop(former.write(body, head.clock_ms, &mut bytes)));
    }
    match bytes.len() == batch.len {
        true => state.backlog.append(&bytes),
        // Made of the records when somebody wants it.
        false => state.backlog.skip(batch.len as u64),
    }
    let end = state.offset();
    batch.records.iter().for_each(|chunk| state.records.push(0, chunk.clone()));
    state.records.settle(last.last + 1, end);
}

/// Calls `act` with all shards held, on whichever thread that is; `None` when the server ends before.
pub fn with_all_shards<T: Send + 'static>(
    shared: &'static Shared,
    act: impl FnOnce(&mut ThreadState, &mut Shards) -> T + Send + 'static,
) -> Option<T> {
    let (tell, hear) = sync_channel(1);
    let call = move |local: &mut ThreadState, grant: &mut Shards| {
        let _ = tell.send(act(local, grant));
    };
    let (body, wanted) = (JobBody::Call(Some(Box::new(call))), LockSet::all(shared.router.shards_len()));
    Job::new(Origin::nobody(0), body, wanted, Grant::empty()).enqueue_from_outside(shared);
    hear.recv().ok()
}

/// Runs the commands of a batch and tells everybody who listens what has changed. In a journal they are one record,
/// with the place in the stream that they lead to.
fn run(local: &mut ThreadState, grant: &mut Shards, batch: &Arc<ApplyBatch>) -> Result<(), String> {
    let (mut db, offset) = {
        let state = local.shared.replication.state();
        (state.db, state.offset())
    };
    let is_noted = local.shared.journal.is_on();
    if is_noted {
        local.journal.begin_group();
    }
    let ran = match &batch.split {
        Some(_) => crew::run(local, grant, batch, &mut db),
        None => run_steps(local, grant, batch, &mut db, |at| batch.steps.get(at)),
    };
    commit::growth(local, grant, ChangedBy::SERVER);
    let replication = &local.shared.replication;
    if is_noted {
        let id = match ran {
            Ok(()) => replication.state().history.id,
            // What has run is no state of the master's.
            Err(_) => darter_replica::history::ReplId::NONE,
        };
        replication.note_position(local, id, offset + batch.len as u64, db);
        local.journal.end_group(&local.shared.journal, 0);
    }
    replication.state().db = db;
    ran
}

/// Runs steps of a batch: those that `nth` returns, up to the first `None`. `grant` has the shards of all of them.
///
/// Errors: one cannot be run; what came before it was run.
pub fn run_steps<'b>(
    local: &mut ThreadState,
    grant: &mut Shards,
    batch: &'b ApplyBatch,
    db: &mut usize,
    nth: impl Fn(usize) -> Option<&'b ApplyStep>,
) -> Result<(), String> {
    let now_ms = local.now_ms;
    let (mut reply, mut flushed, mut marks) = (Vec::new(), false, None);
    let (mut ran, mut at) = (Ok(()), 0);
    while let Some(step) = nth(at) {
        if at.is_multiple_of(AHEAD) {
            prefetch(local, grant, (at..at + AHEAD).map_while(&nth), *db);
        }
        at += 1;
        let args = batch.args(step);
        match &step.act {
            Act::Pass => {}
            Act::Select => match selected(args.at(1), local.dbs_len) {
                Some(wanted) => *db = wanted,
                None => {
                    ran = Err("the master uses a database that is not here (databases)".to_owned());
                    break;
                }
            },
            Act::Publish => drop(pubsub::publish(local.shared, args.at(1), args.at(2))),
            Act::PublishShard => pubsub::publish_shard(local.shared, args.at(1), args.at(2)),
            Act::Marks => marks = marks_of(args),
            Act::Refuse(why) => {
                ran = Err(why.clone());
                break;
            }
            Act::Run { entry, hash: Some(hash), .. } if entry.inlined == Inlined::Set && args.len() == 3 => {
                set_plainly(local, grant, (*db, *hash), entry, args);
            }
            Act::Lose(hash, loss) => lose(local, grant, Key { bytes: args.at(1), hash: *hash }, (*db, *loss)),
            Act::Run { entry, hash, notes_times } => {
                if let Some(marks) = marks.take()
                    && put_marked(local, grant, *db, marks, args)
                {
                    continue;
                }
                reply.clear();
                local.now_ms = match step.clock_ms {
                    _ if !*notes_times => 0,
                    0 => now_ms,
                    clock_ms => clock_ms,
                };
                ran = run_one(local, grant, (*db, *hash), entry, args, &mut reply);
                if ran.is_err() {
                    break;
                }
                if exec::flushes(entry) {
                    snapshot::note_run(local.shared, entry);
                    flushed = true;
                }
            }
        }
    }
    local.now_ms = now_ms;
    // A flush needs all shards, so no part of a divided batch has one.
    if flushed && local.shared.tracking.is_in_use() {
        tracking::invalidate_all(local, grant);
    }
    ran
}

/// Brings what the next steps will touch towards this core: index lines first, then the records they name.
fn prefetch<'b>(
    local: &ThreadState,
    grant: &mut Shards,
    steps: impl Iterator<Item = &'b ApplyStep> + Clone,
    db: usize,
) {
    let router = &local.shared.router;
    let hashes = || {
        steps.clone().filter_map(|step| match step.act {
            Act::Run { hash, .. } => hash,
            Act::Lose(hash, _) => Some(hash),
            _ => None,
        })
    };
    for hash in hashes() {
        if let Some(part) = grant.get_mut(router.shard_of(hash)) {
            part.shard.prefetch_line(db, hash);
        }
    }
    for hash in hashes() {
        if let Some(part) = grant.get_mut(router.shard_of(hash)) {
            part.shard.prefetch_record(db, hash);
        }
    }
}

/// Runs a SET without options.
fn set_plainly(
    local: &mut ThreadState,
    grant: &mut Shards,
    (db, hash): (usize, u64),
    entry: &'static CommandEntry,
    args: Args<'_>,
) {
    local.stats().commands[entry.id].calls.add(1);
    let router = &local.shared.router;
    let (id, key, value) = (router.shard_of(hash), Key { bytes: args.at(1), hash }, args.at(2));
    let Some(part) = grant.get_mut(id) else { return };
    // As the clock stands while a batch runs.
    let place = kernel::KernelPlace { db, now_ms: 0 };
    if let Err(fault) = kernel::set_unanswered(&mut part.shard, place, key, value) {
        return tell_failure(local, entry, &fault);
    }
    let shard = &mut part.shard;
    if !shard.changes.has_pending() || note::note_set(local, shard, db, key.bytes, value) {
        return;
    }
    if shard.changes.is_journalled() {
        let ran = note::Ran { entry, args, db, served: None, reply: b"+OK\r\n" };
        note::note(local, ShardSet::one(router, id, part), Some(ran));
    }
}

/// Removes a key that the master has removed by itself; listeners hear why.
fn lose(local: &mut ThreadState, grant: &mut Shards, key: Key<'_>, (db, loss): (usize, Loss)) {
    let router = &local.shared.router;
    let id = router.shard_of(key.hash);
    let Some(part) = grant.get_mut(id) else { return };
    let mut place = Keyed::find(&mut part.shard, db, key, 0);
    if !place.exists() {
        return;
    }
    place.remove();
    Keyed::find(&mut part.shard, db, key, 0).changed(loss.event());
    note::note(local, ShardSet::one(router, id, part), None);
}

fn run_one(
    local: &mut ThreadState,
    grant: &mut Shards,
    (db, hash): (usize, Option<u64>),
    entry: &'static CommandEntry,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let applied = Applied { entry, args, db, only_key: None, hash };
    let ended = match applied.run(local, grant, Journalled::Yes, out) {
        Ok(()) => Ok(()),
        Err(NotApplied::Refused(fault)) => Err(fault),
        Err(NotApplied::NoChange) => {
            return Err(format!("the master sent '{}', which is no change of data", entry.spec.name));
        }
    };
    local.stats().commands[entry.id].calls.add(1);
    if let Err(fault) = ended {
        tell_failure(local, entry, &fault);
    }
    Ok(())
}

/// Puts a value with what RESTORE has no words for: flags of memcached, deadlines of members. False: it is none.
fn put_marked(local: &mut ThreadState, grant: &mut Shards, db: usize, marks: &[u8], args: Args<'_>) -> bool {
    let (name, mut bytes) = (args.at(1), Vec::new());
    let deadline = std::str::from_utf8(args.at(2)).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(deadline_ms) = deadline else { return false };
    if entry::of_payload(marks, name, deadline_ms, args.at(3), &mut bytes).is_none() {
        return false;
    }
    let Some(Ok(value)) = Entries::new(&bytes).next() else { return false };
    let router = &local.shared.router;
    let key = router.key(name);
    let Some(part) = grant.get_mut(router.shard_of(key.hash)) else { return false };
    Keyed::find(&mut part.shard, db, key, 0).remove();
    if let Err(refused) = value.load(&mut part.shard, db, key.hash, 0) {
        tracing::error!("a value of the master cannot be made here: {}", refused.what());
    }
    Keyed::find(&mut part.shard, db, key, 0).changed(RESTORED);
    local.now_ms = 0;
    note::note_values(local, grant, db, std::iter::once(name));
    true
}

/// Says that a command of the master has failed here. The master has run it, so the two differ.
#[cold]
fn tell_failure(local: &ThreadState, entry: &CommandEntry, fault: &Fault) {
    local.stats().commands[entry.id].failed.add(1);
    let shown = FAILURES.fetch_add(1, Relaxed);
    if shown < FAILURES_SHOWN {
        tracing::error!("a command of the master fails here: {}: {}", entry.spec.name, fault.line());
    }
}

static FAILURES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// Failures that are logged one by one.
const FAILURES_SHOWN: u64 = 100;

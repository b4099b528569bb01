//! Migrations of a pushed cluster: what a source says to its target (`DARTER TAKE` and `FAIL`), and the answer to
//! `DFLYCLUSTER SLOT-MIGRATION-STATUS`.
//!
//! Called by the rows of `flows` and `dflycluster`. `darter_cluster::pushed_map` has the changes of the target's map.

use std::sync::Arc;

use darter_cluster::pushed_map::{OfferOutcome, outcome_at_target};
use darter_cluster::{MapChange, MigrationState, NodeRole, PushedChange, SlotMap, SlotMigration, SlotRange};
use darter_command::{Fault, reader};
use darter_latch::Grant;
use darter_txn::LockSet;
use darter_wire::{Args, Reply};

use super::cluster_changes::{slot, text};
use super::persistence::{asking, wait};
use crate::dispatch::Caller;
use crate::engine::cluster::map_store::Outcome;
use crate::engine::cluster::outgoing::{ExportStage, now_s, offers};
use crate::engine::origin::Origin;
use crate::job::{Job, JobBody, Shards};
use crate::shared::{Shared, ThreadMessage};
use crate::snapshot::ending::Asking;
use crate::thread_state::ThreadState;

/// Has the map changed, and answers the client that waits. Errors: nodes of this cluster share their map.
fn make(
    caller: &mut Caller<'_>,
    change: MapChange,
    answer: impl FnOnce(&Shared, &mut Reply<'_>, Outcome) + Send + 'static,
) -> Result<(), Fault> {
    let shared = caller.local.shared;
    let store = shared.cluster.store.as_ref().filter(|store| !store.is_shared());
    let store = store.ok_or(Fault::text("ERR this cluster is not configured by DFLYCLUSTER CONFIG"))?;
    if !caller.may_wait {
        return Err(Fault::text("ERR the command isn't allowed for DENY BLOCKING client"));
    }
    let to = asking(caller);
    let then = move |shared: &'static Shared, outcome| {
        let mut bytes = Vec::new();
        answer(shared, &mut Reply::new(&mut bytes, false), outcome);
        serve(shared, to, bytes);
    };
    store.change(vec![change], Box::new(then));
    wait(caller);
    Ok(())
}

fn serve(shared: &Shared, to: Asking, reply: Vec<u8>) {
    shared.handle(to.thread).send(ThreadMessage::Served { token: to.token, client: to.client, reply });
}

fn number(word: &[u8]) -> Result<u64, Fault> {
    u64::try_from(reader::int(word)?).map_err(|_| Fault::NotInteger)
}

/// `DARTER TAKE node-id migration attempt boot start-slot end-slot [...]`
pub fn take(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() % 2 == 1 {
        return Err(Fault::wrong_form(args));
    }
    let range = |at: usize| Ok(SlotRange { start: slot(args.at(at))?, end: slot(args.at(at + 1))? });
    let take = PushedChange::Take {
        source: text(args.at(2)),
        slots: (6..args.len()).step_by(2).map(range).collect::<Result<_, Fault>>()?,
        id: text(args.at(3)),
        attempt: number(args.at(4))?,
        runner: text(args.at(5)),
        now_s: now_s(),
    };
    make(caller, MapChange::Pushed(take), |_, reply, outcome| {
        match outcome.map(|answers| answers.into_iter().find_map(Result::err)) {
            Ok(None) => reply.ok(),
            Ok(Some(why)) => reply.error(format!("TRYAGAIN {why}")),
            Err(line) => reply.error(line),
        }
    })
}

/// `DARTER FAIL migration attempt slot state reason`
pub fn fail(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let (id, attempt, slot) = (text(args.at(2)), number(args.at(3))?, slot(args.at(4))?);
    let change = offers::failure((&id, attempt), args.at(5), &text(args.at(6)));
    make(caller, MapChange::Migration(change), move |shared, reply, outcome| {
        if let Err(line) = outcome {
            return reply.error(line);
        }
        match outcome_at_target(&shared.cluster.map(), &id, attempt, slot) {
            OfferOutcome::Taken => reply.status(offers::TAKEN),
            OfferOutcome::Refused => reply.status(offers::REFUSED),
            OfferOutcome::Open => reply.error("TRYAGAIN the migration is under way"),
        }
    })
}

/// `DFLYCLUSTER SLOT-MIGRATION-STATUS [node-id]`: the rows that Dragonfly answers, those of slots that arrive first.
pub fn status(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(Fault::wrong_form(args));
    }
    let map = caller.local.cluster.map.clone();
    let wanted = args.get(2).map(text);
    let is_shown = |one: &SlotMigration| wanted.as_deref().is_none_or(|id| id == other_end(&map, one));
    let mut shown: Vec<SlotMigration> =
        map.migrations().iter().filter(|one| is_shown(one)).cloned().collect();
    if !matches!(map.place(), NodeRole::Master(_)) {
        shown.clear();
    }
    if shown.is_empty() {
        reply.array(0);
        return Ok(());
    }
    if !caller.may_wait {
        return Err(Fault::text("ERR the command isn't allowed for DENY BLOCKING client"));
    }
    shown.sort_by_key(|one| one.source == map.me());
    let (shared, to) = (caller.local.shared, asking(caller));
    // Their keys are counted with all shards held.
    let call = move |_: &mut ThreadState, grant: &mut Shards| {
        let mut bytes = Vec::new();
        let reply = &mut Reply::new(&mut bytes, false);
        reply.array(shown.len());
        shown.iter().for_each(|one| write(shared, &map, one, keys(shared, grant, one), reply));
        serve(shared, to, bytes);
    };
    let body = JobBody::Call(Some(Box::new(call)));
    let all = LockSet::all(shared.router.shards_len());
    let origin = Origin::nobody(shared.home_of(0));
    Job::new(origin, body, all, Grant::empty()).enqueue_from_outside(shared);
    wait(caller);
    Ok(())
}

/// The id of the other node of a migration.
fn other_end<'a>(map: &SlotMap, one: &'a SlotMigration) -> &'a str {
    if one.source == map.me() { &one.target } else { &one.source }
}

/// Keys of the slots: when they changed hands, or now.
fn keys(shared: &Shared, grant: &mut Shards, one: &SlotMigration) -> u64 {
    if one.state == MigrationState::Done {
        return one.keys;
    }
    let mut keys = 0;
    for slot in one.slots.iter().flat_map(|range| range.start..=range.end) {
        let part = shared.router.shard_of_slot(slot).and_then(|shard| grant.get_mut(shard));
        let Some(part) = part else { continue };
        let dbs = 0..part.shard.dbs_len();
        keys += dbs.filter_map(|db| part.shard.slot_keys(db, slot)).sum::<usize>() as u64;
    }
    keys
}

fn write(shared: &Shared, map: &Arc<SlotMap>, one: &SlotMigration, keys: u64, reply: &mut Reply<'_>) {
    let gives = one.source == map.me();
    let stage = shared.cluster.outgoing.progress(&one.id).unwrap_or_default().stage;
    let state = match one.state {
        MigrationState::Done => "FINISHED",
        MigrationState::Failed | MigrationState::Cancelled => "FATAL",
        MigrationState::Retrying => "ERROR",
        MigrationState::Active if one.runner.is_empty() => "CONNECTING",
        MigrationState::Active if gives && stage == ExportStage::Connecting => "CONNECTING",
        MigrationState::Active => "SYNC",
    };
    let error = match one.state {
        // The one end for which there is no cure, in Dragonfly's words.
        MigrationState::Failed if gives => "Cannot allocate memory: INCOMING_MIGRATION_OOM",
        MigrationState::Failed => "INCOMING_MIGRATION_OOM",
        _ if one.why.is_empty() => "0",
        _ => &one.why,
    };
    let slots: Vec<String> =
        one.slots.iter().map(|range| format!("[{}, {}]", range.start, range.end)).collect();
    reply.array(6);
    reply.bulk(if gives { b"out" } else { b"in" });
    reply.bulk(other_end(map, one).as_bytes());
    reply.bulk(state.as_bytes());
    reply.int_len(keys as usize);
    reply.bulk(error.as_bytes());
    reply.bulk(slots.join(", ").as_bytes());
}

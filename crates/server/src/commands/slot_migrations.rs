//! CLUSTER MIGRATESLOTS, GETSLOTMIGRATIONS and CANCELSLOTMIGRATIONS as in Valkey 9, CLUSTER MIGRATION as in Redis 8.4: slots that
//! move as a whole.
//!
//! Each is a change of the map in the store, or reads it; `engine::cluster::outgoing` does the work. The two families show the
//! same migrations.

use std::sync::Arc;

use darter_cluster::change::MapAnswer;
use darter_cluster::{MapChange, MigrationChange, MigrationState, SlotMap, SlotMigration, SlotRange};
use darter_command::{Fault, Flags, reader};
use darter_wire::{Args, Reply};

use super::cluster::sub;
use super::cluster_changes::{must_be_stored, slot, text};
use super::persistence::{asking, wait};
use super::{ServerCommand, row};
use crate::clock::unix_ms;
use crate::dispatch::{Caller, ServerRun};
use crate::engine::cluster::map_store::Outcome;
use crate::engine::cluster::outgoing::{ExportProgress, ExportStage};
use crate::replication::new_id;
use crate::shared::{Shared, ThreadMessage};

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    migration("cluster|cancelslotmigrations", 2, "9.0.0", "", "Ends all migrations of slots.", cancel_all),
    migration("cluster|getslotmigrations", 2, "9.0.0", "", "Lists migrations of slots.", list),
    migration(
        "cluster|migrateslots",
        -7,
        "9.0.0",
        "SLOTSRANGE start-slot end-slot [start-slot end-slot ...] NODE node-id [SLOTSRANGE ...]",
        "Moves slots of this node to other masters.",
        migrate,
    ),
    migration(
        "cluster|migration",
        -4,
        "8.4.0",
        "IMPORT start-slot end-slot [start-slot end-slot ...] | STATUS <ID id | ALL> | CANCEL <ID id | ALL>",
        "Moves slots to this node, and shows or ends such moves.",
        run_migration,
    ),
];

const fn migration(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    run: ServerRun,
) -> ServerCommand {
    row(sub(name, arity, since, syntax, summary).flag(Flags::ADMIN.with(Flags::NOSCRIPT)), run)
}

/// Makes changes of the map and answers the client that waits. Errors: the map is not in a store.
fn make(
    caller: &mut Caller<'_>,
    changes: Vec<MigrationChange>,
    answer: impl FnOnce(&mut Reply<'_>, Outcome) + Send + 'static,
) -> Result<(), Fault> {
    must_be_stored(caller)?;
    if !caller.may_wait {
        return Err(Fault::text(
            "ERR in a transaction a change of the cluster goes with other changes alone",
        ));
    }
    let (to, resp3) = (asking(caller), caller.session.resp3);
    let store = caller.local.shared.cluster.store.as_ref().ok_or(Fault::Syntax)?;
    let changes = changes.into_iter().map(MapChange::Migration).collect();
    let then = move |shared: &'static Shared, outcome| {
        let mut bytes = Vec::new();
        answer(&mut Reply::new(&mut bytes, resp3), outcome);
        shared.handle(to.thread).send(ThreadMessage::Served {
            token: to.token,
            client: to.client,
            reply: bytes,
        });
    };
    store.change(changes, Box::new(then));
    wait(caller);
    Ok(())
}

/// The one answer of an outcome. Errors: the line.
fn single(outcome: Outcome) -> Result<MapAnswer, String> {
    let answer = outcome?.into_iter().next().unwrap_or(Ok(MapAnswer::Done));
    answer.map_err(|why| format!("ERR {why}"))
}

fn migrate(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let (mut plans, mut at) = (Vec::new(), 2);
    while at < args.len() {
        if !reader::is(args.at(at), "slotsrange") {
            return Err(Fault::Syntax);
        }
        let end = (at + 1..args.len()).find(|at| reader::is(args.at(*at), "node")).ok_or(Fault::Syntax)?;
        let slots = ranges(args, at + 1, end)?;
        let target = args.get(end + 1).map(text).ok_or(Fault::Syntax)?;
        let (retries, now_s) = (caller.local.live.cluster.migration_retries, unix_ms() / 1000);
        plans.push(MigrationChange::Export { id: id(), slots, target, retries, now_s });
        at = end + 2;
    }
    make(caller, vec![MigrationChange::Together(plans)], |reply, outcome| match single(outcome) {
        Ok(_) => reply.ok(),
        Err(line) => reply.error(line),
    })
}

fn id() -> String {
    new_id().as_str().to_owned()
}

/// The ranges in the words from `at` up to `end`.
fn ranges(args: Args<'_>, at: usize, end: usize) -> Result<Vec<SlotRange>, Fault> {
    if at == end || (end - at) % 2 == 1 {
        return Err(Fault::Syntax);
    }
    let range = |at: usize| {
        let (start, end) = (slot(args.at(at))?, slot(args.at(at + 1))?);
        let line = || format!("ERR start slot number {start} is greater than end slot number {end}");
        if start > end { Err(Fault::Text(line().into())) } else { Ok(SlotRange { start, end }) }
    };
    (at..end).step_by(2).map(range).collect()
}

fn run_migration(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_stored(caller)?;
    let named = (args.len() == 5 && reader::is(args.at(3), "id")).then(|| text(args.at(4)));
    let is_all = args.len() == 4 && reader::is(args.at(3), "all");
    match args.at(2) {
        word if reader::is(word, "import") => import(caller, args),
        word if reader::is(word, "status") && (named.is_some() || is_all) => {
            status(caller, named.as_deref(), reply);
            Ok(())
        }
        word if reader::is(word, "cancel") && (named.is_some() || is_all) => {
            let changes = cancels(&caller.local.cluster.map, named.as_deref());
            if changes.is_empty() {
                reply.int(0);
                return Ok(());
            }
            make(caller, changes, |reply, outcome| match outcome {
                Ok(answers) => reply.int_len(answers.iter().filter(|answer| answer.is_ok()).count()),
                Err(line) => reply.error(line),
            })
        }
        _ => Err(Fault::Syntax),
    }
}

fn import(caller: &mut Caller<'_>, args: Args<'_>) -> Result<(), Fault> {
    let (id, slots) = (id(), ranges(args, 3, args.len())?);
    let (retries, now_s) = (caller.local.live.cluster.migration_retries, unix_ms() / 1000);
    let plan = MigrationChange::Import { id: id.clone(), slots, retries, now_s };
    make(caller, vec![plan], move |reply, outcome| match single(outcome) {
        Ok(_) => reply.bulk(id.as_bytes()),
        Err(line) => reply.error(line),
    })
}

/// The changes that end the migrations of this node's group, or the one of them called `named`.
fn cancels(map: &SlotMap, named: Option<&str>) -> Vec<MigrationChange> {
    let is_it = |one: &&SlotMigration| !one.is_ended() && named.is_none_or(|id| id == one.id);
    let cancel = |one: &SlotMigration| MigrationChange::Fail {
        id: one.id.clone(),
        attempt: None,
        state: MigrationState::Cancelled,
        why: String::new(),
        now_s: unix_ms() / 1000,
    };
    map.migrations().iter().filter(is_it).map(cancel).collect()
}

fn cancel_all(caller: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_stored(caller)?;
    let changes = cancels(&caller.local.cluster.map, None);
    if changes.is_empty() {
        return Err(Fault::text("ERR No migrations ongoing"));
    }
    make(caller, changes, |reply, outcome| match outcome {
        Ok(_) => reply.ok(),
        Err(line) => reply.error(line),
    })
}

/// One migration as this node sees it.
struct ShownMigration<'a> {
    one: &'a SlotMigration,
    gives: bool,
    progress: ExportProgress,
}

fn shown<'a>(shared: &Shared, map: &'a Arc<SlotMap>) -> Vec<ShownMigration<'a>> {
    let own = map.own_group().map(|group| group.id.as_str());
    let show = |one: &'a SlotMigration| ShownMigration {
        one,
        gives: own == Some(&one.from),
        progress: shared.cluster.outgoing.progress(&one.id).unwrap_or_default(),
    };
    map.migrations().iter().map(show).collect()
}

impl ShownMigration<'_> {
    /// The state in the words of Valkey.
    fn state(&self) -> &'static str {
        match (self.one.state, self.gives, self.progress.stage) {
            (MigrationState::Retrying, _, _) => "connecting",
            (MigrationState::Active, false, _) => "receiving-snapshot",
            (MigrationState::Active, true, ExportStage::Connecting) => "connecting",
            (MigrationState::Active, true, ExportStage::Copying) => "snapshotting",
            (MigrationState::Active, true, ExportStage::CatchingUp) => "streaming",
            (MigrationState::Active, true, ExportStage::Holding) => "failover-paused",
            (MigrationState::Active, true, ExportStage::Committing) => "failover-granted",
            (ended, _, _) => ended.name(),
        }
    }

    /// The ranges of its slots with `between` two of them.
    fn slots(&self, between: &str) -> String {
        let ranges: Vec<String> =
            self.one.slots.iter().map(|range| format!("{}-{}", range.start, range.end)).collect();
        ranges.join(between)
    }

    fn changed_s(&self) -> u64 {
        let SlotMigration { planned_s, begun_s, ended_s, .. } = *self.one;
        planned_s.max(begun_s).max(ended_s).max(self.progress.heard_s)
    }
}

fn list(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_stored(caller)?;
    let map = caller.local.cluster.map.clone();
    let all = shown(caller.local.shared, &map);
    reply.array(all.len());
    // The latest first, as in Valkey.
    for one in all.iter().rev() {
        reply.map(12);
        let pair = |reply: &mut Reply<'_>, name: &str, value: &str| {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        };
        pair(reply, "name", &one.one.id);
        pair(reply, "operation", if one.gives { "EXPORT" } else { "IMPORT" });
        pair(reply, "slot_ranges", &one.slots(" "));
        pair(reply, "target_node", &one.one.target);
        pair(reply, "source_node", &one.one.source);
        for (name, seconds) in [
            ("create_time", one.one.planned_s),
            ("last_update_time", one.changed_s()),
            ("last_ack_time", one.progress.heard_s),
        ] {
            reply.bulk(name.as_bytes());
            reply.int_len(seconds as usize);
        }
        pair(reply, "state", one.state());
        pair(reply, "message", &one.one.why);
        for name in ["cow_size", "remaining_repl_size"] {
            reply.bulk(name.as_bytes());
            reply.int(0);
        }
    }
    Ok(())
}

fn status(caller: &Caller<'_>, named: Option<&str>, reply: &mut Reply<'_>) {
    let map = caller.local.cluster.map.clone();
    let mut all = shown(caller.local.shared, &map);
    all.retain(|one| named.is_none_or(|id| id == one.one.id));
    reply.array(all.len());
    for one in all.iter().rev() {
        let state = match one.one.state {
            MigrationState::Done => "completed",
            MigrationState::Cancelled => "canceled",
            _ => one.state(),
        };
        reply.map(12);
        for (name, value) in [
            ("id", one.one.id.as_str()),
            ("slots", &one.slots(",")),
            ("source", &one.one.source),
            ("dest", &one.one.target),
            ("operation", if one.gives { "migrate" } else { "import" }),
            ("state", state),
            ("last_error", &one.one.why),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
        let ms = |seconds: u64| (seconds * 1000) as usize;
        for (name, value) in [
            ("retries", one.one.attempt.saturating_sub(1) as usize),
            ("create_time", ms(one.one.planned_s)),
            ("start_time", ms(one.one.begun_s)),
            ("end_time", ms(one.one.ended_s)),
            ("write_pause_ms", one.one.pause_ms as usize),
        ] {
            reply.bulk(name.as_bytes());
            reply.int_len(value);
        }
    }
}

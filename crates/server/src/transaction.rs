//! MULTI, EXEC, DISCARD, WATCH, UNWATCH: commands that run as one.
//!
//! EXEC takes every shard its commands and watched keys need before the first of them runs.

use crate::engine::cluster::links::Routed;
use std::time::Instant;

use darter_command::spec::{Group, Keys};
use darter_command::{Flags, Marks, Spec};
use darter_store::change::Listeners;
use darter_txn::LockSet;
use darter_txn::watch::WatchFlag;
use darter_wire::{Args, Reply};

use crate::clients::ClientInfo;
use crate::command_log::large;
use crate::command_log::timing;
use crate::commands;
use crate::commands::cluster_changes;
use crate::dispatch::Caller;
use crate::engine::cluster::{moving, route};
use crate::engine::lease_timer::LeaseTimer;
use crate::engine::nested::{Nested, Within};
use crate::engine::origin::ChangedBy;
use crate::engine::{admit, commit, lease, plan};
use crate::exec::{self, CommandCall, Ran};
use crate::job::{JobBody, Shards};
use crate::registry::{RowId, RunKind};
use crate::script_run;
use crate::session::{Gate, Multi, QueuedCommand, Session};
use crate::stats::SampleWeight;
use crate::thread_state::ThreadState;

/// The body of a command that starts or ends a transaction.
pub type TxnRun = fn(&mut ThreadState, CommandCall<'_>, &ClientInfo, Args<'_>) -> Ran;

/// The body of a row of [`FAMILY`].
pub fn body(id: RowId) -> TxnRun {
    FAMILY[usize::from(id.row)].1
}

const BASE: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY);

/// Of the commands that MULTI runs instead of queueing them.
const ALONE: Marks = Marks::NOT_QUEUED.with(Marks::NOT_OVER_HTTP);

/// The family's commands.
pub const FAMILY: &[(Spec, TxnRun)] = &[
    (
        Spec::other("multi", 1).mark(ALONE).flag(BASE).fast().doc(
            Group::Transactions,
            "1.2.0",
            "",
            "Starts a transaction.",
        ),
        multi,
    ),
    (
        Spec::other("exec", 1)
            .mark(ALONE.with(Marks::RUNS_QUEUE))
            .flag(Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::SKIP_SLOWLOG))
            .doc(Group::Transactions, "1.2.0", "", "Executes all commands in a transaction."),
        exec,
    ),
    (
        Spec::other("discard", 1).mark(ALONE).flag(BASE).fast().doc(
            Group::Transactions,
            "2.0.0",
            "",
            "Discards a transaction.",
        ),
        discard,
    ),
    (
        Spec { keys: Keys::REST, ..Spec::other("watch", -2).key_access("RO") }
            .mark(ALONE)
            .flag(BASE)
            .fast()
            .doc(
                Group::Transactions,
                "2.2.0",
                "key [key ...]",
                "Monitors changes to keys to determine the execution of a transaction.",
            ),
        watch,
    ),
    (
        Spec::other("unwatch", 1).mark(Marks::NOT_OVER_HTTP).flag(BASE).fast().doc(
            Group::Transactions,
            "2.2.0",
            "",
            "Forgets about watched keys of a transaction.",
        ),
        unwatch,
    ),
];

fn multi(local: &mut ThreadState, mut call: CommandCall<'_>, _: &ClientInfo, _: Args<'_>) -> Ran {
    if call.session.multi.is_some() {
        return fail(local, &mut call, "ERR MULTI calls can not be nested");
    }
    call.session.multi = Some(Multi::default());
    call.session.gate.set(Gate::MULTI, true);
    Reply::new(call.out, call.session.resp3).ok();
    Ran::Done
}

/// Answers the command that runs, which is the connection's last one, with an error.
fn fail(local: &ThreadState, call: &mut CommandCall<'_>, line: &str) -> Ran {
    // MULTI and WATCH have no place in a transaction: its EXEC will fail, as Valkey's does.
    if let Some(multi) = &mut call.session.multi {
        multi.is_broken = true;
    }
    Reply::new(call.out, call.session.resp3).error(line);
    local.count_error(line);
    if let Some(stats) = local.stats().commands.get(call.session.usage.last_command as usize) {
        stats.failed.add(1);
    }
    Ran::Done
}

fn exec(local: &mut ThreadState, mut call: CommandCall<'_>, info: &ClientInfo, _: Args<'_>) -> Ran {
    let Some(multi) = call.session.end_multi() else {
        return fail(local, &mut call, "ERR EXEC without MULTI");
    };
    if multi.is_broken {
        fail(local, &mut call, "EXECABORT Transaction discarded because of previous errors.");
        return run_quietly(local, call, info, JobBody::Unwatch);
    }
    if let Some(ran) = cluster_changes::run_queue(local, call.again(), info, &multi.queued) {
        return ran;
    }
    // Seen from outside, it is in MULTI until EXEC has ended.
    info.show_multi(Some(&multi));
    run_or_post(local, call, info, JobBody::Exec(multi.queued))
}

fn discard(local: &mut ThreadState, mut call: CommandCall<'_>, info: &ClientInfo, _: Args<'_>) -> Ran {
    if call.session.end_multi().is_none() {
        return fail(local, &mut call, "ERR DISCARD without MULTI");
    }
    Reply::new(call.out, call.session.resp3).ok();
    run_quietly(local, call, info, JobBody::Unwatch)
}

fn watch(local: &mut ThreadState, mut call: CommandCall<'_>, info: &ClientInfo, args: Args<'_>) -> Ran {
    if call.session.multi.is_some() {
        return fail(local, &mut call, "ERR WATCH inside MULTI is not allowed");
    }
    run_or_post(local, call, info, JobBody::Watch(args.to_owned()))
}

fn unwatch(local: &mut ThreadState, call: CommandCall<'_>, info: &ClientInfo, _: Args<'_>) -> Ran {
    Reply::new(call.out, call.session.resp3).ok();
    run_quietly(local, call, info, JobBody::Unwatch)
}

/// Ends the watches; the reply has been written already.
fn run_quietly(local: &mut ThreadState, call: CommandCall<'_>, info: &ClientInfo, body: JobBody) -> Ran {
    if call.session.watched.is_empty() {
        call.session.watch_flag = WatchFlag::default();
        return Ran::Done;
    }
    run_or_post(local, call, info, body)
}

/// Forgets a connection's transaction and watches, for RESET. Watches leave the tables when their flag is gone.
pub fn forget(session: &mut Session) {
    session.end_multi();
    session.watched.clear();
    session.watched_bytes = 0;
    session.watch_flag = WatchFlag::default();
}

fn run_or_post(local: &mut ThreadState, call: CommandCall<'_>, info: &ClientInfo, mut body: JobBody) -> Ran {
    let mut wanted = locks_of(local, call.session, &body);
    let mut grant = loop {
        let grant = match lease::take(local, &wanted) {
            Ok(grant) => grant,
            Err(grant) => return exec::post(local, call, body, wanted, grant),
        };
        if !local.shared.router.links().is_any() {
            break grant;
        }
        // What keys name may have changed before their shards were held.
        wanted = locks_of(local, call.session, &body);
        if grant.covers(wanted.ids()) {
            break grant;
        }
        lease::release(local, grant);
    };
    run_held(local, call.session, info, &mut grant, &mut body, call.out);
    lease::release(local, grant);
    Ran::Done
}

fn locks_of(local: &mut ThreadState, session: &Session, body: &JobBody) -> LockSet {
    let shared = local.shared;
    let router = &shared.router;
    let mut set = LockSet::new();
    match body {
        JobBody::Exec(queued) => {
            for q in queued {
                match q.entry.run {
                    RunKind::Script(way) => {
                        script_run::add_locks(local, q.entry, way, q.args.args(), &mut set)
                    }
                    _ => plan::add_locks(&q.entry.spec, q.args.args(), router, &mut set),
                }
            }
        }
        JobBody::Watch(args) => {
            for key in args.args().tail(1).iter() {
                set.add(router.shard_of(router.key(key).hash));
            }
        }
        _ => {}
    }
    if !matches!(body, JobBody::Watch(_)) {
        for (_, key) in &session.watched {
            set.add(router.shard_of(router.key(key).hash));
        }
    }
    set.seal();
    set
}

/// Runs a transaction's body with all its shards held.
pub fn run_held(
    local: &mut ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    grant: &mut Shards,
    body: &mut JobBody,
    out: &mut Vec<u8>,
) {
    let hold = LeaseTimer::begin();
    exec::pause_uses(grant, session.no_touch);
    local.frozen = None;
    match body {
        JobBody::Exec(queued) => {
            let is_clean = end_watches(local, session, grant);
            // The map may have changed while EXEC waited for its shards.
            let misrouted = match session.gate.has(Gate::CLUSTER) {
                true => route::refusal_of_queue(local, session, queued)
                    .or_else(|| moving::refusal_of_queue(local, grant, Routed::of(local, session), queued)),
                false => None,
            };
            if let Some(line) = misrouted {
                Reply::new(out, session.resp3).error(&line);
                local.count_error(admit::code_of(&line));
            } else if is_clean {
                run_queued(local, session, info, grant, queued, out);
            } else {
                Reply::new(out, session.resp3).null_array();
            }
        }
        JobBody::Watch(args) => {
            begin_watches(local, session, grant, args.args().tail(1));
            info.show_watch(&session.watch_flag);
            Reply::new(out, session.resp3).ok();
        }
        JobBody::Unwatch => {
            end_watches(local, session, grant);
        }
        JobBody::Script { entry, args } => {
            let (began, before) = (Instant::now(), out.len());
            let mut reply = Reply::new(out, session.resp3);
            if let RunKind::Server(id) = entry.run {
                let mark = reply.len();
                let held = Some(&mut *grant);
                let mut caller = Caller { local, session, info, may_wait: false, held };
                if let Err(fault) = commands::rows::body(id)(&mut caller, args.args(), &mut reply) {
                    exec::refuse(local, entry, &fault, &mut reply, mark);
                }
            } else {
                script_run::run_held(local, session, info, grant, entry, args.args(), &mut reply);
            }
            timing::note(local, info, entry, args.args(), began.elapsed(), SampleWeight::One);
            large::note_reply(local, session.id, entry, args.args(), out.len() - before);
            session.send_own_messages(out);
        }
        _ => {}
    }
    exec::pause_uses(grant, false);
    commit::growth(local, grant, ChangedBy(session.id));
    hold.end(local);
}

fn begin_watches(local: &mut ThreadState, session: &mut Session, grant: &mut Shards, keys: Args<'_>) {
    let mut set = plan::set_of(&local.shared.router, grant);
    for name in keys.iter() {
        let key = local.shared.router.key(name);
        let part = set.part_mut(key);
        // A key that is dead already must not abort the EXEC by dying.
        darter_store::Keyed::find(&mut part.shard, session.db, key, local.now_ms);
        if part.watches.add(session.db, name, &session.watch_flag) {
            part.shard.changes.listen(Listeners::WATCH, true);
            session.watched.push((session.db, name.into()));
            session.watched_bytes += name.len() + WATCH_BYTES;
        }
    }
}

/// Bytes of a watched key beside its name, here and in its shard's table.
const WATCH_BYTES: usize = 72;

/// Ends all watches; returns whether every watched key is as it was.
fn end_watches(local: &mut ThreadState, session: &mut Session, grant: &mut Shards) -> bool {
    let watched = std::mem::take(&mut session.watched);
    session.watched_bytes = 0;
    if watched.is_empty() {
        return true;
    }
    let shared = local.shared;
    for (db, name) in &watched {
        let key = shared.router.key(name);
        let Some(part) = grant.get_mut(shared.router.shard_of(key.hash)) else { continue };
        darter_store::Keyed::find(&mut part.shard, *db, key, local.now_ms);
    }
    commit::changes(local, grant, ChangedBy(session.id));
    let is_clean = !session.watch_flag.is_dirty();
    for (db, name) in &watched {
        let key = shared.router.key(name);
        if let Some(part) = grant.get_mut(shared.router.shard_of(key.hash)) {
            part.watches.remove(*db, name, &session.watch_flag);
            part.shard.changes.listen(Listeners::WATCH, !part.watches.is_empty());
        }
    }
    session.watch_flag = WatchFlag::default();
    is_clean
}

fn run_queued(
    local: &mut ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    grant: &mut Shards,
    queued: &[QueuedCommand],
    out: &mut Vec<u8>,
) {
    let begins = local.journal.begin_group();
    let start = out.len();
    Reply::new(out, session.resp3).array(queued.len());
    for queued in queued {
        run_one(local, session, info, grant, queued, out);
    }
    if begins && !local.journal.end_group(&local.shared.journal, local.now_ms) {
        out.truncate(start);
        Reply::new(out, session.resp3).error(b"ERR the server ends, and has broken the transaction off");
    }
    session.send_own_messages(out);
}

/// Runs one command of a transaction.
fn run_one(
    local: &mut ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    grant: &mut Shards,
    queued: &QueuedCommand,
    out: &mut Vec<u8>,
) {
    let (entry, args) = (queued.entry, queued.args.args());
    if let Some(line) = admit::in_exec(local, session, info, entry, args) {
        Reply::new(out, session.resp3).error(&line);
        local.stats().commands[entry.id].rejected.add(1);
        local.count_error("NOPERM");
        return;
    }
    let resp3 = session.resp3;
    Nested { local, session, info, grant, within: Within::Exec }.run(entry, args, resp3, out);
}

//! DARTER: what servers of ours say to each other (HELLO, SYNC, FLOW, ACK), and reading one's own writes (SEQ, WAITSEQ).

use darter_base::number;
use darter_cluster::{MapChange, MigrationChange};
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec, reader};
use darter_replica::history::ReplId;
use darter_wire::{Args, Reply};

use super::persistence::{answer, asking, wait};
use super::{ServerCommand, no_subcommand, pushed_migrations, row};
use crate::clock::unix_ms;
use crate::dispatch::Caller;
use crate::engine::cluster::map_store::Outcome;
use crate::pubsub;
use crate::replication::acks::{self, Goal};
use crate::replication::flow_sync;
use crate::replication::flows::ReplicaProgress;
use crate::replication::group::{self, beats, show};
use crate::replication::roles;
use crate::shared::Shared;

const LINK: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI);
const ACK: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

const fn link(name: &'static str, arity: i16, args: &'static str, about: &'static str) -> Spec {
    Spec::other(name, arity).mark(Marks::NOT_OVER_HTTP).doc(Group::Server, "0.1.0", args, about)
}

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("darter", -2).doc(Group::Server, "0.1.0", "", "A container for replication commands."),
        no_subcommand,
    ),
    row(
        link("darter|hello", 5, "version node boot", "Begins a conversation between two servers.").flag(LINK),
        hello,
    ),
    row(
        link(
            "darter|sync",
            -4,
            "replicationid offset [FAILOVER]",
            "Begins replication over several connections.",
        )
        .flag(LINK)
        .cost("O(N) where N is the number of changes that the replica lacks, or of keys"),
        sync,
    ),
    row(
        link("darter|flow", 4, "session number", "Makes the connection one of a replica's.").flag(LINK),
        flow,
    ),
    row(
        link("darter|ack", -6, "dense applied synced offset [synced-offset]", "Says how far a replica is.")
            .flag(ACK.with(Flags::ALLOW_BUSY)),
        ack,
    ),
    row(
        link(
            "darter|beat",
            8,
            "member term echo position whole recovers",
            "Says that a member of the group lives.",
        )
        .flag(ACK.with(Flags::ALLOW_BUSY)),
        beat,
    ),
    row(
        Spec::other("darter|group", 2).flag(ACK.with(Flags::ALLOW_BUSY)).doc(
            Group::Server,
            "0.1.0",
            "",
            "Returns what this server knows of its group.",
        ),
        group,
    ),
    row(
        Spec::other("darter|promote", 3).flag(ACK.with(Flags::ALLOW_BUSY)).doc(
            Group::Server,
            "0.1.0",
            "UNCLEAN",
            "Has this server lead its group, whatever is lost by it.",
        ),
        promote,
    ),
    row(
        link("darter|takeover", 3, "term", "Has a member take the place of the leader, which asks for it.")
            .flag(ACK.with(Flags::ALLOW_BUSY)),
        take_over,
    ),
    row(
        link("darter|publish", 4, "channel message", "Sends a message of another node to subscribers here.")
            .flag(ACK),
        publish,
    ),
    row(
        link("darter|map", 2, "", "Says that the map of the cluster has changed in its store.").flag(ACK),
        map_changed,
    ),
    row(
        link(
            "darter|import",
            4,
            "migration attempt",
            "Lets the connection bring the keys of slots that are arriving.",
        )
        .flag(ACK),
        import,
    ),
    row(
        link(
            "darter|commit",
            4,
            "milliseconds keys",
            "Makes the slots whose keys the connection has brought this node's.",
        )
        .flag(ACK),
        commit,
    ),
    row(
        link(
            "darter|take",
            -8,
            "node-id migration attempt boot start-slot end-slot [start-slot end-slot ...]",
            "Says that the source of a configured migration begins.",
        )
        .flag(ACK),
        pushed_migrations::take,
    ),
    row(
        link(
            "darter|fail",
            7,
            "migration attempt slot state reason",
            "Ends an attempt of a configured migration, unless the slots were taken.",
        )
        .flag(ACK),
        pushed_migrations::fail,
    ),
    row(
        Spec::other("darter|seq", 2).fast().flag(Flags::STALE).doc(
            Group::Server,
            "0.1.0",
            "",
            "Returns the history of the data and the sequence of the next change.",
        ),
        seq,
    ),
    row(
        Spec::other("darter|waitseq", 5).flag(Flags::BLOCKING.with(Flags::NOSCRIPT).with(Flags::STALE)).doc(
            Group::Server,
            "0.1.0",
            "replicationid sequence milliseconds",
            "Waits until this server has applied all changes before a sequence.",
        ),
        wait_seq,
    ),
];

/// Marks the connection as that of a migration's source.
fn import(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let map = &caller.local.cluster.map;
    let id = String::from_utf8_lossy(args.at(2)).into_owned();
    let attempt = u64::try_from(reader::int(args.at(3))?).map_err(|_| Fault::NotInteger)?;
    if !map.gets(&id, attempt) || map.migration(&id).is_none_or(|one| one.target != map.me()) {
        return Err(Fault::text("TRYAGAIN the migration is not known here"));
    }
    caller.session.import = Some(Box::new((id, attempt)));
    reply.ok();
    Ok(())
}

/// Gives this node the slots of the connection's migration, all of whose keys were answered for on it. `milliseconds`: for
/// which writers have waited; `keys`: how many they are. Answered when this server serves the slots; after an error they may still become its own.
fn commit(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let pause_ms = u64::try_from(reader::int(args.at(2))?).map_err(|_| Fault::NotInteger)?;
    let keys = u64::try_from(reader::int(args.at(3))?).map_err(|_| Fault::NotInteger)?;
    let shared = caller.local.shared;
    let import = caller.session.import.as_deref().cloned();
    let (Some(store), Some((id, attempt))) = (&shared.cluster.store, import) else {
        return Err(Fault::text("ERR the connection has brought no slots"));
    };
    if !caller.may_wait {
        return Err(Fault::text("ERR DARTER COMMIT isn't allowed for DENY BLOCKING client"));
    }
    // The boot is that of the process that has the keys in its memory.
    let boot = shared.replication.boot.to_string();
    let wish = MigrationChange::Commit { id, attempt, boot, now_s: unix_ms() / 1000, pause_ms, keys };
    let to = asking(caller);
    let then = move |shared: &'static Shared, outcome: Outcome| {
        let done = outcome.and_then(|answers| answers.into_iter().collect::<Result<Vec<_>, _>>());
        answer(shared, to, done.as_ref().map(|_| ()).map_err(String::as_str));
    };
    store.change(vec![MapChange::Migration(wish)], Box::new(then));
    wait(caller);
    Ok(())
}

/// A message of another node of the cluster: for subscribers here and at this node's replicas.
fn publish(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (shared, now_ms) = (caller.local.shared, caller.local.now_ms);
    caller.local.journal.append_message(&shared.journal, now_ms, &[b"PUBLISH", args.at(2), args.at(3)]);
    reply.int_len(pubsub::publish(shared, args.at(2), args.at(3)));
    Ok(())
}

/// Another node has changed the map: it is read again. Answered when this server routes by it.
fn map_changed(caller: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let Some(store) = &caller.local.shared.cluster.store else {
        return Err(Fault::text("ERR this server has no cluster_store"));
    };
    if !caller.may_wait {
        return Err(Fault::text("ERR DARTER MAP isn't allowed for DENY BLOCKING client"));
    }
    let to = asking(caller);
    let then = move |shared: &'static Shared, outcome: Outcome| {
        answer(shared, to, outcome.as_ref().map(|_| ()).map_err(String::as_str));
    };
    store.change(Vec::new(), Box::new(then));
    wait(caller);
    Ok(())
}

fn hello(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let version = reader::int(args.at(2))?;
    flow_sync::hello(caller.local.shared, version, reply)?;
    let mut wish = caller.session.copy.as_deref().cloned().unwrap_or_default();
    wish.boot = ReplId::parse(args.at(4));
    caller.session.copy = Some(Box::new(wish));
    Ok(())
}

fn sync(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut wish = caller.session.copy.as_deref().cloned().unwrap_or_default();
    let next = reader::int(args.at(3))?;
    if !caller.may_wait || wish.is_begun || wish.is_backup {
        return Err(Fault::text("ERR DARTER SYNC is for replicas, once for each connection"));
    }
    let replication = &caller.local.shared.replication;
    if args.get(4).is_some_and(|word| reader::is(word, "failover")) && replication.is_replica() {
        if args.at(2) != replication.state().history.id.as_str().as_bytes() {
            return Err(Fault::text("ERR DARTER SYNC FAILOVER replid must match my replid."));
        }
        if caller.local.shared.group.is_some() {
            return Err(Fault::text(group::REFUSAL));
        }
        roles::stand_alone(caller.local);
    }
    let answer = flow_sync::begin(caller.local, caller.session.id, &wish, (args.at(2), next))?;
    reply.raw(&answer);
    wish.is_begun = true;
    caller.session.copy = Some(Box::new(wish));
    Ok(())
}

fn flow(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let number = reader::int(args.at(3))?;
    if !caller.may_wait {
        return Err(Fault::text("ERR DARTER FLOW is for replicas"));
    }
    flow_sync::attach(caller.local, caller.session.id, args.at(2), number)?;
    reply.ok();
    Ok(())
}

/// Never answered.
fn ack(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let number = |at: usize| args.get(at).and_then(number::parse_i64).and_then(|n| u64::try_from(n).ok());
    let (Some(dense), Some(applied), Some(synced), Some(offset)) =
        (number(2), number(3), number(4), number(5))
    else {
        return Ok(());
    };
    let shared = caller.local.shared;
    shared.replication.note_said(shared, caller.session.id, ReplicaProgress { dense, applied, synced });
    shared.replication.note_ack(shared, caller.session.id, offset, number(6));
    Ok(())
}

fn beat(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_heard = beats::hear(caller.local.shared, args, reply);
    if is_heard { Ok(()) } else { Err(Fault::text(NO_GROUP)) }
}

fn group(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if show::answer(caller.local.shared, reply) { Ok(()) } else { Err(Fault::text(NO_GROUP)) }
}

fn promote(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !reader::is(args.at(2), "unclean") {
        return Err(Fault::Syntax);
    }
    let shared = caller.local.shared;
    let group = shared.group.as_ref().ok_or(Fault::text(NO_GROUP))?;
    group.promote_unclean(shared).map_err(Fault::text)?;
    reply.ok();
    Ok(())
}

fn take_over(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let term = u64::try_from(reader::int(args.at(2))?).map_err(|_| Fault::NotInteger)?;
    let shared = caller.local.shared;
    let group = shared.group.as_ref().ok_or(Fault::text(NO_GROUP))?;
    group.take_over(shared, term).map_err(Fault::text)?;
    reply.ok();
    Ok(())
}

const NO_GROUP: &str = "ERR this server belongs to no group, or has not joined it yet (ha_store)";

fn seq(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.local.shared;
    // What this connection has written before is counted, in the stream yet or not.
    let made = shared.replication.stream_sequence(shared, shared.journal.end());
    let state = shared.replication.state();
    let sequence = made.unwrap_or(if state.knows_sequences { state.records.next() } else { 0 });
    reply.array(2);
    reply.bulk(state.history.id.as_str().as_bytes());
    reply.int(i64::try_from(sequence).unwrap_or(i64::MAX));
    Ok(())
}

fn wait_seq(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let history =
        ReplId::parse(args.at(2)).ok_or(Fault::text("ERR a replication id has 40 letters and digits"))?;
    let sequence = u64::try_from(reader::int(args.at(3))?).map_err(|_| Fault::NotInteger)?;
    let Ok(timeout_ms) = u64::try_from(reader::int(args.at(4))?) else {
        return Err(Fault::text("ERR timeout is negative"));
    };
    let shared = caller.local.shared;
    shared.replication.feed_now(shared);
    let is_here = shared.replication.state().has_sequence(&history, sequence);
    if is_here || !caller.may_wait {
        reply.int(i64::from(is_here));
        return Ok(());
    }
    acks::wait_for(caller, Goal::Sequence { history, sequence }, timeout_ms);
    Ok(())
}

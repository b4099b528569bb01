//! The verbs of CLUSTER that change the map: MEET, ADDSLOTS, SETSLOT, REPLICATE and their kin.
//!
//! With `cluster_store` each is a transaction on the map in the store, answered when this server routes by the result. A
//! pushed or emulated cluster refuses them. The rules of each change are in `darter_cluster::change`; this file reads words.

use std::thread;

use darter_base::crc::SLOTS_LEN;
use darter_cluster::change::{MapAnswer, NOT_EMPTY, SlotState};
use darter_cluster::{MapChange, SlotRange};
use darter_command::keys::slot::DISABLED;
use darter_command::{Fault, Flags, Marks, reader};
use darter_config::ClusterMode;
use darter_wire::{Args, Reply};

use super::cluster::sub;
use super::persistence::{asking, wait};
use super::{ServerCommand, row};
use crate::clients::ClientInfo;
use crate::dispatch::Caller;
use crate::engine::cluster::handover::{self, LeadWay};
use crate::engine::cluster::map_store::Outcome;
use crate::engine::cluster::peer;
use crate::exec::{CommandCall, Ran};
use crate::report::Report;
use crate::session::QueuedCommand;
use crate::shared::{Shared, ThreadMessage};
use crate::snapshot::ending::Asking;
use crate::thread_state::ThreadState;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    change("cluster|addslots", -3, "3.0.0", "slot [slot ...]", "Gives free slots to this node."),
    change(
        "cluster|addslotsrange",
        -4,
        "7.0.0",
        "start-slot end-slot [start-slot end-slot ...]",
        "Gives ranges of free slots to this node.",
    ),
    change("cluster|bumpepoch", 2, "3.0.0", "", "Raises the epoch of this node."),
    change("cluster|delslots", -3, "3.0.0", "slot [slot ...]", "Gives slots of this node up."),
    change(
        "cluster|delslotsrange",
        -4,
        "7.0.0",
        "start-slot end-slot [start-slot end-slot ...]",
        "Gives ranges of slots of this node up.",
    ),
    change("cluster|failover", -2, "3.0.0", "[FORCE | TAKEOVER]", "Makes this replica the master."),
    change("cluster|flushslots", 2, "3.0.0", "", "Gives all slots of this node up."),
    change("cluster|forget", 3, "3.0.0", "node-id", "Removes a node."),
    change("cluster|meet", -4, "3.0.0", "ip port [cluster-bus-port]", "Joins this node and another."),
    change("cluster|replicate", -3, "3.0.0", "node-id | NO ONE", "Makes this node a replica of a master."),
    change("cluster|reset", -2, "3.0.0", "[HARD | SOFT]", "Takes this node out of the cluster."),
    change("cluster|set-config-epoch", 3, "3.0.0", "config-epoch", "Sets the epoch of a new node."),
    change(
        "cluster|setslot",
        -4,
        "3.0.0",
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        "Begins or ends the move of a slot.",
    ),
];

const fn change(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> ServerCommand {
    let flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE);
    row(sub(name, arity, since, syntax, summary).flag(flags).mark(Marks::CHANGES_MAP), run)
}

/// The wish of a verb.
enum MapVerb {
    /// A change of the map.
    Change(MapChange),
    /// A node at an address is to be one of the cluster.
    Meet(String, u16),
    /// A slot is to be a master's; its owner does that.
    Give(u16, String),
    /// This replica is to lead its group.
    Lead(LeadWay),
}

fn run(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_stored(caller)?;
    if !caller.may_wait {
        return Err(Fault::text(
            "ERR in a transaction a change of the cluster goes with other changes alone",
        ));
    }
    let wish = read(caller, args)?;
    let (shared, to) = (caller.local.shared, asking(caller));
    let begun = match wish {
        MapVerb::Change(change) => {
            make(shared, vec![change], move |shared, outcome| tell(shared, to, outcome.and_then(single)));
            Ok(())
        }
        MapVerb::Meet(host, port) => spawn("darter-meet", move || meet(shared, to, &host, port)),
        MapVerb::Give(slot, id) => spawn("darter-give", move || {
            handover::give(shared, slot, &id, Box::new(move |shared, outcome| tell(shared, to, outcome)));
        }),
        MapVerb::Lead(way) => {
            handover::lead(shared, way, Box::new(move |shared, outcome| tell(shared, to, outcome)))
        }
    };
    begun.map_err(|error| Fault::Text(format!("ERR {error}").into()))?;
    wait(caller);
    Ok(())
}

/// Errors: the map is not in a store.
pub(super) fn must_be_stored(caller: &Caller<'_>) -> Result<(), Fault> {
    Err(match caller.local.live.cluster.mode {
        ClusterMode::Stored => return Ok(()),
        ClusterMode::Off => DISABLED,
        ClusterMode::Pushed => Fault::text("ERR this cluster is configured by DFLYCLUSTER CONFIG"),
        ClusterMode::Emulated => {
            Fault::text("ERR The emulated cluster is one server, which owns all slots and keeps them")
        }
    })
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// Has the store make changes.
fn make(
    shared: &'static Shared,
    changes: Vec<MapChange>,
    then: impl FnOnce(&'static Shared, Outcome) + Send + 'static,
) {
    if let Some(store) = &shared.cluster.store {
        store.change(changes, Box::new(then));
    }
}

/// The answer of the one change that was made.
fn single(answers: Vec<Result<MapAnswer, String>>) -> Result<MapAnswer, String> {
    let answer = answers.into_iter().next().unwrap_or(Ok(MapAnswer::Done));
    answer.map_err(|why| format!("ERR {why}"))
}

/// Answers a client that waits.
fn tell(shared: &'static Shared, to: Asking, outcome: Result<MapAnswer, String>) {
    let mut reply = Vec::new();
    write(&mut Reply::new(&mut reply, false), outcome);
    shared.handle(to.thread).send(ThreadMessage::Served { token: to.token, client: to.client, reply });
}

fn write(reply: &mut Reply<'_>, outcome: Result<MapAnswer, String>) {
    match outcome {
        Ok(MapAnswer::Done) => reply.ok(),
        Ok(MapAnswer::Bumped(epoch)) => reply.status(format!("BUMPED {epoch}")),
        Ok(MapAnswer::Still(epoch)) => reply.status(format!("STILL {epoch}")),
        Err(line) => reply.error(line),
    }
}

/// Joins this node and the one at an address. For a thread that may wait.
fn meet(shared: &'static Shared, to: Asking, host: &str, port: u16) {
    match peer::ask(shared, host, port, &[b"CLUSTER", b"MYID"]) {
        Err(why) => tell(shared, to, Err(why)),
        Ok((other, own)) => {
            let change = MapChange::Meet { other, other_ip: host.to_owned(), own_ip: own.to_string() };
            make(shared, vec![change], move |shared, outcome| tell(shared, to, outcome.and_then(single)));
        }
    }
}

/// An EXEC whose commands all change the map: one transaction. `None`: they do not.
pub fn run_queue(
    local: &mut ThreadState,
    mut call: CommandCall<'_>,
    info: &ClientInfo,
    queued: &[QueuedCommand],
) -> Option<Ran> {
    let is_stored = local.live.cluster.mode == ClusterMode::Stored;
    if !is_stored || queued.is_empty() || !queued.iter().all(|one| one.entry.spec.has(Marks::CHANGES_MAP)) {
        return None;
    }
    let mut changes = Vec::with_capacity(queued.len());
    let again = call.again();
    let mut caller = Caller { local, session: again.session, info, may_wait: true, held: None };
    for one in queued {
        let read = read(&mut caller, one.args.args()).and_then(|wish| match wish {
            MapVerb::Change(change) => Ok(change),
            MapVerb::Give(slot, id) => Ok(MapChange::SetSlot(slot, SlotState::Owner(id))),
            _ => Err(Fault::text("ERR MEET and FAILOVER have no place in a transaction")),
        });
        match read {
            Ok(change) => changes.push(change),
            Err(fault) => {
                Reply::new(again.out, caller.session.resp3).error(fault.line().as_bytes());
                return Some(Ran::Done);
            }
        }
    }
    let (shared, to) = (caller.local.shared, asking(&caller));
    make(shared, changes, move |shared, outcome| {
        let mut bytes = Vec::new();
        let mut reply = Reply::new(&mut bytes, false);
        match outcome {
            Err(line) => reply.error(line),
            Ok(answers) => {
                reply.array(answers.len());
                answers
                    .into_iter()
                    .for_each(|one| write(&mut reply, one.map_err(|why| format!("ERR {why}"))));
            }
        }
        shared.handle(to.thread).send(ThreadMessage::Served {
            token: to.token,
            client: to.client,
            reply: bytes,
        });
    });
    wait(&mut caller);
    Some(Ran::Stalled)
}

fn read(caller: &mut Caller<'_>, args: Args<'_>) -> Result<MapVerb, Fault> {
    let is = |name: &str| reader::is(args.at(1), name);
    Ok(MapVerb::Change(if is("addslots") {
        MapChange::AddSlots(single_slots(args)?)
    } else if is("delslots") {
        MapChange::DelSlots(single_slots(args)?)
    } else if is("addslotsrange") {
        MapChange::AddSlots(slot_ranges(args)?)
    } else if is("delslotsrange") {
        MapChange::DelSlots(slot_ranges(args)?)
    } else if is("flushslots") {
        must_be_empty(caller, "DB must be empty to perform CLUSTER FLUSHSLOTS.")?;
        MapChange::FlushSlots
    } else if is("set-config-epoch") {
        let epoch = reader::int(args.at(2))?;
        let invalid = || Fault::Text(format!("ERR Invalid config epoch specified: {epoch}").into());
        MapChange::SetEpoch(u64::try_from(epoch).map_err(|_| invalid())?)
    } else if is("bumpepoch") {
        MapChange::BumpEpoch
    } else if is("forget") {
        MapChange::Forget(text(args.at(2)))
    } else if is("reset") {
        read_reset(caller, args)?
    } else if is("replicate") {
        read_replicate(caller, args)?
    } else if is("meet") {
        return read_meet(args);
    } else if is("failover") {
        return read_failover(caller, args);
    } else {
        return read_set_slot(args);
    }))
}

/// A word as text.
pub(super) fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// Errors: there are keys.
fn must_be_empty(caller: &mut Caller<'_>, line: &str) -> Result<(), Fault> {
    if Report::gather(caller.local.shared, caller.held.as_deref_mut()).keys() == 0 {
        return Ok(());
    }
    Err(Fault::Text(format!("ERR {line}").into()))
}

/// Reads a slot. Errors: the number is no slot.
pub(super) fn slot(word: &[u8]) -> Result<u16, Fault> {
    let slot = darter_base::number::parse_i64(word).and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| *slot < SLOTS_LEN).ok_or(Fault::text("ERR Invalid or out of range slot"))
}

fn single_slots(args: Args<'_>) -> Result<Vec<SlotRange>, Fault> {
    let one = |at: usize| slot(args.at(at)).map(|slot| SlotRange { start: slot, end: slot });
    joined((2..args.len()).map(one).collect::<Result<_, _>>()?)
}

fn slot_ranges(args: Args<'_>) -> Result<Vec<SlotRange>, Fault> {
    if args.len() % 2 == 1 {
        let name = text(args.at(1)).to_lowercase();
        return Err(Fault::Text(
            format!("ERR wrong number of arguments for 'cluster|{name}' command").into(),
        ));
    }
    let range = |at: usize| {
        let (start, end) = (slot(args.at(at))?, slot(args.at(at + 1))?);
        let line = || format!("ERR start slot number {start} is greater than end slot number {end}");
        if start > end { Err(Fault::Text(line().into())) } else { Ok(SlotRange { start, end }) }
    };
    joined((2..args.len()).step_by(2).map(range).collect::<Result<_, _>>()?)
}

fn joined(ranges: Vec<SlotRange>) -> Result<Vec<SlotRange>, Fault> {
    let twice = |slot: u16| Fault::Text(format!("ERR Slot {slot} specified multiple times").into());
    darter_cluster::map::join_ranges(ranges).map_err(twice)
}

fn read_meet(args: Args<'_>) -> Result<MapVerb, Fault> {
    let host = text(args.at(2));
    let port = darter_base::number::parse_i64(args.at(3));
    let invalid = |port: &[u8]| {
        Fault::Text(format!("ERR Invalid node address specified: {host}:{}", text(port)).into())
    };
    let is_plain = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0 && is_plain);
    let port = port.ok_or_else(|| invalid(args.at(3)))?;
    Ok(MapVerb::Meet(host, port))
}

fn read_replicate(caller: &mut Caller<'_>, args: Args<'_>) -> Result<MapChange, Fault> {
    if args.len() == 4 && reader::is(args.at(2), "no") && reader::is(args.at(3), "one") {
        return Ok(MapChange::ReplicateNoOne);
    }
    if args.len() != 3 {
        return Err(Fault::wrong_form(args));
    }
    let id = text(args.at(2));
    // A node without a master may follow one only if that costs no key.
    let is_master = matches!(caller.local.cluster.map.place(), darter_cluster::NodeRole::Master(_));
    if is_master
        && caller.local.cluster.map.find(args.at(2)).is_some()
        && id != caller.local.shared.cluster.id()
    {
        must_be_empty(caller, NOT_EMPTY)?;
    }
    Ok(MapChange::Replicate(id))
}

fn read_reset(caller: &mut Caller<'_>, args: Args<'_>) -> Result<MapChange, Fault> {
    let is_known = args.len() == 2 || reader::is(args.at(2), "soft") || reader::is(args.at(2), "hard");
    if args.len() > 3 || !is_known {
        return Err(Fault::Syntax);
    }
    if !caller.local.shared.replication.is_replica() {
        must_be_empty(caller, "CLUSTER RESET can't be called with master nodes containing keys")?;
    }
    Ok(MapChange::Reset)
}

fn read_failover(caller: &Caller<'_>, args: Args<'_>) -> Result<MapVerb, Fault> {
    let is = |word: &str| reader::is(args.at(2), word);
    let way = match args.len() {
        2 => LeadWay::Asked,
        3 if is("force") => LeadWay::Forced,
        3 if is("takeover") => LeadWay::Unclean,
        _ => return Err(Fault::Syntax),
    };
    if !matches!(caller.local.cluster.map.place(), darter_cluster::NodeRole::Replica(_)) {
        return Err(Fault::text("ERR You should send CLUSTER FAILOVER to a replica"));
    }
    let replication = &caller.local.shared.replication;
    if way == LeadWay::Asked && !replication.link_is_up() {
        return Err(Fault::text("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE"));
    }
    if way == LeadWay::Forced && !replication.state().is_continuous {
        return Err(Fault::text(
            "ERR this replica has no whole copy of the data, CLUSTER FAILOVER TAKEOVER leads with what it has",
        ));
    }
    Ok(MapVerb::Lead(way))
}

fn read_set_slot(args: Args<'_>) -> Result<MapVerb, Fault> {
    let slot = slot(args.at(2))?;
    let has_node = args.len() == 5;
    let id = || text(args.at(4));
    let state = match args.at(3) {
        word if reader::is(word, "stable") && args.len() == 4 => SlotState::Stable,
        word if reader::is(word, "migrating") && has_node => SlotState::Migrating(id()),
        word if reader::is(word, "importing") && has_node => SlotState::Importing(id()),
        word if reader::is(word, "node") && has_node => return Ok(MapVerb::Give(slot, id())),
        _ => {
            return Err(Fault::text(
                "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP",
            ));
        }
    };
    Ok(MapVerb::Change(MapChange::SetSlot(slot, state)))
}

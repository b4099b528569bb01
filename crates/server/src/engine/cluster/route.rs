//! The check of a command's slots: the one place that every way in passes, in `cluster_mode yes` alone.
//!
//! Called by admission (clients, memcached, scripts), by EXEC before its first command, and for commands that have waited.
//! The batch path asks [`own_len`], which says yes where the check would. It changes nothing but counters.

use super::links;
use darter_cluster::LinkKind;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use darter_base::hash::slot_in;
use darter_cluster::answers::AddressForm;
use darter_cluster::{Ask, MapNode, NodeRole, Routing, slot_of};
use darter_command::{Flags, Keys, Marks, Reach};
use darter_config::Endpoint as Form;
use darter_wire::Args;

use super::moving::TRY_AGAIN;
use crate::conn::window::Prepared;
use crate::registry::{CommandEntry, RunKind};
use crate::session::{Gate, QueuedCommand, Session};
use crate::thread_state::ThreadState;

/// An error line without its `-`.
pub type Line = Cow<'static, [u8]>;

/// How many of `commands`, calls of `entry` about one key, may run because this node owns their slots.
#[inline(never)]
pub fn own_len(local: &ThreadState, entry: &'static CommandEntry, commands: &[Prepared]) -> usize {
    let (owners, own) = (local.cluster.map.owners(), local.cluster.own);
    let is_other = |planned: &Prepared| {
        let is_alike = planned.ready.entry.is_some_and(|other| std::ptr::eq(other, entry));
        !is_alike || owners.get(usize::from(slot_in(planned.ready.hash))) != Some(&own)
    };
    commands.iter().position(is_other).unwrap_or(commands.len())
}

/// Whether the check lets a command through that comes by the short way; the long way finds out why not.
#[inline]
pub fn lets_through(
    local: &ThreadState,
    session: &Session,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> bool {
    if entry.is_single_of(args.len() as u32) {
        let slot = usize::from(slot_of(args.at(1)));
        return local.cluster.map.owners().get(slot) == Some(&local.cluster.own);
    }
    entry.spec.accepts(args.len())
        && !entry.spec.has(Marks::RUNS_QUEUE)
        && verdict(local, &ask(local, session, entry, args)) == Routing::Serve
}

/// Why a command is not served here, as an error line.
#[cold]
pub fn refusal(
    local: &ThreadState,
    session: &Session,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Option<Line> {
    let ask = if entry.spec.has(Marks::RUNS_QUEUE) {
        let queued = session.multi.as_ref().map_or(&[][..], |multi| &multi.queued);
        ask_of_queue(local, session, queued)
    } else {
        ask(local, session, entry, args)
    };
    line(local, links::of_client(local, session), &ask).or_else(|| refusal_in_handover(local, &ask)).or_else(
        || {
            let is_any = || takes_all(entry) || session.queues(entry, takes_all);
            (local.cluster.map.gets_slots() && is_any()).then(|| {
                local.shared.cluster.redirects.try_again.fetch_add(1, Relaxed);
                Cow::Borrowed(ARRIVING.as_bytes())
            })
        },
    )
}

/// Returns true if a command may remove keys that it does not name.
pub fn takes_all(entry: &CommandEntry) -> bool {
    let spec = &entry.spec;
    let is_whole = matches!(spec.reach, Reach::All) && matches!(spec.keys, Keys::None);
    is_whole && spec.flags.any(Flags::WRITE)
}

/// Returns true if a command must wait, because one of its slots is being handed over.
#[cold]
pub fn must_wait(
    local: &ThreadState,
    session: &Session,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> bool {
    if takes_all(entry) || session.queues(entry, takes_all) {
        return true;
    }
    let ask = match &session.multi {
        Some(multi) if entry.spec.has(Marks::RUNS_QUEUE) => ask_of_queue(local, session, &multi.queued),
        _ => ask(local, session, entry, args),
    };
    verdict(local, &ask) == Routing::Held
}

/// Refuses writes while this node does not lead its group, though the map still names it as master; reads too, as long as its
/// data may be older than what the leader has.
fn refusal_in_handover(local: &ThreadState, ask: &Ask) -> Option<Line> {
    let is_named = matches!(local.cluster.map.place(), NodeRole::Master(_));
    let is_deposed = local.shared.cluster.shared_store().is_some() && is_named && local.follows();
    (is_deposed && ask.slot.is_some() && (ask.writes || local.is_in_doubt())).then(|| {
        local.shared.cluster.redirects.try_again.fetch_add(1, Relaxed);
        Cow::Borrowed(LEADER_CHANGES.as_bytes())
    })
}

/// The same for the commands of an EXEC, with its shards held.
#[cold]
pub fn refusal_of_queue(local: &ThreadState, session: &Session, queued: &[QueuedCommand]) -> Option<Line> {
    line(local, links::of_client(local, session), &ask_of_queue(local, session, queued))
}

/// The same for a command that has waited: by the thread that runs it now.
#[cold]
pub fn refusal_after_wait(
    local: &ThreadState,
    link: LinkKind,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Option<Line> {
    line(local, link, &ask_of_admitted(local, &[(entry, args)]))
}

/// The slots of commands that were admitted before: reads of a replica as such, and clients that asked as such.
pub fn ask_of_admitted(local: &ThreadState, calls: &[(&'static CommandEntry, Args<'_>)]) -> Ask {
    let mut ask =
        Ask { is_pubsub: true, reads_replica: true, is_asking: true, imports: true, ..Ask::default() };
    for (entry, args) in calls {
        ask.writes |= writes(entry);
        ask.runs_script |= runs_script(entry);
        ask.is_pubsub &= is_pubsub(entry);
        ask.moves_keys |= entry.spec.has(Marks::MOVES_KEYS);
        add(local, &mut ask, entry, *args);
    }
    ask
}

/// Returns true if the keys of a command must be looked at with their shards held.
#[cold]
pub fn must_look(
    local: &ThreadState,
    session: &Session,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> bool {
    let verdict = verdict(local, &ask(local, session, entry, args));
    matches!(verdict, Routing::Leaving(..) | Routing::Arriving)
}

/// Why a command of a script is not run.
#[cold]
pub fn refusal_in_script(
    local: &ThreadState,
    session: &Session,
    (entry, args): (&'static CommandEntry, Args<'_>),
    slots: &mut ScriptSlots,
) -> Option<Line> {
    let ask = ask(local, session, entry, args);
    let text = match verdict(local, &ask) {
        // Of a slot that moves the keys are looked at next.
        Routing::Serve | Routing::Leaving(..) | Routing::Arriving => {
            let own = local.cluster.rules.crosses_own;
            let next = ask.slot.filter(|_| !slots.crosses && !own)?;
            if *slots.used.get_or_insert(next) == next {
                return None;
            }
            "ERR Script attempted to access keys that do not hash to the same slot"
        }
        Routing::Down => "ERR Script attempted to execute a command while the cluster is down",
        Routing::DownForWrites => {
            "ERR Script attempted to execute a write command while the cluster is down and readonly"
        }
        _ => NOT_LOCAL,
    };
    Some(Cow::Borrowed(text.as_bytes()))
}

/// The slots that a script may use.
#[derive(Clone, Copy, Default)]
pub struct ScriptSlots {
    /// It may use several.
    pub crosses: bool,
    /// That of the keys so far, which a script that does not cross slots keeps to.
    pub used: Option<u16>,
}

/// The slot of the keys that a script's caller declared.
pub fn declared_slot(entry: &'static CommandEntry, args: Args<'_>) -> Option<u16> {
    let mut slot = None;
    entry.spec.each_key(args, &mut |at| {
        slot.get_or_insert_with(|| slot_of(args.at(at)));
    });
    slot
}

/// Whether an error line sends the client elsewhere or says that a slot cannot be served.
pub fn is_redirect(line: &[u8]) -> bool {
    [&b"MOVED "[..], b"ASK ", b"CLUSTERDOWN ", b"CROSSSLOT ", b"TRYAGAIN "]
        .iter()
        .any(|code| line.starts_with(code))
}

fn verdict<'a>(local: &'a ThreadState, ask: &Ask) -> Routing<'a> {
    local.cluster.rules.verdict(&local.cluster.map, ask)
}

fn ask(local: &ThreadState, session: &Session, entry: &'static CommandEntry, args: Args<'_>) -> Ask {
    let mut ask = Ask {
        writes: writes(entry),
        runs_script: runs_script(entry),
        is_pubsub: is_pubsub(entry),
        reads_replica: session.reads_replica,
        is_asking: session.gate.has(Gate::ASKING) || entry.spec.flags.any(Flags::ASKING),
        moves_keys: entry.spec.has(Marks::MOVES_KEYS),
        imports: session.import.as_ref().is_some_and(|import| local.cluster.map.gets(&import.0, import.1)),
        ..Ask::default()
    };
    add(local, &mut ask, entry, args);
    ask
}

fn ask_of_queue(local: &ThreadState, session: &Session, queued: &[QueuedCommand]) -> Ask {
    let is_asking = session.gate.has(Gate::ASKING);
    let mut ask = Ask { is_pubsub: true, reads_replica: session.reads_replica, is_asking, ..Ask::default() };
    for QueuedCommand { entry, args } in queued {
        ask.writes |= writes(entry);
        ask.runs_script |= runs_script(entry);
        ask.is_pubsub &= is_pubsub(entry);
        add(local, &mut ask, entry, args.args());
    }
    ask
}

fn add(local: &ThreadState, ask: &mut Ask, entry: &'static CommandEntry, args: Args<'_>) {
    let map = &local.cluster.map;
    entry.spec.each_key(args, &mut |at| ask.add(map, args.at(at)));
}

fn writes(entry: &CommandEntry) -> bool {
    let flags = entry.spec.flags;
    flags.any(Flags::WRITE) || is_pubsub(entry) && flags.any(Flags::MAY_REPLICATE)
}

/// Returns true if a command runs a script that may write.
fn runs_script(entry: &CommandEntry) -> bool {
    matches!(entry.run, RunKind::Script(_)) && !entry.spec.flags.any(Flags::READONLY)
}

fn is_pubsub(entry: &CommandEntry) -> bool {
    entry.spec.flags.any(Flags::PUBSUB)
}

fn line(local: &ThreadState, link: LinkKind, ask: &Ask) -> Option<Line> {
    let redirects = &local.shared.cluster.redirects;
    let (count, line) = match verdict(local, ask) {
        // The keys of a slot that moves are looked at with their shards held.
        Routing::Serve | Routing::Leaving(..) | Routing::Arriving | Routing::Held => return None,
        Routing::TryAgain => (&redirects.try_again, Cow::Borrowed(TRY_AGAIN.as_bytes())),
        Routing::Down => (&redirects.down, Cow::Borrowed(DOWN.as_bytes())),
        Routing::DownForWrites => (&redirects.down, Cow::Borrowed(DOWN_FOR_WRITES.as_bytes())),
        Routing::Unbound => (&redirects.down, Cow::Borrowed(UNBOUND.as_bytes())),
        Routing::CrossSlot => (&redirects.cross, Cow::Borrowed(CROSS_SLOT.as_bytes())),
        Routing::Moved(slot, node) => (&redirects.moved, Cow::Owned(moved(local, link, slot, node))),
    };
    count.fetch_add(1, Relaxed);
    Some(line)
}

fn moved(local: &ThreadState, link: LinkKind, slot: u16, node: &MapNode) -> Vec<u8> {
    let host = endpoint(local.live.cluster.endpoint).of(node).unwrap_or_default();
    format!("MOVED {slot} {host}:{}", node.port_for(link)).into_bytes()
}

/// The form of addresses that the settings ask for.
pub fn endpoint(form: Form) -> AddressForm {
    match form {
        Form::Ip => AddressForm::Ip,
        Form::Hostname => AddressForm::Hostname,
        Form::Unknown => AddressForm::Unknown,
    }
}

/// A script has named a key that is another node's.
pub const NOT_LOCAL: &str = "ERR Script attempted to access a non local key in a cluster node";

const ARRIVING: &str = "TRYAGAIN Slots are arriving at this node: cancel their migration first";
const LEADER_CHANGES: &str = "TRYAGAIN The master of this slot is being replaced";
const DOWN: &str = "CLUSTERDOWN The cluster is down";
const DOWN_FOR_WRITES: &str = "CLUSTERDOWN The cluster is down and only accepts read commands";
const UNBOUND: &str = "CLUSTERDOWN Hash slot not served";
const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

//! What changes owners and leaders: a slot goes to another master by its owner alone, a replica takes its master's place.
//!
//! Called by CLUSTER SETSLOT NODE and CLUSTER FAILOVER, on threads that may wait. A slot is given up only while it is marked
//! as migrating and no key of it is left: from then on its owner makes no key in it, so the count stays 0.

use super::links;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use darter_cluster::change::{MapAnswer, SlotState};
use darter_cluster::{MapChange, MoveWay, NodeRole, SlotHold, SlotRange, WhoWaits};
use darter_latch::Grant;
use darter_txn::LockSet;

use super::map_store::{Outcome, UNREACHED};
use super::peer;
use crate::engine::origin::Origin;
use crate::job::{Job, JobBody, Shards};
use crate::shared::Shared;
use crate::thread_state::ThreadState;

/// What a change of owner or leader comes to, and what follows. Errors: the error line.
pub type AfterHandover = Box<dyn FnOnce(&'static Shared, Result<MapAnswer, String>) + Send>;

/// Gives `slot` to the master `id`: as its owner, or by asking the owner. For a thread that may wait.
pub fn give(shared: &'static Shared, slot: u16, id: &str, then: AfterHandover) {
    // The owner is looked for in the map as it is now.
    let given = change(shared, Vec::new()).and_then(|_| give_now(shared, slot, id));
    then(shared, given);
}

fn give_now(shared: &'static Shared, slot: u16, id: &str) -> Result<MapAnswer, String> {
    let map = shared.cluster.map();
    let owner = map.owner(slot).and_then(|at| map.groups().get(at));
    let target = map.find(id.as_bytes()).map(|(group, _)| group.id.clone());
    let set = |state: SlotState| change(shared, vec![MapChange::SetSlot(slot, state)]).and_then(one);
    let to_target = || set(SlotState::Owner(id.to_owned()));
    let new_place = map
        .find(id.as_bytes())
        .map(|(_, node)| (node.ip.clone(), node.port_for(links::of_nodes(&shared.settings.live()))));
    let Some(owner) = owner.filter(|owner| target.as_ref() != Some(&owner.id)) else { return to_target() };
    if target.is_none() {
        return to_target();
    }
    if map.own_group().is_none_or(|own| own.id != owner.id) {
        let number = slot.to_string();
        let words: [&[u8]; 5] = [b"CLUSTER", b"SETSLOT", number.as_bytes(), b"NODE", id.as_bytes()];
        peer::ask_node(shared, &owner.master, &words)?;
        // This node answers when it routes by the change too.
        change(shared, Vec::new())?;
        return match map.move_of(slot) {
            Some(_) => to_target(),
            None => Ok(MapAnswer::Done),
        };
    }
    if !matches!(map.place(), NodeRole::Master(_)) {
        return to_target();
    }
    let is_marked = map
        .move_of(slot)
        .is_some_and(|own| own.way == MoveWay::Migrating && Some(&own.other) == target.as_ref());
    let held = || {
        format!(
            "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
        )
    };
    if !is_marked {
        if is_left(shared, slot)? {
            return Err(held());
        }
        set(SlotState::Migrating(id.to_owned()))?;
    }
    if is_left(shared, slot)? {
        if !is_marked {
            set(SlotState::Stable)?;
        }
        return Err(held());
    }
    // The new owner serves before this node sends clients there for good: until then they wait.
    let (wait, range) = (format!("slot {slot}"), SlotRange { start: slot, end: slot });
    let hold = SlotHold { slots: vec![range], who: WhoWaits::Everybody };
    shared.cluster.hold(shared, &wait, Some(hold), Box::new(|_| ()));
    let given =
        change_early(shared, vec![MapChange::SetSlot(slot, SlotState::Owner(id.to_owned()))]).and_then(one);
    if let (Ok(_), Some((ip, port))) = (&given, new_place) {
        make_known(shared, &ip, port);
    }
    let routed = change(shared, Vec::new());
    shared.cluster.hold(shared, &wait, None, Box::new(|_| ()));
    routed?;
    given
}

/// A new owner is asked for this long whether it serves its slots. Clients wait meanwhile.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// Has a node that owns more slots now serve them; gives up after some seconds.
pub fn make_known(shared: &'static Shared, host: &str, port: u16) {
    let began = Instant::now();
    while let Err(why) = peer::ask(shared, host, port, &[b"DARTER", b"MAP"]) {
        if began.elapsed() > KNOWN_WITHIN {
            tracing::warn!("the new owner of slots may not know it yet: {why}");
            return;
        }
        thread::sleep(PAUSE);
    }
}

fn one(answers: Vec<Result<MapAnswer, String>>) -> Result<MapAnswer, String> {
    let answer = answers.into_iter().next().unwrap_or(Ok(MapAnswer::Done));
    answer.map_err(|why| format!("ERR {why}"))
}

/// Makes changes and waits until they are in the store.
fn change_early(shared: &'static Shared, changes: Vec<MapChange>) -> Outcome {
    let store = shared.cluster.store.as_ref().ok_or_else(|| UNREACHED.to_owned())?;
    let (tell, hear) = sync_channel(1);
    store.change_early(changes, Box::new(move |_, outcome| drop(tell.send(outcome))));
    hear.recv().unwrap_or_else(|_| Err(UNREACHED.to_owned()))
}

/// Makes changes and waits until this server routes by them.
fn change(shared: &'static Shared, changes: Vec<MapChange>) -> Outcome {
    let store = shared.cluster.store.as_ref().ok_or_else(|| UNREACHED.to_owned())?;
    let (tell, hear) = sync_channel(1);
    store.change(changes, Box::new(move |_, outcome| drop(tell.send(outcome))));
    hear.recv().unwrap_or_else(|_| Err(UNREACHED.to_owned()))
}

/// Returns true if a key of a slot is left, once no key can be made in it but those that are on their way.
fn is_left(shared: &'static Shared, slot: u16) -> Result<bool, String> {
    // A key that is on its way may be missing for a moment and come again.
    let before = shared.migrations.custody_of_slot(slot);
    let keys = count(shared, slot)?;
    Ok(keys > 0 || before.is_none() || shared.migrations.custody_of_slot(slot) != before)
}

/// Counts the keys of a slot in all databases, those whose time is up too.
fn count(shared: &'static Shared, slot: u16) -> Result<usize, String> {
    const ENDS: &str = "ERR the server ends";
    let shard = shared.router.shard_of_slot(slot).ok_or(ENDS)?;
    let (tell, hear) = sync_channel(1);
    let call = move |_: &mut ThreadState, grant: &mut Shards| {
        let keys = grant.get_mut(shard).map_or(0, |part| {
            (0..part.shard.dbs_len()).filter_map(|db| part.shard.slot_keys(db, slot)).sum()
        });
        let _ = tell.send(keys);
    };
    let body = JobBody::Call(Some(Box::new(call)));
    let origin = Origin::nobody(shared.home_of(shard));
    Job::new(origin, body, LockSet::one(shard), Grant::empty()).enqueue_from_outside(shared);
    hear.recv().map_err(|_| ENDS.to_owned())
}

/// Between attempts, and between looks at the role.
const PAUSE: Duration = Duration::from_millis(20);

/// How a replica comes to lead its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeadWay {
    /// Its master is asked, and hands over when the replica has everything.
    Asked,
    /// Its master is not asked. A member that has everything that was acknowledged leads; no other.
    Forced,
    /// Whatever may be lost by it.
    Unclean,
}

/// Takes the place of this replica's master, which follows then. The group decides (`replication::group`), and the new leader
/// notes it in the map.
///
/// Errors: there can be no more threads.
pub fn lead(shared: &'static Shared, way: LeadWay, then: AfterHandover) -> std::io::Result<()> {
    let body = move || {
        let led = lead_now(shared, way);
        then(shared, led.map(|()| MapAnswer::Done));
    };
    thread::Builder::new().name("darter-lead".to_owned()).spawn(body).map(drop)
}

fn lead_now(shared: &'static Shared, way: LeadWay) -> Result<(), String> {
    let group = shared.group.as_ref().ok_or_else(|| UNREACHED.to_owned())?;
    // Writers of the old master wait up to this long for the replica to have everything.
    let timeout = Duration::from_millis(shared.settings.live().cluster.failover_ms);
    let began = Instant::now();
    match way {
        LeadWay::Asked => ask_master(shared, timeout)?,
        LeadWay::Forced => group.campaign(shared)?,
        LeadWay::Unclean => group.promote_unclean(shared)?,
    }
    let leads = || {
        let is_named = matches!(shared.cluster.map().place(), NodeRole::Master(_));
        is_named && !shared.replication.is_replica()
    };
    while !leads() {
        if began.elapsed() > timeout + GRACE {
            return Err("ERR this replica has not come to lead".to_owned());
        }
        thread::sleep(PAUSE);
    }
    // Answered when all threads route by it.
    change(shared, Vec::new()).map(drop)
}

/// A leader is elected, and the map says so, within this time.
const GRACE: Duration = Duration::from_secs(10);

/// Asks the master to hand over to this replica: again while it is no member yet.
fn ask_master(shared: &'static Shared, timeout: Duration) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let map = shared.cluster.map();
        let own = map.find(shared.cluster.id().as_bytes());
        let (group, own) = own.ok_or("ERR this node is not in the map")?;
        let port = own.port_for(links::of_replicas(&shared.settings.live())).to_string();
        let left = timeout.as_millis().max(1).to_string();
        let words: [&[u8]; 6] =
            [b"FAILOVER", b"TO", own.ip.as_bytes(), port.as_bytes(), b"TIMEOUT", left.as_bytes()];
        match peer::ask_node(shared, &group.master, &words) {
            Ok(_) => return Ok(()),
            Err(why) if began.elapsed() > timeout => return Err(why),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

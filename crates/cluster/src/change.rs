//! Changes of a stored map: the verbs of CLUSTER as functions from one map to the next.
//!
//! Called by the server's thread of the store, which writes the result only if the map has not changed meanwhile, and begins
//! again if it has. A change that is refused leaves the map as it was; the words of refusals are Redis' own.

use darter_base::crc::SLOTS_LEN;

use crate::map::{MapNode, MoveWay, NodeGroup, SlotMove, SlotRange, join_ranges};
use crate::migration::{
    MigrationChange, MigrationState, SlotMigration, end_all, lose_group, must_be_clean, must_not_move,
};
use crate::pushed_map::PushedChange;
use crate::stored::{GroupPlace, StoredMap};

/// A change, asked of the node `me` of [`MapChange::apply`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapChange {
    /// The node is there, under this address and with this boot. With another boot than before, what it has begun with slots
    /// ends.
    Register {
        /// The node.
        node: MapNode,
        /// Unix seconds.
        now_s: u64,
    },
    /// The node and another are of one cluster from now on.
    Meet {
        /// The id of the other.
        other: String,
        /// Address of the other, for a node that does not know its own.
        other_ip: String,
        /// The address of this node as the other sees it, for the same.
        own_ip: String,
    },
    /// Free slots become those of the node's group.
    AddSlots(Vec<SlotRange>),
    /// Slots of the node's group become free.
    DelSlots(Vec<SlotRange>),
    /// All slots of the node's group become free.
    FlushSlots,
    /// The epoch of a new group.
    SetEpoch(u64),
    /// The group gets the largest epoch.
    BumpEpoch,
    /// The node, which has nothing, follows the master of this id.
    Replicate(String),
    /// The node leaves its master and is a group of its own.
    ReplicateNoOne,
    /// A replica leads its group from now on; migrations of the group end. Unix seconds.
    Lead(u64),
    /// A node leaves the cluster.
    Forget(String),
    /// The node leaves the cluster and knows itself alone.
    Reset,
    /// The state of a slot.
    SetSlot(u16, SlotState),
    /// A migration begins, goes on or ends.
    Migration(MigrationChange),
    /// A change of the map of a pushed cluster.
    Pushed(PushedChange),
}

/// What CLUSTER SETSLOT makes of a slot; texts are ids of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// Its keys leave for another master.
    Migrating(String),
    /// Its keys come from another master.
    Importing(String),
    /// It does not move.
    Stable,
    /// It is this master's.
    Owner(String),
}

/// What a change answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapAnswer {
    /// It is done.
    Done,
    /// The epoch has been raised to this one.
    Bumped(u64),
    /// The epoch is the largest already.
    Still(u64),
}

/// Forgotten nodes that are remembered.
const FORGOTTEN_MAX: usize = 64;

impl MapChange {
    /// Makes the change. Errors: why it is refused; the map may have been changed in part then and is to be dropped.
    pub fn apply(&self, map: &mut StoredMap, me: &str) -> Result<MapAnswer, String> {
        match self {
            MapChange::Register { node, now_s } => register(map, node, *now_s),
            MapChange::Meet { other, other_ip, own_ip } => meet(map, (me, own_ip), (other, other_ip))?,
            MapChange::AddSlots(ranges) => {
                must_not_move(map, ranges)?;
                add_slots(map, me, ranges)?;
            }
            MapChange::DelSlots(ranges) => {
                must_not_move(map, ranges)?;
                del_slots(map, me, ranges)?;
            }
            MapChange::FlushSlots => {
                let slots = own_group(map, me)?.slots.clone();
                must_not_move(map, &slots)?;
                own_group(map, me)?.slots.clear();
            }
            MapChange::SetEpoch(epoch) => set_epoch(map, me, *epoch)?,
            MapChange::BumpEpoch => return bump(map, me),
            MapChange::Replicate(master) => replicate(map, me, master)?,
            MapChange::ReplicateNoOne => replicate_no_one(map, me)?,
            MapChange::Lead(now_s) => lead(map, me, *now_s)?,
            MapChange::Forget(id) => forget(map, me, id)?,
            MapChange::Reset => reset(map, me)?,
            MapChange::SetSlot(slot, state) => {
                must_not_move(map, &[SlotRange { start: *slot, end: *slot }])?;
                set_slot(map, me, *slot, state)?;
            }
            MapChange::Migration(change) => change.apply(map, me)?,
            MapChange::Pushed(change) => change.apply(map, me)?,
        }
        Ok(MapAnswer::Done)
    }
}

const NOBODY: &str = "this node is not in the map";

fn own_group<'m>(map: &'m mut StoredMap, me: &str) -> Result<&'m mut NodeGroup, String> {
    let place = map.place_of(me).ok_or(NOBODY)?;
    map.group_mut(place).ok_or_else(|| NOBODY.to_owned())
}

/// The group that the node `me` leads. Errors: it follows.
pub(crate) fn led_group<'m>(map: &'m mut StoredMap, me: &str) -> Result<&'m mut NodeGroup, String> {
    let group = own_group(map, me)?;
    if group.master.id == me { Ok(group) } else { Err("this node is a replica and owns no slots".to_owned()) }
}

/// A group of one node, without slots. It has the node's id, unless the group that the node has founded before still has it.
fn alone(map: &StoredMap, node: MapNode) -> NodeGroup {
    let is_taken = |id: &str| map.joined.iter().chain(&map.waiting).any(|group| group.id == id);
    let head: String = node.id.chars().take(ID_DIGITS - NUMBER_DIGITS).collect();
    let others = (1u32..).map(|number| format!("{head}{number:08x}"));
    let id = std::iter::once(node.id.clone()).chain(others).find(|id| !is_taken(id)).unwrap_or_default();
    NodeGroup { id, epoch: 0, slots: Vec::new(), master: node, replicas: Vec::new() }
}

/// Hex digits of an id, and those of them that tell ids of one node from each other.
const ID_DIGITS: usize = 40;
const NUMBER_DIGITS: usize = 8;

/// A node that has met nobody tells of itself more often than this, seconds. Without slots it is gone otherwise.
pub const HEARD_WITHIN_S: u64 = 600;

/// Removes the nodes that have met nobody, have no slots and were not heard of for long: they were forgotten, and are dead.
fn drop_unheard(map: &mut StoredMap, now_s: u64) {
    let waits = |map: &StoredMap, id: &str| map.waiting.iter().any(|group| group.has(id));
    for node in map.waiting.iter().flat_map(NodeGroup::nodes) {
        map.heard.entry(node.id.clone()).or_insert(now_s);
    }
    let is_dead = |group: &NodeGroup, map: &StoredMap| {
        let heard = |node: &MapNode| map.heard.get(&node.id).is_some_and(|at| at + HEARD_WITHIN_S >= now_s);
        group.slots.is_empty() && !group.nodes().any(heard)
    };
    let (dead, waiting) = std::mem::take(&mut map.waiting).into_iter().partition(|group| is_dead(group, map));
    map.waiting = waiting;
    for group in &dead {
        lose_group(map, group);
    }
    let known: Vec<String> = map.heard.keys().filter(|id| waits(map, id)).cloned().collect();
    map.heard.retain(|id, _| known.contains(id));
}

fn register(map: &mut StoredMap, node: &MapNode, now_s: u64) {
    let mut was_restarted = false;
    let groups = map.joined.iter_mut().chain(&mut map.waiting);
    let known = groups
        .flat_map(|group| std::iter::once(&mut group.master).chain(&mut group.replicas))
        .find(|known| known.id == node.id);
    match known {
        None => {
            let group = alone(map, node.clone());
            map.waiting.push(group);
        }
        Some(known) => {
            // A node that does not know its address keeps the one by which it was met.
            let ip = if node.ip.is_empty() { std::mem::take(&mut known.ip) } else { node.ip.clone() };
            was_restarted = known.boot != node.boot;
            *known = MapNode { ip, ..node.clone() };
        }
    }
    if was_restarted {
        // Keys that have arrived may be gone, and keys that leave may be written from now on.
        let has_begun = |one: &SlotMigration| one.is_active() && !one.runner.is_empty();
        let gives = |one: &SlotMigration| has_begun(one) && one.source == node.id;
        let takes = |one: &SlotMigration| has_begun(one) && one.target == node.id;
        end_all(map, gives, (MigrationState::Retrying, "the source was restarted"), now_s);
        end_all(map, takes, (MigrationState::Retrying, "the target was restarted"), now_s);
    }
    map.heard.insert(node.id.clone(), now_s);
    drop_unheard(map, now_s);
}

fn meet(map: &mut StoredMap, own: (&str, &str), other: (&str, &str)) -> Result<(), String> {
    for (id, ip) in [own, other] {
        let place = map.place_of(id).ok_or_else(|| format!("the node {id} does not use this store"))?;
        let group = map.group_mut(place).ok_or(NOBODY)?;
        let nodes = std::iter::once(&mut group.master).chain(&mut group.replicas);
        nodes.filter(|node| node.id == id && node.ip.is_empty()).for_each(|node| node.ip = ip.to_owned());
        if let GroupPlace::Waiting(at) = place {
            join(map, at);
        }
        map.forgotten.retain(|forgotten| forgotten != id);
    }
    Ok(())
}

/// Takes a waiting group into the cluster. A slot that two claim is the one's with the higher epoch.
fn join(map: &mut StoredMap, at: usize) {
    let mut group = map.waiting.remove(at);
    for other in &mut map.joined {
        let (loser, winner) =
            if group.epoch > other.epoch { (&mut *other, &group) } else { (&mut group, &*other) };
        let kept = winner.slots.iter().fold(loser.slots.clone(), |slots, range| without(&slots, *range));
        loser.slots = kept;
    }
    map.joined.push(group);
}

/// `slots` without those of `range`.
pub(crate) fn without(slots: &[SlotRange], range: SlotRange) -> Vec<SlotRange> {
    let mut left = Vec::with_capacity(slots.len() + 1);
    for own in slots {
        if own.end < range.start || range.end < own.start {
            left.push(*own);
            continue;
        }
        if own.start < range.start {
            left.push(SlotRange { start: own.start, end: range.start - 1 });
        }
        if range.end < own.end {
            left.push(SlotRange { start: range.end + 1, end: own.end });
        }
    }
    left
}

pub(crate) fn has(slots: &[SlotRange], slot: u16) -> bool {
    slots.iter().any(|range| range.start <= slot && slot <= range.end)
}

/// The slots of ranges that were checked.
fn each(ranges: &[SlotRange]) -> impl Iterator<Item = u16> + '_ {
    ranges.iter().flat_map(|range| range.start..=range.end.min(SLOTS_LEN - 1))
}

/// The groups that the node sees: the cluster, or its own.
pub(crate) fn seen<'m>(map: &'m StoredMap, me: &str) -> &'m [NodeGroup] {
    match map.place_of(me) {
        Some(GroupPlace::Joined(_)) => &map.joined,
        Some(GroupPlace::Waiting(at)) => map.waiting.get(at..=at).unwrap_or_default(),
        None => &[],
    }
}

fn add_slots(map: &mut StoredMap, me: &str, ranges: &[SlotRange]) -> Result<(), String> {
    let groups = seen(map, me);
    if let Some(slot) = each(ranges).find(|slot| groups.iter().any(|group| has(&group.slots, *slot))) {
        return Err(format!("Slot {slot} is already busy"));
    }
    let id = led_group(map, me)?.id.clone();
    must_be_clean(map, &id, ranges)?;
    let group = led_group(map, me)?;
    let all = group.slots.iter().chain(ranges).copied().collect();
    group.slots = join_ranges(all).map_err(|slot| format!("Slot {slot} specified multiple times"))?;
    // As in Redis: what came in is this node's now.
    map.moves.retain(|one| one.group != id || one.way != MoveWay::Importing || !has(ranges, one.slot));
    Ok(())
}

/// Frees slots of the node's group, and those whose owner is moving them to it: so `redis-cli --cluster fix` ends a move. Other
/// nodes keep theirs, as those of Redis do in the end.
fn del_slots(map: &mut StoredMap, me: &str, ranges: &[SlotRange]) -> Result<(), String> {
    let own = led_group(map, me)?.id.clone();
    for slot in each(ranges) {
        let owner = seen(map, me).iter().find(|group| has(&group.slots, slot)).map(|group| group.id.clone());
        let owner = owner.ok_or_else(|| format!("Slot {slot} is already unassigned"))?;
        let gives = |one: &SlotMove| {
            one.slot == slot && one.way == MoveWay::Migrating && one.other == own && one.group == owner
        };
        if owner != own && !map.moves.iter().any(gives) {
            continue;
        }
        let range = SlotRange { start: slot, end: slot };
        let groups = map.joined.iter_mut().chain(&mut map.waiting);
        groups.filter(|group| group.id == owner).for_each(|group| group.slots = without(&group.slots, range));
        map.moves.retain(|one| one.slot != slot || one.group != owner || one.way != MoveWay::Migrating);
    }
    Ok(())
}

fn set_epoch(map: &mut StoredMap, me: &str, epoch: u64) -> Result<(), String> {
    match map.place_of(me) {
        Some(GroupPlace::Joined(_))
            if map.joined.iter().map(|group| group.nodes().count()).sum::<usize>() > 1 =>
        {
            let why = "The user can assign a config epoch only when the node does not know any other node.";
            Err(why.to_owned())
        }
        _ => {
            let group = own_group(map, me)?;
            if group.epoch != 0 {
                return Err("Node config epoch is already non-zero".to_owned());
            }
            group.epoch = epoch;
            Ok(())
        }
    }
}

fn bump(map: &mut StoredMap, me: &str) -> Result<MapAnswer, String> {
    let largest = map.epoch();
    let is_shared = map.joined.iter().filter(|group| group.epoch == largest).count() > 1;
    let group = own_group(map, me)?;
    if group.epoch == largest && largest != 0 && !is_shared {
        return Ok(MapAnswer::Still(largest));
    }
    group.epoch = largest + 1;
    Ok(MapAnswer::Bumped(group.epoch))
}

/// Takes a node out of its group. A group that it led alone is gone with its slots.
fn take_out(map: &mut StoredMap, id: &str) -> Result<MapNode, String> {
    let place = map.place_of(id).ok_or_else(|| format!("Unknown node {id}"))?;
    let group = map.group_mut(place).ok_or(NOBODY)?;
    if let Some(at) = group.replicas.iter().position(|node| node.id == id) {
        return Ok(group.replicas.remove(at));
    }
    if !group.replicas.is_empty() {
        return Err(
            "the node has replicas: let one of them take over, or replicate another master".to_owned()
        );
    }
    let group = match place {
        GroupPlace::Joined(at) => map.joined.remove(at),
        GroupPlace::Waiting(at) => map.waiting.remove(at),
    };
    map.moves.retain(|one| one.group != group.id && one.other != group.id);
    lose_group(map, &group);
    Ok(group.master)
}

fn replicate(map: &mut StoredMap, me: &str, master: &str) -> Result<(), String> {
    let known = seen(map, me).iter().find(|group| group.has(master));
    let group = known.ok_or_else(|| format!("Unknown node {master}"))?;
    if master == me {
        return Err("Can't replicate myself".to_owned());
    }
    if group.master.id != master {
        return Err("I can only replicate a master, not a replica.".to_owned());
    }
    if group.replicas.iter().any(|node| node.id == me) {
        return Ok(());
    }
    let own = own_group(map, me)?;
    if own.master.id == me && !own.slots.is_empty() {
        return Err(NOT_EMPTY.to_owned());
    }
    let node = take_out(map, me)?;
    // Its master's keys replace all that it has.
    map.migrations.retain(|one| one.hider() != Some(me));
    let place = map.place_of(master).ok_or_else(|| format!("Unknown node {master}"))?;
    if let Some(group) = map.group_mut(place) {
        group.replicas.push(node);
    }
    Ok(())
}

/// The refusal of a master with slots or keys to follow another.
pub const NOT_EMPTY: &str = "To set a master the node must be empty and without assigned slots.";

fn replicate_no_one(map: &mut StoredMap, me: &str) -> Result<(), String> {
    if own_group(map, me)?.master.id != me {
        let node = take_out(map, me)?;
        let group = alone(map, node);
        map.joined.push(group);
    }
    Ok(())
}

fn lead(map: &mut StoredMap, me: &str, now_s: u64) -> Result<(), String> {
    let epoch = map.epoch() + 1;
    let group = own_group(map, me)?;
    let at = group.replicas.iter().position(|node| node.id == me);
    let at = at.ok_or("You should send CLUSTER FAILOVER to a replica")?;
    if let Some(replica) = group.replicas.get_mut(at) {
        std::mem::swap(&mut group.master, replica);
        group.epoch = epoch;
    }
    let id = group.id.clone();
    end_all(map, |one| one.from == id, (MigrationState::Failed, "the source was replaced"), now_s);
    end_all(map, |one| one.to == id, (MigrationState::Failed, "the target was replaced"), now_s);
    Ok(())
}

fn forget(map: &mut StoredMap, me: &str, id: &str) -> Result<(), String> {
    if id == me {
        return Err("I tried hard but I can't forget myself...".to_owned());
    }
    let is_known = matches!(map.place_of(id), Some(GroupPlace::Joined(_)));
    if !is_known && map.forgotten.iter().any(|forgotten| forgotten == id) {
        return Ok(());
    }
    if !seen(map, me).iter().any(|group| group.has(id)) {
        return Err(format!("Unknown node {id}"));
    }
    if own_group(map, me)?.master.id == id {
        return Err("Can't forget my master!".to_owned());
    }
    take_out(map, id)?;
    map.forgotten.push(id.to_owned());
    let surplus = map.forgotten.len().saturating_sub(FORGOTTEN_MAX);
    map.forgotten.drain(..surplus);
    Ok(())
}

fn reset(map: &mut StoredMap, me: &str) -> Result<(), String> {
    if map.place_of(me).is_none() {
        // It was forgotten, and comes again by itself.
        return Ok(());
    }
    let node = take_out(map, me)?;
    let group = alone(map, node);
    map.waiting.push(group);
    Ok(())
}

fn set_slot(map: &mut StoredMap, me: &str, slot: u16, state: &SlotState) -> Result<(), String> {
    let own = led_group(map, me).map_err(|_| "You can use SETSLOT only with masters.")?.id.clone();
    let target = match state {
        SlotState::Stable => {
            map.moves.retain(|one| one.slot != slot || one.group != own);
            return Ok(());
        }
        SlotState::Migrating(id) | SlotState::Importing(id) | SlotState::Owner(id) => id,
    };
    let owner = seen(map, me).iter().find(|group| has(&group.slots, slot)).map(|group| group.id.clone());
    let is_own = owner.as_ref() == Some(&own);
    match state {
        SlotState::Migrating(_) if !is_own => return Err(format!("I'm not the owner of hash slot {slot}")),
        SlotState::Importing(_) if is_own => {
            return Err(format!("I'm already the owner of hash slot {slot}"));
        }
        _ => {}
    }
    let group = seen(map, me).iter().find(|group| group.has(target));
    let unknown = match state {
        SlotState::Owner(_) => format!("Unknown node {target}"),
        _ => format!("I don't know about node {target}"),
    };
    let group = group.ok_or(unknown)?;
    if group.master.id != *target {
        return Err("Target node is not a master".to_owned());
    }
    let other = group.id.clone();
    let getter = if matches!(state, SlotState::Importing(_)) { &own } else { &other };
    must_be_clean(map, getter, &[SlotRange { start: slot, end: slot }])?;
    let way = match state {
        SlotState::Migrating(_) => MoveWay::Migrating,
        SlotState::Importing(_) => MoveWay::Importing,
        _ => return give(map, slot, owner.as_deref(), (&own, &other)),
    };
    if way == MoveWay::Migrating && other == own {
        return Ok(());
    }
    map.moves.retain(|one| one.slot != slot || one.group != own);
    map.moves.push(SlotMove { slot, group: own, way, other });
    Ok(())
}

/// Gives a slot from its owner to another group, as one of the two or for a slot that nobody has.
fn give(map: &mut StoredMap, slot: u16, owner: Option<&str>, (own, to): (&str, &str)) -> Result<(), String> {
    if owner == Some(to) {
        // Whoever repeats it ends the move on its side.
        map.moves.retain(|one| one.slot != slot || one.group != own);
        return Ok(());
    }
    if owner.is_some_and(|owner| owner != own) {
        return Err(format!("I'm not the owner of hash slot {slot}"));
    }
    let range = SlotRange { start: slot, end: slot };
    let epoch = map.epoch();
    for group in map.joined.iter_mut().chain(&mut map.waiting) {
        if Some(group.id.as_str()) == owner {
            group.slots = without(&group.slots, range);
        } else if group.id == to {
            let all = group.slots.iter().copied().chain([range]).collect();
            group.slots = join_ranges(all).map_err(|slot| format!("slot {slot} has two owners"))?;
            if group.epoch < epoch || epoch == 0 {
                group.epoch = epoch + 1;
            }
        }
    }
    map.moves.retain(|one| one.slot != slot);
    Ok(())
}

#[cfg(test)]
mod tests;

//! The map of a cluster: groups of nodes, the slots of each, and the owner of every slot as one table.
//!
//! Built from checked groups by a source of maps; read by routing and by the answers. A map never changes: a change makes
//! another map.

use std::sync::Arc;

use darter_base::crc::SLOTS_LEN;

use crate::migration::SlotMigration;

/// Slots from `start` to `end`, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SlotRange {
    /// The first slot.
    pub start: u16,
    /// The last slot, `start <= end < 16384`.
    pub end: u16,
}

impl SlotRange {
    /// Number of slots.
    pub fn slots_len(self) -> u16 {
        self.end - self.start + 1
    }
}

/// The state of a node as the source of the map knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// Serves.
    #[default]
    Online,
    /// Loads its data.
    Loading,
    /// Has failed.
    Fail,
    /// Not shown to clients.
    Hidden,
}

impl Health {
    /// The state called `name`, in lower case.
    pub fn named(name: &str) -> Option<Health> {
        Some(match name {
            "online" => Health::Online,
            "loading" => Health::Loading,
            "fail" => Health::Fail,
            "hidden" => Health::Hidden,
            _ => return None,
        })
    }

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Health::Online => "online",
            Health::Loading => "loading",
            Health::Fail => "fail",
            Health::Hidden => "hidden",
        }
    }

    /// The name that CLUSTER SHARDS shows.
    pub fn shown(self) -> &'static str {
        match self {
            Health::Online | Health::Hidden => "online",
            Health::Loading => "loading",
            Health::Fail => "failed",
        }
    }
}

/// A server of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapNode {
    /// Its id.
    pub id: String,
    /// The address for clients: an IP address or a host name.
    pub ip: String,
    /// The port for clients; where there are two, for those without TLS.
    pub port: u16,
    /// The port for clients with TLS; 0 if there is none, or the map does not tell.
    pub tls_port: u16,
    /// The port of Redis' bus as CLUSTER NODES shows it; there is no bus.
    pub bus_port: u16,
    /// Its host name; empty if it has none.
    pub hostname: String,
    /// Its state.
    pub health: Health,
    /// The run of its process that has made itself known last; empty in a pushed map.
    pub boot: String,
}

/// Whether a connection to a node is encrypted, which decides on its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkKind {
    /// It is not.
    #[default]
    Plain,
    /// By TLS.
    Tls,
}

impl MapNode {
    /// The port for a connection of this kind: the only one there is, or one of two.
    pub fn port_for(&self, link: LinkKind) -> u16 {
        match link {
            LinkKind::Tls if self.tls_port != 0 => self.tls_port,
            _ => self.port,
        }
    }
}

/// A master with its replicas and its slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeGroup {
    /// The name of the group in CLUSTER MYSHARDID.
    pub id: String,
    /// Number of the last change of who owns its slots or leads it; the larger one is the later.
    pub epoch: u64,
    /// Its slots: ascending, no two ranges touch.
    pub slots: Vec<SlotRange>,
    /// The node that serves writes.
    pub master: MapNode,
    /// The nodes that follow it.
    pub replicas: Vec<MapNode>,
}

impl NodeGroup {
    /// All nodes, the master first.
    pub fn nodes(&self) -> impl Iterator<Item = &MapNode> {
        std::iter::once(&self.master).chain(&self.replicas)
    }

    /// Returns true if the node `id` is in it.
    pub fn has(&self, id: &str) -> bool {
        self.nodes().any(|node| node.id == id)
    }

    /// Number of slots.
    pub fn slots_len(&self) -> usize {
        self.slots.iter().map(|range| usize::from(range.slots_len())).sum()
    }
}

/// The direction of a slot that moves key by key, seen from one of the two groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveWay {
    /// Its keys leave: a key that is not here any more is asked for at the other group.
    Migrating,
    /// Its keys arrive: clients that were sent here by the owner are served.
    Importing,
}

impl MoveWay {
    /// Its name in the store.
    pub fn name(self) -> &'static str {
        match self {
            MoveWay::Migrating => "migrating",
            MoveWay::Importing => "importing",
        }
    }

    /// The one called `name`.
    pub fn named(name: &str) -> Option<MoveWay> {
        [MoveWay::Migrating, MoveWay::Importing].into_iter().find(|way| way.name() == name)
    }
}

/// A slot that moves key by key, as one of the two groups knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotMove {
    /// The slot.
    pub slot: u16,
    /// The id of the group that has the slot in this state.
    pub group: String,
    /// The direction: keys leave that group, or arrive.
    pub way: MoveWay,
    /// The id of the other group.
    pub other: String,
}

/// The place of a node in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeRole {
    /// It leads the group of this index.
    Master(usize),
    /// It follows the master of the group of this index.
    Replica(usize),
    /// It is in no group.
    Nowhere,
}

impl NodeRole {
    /// The index of its group.
    pub fn group(self) -> Option<usize> {
        match self {
            NodeRole::Master(group) | NodeRole::Replica(group) => Some(group),
            NodeRole::Nowhere => None,
        }
    }
}

/// Groups and the owners of all slots, as one node sees them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotMap {
    groups: Vec<NodeGroup>,
    // The index of the group that owns the slot, with `MOVING` if this node has to look at the keys, or `UNBOUND`.
    owners: Box<[u16; SLOTS_LEN as usize]>,
    bound_len: usize,
    failed_len: usize,
    me: String,
    place: NodeRole,
    revision: u64,
    // Those of this node's group, by slot.
    moves: Vec<SlotMove>,
    // Those from or to this node's group.
    migrations: Vec<SlotMigration>,
    gets_slots: bool,
    holds: Vec<SlotHold>,
}

/// Commands that wait while slots are handed over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WhoWaits {
    /// Commands that may change data.
    Writers,
    /// All commands.
    Everybody,
}

/// Slots whose commands wait, because they are about to be another group's. No part of the stored map: their owner decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotHold {
    /// The slots.
    pub slots: Vec<SlotRange>,
    /// Commands that wait.
    pub who: WhoWaits,
}

/// In the table of owners: the slot has none. Greater than the index of any group.
pub const UNBOUND: u16 = u16::MAX;

/// In the table of owners, beside the index of a group: keys of the slot are leaving this node's group or arriving.
pub const MOVING: u16 = 1 << 14;

/// Groups that a map may have.
pub const GROUPS_MAX: usize = 1 << 14;

impl SlotMap {
    /// A map of checked groups: up to [`GROUPS_MAX`], without a slot in two of them. `me` is the id of the node that asks.
    pub fn new(groups: Vec<NodeGroup>, me: &str, revision: u64) -> SlotMap {
        assert!(groups.len() <= GROUPS_MAX);
        let mut owners = Box::new([UNBOUND; SLOTS_LEN as usize]);
        let (mut bound_len, mut failed_len) = (0, 0);
        let mut place = NodeRole::Nowhere;
        for (at, group) in groups.iter().enumerate() {
            for range in &group.slots {
                let slots = owners.get_mut(usize::from(range.start)..=usize::from(range.end));
                slots.into_iter().flatten().for_each(|owner| {
                    debug_assert_eq!(*owner, UNBOUND);
                    *owner = at as u16;
                });
            }
            bound_len += group.slots_len();
            if group.master.health == Health::Fail {
                failed_len += group.slots_len();
            }
            if group.master.id == me {
                place = NodeRole::Master(at);
            } else if group.replicas.iter().any(|node| node.id == me) {
                place = NodeRole::Replica(at);
            }
        }
        let me = me.to_owned();
        SlotMap {
            groups,
            owners,
            bound_len,
            failed_len,
            me,
            place,
            revision,
            moves: Vec::new(),
            migrations: Vec::new(),
            gets_slots: false,
            holds: Vec::new(),
        }
    }

    /// The same map with those of `moves` that are this node's group's.
    pub fn with_moves(mut self, moves: &[SlotMove]) -> SlotMap {
        let Some(own) = self.own_group().map(|group| group.id.clone()) else { return self };
        self.moves = moves.iter().filter(|one| one.group == own).cloned().collect();
        self.moves.sort_unstable_by_key(|one| one.slot);
        for one in &self.moves {
            if let Some(owner) = self.owners.get_mut(usize::from(one.slot)).filter(|owner| **owner != UNBOUND)
            {
                *owner |= MOVING;
            }
        }
        self
    }

    /// The same map with those of `migrations` that are from or to this node's group.
    pub fn with_migrations(mut self, migrations: &[SlotMigration]) -> SlotMap {
        let Some(own) = self.own_group().map(|group| group.id.clone()) else { return self };
        self.migrations = migrations.iter().filter(|one| one.from == own || one.to == own).cloned().collect();
        self.gets_slots = self.migrations.iter().any(|one| one.is_active() && one.to == own);
        self
    }

    /// The same map as of `revision`, in which the slots of `holds` wait. To be called once: holds are not ended by it.
    pub fn with_holds(mut self, holds: Vec<SlotHold>, revision: u64) -> SlotMap {
        for range in holds.iter().flat_map(|hold| &hold.slots) {
            let slots = self.owners.get_mut(usize::from(range.start)..=usize::from(range.end));
            slots.into_iter().flatten().filter(|owner| **owner != UNBOUND).for_each(|owner| *owner |= MOVING);
        }
        (self.holds, self.revision) = (holds, revision);
        self
    }

    /// Slots of this master whose new owner is not known: see [`SlotMigration::is_offered`].
    pub fn offered(&self) -> impl Iterator<Item = SlotHold> + '_ {
        let is_offered = |one: &&SlotMigration| one.is_active() && one.is_offered && one.source == self.me;
        let hold = |one: &SlotMigration| SlotHold { slots: one.slots.clone(), who: WhoWaits::Everybody };
        self.migrations.iter().filter(is_offered).map(hold)
    }

    /// Migrations from or to this node's group, in the order of their plans.
    pub fn migrations(&self) -> &[SlotMigration] {
        &self.migrations
    }

    /// The migration called `id`, if it is from or to this node's group.
    pub fn migration(&self, id: &str) -> Option<&SlotMigration> {
        self.migrations.iter().find(|one| one.id == id)
    }

    /// Returns true if `slot` is arriving at this node's group as a whole.
    pub fn is_arriving(&self, slot: u16) -> bool {
        let own = self.own_group();
        let arrives = |one: &SlotMigration| one.is_active() && own.is_some_and(|own| own.id == one.to);
        self.migrations.iter().any(|one| arrives(one) && one.has(slot))
    }

    /// Returns true if slots are arriving at this node's group by the migration `id`, in its attempt of this number.
    pub fn gets(&self, id: &str, attempt: u64) -> bool {
        let own = self.own_group().map(|group| group.id.as_str());
        let one = self.migration(id).filter(|one| one.is_active() && own == Some(&one.to));
        one.is_some_and(|one| one.attempt == attempt)
    }

    /// The slots whose keys are not to be seen here.
    pub fn hidden(&self) -> impl Iterator<Item = u16> + '_ {
        let own = self.own_group().map(|group| group.id.as_str());
        let hides = move |one: &&SlotMigration| own.is_some() && one.hider() == own;
        let slots = self.migrations.iter().filter(hides).flat_map(|one| &one.slots);
        slots.flat_map(|range| range.start..=range.end).filter(|slot| !self.is_own(*slot))
    }

    /// Returns true if commands must be looked at with their shards held: slots move to or from this node, or are held.
    #[inline]
    pub fn must_look(&self) -> bool {
        !self.moves.is_empty() || !self.holds.is_empty() || self.gets_slots
    }

    /// Returns true if slots are arriving at this node's group as a whole.
    #[inline]
    pub fn gets_slots(&self) -> bool {
        self.gets_slots
    }

    /// Returns true if commands of some slots wait.
    #[inline]
    pub fn is_holding(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Returns the commands of `slot` that wait, if any do.
    pub fn who_waits(&self, slot: u16) -> Option<WhoWaits> {
        let has = |hold: &&SlotHold| hold.slots.iter().any(|own| own.start <= slot && slot <= own.end);
        self.holds.iter().filter(has).map(|hold| hold.who).max()
    }

    /// The same map with the address `ip` of the node `id`, for answers.
    pub fn with_ip_of(&self, id: &str, ip: &str) -> SlotMap {
        let mut map = self.clone();
        for group in &mut map.groups {
            let nodes = std::iter::once(&mut group.master).chain(&mut group.replicas);
            nodes.filter(|node| node.id == id).for_each(|node| node.ip = ip.to_owned());
        }
        map
    }

    /// The slots of this node's group that move key by key, in ascending order.
    pub fn moves(&self) -> &[SlotMove] {
        &self.moves
    }

    /// The move of `slot`, if it moves to or from this node's group.
    pub fn move_of(&self, slot: u16) -> Option<&SlotMove> {
        let at = self.moves.binary_search_by_key(&slot, |one| one.slot).ok()?;
        self.moves.get(at)
    }

    /// The group called `id`.
    pub fn group(&self, id: &str) -> Option<&NodeGroup> {
        self.groups.iter().find(|group| group.id == id)
    }

    /// The largest epoch of a group.
    pub fn epoch(&self) -> u64 {
        self.groups.iter().map(|group| group.epoch).max().unwrap_or(0)
    }

    /// The groups, in the order of the source.
    pub fn groups(&self) -> &[NodeGroup] {
        &self.groups
    }

    /// The id of the node that holds this map.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// The place of the node that holds this map.
    pub fn place(&self) -> NodeRole {
        self.place
    }

    /// The group of the node that holds this map.
    pub fn own_group(&self) -> Option<&NodeGroup> {
        self.groups.get(self.place.group()?)
    }

    /// The number of the map: a later one is greater.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The table of owners: the index of each slot's group, with [`MOVING`] if its keys must be looked at, or [`UNBOUND`].
    #[inline]
    pub fn owners(&self) -> &[u16; SLOTS_LEN as usize] {
        &self.owners
    }

    /// The index of the group that owns `slot`.
    #[inline]
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let owner = *self.owners.get(usize::from(slot))?;
        (owner != UNBOUND).then_some(usize::from(owner & !MOVING))
    }

    /// Whether the group of this node owns `slot`.
    pub fn is_own(&self, slot: u16) -> bool {
        let owner = self.owner(slot);
        owner.is_some() && owner == self.place.group()
    }

    /// Returns a mark for each slot of this node's group.
    pub fn own_slots(&self) -> Arc<[bool]> {
        (0..SLOTS_LEN).map(|slot| self.is_own(slot)).collect()
    }

    /// Slots with an owner.
    pub fn bound_len(&self) -> usize {
        self.bound_len
    }

    /// Slots whose master has failed.
    pub fn failed_len(&self) -> usize {
        self.failed_len
    }

    /// Whether every slot has an owner that has not failed.
    pub fn covers_all(&self) -> bool {
        self.bound_len == usize::from(SLOTS_LEN) && self.failed_len == 0
    }

    /// The group and the node with the id `id`.
    pub fn find(&self, id: &[u8]) -> Option<(&NodeGroup, &MapNode)> {
        self.groups.iter().find_map(|group| {
            let node = group.nodes().find(|node| node.id.as_bytes() == id)?;
            Some((group, node))
        })
    }
}

/// Puts ranges in order and joins those that touch. Errors: the first slot that two of them have.
pub fn join_ranges(mut ranges: Vec<SlotRange>) -> Result<Vec<SlotRange>, u16> {
    ranges.sort_unstable();
    let mut joined: Vec<SlotRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(before) if range.start <= before.end => return Err(range.start),
            Some(before) if range.start == before.end + 1 => before.end = range.end,
            _ => joined.push(range),
        }
    }
    Ok(joined)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn node(id: &str, port: u16) -> MapNode {
        MapNode {
            id: id.to_owned(),
            ip: "10.0.0.1".to_owned(),
            port,
            tls_port: 0,
            bus_port: port + 10_000,
            hostname: String::new(),
            health: Health::Online,
            boot: format!("{id}-1"),
        }
    }

    pub(crate) fn group(id: &str, port: u16, slots: &[(u16, u16)], replicas: &[MapNode]) -> NodeGroup {
        NodeGroup {
            id: id.to_owned(),
            epoch: 5,
            slots: slots.iter().map(|&(start, end)| SlotRange { start, end }).collect(),
            master: node(id, port),
            replicas: replicas.to_vec(),
        }
    }

    #[test]
    fn owners_follow_the_ranges() {
        let groups =
            vec![group("a", 1, &[(0, 99), (200, 200)], &[node("r", 3)]), group("b", 2, &[(100, 199)], &[])];
        let map = SlotMap::new(groups, "r", 7);
        assert_eq!(
            [0, 99, 100, 199, 200, 201].map(|slot| map.owner(slot)),
            [Some(0), Some(0), Some(1), Some(1), Some(0), None]
        );
        assert_eq!(map.place(), NodeRole::Replica(0));
        assert!(map.is_own(200) && !map.is_own(100) && !map.is_own(201));
        assert_eq!((map.bound_len(), map.covers_all()), (201, false));
        assert_eq!(map.find(b"b").map(|(_, node)| node.port), Some(2));
        assert_eq!(SlotMap::new(Vec::new(), "x", 0).place(), NodeRole::Nowhere);
    }

    #[test]
    fn ranges_are_joined_and_doubles_refused() {
        let range = |start, end| SlotRange { start, end };
        assert_eq!(
            join_ranges(vec![range(5, 9), range(0, 4), range(11, 11)]),
            Ok(vec![range(0, 9), range(11, 11)])
        );
        assert_eq!(join_ranges(vec![range(5, 9), range(0, 5)]), Err(5));
    }
}

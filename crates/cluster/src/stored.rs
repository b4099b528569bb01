//! The map as a store keeps it: one value, which every node reads and changes as a whole.
//!
//! Made of the same groups as any map. A group that no `CLUSTER MEET` has joined yet waits beside the cluster with its slots;
//! its nodes see nobody else. Read and written as JSON by the server's thread of the store; `change` holds the changes.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use darter_base::crc::SLOTS_LEN;
use serde_json::{Value, json};

use crate::map::{GROUPS_MAX, Health, MapNode, NodeGroup, SlotMap, SlotMove, SlotRange, join_ranges};
use crate::migration::SlotMigration;

/// See above.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredMap {
    /// The cluster.
    pub joined: Vec<NodeGroup>,
    /// Groups that have met nobody.
    pub waiting: Vec<NodeGroup>,
    /// Slots that move key by key.
    pub moves: Vec<SlotMove>,
    /// Slots that move as a whole, and such moves that have ended.
    pub migrations: Vec<SlotMigration>,
    /// Ids of the nodes that were forgotten last, the latest at the end.
    pub forgotten: Vec<String>,
    /// When nodes that have met nobody were heard of last, Unix seconds.
    pub heard: BTreeMap<String, u64>,
    /// A configuration has pushed it: a node that it does not name sees all others.
    pub is_pushed: bool,
}

/// The place of a group in a [`StoredMap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupPlace {
    /// It is in the cluster.
    Joined(usize),
    /// It has met nobody.
    Waiting(usize),
}

impl StoredMap {
    /// The map as the node `me` sees it: the cluster, or its own group while that has met nobody.
    pub fn view(&self, me: &str, revision: u64) -> SlotMap {
        let groups = match self.place_of(me) {
            Some(GroupPlace::Joined(_)) => self.joined.clone(),
            Some(GroupPlace::Waiting(at)) => self.waiting.get(at).cloned().into_iter().collect(),
            None if self.is_pushed => self.joined.clone(),
            None => Vec::new(),
        };
        SlotMap::new(groups, me, revision).with_moves(&self.moves).with_migrations(&self.migrations)
    }

    /// The place of the group that has the node `id`.
    pub fn place_of(&self, id: &str) -> Option<GroupPlace> {
        let find = |groups: &[NodeGroup]| groups.iter().position(|group| group.has(id));
        let joined = find(&self.joined).map(GroupPlace::Joined);
        joined.or_else(|| find(&self.waiting).map(GroupPlace::Waiting))
    }

    /// The group at a place.
    pub fn group(&self, place: GroupPlace) -> Option<&NodeGroup> {
        match place {
            GroupPlace::Joined(at) => self.joined.get(at),
            GroupPlace::Waiting(at) => self.waiting.get(at),
        }
    }

    /// The group at a place, to be changed.
    pub fn group_mut(&mut self, place: GroupPlace) -> Option<&mut NodeGroup> {
        match place {
            GroupPlace::Joined(at) => self.joined.get_mut(at),
            GroupPlace::Waiting(at) => self.waiting.get_mut(at),
        }
    }

    /// The largest epoch of a group.
    pub fn epoch(&self) -> u64 {
        self.joined.iter().chain(&self.waiting).map(|group| group.epoch).max().unwrap_or(0)
    }

    /// As the store keeps it.
    pub fn to_json(&self) -> Vec<u8> {
        let groups = |groups: &[NodeGroup]| groups.iter().map(group_value).collect::<Vec<_>>();
        let moves: Vec<Value> = self.moves.iter().map(SlotMove::to_value).collect();
        let migrations: Vec<Value> = self.migrations.iter().map(SlotMigration::to_value).collect();
        let value = json!({
            "joined": groups(&self.joined), "waiting": groups(&self.waiting), "moves": moves,
            "migrations": migrations, "forgotten": self.forgotten,
            "heard": self.heard, "pushed": self.is_pushed,
        });
        value.to_string().into_bytes()
    }

    /// Reads what [`StoredMap::to_json`] has written. Errors: the first thing that is wrong, in words.
    pub fn parse(bytes: &[u8]) -> Result<StoredMap, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("no JSON: {error}"))?;
        let groups = |name: &str| -> Result<Vec<NodeGroup>, String> {
            let items = list(&value, name)?;
            items.iter().map(group).collect()
        };
        let moves: Result<Vec<SlotMove>, String> =
            list(&value, "moves")?.iter().map(SlotMove::from_value).collect();
        // The map of an older version has none.
        let migrations = value.get("migrations").map_or(Ok(&[][..]), |_| list(&value, "migrations"))?;
        let migrations: Result<Vec<SlotMigration>, String> =
            migrations.iter().map(SlotMigration::from_value).collect();
        let forgotten = list(&value, "forgotten")?.iter().filter_map(Value::as_str).map(str::to_owned);
        let heard = value.get("heard").and_then(Value::as_object).into_iter().flatten();
        let map = StoredMap {
            joined: groups("joined")?,
            waiting: groups("waiting")?,
            moves: moves?,
            migrations: migrations?,
            forgotten: forgotten.collect(),
            is_pushed: value.get("pushed").and_then(Value::as_bool).unwrap_or(false),
            heard: heard.filter_map(|(id, at)| Some((id.clone(), at.as_u64()?))).collect(),
        };
        map.check()?;
        Ok(map)
    }

    /// Errors: a node is there twice, or a slot has two owners.
    fn check(&self) -> Result<(), String> {
        if self.joined.len() > GROUPS_MAX {
            return Err(format!("it has more than {GROUPS_MAX} groups"));
        }
        let mut ids = HashSet::new();
        for group in self.joined.iter().chain(&self.waiting) {
            if let Some(node) = group.nodes().find(|node| !ids.insert(node.id.as_str())) {
                return Err(format!("the node {} is there twice", node.id));
            }
        }
        let ranges = self.joined.iter().flat_map(|group| group.slots.iter().copied()).collect();
        join_ranges(ranges).map(drop).map_err(|slot| format!("slot {slot} has two owners"))
    }
}

fn group_value(group: &NodeGroup) -> Value {
    let slots: Vec<[u16; 2]> = group.slots.iter().map(|range| [range.start, range.end]).collect();
    let replicas: Vec<Value> = group.replicas.iter().map(node_value).collect();
    json!({
        "id": group.id, "epoch": group.epoch, "slots": slots, "master": node_value(&group.master), "replicas": replicas,
    })
}

fn node_value(node: &MapNode) -> Value {
    json!({
        "id": node.id, "ip": node.ip, "port": node.port, "tls_port": node.tls_port, "bus_port": node.bus_port, "hostname": node.hostname,
        "boot": node.boot, "health": node.health.name(),
    })
}

pub(crate) fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], String> {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).ok_or_else(|| format!("{name} is missing"))
}

pub(crate) fn text(value: &Value, name: &str) -> Result<String, String> {
    let text = value.get(name).and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| format!("{name} is missing"))
}

fn port(value: &Value, name: &str) -> Result<u16, String> {
    let port = value.get(name).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    port.ok_or_else(|| format!("{name} is not a port"))
}

fn slot(value: Option<&Value>) -> Result<u16, String> {
    let slot = value.and_then(Value::as_u64).and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| *slot < SLOTS_LEN).ok_or_else(|| "a slot is none".to_owned())
}

/// A range of slots: its first and its last.
pub(crate) fn range_of(value: &Value) -> Result<SlotRange, String> {
    let (start, end) = (slot(value.get(0))?, slot(value.get(1))?);
    if start <= end { Ok(SlotRange { start, end }) } else { Err("a range is reversed".to_owned()) }
}

fn group(value: &Value) -> Result<NodeGroup, String> {
    let ranges: Result<Vec<SlotRange>, String> = list(value, "slots")?.iter().map(range_of).collect();
    let replicas: Result<Vec<MapNode>, String> = list(value, "replicas")?.iter().map(node).collect();
    Ok(NodeGroup {
        id: text(value, "id")?,
        epoch: value.get("epoch").and_then(Value::as_u64).ok_or("epoch is missing")?,
        slots: join_ranges(ranges?).map_err(|slot| format!("slot {slot} is there twice"))?,
        master: node(value.get("master").ok_or("master is missing")?)?,
        replicas: replicas?,
    })
}

fn node(value: &Value) -> Result<MapNode, String> {
    Ok(MapNode {
        id: text(value, "id")?,
        ip: text(value, "ip")?,
        port: port(value, "port")?,
        // The map of an older version has neither this nor the last two.
        tls_port: port(value, "tls_port").unwrap_or(0),
        bus_port: port(value, "bus_port")?,
        hostname: text(value, "hostname")?,
        health: value.get("health").and_then(Value::as_str).and_then(Health::named).unwrap_or_default(),
        boot: value.get("boot").and_then(Value::as_str).unwrap_or_default().to_owned(),
    })
}

impl SlotMove {
    fn to_value(&self) -> Value {
        json!({ "slot": self.slot, "group": self.group, "way": self.way.name(), "other": self.other })
    }

    fn from_value(value: &Value) -> Result<SlotMove, String> {
        let way = text(value, "way")?;
        Ok(SlotMove {
            slot: slot(value.get("slot"))?,
            group: text(value, "group")?,
            way: crate::map::MoveWay::named(&way).ok_or("a way is none")?,
            other: text(value, "other")?,
        })
    }
}

/// Slots as CLUSTER NODES shows them, each after a space.
pub(crate) fn write_ranges(slots: &[SlotRange], text: &mut String) {
    for SlotRange { start, end } in slots {
        let _ = if start == end { write!(text, " {start}") } else { write!(text, " {start}-{end}") };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::map::tests::{group, node};
    use crate::map::{MoveWay, NodeRole};

    pub(crate) fn stored() -> StoredMap {
        StoredMap {
            joined: vec![
                group("a", 1, &[(0, 99), (200, 200)], &[node("r", 3)]),
                group("b", 2, &[(100, 199)], &[]),
            ],
            waiting: vec![group("c", 4, &[(300, 400)], &[])],
            moves: vec![SlotMove {
                slot: 7,
                group: "a".to_owned(),
                way: MoveWay::Migrating,
                other: "b".to_owned(),
            }],
            migrations: Vec::new(),
            forgotten: vec!["x".to_owned()],
            heard: BTreeMap::from([("c".to_owned(), 5)]),
            is_pushed: false,
        }
    }

    #[test]
    fn it_comes_back_and_damage_does_not() {
        let map = stored();
        let bytes = map.to_json();
        assert_eq!(StoredMap::parse(&bytes), Ok(map));
        for end in 0..bytes.len() {
            assert!(StoredMap::parse(&bytes[..end]).is_err(), "{end}");
        }
        let text = String::from_utf8(bytes).expect("text");
        for (from, to, why) in [
            ("[100,199]", "[99,199]", "slot 99 has two owners"),
            ("[100,199]", "[199,100]", "a range is reversed"),
            ("[100,199]", "[100,16384]", "a slot is none"),
            (r#""id":"r""#, r#""id":"b""#, "the node b is there twice"),
            (r#""way":"migrating""#, r#""way":"lost""#, "a way is none"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            assert_eq!(StoredMap::parse(text.replace(from, to).as_bytes()), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_node_sees_the_cluster_or_itself() {
        let map = stored();
        let seen = map.view("r", 9);
        assert_eq!((seen.groups().len(), seen.place()), (2, NodeRole::Replica(0)));
        assert_eq!(seen.move_of(7).map(|own| own.way), Some(MoveWay::Migrating));
        assert_eq!(map.view("b", 9).move_of(7), None, "the move is another group's");
        let alone = map.view("c", 9);
        assert_eq!((alone.groups().len(), alone.place(), alone.bound_len()), (1, NodeRole::Master(0), 101));
        assert_eq!(map.view("z", 9).place(), NodeRole::Nowhere);
    }

    #[test]
    fn sixteen_thousand_ranges_are_small() {
        let mut map = StoredMap::default();
        for at in 0..1000u16 {
            let slots: Vec<(u16, u16)> = (at..SLOTS_LEN).step_by(1000).map(|slot| (slot, slot)).collect();
            let id = format!("{at:040}");
            let mut one = group(&id, 1, &slots, &[]);
            one.master.id.clone_from(&id);
            map.joined.push(one);
        }
        let bytes = map.to_json();
        assert!(bytes.len() < 500_000, "{}", bytes.len());
        assert_eq!(
            StoredMap::parse(&bytes).map(|map| map.view(&format!("{:040}", 7), 1).bound_len()),
            Ok(16_384)
        );
    }
}

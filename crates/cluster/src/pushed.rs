//! A pushed configuration: the JSON of `DFLYCLUSTER CONFIG`, checked as a whole.
//!
//! Called when a configuration arrives and when an old one is read from disk. It returns all of it or one reason; a
//! configuration is never taken in part. Unknown members of objects are ignored, as Dragonfly ignores them.

use std::collections::HashSet;

use darter_base::crc::SLOTS_LEN;
use serde_json::{Map as Object, Value};

use crate::map::{GROUPS_MAX, Health, MapNode, NodeGroup, SlotRange, join_ranges};

/// Bytes that a configuration may have.
pub const CONFIG_BYTES_MAX: usize = 16 << 20;
/// Nodes that a configuration may have, masters included.
pub const NODES_MAX: usize = 1 << 15;
/// Bytes of an id, and of an address.
const ID_BYTES_MAX: usize = 64;
const ADDRESS_BYTES_MAX: usize = 253;
/// Redis' bus is this much above the port for clients.
const BUS_PORT_DISTANCE: u16 = 10_000;

/// A configuration that is right in itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PushedConfig {
    /// Its groups.
    pub groups: Vec<NodeGroup>,
    /// Slots that are to move.
    pub moves: Vec<PushedMove>,
}

/// Slots that are to move from one group to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushedMove {
    /// The id of the master that has them.
    pub source: String,
    /// The id of the master that gets them.
    pub target: String,
    /// The address at which the source reaches it.
    pub ip: String,
    /// See above.
    pub port: u16,
    /// The slots, joined and in ascending order.
    pub slots: Vec<SlotRange>,
}

/// Reads a configuration. Errors: the first thing that is wrong with it, in words.
pub fn parse(json: &[u8]) -> Result<PushedConfig, String> {
    if json.len() > CONFIG_BYTES_MAX {
        return Err(format!("it has more than {CONFIG_BYTES_MAX} bytes"));
    }
    // The reader itself refuses values that are nested more than 128 deep.
    let value: Value = serde_json::from_slice(json).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Array(items) = value else { return Err("it is not an array of groups".to_owned()) };
    if items.len() > GROUPS_MAX {
        return Err(format!("it has more than {GROUPS_MAX} groups"));
    }
    let mut groups = Vec::with_capacity(items.len());
    let mut moves = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let within = |why: String| format!("group {at}: {why}");
        let object = item.as_object().ok_or_else(|| within("it is not an object".to_owned()))?;
        let group = group(object).map_err(within)?;
        let found: Result<Vec<PushedMove>, String> = match object.get("migrations") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(|item| migration(&group.id, item)).collect(),
            Some(_) => Err("migrations is not an array".to_owned()),
        };
        moves.extend(found.map_err(within)?);
        groups.push(group);
    }
    check_nodes(&groups)?;
    check_slots(&groups)?;
    check_migrations(&groups, &moves)?;
    Ok(PushedConfig { groups, moves })
}

fn group(object: &Object<String, Value>) -> Result<NodeGroup, String> {
    let slots = ranges(object)?;
    let master = object.get("master").ok_or("master is missing")?;
    let master = node(master).map_err(|why| format!("master: {why}"))?;
    let replicas = match object.get("replicas") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => {
            let nodes = items.iter().enumerate();
            let nodes = nodes.map(|(at, item)| node(item).map_err(|why| format!("replica {at}: {why}")));
            nodes.collect::<Result<_, _>>()?
        }
        Some(_) => return Err("replicas is not an array".to_owned()),
    };
    Ok(NodeGroup { id: master.id.clone(), epoch: 0, slots, master, replicas })
}

fn ranges(object: &Object<String, Value>) -> Result<Vec<SlotRange>, String> {
    let Some(Value::Array(items)) = object.get("slot_ranges") else {
        return Err("slot_ranges is not an array".to_owned());
    };
    let slot = |object: &Object<String, Value>, name: &str| {
        let number = object.get(name).and_then(Value::as_u64);
        let slot = number.and_then(|number| u16::try_from(number).ok()).filter(|slot| *slot < SLOTS_LEN);
        slot.ok_or_else(|| format!("the {name} of a slot range is not a slot"))
    };
    let mut ranges = Vec::new();
    for item in items {
        let object = item.as_object().ok_or("a slot range is not an object")?;
        let (start, end) = (slot(object, "start")?, slot(object, "end")?);
        if start > end {
            return Err(format!("the slot range {start} to {end} is reversed"));
        }
        ranges.push(SlotRange { start, end });
    }
    join_ranges(ranges).map_err(|slot| format!("slot {slot} is there twice"))
}

fn node(value: &Value) -> Result<MapNode, String> {
    let object = value.as_object().ok_or("it is not an object")?;
    let health = match object.get("health") {
        None | Some(Value::Null) => Health::Online,
        Some(Value::String(name)) => {
            Health::named(&name.to_lowercase()).ok_or_else(|| format!("unknown health '{}'", shown(name)))?
        }
        Some(_) => return Err("health is not a text".to_owned()),
    };
    let hostname = match object.get("hostname") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(name)) if name.is_empty() => String::new(),
        Some(_) => word(object, "hostname", ADDRESS_BYTES_MAX)?,
    };
    let port = port(object)?;
    Ok(MapNode {
        id: word(object, "id", ID_BYTES_MAX)?,
        ip: word(object, "ip", ADDRESS_BYTES_MAX)?,
        port,
        tls_port: 0,
        bus_port: port.wrapping_add(BUS_PORT_DISTANCE),
        hostname,
        health,
        boot: String::new(),
    })
}

/// A text of characters that CLUSTER NODES can show: printable ASCII, without a space, a comma and `@`.
fn word(object: &Object<String, Value>, name: &str, bytes_max: usize) -> Result<String, String> {
    let Some(Value::String(text)) = object.get(name) else { return Err(format!("{name} is not a text")) };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'@');
    if text.is_empty() || text.len() > bytes_max || !text.bytes().all(is_plain) {
        return Err(format!("{name} '{}' is not 1 to {bytes_max} plain characters", shown(text)));
    }
    Ok(text.clone())
}

fn port(object: &Object<String, Value>) -> Result<u16, String> {
    let number = object.get("port").and_then(Value::as_u64);
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|port| *port > 0)
        .ok_or("port is not a port".to_owned())
}

/// A text from outside in an error: its beginning, escaped.
fn shown(text: &str) -> String {
    text.chars().take(40).collect::<String>().escape_default().to_string()
}

fn migration(source: &str, value: &Value) -> Result<PushedMove, String> {
    let within = |why: String| format!("migration: {why}");
    let object = value.as_object().ok_or_else(|| within("it is not an object".to_owned()))?;
    Ok(PushedMove {
        source: source.to_owned(),
        target: word(object, "node_id", ID_BYTES_MAX).map_err(within)?,
        ip: word(object, "ip", ADDRESS_BYTES_MAX).map_err(within)?,
        port: port(object).map_err(within)?,
        slots: ranges(object).map_err(within)?,
    })
}

fn check_nodes(groups: &[NodeGroup]) -> Result<(), String> {
    let (mut ids, mut addresses) = (HashSet::new(), HashSet::new());
    for node in groups.iter().flat_map(NodeGroup::nodes) {
        if ids.len() == NODES_MAX {
            return Err(format!("it has more than {NODES_MAX} nodes"));
        }
        if !ids.insert(node.id.as_str()) {
            return Err(format!("the node {} is there twice", node.id));
        }
        if !addresses.insert((node.ip.as_str(), node.port)) {
            return Err(format!("the address {}:{} is there twice", node.ip, node.port));
        }
    }
    Ok(())
}

fn check_slots(groups: &[NodeGroup]) -> Result<(), String> {
    let mut owners: Vec<Option<&str>> = vec![None; usize::from(SLOTS_LEN)];
    for group in groups {
        for range in &group.slots {
            for slot in range.start..=range.end {
                let Some(owner) = owners.get_mut(usize::from(slot)) else { continue };
                if let Some(other) = owner.replace(&group.id) {
                    return Err(format!("slot {slot} belongs to {other} and to {}", group.id));
                }
            }
        }
    }
    Ok(())
}

fn check_migrations(groups: &[NodeGroup], moves: &[PushedMove]) -> Result<(), String> {
    let mut leaving = HashSet::new();
    for one in moves {
        if !groups.iter().any(|group| group.master.id == one.target) {
            return Err(format!("migration: the node {} is no master", one.target));
        }
        if one.source == one.target {
            return Err(format!("migration: the node {} has the slots already", one.target));
        }
        if one.slots.is_empty() {
            return Err(format!("migration: no slots go to {}", one.target));
        }
        let own = groups.iter().find(|group| group.id == one.source).map_or(&[][..], |group| &group.slots);
        let has = |range: &SlotRange| own.iter().any(|own| own.start <= range.start && range.end <= own.end);
        if let Some(range) = one.slots.iter().find(|range| !has(range)) {
            return Err(format!("migration: the slots {} to {} are not the group's", range.start, range.end));
        }
        let mut slots = one.slots.iter().flat_map(|range| range.start..=range.end);
        if let Some(slot) = slots.find(|slot| !leaving.insert(*slot)) {
            return Err(format!("migration: the slot {slot} is to move twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"[
        {"slot_ranges": [{"start": 0, "end": 8191}], "master": {"id": "a", "ip": "10.0.0.1", "port": 7001},
         "replicas": [{"id": "ra", "ip": "10.0.0.1", "port": 7003, "health": "loading"}], "migrations": []},
        {"slot_ranges": [{"start": 12000, "end": 16383}, {"start": 8192, "end": 11999}],
         "master": {"id": "b", "ip": "host.example", "port": 7002, "health": "online", "more": [1]}}]"#;

    fn refusal(json: &str) -> String {
        parse(json.as_bytes()).expect_err(json)
    }

    #[test]
    fn a_good_configuration_becomes_groups() {
        let groups = parse(GOOD.as_bytes()).expect("good").groups;
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].replicas[0].health, Health::Loading);
        assert_eq!(groups[1].slots, [SlotRange { start: 8192, end: 16383 }]);
        assert_eq!(parse(b"[]"), Ok(PushedConfig::default()));
    }

    #[test]
    fn a_bad_one_is_refused_with_the_reason() {
        for (from, to, reason) in [
            (r#""start": 8192"#, r#""start": 8191"#, "slot 8191 belongs to a and to b"),
            (r#""start": 12000"#, r#""start": 11000"#, "group 1: slot 11000 is there twice"),
            (r#""end": 16383"#, r#""end": 16384"#, "group 1: the end of a slot range is not a slot"),
            (r#""end": 16383"#, r#""end": -1"#, "group 1: the end of a slot range is not a slot"),
            (r#""end": 8191"#, r#""end": 1.5"#, "group 0: the end of a slot range is not a slot"),
            (r#""start": 12000"#, r#""start": 16383.0"#, "group 1: the start of a slot range is not a slot"),
            (r#""id": "b""#, r#""id": "ra""#, "the node ra is there twice"),
            (
                r#""ip": "host.example", "port": 7002"#,
                r#""ip": "10.0.0.1", "port": 7003"#,
                "the address 10.0.0.1:7003 is there twice",
            ),
            (r#""id": "b""#, r#""id": "b c""#, "group 1: master: id 'b c' is not 1 to 64 plain characters"),
            (r#""id": "b""#, r#""id": """#, "group 1: master: id '' is not 1 to 64 plain characters"),
            (
                r#""ip": "host.example""#,
                r#""ip": "h\n""#,
                r"group 1: master: ip 'h\n' is not 1 to 253 plain characters",
            ),
            (r#""port": 7002"#, r#""port": 70000"#, "group 1: master: port is not a port"),
            (r#""port": 7002"#, r#""port": 0"#, "group 1: master: port is not a port"),
            (r#""health": "online""#, r#""health": "well""#, "group 1: master: unknown health 'well'"),
            (r#""master": {"id": "b""#, r#""mister": {"id": "b""#, "group 1: master is missing"),
            (r#""migrations": []"#, r#""migrations": 1"#, "group 0: migrations is not an array"),
            (
                r#""migrations": []"#,
                r#""migrations": [{"node_id": "c", "ip": "x", "port": 1, "slot_ranges": []}]"#,
                "migration: the node c is no master",
            ),
            (
                r#""migrations": []"#,
                r#""migrations": [{"node_id": "b", "ip": "x", "port": 1, "slot_ranges": [{"start": 1, "end": 9000}]}]"#,
                "migration: the slots 1 to 9000 are not the group's",
            ),
            (
                r#""migrations": []"#,
                r#""migrations": [{"node_id": "b", "ip": "x", "port": 1, "slot_ranges": []}]"#,
                "migration: no slots go to b",
            ),
            (
                r#""migrations": []"#,
                r#""migrations": [{"node_id": "b", "ip": "x", "port": 1, "slot_ranges": [{"start": 1, "end": 9}]},
                    {"node_id": "b", "ip": "x", "port": 1, "slot_ranges": [{"start": 9, "end": 10}]}]"#,
                "migration: the slot 9 is to move twice",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            assert_eq!(refusal(&GOOD.replace(from, to)), reason);
        }
        assert_eq!(refusal("{}"), "it is not an array of groups");
        assert_eq!(refusal("[1]"), "group 0: it is not an object");
        assert!(refusal("[").starts_with("no JSON: "));
        assert!(refusal(&"[".repeat(100_000)).starts_with("no JSON: recursion limit exceeded"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(json in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&json);
        }

        #[test]
        fn a_damaged_configuration_is_answered(at in 0usize..GOOD.len(), byte in any::<u8>()) {
            let mut json = GOOD.as_bytes().to_vec();
            json[at] = byte;
            if let Ok(config) = parse(&json) {
                crate::SlotMap::new(config.groups, "a", 1);
            }
        }
    }
}

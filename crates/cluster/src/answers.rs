//! The answers that clients read from the map: CLUSTER SLOTS, SHARDS, NODES, INFO and REPLICAS.
//!
//! Called by the server's CLUSTER commands. Hidden nodes are left out. The shapes are those of Redis 7.0.

use std::fmt::Write;

use darter_base::crc::SLOTS_LEN;
use darter_wire::Reply;

use crate::map::{Health, LinkKind, MapNode, MoveWay, NodeGroup, SlotMap, SlotRange};
use crate::route::RoutingRules;
use crate::stored::write_ranges;

/// What a client is told of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressView {
    /// The form of a host.
    pub form: AddressForm,
    /// How the client is connected: it is told ports of this kind.
    pub link: LinkKind,
}

/// The form of address that clients get (`cluster-preferred-endpoint-type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressForm {
    /// The IP address.
    Ip,
    /// The host name.
    Hostname,
    /// None: clients keep the address that they have used.
    Unknown,
}

impl AddressForm {
    /// The address of `node` in this form.
    pub fn of(self, node: &MapNode) -> Option<&str> {
        match self {
            AddressForm::Ip => Some(&node.ip),
            AddressForm::Hostname if node.hostname.is_empty() => Some("?"),
            AddressForm::Hostname => Some(&node.hostname),
            AddressForm::Unknown => None,
        }
    }
}

fn is_shown(node: &MapNode) -> bool {
    node.health != Health::Hidden
}

/// CLUSTER SLOTS: each range with its nodes, in the order of the slots.
pub fn slots(map: &SlotMap, view: AddressView, reply: &mut Reply<'_>) {
    let mut ranges: Vec<(SlotRange, &NodeGroup)> =
        map.groups().iter().flat_map(|group| group.slots.iter().map(move |range| (*range, group))).collect();
    ranges.retain(|(_, group)| is_shown(&group.master));
    ranges.sort_unstable_by_key(|(range, _)| *range);
    reply.array(ranges.len());
    for (range, group) in ranges {
        // Replicas that cannot serve are left out, as in Redis.
        let serves = |node: &&MapNode| node.health == Health::Online;
        let replicas = group.replicas.iter().filter(serves);
        reply.array(3 + replicas.clone().count());
        reply.int(i64::from(range.start));
        reply.int(i64::from(range.end));
        std::iter::once(&group.master).chain(replicas).for_each(|node| slots_node(node, view, reply));
    }
}

fn slots_node(node: &MapNode, AddressView { form, link }: AddressView, reply: &mut Reply<'_>) {
    reply.array(4);
    reply.bulk_or_null(form.of(node).map(str::as_bytes));
    reply.int(i64::from(node.port_for(link)));
    reply.bulk(node.id.as_bytes());
    let others = [
        ("ip", form != AddressForm::Ip, &node.ip),
        ("hostname", form != AddressForm::Hostname && !node.hostname.is_empty(), &node.hostname),
    ];
    let others = others.iter().filter(|(_, is_shown, _)| *is_shown);
    reply.map(others.clone().count());
    for (name, _, value) in others {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// CLUSTER SHARDS: each group with its slots and nodes.
pub fn shards(map: &SlotMap, endpoint: AddressForm, reply: &mut Reply<'_>) {
    reply.array(map.groups().len());
    for group in map.groups() {
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(group.slots.len() * 2);
        for range in &group.slots {
            reply.int(i64::from(range.start));
            reply.int(i64::from(range.end));
        }
        reply.bulk(b"nodes");
        let nodes: Vec<&MapNode> = group.nodes().filter(|node| is_shown(node)).collect();
        reply.array(nodes.len());
        for node in nodes {
            let role = if node.id == group.master.id { "master" } else { "replica" };
            shards_node(node, role, endpoint, reply);
        }
    }
}

fn shards_node(node: &MapNode, role: &str, endpoint: AddressForm, reply: &mut Reply<'_>) {
    // A node whose only port is encrypted has no other to show.
    let ports =
        [("port", node.port, node.port != node.tls_port), ("tls-port", node.tls_port, node.tls_port != 0)];
    let ports = ports.iter().filter(|(_, _, is_shown)| *is_shown);
    reply.map(6 + ports.clone().count() + usize::from(!node.hostname.is_empty()));
    reply.bulk(b"id");
    reply.bulk(node.id.as_bytes());
    for (name, port, _) in ports {
        reply.bulk(name.as_bytes());
        reply.int(i64::from(*port));
    }
    reply.bulk(b"ip");
    reply.bulk(node.ip.as_bytes());
    reply.bulk(b"endpoint");
    reply.bulk_or_null(endpoint.of(node).map(str::as_bytes));
    if !node.hostname.is_empty() {
        reply.bulk(b"hostname");
        reply.bulk(node.hostname.as_bytes());
    }
    reply.bulk(b"role");
    reply.bulk(role.as_bytes());
    reply.bulk(b"replication-offset");
    reply.int(0);
    reply.bulk(b"health");
    reply.bulk(node.health.shown().as_bytes());
}

/// CLUSTER NODES: a line for each node, with its port of this kind.
pub fn nodes(map: &SlotMap, link: LinkKind) -> String {
    let mut text = String::new();
    for group in map.groups() {
        group.nodes().filter(|node| is_shown(node)).for_each(|node| {
            node_line(map, group, node, link, &mut text);
            text.push('\n');
        });
    }
    text
}

/// CLUSTER REPLICAS of a group: the lines of CLUSTER NODES.
pub fn replicas(map: &SlotMap, group: &NodeGroup, link: LinkKind) -> Vec<String> {
    let line = |node: &MapNode| {
        let mut text = String::new();
        node_line(map, group, node, link, &mut text);
        text
    };
    group.replicas.iter().filter(|node| is_shown(node)).map(line).collect()
}

fn node_line(map: &SlotMap, group: &NodeGroup, node: &MapNode, link: LinkKind, text: &mut String) {
    let MapNode { id, ip, bus_port, hostname, .. } = node;
    let port = node.port_for(link);
    let comma = if hostname.is_empty() { "" } else { "," };
    let me = if *id == map.me() { "myself," } else { "" };
    let is_master = *id == group.master.id;
    let (role, master) = if is_master { ("master", "-") } else { ("slave", group.master.id.as_str()) };
    let fail = if node.health == Health::Fail { ",fail" } else { "" };
    let link = if node.health == Health::Fail { "disconnected" } else { "connected" };
    let epoch = group.epoch;
    let _ = write!(
        text,
        "{id} {ip}:{port}@{bus_port}{comma}{hostname} {me}{role}{fail} {master} 0 0 {epoch} {link}"
    );
    if is_master {
        write_ranges(&group.slots, text);
    }
    if *id == map.me() && is_master {
        for one in map.moves() {
            let other = map.group(&one.other).map_or(one.other.as_str(), |group| &group.master.id);
            let arrow = if one.way == MoveWay::Migrating { "->-" } else { "-<-" };
            let _ = write!(text, " [{}{arrow}{other}]", one.slot);
        }
    }
}

/// CLUSTER INFO, under the settings that routing depends on.
pub fn info(map: &SlotMap, rules: &RoutingRules) -> String {
    let groups = map.groups();
    let known = groups.iter().flat_map(NodeGroup::nodes).filter(|node| is_shown(node)).count().max(1);
    let size = groups.iter().filter(|group| !group.slots.is_empty()).count();
    let (bound, failed, epoch) = (map.bound_len(), map.failed_len(), map.epoch());
    let own_epoch = map.own_group().map_or(0, |group| group.epoch);
    let is_ok = map.covers_all() || map.bound_len() > 0 && !rules.needs_all;
    let state = if is_ok { "ok" } else { "fail" };
    format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{bound}\r\ncluster_slots_ok:{}\r\ncluster_slots_pfail:0\r\n\
         cluster_slots_fail:{failed}\r\ncluster_known_nodes:{known}\r\ncluster_size:{size}\r\n\
         cluster_current_epoch:{epoch}\r\ncluster_my_epoch:{own_epoch}\r\ncluster_stats_messages_sent:0\r\n\
         cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n",
        bound - failed
    )
}

const _: () = assert!(SLOTS_LEN == 16_384);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::{group, node};

    fn map() -> SlotMap {
        let mut hidden = node("h", 4);
        hidden.health = Health::Hidden;
        let mut failed = node("f", 5);
        failed.health = Health::Fail;
        let groups = vec![
            group("a", 1, &[(0, 0), (10_000, 16_383)], &[node("r", 3), hidden, failed]),
            group("b", 2, &[(1, 9_999)], &[]),
        ];
        SlotMap::new(groups, "b", 5)
    }

    #[test]
    fn nodes_are_lines() {
        assert_eq!(
            nodes(&map(), LinkKind::Plain),
            "a 10.0.0.1:1@10001 master - 0 0 5 connected 0 10000-16383\n\
             r 10.0.0.1:3@10003 slave a 0 0 5 connected\n\
             f 10.0.0.1:5@10005 slave,fail a 0 0 5 disconnected\n\
             b 10.0.0.1:2@10002 myself,master - 0 0 5 connected 1-9999\n"
        );
        assert_eq!(replicas(&map(), &map().groups()[0], LinkKind::Plain).len(), 2);
    }

    #[test]
    fn slots_are_in_order_with_the_nodes_that_serve() {
        let mut out = Vec::new();
        slots(
            &map(),
            AddressView { form: AddressForm::Ip, link: LinkKind::Plain },
            &mut Reply::new(&mut out, false),
        );
        let text = String::from_utf8(out).expect("text");
        let starts: Vec<&str> =
            text.split("*4\r\n$8\r\n10.0.0.1\r\n:").skip(1).map(|part| &part[..1]).collect();
        assert_eq!(starts, ["1", "3", "2", "1", "3"]);
        assert!(text.starts_with("*3\r\n*4\r\n:0\r\n:0\r\n"), "{text}");
    }

    #[test]
    fn info_counts() {
        let rules = RoutingRules {
            needs_all: true,
            reads_when_down: false,
            messages_when_down: true,
            crosses_own: false,
        };
        let text = info(&map(), &rules);
        assert!(
            text.contains("cluster_known_nodes:4\r\ncluster_size:2\r\ncluster_current_epoch:5\r\n"),
            "{text}"
        );
        assert!(text.contains("cluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n"), "{text}");
    }
}

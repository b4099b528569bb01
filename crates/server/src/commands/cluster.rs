//! CLUSTER, READONLY, READWRITE, ASKING: one server that owns every slot, so that cluster clients can use it.
//!
//! Keys of different slots may be used together. Commands that would change the cluster are missing.

use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_command::keys::slot::DISABLED;
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, help, no_subcommand, row};
use crate::dispatch::{Caller, ServerRun};
use darter_config::{Cluster, ClusterMode, Endpoint};

/// The family's commands; those about the keys of a slot are data commands (`darter_command::keys::slot`).
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("cluster", -2)
            .doc(Group::Cluster, "3.0.0", "", "Questions about the cluster.")
            .cost("Depends on subcommand."),
        no_subcommand,
    ),
    row(
        sub("cluster|count-failure-reports", 3, "3.0.0", "node-id", "Counts reports that a node has failed.")
            .tips(&["nondeterministic_output"])
            .flag(Flags::ADMIN)
            .cost("O(N) where N is the number of failure reports"),
        |caller, args, reply| {
            own_node(caller, args.at(2))?;
            reply.int(0);
            Ok(())
        },
    ),
    row(
        Spec::other("cluster|help", 2).flag(Flags::LOADING.with(Flags::STALE)).doc(
            Group::Cluster,
            "5.0.0",
            "",
            "Returns helpful text about the different subcommands.",
        ),
        help_cluster,
    ),
    row(
        sub("cluster|info", 2, "3.0.0", "", "Describes the state of the cluster.")
            .tips(&["nondeterministic_output"]),
        info,
    ),
    row(
        sub("cluster|keyslot", 3, "3.0.0", "key", "Returns the slot of a key.")
            .cost("O(N) where N is the number of bytes in the key"),
        keyslot,
    ),
    row(
        sub("cluster|links", 2, "7.0.0", "", "Lists links to other nodes.")
            .tips(&["nondeterministic_output"])
            .cost(BY_NODES),
        |caller, _, reply| {
            node(caller)?;
            reply.array(0);
            Ok(())
        },
    ),
    row(sub("cluster|myid", 2, "3.0.0", "", "Returns the id of this node."), myid),
    row(sub("cluster|myshardid", 2, "7.2.0", "", "Returns the id of this node's shard."), myid),
    row(
        sub("cluster|nodes", 2, "3.0.0", "", "Lists the nodes.")
            .tips(&["nondeterministic_output"])
            .cost(BY_NODES),
        nodes,
    ),
    replicas("cluster|replicas", "5.0.0").tips(&["nondeterministic_output"]),
    row(
        sub("cluster|reset", -2, "3.0.0", "[HARD | SOFT]", "Would make a node forget the cluster: refused.")
            .flag(Flags::ADMIN.with(Flags::NOSCRIPT))
            .cost("O(1)"),
        |caller, _, _| {
            node(caller)?;
            Err(Fault::text("ERR The emulated cluster is one server, which owns all slots and keeps them"))
        },
    ),
    row(
        sub("cluster|shards", 2, "7.0.0", "", "Lists slots and their nodes.")
            .tips(&["nondeterministic_output"])
            .cost(BY_NODES),
        shards,
    ),
    replicas("cluster|slaves", "3.0.0").tips(&["nondeterministic_output"]),
    row(
        sub("cluster|slots", 2, "3.0.0", "", "Lists slots and the addresses of their nodes.")
            .tips(&["nondeterministic_output"])
            .cost(BY_NODES),
        slots,
    ),
    plain("asking", Flags::FAST, "Follows a redirection; there are none here."),
    plain("readonly", LOADING_FAST, "Reads from replicas are fine with the client."),
    plain("readwrite", LOADING_FAST, "Reads from replicas are refused again."),
];

const BY_NODES: &str = "O(N) where N is the total number of Cluster nodes";
const LOADING_FAST: Flags = Flags::FAST.with(Flags::LOADING).with(Flags::STALE);

const fn sub(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::other(name, arity).flag(Flags::STALE).doc(Group::Cluster, since, syntax, summary)
}

const fn replicas(name: &'static str, since: &'static str) -> ServerCommand {
    let run: ServerRun = |caller, args, reply| {
        own_node(caller, args.at(2))?;
        reply.array(0);
        Ok(())
    };
    row(sub(name, 3, since, "node-id", "Lists the replicas of a node.").flag(Flags::ADMIN), run)
}

/// A command that cluster clients send, without an effect here.
const fn plain(name: &'static str, flags: Flags, summary: &'static str) -> ServerCommand {
    let run: ServerRun = |caller, _, reply| {
        node(caller)?;
        reply.ok();
        Ok(())
    };
    row(Spec::other(name, 1).flag(flags).doc(Group::Cluster, "3.0.0", "", summary), run)
}

/// This server as shown to cluster clients.
struct Node<'a> {
    id: &'a str,
    ip: String,
    port: u16,
    bus_port: u16,
    hostname: &'a str,
    endpoint: Endpoint,
}

impl Node<'_> {
    /// The address for clients to connect to; `None` for the one they are connected to.
    fn endpoint(&self) -> Option<&str> {
        match self.endpoint {
            Endpoint::Ip => Some(&self.ip),
            Endpoint::Hostname if self.hostname.is_empty() => Some("?"),
            Endpoint::Hostname => Some(self.hostname),
            Endpoint::Unknown => None,
        }
    }
}

/// This server. Errors: no cluster is emulated.
fn node<'a>(caller: &'a Caller<'_>) -> Result<Node<'a>, Fault> {
    let cluster: &Cluster = &caller.local.live.cluster;
    if cluster.mode == ClusterMode::Off {
        return Err(DISABLED);
    }
    let shared = caller.local.shared;
    // The address that the client has reached is one it can reach.
    let local = caller.info.local.parse::<std::net::SocketAddr>();
    let ip = match &*cluster.announce_ip {
        "" => local.map_or_else(|_| String::new(), |local| local.ip().to_canonical().to_string()),
        ip => ip.to_owned(),
    };
    let own_port = shared.port.load(std::sync::atomic::Ordering::Relaxed);
    let port = match cluster.announce_port {
        0 => u16::try_from(own_port).unwrap_or(0),
        port => port,
    };
    Ok(Node {
        id: if cluster.node_id.is_empty() { &shared.run_id } else { &cluster.node_id },
        ip,
        port,
        bus_port: if cluster.announce_bus_port == 0 {
            port.wrapping_add(10_000)
        } else {
            cluster.announce_bus_port
        },
        hostname: &cluster.announce_hostname,
        endpoint: cluster.endpoint,
    })
}

/// This server, if `id` is its id.
fn own_node<'a>(caller: &'a Caller<'_>, id: &[u8]) -> Result<Node<'a>, Fault> {
    let node = node(caller)?;
    if node.id.as_bytes() == id {
        return Ok(node);
    }
    Err(Fault::Text(format!("ERR Unknown node {}", String::from_utf8_lossy(id)).into()))
}

fn info(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    node(caller)?;
    let slots = SLOTS_LEN;
    let text = format!(
        "cluster_state:ok\r\ncluster_slots_assigned:{slots}\r\ncluster_slots_ok:{slots}\r\ncluster_slots_pfail:0\r\n\
         cluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:1\r\n\
         cluster_my_epoch:1\r\ncluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n\
         total_cluster_links_buffer_limit_exceeded:0\r\n"
    );
    reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn keyslot(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    node(caller)?;
    reply.int(i64::from(key_slot(args.at(2))));
    Ok(())
}

fn myid(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.bulk(node(caller)?.id.as_bytes());
    Ok(())
}

fn nodes(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let Node { id, ip, port, bus_port, hostname, .. } = &node(caller)?;
    let comma = if hostname.is_empty() { "" } else { "," };
    let last = SLOTS_LEN - 1;
    let line =
        format!("{id} {ip}:{port}@{bus_port}{comma}{hostname} myself,master - 0 0 1 connected 0-{last}\n");
    reply.verbatim(*b"txt", line.as_bytes());
    Ok(())
}

fn slots(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let node = node(caller)?;
    reply.array(1);
    reply.array(3);
    reply.int(0);
    reply.int(i64::from(SLOTS_LEN - 1));
    reply.array(4);
    reply.bulk_or_null(node.endpoint().map(str::as_bytes));
    reply.int(i64::from(node.port));
    reply.bulk(node.id.as_bytes());
    // The other ways to name it.
    let others = [
        ("ip", node.endpoint != Endpoint::Ip, node.ip.as_str()),
        ("hostname", node.endpoint != Endpoint::Hostname && !node.hostname.is_empty(), node.hostname),
    ];
    let others = others.iter().filter(|(_, is_shown, _)| *is_shown);
    reply.map(others.clone().count());
    for (name, _, value) in others {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn shards(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let node = node(caller)?;
    reply.array(1);
    reply.map(2);
    reply.bulk(b"slots");
    reply.array(2);
    reply.int(0);
    reply.int(i64::from(SLOTS_LEN - 1));
    reply.bulk(b"nodes");
    reply.array(1);
    reply.map(7 + usize::from(!node.hostname.is_empty()));
    reply.bulk(b"id");
    reply.bulk(node.id.as_bytes());
    reply.bulk(b"port");
    reply.int(i64::from(node.port));
    reply.bulk(b"ip");
    reply.bulk(node.ip.as_bytes());
    reply.bulk(b"endpoint");
    reply.bulk_or_null(node.endpoint().map(str::as_bytes));
    if !node.hostname.is_empty() {
        reply.bulk(b"hostname");
        reply.bulk(node.hostname.as_bytes());
    }
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"replication-offset");
    reply.int(0);
    reply.bulk(b"health");
    reply.bulk(b"online");
    Ok(())
}

fn help_cluster(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    node(caller)?;
    help(
        reply,
        "CLUSTER",
        &[
            "COUNT-FAILURE-REPORTS <node-id>",
            "    Count the reports that a node has failed.",
            "COUNTKEYSINSLOT <slot>",
            "    Count the keys of a slot.",
            "GETKEYSINSLOT <slot> <count>",
            "    List keys of a slot, up to <count>.",
            "INFO",
            "    Describe the state of the cluster.",
            "KEYSLOT <key>",
            "    Return the slot of a key.",
            "LINKS",
            "    List the links to other nodes.",
            "MYID",
            "    Return the id of this node.",
            "MYSHARDID",
            "    Return the id of this node's shard.",
            "NODES",
            "    List the nodes, a line each:",
            "    <id> <ip:port@bus-port[,hostname]> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...",
            "REPLICAS <node-id>",
            "    List the replicas of a node.",
            "SHARDS",
            "    List slots and their nodes.",
            "SLOTS",
            "    List slots and the addresses of their nodes.",
        ],
    );
    Ok(())
}

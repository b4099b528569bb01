//! CLUSTER, READONLY, READWRITE, ASKING: what cluster clients ask, answered from the map.
//!
//! An emulated cluster is one server that owns every slot. A pushed one has the map that `DFLYCLUSTER CONFIG` has brought.
//! Commands that would change the cluster are refused in both.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_cluster::{Health, Node, NodeGroup, SlotMap, SlotRange, answers};
use darter_command::keys::slot::DISABLED;
use darter_command::spec::Group as Rows;
use darter_command::{Fault, Flags, Spec, reader};
use darter_config::ClusterMode;
use darter_wire::{Args, Reply};

use super::{ServerCommand, help, no_subcommand, row};
use crate::dispatch::{Caller, ServerRun};
use crate::engine::cluster::route;

/// The family's commands; those about the keys of a slot are data commands (`darter_command::keys::slot`).
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("cluster", -2)
            .doc(Rows::Cluster, "3.0.0", "", "Questions about the cluster.")
            .cost("Depends on subcommand."),
        no_subcommand,
    ),
    row(
        sub("cluster|count-failure-reports", 3, "3.0.0", "node-id", "Counts reports that a node has failed.")
            .tips(&["nondeterministic_output"])
            .flag(Flags::ADMIN)
            .cost("O(N) where N is the number of failure reports"),
        |caller, args, reply| {
            find(&*map(caller)?, args.at(2))?;
            reply.int(0);
            Ok(())
        },
    ),
    row(
        Spec::other("cluster|help", 2).flag(Flags::LOADING.with(Flags::STALE)).doc(
            Rows::Cluster,
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
            must_be_on(caller)?;
            reply.array(0);
            Ok(())
        },
    ),
    row(sub("cluster|myid", 2, "3.0.0", "", "Returns the id of this node."), myid),
    row(sub("cluster|myshardid", 2, "7.2.0", "", "Returns the id of this node's shard."), myshardid),
    row(
        sub("cluster|nodes", 2, "3.0.0", "", "Lists the nodes.")
            .tips(&["nondeterministic_output"])
            .cost(BY_NODES),
        nodes,
    ),
    replicas("cluster|replicas", "5.0.0").tips(&["nondeterministic_output"]),
    change("cluster|reset", -2, "3.0.0", "[HARD | SOFT]", "Would make a node forget the cluster: refused."),
    change("cluster|addslots", -3, "3.0.0", "slot [slot ...]", "Would give slots to a node: refused."),
    change(
        "cluster|addslotsrange",
        -4,
        "7.0.0",
        "start-slot end-slot [start-slot end-slot ...]",
        "Would give slots to a node: refused.",
    ),
    change("cluster|bumpepoch", 2, "3.0.0", "", "Would raise the epoch of a node: refused."),
    change("cluster|delslots", -3, "3.0.0", "slot [slot ...]", "Would take slots from a node: refused."),
    change(
        "cluster|delslotsrange",
        -4,
        "7.0.0",
        "start-slot end-slot [start-slot end-slot ...]",
        "Would take slots from a node: refused.",
    ),
    change(
        "cluster|failover",
        -2,
        "3.0.0",
        "[FORCE | TAKEOVER]",
        "Would make a replica the master: refused.",
    ),
    change("cluster|flushslots", 2, "3.0.0", "", "Would take all slots from a node: refused."),
    change("cluster|forget", 3, "3.0.0", "node-id", "Would remove a node: refused."),
    change("cluster|meet", -4, "3.0.0", "ip port [cluster-bus-port]", "Would join nodes: refused."),
    change("cluster|replicate", 3, "3.0.0", "node-id", "Would make a node a replica: refused."),
    change("cluster|set-config-epoch", 3, "3.0.0", "config-epoch", "Would set the epoch of a node: refused."),
    change(
        "cluster|setslot",
        -4,
        "3.0.0",
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        "Would begin or end the move of a slot: refused.",
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
    plain(
        "asking",
        Flags::FAST,
        "Follows a redirection; there are none of one command here.",
        |caller, _, reply| {
            must_be_on(caller)?;
            reply.ok();
            Ok(())
        },
    ),
    plain("readonly", LOADING_FAST, "Reads from replicas are fine with the client.", read_replicas),
    plain("readwrite", LOADING_FAST, "Reads from replicas are refused again.", read_replicas),
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
    Spec::other(name, arity).flag(Flags::STALE).doc(Rows::Cluster, since, syntax, summary)
}

const fn replicas(name: &'static str, since: &'static str) -> ServerCommand {
    let run: ServerRun = |caller, args, reply| {
        let map = map(caller)?;
        let lines = answers::replicas(&map, group_of(&map, args.at(2))?);
        reply.array(lines.len());
        lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
        Ok(())
    };
    row(sub(name, 3, since, "node-id", "Lists the replicas of a node.").flag(Flags::ADMIN), run)
}

const fn plain(name: &'static str, flags: Flags, summary: &'static str, run: ServerRun) -> ServerCommand {
    row(Spec::other(name, 1).flag(flags).doc(Rows::Cluster, "3.0.0", "", summary), run)
}

/// A change of the cluster.
const fn change(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> ServerCommand {
    row(sub(name, arity, since, syntax, summary).flag(Flags::ADMIN.with(Flags::NOSCRIPT)), refused_change)
}

/// The map that clients see. Errors: this server is no cluster.
fn map(caller: &Caller<'_>) -> Result<Arc<SlotMap>, Fault> {
    match caller.local.live.cluster.mode {
        ClusterMode::Off => Err(DISABLED),
        ClusterMode::Pushed if caller.local.shared.cluster.is_configured() => {
            Ok(caller.local.cluster.map.clone())
        }
        // A node without a configuration knows itself alone.
        ClusterMode::Pushed => Ok(Arc::new(map_of_one(caller, Vec::new(), 0))),
        ClusterMode::Emulated => {
            let all = SlotRange { start: 0, end: SLOTS_LEN - 1 };
            Ok(Arc::new(map_of_one(caller, vec![all], 1)))
        }
    }
}

/// A map of this server alone.
fn map_of_one(caller: &Caller<'_>, slots: Vec<SlotRange>, revision: u64) -> SlotMap {
    let shared = caller.local.shared;
    let settings = &caller.local.live.cluster;
    // The address that the client has reached is one it can reach.
    let local = caller.info.local.parse::<std::net::SocketAddr>();
    let ip = match &*settings.announce_ip {
        "" => local.map_or_else(|_| String::new(), |local| local.ip().to_canonical().to_string()),
        ip => ip.to_owned(),
    };
    let own_port = shared.port.load(Relaxed);
    let port = match settings.announce_port {
        0 => u16::try_from(own_port).unwrap_or(0),
        port => port,
    };
    let bus_port = match settings.announce_bus_port {
        0 => port.wrapping_add(10_000),
        port => port,
    };
    let id = shared.cluster.id().to_owned();
    let hostname = settings.announce_hostname.clone();
    let master = Node { id: id.clone(), ip, port, bus_port, hostname, health: Health::Online };
    SlotMap::new(vec![NodeGroup { id: id.clone(), slots, master, replicas: Vec::new() }], &id, revision)
}

/// The group whose master has the id `id`. Errors: no node has it, or a replica has.
fn group_of<'m>(map: &'m SlotMap, id: &[u8]) -> Result<&'m NodeGroup, Fault> {
    let (group, node) = find(map, id)?;
    if node.id == group.master.id {
        return Ok(group);
    }
    Err(Fault::text("ERR The specified node is not a master"))
}

fn find<'m>(map: &'m SlotMap, id: &[u8]) -> Result<(&'m NodeGroup, &'m Node), Fault> {
    let unknown = || Fault::Text(format!("ERR Unknown node {}", String::from_utf8_lossy(id)).into());
    map.find(id).ok_or_else(unknown)
}

/// A change of the cluster, which this server does not take from its clients.
fn refused_change(caller: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    match caller.local.live.cluster.mode {
        ClusterMode::Off => Err(DISABLED),
        ClusterMode::Pushed => Err(Fault::text("ERR this cluster is configured by DFLYCLUSTER CONFIG")),
        ClusterMode::Emulated => {
            Err(Fault::text("ERR The emulated cluster is one server, which owns all slots and keeps them"))
        }
    }
}

fn info(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let map = map(caller)?;
    reply.verbatim(*b"txt", answers::info(&map, &caller.local.cluster.rules).as_bytes());
    Ok(())
}

fn keyslot(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_on(caller)?;
    reply.int(i64::from(key_slot(args.at(2))));
    Ok(())
}

/// Errors: this server is no cluster.
pub(super) fn must_be_on(caller: &Caller<'_>) -> Result<(), Fault> {
    if caller.local.live.cluster.mode == ClusterMode::Off { Err(DISABLED) } else { Ok(()) }
}

fn myid(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_on(caller)?;
    reply.bulk(caller.local.shared.cluster.id().as_bytes());
    Ok(())
}

fn myshardid(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let map = map(caller)?;
    let id = map.own_group().map_or(caller.local.shared.cluster.id(), |group| &group.id);
    reply.bulk(id.as_bytes());
    Ok(())
}

fn nodes(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.verbatim(*b"txt", answers::nodes(&*map(caller)?).as_bytes());
    Ok(())
}

fn slots(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    answers::slots(&*map(caller)?, route::endpoint(caller.local.live.cluster.endpoint), reply);
    Ok(())
}

fn shards(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    answers::shards(&*map(caller)?, route::endpoint(caller.local.live.cluster.endpoint), reply);
    Ok(())
}

/// READONLY and READWRITE.
fn read_replicas(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_on(caller)?;
    caller.session.reads_replica = reader::is(args.at(0), "readonly");
    reply.ok();
    Ok(())
}

fn help_cluster(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_on(caller)?;
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

//! CLUSTER, READONLY, READWRITE, ASKING: what cluster clients ask, answered from the map.
//!
//! An emulated cluster is one server that owns every slot. A pushed one has the map that `DFLYCLUSTER CONFIG` has brought,
//! another the map of a store, which the verbs of `cluster_changes` change.

use crate::engine::cluster::links;
use crate::engine::cluster::map_store::own_ports;
use darter_cluster::LinkKind;
use darter_cluster::answers::AddressView;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_cluster::{Health, MapNode, NodeGroup, NodeRole, SlotMap, SlotRange, answers};
use darter_command::keys::slot::DISABLED;
use darter_command::spec::Group as Rows;
use darter_command::{Fault, Flags, Spec, reader};
use darter_config::ClusterMode;
use darter_wire::{Args, Reply};

use super::{ServerCommand, help, no_subcommand, row};
use crate::dispatch::{Caller, ServerRun};
use crate::engine::cluster::route;
use crate::session::Gate;

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
    row(
        sub(
            "cluster|saveconfig",
            2,
            "3.0.0",
            "",
            "Saves the file of the cluster, which is saved with every change.",
        )
        .flag(Flags::ADMIN),
        |caller, _, reply| {
            must_be_on(caller)?;
            reply.ok();
            Ok(())
        },
    ),
    replicas("cluster|replicas", "5.0.0").tips(&["nondeterministic_output"]),
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
        "Lets the next command use a slot whose keys are arriving.",
        |caller, _, reply| {
            must_be_on(caller)?;
            if caller.local.shared.cluster.is_on() {
                caller.session.gate.set(Gate::ASKING, true);
                caller.session.asks_left = 2;
            }
            reply.ok();
            Ok(())
        },
    ),
    plain("readonly", LOADING_FAST, "Reads from replicas are fine with the client.", read_replicas),
    plain("readwrite", LOADING_FAST, "Reads from replicas are refused again.", read_replicas),
];

const BY_NODES: &str = "O(N) where N is the total number of Cluster nodes";
const LOADING_FAST: Flags = Flags::FAST.with(Flags::LOADING).with(Flags::STALE);

pub(super) const fn sub(
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
        let lines = answers::replicas(&map, group_of(&map, args.at(2))?, link(caller));
        reply.array(lines.len());
        lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
        Ok(())
    };
    row(sub(name, 3, since, "node-id", "Lists the replicas of a node.").flag(Flags::ADMIN), run)
}

const fn plain(name: &'static str, flags: Flags, summary: &'static str, run: ServerRun) -> ServerCommand {
    row(Spec::other(name, 1).flag(flags).doc(Rows::Cluster, "3.0.0", "", summary), run)
}

/// The map that clients see. Errors: this server is no cluster.
fn map(caller: &Caller<'_>) -> Result<Arc<SlotMap>, Fault> {
    match caller.local.live.cluster.mode {
        ClusterMode::Off => Err(DISABLED),
        ClusterMode::Emulated => {
            let all = SlotRange { start: 0, end: SLOTS_LEN - 1 };
            Ok(Arc::new(map_of_one(caller, vec![all], 1)))
        }
        // A node without a map knows itself alone.
        _ if !caller.local.shared.cluster.is_configured() => Ok(Arc::new(map_of_one(caller, Vec::new(), 0))),
        ClusterMode::Pushed => Ok(caller.local.cluster.map.clone()),
        // It was forgotten, and comes again by itself.
        ClusterMode::Stored if caller.local.cluster.map.place() == NodeRole::Nowhere => {
            Ok(Arc::new(map_of_one(caller, Vec::new(), 0)))
        }
        ClusterMode::Stored => Ok(with_own_address(caller, caller.local.cluster.map.clone())),
    }
}

/// The map with the address of this node, if nobody has told it: the one that the client has reached.
fn with_own_address(caller: &Caller<'_>, map: Arc<SlotMap>) -> Arc<SlotMap> {
    match map.find(map.me().as_bytes()) {
        Some((_, own)) if own.ip.is_empty() => Arc::new(map.with_ip_of(map.me(), &own_ip(caller))),
        _ => map,
    }
}

/// How the client is connected.
fn link(caller: &Caller<'_>) -> LinkKind {
    links::of_client(caller.local, caller.session)
}

/// The address of this server as the settings say or the client has reached it.
fn own_ip(caller: &Caller<'_>) -> String {
    let local = caller.info.local.parse::<std::net::SocketAddr>();
    match &*caller.local.live.cluster.announce_ip {
        "" => local.map_or_else(|_| String::new(), |local| local.ip().to_canonical().to_string()),
        ip => ip.to_owned(),
    }
}

/// A map of this server alone.
fn map_of_one(caller: &Caller<'_>, slots: Vec<SlotRange>, revision: u64) -> SlotMap {
    let shared = caller.local.shared;
    let settings = &caller.local.live.cluster;
    let ip = own_ip(caller);
    let (port, tls_port) = own_ports(shared, &caller.local.live);
    let bus_port = match settings.announce_bus_port {
        0 => port.wrapping_add(10_000),
        port => port,
    };
    let id = shared.cluster.id().to_owned();
    let hostname = settings.announce_hostname.clone();
    let master = MapNode {
        id: id.clone(),
        ip,
        port,
        tls_port,
        bus_port,
        hostname,
        health: Health::Online,
        boot: String::new(),
    };
    SlotMap::new(
        vec![NodeGroup { id: id.clone(), epoch: revision, slots, master, replicas: Vec::new() }],
        &id,
        revision,
    )
}

/// The group whose master has the id `id`. Errors: no node has it, or a replica has.
fn group_of<'m>(map: &'m SlotMap, id: &[u8]) -> Result<&'m NodeGroup, Fault> {
    let (group, node) = find(map, id)?;
    if node.id == group.master.id {
        return Ok(group);
    }
    Err(Fault::text("ERR The specified node is not a master"))
}

fn find<'m>(map: &'m SlotMap, id: &[u8]) -> Result<(&'m NodeGroup, &'m MapNode), Fault> {
    let unknown = || Fault::Text(format!("ERR Unknown node {}", String::from_utf8_lossy(id)).into());
    map.find(id).ok_or_else(unknown)
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
    reply.verbatim(*b"txt", answers::nodes(&*map(caller)?, link(caller)).as_bytes());
    Ok(())
}

fn slots(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let form = route::endpoint(caller.local.live.cluster.endpoint);
    answers::slots(&*map(caller)?, AddressView { form, link: link(caller) }, reply);
    Ok(())
}

fn shards(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    answers::shards(&*map(caller)?, route::endpoint(caller.local.live.cluster.endpoint), reply);
    Ok(())
}

/// READONLY and READWRITE.
fn read_replicas(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    // A replica without a cluster redirects those who have asked for it.
    if !caller.info.takes_redirects.load(Relaxed) {
        must_be_on(caller)?;
    }
    caller.session.reads_replica = reader::is(args.at(0), "readonly");
    reply.ok();
    Ok(())
}

fn help_cluster(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_on(caller)?;
    help(reply, "CLUSTER", HELP);
    Ok(())
}

/// What CLUSTER HELP answers, a line each.
const HELP: &[&str] = &[
    "ADDSLOTS <slot> [<slot> ...]",
    "    Give free slots to this node.",
    "ADDSLOTSRANGE <first> <last> [<first> <last> ...]",
    "    Give ranges of free slots to this node.",
    "BUMPEPOCH",
    "    Raise the epoch of this node.",
    "CANCELSLOTMIGRATIONS",
    "    End all migrations of slots from or to this node.",
    "COUNT-FAILURE-REPORTS <node-id>",
    "    Count the reports that a node has failed.",
    "COUNTKEYSINSLOT <slot>",
    "    Count the keys of a slot.",
    "DELSLOTS <slot> [<slot> ...]",
    "    Give slots of this node up.",
    "DELSLOTSRANGE <first> <last> [<first> <last> ...]",
    "    Give ranges of slots of this node up.",
    "FAILOVER",
    "    Make this replica the master.",
    "FLUSHSLOTS",
    "    Give all slots of this node up.",
    "FORGET <node-id>",
    "    Remove a node from the cluster.",
    "GETKEYSINSLOT <slot> <count>",
    "    List keys of a slot, up to <count>.",
    "GETSLOTMIGRATIONS",
    "    List migrations of slots from and to this node.",
    "INFO",
    "    Describe the state of the cluster.",
    "KEYSLOT <key>",
    "    Return the slot of a key.",
    "LINKS",
    "    List the links to other nodes.",
    "MEET <ip> <port>",
    "    Join this node and another.",
    "MIGRATESLOTS SLOTSRANGE <first> <last> [<first> <last> ...] NODE <node-id> [SLOTSRANGE ...]",
    "    Move slots of this node to other masters.",
    "MIGRATION (IMPORT <first> <last> [<first> <last> ...] | STATUS <ID id | ALL> | CANCEL <ID id | ALL>)",
    "    Move slots to this node, show such moves or end them.",
    "MYID",
    "    Return the id of this node.",
    "MYSHARDID",
    "    Return the id of this node's shard.",
    "NODES",
    "    List the nodes, a line each:",
    "    <id> <ip:port@bus-port[,hostname]> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...",
    "REPLICAS <node-id>",
    "    List the replicas of a node.",
    "REPLICATE (<node-id> | NO ONE)",
    "    Make this node a replica of a master, or a master again.",
    "RESET [HARD | SOFT]",
    "    Take this node out of the cluster.",
    "SAVECONFIG",
    "    Save the file of the cluster.",
    "SET-CONFIG-EPOCH <epoch>",
    "    Set the epoch of a new node.",
    "SETSLOT <slot> (MIGRATING | IMPORTING | NODE) <node-id>, SETSLOT <slot> STABLE",
    "    Begin or end the move of a slot.",
    "SHARDS",
    "    List slots and their nodes.",
    "SLOT-STATS (SLOTSRANGE <first> <last> | ORDERBY KEY-COUNT [LIMIT <limit>] [ASC | DESC])",
    "    Count the keys of slots.",
    "SLOTS",
    "    List slots and the addresses of their nodes.",
];

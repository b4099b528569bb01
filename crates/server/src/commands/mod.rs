//! The server's own commands: a file per group.

pub mod admin;
pub mod backup;
pub mod client;
pub mod cluster;
pub mod cluster_changes;
pub mod command;
pub mod config;
pub mod connection;
pub mod debug;
pub mod dflycluster;
pub mod flows;
pub mod function;
pub mod himport;
pub mod hotkeys;
pub mod info;
pub mod journal;
pub mod latency;
pub mod login;
pub mod lolwut;
pub mod memory;
pub mod migrate;
pub mod modules;
pub mod monitor;
pub mod persistence;
pub mod populate;
pub mod pubsub;
pub mod pushed_migrations;
pub mod replication;
pub mod rows;
pub mod scripting;
pub mod sentinel;
pub mod slot_migrations;
pub mod slowlog;

use darter_command::spec::Group;
use darter_command::{Command, Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use crate::clients::ClientInfo;
use crate::dispatch::{Caller, ServerRun};
use darter_config::CallerLimits as Place;

/// A command about the connection or the server.
pub type ServerCommand = Command<ServerRun>;

/// Every family, in the order `COMMAND` lists them.
pub const FAMILIES: &[&[ServerCommand]] = &[
    connection::FAMILY,
    login::FAMILY,
    crate::acl::commands::FAMILY,
    client::FAMILY,
    monitor::FAMILY,
    pubsub::FAMILY,
    cluster::FAMILY,
    cluster_changes::FAMILY,
    slot_migrations::FAMILY,
    dflycluster::FAMILY,
    command::FAMILY,
    config::FAMILY,
    scripting::FAMILY,
    function::FAMILY,
    himport::FAMILY,
    hotkeys::FAMILY,
    backup::FAMILY,
    slowlog::FAMILY,
    info::FAMILY,
    admin::FAMILY,
    journal::FAMILY,
    persistence::FAMILY,
    replication::FAMILY,
    flows::FAMILY,
    sentinel::FAMILY,
    latency::FAMILY,
    memory::FAMILY,
    migrate::FAMILY,
    lolwut::FAMILY,
    debug::FAMILY,
];

pub(crate) const fn row(spec: Spec, run: ServerRun) -> ServerCommand {
    ServerCommand { spec, run }
}

/// The row of a container's HELP.
const fn help_row(name: &'static str, since: &'static str) -> Spec {
    Spec::other(name, 2).flag(Flags::LOADING.with(Flags::STALE)).doc(
        Group::Server,
        since,
        "",
        "Returns helpful text about the different subcommands.",
    )
}

/// Answers HELP of a container of subcommands; `lines` without its first and last ones.
pub(crate) fn help(reply: &mut Reply<'_>, container: &str, lines: &[&str]) {
    reply.array(lines.len() + 3);
    reply.status(format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| reply.status(line));
    reply.status("HELP");
    reply.status("    Prints this help.");
}

/// The body of a container, which runs only when its arity lets it be called without a subcommand.
pub(crate) fn no_subcommand(_: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    Err(Fault::Arity(String::from_utf8_lossy(args.at(0)).to_lowercase()))
}

/// The place of the client: on this machine or elsewhere.
fn place_of(caller: &Caller<'_>) -> Place {
    place_of_card(caller.info)
}

/// The same for one info.
pub fn place_of_card(info: &ClientInfo) -> Place {
    match info.peer.parse::<std::net::SocketAddr>() {
        Ok(at) if !at.ip().to_canonical().is_loopback() => Place::Remote,
        _ => Place::Local,
    }
}

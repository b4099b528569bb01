//! The server's own commands: a file per group.

pub mod client;
pub mod connection;
pub mod login;
pub mod monitor;
pub mod pubsub;

use darter_command::{Command, Spec};
use darter_wire::Reply;

use crate::dispatch::ServerRun;

/// A command about the connection or the server.
pub type ServerCommand = Command<ServerRun>;

/// Every family, in the order `COMMAND` lists them.
pub const FAMILIES: &[&[ServerCommand]] =
    &[connection::FAMILY, login::FAMILY, client::FAMILY, monitor::FAMILY, pubsub::FAMILY];

const fn row(spec: Spec, run: ServerRun) -> ServerCommand {
    ServerCommand { spec, run }
}

/// Answers HELP of a container of subcommands; `lines` without its first and last ones.
fn help(reply: &mut Reply<'_>, container: &str, lines: &[&str]) {
    reply.array(lines.len() + 3);
    reply.status(format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| reply.status(line));
    reply.status("HELP");
    reply.status("    Print this help.");
}

//! The server's own commands: a file per group.

pub mod connection;

use darter_command::Command;

use crate::dispatch::ServerRun;

/// A command about the connection or the server.
pub type ServerCommand = Command<ServerRun>;

/// Every family, in the order `COMMAND` lists them.
pub const FAMILIES: &[&[ServerCommand]] = &[connection::FAMILY];

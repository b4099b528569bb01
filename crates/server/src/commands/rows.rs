//! The rows of all commands, and the registry that is made of them.
//!
//! Called at start; dispatch asks [`body`] for what a row of the server does.

use darter_command::Spec;

use super::FAMILIES;
use crate::dispatch::ServerRun;
use crate::registry::{Registry, RowId, RunKind};
use crate::{script_run, transaction};

/// The body of a command about the connection or the server.
#[inline]
pub fn body(id: RowId) -> ServerRun {
    FAMILIES[usize::from(id.family)][usize::from(id.row)].run
}

/// Every row, in the order in which `COMMAND` lists them.
fn rows() -> Vec<(Spec, RunKind)> {
    let mut rows: Vec<(Spec, RunKind)> = Vec::new();
    for family in darter_command::FAMILIES {
        rows.extend(family.iter().map(|command| (command.spec, RunKind::Data(command.run))));
    }
    for (at, family) in FAMILIES.iter().enumerate() {
        let numbered = |(row, command): (usize, &super::ServerCommand)| {
            (command.spec, RunKind::Server(RowId::new(at, row)))
        };
        rows.extend(family.iter().enumerate().map(numbered));
    }
    let transactions = transaction::FAMILY.iter().enumerate();
    rows.extend(transactions.map(|(row, (spec, _))| (*spec, RunKind::Txn(RowId::new(0, row)))));
    rows.extend(script_run::FAMILY.iter().map(|(spec, way)| (*spec, RunKind::Script(*way))));
    rows
}

impl Registry {
    /// Reads every family. Panics when a name is there twice: a mistake in the tables.
    pub fn build() -> Registry {
        match Registry::build_renamed(&[]) {
            Ok(registry) => registry,
            Err(fault) => panic!("{fault}"),
        }
    }

    /// As [`Registry::build`], with commands called otherwise: pairs of old and new name, a command with an empty new
    /// name has none. Errors: one line about a name that is not there, or is there already.
    pub fn build_renamed(renamed: &[(String, String)]) -> Result<Registry, String> {
        Registry::build_with(renamed, &[])
    }

    /// As [`Registry::build_renamed`], with commands and subcommands (`container|sub`) that only administrators'
    /// connections may run, by the names of their rows.
    pub fn build_with(renamed: &[(String, String)], restricted: &[String]) -> Result<Registry, String> {
        Registry::of(&rows(), renamed, restricted)
    }
}

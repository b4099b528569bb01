//! Access rules and connections: the checks of the crate `acl` for the commands that clients send, logins and logouts,
//! the ACL commands, and the clients that a change of rules disconnects.
//!
//! Called by dispatch, EXEC, scripts and the commands AUTH and HELLO. Users and rules themselves are in `darter_acl`.

pub mod commands;
pub mod disconnect;
pub mod guard;
mod login;
#[cfg(test)]
mod tests;

pub use darter_acl::{Acl, CheckedCall, DEFAULT, Selector, User};
pub use login::{log_in, log_out};

use crate::registry::Registry;

/// The commands of `registry` as rules know them, by [`crate::registry::CommandEntry::id`].
pub fn rows(registry: &Registry) -> Vec<darter_acl::CatalogRow> {
    let row = |entry: &&'static crate::registry::CommandEntry| {
        let subs = entry.subs.iter().map(|sub| sub.id).collect();
        darter_acl::CatalogRow::new(entry.spec, subs, entry.is_open, entry.is_debug)
    };
    registry.entries().iter().map(row).collect()
}

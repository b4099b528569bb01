//! The append-only journal on disk: records, segments, the manifest, and a reader that trusts nothing.
//!
//! A record is one atomic change with its place in the serial order of all changes. Each thread appends to a segment
//! of its own; reading merges them by that order and ends at the first record that is missing or damaged, so that
//! what is read is always a prefix of what happened. `server` writes and replays, `darter --check` verifies; nothing
//! here runs a command.

pub mod check;
pub mod ending;
pub mod folder;
pub mod manifest;
pub mod merge;
pub mod part;
pub mod record;
pub mod redis;
pub mod redis_check;
pub mod segment;
pub mod tail;
#[cfg(test)]
mod tests;

use std::fmt;

/// Bytes that are not what the format says, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// Kind of the damage.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.what, self.offset)
    }
}

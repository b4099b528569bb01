//! Counts keys of a file that may hold a value in parts. Called by `--check` and `--convert`.

use std::collections::BTreeSet;

use crate::entry::KeyEntry;

/// The keys of which a part was seen. Memory: their names.
#[derive(Debug, Default)]
pub(crate) struct CountedWriter(BTreeSet<(u32, Vec<u8>)>);

impl CountedWriter {
    /// Number of keys that `entry` of database `db` adds to those counted: one or zero.
    pub(crate) fn add(&mut self, db: u32, entry: &KeyEntry<'_>) -> u64 {
        u64::from(entry.part.is_none() || self.0.insert((db, entry.key.to_vec())))
    }
}

//! What became of snapshots: what LASTSAVE and INFO tell, and what the schedule goes by.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::run::{Saved, SnapshotRun};
use crate::replication::position::StreamPosition;

/// A file, and what to compare the data with to know whether the file still holds all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Its name.
    pub file: String,
    /// Keys in it.
    pub keys: u64,
    /// The hash of the functions in it, as [`hash_functions`] makes it.
    pub functions: u64,
    /// Where it stands in a history of changes.
    pub position: Option<StreamPosition>,
}

/// A hash of the sources of libraries of functions, in the order given.
pub fn hash_functions<'a>(sources: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    sources.for_each(|source| hasher.write(source));
    hasher.finish()
}

/// The snapshots since the start, summed up.
#[derive(Clone, Debug, Default)]
pub struct SnapshotHistory {
    /// When the last one was written, Unix seconds; 0: none.
    pub saved_s: u64,
    /// When the last one ended, written or not, Unix seconds; 0: none.
    pub tried_s: u64,
    /// How many were written.
    pub saves: u64,
    /// Why the last one was not.
    pub error: Option<String>,
    /// How long the last one took, in seconds.
    pub took_s: Option<u64>,
    /// Changes since the start that the last one written holds.
    pub changes: u64,
    /// The file that holds the data as it was at `changes`, if there is one.
    pub kept: Option<Kept>,
    /// Keys that the last one wrote before they changed.
    pub keys_early: u64,
    /// The most bytes of the last one that waited in memory to be written.
    pub waiting_bytes_max: u64,
    /// What the last one is called.
    pub name: String,
}

impl SnapshotHistory {
    /// Takes in the end of a run.
    pub(super) fn note(&mut self, run: &Arc<SnapshotRun>, outcome: &Result<Saved, String>) {
        self.tried_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.took_s = Some(run.began.elapsed().as_secs());
        self.keys_early = run.keys_early();
        self.waiting_bytes_max = run.pipe.waiting_bytes_max();
        match outcome {
            Ok(saved) => {
                self.saved_s = self.tried_s;
                self.saves += 1;
                self.error = None;
                self.changes = run.changes_at_cut();
                self.kept = Some(Kept {
                    file: saved.name.clone(),
                    keys: saved.keys,
                    functions: run.functions_hash(),
                    position: saved.position,
                });
                self.name.clone_from(&saved.name);
            }
            // One that was called off says nothing about the disk.
            Err(_) if run.is_cancelled() => {}
            Err(error) => self.error = Some(error.clone()),
        }
    }
}

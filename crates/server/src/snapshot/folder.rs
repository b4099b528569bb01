//! What start says about the folder of snapshots and the journal: whether it can be written, and what a crash would lose.

use std::fs;
use std::io;
use std::path::Path;

use darter_persist::storage::is_cloud;

use darter_config::{Fsync, Live};

use super::run::SnapshotOrder;
use super::schedule;

/// Test-writes the folder that the settings name. Returns warnings for the log.
///
/// Errors: it cannot be written, and a journal or save points are asked for.
pub fn check(live: &Live) -> Result<Vec<String>, String> {
    let persistence = &live.persistence;
    let dir = persistence.dir.display().to_string();
    let is_used = persistence.appendonly || !persistence.dbfilename.is_empty();
    if !is_used || is_cloud(&dir) {
        return Ok(Vec::new());
    }
    let Err(error) = test_write(&persistence.dir) else { return Ok(Vec::new()) };
    let why = format!("the folder {dir} cannot be written: {error}");
    let asked = match () {
        () if persistence.appendonly => "appendonly",
        () if schedule::is_automatic(live) => "save points",
        () => return Ok(vec![format!("{why}; nothing can be saved, also not at the end")]),
    };
    Err(format!("{why}, and {asked} needs it"))
}

/// Creates a file in `dir`, writes to it and removes it.
fn test_write(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!(".darter-test-{}", std::process::id()));
    let written = fs::write(&path, b"darter");
    let removed = fs::remove_file(&path);
    written.and(removed)
}

/// What a crash would lose, and what the end saves: one line.
pub fn promise(live: &Live) -> String {
    let persistence = &live.persistence;
    let crash = match (persistence.appendonly, persistence.appendfsync) {
        (true, Fsync::Always) => {
            "journal synced with every write: a crash loses nothing that was acknowledged"
        }
        (true, Fsync::EverySecond) => {
            "journal synced every second: a crash of the machine loses about one second"
        }
        (true, Fsync::No) => {
            "journal without syncs: a crash of the machine loses what the kernel has not written"
        }
        (false, _) if schedule::is_automatic(live) => {
            "no journal, save points: a crash loses what came after the last snapshot"
        }
        (false, _) => "no save points, no journal: a crash loses everything",
    };
    match SnapshotOrder::of(live).filter(|_| schedule::saves_at_end(live)) {
        Some(Ok(order)) => {
            let dir = persistence.dir.display().to_string();
            format!("{crash}; Ctrl-C saves to {}/{}", dir.trim_end_matches('/'), order.name)
        }
        Some(Err(_)) | None => format!("{crash}; Ctrl-C saves nothing"),
    }
}

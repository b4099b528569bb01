//! Switching the journal on and off, and giving it a new base.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Release, SeqCst};
use std::time::Instant;

use darter_persist::journal::folder;
use darter_persist::journal::manifest::Manifest;
use darter_reactor::Token;
use darter_store::change::Listeners;

use super::{Journal, replay, sync};
use crate::config::Live;
use crate::core::Core;
use crate::shared::Shared;

/// What is known of rewrites.
#[derive(Default)]
pub struct Rewrite {
    /// When the one under way began.
    pub since: Option<Instant>,
    /// How long the last one took, in seconds.
    pub took_s: Option<u64>,
    /// How many failed since the last that succeeded.
    pub failures: u64,
    /// One is to begin as soon as it can.
    pub is_due: bool,
    /// Rewrites since start.
    pub count: u64,
}

/// The folder of the journal.
pub fn dir_of(live: &Live) -> PathBuf {
    live.persistence.dir.join(&live.persistence.appenddirname)
}

/// Reads the journal back and switches it on, if the settings say so; to be called before anything is served.
///
/// Errors: what an operator has to know; the process must not serve then.
pub fn start(shared: &'static Shared) -> Result<(), String> {
    let live = shared.settings.live();
    if !live.persistence.appendonly {
        return Ok(());
    }
    let dir = dir_of(&live);
    let at_dir =
        |error: std::io::Error| format!("cannot use the journal's folder {}: {error}", dir.display());
    std::fs::create_dir_all(&dir).map_err(at_dir)?;
    let journal = &shared.journal;
    match replay::load(shared, &dir)? {
        Some(loaded) => {
            journal.next.store(loaded.sequence, SeqCst);
            journal.generation.store(loaded.generation, SeqCst);
            journal.base_generation.store(loaded.base_generation, SeqCst);
            journal.bytes.store(loaded.bytes, SeqCst);
            journal.base_bytes.store(loaded.bytes, SeqCst);
        }
        None => {
            let old = folder::segments(&dir).map_err(at_dir)?;
            let generation = old.iter().map(|found| found.generation).fold(0, u64::max) + 1;
            let manifest = Manifest { base: None, generation, sequence: 1 };
            manifest.store(&dir).map_err(at_dir)?;
            journal.generation.store(generation, SeqCst);
            journal.base_generation.store(generation, SeqCst);
        }
    }
    let _ = journal.dir.set(dir);
    journal.is_on.store(true, Release);
    for cell in shared.cells {
        if let Some(mut held) = cell.take_spinning(u32::MAX) {
            held.shard.changes.listen(Listeners::JOURNAL, true);
            crate::job::let_go_quietly(shared, held);
        }
    }
    sync::start(shared).map_err(|error| format!("cannot start the journal's thread: {error}"))
}

/// Switches the journal off. Its files stay; what changes from now on is not in them.
pub fn stop(core: &mut Core, token: Token) {
    let journal = &core.shared.journal;
    journal.is_on.store(false, Release);
    crate::pubsub::listen(core, token);
    journal.ask_for_sync();
    tracing::info!("the journal is switched off");
}

impl Journal {
    /// Whether a new base is being written.
    pub fn is_rewriting(&self) -> bool {
        crate::worker::lock(&self.rewrite).since.is_some()
    }
}

/// Starts a rewrite when the journal has grown as much as the settings say.
pub fn start_if_due(_shared: &'static Shared) {}

/// Loads the base of a journal.
pub fn load_base(_shared: &'static Shared, path: &Path) -> Result<(), String> {
    Err(format!("{}: bases cannot be read yet", path.display()))
}

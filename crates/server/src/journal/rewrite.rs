//! Switching the journal on and off, and giving it a new base.
//!
//! A base is a snapshot. At its cut, while all shards are held, a new generation of segments begins; when the base is
//! on disk the manifest names it, and what came before is deleted. Until then the old base and all segments hold
//! everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use darter_durability::base::{self, BaseCut, Claimed, Growth, at_dir};
use darter_persist::files::Disk;
use darter_persist::journal::manifest::{Manifest, TAKEN_OVER};
use darter_persist::journal::{folder, tail};
use darter_persist::storage::name::NameFormat;
use darter_persist::storage::{self, CloudOptions};
use darter_store::change::Listeners;

use super::{redis, replay, sync};
use crate::clock::unix_ms;
use crate::engine::lease;
use crate::replication::position::FoundPosition;
use crate::shared::Shared;
use crate::snapshot::run::Saved;
use crate::snapshot::{self, Purpose, RefusedSave, SnapshotOrder, load, naming};
use crate::thread_state::ThreadState;
use darter_config::Live;

/// The folder of the journal.
///
/// Errors: snapshots go to a cloud, where nothing can be appended.
pub fn dir_of(live: &Live) -> Result<PathBuf, String> {
    if live.persistence.is_in_cloud() {
        return Err("the journal needs a folder of this machine: --dir is in an object store".to_owned());
    }
    Ok(live.persistence.dir.join(&live.persistence.appenddirname))
}

/// Bytes of the journal that is to be read back, or of Redis' own; 0: there is none.
///
/// Errors: snapshots go to a cloud, or the folder cannot be read.
pub fn bytes_there(live: &Live) -> Result<u64, String> {
    let dir = dir_of(live)?;
    let redis = redis::file_of(live, &dir);
    // One that cannot be read is no reason to begin another.
    if matches!(Manifest::load(&Disk, &dir), Ok(None)) && redis.is_none() {
        return Ok(0);
    }
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let files = std::fs::read_dir(&dir).map_or(Vec::new(), |files| files.flatten().collect());
    let paths = files.iter().map(|file| file.path());
    let bytes: u64 = paths.filter(|path| tail::path_of(path) != *path).map(|path| size(&path)).sum();
    Ok(bytes.max(redis.map_or(0, |file| size(&file))).max(1))
}

/// Reads the journal back and switches it on, if the settings say so; to be called before clients are served. With no
/// journal there, but a snapshot, that is loaded first and [`keep`] switches the journal on afterwards.
///
/// Errors: what an operator has to know; the process must not serve then.
pub fn start(shared: &'static Shared) -> Result<(), String> {
    let live = shared.settings.live();
    if !live.persistence.appendonly {
        return Ok(());
    }
    let dir = dir_of(&live)?;
    let journal = &shared.journal;
    let fsync = live.persistence.appendfsync;
    if let Some(loaded) = replay::load(shared, &dir)? {
        if loaded.is_taken_over {
            journal.schedule_base();
        }
        let aside = journal.go_on_from(&dir, loaded.read_back, fsync, &loaded.ending);
        for (what, place) in aside.map_err(|error| at_dir(&dir, &error))? {
            tracing::warn!("journal: the damaged part of {} is kept in {}", what.display(), place.display());
        }
    } else {
        set_orphans_aside(&live, &dir)?;
        let clock_ms = unix_ms();
        let is_taken_over = redis::load(shared, &live, clock_ms)?;
        // What follows in those files is no part of what their base says of itself.
        shared.snapshots.loading.find(FoundPosition::default());
        if !is_taken_over && naming::newest(&live).map_err(|fault| fault.to_string())?.is_some() {
            return Ok(());
        }
        let generation = base::free_generation(&Disk, &dir).map_err(|error| at_dir(&dir, &error))?;
        // Until there is a base of ours the journal goes on from the files that were taken over.
        let (base, clock_ms) =
            if is_taken_over { (Some(TAKEN_OVER.to_owned()), clock_ms) } else { (None, 0) };
        let manifest = Manifest { base, generation, sequence: 1, clock_ms, ..Manifest::default() };
        if is_taken_over {
            journal.schedule_base();
        }
        journal.begin_new(&dir, fsync, manifest).map_err(|error| at_dir(&dir, &error))?;
    }
    journal.set_on();
    for cell in shared.cells {
        if let Some(mut held) = lease::take_one_patiently(cell, u32::MAX) {
            held.shard.changes.listen(Listeners::JOURNAL, true);
            lease::release_as_stranger(shared, held);
        }
    }
    sync::start(shared).map_err(|error| format!("cannot start the journal's thread: {error}"))
}

/// Gives bases that no manifest names other names, under which no later base takes their place.
///
/// Errors: the settings have the server refuse damage, or a file cannot be renamed.
fn set_orphans_aside(live: &Live, dir: &Path) -> Result<(), String> {
    let told =
        |base: &Path| format!("no manifest names the journal's base {}: it is not read", base.display());
    let found = folder::orphaned_bases(&Disk, dir).map_err(|error| at_dir(dir, &error))?;
    if let Some(base) = found.first().filter(|_| !live.persistence.aof_load_truncated) {
        return Err(format!("{}, and aof-load-truncated is no", told(base)));
    }
    for (base, aside) in base::set_orphans_aside(&Disk, dir).map_err(|error| at_dir(dir, &error))? {
        tracing::warn!("{}; kept in {}", told(&base), aside.display());
    }
    Ok(())
}

/// Switches the journal on while the server runs; a base follows as soon as it can be taken.
///
/// Errors: the folder cannot be used.
fn switch_on(local: &mut ThreadState) -> Result<(), String> {
    let (shared, dir) = (local.shared, dir_of(&local.live)?);
    sync::start(shared).map_err(|error| format!("cannot start the journal's thread: {error}"))?;
    let switched = shared.journal.switch_on(dir.clone(), local.live.persistence.appendfsync, local.now_ms);
    switched.map_err(|error| at_dir(&dir, &error))?;
    crate::pubsub::listen(local);
    tracing::info!("the journal is switched on, an AOF background was scheduled");
    Ok(())
}

/// Makes a folder and a generation for a base while the journal is off: the base holds what is there, nothing
/// follows it, and a start with the journal on begins with it.
///
/// Errors: the folder cannot be used.
pub fn make_room(local: &mut ThreadState) -> Result<(), String> {
    let (journal, dir) = (&local.shared.journal, dir_of(&local.live)?);
    let _switch = journal.switching();
    journal.make_room(dir.clone(), local.now_ms).map_err(|error| at_dir(&dir, &error))
}

/// Switches the journal off. Its files stay; what changes from now on is not in them.
fn switch_off(local: &mut ThreadState) {
    let journal = &local.shared.journal;
    journal.switch_off();
    crate::pubsub::listen(local);
    local.shared.snapshots.hold_until_base(false);
    if let Some(run) = shared_base(local.shared) {
        tracing::info!("Killing AOF child: the base that was being written is not wanted any more");
        run.cancel();
    }
    journal.ask_for_sync();
    tracing::info!("the journal is switched off");
}

fn shared_base(shared: &Shared) -> Option<Arc<snapshot::SnapshotRun>> {
    shared.snapshots.current().filter(|run| run.purpose == Purpose::Base)
}

/// Does what the settings say and what is due; called once a second on thread 0, and when the settings change. The
/// caller holds no shard.
///
/// Errors: the journal was to be switched on and cannot be.
pub fn keep(local: &mut ThreadState) -> Result<(), String> {
    let shared = local.shared;
    let journal = &shared.journal;
    if shared.snapshots.loading.is_on() {
        return Ok(());
    }
    {
        // One thread at a time, by the settings as they are now: those of the turn may be older than what another did.
        let _switch = journal.switching();
        local.refresh_settings();
        match (local.live.persistence.appendonly, journal.is_on()) {
            (true, false) => switch_on(local).inspect_err(|why| refuse_held_writers(shared, why))?,
            (false, true) => switch_off(local),
            _ => {}
        }
    }
    let persistence = &local.live.persistence;
    let growth = Growth {
        percentage: persistence.auto_aof_rewrite_percentage,
        bytes_min: persistence.auto_aof_rewrite_min_bytes,
    };
    if journal.wants_base(growth) {
        begin(local);
    }
    Ok(())
}

/// What became of a wish for a new base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RewriteBegun {
    /// It is being written.
    Now,
    /// It will be, after the snapshot that is being taken.
    Later,
    /// One is being written already.
    Already,
}

/// Begins a new base. The caller holds no shard.
pub fn begin(local: &mut ThreadState) -> RewriteBegun {
    let shared = local.shared;
    let journal = &shared.journal;
    // Not while it is being switched on: all shards have to tell of changes from the cut on.
    let _switch = journal.switching();
    match journal.claim_base() {
        Claimed::Now(generation) => begin_at(local, generation),
        Claimed::Awaits => RewriteBegun::Now,
        Claimed::Later => RewriteBegun::Later,
        Claimed::Already => RewriteBegun::Already,
    }
}

/// Goes on with a base whose segments are there by now; called in each turn of thread 0. The caller holds no shard.
pub fn go_on(local: &mut ThreadState) {
    let journal = &local.shared.journal;
    if !journal.has_made_segments() {
        return;
    }
    let _switch = journal.switching();
    if let Some(generation) = journal.take_awaited() {
        begin_at(local, generation);
    }
}

/// Begins the base of a generation. The caller has `switch`, and has said that one is under way.
fn begin_at(local: &mut ThreadState, generation: u64) -> RewriteBegun {
    let journal = &local.shared.journal;
    let folder = journal.folder().ok_or_else(|| "there is no folder".to_owned()).and_then(|dir| {
        let folder = storage::directory(&dir.display().to_string(), &CloudOptions::default());
        folder.map_err(|fault| fault.to_string())
    });
    let Ok(folder) = folder.inspect_err(|why| tracing::error!("the journal gets no new base: {why}")) else {
        journal.put_off();
        return RewriteBegun::Later;
    };
    let cut = Arc::new(BaseCut::default());
    let noted = cut.clone();
    let order = SnapshotOrder {
        create: Box::new(move |name| folder.create(name)),
        name: folder::base_name(generation, "darter"),
        format: NameFormat::Native,
        packs: local.live.persistence.native_compression,
        has_checksum: true,
        bytes_per_s_max: 0,
        purpose: Purpose::Base,
        at_cut: Some(Box::new(move |local: &mut ThreadState| {
            let journal = &local.shared.journal;
            // Clocks of threads differ a little.
            // On a replica what is dead stays until the master removes it.
            let keeps_dead = local.shared.replication.keeps_dead();
            let clock_ms = if keeps_dead { 1 } else { local.now_ms.saturating_sub(CLOCKS_APART_MS) };
            journal.cut(generation, clock_ms, &noted);
            local.shared.replication.note_uncommitted(local);
        })),
        then: vec![Box::new(move |shared, outcome| end(shared, generation, &cut, outcome))],
    };
    match snapshot::start(local, order) {
        Ok(_) => RewriteBegun::Now,
        Err(RefusedSave::Busy(_)) => {
            journal.give_up_base();
            RewriteBegun::Later
        }
        Err(_) => {
            journal.put_off();
            RewriteBegun::Later
        }
    }
}

/// More than clocks of two threads can differ by.
const CLOCKS_APART_MS: u64 = 5_000;
/// Makes a base that is written the one that counts; runs on the thread that wrote it.
fn end(shared: &'static Shared, generation: u64, cut: &BaseCut, outcome: &Result<Saved, String>) {
    let written = outcome.as_ref().map(|saved| (saved.name.as_str(), saved.bytes)).map_err(String::clone);
    match (shared.journal.adopt_base(generation, cut, written, shared), outcome) {
        (Ok(true), Ok(saved)) => {
            tracing::info!("the journal has a new base: {} keys, {} bytes", saved.keys, saved.bytes);
        }
        (Ok(_), _) => {}
        (Err(error), _) => {
            refuse_held_writers(shared, &error);
            tracing::error!("the journal gets no new base: {error}");
        }
    }
}

/// Until the first base is complete, whatever waits for it hears that there is none.
fn refuse_held_writers(shared: &Shared, why: &str) {
    if shared.snapshots.hold_until_base(false) {
        shared.journal.note_lack_of_base(why);
    }
}

/// Loads the base of a journal as of its cut, and its functions.
///
/// Errors: what is wrong with it.
pub fn load_base(
    shared: &'static Shared,
    local: &mut ThreadState,
    dir: &Path,
    name: &str,
    as_of_ms: u64,
) -> Result<u64, String> {
    let folder = storage::directory(&dir.display().to_string(), &CloudOptions::default());
    let folder = folder.map_err(|fault| fault.to_string())?;
    let path = dir.join(name);
    if !path.exists() {
        return Err(format!("the journal's base {} is missing", path.display()));
    }
    let functions = load::base(shared, &*folder, name, as_of_ms)?;
    crate::script_run::know_libraries(local, &functions);
    Ok(std::fs::metadata(path).map_or(0, |metadata| metadata.len()))
}

//! Switching the journal on and off, and giving it a new base.
//!
//! A base is a snapshot. At its cut, while all shards are held, a new generation of segments begins; when the base is
//! on disk the manifest names it, and what came before is deleted. Until then the old base and all segments hold
//! everything.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use darter_persist::journal::ending::rename_aside;
use darter_persist::journal::manifest::{Manifest, TAKEN_OVER};
use darter_persist::journal::{folder, tail};
use darter_persist::storage::name::Format;
use darter_persist::storage::{self, CloudOptions};
use darter_store::change::Listeners;

use super::{IsOnDisk, Journal, Listed, NONE, redis, replay, sync};
use crate::config::{Fsync, Live};
use crate::core::{Core, unix_ms};
use crate::engine::lease;
use crate::replication::position::Found;
use crate::shared::Shared;
use crate::snapshot::run::Saved;
use crate::snapshot::{self, Order, Purpose, Refused, load, naming};
use crate::worker::lock;

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
    retry_at: Option<Instant>,
    /// Segments of this generation were asked for.
    ahead: u64,
    /// The base under way begins when these are there.
    awaits: Option<u64>,
    /// Growth alone is no reason for another before this.
    rests_until: Option<Instant>,
}

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
    if matches!(Manifest::load(&dir), Ok(None)) && redis.is_none() {
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
        journal.next.store(loaded.sequence, SeqCst);
        journal.base_generation.store(loaded.base_generation, SeqCst);
        journal.bytes.store(loaded.bytes, SeqCst);
        journal.base_bytes.store(loaded.base_bytes, SeqCst);
        // What is missing from the files is no part of a new base.
        lock(&journal.rewrite).is_due |= loaded.is_taken_over || !loaded.ending.is_sound();
        begin_first(journal, &dir, loaded.generation, fsync, loaded.ending.manifest_after())?;
        let aside = loaded.ending.settle().map_err(|error| at_dir(&dir, &error))?;
        for (what, place) in aside {
            tracing::warn!("journal: what is left out of {} is kept in {}", what.display(), place.display());
        }
    } else {
        set_orphans_aside(&live, &dir)?;
        let clock_ms = unix_ms();
        let is_taken_over = redis::load(shared, &live, clock_ms)?;
        // What follows in those files is no part of what their base says of itself.
        shared.snapshots.loading.find(Found::default());
        if !is_taken_over && naming::newest(&live).map_err(|fault| fault.to_string())?.is_some() {
            return Ok(());
        }
        let generation = free_generation(&dir)?;
        // Until there is a base of ours the journal goes on from the files that were taken over.
        let (base, clock_ms) =
            if is_taken_over { (Some(TAKEN_OVER.to_owned()), clock_ms) } else { (None, 0) };
        let manifest = Manifest { base, generation, sequence: 1, clock_ms, ..Manifest::default() };
        lock(&journal.rewrite).is_due |= is_taken_over;
        journal.base_generation.store(generation, SeqCst);
        begin_first(journal, &dir, generation, fsync, manifest)?;
    }
    journal.is_on.store(true, Release);
    for cell in shared.cells {
        if let Some(mut held) = lease::take_one_patiently(cell, u32::MAX) {
            held.shard.changes.listen(Listeners::JOURNAL, true);
            lease::release_as_stranger(shared, held);
        }
    }
    sync::start(shared).map_err(|error| format!("cannot start the journal's thread: {error}"))
}

/// Makes the segments of the generation that this process begins with, and has `manifest` name them.
///
/// Errors: the manifest cannot be stored. Segments that cannot be made are made when they are needed.
fn begin_first(
    journal: &Journal,
    dir: &Path,
    generation: u64,
    fsync: Fsync,
    manifest: Manifest,
) -> Result<(), String> {
    journal.set_dir(dir.to_owned());
    journal.generation.store(generation, SeqCst);
    let segments = Some(manifest.segments.unwrap_or_default());
    let manifest = Manifest { segments, ..manifest };
    journal.set_listed(manifest.clone(), IsOnDisk::Yes);
    if let Err(error) = journal.make_ahead(generation, fsync) {
        tracing::error!("the journal's segments cannot be made: {error}");
        manifest.store(dir).map_err(|error| at_dir(dir, &error))?;
    }
    Ok(())
}

/// Gives bases that no manifest names other names, under which no later base takes their place.
///
/// Errors: the settings have the server refuse damage, or a file cannot be renamed.
fn set_orphans_aside(live: &Live, dir: &Path) -> Result<(), String> {
    let found = folder::orphaned_bases(dir).map_err(|error| at_dir(dir, &error))?;
    for base in found {
        let what = format!("no manifest names the journal's base {}: it is not read", base.display());
        if !live.persistence.aof_load_truncated {
            return Err(format!("{what}, and aof-load-truncated is no"));
        }
        let aside = rename_aside(&base, "damaged").map_err(|error| at_dir(dir, &error))?;
        tracing::warn!("{what}; kept in {}", aside.display());
    }
    Ok(())
}

fn at_dir(dir: &Path, error: &std::io::Error) -> String {
    format!("cannot use the journal's folder {}: {error}", dir.display())
}

/// Makes the folder if need be; returns a generation that is later than all there.
fn free_generation(dir: &Path) -> Result<u64, String> {
    std::fs::create_dir_all(dir).map_err(|error| at_dir(dir, &error))?;
    let old = folder::segments(dir).map_err(|error| at_dir(dir, &error))?;
    let manifest = Manifest::load(dir).map_err(|error| at_dir(dir, &error))?;
    let begun = manifest.and_then(Result::ok).map_or(0, |manifest| manifest.generation);
    Ok(old.iter().map(|found| found.generation).fold(begun, u64::max) + 1)
}

/// Switches the journal on while the server runs; a base follows as soon as it can be taken.
///
/// Errors: the folder cannot be used.
fn switch_on(core: &mut Core) -> Result<(), String> {
    let (shared, dir) = (core.shared, dir_of(&core.live)?);
    let journal = &shared.journal;
    let free = free_generation(&dir)?;
    journal.close_ahead();
    journal.set_dir(dir);
    // What is on disk belongs to the time before it was switched off.
    journal.set_listed(Manifest::default(), IsOnDisk::No);
    sync::start(shared).map_err(|error| format!("cannot start the journal's thread: {error}"))?;
    let generation = {
        // A base that was begun before does not hold what happened since: from here on it does not count.
        let mut rewrite = lock(&journal.rewrite);
        journal.generation.fetch_max(free - 1, SeqCst);
        let generation = journal.generation.fetch_add(1, SeqCst) + 1;
        journal.base_generation.store(generation, SeqCst);
        journal.since.store(generation, SeqCst);
        rewrite.is_due = true;
        generation
    };
    if let Err(error) = journal.make_ahead(generation, core.live.persistence.appendfsync) {
        tracing::error!("the journal's segments cannot be made: {error}");
    }
    // What happened while it was off is in no file: after this gap nothing is taken for a continuation.
    journal.jump_to(core.now_ms << SEQUENCES_PER_MS);
    journal.is_on.store(true, Release);
    crate::pubsub::listen(core);
    tracing::info!("the journal is switched on, an AOF background was scheduled");
    Ok(())
}

/// Makes a folder and a generation for a base while the journal is off: the base holds what is there, nothing
/// follows it, and a start with the journal on begins with it.
///
/// Errors: the folder cannot be used.
pub fn make_room(core: &mut Core) -> Result<(), String> {
    let (journal, dir) = (&core.shared.journal, dir_of(&core.live)?);
    let _switch = lock(&journal.switch);
    if journal.is_on() || journal.is_rewriting() {
        return Ok(());
    }
    journal.generation.fetch_max(free_generation(&dir)?, SeqCst);
    journal.set_dir(dir);
    journal.jump_to(core.now_ms << SEQUENCES_PER_MS);
    Ok(())
}

/// Far more changes than there can be, as a power of two.
const SEQUENCES_PER_MS: u32 = 20;

/// Switches the journal off. Its files stay; what changes from now on is not in them.
fn switch_off(core: &mut Core) {
    let journal = &core.shared.journal;
    journal.is_on.store(false, Release);
    crate::pubsub::listen(core);
    lock(&journal.rewrite).is_due = false;
    journal.since.store(NONE, SeqCst);
    core.shared.snapshots.hold_until_base(false);
    if let Some(run) = shared_base(core.shared) {
        tracing::info!("Killing AOF child: the base that was being written is not wanted any more");
        run.cancel();
    }
    journal.ask_for_sync();
    tracing::info!("the journal is switched off");
}

fn shared_base(shared: &Shared) -> Option<Arc<snapshot::Run>> {
    shared.snapshots.current().filter(|run| run.purpose == Purpose::Base)
}

/// Does what the settings say and what is due; called once a second on thread 0, and when the settings change. The
/// caller holds no shard.
///
/// Errors: the journal was to be switched on and cannot be.
pub fn keep(core: &mut Core) -> Result<(), String> {
    let shared = core.shared;
    let journal = &shared.journal;
    if shared.snapshots.loading.is_on() {
        return Ok(());
    }
    {
        // One thread at a time, by the settings as they are now: those of the turn may be older than what another did.
        let _switch = lock(&journal.switch);
        core.refresh_settings();
        match (core.live.persistence.appendonly, journal.is_on()) {
            (true, false) => switch_on(core).inspect_err(|why| refuse_held_writers(shared, why))?,
            (false, true) => switch_off(core),
            _ => {}
        }
    }
    if (journal.is_on() || lock(&journal.rewrite).is_due) && journal.is_base_due(&core.live) {
        begin(core);
    }
    Ok(())
}

/// What became of a wish for a new base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// It is being written.
    Now,
    /// It will be, after the snapshot that is being taken.
    Later,
    /// One is being written already.
    Already,
}

/// Begins a new base. The caller holds no shard.
pub fn begin(core: &mut Core) -> Begun {
    let shared = core.shared;
    let journal = &shared.journal;
    // Not while it is being switched on: all shards have to tell of changes from the cut on.
    let _switch = lock(&journal.switch);
    lock(&journal.rewrite).is_due = true;
    if journal.dir().is_none() {
        return Begun::Later;
    }
    let generation = journal.generation.load(SeqCst) + 1;
    {
        // One at a time, from here to the end of its cleaning up.
        let mut rewrite = lock(&journal.rewrite);
        if rewrite.since.is_some() {
            return Begun::Already;
        }
        rewrite.since = Some(Instant::now());
    }
    if journal.is_on() && !journal.is_made(generation) {
        // No thread that serves clients waits for the disk.
        lock(&journal.rewrite).awaits = Some(generation);
        journal.ask_for_segments(generation);
        return Begun::Now;
    }
    begin_at(core, generation)
}

/// Goes on with a base whose segments are there by now; called in each turn of thread 0. The caller holds no shard.
pub fn go_on(core: &mut Core) {
    let journal = &core.shared.journal;
    if !journal.has_made.load(Relaxed) || !journal.has_made.swap(false, SeqCst) {
        return;
    }
    let _switch = lock(&journal.switch);
    let Some(generation) = lock(&journal.rewrite).awaits.take() else { return };
    if !journal.is_on() || journal.generation.load(SeqCst) + 1 != generation {
        // It was switched off since.
        lock(&journal.rewrite).since = None;
    } else if journal.is_made(generation) {
        begin_at(core, generation);
    } else {
        journal.put_off();
    }
}

/// Begins the base of a generation. The caller has `switch`, and has said that one is under way.
fn begin_at(core: &mut Core, generation: u64) -> Begun {
    let journal = &core.shared.journal;
    let folder = journal.dir().ok_or_else(|| "there is no folder".to_owned()).and_then(|dir| {
        let folder = storage::directory(&dir.display().to_string(), &CloudOptions::default());
        folder.map_err(|fault| fault.to_string())
    });
    let Ok(folder) = folder.inspect_err(|why| tracing::error!("the journal gets no new base: {why}")) else {
        return journal.put_off();
    };
    let cut = Arc::new(Cut::default());
    let noted = cut.clone();
    let order = Order {
        create: Box::new(move |name| folder.create(name)),
        name: folder::base_name(generation, "darter"),
        format: Format::Native,
        packs: core.live.persistence.native_compression,
        has_checksum: true,
        bytes_per_s_max: 0,
        purpose: Purpose::Base,
        at_cut: Some(Box::new(move |core: &mut Core| {
            let journal = &core.shared.journal;
            let begun = journal.generation.compare_exchange(generation - 1, generation, SeqCst, SeqCst);
            noted.is_late.store(begun.is_err(), Relaxed);
            noted.sequence.store(journal.next.load(SeqCst), Relaxed);
            // Clocks of threads differ a little.
            // On a replica what is dead stays until the master removes it.
            let keeps_dead = core.shared.replication.keeps_dead();
            let clock_ms = if keeps_dead { 1 } else { core.now_ms.saturating_sub(CLOCKS_APART_MS) };
            noted.clock_ms.store(clock_ms, Relaxed);
        })),
        then: vec![Box::new(move |shared, outcome| end(shared, generation, &cut, outcome))],
    };
    match snapshot::start(core, order) {
        Ok(_) => Begun::Now,
        Err(Refused::Busy) => {
            lock(&journal.rewrite).since = None;
            Begun::Later
        }
        Err(_) => journal.put_off(),
    }
}

/// More than clocks of two threads can differ by.
const CLOCKS_APART_MS: u64 = 5_000;
/// Time after a failure until the next attempt.
const RETRY: Duration = Duration::from_secs(10);

/// Bases that follow from growth alone are written for a tenth of the time at most, however fast the journal grows: what
/// it grows by meanwhile is read at start as fast as it was written, and more.
const RESTS: u32 = 9;

/// Where the segments of a new base begin.
#[derive(Default)]
struct Cut {
    sequence: AtomicU64,
    clock_ms: AtomicU64,
    // The generation was taken when it came to be made.
    is_late: AtomicBool,
}

/// Makes a base that is written the one that counts; runs on the thread that wrote it.
fn end(shared: &'static Shared, generation: u64, cut: &Cut, outcome: &Result<Saved, String>) {
    let journal = &shared.journal;
    let sequence = cut.sequence.load(Relaxed);
    // It was switched on since: what came between is in no file, and the next base is the one that counts.
    let is_overtaken = || cut.is_late.load(Relaxed) || generation < journal.base_generation.load(SeqCst);
    if is_overtaken() {
        lock(&journal.rewrite).since = None;
        return;
    }
    let stored = outcome.as_ref().map_err(String::clone).and_then(|saved| {
        let mut listed = lock(&journal.listed);
        // Gaps before its first record are no part of it.
        let gaps = listed.manifest.gaps.iter().filter(|(first, _)| *first >= sequence).copied().collect();
        let mut segments = listed.manifest.segments.clone().unwrap_or_default();
        segments.retain(|(of, _)| *of >= generation);
        let manifest = Manifest {
            base: Some(saved.name.clone()),
            generation,
            sequence,
            clock_ms: cut.clock_ms.load(Relaxed),
            segments: Some(segments),
            gaps,
        };
        let dir = journal.dir().ok_or("there is no folder")?;
        manifest.store(&dir).map_err(|error| at_dir(&dir, &error))?;
        *listed = Listed { manifest, is_on_disk: true };
        Ok((dir, saved))
    });
    // Held to the end: a base that is begun before this one has cleaned up could be deleted by it.
    let mut rewrite = lock(&journal.rewrite);
    let took = rewrite.since.take().map(|since| since.elapsed());
    if is_overtaken() {
        return;
    }
    rewrite.took_s = took.map(|took| took.as_secs());
    rewrite.rests_until = took.map(|took| Instant::now() + took * RESTS);
    match stored {
        Ok((dir, saved)) => {
            rewrite.count += 1;
            rewrite.failures = 0;
            rewrite.is_due = false;
            rewrite.retry_at = None;
            journal.base_generation.store(generation, SeqCst);
            journal.since.store(NONE, SeqCst);
            for slot in &journal.slots {
                slot.synced.fetch_max(sequence.saturating_sub(1), SeqCst);
                // What they hold is in the base. Where nothing is synced they would stay open for ever.
                let mut files = lock(&slot.files);
                let old = files.len().saturating_sub(1);
                files.drain(..old);
                lock(&slot.ahead).retain(|ahead| ahead.generation >= generation);
            }
            journal.note_trouble(|trouble| trouble.syncing = None);
            shared.snapshots.hold_until_base(false);
            clean_up(&dir, generation);
            let bytes = saved.bytes + bytes_of(&dir);
            journal.bytes.store(bytes, SeqCst);
            journal.base_bytes.store(bytes, SeqCst);
            journal.announce(shared);
            // Nothing was synced while one that failed stood in the way.
            journal.ask_for_sync();
            tracing::info!("the journal has a new base: {} keys, {} bytes", saved.keys, saved.bytes);
        }
        Err(error) => {
            rewrite.failures += 1;
            rewrite.retry_at = Some(Instant::now() + RETRY);
            refuse_held_writers(shared, &error);
            tracing::error!("the journal gets no new base: {error}");
        }
    }
}

/// Who waits for the first base is told that there is none, until there is one.
fn refuse_held_writers(shared: &Shared, why: &str) {
    if shared.snapshots.hold_until_base(false) {
        shared.journal.note_trouble(|trouble| trouble.syncing = Some(why.to_owned()));
    }
}

/// Deletes what the base of `generation` has made superfluous. A file that cannot be deleted is no harm.
fn clean_up(dir: &Path, generation: u64) {
    for found in folder::segments(dir).unwrap_or_default() {
        if found.generation < generation {
            let _ = std::fs::remove_file(tail::path_of(&found.path));
            let _ = std::fs::remove_file(found.path);
        }
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let base = name.to_str().and_then(folder::generation_of_base);
        if base.is_some_and(|base| base < generation) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn bytes_of(dir: &Path) -> u64 {
    let found = folder::segments(dir).unwrap_or_default();
    found.iter().filter_map(|found| std::fs::metadata(&found.path).ok()).map(|metadata| metadata.len()).sum()
}

impl Journal {
    /// A base cannot be begun now.
    fn put_off(&self) -> Begun {
        let mut rewrite = lock(&self.rewrite);
        rewrite.since = None;
        rewrite.failures += 1;
        rewrite.retry_at = Some(Instant::now() + RETRY);
        Begun::Later
    }

    /// Whether a new base is being written.
    pub fn is_rewriting(&self) -> bool {
        lock(&self.rewrite).since.is_some()
    }

    /// Whether the journal was switched on and has no base yet: after an end now it would not hold what is there.
    pub fn lacks_base(&self) -> bool {
        self.is_on() && self.since.load(SeqCst) != NONE
    }

    /// Asks for a new base: the data has become other than the records tell.
    pub fn ask_for_base(&self) {
        lock(&self.rewrite).is_due = self.is_on();
    }

    /// Asks for a new base, also while the journal is off.
    pub fn schedule_base(&self) {
        lock(&self.rewrite).is_due = true;
    }

    fn is_base_due(&self, live: &Live) -> bool {
        let is_broken = lock(&self.trouble).syncing.is_some();
        let mut rewrite = lock(&self.rewrite);
        if rewrite.since.is_some() || rewrite.retry_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        let persistence = &live.persistence;
        let (bytes, base) = (self.bytes.load(Relaxed), self.base_bytes.load(Relaxed));
        let growth = u64::from(persistence.auto_aof_rewrite_percentage);
        let limit = base.saturating_add((base / 100).saturating_mul(growth));
        let rests = rewrite.rests_until.is_some_and(|at| Instant::now() < at);
        let has_grown =
            !rests && growth > 0 && bytes > persistence.auto_aof_rewrite_min_bytes && bytes > limit;
        rewrite.is_due || is_broken || has_grown && self.has_ahead(&mut rewrite)
    }

    /// Whether segments behind the next base were asked for before; now they are.
    fn has_ahead(&self, rewrite: &mut Rewrite) -> bool {
        let next = self.generation.load(SeqCst) + 1;
        let was_asked = std::mem::replace(&mut rewrite.ahead, next) == next;
        if !was_asked {
            self.ask_for_segments(next);
        }
        was_asked
    }
}

/// Loads the base of a journal as of its cut, and its functions.
///
/// Errors: what is wrong with it.
pub fn load_base(
    shared: &'static Shared,
    core: &mut Core,
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
    crate::script_run::know_libraries(core, &functions);
    Ok(std::fs::metadata(path).map_or(0, |metadata| metadata.len()))
}

/// What several threads may do to a rewrite.
const _: () = {
    const fn is_sync<T: Sync>() {}
    is_sync::<Mutex<Rewrite>>();
};

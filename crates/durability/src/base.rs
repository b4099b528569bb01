//! Bases: beginning them and having the manifest name them; switching the journal on and off, and going on at start.
//!
//! A base is a snapshot, which somebody else writes. At its cut, while all shards are held, a new generation of segments
//! begins; when the base is on disk the manifest names it, and what came before is deleted. Until then the old base and
//! all segments hold everything.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use darter_persist::files::Files;
use darter_persist::journal::ending::{Ending, forget_unsynced, rename_aside};
use darter_persist::journal::manifest::Manifest;
use darter_persist::journal::{folder, tail};

use super::{Fsync, IsOnDisk, Journal, JournalHost, ListedSegments, NONE, lock};

/// State of rewrites.
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

/// Where the segments of a new base begin.
#[derive(Default, Debug)]
pub struct BaseCut {
    sequence: AtomicU64,
    clock_ms: AtomicU64,
    // The generation was taken when it came to be made.
    is_late: AtomicBool,
}

/// What was read back at start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadBack {
    /// A generation that no file has yet.
    pub generation: u64,
    /// The first generation that is needed.
    pub base_generation: u64,
    /// Bytes of the base and the segments.
    pub bytes: u64,
    /// Bytes of the base.
    pub base_bytes: u64,
}

/// What becomes of the wish for a base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claimed {
    /// It is to be begun now, with this generation.
    Now(u64),
    /// It is begun when its segments are there: [`Journal::take_awaited`].
    Awaits,
    /// There is no folder yet.
    Later,
    /// One is being written.
    Already,
}

/// When the journal has grown so much that a base is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Percent of what it was after the last base; 0: never.
    pub percentage: u32,
    /// Bytes that it has at least.
    pub bytes_min: u64,
}

/// Time after a failure until the next attempt.
const RETRY: Duration = Duration::from_secs(10);
/// Bases that follow from growth alone are written for a tenth of the time at most, however fast the journal grows: what
/// it grows by meanwhile is read at start as fast as it was written, and more.
const RESTS: u32 = 9;
/// Far more changes than there can be, as a power of two.
const SEQUENCES_PER_MS: u32 = 20;

/// A journal that notes nothing for a while.
#[derive(Debug)]
#[must_use]
pub struct Paused {
    was_on: bool,
}

impl<F: Files> Journal<F> {
    /// Goes on from a journal that was read back: its files are made whole, and new segments begin. Returns what was set
    /// aside, as what it was and where it is now.
    ///
    /// Errors: of the files; a later start finds the same again.
    pub fn go_on_from(
        &self,
        dir: &Path,
        found: ReadBack,
        fsync: Fsync,
        ending: &Ending<F>,
    ) -> io::Result<Vec<(PathBuf, PathBuf)>> {
        self.next.store(ending.sequence, SeqCst);
        self.base_generation.store(found.base_generation, SeqCst);
        self.set_bytes(found.bytes);
        self.base_bytes.store(found.base_bytes, SeqCst);
        // What is missing from the files is no part of a new base.
        lock(&self.rewrite).is_due |= !ending.is_sound();
        self.begin_first(dir, found.generation, fsync, ending.manifest_after())?;
        ending.settle()
    }

    /// Begins a journal whose manifest is this one: there was none.
    ///
    /// Errors: the manifest cannot be stored.
    pub fn begin_new(&self, dir: &Path, fsync: Fsync, manifest: Manifest) -> io::Result<()> {
        self.base_generation.store(manifest.generation, SeqCst);
        self.begin_first(dir, manifest.generation, fsync, manifest)
    }

    /// Makes the segments of the generation that this process begins with, and has `manifest` name them.
    ///
    /// Errors: the manifest cannot be stored. Segments that cannot be made are made when they are needed.
    fn begin_first(&self, dir: &Path, generation: u64, fsync: Fsync, manifest: Manifest) -> io::Result<()> {
        self.set_dir(dir.to_owned());
        self.generation.store(generation, SeqCst);
        let segments = Some(manifest.segments.unwrap_or_default());
        let manifest = Manifest { segments, ..manifest };
        self.set_listed(manifest.clone(), IsOnDisk::Yes);
        if let Err(error) = self.make_ahead(generation, fsync) {
            tracing::error!("the journal's segments cannot be made: {error}");
            manifest.store(&self.files, dir)?;
        }
        Ok(())
    }

    /// From now on changes are noted.
    pub fn set_on(&self) {
        self.is_on.store(true, Release);
    }

    /// Notes nothing until [`Journal::resume`], not even for replicas: they begin anew after what is read meanwhile. A
    /// record for them alone would take a sequence that no file has. A record of [`Journal::note_alone`] is whole, in a
    /// segment that the manifest names, or is not begun.
    pub fn pause(&self) -> Paused {
        let _nobody = lock(&self.foreign);
        self.is_paused.store(true, Release);
        Paused { was_on: self.is_on.swap(false, std::sync::atomic::Ordering::AcqRel) }
    }

    /// Notes changes again as before the pause.
    pub fn resume(&self, paused: Paused) {
        if paused.was_on {
            self.set_on();
        }
        self.is_paused.store(false, Release);
    }

    /// Held by the thread that switches the journal on or off, or begins a base.
    pub fn switching(&self) -> MutexGuard<'_, ()> {
        lock(&self.switch)
    }

    /// Switches the journal on while the server runs; a base follows as soon as it can be taken. The caller holds
    /// [`Journal::switching`].
    ///
    /// Errors: the folder cannot be used.
    pub fn switch_on(&self, dir: PathBuf, fsync: Fsync, now_ms: u64) -> io::Result<()> {
        let _making = lock(&self.making);
        let free = free_generation(&self.files, &dir)?;
        self.close_ahead();
        self.set_dir(dir);
        // What is on disk belongs to the time before it was switched off.
        self.set_listed(Manifest::default(), IsOnDisk::No);
        let generation = {
            // A base that was begun before does not hold what happened since: from here on it does not count.
            let mut rewrite = lock(&self.rewrite);
            self.generation.fetch_max(free - 1, SeqCst);
            let generation = self.generation.fetch_add(1, SeqCst) + 1;
            self.base_generation.store(generation, SeqCst);
            self.since.store(generation, SeqCst);
            rewrite.is_due = true;
            generation
        };
        if let Err(error) = self.make_ahead(generation, fsync) {
            tracing::error!("the journal's segments cannot be made: {error}");
        }
        // What happened while it was off is in no file: after this gap nothing is taken for a continuation.
        self.jump_to(now_ms << SEQUENCES_PER_MS);
        self.is_on.store(true, Release);
        Ok(())
    }

    /// Switches the journal off. Its files stay; what changes from now on is not in them.
    pub fn switch_off(&self) {
        self.is_on.store(false, Release);
        lock(&self.rewrite).is_due = false;
        self.since.store(NONE, SeqCst);
    }

    /// Makes a folder and a generation for a base while the journal is off: the base holds what is there, nothing
    /// follows it, and a start with the journal on begins with it. The caller holds [`Journal::switching`].
    ///
    /// Errors: the folder cannot be used.
    pub fn make_room(&self, dir: PathBuf, now_ms: u64) -> io::Result<()> {
        if self.is_on() || self.is_rewriting() {
            return Ok(());
        }
        self.generation.fetch_max(free_generation(&self.files, &dir)?, SeqCst);
        self.set_dir(dir);
        self.jump_to(now_ms << SEQUENCES_PER_MS);
        Ok(())
    }

    /// Asks to begin a base. The caller holds [`Journal::switching`]; it has to call [`Journal::put_off`] or
    /// [`Journal::give_up_base`] if the base cannot be begun.
    pub fn claim_base(&self) -> Claimed {
        lock(&self.rewrite).is_due = true;
        if self.dir().is_none() {
            return Claimed::Later;
        }
        let generation = self.generation.load(SeqCst) + 1;
        {
            // One at a time, from here to the end of its cleaning up.
            let mut rewrite = lock(&self.rewrite);
            if rewrite.since.is_some() {
                return Claimed::Already;
            }
            rewrite.since = Some(self.files.now());
        }
        if self.is_on() && !self.is_made(generation) {
            // No thread that serves clients waits for the disk.
            lock(&self.rewrite).awaits = Some(generation);
            self.ask_for_segments(generation);
            return Claimed::Awaits;
        }
        Claimed::Now(generation)
    }

    /// Whether segments that were asked for have been made, or cannot be, since this was last asked.
    pub fn has_made_segments(&self) -> bool {
        self.has_made.load(Relaxed) && self.has_made.swap(false, SeqCst)
    }

    /// The generation of a base that is to be begun now that its segments are there. The caller holds
    /// [`Journal::switching`].
    pub fn take_awaited(&self) -> Option<u64> {
        let generation = lock(&self.rewrite).awaits.take()?;
        if !self.is_on() || self.generation.load(SeqCst) + 1 != generation {
            // It was switched off since.
            self.give_up_base();
            None
        } else if self.is_made(generation) {
            Some(generation)
        } else {
            self.put_off();
            None
        }
    }

    /// Begins a generation: all shards are held, and the base shows what is there at `clock_ms`.
    pub fn cut(&self, generation: u64, clock_ms: u64, cut: &BaseCut) {
        let begun = self.generation.compare_exchange(generation - 1, generation, SeqCst, SeqCst);
        cut.is_late.store(begun.is_err(), Relaxed);
        cut.sequence.store(self.next.load(SeqCst), Relaxed);
        cut.clock_ms.store(clock_ms, Relaxed);
    }

    /// A base that was claimed is not begun, and wanted later.
    pub fn give_up_base(&self) {
        lock(&self.rewrite).since = None;
    }

    /// A base cannot be begun now.
    pub fn put_off(&self) {
        let mut rewrite = lock(&self.rewrite);
        rewrite.since = None;
        rewrite.failures += 1;
        rewrite.retry_at = Some(self.files.now() + RETRY);
    }

    /// Makes a base that is on disk the one that counts: its file name, and its length in bytes. Returns whether it counts;
    /// a later one may have taken its place.
    ///
    /// Errors: it could not be written, or the manifest could not.
    pub fn adopt_base(
        &self,
        generation: u64,
        cut: &BaseCut,
        written: Result<(&str, u64), String>,
        host: &impl JournalHost,
    ) -> Result<bool, String> {
        let sequence = cut.sequence.load(Relaxed);
        // It was switched on since: what came between is in no file, and the next base is the one that counts.
        let is_overtaken = || cut.is_late.load(Relaxed) || generation < self.base_generation.load(SeqCst);
        if is_overtaken() {
            self.give_up_base();
            return Ok(false);
        }
        let stored = written.and_then(|(name, bytes)| Ok((self.name_base(generation, cut, name)?, bytes)));
        let (dir, bytes) = {
            let mut rewrite = lock(&self.rewrite);
            if is_overtaken() {
                rewrite.since = None;
                return Ok(false);
            }
            let now = self.files.now();
            let took = rewrite.since.map(|since| now.saturating_duration_since(since));
            rewrite.took_s = took.map(|took| took.as_secs());
            rewrite.rests_until = took.map(|took| now + took * RESTS);
            let stored = match stored {
                Ok(stored) => stored,
                Err(error) => {
                    rewrite.since = None;
                    rewrite.failures += 1;
                    rewrite.retry_at = Some(now + RETRY);
                    return Err(error);
                }
            };
            rewrite.failures = 0;
            rewrite.is_due = false;
            rewrite.retry_at = None;
            self.base_generation.store(generation, SeqCst);
            self.since.store(NONE, SeqCst);
            stored
        };
        // Files are removed without a lock that serving threads take. Another base could be deleted by that, but
        // none begins while `Rewrite::since` is set.
        for slot in &self.slots {
            slot.synced.fetch_max(sequence.saturating_sub(1), SeqCst);
            // What they hold is in the base. Where nothing is synced they would stay open for ever.
            let mut files = lock(&slot.files);
            let old = files.len().saturating_sub(1);
            files.drain(..old);
            lock(&slot.ahead).retain(|ahead| ahead.generation >= generation);
        }
        forget_unsynced(&self.files, &dir);
        self.note_trouble(|trouble| trouble.syncing = None);
        host.has_base();
        if self.kept_bytes_max.load(Relaxed) > 0 {
            // What replicas may still ask for is to be in the files.
            self.sync_all();
        }
        clean_up(&self.files, &dir, generation, self.kept_bytes_max.load(Relaxed));
        let bytes = bytes + bytes_of(&self.files, &dir, generation);
        self.set_bytes(bytes);
        self.base_bytes.store(bytes, SeqCst);
        self.announce(host);
        // Nothing was synced while one that failed stood in the way.
        self.ask_for_sync();
        let mut rewrite = lock(&self.rewrite);
        rewrite.since = None;
        rewrite.count += 1;
        Ok(true)
    }

    /// Has the manifest name a base.
    fn name_base(
        &self,
        generation: u64,
        cut: &BaseCut,
        name: &str,
    ) -> Result<std::sync::Arc<PathBuf>, String> {
        let sequence = cut.sequence.load(Relaxed);
        let mut listed = lock(&self.listed);
        // Gaps before its first record are no part of it.
        let gaps = listed.manifest.gaps.iter().filter(|(first, _)| *first >= sequence).copied().collect();
        let mut segments = listed.manifest.segments.clone().unwrap_or_default();
        segments.retain(|(of, _)| *of >= generation);
        let manifest = Manifest {
            base: Some(name.to_owned()),
            generation,
            sequence,
            clock_ms: cut.clock_ms.load(Relaxed),
            segments: Some(segments),
            gaps,
        };
        let dir = self.dir().ok_or("there is no folder")?;
        manifest.store(&self.files, &dir).map_err(|error| at_dir(&dir, &error))?;
        *listed = ListedSegments { manifest, is_on_disk: true };
        Ok(dir)
    }

    /// There is no base, and writes that wait for the first one are refused until there is.
    pub fn note_lack_of_base(&self, why: &str) {
        self.note_trouble(|trouble| trouble.syncing = Some(why.to_owned()));
    }

    /// Its folder, once it has one.
    pub fn folder(&self) -> Option<PathBuf> {
        self.dir().map(|dir| dir.as_ref().clone())
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

    /// Whether a base is to be begun now.
    pub fn wants_base(&self, growth: Growth) -> bool {
        (self.is_on() || lock(&self.rewrite).is_due) && self.is_base_due(growth)
    }

    fn is_base_due(&self, growth: Growth) -> bool {
        let is_broken = lock(&self.trouble).syncing.is_some();
        let mut rewrite = lock(&self.rewrite);
        let now = self.files.now();
        if rewrite.since.is_some() || rewrite.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        let (bytes, base) = (self.bytes(), self.base_bytes.load(Relaxed));
        let percentage = u64::from(growth.percentage);
        let limit = base.saturating_add((base / 100).saturating_mul(percentage));
        let rests = rewrite.rests_until.is_some_and(|at| now < at);
        let has_grown = !rests && percentage > 0 && bytes > growth.bytes_min && bytes > limit;
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

/// What an operator reads about a folder that cannot be used.
pub fn at_dir(dir: &Path, error: &io::Error) -> String {
    format!("cannot use the journal's folder {}: {error}", dir.display())
}

/// Makes the folder if need be; returns a generation that is later than all there.
///
/// Errors: of the folder.
pub fn free_generation(files: &impl Files, dir: &Path) -> io::Result<u64> {
    files.create_dir(dir)?;
    // The name of the folder has to survive, too. A relative one may have no name above it.
    if let Some(above) = dir.parent() {
        files.sync_dir(if above.as_os_str().is_empty() { Path::new(".") } else { above })?;
    }
    let old = folder::segments(files, dir)?;
    let manifest = Manifest::load(files, dir)?;
    let begun = manifest.and_then(Result::ok).map_or(0, |manifest| manifest.generation);
    Ok(old.iter().map(|found| found.generation).fold(begun, u64::max) + 1)
}

/// Gives bases that no manifest names other names, under which no later base takes their place; returns what they were and
/// where they are now.
///
/// Errors: of the files.
pub fn set_orphans_aside(files: &impl Files, dir: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let found = folder::orphaned_bases(files, dir)?.into_iter();
    found.map(|base| rename_aside(files, &base, "damaged").map(|aside| (base, aside))).collect()
}

/// Deletes what the base of `generation` has made superfluous, but for the last `kept_bytes` of segments, which replicas may
/// ask for. A file that cannot be deleted is no harm.
fn clean_up(files: &impl Files, dir: &Path, generation: u64, mut kept_bytes: u64) {
    let mut found = folder::segments(files, dir).unwrap_or_default();
    found.retain(|found| found.generation < generation);
    // A generation is kept whole or not at all: half of it has gaps.
    while let Some(last) = found.last().map(|found| found.generation) {
        let (of_last, older): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.generation == last);
        let facts = of_last.iter().filter_map(|one| files.facts(&one.path).ok());
        let bytes = facts.map(|facts| facts.len).sum::<u64>();
        if bytes <= kept_bytes && kept_bytes > 0 {
            kept_bytes -= bytes;
        } else {
            kept_bytes = 0;
            for one in of_last {
                let _ = files.remove(&tail::path_of(&one.path));
                let _ = files.remove(&one.path);
            }
        }
        found = older;
    }
    for name in files.names(dir).unwrap_or_default() {
        let base = name.to_str().and_then(folder::generation_of_base);
        if base.is_some_and(|base| base < generation) {
            let _ = files.remove(&dir.join(name));
        }
    }
}

fn bytes_of(files: &impl Files, dir: &Path, generation: u64) -> u64 {
    let found = folder::segments(files, dir).unwrap_or_default();
    let found = found.iter().filter(|found| found.generation >= generation);
    found.filter_map(|found| files.facts(&found.path).ok()).map(|facts| facts.len).sum()
}

//! The append-only journal's writer: every change, in one order, on disk before its reply (or a second later).
//!
//! `server` notes a command while its shards are still held: that is when it gets its place in the order of all changes.
//! Each thread has a segment of its own; where that has a ring in a mapped file, a record is in it before the shards are
//! released. `log` holds a thread's side, `segment` and `direct` the files, `sync` what the journal's thread does, `base` new
//! bases, switching on and off, and going on at start. All of it works on any `Files`: `crash` has simulated ones that lose
//! what was not synced. Nothing here knows a command, a shard or a client.

#![forbid(unsafe_code)]

mod ahead;
pub mod base;
#[cfg(test)]
mod crash;
mod direct;
#[cfg(test)]
mod gaps;
#[cfg(test)]
mod held;
pub mod intake;
pub mod log;
#[cfg(test)]
mod mutations;
pub mod report;
#[cfg(test)]
mod scenario;
mod segment;
pub mod sync;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once};

use darter_persist::files::{Disk, Files};
use darter_persist::journal::ending::note_unsynced;
use darter_persist::journal::manifest::Manifest;

use self::base::Rewrite;
use self::log::ThreadLog;
use self::segment::{DiskSegment, SegmentFile};

/// When what was written is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before a write is answered.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system likes.
    No,
}

/// The process around the journal: its threads, and clients that wait.
pub trait JournalHost {
    /// What a setting says now.
    fn fsync(&self) -> Fsync;

    /// Whether no sync is wanted for now, unless somebody waits for it.
    fn rests(&self) -> bool;

    /// Wakes the thread with this slot: more is durable, and it holds replies back.
    fn wake(&self, slot: usize);

    /// Wakes the thread that begins bases: segments were made.
    fn wake_cron(&self);

    /// Answers clients whose writes are synced by now.
    fn answer_waiting(&self);

    /// Whether a client waits for a sync.
    fn has_waiting(&self) -> bool;

    /// Notifies clients that wait for the first base: one is on disk.
    fn has_base(&self);

    /// The sequence below which other servers have every record, if output waits for that; `None`: it does not.
    fn committed_before(&self) -> Option<u64> {
        None
    }
}

/// What all threads share of the journal.
pub struct Journal<F: Files = Disk> {
    files: F,
    /// Sequence of the next record.
    next: AtomicU64,
    /// Where records go that are written from now on; changes only while all shards are held.
    generation: AtomicU64,
    /// Earlier generations are in a base that is complete.
    base_generation: AtomicU64,
    /// Changes are written down.
    is_on: AtomicBool,
    /// Nothing is noted, for replicas neither.
    is_paused: AtomicBool,
    /// The generation with which it was switched on while the server ran, until it has a base since; `NONE` then.
    since: AtomicU64,
    /// One for each thread, and one for work on threads that serve nobody.
    slots: Vec<JournalSlot<F>>,
    foreign: Mutex<ThreadLog<F>>,
    /// Its folder; another one only from one time it is switched on to the next.
    dir: Mutex<Option<Arc<PathBuf>>>,
    listed: Mutex<ListedSegments>,
    /// Threads whose records are in memory of the process until their turns end, though replies wait for no sync.
    plain_threads: AtomicUsize,
    /// Threads that have noted anything.
    used_threads: AtomicUsize,
    trouble: Mutex<Trouble>,
    /// Something could not be written or synced: writes are refused.
    is_failing: AtomicBool,
    wishes: Mutex<sync::Wishes>,
    wake: Condvar,
    rewrite: Mutex<Rewrite>,
    /// Segments that were asked for have been made, or cannot be.
    has_made: AtomicBool,
    /// Held by the thread that switches it on or off, or begins a base.
    switch: Mutex<()>,
    /// Held while segments are made ahead; true once none are any more, for the server ends. Never taken by a thread that
    /// serves clients, unless it switches the journal on.
    making: Mutex<bool>,
    /// Bytes of segments that stay when a base has made them superfluous.
    kept_bytes_max: AtomicU64,
    /// Records for replicas.
    pub intake: intake::Intake,
    /// Bytes of all files, less those that slots have counted.
    bytes: AtomicU64,
    base_bytes: AtomicU64,
    /// The log says why segments are written as records come.
    told_plain: Once,
    delayed_syncs: AtomicU64,
    pending_syncs: AtomicU64,
    syncs: AtomicU64,
    sync_us: AtomicU64,
    /// What a sync takes, the mean of the last few.
    sync_ns: AtomicU64,
}

/// How far one thread's records have come. Each has cache lines of its own.
#[repr(align(128))]
struct JournalSlot<F: Files> {
    /// No record of this thread that is not in its file has a smaller sequence; `NONE` when all are there.
    unwritten: AtomicU64,
    /// The last one that is in its file.
    written: AtomicU64,
    /// The last one that is known to survive a loss of power.
    synced: AtomicU64,
    /// The thread holds replies back until others have synced.
    is_holding: AtomicBool,
    /// Its files with records that are perhaps not synced; the last is the one it appends to.
    files: Mutex<Vec<Arc<SegmentFile<F>>>>,
    /// Its segments that nobody has written to: of the next generation, or of this one until its first record.
    ahead: Mutex<Vec<DiskSegment<F>>>,
    /// One of `plain_threads`.
    is_plain: AtomicBool,
    /// One of `used_threads`.
    is_used: AtomicBool,
    /// Its records are with the kernel only when they are synced.
    gathers: AtomicBool,
    /// Bytes of its records, all there ever were. Counted here: a count of all threads would be a line that all write.
    recorded: AtomicU64,
}

/// The manifest, as it is on disk if it is there.
#[derive(Default)]
struct ListedSegments {
    manifest: Manifest,
    is_on_disk: bool,
}

/// Whether a manifest is on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IsOnDisk {
    Yes,
    /// A first base has to be complete before there is one.
    No,
}

/// No record waits, or no base is waited for.
const NONE: u64 = u64::MAX;

/// What goes wrong with the files, and where.
#[derive(Default)]
struct Trouble {
    /// Threads that cannot write, by their slot.
    writing: Vec<(usize, String)>,
    /// A sync failed. What it covered may be lost though the file looks whole, so only a new base ends this.
    syncing: Option<String>,
}

impl<F: Files> Journal<F> {
    /// The journal of a process with `threads` threads, switched off.
    pub fn new(files: F, threads: usize) -> Journal<F> {
        Journal {
            files,
            next: AtomicU64::new(1),
            generation: AtomicU64::new(0),
            base_generation: AtomicU64::new(0),
            is_on: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            since: AtomicU64::new(NONE),
            slots: (0..=threads).map(|_| JournalSlot::new()).collect(),
            foreign: Mutex::new(ThreadLog::new(threads as u16)),
            dir: Mutex::default(),
            listed: Mutex::default(),
            plain_threads: AtomicUsize::new(0),
            used_threads: AtomicUsize::new(0),
            trouble: Mutex::default(),
            is_failing: AtomicBool::new(false),
            wishes: Mutex::default(),
            wake: Condvar::new(),
            rewrite: Mutex::default(),
            has_made: AtomicBool::new(false),
            switch: Mutex::default(),
            making: Mutex::default(),
            kept_bytes_max: AtomicU64::new(0),
            intake: intake::Intake::default(),
            bytes: AtomicU64::new(0),
            base_bytes: AtomicU64::new(0),
            told_plain: Once::new(),
            delayed_syncs: AtomicU64::new(0),
            pending_syncs: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            sync_us: AtomicU64::new(0),
            sync_ns: AtomicU64::new(0),
        }
    }

    fn dir(&self) -> Option<Arc<PathBuf>> {
        lock(&self.dir).clone()
    }

    fn set_dir(&self, dir: PathBuf) {
        *lock(&self.dir) = Some(Arc::new(dir));
    }

    /// Whether changes are written down.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The generation that records are of now.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// The generation of the base that counts.
    pub fn base_generation(&self) -> u64 {
        self.base_generation.load(Ordering::SeqCst)
    }

    /// Notes something on a thread that serves nobody and holds no shard.
    pub fn note_alone(&self, fsync: Fsync, write: impl FnOnce(&mut Vec<u8>)) {
        self.note_at(self.files.clock_ms(), fsync, write);
    }

    /// Notes a message for replicas on a thread that serves nobody.
    pub fn note_message(&self, fsync: Fsync, args: &[&[u8]]) {
        lock(&self.foreign).append_message_now(self, (self.files.clock_ms(), fsync), args);
    }

    /// As [`Journal::note_alone`] at a time, Unix milliseconds; the thread may hold shards.
    pub fn note_at(&self, clock_ms: u64, fsync: Fsync, write: impl FnOnce(&mut Vec<u8>)) {
        lock(&self.foreign).append_now(self, (clock_ms, fsync), write);
    }

    /// Has the last `bytes` of segments stay when a base has made them superfluous: replicas may ask for them.
    pub fn keep_segments(&self, bytes: u64) {
        self.kept_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Whether changes are noted: for files, for replicas, or for both.
    pub fn is_noting(&self) -> bool {
        self.is_on() || self.intake.is_on() && !self.is_paused.load(Ordering::Acquire)
    }

    /// Has sequences begin at `to` or later: nobody is given those before it any more.
    fn jump_to(&self, to: u64) {
        self.intake.jump(|| (self.next.fetch_max(to, Ordering::SeqCst), to));
    }

    /// Whether writes are to be refused because they could not be written down.
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Why, as Redis words it.
    pub fn refusal(&self) -> Vec<u8> {
        let trouble = lock(&self.trouble);
        let cause = trouble.syncing.as_ref().or_else(|| trouble.writing.first().map(|(_, cause)| cause));
        format!("MISCONF Errors writing to the AOF file: {}", cause.map_or("unknown", String::as_str))
            .into_bytes()
    }

    /// The sequence after everything noted so far.
    pub fn end(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Every record with a smaller sequence than this has survived, whatever happens now.
    ///
    /// A thread says what it is about to hold before it takes a sequence, so a record below the end that is read
    /// first is seen in one place or another.
    pub fn durable_before(&self) -> u64 {
        let end = self.next.load(Ordering::SeqCst);
        self.slots.iter().map(JournalSlot::unsynced_from).fold(end, u64::min)
    }

    /// Every record with a smaller sequence than this survives a kill of the process. While writes fail they are refused,
    /// and nobody waits. Threads with rings count, too: if one of them is killed before its record is in the ring, the next
    /// start cannot know that the record was not one that another thread had gathered.
    fn written_before(&self) -> u64 {
        if self.is_failing() {
            return NONE;
        }
        let end = self.next.load(Ordering::SeqCst);
        self.slots.iter().map(JournalSlot::unwritten_from).fold(end, u64::min)
    }

    /// What the manifest says from now on, and whether it is on disk.
    fn set_listed(&self, manifest: Manifest, is_on_disk: IsOnDisk) {
        *lock(&self.listed) = ListedSegments { manifest, is_on_disk: is_on_disk == IsOnDisk::Yes };
    }

    /// Has the manifest name segments that are on disk.
    ///
    /// Errors: of the files; the manifest stays as it was.
    fn list(&self, made: &[(u64, u16)]) -> io::Result<()> {
        let mut listed = lock(&self.listed);
        let mut manifest = listed.manifest.clone();
        made.iter().for_each(|(generation, thread)| manifest.list(*generation, *thread));
        if listed.is_on_disk {
            manifest.store(&self.files, &self.dir().ok_or(io::ErrorKind::NotFound)?)?;
        }
        listed.manifest = manifest;
        Ok(())
    }

    /// Tells threads that hold replies back, and clients that wait, that more is durable.
    fn announce(&self, host: &impl JournalHost) {
        self.release(host);
        host.answer_waiting();
    }

    /// Tells threads that hold replies back that more is durable, or that other servers have more.
    pub fn release(&self, host: &impl JournalHost) {
        for (at, slot) in self.slots.iter().enumerate() {
            if slot.is_holding.load(Ordering::SeqCst) && slot.is_holding.swap(false, Ordering::SeqCst) {
                host.wake(at);
            }
        }
    }

    fn note_failed_sync(&self, error: &io::Error) {
        tracing::error!(
            "the journal cannot be synced: {error}; writes are refused until a new base is there"
        );
        if let Some(dir) = self.dir() {
            note_unsynced(&self.files, &dir);
        }
        self.note_trouble(|trouble| trouble.syncing = Some(log::cause_of(error)));
    }

    /// A sync has failed, and no base has followed.
    fn has_failed_sync(&self) -> bool {
        lock(&self.trouble).syncing.is_some()
    }

    fn note_trouble(&self, change: impl FnOnce(&mut Trouble)) {
        let mut trouble = lock(&self.trouble);
        change(&mut trouble);
        let is_failing = trouble.syncing.is_some() || !trouble.writing.is_empty();
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }
}

impl<F: Files> Journal<F> {
    /// Bytes of all its files.
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).wrapping_add(self.recorded())
    }

    /// Stores the number of bytes that the files have now.
    fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes.wrapping_sub(self.recorded()), Ordering::SeqCst);
    }

    fn recorded(&self) -> u64 {
        self.slots.iter().map(|slot| slot.recorded.load(Ordering::Relaxed)).sum()
    }
}

impl<F: Files> JournalSlot<F> {
    fn new() -> JournalSlot<F> {
        JournalSlot {
            unwritten: AtomicU64::new(NONE),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            is_holding: AtomicBool::new(false),
            files: Mutex::default(),
            ahead: Mutex::default(),
            is_plain: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            gathers: AtomicBool::new(false),
            recorded: AtomicU64::new(0),
        }
    }

    /// It has written what is perhaps not synced.
    fn is_unsynced(&self) -> bool {
        self.written.load(Ordering::SeqCst) > self.synced.load(Ordering::SeqCst)
    }

    /// No record of this thread that a kill would lose has a smaller sequence.
    fn unwritten_from(&self) -> u64 {
        // `always` was set until now, or is for a thread that has not seen the change.
        match self.gathers.load(Ordering::SeqCst) {
            true => self.unsynced_from(),
            false => self.unwritten.load(Ordering::SeqCst),
        }
    }

    fn unsynced_from(&self) -> u64 {
        // In this order: a record leaves `unwritten` only once `written` covers it.
        let unwritten = self.unwritten.load(Ordering::SeqCst);
        let written = self.written.load(Ordering::SeqCst);
        let synced = self.synced.load(Ordering::SeqCst);
        if written > synced { synced + 1 } else { unwritten }
    }
}

/// Locks a mutex whose data stays sound even if a holder panicked.
#[cfg(not(test))]
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The same; a simulated thread lets others run while it waits.
#[cfg(test)]
use crash::machine::lock;

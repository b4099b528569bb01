//! Snapshots: the point in time they show, the threads' part in writing them, and what became of each.
//!
//! A snapshot begins with a cut, for which all shards are held for some microseconds. Then every thread writes the
//! keys of its shards between commands ([`walk`]), changes write what they are about to change first (`store::cut`),
//! and a thread of its own puts the bytes into a file ([`writer`]). Nothing forks and no client waits, unless the disk
//! is so slow that buffers are full. Called by the commands SAVE, BGSAVE, SHUTDOWN and the like, by the schedule, and
//! by the journal, whose base is a snapshot.

pub mod beginning;
pub mod collector;
pub mod copy;
mod delay;
pub mod ending;
pub mod folder;
pub mod history;
pub mod load;
pub mod naming;
pub mod pipe;
pub mod run;
pub mod schedule;
pub mod signals;
pub mod walk;
mod writer;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use darter_command::{Fault, Marks};
use darter_reactor::cpu;
use darter_txn::LockSet;

use crate::engine::lease;
use crate::engine::origin::Origin;
use crate::job::{Job, JobBody, Shards};
use crate::registry::CommandEntry;
use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_config::Live;

use collector::Collector;
use ending::SnapshotEnding;
use history::{Kept, SnapshotHistory};
use load::Loading;
pub use run::{AtCut, Purpose, Saved, SnapshotFacts, SnapshotOrder, SnapshotRun, Then};

/// State of snapshots; one for the process.
#[derive(Default)]
pub struct Snapshots {
    // where the threads that read and write files may run
    cores: Vec<usize>,
    current: Mutex<Option<Arc<SnapshotRun>>>,
    // counts changes of `current`
    generation: AtomicU64,
    epoch: AtomicU16,
    // to be taken when the one under way has ended; one to save at most
    scheduled: Mutex<VecDeque<SnapshotOrder>>,
    /// What became of those before.
    pub history: Mutex<SnapshotHistory>,
    has_failed: AtomicBool,
    // what is loaded at the start is to be the first base of a journal, which is not written yet
    awaits_base: AtomicBool,
    /// The load at the start, or one asked for later.
    pub loading: Loading,
    /// A shutdown that saves first.
    pub ending: SnapshotEnding,
    // FLUSHALL has emptied what the snapshot on disk holds
    is_outdated: AtomicBool,
}

/// Snapshots that may wait for the one under way.
const SCHEDULED_MAX: usize = 16;

/// Too many snapshots wait for the one under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowded;

/// Why a snapshot was not begun.
pub enum RefusedSave {
    /// One is being taken already; the order comes back.
    Busy(Box<SnapshotOrder>),
    /// There is no thread for it.
    NoThread(std::io::Error),
}

impl std::fmt::Display for RefusedSave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RefusedSave::Busy(_) => write!(f, "another snapshot is being taken"),
            RefusedSave::NoThread(error) => write!(f, "no thread for it: {error}"),
        }
    }
}

impl Snapshots {
    /// None yet. To be called before the calling thread is kept on one core.
    pub fn new() -> Snapshots {
        Snapshots { cores: cpu::allowed_cores(), ..Snapshots::default() }
    }

    /// Frees the calling thread, which reads or writes files, from the core of the thread that started it.
    pub(crate) fn roam(&self) {
        let _ = cpu::keep_thread_on(&self.cores);
    }

    /// The snapshot that is being taken.
    pub fn current(&self) -> Option<Arc<SnapshotRun>> {
        lock(&self.current).clone()
    }

    /// Changes whenever [`Snapshots::current`] does.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether clients must not write now: a snapshot is being taken, and much waits to be written, or what they wrote
    /// would be lost by a crash though there is a journal.
    pub fn holds_writers(&self) -> bool {
        let is_full = || self.generation() % 2 == 1 && self.current().is_some_and(|run| run.pipe.is_full());
        self.awaits_base.load(Ordering::Acquire) || is_full()
    }

    /// Has writers wait for the first base of the journal, or lets them go; returns whether they waited.
    pub fn hold_until_base(&self, awaits: bool) -> bool {
        self.awaits_base.swap(awaits, Ordering::AcqRel)
    }

    /// Whether the last snapshot could not be written.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Takes the snapshot of `order` when the one under way has ended; one to save takes the place of another.
    ///
    /// Errors: too many wait already; `order` is dropped then.
    pub fn schedule(&self, order: SnapshotOrder) -> Result<(), Crowded> {
        if order.purpose == Purpose::Save {
            self.unschedule();
        }
        let mut scheduled = lock(&self.scheduled);
        if scheduled.len() >= SCHEDULED_MAX {
            return Err(Crowded);
        }
        scheduled.push_back(order);
        Ok(())
    }

    /// Puts back what [`Snapshots::take_scheduled`] returned and what could not begin.
    fn put_back(&self, order: SnapshotOrder) {
        lock(&self.scheduled).push_front(order);
    }

    fn take_scheduled(&self) -> Option<SnapshotOrder> {
        lock(&self.scheduled).pop_front()
    }

    /// Forgets the one to save that was to be taken later; returns whether there was one.
    pub fn unschedule(&self) -> bool {
        let mut scheduled = lock(&self.scheduled);
        let before = scheduled.len();
        scheduled.retain(|order| order.purpose != Purpose::Save);
        scheduled.len() < before
    }

    /// Gives up the snapshot under way, if it is one of its own; returns whether there was one.
    pub fn cancel(&self) -> bool {
        let run = self.current().filter(|run| run.purpose == Purpose::Save);
        if let Some(run) = &run {
            run.cancel();
        }
        run.is_some()
    }

    /// A load has ended: what it made is on disk, and clients are served. All of it is in `file`, if that is one file.
    pub fn note_loaded(&self, shared: &Shared, file: Option<String>) {
        let info = shared.survey(None);
        let functions = functions_hash(shared);
        let mut history = lock(&self.history);
        history.changes = info.changes;
        let (keys, position) = (info.keys.iter().sum::<usize>() as u64, self.loading.position());
        history.kept = file.map(|file| Kept { file, keys, functions, position });
        drop(history);
        self.loading.end();
    }

    /// Whether everything there is stands in the file that the next start would load, with the place in the history that
    /// replicas know. `None` if a shard is busy now.
    pub fn is_saved(&self, shared: &Shared, live: &Live) -> Option<bool> {
        let info = shared.survey_all()?;
        let keys = info.keys.iter().sum::<usize>() as u64;
        let functions = functions_hash(shared);
        let history = lock(&self.history);
        let stands = history.kept.as_ref().and_then(|kept| kept.position);
        let is_same = info.changes == history.changes && shared.replication.stands_at(stands);
        let Some(kept) = &history.kept else {
            // Nothing was ever there.
            return Some(is_same && keys == 0 && functions == history::hash_functions(std::iter::empty()));
        };
        let is_kept = || naming::is_newest(live, &kept.file);
        Some(is_same && kept.keys == keys && kept.functions == functions && is_kept())
    }

    fn set_current(&self, run: Option<Arc<SnapshotRun>>) {
        let mut current = lock(&self.current);
        if run.is_some() != current.is_some() {
            // odd while there is one
            self.generation.fetch_add(1, Ordering::Release);
        }
        *current = run;
    }

    fn next_epoch(&self) -> u16 {
        match self.epoch.fetch_add(1, Ordering::Relaxed).wrapping_add(1) {
            0 => self.next_epoch(),
            epoch => epoch,
        }
    }
}

fn functions_hash(shared: &Shared) -> u64 {
    history::hash_functions(shared.scripts.libraries().iter().map(|library| &*library.source))
}

/// Changes since the start, as housekeeping last saw them.
pub fn changes_of(shared: &Shared) -> u64 {
    shared.shard_stats.iter().map(|info| lock(info).changes).sum()
}

/// Begins the snapshot of `order`. The cut has been made when this returns, or is made as soon as the shards are free.
///
/// The caller must hold no shard.  Errors: nobody is told of the end of `order`, which is dropped unless it comes back.
pub fn start(local: &mut ThreadState, mut order: SnapshotOrder) -> Result<Arc<SnapshotRun>, RefusedSave> {
    let shared = local.shared;
    let snapshots = &shared.snapshots;
    let run = {
        let mut current = lock(&snapshots.current);
        if current.is_some() {
            return Err(RefusedSave::Busy(Box::new(order)));
        }
        let run = Arc::new(SnapshotRun::new(snapshots.next_epoch(), &mut order, shared.cells.len()));
        writer::spawn(shared, run.clone(), order).map_err(RefusedSave::NoThread)?;
        *current = Some(run.clone());
        snapshots.generation.fetch_add(1, Ordering::Release);
        run
    };
    let wanted = LockSet::all(shared.router.shards_len());
    match lease::take_patiently(shared, &wanted, SPINS) {
        Ok(mut grant) => {
            cut(local, &mut grant, &run);
            lease::release(local, grant);
        }
        Err(grant) => post(local, run.clone(), wanted, grant),
    }
    Ok(run)
}

/// Begins the snapshot of `order`, or has it wait for the one under way (`None`). One that another thread begins at the
/// same moment is one under way.
///
/// The caller must hold no shard.  Errors: too many wait, or there is no thread for it; `order` is dropped.
pub fn start_or_schedule(
    local: &mut ThreadState,
    order: SnapshotOrder,
) -> Result<Option<Arc<SnapshotRun>>, Fault> {
    match start(local, order) {
        Ok(run) => Ok(Some(run)),
        Err(RefusedSave::Busy(order)) => match local.shared.snapshots.schedule(*order) {
            Ok(()) => Ok(None),
            Err(Crowded) => Err(Fault::text("ERR too many snapshots wait already")),
        },
        Err(RefusedSave::NoThread(error)) => Err(Fault::Text(format!("ERR {error}").into())),
    }
}

/// Looks at a busy shard this many times: longer than most commands take.
const SPINS: u32 = 5000;

/// Leaves the cut to whoever has the shards.
fn post(local: &mut ThreadState, run: Arc<SnapshotRun>, wanted: LockSet, grant: Shards) {
    Job::new(Origin::nobody(local.thread), JobBody::Cut(run), wanted, grant).enqueue(local);
}

/// FLUSHALL makes a snapshot of what there was pointless, one under way and one on disk: the first is given up, as in
/// Redis, and where there are save points the schedule takes one of what is left.
#[inline]
pub fn note_run(shared: &Shared, entry: &CommandEntry) {
    if entry.spec.has(Marks::EMPTIES) {
        shared.snapshots.is_outdated.store(true, Ordering::Relaxed);
        shared.snapshots.cancel();
    }
}

/// Makes the cut, with all shards held.
pub fn cut(local: &mut ThreadState, grant: &mut Shards, run: &Arc<SnapshotRun>) {
    let (mut sizes, mut changes) = (Vec::new(), 0);
    for part in grant.iter_mut() {
        let id = part.id();
        let shard = &mut part.shard;
        sizes.resize(shard.dbs_len(), (0, 0));
        for (db, (keys, expiring)) in sizes.iter_mut().enumerate() {
            *keys += shard.db(db).len() as u64;
            *expiring += shard.db(db).expiring() as u64;
        }
        changes += shard.changes.total();
        debug_assert!(!shard.has_cut(), "the one before has ended");
        shard.begin_cut(run.epoch, Box::new(Collector::new(run.clone(), id)));
    }
    // Who changes them holds a shard.
    let libraries = local.shared.scripts.libraries();
    let functions = libraries.iter().map(|library| library.source.to_vec()).collect();
    drop(libraries);
    if let Some(at_cut) = run.take_at_cut() {
        at_cut(local);
    }
    run.note_position(local.shared.replication.position_at_cut(local));
    run.note_cut(SnapshotFacts { sizes, functions }, changes);
    for handle in &local.shared.handles {
        handle.send(ThreadMessage::Snapshot);
    }
}

/// Ends a run on the thread that wrote its file.
fn end(shared: &'static Shared, run: &Arc<SnapshotRun>, outcome: Result<Saved, String>) {
    let snapshots = &shared.snapshots;
    if run.purpose == Purpose::Save {
        lock(&snapshots.history).note(run, &outcome);
        if !run.is_cancelled() {
            // The client that asked for the end gets the error of the failed last snapshot; writes go on.
            let is_last = snapshots.ending.is_on();
            if outcome.is_ok() || !is_last {
                snapshots.has_failed.store(outcome.is_err(), Ordering::Relaxed);
            }
        }
    }
    let then = run.take_then();
    snapshots.set_current(None);
    for told in then {
        told(shared, &outcome);
    }
    for handle in &shared.handles {
        handle.send(ThreadMessage::Snapshot);
    }
}

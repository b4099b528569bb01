//! One snapshot from its order to its end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use darter_persist::storage::name::NameFormat;
use darter_persist::storage::{NewFile, StorageFault};

use crate::replication::position::{AtCut as PositionAtCut, StreamPosition};
use crate::shared::Shared;
use crate::thread_state::ThreadState;

use super::history::hash_functions;
use super::pipe::Pipe;

/// Called with all shards held, at the point in time that the snapshot shows.
pub type AtCut = Box<dyn FnOnce(&mut ThreadState) + Send>;

/// Makes the file that a snapshot is written to, by its name.
pub type Create = Box<dyn FnOnce(&str) -> Result<Box<dyn NewFile>, StorageFault> + Send>;

/// Called at the end, on the thread that wrote the file.
pub type Then = Box<dyn FnOnce(&'static Shared, &Result<Saved, String>) + Send>;

/// What a snapshot is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// It is one of its own: what LASTSAVE and the refusal of writes go by.
    Save,
    /// It is the base of the journal.
    Base,
    /// It is for a client that asked for a copy.
    Copy,
}

/// Contents and destination of a snapshot.
pub struct SnapshotOrder {
    /// Makes the file of that name.
    pub create: Create,
    /// The file's name, without macros.
    pub name: String,
    /// How it is written.
    pub format: NameFormat,
    /// Whether it is compressed.
    pub packs: bool,
    /// `.rdb` files: they end with a checksum.
    pub has_checksum: bool,
    /// Bytes per second that the file may grow; 0: as fast as it can.
    pub bytes_per_s_max: u64,
    /// What it is for.
    pub purpose: Purpose,
    /// What else happens at the cut.
    pub at_cut: Option<AtCut>,
    /// What gets the result at the end.
    pub then: Vec<Then>,
}

/// A snapshot that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// The file's name.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Keys in it.
    pub keys: u64,
    /// Where it stands in a history of changes.
    pub position: Option<StreamPosition>,
}

/// Facts that are written before the keys.
#[derive(Clone, Debug, Default)]
pub struct SnapshotFacts {
    /// Keys, and keys with a deadline, of each database.
    pub sizes: Vec<(u64, u64)>,
    /// The code of the libraries of functions.
    pub functions: Vec<Vec<u8>>,
}

/// A snapshot that is being taken.
pub struct SnapshotRun {
    /// The number that tells its marks from those of others.
    pub epoch: u16,
    /// The way to the file.
    pub pipe: Pipe,
    /// When it began.
    pub began: Instant,
    /// The same as Unix time in seconds.
    pub began_s: u64,
    /// What it is for.
    pub purpose: Purpose,
    at_cut: Mutex<Option<AtCut>>,
    then: Mutex<Vec<Then>>,
    is_cut: AtomicBool,
    is_cancelled: AtomicBool,
    // shards that are not all written yet
    shards_left: AtomicUsize,
    keys_total: AtomicU64,
    keys_done: AtomicU64,
    keys_early: AtomicU64,
    changes_at_cut: AtomicU64,
    functions_hash: AtomicU64,
    facts: Mutex<SnapshotFacts>,
    position: Mutex<Option<PositionAtCut>>,
}

impl SnapshotRun {
    /// A run for `order` over this number of shards. The caller keeps the parts of the order that concern the file.
    pub fn new(epoch: u16, order: &mut SnapshotOrder, shards: usize) -> SnapshotRun {
        SnapshotRun {
            epoch,
            pipe: Pipe::default(),
            began: Instant::now(),
            began_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            purpose: order.purpose,
            at_cut: Mutex::new(order.at_cut.take()),
            then: Mutex::new(std::mem::take(&mut order.then)),
            is_cut: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            shards_left: AtomicUsize::new(shards),
            keys_total: AtomicU64::new(0),
            keys_done: AtomicU64::new(0),
            keys_early: AtomicU64::new(0),
            changes_at_cut: AtomicU64::new(0),
            functions_hash: AtomicU64::new(0),
            facts: Mutex::default(),
            position: Mutex::default(),
        }
    }

    /// Whether the shards have been cut.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Books the cut: what is there besides keys, and how many changes there were since the start.
    pub fn note_cut(&self, facts: SnapshotFacts, changes: u64) {
        let keys = facts.sizes.iter().map(|(keys, _)| keys).sum();
        let functions = hash_functions(facts.functions.iter().map(Vec::as_slice));
        self.functions_hash.store(functions, Ordering::Relaxed);
        *crate::sync::lock(&self.facts) = facts;
        self.keys_total.store(keys, Ordering::Relaxed);
        self.changes_at_cut.store(changes, Ordering::Relaxed);
        self.is_cut.store(true, Ordering::Release);
    }

    /// What else is to happen at the cut.
    pub fn take_at_cut(&self) -> Option<AtCut> {
        crate::sync::lock(&self.at_cut).take()
    }

    /// What was there besides keys at the cut.
    pub fn take_facts(&self) -> SnapshotFacts {
        std::mem::take(&mut *crate::sync::lock(&self.facts))
    }

    /// Notes where the cut stands in a history of changes.
    pub fn note_position(&self, position: Option<PositionAtCut>) {
        *crate::sync::lock(&self.position) = position;
    }

    /// Where the cut stands in a history of changes; waits until the stream has come there.
    pub fn take_position(&self) -> Option<StreamPosition> {
        let position = crate::sync::lock(&self.position).take();
        position.and_then(PositionAtCut::wait)
    }

    /// Takes the callbacks that are called at the end.
    pub fn take_then(&self) -> Vec<Then> {
        std::mem::take(&mut *crate::sync::lock(&self.then))
    }

    /// Gives it up: nothing more is written, and the file is not kept.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.pipe.break_off();
    }

    /// Whether it was given up.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Books that one shard is written, `early` of its keys before they changed; the last one closes the pipe.
    pub fn end_shard(&self, early: u64) {
        self.keys_early.fetch_add(early, Ordering::Relaxed);
        if self.shards_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pipe.close();
        }
    }

    /// Books keys on their way to the file.
    pub fn count_keys(&self, keys: u64) {
        self.keys_done.fetch_add(keys, Ordering::Relaxed);
    }

    /// Keys at the cut.
    pub fn keys_total(&self) -> u64 {
        self.keys_total.load(Ordering::Relaxed)
    }

    /// Keys on their way to the file.
    pub fn keys_done(&self) -> u64 {
        self.keys_done.load(Ordering::Relaxed)
    }

    /// Keys that were written because they, or others of their index line, were about to change.
    pub fn keys_early(&self) -> u64 {
        self.keys_early.load(Ordering::Relaxed)
    }

    /// The hash of the functions at the cut.
    pub fn functions_hash(&self) -> u64 {
        self.functions_hash.load(Ordering::Relaxed)
    }

    /// Changes since the start of the server, at the cut.
    pub fn changes_at_cut(&self) -> u64 {
        self.changes_at_cut.load(Ordering::Relaxed)
    }
}

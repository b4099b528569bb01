//! Loading a snapshot while the server answers everybody that it is loading.
//!
//! One thread reads the file; as many others as serve build the values: each takes a piece of the file, sorts its keys
//! by shard, and takes one shard after the other. No client can reach a shard meanwhile.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use darter_persist::cursor::Cursor;
use darter_persist::entry::{Entries, KeyEntry, LoadedEntry as Made};
use darter_persist::file::FileSource;
use darter_persist::native::{self, BlockPlace};
use darter_persist::read_at::Front;
use darter_persist::storage::StorageDirectory;
use darter_persist::{Chunk, RdbItem, ReadAt, rdb};
use darter_store::{Key, Keyed, Shard};

use crate::clock::unix_ms;
use crate::commands::function::join;
use crate::engine::lease;
use crate::replication::position::{FoundPosition, StreamPosition};
use crate::script_run::know_libraries;
use crate::shared::Shared;
use crate::sync::lock;
use crate::thread_state::ThreadState;

use super::{delay, naming::Source};

/// Pieces of the file that wait for a thread, per thread.
const PIECES_AHEAD: usize = 4;
/// The fewest bytes of a file that a key takes, compressed: room is made by it.
const KEY_BYTES_MIN: u64 = 4;
/// Where the bytes are not known, the part of memory that stands for them: room for keys takes less than that.
const KEY_ROOM_PART: u64 = 16;
/// Time between two lines in the log.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// A load that is under way, or the last one.
#[derive(Debug, Default)]
pub struct Loading {
    is_on: AtomicBool,
    is_replay: AtomicBool,
    is_aside: AtomicBool,
    // a second set of databases is loaded, to take the place of the first
    is_beside: AtomicBool,
    /// When it began, Unix seconds.
    pub began_s: AtomicU64,
    /// Bytes of the file.
    pub total_bytes: AtomicU64,
    /// Bytes of it that are read.
    pub loaded_bytes: AtomicU64,
    /// The time by which keys are dead, Unix milliseconds; 0: now. The base of a journal is read as of its cut.
    as_of_ms: AtomicU64,
    /// Keys made.
    pub keys: AtomicU64,
    /// Keys left out because their time was up.
    pub keys_expired: AtomicU64,
    failure: Mutex<Option<String>>,
    // where the data stands in a history of changes, as the file says
    found: Mutex<FoundPosition>,
}

/// Called when a load ends, on the thread that read the file.
pub type Then = Box<dyn FnOnce(&'static Shared, &Result<(), String>) + Send>;

impl Loading {
    /// Whether clients get LOADING.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Begins: from its next turn on, each thread answers clients with LOADING.
    pub fn begin(&self, total_bytes: u64) {
        self.count_anew(total_bytes);
        self.find(FoundPosition::default());
        self.is_on.store(true, Relaxed);
    }

    /// Begins to count what is loaded.
    pub fn count_anew(&self, total_bytes: u64) {
        self.began_s.store(unix_ms() / 1000, Relaxed);
        self.total_bytes.store(total_bytes, Relaxed);
        for count in [&self.loaded_bytes, &self.keys, &self.keys_expired] {
            count.store(0, Relaxed);
        }
    }

    /// Begins to load a second set of databases, which is to take the place of the first: no other load may begin meanwhile.
    pub fn begin_beside(&self, total_bytes: u64) {
        self.count_anew(total_bytes);
        self.is_beside.store(true, Relaxed);
    }

    /// The same, while clients are served an earlier state from the first set, but for what does not go with a load.
    pub fn begin_aside(&self, total_bytes: u64) {
        self.begin_beside(total_bytes);
        self.is_aside.store(true, Relaxed);
    }

    /// Whether a second set is loaded, shown in INFO or not.
    pub fn is_beside(&self) -> bool {
        self.is_beside.load(Relaxed)
    }

    /// Whether a second set is loaded while the first is served.
    #[inline]
    pub fn is_aside(&self) -> bool {
        self.is_aside.load(Relaxed)
    }

    /// Notes where the data stands in a history of changes, in the place of what the file said.
    pub fn find(&self, found: FoundPosition) {
        *lock(&self.found) = found;
    }

    /// Where the data stands in a history of changes.
    pub fn position(&self) -> Option<StreamPosition> {
        lock(&self.found).position()
    }

    /// The same for a journal: until the end nothing may go but by what is read, neither dead keys nor others, since
    /// what is read later may be about them.
    pub fn begin_replay(&self, total_bytes: u64) {
        self.is_replay.store(true, Relaxed);
        self.begin(total_bytes);
    }

    /// Whether a journal is read.
    pub fn is_replay(&self) -> bool {
        self.is_replay.load(Relaxed)
    }

    /// Ends: clients are served.
    pub fn end(&self) {
        self.is_replay.store(false, Relaxed);
        self.is_aside.store(false, Relaxed);
        self.is_beside.store(false, Relaxed);
        self.is_on.store(false, Relaxed);
    }

    /// Why the server cannot go on.
    pub fn fail(&self, why: String) {
        *lock(&self.failure) = Some(why);
    }

    /// Takes what [`Loading::fail`] was told.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).take()
    }

    /// Per cent done, and seconds left at this speed.
    pub fn progress(&self, now_ms: u64) -> (f64, u64) {
        let (total, done) = (self.total_bytes.load(Relaxed), self.loaded_bytes.load(Relaxed));
        let took_s = (now_ms / 1000).saturating_sub(self.began_s.load(Relaxed));
        let left_s = match done {
            0 => 1,
            _ => (u128::from(took_s) * u128::from(total.saturating_sub(done)) / u128::from(done)) as u64,
        };
        (done as f64 * 100.0 / total.max(1) as f64, left_s)
    }
}

/// What becomes of what is there when a file is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadOnto {
    /// Nothing is there yet.
    Nothing,
    /// All keys and functions go first.
    Emptied,
    /// All stay; a file that has one of the same name is not loaded.
    Others,
    /// All stay but those of a name that the file has.
    Replaced,
}

/// Treatment of the keys of a file while it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LoadPass {
    /// They are made.
    Make,
    /// They are made in the second set of databases, dead ones too.
    MakeAside,
    /// They are looked for: an error if there is one.
    Miss,
    /// They are understood, no more.
    Understand,
    /// They are removed where they are.
    Remove,
}

impl LoadPass {
    /// Calls `act` with the databases of a shard that the pass is about.
    fn within<R>(self, shard: &mut Shard, act: impl FnOnce(&mut Shard) -> R) -> R {
        if self == LoadPass::MakeAside { shard.with_aside(act) } else { act(shard) }
    }
}

/// Loads a file on threads of its own and calls `then` at the end. The caller has begun the load.
///
/// Errors: there can be no more threads.
pub fn spawn(shared: &'static Shared, source: Source, onto: LoadOnto, then: Then) -> io::Result<()> {
    let body = move || {
        shared.snapshots.roam();
        let (dir, facts) = source;
        let outcome = load(shared, &*dir, &facts.name, onto);
        then(shared, &outcome.map_err(|error| format!("{}: {error}", facts.name)));
    };
    thread::Builder::new().name("darter-load".to_owned()).spawn(body).map(drop)
}

/// Has the next sweep look at every key that expires: they were loaded as of another time.
fn distrust_bounds(shared: &'static Shared) {
    let now_ms = unix_ms();
    each_shard(shared, |shard| shard.distrust_bounds(now_ms));
}

/// Empties all databases, for a thread that serves no client. It sends no notification.
pub fn empty(shared: &'static Shared) {
    each_shard(shared, |shard| {
        (0..shard.dbs_len()).for_each(|db| {
            shard.flush_db(db);
        });
    });
}

/// Whether no database has a key, for a thread that serves no client.
pub fn is_empty(shared: &'static Shared) -> bool {
    let keys = AtomicUsize::new(0);
    each_shard(shared, |shard| {
        keys.fetch_add(shard.keys_len(), Relaxed);
    });
    keys.into_inner() == 0
}

/// Loads the file `name`.
fn load(
    shared: &'static Shared,
    dir: &dyn StorageDirectory,
    name: &str,
    onto: LoadOnto,
) -> Result<(), String> {
    let began = Instant::now();
    // On a replica what is dead stays until the master removes it.
    let follows = onto == LoadOnto::Nothing && shared.settings.live().replication.master.is_some();
    let as_of_ms = u64::from(follows || shared.replication.keeps_dead());
    let loading = &shared.snapshots.loading;
    loading.as_of_ms.store(as_of_ms, Relaxed);
    let done = load_as_of(shared, dir, name, onto);
    loading.as_of_ms.store(0, Relaxed);
    done?;
    if as_of_ms != 0 || loading.position().is_some() {
        distrust_bounds(shared);
    }
    tracing::info!(
        "loaded {name}: {} keys ({} expired) in {:.2} s",
        loading.keys.load(Relaxed),
        loading.keys_expired.load(Relaxed),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn load_as_of(
    shared: &'static Shared,
    dir: &dyn StorageDirectory,
    name: &str,
    onto: LoadOnto,
) -> Result<(), String> {
    match onto {
        LoadOnto::Nothing | LoadOnto::Emptied => {
            let file = open(dir, name)?;
            if onto == LoadOnto::Emptied {
                empty(shared);
            }
            let functions = read(shared, file, LoadPass::Make)?;
            if !functions.is_empty() || onto == LoadOnto::Emptied {
                // Here and not on a thread that serves: by the time clients are served every thread knows them.
                know_libraries(&mut ThreadState::new(shared, 0), &functions);
            }
        }
        LoadOnto::Others => add(shared, dir, name, LoadPass::Miss)?,
        LoadOnto::Replaced => add(shared, dir, name, LoadPass::Understand)?,
    }
    Ok(())
}

fn open(dir: &dyn StorageDirectory, name: &str) -> Result<Box<dyn ReadAt>, String> {
    dir.open(name).map_err(|fault| fault.cause.to_string())
}

/// Adds the file `name` to what is there. It is read to its end first, so that one that cannot be added changes nothing.
fn add(
    shared: &'static Shared,
    dir: &dyn StorageDirectory,
    name: &str,
    first: LoadPass,
) -> Result<(), String> {
    let functions = read(shared, open(dir, name)?, first)?;
    let replaces = first != LoadPass::Miss;
    let joined = join(&mut ThreadState::new(shared, 0), &functions, replaces)
        .map_err(|fault| fault.line().into_owned())?;
    if replaces {
        read(shared, open(dir, name)?, LoadPass::Remove)?;
    }
    read(shared, open(dir, name)?, LoadPass::Make)?;
    *shared.scripts.libraries_mut() = joined;
    Ok(())
}

/// Loads a file before anything is served, as of `as_of_ms` (0 is now); returns the code of its functions.
///
/// Errors: what is wrong with it, and where.
pub fn base(
    shared: &'static Shared,
    dir: &dyn StorageDirectory,
    name: &str,
    as_of_ms: u64,
) -> Result<Vec<Vec<u8>>, String> {
    let file = open(dir, name)?;
    let loading = &shared.snapshots.loading;
    loading.as_of_ms.store(as_of_ms, Relaxed);
    let functions = read(shared, file, LoadPass::Make);
    loading.as_of_ms.store(0, Relaxed);
    functions.map_err(|error| format!("{name}: {error}"))
}

/// A full sync that is loaded, in the place of all that is here or in second sets of databases; dead keys are loaded too.
/// In the first case the caller has begun the load, and nobody else reaches a shard.
pub struct SyncLoading {
    shared: &'static Shared,
    pass: LoadPass,
    functions: Mutex<Vec<Vec<u8>>>,
    is_finished: AtomicBool,
}

impl SyncLoading {
    /// Empties what is here.
    pub fn in_place(shared: &'static Shared) -> SyncLoading {
        empty(shared);
        // Before any time a key can have.
        shared.snapshots.loading.as_of_ms.store(1, Relaxed);
        SyncLoading::new(shared, LoadPass::Make)
    }

    /// Leaves what is here.
    pub fn aside(shared: &'static Shared) -> SyncLoading {
        each_shard(shared, Shard::begin_aside);
        SyncLoading::new(shared, LoadPass::MakeAside)
    }

    fn new(shared: &'static Shared, pass: LoadPass) -> SyncLoading {
        SyncLoading { shared, pass, functions: Mutex::default(), is_finished: AtomicBool::new(false) }
    }

    /// Loads a whole file.
    ///
    /// Errors: what is wrong with it; some of it is loaded then.
    pub fn take_file(&self, file: Box<dyn ReadAt>) -> Result<(), String> {
        let functions = read(self.shared, file, self.pass)?;
        lock(&self.functions).extend(functions);
        Ok(())
    }

    /// Loads a block of the file `id`, on any number of threads. Blocks that are to be read in order come from one thread.
    ///
    /// Errors: what is wrong with it; some of it is loaded then.
    pub fn take(&self, id: u64, bytes: &[u8]) -> Result<(), String> {
        let (shared, pass) = (self.shared, self.pass);
        let block = native::SnapshotBlock::alone(id, bytes).map_err(|error| error.to_string())?;
        let facts = block.facts().map_err(|error| error.to_string())?;
        let functions = facts.into_iter().filter_map(|item| take_fact(shared, item, pass));
        lock(&self.functions).extend(functions);
        let mut groups = groups(shared);
        for segment in block.segments().map_err(|error| error.to_string())? {
            let piece = LoadPiece { db: segment.db, bytes: segment.bytes, offset: 0 };
            visit(shared, &mut groups, &piece, pass)?;
        }
        shared.snapshots.loading.loaded_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// All is loaded. Of second sets the caller has made the first ones.
    pub fn finish(&self) {
        if self.pass == LoadPass::Make {
            self.shared.snapshots.loading.as_of_ms.store(0, Relaxed);
        }
        distrust_bounds(self.shared);
        know_libraries(&mut ThreadState::new(self.shared, 0), &lock(&self.functions));
        self.is_finished.store(true, Relaxed);
    }

    /// Whether it is.
    pub fn is_finished(&self) -> bool {
        self.is_finished.load(Relaxed)
    }

    /// Whether what is here stays until the end.
    pub fn is_aside(&self) -> bool {
        self.pass == LoadPass::MakeAside
    }
}

impl Drop for SyncLoading {
    /// Removes what is loaded and not finished: it is no state of the master, and nobody is to see it.
    fn drop(&mut self) {
        if self.is_finished() {
            return;
        }
        match self.is_aside() {
            true => each_shard(self.shared, Shard::drop_aside),
            false => {
                self.shared.snapshots.loading.as_of_ms.store(0, Relaxed);
                empty(self.shared);
            }
        }
    }
}

fn each_shard(shared: &'static Shared, act: impl Fn(&mut Shard)) {
    for cell in shared.cells {
        let mut held = lease::take_asleep(cell);
        act(&mut held.shard);
        lease::release_as_stranger(shared, held);
    }
}

/// Goes over the keys of a file; returns the code of its functions.
fn read(shared: &'static Shared, file: Box<dyn ReadAt>, pass: LoadPass) -> Result<Vec<Vec<u8>>, String> {
    match FileSource::open(CountedLoad { file, shared }).map_err(|error| error.to_string())? {
        FileSource::Rdb(mut reader) => read_rdb(shared, &mut reader, pass),
        FileSource::Native(file) => read_native(shared, &file, pass),
    }
}

/// Reads an RDB file front to back and has its keys made by other threads; returns the code of its functions.
fn read_rdb(
    shared: &'static Shared,
    reader: &mut rdb::RdbReader<Front<CountedLoad>>,
    pass: LoadPass,
) -> Result<Vec<Vec<u8>>, String> {
    let builders = shared.handles.len();
    let (sender, receiver) = sync_channel::<Chunk>(builders * PIECES_AHEAD);
    let receiver = Arc::new(Mutex::new(receiver));
    let fault = Mutex::new(None::<String>);
    let functions = thread::scope(|scope| {
        for _ in 0..builders {
            let receiver = receiver.clone();
            scope.spawn(|| build(shared, receiver, &fault, pass));
        }
        // The builders alone keep it, so that reading ends when they have.
        drop(receiver);
        feed(shared, reader, sender, pass)
    });
    fault.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(functions, Err)
}

/// Reads pieces and hands them on until the file ends or nobody takes them.
fn feed(
    shared: &'static Shared,
    reader: &mut rdb::RdbReader<Front<CountedLoad>>,
    sender: SyncSender<Chunk>,
    pass: LoadPass,
) -> Result<Vec<Vec<u8>>, String> {
    let mut functions = Vec::new();
    let mut next_report = Instant::now() + REPORT_EVERY;
    loop {
        match reader.next().map_err(|error| error.to_string())? {
            RdbItem::Entries(chunk) => {
                if sender.send(chunk).is_err() {
                    return Ok(functions);
                }
            }
            RdbItem::End => return Ok(functions),
            other => functions.extend(take_fact(shared, other, pass)),
        }
        report_at(shared, &mut next_report);
    }
}

/// The code of a library of functions, if `item` is one. Makes room for the keys that are said to come, and says in the
/// log what is left out.
fn take_fact(shared: &'static Shared, item: RdbItem, pass: LoadPass) -> Option<Vec<u8>> {
    match item {
        RdbItem::Function(code) => return Some(code),
        RdbItem::Sizes { db, keys, .. } => {
            // A file cannot claim more than it has room for.
            let total_bytes = match shared.snapshots.loading.total_bytes.load(Relaxed) {
                // A full sync does not say how long it is.
                0 => shared.limit.max_bytes(&shared.settings.live()) / KEY_ROOM_PART,
                known => known,
            };
            let room = total_bytes / KEY_BYTES_MIN;
            let each = keys.min(room) / shared.cells.len() as u64;
            each_shard(shared, |shard| pass.within(shard, |shard| shard.reserve(db as usize, each as usize)));
        }
        RdbItem::Skipped { db, key: Some(key), what } => {
            tracing::warn!("key '{}' of database {db} is left out: {what}", key.escape_ascii());
        }
        RdbItem::Skipped { key: None, what, .. } => tracing::warn!("left out: {what}"),
        // A second set has no place in the history of the first.
        RdbItem::Aux { .. } if pass == LoadPass::MakeAside => {}
        RdbItem::Aux { name, value } => lock(&shared.snapshots.loading.found).take(&name, &value),
        RdbItem::Entries(_) | RdbItem::End => {}
    }
    None
}

/// Reads blocks side by side; returns the code of the functions.
fn read_native(
    shared: &'static Shared,
    file: &native::SnapshotFile<CountedLoad>,
    pass: LoadPass,
) -> Result<Vec<Vec<u8>>, String> {
    let facts = file.facts().map_err(|error| error.to_string())?;
    let functions = facts.into_iter().filter_map(|item| take_fact(shared, item, pass)).collect();
    let (ordered, free): (Vec<BlockPlace>, Vec<BlockPlace>) =
        file.places().iter().partition(|place| place.is_ordered);
    let next = AtomicUsize::new(0);
    let fault = Mutex::new(None::<String>);
    let take_block = |groups: &mut Groups, place: &BlockPlace| {
        let done = read_block(shared, file, groups, place, pass);
        if let Err(error) = done {
            lock(&fault).get_or_insert(error);
            return false;
        }
        true
    };
    thread::scope(|scope| {
        for builder in 0..shared.handles.len() {
            let (ordered, free, next, take_block, fault) = (&ordered, &free, &next, &take_block, &fault);
            scope.spawn(move || {
                let mut next_report = Instant::now() + REPORT_EVERY;
                let mut groups = groups(shared);
                if builder == 0 && !ordered.iter().all(|place| take_block(&mut groups, place)) {
                    return;
                }
                while let Some(place) = free.get(next.fetch_add(1, Relaxed)) {
                    if !take_block(&mut groups, place) || lock(fault).is_some() {
                        return;
                    }
                    if builder == 0 {
                        report_at(shared, &mut next_report);
                    }
                }
            });
        }
    });
    fault.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(functions), Err)
}

fn read_block(
    shared: &'static Shared,
    file: &native::SnapshotFile<CountedLoad>,
    groups: &mut Groups,
    place: &BlockPlace,
    pass: LoadPass,
) -> Result<(), String> {
    let block = file.read(place).map_err(|error| error.to_string())?;
    for segment in block.segments().map_err(|error| error.to_string())? {
        let piece = LoadPiece { db: segment.db, bytes: segment.bytes, offset: place.offset };
        visit(shared, groups, &piece, pass)?;
    }
    Ok(())
}

fn report_at(shared: &Shared, next: &mut Instant) {
    if Instant::now() >= *next {
        *next = Instant::now() + REPORT_EVERY;
        report(shared);
    }
}

/// A line about how far the load is.
fn report(shared: &Shared) {
    let loading = &shared.snapshots.loading;
    let now_ms = unix_ms();
    let (percent, left_s) = loading.progress(now_ms);
    let keys = loading.keys.load(Relaxed);
    let took_s = (now_ms / 1000).saturating_sub(loading.began_s.load(Relaxed)).max(1);
    tracing::info!("loading: {percent:.0} %, {keys} keys, {} keys/s, {left_s} s left", keys / took_s);
}

/// Goes over the keys of pieces until there are no more, or one is bad.
fn build(
    shared: &'static Shared,
    receiver: Arc<Mutex<Receiver<Chunk>>>,
    fault: &Mutex<Option<String>>,
    pass: LoadPass,
) {
    let mut groups = groups(shared);
    loop {
        let piece = lock(&receiver).recv();
        let Ok(chunk) = piece else { return };
        let piece = LoadPiece { db: chunk.db, bytes: &chunk.bytes, offset: chunk.offset };
        if let Err(error) = visit(shared, &mut groups, &piece, pass) {
            lock(fault).get_or_insert(error);
            return;
        }
    }
}

/// Entries by shard: hash of the key, and place in the piece. Each thread has its own and uses it again.
type Groups = Vec<Vec<(u64, usize)>>;

fn groups(shared: &Shared) -> Groups {
    vec![Vec::new(); shared.cells.len()]
}

/// Index lines asked for ahead of the entry that is made.
const LOOK_AHEAD: usize = 6;

/// Entries of one database, and where in the file they are.
struct LoadPiece<'a> {
    db: u32,
    bytes: &'a [u8],
    offset: u64,
}

/// Makes the keys of one piece, or does with them what the pass is for.
fn visit(
    shared: &'static Shared,
    by_shard: &mut Groups,
    chunk: &LoadPiece<'_>,
    pass: LoadPass,
) -> Result<(), String> {
    sort(shared, by_shard, chunk)?;
    let loading = &shared.snapshots.loading;
    let (now_ms, counted_ms) = match loading.as_of_ms.load(Relaxed) {
        _ if pass == LoadPass::MakeAside => (1, 1),
        // Replicas that continue from here have the dead keys too, and are to be told when these go.
        0 if loading.position().is_some() => (1, unix_ms()),
        0 => (unix_ms(), 0),
        then => (then, then),
    };
    let groups = by_shard.iter().enumerate().filter(|(_, group)| !group.is_empty());
    match pass {
        LoadPass::Make | LoadPass::MakeAside => make(shared, groups, chunk, (now_ms, counted_ms), pass),
        LoadPass::Understand => Ok(()),
        LoadPass::Miss | LoadPass::Remove => clear(shared, groups, chunk, now_ms, pass),
    }
}

/// Puts the entries of a piece in groups by shard.
fn sort(shared: &'static Shared, by_shard: &mut Groups, chunk: &LoadPiece<'_>) -> Result<(), String> {
    let db = chunk.db as usize;
    let databases = shared.settings.live().dbnum;
    if chunk.db >= databases {
        return Err(format!("it has a database {db}, and there are {databases} here (see --dbnum)"));
    }
    for group in by_shard.iter_mut() {
        group.clear();
    }
    let mut entries = Entries::new(chunk.bytes);
    loop {
        let at = entries.at();
        let Some(entry) = entries.next() else { break };
        let entry = entry.map_err(|fault| {
            format!("damaged at byte {}: {}", chunk.offset.saturating_add(fault.at as u64), fault.what)
        })?;
        let hash = shared.router.hasher().hash_key(&entry.key);
        if let Some(group) = by_shard.get_mut(usize::from(shared.router.shard_of(hash))) {
            group.push((hash, at));
        }
    }
    Ok(())
}

/// Removes the keys of a piece, or finds that there is none.
fn clear<'g>(
    shared: &'static Shared,
    groups: impl Iterator<Item = (usize, &'g Vec<(u64, usize)>)>,
    chunk: &LoadPiece<'_>,
    now_ms: u64,
    pass: LoadPass,
) -> Result<(), String> {
    for (id, group) in groups {
        let mut held = lease::take_asleep(&shared.cells[id]);
        let mut found = None;
        for &(hash, at) in group {
            let entry = KeyEntry::read(&mut Cursor::new(chunk.bytes.get(at..).unwrap_or_default()));
            let Ok(entry) = entry else { continue };
            // A dead one of the file is not made either.
            if entry.deadline_ms.is_some_and(|ms| ms <= now_ms) {
                continue;
            }
            let key = Key { bytes: &entry.key, hash };
            let mut place = Keyed::find(&mut held.shard, chunk.db as usize, key, now_ms);
            if pass == LoadPass::Remove {
                place.remove();
            } else if place.exists() {
                found = Some(format!("key '{}' of database {} is here already", short(&entry.key), chunk.db));
                break;
            }
        }
        held.shard.changes.take();
        lease::release_as_stranger(shared, held);
        if let Some(found) = found {
            return Err(found);
        }
    }
    Ok(())
}

/// The beginning of a key, for an error.
fn short(key: &[u8]) -> String {
    key.get(..100).unwrap_or(key).escape_ascii().to_string()
}

/// Makes the keys of a piece.
fn make<'g>(
    shared: &'static Shared,
    groups: impl Iterator<Item = (usize, &'g Vec<(u64, usize)>)>,
    chunk: &LoadPiece<'_>,
    times: (u64, u64),
    pass: LoadPass,
) -> Result<(), String> {
    let (mut made, mut expired) = (0, 0);
    for (id, group) in groups {
        let mut held = lease::take_asleep(&shared.cells[id]);
        let done = pass.within(&mut held.shard, |shard| {
            let done = make_group(shard, group, chunk, times);
            shard.changes.take();
            done
        });
        lease::release_as_stranger(shared, held);
        let (made_there, expired_there) = done?;
        (made, expired) = (made + made_there, expired + expired_there);
    }
    let loading = &shared.snapshots.loading;
    loading.keys.fetch_add(made, Relaxed);
    loading.keys_expired.fetch_add(expired, Relaxed);
    rest_after(shared, made + expired);
    Ok(())
}

/// Makes the keys of a piece that are in one shard and not dead at `now_ms`. Returns how many count as made, and how many as
/// dead, at `counted_ms`.
fn make_group(
    shard: &mut Shard,
    group: &[(u64, usize)],
    chunk: &LoadPiece<'_>,
    (now_ms, counted_ms): (u64, u64),
) -> Result<(u64, u64), String> {
    let db = chunk.db as usize;
    let (mut made, mut expired) = (0, 0);
    for (n, &(hash, at)) in group.iter().enumerate() {
        if let Some(&(later, _)) = group.get(n + LOOK_AHEAD) {
            shard.prefetch_line(db, later);
        }
        // Read a second time: cheaper than to keep what was read the first time.
        let entry = KeyEntry::read(&mut Cursor::new(chunk.bytes.get(at..).unwrap_or_default()));
        let Ok(entry) = entry else { continue };
        match entry.load(shard, db, hash, now_ms) {
            Ok(Made::Key) if entry.deadline_ms.is_none_or(|ms| ms > counted_ms) => made += 1,
            Ok(Made::Key | Made::Dead) => expired += 1,
            Ok(Made::Part | Made::Empty) => {}
            Err(why) => {
                let (name, offset) = (short(&entry.key), chunk.offset);
                return Err(format!("near byte {offset}: {} (key '{name}', database {db})", why.what()));
            }
        }
    }
    Ok((made, expired))
}

/// Sleeps for `key-load-delay`: as if `keys` keys took that much longer to load.
pub fn rest_after(shared: &Shared, keys: u64) {
    delay::sleep(
        keys,
        || shared.settings.live().persistence.key_load_delay_us,
        || shared.is_stopping.load(Relaxed),
    );
}

/// A file that tells how far it is read.
struct CountedLoad {
    file: Box<dyn ReadAt>,
    shared: &'static Shared,
}

impl ReadAt for CountedLoad {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)?;
        self.shared.snapshots.loading.loaded_bytes.fetch_add(out.len() as u64, Relaxed);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

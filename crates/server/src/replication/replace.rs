//! A replica's data is replaced by that of its master: in place, or loaded beside what is here, or stored until it has come.
//!
//! Called by the thread of a link. Until the moment of the change a link that ends leaves the data as it was.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use darter_config::SyncLoad;
use darter_persist::ReadAt;
use darter_persist::native;
use darter_persist::storage::Spool;
use darter_replica::history::ReplId;
use darter_replica::stream;

use super::apply;
use super::inbox::FlowFailure;
use super::link::{Link, LinkEnd, Step, wait_for_turns};
use super::wire::Wire;
use crate::engine::lease;
use crate::job::Shards;
use crate::shared::Shared;
use crate::snapshot::load::{self, Loading, SyncLoading};
use crate::sync::lock;
use crate::thread_state::ThreadState;
use crate::tracking;

/// Time between two signs of life for a master while its data is loaded.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

/// A full sync that comes in blocks.
pub(super) enum ArrivingData {
    /// Its blocks are loaded as they come.
    Loading(SyncLoading),
    /// They are loaded when all have come.
    Stored(StoredBlocks),
}

impl ArrivingData {
    /// Takes a block behind the id of its file, on the thread of any flow.
    ///
    /// Errors: what is wrong with it, or there is no room to store it now.
    pub(super) fn take(&self, body: &[u8]) -> Result<(), FlowFailure> {
        match self {
            ArrivingData::Loading(loading) => load_block(loading, body)
                .map_err(|why| FlowFailure::Hopeless(format!("its snapshot cannot be loaded: {why}"))),
            // A disk that is full has room again some time.
            ArrivingData::Stored(stored) => {
                stored.put(body).map_err(|error| FlowFailure::Lost(error.to_string()))
            }
        }
    }
}

fn load_block(loading: &SyncLoading, body: &[u8]) -> Result<(), String> {
    let (id, block) = body.split_first_chunk::<8>().ok_or("a block is cut off")?;
    loading.take(u64::from_le_bytes(*id), block)
}

/// Blocks in a file without a name.
pub(super) struct StoredBlocks {
    file: File,
    written: Mutex<WrittenBlocks>,
}

struct WrittenBlocks {
    spool: Spool,
    bytes: u64,
    // where each begins, its length with the id before it, and whether it is to be read after those before it
    places: Vec<(u64, usize, bool)>,
}

impl StoredBlocks {
    /// Errors: nothing can be written in `folder`.
    fn new(folder: &Path) -> Step<StoredBlocks> {
        let (spool, file) = Spool::new(folder).map_err(|fault| LinkEnd::Lost(fault.to_string()))?;
        Ok(StoredBlocks { file, written: Mutex::new(WrittenBlocks { spool, bytes: 0, places: Vec::new() }) })
    }

    fn put(&self, body: &[u8]) -> io::Result<()> {
        let is_ordered = native::is_ordered_block(body.get(8..).unwrap_or_default());
        let mut written = lock(&self.written);
        written.spool.write_all(body)?;
        let at = written.bytes;
        written.places.push((at, body.len(), is_ordered));
        written.bytes += body.len() as u64;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        lock(&self.written).bytes
    }

    /// Loads all of them on so many threads, unless `is_over` says that nobody wants it.
    fn load(&self, threads: usize, loading: &SyncLoading, is_over: impl Fn() -> bool + Sync) -> Step<()> {
        let places = std::mem::take(&mut lock(&self.written).places);
        let (ordered, free): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|(_, _, is_ordered)| *is_ordered);
        let (next, ended) = (AtomicUsize::new(0), Mutex::new(None::<LinkEnd>));
        let take = |(at, len): (u64, usize), room: &mut Vec<u8>| {
            let done =
                if is_over() { Err(LinkEnd::Stopped) } else { self.load_one((at, len), loading, room) };
            let mut ended = lock(&ended);
            if let Err(end) = done {
                ended.get_or_insert(end);
            }
            ended.is_none()
        };
        thread::scope(|scope| {
            for number in 0..threads {
                let (ordered, free, next, take) = (&ordered, &free, &next, &take);
                scope.spawn(move || {
                    let mut room = Vec::new();
                    let goes_on =
                        number > 0 || ordered.iter().all(|(at, len, _)| take((*at, *len), &mut room));
                    while goes_on
                        && let Some((at, len, _)) = free.get(next.fetch_add(1, Relaxed))
                        && take((*at, *len), &mut room)
                    {}
                });
            }
        });
        ended.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err)
    }

    fn load_one(&self, (at, len): (u64, usize), loading: &SyncLoading, room: &mut Vec<u8>) -> Step<()> {
        room.resize(len, 0);
        self.file.read_at(at, room)?;
        load_block(loading, room).map_err(unloadable)
    }
}

fn unloadable(why: String) -> LinkEnd {
    LinkEnd::Hopeless(format!("its snapshot cannot be loaded: {why}"))
}

impl Link {
    /// Makes ready for the blocks of a master whose data is of this history.
    pub(super) fn begin_arrival(&self, history: &ReplId, folder: &Path) -> Step<ArrivingData> {
        let shared = self.shared;
        let way = match shared.settings.live().replication.sync_load {
            // A member of a group counts what it has by what comes.
            _ if shared.group.is_some() => SyncLoad::Direct,
            way => way,
        };
        match way {
            SyncLoad::Direct => {
                self.begin_loading(0)?;
                shared.replication.state().is_continuous = false;
                Ok(ArrivingData::Loading(SyncLoading::in_place(shared)))
            }
            SyncLoad::Aside => self.begin_aside(history, 0).map(ArrivingData::Loading),
            // Where nothing is kept nothing takes twice the memory, and clients see what they would see anyway.
            SyncLoad::Whole if load::is_empty(shared) => {
                self.begin_unless_loading(|loading| loading.begin_beside(0))?;
                Ok(ArrivingData::Loading(SyncLoading::aside(shared)))
            }
            SyncLoad::Whole => StoredBlocks::new(folder).map(ArrivingData::Stored),
        }
    }

    /// All blocks have come: they are the data from here on.
    pub(super) fn end_arrival(&self, wire: &mut Wire, data: &ArrivingData) -> Step<()> {
        let stored = match data {
            ArrivingData::Loading(loading) => return self.end_loading(loading),
            ArrivingData::Stored(stored) => stored,
        };
        let (shared, info) = (self.shared, &self.info);
        self.load_in_place(stored.bytes(), |loading| {
            let is_over = || info.is_stopped() || shared.is_stopping.load(Relaxed);
            self.while_alive(wire, || stored.load(shared.handles.len(), loading, is_over))
        })
    }

    /// Nothing more comes of a sync that has not ended.
    pub(super) fn give_up(&self, data: ArrivingData) {
        if let ArrivingData::Loading(loading) = data
            && !loading.is_finished()
        {
            let is_aside = loading.is_aside();
            drop(loading);
            if is_aside {
                free_emptied(self.shared);
                self.shared.snapshots.loading.end();
            } else {
                self.note_replaced();
            }
        }
    }

    /// Loads a file of a master whose data is of this history, in the place of what is here.
    pub(super) fn replace_all(
        &self,
        wire: &mut Wire,
        history: &ReplId,
        file: Box<dyn ReadAt>,
        bytes: u64,
    ) -> Step<()> {
        if self.shared.settings.live().replication.sync_load == SyncLoad::Aside {
            let loading = self.begin_aside(history, bytes)?;
            let done = self.while_alive(wire, || loading.take_file(file).map_err(unloadable));
            return match done.and_then(|()| self.end_loading(&loading)) {
                Ok(()) => Ok(()),
                Err(end) => {
                    self.give_up(ArrivingData::Loading(loading));
                    Err(end)
                }
            };
        }
        self.load_in_place(bytes, |loading| {
            self.while_alive(wire, || loading.take_file(file).map_err(unloadable))
        })
    }

    /// Has `load` load everything in the place of what is here, while clients wait.
    fn load_in_place(&self, bytes: u64, load: impl FnOnce(&SyncLoading) -> Step<()>) -> Step<()> {
        self.begin_loading(bytes)?;
        self.shared.replication.state().is_continuous = false;
        let loading = SyncLoading::in_place(self.shared);
        let loaded = load(&loading);
        if loaded.is_ok() {
            loading.finish();
        }
        drop(loading);
        self.note_replaced();
        loaded
    }

    /// Has clients wait.
    fn begin_loading(&self, bytes: u64) -> Step<()> {
        let (shared, info) = (self.shared, &self.info);
        self.begin_unless_loading(|loading| loading.begin_replay(bytes))?;
        if !wait_for_turns(shared, info) {
            shared.snapshots.loading.end();
            return Err(LinkEnd::Stopped);
        }
        Ok(())
    }

    /// Begins a load beside what is here. Clients are served as long as that is an older state of the same data, as in Redis.
    fn begin_aside(&self, history: &ReplId, bytes: u64) -> Step<SyncLoading> {
        let shared = self.shared;
        let is_same = {
            let state = shared.replication.state();
            state.is_continuous && state.history.id == *history
        };
        if is_same {
            self.begin_unless_loading(|loading| loading.begin_aside(bytes))?;
        } else {
            self.begin_loading(bytes)?;
        }
        Ok(SyncLoading::aside(shared))
    }

    /// Begins a load.
    ///
    /// Errors: the link was ended, or another load is under way.
    fn begin_unless_loading(&self, begin: impl FnOnce(&Loading)) -> Step<()> {
        let (loading, _applying) = (&self.shared.snapshots.loading, lock(&self.shared.replication.applying));
        if self.info.is_stopped() {
            return Err(LinkEnd::Stopped);
        }
        if loading.is_on() {
            return Err(LinkEnd::Lost("another load is under way".to_owned()));
        }
        begin(loading);
        Ok(())
    }

    /// What was loaded is the data from here on.
    fn end_loading(&self, loading: &SyncLoading) -> Step<()> {
        if loading.is_aside() {
            self.take_aside()?;
        }
        loading.finish();
        self.note_replaced();
        free_emptied(self.shared);
        Ok(())
    }

    /// Has what was loaded aside in the place of what is here, at one moment for all shards.
    fn take_aside(&self) -> Step<()> {
        let info = self.info.clone();
        let taken = apply::with_all_shards(self.shared, move |local, grant| {
            let replication = &local.shared.replication;
            let _applying = lock(&replication.applying);
            if info.is_stopped() {
                return false;
            }
            replication.state().is_continuous = false;
            grant.iter_mut().for_each(|part| part.shard.take_aside());
            show_anew(local, grant);
            true
        });
        if taken == Some(true) { Ok(()) } else { Err(LinkEnd::Stopped) }
    }

    /// Other data is here, and clients are served.
    fn note_replaced(&self) {
        let shared = self.shared;
        apply::with_all_shards(shared, show_anew);
        shared.replication.note_loaded(shared);
        shared.snapshots.note_loaded(shared, None);
        shared.journal.ask_for_base();
        shared.replication.start_feeder(shared);
    }

    /// Has `work` done by another thread, while the master gets signs of life.
    fn while_alive<T: Send>(&self, wire: &mut Wire, work: impl FnOnce() -> Step<T> + Send) -> Step<T> {
        thread::scope(|scope| {
            let working = scope.spawn(work);
            let mut told = Instant::now();
            while !working.is_finished() {
                thread::sleep(LOOK);
                if told.elapsed() >= SIGN_OF_LIFE {
                    told = Instant::now();
                    let mut out = Vec::new();
                    stream::write(&mut out, &[b"REPLCONF", b"ACK", b"0"]);
                    // A connection that has ended is found when it is used next.
                    let _ = wire.send(&out);
                }
            }
            let failed = |_| LinkEnd::Hopeless("a thread that loads has ended".to_owned());
            working.join().map_err(failed).and_then(|done| done)
        })
    }
}

/// Frees what was emptied, for a thread that serves no client.
fn free_emptied(shared: &'static Shared) {
    for cell in shared.cells {
        let mut is_done = false;
        while !is_done {
            let mut held = lease::take_asleep(cell);
            is_done = held.shard.free_some(FREED_AT_ONCE);
            shared.limit.tell(cell.id(), &held.shard);
            lease::release_as_stranger(shared, held);
        }
    }
}

/// Blocks that are freed with a shard held: about a tenth of a millisecond.
const FREED_AT_ONCE: usize = 512;

/// Begins a load of other data, unless a full sync is loaded that would take its place; false if so.
pub fn begin_other_load(shared: &Shared, begin: impl FnOnce(&Loading)) -> bool {
    let (loading, _applying) = (&shared.snapshots.loading, lock(&shared.replication.applying));
    let may_begin = !loading.is_beside();
    if may_begin {
        begin(loading);
    }
    may_begin
}

/// Has those who watch or cache a key forget it: nobody can know what has become of it.
fn show_anew(local: &mut ThreadState, grant: &mut Shards) {
    let leaves_dead = local.shared.replication.leaves_dead(&local.live);
    for part in grant.iter_mut() {
        part.shard.keep_dead(leaves_dead);
        let dbs = part.shard.dbs_len();
        (0..dbs).for_each(|db| part.watches.touch_db(db, |_| true));
    }
    tracking::invalidate_all(local, grant);
}

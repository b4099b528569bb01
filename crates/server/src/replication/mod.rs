//! Masters and replicas: which role this server has, what it knows of the history of changes, who follows whom.
//!
//! `link` is the thread of a replica that follows a master, `apply` runs what the master sends. `feed` is the thread of a
//! master that brings the records of all threads into one stream; `sync` brings a replica up to date, `acks` answers those
//! who wait for replicas. Bytes and handshakes are those of the crate `replica`.

pub mod acks;
mod applier;
mod apply;
mod batch;
mod crew;
pub mod disk;
mod disk_acks;
pub mod failover;
pub mod feed;
pub mod flow_sync;
pub mod flows;
mod follow;
pub mod group;
mod inbox;
pub mod link;
pub mod position;
pub mod replace;
pub mod replicas;
pub mod roles;
pub mod show;
mod split;
pub mod store_route;
pub mod sync;
pub mod takeover;
pub mod track;
pub mod uncommitted;
pub mod wire;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use darter_replica::backlog::Backlog;
use darter_replica::history::{History, ReplId};
use darter_replica::records::Records;

use crate::clients::ClientInfo;
use crate::registry::CommandEntry;
use crate::shared::Shared;
use crate::sync::lock;
use crate::thread_state::ThreadState;

pub use apply::with_all_shards;
pub use crew::help;
pub use link::{login_request, own_place};
pub use wire::Wire;

use acks::Waits;
use link::LinkCard;
use replicas::Replica;
use uncommitted::{Uncommitted, UncommittedTrack};

/// State of replication; one for the process.
pub struct Replication {
    is_replica: AtomicBool,
    keeps_dead: AtomicBool,
    link_is_up: AtomicBool,
    good_replicas: AtomicU32,
    state: Mutex<ReplicationState>,
    /// Held while a batch of a master is applied, and while the role changes.
    applying: Mutex<()>,
    /// Threads that run parts of that batch.
    crew: crew::ApplyCrew,
    /// Records of a leader that are not applied.
    uncommitted: Mutex<Uncommitted>,
    waits: Mutex<Waits>,
    feeding: Mutex<Option<feed::Feeding>>,
    feeder: AtomicBool,
    failover: Mutex<Option<Arc<failover::Failover>>>,
    asks_for_acks: AtomicBool,
    is_held: AtomicBool,
    /// What replay has found of the stream of the run before.
    found: Mutex<Option<track::FoundStream>>,
    /// Records of a leader that replay has found, which the member has acknowledged perhaps.
    received: Mutex<UncommittedTrack>,
    loaded_generation: AtomicU64,
    by_name: OnceLock<HashMap<&'static str, &'static CommandEntry>>,
    /// Names this start of the server to others of ours.
    pub boot: ReplId,
    /// Counts of syncs, for INFO.
    pub counts: ReplicationCounts,
}

/// How replicas were brought up to date.
#[derive(Debug, Default)]
pub struct ReplicationCounts {
    /// By a snapshot.
    pub full: AtomicU64,
    /// By what they lacked.
    pub partial: AtomicU64,
    /// By what they lacked, from the journal's files.
    pub partial_from_disk: AtomicU64,
    /// They asked for what they lacked, and it was not there.
    pub partial_refused: AtomicU64,
    /// Replicas that were dropped because they were too slow.
    pub dropped_slow: AtomicU64,
    /// Replicas that were dropped because they were silent.
    pub dropped_silent: AtomicU64,
    /// Failovers that came about, in which this server gave its role away.
    pub failovers: AtomicU64,
    /// Links to a master that were up.
    pub links: AtomicU64,
    /// Times that changes came faster than they could be made ready.
    pub lost: AtomicU64,
    /// Parts of divided batches that the thread with their shards has run, and those that others have.
    pub parts: [AtomicU64; 2],
    /// Bytes that replicas were sent, snapshots included.
    pub sent_bytes: AtomicU64,
    /// Bytes that the master has sent, snapshots included.
    pub received_bytes: AtomicU64,
}

/// What changes together.
pub struct ReplicationState {
    /// Which changes the data has seen.
    pub history: History,
    /// The last of them as RESP, while somebody wants that; its end is the offset of this server.
    pub backlog: Backlog,
    /// The last of them as records.
    pub records: Records,
    /// Where the stream is in the journal's files, on a master.
    pub disk: disk::DiskIndex,
    /// Those records are the stream: it was made here, or came from a master of ours.
    pub knows_sequences: bool,
    /// Changes come into the backlog.
    pub has_backlog: bool,
    /// The data is what history and offset say.
    pub is_continuous: bool,
    /// The database that the stream has selected last, on a replica.
    pub db: usize,
    /// Servers that follow this one.
    pub replicas: Vec<Replica>,
    /// Whom this server follows.
    pub master: Option<Arc<LinkCard>>,
    /// Since when nobody follows, Unix seconds.
    pub alone_since_s: u64,
    /// When the stream had so many bytes: offset and Unix ms, oldest first.
    pub times: VecDeque<(u64, u64)>,
}

impl Replication {
    /// A master that nobody follows, of `threads` threads that serve clients.
    pub fn new(threads: usize, mut random: impl FnMut() -> u64) -> Replication {
        Replication {
            is_replica: AtomicBool::new(false),
            keeps_dead: AtomicBool::new(false),
            link_is_up: AtomicBool::new(false),
            good_replicas: AtomicU32::new(0),
            state: Mutex::new(ReplicationState {
                history: History::new(ReplId::from_random(&mut random)),
                backlog: Backlog::default(),
                records: Records::default(),
                disk: disk::DiskIndex::default(),
                knows_sequences: false,
                has_backlog: false,
                is_continuous: false,
                db: 0,
                replicas: Vec::new(),
                master: None,
                alone_since_s: 0,
                times: VecDeque::new(),
            }),
            applying: Mutex::default(),
            crew: crew::ApplyCrew::new(threads),
            uncommitted: Mutex::default(),
            waits: Mutex::default(),
            feeding: Mutex::default(),
            feeder: AtomicBool::new(false),
            failover: Mutex::default(),
            asks_for_acks: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            found: Mutex::default(),
            received: Mutex::default(),
            loaded_generation: AtomicU64::new(0),
            by_name: OnceLock::new(),
            boot: ReplId::from_random(&mut random),
            counts: ReplicationCounts::default(),
        }
    }

    /// Whether this server follows another.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Relaxed)
    }

    /// Whether dead keys stay until the master removes them.
    pub fn keeps_dead(&self) -> bool {
        self.keeps_dead.load(Relaxed)
    }

    /// Whether no command removes dead keys: those of a writable replica may be written over, and go.
    pub fn leaves_dead(&self, live: &darter_config::Live) -> bool {
        self.keeps_dead() && live.replication.read_only
    }

    /// Whether clients write here though this server follows another: they see keys as on a replica, and write over dead ones.
    #[inline]
    pub fn is_writable_replica(&self, live: &darter_config::Live) -> bool {
        self.keeps_dead() && !live.replication.read_only
    }

    /// Whether the link to the master is up.
    pub fn link_is_up(&self) -> bool {
        self.link_is_up.load(Relaxed)
    }

    /// Notes that nobody is followed for now.
    pub fn note_link_down(&self) {
        self.link_is_up.store(false, Relaxed);
    }

    /// Replicas that have acknowledged lately.
    pub fn good_replicas(&self) -> u32 {
        self.good_replicas.load(Relaxed)
    }

    /// Keeps what replay has found of the stream of the run before, for [`Replication::resume`].
    pub fn keep_found(&self, found: track::FoundStream) {
        *lock(&self.found) = Some(found);
    }

    /// Keeps the records that replay has found to be received and not applied, for [`Replication::resume`].
    pub fn keep_received(&self, received: UncommittedTrack) {
        *lock(&self.received) = received;
    }

    /// Has replicas asked how far they are.
    pub fn ask_for_acks(&self) {
        self.asks_for_acks.store(true, Relaxed);
    }

    /// Whether nothing of a master may be applied now.
    fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// Has nothing of a master applied, or lets it go on: between a snapshot and its load the data stands still.
    pub fn hold(&self, on: bool) {
        self.is_held.store(on, Relaxed);
    }

    /// The link to the master as a client, while it is up.
    pub fn master_client(&self) -> Option<Arc<ClientInfo>> {
        let state = self.state();
        let client = state.master.as_ref()?.client()?;
        client.db.store(state.db, Relaxed);
        Some(client)
    }

    /// Breaks the link to the master, which comes back; false: there is none.
    pub fn break_link(&self) -> bool {
        self.state().master.as_ref().is_some_and(|info| info.break_off())
    }

    /// What changes together; not to be held for long.
    pub fn state(&self) -> MutexGuard<'_, ReplicationState> {
        lock(&self.state)
    }

    /// The command with this name in the table, whatever `rename-command` says.
    fn command(&self, shared: &Shared, name: &[u8]) -> Option<&'static CommandEntry> {
        let entries = || shared.registry.entries().iter().map(|entry| (entry.spec.name, *entry)).collect();
        let table = self.by_name.get_or_init(entries);
        if let Some(entry) = std::str::from_utf8(name).ok().and_then(|name| table.get(name)) {
            return Some(entry);
        }
        let name = name.to_ascii_lowercase();
        table.get(std::str::from_utf8(&name).ok()?).copied()
    }
}

impl ReplicationState {
    /// Bytes of the stream so far.
    pub fn offset(&self) -> u64 {
        self.backlog.end()
    }

    /// Whether the data has all below a sequence of a history.
    pub fn has_sequence(&self, history: &ReplId, sequence: u64) -> bool {
        self.knows_sequences && self.history.names(history) && self.records.next() >= sequence
    }

    /// What follows is no stream of records. Those of ours who follow come back by another way.
    pub fn forget_sequences(&mut self, shared: &Shared) {
        let first = self.records.first_offset();
        self.form(first);
        self.knows_sequences = false;
        self.restart_records(shared, self.records.next());
    }

    /// Keeps no records; the next one has the sequence `next`. Those who get records from here come back.
    pub fn restart_records(&mut self, shared: &Shared, next: u64) {
        self.records = Records::new(next, self.offset());
        self.replicas.retain(|replica| {
            if replica.flows.is_some() {
                replica.close(shared);
            }
            replica.flows.is_none()
        });
    }

    /// Keeps nothing of the stream, which has had `offset` bytes.
    pub fn restart(&mut self, offset: u64) {
        self.backlog = Backlog::new(offset);
        self.records = Records::new(self.records.next(), offset);
    }

    /// Bytes that are kept for replicas that come, and those that wait in the connections of replicas.
    pub fn memory_bytes(&self) -> (u64, u64) {
        let kept = self.backlog.len() + self.records.bytes();
        (kept, self.replicas.iter().map(Replica::unsent_bytes).sum())
    }

    /// Bytes that are kept, and the number of those before them in the RESP stream.
    pub fn kept(&self) -> (u64, u64) {
        let first = match self.backlog.is_empty() && self.knows_sequences {
            true => self.records.first_offset().min(self.offset()),
            false => self.backlog.first(),
        };
        (self.offset().saturating_sub(first), first)
    }

    /// Whether a replica wants the stream as RESP.
    pub fn has_foreign(&self) -> bool {
        self.replicas.iter().any(|replica| replica.flows.is_none())
    }

    /// Whether the stream is to be kept as RESP: somebody wants it, or some of it that is kept was never here as records.
    pub fn wants_resp(&self) -> bool {
        let is_older = !self.backlog.is_empty() && self.backlog.first() < self.records.begin_offset();
        self.has_foreign() || is_older
    }

    /// Makes the RESP stream from `offset` on of the records, if it is not there. Nobody may append meanwhile.
    pub fn form(&mut self, offset: u64) {
        if !self.backlog.has(offset) && self.knows_sequences && offset < self.offset() {
            self.form_kept(offset);
        }
    }

    fn form_kept(&mut self, offset: u64) {
        let Some((begin, bytes)) = self.records.stream_from(offset) else { return };
        if begin + bytes.len() as u64 == self.offset() {
            self.backlog = Backlog::new(begin);
            self.backlog.append(&bytes);
        }
    }

    /// Notes how long the stream is now.
    pub fn note_time(&mut self, now_ms: u64) {
        let end = self.offset();
        let is_due = |(offset, at_ms): &(u64, u64)| *offset != end && now_ms >= at_ms + TIMES_APART_MS;
        if self.times.back().is_none_or(is_due) {
            if self.times.len() >= TIMES_MAX {
                self.times.pop_front();
            }
            self.times.push_back((end, now_ms));
        }
    }

    /// For how long a replica that has applied `acked` bytes has lacked something, in milliseconds.
    pub fn lag_ms(&self, acked: u64, now_ms: u64) -> u64 {
        if acked >= self.offset() {
            return 0;
        }
        let since = self.times.iter().find(|(offset, _)| *offset > acked);
        since.map_or(0, |(_, at_ms)| now_ms.saturating_sub(*at_ms))
    }
}

/// Times of the stream that are kept, and milliseconds between two of them.
const TIMES_MAX: usize = 4096;
const TIMES_APART_MS: u64 = 5;

/// Forty random digits that nobody can guess.
pub fn new_id() -> ReplId {
    ReplId::from_random(seed)
}

/// A number that no other call returns, here or in another process.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(crate::clock::unix_ms());
    hasher.finish()
}

impl ThreadState {
    /// Whether writes are refused because this server follows another.
    pub fn follows(&self) -> bool {
        self.shared.replication.is_replica() && self.live.replication.read_only
    }

    /// Whether nothing but commands about the server itself runs: the master is away, and its old data is not wanted.
    pub fn is_stale(&self) -> bool {
        let replication = &self.shared.replication;
        let is_away =
            replication.is_replica() && !replication.link_is_up() && !self.live.replication.serves_stale;
        is_away || self.is_in_doubt()
    }
}

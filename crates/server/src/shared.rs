//! What all threads see: shards, registry, settings, handles between threads, statistics.
//!
//! Made once at start and never freed, so that it is passed as `&'static Shared`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use darter_command::slot_usage::SlotUsage;
use darter_latch::{Cell, Mailbox};
use darter_reactor::{Socket, Token, Waker};
use darter_replica::shared_bytes::SharedBytes;
use darter_txn::{Router, ShardPart};

use crate::acl::Acl;
use crate::clients::ClientInfo;
use crate::command_log::CommandLogs;
use crate::duration_counter::DurationCounter;
use crate::engine::lease;
use crate::idling::Idling;
use crate::job::{Job, Shards};
use crate::journal::Journal;
use crate::journal::waitaof::SyncWaiters;
use crate::limit::MemoryLimit;
use crate::memcached;
use crate::migrate::Migrations;
use crate::monitor::Monitors;
use crate::pause::Pause;
use crate::protocol::ListenerKind;
use crate::pubsub::{ChannelDirectory, Message};
use crate::registry::Registry;
use crate::replication::group::FailoverGroup;
use crate::scripts::Scripts;
use crate::snapshot::Snapshots;
use crate::stats::ThreadStats;
use crate::tracking::{Invalidation, TrackingTable};
use darter_config::Settings;

/// A shard behind its ownership word.
pub type ShardCell = Cell<ShardPart, Job>;
const _: () = assert!(
    ShardCell::DATA_AT + darter_store::HOT_BYTES <= 128,
    "two lines, of which the word is in the first"
);

/// What CLIENT UNBLOCK answers to the client that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnblockReason {
    /// The reply of a timeout.
    Timeout,
    /// An UNBLOCKED error.
    Error,
}

/// Which connections of clients are closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseScope {
    /// Those that are owed something.
    Held,
    /// Those that have asked for data, or wait for it.
    All,
    /// The same, but for clients of Sentinel, which hear who leads now.
    Astray,
}

/// A message to a thread.
pub enum ThreadMessage {
    /// Listen where the settings say now.
    Move,
    /// A new connection to serve, and by which kind of listener it came.
    Connection(Socket, ListenerKind),
    /// A job of this thread was run elsewhere; its reply is in it.
    Done(Box<Job>),
    /// A client of this thread that waited for a key has been served elsewhere.
    Served {
        /// Which connection.
        token: Token,
        /// The client's id.
        client: u64,
        /// Its reply.
        reply: Vec<u8>,
    },
    /// Time alone will have something for a client of this thread that waits.
    ReadyAt {
        /// Which connection.
        token: Token,
        /// The client's id.
        client: u64,
    },
    /// A job to run here, with the shards it needs.
    Run(Box<darter_latch::Waiter<Job>>),
    /// Bytes to send to a client outside of its own commands.
    Push {
        /// Which connection.
        token: Token,
        /// The client's id, as tokens may be reused.
        client: u64,
        /// Encoded message.
        bytes: Arc<[u8]>,
    },
    /// A frame to send to a replica, in one piece: two threads give a flow its frames.
    Frame {
        /// Which connection.
        token: Token,
        /// The client's id.
        client: u64,
        /// What the body is.
        head: Box<[u8]>,
        /// Shared by all replicas.
        body: SharedBytes,
    },
    /// A published message for the subscribers this thread has.
    Publish(Arc<Message>),
    /// More of the journal has been synced: replies may go out.
    Durable,
    /// CLIENT PAUSE has ended before its time.
    Unpaused,
    /// A snapshot has begun or ended.
    Snapshot,
    /// Keys that a client of this thread tracks have changed.
    Invalidate(Box<Invalidation>),
    /// Keys that another client tracks have changed, and it wants this one to be told.
    Redirected {
        /// Which connection.
        token: Token,
        /// The client's id.
        client: u64,
        /// The keys as an array, or a null.
        keys: Arc<[u8]>,
    },
    /// Parts of a batch of a master are to be run.
    Help,
    /// This server follows another now: clients that wait to write wait no more.
    Demoted,
    /// The cluster has a map of this revision.
    ClusterMap(u64),
    /// Close connections of clients that may not be answered any more.
    Close(CloseScope),
    /// Close a connection.
    Kill {
        /// Which connection.
        token: Token,
        /// The client's id.
        client: u64,
    },
    /// End a client's wait: with its timeout reply, or with an UNBLOCKED error.
    Unblock {
        /// Which connection.
        token: Token,
        /// The client's id.
        client: u64,
        /// What the client is answered.
        reason: UnblockReason,
    },
    /// Stop serving and end the thread.
    Stop,
}

/// The way into a thread.
pub struct ThreadHandle {
    mailbox: Mailbox<ThreadMessage>,
    waker: OnceLock<Waker>,
    /// Connections the thread has.
    pub connections: AtomicUsize,
    /// The same by kind of listener, in the order of the kinds.
    pub by_kind: [AtomicUsize; ListenerKind::LEN],
}

impl ThreadHandle {
    pub(crate) fn new() -> ThreadHandle {
        ThreadHandle {
            mailbox: Mailbox::new(),
            waker: OnceLock::new(),
            connections: AtomicUsize::new(0),
            by_kind: Default::default(),
        }
    }

    /// Counts a connection that the thread is given.
    pub fn count_in(&self, kind: ListenerKind) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.by_kind[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts it no more.
    pub fn count_out(&self, kind: ListenerKind) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.by_kind[kind as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections that count against `maxclients`: those of administrators do not.
    pub fn counted_connections(&self) -> usize {
        let admins = self.by_kind[ListenerKind::Admin as usize].load(Ordering::Relaxed);
        self.connections.load(Ordering::Relaxed).saturating_sub(admins)
    }

    /// Tells how to wake the thread; called once by the thread itself.
    pub fn open(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    /// Sends a message and wakes the thread if it sleeps.
    pub fn send(&self, mail: ThreadMessage) {
        if self.mailbox.push(mail) {
            self.wake();
        }
    }

    /// Wakes the thread if it sleeps.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Whether the thread sleeps and no messages wait for it.
    pub fn is_asleep(&self) -> bool {
        self.waker.get().is_some_and(Waker::is_asleep) && !self.has_mail()
    }

    /// Whether messages wait.
    pub fn has_mail(&self) -> bool {
        !self.mailbox.is_empty()
    }

    /// Takes the messages, oldest first.
    pub fn drain(&self, out: &mut Vec<ThreadMessage>) {
        self.mailbox.drain(out);
    }
}

/// What housekeeping last saw of a shard; read where a shard need not be held.
#[derive(Clone, Debug, Default)]
pub struct ShardStats {
    /// Keys per database.
    pub keys: Vec<usize>,
    /// Keys with a deadline per database.
    pub expiring: Vec<usize>,
    /// Keys with members that have a deadline per database.
    pub expiring_in_part: Vec<usize>,
    /// Places for keys per database.
    pub slots: Vec<usize>,
    /// Bytes that count against `maxmemory`.
    pub memory_bytes: usize,
    /// Bytes of live records.
    pub used_bytes: usize,
    /// Bytes of indexes.
    pub index_bytes: usize,
    /// Hits, misses, expired, evicted.
    pub counters: darter_store::shard::Counters,
    /// What moving values together has come to.
    pub tidied: darter_store::tidy::TidyCounters,
    /// Answers of KEYS that were cut.
    pub answers_cut: u64,
    /// Shards in which values are being moved together.
    pub tidying: usize,
    /// Deleted collections that still hold memory.
    pub lazy_free_len: usize,
    /// Changes since start.
    pub changes: u64,
    /// Keys watched by connections.
    pub watched: usize,
    /// Keys that clients wait for, and those that clients of a consumer group wait for.
    pub waiting: (usize, usize),
}

/// Keys and index lines of one shard that an estimate of the mean time to live looks at.
const TTL_KEYS_MAX: u64 = 64;
const TTL_LINES_MAX: usize = 1024;

/// Everything threads share.
pub struct Shared {
    /// The shards behind their ownership tokens.
    pub cells: &'static [ShardCell],
    /// Which key is in which shard.
    pub router: Router,
    /// All commands.
    pub registry: Registry,
    /// Configuration.
    pub settings: Arc<Settings>,
    /// One handle per thread.
    pub handles: Vec<ThreadHandle>,
    /// One set of counters per thread.
    pub stats: Vec<ThreadStats>,
    /// Connected clients by id.
    pub clients: Mutex<HashMap<u64, Arc<ClientInfo>>>,
    /// The next client's id.
    pub next_client_id: AtomicU64,
    /// Whether anything arrives.
    pub idling: Idling,
    /// Last sight of each shard.
    pub shard_stats: Vec<Mutex<ShardStats>>,
    /// How much memory there may be.
    pub limit: MemoryLimit,
    /// How long values have been moved together in any shard, by the second.
    pub tidying: DurationCounter,
    /// The most bytes of all shards together that housekeeping ever saw.
    pub memory_peak_bytes: AtomicU64,
    /// Clients that see every command.
    pub monitors: Monitors,
    /// Commands wait (CLIENT PAUSE).
    pub pause: Pause,
    /// Which threads have subscribers to what.
    pub pubsub: ChannelDirectory,
    /// Which clients have read which keys.
    pub tracking: TrackingTable,
    /// The append-only journal.
    pub journal: Journal,
    /// Clients that wait for a sync of it.
    pub sync_waiters: SyncWaiters,
    /// Shutdown was asked for.
    pub is_stopping: AtomicBool,
    /// Dead keys are removed in the background (DEBUG SET-ACTIVE-EXPIRE).
    pub is_sweeping: AtomicBool,
    /// All keys are being looked at for a client (INFO keysizes).
    pub is_sizing: AtomicBool,
    /// Commands that took long or were large.
    pub command_logs: CommandLogs,
    /// Counts of error replies by their first word.
    pub errors: Mutex<HashMap<String, u64>>,
    /// When the server started.
    pub started: Instant,
    /// The same as Unix time in seconds.
    pub started_unix_s: u64,
    /// Forty hexadecimal digits, new at each start.
    pub run_id: String,
    /// How bytes travel: `epoll` or `io_uring`.
    pub driver_name: OnceLock<&'static str>,
    /// Events that took long.
    pub latency: Mutex<crate::report::latency::Monitor>,
    /// Samples of what happens per second.
    pub history: Mutex<crate::report::rates::RateHistory>,
    /// Bytes the process took before there was data.
    pub startup_bytes: AtomicU64,
    /// Version of the settings that thread 0 listens by.
    pub listen_version: AtomicU64,
    /// The port actually listened on.
    pub port: AtomicU32,
    /// The same of `tls-port`; 0 if there is none.
    pub tls_port: AtomicU32,
    /// All scripts.
    pub scripts: Scripts,
    /// Users and what they may do.
    pub acl: Acl,
    /// Which commands stand for memcached's.
    pub verbs: memcached::Verbs,
    /// A delayed `flush_all` of memcached.
    pub memcached_flush: memcached::Flush,
    /// What `stats detail` of memcached tells.
    pub memcached_detail: memcached::Detail,
    /// The log has said that a client speaks memcached's binary protocol.
    pub told_binary: AtomicBool,
    /// Which keys take the most time and bytes (HOTKEYS).
    pub hot_keys: crate::hot_keys::HotKeys,
    /// What commands of each slot have taken (CLUSTER SLOT-STATS), once that was asked for.
    pub slot_usage: OnceLock<Arc<SlotUsage>>,
    /// The backup that is being made (BACKUP).
    pub backup: crate::backup::Backups,
    /// State of snapshots.
    pub snapshots: Snapshots,
    /// The group that this server belongs to, if it does.
    pub group: Option<FailoverGroup>,
    /// Masters and replicas.
    pub replication: crate::replication::Replication,
    /// Connections to other servers that MIGRATE has used.
    pub migrations: Migrations,
    /// This server as a node of a cluster.
    pub cluster: crate::engine::cluster::ClusterNode,
    /// The certificate of encrypted listeners.
    pub tls: crate::tls::Entrance,
}

impl Shared {
    /// The handle of thread `thread`.
    pub fn handle(&self, thread: u16) -> &ThreadHandle {
        &self.handles[usize::from(thread)]
    }

    /// Turns that each thread has begun, for [`Shared::has_turned`].
    pub fn turns(&self) -> Vec<u64> {
        self.stats.iter().map(|stats| stats.turns.get()).collect()
    }

    /// Returns true if each thread has begun `more` turns since `before`. After one, it has ended the turn of then; after two,
    /// it has begun one behind whatever was changed then.
    pub fn has_turned(&self, before: &[u64], more: u64) -> bool {
        self.stats.iter().zip(before).all(|(stats, before)| stats.turns.get() >= before + more)
    }

    /// Waits until each thread has begun a turn behind whatever was changed before the call, and wakes those that sleep. Returns
    /// false if `gives_up` said so first. For a thread of its own; takes some milliseconds, or as long as a command of a thread.
    pub fn wait_for_turns(&self, gives_up: impl Fn() -> bool) -> bool {
        let before = self.turns();
        while !self.has_turned(&before, 2) {
            if gives_up() {
                return false;
            }
            self.handles.iter().for_each(|handle| handle.send(ThreadMessage::Unpaused));
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// New handles for `threads` threads.
    pub fn make_handles(threads: usize) -> Vec<ThreadHandle> {
        (0..threads).map(|_| ThreadHandle::new()).collect()
    }

    /// A fresh client id.
    pub fn new_client_id(&self) -> u64 {
        self.next_client_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The thread that keeps house for a shard.
    pub fn home_of(&self, shard: u16) -> u16 {
        shard % self.handles.len() as u16
    }

    /// Looks into the parts that the caller holds, and those that are free right now.
    fn each_part(&self, mut held: Option<&mut Shards>, mut look: impl FnMut(u16, &mut ShardPart)) {
        for cell in self.cells {
            let id = cell.id();
            if let Some(part) = held.as_deref_mut().and_then(|held| held.get_mut(id)) {
                look(id, part);
            } else if let Some(mut held) = lease::take_one_patiently(cell, 2000) {
                look(id, &mut held);
                lease::release_as_stranger(self, held);
            }
        }
    }

    /// Sets hits, misses and the like back to zero in every shard that is `held` or free.
    pub fn reset_shard_counters(&self, held: Option<&mut Shards>) {
        self.each_part(held, |_, part| {
            part.shard.counters = Default::default();
            part.shard.tidied = Default::default();
            part.shard.answers_cut = 0;
        });
    }

    /// The mean time to live in a database, milliseconds, from some of the keys of each shard that is `held` or free.
    pub fn average_ttl_ms(&self, db: usize, now_ms: u64, held: Option<&mut Shards>) -> u64 {
        let (mut sum, mut count) = (0u64, 0u64);
        self.each_part(held, |_, part| {
            let (ttl_ms, keys) = part.shard.sample_ttl(db, now_ms, TTL_KEYS_MAX, TTL_LINES_MAX);
            sum = sum.saturating_add(ttl_ms);
            count += keys;
        });
        sum / count.max(1)
    }

    /// Sums what all shards hold. `None` if one of them is not free right now. The caller must hold no shard.
    pub fn survey_all(&self) -> Option<ShardStats> {
        for cell in self.cells {
            let held = lease::try_one(cell)?;
            *crate::sync::lock(&self.shard_stats[usize::from(cell.id())]) = ShardStats::of(&held);
            self.limit.tell(cell.id(), &held.shard);
            lease::release_as_stranger(self, held);
        }
        Some(self.glance())
    }

    /// Sums what is known of all shards, looking into those that are `held` and those that are free right now.
    pub fn survey(&self, held: Option<&mut Shards>) -> ShardStats {
        self.each_part(held, |id, part| {
            *crate::sync::lock(&self.shard_stats[usize::from(id)]) = ShardStats::of(part);
            self.limit.tell(id, &part.shard);
        });
        self.glance()
    }
}

impl Shared {
    /// Sums what housekeeping last saw of all shards; owns none of them, so that nobody waits.
    pub fn glance(&self) -> ShardStats {
        let mut sum = ShardStats::default();
        self.shard_stats.iter().for_each(|info| sum.add(&crate::sync::lock(info)));
        sum
    }
}

impl ShardStats {
    /// Looks at a part that is held.
    pub fn of(part: &ShardPart) -> ShardStats {
        let shard = &part.shard;
        let dbs = 0..shard.dbs_len();
        ShardStats {
            keys: dbs.clone().map(|db| shard.visible_len(db)).collect(),
            expiring: dbs.clone().map(|db| shard.db(db).expiring()).collect(),
            expiring_in_part: dbs.clone().map(|db| shard.db(db).expiring_in_part()).collect(),
            slots: dbs.map(|db| shard.db(db).slots()).collect(),
            memory_bytes: shard.memory_bytes(),
            used_bytes: shard.used_bytes(),
            index_bytes: shard.index_bytes(),
            counters: shard.counters,
            tidied: shard.tidied,
            answers_cut: shard.answers_cut,
            tidying: usize::from(shard.is_tidying()),
            lazy_free_len: shard.lazy_free_len(),
            changes: shard.changes.total(),
            watched: part.watches.len(),
            waiting: crate::waiting::count(part),
        }
    }

    fn add(&mut self, other: &ShardStats) {
        let wider = self.keys.len().max(other.keys.len());
        self.keys.resize(wider, 0);
        self.expiring.resize(wider, 0);
        self.expiring_in_part.resize(wider, 0);
        self.slots.resize(wider, 0);
        self.keys.iter_mut().zip(&other.keys).for_each(|(a, b)| *a += b);
        self.expiring.iter_mut().zip(&other.expiring).for_each(|(a, b)| *a += b);
        self.expiring_in_part.iter_mut().zip(&other.expiring_in_part).for_each(|(a, b)| *a += b);
        self.slots.iter_mut().zip(&other.slots).for_each(|(a, b)| *a += b);
        self.memory_bytes += other.memory_bytes;
        self.used_bytes += other.used_bytes;
        self.index_bytes += other.index_bytes;
        self.counters.hits += other.counters.hits;
        self.counters.misses += other.counters.misses;
        self.counters.expired += other.counters.expired;
        self.counters.expired_members += other.counters.expired_members;
        self.counters.evicted += other.counters.evicted;
        self.tidied.add(&other.tidied);
        self.answers_cut += other.answers_cut;
        self.tidying += other.tidying;
        self.lazy_free_len += other.lazy_free_len;
        self.changes += other.changes;
        self.watched += other.watched;
        self.waiting.0 += other.waiting.0;
        self.waiting.1 += other.waiting.1;
    }
}

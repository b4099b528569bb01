//! What one thread brings to every command it runs.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::{Duration, Instant};

use darter_base::rng::Rng;
use darter_command::Env;
use darter_reactor::Token;
use darter_reactor::signal::Signals;
use darter_script::ScriptKind;
use darter_store::evict::EvictionOrder;

use crate::clock::unix_ms;
use crate::command_log::large::Large;
use crate::command_log::slots;
use crate::engine::cluster::ClusterView;
use crate::event_loop::EventLoop;
use crate::exec::multi_key;
use crate::journal::log::ThreadLog;
use crate::limit;
use crate::pubsub::Subscribers;
use crate::script_run::Interpreter;
use crate::shared::Shared;
use crate::snapshot::schedule;
use crate::stats::ThreadStats;
use crate::tls::TlsScratch;
use darter_config::{ClusterMode, EvictionPolicy, Live, SettingsWatch};

/// A thread's own copy of what commands read, refreshed each turn.
pub struct ThreadState {
    /// Shared by all threads.
    pub shared: &'static Shared,
    stats: &'static ThreadStats,
    /// This thread's number.
    pub thread: u16,
    /// The settings in force.
    pub live: Arc<Live>,
    watch: SettingsWatch,
    /// The part of them that data commands read.
    pub env: Env,
    /// Number of databases.
    pub dbs_len: usize,
    /// Time of the turn, Unix milliseconds.
    pub now_ms: u64,
    /// What TIME has answered in the script or transaction that runs, until the script is overdue.
    pub frozen: Option<Duration>,
    /// When the turn began: when its first event came.
    pub turn_began: Instant,
    /// Nothing arrived in this turn.
    pub is_quiet: bool,
    /// Every command is timed, and its reply measured, one by one.
    pub times_all: bool,
    /// Which requests and replies COMMANDLOG keeps.
    pub large: Large,
    /// Commands take the long way: MONITOR, a pause, a memory limit reached.
    pub is_gated: bool,
    /// What a command sees of dead keys depends on the command (`exec::Sees`).
    pub shows_dead_apart: bool,
    /// The data is more than the processor's own cache holds: asking for it ahead of time pays.
    pub looks_ahead: bool,
    /// The first word of the last error of a command that the script which runs has called: it was counted then.
    pub script_error: Vec<u8>,
    /// Changes with a smaller number have been told to clients' caches already, in the middle of an EXEC or a script.
    pub told_before: u64,
    /// Some connection of this thread waits for the end of CLIENT PAUSE.
    pub has_postponed: bool,
    /// Those were looked at since the map has changed: they wait for the next one.
    pub waits_for_map: bool,
    /// Subscriptions of this thread's connections.
    pub subscribers: Subscribers,
    /// Jobs its connections have posted, around zero.
    pub jobs_posted: u32,
    /// Some connection of this thread may wait with a script or an EXEC.
    pub has_waiting: bool,
    /// What some thread runs for too long.
    pub busy: Option<ScriptKind>,
    /// Its Lua.
    pub lua: Interpreter,
    /// Connections whose next command may run a script, which waits until the reactor is at hand.
    pub due: Vec<Token>,
    /// The reactor and the connections, lent while commands run that may run a script.
    pub event_loop: Option<Box<EventLoop>>,
    /// A script of this thread is overdue, and others are served for a moment.
    pub is_inside: bool,
    /// The signals that nobody has looked at yet; thread 0's alone.
    pub signals: Option<Signals>,
    /// What it has to write to the journal.
    pub journal: ThreadLog,
    /// Keys may be evicted by the settings in force.
    pub evicts: bool,
    /// Bytes that all clients may take together, 0 = anything.
    pub client_bytes_max: u64,
    /// When this thread last counted the memory of all shards.
    pub recounted: Instant,
    /// Bytes of long outputs that may still be sent in this turn.
    pub send_left: usize,
    /// Buffers for encrypted connections.
    pub tls: TlsScratch,
    /// What MGET and MSET use again.
    pub many: Option<Box<multi_key::MultiKeyScratch>>,
    /// The map of the cluster, as this thread routes by it.
    pub cluster: ClusterView,
    /// Chance for what no shard does.
    pub rng: Rng,
    /// Buffers of large requests, for the next ones: new memory costs a fault a page.
    spares: RefCell<Vec<Vec<u8>>>,
}

/// Capacities of buffers that are used again, in bytes.
const SPARE_BYTES: RangeInclusive<usize> = 64 << 10..=4 << 20;
/// Bytes of such buffers that a thread keeps.
const SPARES_BYTES_MAX: usize = 4 << 20;

impl ThreadState {
    /// The state of thread `thread`.
    pub fn new(shared: &'static Shared, thread: u16) -> ThreadState {
        let live = shared.settings.live();
        let mut local = ThreadState {
            shared,
            stats: &shared.stats[usize::from(thread)],
            thread,
            env: env_of(&live),
            dbs_len: live.dbnum as usize,
            watch: SettingsWatch::new(&shared.settings),
            large: Large::new(&live),
            now_ms: unix_ms(),
            frozen: None,
            turn_began: Instant::now(),
            is_quiet: true,
            live,
            times_all: false,
            is_gated: false,
            shows_dead_apart: false,
            looks_ahead: false,
            script_error: Vec::new(),
            told_before: 0,
            has_postponed: false,
            waits_for_map: false,
            subscribers: Subscribers::default(),
            jobs_posted: 0,
            has_waiting: false,
            busy: None,
            lua: Interpreter::default(),
            due: Vec::new(),
            event_loop: None,
            is_inside: false,
            signals: None,
            journal: ThreadLog::new(thread),
            evicts: false,
            client_bytes_max: 0,
            recounted: Instant::now(),
            send_left: 0,
            tls: TlsScratch::default(),
            many: None,
            cluster: ClusterView::new(&shared.cluster, &shared.settings.live().cluster),
            rng: Rng::new(u64::from(thread)),
            spares: RefCell::default(),
        };
        local.settle_settings();
        local.refresh();
        local
    }

    /// This thread's counters.
    #[inline]
    pub fn stats(&self) -> &'static ThreadStats {
        self.stats
    }

    /// Keeps the buffer of a large request for the next one, for a second at most.
    pub fn keep_buffer(&self, mut buffer: Vec<u8>) {
        let mut spares = self.spares.borrow_mut();
        let kept: usize = spares.iter().map(Vec::capacity).sum();
        if SPARE_BYTES.contains(&buffer.capacity()) && kept + buffer.capacity() <= SPARES_BYTES_MAX {
            buffer.clear();
            spares.push(buffer);
        }
    }

    /// Returns an empty buffer with a capacity of `bytes`, if one is kept.
    pub fn take_buffer(&self, bytes: Range<usize>) -> Option<Vec<u8>> {
        let mut spares = self.spares.borrow_mut();
        let at = spares.iter().rposition(|buffer| bytes.contains(&buffer.capacity()))?;
        Some(spares.swap_remove(at))
    }

    /// Frees the buffers that are kept.
    pub fn free_buffers(&self) {
        self.spares.take();
    }

    /// Reads the clock, and the settings if they changed.
    pub fn refresh(&mut self) {
        self.now_ms = unix_ms();
        self.turn_began = Instant::now();
        self.refresh_settings();
        self.looks_ahead = self.shared.limit.keyspace_bytes() > LOOK_AHEAD_BYTES_MIN;
        if self.shared.hot_keys.is_on(self.now_ms) || self.env.slot_usage.is_some() {
            self.large.look_at_all();
        } else {
            self.large.look_at_large();
        }
        self.times_all = self.live.slowlog.slower_us < TIMED_US
            || self.live.latency_monitor_threshold_ms > 0
            || self.large.counts_short_replies();
        self.refresh_gate();
    }

    /// Reads the settings if they changed.
    pub fn refresh_settings(&mut self) {
        if self.watch.refresh(&self.shared.settings) {
            self.live = self.watch.live().clone();
            self.env = env_of(&self.live);
            self.settle_settings();
            self.dbs_len = self.live.dbnum as usize;
        }
    }

    fn settle_settings(&mut self) {
        self.evicts = limit::rule(&self.live).is_some() && !self.live.import_mode;
        self.settle_dead();
        self.client_bytes_max = limit::clients::max_bytes(self);
        self.large = Large::new(&self.live);
        self.env.slot_usage = slots::table(self.shared, &self.live);
        if self.shared.cluster.is_on() {
            self.take_view(ClusterView::new(&self.shared.cluster, &self.live.cluster));
        }
    }

    /// Routes by a view from now on.
    pub fn take_view(&mut self, view: ClusterView) {
        self.env.own_slots = Some(view.map.own_slots());
        self.cluster = view;
    }

    /// Finds out whether commands must take the long way.
    pub fn refresh_gate(&mut self) {
        self.settle_dead();
        let busy_ms = self.live.busy_reply_threshold_ms;
        self.busy = self.shared.scripts.busy(busy_ms, self.now_ms);
        self.is_gated = self.busy.is_some()
            || self.shared.pause.is_on(self.now_ms)
            || self.shared.monitors.is_any()
            || self.is_over_memory()
            || self.shared.journal.is_failing()
            || self.shared.snapshots.loading.is_on()
            || self.shared.snapshots.holds_writers()
            || self.refuses_writes()
            || self.lacks_replicas()
            || self.shared.replication.is_replica()
            || self.is_in_doubt()
            || self.live.import_mode;
    }

    fn settle_dead(&mut self) {
        self.shows_dead_apart =
            self.live.import_mode || self.shared.replication.is_writable_replica(&self.live);
    }

    /// Whether a snapshot has failed, and nothing may be written until one does not.
    pub fn refuses_writes(&self) -> bool {
        self.shared.snapshots.has_failed()
            && self.live.persistence.stop_writes_on_bgsave_error
            && schedule::is_automatic(&self.live)
    }
}

/// The version of Redis that clients see, so that they use what this server can do.
pub const COMPAT_VERSION: &str = "7.4.0";

/// Below this many bytes of data the second-level cache holds all of it. Looking ahead then costs a tenth of a GET and
/// gains nothing.
const LOOK_AHEAD_BYTES_MIN: u64 = 1 << 20;

/// With the slow log's bar below this, cheap commands are timed too.
const TIMED_US: u64 = 1000;

/// The settings that data commands read.
fn env_of(live: &Live) -> Env {
    let e = &live.encoding;
    Env {
        proto_max_bulk_len: live.proto_max_bulk_len,
        keys_output_limit: live.keys_output_limit,
        list_max_listpack_size: i64::from(e.list_max_listpack_size),
        hash_max_listpack_entries: e.hash_max_listpack_entries,
        hash_max_listpack_value: e.hash_max_listpack_value,
        set_max_intset_entries: e.set_max_intset_entries,
        set_max_listpack_entries: e.set_max_listpack_entries,
        set_max_listpack_value: e.set_max_listpack_value,
        zset_max_listpack_entries: e.zset_max_listpack_entries,
        zset_max_listpack_value: e.zset_max_listpack_value,
        stream_node_max_bytes: e.stream_node_max_bytes,
        stream_node_max_entries: e.stream_node_max_entries,
        stream_idmp_duration: e.stream_idmp_duration,
        stream_idmp_maxsize: e.stream_idmp_maxsize,
        hll_sparse_max_bytes: e.hll_sparse_max_bytes,
        is_cluster: live.cluster.mode != ClusterMode::Off,
        own_slots: None,
        slot_usage: None,
        import_mode: live.import_mode,
        restored_versions: live.persistence.restored_versions,
        policy_is_lfu: matches!(
            live.maxmemory_policy,
            EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu
        ),
        policy_counts_uses: live.maxmemory > 0
            && limit::rule(live).is_some_and(|rule| rule.order == EvictionOrder::LeastUsed),
    }
}

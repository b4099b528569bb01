//! From settings to a serving process: shards, threads, listeners, signals.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use darter_base::crc::SLOTS_LEN;
use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_latch::Cell;
use darter_persist::files::Disk;
use darter_reactor::signal::Signals;
use darter_reactor::{DriverChoice, Reactor, cpu};
use darter_store::Shard;
use darter_txn::readers::ReaderTotals;
use darter_txn::{Router, ShardPart};

use crate::acl::Acl;
use crate::command_log::CommandLogs;
use crate::duration_counter::DurationCounter;
use crate::engine::cluster::{self, ClusterNode};
use crate::hot_keys::HotKeys;
use crate::idling::Idling;
use crate::journal::Journal;
use crate::journal::waitaof::SyncWaiters;
use crate::limit::MemoryLimit;
use crate::listening::Patience;
use crate::migrate::Migrations;
use crate::monitor::Monitors;
use crate::pause::Pause;
use crate::pubsub::ChannelDirectory;
use crate::registry::Registry;
use crate::replication::group;
use crate::replication::group::FailoverGroup;
use crate::replication::{self, Replication};
use crate::rlimits;
use crate::scripts::Scripts;
use crate::shared::{ShardCell, ShardStats, Shared, ThreadMessage};
use crate::snapshot::Snapshots;
use crate::snapshot::beginning::{self, Beginning};
use crate::snapshot::folder;
use crate::stats::ThreadStats;
use crate::tls::Entrance;
use crate::tracking::TrackingTable;
use crate::worker::Worker;
use darter_config::{ClusterMode, Live, Settings};

/// Shards per thread, unless a setting says otherwise.
const SHARDS_PER_THREAD: usize = 8;
const SHARDS_MIN: usize = 16;
const SHARDS_MAX: usize = 1024;
/// A shard has less than this only where the threads need more shards: its pages serve each size on their own.
const SHARD_BYTES_MIN: u64 = 16 << 20;

/// Serves until a signal or SHUTDOWN ends it.
///
/// Errors: an address is taken, or the kernel refuses memory or descriptors.
pub fn serve(settings: Arc<Settings>) -> io::Result<()> {
    let threads = match settings.live().threads {
        0 => cpu::usable_cores(),
        n => n as usize,
    };
    rlimits::fit_clients(&settings, threads).map_err(io::Error::other)?;
    let live = settings.live();
    let shared = build(settings, &live, threads)?;
    if let Some(group) = &shared.group {
        // From the first client on: who leads is not known yet, nor whether the data here is what a leader has.
        replication::roles::abdicate(shared);
        group.doubt();
    }
    let beginning = beginning::find(shared, &live)?;
    let cores = cpu::allowed_cores();
    let stays = stays_on_core(live.affinity, threads, cores.len());
    let mut others = Vec::new();
    for thread in 1..threads {
        let core = cores.get(thread).copied().filter(|_| stays);
        let spawned = thread::Builder::new().name(format!("darter-{thread}")).spawn(move || {
            if let Some(core) = core {
                let _ = cpu::pin_thread(core);
            }
            match Reactor::new(driver(shared), &reactor_config(shared)) {
                Ok(reactor) => Worker::new(shared, thread as u16, reactor).run(),
                Err(error) => tracing::error!("thread {thread} cannot start: {error}"),
            }
        })?;
        others.push(spawned);
    }
    if let Some(&core) = cores.first().filter(|_| stays) {
        let _ = cpu::pin_thread(core);
    }
    let ended = serve_first(shared, &live, beginning);
    for thread in 1..threads {
        shared.handle(thread as u16).send(ThreadMessage::Stop);
    }
    for other in others {
        let _ = other.join();
    }
    shared.replication.note_end(shared);
    shared.journal.end_last();
    ended
}

/// Whether each thread keeps to one core. One that may not move waits behind a client on its core while another core has
/// nothing to do, so `auto` leaves the choice to the kernel unless a core is left over.
fn stays_on_core(affinity: &str, threads: usize, cores: usize) -> bool {
    match affinity {
        "on" => threads <= cores,
        "auto" => threads > 1 && threads < cores,
        _ => false,
    }
}

/// Thread 0: listens, accepts, looks at signals.
fn serve_first(shared: &'static Shared, live: &Live, beginning: Beginning) -> io::Result<()> {
    let reactor = Reactor::new(driver(shared), &reactor_config(shared))?;
    let _ = shared.driver_name.set(reactor.driver_name());
    if let Some(note) = reactor.driver_note() {
        tracing::info!("{note}");
    }
    let signals = Signals::install(reactor.waker())?;
    let mut worker = Worker::new(shared, 0, reactor);
    let addresses = worker.listen(live, &Patience::at_start(&|| signals.pending()))?;
    crate::report::memory::note_startup(shared);
    if let Err(why) = crate::oom_score::apply(live) {
        tracing::warn!("oom-score-adj: {why}");
    }
    let pidfile = PidFile::write(live);
    banner(shared, live, &addresses);
    for line in folder::check(live).map_err(io::Error::other)? {
        tracing::warn!("{line}");
    }
    tracing::info!("{}", folder::promise(live));
    beginning::load(shared, beginning)?;
    replication::roles::start_after_load(shared)?;
    group::start(shared)?;
    cluster::sweep::start_after_load(shared)?;
    if let Some(store) = &shared.cluster.store {
        store.start(shared)?;
    }
    worker.heed(signals);
    worker.run();
    drop(pidfile);
    if let Some(why) = shared.snapshots.loading.failure().or_else(|| shared.snapshots.ending.failure()) {
        return Err(io::Error::other(why));
    }
    tracing::info!("darter is now ready to exit, bye bye");
    Ok(())
}

/// The file that holds the process's number while it serves.
struct PidFile(Option<std::path::PathBuf>);

impl PidFile {
    /// Writes it where the settings say; a file that cannot be written is no reason not to serve.
    fn write(live: &Live) -> PidFile {
        let Some(path) = &live.pidfile else { return PidFile(None) };
        match std::fs::write(path, format!("{}\n", std::process::id())) {
            Ok(()) => PidFile(Some(path.clone())),
            Err(error) => {
                tracing::warn!("cannot write the pid file {}: {error}", path.display());
                PidFile(None)
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn driver(shared: &Shared) -> DriverChoice {
    if shared.settings.live().force_epoll { DriverChoice::Epoll } else { DriverChoice::Auto }
}

fn reactor_config(shared: &Shared) -> darter_reactor::Config {
    let tcp = shared.settings.live().tcp;
    darter_reactor::Config {
        backlog: tcp.backlog,
        nodelay: tcp.nodelay,
        keepalive: tcp.keepalive(),
        ..darter_reactor::Config::default()
    }
}

/// Everything threads share, for `threads` threads. Lives as long as the process.
pub fn build(settings: Arc<Settings>, live: &Live, threads: usize) -> io::Result<&'static Shared> {
    build_hashed(settings, live, threads, KeyHasher::random())
}

/// As [`build`], with keys hashed by `hasher`: what is measured has the same keys side by side in each run.
pub fn build_hashed(
    settings: Arc<Settings>,
    live: &Live,
    threads: usize,
    hasher: KeyHasher,
) -> io::Result<&'static Shared> {
    let shards = match live.shards {
        0 => shards_for(threads, live.maxmemory),
        n => (n as usize).next_power_of_two().clamp(2, SHARDS_MAX),
    };
    let mut seeds = Rng::new(hasher.hash(b"seed"));
    // Slots move, and are counted: the keys of one are in one shard.
    let hasher = if live.cluster.mode.has_slots() { hasher.by_slot() } else { hasher };
    let router = Router::new(hasher, shards as u16);
    let (cells, totals) = make_cells(live, shards, &router, &mut seeds)?;
    let cells: &'static [ShardCell] = Box::leak(cells.into_boxed_slice());
    let invalid = |fault: String| io::Error::new(io::ErrorKind::InvalidInput, fault);
    let registry =
        Registry::build_with(&live.renamed_commands, &live.restricted_commands).map_err(invalid)?;
    let acl = Acl::start(crate::acl::rows(&registry), live).map_err(invalid)?;
    let tls = Entrance::open(live).map_err(|fault| invalid(fault.to_string()))?;
    let run_id = hex(&mut seeds, 40);
    let replication = Replication::new(threads, || seeds.next_u64());
    let cluster = ClusterNode::start(live, &run_id, replication.boot.as_str()).map_err(invalid)?;
    if live.cluster.mode == ClusterMode::Pushed {
        router.hidden().set(cluster.map().hidden());
    }
    let commands = registry.entries().len();
    let verbs = crate::memcached::Verbs::new(&registry);
    let now = crate::clock::unix_ms();
    Ok(Box::leak(Box::new(Shared {
        cells,
        router,
        registry,
        settings,
        handles: Shared::make_handles(threads),
        stats: (0..threads).map(|_| ThreadStats::new(commands)).collect(),
        clients: Mutex::new(HashMap::new()),
        next_client_id: AtomicU64::new(1),
        idling: Idling::default(),
        shard_stats: (0..shards).map(|_| Mutex::new(ShardStats::default())).collect(),
        limit: MemoryLimit::new(shards),
        tidying: DurationCounter::default(),
        memory_peak_bytes: AtomicU64::new(0),
        monitors: Monitors::default(),
        pause: Pause::default(),
        pubsub: ChannelDirectory::default(),
        tracking: TrackingTable::new(totals),
        journal: Journal::new(Disk, threads),
        sync_waiters: SyncWaiters::default(),
        is_stopping: AtomicBool::new(false),
        is_sweeping: AtomicBool::new(true),
        is_sizing: AtomicBool::new(false),
        command_logs: CommandLogs::default(),
        errors: Mutex::new(HashMap::new()),
        started: Instant::now(),
        started_unix_s: now / 1000,
        run_id,
        driver_name: OnceLock::new(),
        latency: Mutex::default(),
        history: Mutex::default(),
        startup_bytes: AtomicU64::new(0),
        listen_version: AtomicU64::new(0),
        port: AtomicU32::new(0),
        tls_port: AtomicU32::new(0),
        scripts: Scripts::new(threads),
        acl,
        verbs,
        memcached_flush: Default::default(),
        memcached_detail: Default::default(),
        told_binary: AtomicBool::new(false),
        hot_keys: HotKeys::new(threads),
        slot_usage: OnceLock::new(),
        backup: Default::default(),
        snapshots: Snapshots::new(),
        replication,
        group: live.has_group().then(|| FailoverGroup::new(&live.replication.ha)),
        migrations: Migrations::default(),
        cluster,
        tls,
    })))
}

/// So many empty shards, and what the tables of their readers count in.
fn make_cells(
    live: &Live,
    shards: usize,
    router: &Router,
    seeds: &mut Rng,
) -> io::Result<(Vec<ShardCell>, Vec<Arc<ReaderTotals>>)> {
    let (mut cells, mut totals) = (Vec::with_capacity(shards), Vec::with_capacity(shards));
    let reserve_bytes = rlimits::shard_bytes(shards).map_err(io::Error::other)?;
    if let Some(bytes) = reserve_bytes {
        let all = darter_base::units::format_bytes_human((bytes * shards) as u64);
        tracing::warn!("address space is limited (ulimit -v): the data may take {all} of it");
    }
    if live.cluster.mode == ClusterMode::Stored {
        // The first map says which keys are to be seen: some may be left over from a migration.
        router.hidden().set(0..SLOTS_LEN);
    }
    let hasher = *router.hasher();
    for id in 0..shards {
        let mut shard = Shard::within(reserve_bytes, live.dbnum as usize, seeds.next_u64(), hasher)?;
        shard.share_links(Arc::clone(router.links()));
        if hasher.is_by_slot() {
            shard.count_slots(shards, id as u16);
            shard.hide_slots(Arc::clone(router.hidden()));
        }
        // Four million tokens a second, no two alike, none of an earlier process again, all exact in a double.
        shard.start_cas(((crate::clock::unix_ms() / 1000) << 22) + id as u64, shards as u64);
        let part = ShardPart::new(shard, hasher);
        totals.push(part.readers.totals().clone());
        cells.push(Cell::new(id as u16, part));
    }
    Ok((cells, totals))
}

/// The number of shards for this number of threads: fewer if `maxmemory` is small (0: no limit).
fn shards_for(threads: usize, maxmemory: u64) -> usize {
    let wanted = (threads * SHARDS_PER_THREAD).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
    let filled = match maxmemory {
        0 => wanted,
        bytes => usize::try_from(bytes / SHARD_BYTES_MIN).unwrap_or(wanted),
    };
    let enough = (threads * 2).next_power_of_two().min(wanted);
    filled.next_power_of_two().clamp(enough, wanted)
}

fn hex(rng: &mut Rng, digits: usize) -> String {
    (0..digits).map(|_| char::from(b"0123456789abcdef"[rng.below(16) as usize])).collect()
}

fn banner(shared: &Shared, live: &Live, addresses: &[String]) {
    let limit = match shared.limit.max_bytes(live) {
        u64::MAX => "none".to_owned(),
        bytes => darter_base::units::format_bytes_human(bytes),
    };
    tracing::info!(
        "darter {}, process {}: {} threads, {} shards, {}, memory limit {limit}, listening on {}",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        shared.handles.len(),
        shared.router.shards_len(),
        shared.driver_name.get().unwrap_or(&"?"),
        if addresses.is_empty() { "nothing".to_owned() } else { addresses.join(", ") },
    );
}

//! The server's numbers in one place: INFO, MEMORY STATS and metrics read them from here.
//!
//! A full report reads every free shard, every thread's counters and the process. Nothing here writes a reply.

pub mod latency;
pub mod memory;
pub mod rates;
pub mod trend;

use std::sync::atomic::Ordering::Relaxed;

use crate::job::Shards;
use crate::shared::{ShardStats, Shared};
use crate::stats::clients::ClientTotals;
use crate::stats::histogram::Sum;
use crate::stats::{Estimate, SlowStats, ThreadStats};
use crate::sync::lock;

/// Counters of all threads added up.
#[derive(Clone, Debug, Default)]
pub struct ReportTotals {
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused.
    pub rejected_connections: u64,
    /// Commands run.
    pub commands: u64,
    /// Bytes received.
    pub input_bytes: u64,
    /// Bytes sent.
    pub output_bytes: u64,
    /// Those of `input_bytes` that came from the master.
    pub master_bytes: u64,
    /// Those of `output_bytes` that went to replicas.
    pub replica_bytes: u64,
    /// Receives.
    pub reads: u64,
    /// Sends.
    pub writes: u64,
    /// Error replies.
    pub errors: u64,
    /// Commands that waited for a shard.
    pub contended: u64,
    /// Clients closed for too much output.
    pub output_limit_closed: u64,
    /// Clients closed for too much input.
    pub input_limit_closed: u64,
    /// Commands that came together with others.
    pub pipelined: u64,
    /// Clients closed because all together took too much.
    pub clients_evicted: u64,
    /// Handshakes of TLS begun.
    pub tls_begun: u64,
    /// Handshakes of TLS finished.
    pub tls_finished: u64,
    /// Connections closed because of a TLS error.
    pub tls_failed: u64,
    /// Turns of the loops.
    pub turns: u64,
    /// Turns with work besides housekeeping.
    pub lively_turns: u64,
    /// Microseconds threads were not asleep.
    pub busy_us: u64,
    /// Keys that housekeeping found dead.
    pub swept_keys: u64,
    /// Commands that SLOWLOG kept.
    pub slow: Slow,
}

/// Commands that SLOWLOG kept since the statistics were reset.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slow {
    /// Their number.
    pub calls: u64,
    /// Microseconds all of them took.
    pub us: u64,
    /// Microseconds the longest took.
    pub us_max: u64,
}

impl Slow {
    fn add(&mut self, stats: &SlowStats) {
        self.calls += stats.calls.get();
        self.us += stats.us.get();
        self.us_max = self.us_max.max(stats.us_max.get());
    }
}

impl ReportTotals {
    /// The counters of all threads.
    pub fn of(shared: &Shared) -> ReportTotals {
        let mut sum = ReportTotals::default();
        shared.stats.iter().for_each(|stats| sum.add(stats));
        let counts = &shared.replication.counts;
        sum.master_bytes = counts.received_bytes.load(Relaxed);
        sum.replica_bytes = counts.sent_bytes.load(Relaxed);
        // Threads of their own receive what a master sends.
        sum.input_bytes += sum.master_bytes;
        sum
    }

    fn add(&mut self, stats: &ThreadStats) {
        self.connections += stats.connections.get();
        self.rejected_connections += stats.rejected_connections.get();
        self.commands += stats.commands_run();
        self.input_bytes += stats.input_bytes.get();
        self.output_bytes += stats.output_bytes.get();
        self.reads += stats.reads.get();
        self.writes += stats.writes.get();
        self.errors += stats.errors.get();
        self.contended += stats.contended.get();
        self.output_limit_closed += stats.output_limit_closed.get();
        self.input_limit_closed += stats.input_limit_closed.get();
        self.pipelined += stats.pipelined.get();
        self.clients_evicted += stats.clients_evicted.get();
        self.tls_begun += stats.tls_begun.get();
        self.tls_finished += stats.tls_finished.get();
        self.tls_failed += stats.tls_failed.get();
        self.turns += stats.turns.get();
        self.lively_turns += stats.lively_turns.get();
        self.busy_us += stats.busy_nanos.get() / 1000;
        self.swept_keys += stats.swept_keys.get();
        stats.slow.iter().for_each(|slow| self.slow.add(slow));
    }
}

/// Totals of one command on all threads.
#[derive(Clone, Debug, Default)]
pub struct CommandTotals {
    /// Times it ran.
    pub calls: u64,
    /// Microseconds it took; estimated from a sample if calls are cheap.
    pub us: u64,
    /// Times it was refused before running.
    pub rejected: u64,
    /// Times it ended in an error.
    pub failed: u64,
    /// Those that SLOWLOG kept.
    pub slow: Slow,
}

impl CommandTotals {
    /// The command with the registry's number `id`.
    pub fn of(shared: &Shared, id: usize) -> CommandTotals {
        let estimate = estimate_of(shared, id);
        let mut sum = CommandTotals {
            calls: estimate.calls(),
            us: estimate.nanos() / 1000,
            ..CommandTotals::default()
        };
        for stats in shared.stats.iter().filter_map(|stats| stats.commands.get(id)) {
            sum.rejected += stats.rejected.get();
            sum.failed += stats.failed.get();
        }
        shared.stats.iter().filter_map(|stats| stats.slow.get(id)).for_each(|slow| sum.slow.add(slow));
        sum
    }

    /// Microseconds a call.
    pub fn us_per_call(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.us as f64 / self.calls as f64 }
    }
}

/// The known times of the command with the registry's number `id`, on all threads.
pub fn estimate_of(shared: &Shared, id: usize) -> Estimate {
    Estimate::of(shared.stats.iter().filter_map(|stats| stats.commands.get(id)))
}

/// The distribution of a command's times on all threads, and its calls; `None` if nothing is known.
pub fn times_of(shared: &Shared, id: usize) -> Option<(Sum, u64)> {
    let estimate = estimate_of(shared, id);
    Some((estimate.times()?, estimate.calls()))
}

impl ClientTotals {
    /// Looks at every client's info.
    pub fn of(shared: &Shared) -> ClientTotals {
        let mut sum = ClientTotals::default();
        lock(&shared.clients).values().for_each(|info| sum.count(info));
        sum.connected += usize::from(shared.replication.master_client().is_some());
        sum
    }

    /// The clients as each thread last saw its own, at most a second ago. Cost: a read of each thread.
    pub fn glance(shared: &Shared) -> ClientTotals {
        let mut sum = ClientTotals::default();
        for (stats, handle) in shared.stats.iter().zip(&shared.handles) {
            let seen = lock(&stats.clients);
            sum.connected += handle.connections.load(Relaxed);
            sum.blocked += seen.blocked;
            sum.subscribed += seen.subscribed;
            sum.watching += seen.watching;
            sum.monitors += seen.monitors;
            sum.watched_keys += seen.watched_keys;
            sum.input_bytes += seen.input_bytes;
            sum.output_bytes += seen.output_bytes;
            sum.input_bytes_max = sum.input_bytes_max.max(seen.input_bytes_max);
            sum.output_bytes_max = sum.output_bytes_max.max(seen.output_bytes_max);
        }
        sum.connected = sum.connected.saturating_sub(shared.replication.state().connections());
        sum
    }
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub struct Report {
    /// All shards.
    pub shards: ShardStats,
    /// All threads.
    pub totals: ReportTotals,
    /// All clients.
    pub clients: ClientTotals,
    /// Memory.
    pub memory: memory::MemoryUsage,
    /// Rates of the last seconds.
    pub rates: rates::Rates,
}

/// Microseconds all threads spent in commands, partly estimated. Cost: every counter of every command.
pub fn command_us(shared: &Shared) -> u64 {
    let entries = shared.registry.entries().iter();
    entries.map(|entry| estimate_of(shared, entry.id).nanos()).sum::<u64>() / 1000
}

impl Report {
    /// Gathers everything, with the shards that the caller holds. Cost: a visit of each shard and client, and two
    /// files of `/proc`.
    pub fn gather(shared: &Shared, held: Option<&mut Shards>) -> Report {
        let shards = shared.survey(held);
        let clients = ClientTotals::of(shared);
        let memory = memory::MemoryUsage::of(shared, &shards);
        Report {
            totals: ReportTotals::of(shared),
            rates: lock(&shared.history).rates(),
            shards,
            clients,
            memory,
        }
    }

    /// The same from the threads' latest notes, without a visit of shards or clients. Cost: O(shards + threads), and
    /// two files of `/proc`.
    pub fn glance(shared: &Shared) -> Report {
        let shards = shared.glance();
        let clients = ClientTotals::glance(shared);
        let memory = memory::MemoryUsage::of(shared, &shards);
        Report {
            totals: ReportTotals::of(shared),
            rates: lock(&shared.history).rates(),
            shards,
            clients,
            memory,
        }
    }

    /// Keys of all databases.
    pub fn keys(&self) -> usize {
        self.shards.keys.iter().sum()
    }
}

/// Resets the statistics of CONFIG RESETSTAT. Counters belong to threads: one that is counting right now may survive.
pub fn reset(shared: &Shared, held: Option<&mut Shards>) {
    shared.stats.iter().for_each(ThreadStats::reset);
    lock(&shared.errors).clear();
    shared.acl.reset_denials();
    let counts = &shared.replication.counts;
    [&counts.sent_bytes, &counts.received_bytes].into_iter().for_each(|count| count.store(0, Relaxed));
    lock(&shared.history).restart();
    shared.memory_peak_bytes.store(0, Relaxed);
    if let Some(usage) = shared.slot_usage.get() {
        usage.reset_all();
    }
    shared.reset_shard_counters(held);
}

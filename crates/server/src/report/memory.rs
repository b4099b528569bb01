//! Memory of the process by purpose: keyspace, clients, and the base before the first key.

use std::fs;
use std::sync::atomic::Ordering::Relaxed;

use darter_reactor::process;

use crate::engine::lease;
use crate::shared::{ShardStats, Shared};

/// Bytes by purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUsage {
    /// Keyspace, clients and the memory at start.
    pub used: u64,
    /// The largest `used` that was observed.
    pub peak: u64,
    /// Memory before the first key: without code, with tables and thread stacks.
    pub startup: u64,
    /// Everything except keys and values: `startup`, clients, indexes.
    pub overhead: u64,
    /// Keys and values with their slack: `used` without `overhead`.
    pub dataset: u64,
    /// Clients with their buffers.
    pub clients: u64,
    /// Memory of the threads' Lua states.
    pub lua: u64,
    /// The shards.
    pub keyspace: u64,
    /// Live records alone.
    pub records: u64,
    /// Indexes.
    pub index: u64,
    /// Resident memory of the process.
    pub rss: u64,
    /// The most that ever was resident.
    pub rss_peak: u64,
}

impl MemoryUsage {
    /// Adds up the known numbers, and asks the kernel for the rest.
    pub fn of(shared: &Shared, shards: &ShardStats) -> MemoryUsage {
        let process = process::memory();
        let startup = shared.startup_bytes.load(Relaxed);
        let keyspace = shards.memory_bytes as u64;
        let clients = crate::limit::client_bytes(shared);
        let index = shards.index_bytes as u64;
        let lua = shared.scripts.lua_bytes();
        let used = startup + keyspace + clients + lua;
        let overhead = startup + clients + lua + index;
        let peak = shared.memory_peak_bytes.fetch_max(keyspace, Relaxed).max(keyspace) + startup;
        MemoryUsage {
            used,
            peak: peak.max(used),
            startup,
            overhead,
            dataset: used.saturating_sub(overhead),
            clients,
            lua,
            keyspace,
            records: shards.used_bytes as u64,
            index,
            rss: process.rss_bytes,
            rss_peak: process.rss_bytes_max,
        }
    }

    /// `used` in percent of the dataset alone.
    pub fn dataset_percent(&self) -> f64 {
        let variable = self.used.saturating_sub(self.startup);
        if variable == 0 { 0.0 } else { self.dataset as f64 * 100.0 / variable as f64 }
    }

    /// `used` as a part of its peak, in percent.
    pub fn peak_percent(&self) -> f64 {
        if self.peak == 0 { 0.0 } else { self.used as f64 * 100.0 / self.peak as f64 }
    }

    /// Resident bytes for each used one.
    pub fn fragmentation(&self) -> f64 {
        if self.used == 0 { 0.0 } else { self.rss as f64 / self.used as f64 }
    }
}

/// Records the memory of the process before there is data. Called once, when the server is ready to serve.
pub fn note_startup(shared: &Shared) {
    let shards: u64 = shared
        .cells
        .iter()
        .map(|cell| {
            let Some(held) = lease::try_one(cell) else { return 0 };
            let bytes = held.shard.memory_bytes() as u64;
            lease::release_as_stranger(shared, held);
            bytes
        })
        .sum();
    shared.startup_bytes.store(anonymous_bytes().saturating_sub(shards), Relaxed);
}

/// Resident bytes that are not pages of a file such as the program; 0 without `/proc`.
pub fn anonymous_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

//! The memory limit: what the process takes, what it may take, and who is to give some back.
//!
//! Every shard tells its bytes when it grows past what it was last allowed, and whenever house is kept; the sum is one
//! atomic number, so that no write waits for another. What counts is what `used_memory` shows: the process before its
//! first key, the shards with their free room, clients with their buffers.

pub mod clients;
pub mod overrun;
pub mod relief;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use darter_reactor::process;
use darter_store::Shard;
use darter_store::evict::{EvictionOrder, EvictionRule};

use self::overrun::Overrun;
use crate::shared::Shared;
use darter_config::{EvictionPolicy, Live};

/// Memory of the server as a whole.
pub struct MemoryLimit {
    // Each shard when it last told.
    shares: Box<[ThreadShare]>,
    // The sum of their bytes.
    keyspace_bytes: AtomicU64,
    /// Eviction is on and has found nothing to evict although there is too much.
    pub is_stuck: AtomicBool,
    /// How long there is, and was, too much.
    pub overrun: Overrun,
    // What `maxmemory 0` means.
    automatic_bytes: u64,
}

#[derive(Default)]
struct ThreadShare {
    bytes: AtomicUsize,
    keys: AtomicUsize,
    expiring: AtomicUsize,
}

/// Of the memory that the machine or the container has, this much may be used when `maxmemory` is 0, in percent.
const AUTOMATIC_PERCENT: u64 = 80;
/// The most that a shard may grow before it asks again.
const GROWTH_BYTES_MAX: usize = 256 << 10;
/// Near the limit, within this part of it, keys go as fast as others come.
const NEAR_PART: u64 = 128;

impl ThreadShare {
    fn may_evict(&self, rule: EvictionRule) -> bool {
        let keys = if rule.only_expiring { &self.expiring } else { &self.keys };
        keys.load(Relaxed) > 0
    }
}

impl MemoryLimit {
    /// Of `shards` empty shards, on this machine.
    pub fn new(shards: usize) -> MemoryLimit {
        let memory = process::memory_limit_bytes();
        MemoryLimit {
            shares: (0..shards).map(|_| ThreadShare::default()).collect(),
            keyspace_bytes: AtomicU64::new(0),
            is_stuck: AtomicBool::new(false),
            overrun: Overrun::default(),
            automatic_bytes: memory.map_or(u64::MAX, |bytes| bytes / 100 * AUTOMATIC_PERCENT),
        }
    }

    /// The bytes that may be used: `maxmemory`, or what stands for 0.
    pub fn max_bytes(&self, live: &Live) -> u64 {
        if live.maxmemory == 0 { self.automatic_bytes } else { live.maxmemory }
    }

    /// Notes what shard `id` takes now; whoever holds it tells.
    pub fn tell(&self, id: u16, shard: &Shard) {
        let share = &self.shares[usize::from(id)];
        let bytes = shard.memory_bytes();
        let before = share.bytes.swap(bytes, Relaxed);
        share.keys.store(shard.keys_len(), Relaxed);
        share.expiring.store(shard.expiring(), Relaxed);
        if bytes != before {
            self.keyspace_bytes.fetch_add((bytes as u64).wrapping_sub(before as u64), Relaxed);
        }
    }

    /// Bytes of all shards, as they last told.
    pub fn keyspace_bytes(&self) -> u64 {
        self.keyspace_bytes.load(Relaxed)
    }

    fn share(&self, id: u16) -> usize {
        self.shares.get(usize::from(id)).map_or(0, |share| share.bytes.load(Relaxed))
    }

    /// Returns true if any shard, as last seen, has a key that `rule` may evict.
    fn may_evict(&self, rule: EvictionRule) -> bool {
        self.shares_that_may(rule).next().is_some()
    }

    /// The shards that, as far as is known, have a key that may go by `rule`.
    fn shares_that_may(&self, rule: EvictionRule) -> impl Iterator<Item = &ThreadShare> {
        self.shares.iter().filter(move |share| share.may_evict(rule))
    }

    fn fair_share(&self) -> usize {
        self.keyspace_bytes() as usize / self.shares.len().max(1)
    }
}

/// Bytes that count against the limit. Cost: a load per thread.
pub fn used_bytes(shared: &Shared) -> u64 {
    shared.startup_bytes.load(Relaxed)
        + client_bytes(shared)
        + shared.scripts.lua_bytes()
        + shared.limit.keyspace_bytes()
}

/// Bytes of all clients with their buffers, as their threads last counted them.
pub fn client_bytes(shared: &Shared) -> u64 {
    shared.stats.iter().map(|stats| stats.client_bytes.get()).sum()
}

/// What may be evicted by these settings; `None`: nothing.
pub fn rule(live: &Live) -> Option<EvictionRule> {
    let (order, only_expiring) = match live.maxmemory_policy {
        EvictionPolicy::NoEviction => return None,
        EvictionPolicy::AllKeysLru | EvictionPolicy::AllKeysLfu | EvictionPolicy::AllKeysLrm => {
            (EvictionOrder::LeastUsed, false)
        }
        EvictionPolicy::AllKeysRandom => (EvictionOrder::Random, false),
        EvictionPolicy::VolatileLru | EvictionPolicy::VolatileLfu | EvictionPolicy::VolatileLrm => {
            (EvictionOrder::LeastUsed, true)
        }
        EvictionPolicy::VolatileRandom => (EvictionOrder::Random, true),
        EvictionPolicy::VolatileTtl => (EvictionOrder::SoonestExpiry, true),
    };
    Some(EvictionRule { order, only_expiring })
}

//! What commands of each slot have taken: time and bytes, for CLUSTER SLOT-STATS, and how many they were, for DFLYCLUSTER
//! GETSLOTINFO.
//!
//! One table, shared by all threads. The server adds to it after each command while `cluster-slot-stats-enabled` is set.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use darter_base::crc::SLOTS_LEN;

/// See above.  Shape: 640 KiB.
#[derive(Debug)]
pub struct SlotUsage {
    slots: Box<[SlotCounters]>,
}

#[derive(Default, Debug)]
struct SlotCounters {
    time_ns: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// What commands of one slot have taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotAmounts {
    /// Time on a core, microseconds.
    pub time_us: u64,
    /// Bytes of requests.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
    /// Keys that were read, as commands name them, and keys that were written.
    pub reads: u64,
    /// See above.
    pub writes: u64,
}

impl Default for SlotUsage {
    fn default() -> SlotUsage {
        SlotUsage { slots: (0..SLOTS_LEN).map(|_| SlotCounters::default()).collect() }
    }
}

impl SlotUsage {
    /// Adds the time of a command.
    pub fn add_time(&self, slot: u16, time_ns: u64) {
        if let Some(counters) = self.slots.get(usize::from(slot)) {
            counters.time_ns.fetch_add(time_ns, Relaxed);
        }
    }

    /// Adds keys that a command has read.
    pub fn add_reads(&self, slot: u16, keys: u64) {
        if let Some(counters) = self.slots.get(usize::from(slot)) {
            counters.reads.fetch_add(keys, Relaxed);
        }
    }

    /// Adds keys that a command has written.
    pub fn add_writes(&self, slot: u16, keys: u64) {
        if let Some(counters) = self.slots.get(usize::from(slot)) {
            counters.writes.fetch_add(keys, Relaxed);
        }
    }

    /// Adds the bytes of a request and of its reply.
    pub fn add_bytes(&self, slot: u16, bytes_in: u64, bytes_out: u64) {
        if let Some(counters) = self.slots.get(usize::from(slot)) {
            counters.bytes_in.fetch_add(bytes_in, Relaxed);
            counters.bytes_out.fetch_add(bytes_out, Relaxed);
        }
    }

    /// What commands of `slot` have taken.
    pub fn of(&self, slot: u16) -> SlotAmounts {
        self.slots.get(usize::from(slot)).map_or(SlotAmounts::default(), |counters| SlotAmounts {
            time_us: counters.time_ns.load(Relaxed) / 1000,
            bytes_in: counters.bytes_in.load(Relaxed),
            bytes_out: counters.bytes_out.load(Relaxed),
            reads: counters.reads.load(Relaxed),
            writes: counters.writes.load(Relaxed),
        })
    }

    /// Begins again from zero with one slot; an increment under way may survive.
    pub fn reset(&self, slot: u16) {
        if let Some(counters) = self.slots.get(usize::from(slot)) {
            let SlotCounters { time_ns, bytes_in, bytes_out, reads, writes } = counters;
            [time_ns, bytes_in, bytes_out, reads, writes]
                .into_iter()
                .for_each(|counter| counter.store(0, Relaxed));
        }
    }

    /// The same with all slots.
    pub fn reset_all(&self) {
        (0..SLOTS_LEN).for_each(|slot| self.reset(slot));
    }
}

//! Counters, one set per thread: written by that thread alone, read by any.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with one writer: an increment is a load and a store, no locked instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`; only the owning thread may.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Back to zero (CONFIG RESETSTAT); an increment under way may survive.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// What is counted for each command.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Times it ran.
    pub calls: Count,
    /// Nanoseconds it took; estimated from a sample where calls are cheap.
    pub nanos: Count,
    /// Times it was refused before running.
    pub rejected: Count,
    /// Times it ended in an error.
    pub failed: Count,
}

/// One thread's counters.
#[derive(Debug, Default)]
pub struct ThreadStats {
    /// By command id.
    pub commands: Vec<CommandStats>,
    /// Connections accepted.
    pub connections: Count,
    /// Connections refused.
    pub rejected_connections: Count,
    /// Bytes received.
    pub input_bytes: Count,
    /// Bytes sent.
    pub output_bytes: Count,
    /// Receives.
    pub reads: Count,
    /// Sends.
    pub writes: Count,
    /// Error replies.
    pub errors: Count,
    /// Commands that had to wait for a shard.
    pub contended: Count,
    /// Clients closed because their output grew too large.
    pub output_limit_closed: Count,
    /// Clients closed because their input grew too large.
    pub input_limit_closed: Count,
    /// Loop turns.
    pub turns: Count,
}

impl ThreadStats {
    /// Counters for `commands` commands.
    pub fn new(commands: usize) -> ThreadStats {
        let commands = (0..commands).map(|_| CommandStats::default()).collect();
        ThreadStats { commands, ..ThreadStats::default() }
    }

    /// Sets what CONFIG RESETSTAT resets to zero.
    pub fn reset(&self) {
        for command in &self.commands {
            command.calls.reset();
            command.nanos.reset();
            command.rejected.reset();
            command.failed.reset();
        }
        for count in [
            &self.connections,
            &self.rejected_connections,
            &self.input_bytes,
            &self.output_bytes,
            &self.reads,
            &self.writes,
            &self.errors,
            &self.output_limit_closed,
            &self.input_limit_closed,
        ] {
            count.reset();
        }
    }
}

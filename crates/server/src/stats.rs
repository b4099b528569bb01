//! Counters, one set per thread: written by that thread alone, read by any.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use crate::memcached;
use crate::report::Clients;
use crate::report::histogram::Histogram;

/// A counter with one writer: an increment is a load and a store, no locked instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`; only the owning thread may.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one; returns the value before. Only the owning thread may.
    #[inline]
    pub fn bump(&self) -> u64 {
        let before = self.0.load(Relaxed);
        self.0.store(before.wrapping_add(1), Relaxed);
        before
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Makes it `n`; only the owning thread may.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
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
    /// Calls that were timed: a sample where calls are cheap.
    pub timed: Count,
    /// Nanoseconds these took.
    pub nanos: Count,
    /// Times it was refused before running.
    pub rejected: Count,
    /// Times it was counted as run, and then refused after it had waited.
    pub withdrawn: Count,
    /// Times it ended in an error.
    pub failed: Count,
    /// How long timed calls took each; made by the first.
    pub histogram: OnceLock<Box<Histogram>>,
}

impl CommandStats {
    /// Notes how long a call took; only the owning thread may.
    pub fn time(&self, nanos: u64, keeps_histogram: bool) {
        self.timed.add(1);
        self.nanos.add(nanos);
        if keeps_histogram {
            self.histogram.get_or_init(Box::default).add(nanos);
        }
    }

    /// Nanoseconds all calls took, from those that were timed.
    pub fn estimated_nanos(&self) -> u64 {
        match u128::from(self.timed.get()) {
            0 => 0,
            timed => (u128::from(self.nanos.get()) * u128::from(self.calls.get()) / timed) as u64,
        }
    }

    fn reset(&self) {
        for count in [&self.calls, &self.timed, &self.nanos, &self.rejected, &self.withdrawn, &self.failed] {
            count.reset();
        }
        if let Some(histogram) = self.histogram.get() {
            histogram.reset();
        }
    }
}

// Found by a shift, for each command that runs.
const _: () = assert!(size_of::<CommandStats>() == 64);

/// The calls of a command that SLOWLOG kept.
#[derive(Debug, Default)]
pub struct SlowStats {
    /// How many.
    pub calls: Count,
    /// Microseconds these took.
    pub us: Count,
    /// The most that one of them took.
    pub us_max: Count,
}

impl SlowStats {
    /// Notes a call of `us` microseconds; only the owning thread may.
    pub fn note(&self, us: u64) {
        self.calls.add(1);
        self.us.add(us);
        self.us_max.set(self.us_max.get().max(us));
    }

    fn reset(&self) {
        [&self.calls, &self.us, &self.us_max].into_iter().for_each(Count::reset);
    }
}

/// One thread's counters.
#[derive(Debug, Default)]
pub struct ThreadStats {
    /// By command id.
    pub commands: Vec<CommandStats>,
    /// By command id.
    pub slow: Vec<SlowStats>,
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
    /// Clients closed because all together took too much.
    pub clients_evicted: Count,
    /// Bytes of this thread's clients with their buffers.
    pub client_bytes: Count,
    /// Loop turns.
    pub turns: Count,
    /// Those in which there was something to do besides housekeeping.
    pub lively_turns: Count,
    /// Commands that came together with others.
    pub pipelined: Count,
    /// Keys that housekeeping found dead.
    pub swept_keys: Count,
    /// Requests of HTTP answered.
    pub http_requests: Count,
    /// Handshakes of TLS begun.
    pub tls_begun: Count,
    /// Handshakes of TLS finished.
    pub tls_finished: Count,
    /// Connections closed because their TLS was not in order.
    pub tls_failed: Count,
    /// Nanoseconds of turns from the first event on.
    pub busy_nanos: Count,
    /// What `stats` of memcached tells.
    pub memcached: memcached::Counts,
    /// How long each of these turns took.
    pub turn_times: Histogram,
    /// How long each slice of a long answer held its shard.
    pub slice_times: Histogram,
    /// How long shards were held in one piece: slices, and bodies of commands that were timed.
    pub hold_times: Histogram,
    /// Blocks of memory that the greatest of these holds asked for; counted in debug builds only.
    pub hold_blocks_max: Count,
    /// What the thread's clients were when it last looked, once a second.
    pub clients: Mutex<Clients>,
}

impl ThreadStats {
    /// Counters for `commands` commands.
    pub fn new(commands: usize) -> ThreadStats {
        let slow = (0..commands).map(|_| SlowStats::default()).collect();
        let commands = (0..commands).map(|_| CommandStats::default()).collect();
        ThreadStats { commands, slow, ..ThreadStats::default() }
    }

    /// Commands run, of all kinds.
    pub fn commands_run(&self) -> u64 {
        self.commands.iter().map(|command| command.calls.get()).sum()
    }

    /// Sets what CONFIG RESETSTAT resets to zero.
    pub fn reset(&self) {
        self.commands.iter().for_each(CommandStats::reset);
        self.slow.iter().for_each(SlowStats::reset);
        self.memcached.reset();
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
            &self.pipelined,
            &self.swept_keys,
            &self.http_requests,
            &self.clients_evicted,
            &self.tls_begun,
            &self.tls_finished,
            &self.tls_failed,
            &self.turns,
            &self.lively_turns,
            &self.busy_nanos,
            &self.hold_blocks_max,
        ] {
            count.reset();
        }
        self.turn_times.reset();
        self.slice_times.reset();
        self.hold_times.reset();
    }
}

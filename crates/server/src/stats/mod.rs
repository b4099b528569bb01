//! Counters, one set per thread: written by that thread alone, read by any.

pub mod clients;
pub mod histogram;
pub mod memcached;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use clients::ClientTotals;
use histogram::{Histogram, Sum};

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

/// Counters of one command.
///
/// Shape: one cache line, of which the bodies of commands write the first words.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CommandStats {
    /// Times it ran.
    pub calls: Count,
    /// Times it was refused before running.
    pub rejected: Count,
    /// Times it was counted as run, and then refused after it had waited.
    pub withdrawn: Count,
    /// Times it ended in an error.
    pub failed: Count,
    // made when a call is first timed
    times: OnceLock<Box<CommandTimes>>,
}

/// Whether histograms of times are kept (`latency-tracking`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Histograms {
    /// They are.
    Kept,
    /// Sums alone are.
    Off,
}

/// How many calls a timed one stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleWeight {
    /// Itself: calls like it are always timed.
    One,
    /// Its share of the cheap calls, of which only a sample is timed.
    Sample,
}

/// Times of the calls of one command.
#[derive(Debug, Default)]
struct CommandTimes {
    // those that weigh one
    whole: Stratum,
    // those that stand for all others
    sample: Stratum,
}

/// Calls that were timed for one reason.
#[derive(Debug, Default)]
struct Stratum {
    calls: Count,
    nanos: Count,
    // made when histograms are first kept
    histogram: OnceLock<Box<Histogram>>,
}

impl Stratum {
    fn reset(&self) {
        self.calls.reset();
        self.nanos.reset();
        if let Some(histogram) = self.histogram.get() {
            histogram.reset();
        }
    }
}

/// Times of a command on several threads: a call may be counted on one and timed on another.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    calls: u64,
    withdrawn: u64,
    whole_calls: u64,
    whole_nanos: u64,
    sampled_calls: u64,
    sampled_nanos: u64,
    whole: Sum,
    sample: Sum,
}

impl Estimate {
    /// From the counters of all threads.
    pub fn of<'a>(all: impl Iterator<Item = &'a CommandStats>) -> Estimate {
        let mut estimate = Estimate::default();
        for stats in all {
            estimate.calls += stats.calls.get();
            estimate.withdrawn += stats.withdrawn.get();
            let Some(times) = stats.times.get() else { continue };
            estimate.whole_calls += times.whole.calls.get();
            estimate.whole_nanos += times.whole.nanos.get();
            estimate.sampled_calls += times.sample.calls.get();
            estimate.sampled_nanos += times.sample.nanos.get();
            let add = |sum: &mut Sum, stratum: &Stratum| {
                if let Some(histogram) = stratum.histogram.get() {
                    sum.add(histogram);
                }
            };
            add(&mut estimate.whole, &times.whole);
            add(&mut estimate.sample, &times.sample);
        }
        estimate
    }

    /// Calls that ran.
    pub fn calls(&self) -> u64 {
        // Counted by the thread that refused, not by the one that had counted the call.
        self.calls.saturating_sub(self.withdrawn)
    }

    /// Nanoseconds all calls took.
    pub fn nanos(&self) -> u64 {
        let sampled = u128::from(self.sampled_nanos) * u128::from(self.sampled_from());
        self.whole_nanos + sampled.checked_div(u128::from(self.sampled_calls)).unwrap_or(0) as u64
    }

    /// How long calls took each, scaled to all of them; `None` when nothing is known.
    pub fn times(&self) -> Option<Sum> {
        let mut sum = self.whole.clone();
        let sampled = self.sample.count();
        if sampled > 0 {
            sum.add_weighted(&self.sample, self.sampled_from().max(sampled) as f64 / sampled as f64);
        }
        (sum.count() > 0).then_some(sum)
    }

    /// Calls that the sample was taken from.
    fn sampled_from(&self) -> u64 {
        self.calls().saturating_sub(self.whole_calls)
    }
}

const _: () = assert!(size_of::<CommandStats>() == 64);

/// Calls of one command that SLOWLOG kept. Apart from the others, which every call counts.
#[derive(Debug, Default)]
pub struct SlowStats {
    /// How many.
    pub calls: Count,
    /// Microseconds they took.
    pub us: Count,
    /// The most that one of them took.
    pub us_max: Count,
}

impl SlowStats {
    /// Notes one of `us` microseconds; only the owning thread may.
    pub fn note(&self, us: u64) {
        self.calls.add(1);
        self.us.add(us);
        self.us_max.set(self.us_max.get().max(us));
    }

    fn reset(&self) {
        [&self.calls, &self.us, &self.us_max].into_iter().for_each(Count::reset);
    }
}

impl CommandStats {
    /// Notes how long a call took; only the owning thread may.
    pub fn time(&self, nanos: u64, weight: SampleWeight, histograms: Histograms) {
        let times = self.times.get_or_init(Box::default);
        let stratum = match weight {
            SampleWeight::One => &times.whole,
            SampleWeight::Sample => &times.sample,
        };
        stratum.calls.add(1);
        stratum.nanos.add(nanos);
        if histograms == Histograms::Kept {
            stratum.histogram.get_or_init(Box::default).add(nanos);
        }
    }

    fn reset(&self) {
        for count in [&self.calls, &self.rejected, &self.withdrawn, &self.failed] {
            count.reset();
        }
        if let Some(times) = self.times.get() {
            times.whole.reset();
            times.sample.reset();
        }
    }
}

/// One thread's counters.
#[derive(Debug, Default)]
pub struct ThreadStats {
    /// By command id.
    pub commands: Vec<CommandStats>,
    /// By the number of the command too.
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
    /// Clients closed because they did not take their output in time.
    pub send_timeouts: Count,
    /// Connections closed because their TLS was not in order.
    pub tls_failed: Count,
    /// Nanoseconds of turns from the first event on.
    pub busy_nanos: Count,
    /// What `stats` of memcached tells.
    pub memcached: memcached::MemcachedCounts,
    /// How long each of these turns took.
    pub turn_times: Histogram,
    /// How long each slice of a long answer held its shard.
    pub slice_times: Histogram,
    /// How long shards were held in one piece: slices, and bodies of commands that were timed.
    pub hold_times: Histogram,
    /// Blocks of memory that the greatest of these holds asked for; counted in debug builds only.
    pub hold_blocks_max: Count,
    /// The most bytes that were handed to the kernel in one turn.
    pub turn_sent_max: Count,
    /// What the thread's clients were when it last looked, once a second.
    pub clients: Mutex<ClientTotals>,
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
            &self.send_timeouts,
            &self.tls_begun,
            &self.tls_finished,
            &self.tls_failed,
            &self.turns,
            &self.lively_turns,
            &self.busy_nanos,
            &self.hold_blocks_max,
            &self.turn_sent_max,
        ] {
            count.reset();
        }
        self.turn_times.reset();
        self.slice_times.reset();
        self.hold_times.reset();
    }
}

#[cfg(test)]
mod tests {
    use darter_base::rng::Rng;

    use super::*;
    use crate::registry::SAMPLE;

    /// Calls of mixed sizes as a thread meets them, and what they took in truth.
    fn run(stats: &CommandStats, calls: u64, mut nanos: impl FnMut(u64) -> (u64, SampleWeight)) -> u64 {
        let mut truth = 0;
        for n in 0..calls {
            let before = stats.calls.bump();
            let (took, weight) = nanos(n);
            truth += took;
            if weight == SampleWeight::One || before.is_multiple_of(SAMPLE) {
                stats.time(took, weight, Histograms::Kept);
            }
        }
        truth
    }

    fn assert_near(found: u64, truth: u64, what: &str) {
        let off = (found as f64 - truth as f64).abs() / truth as f64;
        assert!(off < 0.05, "{what}: {found} of {truth}");
    }

    #[test]
    fn a_long_call_among_cheap_ones_weighs_one() {
        let stats = CommandStats::default();
        let truth = run(&stats, 12_000, |n| match n {
            7_000 => (126_000_000, SampleWeight::One),
            _ => (4_000 + n % 1000, SampleWeight::Sample),
        });
        let estimate = Estimate::of(std::iter::once(&stats));
        assert_near(estimate.nanos(), truth, "sum");
        let times = estimate.times().expect("times");
        assert_near(times.count(), 12_000, "calls");
        assert!(times.percentile_nanos(99.9) < 10_000, "{}", times.percentile_nanos(99.9));
        assert!(times.percentile_nanos(100.0) > 120_000_000);
    }

    #[test]
    fn mixed_sizes_sum_up_to_what_they_took() {
        // Periods of two, four, eight: a sample of every 128th call would see one of the sizes alone.
        for period in [1, 2, 3, 4, 8, 64, 100, 128, 1000] {
            let stats = CommandStats::default();
            let truth = run(&stats, 2_000_000, |n| match n % period {
                0 => (90_000, SampleWeight::Sample),
                at if at % 2 == 1 => (2_000, SampleWeight::Sample),
                _ => (400, SampleWeight::Sample),
            });
            assert_near(Estimate::of(std::iter::once(&stats)).nanos(), truth, &format!("period {period}"));
        }
        let (stats, mut rng) = (CommandStats::default(), Rng::new(5));
        let truth = run(&stats, 4_000_000, |_| match rng.below(20) {
            0 => (50_000 + u64::from(rng.below(50_000) as u32), SampleWeight::Sample),
            1 => (300_000, SampleWeight::One),
            _ => (800, SampleWeight::Sample),
        });
        assert_near(Estimate::of(std::iter::once(&stats)).nanos(), truth, "at random");
    }

    #[test]
    fn a_call_may_be_counted_on_one_thread_and_timed_on_another() {
        let (one, other) = (CommandStats::default(), CommandStats::default());
        let truth = run(&one, 10_000, |_| (1000, SampleWeight::Sample)) + 5_000 * 9_000;
        for _ in 0..5_000 {
            one.calls.bump();
            other.time(9_000, SampleWeight::One, Histograms::Off);
        }
        assert_near(Estimate::of([&one, &other].into_iter()).nanos(), truth, "both");
    }
}

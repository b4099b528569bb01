//! A latency histogram with logarithmic buckets: 64 per power of two, so a percentile is within 1.6 % of the truth.
//!
//! Each load thread fills its own; `merge` adds them up. It never allocates after `new`.

use std::time::Duration;

/// Buckets per power of two, as a shift.
const STEPS_SHIFT: u32 = 6;
const STEPS: u64 = 1 << STEPS_SHIFT;
/// Values are nanoseconds; 2^40 ns is 18 minutes, far past any wall limit, and slower ones land in the last bucket.
const POWERS: u64 = 41;

/// Counts of latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Histogram {
    /// An empty histogram; about 18 KiB.
    pub fn new() -> Self {
        let buckets = (POWERS - u64::from(STEPS_SHIFT) + 1) * STEPS;
        Self { counts: vec![0; buckets as usize], total: 0, max_ns: 0 }
    }

    /// Adds `count` operations that took `latency` each.
    pub fn record(&mut self, latency: Duration, count: u64) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let last = self.counts.len() - 1;
        self.counts[bucket_of(ns).min(last)] += count;
        self.total += count;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The latency that `fraction` (0..=1) of the operations did not exceed, as a bucket's upper edge; zero when empty.
    pub fn quantile(&self, fraction: f64) -> Duration {
        if self.total == 0 {
            return Duration::ZERO;
        }
        let wanted = ((self.total as f64) * fraction).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper_edge_of(bucket).min(self.max_ns));
            }
        }
        self.max()
    }

    /// The slowest operation, exactly.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let power = u64::from(ns.ilog2());
    let shift = power - u64::from(STEPS_SHIFT);
    let step = (ns >> shift) - STEPS;
    ((shift + 1) * STEPS + step) as usize
}

fn upper_edge_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_enclose_their_values() {
        for ns in (0..100_000).chain((17..40).map(|p| (1u64 << p) + 12_345)) {
            let edge = upper_edge_of(bucket_of(ns));
            assert!(edge >= ns, "{ns} lies above its bucket's edge {edge}");
            assert!(edge - ns <= ns / 32, "{ns} is too far below {edge}");
        }
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let mut ramp = Histogram::new();
        for us in 1..=1000 {
            ramp.record(Duration::from_micros(us), 1);
        }
        let p50 = ramp.quantile(0.5).as_micros();
        assert!((495..=510).contains(&p50), "{p50}");
        assert_eq!(ramp.quantile(1.0), Duration::from_millis(1));
    }

    #[test]
    fn endless_latency_lands_in_the_last_bucket() {
        let mut slow = Histogram::new();
        slow.record(Duration::from_secs(86_400), 1);
        assert_eq!(slow.max(), Duration::from_secs(86_400));
    }
}

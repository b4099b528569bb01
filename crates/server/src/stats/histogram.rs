//! Durations of one command's calls: counts by ranges that double, each divided into eight.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Parts of a doubling.
const PARTS_BITS: u32 = 3;
const PARTS: usize = 1 << PARTS_BITS;
/// Enough for every `u64`.
const LEN: usize = (64 - PARTS_BITS as usize + 1) * PARTS;

/// One thread's counts: written by that thread alone, read by any. 2 KiB, made when the command is first timed.
#[derive(Debug)]
pub struct Histogram([AtomicU32; LEN]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([const { AtomicU32::new(0) }; LEN])
    }
}

impl Histogram {
    /// Counts a call of `nanos` nanoseconds; only the owning thread may.
    pub fn add(&self, nanos: u64) {
        if let Some(count) = self.0.get(place(nanos)) {
            count.store(count.load(Relaxed).saturating_add(1), Relaxed);
        }
    }

    /// Forgets everything; a call counted right now may survive.
    pub fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }
}

/// Counts of several threads.
#[derive(Clone, Debug)]
pub struct Sum(Vec<u64>);

impl Default for Sum {
    fn default() -> Sum {
        Sum(vec![0; LEN])
    }
}

impl Sum {
    /// Adds a thread's counts.
    pub fn add(&mut self, histogram: &Histogram) {
        self.0.iter_mut().zip(&histogram.0).for_each(|(sum, count)| *sum += u64::from(count.load(Relaxed)));
    }

    /// Calls counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Calls of less than `2^bits` nanoseconds.
    pub fn below(&self, bits: u32) -> u64 {
        let nanos = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
        self.0.iter().take(place(nanos)).sum()
    }

    /// Nanoseconds of all calls of at least `2^bits` nanoseconds, at most an eighth too many.
    pub fn nanos_from(&self, bits: u32) -> u64 {
        let first = place(1u64.checked_shl(bits).unwrap_or(u64::MAX));
        let of = |(at, count): (usize, &u64)| end(at).saturating_mul(*count);
        self.0.iter().enumerate().skip(first).map(of).fold(0, u64::saturating_add)
    }

    /// The ranges that hold calls: the last nanosecond of each and the calls in it.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| (end(at), *count))
    }

    /// Adds the calls of another sum, each counted `times` times.
    pub fn add_weighted(&mut self, other: &Sum, times: f64) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += (*count as f64 * times).round() as u64;
        }
    }

    /// Nanoseconds that `percent` of the calls did not exceed, as the end of a range; 0 when nothing was counted.
    pub fn percentile_nanos(&self, percent: f64) -> u64 {
        let wanted = (percent / 100.0 * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end(at);
            }
        }
        0
    }

    /// Calls that took less than `2^k` microseconds (of 1024 nanoseconds), for each `k` at which their number grows, as
    /// pairs of microseconds and calls. `calls` is their true number, of which only some may have been timed.
    pub fn doublings(&self, calls: u64) -> Vec<(u64, u64)> {
        let timed = self.count();
        let mut out = Vec::new();
        let (mut seen, mut at) = (0, 0);
        for bits in 10..64u32 {
            let limit = place(1 << bits);
            seen += self.0.get(at..limit).map_or(0, |counts| counts.iter().sum::<u64>());
            at = limit;
            let all = (u128::from(seen) * u128::from(calls)).div_ceil(u128::from(timed.max(1))) as u64;
            if seen > 0 && out.last().is_none_or(|(_, last)| *last < all) {
                // Redis names a range by the end of the class its histogram rounds to, a 128th above.
                out.push((((1 << bits) + (1 << (bits - 7)) - 1) / 1000, all));
            }
            if seen == timed {
                break;
            }
        }
        out
    }
}

/// The range `nanos` is counted in.
fn place(nanos: u64) -> usize {
    if nanos < PARTS as u64 {
        return nanos as usize;
    }
    let top = 63 - nanos.leading_zeros();
    let part = (nanos >> (top - PARTS_BITS)) as usize & (PARTS - 1);
    (top - PARTS_BITS + 1) as usize * PARTS + part
}

/// The last nanosecond of a range.
fn end(place: usize) -> u64 {
    if place < PARTS {
        return place as u64;
    }
    let shift = (place / PARTS - 1) as u32;
    let first = ((PARTS + place % PARTS) as u64) << shift;
    first + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other_and_hold_their_values() {
        let mut last = 0;
        for place_no in 1..LEN {
            assert_eq!(place(last + 1), place_no, "after {last}");
            last = end(place_no);
            assert_eq!(place(last), place_no);
            if last == u64::MAX {
                return;
            }
        }
        panic!("the last range ends before the numbers do");
    }

    #[test]
    fn calls_are_counted_below_a_bound_and_from_it_on() {
        let histogram = Histogram::default();
        [1023, 1024, 5000, 1 << 20].into_iter().for_each(|nanos| histogram.add(nanos));
        let mut sum = Sum::default();
        sum.add(&histogram);
        assert_eq!([10, 11, 20, 21, 64].map(|bits| sum.below(bits)), [1, 2, 3, 4, 4]);
        let long = sum.nanos_from(20);
        assert!((1 << 20..=(1 << 20) * 9 / 8).contains(&long), "{long}");
        assert_eq!(sum.ranges().map(|(_, count)| count).collect::<Vec<_>>(), [1, 1, 1, 1]);
        let mut weighted = Sum::default();
        weighted.add_weighted(&sum, 64.0);
        assert_eq!(weighted.count(), 256);
    }

    #[test]
    fn percentiles_are_ends_of_ranges() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|n| histogram.add(n * 1000));
        let mut sum = Sum::default();
        sum.add(&histogram);
        for (percent, true_nanos) in [(50.0, 500_000), (99.0, 990_000), (100.0, 1_000_000)] {
            let nanos = sum.percentile_nanos(percent);
            assert!(nanos >= true_nanos && nanos <= true_nanos * 9 / 8, "{percent}: {nanos}");
        }
        assert_eq!(Sum::default().percentile_nanos(50.0), 0);
    }

    #[test]
    fn doublings_are_cumulative_and_scaled_to_the_calls() {
        let histogram = Histogram::default();
        [500, 900, 3000, 40_000].into_iter().for_each(|nanos| histogram.add(nanos));
        let mut sum = Sum::default();
        sum.add(&histogram);
        assert_eq!(sum.doublings(4), [(1, 2), (4, 3), (66, 4)]);
        assert_eq!(sum.doublings(400), [(1, 200), (4, 300), (66, 400)]);
        assert!(Sum::default().doublings(0).is_empty());
    }
}

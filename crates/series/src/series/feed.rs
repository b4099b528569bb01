//! Rules: the effects of a change of a series on the series that it feeds.
//!
//! The caller first adds or removes samples, then asks here for the effects, and applies them to the other series
//! with [`Series::take`]. Nothing here knows the keys' shards.

use darter_slab::Arena;

use super::{CompactionRule, Series};
use crate::SeriesFull;
use crate::aggregate::{Aggregator, TimeBucket};
use crate::query::{bucket_end, bucket_start};
use crate::sample::{DuplicatePolicy, Sample};
use crate::series::AddFault;

/// The effect of a rule on the series that it feeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SeriesChange {
    /// This is the sample of its time.
    Put(Sample),
    /// There is no sample in this span, both ends included.
    Remove(u64, u64),
}

/// A change, and the key of its series.
#[derive(Clone, PartialEq, Debug)]
pub struct Fed {
    /// The key.
    pub target: Box<[u8]>,
    /// The change.
    pub change: SeriesChange,
}

impl CompactionRule {
    /// A rule that has seen no sample.
    pub fn new(target: &[u8], kind: Aggregator, bucket_ms: u64, align_ms: u64) -> CompactionRule {
        let (current, bucket, before) = (None, TimeBucket::default(), None);
        CompactionRule { target: target.into(), kind, bucket_ms, align_ms, current, bucket, before }
    }

    fn start_of(&self, time: u64) -> u64 {
        bucket_start(time, self.bucket_ms, self.align_ms)
    }

    fn end_of(&self, time: u64) -> u64 {
        bucket_end(time, self.bucket_ms, self.align_ms)
    }

    fn put(&self, time: u64, number: f64) -> Fed {
        Fed { target: self.target.clone(), change: SeriesChange::Put(Sample::new(time, number)) }
    }

    fn remove(&self, from: u64, to: u64) -> Fed {
        Fed { target: self.target.clone(), change: SeriesChange::Remove(from, to) }
    }

    /// Takes a sample newer than all before; pushes the bucket that it ends to `fed`.
    fn append(&mut self, sample: Sample, fed: &mut Vec<Fed>) {
        let start = self.start_of(sample.time);
        match self.current {
            None => self.current = Some(start),
            Some(current) if start > current => {
                if self.bucket.has(self.kind) {
                    let after = (!sample.value.is_nan()).then_some(sample);
                    fed.push(self.put(current, self.bucket.number(self.kind, after, self.end_of(current))));
                }
                self.before = self.bucket.last();
                self.bucket = TimeBucket::default();
                self.current = Some(start);
            }
            Some(_) => {}
        }
        self.bucket.add_after(sample, self.before, start);
    }

    /// The sample that the open bucket would become if it ended now.
    fn latest(&self) -> Option<Sample> {
        let current = self.current.filter(|_| self.bucket.has(self.kind))?;
        Some(Sample::new(current, self.bucket.number(self.kind, None, self.end_of(current))))
    }
}

impl Series {
    /// The effects of an appended sample.
    #[inline]
    pub fn feed_appended(&mut self, sample: Sample) -> Vec<Fed> {
        let mut fed = Vec::new();
        self.rules.iter_mut().for_each(|rule| rule.append(sample, &mut fed));
        fed
    }

    /// The effects of a sample of `time` that is not the newest, or that changed the newest.
    pub fn feed_changed(&mut self, arena: &Arena, time: u64) -> Vec<Fed> {
        let mut fed = Vec::new();
        let mut rules = std::mem::take(&mut self.rules);
        for rule in &mut rules {
            let Some(open) = rule.current else { continue };
            if time >= open {
                (rule.bucket, rule.before) = self.bucket_of(arena, rule, open);
            } else {
                fed.extend(self.closed(arena, rule, rule.start_of(time)).ok());
            }
        }
        self.rules = rules;
        fed
    }

    /// The effects of removing the samples of `from..=to`.
    pub fn feed_removed(&mut self, arena: &Arena, from: u64, to: u64) -> Vec<Fed> {
        let mut fed = Vec::new();
        let mut rules = std::mem::take(&mut self.rules);
        for rule in &mut rules {
            let Some(open) = rule.current else { continue };
            if from < open {
                self.feed_closed(arena, rule, (from, to.min(open - 1)), &mut fed);
            }
            if to >= open {
                (rule.bucket, rule.before) = self.bucket_of(arena, rule, open);
                if !rule.bucket.has(Aggregator::CountAll) {
                    self.reopen(arena, rule, &mut fed);
                }
            }
        }
        self.rules = rules;
        fed
    }

    /// Recomputes the closed buckets of `from..=to` from the remaining samples.
    fn feed_closed(&self, arena: &Arena, rule: &CompactionRule, (from, to): (u64, u64), fed: &mut Vec<Fed>) {
        let (first, last) = (rule.start_of(from), rule.start_of(to));
        let edges = if first == last { vec![first] } else { vec![first, last] };
        for edge in edges {
            fed.push(self.closed(arena, rule, edge).unwrap_or_else(|()| rule.remove(edge, edge)));
        }
        let within = rule.end_of(first);
        if within < last {
            fed.push(rule.remove(within, last - 1));
        }
    }

    /// Reopens the bucket of the newest remaining sample, after the open bucket of a rule has become empty.
    fn reopen(&self, arena: &Arena, rule: &mut CompactionRule, fed: &mut Vec<Fed>) {
        rule.current = self.newest.filter(|_| self.len > 0).map(|newest| rule.start_of(newest.time));
        if let Some(open) = rule.current {
            (rule.bucket, rule.before) = self.bucket_of(arena, rule, open);
        }
        fed.push(rule.remove(rule.current.unwrap_or(0), u64::MAX));
    }

    /// The present sample of the closed bucket that began at `start`. Errors: it has none.
    fn closed(&self, arena: &Arena, rule: &CompactionRule, start: u64) -> Result<Fed, ()> {
        let end = rule.end_of(start);
        let (bucket, _) = self.bucket_of(arena, rule, start);
        let after = if rule.kind == Aggregator::Twa { self.number_from(arena, end) } else { None };
        if bucket.has(rule.kind) {
            Ok(rule.put(start, bucket.number(rule.kind, after, end)))
        } else {
            Err(())
        }
    }

    /// The samples of the bucket that begins at `start`, and the newest number before it.
    fn bucket_of(&self, arena: &Arena, rule: &CompactionRule, start: u64) -> (TimeBucket, Option<Sample>) {
        let before = if rule.kind == Aggregator::Twa { self.number_before(arena, start) } else { None };
        let mut bucket = TimeBucket::default();
        self.each(arena, start, rule.end_of(start).saturating_sub(1), &mut |sample| {
            bucket.add_after(sample, before, start);
            true
        });
        (bucket, before)
    }

    fn number_from(&self, arena: &Arena, time: u64) -> Option<Sample> {
        let mut found = None;
        self.each(arena, time, u64::MAX, &mut |sample| {
            found = (!sample.value.is_nan()).then_some(sample);
            found.is_none()
        });
        found
    }

    fn number_before(&self, arena: &Arena, time: u64) -> Option<Sample> {
        let mut found = None;
        self.each_reversed(arena, 0, time.checked_sub(1)?, &mut |sample| {
            found = (!sample.value.is_nan()).then_some(sample);
            found.is_none()
        });
        found
    }

    /// The sample that the open bucket of the rule that feeds `target` would become now.
    pub fn latest_for(&self, target: &[u8]) -> Option<Sample> {
        self.rules.iter().find(|rule| *rule.target == *target)?.latest()
    }

    /// Returns true if a rule feeds `target`.
    pub fn feeds(&self, target: &[u8]) -> bool {
        self.rules.iter().any(|rule| *rule.target == *target)
    }

    /// Returns true if samples from `from` on may be removed: their rules' buckets could be recomputed.
    pub fn may_remove(&self, from: u64) -> bool {
        let oldest = self.oldest_kept();
        self.rules.is_empty() || self.rules.iter().all(|rule| rule.start_of(from) >= oldest && from >= oldest)
    }

    /// Applies a change made by a rule of another series. Ignores a sample beyond the retention.
    pub fn take(&mut self, arena: &mut Arena, change: SeriesChange) -> Result<(), SeriesFull> {
        match change {
            SeriesChange::Put(sample) => match self.add(arena, sample, DuplicatePolicy::Last) {
                Err(AddFault::Full) => Err(SeriesFull),
                _ => Ok(()),
            },
            SeriesChange::Remove(from, to) => self.remove(arena, from, to).map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeriesSettings;

    /// A source, and a target that is changed as its rule says.
    struct Pair {
        arena: Arena,
        source: Series,
        target: Series,
    }

    impl Pair {
        fn new(kind: Aggregator) -> Pair {
            let mut source = Series::new(SeriesSettings::default());
            source.rules.push(CompactionRule::new(b"t", kind, 10, 0));
            let mut target = Series::new(SeriesSettings::default());
            target.source = Some((*b"s").into());
            Pair { arena: Arena::with_reserve(16 << 20).expect("address space"), source, target }
        }

        fn bring(&mut self, fed: Vec<Fed>) {
            fed.into_iter().for_each(|fed| self.target.take(&mut self.arena, fed.change).expect("room"));
        }

        fn add(&mut self, time: u64, value: f64) {
            let sample = Sample::new(time, value);
            let fed = match self.source.add(&mut self.arena, sample, DuplicatePolicy::Last).expect("room") {
                crate::Added::Appended => self.source.feed_appended(sample),
                _ => self.source.feed_changed(&self.arena, time),
            };
            self.bring(fed);
        }

        fn remove(&mut self, from: u64, to: u64) {
            self.source.remove(&mut self.arena, from, to).expect("room");
            let fed = self.source.feed_removed(&self.arena, from, to);
            self.bring(fed);
        }

        /// The target must equal the closed buckets of the source, recomputed.
        fn check(&self, kind: Aggregator) {
            let mut buckets: std::collections::BTreeMap<u64, TimeBucket> = std::collections::BTreeMap::new();
            self.source.each(&self.arena, 0, u64::MAX, &mut |sample| {
                buckets.entry(sample.time / 10 * 10).or_default().add(sample);
                true
            });
            let open = buckets.pop_last();
            let expected: Vec<_> =
                buckets.iter().map(|(&time, bucket)| (time, bucket.number(kind, None, time + 10))).collect();
            let mut found = Vec::new();
            self.target.each(&self.arena, 0, u64::MAX, &mut |sample| {
                found.push((sample.time, sample.value));
                true
            });
            assert_eq!(found, expected);
            let latest = open.map(|(time, bucket)| Sample::new(time, bucket.number(kind, None, time + 10)));
            assert_eq!(self.source.latest_for(b"t"), latest);
        }
    }

    #[test]
    fn a_target_follows_every_change_of_its_source() {
        for kind in [
            Aggregator::Sum,
            Aggregator::Max,
            Aggregator::Count,
            Aggregator::First,
            Aggregator::Last,
            Aggregator::Range,
        ] {
            let mut pair = Pair::new(kind);
            let mut rng = darter_base::rng::Rng::new(7);
            let mut newest = 0;
            for _ in 0..3_000 {
                let number = rng.next_u64();
                match number % 8 {
                    0..=4 => {
                        newest += number >> 8 & 15;
                        pair.add(newest, (number >> 16 & 255) as f64);
                    }
                    5 | 6 => pair.add(newest.saturating_sub(number >> 8 & 127), (number >> 16 & 255) as f64),
                    _ => {
                        let from = newest.saturating_sub(number >> 8 & 63);
                        pair.remove(from, from + (number >> 16 & 63));
                    }
                }
                pair.check(kind);
            }
        }
    }
}

//! The result of a query: the samples of a span, filtered, or numbers of its buckets.

use darter_slab::Arena;

use crate::aggregate::{Aggregator, TimeBucket, interpolate};
use crate::sample::Sample;
use crate::series::{BlockHead, PartVisitor, Series};

/// Rows of an answer at most.
const ROWS_MAX: usize = 1 << 26;

/// The time of a bucket's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// Its start.
    Start,
    /// The middle.
    Mid,
    /// Its end.
    End,
}

/// The treatment of buckets without samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketGaps {
    /// They have none.
    Skipped,
    /// They have, between samples.
    Filled,
}

/// The order of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleOrder {
    /// Oldest first.
    Up,
    /// Newest first.
    Down,
}

/// The division of samples into buckets.
#[derive(Clone, PartialEq, Debug)]
pub struct Buckets {
    /// The numbers of a row.
    pub kinds: Vec<Aggregator>,
    /// Milliseconds of a bucket, above 0.
    pub ms: u64,
    /// A time at which a bucket begins.
    pub align_ms: u64,
    /// The time of a row.
    pub stamp: Stamp,
    /// Rows for buckets without samples.
    pub gaps: BucketGaps,
}

/// A query.
#[derive(Clone, PartialEq, Debug)]
pub struct SeriesQuery {
    /// The oldest time.
    pub from: u64,
    /// The newest time.
    pub to: u64,
    /// Only these times, sorted; `None` takes all.
    pub times: Option<Vec<u64>>,
    /// Only values of this span; `None` takes all.
    pub values: Option<(f64, f64)>,
    /// Rows at most; `None` takes all.
    pub count: Option<usize>,
    /// Buckets; `None` answers samples.
    pub buckets: Option<Buckets>,
    /// The order.
    pub order: SampleOrder,
    /// A sample newer than those of the series, which counts as one of them.
    pub latest: Option<Sample>,
}

/// Times, each with one number or one for each kind.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SampleRows {
    /// The times.
    pub times: Vec<u64>,
    /// The numbers, row after row.
    pub numbers: Vec<f64>,
    /// Numbers of a row.
    pub width: usize,
}

impl SampleRows {
    /// Rows of `width` numbers.
    pub fn new(width: usize) -> SampleRows {
        SampleRows { width, ..SampleRows::default() }
    }

    /// Each row.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &[f64])> {
        self.times.iter().copied().zip(self.numbers.chunks(self.width.max(1)))
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Adds a row of one number.
    pub fn push(&mut self, time: u64, number: f64) {
        self.times.push(time);
        self.numbers.push(number);
    }

    fn reverse(&mut self) {
        self.times.reverse();
        let rows: Vec<f64> = self.numbers.chunks(self.width.max(1)).rev().flatten().copied().collect();
        self.numbers = rows;
    }

    fn truncate(&mut self, count: usize) {
        self.times.truncate(count);
        self.numbers.truncate(count.saturating_mul(self.width));
    }
}

/// There would be too many rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

/// The start of the bucket of `time`; below 0 if `align_ms` makes the first bucket begin before time 0.
fn raw_start(time: u64, ms: u64, align_ms: u64) -> i128 {
    let past = (i128::from(time) - i128::from(align_ms)).rem_euclid(i128::from(ms));
    i128::from(time) - past
}

fn clamp(time: i128) -> u64 {
    u64::try_from(time.max(0)).unwrap_or(u64::MAX)
}

/// The start of the bucket of `time`, 0 for the first.
pub fn bucket_start(time: u64, ms: u64, align_ms: u64) -> u64 {
    clamp(raw_start(time, ms, align_ms))
}

/// The end of the bucket of `time`.
pub fn bucket_end(time: u64, ms: u64, align_ms: u64) -> u64 {
    clamp(raw_start(time, ms, align_ms) + i128::from(ms))
}

impl SeriesQuery {
    /// All samples of a span, oldest first.
    pub fn new(from: u64, to: u64) -> SeriesQuery {
        let (times, values, count, buckets, latest) = (None, None, None, None, None);
        SeriesQuery { from, to, times, values, count, buckets, order: SampleOrder::Up, latest }
    }

    fn takes(&self, sample: Sample) -> bool {
        let is_time = self.times.as_ref().is_none_or(|times| times.binary_search(&sample.time).is_ok());
        is_time && self.values.is_none_or(|(min, max)| sample.value >= min && sample.value <= max)
    }

    /// Visits the samples of `from..=to` that the filters take, oldest first, until `visit` returns false.
    fn each(
        &self,
        series: &Series,
        arena: &Arena,
        from: u64,
        to: u64,
        visit: &mut dyn FnMut(Sample) -> bool,
    ) {
        let mut goes_on = true;
        series.each(arena, from, to, &mut |sample| {
            goes_on = !self.takes(sample) || visit(sample);
            goes_on
        });
        if let Some(latest) = self.latest
            && goes_on
            && (from..=to).contains(&latest.time)
            && self.takes(latest)
        {
            visit(latest);
        }
    }

    /// The oldest number after `time` that the filters take.
    fn after(&self, series: &Series, arena: &Arena, time: u64) -> Option<Sample> {
        let mut found = None;
        let from = time.checked_add(1)?;
        self.each(series, arena, from, u64::MAX, &mut |sample| {
            found = (!sample.value.is_nan()).then_some(sample);
            found.is_none()
        });
        found
    }

    /// The newest number before `time` that the filters take.
    fn before(&self, series: &Series, arena: &Arena, time: u64) -> Option<Sample> {
        let mut found = None;
        series.each_reversed(arena, 0, time.checked_sub(1)?, &mut |sample| {
            found = (!sample.value.is_nan() && self.takes(sample)).then_some(sample);
            found.is_none()
        });
        found
    }

    /// The rows of `series`. Fails if there would be too many.
    pub fn run(&self, series: &Series, arena: &Arena) -> Result<SampleRows, TooMany> {
        let mut running = QueryProgress::default();
        while !self.step(&mut running, series, arena)? {}
        let mut rows = running.rows;
        if self.is_backwards() {
            rows.reverse();
            rows.truncate(self.count.unwrap_or(usize::MAX));
        }
        Ok(rows)
    }

    /// Returns true if [`SeriesQuery::step`] yields the rows from the oldest to the newest, though the query asks for the
    /// opposite: its caller must turn them round, and apply the limit.
    pub fn is_backwards(&self) -> bool {
        self.buckets.is_some() && self.order == SampleOrder::Down
    }

    /// Continues with some blocks of samples, and adds their rows to `running`; returns true if those were the last. The
    /// series must not change between two steps. Fails if there would be too many rows.
    pub fn step(&self, running: &mut QueryProgress, series: &Series, arena: &Arena) -> Result<bool, TooMany> {
        let enough = if self.is_backwards() { usize::MAX } else { self.count.unwrap_or(usize::MAX) };
        if running.len() >= enough {
            return Ok(true);
        }
        let Some(buckets) = &self.buckets else {
            return Ok(self.step_samples(running, series, arena, enough));
        };
        let from = running.next.unwrap_or(self.from);
        let to = series.end_of_blocks(from, BLOCKS_PER_STEP).min(self.to);
        let before = match running.next {
            Some(_) => running.before,
            None => self.before(series, arena, self.from),
        };
        let rows = match running.rows.width {
            0 => SampleRows::new(buckets.kinds.len()),
            _ => std::mem::take(&mut running.rows),
        };
        let most = enough - running.taken;
        let mut walk = BlockWalk { query: self, buckets, series, arena, before, rows };
        let open = walk.pass_span(running.open.take(), (from, to), most)?;
        let is_last = to >= self.to || walk.rows.len() >= most;
        if !is_last {
            (running.open, running.before, running.next) = (open, walk.before, to.checked_add(1));
        } else if walk.rows.len() < most {
            walk.end(open)?;
        }
        running.rows = walk.rows;
        running.rows.truncate(most);
        Ok(is_last)
    }

    fn step_samples(
        &self,
        running: &mut QueryProgress,
        series: &Series,
        arena: &Arena,
        enough: usize,
    ) -> bool {
        if running.rows.width == 0 {
            running.rows = SampleRows::new(1);
        }
        let most = enough - running.taken;
        let rows = &mut running.rows;
        let mut push = |sample: Sample| {
            rows.push(sample.time, sample.value);
            rows.len() < most
        };
        match self.order {
            SampleOrder::Up => {
                let from = running.next.unwrap_or(self.from);
                let to = series.end_of_blocks(from, BLOCKS_PER_STEP).min(self.to);
                self.each(series, arena, from, to, &mut push);
                running.next = to.checked_add(1);
                to >= self.to || running.len() >= enough
            }
            SampleOrder::Down => {
                let to = running.next.unwrap_or(self.to);
                let from = series.start_of_blocks(to, BLOCKS_PER_STEP).max(self.from);
                let latest = self.latest.filter(|latest| (from..=to).contains(&latest.time));
                let goes_on = latest.is_none_or(|latest| !self.takes(latest) || push(latest));
                if goes_on {
                    series.each_reversed(arena, from, to, &mut |sample| !self.takes(sample) || push(sample));
                }
                running.next = from.checked_sub(1);
                from <= self.from || running.len() >= enough
            }
        }
    }
}

/// Blocks of samples between two steps: some 10 microseconds.
const BLOCKS_PER_STEP: usize = 4;

/// A query under way.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QueryProgress {
    /// The rows of the last steps, for the caller to take.
    pub rows: SampleRows,
    // Rows that were taken.
    taken: usize,
    // The bucket that is being filled, and the newest number before it.
    open: Option<OpenBucket>,
    before: Option<Sample>,
    // The next time; `None` at the start.
    next: Option<u64>,
}

impl QueryProgress {
    /// Rows so far.
    fn len(&self) -> usize {
        self.taken + self.rows.len()
    }

    /// The rows since the last call.
    pub fn take(&mut self) -> SampleRows {
        self.taken += self.rows.len();
        let width = self.rows.width;
        std::mem::replace(&mut self.rows, SampleRows::new(width))
    }
}

/// The walk over the samples of a query from bucket to bucket.
struct BlockWalk<'a> {
    query: &'a SeriesQuery,
    buckets: &'a Buckets,
    series: &'a Series,
    arena: &'a Arena,
    // The newest number before the open bucket.
    before: Option<Sample>,
    rows: SampleRows,
}

/// A bucket that is being filled.
#[derive(Clone, PartialEq, Debug)]
struct OpenBucket {
    start: i128,
    // The part of it that the query asks for, and its end.
    low: u64,
    end: u64,
    bucket: TimeBucket,
}

/// Samples on their way into buckets.
struct BucketFilling<'w, 'a> {
    walk: &'w mut BlockWalk<'a>,
    open: Option<OpenBucket>,
    fault: Option<TooMany>,
    enough: usize,
    goes_on: bool,
}

impl BucketFilling<'_, '_> {
    /// Opens the bucket of `sample`, unless it is open; the one before ends then.
    fn enter(&mut self, sample: Sample) {
        if self.open.as_ref().is_some_and(|open| sample.time < open.end) {
            return;
        }
        let start = self.walk.start_of(sample.time);
        if self.open.as_ref().is_none_or(|open| open.start != start) {
            self.fault = self.walk.pass(self.open.take(), sample, start).err();
            let (low, _) = self.walk.span(start);
            let end = clamp(start + i128::from(self.walk.buckets.ms));
            self.open = Some(OpenBucket { start, low, end, bucket: TimeBucket::default() });
        }
    }

    fn is_done(&self) -> bool {
        self.fault.is_some() || self.walk.rows.len() >= self.enough
    }
}

impl PartVisitor for BucketFilling<'_, '_> {
    fn block(&mut self, head: &BlockHead) -> bool {
        let query = self.walk.query;
        if query.times.is_some() || query.values.is_some() {
            return false;
        }
        let fits = match &self.open {
            Some(open) if head.first.time < open.end => head.last.time < open.end,
            _ => self.walk.start_of(head.first.time) == self.walk.start_of(head.last.time),
        };
        if !fits {
            return false;
        }
        self.enter(head.first);
        let before = self.walk.before;
        // If there are enough rows, the block's first sample ends the walk.
        !self.is_done()
            && self.open.as_mut().is_some_and(|open| open.bucket.add_block(head, before, open.low))
    }

    #[inline]
    fn sample(&mut self, sample: Sample) -> bool {
        if self.walk.query.takes(sample) {
            self.enter(sample);
            let before = self.walk.before;
            if let Some(open) = &mut self.open {
                open.bucket.add_after(sample, before, open.low);
            }
            self.goes_on = !self.is_done();
        }
        self.goes_on
    }
}

impl<'a> BlockWalk<'a> {
    fn start_of(&self, time: u64) -> i128 {
        raw_start(time, self.buckets.ms, self.buckets.align_ms)
    }

    /// The part of the bucket from `start` on that the query asks for.
    fn span(&self, start: i128) -> (u64, u64) {
        let end = clamp(start + i128::from(self.buckets.ms));
        (clamp(start).max(self.query.from), end.min(self.query.to))
    }

    /// Fills buckets with the samples of a span, until there are `enough` rows; returns the bucket that is open then.
    fn pass_span(
        &mut self,
        open: Option<OpenBucket>,
        (from, to): (u64, u64),
        enough: usize,
    ) -> Result<Option<OpenBucket>, TooMany> {
        let (query, series, arena) = (self.query, self.series, self.arena);
        let mut filling = BucketFilling { walk: self, open, fault: None, enough, goes_on: true };
        series.each_part(arena, from, to, &mut filling);
        if let Some(latest) = query.latest
            && filling.goes_on
            && (from..=to).contains(&latest.time)
        {
            filling.sample(latest);
        }
        filling.fault.map_or(Ok(filling.open), Err)
    }

    /// Ends a bucket, as `sample` belongs to the one that begins at `start`, and fills the gap between them.
    fn pass(&mut self, open: Option<OpenBucket>, sample: Sample, start: i128) -> Result<(), TooMany> {
        let ms = i128::from(self.buckets.ms);
        let next = match open {
            Some(open) => {
                let after = if sample.value.is_nan() {
                    self.query.after(self.series, self.arena, sample.time)
                } else {
                    Some(sample)
                };
                self.close(&open, after);
                open.start + ms
            }
            // Before the first sample of the span there are buckets only if there is an older sample.
            None if self.before.is_some() => self.start_of(self.query.from),
            None => return Ok(()),
        };
        self.fill(next, start - ms)
    }

    /// Ends the last bucket and fills the span behind it, if there is a newer sample.
    fn end(&mut self, open: Option<OpenBucket>) -> Result<(), TooMany> {
        let after = self.query.after(self.series, self.arena, self.query.to);
        let next = match open {
            Some(open) => {
                self.close(&open, after);
                open.start + i128::from(self.buckets.ms)
            }
            None if self.before.is_some() => self.start_of(self.query.from),
            None => return Ok(()),
        };
        if after.is_some() { self.fill(next, self.start_of(self.query.to)) } else { Ok(()) }
    }

    /// Writes the row of a bucket.
    fn close(&mut self, open: &OpenBucket, after: Option<Sample>) {
        let buckets = self.buckets;
        let (_, high) = self.span(open.start);
        let has_any = buckets.kinds.iter().any(|&kind| open.bucket.has(kind));
        if has_any || buckets.gaps == BucketGaps::Filled {
            for &kind in &buckets.kinds {
                let number = if open.bucket.has(kind) {
                    open.bucket.number(kind, after, high)
                } else {
                    self.empty_number(kind, open.start, after)
                };
                self.rows.numbers.push(number);
            }
            self.stamp(open.start);
        }
        self.before = open.bucket.last().or(self.before);
    }

    fn empty_number(&self, kind: Aggregator, start: i128, after: Option<Sample>) -> f64 {
        match (kind, self.before, after) {
            (Aggregator::Twa, Some(before), Some(after)) => {
                let (low, high) = self.span(start);
                f64::midpoint(interpolate(before, after, low), interpolate(before, after, high))
            }
            _ => TimeBucket::empty_number(kind, self.before),
        }
    }

    /// Writes rows for the empty buckets that start at `from..=to`.
    fn fill(&mut self, from: i128, to: i128) -> Result<(), TooMany> {
        if self.buckets.gaps == BucketGaps::Skipped || to < from {
            return Ok(());
        }
        let buckets = self.buckets;
        let after = self.query.after(self.series, self.arena, clamp(from).saturating_sub(1));
        let mut start = from;
        while start <= to {
            for &kind in &buckets.kinds {
                let number = self.empty_number(kind, start, after);
                self.rows.numbers.push(number);
            }
            self.stamp(start);
            if self.rows.len() > ROWS_MAX {
                return Err(TooMany);
            }
            start += i128::from(buckets.ms);
        }
        Ok(())
    }

    fn stamp(&mut self, start: i128) {
        let start_ms = clamp(start);
        let time = match self.buckets.stamp {
            Stamp::Start => start_ms,
            Stamp::Mid => start_ms.saturating_add(self.buckets.ms / 2),
            Stamp::End => start_ms.saturating_add(self.buckets.ms),
        };
        self.rows.times.push(time);
    }
}

#[cfg(test)]
mod tests;

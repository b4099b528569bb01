//! Aggregation of the samples of a bucket: fifteen kinds of one number.

use darter_base::fields::{FieldSource, Malformed};

use crate::sample::Sample;
use crate::series::BlockHead;

/// The aggregation of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Aggregator {
    /// The smallest value.
    Min = 1,
    /// The largest value.
    Max,
    /// The sum.
    Sum,
    /// The mean.
    Avg,
    /// Number of values that are not NaN.
    Count,
    /// The oldest value.
    First,
    /// The newest value.
    Last,
    /// The largest less the smallest.
    Range,
    /// Standard deviation of all values.
    StdP,
    /// Standard deviation, estimated from a part of the values.
    StdS,
    /// Variance of all values.
    VarP,
    /// Variance, estimated from a part of the values.
    VarS,
    /// The mean weighted by time, values between samples interpolated.
    Twa,
    /// Number of values that are NaN.
    CountNan,
    /// Number of values.
    CountAll,
}

impl Aggregator {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Aggregator; 15] = [
        Aggregator::Min,
        Aggregator::Max,
        Aggregator::Sum,
        Aggregator::Avg,
        Aggregator::Count,
        Aggregator::First,
        Aggregator::Last,
        Aggregator::Range,
        Aggregator::StdP,
        Aggregator::StdS,
        Aggregator::VarP,
        Aggregator::VarS,
        Aggregator::Twa,
        Aggregator::CountNan,
        Aggregator::CountAll,
    ];

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Aggregator::Min => "min",
            Aggregator::Max => "max",
            Aggregator::Sum => "sum",
            Aggregator::Avg => "avg",
            Aggregator::Count => "count",
            Aggregator::First => "first",
            Aggregator::Last => "last",
            Aggregator::Range => "range",
            Aggregator::StdP => "std.p",
            Aggregator::StdS => "std.s",
            Aggregator::VarP => "var.p",
            Aggregator::VarS => "var.s",
            Aggregator::Twa => "twa",
            Aggregator::CountNan => "countnan",
            Aggregator::CountAll => "countall",
        }
    }

    /// The kind of a name in any case.
    pub fn of_name(name: &[u8]) -> Option<Aggregator> {
        Aggregator::ALL.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()))
    }

    /// The kind of its number in a file.
    pub fn of_number(number: u64) -> Option<Aggregator> {
        Aggregator::ALL.into_iter().find(|&kind| kind as u64 == number)
    }

    /// Returns true if a value counts for this kind.
    pub fn takes(self, value: f64) -> bool {
        match self {
            Aggregator::CountNan => value.is_nan(),
            Aggregator::CountAll => true,
            _ => !value.is_nan(),
        }
    }
}

/// The samples of a bucket so far. Values that are NaN count only as such.
#[derive(Clone, PartialEq, Debug)]
pub struct TimeBucket {
    count: u64,
    nans: u64,
    sum: f64,
    squares: f64,
    // The mean, once the sum is larger than a float can be.
    mean: Option<f64>,
    min: f64,
    max: f64,
    first: f64,
    last: Option<Sample>,
    area: f64,
    // The start of the area.
    start: u64,
}

impl Default for TimeBucket {
    fn default() -> TimeBucket {
        TimeBucket {
            count: 0,
            nans: 0,
            sum: 0.0,
            squares: 0.0,
            mean: None,
            min: f64::MAX,
            max: -f64::MAX,
            first: 0.0,
            last: None,
            area: 0.0,
            start: 0,
        }
    }
}

/// The value at `time` on the line through two samples.
pub(crate) fn interpolate(a: Sample, b: Sample, time: u64) -> f64 {
    let span = b.time as f64 - a.time as f64;
    a.value + (time as f64 - a.time as f64) * (b.value - a.value) / span
}

impl TimeBucket {
    /// Takes a sample; samples come in the order of time.
    #[inline]
    pub fn add(&mut self, sample: Sample) {
        self.add_after(sample, None, 0);
    }

    /// Takes a sample. `before` is the newest sample before the bucket, which begins at `start`, for [`Aggregator::Twa`].
    #[inline]
    pub fn add_after(&mut self, sample: Sample, before: Option<Sample>, start: u64) {
        let value = sample.value;
        if value.is_nan() {
            self.nans += 1;
            return;
        }
        self.add_area(sample, before, start);
        self.count += 1;
        self.add_sum(value);
        self.squares += value * value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        if self.count == 1 {
            self.first = value;
        }
        self.last = Some(sample);
    }

    /// Takes a whole block, as [`TimeBucket::add_after`] does each of its samples, but for the rounding of its sums. Returns
    /// false, with the bucket unchanged, if their sum is too large.
    pub(crate) fn add_block(&mut self, head: &BlockHead, before: Option<Sample>, start: u64) -> bool {
        let sum = self.sum + head.sum;
        if self.mean.is_some() || !sum.is_finite() {
            return false;
        }
        self.add_area(head.first, before, start);
        if self.count == 0 {
            self.first = head.first.value;
        }
        self.area += head.area;
        self.count += head.count;
        self.sum = sum;
        self.squares += head.squares;
        self.min = self.min.min(head.min);
        self.max = self.max.max(head.max);
        self.last = Some(head.last);
        true
    }

    /// Returns the head of a block that holds the `samples` of the bucket; `None` if a value is NaN or the sum is not finite.
    pub(crate) fn head(&self, samples: &[Sample]) -> Option<BlockHead> {
        let (first, last) = (*samples.first()?, *samples.last()?);
        let TimeBucket { sum, squares, min, max, area, .. } = *self;
        let is_there = self.nans == 0 && self.mean.is_none() && sum.is_finite();
        is_there.then_some(BlockHead { first, last, count: self.count, sum, squares, min, max, area })
    }

    #[inline]
    fn add_area(&mut self, sample: Sample, before: Option<Sample>, start: u64) {
        match (self.last, before) {
            (Some(last), _) => {
                self.area += (last.value + sample.value) * (sample.time - last.time) as f64 / 2.0;
            }
            (None, Some(before)) => {
                self.start = start;
                let at_start = interpolate(before, sample, start);
                self.area += (at_start + sample.value) * (sample.time - start) as f64 / 2.0;
            }
            (None, None) => self.start = sample.time,
        }
    }

    #[inline]
    fn add_sum(&mut self, value: f64) {
        let sum = self.sum + value;
        if (sum.is_infinite() && self.sum.is_finite() && value.is_finite()) || self.mean.is_some() {
            let count = self.count as f64;
            let mean = self.mean.unwrap_or(self.sum / (count - 1.0));
            self.mean = Some(mean * ((count - 1.0) / count) + value / count);
        }
        self.sum = sum;
    }

    /// Returns true if a value was taken that counts for `kind`.
    pub fn has(&self, kind: Aggregator) -> bool {
        match kind {
            Aggregator::CountNan => self.nans > 0,
            Aggregator::CountAll => self.nans + self.count > 0,
            _ => self.count > 0,
        }
    }

    /// The newest value that is not NaN.
    pub fn last(&self) -> Option<Sample> {
        self.last
    }

    fn variance(&self) -> f64 {
        let count = self.count as f64;
        let mean = self.sum / count;
        (self.squares - 2.0 * self.sum * mean + mean * mean * count) / count
    }

    /// Variance estimated from a part of the values.
    fn sample_variance(&self) -> f64 {
        match self.count {
            0 | 1 => 0.0,
            count => self.variance() * count as f64 / (count - 1) as f64,
        }
    }

    /// The number of a bucket that ends at `end`. `after` is the oldest sample behind the bucket, for [`Aggregator::Twa`].
    /// [`TimeBucket::has`] must be true.
    pub fn number(&self, kind: Aggregator, after: Option<Sample>, end: u64) -> f64 {
        match kind {
            Aggregator::Min => self.min,
            Aggregator::Max => self.max,
            Aggregator::Sum => self.sum,
            Aggregator::Avg => self.mean.unwrap_or(self.sum / self.count as f64),
            Aggregator::Count => self.count as f64,
            Aggregator::First => self.first,
            Aggregator::Last => self.last.map_or(f64::NAN, |last| last.value),
            Aggregator::Range => self.max - self.min,
            Aggregator::StdP => self.variance().sqrt(),
            Aggregator::StdS => self.sample_variance().sqrt(),
            Aggregator::VarP => self.variance(),
            Aggregator::VarS => self.sample_variance(),
            Aggregator::Twa => self.weighted(after, end),
            Aggregator::CountNan => self.nans as f64,
            Aggregator::CountAll => (self.nans + self.count) as f64,
        }
    }

    fn weighted(&self, after: Option<Sample>, end: u64) -> f64 {
        let Some(last) = self.last else { return f64::NAN };
        let (mut area, mut stop) = (self.area, last.time);
        if let Some(after) = after {
            let at_end = interpolate(last, after, end);
            area += (last.value + at_end) * (end as f64 - last.time as f64) / 2.0;
            stop = end;
        }
        if stop == self.start { last.value } else { area / (stop as f64 - self.start as f64) }
    }

    /// The number of a bucket in which no value counts for `kind`; `before` is the newest value before it.
    pub fn empty_number(kind: Aggregator, before: Option<Sample>) -> f64 {
        match kind {
            Aggregator::Sum | Aggregator::Count | Aggregator::CountNan | Aggregator::CountAll => 0.0,
            Aggregator::Last => before.map_or(f64::NAN, |before| before.value),
            _ => f64::NAN,
        }
    }

    /// The numbers of the bucket in the form of files, for `kind`.
    pub(crate) fn save(&self, kind: Aggregator, out: &mut dyn darter_base::fields::FieldSink) {
        match kind {
            Aggregator::Min | Aggregator::Max | Aggregator::Range => {
                out.double(self.max);
                out.double(self.min);
            }
            Aggregator::Sum | Aggregator::Count | Aggregator::CountNan | Aggregator::CountAll => {
                out.double(self.number(kind, None, 0));
            }
            Aggregator::Last => out.double(self.last.map_or(f64::NAN, |last| last.value)),
            Aggregator::First => {
                out.double(self.first);
                out.unsigned(u64::from(self.count == 0));
            }
            Aggregator::Avg => {
                out.double(self.mean.unwrap_or(self.sum));
                out.double(self.count as f64);
                out.unsigned(u64::from(self.mean.is_some()));
            }
            Aggregator::StdP | Aggregator::StdS | Aggregator::VarP | Aggregator::VarS => {
                out.double(self.sum);
                out.double(self.squares);
                out.unsigned(self.count);
            }
            Aggregator::Twa => {
                let last = self.last.unwrap_or(Sample { time: 0, value: 0.0 });
                out.double(self.area);
                out.unsigned(last.time);
                out.double(last.value);
                out.unsigned(self.start);
                out.unsigned(last.time);
                out.unsigned(self.start);
                out.unsigned(last.time);
                out.unsigned(u64::from(self.count == 0));
                out.unsigned(self.count);
                out.unsigned(0);
            }
        }
    }

    /// Reads the output of [`TimeBucket::save`] for `kind`, in the form of version `version`; `has_any` is true if a
    /// value counts.
    pub(crate) fn load(
        kind: Aggregator,
        version: u16,
        has_any: Option<bool>,
        source: &mut dyn FieldSource,
    ) -> Result<TimeBucket, Malformed> {
        let mut bucket = TimeBucket::default();
        let has = |guess: bool| u64::from(has_any.unwrap_or(guess));
        match kind {
            Aggregator::Min | Aggregator::Max | Aggregator::Range => {
                (bucket.max, bucket.min) = (source.double()?, source.double()?);
                bucket.count = has(bucket.max >= bucket.min);
            }
            Aggregator::Sum
            | Aggregator::Count
            | Aggregator::Last
            | Aggregator::CountNan
            | Aggregator::CountAll => {
                let number = source.double()?;
                if (3..7).contains(&version) {
                    source.unsigned()?;
                }
                bucket.count = has(number != 0.0);
                match kind {
                    Aggregator::Sum => bucket.sum = number,
                    Aggregator::CountNan => (bucket.nans, bucket.count) = (number as u64, 0),
                    Aggregator::Last => bucket.last = (bucket.count > 0).then_some(Sample::new(0, number)),
                    _ => bucket.count = number as u64,
                }
            }
            Aggregator::First => {
                bucket.first = source.double()?;
                let is_new = version >= 3 && source.unsigned()? != 0;
                bucket.count = has(!is_new);
            }
            Aggregator::Avg => {
                let (sum, count) = (source.double()?, source.double()?);
                bucket.count = count as u64;
                let is_mean = version >= 4 && source.unsigned()? != 0;
                bucket.mean = is_mean.then_some(sum);
                bucket.sum = if is_mean { f64::INFINITY } else { sum };
            }
            Aggregator::StdP | Aggregator::StdS | Aggregator::VarP | Aggregator::VarS => {
                (bucket.sum, bucket.squares, bucket.count) =
                    (source.double()?, source.double()?, source.unsigned()?);
            }
            Aggregator::Twa => {
                bucket.area = source.double()?;
                let last = Sample::new(source.unsigned()?, source.double()?);
                bucket.start = source.unsigned()?;
                source.unsigned()?;
                source.unsigned()?;
                source.unsigned()?;
                let is_new = source.unsigned()? != 0;
                let count = source.unsigned()?;
                source.unsigned()?;
                bucket.count = if is_new { 0 } else { count.max(1) };
                bucket.last = (!is_new).then_some(last);
            }
        }
        Ok(bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_bucket() {
        let mut bucket = TimeBucket::default();
        for (time, value) in [(10, 1.0), (20, 5.0), (25, f64::NAN), (30, 3.0)] {
            bucket.add(Sample::new(time, value));
        }
        let numbers: Vec<f64> = Aggregator::ALL.map(|kind| bucket.number(kind, None, 40)).to_vec();
        let variance = 8.0 / 3.0;
        let expected =
            [1.0, 5.0, 9.0, 3.0, 3.0, 1.0, 3.0, 4.0, f64::sqrt(variance), 2.0, variance, 4.0, 3.5, 1.0, 4.0];
        for (number, expected) in numbers.iter().zip(expected) {
            assert!((number - expected).abs() < 1e-12, "{numbers:?}");
        }
    }

    #[test]
    fn means_of_huge_values_do_not_overflow() {
        let mut bucket = TimeBucket::default();
        for time in 0..10 {
            bucket.add(Sample::new(time, f64::MAX));
        }
        let mean = bucket.number(Aggregator::Avg, None, 0);
        assert!(mean.is_finite() && (mean / f64::MAX - 1.0).abs() < 1e-12, "{mean}");
    }

    #[test]
    fn names_and_numbers_name_kinds() {
        for (n, kind) in Aggregator::ALL.into_iter().enumerate() {
            assert_eq!(Aggregator::of_number(n as u64 + 1), Some(kind));
            assert_eq!(Aggregator::of_name(kind.name().to_uppercase().as_bytes()), Some(kind));
        }
    }
}

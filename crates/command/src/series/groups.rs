//! GROUPBY label REDUCE reducer: the rows of several series, joined by the values of a label.
//!
//! Called by TS.MRANGE, whether it answers at once or in slices.

use std::collections::BTreeMap;

use darter_series::aggregate::TimeBucket;
use darter_series::query::{SampleOrder, SampleRows};
use darter_series::{Aggregator, Sample};

/// The series of one value of the label, and their reduced value at each time.
#[derive(Default)]
pub(super) struct Joined {
    /// Their keys.
    pub names: Vec<Box<[u8]>>,
    at: BTreeMap<u64, TimeBucket>,
}

/// The groups, by the value of their label.
pub(super) struct Groups {
    /// The label.
    pub label: Box<[u8]>,
    /// The reducer.
    pub kind: Aggregator,
    // Rows of a group at most; the limit does not apply to those of a series.
    count: usize,
    order: SampleOrder,
    all: BTreeMap<Box<[u8]>, Joined>,
}

impl Groups {
    /// No group yet; each will have up to `count` rows.
    pub fn new((label, kind): (&[u8], Aggregator), count: usize, order: SampleOrder) -> Groups {
        Groups { label: label.into(), kind, count, order, all: BTreeMap::new() }
    }

    /// Adds a series to the group of `value`.
    pub fn add_series(&mut self, value: &[u8], name: &[u8]) {
        self.all.entry(value.into()).or_default().names.push(name.into());
    }

    /// Adds a row of such a series.
    pub fn add_row(&mut self, value: &[u8], time: u64, numbers: impl Iterator<Item = f64>) {
        if let Some(joined) = self.all.get_mut(value) {
            let bucket = joined.at.entry(time).or_default();
            numbers.for_each(|number| bucket.add(Sample::new(time, number)));
        }
    }

    /// The groups with their rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&[u8], &Joined, SampleRows)> {
        self.all.iter().map(|(value, joined)| {
            let mut rows = SampleRows::new(1);
            let mut push = |(&time, bucket): (&u64, &TimeBucket)| {
                let number = match (bucket.has(self.kind), self.kind) {
                    (true, kind) => bucket.number(kind, None, time),
                    (false, kind @ (Aggregator::Count | Aggregator::CountNan | Aggregator::CountAll)) => {
                        TimeBucket::empty_number(kind, None)
                    }
                    // All of its series have NaN there.
                    (false, _) => f64::NAN,
                };
                rows.push(time, number);
            };
            match self.order {
                SampleOrder::Up => joined.at.iter().take(self.count).for_each(&mut push),
                SampleOrder::Down => joined.at.iter().rev().take(self.count).for_each(&mut push),
            }
            (&**value, joined, rows)
        })
    }
}

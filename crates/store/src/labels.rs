//! Time series by their labels: an index of one database's part of a shard.
//!
//! `series` updates it whenever a series gets or loses a key, and asks it with the [`Matcher`]s of a command. Never
//! knows keys or shards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use darter_series::Series;

type Ids = BTreeSet<u32>;
/// Series by the values of a label.
type Values = BTreeMap<Box<[u8]>, Ids>;

/// The series of one database by their labels.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    all: Ids,
    by_name: BTreeMap<Box<[u8]>, Values>,
    bytes: usize,
}

/// Approximate bytes of an entry of the index beside its texts.
const ENTRY_BYTES: usize = 64;

impl Labels {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All series.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.all.iter().copied()
    }

    /// Bytes on the heap, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds series `id`.
    pub(crate) fn add(&mut self, id: u32, series: &Series) {
        self.all.insert(id);
        self.bytes += ENTRY_BYTES;
        for (name, value) in &series.settings.labels {
            let ids = self.by_name.entry(name.clone()).or_default().entry(value.clone()).or_default();
            ids.insert(id);
            self.bytes += ENTRY_BYTES + name.len() + value.len();
        }
    }

    /// Removes series `id`, which has the labels it was added with.
    pub(crate) fn remove(&mut self, id: u32, series: &Series) {
        if !self.all.remove(&id) {
            return;
        }
        self.bytes -= ENTRY_BYTES;
        for (name, value) in &series.settings.labels {
            self.bytes -= ENTRY_BYTES + name.len() + value.len();
            let Some(values) = self.by_name.get_mut(name) else { continue };
            if let Some(ids) = values.get_mut(value) {
                ids.remove(&id);
                if ids.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.by_name.remove(name);
            }
        }
    }

    /// The sets of series that the most selective matcher with values takes; that of all if no matcher has values.
    fn sets(&self, matchers: &[Matcher]) -> Vec<&Ids> {
        let named = matchers.iter().filter(|matcher| matcher.sort == Sort::OneOf);
        let sets = named.map(|matcher| {
            let values = self.by_name.get(&matcher.label);
            let ids = |value: &[u8]| values.and_then(|values| values.get(value));
            matcher.values.iter().filter_map(|value| ids(value)).collect::<Vec<_>>()
        });
        sets.min_by_key(|sets| len_of(sets)).unwrap_or_else(|| vec![&self.all])
    }

    /// Up to `max` series of these sets from `place` on, which is moved behind them; fewer are the last.
    pub(crate) fn candidates(&self, matchers: &[Matcher], place: &mut LabelPlace, max: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let sets = self.sets(matchers);
        while let Some(ids) = sets.get(place.set) {
            let from = place.after.map_or(Bound::Unbounded, Bound::Excluded);
            found.extend(ids.range((from, Bound::Unbounded)).take(max - found.len()));
            if found.len() == max {
                place.after = found.last().copied();
                break;
            }
            *place = LabelPlace { set: place.set + 1, after: None };
        }
        found
    }

    /// Number of series that a search by these matchers looks at.
    pub(crate) fn candidates_len(&self, matchers: &[Matcher]) -> usize {
        len_of(&self.sets(matchers))
    }
}

fn len_of(sets: &[&Ids]) -> usize {
    sets.iter().map(|ids| ids.len()).sum()
}

/// The place where a walk over the series that matchers take goes on. It is valid until
/// [`Shard::label_changes`](crate::Shard::label_changes) changes.
#[derive(Clone, Copy, Default, Debug)]
pub struct LabelPlace {
    set: usize,
    after: Option<u32>,
}

/// A series that was found by its labels.
#[derive(Clone, Copy, Debug)]
pub struct LabelledSeries<'a> {
    /// The number of the series in its shard, for [`Shard::series`](crate::Shard::series).
    pub id: u32,
    /// The series; its name is the key.
    pub series: &'a Series,
    /// Expiry of its key, Unix milliseconds.
    pub deadline_ms: Option<u64>,
}

/// The condition of a matcher on its label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// The label has one of these values.
    OneOf,
    /// The label has none of these values, or is missing.
    NoneOf,
    /// The label exists.
    There,
    /// The label is missing.
    Missing,
}

/// A condition on the labels of a series.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matcher {
    /// The label.
    pub label: Box<[u8]>,
    /// The condition.
    pub sort: Sort,
    /// The values.
    pub values: Vec<Box<[u8]>>,
}

impl Matcher {
    /// Returns true if the series meets the condition.
    pub fn takes(&self, series: &Series) -> bool {
        let value = series.label(&self.label);
        let is_one = || value.is_some_and(|value| self.values.iter().any(|one| **one == *value));
        match self.sort {
            Sort::OneOf => is_one(),
            Sort::NoneOf => !is_one(),
            Sort::There => value.is_some(),
            Sort::Missing => value.is_none(),
        }
    }
}

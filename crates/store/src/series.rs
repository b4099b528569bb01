//! The time series of a shard: a search by labels, and what a series that comes or goes changes.
//!
//! [`Shard`] calls this whenever a series gets or loses a key; commands search. A command changes the labels of a
//! series with [`Keyed::reshape_series`](crate::Keyed::reshape_series). Nothing here takes a lock or knows other shards.

use darter_series::Series;
use darter_slab::Handle;

use crate::labels::{LabelPlace, LabelledSeries, Matcher};
use crate::object::Collection;
use crate::record::{Record, RecordValue};
use crate::shard::{Key, Shard};
use crate::value_type::Type;

impl Shard {
    /// Visits the series of `db` that are alive at `now_ms` and meet all `matchers`; in no order.
    pub fn each_series(
        &self,
        db: usize,
        matchers: &[Matcher],
        now_ms: u64,
        visit: &mut dyn FnMut(LabelledSeries<'_>),
    ) {
        self.some_series((db, matchers), &mut LabelPlace::default(), usize::MAX, now_ms, visit);
    }

    /// The same for a part of them: looks at up to `max` series from `place` on, and moves it behind them. Returns true
    /// if those were the last.
    pub fn some_series(
        &self,
        (db, matchers): (usize, &[Matcher]),
        place: &mut LabelPlace,
        max: usize,
        now_ms: u64,
        visit: &mut dyn FnMut(LabelledSeries<'_>),
    ) -> bool {
        let Some(there) = self.dbs.get(db) else { return true };
        let ids = there.labels.candidates(matchers, place, max);
        for &id in &ids {
            let Some(series) = self.series(id) else { continue };
            let key = Key { bytes: &series.name, hash: self.hasher.hash_key(&series.name) };
            if matchers.iter().all(|matcher| matcher.takes(series))
                && let Some(record) = self.peek(db, key, now_ms)
            {
                visit(LabelledSeries { id, series, deadline_ms: record.deadline_ms() });
            }
        }
        ids.len() < max
    }

    /// Number of series that a search by these matchers looks at.
    pub fn series_len(&self, db: usize, matchers: &[Matcher]) -> usize {
        self.dbs.get(db).map_or(0, |there| there.labels.candidates_len(matchers))
    }

    /// The series with this number.
    pub fn series(&self, id: u32) -> Option<&Series> {
        Series::of(self.objects.get(id))
    }

    /// Number of times that a series came, went or got other labels. The numbers of series stay the same between two.
    pub fn label_changes(&self) -> u64 {
        self.label_changes
    }

    fn series_at(&self, handle: Handle) -> Option<u32> {
        match (Record { tail: self.arena.tail(handle) }).value() {
            RecordValue::Object(Type::Series, id) => Some(id),
            _ => None,
        }
    }

    /// Notes that the record at `handle` now has the key `key` of `db`.
    pub(crate) fn series_came(&mut self, db: usize, key: &[u8], handle: Handle) {
        let Some(id) = self.series_at(handle) else { return };
        let Some(series) = Series::of_mut(self.objects.get_mut(id)) else { return };
        if *series.name != *key {
            series.name = key.into();
        }
        self.label_changes += 1;
        if let Some(place) = self.dbs.get_mut(db) {
            place.labels.add(id, series);
        }
        each_link(series, &mut |other| self.links.add(key, other));
    }

    /// Notes that the record at `handle` is about to lose its key in `db`, or its series.
    #[inline]
    pub(crate) fn series_goes(&mut self, db: usize, handle: Handle) {
        if !self.dbs[db].labels.is_empty() {
            self.series_goes_there(db, handle);
        }
    }

    #[inline(never)]
    fn series_goes_there(&mut self, db: usize, handle: Handle) {
        let Some(id) = self.series_at(handle) else { return };
        let Some(series) = Series::of(self.objects.get(id)) else { return };
        self.label_changes += 1;
        if let Some(place) = self.dbs.get_mut(db) {
            place.labels.remove(id, series);
        }
        each_link(series, &mut |other| self.links.remove(&series.name, other));
    }

    /// Notes that a database was emptied of all its series.
    pub(crate) fn all_series_go(&mut self, db: usize) {
        self.label_changes += 1;
        for id in self.dbs.get(db).into_iter().flat_map(|place| place.labels.ids()) {
            if let Some(series) = Series::of(self.objects.get(id)) {
                each_link(series, &mut |other| self.links.remove(&series.name, other));
            }
        }
    }
}

fn each_link(series: &Series, visit: &mut dyn FnMut(&[u8])) {
    series.source.iter().for_each(|source| visit(source));
    series.rules.iter().for_each(|rule| visit(&rule.target));
}

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;
    use darter_series::{Aggregator, CompactionRule, SeriesSettings};

    use super::*;
    use crate::Keyed;
    use crate::labels::Sort;
    use crate::record::Expiry;

    const NOW: u64 = 1_700_000_000_000;

    fn place<'a>(shard: &'a mut Shard, db: usize, name: &'a str) -> Keyed<'a> {
        let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
        Keyed::find(shard, db, key, NOW)
    }

    fn put(shard: &mut Shard, name: &str, label: &str) {
        let labels = vec![((*b"host").into(), label.as_bytes().into())];
        let mut series = Series::new(SeriesSettings { labels, ..SeriesSettings::default() });
        series.rules.push(CompactionRule::new(b"target", Aggregator::Sum, 10, 0));
        place(shard, 0, name).put_object(series.wrap(), Expiry::None).expect("room");
    }

    fn found(shard: &Shard, db: usize, value: &str) -> Vec<String> {
        let matcher =
            Matcher { label: (*b"host").into(), sort: Sort::OneOf, values: vec![value.as_bytes().into()] };
        let mut found = Vec::new();
        shard.each_series(db, &[matcher], NOW, &mut |found_one| {
            found.push(String::from_utf8_lossy(&found_one.series.name).into_owned());
        });
        found.sort();
        found
    }

    #[test]
    fn the_index_and_the_links_follow_every_key() {
        let mut shard = Shard::new(2, 1, KeyHasher::new(5)).expect("address space");
        let links = shard.links.clone();
        ["a", "b", "c", "d"].iter().for_each(|name| put(&mut shard, name, "x"));
        assert_eq!(found(&shard, 0, "x"), ["a", "b", "c", "d"]);
        put(&mut shard, "a", "y");
        place(&mut shard, 0, "b").put_text(b"text", Expiry::None).expect("room");
        place(&mut shard, 0, "c").remove();
        place(&mut shard, 0, "d").set_deadline(Some(NOW + 5)).expect("room");
        assert_eq!(
            (found(&shard, 0, "x"), found(&shard, 0, "y")),
            (vec!["d".to_owned()], vec!["a".to_owned()])
        );
        let [from, to] =
            ["a", "e"].map(|name| Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) });
        assert_eq!(shard.rename((0, from), (1, to), NOW), Ok(true));
        assert_eq!(found(&shard, 1, "y"), ["e"]);
        let mut named = Vec::new();
        links.each(b"e", &mut |other| named.push(other.to_vec()));
        assert_eq!(named, [b"target"]);
        shard.swap_dbs(0, 1);
        assert_eq!((found(&shard, 0, "y").len(), found(&shard, 1, "x").len()), (1, 1));
        place(&mut shard, 0, "e").forget_links();
        assert!(links.is_any(), "d still names its target");
        assert!(shard.memory_bytes() > 0 && shard.dbs.iter().all(|db| db.labels.bytes() > 0));
        // Its time is up.
        let key = Key { bytes: b"d", hash: shard.hasher.hash(b"d") };
        assert!(!Keyed::find(&mut shard, 1, key, NOW + 10).exists());
        assert!(!links.is_any() && shard.dbs[1].labels.is_empty() && shard.dbs[1].labels.bytes() == 0);
        put(&mut shard, "f", "x");
        assert!(links.is_any());
        shard.flush_db(0);
        assert!(!links.is_any() && found(&shard, 0, "x").is_empty());
    }
}

//! Many time series read in slices as of one point in time, without a copy of their roots at the start.
//!
//! A command that has found series by their labels begins a read in each shard, with all shards held: that only hands
//! their numbers over. A slice reads some of them where they are. A change or removal of one that has not been read
//! leaves a copy of the root with the read first ([`Shard::keep_series`]). Called by command bodies (to begin) and by the
//! server (slices and the end), always with the shard held. Memory: some 24 bytes a series, and the copies.

use std::collections::BTreeMap;

use darter_series::Series;
use darter_slab::Arena;

use crate::object::{Collection, Object};
use crate::shard::Shard;
use crate::slots::SlotKeys;

use super::READERS_MAX;

/// Series of one shard that are to be read, in the order of reading.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeriesToRead {
    // The number of each in its shard, and the number that its reader has for it.
    order: Vec<(u32, u32)>,
    // The place in `order` of those that were neither read nor copied, by the number in the shard.
    places: BTreeMap<u32, u32>,
}

impl SeriesToRead {
    /// Adds the series with number `id` in its shard, which the reader calls `nth`.
    pub fn push(&mut self, id: u32, nth: u32) {
        self.places.insert(id, self.order.len() as u32);
        self.order.push((id, nth));
    }

    /// The number of series.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns true if no series was added.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// What a step of a read has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeriesStepped {
    /// All of the series is read.
    pub is_done: bool,
    /// Blocks of samples that were read.
    pub blocks: usize,
}

/// Reads a part of the series with the reader's number, at most some blocks, and writes what is wanted of it.
pub type SeriesStep = Box<dyn FnMut(u32, &Series, &Arena, &mut Vec<u8>) -> SeriesStepped + Send>;

/// A read under way.
pub(super) struct OpenSeries {
    wanted: SeriesToRead,
    // The place in the order of the series that is read next.
    next: usize,
    // The roots of series that have changed since, by their places.
    kept: BTreeMap<u32, Box<Series>>,
    // The series that is read in several steps: its number and its root.
    begun: Option<(u32, Box<Series>)>,
    step: SeriesStep,
}

/// The work of one slice: some 20 microseconds.
const WORK_MAX: usize = 48;
/// The work of a block of samples, beside that of looking at one series.
const BLOCK_WORK: usize = 6;

impl OpenSeries {
    fn is_over(&self) -> bool {
        self.begun.is_none() && self.next >= self.wanted.len()
    }

    /// Continues for one slice, or until `out` has `bytes_max`; returns true if that was all.
    fn step(
        &mut self,
        objects: &SlotKeys<Object>,
        arena: &Arena,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> bool {
        let mut work = 0;
        while work < WORK_MAX && out.len() < bytes_max {
            let stepped = if let Some((nth, root)) = &self.begun {
                let stepped = (self.step)(*nth, root, arena, out);
                self.begun.take_if(|_| stepped.is_done);
                stepped
            } else {
                let Some(&(id, nth)) = self.wanted.order.get(self.next) else { break };
                let kept = self.kept.remove(&(self.next as u32));
                self.next += 1;
                self.wanted.places.remove(&id);
                // One that is not kept has not changed, so it is there.
                let Some(root) = kept.as_deref().or_else(|| Series::of(objects.get(id))) else { continue };
                let stepped = (self.step)(nth, root, arena, out);
                if !stepped.is_done {
                    let root = Box::new(root.frozen_samples());
                    self.begun = Some((nth, root));
                }
                stepped
            };
            work += 1 + stepped.blocks * BLOCK_WORK;
        }
        self.is_over()
    }

    /// Keeps the root of series `id`, which is about to change, if it is still to be read.
    fn keep(&mut self, id: u32, root: &Series) {
        if let Some(place) = self.wanted.places.remove(&id) {
            self.kept.insert(place, Box::new(root.frozen_samples()));
        }
    }
}

impl Shard {
    /// Returns true if another read of series may begin: not too many are running.
    pub fn may_begin_series(&self) -> bool {
        self.reads.as_ref().is_none_or(|reads| reads.series.len() < READERS_MAX)
    }

    /// Begins to read these series as they are now. Returns the number of the read, for [`Shard::read_step`]. Cost: the same
    /// for any number of series.
    pub fn begin_series(&mut self, wanted: SeriesToRead, step: SeriesStep) -> u32 {
        self.arena.hold_on();
        let reads = self.reads.get_or_insert_default();
        reads.last = reads.last.wrapping_add(1).max(1);
        let open = OpenSeries { wanted, next: 0, kept: BTreeMap::new(), begun: None, step };
        reads.series.insert(reads.last, open);
        reads.last
    }

    /// Continues such a read; `None` if the number is that of another read.
    pub(super) fn series_step(&mut self, number: u32, out: &mut Vec<u8>, bytes_max: usize) -> Option<bool> {
        let open = self.reads.as_mut()?.series.get_mut(&number)?;
        Some(open.step(&self.objects, &self.arena, out, bytes_max))
    }

    /// Ends such a read; returns false if the number is that of another read.
    pub(super) fn end_series(&mut self, number: u32) -> bool {
        let is_ended = self.reads.as_mut().is_some_and(|reads| reads.series.remove(&number).is_some());
        if is_ended {
            self.arena.let_go();
        }
        is_ended
    }

    /// Notes that the samples of series `id` are about to change or to go: reads that have not come to it get a copy of its
    /// root.
    #[inline]
    pub(crate) fn keep_series(&mut self, id: u32) {
        if self.reads.as_ref().is_some_and(|reads| !reads.series.is_empty()) {
            self.keep_series_root(id);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_series_root(&mut self, id: u32) {
        let Shard { reads: Some(reads), objects, .. } = self else { return };
        if let Some(root) = Series::of(objects.get(id)) {
            reads.series.values_mut().for_each(|open| open.keep(id, root));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use darter_base::hash::KeyHasher;
    use darter_base::rng::Rng;
    use darter_series::{DuplicatePolicy, Sample, SeriesSettings};

    use super::*;
    use crate::labels::{Matcher, Sort};
    use crate::record::Expiry;
    use crate::{Key, Keyed};

    const NOW: u64 = 1_700_000_000_000;
    const SERIES: u64 = 200;

    struct Stage {
        shard: Shard,
        hasher: KeyHasher,
        rng: Rng,
    }

    /// The samples of each series, by its reader's number.
    type Contents = HashMap<u32, Vec<(u64, u64)>>;

    fn label(value: &str) -> (Box<[u8]>, Box<[u8]>) {
        ((*b"l").into(), value.as_bytes().into())
    }

    impl Stage {
        fn new(seed: u64) -> Stage {
            let hasher = KeyHasher::new(seed);
            let shard = Shard::new(2, 0, hasher).expect("address space");
            let mut stage = Stage { shard, hasher, rng: Rng::new(seed) };
            (0..SERIES).for_each(|n| stage.create(n));
            stage
        }

        fn at<R>(&mut self, n: u64, act: impl FnOnce(&mut Keyed<'_>) -> R) -> R {
            let name = format!("s{n}");
            let key = Key { bytes: name.as_bytes(), hash: self.hasher.hash(name.as_bytes()) };
            act(&mut Keyed::find(&mut self.shard, 0, key, NOW))
        }

        fn create(&mut self, n: u64) {
            let settings = SeriesSettings { labels: vec![label("x")], ..SeriesSettings::default() };
            self.at(n, |place| place.put_object(Series::new(settings).wrap(), Expiry::None).expect("room"));
            // Most are short; some have more blocks than one step reads.
            let samples = if n.is_multiple_of(20) { self.rng.below(9_000) } else { self.rng.below(300) };
            self.add(n, samples);
        }

        fn add(&mut self, n: u64, samples: u64) {
            let value = self.rng.below(1000) as f64;
            let added = self.at(n, |place| {
                place.edit(|series: &mut Series, arena, _| {
                    let next = series.newest().map_or(1, |newest| newest.time + 1);
                    for time in next..next + samples {
                        series.add(arena, Sample::new(time, value), DuplicatePolicy::Last).expect("room");
                    }
                })
            });
            assert!(added.is_ok());
        }

        /// Each series with a key, numbered; and what is in it.
        fn all(&self) -> (SeriesToRead, Contents) {
            let matcher = Matcher { label: (*b"l").into(), sort: Sort::There, values: Vec::new() };
            let (mut wanted, mut contents) = (SeriesToRead::default(), Contents::new());
            for db in 0..2 {
                self.shard.each_series(db, std::slice::from_ref(&matcher), NOW, &mut |one| {
                    let nth = contents.len() as u32;
                    wanted.push(one.id, nth);
                    contents.insert(nth, samples(one.series, &self.shard.arena));
                });
            }
            (wanted, contents)
        }

        fn change(&mut self) {
            let n = self.rng.below(SERIES);
            let samples = self.rng.below(400);
            match self.rng.below(60) {
                0 => _ = self.at(n, |place| place.remove()),
                1 => self.at(n, |place| place.put_text(b"text", Expiry::None).expect("room")),
                2 => self.create(n),
                3 => _ = self.at(n, |place| place.reshape_series(|series| series.settings.retention_ms = 9)),
                4 => {
                    let cut = |place: &mut Keyed<'_>| {
                        place.edit(|series: &mut Series, arena, _| series.remove(arena, 5, 5000))
                    };
                    _ = self.at(n, cut);
                }
                5 => {
                    let names = [n, self.rng.below(SERIES)].map(|n| format!("s{n}"));
                    let [from, to] = names.each_ref().map(|name| {
                        let name = name.as_bytes();
                        Key { bytes: name, hash: self.hasher.hash(name) }
                    });
                    self.shard.rename((0, from), (1, to), NOW).expect("room");
                }
                6 => self.shard.swap_dbs(0, 1),
                7 if self.rng.below(10) == 0 => _ = self.shard.flush_db(0),
                8 => _ = self.shard.free_some(20),
                _ if self.at(n, |place| place.kind()) == Some(Series::TYPE) => self.add(n, samples),
                _ => {}
            }
        }
    }

    fn samples(series: &Series, arena: &Arena) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        series.each(arena, 0, u64::MAX, &mut |sample| {
            all.push((sample.time, sample.value.to_bits()));
            true
        });
        all
    }

    /// Writes half of a series in its first step: its number, then times and values.
    fn step() -> SeriesStep {
        let mut begun = None;
        Box::new(move |nth, series, arena, out| {
            let all = samples(series, arena);
            let half = all.len() / 2;
            let is_done = begun.replace(nth) == Some(nth);
            let part = if is_done { &all[half..] } else { &all[..half] };
            for (time, value) in part {
                let words = [u64::from(nth), *time, *value];
                words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
            }
            SeriesStepped { is_done, blocks: 1 }
        })
    }

    fn read(out: &[u8]) -> Contents {
        let mut contents = Contents::new();
        for words in out.as_chunks::<8>().0.chunks(3) {
            let [nth, time, value] = words else { panic!("three words") };
            let [nth, time, value] = [nth, time, value].map(|word| u64::from_le_bytes(*word));
            contents.entry(nth as u32).or_default().push((time, value));
        }
        contents
    }

    #[test]
    fn many_series_are_read_as_they_were_whatever_becomes_of_them() {
        for seed in 0..20 {
            let mut stage = Stage::new(seed);
            let mut reads: Vec<(u32, Vec<u8>, Contents)> = Vec::new();
            for _ in 0..3 {
                let (wanted, contents) = stage.all();
                assert_eq!(wanted.len(), contents.len());
                let number = stage.shard.begin_series(wanted, step());
                reads.push((number, Vec::new(), contents));
                (0..stage.rng.below(200)).for_each(|_| stage.change());
            }
            while let Some((number, mut out, contents)) = reads.pop() {
                (0..stage.rng.below(60)).for_each(|_| stage.change());
                let bytes_max = out.len() + stage.rng.below(8_000) as usize + 1;
                if !stage.shard.read_step(number, &mut out, bytes_max) {
                    reads.insert(stage.rng.below(reads.len() as u64 + 1) as usize, (number, out, contents));
                    continue;
                }
                stage.shard.end_read(number);
                let found = read(&out);
                for (nth, wanted) in contents.into_iter().filter(|(_, wanted)| !wanted.is_empty()) {
                    assert!(found.get(&nth) == Some(&wanted), "seed {seed} series {nth}");
                }
            }
            // A read that nobody finishes leaves nothing behind.
            let (wanted, _) = stage.all();
            let number = stage.shard.begin_series(wanted, step());
            stage.shard.read_step(number, &mut Vec::new(), 1000);
            for db in 0..2 {
                stage.shard.flush_db(db);
            }
            stage.shard.end_read(number);
            while !stage.shard.free_some(1000) {}
            assert_eq!((stage.shard.reads_len(), stage.shard.arena.used_bytes()), (0, 0), "seed {seed}");
            assert_eq!(stage.shard.objects.len(), 0);
        }
    }

    #[test]
    fn a_shard_has_a_bounded_number_of_reads_of_series() {
        let mut stage = Stage::new(1);
        for _ in 0..READERS_MAX {
            assert!(stage.shard.may_begin_series());
            let (wanted, _) = stage.all();
            stage.shard.begin_series(wanted, step());
        }
        assert!(!stage.shard.may_begin_series());
    }
}

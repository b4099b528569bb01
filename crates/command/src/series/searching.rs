//! Series found by their labels in slices, for TS.MGET, TS.MRANGE, TS.QUERYINDEX and TS.QUERYLABELS.
//!
//! The index of each shard is read 64 series at a time. If a series comes, goes or gets other labels meanwhile, the
//! command starts again, so what is found is the state of its last step. Called by these commands (to begin and to
//! end) and by `Incremental`. Memory: the names, and the labels that are answered.

use std::collections::BTreeMap;

use darter_series::{Sample, Series};
use darter_store::labels::{LabelPlace, Matcher};
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use super::labelled::{begin_entries, begin_set};
use super::write_sample;
use crate::Ctx;
use crate::incremental::FoundValue;
use crate::incremental::operation::{NextSlice, Operation, OperationStage, ResultTo};

/// Series that are looked at in one slice: some 20 microseconds.
const SERIES_PER_SLICE: usize = 64;
/// Searches that look at more series run in slices.
const SERIES_MAX: usize = 256;
/// Names that are taken out of the sorted ones in some 100 microseconds, without a shard.
const NAMES_AT_ONCE: usize = 1024;

/// Writes what a command answers for a series before its samples.
pub(super) type WriteHead = Box<dyn Fn(&Series, &mut Vec<u8>) + Send>;
/// Visits the words of a series that are answered, each once for all series.
pub(super) type EachWord = Box<dyn Fn(&Series, &mut dyn FnMut(&[u8])) + Send>;

/// The wanted parts of the series that are found.
pub(super) enum SearchSubject {
    /// The reply: a set of words.
    Words(EachWord),
    /// Their places and heads, for the body that runs again.
    Series(WriteHead),
}

/// A search in progress.
struct LabelSearch {
    db: usize,
    now_ms: u64,
    matchers: Vec<Matcher>,
    subject: SearchSubject,
    resp3: bool,
    // The shard that is looked at next, and the place in it.
    shard: u16,
    shards_len: u16,
    place: LabelPlace,
    // The counter of changes of each shard, from before its first slice.
    changes: Vec<u64>,
    due_ms: u64,
    is_broken: bool,
    // What was found, by word or name.
    found: BTreeMap<Box<[u8]>, FoundSeries>,
    found_bytes: usize,
    // The result.
    out: Vec<u8>,
    has_begun: bool,
}

/// A series that was found.
#[derive(Default)]
struct FoundSeries {
    shard: u16,
    id: u32,
    head: Box<[u8]>,
}

impl Operation for LabelSearch {
    fn next(&self, _draft_shard: Option<u16>) -> NextSlice {
        if self.shard < self.shards_len && !self.is_broken {
            NextSlice::Step(self.shard)
        } else {
            NextSlice::Work
        }
    }

    fn take(&mut self, _nth: u32, _told: &[u8], _args: Args<'_>) -> Vec<u8> {
        Vec::new()
    }

    fn step(&mut self, part: &mut ShardPart, _draft: Option<u32>) {
        let LabelSearch { subject, found, due_ms, shard, .. } = self;
        let mut bytes = 0;
        let changes = part.shard.label_changes();
        if self.changes.len() == usize::from(*shard) {
            self.changes.push(changes);
        }
        if self.changes.last() != Some(&changes) {
            self.is_broken = true;
            return;
        }
        let is_done = part.shard.some_series(
            (self.db, &self.matchers),
            &mut self.place,
            SERIES_PER_SLICE,
            self.now_ms,
            &mut |one| {
                *due_ms = one.deadline_ms.unwrap_or(u64::MAX).min(*due_ms);
                match subject {
                    SearchSubject::Words(each) => each(one.series, &mut |word| {
                        if !found.contains_key(word) {
                            bytes += word.len();
                            found.insert(word.into(), FoundSeries::default());
                        }
                    }),
                    SearchSubject::Series(write) => {
                        let mut head = Vec::new();
                        write(one.series, &mut head);
                        bytes += one.series.name.len() + head.len();
                        let series = FoundSeries { shard: *shard, id: one.id, head: head.into() };
                        found.insert(one.series.name.clone(), series);
                    }
                }
            },
        );
        self.found_bytes += bytes;
        if is_done {
            (self.shard, self.place) = (self.shard + 1, LabelPlace::default());
        }
    }

    fn end_reading(&mut self, _target: ResultTo, _reply: &mut Reply<'_>, _max: usize) -> OperationStage {
        if !std::mem::replace(&mut self.has_begun, true)
            && let SearchSubject::Words(_) = self.subject
        {
            begin_set(&mut Reply::new(&mut self.out, self.resp3), self.found.len());
        }
        for _ in 0..NAMES_AT_ONCE {
            let Some((name, series)) = self.found.pop_first() else { return OperationStage::Done };
            match self.subject {
                SearchSubject::Words(_) => Reply::new(&mut self.out, self.resp3).bulk(&name),
                SearchSubject::Series(_) => {
                    let len = |text: &[u8]| (text.len() as u32).to_le_bytes();
                    self.out.extend_from_slice(&u32::from(series.shard).to_le_bytes());
                    self.out.extend_from_slice(&series.id.to_le_bytes());
                    self.out.extend_from_slice(&len(&name));
                    self.out.extend_from_slice(&len(&series.head));
                    self.out.extend_from_slice(&name);
                    self.out.extend_from_slice(&series.head);
                }
            }
        }
        if self.is_broken { OperationStage::Done } else { OperationStage::Reading }
    }

    fn is_stale(&self, ctx: &mut Ctx<'_>, _draft_shard: Option<u16>) -> bool {
        let mut is_stale = self.is_broken || self.due_ms <= ctx.now_ms;
        ctx.each_part(|shard, part| {
            is_stale |= self.changes.get(usize::from(shard)) != Some(&part.shard.label_changes());
        });
        is_stale
    }

    fn found(&mut self) -> FoundValue {
        FoundValue { bytes: std::mem::take(&mut self.out), ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        self.found_bytes + self.found.len() * size_of::<(Box<[u8]>, FoundSeries)>() + self.out.capacity()
    }
}

impl Ctx<'_> {
    /// Leaves the search for the series that all `matchers` take to slices, if it has to look at many; returns whether it
    /// did. The body runs again with the result.
    pub(super) fn search_series(
        &mut self,
        matchers: &[Matcher],
        subject: SearchSubject,
        (args, reply): (Args<'_>, &Reply<'_>),
    ) -> bool {
        let (db, mut len) = (self.db, 0);
        if !self.may_slice {
            return false;
        }
        self.each_part(|_, part| len += part.shard.series_len(db, matchers));
        if len <= SERIES_MAX {
            return false;
        }
        let search = LabelSearch {
            db,
            now_ms: self.now_ms,
            matchers: matchers.to_vec(),
            subject,
            resp3: reply.is_resp3(),
            shard: 0,
            shards_len: self.shards_len(),
            place: LabelPlace::default(),
            changes: Vec::new(),
            due_ms: u64::MAX,
            is_broken: false,
            found: BTreeMap::new(),
            found_bytes: 0,
            out: Vec::new(),
            has_begun: false,
        };
        self.find_later(args, Box::new(search));
        true
    }
}

/// A series that slices have found.
pub(super) struct SearchedSeries<'a> {
    /// Its shard.
    pub shard: u16,
    /// Its number there.
    pub id: u32,
    /// Its key.
    pub name: &'a [u8],
    /// The reply before its samples.
    pub head: &'a [u8],
}

/// The series in the result of a search.
pub(super) struct SearchedAll<'a>(pub &'a [u8]);

impl<'a> Iterator for SearchedAll<'a> {
    type Item = SearchedSeries<'a>;

    fn next(&mut self) -> Option<SearchedSeries<'a>> {
        let (numbers, rest) = self.0.split_first_chunk::<16>()?;
        let (words, _) = numbers.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        let (shard, id) = (words.next()?, words.next()?);
        let (name, rest) = rest.split_at_checked(words.next()? as usize)?;
        let (head, rest) = rest.split_at_checked(words.next()? as usize)?;
        self.0 = rest;
        Some(SearchedSeries { shard: u16::try_from(shard).ok()?, id, name, head })
    }
}

/// The answer of TS.MGET: the heads of the series, and the sample of each.
pub(super) struct LastSamples {
    found: Vec<u8>,
    samples: Vec<Option<Sample>>,
    // The next series, and its place in `found`.
    nth: usize,
    at: usize,
}

impl LastSamples {
    /// Of the series `found` by a search.
    pub fn new(found: Vec<u8>, samples: Vec<Option<Sample>>) -> LastSamples {
        LastSamples { found, samples, nth: 0, at: 0 }
    }
}

impl Operation for LastSamples {
    fn take(&mut self, _nth: u32, _told: &[u8], _args: Args<'_>) -> Vec<u8> {
        Vec::new()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        if self.nth == 0 {
            begin_entries(reply, self.samples.len());
        }
        let mut all = SearchedAll(self.found.get(self.at..).unwrap_or_default());
        while reply.len() < bytes_max
            && let Some(one) = all.next()
        {
            reply.raw(one.head);
            match self.samples.get(self.nth).copied().flatten() {
                Some(sample) => write_sample(reply, sample),
                None => reply.array(0),
            }
            self.nth += 1;
        }
        self.at = self.found.len() - all.0.len();
        all.0.is_empty()
    }

    fn bytes(&self) -> usize {
        self.found.capacity() + self.samples.capacity() * size_of::<Option<Sample>>()
    }
}

/// The values of a label, or the names of all labels, as words of a search.
pub(super) fn label_words(label: Option<&[u8]>) -> EachWord {
    let label: Option<Box<[u8]>> = label.map(Box::from);
    Box::new(move |series, visit| match &label {
        Some(label) => series.label(label).into_iter().for_each(visit),
        None => series.settings.labels.iter().for_each(|(name, _)| visit(name)),
    })
}

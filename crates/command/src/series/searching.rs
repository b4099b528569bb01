//! Series found by their labels in slices, for TS.MGET, TS.MRANGE, TS.QUERYINDEX and TS.QUERYLABELS.
//!
//! The index of each shard is read 64 series at a time. If a series comes, goes or gets other labels meanwhile, the
//! command starts again, so what is found is the state of its last step. Called by these commands (to begin and to
//! end) and by `Incremental`. Memory: the names, and the labels that are answered.

use std::collections::BTreeMap;

use darter_series::Series;
use darter_store::labels::{LabelPlace, Matcher};
use darter_store::reads::SeriesToRead;
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use super::labelled::begin_set;
use crate::Ctx;
use crate::incremental::FoundValue;
use crate::incremental::operation::{NextSlice, Operation, OperationStage, ResultTo};

/// Series that are looked at in one slice: some 20 microseconds.
const SERIES_PER_SLICE: usize = 64;
/// Searches that look at more series run in slices.
pub(super) const SERIES_MAX: usize = 256;
/// Names that are taken out of the sorted ones in some 100 microseconds, without a shard.
const NAMES_AT_ONCE: usize = 512;

/// Bytes that a series takes in the result beside its name and head.
const NAMED_BYTES: usize = 32;

/// Writes what a command answers for a series before its samples.
pub(super) type WriteHead = Box<dyn Fn(&Series, &mut Vec<u8>) + Send>;
/// Visits the words of a series that are answered, each once for all series.
pub(super) type EachWord = Box<dyn Fn(&Series, &mut dyn FnMut(&[u8])) + Send>;

/// The wanted parts of the series that are found.
pub(super) enum SearchSubject {
    /// The reply: a set of words.
    Words(EachWord),
    /// Their numbers and heads, for the body that runs again.
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
    // The result, with the series of each shard in the order of their names.
    out: Vec<u8>,
    series: Vec<SeriesToRead>,
    // The number and the place in `out` of each series that another one feeds.
    fed: Vec<u64>,
    named: u32,
    has_begun: bool,
}

/// A series that was found.
#[derive(Default)]
struct FoundSeries {
    shard: u16,
    id: u32,
    is_fed: bool,
    head: Box<[u8]>,
}

impl LabelSearch {
    /// Puts the next names into the result; returns true if those were the last.
    fn name_some(&mut self) -> bool {
        if !std::mem::replace(&mut self.has_begun, true) {
            match self.subject {
                SearchSubject::Words(_) => {
                    begin_set(&mut Reply::new(&mut self.out, self.resp3), self.found.len());
                }
                SearchSubject::Series(_) => {
                    self.series.resize(usize::from(self.shards_len), SeriesToRead::default());
                }
            }
        }
        for _ in 0..NAMES_AT_ONCE {
            let Some((name, found)) = self.found.pop_first() else { return true };
            if let SearchSubject::Words(_) = self.subject {
                Reply::new(&mut self.out, self.resp3).bulk(&name);
                continue;
            }
            if found.is_fed {
                self.fed.extend([u64::from(self.named), self.out.len() as u64]);
            }
            for text in [&*name, &*found.head] {
                self.out.extend_from_slice(&(text.len() as u32).to_le_bytes());
                self.out.extend_from_slice(text);
            }
            if let Some(there) = self.series.get_mut(usize::from(found.shard)) {
                there.push(found.id, self.named);
            }
            self.named += 1;
        }
        self.is_broken
    }

    /// Searches all at once.
    fn run(mut self, ctx: &mut Ctx<'_>) -> FoundValue {
        ctx.each_part(|shard, part| {
            self.shard = shard;
            while self.shard == shard {
                self.look(part);
            }
        });
        while !self.name_some() {}
        self.found()
    }

    /// Looks at the next series of a shard.
    fn look(&mut self, part: &mut ShardPart) {
        let LabelSearch { subject, found, due_ms, shard, .. } = self;
        let mut bytes = 0;
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
                        let is_fed = one.series.source.is_some();
                        let series = FoundSeries { shard: *shard, id: one.id, is_fed, head: head.into() };
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
        let changes = part.shard.label_changes();
        if self.changes.len() == usize::from(self.shard) {
            self.changes.push(changes);
        }
        if self.changes.last() == Some(&changes) {
            self.look(part);
        } else {
            self.is_broken = true;
        }
    }

    fn end_reading(&mut self, _target: ResultTo, _reply: &mut Reply<'_>, _max: usize) -> OperationStage {
        if self.name_some() { OperationStage::Done } else { OperationStage::Reading }
    }

    fn is_stale(&self, ctx: &mut Ctx<'_>, _draft_shard: Option<u16>) -> bool {
        let mut is_stale = self.is_broken || self.due_ms <= ctx.now_ms;
        ctx.each_part(|shard, part| {
            is_stale |= self.changes.get(usize::from(shard)) != Some(&part.shard.label_changes());
        });
        is_stale
    }

    fn found(&mut self) -> FoundValue {
        FoundValue {
            bytes: std::mem::take(&mut self.out),
            numbers: std::mem::take(&mut self.fed),
            series: std::mem::take(&mut self.series),
        }
    }

    fn bytes(&self) -> usize {
        let series =
            self.found.len() * size_of::<(Box<[u8]>, FoundSeries)>() + self.named as usize * NAMED_BYTES;
        self.found_bytes + series + self.out.capacity()
    }
}

impl Ctx<'_> {
    /// Leaves the search for words of the series that all `matchers` take to slices, if it has to look at many; returns
    /// whether it did. The body runs again with the reply.
    pub(super) fn search_words(
        &mut self,
        matchers: &[Matcher],
        words: EachWord,
        (args, reply): (Args<'_>, &Reply<'_>),
    ) -> bool {
        let is_long = self.is_long_search(matchers);
        if is_long {
            let search = self.new_search(matchers, SearchSubject::Words(words), reply);
            self.find_later(args, Box::new(search));
        }
        is_long
    }

    /// The series that all `matchers` take: `bytes` for [`SearchedAll`], in `numbers` the number and the place in `bytes` of
    /// each series that another one feeds. `None` if the search is left to slices: the body runs again with the result.
    pub(super) fn search_series(
        &mut self,
        matchers: &[Matcher],
        head: WriteHead,
        (args, reply): (Args<'_>, &Reply<'_>),
    ) -> Option<FoundValue> {
        if let Some(staged) = self.staged.take() {
            return Some(staged.found);
        }
        let is_long = self.is_long_search(matchers);
        let search = self.new_search(matchers, SearchSubject::Series(head), reply);
        if is_long {
            self.find_later(args, Box::new(search));
            return None;
        }
        Some(search.run(self))
    }

    fn is_long_search(&mut self, matchers: &[Matcher]) -> bool {
        let (db, mut len) = (self.db, 0);
        if self.may_slice {
            self.each_part(|_, part| len += part.shard.series_len(db, matchers));
        }
        len > SERIES_MAX
    }

    fn new_search(&self, matchers: &[Matcher], subject: SearchSubject, reply: &Reply<'_>) -> LabelSearch {
        LabelSearch {
            db: self.db,
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
            series: Vec::new(),
            fed: Vec::new(),
            named: 0,
            has_begun: false,
        }
    }
}

/// A series that was found.
pub(super) struct SearchedSeries<'a> {
    /// Its key.
    pub name: &'a [u8],
    /// The reply before its samples.
    pub head: &'a [u8],
}

/// The series in the result of a search, in the order of their names.
#[derive(Clone, Copy)]
pub(super) struct SearchedAll<'a>(pub &'a [u8]);

impl<'a> Iterator for SearchedAll<'a> {
    type Item = SearchedSeries<'a>;

    fn next(&mut self) -> Option<SearchedSeries<'a>> {
        let mut rest = self.0;
        let [name, head] = [text_at(&mut rest)?, text_at(&mut rest)?];
        self.0 = rest;
        Some(SearchedSeries { name, head })
    }
}

/// The text that begins at `rest`, which is moved behind it.
fn text_at<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk::<4>()?;
    let (text, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *rest = after;
    Some(text)
}

/// The values of a label, or the names of all labels, as words of a search.
pub(super) fn label_words(label: Option<&[u8]>) -> EachWord {
    let label: Option<Box<[u8]>> = label.map(Box::from);
    Box::new(move |series, visit| match &label {
        Some(label) => series.label(label).into_iter().for_each(visit),
        None => series.settings.labels.iter().for_each(|(name, _)| visit(name)),
    })
}

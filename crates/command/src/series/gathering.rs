//! TS.MGET, TS.MRANGE and TS.MREVRANGE over many series in slices, as of the moment the series were found.
//!
//! The read of each shard begins with all shards held, and costs nothing for a series (`store::reads::SeriesToRead`).
//! Slices then take from the shard whose next series has the first name, so that rows for groups can be joined in the
//! order of the names and need not be kept. Called by these commands (to begin) and by `Incremental`. Memory: names,
//! labels and rows of the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use darter_series::query::{QueryProgress, SeriesQuery};
use darter_series::{Sample, Series};
use darter_store::Arena;
use darter_store::reads::{SeriesStep, SeriesStepped};
use darter_wire::{Args, Reply};

use super::groups::Groups;
use super::labelled::{NO_RIGHT, begin_entries, group_of};
use super::ranging::{push_rows, row_bytes, row_of, write_some_rows};
use super::searching::SearchedAll;
use super::{TOO_MANY, write_sample};
use crate::incremental::FoundValue;
use crate::incremental::operation::{NextSlice, Operation, OperationStage, ResultTo};
use crate::{Ctx, Fault, MayRead};

/// Samples that count as the newest of their series, by the series' numbers.
pub(super) type LatestSamples = BTreeMap<u32, Sample>;
/// Writes all groups.
pub(super) type WriteGroups = Box<dyn Fn(&Groups, &mut Reply<'_>) + Send>;

/// The answer about each series.
pub(super) enum GatheredForm {
    /// The newest sample.
    Newest,
    /// Rows, of all series or only of those that have some.
    Each(Empties),
    /// Rows of groups, written by the function.
    Grouped(Groups, WriteGroups),
}

/// The treatment of series without rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Empties {
    Shown,
    Hidden,
}

/// Names that are looked at in some 100 microseconds, without a shard.
const NAMES_AT_ONCE: usize = 512;
/// Series that get room for their rows at once.
const ROOM_AT_ONCE: usize = 4096;
/// Blocks of samples that a step of a query reads.
const BLOCKS_PER_STEP: usize = 4;

/// A part of the rows of a series, as a read writes it.
struct Frame<'a> {
    // The series' number.
    nth: u32,
    progress: SeriesProgress,
    rows: &'a [u8],
}

/// How far a series is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum SeriesProgress {
    #[default]
    GoesOn = 0,
    Done = 1,
    /// It has too many rows.
    Failed = 2,
}

impl<'a> Frame<'a> {
    /// Writes a part of series `nth`: `rows` adds its bytes.
    fn write(out: &mut Vec<u8>, nth: u32, progress: SeriesProgress, rows: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(&nth.to_le_bytes());
        out.push(progress as u8);
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        rows(out);
        let len = (out.len() - at - 4) as u32;
        if let Some(place) = out.get_mut(at..at + 4) {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }

    /// The frame that begins at `told`, which is moved behind it.
    fn take(told: &mut &'a [u8]) -> Option<Frame<'a>> {
        let (nth, rest) = told.split_first_chunk::<4>()?;
        let (progress, rest) = rest.split_first()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (rows, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        *told = rest;
        let progress = match progress {
            0 => SeriesProgress::GoesOn,
            1 => SeriesProgress::Done,
            _ => SeriesProgress::Failed,
        };
        Some(Frame { nth: u32::from_le_bytes(*nth), progress, rows })
    }
}

/// The read of one shard.
#[derive(Clone, Copy)]
struct ShardRead {
    // Series that are not read to their end.
    left: usize,
    // The number of the last one that is.
    last: u32,
}

/// The rows of a series so far.
#[derive(Clone, Default)]
struct GatheredSeries {
    rows: Vec<u8>,
    progress: SeriesProgress,
}

/// An answer in the making.
struct Gathering {
    // For `SearchedAll`.
    found: Vec<u8>,
    query: SeriesQuery,
    form: GatheredForm,
    reads: Vec<ShardRead>,
    // Asked about each name before anything is read, up to this place in `found`.
    may_read: Option<MayRead>,
    asked_to: usize,
    is_prepared: bool,
    series: Vec<GatheredSeries>,
    series_len: usize,
    fault: Option<Fault>,
    // The series that is joined or answered next, its place in `found`, and its next row once its head is written.
    nth: usize,
    at: usize,
    row: Option<usize>,
    has_begun: bool,
    bytes: usize,
}

/// Leaves the answer about the series that were found to slices; gives them back if that is impossible.
pub(super) fn leave(
    ctx: &mut Ctx<'_>,
    found: FoundValue,
    (query, latest): (&SeriesQuery, LatestSamples),
    form: GatheredForm,
    reply: &Reply<'_>,
) -> Result<(), (FoundValue, LatestSamples)> {
    let mut is_possible = true;
    ctx.each_part(|_, part| is_possible &= part.shard.may_begin_series());
    if !is_possible {
        return Err((found, latest));
    }
    let latest = Arc::new(latest);
    let (mut places, mut reads, mut series_len) = (Vec::new(), Vec::new(), 0);
    for (shard, wanted) in (0..).zip(found.series) {
        let left = wanted.len();
        let Some(part) = ctx.part(shard).filter(|_| left > 0) else { continue };
        let step = match form {
            GatheredForm::Newest => newest_step(Arc::clone(&latest)),
            GatheredForm::Each(_) | GatheredForm::Grouped(..) => {
                rows_step(query.clone(), Arc::clone(&latest))
            }
        };
        places.push((shard, part.shard.begin_series(wanted, step)));
        reads.push(ShardRead { left, last: 0 });
        series_len += left;
    }
    let gathering = Gathering {
        bytes: found.bytes.len(),
        found: found.bytes,
        query: query.clone(),
        form,
        reads,
        may_read: ctx.may_read.take(),
        asked_to: 0,
        is_prepared: false,
        series: Vec::new(),
        series_len,
        fault: None,
        nth: 0,
        at: 0,
        row: None,
        has_begun: false,
    };
    ctx.follow_reads(&places, Box::new(gathering), reply);
    Ok(())
}

/// Reads the newest sample of a series.
fn newest_step(latest: Arc<LatestSamples>) -> SeriesStep {
    Box::new(move |nth, series, _, out| {
        let sample = newest(series, latest.get(&nth).copied());
        Frame::write(out, nth, SeriesProgress::Done, |out| {
            if let Some(Sample { time, value }) = sample {
                out.extend_from_slice(&time.to_le_bytes());
                out.extend_from_slice(&value.to_le_bytes());
            }
        });
        SeriesStepped { is_done: true, blocks: 0 }
    })
}

/// The newest sample of a series; `latest` counts as one of it.
pub(super) fn newest(series: &Series, latest: Option<Sample>) -> Option<Sample> {
    latest.or(series.newest().filter(|_| !series.is_empty()))
}

/// Reads some rows of a series.
fn rows_step(mut query: SeriesQuery, latest: Arc<LatestSamples>) -> SeriesStep {
    let (mut reads, mut running) = (None, QueryProgress::default());
    Box::new(move |nth, series: &Series, arena: &Arena, out: &mut Vec<u8>| {
        if reads != Some(nth) {
            (reads, running) = (Some(nth), QueryProgress::default());
            query.latest = latest.get(&nth).copied();
        }
        let progress = match query.step(&mut running, series, arena) {
            Ok(true) => SeriesProgress::Done,
            Ok(false) => SeriesProgress::GoesOn,
            Err(_) => SeriesProgress::Failed,
        };
        Frame::write(out, nth, progress, |out| push_rows(out, &running.take()));
        let blocks = series.blocks_within(query.from, query.to).min(BLOCKS_PER_STEP);
        SeriesStepped { is_done: progress != SeriesProgress::GoesOn, blocks }
    })
}

impl Gathering {
    /// Continues with what comes before the first read.
    fn prepare(&mut self) {
        self.series.reserve_exact(self.series_len - self.series.len());
        let len = self.series_len.min(self.series.len() + ROOM_AT_ONCE);
        self.series.resize(len, GatheredSeries::default());
        let mut all = SearchedAll(self.found.get(self.asked_to..).unwrap_or_default());
        if let Some(may_read) = &self.may_read {
            if !all.by_ref().take(NAMES_AT_ONCE).all(|one| may_read(one.name)) {
                self.fault = Some(NO_RIGHT);
            }
            self.asked_to = self.found.len() - all.0.len();
        }
        let has_asked = self.may_read.is_none() || all.0.is_empty();
        self.is_prepared = self.fault.is_some() || has_asked && len == self.series_len;
    }

    /// Joins the rows of the next series into their groups, as far as these are read.
    fn join(&mut self) {
        let GatheredForm::Grouped(groups, _) = &mut self.form else { return };
        while let Some(series) = self.series.get_mut(self.nth) {
            let mut all = SearchedAll(self.found.get(self.at..).unwrap_or_default());
            let Some(one) = all.next() else { return };
            if let Some(value) = group_of(one.head) {
                self.row.get_or_insert_with(|| {
                    groups.add_series(value, one.name);
                    0
                });
                for row in series.rows.chunks_exact(row_bytes(&self.query)) {
                    let (time, numbers) = row_of(row);
                    groups.add_row(value, time, numbers);
                }
            }
            self.bytes -= series.rows.len();
            series.rows = Vec::new();
            if series.progress == SeriesProgress::GoesOn {
                return;
            }
            (self.nth, self.at, self.row) = (self.nth + 1, self.found.len() - all.0.len(), None);
        }
    }

    /// Writes the head of the answer.
    fn begin(&mut self, reply: &mut Reply<'_>) {
        self.has_begun = true;
        let is_hidden = |series: &&GatheredSeries| series.rows.is_empty();
        let hidden = match self.form {
            GatheredForm::Each(Empties::Hidden) => self.series.iter().filter(is_hidden).count(),
            _ => 0,
        };
        begin_entries(reply, self.series.len() - hidden);
    }
}

impl Operation for Gathering {
    fn next(&self, _draft_shard: Option<u16>) -> NextSlice {
        if self.fault.is_some() {
            // The reads end unread.
            return NextSlice::Read;
        }
        let unread = (0..).zip(&self.reads).filter(|(_, read)| read.left > 0);
        match unread.min_by_key(|(_, read)| read.last) {
            Some((nth, _)) if self.is_prepared => NextSlice::ReadOf(nth),
            _ => NextSlice::Work,
        }
    }

    fn take(&mut self, nth: u32, mut told: &[u8], _args: Args<'_>) -> Vec<u8> {
        while let Some(frame) = Frame::take(&mut told) {
            let Some(series) = self.series.get_mut(frame.nth as usize) else { break };
            series.rows.extend_from_slice(frame.rows);
            series.progress = frame.progress;
            self.bytes += frame.rows.len();
            if let Some(read) = self.reads.get_mut(nth as usize)
                && frame.progress != SeriesProgress::GoesOn
            {
                *read = ShardRead { left: read.left.saturating_sub(1), last: frame.nth };
            }
            if frame.progress == SeriesProgress::Failed {
                self.fault = Some(TOO_MANY);
            }
        }
        self.join();
        Vec::new()
    }

    fn is_decided(&self) -> bool {
        self.fault.is_some()
    }

    fn end_reading(&mut self, _target: ResultTo, reply: &mut Reply<'_>, bytes_max: usize) -> OperationStage {
        if !self.is_prepared {
            self.prepare();
            return OperationStage::Reading;
        }
        if let Some(fault) = &self.fault {
            reply.error(fault.line().as_bytes());
            return OperationStage::Done;
        }
        if let GatheredForm::Grouped(groups, write) = &self.form {
            write(groups, reply);
            return OperationStage::Done;
        }
        self.begin(reply);
        if self.answer(reply, bytes_max) { OperationStage::Done } else { OperationStage::Answering }
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        while let Some(series) = self.series.get(self.nth) {
            if reply.len() >= bytes_max {
                return false;
            }
            let mut all = SearchedAll(self.found.get(self.at..).unwrap_or_default());
            let Some(one) = all.next() else { return true };
            let is_hidden =
                matches!(self.form, GatheredForm::Each(Empties::Hidden)) && series.rows.is_empty();
            if self.row.is_none() && !is_hidden {
                reply.raw(one.head);
            }
            self.row = match self.form {
                _ if is_hidden => None,
                GatheredForm::Newest => {
                    let (time, mut numbers) = row_of(&series.rows);
                    match numbers.next() {
                        Some(value) => write_sample(reply, Sample::new(time, value)),
                        None => reply.array(0),
                    }
                    None
                }
                GatheredForm::Each(_) | GatheredForm::Grouped(..) => {
                    write_some_rows(reply, &self.query, &series.rows, self.row, bytes_max)
                }
            };
            if self.row.is_some() {
                return false;
            }
            (self.nth, self.at) = (self.nth + 1, self.found.len() - all.0.len());
        }
        true
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn bytes(&self) -> usize {
        self.bytes + self.series_len * size_of::<GatheredSeries>()
    }
}

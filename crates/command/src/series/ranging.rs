//! TS.RANGE and TS.MRANGE over many samples, in slices: each series is read as it was when the command began.
//!
//! Called by these commands (to begin) and by `Incremental`. The blocks of a series never change, so a copy of its root
//! is all that a read needs; writers wait for nobody. Memory: the rows of the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use darter_series::Series;
use darter_series::query::{QueryProgress, SeriesQuery};
use darter_store::{Key, Shard};
use darter_wire::{Args, Reply};

use super::groups::Groups;
use super::{TOO_MANY, write_number};
use crate::Ctx;
use crate::incremental::Operation;

/// Blocks of samples that are read at once: some 50 microseconds.
pub(super) const BLOCKS_AT_ONCE: usize = 16;
/// Bytes of a time or a number.
pub(super) const WORD: usize = 8;

/// One of the series.
pub(super) struct SeriesSource {
    /// Its key.
    pub name: Box<[u8]>,
    /// Its query.
    pub query: SeriesQuery,
    /// The reply before its rows.
    pub head: Vec<u8>,
    /// The value of the label that it is grouped by.
    pub group: Box<[u8]>,
}

/// The form of the answer.
pub(super) enum RangeShape {
    /// The rows of one series.
    One,
    /// All series, or only those that have rows.
    Each(Empties),
    /// Groups, written by the function.
    Grouped(Groups, WriteGroups),
}

/// Writes all groups.
pub(super) type WriteGroups = Box<dyn Fn(&Groups, &mut Reply<'_>) + Send>;

/// The treatment of series without rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Empties {
    Shown,
    Hidden,
}

/// A series that has been read, or is being read.
struct SeriesRead {
    query: SeriesQuery,
    head: Vec<u8>,
    group: Box<[u8]>,
    // Each row: the time, then its numbers.
    rows: Vec<u8>,
}

/// An answer in the making.
struct Ranging {
    reads: Vec<SeriesRead>,
    shape: RangeShape,
    row_bytes: usize,
    too_many: Arc<AtomicBool>,
    // The series that is being answered, and its next row; `None` before its head is written.
    at: usize,
    row: Option<usize>,
    has_begun: bool,
    // Bytes of the heads and rows.
    bytes: usize,
}

/// Leaves the answer about these series to slices; false if that is impossible.
pub(super) fn leave(
    ctx: &mut Ctx<'_>,
    sources: Vec<SeriesSource>,
    shape: RangeShape,
    reply: &Reply<'_>,
) -> bool {
    let too_many = Arc::new(AtomicBool::new(false));
    let width = sources.first().and_then(|source| source.query.buckets.as_ref()).map_or(1, |b| b.kinds.len());
    let queries: Vec<(Box<[u8]>, SeriesQuery)> =
        sources.iter().map(|source| (source.name.clone(), source.query.clone())).collect();
    let reads = sources.into_iter().map(|source| {
        let SeriesSource { query, head, group, .. } = source;
        SeriesRead { query, head, group, rows: Vec::new() }
    });
    let reads: Vec<SeriesRead> = reads.collect();
    let ranging = Ranging {
        bytes: reads.iter().map(|read| read.head.len()).sum(),
        reads,
        shape,
        row_bytes: WORD * (1 + width),
        too_many: Arc::clone(&too_many),
        at: 0,
        row: None,
        has_begun: false,
    };
    let names: Vec<&[u8]> = queries.iter().map(|(name, _)| &**name).collect();
    let mut begin = |nth: usize, shard: &mut Shard, db: usize, key: Key<'_>| {
        let (_, query) = queries.get(nth)?;
        begin_rows(shard, (db, key), query.clone(), &too_many)
    };
    ctx.read_later(&names, &mut begin, Box::new(ranging), reply)
}

/// Begins the read of a query's rows: of each the time, then its numbers. `too_many` is set if there are too many.
pub(super) fn begin_rows(
    shard: &mut Shard,
    (db, key): (usize, Key<'_>),
    query: SeriesQuery,
    too_many: &Arc<AtomicBool>,
) -> Option<u32> {
    let (too_many, mut running) = (Arc::clone(too_many), QueryProgress::default());
    shard.begin_frozen(db, key, move |series: &Series, arena, out, _| {
        let Ok(is_done) = query.step(&mut running, series, arena) else {
            too_many.store(true, Ordering::Relaxed);
            return true;
        };
        for (time, numbers) in running.take().iter() {
            out.extend_from_slice(&time.to_le_bytes());
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        }
        is_done
    })
}

fn words(row: &[u8]) -> impl Iterator<Item = [u8; WORD]> {
    row.as_chunks::<WORD>().0.iter().copied()
}

/// The time of a row and its numbers.
pub(super) fn row_of(row: &[u8]) -> (u64, impl Iterator<Item = f64>) {
    let mut words = words(row);
    (words.next().map_or(0, u64::from_le_bytes), words.map(f64::from_le_bytes))
}

impl Ranging {
    /// Rows of the series to answer.
    fn rows_len(&self, read: &SeriesRead) -> usize {
        (read.rows.len() / self.row_bytes).min(read.query.count.unwrap_or(usize::MAX))
    }

    /// Row `number` of the series to answer.
    fn row<'r>(&self, read: &'r SeriesRead, number: usize) -> &'r [u8] {
        let all = read.rows.len() / self.row_bytes;
        let number = if read.query.is_backwards() { all - 1 - number } else { number };
        read.rows.get(number * self.row_bytes..(number + 1) * self.row_bytes).unwrap_or_default()
    }

    fn begin(&mut self, reply: &mut Reply<'_>) {
        self.has_begun = true;
        if let RangeShape::Each(empties) = self.shape {
            if empties == Empties::Hidden {
                self.reads.retain(|read| !read.rows.is_empty());
            }
            if reply.is_resp3() { reply.map(self.reads.len()) } else { reply.array(self.reads.len()) }
        }
    }
}

impl Operation for Ranging {
    fn take(&mut self, nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        let Some(read) = self.reads.get_mut(nth as usize) else { return Vec::new() };
        match &mut self.shape {
            RangeShape::Grouped(groups, _) => {
                for row in told.chunks_exact(self.row_bytes) {
                    let (time, numbers) = row_of(row);
                    groups.add_row(&read.group, time, numbers);
                }
            }
            RangeShape::One | RangeShape::Each(_) => {
                read.rows.extend_from_slice(told);
                self.bytes += told.len();
            }
        }
        Vec::new()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        if !self.has_begun {
            if self.too_many.load(Ordering::Relaxed) {
                reply.error(TOO_MANY.line().as_bytes());
                return true;
            }
            if let RangeShape::Grouped(groups, write) = &self.shape {
                write(groups, reply);
                return true;
            }
            self.begin(reply);
        }
        while let Some(read) = self.reads.get(self.at) {
            let len = self.rows_len(read);
            let first = self.row.unwrap_or_else(|| {
                reply.raw(&read.head);
                reply.array(len);
                0
            });
            for number in first..len {
                if reply.len() >= bytes_max {
                    self.row = Some(number);
                    return false;
                }
                let row = self.row(read, number);
                reply.array(row.len() / WORD);
                let (time, numbers) = row_of(row);
                reply.int(time.cast_signed());
                numbers.for_each(|number| write_number(reply, number));
            }
            (self.at, self.row) = (self.at + 1, None);
        }
        true
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

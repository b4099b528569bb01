//! TS.RANGE over many samples, in slices: the series is read as it was when the command began.
//!
//! Called by TS.RANGE (to begin) and by `Incremental`. The blocks of a series never change, so a copy of its root is all
//! that a read needs; writers wait for nobody. Other commands on series use the form of the rows. Memory: the rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use darter_series::Series;
use darter_series::query::{QueryProgress, SampleRows, SeriesQuery};
use darter_store::{Key, Shard};
use darter_wire::{Args, Reply};

use super::{TOO_MANY, write_number};
use crate::Ctx;
use crate::incremental::Operation;

/// Blocks of samples that are read at once: some 50 microseconds.
pub(super) const BLOCKS_AT_ONCE: usize = 16;
/// Bytes of a time or a number.
pub(super) const WORD: usize = 8;

/// An answer in the making.
struct Ranging {
    query: SeriesQuery,
    rows: Vec<u8>,
    too_many: Arc<AtomicBool>,
    // The next row; `None` before the head is written.
    row: Option<usize>,
}

/// Leaves the answer of a query of the series at `name` to slices; false if that is impossible.
pub(super) fn leave(ctx: &mut Ctx<'_>, name: &[u8], query: &SeriesQuery, reply: &Reply<'_>) -> bool {
    let too_many = Arc::new(AtomicBool::new(false));
    let ranging =
        Ranging { query: query.clone(), rows: Vec::new(), too_many: Arc::clone(&too_many), row: None };
    let mut begin = |_, shard: &mut Shard, db: usize, key: Key<'_>| {
        begin_rows(shard, (db, key), query.clone(), &too_many)
    };
    ctx.read_later(&[name], &mut begin, Box::new(ranging), reply)
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
        push_rows(out, &running.take());
        is_done
    })
}

/// Writes of each row the time, then its numbers.
pub(super) fn push_rows(out: &mut Vec<u8>, rows: &SampleRows) {
    for (time, numbers) in rows.iter() {
        out.extend_from_slice(&time.to_le_bytes());
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }
}

/// Bytes of such a row.
pub(super) fn row_bytes(query: &SeriesQuery) -> usize {
    WORD * (1 + query.buckets.as_ref().map_or(1, |buckets| buckets.kinds.len()))
}

/// The time of a row and its numbers.
pub(super) fn row_of(row: &[u8]) -> (u64, impl Iterator<Item = f64>) {
    let mut words = row.as_chunks::<WORD>().0.iter().copied();
    (words.next().map_or(0, u64::from_le_bytes), words.map(f64::from_le_bytes))
}

/// Writes the rows of a query's answer, all of which were read, from row `from` on until `reply` has `bytes_max`; `None`
/// writes their number first. Returns the row that is next.
pub(super) fn write_some_rows(
    reply: &mut Reply<'_>,
    query: &SeriesQuery,
    rows: &[u8],
    from: Option<usize>,
    bytes_max: usize,
) -> Option<usize> {
    let bytes = row_bytes(query);
    let all = rows.len() / bytes;
    let len = all.min(query.count.unwrap_or(usize::MAX));
    let first = from.unwrap_or_else(|| {
        reply.array(len);
        0
    });
    for number in first..len {
        if reply.len() >= bytes_max {
            return Some(number);
        }
        let place = if query.is_backwards() { all - 1 - number } else { number };
        let row = rows.get(place * bytes..(place + 1) * bytes).unwrap_or_default();
        reply.array(row.len() / WORD);
        let (time, numbers) = row_of(row);
        reply.int(time.cast_signed());
        numbers.for_each(|number| write_number(reply, number));
    }
    None
}

impl Operation for Ranging {
    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        self.rows.extend_from_slice(told);
        Vec::new()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        if self.too_many.load(Ordering::Relaxed) {
            reply.error(TOO_MANY.line().as_bytes());
            return true;
        }
        self.row = write_some_rows(reply, &self.query, &self.rows, self.row, bytes_max);
        self.row.is_none()
    }

    fn bytes(&self) -> usize {
        self.rows.len()
    }
}

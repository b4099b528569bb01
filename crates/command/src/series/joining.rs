//! TS.NRANGE over many samples, in slices: the rows of each series are read as they were, then joined by their times.
//!
//! Called by TS.NRANGE (to begin) and by `Incremental`. Memory: the rows of all series, until the client has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use darter_series::query::{SampleOrder, SeriesQuery};
use darter_store::{Key, Shard};
use darter_wire::{Args, Reply};

use super::ranging::{WORD, begin_rows, row_of};
use super::{TOO_MANY, write_number};
use crate::Ctx;
use crate::incremental::Operation;

/// The rows of one series.
struct JoinedSeries {
    rows: Vec<u8>,
    // Numbers of a row.
    width: usize,
    is_backwards: bool,
    // Rows that are answered.
    at: usize,
}

/// An answer in the making.
struct Joining {
    series: Vec<JoinedSeries>,
    order: SampleOrder,
    count: usize,
    too_many: Arc<AtomicBool>,
    // Rows to answer; `None` before the head is written.
    left: Option<usize>,
}

/// Leaves the answer of queries, each about the series of one of `names`, to slices; false if that is impossible.
pub(super) fn leave(
    ctx: &mut Ctx<'_>,
    names: &[&[u8]],
    queries: &[SeriesQuery],
    count: usize,
    reply: &Reply<'_>,
) -> bool {
    let too_many = Arc::new(AtomicBool::new(false));
    let series = queries.iter().map(|query| JoinedSeries {
        rows: Vec::new(),
        width: query.buckets.as_ref().map_or(1, |buckets| buckets.kinds.len()),
        is_backwards: query.is_backwards(),
        at: 0,
    });
    let joining = Joining {
        series: series.collect(),
        order: queries.first().map_or(SampleOrder::Up, |query| query.order),
        count,
        too_many: Arc::clone(&too_many),
        left: None,
    };
    let mut begin = |nth: usize, shard: &mut Shard, db: usize, key: Key<'_>| {
        begin_rows(shard, (db, key), queries.get(nth)?.clone(), &too_many)
    };
    ctx.read_later(names, &mut begin, Box::new(joining), reply)
}

impl JoinedSeries {
    /// Row `number` in the order of the answer.
    fn row(&self, number: usize) -> Option<&[u8]> {
        let bytes = WORD * (1 + self.width);
        let all = self.rows.len() / bytes;
        let number = if self.is_backwards { all.checked_sub(1 + number)? } else { number };
        self.rows.get(number * bytes..(number + 1) * bytes)
    }

    fn time(&self, number: usize) -> Option<u64> {
        self.row(number).map(|row| row_of(row).0)
    }
}

impl Joining {
    /// The time of the next row, if the series are answered up to `at`.
    fn next(&self, at: impl Fn(usize) -> usize) -> Option<u64> {
        let times = self.series.iter().enumerate().filter_map(|(nth, series)| series.time(at(nth)));
        match self.order {
            SampleOrder::Up => times.min(),
            SampleOrder::Down => times.max(),
        }
    }

    /// Rows of the answer.
    fn len(&self) -> usize {
        let mut at = vec![0; self.series.len()];
        let mut len = 0;
        while let Some(time) = self.next(|nth| at.get(nth).copied().unwrap_or(0)).filter(|_| len < self.count)
        {
            for (series, at) in self.series.iter().zip(&mut at) {
                *at += usize::from(series.time(*at) == Some(time));
            }
            len += 1;
        }
        len
    }
}

impl Operation for Joining {
    fn take(&mut self, nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        if let Some(series) = self.series.get_mut(nth as usize) {
            series.rows.extend_from_slice(told);
        }
        Vec::new()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        if self.too_many.load(Ordering::Relaxed) {
            reply.error(TOO_MANY.line().as_bytes());
            return true;
        }
        let mut left = self.left.unwrap_or_else(|| {
            let len = self.len();
            reply.array(len);
            len
        });
        let width: usize = self.series.iter().map(|series| series.width).sum();
        while left > 0
            && reply.len() < bytes_max
            && let Some(time) = self.next(|nth| self.series.get(nth).map_or(0, |series| series.at))
        {
            reply.array(2);
            reply.int(time.cast_signed());
            reply.array(width);
            for series in &mut self.series {
                if series.time(series.at) != Some(time) {
                    (0..series.width).for_each(|_| write_number(reply, f64::NAN));
                    continue;
                }
                let numbers = series.row(series.at).map(|row| row_of(row).1);
                numbers.into_iter().flatten().for_each(|number| write_number(reply, number));
                series.at += 1;
            }
            left -= 1;
        }
        self.left = Some(left);
        left == 0
    }

    fn bytes(&self) -> usize {
        self.series.iter().map(|series| series.rows.capacity()).sum()
    }
}

//! The arguments of a query: a span, filters and buckets.

use darter_base::number;
use darter_series::Aggregator;
use darter_series::query::{BucketGaps, Buckets, SampleOrder, SeriesQuery, Stamp};
use darter_wire::Args;

use crate::reader::is;
use crate::{ArgReader, Fault};

/// Kinds of a query at most.
const KINDS_MAX: usize = 16;

/// The alignment of buckets.
enum Align {
    Start,
    End,
    At(u64),
}

/// The span at `at` and after it: from and to, `-` and `+` for all.
pub(super) fn span(args: Args<'_>, at: usize) -> Result<(u64, u64), Fault> {
    let time = |arg: Option<&[u8]>| arg.and_then(number::parse_i64).and_then(|ms| u64::try_from(ms).ok());
    let from = match args.get(at) {
        Some(b"-") => 0,
        arg => time(arg).ok_or(Fault::text("ERR TSDB: wrong fromTimestamp"))?,
    };
    let to = match args.get(at + 1) {
        Some(b"+") => u64::MAX,
        arg => time(arg).ok_or(Fault::text("ERR TSDB: wrong toTimestamp"))?,
    };
    Ok((from, to))
}

/// The query whose span is at `at`.
pub(super) fn query(args: Args<'_>, at: usize, order: SampleOrder) -> Result<SeriesQuery, Fault> {
    query_with(args, at, order, &mut |_, _| Ok(false))
}

/// Applies a word that the reader has just passed; returns false if it is unknown.
pub(super) type TakeWord<'t, 'a> = &'t mut dyn FnMut(&'a [u8], &mut ArgReader<'a>) -> Result<bool, Fault>;

/// The query whose span is at `at`; words that belong to no query are passed to `others`.
pub(super) fn query_with<'a>(
    args: Args<'a>,
    at: usize,
    order: SampleOrder,
    others: TakeWord<'_, 'a>,
) -> Result<SeriesQuery, Fault> {
    let (from, to) = span(args, at)?;
    let mut query = SeriesQuery { order, ..SeriesQuery::new(from, to) };
    let mut align = None;
    let mut reader = ArgReader::new(args, at + 2);
    while let Some(word) = reader.peek() {
        reader.skip(1);
        if is(word, "LATEST") {
            // The caller finds it: the open bucket is in another series.
        } else if is(word, "FILTER_BY_TS") {
            query.times = Some(times(&mut reader)?);
        } else if is(word, "FILTER_BY_VALUE") {
            query.values = Some(values(&mut reader)?);
        } else if is(word, "COUNT") {
            query.count = Some(count(&mut reader)?);
        } else if is(word, "ALIGN") {
            align = Some(alignment(&mut reader)?);
        } else if is(word, "AGGREGATION") {
            query.buckets = Some(buckets(&mut reader)?);
        } else if !others(word, &mut reader)? {
            return Err(Fault::Syntax);
        }
    }
    place(&mut query, align, args, at)?;
    Ok(query)
}

/// Aligns the buckets of a query.
fn place(query: &mut SeriesQuery, align: Option<Align>, args: Args<'_>, at: usize) -> Result<(), Fault> {
    let Some(align) = align else { return Ok(()) };
    let buckets = query.buckets.as_mut();
    let buckets =
        buckets.ok_or(Fault::text("ERR TSDB: ALIGN parameter can only be used with AGGREGATION"))?;
    buckets.align_ms = match align {
        Align::At(ms) => ms,
        Align::Start if args.get(at) == Some(b"-") => {
            let text = "ERR TSDB: start alignment can only be used with explicit start timestamp";
            return Err(Fault::text(text));
        }
        Align::End if args.get(at + 1) == Some(b"+") => {
            let text = "ERR TSDB: end alignment can only be used with explicit end timestamp";
            return Err(Fault::text(text));
        }
        Align::Start => query.from,
        Align::End => query.to,
    };
    Ok(())
}

fn times(reader: &mut ArgReader<'_>) -> Result<Vec<u64>, Fault> {
    let mut times = Vec::new();
    while let Some(time) = reader.peek().and_then(number::parse_i64).and_then(|ms| u64::try_from(ms).ok()) {
        times.push(time);
        reader.skip(1);
    }
    if times.is_empty() {
        return Err(Fault::text("ERR TSDB: FILTER_BY_TS one or more arguments are missing"));
    }
    times.sort_unstable();
    times.dedup();
    Ok(times)
}

fn values(reader: &mut ArgReader<'_>) -> Result<(f64, f64), Fault> {
    if reader.left() < 2 {
        return Err(Fault::text("ERR TSDB: FILTER_BY_VALUE one or more arguments are missing"));
    }
    let mut value = |otherwise| number::parse_f64(reader.bytes()?).ok_or(Fault::text(otherwise));
    Ok((value("ERR TSDB: Couldn't parse MIN")?, value("ERR TSDB: Couldn't parse MAX")?))
}

fn count(reader: &mut ArgReader<'_>) -> Result<usize, Fault> {
    let word = reader.bytes().map_err(|_| Fault::text("ERR TSDB: COUNT argument is missing"))?;
    let count = number::parse_i64(word).ok_or(Fault::text("ERR TSDB: Couldn't parse COUNT"))?;
    usize::try_from(count).map_err(|_| Fault::text("ERR TSDB: Invalid COUNT value"))
}

fn alignment(reader: &mut ArgReader<'_>) -> Result<Align, Fault> {
    const UNKNOWN: Fault = Fault::text("ERR TSDB: unknown ALIGN parameter");
    match reader.bytes().map_err(|_| UNKNOWN)? {
        b"-" => Ok(Align::Start),
        b"+" => Ok(Align::End),
        word if is(word, "start") => Ok(Align::Start),
        word if is(word, "end") => Ok(Align::End),
        word => number::parse_i64(word).and_then(|ms| u64::try_from(ms).ok()).map(Align::At).ok_or(UNKNOWN),
    }
}

const UNREADABLE: Fault = Fault::text("ERR TSDB: Couldn't parse AGGREGATION");

/// The aggregators in a list with commas.
pub(super) fn kinds(names: &[u8]) -> Result<Vec<Aggregator>, Fault> {
    let mut kinds = Vec::new();
    for name in names.split(|&byte| byte == b',') {
        if name.is_empty() {
            return Err(Fault::text("ERR TSDB: Empty aggregation type in list"));
        }
        if kinds.len() >= KINDS_MAX {
            return Err(Fault::text("ERR TSDB: Too many aggregation types"));
        }
        kinds.push(Aggregator::of_name(name).ok_or(Fault::text("ERR TSDB: Unknown aggregation type"))?);
    }
    Ok(kinds)
}

/// The span of a bucket.
pub(super) fn span_ms(word: &[u8]) -> Result<u64, Fault> {
    let ms = number::parse_i64(word).ok_or(UNREADABLE)?;
    match u64::try_from(ms) {
        Ok(ms) if ms > 0 => Ok(ms),
        _ => Err(Fault::text("ERR TSDB: bucketDuration must be greater than zero")),
    }
}

fn buckets(reader: &mut ArgReader<'_>) -> Result<Buckets, Fault> {
    let kinds = kinds(reader.bytes().map_err(|_| UNREADABLE)?)?;
    let ms = span_ms(reader.bytes().map_err(|_| UNREADABLE)?)?;
    let mut buckets = Buckets { kinds, ms, align_ms: 0, stamp: Stamp::Start, gaps: BucketGaps::Skipped };
    loop {
        if reader.take("EMPTY") {
            buckets.gaps = BucketGaps::Filled;
        } else if reader.take("BUCKETTIMESTAMP") {
            buckets.stamp = stamp(reader)?;
        } else {
            return Ok(buckets);
        }
    }
}

fn stamp(reader: &mut ArgReader<'_>) -> Result<Stamp, Fault> {
    const UNKNOWN: Fault = Fault::text("ERR TSDB: unknown BUCKETTIMESTAMP parameter");
    match reader.bytes().map_err(|_| UNKNOWN)? {
        b"-" => Ok(Stamp::Start),
        b"+" => Ok(Stamp::End),
        b"~" => Ok(Stamp::Mid),
        word if is(word, "start") => Ok(Stamp::Start),
        word if is(word, "end") => Ok(Stamp::End),
        word if is(word, "mid") => Ok(Stamp::Mid),
        _ => Err(UNKNOWN),
    }
}

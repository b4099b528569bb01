//! TS.NRANGE numkeys key [key ...] fromTimestamp toTimestamp [LATEST] [FILTER_BY_TS ts...] [FILTER_BY_VALUE min max]
//! [COUNT count] [[ALIGN align] AGGREGATION aggregators [aggregators ...] bucketDuration [BUCKETTIMESTAMP bt] [EMPTY]],
//! TS.NREVRANGE

use std::collections::BTreeMap;

use darter_base::number;
use darter_series::query::{SampleOrder, SeriesQuery};
use darter_series::{Aggregator, Series};
use darter_wire::{Args, OwnedArgs, Reply};

use super::labelled::write_cell;
use super::query::{kinds, query};
use super::ranging::BLOCKS_AT_ONCE;
use super::{LINKED_FOR_LATEST, NO_KEY, asks_for_latest, doc, feed, joining};
use crate::probabilistic::{arity, find_word};
use crate::spec::{Flags, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const SYNTAX: &str = "numkeys key [key ...] fromTimestamp toTimestamp [LATEST] [FILTER_BY_TS ts [ts ...]] [FILTER_BY_VALUE \
                      min max] [COUNT count] [[ALIGN align] AGGREGATION aggregators [aggregators ...] bucketDuration \
                      [BUCKETTIMESTAMP bt] [EMPTY]]";
const COST: &str = "O(n/m+k) where n = Number of data points, m = Chunk size (data points per chunk), k = Number of data \
                    points that are in the requested ranges";

const fn spec(name: &'static str) -> Spec {
    Spec::read(name, -5, Keys::Count { at: 1, dest: 0 }).flag(Flags::MOVABLEKEYS).reach(LINKED_FOR_LATEST)
}

/// TS.NRANGE.
pub const NRANGE: DataCommand = DataCommand {
    spec: doc(
        spec("ts.nrange"),
        "8.10.0",
        SYNTAX,
        "Returns samples or aggregates of several series, a row for each time, oldest first.",
    )
    .cost(COST),
    run: |ctx, args, reply| nrange(ctx, args, SampleOrder::Up, reply),
};
/// TS.NREVRANGE.
pub const NREVRANGE: DataCommand = DataCommand {
    spec: doc(
        spec("ts.nrevrange"),
        "8.10.0",
        SYNTAX,
        "Returns samples or aggregates of several series, a row for each time, newest first.",
    )
    .cost(COST),
    run: |ctx, args, reply| nrange(ctx, args, SampleOrder::Down, reply),
};

fn nrange(ctx: &mut Ctx<'_>, args: Args<'_>, order: SampleOrder, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let name = if order == SampleOrder::Up { "ts.nrange" } else { "ts.nrevrange" };
    let keys_len = number::parse_i64(args.at(1)).and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
    let keys_len = keys_len.ok_or(Fault::text("ERR TSDB: numkeys must be a positive integer"))?;
    if keys_len > args.len().saturating_sub(4) {
        return Err(arity(name));
    }
    let (mut query, columns) = parse(args, keys_len, order)?;
    // No row behind the first `count` of a series can be among those of all.
    let count = query.count.unwrap_or(usize::MAX);
    if ctx.may_slice && leave(ctx, args, keys_len, (&query, &columns), reply)? {
        return Ok(());
    }
    let width = columns.iter().map(|kinds| kinds.len().max(1)).sum();
    let mut table: BTreeMap<u64, Vec<Option<f64>>> = BTreeMap::new();
    let mut first = 0;
    for (name, kinds) in args.tail(2).head(keys_len).iter().zip(columns) {
        query.latest = if asks_for_latest(args) { feed::latest(ctx, name) } else { None };
        let place = ctx.read(name);
        let view = place.view::<Series>()?.ok_or(NO_KEY)?;
        let columns = kinds.len().max(1);
        if let Some(buckets) = &mut query.buckets {
            buckets.kinds = kinds;
        }
        let rows = query.run(view.root, view.arena).map_err(|_| Fault::text("ERR TSDB: too many buckets"))?;
        for (time, numbers) in rows.iter() {
            let row = table.entry(time).or_insert_with(|| vec![None; width]);
            row.iter_mut().skip(first).zip(numbers).for_each(|(cell, &number)| *cell = Some(number));
        }
        first += columns;
    }
    let rows = table.len().min(count);
    reply.array(rows);
    let mut write = |(&time, row): (&u64, &Vec<Option<f64>>)| {
        reply.array(2);
        reply.int(time.cast_signed());
        reply.array(row.len());
        row.iter().for_each(|&cell| write_cell(reply, cell));
    };
    match order {
        SampleOrder::Up => table.iter().take(rows).for_each(&mut write),
        SampleOrder::Down => table.iter().rev().take(rows).for_each(&mut write),
    }
    Ok(())
}

/// Leaves the answer to slices if it needs many blocks; returns whether it did.
fn leave(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    keys_len: usize,
    (query, columns): (&SeriesQuery, &[Vec<Aggregator>]),
    reply: &Reply<'_>,
) -> Result<bool, Fault> {
    let names: Vec<&[u8]> = args.tail(2).head(keys_len).iter().collect();
    let mut queries = Vec::with_capacity(keys_len);
    let mut blocks = 0;
    for (name, kinds) in names.iter().zip(columns) {
        let mut query = query.clone();
        query.latest = if asks_for_latest(args) { feed::latest(ctx, name) } else { None };
        if let Some(buckets) = &mut query.buckets {
            buckets.kinds.clone_from(kinds);
        }
        let place = ctx.at(name);
        // What is wrong is told, and counted, by the plain way.
        let Ok(Some(view)) = place.view::<Series>() else { return Ok(false) };
        let series = view.root;
        blocks += series.blocks_within(query.from, query.to);
        queries.push(query);
    }
    let count = query.count.unwrap_or(usize::MAX);
    let leaves = blocks > BLOCKS_AT_ONCE && joining::leave(ctx, &names, &queries, count, reply);
    if leaves {
        for name in names {
            let _ = ctx.read(name);
        }
    }
    Ok(leaves)
}

/// The query, and the numbers that each key has in a row; empty without buckets.
fn parse(
    args: Args<'_>,
    keys_len: usize,
    order: SampleOrder,
) -> Result<(SeriesQuery, Vec<Vec<Aggregator>>), Fault> {
    const UNEQUAL: Fault =
        Fault::text("ERR TSDB: the number of AGGREGATION arguments must be equal to numkeys");
    let at = 2 + keys_len;
    let Some(word) = find_word(args, at, "AGGREGATION").filter(|_| keys_len > 1) else {
        let query = query(args, at, order)?;
        let kinds = query.buckets.as_ref().map(|buckets| buckets.kinds.clone()).unwrap_or_default();
        return Ok((query, vec![kinds; keys_len]));
    };
    let specs = word + 1..word + 1 + keys_len;
    let mut columns = Vec::with_capacity(keys_len);
    for at in specs.clone() {
        let names = args.get(at).filter(|names| number::parse_i64(names).is_none()).ok_or(UNEQUAL)?;
        if names.is_empty() {
            return Err(Fault::text("ERR TSDB: Unknown aggregation type"));
        }
        columns.push(kinds(names)?);
    }
    if args.get(specs.end).is_some_and(|word| Aggregator::of_name(word).is_some()) {
        return Err(UNEQUAL);
    }
    // The rest is read as if the first key were the only one.
    let mut rest = OwnedArgs::with_capacity(args.len(), 64);
    let others = specs.start + 1..specs.end;
    args.iter().enumerate().filter(|(at, _)| !others.contains(at)).for_each(|(_, word)| rest.push(word));
    Ok((query(rest.args(), at, order)?, columns))
}

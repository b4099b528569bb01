//! TS.RANGE key fromTimestamp toTimestamp [LATEST] [FILTER_BY_TS Timestamp [Timestamp ...]] [FILTER_BY_VALUE min max]
//! [COUNT count] [[ALIGN value] AGGREGATION aggregators bucketDuration [BUCKETTIMESTAMP bt] [EMPTY]], TS.REVRANGE,
//! TS.GET key [LATEST], TS.DEL key fromTimestamp toTimestamp

use darter_series::Series;
use darter_series::query::Order;
use darter_wire::{Args, Reply};

use super::query::{query, span};
use super::{NO_KEY, doc, event, write_number, write_sample};
use crate::probabilistic::arity;
use crate::reader::is;
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const SYNTAX: &str = "key fromTimestamp toTimestamp [LATEST] [FILTER_BY_TS timestamp [timestamp ...]] [FILTER_BY_VALUE min \
                      max] [COUNT count] [[ALIGN value] AGGREGATION aggregators bucketDuration [BUCKETTIMESTAMP bt] \
                      [EMPTY]]";
const COST: &str = "O(n/m+k) where n = Number of data points, m = Chunk size (data points per chunk), k = Number of data \
                    points that are in the requested range";

/// TS.RANGE.
pub const RANGE: DataCommand = DataCommand {
    spec: doc(
        Spec::read("ts.range", -4, Keys::ONE),
        "1.0.0",
        SYNTAX,
        "Returns samples or aggregates between two times, oldest first.",
    )
    .cost(COST),
    run: |ctx, args, reply| range(ctx, args, Order::Up, reply),
};
/// TS.REVRANGE.
pub const REVRANGE: DataCommand = DataCommand {
    spec: doc(
        Spec::read("ts.revrange", -4, Keys::ONE),
        "1.4.0",
        SYNTAX,
        "Returns samples or aggregates between two times, newest first.",
    )
    .cost(COST),
    run: |ctx, args, reply| range(ctx, args, Order::Down, reply),
};
/// TS.GET.
pub const GET: DataCommand = DataCommand {
    spec: doc(
        Spec::read("ts.get", -2, Keys::ONE).fast(),
        "1.0.0",
        "key [LATEST]",
        "Returns the last sample.",
    ),
    run: get,
};
/// TS.DEL.
pub const DEL: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.del", 4, Keys::ONE),
        "1.6.0",
        "key from_timestamp to_timestamp",
        "Deletes the samples between two times.",
    )
    .cost("O(N) where N is the number of data points that will be removed"),
    run: del,
};

fn range(ctx: &mut Ctx<'_>, args: Args<'_>, order: Order, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let view = place.view::<Series>()?.ok_or(NO_KEY)?;
    let query = query(args, 2, order)?;
    let rows = query.run(view.root, view.arena).map_err(|_| Fault::text("ERR TSDB: too many buckets"))?;
    reply.array(rows.len());
    for (time, numbers) in rows.iter() {
        reply.array(1 + numbers.len());
        reply.int(time.cast_signed());
        numbers.iter().for_each(|&number| write_number(reply, number));
    }
    Ok(())
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(arity("ts.get"));
    }
    let place = ctx.read(args.at(1));
    let series = place.view::<Series>()?.ok_or(NO_KEY)?.root;
    if args.get(2).is_some_and(|word| !is(word, "LATEST")) {
        return Err(Fault::text("ERR TSDB: wrong 3rd argument"));
    }
    match series.newest() {
        Some(newest) if !series.is_empty() => write_sample(reply, newest),
        _ => reply.array(0),
    }
    Ok(())
}

fn del(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (from, to) = span(args, 2)?;
    let mut place = ctx.at(args.at(1));
    let edited = place.edit(|series: &mut Series, arena, _| series.remove(arena, from, to))?;
    let removed = edited.ok_or(NO_KEY)?.result.map_err(|_| Fault::OutOfMemory)?;
    place.changed(event("ts.del"));
    reply.int(removed.cast_signed());
    Ok(())
}

//! TS.RANGE key fromTimestamp toTimestamp [LATEST] [FILTER_BY_TS Timestamp [Timestamp ...]] [FILTER_BY_VALUE min max]
//! [COUNT count] [[ALIGN value] AGGREGATION aggregators bucketDuration [BUCKETTIMESTAMP bt] [EMPTY]], TS.REVRANGE,
//! TS.GET key [LATEST], TS.DEL key fromTimestamp toTimestamp

use darter_series::Series;
use darter_series::query::{SampleOrder, SeriesQuery};
use darter_wire::{Args, Reply};

use super::query::{query, span};
use super::{
    LINKED, LINKED_FOR_LATEST, NO_KEY, TOO_MANY, asks_for_latest, doc, event, feed, ranging, write_rows,
    write_sample,
};
use crate::probabilistic::arity;
use crate::reader::is;
use crate::spec::{Keys, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

const SYNTAX: &str = "key fromTimestamp toTimestamp [LATEST] [FILTER_BY_TS timestamp [timestamp ...]] [FILTER_BY_VALUE min \
                      max] [COUNT count] [[ALIGN value] AGGREGATION aggregators bucketDuration [BUCKETTIMESTAMP bt] \
                      [EMPTY]]";
const COST: &str = "O(n/m+k) where n = Number of data points, m = Chunk size (data points per chunk), k = Number of data \
                    points that are in the requested range";

/// TS.RANGE.
pub const RANGE: DataCommand = DataCommand {
    spec: doc(
        Spec::read("ts.range", -4, Keys::ONE).reach(LINKED_FOR_LATEST),
        "1.0.0",
        SYNTAX,
        "Returns samples or aggregates between two times, oldest first.",
    )
    .cost(COST),
    run: |ctx, args, reply| range(ctx, args, SampleOrder::Up, reply),
};
/// TS.REVRANGE.
pub const REVRANGE: DataCommand = DataCommand {
    spec: doc(
        Spec::read("ts.revrange", -4, Keys::ONE).reach(LINKED_FOR_LATEST),
        "1.4.0",
        SYNTAX,
        "Returns samples or aggregates between two times, newest first.",
    )
    .cost(COST),
    run: |ctx, args, reply| range(ctx, args, SampleOrder::Down, reply),
};
/// TS.GET.
pub const GET: DataCommand = DataCommand {
    spec: doc(
        Spec::read("ts.get", -2, Keys::ONE).fast().reach(LINKED_FOR_LATEST),
        "1.0.0",
        "key [LATEST]",
        "Returns the last sample.",
    ),
    run: get,
};
/// TS.DEL.
pub const DEL: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.del", 4, Keys::ONE).replica_form(ReplicaForm::Words).reach(LINKED),
        "1.6.0",
        "key from_timestamp to_timestamp",
        "Deletes the samples between two times.",
    )
    .cost("O(N) where N is the number of data points that will be removed"),
    run: del,
};

fn range(ctx: &mut Ctx<'_>, args: Args<'_>, order: SampleOrder, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let latest = if asks_for_latest(args) { feed::latest(ctx, args.at(1)) } else { None };
    let (name, may_slice) = (args.at(1), ctx.may_slice);
    let place = ctx.read(name);
    let view = place.view::<Series>()?.ok_or(NO_KEY)?;
    let query = SeriesQuery { latest, ..query(args, 2, order)? };
    if may_slice
        && view.root.blocks_within(query.from, query.to) > ranging::BLOCKS_AT_ONCE
        && ranging::leave(ctx, name, &query, reply)
    {
        return Ok(());
    }
    let place = ctx.untouched(name);
    let view = place.view::<Series>()?.ok_or(NO_KEY)?;
    let rows = query.run(view.root, view.arena).map_err(|_| TOO_MANY)?;
    write_rows(reply, &rows);
    Ok(())
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(arity("ts.get"));
    }
    let latest = if asks_for_latest(args) { feed::latest(ctx, args.at(1)) } else { None };
    let place = ctx.read(args.at(1));
    let series = place.view::<Series>()?.ok_or(NO_KEY)?.root;
    if args.get(2).is_some_and(|word| !is(word, "LATEST")) {
        return Err(Fault::text("ERR TSDB: wrong 3rd argument"));
    }
    match latest.or(series.newest().filter(|_| !series.is_empty())) {
        Some(sample) => write_sample(reply, sample),
        None => reply.array(0),
    }
    Ok(())
}

fn del(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (from, to) = span(args, 2)?;
    let name = args.at(1);
    let mut place = ctx.at(name);
    let view = place.view::<Series>()?.ok_or(NO_KEY)?;
    if !view.root.may_remove(from) {
        let text = "ERR TSDB: When a series has compactions, deleting samples or compaction buckets beyond the series \
                    retention period is not possible";
        return Err(Fault::text(text));
    }
    let edited = place.edit(|series: &mut Series, arena, _| {
        let removed = series.remove(arena, from, to)?;
        let fed = if removed > 0 { series.feed_removed(arena, from, to) } else { Vec::new() };
        Ok::<_, darter_series::SeriesFull>((removed, fed))
    })?;
    let (removed, fed) = edited.ok_or(NO_KEY)?.result.map_err(|_| Fault::OutOfMemory)?;
    place.changed(event("ts.del"));
    feed::feed(ctx, name, fed);
    reply.int(removed.cast_signed());
    Ok(())
}

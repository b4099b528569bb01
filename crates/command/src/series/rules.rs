//! TS.CREATERULE sourceKey destKey AGGREGATION aggregator bucketDuration [alignTimestamp], TS.DELETERULE sourceKey destKey

use darter_base::number;
use darter_series::{CompactionRule, Series};
use darter_wire::{Args, Reply};

use super::feed::clean;
use super::query::{kinds, span_ms};
use super::{LINKED, NO_KEY, doc, event};
use crate::probabilistic::arity;
use crate::reader::is;
use crate::spec::{Keys, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TS.CREATERULE.
pub const CREATERULE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.createrule", -6, Keys::TWO).replica_form(ReplicaForm::Words).fast().reach(LINKED),
        "1.0.0",
        "sourceKey destKey AGGREGATION aggregator bucketDuration [alignTimestamp]",
        "Has a series feed another one with aggregates of its samples.",
    ),
    run: create,
};
/// TS.DELETERULE.
pub const DELETERULE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.deleterule", 3, Keys::TWO).replica_form(ReplicaForm::Words).fast().reach(LINKED),
        "1.0.0",
        "sourceKey destKey",
        "Ends that a series feeds another one.",
    ),
    run: delete,
};

fn create(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 7 || !is(args.at(3), "AGGREGATION") {
        return Err(arity("ts.createrule"));
    }
    let kinds = kinds(args.at(4))?;
    let bucket_ms = span_ms(args.at(5))?;
    let align_ms = args.get(6).map(alignment).transpose()?.unwrap_or(0);
    let [kind] = kinds[..] else {
        return Err(Fault::text("ERR TSDB: CREATERULE requires exactly one aggregation type"));
    };
    let (source, target) = (args.at(1), args.at(2));
    if source == target {
        return Err(Fault::text("ERR TSDB: the source key and destination key should be different"));
    }
    check(ctx, source, |series| match series.source {
        Some(_) => Err(Fault::text("ERR TSDB: the source key already has a source rule")),
        None => Ok(()),
    })?;
    check(ctx, target, |series| match (&series.rules[..], &series.source) {
        ([_, ..], _) => Err(Fault::text("ERR TSDB: the destination key already has a dst rule")),
        (_, Some(_)) => Err(Fault::text("ERR TSDB: the destination key already has a src rule")),
        _ => Ok(()),
    })?;
    ctx.at(target).reshape_series(|series| series.source = Some(source.into()))?;
    ctx.at(source)
        .reshape_series(|series| series.rules.push(CompactionRule::new(target, kind, bucket_ms, align_ms)))?;
    ctx.at(source).changed(event("ts.createrule:src"));
    ctx.at(target).changed(event("ts.createrule:dest"));
    reply.ok();
    Ok(())
}

/// The result of `ask` for the series at `name`, after dead links were removed.
fn check(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    ask: impl FnOnce(&Series) -> Result<(), Fault>,
) -> Result<(), Fault> {
    clean(ctx, name);
    let place = ctx.at(name);
    ask(place.view::<Series>()?.ok_or(NO_KEY)?.root)
}

fn alignment(word: &[u8]) -> Result<u64, Fault> {
    let ms = number::parse_i64(word).ok_or(Fault::text("ERR TSDB: Couldn't parse alignTimestamp"))?;
    u64::try_from(ms).map_err(|_| Fault::text("ERR TSDB: alignTimestamp should be greater or equal to 0"))
}

fn delete(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (source, target) = (args.at(1), args.at(2));
    check(ctx, source, |series| {
        let missing = Fault::text("ERR TSDB: compaction rule does not exist");
        if series.feeds(target) { Ok(()) } else { Err(missing) }
    })?;
    ctx.at(source).reshape_series(|series| series.rules.retain(|rule| *rule.target != *target))?;
    ctx.at(target).reshape_series(|series| series.source = None)?;
    ctx.at(source).changed(event("ts.deleterule:src"));
    ctx.at(target).changed(event("ts.deleterule:dest"));
    reply.ok();
    Ok(())
}

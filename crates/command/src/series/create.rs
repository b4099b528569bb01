//! TS.CREATE key [RETENTION retentionPeriod] [ENCODING <UNCOMPRESSED | COMPRESSED>] [CHUNK_SIZE size]
//! [DUPLICATE_POLICY policy] [IGNORE ignoreMaxTimediff ignoreMaxValDiff] [LABELS label value [label value ...]], TS.ALTER

use darter_series::Series;
use darter_store::{Collection, Expiry, Keyed};
use darter_wire::{Args, Reply};

use super::options::SeriesOptions;
use super::{NO_KEY, doc, event};
use crate::spec::{Keys, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TS.CREATE.
pub const CREATE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.create", -2, Keys::ONE).replica_form(ReplicaForm::Words).fast(),
        "1.0.0",
        "key [RETENTION retentionPeriod] [ENCODING <UNCOMPRESSED | COMPRESSED>] [CHUNK_SIZE size] [DUPLICATE_POLICY \
         <BLOCK | FIRST | LAST | MIN | MAX | SUM>] [IGNORE ignoreMaxTimediff ignoreMaxValDiff] [LABELS label value \
         [label value ...]]",
        "Creates an empty series.",
    ),
    run: create,
};
/// TS.ALTER.
pub const ALTER: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.alter", -2, Keys::ONE).replica_form(ReplicaForm::Words),
        "1.0.0",
        "key [RETENTION retentionPeriod] [CHUNK_SIZE size] [DUPLICATE_POLICY <BLOCK | FIRST | LAST | MIN | MAX | SUM>] \
         [IGNORE ignoreMaxTimediff ignoreMaxValDiff] [LABELS label value [label value ...]]",
        "Changes the options of a series.",
    )
    .cost("O(N) where N is the number of labels requested to update"),
    run: alter,
};

fn create(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    if place.exists() {
        return Err(Fault::text("ERR TSDB: key already exists"));
    }
    put(&mut place, SeriesOptions::read(args, 2)?)?;
    place.changed(event("ts.create"));
    reply.ok();
    Ok(())
}

/// Creates a series at a missing key.
pub(super) fn put(place: &mut Keyed<'_>, options: SeriesOptions) -> Result<(), Fault> {
    let mut series = Series::new(options.settings());
    series.name = place.name().into();
    Ok(place.put_object(series.wrap(), Expiry::None)?)
}

fn alter(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    if place.view::<Series>()?.is_none() {
        return Err(NO_KEY);
    }
    let options = SeriesOptions::read(args, 2)?;
    place.reshape_series(|series| options.apply(&mut series.settings))?.ok_or(NO_KEY)?;
    place.changed(event("ts.alter"));
    reply.ok();
    Ok(())
}

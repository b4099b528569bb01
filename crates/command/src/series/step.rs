//! TS.INCRBY key value [TIMESTAMP timestamp] [RETENTION retentionPeriod] [UNCOMPRESSED] [CHUNK_SIZE size]
//! [LABELS label value [label value ...]], TS.DECRBY

use darter_base::number;
use darter_series::{DuplicatePolicy, Sample, Series};
use darter_wire::{Args, Reply};

use super::add::add_to;
use super::options::SeriesOptions;
use super::{LINKED, create, doc, event};
use crate::probabilistic::find_word;
use crate::spec::{Keys, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

const SYNTAX: &str = "key value [TIMESTAMP timestamp] [RETENTION retentionPeriod] [ENCODING <UNCOMPRESSED | COMPRESSED>] \
                      [CHUNK_SIZE size] [DUPLICATE_POLICY <BLOCK | FIRST | LAST | MIN | MAX | SUM>] [IGNORE \
                      ignoreMaxTimediff ignoreMaxValDiff] [LABELS label value [label value ...]]";
const COST: &str = "O(M) when M is the amount of compaction rules or O(1) with no compaction";

/// TS.INCRBY.
pub const INCRBY: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.incrby", -3, Keys::ONE).replica_form(ReplicaForm::TimeOption).reach(LINKED),
        "1.0.0",
        SYNTAX,
        "Adds a sample that is more than the last one by a number.",
    )
    .cost(COST),
    run: |ctx, args, reply| step(ctx, args, 1.0, "ts.incrby", reply),
};
/// TS.DECRBY.
pub const DECRBY: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.decrby", -3, Keys::ONE).replica_form(ReplicaForm::TimeOption).reach(LINKED),
        "1.0.0",
        SYNTAX,
        "Adds a sample that is less than the last one by a number.",
    )
    .cost(COST),
    run: |ctx, args, reply| step(ctx, args, -1.0, "ts.decrby", reply),
};

fn step(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    sign: f64,
    name: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    const BAD_TIME: Fault = Fault::text("ERR TSDB: invalid timestamp");
    let now_ms = ctx.now_ms;
    let mut place = ctx.at(args.at(1));
    let exists = place.view::<Series>()?.is_some();
    let by = number::parse_f64(args.at(2)).filter(|by| !by.is_nan());
    let by = by.ok_or(Fault::text("ERR TSDB: invalid increase/decrease value"))?;
    let time = match find_word(args, 3, "TIMESTAMP").map(|at| args.get(at + 1).ok_or(BAD_TIME)).transpose()? {
        None | Some(b"*") => now_ms,
        Some(word) => number::parse_i64(word).and_then(|ms| u64::try_from(ms).ok()).ok_or(BAD_TIME)?,
    };
    if !exists {
        create::put(&mut place, SeriesOptions::read(args, 3)?)?;
    }
    let newest = place.view::<Series>()?.and_then(|view| view.root.newest());
    let newest = newest.unwrap_or(Sample { time: 0, value: 0.0 });
    if time < newest.time {
        let text = "TSDB: timestamp must be equal to or higher than the maximum existing timestamp";
        return Err(Fault::text(text));
    }
    if newest.value.is_nan() {
        return Err(Fault::text("ERR TSDB: cannot increment/decrement NaN value"));
    }
    let sample = Sample::new(time, newest.value + sign * by);
    let time = add_to(ctx, args.at(1), sample, Some(DuplicatePolicy::Last), event(name))?;
    reply.int(time.cast_signed());
    Ok(())
}

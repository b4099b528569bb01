//! TS.MADD key timestamp value [key timestamp value ...]

use darter_series::{Sample, Series};
use darter_wire::{Args, Reply};

use super::add::{add_to, time, value};
use super::{LINKED, doc, event};
use crate::probabilistic::arity;
use crate::spec::{Keys, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TS.MADD.
pub const MADD: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.madd", -4, Keys::Range { first: 1, last: -1, step: 3 })
            .replica_form(ReplicaForm::Times(2))
            .reach(LINKED),
        "1.0.0",
        "key timestamp value [key timestamp value ...]",
        "Adds samples to several series.",
    )
    .cost("O(N*M) when N is the amount of series updated and M is the amount of compaction rules"),
    run: madd,
};

fn madd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() % 3 != 1 {
        return Err(arity("ts.madd"));
    }
    reply.array(args.len() / 3);
    for at in (1..args.len()).step_by(3) {
        match add_one(ctx, args, at) {
            Ok(time) => reply.int(time.cast_signed()),
            Err(fault) => reply.error(fault.line().as_bytes()),
        }
    }
    Ok(())
}

fn add_one(ctx: &mut Ctx<'_>, args: Args<'_>, at: usize) -> Result<u64, Fault> {
    let now_ms = ctx.now_ms;
    let value = value(args.at(at + 2))?;
    let sample = Sample::new(time(args.at(at + 1), now_ms)?, value);
    if !matches!(ctx.at(args.at(at)).view::<Series>(), Ok(Some(_))) {
        return Err(Fault::text("ERR TSDB: the key is not a TSDB key"));
    }
    add_to(ctx, args.at(at), sample, None, event("ts.add"))
}

//! HTTL key FIELDS numfields field [field ...], HPTTL, HEXPIRETIME, HPEXPIRETIME

use darter_pack::table::Table;
use darter_wire::{Args, Reply};

use super::expire::{NO_COUNT, NO_FIELD, NO_TIME, fields};
use super::{find, read};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const fn spec(name: &'static str, summary: &'static str) -> Spec {
    Spec::read(name, -5, Keys::ONE)
        .fast()
        .doc(Group::Hash, "7.4.0", "key FIELDS numfields field [field ...]", summary)
        .cost("O(N)")
}

/// HTTL.
pub const HTTL: DataCommand = DataCommand {
    spec: spec("httl", "Returns the seconds that fields of a hash have left to live."),
    run: |ctx, args, reply| {
        show(ctx, args, reply, |at_ms, now_ms| at_ms.saturating_sub(now_ms).div_ceil(1000))
    },
};
/// HPTTL.
pub const HPTTL: DataCommand = DataCommand {
    spec: spec("hpttl", "Returns the milliseconds that fields of a hash have left to live."),
    run: |ctx, args, reply| show(ctx, args, reply, |at_ms, now_ms| at_ms.saturating_sub(now_ms)),
};
/// HEXPIRETIME.
pub const HEXPIRETIME: DataCommand = DataCommand {
    spec: spec("hexpiretime", "Returns the Unix time in seconds at which fields of a hash expire."),
    run: |ctx, args, reply| show(ctx, args, reply, |at_ms, _| at_ms.div_ceil(1000)),
};
/// HPEXPIRETIME.
pub const HPEXPIRETIME: DataCommand = DataCommand {
    spec: spec("hpexpiretime", "Returns the Unix time in milliseconds at which fields of a hash expire."),
    run: |ctx, args, reply| show(ctx, args, reply, |at_ms, _| at_ms),
};

fn show(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    shown: fn(u64, u64) -> u64,
) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let hash = place.view::<Table>()?;
    let fields = fields(args, 2, NO_COUNT)?;
    reply.array(fields.len());
    for field in fields.iter() {
        reply.int(match hash.and_then(|hash| find(hash, field, now_ms)).map(|entry| entry.expiry_ms()) {
            None => NO_FIELD,
            Some(None) => NO_TIME,
            Some(Some(at_ms)) => shown(at_ms, now_ms) as i64,
        });
    }
    Ok(())
}

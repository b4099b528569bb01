//! TTL, PTTL, EXPIRETIME, PEXPIRETIME: the deadline of a key.

use darter_wire::{Args, Reply};

use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TTL.
pub const TTL: DataCommand = DataCommand {
    spec: Spec::read("ttl", 2, Keys::ONE).tips(&["nondeterministic_output"]).fast().doc(
        Group::Generic,
        "1.0.0",
        "key",
        "Returns the time to live of a key in seconds.",
    ),
    run: ttl,
};

/// PTTL.
pub const PTTL: DataCommand = DataCommand {
    spec: Spec::read("pttl", 2, Keys::ONE).tips(&["nondeterministic_output"]).fast().doc(
        Group::Generic,
        "2.6.0",
        "key",
        "Returns the time to live of a key in milliseconds.",
    ),
    run: pttl,
};

/// EXPIRETIME.
pub const EXPIRETIME: DataCommand = DataCommand {
    spec: Spec::read("expiretime", 2, Keys::ONE).fast().doc(
        Group::Generic,
        "7.0.0",
        "key",
        "Returns the Unix time in seconds at which a key dies.",
    ),
    run: expiretime,
};

/// PEXPIRETIME.
pub const PEXPIRETIME: DataCommand = DataCommand {
    spec: Spec::read("pexpiretime", 2, Keys::ONE).fast().doc(
        Group::Generic,
        "7.0.0",
        "key",
        "Returns the Unix time in milliseconds at which a key dies.",
    ),
    run: pexpiretime,
};

fn ttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    answer(ctx, args, reply, |ms| to_seconds(ms.saturating_sub(now_ms)))
}

fn pttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    answer(ctx, args, reply, |ms| ms.saturating_sub(now_ms))
}

fn expiretime(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    answer(ctx, args, reply, to_seconds)
}

fn pexpiretime(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    answer(ctx, args, reply, |ms| ms)
}

/// Rounded to the nearest second.
fn to_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

fn answer(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    convert: impl FnOnce(u64) -> u64,
) -> Result<(), Fault> {
    let place = ctx.untouched(args.at(1));
    reply.int(match place.deadline_ms() {
        Some(ms) => i64::try_from(convert(ms)).unwrap_or(i64::MAX),
        None if place.exists() => -1,
        None => -2,
    });
    Ok(())
}

//! HGET key field, HMGET, HGETALL, HKEYS, HVALS, HLEN, HEXISTS, HSTRLEN

use darter_pack::table::{EntryRef, Table};
use darter_wire::{Args, Reply};

use super::{alive, alive_len, find, read, shown_len};
use crate::item::reply_item;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// HGET.
pub const HGET: DataCommand = DataCommand {
    spec: Spec::read("hget", 3, Keys::ONE).fast().doc(
        Group::Hash,
        "2.0.0",
        "key field",
        "Returns the value of a field in a hash.",
    ),
    run: hget,
};
/// HMGET.
pub const HMGET: DataCommand = DataCommand {
    spec: Spec::read("hmget", -3, Keys::ONE)
        .fast()
        .doc(Group::Hash, "2.0.0", "key field [field ...]", "Returns the values of fields of a hash.")
        .cost("O(N)"),
    run: hmget,
};
/// HGETALL.
pub const HGETALL: DataCommand = DataCommand {
    spec: Spec::read("hgetall", 2, Keys::ONE)
        .doc(Group::Hash, "2.0.0", "key", "Returns all fields and values in a hash.")
        .cost("O(N)"),
    run: hgetall,
};
/// HKEYS.
pub const HKEYS: DataCommand = DataCommand {
    spec: Spec::read("hkeys", 2, Keys::ONE)
        .doc(Group::Hash, "2.0.0", "key", "Returns all fields in a hash.")
        .cost("O(N)"),
    run: |ctx, args, reply| each(ctx, args, reply, |reply, entry| reply_item(reply, entry.key())),
};
/// HVALS.
pub const HVALS: DataCommand = DataCommand {
    spec: Spec::read("hvals", 2, Keys::ONE)
        .doc(Group::Hash, "2.0.0", "key", "Returns all values in a hash.")
        .cost("O(N)"),
    run: |ctx, args, reply| each(ctx, args, reply, |reply, entry| reply_item(reply, entry.value())),
};
/// HLEN.
pub const HLEN: DataCommand = DataCommand {
    spec: Spec::read("hlen", 2, Keys::ONE).fast().doc(
        Group::Hash,
        "2.0.0",
        "key",
        "Returns the number of fields in a hash.",
    ),
    run: hlen,
};
/// HEXISTS.
pub const HEXISTS: DataCommand = DataCommand {
    spec: Spec::read("hexists", 3, Keys::ONE).fast().doc(
        Group::Hash,
        "2.0.0",
        "key field",
        "Determines whether a field exists in a hash.",
    ),
    run: hexists,
};
/// HSTRLEN.
pub const HSTRLEN: DataCommand = DataCommand {
    spec: Spec::read("hstrlen", 3, Keys::ONE).fast().doc(
        Group::Hash,
        "3.2.0",
        "key field",
        "Returns the length of the value of a field.",
    ),
    run: hstrlen,
};

fn hget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    match place.view::<Table>()?.and_then(|hash| find(hash, args.at(2), now_ms)) {
        Some(entry) => reply_item(reply, entry.value()),
        None => reply.null(),
    }
    Ok(())
}

fn hmget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let hash = place.view::<Table>()?;
    let fields = args.tail(2);
    reply.array(fields.len());
    for field in fields.iter() {
        match hash.and_then(|hash| find(hash, field, now_ms)) {
            Some(entry) => reply_item(reply, entry.value()),
            None => reply.null(),
        }
    }
    Ok(())
}

fn hgetall(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let Some(hash) = place.view::<Table>()? else {
        reply.map(0);
        return Ok(());
    };
    reply.map(alive_len(hash, now_ms));
    for entry in alive(hash, now_ms) {
        reply_item(reply, entry.key());
        reply_item(reply, entry.value());
    }
    Ok(())
}

fn each(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    show: fn(&mut Reply<'_>, EntryRef<'_>),
) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let Some(hash) = place.view::<Table>()? else {
        reply.array(0);
        return Ok(());
    };
    reply.array(alive_len(hash, now_ms));
    alive(hash, now_ms).for_each(|entry| show(reply, entry));
    Ok(())
}

fn hlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let len = read(ctx, args.at(1)).view::<Table>()?.map_or(0, |hash| shown_len(hash, now_ms));
    reply.int_len(len);
    Ok(())
}

fn hexists(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let found = place.view::<Table>()?.and_then(|hash| find(hash, args.at(2), now_ms));
    reply.int(i64::from(found.is_some()));
    Ok(())
}

fn hstrlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let found = place.view::<Table>()?.and_then(|hash| find(hash, args.at(2), now_ms));
    reply.int_len(found.map_or(0, |entry| entry.value().len()));
    Ok(())
}

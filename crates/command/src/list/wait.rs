//! BLPOP key [key ...] timeout, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH: the forms that wait for an element

use crate::keyspec;
use darter_pack::tree::list::ListEnd;
use darter_wire::{Args, Reply};

use super::pop::{parse_many, take, take_many};
use super::{end, moves};
use crate::ctx::BlockingWait;
use crate::reader::{ArgReader, timeout_ms};
use crate::spec::{Flags, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const fn pop_spec(name: &'static str, summary: &'static str) -> Spec {
    Spec::shrink(name, -3, Keys::Range { first: 1, last: -2, step: 1 })
        .flag(Flags::BLOCKING)
        .doc(Group::List, "2.0.0", "key [key ...] timeout", summary)
        .cost("O(N)")
}

/// BLPOP.
pub const BLPOP: DataCommand = DataCommand {
    spec: pop_spec(
        "blpop",
        "Removes and returns the first element in a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
    ).key_access("RW access delete"),
    run: |ctx, args, reply| pop(ctx, args, reply, ListEnd::Front),
};
/// BRPOP.
pub const BRPOP: DataCommand = DataCommand {
    spec: pop_spec(
        "brpop",
        "Removes and returns the last element in a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
    ).key_access("RW access delete"),
    run: |ctx, args, reply| pop(ctx, args, reply, ListEnd::Back),
};
/// BLMPOP.
pub const BLMPOP: DataCommand = DataCommand {
    spec: Spec::shrink("blmpop", -5, Keys::Count { at: 2, dest: 0 }).key_access("RW access delete")
        .flag(Flags::BLOCKING.with(Flags::MOVABLEKEYS))
        .doc(
            Group::List,
            "7.0.0",
            "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
            "Pops the first element from one of multiple lists. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        )
        .cost("O(N+M)"),
    run: blmpop,
};
/// BLMOVE.
pub const BLMOVE: DataCommand = DataCommand {
    spec: Spec::write("blmove", 6, Keys::TWO).key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, "RW insert")]).flag(Flags::BLOCKING).doc(
        Group::List,
        "6.2.0",
        "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
        "Pops an element from a list, pushes it to another list and returns it. Blocks until an element is available otherwise. Deletes the list if the last element was moved.",
    ),
    run: |ctx, args, reply| {
        let ends = (end(args.at(3))?, end(args.at(4))?);
        transfer(ctx, args, ends, args.at(5), reply)
    },
};
/// BRPOPLPUSH.
pub const BRPOPLPUSH: DataCommand = DataCommand {
    spec: Spec::write("brpoplpush", 4, Keys::TWO).key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, "RW insert")]).deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments").flag(Flags::BLOCKING).doc(
        Group::List,
        "2.2.0",
        "source destination timeout",
        "Pops an element from a list, pushes it to another list and returns it. Block until an element is available otherwise. Deletes the list if the last element was popped.",
    ),
    run: |ctx, args, reply| transfer(ctx, args, (ListEnd::Back, ListEnd::Front), args.at(3), reply),
};

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, end: ListEnd) -> Result<(), Fault> {
    let last = args.len() - 1;
    let timeout_ms = timeout_ms(args.at(last))?;
    for key in args.head(last).tail(1).iter() {
        if ctx.skips(key) {
            continue;
        }
        let head = |(reply, _): (&mut Reply<'_>, u64)| {
            reply.array(2);
            reply.bulk(key);
        };
        if take(ctx, &[key], end, 1, head, reply)? {
            return Ok(());
        }
    }
    ctx.wait_or_reply(BlockingWait::for_a_key(timeout_ms, 0), reply);
    Ok(())
}

fn blmpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    // The other arguments are checked before the timeout.
    let many = parse_many(&mut ArgReader::new(args, 2))?;
    let timeout_ms = timeout_ms(args.at(1))?;
    ctx.may_repeat = false;
    if !take_many(ctx, &many, reply)? {
        ctx.wait_or_reply(BlockingWait::for_a_key(timeout_ms, 0), reply);
    }
    Ok(())
}

fn transfer(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    ends: (ListEnd, ListEnd),
    timeout: &[u8],
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let timeout_ms = timeout_ms(timeout)?;
    if !moves::transfer(ctx, args.at(1), args.at(2), ends, reply)? {
        if ctx.may_wait {
            ctx.wait = Some(Box::new(BlockingWait::for_a_key(timeout_ms, 2)));
        } else {
            // Not an array, as after a timeout.
            reply.null();
        }
    }
    Ok(())
}

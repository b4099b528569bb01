//! SISMEMBER key member, SMISMEMBER key member [member ...], SCARD key, SMEMBERS key

use darter_pack::entry::Item;
use darter_store::SetValue;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use super::{alive_len, read, shown_len};
use crate::ctx::{AHEAD, begins_batch};
use crate::item::reply_item;
use crate::slices;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SISMEMBER.
pub const SISMEMBER: DataCommand = DataCommand {
    spec: Spec::read("sismember", 3, Keys::ONE).key_access("RO").fast().doc(
        Group::Set,
        "1.0.0",
        "key member",
        "Determines whether a member belongs to a set.",
    ),
    run: sismember,
};
/// SMISMEMBER.
pub const SMISMEMBER: DataCommand = DataCommand {
    spec: Spec::read("smismember", -3, Keys::ONE)
        .fast()
        .doc(Group::Set, "6.2.0", "key member [member ...]", "Determines whether members belong to a set.")
        .cost("O(N)"),
    run: smismember,
};
/// SCARD.
pub const SCARD: DataCommand = DataCommand {
    spec: Spec::read("scard", 2, Keys::ONE).key_access("RO").fast().doc(
        Group::Set,
        "1.0.0",
        "key",
        "Returns the number of members in a set.",
    ),
    run: scard,
};
/// SMEMBERS.
pub const SMEMBERS: DataCommand = DataCommand {
    spec: Spec::read("smembers", 2, Keys::ONE)
        .tips(&["nondeterministic_output_order"])
        .doc(Group::Set, "1.0.0", "key", "Returns all members of a set.")
        .cost("O(N)"),
    run: smembers,
};

fn sismember(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let found = place
        .view::<SetValue>()?
        .is_some_and(|set| set.root.contains(set.arena, set.hasher, Item::of(args.at(2)), now_ms));
    reply.int(i64::from(found));
    Ok(())
}

fn smismember(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let set = place.view::<SetValue>()?;
    let members = args.tail(2);
    reply.array(members.len());
    for (at, member) in members.iter().enumerate() {
        if let Some(set) = set.filter(|_| begins_batch(at, members.len())) {
            set.root.look_ahead(set.arena, set.hasher, members.tail(at).iter().take(AHEAD));
        }
        let found = set.is_some_and(|set| set.root.contains(set.arena, set.hasher, Item::of(member), now_ms));
        reply.int(i64::from(found));
    }
    Ok(())
}

fn scard(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let len = read(ctx, args.at(1)).view::<SetValue>()?.map_or(0, |set| shown_len(set, now_ms));
    reply.int_len(len);
    Ok(())
}

fn smembers(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (now_ms, may_slice) = (ctx.now_ms, ctx.may_slice);
    let place = read(ctx, args.at(1));
    let Some(set) = place.view::<SetValue>()? else {
        reply.set(0);
        return Ok(());
    };
    let len = alive_len(set, now_ms);
    reply.set(len);
    if !may_slice || !slices::is_long(len as u64, set.root.next_expiry_ms(), now_ms) {
        set.root.iter(set.arena, now_ms).for_each(|member| reply_item(reply, member));
    } else if !ctx.leave_rest(args.at(1), Stretch::All, slices::tell_items(reply.is_resp3()))
        && let Some(set) = ctx.at(args.at(1)).view::<SetValue>()?
    {
        set.root.iter(set.arena, now_ms).for_each(|member| reply_item(reply, member));
    }
    Ok(())
}

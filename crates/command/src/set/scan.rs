//! SSCAN key cursor [MATCH pattern] [COUNT count]

use darter_pack::entry::Item;
use darter_store::SetValue;
use darter_wire::{Args, Reply};

use super::{encoding, read};
use crate::item::reply_item;
use crate::member_scan::{self, MemberScanOptions};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SSCAN.
pub const SSCAN: DataCommand = DataCommand {
    spec: Spec::read("sscan", -3, Keys::ONE)
        .tips(&["nondeterministic_output"])
        .doc(
            Group::Set,
            "2.8.0",
            "key cursor [MATCH pattern] [COUNT count]",
            "Iterates over members of a set.",
        )
        .cost("O(1) for every call, O(N) for a whole iteration"),
    run: sscan,
};

fn sscan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let cursor = member_scan::cursor(args.at(2))?;
    let (now_ms, env) = (ctx.now_ms, ctx.env);
    let place = read(ctx, args.at(1));
    let Some(set) = place.view::<SetValue>()? else {
        member_scan::reply_nothing(reply);
        return Ok(());
    };
    let options = MemberScanOptions::parse(args, false)?;
    // In Redis an array or a listpack is shown whole, for any count.
    let count = if encoding(set, env) == "hashtable" { options.count } else { usize::MAX };
    let mut shown: Vec<Item<'_>> = Vec::new();
    let next = set.root.scan(set.arena, cursor, count, set.hasher, now_ms, |member| {
        if options.accepts(member) {
            shown.push(member);
        }
    });
    member_scan::reply_cursor(reply, next);
    reply.array(shown.len());
    shown.into_iter().for_each(|member| reply_item(reply, member));
    Ok(())
}

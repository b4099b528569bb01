//! HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]

use darter_pack::table::{EntryRef, Table};
use darter_wire::{Args, Reply};

use super::{encoding, is_alive, read};
use crate::item::reply_item;
use crate::member_scan::{self, MemberScanOptions};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// HSCAN.
pub const HSCAN: DataCommand = DataCommand {
    spec: Spec::read("hscan", -3, Keys::ONE)
        .tips(&["nondeterministic_output"])
        .doc(
            Group::Hash,
            "2.8.0",
            "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
            "Iterates over fields and values of a hash.",
        )
        .cost("O(1) for every call, O(N) for a whole iteration"),
    run: hscan,
};

fn hscan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let cursor = member_scan::cursor(args.at(2))?;
    let (now_ms, env) = (ctx.now_ms, ctx.env);
    let place = read(ctx, args.at(1));
    let Some(hash) = place.view::<Table>()? else {
        member_scan::reply_nothing(reply);
        return Ok(());
    };
    let options = MemberScanOptions::parse(args, true)?;
    // In Redis a listpack is shown whole, for any count.
    let count = if encoding(hash, env) == "hashtable" { options.count } else { usize::MAX };
    let mut shown: Vec<EntryRef<'_>> = Vec::new();
    let hasher = |key: &[u8]| hash.hasher.hash(key);
    let next = hash.root.scan(hash.arena, cursor, count, &hasher, |entry| {
        if is_alive(&entry, now_ms) && options.accepts(entry.key()) {
            shown.push(entry);
        }
    });
    member_scan::reply_cursor(reply, next);
    reply.array(shown.len() * if options.no_values { 1 } else { 2 });
    for entry in shown {
        reply_item(reply, entry.key());
        if !options.no_values {
            reply_item(reply, entry.value());
        }
    }
    Ok(())
}

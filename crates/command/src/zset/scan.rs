//! ZSCAN key cursor [MATCH pattern] [COUNT count] [NOSCORES]

use darter_base::{glob, number};
use darter_pack::decimal::Digits;
use darter_pack::tree::Zset;
use darter_wire::{Args, Reply};

use crate::item::reply_item;
use crate::member_scan::COUNT_MAX;
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// ZSCAN.
pub const ZSCAN: DataCommand = DataCommand {
    spec: Spec::read("zscan", -3, Keys::ONE).tips(&["nondeterministic_output"])
        .doc(
            Group::SortedSet,
            "2.8.0",
            "key cursor [MATCH pattern] [COUNT count] [NOSCORES]",
            "Iterates over members and scores of a sorted set.",
        )
        .cost("O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection."),
    run: zscan,
};

struct ZscanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    with_scores: bool,
}

impl<'a> ZscanOptions<'a> {
    fn parse(args: Args<'a>) -> Result<ZscanOptions<'a>, Fault> {
        let mut options = ZscanOptions { pattern: None, count: 10, with_scores: true };
        let mut reader = ArgReader::new(args, 3);
        while !reader.is_done() {
            if reader.take_with("count", 1) {
                let count = usize::try_from(reader.int()?).ok().filter(|&n| n > 0);
                options.count = count.ok_or(Fault::Syntax)?.min(COUNT_MAX);
            } else if reader.take_with("match", 1) {
                options.pattern = Some(reader.bytes()?).filter(|&pattern| pattern != b"*");
            } else if reader.take("noscores") {
                options.with_scores = false;
            } else if reader.take("novalues") {
                return Err(Fault::text("ERR NOVALUES option can only be used in HSCAN"));
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }
}

/// The cursor as C's `strtoul` reads it, whole.
fn cursor(arg: &[u8]) -> Option<u64> {
    match arg {
        [] => Some(0),
        [b'-', digits @ ..] => Some(number::parse_u64_digits(digits)?.wrapping_neg()),
        [b'+', digits @ ..] | digits => number::parse_u64_digits(digits),
    }
}

fn zscan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let cursor = cursor(args.at(2)).ok_or(Fault::text("ERR invalid cursor"))?;
    let env = ctx.env;
    let place = super::read(ctx, args.at(1));
    // The reply for a missing key comes before the options are checked.
    let Some(zset) = place.view::<Zset>()? else {
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = ZscanOptions::parse(args)?;
    // Members are written before the next cursor is known, so they have a separate buffer.
    let mut found = Vec::new();
    let mut members = Reply::new(&mut found, false);
    let mut len = 0;
    // In Redis a listpack is shown whole, for any count.
    let count = if super::encoding(zset, env) == "listpack" { usize::MAX } else { options.count };
    let next = zset.root.scan(zset.arena, &zset.hasher, cursor, count, |member, score| {
        let mut digits = Digits::new();
        if options.pattern.is_some_and(|pattern| !glob::matches(pattern, member.text(&mut digits), false)) {
            return;
        }
        reply_item(&mut members, member);
        len += 1;
        if options.with_scores {
            // Text in RESP3, too.
            members.double(score);
            len += 1;
        }
    });
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(len);
    reply.raw(&found);
    Ok(())
}

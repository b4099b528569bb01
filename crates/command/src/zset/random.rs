//! ZRANDMEMBER key [count [WITHSCORES]]

use std::collections::BTreeSet;
use std::sync::Arc;

use darter_base::rng::Rng;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_pack::tree::{Direction, Zset};
use darter_store::reads::Stretch;
use darter_store::{Collection, KeyView, Type};
use darter_wire::{Args, Reply};

use super::{reply_head, reply_member};
use crate::item::reply_item;
use crate::member_scan::{check_budget, check_count};
use crate::reader::{self, is};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault, random, slices};

/// ZRANDMEMBER.
pub const ZRANDMEMBER: DataCommand = DataCommand {
    spec: Spec::read("zrandmember", -2, Keys::ONE)
        .tips(&["nondeterministic_output"])
        .doc(
            Group::SortedSet,
            "6.2.0",
            "key [count [WITHSCORES]]",
            "Returns one or more random members from a sorted set.",
        )
        .cost("O(N) where N is the number of members returned"),
    run: zrandmember,
};

fn zrandmember(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wanted = match args.get(2) {
        None => None,
        Some(count) => Some(parse(args, count)?),
    };
    if let Some(wanted) = wanted
        && leave_draws(ctx, args.at(1), wanted, reply)
    {
        return Ok(());
    }
    let (env, may_slice, now_ms) = (ctx.env, ctx.may_slice, ctx.now_ms);
    let mut place = super::read(ctx, args.at(1));
    let mut rng = Rng::new(place.random());
    let zset = place.view::<Zset>()?;
    match (wanted, zset) {
        (None, None) => reply.null(),
        (Some(_), None) => reply.array(0),
        (None, Some(zset)) => {
            let rank = rng.below(zset.root.len());
            if let Some((member, _)) = zset.root.nth(zset.arena, rank) {
                reply_item(reply, member);
            }
        }
        (Some((count, with_scores)), Some(zset)) if count < 0 => {
            let count = count.unsigned_abs();
            check_count(count, env)?;
            let mark = reply.len();
            reply_head(reply, count, with_scores);
            for _ in 0..count {
                let rank = rng.below(zset.root.len());
                if let Some(member) = zset.root.nth(zset.arena, rank) {
                    reply_member(reply, member, with_scores);
                }
                check_budget(reply, mark, env)?;
            }
        }
        (Some((count, with_scores)), Some(zset)) => {
            let len = zset.root.len();
            let count = count.unsigned_abs().min(len);
            let is_for_slices = may_slice
                && count > len / DRAWN_MAX_DIVISOR
                && slices::is_long(len, zset.root.next_expiry_ms(), now_ms);
            if is_for_slices {
                return answer_long(ctx, args.at(1), (count, len), rng, with_scores, reply);
            }
            reply_different(zset, count, with_scores, &mut rng, reply);
        }
    }
    Ok(())
}

/// Answers `count` of all `len` members, by a walk in slices.
fn answer_long(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    (count, len): (u64, u64),
    mut rng: Rng,
    with_scores: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (resp3, seed) = (reply.is_resp3(), rng.next_u64());
    let tell = random::tell_some(tell(with_scores, resp3), (count, len), rng);
    if ctx.leave_rest(name, Stretch::Ranks(0, len, Direction::Up), tell) {
        reply_head(reply, count, with_scores);
    } else if let Some(zset) = ctx.at(name).view::<Zset>()? {
        reply_different(zset, count, with_scores, &mut Rng::new(seed), reply);
    }
    Ok(())
}

/// Leaves this number of draws to slices; false if they must be made now.
fn leave_draws(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    (count, with_scores): (i64, bool),
    reply: &mut Reply<'_>,
) -> bool {
    let resp3 = reply.is_resp3();
    let head = |reply: &mut Reply<'_>, len| reply_head(reply, len, with_scores);
    ctx.draw((name, Type::Zset), count, head, || tell(with_scores, resp3), reply)
}

/// Writes members in the order received.
fn tell(with_scores: bool, resp3: bool) -> Tell {
    Arc::new(move |seen, out| {
        if let SeenLeaf::Scored(member, score) = seen {
            reply_member(&mut Reply::new(out, resp3), (member, score), with_scores);
        }
    })
}

/// A count, negative for members that may repeat, and whether scores are requested.
fn parse(args: Args<'_>, count: &[u8]) -> Result<(i64, bool), Fault> {
    let count = reader::int(count)?;
    if count == i64::MIN {
        return Err(Fault::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let with_scores = match (args.get(3), args.len()) {
        (None, _) => false,
        (Some(word), 4) if is(word, "withscores") => true,
        _ => return Err(Fault::Syntax),
    };
    if with_scores && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return Err(Fault::OutOfRange);
    }
    Ok((count, with_scores))
}

/// Answers `count` different members, each choice as likely as any other.
fn reply_different(
    zset: KeyView<'_, Zset>,
    count: u64,
    with_scores: bool,
    rng: &mut Rng,
    reply: &mut Reply<'_>,
) {
    let len = zset.root.len();
    let count = count.min(len);
    reply_head(reply, count, with_scores);
    // Drawing a rank costs more than passing a member.
    if count > len / DRAWN_MAX_DIVISOR {
        let (mut wanted, mut left) = (count, len);
        for member in zset.root.iter(zset.arena, 0, Direction::Up) {
            if rng.below(left) < wanted {
                wanted -= 1;
                reply_member(reply, member, with_scores);
            }
            left -= 1;
        }
        return;
    }
    // Floyd's choice of `count` of `len` numbers, each number examined once.
    let mut ranks = BTreeSet::new();
    for limit in len - count..len {
        let rank = rng.below(limit + 1);
        let rank = if ranks.insert(rank) { rank } else { limit };
        ranks.insert(rank);
        if let Some(member) = zset.root.nth(zset.arena, rank) {
            reply_member(reply, member, with_scores);
        }
    }
}

/// If more than one of this many members is chosen, all members are walked.
const DRAWN_MAX_DIVISOR: u64 = 8;

//! ZCARD key, ZSCORE key member, ZMSCORE key member [member ...], ZCOUNT key min max, ZLEXCOUNT key min max,
//! ZRANK key member [WITHSCORE], ZREVRANK

use darter_pack::entry::Item;
use darter_pack::tree::Zset;
use darter_wire::{Args, Reply};

use super::bound::{RangeBy, ScoreRange};
use crate::reader::is;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const fn doc(spec: Spec, since: &'static str, syntax: &'static str, summary: &'static str) -> Spec {
    spec.fast().doc(Group::SortedSet, since, syntax, summary)
}

/// ZCARD.
pub const ZCARD: DataCommand = DataCommand {
    spec: doc(
        Spec::read("zcard", 2, Keys::ONE).key_access("RO"),
        "1.2.0",
        "key",
        "Returns the number of members in a sorted set.",
    ),
    run: |ctx, args, reply| {
        let place = super::read(ctx, args.at(1));
        reply.int(place.view::<Zset>()?.map_or(0, |zset| zset.root.len() as i64));
        Ok(())
    },
};
/// ZSCORE.
pub const ZSCORE: DataCommand = DataCommand {
    spec: doc(
        Spec::read("zscore", 3, Keys::ONE),
        "1.2.0",
        "key member",
        "Returns the score of a member in a sorted set.",
    ),
    run: zscore,
};
/// ZMSCORE.
pub const ZMSCORE: DataCommand = DataCommand {
    spec: doc(
        Spec::read("zmscore", -3, Keys::ONE),
        "6.2.0",
        "key member [member ...]",
        "Returns the score of one or more members in a sorted set.",
    )
    .cost("O(N) where N is the number of members being requested."),
    run: zmscore,
};
/// ZCOUNT.
pub const ZCOUNT: DataCommand = DataCommand {
    spec: doc(
        Spec::read("zcount", 4, Keys::ONE),
        "2.0.0",
        "key min max",
        "Returns the count of members in a sorted set that have scores within a range.",
    )
    .cost("O(log(N)) with N being the number of elements in the sorted set."),
    run: |ctx, args, reply| count(ctx, args, reply, RangeBy::Score),
};
/// ZLEXCOUNT.
pub const ZLEXCOUNT: DataCommand = DataCommand {
    spec: doc(
        Spec::read("zlexcount", 4, Keys::ONE),
        "2.8.9",
        "key min max",
        "Returns the number of members in a sorted set within a lexicographical range.",
    )
    .cost("O(log(N)) with N being the number of elements in the sorted set."),
    run: |ctx, args, reply| count(ctx, args, reply, RangeBy::Text),
};

const fn rank_spec(name: &'static str, summary: &'static str) -> Spec {
    doc(Spec::read(name, -3, Keys::ONE), "2.0.0", "key member [WITHSCORE]", summary).cost("O(log(N))")
}

/// ZRANK.
pub const ZRANK: DataCommand = DataCommand {
    spec: rank_spec("zrank", "Returns the index of a member in a sorted set ordered by ascending scores."),
    run: |ctx, args, reply| rank(ctx, args, reply, false),
};
/// ZREVRANK.
pub const ZREVRANK: DataCommand = DataCommand {
    spec: rank_spec(
        "zrevrank",
        "Returns the index of a member in a sorted set ordered by descending scores.",
    ),
    run: |ctx, args, reply| rank(ctx, args, reply, true),
};

fn zscore(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = super::read(ctx, args.at(1));
    let zset = place.view::<Zset>()?;
    match zset.and_then(|zset| zset.root.score(zset.arena, &zset.hasher, Item::of(args.at(2)))) {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
    Ok(())
}

fn zmscore(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = super::read(ctx, args.at(1));
    let zset = place.view::<Zset>()?;
    let members = args.tail(2);
    reply.array(members.len());
    for member in members.iter() {
        match zset.and_then(|zset| zset.root.score(zset.arena, &zset.hasher, Item::of(member))) {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, by: RangeBy) -> Result<(), Fault> {
    let range = ScoreRange::parse(by, args.at(2), args.at(3))?;
    let place = super::read(ctx, args.at(1));
    reply.int(place.view::<Zset>()?.map_or(0, |zset| range.run(zset).len as i64));
    Ok(())
}

fn rank(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, is_reversed: bool) -> Result<(), Fault> {
    let with_score = match (args.get(3), args.len()) {
        (None, _) => false,
        (Some(word), 4) if is(word, "withscore") => true,
        (Some(_), 4) => return Err(Fault::Syntax),
        (Some(_), _) => return Err(Fault::Arity(if is_reversed { "zrevrank" } else { "zrank" }.into())),
    };
    let place = super::read(ctx, args.at(1));
    let zset = place.view::<Zset>()?;
    let found = zset.and_then(|zset| {
        let (rank, score) = zset.root.rank(zset.arena, &zset.hasher, Item::of(args.at(2)))?;
        Some((if is_reversed { zset.root.len() - 1 - rank } else { rank }, score))
    });
    match (found, with_score) {
        (Some((rank, _)), false) => reply.int(rank as i64),
        (Some((rank, score)), true) => {
            reply.array(2);
            reply.int(rank as i64);
            reply.double(score);
        }
        (None, false) => reply.null(),
        (None, true) => reply.null_array(),
    }
    Ok(())
}

//! ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES], its six forms of one
//! order each, and ZRANGESTORE dst src min max ...

use crate::keyspec;
use std::sync::Arc;

use darter_pack::tree::window::SeenLeaf;
use darter_pack::tree::zset::ZsetIter;
use darter_pack::tree::{Direction, Zset};
use darter_store::KeyView;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use super::bound::{RangeBy, RankRun, ScoreRange};
use super::{StoredMembers, event, reply_head, reply_member, store};
use crate::incremental::staged::may_keep_scores;
use crate::incremental::{Copying, StagedForm};
use crate::reader::ArgReader;
use crate::slices;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const COST: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.";

const fn spec(name: &'static str, since: &'static str, syntax: &'static str, summary: &'static str) -> Spec {
    Spec::read(name, -4, Keys::ONE).doc(Group::SortedSet, since, syntax, summary).cost(COST)
}

/// ZRANGE.
pub const ZRANGE: DataCommand = DataCommand {
    spec: spec(
        "zrange",
        "1.2.0",
        "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        "Returns members in a sorted set within a range of indexes.",
    ),
    run: |ctx, args, reply| answer(ctx, args, None, None, reply),
};
/// ZREVRANGE.
pub const ZREVRANGE: DataCommand = DataCommand {
    spec: spec(
        "zrevrange",
        "1.2.0",
        "key start stop [WITHSCORES]",
        "Returns members in a sorted set within a range of indexes in reverse order.",
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` argument"),
    run: |ctx, args, reply| answer(ctx, args, Some(RangeBy::Rank), Some(Direction::Down), reply),
};
/// ZRANGEBYSCORE.
pub const ZRANGEBYSCORE: DataCommand = DataCommand {
    spec: spec(
        "zrangebyscore",
        "1.0.5",
        "key min max [WITHSCORES] [LIMIT offset count]",
        "Returns members in a sorted set within a range of scores.",
    )
    .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument"),
    run: |ctx, args, reply| answer(ctx, args, Some(RangeBy::Score), Some(Direction::Up), reply),
};
/// ZREVRANGEBYSCORE.
pub const ZREVRANGEBYSCORE: DataCommand = DataCommand {
    spec: spec(
        "zrevrangebyscore",
        "2.2.0",
        "key max min [WITHSCORES] [LIMIT offset count]",
        "Returns members in a sorted set within a range of scores in reverse order.",
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments"),
    run: |ctx, args, reply| answer(ctx, args, Some(RangeBy::Score), Some(Direction::Down), reply),
};
/// ZRANGEBYLEX.
pub const ZRANGEBYLEX: DataCommand = DataCommand {
    spec: spec(
        "zrangebylex",
        "2.8.9",
        "key min max [LIMIT offset count]",
        "Returns members in a sorted set within a lexicographical range.",
    )
    .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument"),
    run: |ctx, args, reply| answer(ctx, args, Some(RangeBy::Text), Some(Direction::Up), reply),
};
/// ZREVRANGEBYLEX.
pub const ZREVRANGEBYLEX: DataCommand = DataCommand {
    spec: spec(
        "zrevrangebylex",
        "2.8.9",
        "key max min [LIMIT offset count]",
        "Returns members in a sorted set within a lexicographical range in reverse order.",
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments"),
    run: |ctx, args, reply| answer(ctx, args, Some(RangeBy::Text), Some(Direction::Down), reply),
};
/// ZRANGESTORE.
pub const ZRANGESTORE: DataCommand = DataCommand {
    spec: Spec::write("zrangestore", -5, Keys::TWO).key_groups(&[keyspec::one(1, keyspec::WRITTEN), keyspec::one(2, keyspec::READ)])
        .doc(
            Group::SortedSet,
            "6.2.0",
            "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
            "Stores a range of members from sorted set in a key.",
        )
        .cost("O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key."),
    run: zrangestore,
};

/// A range with its direction, limits and form of answer.
struct ZrangeQuery<'a> {
    range: ScoreRange<'a>,
    direction: Direction,
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

impl<'a> ZrangeQuery<'a> {
    /// Reads the arguments after the key at `at`. `by` and `direction` are set if the command's name implies them.
    fn parse(
        args: Args<'a>,
        at: usize,
        mut by: Option<RangeBy>,
        mut direction: Option<Direction>,
        is_stored: bool,
    ) -> Result<ZrangeQuery<'a>, Fault> {
        let mut reader = ArgReader::new(args, at + 3);
        let (mut limit, mut with_scores) = (None, false);
        while !reader.is_done() {
            if !is_stored && reader.take("withscores") {
                with_scores = true;
            } else if reader.take_with("limit", 2) {
                limit = Some((reader.int()?, reader.int()?));
            } else if direction.is_none() && reader.take("rev") {
                direction = Some(Direction::Down);
            } else if by.is_none() && reader.take("bylex") {
                by = Some(RangeBy::Text);
            } else if by.is_none() && reader.take("byscore") {
                by = Some(RangeBy::Score);
            } else {
                return Err(Fault::Syntax);
            }
        }
        let (by, direction) = (by.unwrap_or(RangeBy::Rank), direction.unwrap_or(Direction::Up));
        if by == RangeBy::Rank && limit.is_some_and(|(_, count)| count != -1) {
            return Err(Fault::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if by == RangeBy::Text && with_scores {
            return Err(Fault::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (mut min, mut max) = (args.at(at + 1), args.at(at + 2));
        if by != RangeBy::Rank && direction == Direction::Down {
            (min, max) = (max, min);
        }
        Ok(ZrangeQuery { range: ScoreRange::parse(by, min, max)?, direction, limit, with_scores })
    }

    fn show(&self, reply: &mut Reply<'_>, zset: KeyView<'_, Zset>, run: RankRun) {
        let members = walk(zset, run, self.direction).take(run.len as usize);
        members.for_each(|member| reply_member(reply, member, self.with_scores));
    }

    /// The members it covers, from the lowest.
    fn run(&self, zset: KeyView<'_, Zset>) -> RankRun {
        let is_reversed = self.direction == Direction::Down;
        let run = self.range.run(zset);
        match (self.range, self.limit) {
            (ScoreRange::Rank(..), _) if is_reversed => run.mirrored(zset.root.len()),
            (ScoreRange::Rank(..), _) | (_, None) => run,
            (_, Some((offset, count))) => run.limited(offset, count, is_reversed),
        }
    }
}

/// The members of a run in a direction; the caller takes `run.len` of them.
fn walk<'a>(zset: KeyView<'a, Zset>, run: RankRun, direction: Direction) -> ZsetIter<'a> {
    let from = match direction {
        Direction::Up => run.first,
        Direction::Down => (run.first + run.len).saturating_sub(1),
    };
    zset.root.iter(zset.arena, from, direction)
}

fn answer(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    by: Option<RangeBy>,
    direction: Option<Direction>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let query = ZrangeQuery::parse(args, 1, by, direction, false)?;
    let (now_ms, may_slice) = (ctx.now_ms, ctx.may_slice);
    let place = super::read(ctx, args.at(1));
    let Some(zset) = place.view::<Zset>()? else {
        reply.array(0);
        return Ok(());
    };
    let run = query.run(zset);
    reply_head(reply, run.len, query.with_scores);
    if !may_slice || !slices::is_long(run.len, zset.root.next_expiry(), now_ms) {
        query.show(reply, zset, run);
        return Ok(());
    }
    let (with_scores, resp3) = (query.with_scores, reply.is_resp3());
    let tell = Arc::new(move |seen: SeenLeaf<'_>, out: &mut Vec<u8>| match seen {
        SeenLeaf::Scored(member, score) => {
            reply_member(&mut Reply::new(out, resp3), (member, score), with_scores);
        }
        _ => debug_assert!(false, "a sorted set has scores"),
    });
    let stretch = Stretch::Ranks(run.first, run.len, query.direction);
    if !ctx.leave_rest(args.at(1), stretch, tell)
        && let Some(zset) = ctx.at(args.at(1)).view::<Zset>()?
    {
        query.show(reply, zset, run);
    }
    Ok(())
}

fn zrangestore(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if let Some(staged) = ctx.staged.take() {
        reply.int(staged.put(ctx, args.at(1), event("zrangestore"))? as i64);
        return Ok(());
    }
    let query = ZrangeQuery::parse(args, 2, None, None, true)?;
    let may_slice = ctx.may_slice && may_keep_scores(ctx.env);
    let place = super::read(ctx, args.at(2));
    let zset = place.view::<Zset>()?.filter(|zset| may_slice && zset.root.next_expiry().is_none());
    if let Some(run) = zset.map(|zset| query.run(zset)).filter(|run| run.len > slices::LEN_MAX) {
        // Stored from the lowest on, for any direction.
        let read = [(args.at(2), Stretch::Ranks(run.first, run.len, Direction::Up))];
        if ctx.store_later((args.at(1), StagedForm::Zset), &[args.at(2)], &read, Box::new(Copying)) {
            return Ok(());
        }
    }
    let mut members = StoredMembers::default();
    if let Some(zset) = super::at(ctx, args.at(2)).view::<Zset>()? {
        let run = query.run(zset);
        for (member, score) in walk(zset, run, query.direction).take(run.len as usize) {
            members.push(member, score);
        }
    }
    reply.int(store(ctx, args.at(1), &members, "zrangestore")?);
    Ok(())
}

//! ZUNION numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX | COUNT] [WITHSCORES],
//! ZINTER, ZDIFF, ZINTERCARD, and ZUNIONSTORE, ZINTERSTORE, ZDIFFSTORE

use darter_pack::entry::Item;
use darter_wire::{Args, Reply};

use super::source::{Member, MemberHasher, Scores, Source, order};
use super::{Members, reply_head, reply_member, store};
use crate::reader::{Reader, is};
use crate::spec::{Flags, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const UNION_COST: &str = "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.";
const INTER_COST: &str = "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.";
const DIFF_COST: &str = "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.";

const fn read_spec(name: &'static str, syntax: &'static str, summary: &'static str) -> Spec {
    Spec::read(name, -3, Keys::Count { at: 1, dest: 0 }).flag(Flags::MOVABLEKEYS).doc(
        Group::SortedSet,
        "6.2.0",
        syntax,
        summary,
    )
}

const fn store_spec(
    name: &'static str,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::write(name, -4, Keys::Count { at: 2, dest: 1 }).flag(Flags::MOVABLEKEYS).doc(
        Group::SortedSet,
        since,
        syntax,
        summary,
    )
}

/// ZUNION.
pub const ZUNION: DataCommand = DataCommand {
    spec: read_spec(
        "zunion",
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] [WITHSCORES]",
        "Returns the union of multiple sorted sets.",
    )
    .cost(UNION_COST),
    run: |ctx, args, reply| answer(ctx, args, Operation::Union, reply),
};
/// ZINTER.
pub const ZINTER: DataCommand = DataCommand {
    spec: read_spec(
        "zinter",
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] [WITHSCORES]",
        "Returns the intersect of multiple sorted sets.",
    )
    .cost(INTER_COST),
    run: |ctx, args, reply| answer(ctx, args, Operation::Inter, reply),
};
/// ZDIFF.
pub const ZDIFF: DataCommand = DataCommand {
    spec: read_spec(
        "zdiff",
        "numkeys key [key ...] [WITHSCORES]",
        "Returns the difference between multiple sorted sets.",
    )
    .cost(DIFF_COST),
    run: |ctx, args, reply| answer(ctx, args, Operation::Diff, reply),
};
/// ZUNIONSTORE.
pub const ZUNIONSTORE: DataCommand = DataCommand {
    spec: store_spec(
        "zunionstore",
        "2.0.0",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>]",
        "Stores the union of multiple sorted sets in a key.",
    )
    .cost(UNION_COST),
    run: |ctx, args, reply| combine_and_store(ctx, args, Operation::Union, reply),
};
/// ZINTERSTORE.
pub const ZINTERSTORE: DataCommand = DataCommand {
    spec: store_spec(
        "zinterstore",
        "2.0.0",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>]",
        "Stores the intersect of multiple sorted sets in a key.",
    )
    .cost(INTER_COST),
    run: |ctx, args, reply| combine_and_store(ctx, args, Operation::Inter, reply),
};
/// ZDIFFSTORE.
pub const ZDIFFSTORE: DataCommand = DataCommand {
    spec: store_spec(
        "zdiffstore",
        "6.2.0",
        "destination numkeys key [key ...]",
        "Stores the difference of multiple sorted sets in a key.",
    )
    .cost(DIFF_COST),
    run: |ctx, args, reply| combine_and_store(ctx, args, Operation::Diff, reply),
};
/// ZINTERCARD.
pub const ZINTERCARD: DataCommand = DataCommand {
    spec: Spec::read("zintercard", -3, Keys::Count { at: 1, dest: 0 })
        .flag(Flags::MOVABLEKEYS)
        .doc(
            Group::SortedSet,
            "7.0.0",
            "numkeys key [key ...] [LIMIT limit]",
            "Returns the number of members of the intersect of multiple sorted sets.",
        )
        .cost("O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets."),
    run: zintercard,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// How the scores of a member in several inputs become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    // how many inputs have the member, each counting as its weight
    Count,
}

impl Aggregate {
    fn weighted(self, score: f64, weight: f64) -> f64 {
        if self == Aggregate::Count { weight } else { score * weight }
    }

    fn add(self, total: f64, score: f64) -> f64 {
        match self {
            Aggregate::Sum | Aggregate::Count => number_or_zero(total + score),
            Aggregate::Min => {
                if score < total {
                    score
                } else {
                    total
                }
            }
            Aggregate::Max => {
                if score > total {
                    score
                } else {
                    total
                }
            }
        }
    }
}

/// Infinities of both signs make 0, as does nothing times infinity.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The inputs with their weights, and the options after them.
struct Query<'a> {
    sources: Vec<(Source<'a>, f64)>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// The inputs counted by argument `at`; the reader goes on behind them.
fn sources<'a>(
    ctx: &'a mut Ctx<'_>,
    args: Args<'_>,
    at: usize,
    name: &'static str,
) -> Result<(Vec<(Source<'a>, f64)>, usize), Fault> {
    let mut reader = Reader::new(args, at);
    let numkeys = reader.int()?;
    if numkeys < 1 {
        return Err(Fault::Text(format!("ERR at least 1 input key is needed for '{name}' command").into()));
    }
    let numkeys = usize::try_from(numkeys).ok().filter(|&n| n <= reader.left()).ok_or(Fault::Syntax)?;
    let keys = args.tail(at + 1).head(numkeys);
    // Hits and misses count.
    for key in keys.iter() {
        super::read(ctx, key);
    }
    let ctx: &'a Ctx<'_> = ctx;
    let sources = keys.iter().map(|key| Ok((Source::at(ctx, key)?, 1.0))).collect::<Result<_, Fault>>()?;
    Ok((sources, at + 1 + numkeys))
}

impl<'a> Query<'a> {
    fn parse(
        ctx: &'a mut Ctx<'_>,
        args: Args<'_>,
        (operation, is_stored): (Operation, bool),
    ) -> Result<Query<'a>, Fault> {
        let at = if is_stored { 2 } else { 1 };
        let (sources, options_at) = sources(ctx, args, at, operation.name(is_stored))?;
        let mut query = Query { sources, aggregate: Aggregate::Sum, with_scores: false };
        let may_weigh = operation != Operation::Diff;
        let mut reader = Reader::new(args, options_at);
        while !reader.is_done() {
            if may_weigh && reader.take_with("weights", query.sources.len()) {
                for (_, weight) in &mut query.sources {
                    *weight = reader.float().map_err(|_| Fault::text("ERR weight value is not a float"))?;
                }
            } else if may_weigh && reader.take_with("aggregate", 1) {
                query.aggregate = match reader.bytes()? {
                    word if is(word, "sum") => Aggregate::Sum,
                    word if is(word, "min") => Aggregate::Min,
                    word if is(word, "max") => Aggregate::Max,
                    word if is(word, "count") => Aggregate::Count,
                    _ => return Err(Fault::Syntax),
                };
            } else if !is_stored && reader.take("withscores") {
                query.with_scores = true;
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(query)
    }

    /// The members of the result in order.
    fn run(mut self, operation: Operation) -> Vec<(Item<'a>, f64)> {
        let mut members = Vec::new();
        match operation {
            Operation::Union => {
                self.sources.sort_by_key(|(source, _)| source.len());
                members = union(&self.sources, self.aggregate);
            }
            Operation::Inter => {
                self.sources.sort_by_key(|(source, _)| source.len());
                intersect(&self.sources, self.aggregate, |member, score| {
                    members.push((member, score));
                    true
                });
            }
            Operation::Diff => {
                if let Some(((first, _), others)) = self.sources.split_first() {
                    first.each(|member, score| {
                        if others.iter().all(|(other, _)| other.score(member).is_none()) {
                            members.push((member, score));
                        }
                        true
                    });
                }
            }
        }
        members.sort_unstable_by(order);
        members
    }
}

impl Operation {
    fn name(self, is_stored: bool) -> &'static str {
        match (self, is_stored) {
            (Operation::Union, false) => "zunion",
            (Operation::Inter, false) => "zinter",
            (Operation::Diff, false) => "zdiff",
            (Operation::Union, true) => "zunionstore",
            (Operation::Inter, true) => "zinterstore",
            (Operation::Diff, true) => "zdiffstore",
        }
    }
}

/// The members of all inputs. Scores are added up from the smallest input to the largest.
fn union<'a>(sources: &[(Source<'a>, f64)], aggregate: Aggregate) -> Vec<(Item<'a>, f64)> {
    let hasher = sources.iter().find_map(|(source, _)| match source {
        Source::Missing => None,
        Source::Zset(zset) => Some(zset.hasher),
        Source::Set(set, _) => Some(set.hasher),
    });
    let Some(hasher) = hasher else { return Vec::new() };
    let mut scores = Scores::with_hasher(MemberHasher(hasher));
    for (source, weight) in sources {
        source.each(|member, score| {
            let score = number_or_zero(aggregate.weighted(score, *weight));
            scores
                .entry(Member(member))
                .and_modify(|total| *total = aggregate.add(*total, score))
                .or_insert(score);
            true
        });
    }
    scores.into_iter().map(|(member, score)| (member.0, score)).collect()
}

/// Shows the members that all inputs have, the smallest of which comes first, as long as `visit` returns true.
fn intersect<'a>(
    sources: &[(Source<'a>, f64)],
    aggregate: Aggregate,
    mut visit: impl FnMut(Item<'a>, f64) -> bool,
) {
    let Some(((first, weight), others)) = sources.split_first() else { return };
    first.each(|member, score| {
        let first = number_or_zero(aggregate.weighted(score, *weight));
        let total = others.iter().try_fold(first, |total, (other, weight)| {
            Some(aggregate.add(total, aggregate.weighted(other.score(member)?, *weight)))
        });
        total.is_none_or(|total| visit(member, total))
    });
}

fn answer(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    operation: Operation,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let query = Query::parse(ctx, args, (operation, false))?;
    let with_scores = query.with_scores;
    let members = query.run(operation);
    reply_head(reply, members.len() as u64, with_scores);
    for member in members {
        reply_member(reply, member, with_scores);
    }
    Ok(())
}

fn combine_and_store(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    operation: Operation,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut members = Members::default();
    for (member, score) in Query::parse(ctx, args, (operation, true))?.run(operation) {
        members.push(member, score);
    }
    reply.int(store(ctx, args.at(1), &members, operation.name(true))?);
    Ok(())
}

fn zintercard(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (mut sources, options_at) = sources(ctx, args, 1, "zintercard")?;
    let mut reader = Reader::new(args, options_at);
    let mut limit = 0;
    while !reader.is_done() {
        if !reader.take_with("limit", 1) {
            return Err(Fault::Syntax);
        }
        limit = reader.int_from(0, Fault::text("ERR LIMIT can't be negative"))?;
    }
    sources.sort_by_key(|(source, _)| source.len());
    let mut count = 0;
    intersect(&sources, Aggregate::Sum, |_, _| {
        count += 1;
        count != limit
    });
    reply.int(count);
    Ok(())
}

//! ZUNION numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX | COUNT] [WITHSCORES],
//! ZINTER, ZDIFF, ZINTERCARD, and ZUNIONSTORE, ZINTERSTORE, ZDIFFSTORE

use crate::keyspec;
use darter_pack::entry::Item;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use super::aggregate::Aggregate;
use super::source::{MemberHasher, Scores, SourceMember, ZsetSource, order};
use super::{StoredMembers, event, reply_head, reply_member, store};
use crate::incremental::staged::may_keep_scores;
use crate::incremental::{Combining, Scoring, SetOperation, StagedForm, reading_order};
use crate::reader::{ArgReader, is};
use crate::slices;
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
    run: |ctx, args, reply| answer(ctx, args, SetOperation::Unite, reply),
};
/// ZINTER.
pub const ZINTER: DataCommand = DataCommand {
    spec: read_spec(
        "zinter",
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] [WITHSCORES]",
        "Returns the intersect of multiple sorted sets.",
    )
    .cost(INTER_COST),
    run: |ctx, args, reply| answer(ctx, args, SetOperation::Intersect, reply),
};
/// ZDIFF.
pub const ZDIFF: DataCommand = DataCommand {
    spec: read_spec(
        "zdiff",
        "numkeys key [key ...] [WITHSCORES]",
        "Returns the difference between multiple sorted sets.",
    )
    .cost(DIFF_COST),
    run: |ctx, args, reply| answer(ctx, args, SetOperation::Subtract, reply),
};
/// ZUNIONSTORE.
pub const ZUNIONSTORE: DataCommand = DataCommand {
    spec: store_spec(
        "zunionstore",
        "2.0.0",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>]",
        "Stores the union of multiple sorted sets in a key.",
    ).key_groups(&[keyspec::one(1, keyspec::WRITTEN), keyspec::count(2, keyspec::READ)])
    .cost(UNION_COST),
    run: |ctx, args, reply| combine_and_store(ctx, args, SetOperation::Unite, reply),
};
/// ZINTERSTORE.
pub const ZINTERSTORE: DataCommand = DataCommand {
    spec: store_spec(
        "zinterstore",
        "2.0.0",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>]",
        "Stores the intersect of multiple sorted sets in a key.",
    ).key_groups(&[keyspec::one(1, keyspec::WRITTEN), keyspec::count(2, keyspec::READ)])
    .cost(INTER_COST),
    run: |ctx, args, reply| combine_and_store(ctx, args, SetOperation::Intersect, reply),
};
/// ZDIFFSTORE.
pub const ZDIFFSTORE: DataCommand = DataCommand {
    spec: store_spec(
        "zdiffstore",
        "6.2.0",
        "destination numkeys key [key ...]",
        "Stores the difference of multiple sorted sets in a key.",
    )
    .key_groups(&[keyspec::one(1, keyspec::WRITTEN), keyspec::count(2, keyspec::READ)])
    .cost(DIFF_COST),
    run: |ctx, args, reply| combine_and_store(ctx, args, SetOperation::Subtract, reply),
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

/// The inputs with their weights, and the options after them.
struct CombineQuery<'a> {
    sources: Vec<(ZsetSource<'a>, f64)>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// The inputs counted by argument `at`; the reader continues after them.
fn sources<'a>(
    ctx: &'a mut Ctx<'_>,
    args: Args<'_>,
    at: usize,
    name: &'static str,
) -> Result<(Vec<(ZsetSource<'a>, f64)>, usize), Fault> {
    let mut reader = ArgReader::new(args, at);
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
    let sources =
        keys.iter().map(|key| Ok((ZsetSource::at(ctx, key)?, 1.0))).collect::<Result<_, Fault>>()?;
    Ok((sources, at + 1 + numkeys))
}

impl<'a> CombineQuery<'a> {
    fn parse(
        ctx: &'a mut Ctx<'_>,
        args: Args<'_>,
        (operation, is_stored): (SetOperation, bool),
    ) -> Result<CombineQuery<'a>, Fault> {
        let at = if is_stored { 2 } else { 1 };
        let (sources, options_at) = sources(ctx, args, at, name_of(operation, is_stored))?;
        let mut query = CombineQuery { sources, aggregate: Aggregate::Sum, with_scores: false };
        let may_weigh = operation != SetOperation::Subtract;
        let mut reader = ArgReader::new(args, options_at);
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

    /// The answer in slices, if that is better than at once.
    fn for_slices(&self, operation: SetOperation) -> Option<(Order, Combining)> {
        let order = order_of(operation, &self.sources)?;
        // The difference takes the scores of the first input unchanged.
        let weights = order.iter().filter_map(|(at, _)| Some(self.sources.get(*at)?.1)).collect();
        let scoring = Scoring::Scores { aggregate: self.aggregate, weights, are_told: self.with_scores };
        let combining = combining(operation, scoring, &self.sources, &order)?;
        Some((order, combining))
    }

    /// Like [`CombineQuery::for_slices`], for a result to be stored: no member may expire meanwhile.
    fn for_keeping(&self, operation: SetOperation) -> Option<(Order, Combining)> {
        if self.sources.iter().any(|(source, _)| source.expires()) {
            return None;
        }
        self.for_slices(operation)
    }

    /// The members of the result in order.
    fn run(mut self, operation: SetOperation) -> Vec<(Item<'a>, f64)> {
        let mut members = Vec::new();
        match operation {
            SetOperation::Unite => {
                self.sources.sort_by_key(|(source, _)| source.len());
                members = union(&self.sources, self.aggregate);
            }
            SetOperation::Intersect => {
                self.sources.sort_by_key(|(source, _)| source.len());
                intersect(&self.sources, self.aggregate, |member, score| {
                    members.push((member, score));
                    true
                });
            }
            SetOperation::Subtract => {
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

/// Inputs in the order in which slices read them: by number, with the stretch of each.
type Order = Vec<(usize, Stretch)>;

/// The order in which to read the inputs, if slices are better.
fn order_of(operation: SetOperation, sources: &[(ZsetSource<'_>, f64)]) -> Option<Order> {
    let lens: Vec<u64> = sources.iter().map(|(source, _)| source.len()).collect();
    let order = reading_order(operation, &lens)?;
    if sources.iter().any(|(source, _)| source.is_due()) {
        return None;
    }
    let stretch = |at: usize| Some((at, sources.get(at)?.0.stretch()));
    order.into_iter().map(stretch).collect()
}

/// The combination that slices compute.
fn combining(
    operation: SetOperation,
    scoring: Scoring,
    sources: &[(ZsetSource<'_>, f64)],
    order: &Order,
) -> Option<Combining> {
    let len_of = |(source, _): &(ZsetSource<'_>, f64)| source.len();
    let kept = match operation {
        SetOperation::Unite => sources.iter().map(len_of).sum(),
        _ => len_of(sources.get(order.first()?.0)?),
    };
    let hasher = sources.iter().find_map(|(source, _)| source.hasher())?;
    Some(Combining::new(operation, scoring, order.len(), (kept, hasher)))
}

/// Leaves the answer to slices; false if that is impossible. `keys` are those of all inputs, and more.
fn leave(ctx: &mut Ctx<'_>, keys: Args<'_>, order: Order, combining: Combining, reply: &Reply<'_>) -> bool {
    let sources: Vec<_> = order.into_iter().map(|(at, stretch)| (keys.at(at), stretch)).collect();
    ctx.answer_later(&sources, Box::new(combining), reply.is_resp3())
}

fn name_of(operation: SetOperation, is_stored: bool) -> &'static str {
    match (operation, is_stored) {
        (SetOperation::Unite, false) => "zunion",
        (SetOperation::Intersect, false) => "zinter",
        (SetOperation::Subtract, false) => "zdiff",
        (SetOperation::Unite, true) => "zunionstore",
        (SetOperation::Intersect, true) => "zinterstore",
        (SetOperation::Subtract, true) => "zdiffstore",
    }
}

/// The members of all inputs. Scores are added up from the smallest input to the largest.
fn union<'a>(sources: &[(ZsetSource<'a>, f64)], aggregate: Aggregate) -> Vec<(Item<'a>, f64)> {
    let Some(hasher) = sources.iter().find_map(|(source, _)| source.hasher()) else { return Vec::new() };
    let mut scores = Scores::with_hasher(MemberHasher(hasher));
    for (source, weight) in sources {
        source.each(|member, score| {
            let score = aggregate.first(score, *weight);
            scores
                .entry(SourceMember(member))
                .and_modify(|total| *total = aggregate.add(*total, score))
                .or_insert(score);
            true
        });
    }
    scores.into_iter().map(|(member, score)| (member.0, score)).collect()
}

/// Shows the members that all inputs have, smallest input first, while `visit` returns true.
fn intersect<'a>(
    sources: &[(ZsetSource<'a>, f64)],
    aggregate: Aggregate,
    mut visit: impl FnMut(Item<'a>, f64) -> bool,
) {
    let Some(((first, weight), others)) = sources.split_first() else { return };
    first.each(|member, score| {
        let first = aggregate.first(score, *weight);
        let total = others.iter().try_fold(first, |total, (other, weight)| {
            Some(aggregate.add(total, aggregate.weighted(other.score(member)?, *weight)))
        });
        total.is_none_or(|total| visit(member, total))
    });
}

fn answer(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    operation: SetOperation,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let may_slice = ctx.may_slice;
    let mut query = CombineQuery::parse(ctx, args, (operation, false))?;
    let with_scores = query.with_scores;
    if may_slice && let Some((order, scoring)) = query.for_slices(operation) {
        if leave(ctx, args.tail(2), order, scoring, reply) {
            return Ok(());
        }
        query = CombineQuery::parse(ctx, args, (operation, false))?;
    }
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
    operation: SetOperation,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (dest, name) = (args.at(1), name_of(operation, true));
    if let Some(kept) = ctx.staged.take() {
        reply.int(kept.put(ctx, dest, event(name))? as i64);
        return Ok(());
    }
    let may_slice = ctx.may_slice && may_keep_scores(ctx.env);
    let mut query = CombineQuery::parse(ctx, args, (operation, true))?;
    if may_slice && let Some((order, combining)) = query.for_keeping(operation) {
        let inputs = args.tail(3).head(query.sources.len());
        let read: Vec<_> = order.into_iter().map(|(at, stretch)| (inputs.at(at), stretch)).collect();
        let names: Vec<_> = inputs.iter().collect();
        if ctx.store_later((dest, StagedForm::Zset), &names, &read, Box::new(combining)) {
            return Ok(());
        }
        query = CombineQuery::parse(ctx, args, (operation, true))?;
    }
    let mut members = StoredMembers::default();
    for (member, score) in query.run(operation) {
        members.push(member, score);
    }
    reply.int(store(ctx, dest, &members, name)?);
    Ok(())
}

fn zintercard(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let may_slice = ctx.may_slice;
    let (mut sources, options_at) = sources(ctx, args, 1, "zintercard")?;
    let mut reader = ArgReader::new(args, options_at);
    let mut limit = 0;
    while !reader.is_done() {
        if !reader.take_with("limit", 1) {
            return Err(Fault::Syntax);
        }
        limit = reader.int_from(0, Fault::text("ERR LIMIT can't be negative"))?;
    }
    let is_short = limit > 0 && limit.unsigned_abs() <= slices::LEN_MAX;
    if may_slice
        && !is_short
        && let Some(order) = order_of(SetOperation::Intersect, &sources)
        && let Some(combining) =
            combining(SetOperation::Intersect, Scoring::Count(limit.unsigned_abs()), &sources, &order)
    {
        if leave(ctx, args.tail(2), order, combining, reply) {
            return Ok(());
        }
        sources = self::sources(ctx, args, 1, "zintercard")?.0;
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

//! ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...], ZINCRBY key increment member

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::tree::{TreeFull, Zset};
use darter_store::Arena;
use darter_wire::{Args, Reply};

use super::event;
use crate::incremental::StagedForm;
use crate::incremental::bulk_add::{BulkWords, Filled, MANY};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault, reader};

/// ZADD.
pub const ZADD: DataCommand = DataCommand {
    spec: Spec::write("zadd", -4, Keys::ONE)
        .fast()
        .doc(
            Group::SortedSet,
            "1.2.0",
            "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
            "Adds one or more members to a sorted set, or updates their scores. Creates the key if it doesn't exist.",
        )
        .cost("O(log(N)) for each item added, where N is the number of elements in the sorted set."),
    run: zadd,
};
/// ZINCRBY.
pub const ZINCRBY: DataCommand = DataCommand {
    spec: Spec::write("zincrby", 4, Keys::ONE)
        .key_access("RW access update")
        .fast()
        .doc(
            Group::SortedSet,
            "1.2.0",
            "key increment member",
            "Increments the score of a member in a sorted set.",
        )
        .cost("O(log(N)) where N is the number of elements in the sorted set."),
    run: |ctx, args, reply| {
        let mut options = ZaddOptions { increments: true, ..ZaddOptions::default() };
        // An option of ZADD is one here, too, and then the member has no increment.
        if options.take(args.at(2)) {
            return Err(Fault::Syntax);
        }
        let increment = reader::float(args.at(2))?;
        add(ctx, args.at(1), options, std::iter::once((increment, args.at(3))), reply)
    },
};

/// Conditions of ZADD, and the form of its answer.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ZaddOptions {
    /// NX: only new members.
    pub only_new: bool,
    /// XX: only members that are there.
    pub only_old: bool,
    /// GT: only to a greater score.
    pub only_greater: bool,
    /// LT: only to a lesser score.
    pub only_less: bool,
    /// CH: members with another score count, too.
    pub counts_changed: bool,
    /// INCR: the score is added to the present one, and the sum is answered.
    pub increments: bool,
}

impl ZaddOptions {
    /// Reads an option; returns false if `word` is not one. Scores of the same length cost a comparison or two.
    #[inline]
    pub fn take(&mut self, word: &[u8]) -> bool {
        let flag = match word {
            &[a, b] => match [a | 0x20, b | 0x20] {
                [b'n', b'x'] => &mut self.only_new,
                [b'x', b'x'] => &mut self.only_old,
                [b'g', b't'] => &mut self.only_greater,
                [b'l', b't'] => &mut self.only_less,
                [b'c', b'h'] => &mut self.counts_changed,
                _ => return false,
            },
            [_, _, _, _] if reader::is(word, "incr") => &mut self.increments,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// Returns true if the new score of a member depends on the old one.
    fn has_conditions(self) -> bool {
        self.only_new || self.only_old || self.only_greater || self.only_less || self.increments
    }

    /// The score a member gets, given its present one; `None` leaves it unchanged.
    #[inline]
    fn decide(self, score: f64, old: Option<f64>) -> Decision {
        let Some(old) = old else {
            return if self.only_old { Decision::Skip } else { Decision::Set(score) };
        };
        if self.only_new {
            return Decision::Skip;
        }
        let score = if self.increments { old + score } else { score };
        if score.is_nan() {
            Decision::NaN
        } else if (self.only_less && score >= old) || (self.only_greater && score <= old) {
            Decision::Skip
        } else if score == old {
            Decision::Same(score)
        } else {
            Decision::Set(score)
        }
    }
}

#[derive(Clone, Copy)]
enum Decision {
    Skip,
    Same(f64),
    Set(f64),
    NaN,
}

impl Decision {
    #[inline]
    fn written(self) -> Option<f64> {
        match self {
            // No minus before zero, as in the small sorted sets of Redis.
            Decision::Set(score) => Some(score + 0.0),
            Decision::Skip | Decision::Same(_) | Decision::NaN => None,
        }
    }
}

/// The result of adding members.
#[derive(Clone, Copy, Default)]
struct ZaddOutcome {
    added: u64,
    updated: u64,
    // INCR: the sum, `None` if the conditions prevented the change
    score: Option<f64>,
    is_nan: bool,
}

impl ZaddOutcome {
    fn answer(self, options: ZaddOptions, reply: &mut Reply<'_>) -> Result<(), Fault> {
        if self.is_nan {
            return Err(Fault::text("ERR resulting score is not a number (NaN)"));
        }
        match (options.increments, self.score) {
            (true, Some(score)) => reply.double(score),
            (true, None) => reply.null(),
            (false, _) => {
                let updated = if options.counts_changed { self.updated } else { 0 };
                reply.int((self.added + updated) as i64);
            }
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, decision: Decision, was_there: bool) {
        match decision {
            Decision::Skip => {}
            Decision::Same(score) => self.score = Some(score),
            Decision::NaN => self.is_nan = true,
            Decision::Set(score) => {
                self.score = Some(score);
                *(if was_there { &mut self.updated } else { &mut self.added }) += 1;
            }
        }
    }
}

fn zadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut options = ZaddOptions::default();
    let mut at = 2;
    while args.get(at).is_some_and(|word| options.take(word)) {
        at += 1;
    }
    let pairs = args.tail(at);
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Fault::Syntax);
    }
    if options.only_new && options.only_old {
        return Err(Fault::text("ERR XX and NX options at the same time are not compatible"));
    }
    let conditions = [options.only_greater, options.only_less, options.only_new];
    if conditions.into_iter().filter(|&is_set| is_set).count() > 1 {
        return Err(Fault::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if pairs.len() == 2 {
        let score = reader::float(pairs.at(0))?;
        return add(ctx, args.at(1), options, std::iter::once((score, pairs.at(1))), reply);
    }
    if options.increments {
        return Err(Fault::text("ERR INCR option supports a single increment-element pair"));
    }
    let words = BulkWords { first: at, step: 2, score_of: Some(|args, at| reader::float(args.at(at))) };
    if args.len() > MANY && add_many(ctx, args, words, options, reply)? {
        return Ok(());
    }
    // All scores are read before the first member is added.
    let scores = pairs.iter().step_by(2).map(reader::float).collect::<Result<Vec<_>, _>>()?;
    let members = pairs.iter().skip(1).step_by(2);
    add(ctx, args.at(1), options, scores.into_iter().zip(members), reply)
}

/// Leaves adding many members to slices, or answers after that; false if they must be added now.
#[cold]
pub(crate) fn add_many(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    words: BulkWords,
    options: ZaddOptions,
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    if options.has_conditions() {
        return Ok(false);
    }
    let filled = ctx.add_many((args.at(1), StagedForm::Zset), args, words)?;
    if let Filled::Done { added, updated, .. } = filled {
        if added + updated > 0 {
            ctx.changed(args.at(1), event("zadd"));
        }
        ZaddOutcome { added, updated, ..ZaddOutcome::default() }.answer(options, reply)?;
    }
    Ok(filled != Filled::AtOnce)
}

/// Adds members with their scores and answers as ZADD does.
pub(crate) fn add<'a>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    options: ZaddOptions,
    mut members: impl Iterator<Item = (f64, &'a [u8])>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut done = ZaddOutcome::default();
    let mut put = |zset: &mut Zset, arena: &mut Arena, hasher: KeyHasher| {
        for (score, member) in members.by_ref() {
            let mut decision = Decision::Skip;
            let change = zset.update(arena, &hasher, Item::of(member), |old| {
                decision = options.decide(score, old);
                decision.written()
            })?;
            done.note(decision, change.old.is_some());
        }
        Ok::<(), TreeFull>(())
    };
    let added = match ctx.add_plainly(key, &mut put) {
        Some(added) => added,
        None => {
            let mut place = super::at(ctx, key);
            if options.only_old && !place.exists() {
                return done.answer(options, reply);
            }
            place.edit_or_create(Zset::new, &mut put)?.result
        }
    };
    if done.added + done.updated > 0 {
        ctx.changed(key, event(if options.increments { "zincr" } else { "zadd" }));
    }
    added?;
    done.answer(options, reply)
}

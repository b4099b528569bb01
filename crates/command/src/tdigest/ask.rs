//! TDIGEST.QUANTILE key quantile [quantile ...], TDIGEST.CDF key value [value ...], TDIGEST.RANK key value [value ...],
//! TDIGEST.REVRANK, TDIGEST.BYRANK key rank [rank ...], TDIGEST.BYREVRANK, TDIGEST.TRIMMED_MEAN key low high

use darter_sketch::Digest;
use darter_wire::{Args, Reply};

use super::{NO_KEY, doc, settle};
use crate::probabilistic::{float, int};
use crate::spec::{Effect, Flags, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// A query merges the buffered values of the digest, which a replica and the journal must know.
const fn question(name: &'static str, arity: i16) -> Spec {
    Spec::read(name, arity, Keys::ONE).flag(Flags::MAY_REPLICATE).effect(Effect::Itself)
}

/// TDIGEST.QUANTILE.
pub const QUANTILE: DataCommand = DataCommand {
    spec: doc(
        question("tdigest.quantile", -3),
        "key quantile [quantile ...]",
        "Estimates the values at fractions of the observations.",
    ),
    run: quantile,
};
/// TDIGEST.CDF.
pub const CDF: DataCommand = DataCommand {
    spec: doc(
        question("tdigest.cdf", -3),
        "key value [value ...]",
        "Estimates which fraction of the observations lies below values.",
    ),
    run: |ctx, args, reply| {
        each(
            ctx,
            args,
            "ERR T-Digest: error parsing cdf",
            |digest, value, reply| reply.double(digest.cdf(value)),
            reply,
        )
    },
};
/// TDIGEST.RANK.
pub const RANK: DataCommand = DataCommand {
    spec: doc(
        question("tdigest.rank", -3),
        "key value [value ...]",
        "Estimates the ranks of values from the smallest.",
    ),
    run: |ctx, args, reply| {
        each(ctx, args, BAD_VALUE, |digest, value, reply| reply.int(digest.rank(value)), reply)
    },
};
/// TDIGEST.REVRANK.
pub const REVRANK: DataCommand = DataCommand {
    spec: doc(
        question("tdigest.revrank", -3),
        "key value [value ...]",
        "Estimates the ranks of values from the largest.",
    ),
    run: |ctx, args, reply| {
        each(ctx, args, BAD_VALUE, |digest, value, reply| reply.int(digest.reverse_rank(value)), reply)
    },
};
/// TDIGEST.BYRANK.
pub const BYRANK: DataCommand = DataCommand {
    spec: doc(
        question("tdigest.byrank", -3),
        "key rank [rank ...]",
        "Estimates the values at ranks from the smallest.",
    ),
    run: |ctx, args, reply| by_rank(ctx, args, Digest::at_rank, reply),
};
/// TDIGEST.BYREVRANK.
pub const BYREVRANK: DataCommand = DataCommand {
    spec: doc(
        question("tdigest.byrevrank", -3),
        "key reverse_rank [reverse_rank ...]",
        "Estimates the values at ranks from the largest.",
    ),
    run: |ctx, args, reply| by_rank(ctx, args, Digest::at_reverse_rank, reply),
};
/// TDIGEST.TRIMMED_MEAN.
pub const TRIMMED_MEAN: DataCommand = DataCommand {
    spec: doc(
        question("tdigest.trimmed_mean", 4),
        "key low_cut_quantile high_cut_quantile",
        "Estimates the mean of the observations between two quantiles.",
    )
    .cost("O(N) where N is the number of centroids"),
    run: trimmed_mean,
};

const BAD_VALUE: &str = "ERR T-Digest: error parsing value";

/// Answers the digest at the command's key, its buffer merged, after `parse` has read the arguments.
fn ask<T>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    parse: impl FnOnce() -> Result<T, Fault>,
    answer: impl FnOnce(&Digest, T),
) -> Result<(), Fault> {
    let mut place = ctx.read(args.at(1));
    if place.view::<Digest>()?.is_none() {
        return Err(NO_KEY);
    }
    let parsed = parse()?;
    settle(&mut place)?;
    answer(place.view::<Digest>()?.ok_or(NO_KEY)?.root, parsed);
    Ok(())
}

fn floats(args: Args<'_>, otherwise: &'static str) -> Result<Vec<f64>, Fault> {
    args.tail(2).iter().map(|arg| float(arg, otherwise)).collect()
}

fn each(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    otherwise: &'static str,
    write: fn(&Digest, f64, &mut Reply<'_>),
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    ask(
        ctx,
        args,
        || floats(args, otherwise),
        |digest, values| {
            reply.array(values.len());
            values.into_iter().for_each(|value| write(digest, value, reply));
        },
    )
}

fn quantile(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let parse = || {
        let quantiles = floats(args, "ERR T-Digest: error parsing quantile")?;
        let are_valid = quantiles.iter().all(|quantile| (0.0..=1.0).contains(quantile));
        if are_valid { Ok(quantiles) } else { Err(Fault::text("ERR T-Digest: quantile should be in [0,1]")) }
    };
    ask(ctx, args, parse, |digest, quantiles| {
        reply.array(quantiles.len());
        digest.quantiles(&quantiles).into_iter().for_each(|value| reply.double(value));
    })
}

fn by_rank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    value: fn(&Digest, f64) -> f64,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let rank = |arg: &[u8]| match int(arg, "ERR T-Digest: error parsing rank")? {
        rank if rank >= 0 => Ok(rank as f64),
        _ => Err(Fault::text("ERR T-Digest: rank needs to be non negative")),
    };
    let parse = || args.tail(2).iter().map(rank).collect::<Result<Vec<f64>, Fault>>();
    ask(ctx, args, parse, |digest, ranks| {
        reply.array(ranks.len());
        ranks.into_iter().for_each(|rank| reply.double(value(digest, rank)));
    })
}

fn trimmed_mean(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let parse = || {
        let low = float(args.at(2), "ERR T-Digest: error parsing low_cut_percentile")?;
        let high = float(args.at(3), "ERR T-Digest: error parsing high_cut_percentile")?;
        if !(0.0..=1.0).contains(&low) || !(0.0..=1.0).contains(&high) {
            let text = "ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]";
            return Err(Fault::text(text));
        }
        if low >= high {
            let text = "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile";
            return Err(Fault::text(text));
        }
        Ok((low, high))
    };
    ask(ctx, args, parse, |digest, (low, high)| reply.double(digest.trimmed_mean(low, high)))
}

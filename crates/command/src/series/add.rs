//! TS.ADD key timestamp value [RETENTION retentionPeriod] [ENCODING <UNCOMPRESSED | COMPRESSED>] [CHUNK_SIZE size]
//! [DUPLICATE_POLICY policy] [ON_DUPLICATE policy] [IGNORE time value] [LABELS label value [label value ...]]

use darter_base::number;
use darter_series::{Added, DuplicatePolicy, Sample, Series};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::options::{self, SeriesOptions};
use super::{LINKED, NO_KEY, POLICY, create, doc, event, feed, not_added};
use crate::spec::{Keys, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TS.ADD.
pub const ADD: DataCommand = DataCommand {
    spec: doc(
        Spec::write("ts.add", -4, Keys::ONE).replica_form(ReplicaForm::Time(2)).reach(LINKED),
        "1.0.0",
        "key timestamp value [RETENTION retentionPeriod] [ENCODING <UNCOMPRESSED | COMPRESSED>] [CHUNK_SIZE size] \
         [DUPLICATE_POLICY <BLOCK | FIRST | LAST | MIN | MAX | SUM>] [ON_DUPLICATE <BLOCK | FIRST | LAST | MIN | MAX | \
         SUM>] [IGNORE ignoreMaxTimediff ignoreMaxValDiff] [LABELS label value [label value ...]]",
        "Adds a sample; creates the series if there is none.",
    )
    .cost("O(M) when M is the amount of compaction rules or O(1) with no compaction"),
    run: add,
};

/// A time as clients give it; `*` is `now_ms`.
pub(super) fn time(arg: &[u8], now_ms: u64) -> Result<u64, Fault> {
    if arg == b"*" {
        return Ok(now_ms);
    }
    let time = number::parse_i64(arg).ok_or(Fault::text("ERR TSDB: invalid timestamp"))?;
    let negative = "ERR TSDB: invalid timestamp, must be a nonnegative integer";
    u64::try_from(time).map_err(|_| Fault::text(negative))
}

/// A value as clients give it; NaN is allowed.
pub(super) fn value(arg: &[u8]) -> Result<f64, Fault> {
    if arg.eq_ignore_ascii_case(b"nan") {
        return Ok(f64::NAN);
    }
    number::parse_f64(arg).filter(|_| is_plain(arg)).ok_or(Fault::text("ERR TSDB: invalid value"))
}

/// Returns true if a number is written as RedisTimeSeries reads it: with digits before a point and behind it, without
/// a leading zero or plus, and not in hexadecimal.
fn is_plain(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let (whole, rest) = text.split_at(digits(text));
    let (fraction, rest) = match rest.strip_prefix(b".") {
        Some(rest) => rest.split_at(digits(rest)),
        None => (&b"0"[..], rest),
    };
    let is_exponent = match rest {
        [b'e' | b'E', b'+' | b'-', power @ ..] | [b'e' | b'E', power @ ..] => {
            !power.is_empty() && digits(power) == power.len()
        }
        rest => rest.is_empty(),
    };
    !whole.is_empty() && (whole.len() == 1 || !whole.starts_with(b"0")) && !fraction.is_empty() && is_exponent
}

/// Adds a sample to the series at `name`, which must exist, and the resulting samples to the series that it feeds;
/// reports `event`. Returns the time for the reply.
pub(super) fn add_to(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    sample: Sample,
    policy: Option<DuplicatePolicy>,
    event: Event,
) -> Result<u64, Fault> {
    let mut place = ctx.at(name);
    let edited = place.edit(|series: &mut Series, arena, _| {
        let policy = policy.or(series.settings.policy).unwrap_or(POLICY);
        let newest = series.newest().map_or(0, |newest| newest.time);
        let added = series.add(arena, sample, policy)?;
        let fed = match added {
            Added::Appended => series.feed_appended(sample),
            Added::Upserted => series.feed_changed(arena, sample.time),
            Added::Ignored => Vec::new(),
        };
        Ok((added, newest, fed))
    })?;
    let (added, newest, fed) = edited.ok_or(NO_KEY)?.result.map_err(not_added)?;
    // Listeners hear of the series that are fed first, as in Redis.
    feed::feed(ctx, name, fed);
    ctx.changed(name, event);
    Ok(if added == Added::Ignored { newest } else { sample.time })
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let value = value(args.at(3))?;
    let sample = Sample::new(time(args.at(2), now_ms)?, value);
    let mut place = ctx.at(args.at(1));
    let mut policy = None;
    if place.view::<Series>()?.is_some() {
        if args.len() > 4 {
            policy = options::policy(args, 4, "ON_DUPLICATE")?;
        }
    } else {
        create::put(&mut place, SeriesOptions::read(args, 4)?)?;
    }
    let time = add_to(ctx, args.at(1), sample, policy, event("ts.add"))?;
    reply.int(time.cast_signed());
    Ok(())
}

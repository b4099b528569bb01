//! TS.READ key timestamp [BLOCK milliseconds min_count] [MAX_COUNT max_count]

use darter_base::number;
use darter_series::Series;
use darter_series::query::SeriesQuery;
use darter_wire::{Args, OwnedArgs, Reply};

use super::{doc, write_rows};
use crate::ctx::BlockingWait;
use crate::probabilistic::arity;
use crate::spec::{Flags, Keys, Marks, Spec};
use crate::{ArgReader, Ctx, DataCommand, Fault};

/// TS.READ.
pub const READ: DataCommand = DataCommand {
    spec: doc(
        Spec::read("ts.read", -3, Keys::ONE).flag(Flags::BLOCKING).mark(Marks::ENDS_WITH_KEY),
        "8.10.0",
        "key timestamp [BLOCK milliseconds min_count] [MAX_COUNT max_count]",
        "Returns the samples from a time on; may wait for them.",
    )
    .cost("O(n) where n is the number of samples returned"),
    run: read,
};

/// In the arguments of a waiting command: the time at which it is answered in any case.
const UNTIL: &str = "UNTIL";
/// A wait without end.
const NEVER: u64 = i64::MAX as u64;

struct SeriesReadRequest {
    cursor: u64,
    // milliseconds, and number of samples to wait for
    block: Option<(u64, usize)>,
    count_max: Option<usize>,
    until_ms: Option<u64>,
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let asked = parse(ctx, args)?;
    let now_ms = ctx.now_ms;
    let place = ctx.read(args.at(1));
    let view = place.view::<Series>()?;
    let rows = view.map(|view| {
        let query = SeriesQuery { count: asked.count_max, ..SeriesQuery::new(asked.cursor, u64::MAX) };
        // Without buckets the rows have no end.
        query.run(view.root, view.arena).unwrap_or_default()
    });
    let is_gone = rows.is_none() && asked.until_ms.is_some();
    let rows = rows.unwrap_or_default();
    let is_over = asked.until_ms.is_some_and(|until_ms| now_ms >= until_ms);
    match asked.block {
        Some((timeout_ms, least)) if rows.len() < least && !is_over && !is_gone => {
            if !ctx.may_wait {
                let text = "TSDB: blocking TS.READ (with BLOCK) is not allowed inside MULTI, EVAL, or a deny-blocking \
                            context";
                return Err(Fault::text(text));
            }
            let until_ms = match (asked.until_ms, timeout_ms) {
                (Some(until_ms), _) => until_ms,
                (None, 0) => NEVER,
                (None, timeout_ms) => now_ms.saturating_add(timeout_ms),
            };
            let mut wait = BlockingWait::for_a_key(None, 0);
            wait.ready_at_ms = (until_ms < NEVER).then_some(until_ms);
            wait.args = Some(args_until(args, asked.cursor, until_ms));
            ctx.wait = Some(Box::new(wait));
        }
        _ => write_rows(reply, &rows),
    }
    Ok(())
}

/// The arguments to wait with: the start is a number, and the end of the wait is known.
fn args_until(args: Args<'_>, cursor: u64, until_ms: u64) -> OwnedArgs {
    let mut owned = OwnedArgs::with_capacity(args.len() + 2, 64);
    let (cursor, until_ms) = (cursor.to_string(), until_ms.to_string());
    let mut words = args.iter();
    owned.push(words.next().unwrap_or_default());
    owned.push(words.next().unwrap_or_default());
    owned.push(cursor.as_bytes());
    words.skip(1).take_while(|word| !crate::reader::is(word, UNTIL)).for_each(|word| owned.push(word));
    owned.push(UNTIL.as_bytes());
    owned.push(until_ms.as_bytes());
    owned
}

fn parse(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<SeriesReadRequest, Fault> {
    let wrong = |_| arity("ts.read");
    let mut asked = SeriesReadRequest { cursor: 0, block: None, count_max: None, until_ms: None };
    let mut reader = ArgReader::new(args, 3);
    let positive = |word: &[u8], otherwise| match number::parse_i64(word).map(usize::try_from) {
        Some(Ok(count)) if count > 0 => Ok(count),
        _ => Err(Fault::text(otherwise)),
    };
    while !reader.is_done() {
        if reader.take("BLOCK") {
            let (timeout, least) = (reader.bytes().map_err(wrong)?, reader.bytes().map_err(wrong)?);
            let timeout_ms = number::parse_i64(timeout).and_then(|ms| u64::try_from(ms).ok());
            let text = "TSDB: BLOCK milliseconds must be a non-negative integer";
            let timeout_ms = timeout_ms.ok_or(Fault::text(text))?;
            asked.block =
                Some((timeout_ms, positive(least, "TSDB: BLOCK min_count must be a positive integer")?));
        } else if reader.take("MAX_COUNT") {
            let count = reader.bytes().map_err(wrong)?;
            asked.count_max = Some(positive(count, "TSDB: MAX_COUNT must be a positive integer")?);
        } else if asked.block.is_some() && reader.take(UNTIL) {
            asked.until_ms = number::parse_i64(reader.bytes().map_err(wrong)?).map(i64::cast_unsigned);
        } else {
            return Err(arity("ts.read"));
        }
    }
    if let (Some((_, least)), Some(most)) = (asked.block, asked.count_max)
        && least > most
    {
        return Err(Fault::text("TSDB: BLOCK min_count must be <= MAX_COUNT"));
    }
    asked.cursor = cursor(ctx, args)?;
    Ok(asked)
}

fn cursor(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<u64, Fault> {
    let time = args.at(2);
    if time != b"+" && time != b"$" {
        let ms = if time == b"-" { Some(0) } else { number::parse_i64(time) };
        let ms = ms.and_then(|ms| u64::try_from(ms).ok());
        return ms.ok_or(Fault::text("TSDB: invalid timestamp"));
    }
    let place = ctx.at(args.at(1));
    let newest =
        place.view::<Series>()?.and_then(|view| view.root.newest().filter(|_| !view.root.is_empty()));
    Ok(newest.map_or(0, |newest| newest.time.saturating_add(u64::from(time == b"$"))))
}

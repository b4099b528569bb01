//! INCREX: counting within bounds, with a deadline. As Redis 8.8 documents it.

use darter_base::longdouble::LongDouble;
use darter_base::number;
use darter_store::{Event, Expiry, Text};
use darter_wire::{Args, Reply};

use super::count::{INCRBY_EVENT, INCRBYFLOAT_EVENT, float_of, int_of};
use super::{EXPIRE_EVENT, PERSIST_EVENT};
use crate::deadline::Deadline;
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// INCREX.
pub const INCREX: DataCommand = DataCommand {
    spec: Spec::write("increx", -2, Keys::ONE).key_access("RW access update").fast().doc(
        Group::String,
        "8.8.0",
        "key [BYINT increment | BYFLOAT increment] [LBOUND lowerbound] [UBOUND upperbound] [SATURATE] \
         [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]",
        "Adds to a number within bounds and sets or removes the key's deadline.",
    ),
    run: increx,
};

/// The amount added, and the bounds of the sum.
#[derive(Clone, Copy)]
enum IncrexStep {
    Int { by: i64, lower: i64, upper: i64 },
    Float { by: LongDouble, lower: LongDouble, upper: LongDouble },
}

/// The amount, before the bounds are known.
#[derive(Clone, Copy)]
enum IncrementBy {
    Int(i64),
    Float(LongDouble),
}

impl IncrementBy {
    /// Reads BYINT or BYFLOAT with its number, if that comes next.
    fn take(reader: &mut ArgReader<'_>) -> Result<Option<IncrementBy>, Fault> {
        if reader.take_with("BYINT", 1) {
            return int(reader.bytes()?, "ERR Increment is not an integer or out of range")
                .map(IncrementBy::Int)
                .map(Some);
        }
        if !reader.take_with("BYFLOAT", 1) {
            return Ok(None);
        }
        let by = float(reader.bytes()?, "ERR Increment is not a valid float")?;
        if !by.is_finite() {
            return Err(Fault::text("ERR BYFLOAT increment cannot be Infinity"));
        }
        Ok(Some(IncrementBy::Float(by)))
    }

    fn within(self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<IncrexStep, Fault> {
        let (step, is_crossed) = match self {
            IncrementBy::Int(by) => {
                let no_int = "ERR LBOUND is not an integer or out of range";
                let lower = lower.map_or(Ok(i64::MIN), |bound| int(bound, no_int))?;
                let no_int = "ERR UBOUND is not an integer or out of range";
                let upper = upper.map_or(Ok(i64::MAX), |bound| int(bound, no_int))?;
                (IncrexStep::Int { by, lower, upper }, lower > upper)
            }
            IncrementBy::Float(by) => {
                let (least, most) = (LongDouble::MAX.negated(), LongDouble::MAX);
                let lower =
                    lower.map_or(Ok(least), |bound| float(bound, "ERR LBOUND is not a valid float"))?;
                let upper =
                    upper.map_or(Ok(most), |bound| float(bound, "ERR UBOUND is not a valid float"))?;
                (IncrexStep::Float { by, lower, upper }, lower.exceeds(upper))
            }
        };
        if is_crossed { Err(Fault::text("ERR LBOUND can't be greater than UBOUND")) } else { Ok(step) }
    }
}

fn int(arg: &[u8], otherwise: &'static str) -> Result<i64, Fault> {
    number::parse_i64(arg).ok_or(Fault::text(otherwise))
}

fn float(arg: &[u8], otherwise: &'static str) -> Result<LongDouble, Fault> {
    LongDouble::parse(arg).ok_or(Fault::text(otherwise))
}

struct IncrexOptions<'a> {
    step: IncrexStep,
    // true: a sum beyond a bound becomes the bound; false: it is refused
    saturates: bool,
    deadline: Option<Deadline<'a>>,
    persists: bool,
    // the deadline is set only if there is none yet
    only_without_ttl: bool,
}

impl<'a> IncrexOptions<'a> {
    fn parse(args: Args<'a>) -> Result<IncrexOptions<'a>, Fault> {
        let mut reader = ArgReader::new(args, 2);
        let (mut by, mut lower, mut upper, mut deadline) = (None, None, None, None);
        let (mut saturates, mut persists, mut only_without_ttl) = (false, false, false);
        while !reader.is_done() {
            let has_expiry = persists || deadline.is_some();
            if by.is_none()
                && let Some(given) = IncrementBy::take(&mut reader)?
            {
                by = Some(given);
            } else if lower.is_none() && reader.take_with("LBOUND", 1) {
                lower = Some(reader.bytes()?);
            } else if upper.is_none() && reader.take_with("UBOUND", 1) {
                upper = Some(reader.bytes()?);
            } else if !saturates && reader.take("SATURATE") {
                saturates = true;
            } else if !only_without_ttl && !persists && reader.take("ENX") {
                only_without_ttl = true;
            } else if !has_expiry && !only_without_ttl && reader.take("PERSIST") {
                persists = true;
            } else if !has_expiry && let Some(given) = Deadline::take(&mut reader) {
                deadline = Some(given);
            } else {
                return Err(Fault::Syntax);
            }
        }
        let step = by.unwrap_or(IncrementBy::Int(1)).within(lower, upper)?;
        if only_without_ttl && deadline.is_none() {
            return Err(Fault::text("ERR ENX flag requires an expiration"));
        }
        Ok(IncrexOptions { step, saturates, deadline, persists, only_without_ttl })
    }
}

/// The new content of the key.
enum IncrexValue {
    Int(i64),
    // its text
    Float(Vec<u8>),
}

fn increx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let options = IncrexOptions::parse(args)?;
    let now_ms = ctx.now_ms;
    let deadline_ms = options.deadline.map(|d| d.resolve(now_ms, "increx")).transpose()?;
    let mut place = ctx.at(args.at(1));
    let old = place.text()?;
    let new = match options.step {
        IncrexStep::Int { by, lower, upper } => add_int(old, by, (lower, upper), options.saturates, reply)?,
        IncrexStep::Float { by, lower, upper } => {
            add_float(old, by, (lower, upper), options.saturates, reply)?
        }
    };
    let Some(new) = new else { return Ok(()) };
    let keeps_ttl = options.only_without_ttl && place.deadline_ms().is_some();
    let deadline_ms = deadline_ms.filter(|_| !keeps_ttl);
    if deadline_ms.is_some_and(|ms| ms <= now_ms) {
        if place.exists() {
            place.remove();
            place.changed(Event::DEL);
        }
        return Ok(());
    }
    match new {
        IncrexValue::Int(value) => {
            place.put_text(itoa::Buffer::new().format(value).as_bytes(), Expiry::Keep)?;
            place.changed(INCRBY_EVENT);
        }
        IncrexValue::Float(text) => {
            place.put_float(&text)?;
            place.changed(INCRBYFLOAT_EVENT);
        }
    }
    if deadline_ms.is_some() {
        place.set_deadline(deadline_ms)?;
        place.changed(EXPIRE_EVENT);
    } else if options.persists && place.deadline_ms().is_some() {
        place.set_deadline(None)?;
        place.changed(PERSIST_EVENT);
    }
    Ok(())
}

/// Returns the sum and its difference from the old value; `None` if nothing must change.
fn add_int(
    old: Option<Text<'_>>,
    by: i64,
    (lower, upper): (i64, i64),
    saturates: bool,
    reply: &mut Reply<'_>,
) -> Result<Option<IncrexValue>, Fault> {
    let old = int_of(old)?;
    let sum = i128::from(old) + i128::from(by);
    let bounded = sum.clamp(i128::from(lower), i128::from(upper));
    let is_applied = sum == bounded || saturates;
    // the bounds are i64, and so is any number between them
    let new = if is_applied { i64::try_from(bounded).map_err(|_| Fault::Overflow)? } else { old };
    let applied = new.checked_sub(old).ok_or(Fault::text("ERR applied increment would overflow"))?;
    reply.array(2);
    reply.int(new);
    reply.int(applied);
    Ok(is_applied.then_some(IncrexValue::Int(new)))
}

/// The same for floats.
fn add_float(
    old: Option<Text<'_>>,
    by: LongDouble,
    (lower, upper): (LongDouble, LongDouble),
    saturates: bool,
    reply: &mut Reply<'_>,
) -> Result<Option<IncrexValue>, Fault> {
    let old = float_of(old)?;
    if !old.is_finite() {
        return Err(Fault::text("ERR value cannot be Infinity"));
    }
    let sum = old.plus(by);
    let bound = if !sum.is_finite() {
        Some(if by.is_negative() { lower } else { upper })
    } else if sum.exceeds(upper) {
        Some(upper)
    } else {
        lower.exceeds(sum).then_some(lower)
    };
    let is_applied = bound.is_none() || saturates;
    let new = if is_applied { bound.unwrap_or(sum) } else { old };
    let applied = new.minus(old);
    if !applied.is_finite() {
        return Err(Fault::text("ERR applied increment would be Infinity"));
    }
    let [new, applied] = [new, applied].map(|value| {
        let mut text = Vec::new();
        value.write(&mut text);
        text
    });
    reply.array(2);
    reply.double_text(&new);
    reply.double_text(&applied);
    Ok(is_applied.then_some(IncrexValue::Float(new)))
}

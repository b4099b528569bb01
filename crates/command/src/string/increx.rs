//! INCREX: counting within bounds, with a deadline. As Redis 8.8 documents it.

use darter_base::longdouble::LongDouble;
use darter_base::number;
use darter_store::{Event, Expiry, Keyed};
use darter_wire::{Args, Reply};

use super::count::{INCRBY_EVENT, INCRBYFLOAT_EVENT, float_of, int_of, parse_float};
use super::{EXPIRE_EVENT, PERSIST_EVENT};
use crate::deadline::{self, Deadline};
use crate::reader::{self, Reader};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// INCREX.
pub const INCREX: DataCommand = DataCommand {
    spec: Spec::write("increx", -2, Keys::ONE).fast().doc(
        Group::String,
        "8.8.0",
        "key [BYINT increment | BYFLOAT increment] [LBOUND lowerbound] [UBOUND upperbound] [SATURATE] \
         [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]",
        "Adds to a number within bounds and sets or removes the key's deadline.",
    ),
    run: increx,
};

#[derive(Default)]
struct Options<'a> {
    by_int: Option<&'a [u8]>,
    by_float: Option<&'a [u8]>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturates: bool,
    deadline: Option<Deadline<'a>>,
    persists: bool,
    // the deadline is set only where there is none yet
    only_without_ttl: bool,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, Fault> {
        let mut options = Options::default();
        let mut reader = Reader::new(args, 2);
        while !reader.is_done() {
            if !options.persists
                && let Some(deadline) = Deadline::take(&mut reader)
            {
                deadline::put(&mut options.deadline, deadline)?;
            } else if options.by_float.is_none() && reader.take_with("BYINT", 1) {
                options.by_int = Some(reader.bytes()?);
            } else if options.by_int.is_none() && reader.take_with("BYFLOAT", 1) {
                options.by_float = Some(reader.bytes()?);
            } else if reader.take_with("LBOUND", 1) {
                options.lower = Some(reader.bytes()?);
            } else if reader.take_with("UBOUND", 1) {
                options.upper = Some(reader.bytes()?);
            } else if reader.take("SATURATE") {
                options.saturates = true;
            } else if options.deadline.is_none() && reader.take("PERSIST") {
                options.persists = true;
            } else if reader.take("ENX") {
                options.only_without_ttl = true;
            } else {
                return Err(Fault::Syntax);
            }
        }
        if options.only_without_ttl && options.deadline.is_none() {
            return Err(Fault::Syntax);
        }
        Ok(options)
    }
}

fn increx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let options = Options::parse(args)?;
    let now_ms = ctx.now_ms;
    let deadline_ms = options.deadline.map(|d| d.resolve(now_ms, "increx")).transpose()?;
    let mut place = ctx.at(args.at(1));
    let is_applied = match options.by_float {
        Some(by) => add_float(&mut place, &options, by, reply)?,
        None => add_int(&mut place, &options, reply)?,
    };
    if !is_applied {
        return Ok(());
    }
    match deadline_ms {
        Some(ms) if !(options.only_without_ttl && place.deadline_ms().is_some()) => {
            if ms <= now_ms {
                place.remove();
                place.changed(Event::DEL);
            } else {
                place.set_deadline(Some(ms))?;
                place.changed(EXPIRE_EVENT);
            }
        }
        None if options.persists && place.deadline_ms().is_some() => {
            place.set_deadline(None)?;
            place.changed(PERSIST_EVENT);
        }
        _ => {}
    }
    Ok(())
}

const BOUNDS_CROSSED: Fault = Fault::text("ERR LBOUND must not be greater than UBOUND");

fn add_int(place: &mut Keyed<'_>, options: &Options<'_>, reply: &mut Reply<'_>) -> Result<bool, Fault> {
    let by = options.by_int.map_or(Ok(1), reader::int)?;
    let lower = options.lower.map_or(Ok(i64::MIN), reader::int)?;
    let upper = options.upper.map_or(Ok(i64::MAX), reader::int)?;
    if lower > upper {
        return Err(BOUNDS_CROSSED);
    }
    let old = int_of(place.text()?)?;
    let sum = i128::from(old) + i128::from(by);
    let bounded = sum.clamp(i128::from(lower), i128::from(upper));
    let is_applied = sum == bounded || options.saturates;
    // the bounds are i64, and so is what lies between them
    let new = if is_applied { i64::try_from(bounded).map_err(|_| Fault::Overflow)? } else { old };
    if is_applied {
        place.put_text(itoa::Buffer::new().format(new).as_bytes(), Expiry::Keep)?;
        place.changed(INCRBY_EVENT);
    }
    reply.array(2);
    reply.int(new);
    reply.int(new.saturating_sub(old));
    Ok(is_applied)
}

/// A long double with its text, by which it is answered, and its nearest double, by which it is compared.
struct Float {
    value: LongDouble,
    text: Vec<u8>,
    near: f64,
}

impl Float {
    fn new(value: LongDouble) -> Result<Float, Fault> {
        let mut text = Vec::new();
        value.write(&mut text);
        let near = number::parse_f64(&text).ok_or(Fault::NotFloat)?;
        Ok(Float { value, text, near })
    }

    fn parse(bytes: &[u8]) -> Result<Float, Fault> {
        Float::new(parse_float(bytes)?)
    }

    /// How far it is from `old` to here.
    fn minus(&self, old: &Float) -> Result<Float, Fault> {
        let negated = match old.text.strip_prefix(b"-") {
            Some(digits) => digits.to_vec(),
            None => [b"-", &old.text[..]].concat(),
        };
        Float::new(self.value.plus(parse_float(&negated)?))
    }

    fn write(&self, reply: &mut Reply<'_>) {
        if reply.is_resp3() {
            reply.double(self.near);
        } else {
            reply.bulk(&self.text);
        }
    }
}

fn add_float(
    place: &mut Keyed<'_>,
    options: &Options<'_>,
    by: &[u8],
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    let by = parse_float(by)?;
    let lower = options.lower.map(Float::parse).transpose()?;
    let upper = options.upper.map(Float::parse).transpose()?;
    if let (Some(lower), Some(upper)) = (&lower, &upper)
        && lower.near > upper.near
    {
        return Err(BOUNDS_CROSSED);
    }
    let old = Float::new(float_of(place.text()?)?)?;
    let sum = old.value.plus(by);
    if !sum.is_finite() {
        return Err(Fault::text("ERR increment would produce NaN or Infinity"));
    }
    let sum = Float::new(sum)?;
    let bound = match (lower, upper) {
        (Some(lower), _) if sum.near < lower.near => Some(lower),
        (_, Some(upper)) if sum.near > upper.near => Some(upper),
        _ => None,
    };
    let new = match bound {
        None => Some(sum),
        Some(bound) if options.saturates => Some(bound),
        Some(_) => None,
    };
    reply.array(2);
    let Some(new) = new else {
        old.write(reply);
        Float::new(LongDouble::from_i64(0))?.write(reply);
        return Ok(false);
    };
    place.put_float(&new.text)?;
    place.changed(INCRBYFLOAT_EVENT);
    new.write(reply);
    new.minus(&old)?.write(reply);
    Ok(true)
}

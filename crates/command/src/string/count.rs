//! Strings that are numbers: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.

use darter_base::longdouble::LongDouble;
use darter_base::{number, short};
use darter_store::change::Class;
use darter_store::{Event, Expiry, Text};
use darter_wire::{Args, Reply};

use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// INCR.
pub const INCR: DataCommand = DataCommand {
    spec: Spec::write("incr", 2, Keys::ONE).key_access("RW access update").fast().doc(
        Group::String,
        "1.0.0",
        "key",
        "Adds one to an integer; a missing key counts as 0.",
    ),
    run: incr,
};

/// DECR.
pub const DECR: DataCommand = DataCommand {
    spec: Spec::write("decr", 2, Keys::ONE).key_access("RW access update").fast().doc(
        Group::String,
        "1.0.0",
        "key",
        "Takes one from an integer; a missing key counts as 0.",
    ),
    run: decr,
};

/// INCRBY.
pub const INCRBY: DataCommand = DataCommand {
    spec: Spec::write("incrby", 3, Keys::ONE).key_access("RW access update").fast().doc(
        Group::String,
        "1.0.0",
        "key increment",
        "Adds to an integer; a missing key counts as 0.",
    ),
    run: incrby,
};

/// DECRBY.
pub const DECRBY: DataCommand = DataCommand {
    spec: Spec::write("decrby", 3, Keys::ONE).key_access("RW access update").fast().doc(
        Group::String,
        "1.0.0",
        "key decrement",
        "Takes from an integer; a missing key counts as 0.",
    ),
    run: decrby,
};

/// INCRBYFLOAT.
pub const INCRBYFLOAT: DataCommand = DataCommand {
    spec: Spec::write("incrbyfloat", 3, Keys::ONE).key_access("RW access update").fast().doc(
        Group::String,
        "2.6.0",
        "key increment",
        "Adds to a floating point number; a missing key counts as 0.",
    ),
    run: incrbyfloat,
};

pub(crate) const INCRBY_EVENT: Event = Event::new(Class::STRING, "incrby");
pub(crate) const INCRBYFLOAT_EVENT: Event = Event::new(Class::STRING, "incrbyfloat");

fn incr(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    add(ctx, args.at(1), 1, reply)
}

fn decr(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    add(ctx, args.at(1), -1, reply)
}

fn incrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    add(ctx, args.at(1), reader::int(args.at(2))?, reply)
}

fn decrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let by = reader::int(args.at(2))?;
    let by = by.checked_neg().ok_or(Fault::text("ERR decrement would overflow"))?;
    add(ctx, args.at(1), by, reply)
}

#[inline]
fn add(ctx: &mut Ctx<'_>, name: &[u8], by: i64, reply: &mut Reply<'_>) -> Result<(), Fault> {
    // Most sums are as long as the values that they replace, and are written over them.
    let mut buffer = itoa::Buffer::new();
    let is_replaced = ctx.change_plain(name, INCRBY_EVENT, |text| {
        let Some(value) = number::parse_i64(text).and_then(|old| old.checked_add(by)) else { return false };
        let digits = buffer.format(value).as_bytes();
        let fits = digits.len() == text.len();
        if fits {
            short::copy(text, digits);
            reply.int_text(digits);
        }
        fits
    });
    if is_replaced { Ok(()) } else { add_any(ctx, name, by, reply) }
}

/// [`add`] to whatever is there.
#[inline(never)]
fn add_any(ctx: &mut Ctx<'_>, name: &[u8], by: i64, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(name);
    let value = int_of(place.text()?)?.checked_add(by).ok_or(Fault::Overflow)?;
    place.put_text(itoa::Buffer::new().format(value).as_bytes(), Expiry::Keep)?;
    place.changed(INCRBY_EVENT);
    reply.int(value);
    Ok(())
}

/// The integer that a string spells; a missing one is 0.
#[inline]
pub(crate) fn int_of(text: Option<Text<'_>>) -> Result<i64, Fault> {
    match text {
        None => Ok(0),
        Some(Text::Plain(bytes)) => number::parse_i64(bytes).ok_or(Fault::NotInteger),
        // only long values are packed
        Some(Text::Packed(..)) => Err(Fault::NotInteger),
    }
}

/// The floating point number that a string spells; a missing one is 0.
pub(crate) fn float_of(text: Option<Text<'_>>) -> Result<LongDouble, Fault> {
    match text {
        None => Ok(LongDouble::from_i64(0)),
        Some(text) => parse_float(&text.bytes()),
    }
}

pub(crate) fn parse_float(bytes: &[u8]) -> Result<LongDouble, Fault> {
    LongDouble::parse(bytes).ok_or(Fault::NotFloat)
}

fn incrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    let value = float_of(place.text()?)?.plus(parse_float(args.at(2))?);
    if !value.is_finite() {
        return Err(Fault::text("ERR increment would produce NaN or Infinity"));
    }
    let mut text = Vec::new();
    value.write(&mut text);
    place.put_float(&text)?;
    place.changed(INCRBYFLOAT_EVENT);
    reply.bulk(&text);
    Ok(())
}

//! BITFIELD key [GET encoding offset | [OVERFLOW WRAP | SAT | FAIL] SET encoding offset value | INCRBY encoding offset increment ...],
//! BITFIELD_RO key [GET encoding offset ...]

use darter_base::number;
use darter_wire::{Args, Reply};

use super::{BAD_OFFSET, SETBIT_EVENT, bit, bit_offset};
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Env, Fault};

/// BITFIELD.
pub const BITFIELD: DataCommand = DataCommand {
    spec: Spec::write("bitfield", -2, Keys::ONE).key_access("RW access update variable_flags").access_by(access).doc(
        Group::Bitmap,
        "3.2.0",
        "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> ...]]",
        "Performs arbitrary bitfield integer operations on strings.",
    ),
    run: |ctx, args, reply| bitfield(ctx, args, reply, true),
};
fn access(call: Args<'_>) -> &'static str {
    if changes_bits(call) { "RW access update" } else { "RO access" }
}

/// Returns true if a BITFIELD has a part that changes the value.
fn changes_bits(call: Args<'_>) -> bool {
    let mut at = 2;
    while let Some(word) = call.get(at) {
        let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        if is("set") || is("incrby") {
            return true;
        }
        at += if is("get") { 3 } else { 1 };
    }
    false
}

/// BITFIELD_RO.
pub const BITFIELD_RO: DataCommand = DataCommand {
    spec: Spec::read("bitfield_ro", -2, Keys::ONE).fast().doc(
        Group::Bitmap,
        "6.0.0",
        "key [GET encoding offset [GET encoding offset ...]]",
        "Performs arbitrary read-only bitfield integer operations on strings.",
    ),
    run: |ctx, args, reply| bitfield(ctx, args, reply, false),
};

/// An integer of some bits, signed or not: 1..=64 bits signed, 1..=63 unsigned.
#[derive(Clone, Copy)]
struct FieldShape {
    is_signed: bool,
    bits: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum FieldOverflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct FieldStep {
    action: Action,
    shape: FieldShape,
    offset: u64,
    overflow: FieldOverflow,
}

fn shape(arg: &[u8]) -> Result<FieldShape, Fault> {
    const BAD: Fault = Fault::text(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    );
    let (is_signed, digits) = match arg {
        [b'i', digits @ ..] => (true, digits),
        [b'u', digits @ ..] => (false, digits),
        _ => return Err(BAD),
    };
    let bits = number::parse_i64(digits).and_then(|n| u32::try_from(n).ok()).ok_or(BAD)?;
    if bits == 0 || bits > 63 + u32::from(is_signed) { Err(BAD) } else { Ok(FieldShape { is_signed, bits }) }
}

/// A place in bits, or `#n` for the n-th integer of this shape.
fn offset(arg: &[u8], shape: FieldShape, env: &Env) -> Result<u64, Fault> {
    let Some(digits) = arg.strip_prefix(b"#") else { return bit_offset(arg, env) };
    let n = number::parse_i64(digits).and_then(|n| u64::try_from(n).ok()).ok_or(BAD_OFFSET)?;
    let at = n.checked_mul(u64::from(shape.bits)).ok_or(BAD_OFFSET)?;
    if at >> 3 >= env.proto_max_bulk_len { Err(BAD_OFFSET) } else { Ok(at) }
}

fn parse(args: Args<'_>, env: &Env, may_write: bool) -> Result<Vec<FieldStep>, Fault> {
    let mut steps = Vec::new();
    let mut overflow = FieldOverflow::Wrap;
    let mut is_read_only = true;
    let mut read = ArgReader::new(args, 2);
    while !read.is_done() {
        if read.take_with("overflow", 1) {
            overflow = if read.take("wrap") {
                FieldOverflow::Wrap
            } else if read.take("sat") {
                FieldOverflow::Saturate
            } else if read.take("fail") {
                FieldOverflow::Fail
            } else {
                return Err(Fault::text("ERR Invalid OVERFLOW type specified"));
            };
            continue;
        }
        let kind = if read.take_with("get", 2) {
            0
        } else if read.take_with("set", 3) {
            1
        } else if read.take_with("incrby", 3) {
            2
        } else {
            return Err(Fault::Syntax);
        };
        let shape = shape(read.bytes()?)?;
        let offset = offset(read.bytes()?, shape, env)?;
        let action = match kind {
            0 => Action::Get,
            1 => Action::Set(read.int()?),
            _ => Action::Add(read.int()?),
        };
        is_read_only &= kind == 0;
        // A write beyond the longest string is refused, although a read there gives zeros.
        if kind != 0 && (offset + u64::from(shape.bits) - 1) >> 3 >= env.proto_max_bulk_len {
            return Err(BAD_OFFSET);
        }
        steps.push(FieldStep { action, shape, offset, overflow });
    }
    if !may_write && !is_read_only {
        return Err(Fault::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    Ok(steps)
}

fn bitfield(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, may_write: bool) -> Result<(), Fault> {
    let steps = parse(args, ctx.env, may_write)?;
    let last_written = steps
        .iter()
        .filter(|step| !matches!(step.action, Action::Get))
        .map(|step| step.offset + u64::from(step.shape.bits) - 1)
        .max();
    let Some(last) = last_written else {
        let text = ctx.read_text(args.at(1))?;
        let bytes = text.map(|text| text.bytes());
        reply.array(steps.len());
        for step in &steps {
            reply.int(load(bytes.as_deref().unwrap_or_default(), step.offset, step.shape));
        }
        return Ok(());
    };
    let mut place = ctx.at(args.at(1));
    let len = place.text()?.map_or(0, |text| text.len());
    let wanted = len.max((last >> 3) as usize + 1);
    let bytes = place.edit_text(wanted)?;
    reply.array(steps.len());
    let mut is_changed = wanted > len;
    for step in &steps {
        is_changed |= apply(bytes, step, reply);
    }
    if is_changed {
        place.changed(SETBIT_EVENT);
    }
    Ok(())
}

/// Runs one step and answers it; returns whether it wrote another value.
fn apply(bytes: &mut [u8], step: &FieldStep, reply: &mut Reply<'_>) -> bool {
    let old = load(bytes, step.offset, step.shape);
    let (wanted, answer_is_old) = match step.action {
        Action::Get => {
            reply.int(old);
            return false;
        }
        // For an unsigned field a negative number means the large one with the same bits.
        Action::Set(value) if !step.shape.is_signed => {
            (fit(i128::from(value as u64), step.shape, step.overflow), true)
        }
        Action::Set(value) => (fit(i128::from(value), step.shape, step.overflow), true),
        Action::Add(by) => (fit(i128::from(old) + i128::from(by), step.shape, step.overflow), false),
    };
    match wanted {
        None => {
            reply.null();
            false
        }
        Some(value) => {
            store(bytes, step.offset, step.shape, value);
            reply.int(if answer_is_old { old } else { value });
            value != old
        }
    }
}

/// `value` within the shape: wrapped, clipped to its ends, or `None` if it does not fit and must not be changed.
fn fit(value: i128, shape: FieldShape, overflow: FieldOverflow) -> Option<i64> {
    let (min, max) = if shape.is_signed {
        (-(1i128 << (shape.bits - 1)), (1i128 << (shape.bits - 1)) - 1)
    } else {
        (0, (1i128 << shape.bits) - 1)
    };
    let bent = match overflow {
        _ if (min..=max).contains(&value) => value,
        FieldOverflow::Fail => return None,
        FieldOverflow::Saturate => value.clamp(min, max),
        FieldOverflow::Wrap => {
            let low = value & ((1i128 << shape.bits) - 1);
            if low > max { low - (1i128 << shape.bits) } else { low }
        }
    };
    i64::try_from(bent).ok()
}

fn load(bytes: &[u8], offset: u64, shape: FieldShape) -> i64 {
    let raw = (0..u64::from(shape.bits)).fold(0u64, |raw, at| raw << 1 | u64::from(bit(bytes, offset + at)));
    if shape.is_signed {
        let unused = 64 - shape.bits;
        (raw << unused) as i64 >> unused
    } else {
        raw as i64
    }
}

fn store(bytes: &mut [u8], offset: u64, shape: FieldShape, value: i64) {
    for at in 0..u64::from(shape.bits) {
        let on = value >> (u64::from(shape.bits) - 1 - at) & 1 != 0;
        let place = offset + at;
        let mask = 1 << (7 - (place & 7));
        let byte = &mut bytes[(place >> 3) as usize];
        *byte = if on { *byte | mask } else { *byte & !mask };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_at_any_place_and_width() {
        for bits in 1..=64 {
            for offset in 0..17 {
                let shape = FieldShape { is_signed: true, bits };
                let mut bytes = [0xa5; 12];
                for value in [0, -1, 1 << (bits - 1).min(62), i64::MIN >> (64 - bits)] {
                    let value = fit(i128::from(value), shape, FieldOverflow::Wrap).expect("wraps");
                    store(&mut bytes, offset, shape, value);
                    assert_eq!(load(&bytes, offset, shape), value, "i{bits} at {offset}");
                }
            }
        }
    }

    #[test]
    fn overflow_bends_as_told() {
        let (i8, u8) = (FieldShape { is_signed: true, bits: 8 }, FieldShape { is_signed: false, bits: 8 });
        assert_eq!(fit(128, i8, FieldOverflow::Wrap), Some(-128));
        assert_eq!(fit(-129, i8, FieldOverflow::Wrap), Some(127));
        assert_eq!(fit(300, u8, FieldOverflow::Wrap), Some(44));
        assert_eq!(fit(-1, u8, FieldOverflow::Wrap), Some(255));
        assert_eq!(fit(300, u8, FieldOverflow::Saturate), Some(255));
        assert_eq!(fit(-1, u8, FieldOverflow::Saturate), Some(0));
        assert_eq!(fit(-1, u8, FieldOverflow::Fail), None);
        let i64_shape = FieldShape { is_signed: true, bits: 64 };
        assert_eq!(fit(i128::from(i64::MAX) + 1, i64_shape, FieldOverflow::Wrap), Some(i64::MIN));
    }
}

//! SETBIT key offset value, GETBIT key offset

use darter_wire::{Args, Reply};

use super::{SETBIT_EVENT, bit, bit_offset};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SETBIT.
pub const SETBIT: DataCommand = DataCommand {
    spec: Spec::write("setbit", 4, Keys::ONE).key_access("RW access update").doc(
        Group::Bitmap,
        "2.2.0",
        "key offset value",
        "Sets or clears the bit at offset of the string value. Creates the key if it doesn't exist.",
    ),
    run: setbit,
};
/// GETBIT.
pub const GETBIT: DataCommand = DataCommand {
    spec: Spec::read("getbit", 3, Keys::ONE).fast().doc(
        Group::Bitmap,
        "2.2.0",
        "key offset",
        "Returns a bit value by offset.",
    ),
    run: getbit,
};

fn setbit(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let offset = bit_offset(args.at(2), ctx.env)?;
    let on = match args.at(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(Fault::text("ERR bit is not an integer or out of range")),
    };
    let byte = (offset >> 3) as usize;
    if ctx.may_leave_growth(byte + 1) {
        let len = ctx.at(args.at(1)).text()?.map_or(0, |text| text.len());
        if byte >= len && ctx.leave_growth(args.at(1), (len, byte + 1), None, args) {
            return Ok(());
        }
    }
    let mut place = ctx.at(args.at(1));
    let len = place.text()?.map_or(0, |text| text.len());
    let bytes = place.edit_text(len.max(byte + 1))?;
    let was = bit(bytes, offset);
    let mask = 1 << (7 - (offset & 7));
    bytes[byte] = if on { bytes[byte] | mask } else { bytes[byte] & !mask };
    if was != on || byte >= len {
        place.changed(SETBIT_EVENT);
    }
    reply.int(i64::from(was));
    Ok(())
}

fn getbit(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let offset = bit_offset(args.at(2), ctx.env)?;
    let is_on = ctx.read_text(args.at(1))?.is_some_and(|text| bit(&text.bytes(), offset));
    reply.int(i64::from(is_on));
    Ok(())
}

//! HINCRBY key field increment, HINCRBYFLOAT

use darter_base::hash::KeyHasher;
use darter_base::longdouble::LongDouble;
use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, Table};
use darter_store::Arena;
use darter_wire::{Args, Reply};

use super::{Edit, at, event, new_hash};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// HINCRBY.
pub const HINCRBY: DataCommand = DataCommand {
    spec: Spec::write("hincrby", 4, Keys::ONE).key_access("RW access update").fast().doc(
        Group::Hash,
        "2.0.0",
        "key field increment",
        "Increments the integer value of a field in a hash by a number. Uses 0 as initial value if the field doesn't exist.",
    ),
    run: hincrby,
};
/// HINCRBYFLOAT.
pub const HINCRBYFLOAT: DataCommand = DataCommand {
    spec: Spec::write("hincrbyfloat", 4, Keys::ONE).key_access("RW access update").fast().doc(
        Group::Hash,
        "2.6.0",
        "key field increment",
        "Increments the floating point value of a field by a number. Uses 0 as initial value if the field doesn't exist.",
    ),
    run: hincrbyfloat,
};

fn hincrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let by = reader::int(args.at(3))?;
    let now_ms = ctx.now_ms;
    let add = |table: &mut Table, arena: &mut Arena, hasher: KeyHasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        // Most sums take as many bytes as the values that they replace, and are written over them.
        let mut sum = 0;
        let is_replaced = edit.replace_int(args.at(2), |old| {
            sum = old.checked_add(by)?;
            Some(sum)
        });
        if is_replaced {
            return Ok(sum);
        }
        let old = match edit.get(args.at(2)) {
            None => 0,
            Some(entry) => entry.value().int().ok_or(Fault::text("ERR hash value is not an integer"))?,
        };
        let value = old.checked_add(by).ok_or(Fault::Overflow)?;
        edit.put(args.at(2), Item::Int(value), FieldExpiry::Keep)?;
        Ok(value)
    };
    let value = ctx.add_to(args.at(1), new_hash, add, |_| Some(event("hincrby")))?;
    reply.int(value);
    Ok(())
}

fn hincrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let by = LongDouble::parse(args.at(3)).ok_or(Fault::NotFloat)?;
    if !by.is_finite() {
        return Err(Fault::text("ERR value is NaN or Infinity"));
    }
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(1));
    let edited = place.edit_or_create(new_hash, |table: &mut Table, arena, hasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        let old = match edit.get(args.at(2)).map(|entry| entry.value()) {
            None => LongDouble::from_i64(0),
            Some(Item::Int(value)) => LongDouble::from_i64(value),
            Some(Item::Bytes(text)) => {
                LongDouble::parse(text).ok_or(Fault::text("ERR hash value is not a float"))?
            }
        };
        let value = old.plus(by);
        if !value.is_finite() {
            return Err(Fault::text("ERR increment would produce NaN or Infinity"));
        }
        let mut text = Vec::new();
        value.write(&mut text);
        edit.put(args.at(2), Item::Bytes(&text), FieldExpiry::Keep)?;
        Ok::<Vec<u8>, Fault>(text)
    })?;
    let text = edited.result?;
    place.changed(event("hincrbyfloat"));
    reply.bulk(&text);
    Ok(())
}

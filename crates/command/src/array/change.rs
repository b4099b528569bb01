//! ARSET key index value [value ...], ARMSET key index value [index value ...], ARDEL key index [index ...],
//! ARDELRANGE key start end [start end ...]

use darter_store::Array;
use darter_store::array::PLACE_MAX;
use darter_wire::{Args, Reply};

use super::{BAD_INDEX, event, new_array, place, range, report_removal, spec};
use crate::probabilistic::arity;
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// ARSET.
pub const ARSET: DataCommand = DataCommand {
    spec: spec(
        Spec::write("arset", -4, Keys::ONE).fast(),
        "key index value [value ...]",
        "Sets one or more contiguous values starting at an index in an array.",
    )
    .cost("O(N) where N is the number of values"),
    run: set,
};
/// ARMSET.
pub const ARMSET: DataCommand = DataCommand {
    spec: spec(
        Spec::write("armset", -4, Keys::ONE).fast(),
        "key index value [index value ...]",
        "Sets multiple index-value pairs in an array.",
    )
    .cost("O(N) where N is the number of pairs"),
    run: set_many,
};
/// ARDEL.
pub const ARDEL: DataCommand = DataCommand {
    spec: spec(
        Spec::shrink("ardel", -3, Keys::ONE).fast(),
        "key index [index ...]",
        "Deletes elements at the specified indices in an array.",
    )
    .cost("O(N) where N is the number of indices to delete"),
    run: delete,
};
/// ARDELRANGE.
pub const ARDELRANGE: DataCommand = DataCommand {
    spec: spec(
        Spec::shrink("ardelrange", -4, Keys::ONE),
        "key start end [start end ...]",
        "Deletes elements in one or more ranges.",
    )
    .cost("Proportional to the number of existing elements in the ranges"),
    run: delete_ranges,
};

fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let first = place(args.at(2))?;
    let values = args.tail(3);
    if PLACE_MAX - first < values.len() as u64 - 1 {
        return Err(BAD_INDEX);
    }
    let mut at = ctx.at(args.at(1));
    let edited = at.edit_or_create(new_array, |array, arena, _| array.put(arena, first, values.iter()))?;
    at.changed(event("arset"));
    reply.int(edited.result?.cast_signed());
    Ok(())
}

fn set_many(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(arity("armset"));
    }
    let places = (2..args.len()).step_by(2).map(|at| place(args.at(at)));
    let places = places.collect::<Result<Vec<u64>, Fault>>()?;
    let mut at = ctx.at(args.at(1));
    let edited = at.edit_or_create(new_array, |array: &mut Array, arena, _| {
        let mut new = 0;
        for (n, &place) in places.iter().enumerate() {
            new += array.put(arena, place, std::iter::once(args.at(3 + 2 * n)))?;
        }
        Ok::<u64, Fault>(new)
    })?;
    at.changed(event("armset"));
    reply.int(edited.result?.cast_signed());
    Ok(())
}

fn delete(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let places = args.tail(2).iter().map(|word| place(word).map(|place| (place, place)));
    let places = places.collect::<Result<Vec<_>, Fault>>()?;
    remove(ctx, args.at(1), &places, "ardel", reply)
}

fn delete_ranges(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(arity("ardelrange"));
    }
    let ranges =
        (2..args.len()).step_by(2).map(|at| range(args.at(at), args.at(at + 1)).map(|(range, _)| range));
    let ranges = ranges.collect::<Result<Vec<_>, Fault>>()?;
    remove(ctx, args.at(1), &ranges, "ardelrange", reply)
}

fn remove(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    ranges: &[(u64, u64)],
    what: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut at = ctx.at(name);
    let mut fault = None;
    let edited = at.edit(|array: &mut Array, arena, _| {
        let mut removed = 0;
        for &(from, to) in ranges {
            match array.remove(arena, from, to) {
                Ok(count) => removed += count,
                Err(full) => fault = Some(full),
            }
        }
        (removed, array.count() == 0)
    })?;
    let removed = edited.map_or(0, |edited| report_removal(&mut at, edited, event(what)));
    if let Some(full) = fault {
        return Err(full.into());
    }
    reply.int(removed.cast_signed());
    Ok(())
}

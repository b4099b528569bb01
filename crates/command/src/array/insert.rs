//! ARINSERT key value [value ...], ARRING key size value [value ...], ARSEEK key index, ARNEXT key

use darter_base::number;
use darter_store::Array;
use darter_store::array::PLACE_MAX;
use darter_wire::{Args, Reply};

use super::ringing::{self, NewRing};
use super::{BAD_INDEX, event, new_array, read, reply_number, spec};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// ARINSERT.
pub const ARINSERT: DataCommand = DataCommand {
    spec: spec(
        Spec::write("arinsert", -3, Keys::ONE).fast(),
        "key value [value ...]",
        "Inserts one or more values at consecutive indices.",
    )
    .cost("O(N) where N is the number of values"),
    run: insert,
};
/// ARRING.
pub const ARRING: DataCommand = DataCommand {
    spec: spec(
        Spec::write("arring", -4, Keys::ONE),
        "key size value [value ...]",
        "Inserts values into a ring buffer of specified size, wrapping and truncating as needed.",
    )
    .cost("O(M) normally, O(N+M) on ring resize, where N is the maximum of the old and new ring size and M is the number of inserted values"),
    run: ring,
};
/// ARSEEK.
pub const ARSEEK: DataCommand = DataCommand {
    spec: spec(
        Spec::shrink("arseek", 3, Keys::ONE).fast(),
        "key index",
        "Sets the ARINSERT / ARRING cursor to a specific index.",
    ),
    run: seek,
};
/// ARNEXT.
pub const ARNEXT: DataCommand = DataCommand {
    spec: spec(read("arnext", 2).fast(), "key", "Returns the next index ARINSERT would use."),
    run: next,
};

const NO_ROOM: Fault = Fault::text("ERR insert index overflow");

/// The place after the cursor; `None` behind the last.
fn next_place(cursor: Option<u64>) -> Option<u64> {
    match cursor {
        None => Some(0),
        Some(cursor) => cursor.checked_add(1).filter(|&next| next <= PLACE_MAX),
    }
}

fn insert(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let values = args.tail(2);
    let mut at = ctx.at(args.at(1));
    let cursor = at.view::<Array>()?.and_then(|view| view.root.cursor);
    let first = next_place(cursor).ok_or(NO_ROOM)?;
    let last = first.checked_add(values.len() as u64 - 1).filter(|&last| last <= PLACE_MAX).ok_or(NO_ROOM)?;
    let edited = at.edit_or_create(new_array, |array, arena, _| {
        array.put(arena, first, values.iter())?;
        array.cursor = Some(last);
        Ok::<(), Fault>(())
    })?;
    at.changed(event("arinsert"));
    edited.result?;
    reply_number(reply, last);
    Ok(())
}

fn ring(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let size = number::parse_u64(args.at(2)).filter(|&size| size > 0 && size <= PLACE_MAX);
    let size = size.ok_or(Fault::text("ERR invalid ring size"))?;
    let staged = ctx.staged.take();
    let is_laid = staged.is_some();
    if let Some(staged) = staged {
        staged.put_back(ctx, args.at(1))?;
    } else if ringing::leave(ctx, args.at(1), size)? {
        return Ok(());
    }
    let mut at = ctx.at(args.at(1));
    let edited = at.edit_or_create(new_array, |array: &mut Array, arena, _| {
        if let Some(ring) = NewRing::new(array, arena, size).filter(|_| !is_laid) {
            ring.lay(array, arena)?;
        }
        let mut last = 0;
        for value in args.tail(3).iter() {
            last = next_place(array.cursor).unwrap_or(0) % size;
            array.put(arena, last, std::iter::once(value))?;
            array.cursor = Some(last);
        }
        Ok::<u64, Fault>(last)
    })?;
    at.changed(event("arring"));
    reply_number(reply, edited.result?);
    Ok(())
}

fn seek(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let next = number::parse_u64(args.at(2)).ok_or(BAD_INDEX)?;
    let mut at = ctx.at(args.at(1));
    let edited = at.edit(|array: &mut Array, _, _| array.cursor = next.checked_sub(1))?;
    if edited.is_some() {
        at.changed(event("arseek"));
    }
    reply.int(i64::from(edited.is_some()));
    Ok(())
}

fn next(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let at = ctx.read(args.at(1));
    match next_place(at.view::<Array>()?.and_then(|view| view.root.cursor)) {
        Some(next) => reply_number(reply, next),
        None => reply.null(),
    }
    Ok(())
}

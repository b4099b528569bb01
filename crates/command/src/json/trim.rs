//! JSON.ARRTRIM key path start stop

use darter_store::Event;
use darter_wire::{Args, Reply};

use super::arrays::is_array;
use super::change::change_each;
use super::{event, path_at};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.ARRTRIM.
pub const ARRTRIM: DataCommand = DataCommand {
    spec: Spec::shrink("json.arrtrim", 5, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key path start stop", "Keeps only a range of the elements of arrays.")
        .cost("O(N) over the size of the document"),
    run: trim,
};

const TRIM_EVENT: Event = event("json.arrtrim");

fn trim(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let (start, stop) = (reader::int(args.at(3))?, reader::int(args.at(4))?);
    let mut place = ctx.at(args.at(1));
    let outcome = change_each(&mut place, &path, TRIM_EVENT, is_array, |slot| {
        Ok(slot.trim(start, stop).unwrap_or_default())
    })?;
    outcome.reply(&path, "not an array", reply, |len, reply| reply.int_len(len))
}

//! JSON.CLEAR key [path]

use darter_document::edit;
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::change::change_each;
use super::{event, path_at};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.CLEAR.
pub const CLEAR: DataCommand = DataCommand {
    spec: Spec::shrink("json.clear", -2, Keys::ONE)
        .doc(Group::Json, "2.0.0", "key [path]", "Empties arrays and objects, and sets numbers to 0.")
        .cost("O(N) over the size of the document"),
    run: clear,
};

const CLEAR_EVENT: Event = event("json.clear");

fn clear(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(Fault::Arity("json.clear".into()));
    }
    let path = path_at(args, 2)?;
    let mut place = ctx.at(args.at(1));
    let outcome = change_each(&mut place, &path, CLEAR_EVENT, edit::is_clearable, |slot| Ok(slot.clear()))?;
    reply.int_len(outcome.into_each().into_iter().flatten().filter(|is_cleared| *is_cleared).count());
    Ok(())
}

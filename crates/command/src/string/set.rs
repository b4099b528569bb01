//! SET key value

use darter_store::Expiry;
use darter_wire::{Args, Reply};

use super::SET_EVENT;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SET.
pub const SET: DataCommand = DataCommand {
    spec: Spec::write("set", -3, Keys::ONE).doc(
        Group::String,
        "1.0.0",
        "key value",
        "Sets the string value of a key.",
    ),
    run: set,
};

fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    place.put_text(args.at(2), Expiry::None)?;
    place.changed(SET_EVENT);
    reply.ok();
    Ok(())
}

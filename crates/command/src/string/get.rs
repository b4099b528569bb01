//! GET key

use darter_wire::{Args, Reply};

use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// GET.
pub const GET: DataCommand = DataCommand {
    spec: Spec::read("get", 2, Keys::ONE).fast().doc(
        Group::String,
        "1.0.0",
        "key",
        "Returns the string value of a key.",
    ),
    run: get,
};

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match ctx.read(args.at(1)).into_text()? {
        Some(text) => reply_text(reply, text),
        None => reply.null(),
    }
    Ok(())
}

/// Answers a string value.
#[inline]
pub(crate) fn reply_text(reply: &mut Reply<'_>, text: darter_store::Text<'_>) {
    match text {
        darter_store::Text::Plain(bytes) => reply.bulk(bytes),
        packed => reply.bulk_with(packed.len(), |out| packed.write_to(out)),
    }
}

//! HIMPORT PREPARE fieldset field [field ...], DISCARD fieldset, DISCARDALL: the field sets for HIMPORT SET.

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;

const fn spec(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    Spec::other(name, arity).flag(Flags::NOSCRIPT).doc(Group::Hash, "8.10.0", syntax, summary)
}

/// The family's commands; SET is one of data.
pub const FAMILY: &[ServerCommand] = &[
    row(spec("himport", -2, "", "Makes hashes whose fields have the same names."), nothing),
    row(
        spec(
            "himport|prepare",
            -4,
            "fieldset field [field ...]",
            "Names the fields of hashes that this connection is about to make.",
        ),
        prepare,
    ),
    row(spec("himport|discard", 3, "fieldset", "Forgets the names of a fieldset."), discard),
    row(spec("himport|discardall", 2, "", "Forgets all fieldsets of this connection."), discard_all),
];

/// A container alone does nothing: a call without a subcommand is refused before.
fn nothing(_: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    Err(Fault::Syntax)
}

fn prepare(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    caller.session.fieldsets.get_or_insert_default().prepare(args.at(2), args.tail(3))?;
    reply.ok();
    Ok(())
}

fn discard(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let fieldsets = &mut caller.session.fieldsets;
    let was_there = fieldsets.as_mut().is_some_and(|fieldsets| fieldsets.discard(args.at(2)));
    reply.int(i64::from(was_there));
    Ok(())
}

fn discard_all(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int_len(caller.session.fieldsets.take().map_or(0, |fieldsets| fieldsets.len()));
    Ok(())
}

//! JSON.TOGGLE key path

use darter_document::{FormView, JsonPath};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::change::change_each;
use super::event;
use super::fault::bad_path;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.TOGGLE.
pub const TOGGLE: DataCommand = DataCommand {
    spec: Spec::shrink("json.toggle", 3, Keys::ONE)
        .doc(Group::Json, "2.0.0", "key path", "Turns true into false, and false into true.")
        .cost("O(N) over the size of the document"),
    run: toggle,
};

const TOGGLE_EVENT: Event = event("json.toggle");

fn toggle(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = JsonPath::parse(args.at(2)).map_err(bad_path)?;
    let mut place = ctx.at(args.at(1));
    let is_boolean = |view: FormView<'_>| matches!(view, FormView::Bool(_));
    let outcome = change_each(&mut place, &path, TOGGLE_EVENT, is_boolean, |slot| {
        Ok(slot.toggle().unwrap_or_default())
    })?;
    let is_legacy = path.is_legacy();
    outcome.reply(&path, "not a bool", reply, |value, reply| match (is_legacy, value) {
        (true, true) => reply.bulk(b"true"),
        (true, false) => reply.bulk(b"false"),
        (false, value) => reply.int(i64::from(value)),
    })
}

//! JSON.NUMINCRBY key path value, JSON.NUMMULTBY, JSON.NUMPOWBY

use darter_base::number;
use darter_document::number::{Number, NumberOperation};
use darter_document::{Doc, FormView, JsonPath, parse};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::change::change_each;
use super::event;
use super::fault::{bad_path, invalid, no_path_or, no_result};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.NUMINCRBY.
pub const NUMINCRBY: DataCommand = DataCommand {
    spec: Spec::write("json.numincrby", 4, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key path value", "Adds to numbers.")
        .cost("O(N) over the size of the document"),
    run: |ctx, args, reply| change(ctx, args, (NumberOperation::Add, event("json.numincrby")), reply),
};
/// JSON.NUMMULTBY.
pub const NUMMULTBY: DataCommand = DataCommand {
    spec: Spec::write("json.nummultby", 4, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key path value", "Multiplies numbers.")
        .cost("O(N) over the size of the document"),
    run: |ctx, args, reply| change(ctx, args, (NumberOperation::Multiply, event("json.nummultby")), reply),
};
/// JSON.NUMPOWBY.
pub const NUMPOWBY: DataCommand = DataCommand {
    spec: Spec::write("json.numpowby", 4, Keys::ONE)
        .doc(Group::Json, "2.0.0", "key path value", "Raises numbers to a power.")
        .cost("O(N) over the size of the document"),
    run: |ctx, args, reply| change(ctx, args, (NumberOperation::Power, event("json.numpowby")), reply),
};

/// The number of a JSON text.
///
/// Errors: it is not JSON, or no number.
fn operand(text: &[u8]) -> Result<Number, Fault> {
    if let Some(number) = number::parse_i64(text) {
        return Ok(Number::Int(number));
    }
    let bytes = parse(text).map_err(invalid)?;
    let number = Number::of(Doc::new(&bytes).root().view());
    number.ok_or(Fault::text("ERR result is not a number"))
}

fn change(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    (operation, event): (NumberOperation, Event),
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let path = JsonPath::parse(args.at(2)).map_err(bad_path)?;
    let by = operand(args.at(3))?;
    let mut place = ctx.at(args.at(1));
    let is_number = |view: FormView<'_>| Number::of(view).is_some();
    let outcome = change_each(&mut place, &path, event, is_number, |slot| {
        let old = Number::of(slot.view()).unwrap_or(Number::Int(0));
        let new = old.combine(operation, by).map_err(no_result)?;
        slot.replace_by(|out| new.write(out));
        Ok(new)
    })?;
    if reply.is_resp3() {
        outcome.reply_all(reply, |number, reply| match number {
            Number::Int(value) => reply.int(value),
            other => reply.double(other.as_float()),
        });
        return Ok(());
    }
    let mut text = Vec::new();
    if path.is_legacy() {
        let last = outcome.into_each().into_iter().flatten().next_back();
        last.ok_or_else(|| no_path_or("does not contains a number"))?.print(&mut text);
    } else {
        text.push(b'[');
        for (at, number) in outcome.into_each().into_iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            match number {
                Some(number) => number.print(&mut text),
                None => text.extend_from_slice(b"null"),
            }
        }
        text.push(b']');
    }
    reply.bulk(&text);
    Ok(())
}

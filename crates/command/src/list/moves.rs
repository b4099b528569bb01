//! LMOVE source destination LEFT | RIGHT LEFT | RIGHT, RPOPLPUSH source destination

use crate::keyspec;
use darter_pack::entry::Item;
use darter_pack::tree::List;
use darter_pack::tree::list::ListEnd;
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::{end, pop_event, push_event};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// LMOVE.
pub const LMOVE: DataCommand = DataCommand {
    spec: Spec::write("lmove", 5, Keys::TWO).key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, "RW insert")]).doc(
        Group::List,
        "6.2.0",
        "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
        "Returns an element after popping it from one list and pushing it to another. Deletes the list if the last element was moved.",
    ),
    run: |ctx, args, reply| {
        let ends = (end(args.at(3))?, end(args.at(4))?);
        if !transfer(ctx, args.at(1), args.at(2), ends, reply)? {
            reply.null();
        }
        Ok(())
    },
};
/// RPOPLPUSH.
pub const RPOPLPUSH: DataCommand = DataCommand {
    spec: Spec::write("rpoplpush", 3, Keys::TWO).key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, "RW insert")]).deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments").doc(
        Group::List,
        "1.2.0",
        "source destination",
        "Returns the last element of a list after removing and pushing it to another list. Deletes the list if the last element was popped.",
    ),
    run: |ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>| {
        if !transfer(ctx, args.at(1), args.at(2), (ListEnd::Back, ListEnd::Front), reply)? {
            reply.null();
        }
        Ok(())
    },
};

pub(super) const WRONG_DESTINATION: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Moves one element and answers it; returns false, with nothing written, if the source is missing.
pub(super) fn transfer(
    ctx: &mut Ctx<'_>,
    source: &[u8],
    dest: &[u8],
    (from, to): (ListEnd, ListEnd),
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    if ctx.at(source).view::<List>()?.is_none() {
        return Ok(false);
    }
    // Not `Fault::WrongType`: a client that waits for the source gets this error, but a wrong type of the source
    // itself does not end its wait.
    ctx.at(dest).view::<List>().map_err(|_| Fault::text(WRONG_DESTINATION))?;
    if source == dest {
        return rotate(ctx, source, (from, to), reply);
    }
    let mut element = Vec::new();
    if let Some(list) = ctx.at(source).view::<List>()? {
        let index = if from == ListEnd::Front { 0 } else { list.root.len() - 1 };
        if let Some(item) = list.root.get(list.arena, index) {
            item.write_to(&mut element);
        }
    }
    let mut place = ctx.at(dest);
    let pushed =
        place.edit_or_create(List::new, |list, arena, _| list.push(arena, to, Item::of(&element)))?;
    pushed.result?;
    place.changed(push_event(to));
    let mut place = ctx.at(source);
    let popped = place.edit::<List, _>(|list, arena, _| list.pop(arena, from, |_| {}))?;
    place.told(pop_event(from));
    if popped.is_some_and(|popped| popped.is_gone) {
        place.changed(Event::DEL);
    }
    reply.bulk(&element);
    Ok(true)
}

/// Moves within one list, which keeps its deadline even if it has a single element.
fn rotate(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    (from, to): (ListEnd, ListEnd),
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    let mut place = ctx.at(key);
    let mut element = Vec::new();
    let edited = place.edit::<List, _>(|list, arena, _| {
        list.pop(arena, from, |item| item.write_to(&mut element));
        list.push(arena, to, Item::of(&element))
    })?;
    if let Some(edited) = edited {
        edited.result?;
    }
    place.changed(push_event(to));
    place.told(pop_event(from));
    reply.bulk(&element);
    Ok(true)
}

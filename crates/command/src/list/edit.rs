//! LSET key index element, LINSERT key BEFORE | AFTER pivot element, LREM key count element, LTRIM key start stop

use darter_pack::entry::Item;
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{Direction, List};
use darter_store::Event;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use super::finding::{LOOKS_MAX, Search};
use super::{clip, event, index_of};
use crate::incremental::{Copying, StagedForm};
use crate::reader::{self, is};
use crate::slices;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// LSET.
pub const LSET: DataCommand = DataCommand {
    spec: Spec::write("lset", 4, Keys::ONE)
        .doc(
            Group::List,
            "1.0.0",
            "key index element",
            "Sets the value of an element in a list by its index.",
        )
        .cost("O(log N)"),
    run: lset,
};
/// LINSERT.
pub const LINSERT: DataCommand = DataCommand {
    spec: Spec::write("linsert", 5, Keys::ONE)
        .key_access("RW insert")
        .doc(
            Group::List,
            "2.2.0",
            "key <BEFORE | AFTER> pivot element",
            "Inserts an element before or after another element in a list.",
        )
        .cost("O(N)"),
    run: linsert,
};
/// LREM.
pub const LREM: DataCommand = DataCommand {
    spec: Spec::shrink("lrem", 4, Keys::ONE)
        .key_access("RW delete")
        .doc(
            Group::List,
            "1.0.0",
            "key count element",
            "Removes elements from a list. Deletes the list if the last element was removed.",
        )
        .cost("O(N+M)"),
    run: lrem,
};
/// LTRIM.
pub const LTRIM: DataCommand = DataCommand {
    spec: Spec::shrink("ltrim", 4, Keys::ONE)
        .key_access("RW delete")
        .doc(
            Group::List,
            "1.0.0",
            "key start stop",
            "Removes elements from both ends a list. Deletes the list if all elements were trimmed.",
        )
        .cost("O(N)"),
    run: ltrim,
};

fn lset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    if place.view::<List>()?.is_none() {
        return Err(Fault::NoSuchKey);
    }
    let index = reader::int(args.at(2))?;
    let edited = place.edit::<List, _>(|list, arena, _| match index_of(index, list.len()) {
        Some(index) => list.set(arena, index, Item::of(args.at(3))),
        None => Ok(false),
    })?;
    match edited.map(|edited| edited.result).transpose()? {
        Some(true) => {
            place.changed(event("lset"));
            reply.ok();
            Ok(())
        }
        _ => Err(Fault::text("ERR index out of range")),
    }
}

fn linsert(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let after = if is(args.at(2), "after") {
        1
    } else if is(args.at(2), "before") {
        0
    } else {
        return Err(Fault::Syntax);
    };
    let found = ctx.staged.take().map(|kept| kept.found.numbers);
    if found.is_none()
        && let Some(list) = ctx.at(args.at(1)).view::<List>()?
        && let len = list.root.len()
        && list.root.position(list.arena, Item::of(args.at(3)), 0, ListEnd::Back, LOOKS_MAX).is_none()
        && Search::FIRST.leave(ctx, args.at(1), len, args.at(3), None)
    {
        return Ok(());
    }
    let mut place = ctx.at(args.at(1));
    let edited = place.edit::<List, _>(|list, arena, _| {
        let index = match &found {
            Some(found) => found.first().copied(),
            None => list.position(arena, Item::of(args.at(3)), 0, ListEnd::Back, u64::MAX),
        };
        let Some(index) = index else { return Ok(None) };
        list.insert(arena, index + after, Item::of(args.at(4)))?;
        Ok::<_, darter_pack::tree::TreeFull>(Some(list.len()))
    })?;
    match edited.map(|edited| edited.result).transpose()? {
        None => reply.int(0),
        Some(None) => reply.int(-1),
        Some(Some(len)) => {
            place.changed(event("linsert"));
            reply.int(len as i64);
        }
    }
    Ok(())
}

fn lrem(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let count = reader::int(args.at(2))?;
    let from = if count >= 0 { ListEnd::Front } else { ListEnd::Back };
    let count_max = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let found = ctx.staged.take().map(|kept| kept.found.numbers);
    if found.is_none() && leave_search(ctx, args, count_max, from)? {
        return Ok(());
    }
    let mut place = ctx.at(args.at(1));
    let edited = place.edit::<List, _>(|list, arena, _| match &found {
        Some(places) => {
            // From the back on, so that the others keep their places.
            let last_first = from == ListEnd::Back;
            let each = (0..places.len()).map(|n| places[if last_first { n } else { places.len() - 1 - n }]);
            each.filter(|place| list.remove(arena, *place)).count() as u64
        }
        None => list.remove_equal(arena, Item::of(args.at(3)), count_max, from),
    })?;
    let removed = edited.map_or(0, |edited| edited.result);
    if removed > 0 {
        place.changed(event("lrem"));
        if edited.is_some_and(|edited| edited.is_gone) {
            place.changed(Event::DEL);
        }
    }
    reply.int(removed as i64);
    Ok(())
}

/// Leaves the search for the items that LREM removes from a long list to slices; false if it must be done at once.
fn leave_search(ctx: &mut Ctx<'_>, args: Args<'_>, count_max: u64, from: ListEnd) -> Result<bool, Fault> {
    let (name, element) = (args.at(1), args.at(3));
    let place = ctx.at(name);
    let Some(list) = place.view::<List>()? else { return Ok(false) };
    let len = list.root.len();
    let (first, towards) = match from {
        ListEnd::Front => (0, ListEnd::Back),
        ListEnd::Back => (len.saturating_sub(1), ListEnd::Front),
    };
    let is_near = || list.root.position(list.arena, Item::of(element), first, towards, LOOKS_MAX).is_some();
    if len <= LOOKS_MAX || count_max == 1 && is_near() {
        return Ok(false);
    }
    Ok(Search { towards, wanted: count_max, ..Search::FIRST }.leave(ctx, name, len, element, None))
}

fn ltrim(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (start, stop) = (reader::int(args.at(2))?, reader::int(args.at(3))?);
    let name = args.at(1);
    if let Some(kept) = ctx.staged.take() {
        kept.put_back(ctx, name)?;
        ctx.at(name).changed(event("ltrim"));
        reply.ok();
        return Ok(());
    }
    if ctx.may_slice
        && let Some(len) = ctx.at(name).view::<List>()?.map(|list| list.root.len())
        && leave_trimmed(ctx, name, clip(start, stop, len), len)
    {
        return Ok(());
    }
    let mut place = ctx.at(name);
    if place.view::<List>()?.is_some_and(|list| clip(start, stop, list.root.len()).1 == 0) {
        // The blocks of all items are freed in steps, later.
        place.remove();
        place.changed(event("ltrim"));
        place.changed(Event::DEL);
        reply.ok();
        return Ok(());
    }
    let edited = place.edit::<List, _>(|list, arena, _| {
        let (first, count) = clip(start, stop, list.len());
        list.remove_range(arena, first + count, u64::MAX);
        list.remove_range(arena, 0, first);
    })?;
    if edited.is_some() {
        place.changed(event("ltrim"));
    }
    reply.ok();
    Ok(())
}

/// Items that are removed with their leaves in some 50 microseconds.
const GONE_MAX: u64 = 10_000;

/// Leaves building the remaining part of a list to slices; false if the others must be removed now.
fn leave_trimmed(ctx: &mut Ctx<'_>, name: &[u8], (first, count): (u64, u64), len: u64) -> bool {
    let kept = Stretch::Ranks(first, count, Direction::Up);
    count > 0
        && slices::is_better_rebuilt(count, len - count, GONE_MAX)
        && ctx.store_later((name, StagedForm::List), &[name], &[(name, kept)], Box::new(Copying))
}

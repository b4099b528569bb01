//! LPUSH key element [element ...], RPUSH, LPUSHX, RPUSHX

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::tree::List;
use darter_pack::tree::list::ListEnd;
use darter_store::Arena;
use darter_wire::{Args, Reply};

use super::push_event;
use crate::incremental::StagedForm;
use crate::incremental::bulk_add::{BulkWords, Filled, MANY};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const fn spec(name: &'static str, since: &'static str, summary: &'static str) -> Spec {
    Spec::write(name, -3, Keys::ONE)
        .fast()
        .doc(Group::List, since, "key element [element ...]", summary)
        .cost("O(N)")
}

/// LPUSH.
pub const LPUSH: DataCommand = DataCommand {
    spec: spec(
        "lpush",
        "1.0.0",
        "Prepends one or more elements to a list. Creates the key if it doesn't exist.",
    )
    .key_access("RW insert"),
    run: |ctx, args, reply| push(ctx, args, reply, ListEnd::Front),
};
/// RPUSH.
pub const RPUSH: DataCommand = DataCommand {
    spec: spec(
        "rpush",
        "1.0.0",
        "Appends one or more elements to a list. Creates the key if it doesn't exist.",
    )
    .key_access("RW insert"),
    run: |ctx, args, reply| push(ctx, args, reply, ListEnd::Back),
};
/// LPUSHX.
pub const LPUSHX: DataCommand = DataCommand {
    spec: spec("lpushx", "2.2.0", "Prepends one or more elements to a list only when the list exists.")
        .key_access("RW insert"),
    run: |ctx, args, reply| push_existing(ctx, args, reply, ListEnd::Front),
};
/// RPUSHX.
pub const RPUSHX: DataCommand = DataCommand {
    spec: spec("rpushx", "2.2.0", "Appends an element to a list only when the list exists.")
        .key_access("RW insert"),
    run: |ctx, args, reply| push_existing(ctx, args, reply, ListEnd::Back),
};

fn push(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, end: ListEnd) -> Result<(), Fault> {
    if args.len() > MANY && push_many(ctx, args, reply, end)? {
        return Ok(());
    }
    let put = |list: &mut List, arena: &mut Arena, _: KeyHasher| {
        for element in args.tail(2).iter() {
            list.push(arena, end, Item::of(element))?;
        }
        Ok(list.len())
    };
    let len = ctx.add_to(args.at(1), List::new, put, |_| Some(push_event(end)))?;
    reply.int(len as i64);
    Ok(())
}

/// Leaves pushing many elements to slices, or answers after that; false if they must be pushed now.
#[cold]
fn push_many(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, end: ListEnd) -> Result<bool, Fault> {
    let form = if end == ListEnd::Front { StagedForm::Stack } else { StagedForm::List };
    let filled = ctx.add_many((args.at(1), form), args, BulkWords::plain(2))?;
    if let Filled::Done { len, .. } = filled {
        ctx.changed(args.at(1), push_event(end));
        reply.int(len as i64);
    }
    Ok(filled != Filled::AtOnce)
}

fn push_existing(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    end: ListEnd,
) -> Result<(), Fault> {
    if !ctx.at(args.at(1)).exists() {
        reply.int(0);
        return Ok(());
    }
    push(ctx, args, reply, end)
}

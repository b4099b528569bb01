//! COPY and MOVE: a value under another name, or in another database.

use crate::keyspec;
use darter_wire::{Args, Reply};

use super::{database_index, event};
use crate::incremental::Copying;
use crate::reader::ArgReader;
use crate::slices::{LEN_MAX, WholeReply};
use crate::spec::{DatabaseReach, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault, slices};

/// COPY.
pub const COPY: DataCommand = DataCommand {
    spec: Spec::write("copy", -3, Keys::TWO)
        .key_groups(&[keyspec::one(1, keyspec::READ), keyspec::one(2, keyspec::WRITTEN)])
        .databases(DatabaseReach::Copied)
        .doc(
            Group::Generic,
            "6.2.0",
            "source destination [DB destination-db] [REPLACE]",
            "Copies the value of a key, with its deadline, to another key.",
        )
        .cost("O(N) over the size of the value"),
    run: copy,
};

/// MOVE.
pub const MOVE: DataCommand = DataCommand {
    spec: Spec::shrink("move", 3, Keys::ONE)
        .key_access("RW access update")
        .databases(DatabaseReach::Moved)
        .fast()
        .doc(
            Group::Generic,
            "1.0.0",
            "key db",
            "Moves a key to another database unless it is there already.",
        ),
    run: move_to,
};

const SAME: Fault = Fault::text("ERR source and destination objects are the same");

fn copy(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (from, to) = (args.at(1), args.at(2));
    let (mut db, mut replaces) = (ctx.db, false);
    let mut reader = ArgReader::new(args, 3);
    while !reader.is_done() {
        if reader.take("REPLACE") {
            replaces = true;
        } else if reader.take_with("DB", 1) {
            db = database_index(reader.bytes()?, ctx.dbs_len)?;
        } else {
            return Err(Fault::Syntax);
        }
    }
    if db == ctx.db && from == to {
        return Err(SAME);
    }
    ctx.remove_lazily(from);
    let place = ctx.read(from);
    if !place.exists() {
        reply.int(0);
        return Ok(());
    }
    if !replaces && ctx.at_db(db, to).exists() {
        reply.int(0);
        return Ok(());
    }
    if let Some(staged) = ctx.staged.take() {
        let is_done = staged.put_copy(ctx, from, (db, to))?;
        ctx.at_db(db, to).changed(event("copy_to"));
        reply.int(i64::from(is_done));
        return Ok(());
    }
    if leave(ctx, from, to) {
        return Ok(());
    }
    let Some(value) = ctx.at(from).copy() else {
        reply.int(0);
        return Ok(());
    };
    let mut place = ctx.at_db(db, to);
    place.put_copy(&value)?;
    place.forget_links();
    place.changed(event("copy_to"));
    reply.int(1);
    Ok(())
}

/// Leaves copying a long collection at `from` for the key `to` to slices; false if it must be done now.
pub(super) fn leave(ctx: &mut Ctx<'_>, from: &[u8], to: &[u8]) -> bool {
    if !ctx.may_slice {
        return false;
    }
    let whole = ctx.at(from).object().and_then(|(object, _)| slices::whole_of(object));
    whole.is_some_and(|WholeReply { form, stretch, len, due_ms }| {
        len > LEN_MAX
            && due_ms.is_none()
            && ctx.store_later((to, form), &[from], &[(from, stretch)], Box::new(Copying))
    })
}

fn move_to(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (from, name) = (ctx.db, args.at(1));
    let to = database_index(args.at(2), ctx.dbs_len)?;
    if from == to {
        return Err(SAME);
    }
    ctx.remove_lazily(name);
    let is_possible = ctx.at(name).exists() && !ctx.at_db(to, name).exists();
    if is_possible {
        ctx.rename((from, name), (to, name))?;
        ctx.at_db(to, name).forget_links();
        ctx.at(name).changed(event("move_from"));
        ctx.at_db(to, name).changed(event("move_to"));
    }
    reply.int(i64::from(is_possible));
    Ok(())
}

//! RENAME and RENAMENX.

use crate::keyspec;
use darter_wire::{Args, Reply};

use super::{copy, event};
use crate::spec::{Group, Keys, Rarity, Reach, Spec};
use crate::{Ctx, DataCommand, Fault, series};

/// Other keys name a time series with rules.
const LINKED: Reach = Reach::Linked(|_| true, Rarity::Seldom);

/// RENAME.
pub const RENAME: DataCommand = DataCommand {
    spec: Spec::shrink("rename", 3, Keys::TWO)
        .key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, keyspec::WRITTEN)])
        .reach(LINKED)
        .doc(Group::Generic, "1.0.0", "key newkey", "Renames a key, and replaces the value of the new name.")
        .cost("O(1), O(N) over the size of a value that changes its shard"),
    run: rename,
};

/// RENAMENX.
pub const RENAMENX: DataCommand = DataCommand {
    spec: Spec::shrink("renamenx", 3, Keys::TWO)
        .key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, "OW insert")])
        .fast()
        .reach(LINKED)
        .doc(Group::Generic, "1.0.0", "key newkey", "Gives a key another name unless a key has it already.")
        .cost("O(1), O(N) over the size of a value that changes its shard"),
    run: renamenx,
};

fn rename(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (from, to) = (args.at(1), args.at(2));
    ctx.remove_lazily(from);
    if !ctx.at(from).exists() {
        return Err(Fault::NoSuchKey);
    }
    if from == to || carry(ctx, from, to)? {
        reply.ok();
    }
    Ok(())
}

fn renamenx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (from, to) = (args.at(1), args.at(2));
    ctx.remove_lazily(from);
    if !ctx.at(from).exists() {
        return Err(Fault::NoSuchKey);
    }
    ctx.remove_lazily(to);
    let is_free = !ctx.at(to).exists();
    if !is_free || carry(ctx, from, to)? {
        reply.int(i64::from(is_free));
    }
    Ok(())
}

/// Moves the value; false if that is left to slices, which copy a long one into another shard.
fn carry(ctx: &mut Ctx<'_>, from: &[u8], to: &[u8]) -> Result<bool, Fault> {
    let db = ctx.db;
    if let Some(staged) = ctx.staged.take() {
        if staged.put_copy(ctx, from, (db, to))? {
            ctx.at(from).remove();
        }
    } else if !ctx.are_together(from, to) && copy::leave(ctx, from, to) {
        return Ok(false);
    } else {
        ctx.rename((db, from), (db, to))?;
    }
    series::renamed(ctx, from, to);
    ctx.at(from).changed(event("rename_from"));
    ctx.at(to).changed(event("rename_to"));
    Ok(true)
}

//! HSET key field value [field value ...], HMSET, HSETNX key field value, HDEL key field [field ...]

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, Table};
use darter_store::{Arena, Event};
use darter_wire::{Args, Reply};

use super::{Edit, HDEL_EVENT, HSET_EVENT, at, look_ahead, new_hash};
use crate::ctx::{AHEAD, begins_batch};
use crate::incremental::StagedForm;
use crate::incremental::bulk_add::{BulkWords, Filled, MANY};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// HSET.
pub const HSET: DataCommand = DataCommand {
    spec: Spec::write("hset", -4, Keys::ONE)
        .fast()
        .doc(
            Group::Hash,
            "2.0.0",
            "key field value [field value ...]",
            "Creates or modifies the value of a field in a hash.",
        )
        .cost("O(N)"),
    run: hset,
};
/// HMSET.
pub const HMSET: DataCommand = DataCommand {
    spec: Spec::write("hmset", -4, Keys::ONE)
        .deprecated("4.0.0", "`HSET` with multiple field-value pairs")
        .fast()
        .doc(Group::Hash, "2.0.0", "key field value [field value ...]", "Sets the values of multiple fields.")
        .cost("O(N)"),
    run: |ctx, args, reply| {
        if set_all(ctx, args, "hmset")?.is_some() {
            reply.ok();
        }
        Ok(())
    },
};
/// HSETNX.
pub const HSETNX: DataCommand = DataCommand {
    spec: Spec::write("hsetnx", 4, Keys::ONE).key_access("RW insert").fast().doc(
        Group::Hash,
        "2.0.0",
        "key field value",
        "Sets the value of a field in a hash only when the field doesn't exist.",
    ),
    run: hsetnx,
};
/// HDEL.
pub const HDEL: DataCommand = DataCommand {
    spec: Spec::shrink("hdel", -3, Keys::ONE)
        .key_access("RW delete")
        .fast()
        .doc(
            Group::Hash,
            "2.0.0",
            "key field [field ...]",
            "Deletes one or more fields and their values from a hash. Deletes the hash if no fields remain.",
        )
        .cost("O(N)"),
    run: hdel,
};

fn hset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if let Some(new) = set_all(ctx, args, "hset")? {
        reply.int(new);
    }
    Ok(())
}

/// Writes the fields of HSET and HMSET; returns the number of new ones, `None` if that is left to slices.
#[inline]
fn set_all(ctx: &mut Ctx<'_>, args: Args<'_>, name: &'static str) -> Result<Option<i64>, Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(Fault::Arity(name.into()));
    }
    if args.len() > MANY {
        match ctx.add_many((args.at(1), StagedForm::Hash), args, BulkWords::plain(2))? {
            Filled::AtOnce => {}
            Filled::Later => return Ok(None),
            Filled::Done { added, .. } => {
                ctx.changed(args.at(1), HSET_EVENT);
                return Ok(Some(added as i64));
            }
        }
    }
    let now_ms = ctx.now_ms;
    let put = |table: &mut Table, arena: &mut Arena, hasher: KeyHasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        let (mut new, mut at) = if args.len() > AHEAD { put_batches(&mut edit, args)? } else { (0, 2) };
        while at < args.len() {
            new += i64::from(edit.put(args.at(at), Item::Bytes(args.at(at + 1)), FieldExpiry::Clear)?);
            at += 2;
        }
        Ok(new)
    };
    ctx.add_to(args.at(1), new_hash, put, |_| Some(HSET_EVENT)).map(Some)
}

/// Writes as many fields as can be prefetched together. Returns the number of new ones, and the start of the others.
#[cold]
#[inline(never)]
fn put_batches(edit: &mut Edit<'_>, args: Args<'_>) -> Result<(i64, usize), Fault> {
    let (mut new, mut at) = (0, 2);
    while args.len() - at >= AHEAD {
        look_ahead(edit.table, edit.arena, edit.hasher, args.tail(at), 2);
        for _ in 0..AHEAD / 2 {
            new += i64::from(edit.put(args.at(at), Item::Bytes(args.at(at + 1)), FieldExpiry::Clear)?);
            at += 2;
        }
    }
    Ok((new, at))
}

fn hsetnx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(1));
    let edited = place.edit_or_create(new_hash, |table: &mut Table, arena, hasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        if edit.get(args.at(2)).is_some() {
            return Ok(false);
        }
        edit.put(args.at(2), Item::Bytes(args.at(3)), FieldExpiry::Clear)
    })?;
    let is_set = edited.result?;
    if is_set {
        place.changed(HSET_EVENT);
    }
    reply.int(i64::from(is_set));
    Ok(())
}

fn hdel(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > MANY && ctx.remove_many((args.at(1), StagedForm::Hash), args, HDEL_EVENT, reply)? {
        return Ok(());
    }
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(1));
    let edited = place.edit(|table: &mut Table, arena, hasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        let fields = args.tail(2);
        let taken = fields.iter().enumerate().filter(|&(at, field)| {
            if begins_batch(at, fields.len()) {
                look_ahead(edit.table, edit.arena, hasher, fields.tail(at), 1);
            }
            edit.take(field)
        });
        taken.count()
    })?;
    let removed = edited.map_or(0, |edited| edited.result);
    if removed > 0 {
        place.changed(HDEL_EVENT);
        if edited.is_some_and(|edited| edited.is_gone) {
            place.changed(Event::DEL);
        }
    }
    reply.int_len(removed);
    Ok(())
}

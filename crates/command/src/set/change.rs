//! SADD key member [member ...], SADDEX, SREM, SMOVE source destination member

use crate::keyspec;
use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::table::FieldExpiry;
use darter_store::{Arena, Event, SetValue};
use darter_wire::{Args, Reply};

use super::{SADD_EVENT, SREM_EVENT, at};
use crate::ctx::{AHEAD, begins_batch};
use crate::incremental::StagedForm;
use crate::incremental::bulk_add::{BulkWords, Filled, MANY};
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SADD.
pub const SADD: DataCommand = DataCommand {
    spec: Spec::write("sadd", -3, Keys::ONE)
        .key_access("RW insert")
        .fast()
        .doc(
            Group::Set,
            "1.0.0",
            "key member [member ...]",
            "Adds one or more members to a set. Creates the key if it doesn't exist.",
        )
        .cost("O(N)"),
    run: sadd,
};
/// SADDEX.
pub const SADDEX: DataCommand = DataCommand {
    spec: Spec::write("saddex", -4, Keys::ONE)
        .key_access("RW insert")
        .fast()
        .doc(
            Group::Set,
            "dragonfly-1.0",
            "key [KEEPTTL] seconds member [member ...]",
            "Adds members that expire to a set. Creates the key if it doesn't exist.",
        )
        .cost("O(N)"),
    run: saddex,
};
/// SREM.
pub const SREM: DataCommand = DataCommand {
    spec: Spec::shrink("srem", -3, Keys::ONE)
        .key_access("RW delete")
        .fast()
        .doc(
            Group::Set,
            "1.0.0",
            "key member [member ...]",
            "Removes one or more members from a set. Deletes the set if the last member was removed.",
        )
        .cost("O(N)"),
    run: srem,
};
/// SMOVE.
pub const SMOVE: DataCommand = DataCommand {
    spec: Spec::shrink("smove", 4, Keys::TWO)
        .key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, "RW insert")])
        .fast()
        .doc(Group::Set, "1.0.0", "source destination member", "Moves a member from one set to another."),
    run: smove,
};

fn sadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > MANY && add_many(ctx, args, reply)? {
        return Ok(());
    }
    let now_ms = ctx.now_ms;
    let add = |set: &mut SetValue, arena: &mut Arena, hasher: KeyHasher| {
        let (members, mut added) = (args.tail(2), 0);
        for (at, member) in members.iter().enumerate() {
            if begins_batch(at, members.len()) {
                set.look_ahead(arena, hasher, members.tail(at).iter().take(AHEAD));
            }
            added +=
                i64::from(set.insert_alive(arena, hasher, Item::of(member), FieldExpiry::Keep, now_ms)?);
        }
        Ok(added)
    };
    let added = ctx.add_to(args.at(1), SetValue::new, add, |&added| (added > 0).then_some(SADD_EVENT))?;
    reply.int(added);
    Ok(())
}

/// Leaves adding many members to slices, or answers after that; false if they must be added now.
#[cold]
fn add_many(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<bool, Fault> {
    let filled = ctx.add_many((args.at(1), StagedForm::Set), args, BulkWords::plain(2))?;
    if let Filled::Done { added, .. } = filled {
        if added > 0 {
            ctx.changed(args.at(1), SADD_EVENT);
        }
        reply.int(added as i64);
    }
    Ok(filled != Filled::AtOnce)
}

fn saddex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut read = ArgReader::new(args, 2);
    let keep_ttl = read.take("keepttl");
    let seconds = read.int()?;
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return Err(Fault::NotInteger);
    }
    if read.is_done() {
        return Err(Fault::Arity("saddex".into()));
    }
    let now_ms = ctx.now_ms;
    let expiry = FieldExpiry::At(now_ms + seconds.unsigned_abs() * 1000);
    let mut place = at(ctx, args.at(1));
    let edited = place.edit_or_create(SetValue::new, |set: &mut SetValue, arena, hasher| {
        let mut added = 0;
        for member in read.rest().map(Item::of) {
            let is_there = set.contains(arena, hasher, member, now_ms);
            if !(is_there && keep_ttl) {
                set.insert(arena, hasher, member, expiry)?;
            }
            added += i64::from(!is_there);
        }
        Ok::<i64, Fault>(added)
    })?;
    let added = edited.result?;
    place.changed(SADD_EVENT);
    reply.int(added);
    Ok(())
}

fn srem(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > MANY && ctx.remove_many((args.at(1), StagedForm::Set), args, SREM_EVENT, reply)? {
        return Ok(());
    }
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(1));
    let edited = place.edit(|set: &mut SetValue, arena, hasher| {
        let members = args.tail(2);
        let removed = members.iter().enumerate().filter(|&(at, member)| {
            if begins_batch(at, members.len()) {
                set.look_ahead(arena, hasher, members.tail(at).iter().take(AHEAD));
            }
            set.remove_alive(arena, hasher, Item::of(member), now_ms)
        });
        removed.count()
    })?;
    let removed = edited.map_or(0, |edited| edited.result);
    if removed > 0 {
        place.changed(SREM_EVENT);
        if edited.is_some_and(|edited| edited.is_gone) {
            place.changed(Event::DEL);
        }
    }
    reply.int_len(removed);
    Ok(())
}

fn smove(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (from, to, member) = (args.at(1), args.at(2), Item::of(args.at(3)));
    let now_ms = ctx.now_ms;
    let place = at(ctx, from);
    let Some(source) = place.kind() else {
        reply.int(0);
        return Ok(());
    };
    let is_there =
        place.view::<SetValue>()?.is_some_and(|set| set.root.contains(set.arena, set.hasher, member, now_ms));
    debug_assert_eq!(source, darter_store::Type::Set);
    at(ctx, to).view::<SetValue>()?;
    if !is_there || from == to {
        reply.int(i64::from(is_there));
        return Ok(());
    }
    // Added first: that may fail, and then nothing has changed.
    let added = at(ctx, to).edit_or_create(SetValue::new, |set: &mut SetValue, arena, hasher| {
        set.insert_alive(arena, hasher, member, FieldExpiry::Keep, now_ms)
    })?;
    let is_new = added.result?;
    let mut place = at(ctx, from);
    let removed = place.edit(|set: &mut SetValue, arena, hasher| set.remove(arena, hasher, member))?;
    place.changed(SREM_EVENT);
    if removed.is_some_and(|removed| removed.is_gone) {
        place.changed(Event::DEL);
    }
    if is_new {
        at(ctx, to).changed(SADD_EVENT);
    }
    reply.int(1);
    Ok(())
}

/// Longest life of a member that may be asked for: some 2,200 years.
const SECONDS_MAX: i64 = (1 << 36) - 1;

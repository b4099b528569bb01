//! XDEL key id [id ...], XDELEX key [KEEPREF | DELREF | ACKED] IDS numids id [id ...], XSETID key last-id

use darter_pack::tree::StreamId;
use darter_store::StreamValue;
use darter_wire::{Args, Reply};

use super::refs::{self, Refs, RefsOutcome};
use super::{event, id};
use crate::reader::ArgReader;
use crate::spec::{Flags, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XDEL.
pub const XDEL: DataCommand = DataCommand {
    spec: Spec::shrink("xdel", -3, Keys::ONE)
        .key_access("RW delete")
        .fast()
        .doc(
            Group::Stream,
            "5.0.0",
            "key id [id ...]",
            "Deletes entries of a stream; counts those that were there.",
        )
        .cost("O(log N) for each id"),
    run: xdel,
};

/// XDELEX.
pub const XDELEX: DataCommand = DataCommand {
    spec: Spec::shrink("xdelex", -5, Keys::ONE)
        .key_access("RW delete")
        .fast()
        .doc(
            Group::Stream,
            "8.2.0",
            "key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
            "Deletes entries of a stream and, if asked to, from the pending entries of its consumer groups.",
        )
        .cost("O(log N) for each id"),
    run: xdelex,
};

/// XSETID.
pub const XSETID: DataCommand = DataCommand {
    spec: Spec::write("xsetid", -3, Keys::ONE).flag(Flags::FAST).doc(
        Group::Stream,
        "5.0.0",
        "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
        "Sets the last id that a stream remembers, and its counters.",
    ),
    run: xsetid,
};

/// The ids of arguments `from` on; all are read before anything is done.
pub(super) fn ids(args: Args<'_>, from: usize) -> Result<Vec<StreamId>, Fault> {
    args.tail(from).iter().map(|arg| id::parse(arg, 0)).collect()
}

/// The ids after `IDS numids`, not parsed yet; the given error if their number is wrong.
pub(super) fn counted_ids<'a>(
    args: Args<'a>,
    read: &mut ArgReader<'a>,
    no_number: &'static str,
    too_many: &'static str,
) -> Result<Args<'a>, Fault> {
    let count = usize::try_from(read.int_from(1, Fault::text(no_number))?).unwrap_or(usize::MAX);
    if count > read.left() {
        return Err(Fault::text(too_many));
    }
    let from = read.position();
    read.skip(count);
    Ok(args.head(from + count).tail(from))
}

fn xdel(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    if place.view::<StreamValue>()?.is_none() {
        reply.int(0);
        return Ok(());
    }
    let ids = ids(args, 2)?;
    let deleted = place.edit::<StreamValue, _>(|stream, arena, _| {
        ids.iter().filter(|&&id| stream.delete(arena, id)).count()
    })?;
    let deleted = deleted.map_or(0, |edited| edited.result);
    if deleted > 0 {
        place.changed(event("xdel"));
    }
    reply.int_len(deleted);
    Ok(())
}

/// The options before and after `IDS`, in any order, from argument `at` on.
pub(super) fn refs_and_ids(args: Args<'_>, at: usize) -> Result<(Refs, Args<'_>), Fault> {
    let mut read = ArgReader::new(args, at);
    let (mut refs, mut ids) = (None, None);
    while !read.is_done() {
        if refs.is_none()
            && let Some(taken) = Refs::take(&mut read)
        {
            refs = Some(taken);
        } else if read.take_with("ids", 1) {
            let no_number = "ERR Number of IDs must be a positive integer";
            let too_many = "ERR The `numids` parameter must match the number of arguments";
            ids = Some(counted_ids(args, &mut read, no_number, too_many)?);
        } else {
            return Err(Fault::Syntax);
        }
    }
    Ok((refs.unwrap_or_default(), ids.ok_or(Fault::text("ERR IDS option is required"))?))
}

fn xdelex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    let exists = place.view::<StreamValue>()?.is_some();
    let (refs, given) = refs_and_ids(args, 2)?;
    // A missing key is answered without reading the ids.
    let ids = if exists { ids(given, 0)? } else { vec![StreamId::MIN; given.len()] };
    let done = place.edit::<StreamValue, _>(|stream, arena, _| {
        ids.iter().map(|&id| refs::delete(stream, arena, id, refs)).collect::<Vec<_>>()
    })?;
    let outcomes = done.map_or_else(|| vec![RefsOutcome::Missing; ids.len()], |edited| edited.result);
    if outcomes.contains(&RefsOutcome::Deleted) {
        place.changed(event("xdel"));
    }
    reply_outcomes(reply, &outcomes);
    Ok(())
}

pub(super) fn reply_outcomes(reply: &mut Reply<'_>, outcomes: &[RefsOutcome]) {
    reply.array(outcomes.len());
    for outcome in outcomes {
        reply.int(match outcome {
            RefsOutcome::Missing => -1,
            RefsOutcome::Deleted => 1,
            RefsOutcome::Kept => 2,
        });
    }
}

fn xsetid(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let last_id = id::parse(args.at(2), 0)?;
    let (mut added, mut max_deleted_id) = (None, None);
    let mut read = ArgReader::new(args, 3);
    while !read.is_done() {
        if read.take_with("entriesadded", 1) {
            let count = u64::try_from(read.int()?);
            added = Some(count.map_err(|_| Fault::text("ERR entries_added must be positive"))?);
        } else if read.take_with("maxdeletedid", 1) {
            let id = id::parse(read.bytes()?, 0)?;
            if last_id < id {
                return Err(Fault::text(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            max_deleted_id = Some(id).filter(|&id| id != StreamId::MIN);
        } else {
            return Err(Fault::Syntax);
        }
    }
    let mut place = ctx.at(args.at(1));
    let set = place.edit::<StreamValue, _>(|stream, arena, _| {
        if last_id < stream.max_deleted_id() {
            return Err("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
        }
        if stream.log().last_id(arena).is_some_and(|top| last_id < top) {
            return Err("ERR The ID specified in XSETID is smaller than the target stream top item");
        }
        if added.is_some_and(|added| stream.len() > added) {
            return Err("ERR The entries_added specified in XSETID is smaller than the target stream length");
        }
        stream.set_ids(last_id, added, max_deleted_id);
        Ok(())
    })?;
    set.ok_or(Fault::NoSuchKey)?.result.map_err(Fault::text)?;
    place.changed(event("xsetid"));
    reply.ok();
    Ok(())
}

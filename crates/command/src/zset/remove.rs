//! ZREM key member [member ...], ZREMRANGEBYRANK key start stop, ZREMRANGEBYSCORE key min max,
//! ZREMRANGEBYLEX key min max

use darter_pack::entry::Item;
use darter_pack::tree::{Direction, Zset};
use darter_store::keyed::Edited;
use darter_store::reads::Stretch;
use darter_store::{Event, Keyed};
use darter_wire::{Args, Reply};

use super::bound::{RangeBy, RankRun, ScoreRange};
use super::event;
use crate::incremental::bulk_add::MANY;
use crate::incremental::{Copying, StagedForm};
use crate::slices;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// ZREM.
pub const ZREM: DataCommand = DataCommand {
    spec: Spec::shrink("zrem", -3, Keys::ONE).key_access("RW delete")
        .fast()
        .doc(
            Group::SortedSet,
            "1.2.0",
            "key member [member ...]",
            "Removes one or more members from a sorted set. Deletes the sorted set if all members were removed.",
        )
        .cost("O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed."),
    run: zrem,
};

const fn range_spec(
    name: &'static str,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::shrink(name, 4, Keys::ONE).doc(Group::SortedSet, since, syntax, summary).cost(
        "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
    )
}

/// ZREMRANGEBYRANK.
pub const ZREMRANGEBYRANK: DataCommand = DataCommand {
    spec: range_spec(
        "zremrangebyrank",
        "2.0.0",
        "key start stop",
        "Removes members in a sorted set within a range of indexes. Deletes the sorted set if all members were removed.",
    ).key_access("RW delete"),
    run: |ctx, args, reply| remove_range(ctx, args, reply, RangeBy::Rank),
};
/// ZREMRANGEBYSCORE.
pub const ZREMRANGEBYSCORE: DataCommand = DataCommand {
    spec: range_spec(
        "zremrangebyscore",
        "1.2.0",
        "key min max",
        "Removes members in a sorted set within a range of scores. Deletes the sorted set if all members were removed.",
    ).key_access("RW delete"),
    run: |ctx, args, reply| remove_range(ctx, args, reply, RangeBy::Score),
};
/// ZREMRANGEBYLEX.
pub const ZREMRANGEBYLEX: DataCommand = DataCommand {
    spec: range_spec(
        "zremrangebylex",
        "2.8.9",
        "key min max",
        "Removes members in a sorted set within a lexicographical range. Deletes the sorted set if all members were removed.",
    ).key_access("RW delete"),
    run: |ctx, args, reply| remove_range(ctx, args, reply, RangeBy::Text),
};

fn zrem(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > MANY && ctx.remove_many((args.at(1), StagedForm::Zset), args, event("zrem"), reply)? {
        return Ok(());
    }
    let mut place = super::at(ctx, args.at(1));
    let edited = place.edit::<Zset, _>(|zset, arena, hasher| {
        let members = args.tail(2);
        members.iter().filter(|member| zset.remove(arena, &hasher, Item::of(member)).is_some()).count() as u64
    })?;
    reply.int(report(&mut place, edited, "zrem"));
    Ok(())
}

fn remove_range(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, by: RangeBy) -> Result<(), Fault> {
    let range = ScoreRange::parse(by, args.at(2), args.at(3))?;
    let (name, may_slice) = (args.at(1), ctx.may_slice);
    let mut place = super::at(ctx, name);
    let found = place.view::<Zset>()?.map(|zset| (range.run(zset), zset.root.len(), zset.root.next_expiry()));
    if let Some((run, len, due_ms)) = found {
        if let Some(staged) = ctx.staged.take() {
            staged.put_back(ctx, name)?;
            let edited = Some(Edited { result: run.len, is_gone: false });
            reply.int(report(&mut ctx.at(name), edited, event_name(by)));
            return Ok(());
        }
        if may_slice && due_ms.is_none() && run.len < len && leave(ctx, name, run, len) {
            return Ok(());
        }
        place = super::at(ctx, name);
    }
    let edited = match found.map(|(run, len, _)| (run, len)) {
        // The blocks of all members are freed in steps, later.
        Some((run, len)) if run.len == len => {
            place.remove();
            Some(Edited { result: len, is_gone: true })
        }
        Some((run, _)) => place
            .edit::<Zset, _>(|zset, arena, hasher| zset.remove_ranks(arena, &hasher, run.first, run.len))?,
        None => None,
    };
    reply.int(report(&mut place, edited, event_name(by)));
    Ok(())
}

fn event_name(by: RangeBy) -> &'static str {
    match by {
        RangeBy::Rank => "zremrangebyrank",
        RangeBy::Score => "zremrangebyscore",
        RangeBy::Text => "zremrangebylex",
    }
}

/// Members removed in some 50 microseconds.
const GONE_MAX: u64 = 400;

/// Leaves building the rest without a long run to slices; false if the run must be removed now.
fn leave(ctx: &mut Ctx<'_>, name: &[u8], run: RankRun, len: u64) -> bool {
    let after = run.first + run.len;
    slices::is_better_rebuilt(len - run.len, run.len, GONE_MAX) && {
        let before = Stretch::Ranks(0, run.first, Direction::Up);
        let after = Stretch::Ranks(after, len - after, Direction::Up);
        ctx.store_later(
            (name, StagedForm::Zset),
            &[name],
            &[(name, before), (name, after)],
            Box::new(Copying),
        )
    }
}

/// Reports a removal, and that of the key with its last member; returns the number of removed members.
fn report(place: &mut Keyed<'_>, edited: Option<Edited<u64>>, name: &'static str) -> i64 {
    let Some(Edited { result: removed @ 1.., is_gone }) = edited else { return 0 };
    place.changed(event(name));
    if is_gone {
        place.changed(Event::DEL);
    }
    removed as i64
}

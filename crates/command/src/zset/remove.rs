//! ZREM key member [member ...], ZREMRANGEBYRANK key start stop, ZREMRANGEBYSCORE key min max,
//! ZREMRANGEBYLEX key min max

use darter_pack::entry::Item;
use darter_pack::tree::Zset;
use darter_store::keyed::Edited;
use darter_store::{Event, Keyed};
use darter_wire::{Args, Reply};

use super::bound::{By, Range};
use super::event;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// ZREM.
pub const ZREM: DataCommand = DataCommand {
    spec: Spec::shrink("zrem", -3, Keys::ONE)
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
    ),
    run: |ctx, args, reply| remove_range(ctx, args, reply, By::Rank),
};
/// ZREMRANGEBYSCORE.
pub const ZREMRANGEBYSCORE: DataCommand = DataCommand {
    spec: range_spec(
        "zremrangebyscore",
        "1.2.0",
        "key min max",
        "Removes members in a sorted set within a range of scores. Deletes the sorted set if all members were removed.",
    ),
    run: |ctx, args, reply| remove_range(ctx, args, reply, By::Score),
};
/// ZREMRANGEBYLEX.
pub const ZREMRANGEBYLEX: DataCommand = DataCommand {
    spec: range_spec(
        "zremrangebylex",
        "2.8.9",
        "key min max",
        "Removes members in a sorted set within a lexicographical range. Deletes the sorted set if all members were removed.",
    ),
    run: |ctx, args, reply| remove_range(ctx, args, reply, By::Text),
};

fn zrem(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = super::at(ctx, args.at(1));
    let edited = place.edit::<Zset, _>(|zset, arena, hasher| {
        let members = args.tail(2);
        members.iter().filter(|member| zset.remove(arena, &hasher, Item::of(member)).is_some()).count() as u64
    })?;
    reply.int(report(&mut place, edited, "zrem"));
    Ok(())
}

fn remove_range(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, by: By) -> Result<(), Fault> {
    let range = Range::parse(by, args.at(2), args.at(3))?;
    let mut place = super::at(ctx, args.at(1));
    let run = place.view::<Zset>()?.map(|zset| (range.run(zset), zset.root.len()));
    let edited = match run {
        // The blocks of all members go piece by piece, later.
        Some((run, len)) if run.len == len => {
            place.remove();
            Some(Edited { result: len, is_gone: true })
        }
        Some((run, _)) => place
            .edit::<Zset, _>(|zset, arena, hasher| zset.remove_ranks(arena, &hasher, run.first, run.len))?,
        None => None,
    };
    let name = match by {
        By::Rank => "zremrangebyrank",
        By::Score => "zremrangebyscore",
        By::Text => "zremrangebylex",
    };
    reply.int(report(&mut place, edited, name));
    Ok(())
}

/// Reports a removal, and the key's end if it was the last one; returns how many members went.
fn report(place: &mut Keyed<'_>, edited: Option<Edited<u64>>, name: &'static str) -> i64 {
    let Some(Edited { result: removed @ 1.., is_gone }) = edited else { return 0 };
    place.changed(event(name));
    if is_gone {
        place.changed(Event::DEL);
    }
    removed as i64
}

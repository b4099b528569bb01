//! XLEN key, XRANGE key start end [COUNT count], XREVRANGE key end start [COUNT count]

use darter_pack::tree::Direction;
use darter_store::Stream;
use darter_wire::{Args, Reply};

use super::{id, reply_entry};
use crate::reader::Reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XLEN.
pub const XLEN: DataCommand = DataCommand {
    spec: Spec::read("xlen", 2, Keys::ONE).fast().doc(
        Group::Stream,
        "5.0.0",
        "key",
        "Returns the number of entries of a stream.",
    ),
    run: xlen,
};

/// XRANGE.
pub const XRANGE: DataCommand = DataCommand {
    spec: Spec::read("xrange", -4, Keys::ONE)
        .doc(
            Group::Stream,
            "5.0.0",
            "key start end [COUNT count]",
            "Returns the entries of a stream within a range of ids.",
        )
        .cost("O(log N + M) for M entries returned"),
    run: |ctx, args, reply| range(ctx, args, Direction::Up, reply),
};

/// XREVRANGE.
pub const XREVRANGE: DataCommand = DataCommand {
    spec: Spec::read("xrevrange", -4, Keys::ONE)
        .doc(
            Group::Stream,
            "5.0.0",
            "key end start [COUNT count]",
            "Returns the entries of a stream within a range of ids, the highest first.",
        )
        .cost("O(log N + M) for M entries returned"),
    run: |ctx, args, reply| range(ctx, args, Direction::Down, reply),
};

fn xlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let len = place.view::<Stream>()?.map_or(0, |stream| stream.root.len());
    reply.int(len as i64);
    Ok(())
}

fn range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    direction: Direction,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (first, last) = match direction {
        Direction::Up => (args.at(2), args.at(3)),
        Direction::Down => (args.at(3), args.at(2)),
    };
    let (first, last) = (id::first(first)?, id::last(last)?);
    let mut count = None;
    let mut read = Reader::new(args, 4);
    while !read.is_done() {
        if !read.take_with("count", 1) {
            return Err(Fault::Syntax);
        }
        count = Some(usize::try_from(read.int()?).unwrap_or(0));
    }
    let place = ctx.read(args.at(1));
    let Some(stream) = place.view::<Stream>()? else {
        reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        reply.null_array();
        return Ok(());
    }
    let begun = reply.begin_array();
    let mut len = 0;
    let entries = stream.root.log().range(stream.arena, first, last, direction);
    for entry in entries.take(count.unwrap_or(usize::MAX)) {
        reply_entry(reply, entry);
        len += 1;
    }
    reply.end_array(begun, len);
    Ok(())
}

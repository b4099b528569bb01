//! XLEN key, XRANGE key start end [COUNT count], XREVRANGE key end start [COUNT count]

use std::sync::Arc;

use darter_pack::tree::window::SeenLeaf;
use darter_pack::tree::{Direction, StreamId};
use darter_store::KeyView;
use darter_store::StreamValue;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use super::{id, reply_entry};
use crate::reader::ArgReader;
use crate::slices;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XLEN.
pub const XLEN: DataCommand = DataCommand {
    spec: Spec::read("xlen", 2, Keys::ONE).key_access("RO").fast().doc(
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
    let len = place.view::<StreamValue>()?.map_or(0, |stream| stream.root.len());
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
    let mut read = ArgReader::new(args, 4);
    while !read.is_done() {
        if !read.take_with("count", 1) {
            return Err(Fault::Syntax);
        }
        count = Some(usize::try_from(read.int()?).unwrap_or(0));
    }
    let (now_ms, may_slice) = (ctx.now_ms, ctx.may_slice);
    let place = ctx.read(args.at(1));
    let Some(stream) = place.view::<StreamValue>()? else {
        reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        reply.null_array();
        return Ok(());
    }
    let asked = count.unwrap_or(usize::MAX);
    if may_slice && slices::is_long(stream.root.len(), None, now_ms) {
        let (from, len) = ranks(stream, first, last, asked as u64, direction);
        return answer_long(ctx, args.at(1), reply, Stretch::Ranks(from, len, direction));
    }
    let begun = reply.begin_array();
    let mut len = 0;
    for entry in stream.root.log().range(stream.arena, first, last, direction).take(asked) {
        reply_entry(reply, entry);
        len += 1;
    }
    reply.end_array(begun, len);
    Ok(())
}

/// Answers a stretch of a stream that is long enough for slices.
pub(super) fn answer_long(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    reply: &mut Reply<'_>,
    stretch: Stretch,
) -> Result<(), Fault> {
    let Stretch::Ranks(from, len, direction) = stretch else { return Ok(()) };
    reply.array(len as usize);
    let resp3 = reply.is_resp3();
    let tell = Arc::new(move |seen: SeenLeaf<'_>, out: &mut Vec<u8>| match seen {
        SeenLeaf::Logged(entry) => reply_entry(&mut Reply::new(out, resp3), entry),
        _ => debug_assert!(false, "a stream has entries"),
    });
    if slices::is_long(len, None, ctx.now_ms) && ctx.leave_rest(name, stretch, tell) {
        return Ok(());
    }
    if let Some(stream) = ctx.at(name).view::<StreamValue>()? {
        let first = if direction == Direction::Up { from } else { (from + len).saturating_sub(1) };
        let entries = stream.root.log().iter(stream.arena, first, direction);
        entries.take(len as usize).for_each(|entry| reply_entry(reply, entry));
    }
    Ok(())
}

/// The entries of a range, at most `asked`: number and first rank.
pub(super) fn ranks(
    stream: KeyView<'_, StreamValue>,
    first: StreamId,
    last: StreamId,
    asked: u64,
    direction: Direction,
) -> (u64, u64) {
    let log = stream.root.log();
    let from = log.rank(stream.arena, first);
    let end = log.rank(stream.arena, last) + u64::from(log.get(stream.arena, last).is_some());
    let len = end.saturating_sub(from).min(asked);
    (if direction == Direction::Up { from } else { end.saturating_sub(len) }, len)
}

//! XPENDING key group [[IDLE min-idle-time] start end count [consumer]]

use darter_pack::tree::stream::StreamId;
use darter_pack::tree::{Direction, Pending};
use darter_store::stream_value::group::{self, NOBODY};
use darter_store::{Arena, Stream};
use darter_wire::{Args, Reply};

use super::{id, no_group, reply_id};
use crate::reader::{int, is};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XPENDING.
pub const XPENDING: DataCommand = DataCommand {
    spec: Spec::read("xpending", -3, Keys::ONE)
        .doc(
            Group::Stream,
            "5.0.0",
            "key group [[IDLE min-idle-time] start end count [consumer]]",
            "Tells what a consumer group has pending.",
        )
        .cost("O(log N + M) for M entries looked at"),
    run: xpending,
};

/// Which pending entries are asked for.
struct Range<'a> {
    min_idle_ms: u64,
    first: StreamId,
    last: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Range<'a> {
    fn parse(args: Args<'a>) -> Result<Option<Range<'a>>, Fault> {
        match args.len() {
            3 => return Ok(None),
            6..=9 => {}
            _ => return Err(Fault::Syntax),
        }
        let mut at = 3;
        let mut min_idle_ms = 0;
        if is(args.at(3), "idle") {
            min_idle_ms = u64::try_from(int(args.at(4))?).unwrap_or(0);
            if args.len() < 8 {
                return Err(Fault::Syntax);
            }
            at = 5;
        }
        let count = usize::try_from(int(args.at(at + 2))?).unwrap_or(0);
        let (first, last) = (id::first(args.at(at))?, id::last(args.at(at + 1))?);
        Ok(Some(Range { min_idle_ms, first, last, count, consumer: args.get(at + 3) }))
    }
}

fn xpending(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let range = Range::parse(args)?;
    let now_ms = ctx.now_ms;
    let place = ctx.read(args.at(1));
    let stream = place.view::<Stream>()?;
    let found = stream.and_then(|stream| Some((stream.root.group(args.at(2))?, stream.arena)));
    let (group, arena) = found.ok_or_else(|| no_group(args.at(1), args.at(2)))?;
    match range {
        None => summary(group, arena, reply),
        Some(range) => list(group, arena, &range, now_ms, reply),
    }
    Ok(())
}

fn summary(group: &group::Group, arena: &Arena, reply: &mut Reply<'_>) {
    let pending = group.pending();
    reply.array(4);
    reply.int(pending.len() as i64);
    let Some(last_at) = pending.len().checked_sub(1) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    let ends =
        [pending.iter(arena, 0, Direction::Up).next(), pending.iter(arena, last_at, Direction::Up).next()];
    ends.iter().flatten().for_each(|&(id, _)| reply_id(reply, id));
    let busy = || group.consumers().filter(|consumer| consumer.pending_len() > 0);
    reply.array(busy().count());
    for consumer in busy() {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_int(consumer.pending_len() as i64);
    }
}

fn list(group: &group::Group, arena: &Arena, range: &Range<'_>, now_ms: u64, reply: &mut Reply<'_>) {
    let begun = reply.begin_array();
    let mut len = 0;
    let mut show = |id: StreamId, pending: Pending| {
        len += 1;
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).map_or(&[][..], group::Consumer::name));
        // What was given back is idle since ever.
        let idle_ms = now_ms.saturating_sub(pending.delivered_ms) as i64;
        reply.int(if pending.consumer == NOBODY { -1 } else { idle_ms });
        reply.int(pending.deliveries as i64);
    };
    let is_idle = |pending: &Pending| now_ms.saturating_sub(pending.delivered_ms) >= range.min_idle_ms;
    match range.consumer {
        None => {
            let from = group.pending().iter_from(arena, range.first);
            let within = from.take_while(|&(id, _)| id <= range.last).filter(|(_, pending)| is_idle(pending));
            within.take(range.count).for_each(|(id, pending)| show(id, pending));
        }
        Some(name) => {
            let ids = group.find(name).map(|consumer| consumer.ids_from(arena, range.first));
            let within = ids.into_iter().flatten().take_while(|&id| id <= range.last);
            let known = within.filter_map(|id| Some((id, group.pending().get(arena, id)?)));
            let idle = known.filter(|(_, pending)| is_idle(pending));
            idle.take(range.count).for_each(|(id, pending)| show(id, pending));
        }
    }
    reply.end_array(begun, len);
}

//! XREADGROUP of thousands of entries of one stream: the entries become pending in slices, and are answered in slices
//! afterwards.
//!
//! Called by the body of XREADGROUP, for reads that need not wait. All others are done at once.

use darter_pack::tree::{Direction, Pending, StreamId};
use darter_store::StreamValue;
use darter_store::reads::Stretch;
use darter_wire::Reply;

use super::id;
use super::range::answer_long;
use super::read::{ACTIVE, READ, StreamWanted};
use super::reading::StreamReading;
use super::regrouping::{RegroupPlan, Who, reply_stream};
use crate::{Ctx, Fault};

/// Leaves a long read of one stream to slices, or answers when the entries are pending; false if it must be read now.
pub(super) fn read_long(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    reading: &StreamReading<'_>,
    wanted: StreamWanted,
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    let (group, consumer) = reading.group.unwrap_or_default();
    let who = Who { key, group, consumer: Some(consumer) };
    let Some(staged) = ctx.staged.take() else {
        let is_plain = reading.bytes_max == usize::MAX && reading.claim_ms.is_none();
        // A command that waits may not run again.
        if !ctx.may_slice || !is_plain || reading.block.is_some() {
            return Ok(false);
        }
        let count = reading.count.min(reading.total) as u64;
        let plan = match wanted {
            StreamWanted::New => RegroupPlan::Deliver { count, is_noack: reading.is_noack },
            StreamWanted::Pending(after) => RegroupPlan::Repeat { after, count },
        };
        return who.leave(ctx, plan, reply.is_resp3());
    };
    let group_before = ctx
        .at(key)
        .view::<StreamValue>()?
        .and_then(|stream| stream.root.group(group))
        .map(|group| group.last_id);
    let Some((found, is_new)) = who.put(ctx, staged)? else { return Ok(false) };
    if is_new {
        ctx.changed(key, ACTIVE);
    }
    ctx.changed(key, READ);
    if wanted != StreamWanted::New {
        reply.take_over(found.bytes);
        return Ok(true);
    }
    let first = group_before.and_then(id::next).unwrap_or(StreamId::MAX);
    let taken = found.numbers.first().copied().unwrap_or_default();
    let left = (reading.count.min(reading.total) as u64).saturating_sub(taken);
    let len = taken + deliver_last(ctx, (who, consumer), reading.is_noack, left)?;
    let from =
        ctx.at(key).view::<StreamValue>()?.map_or(0, |stream| stream.root.log().rank(stream.arena, first));
    reply_stream(reply, key);
    answer_long(ctx, key, reply, Stretch::Ranks(from, len, Direction::Up))?;
    Ok(true)
}

/// Delivers the entries appended after the last slice; returns their number.
fn deliver_last(
    ctx: &mut Ctx<'_>,
    (who, consumer): (Who<'_>, &[u8]),
    is_noack: bool,
    count: u64,
) -> Result<u64, Fault> {
    let delivered_ms = ctx.now_ms;
    let edited = ctx.at(who.key).edit::<StreamValue, _>(|stream, arena, _| {
        let extent = stream.extent(arena);
        let Some((group, log)) = stream.group_mut(who.group) else { return Ok(0) };
        let first = id::next(group.last_id).unwrap_or(StreamId::MAX);
        let entries = log.range(arena, first, StreamId::MAX, Direction::Up).take(count as usize);
        let ids: Vec<StreamId> = entries.map(|entry| entry.id).collect();
        let (consumer, _) = group.find_or_create(consumer, delivered_ms);
        for &id in &ids {
            group.advance(&extent, id);
            if !is_noack {
                group.give(arena, id, Pending { consumer, delivered_ms, deliveries: 1 })?;
            }
        }
        Ok::<_, Fault>(ids.len() as u64)
    })?;
    edited.map_or(Ok(0), |edited| edited.result)
}

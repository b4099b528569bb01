//! XACK, XACKDEL and XNACK: acknowledgement and return of delivered entries.

use darter_pack::tree::{Pending, StreamId};
use darter_store::change::Class;
use darter_store::stream_value::group::NOBODY;
use darter_store::{Event, StreamValue};
use darter_wire::{Args, Reply};

use super::delete::{counted_ids, ids, refs_and_ids, reply_outcomes};
use super::refs::{self, RefsOutcome};
use super::regrouping::{RegroupPlan, Who};
use super::{event, no_group};
use crate::incremental::bulk_add::MANY;
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XACK.
pub const XACK: DataCommand = DataCommand {
    spec: Spec::shrink("xack", -4, Keys::ONE)
        .fast()
        .doc(
            Group::Stream,
            "5.0.0",
            "key group id [id ...]",
            "Acknowledges entries that a consumer group has pending; counts those that were.",
        )
        .cost("O(log N) for each id"),
    run: xack,
};

/// XACKDEL.
pub const XACKDEL: DataCommand = DataCommand {
    spec: Spec::shrink("xackdel", -6, Keys::ONE)
        .key_access("RW delete")
        .fast()
        .doc(
            Group::Stream,
            "8.2.0",
            "key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
            "Acknowledges entries and deletes them from the stream.",
        )
        .cost("O(log N) for each id"),
    run: xackdel,
};

/// XNACK.
pub const XNACK: DataCommand = DataCommand {
    spec: Spec::shrink("xnack", -7, Keys::ONE)
        .fast()
        .doc(
            Group::Stream,
            "8.8.0",
            "key group <SILENT | FAIL | FATAL> IDS numids id [id ...] [RETRYCOUNT count] [FORCE]",
            "Gives pending entries back, for any consumer to claim at once.",
        )
        .cost("O(log N) for each id"),
    run: xnack,
};

/// A change that Redis publishes without a name.
const ACKED: Event = Event::new(Class(0), "xack");

fn xack(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > MANY && acknowledge_many(ctx, args, reply)? {
        return Ok(());
    }
    let mut place = ctx.read(args.at(1));
    if place.view::<StreamValue>()?.is_none_or(|stream| stream.root.group(args.at(2)).is_none()) {
        reply.int(0);
        return Ok(());
    }
    let ids = ids(args, 3)?;
    let edited = place.edit::<StreamValue, _>(|stream, arena, _| match stream.group_mut(args.at(2)) {
        Some((group, _)) => ids.iter().filter(|&&id| group.release(arena, id)).count(),
        None => 0,
    })?;
    let acked = edited.map_or(0, |edited| edited.result);
    if acked > 0 {
        place.changed(ACKED);
    }
    reply.int_len(acked);
    Ok(())
}

/// Leaves acknowledging many entries to slices, or answers after that; false if it must be done now.
#[cold]
fn acknowledge_many(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<bool, Fault> {
    let who = Who { key: args.at(1), group: args.at(2), consumer: None };
    let Some(staged) = ctx.staged.take() else {
        let plan = RegroupPlan::Release((args.len() - 3) as u64);
        return Ok(ctx.may_slice && who.leave(ctx, plan, reply.is_resp3())?);
    };
    let Some((found, _)) = who.put(ctx, staged)? else { return Ok(false) };
    let acked = found.numbers.first().copied().unwrap_or_default();
    if acked > 0 {
        ctx.changed(who.key, ACKED);
    }
    reply.int(acked as i64);
    Ok(true)
}

fn xackdel(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    let group = place.view::<StreamValue>()?.and_then(|stream| stream.root.group(args.at(2)));
    let exists = group.is_some();
    let (refs, given) = refs_and_ids(args, 3)?;
    // A missing key is answered without reading the ids.
    let ids = if exists { ids(given, 0)? } else { vec![StreamId::MIN; given.len()] };
    let done = place.edit::<StreamValue, _>(|stream, arena, _| {
        let outcome = |&id: &StreamId| {
            let was_pending = stream.group_mut(args.at(2)).is_some_and(|(group, _)| group.release(arena, id));
            if !was_pending {
                return (RefsOutcome::Missing, false);
            }
            match refs::delete(stream, arena, id, refs) {
                // Acknowledged nevertheless, though the entry was gone.
                RefsOutcome::Missing => (RefsOutcome::Deleted, false),
                RefsOutcome::Deleted => (RefsOutcome::Deleted, true),
                RefsOutcome::Kept => (RefsOutcome::Kept, false),
            }
        };
        ids.iter().map(outcome).collect::<Vec<_>>()
    })?;
    let done = done.map_or_else(|| vec![(RefsOutcome::Missing, false); ids.len()], |edited| edited.result);
    if done.iter().any(|&(_, is_deleted)| is_deleted) {
        place.changed(event("xdel"));
    } else if done.iter().any(|&(outcome, _)| outcome != RefsOutcome::Missing) {
        place.changed(ACKED);
    }
    let outcomes: Vec<RefsOutcome> = done.into_iter().map(|(outcome, _)| outcome).collect();
    reply_outcomes(reply, &outcomes);
    Ok(())
}

/// The delivery count of an entry that is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blame {
    /// SILENT: as without this delivery.
    None,
    /// FAIL: delivered once more.
    Consumer,
    /// FATAL: as often as can be.
    Entry,
}

struct Nack {
    blame: Blame,
    ids: Vec<StreamId>,
    deliveries: Option<u64>,
    // entries that are not pending become so
    is_forced: bool,
}

impl Nack {
    fn parse(args: Args<'_>) -> Result<Nack, Fault> {
        const NO_MODE: Fault = Fault::text("ERR mode must be SILENT, FAIL, or FATAL");
        let mut read = ArgReader::new(args, 3);
        let words = [("silent", Blame::None), ("fail", Blame::Consumer), ("fatal", Blame::Entry)];
        let blame = words.into_iter().find(|(word, _)| read.take(word)).ok_or(NO_MODE)?.1;
        let (mut given, mut deliveries, mut is_forced) = (None, None, false);
        while let Some(word) = read.peek() {
            if read.take_with("ids", 1) {
                let no_number = "ERR numids must be a positive integer";
                let too_many = "ERR number of IDs doesn't match numids";
                given = Some(counted_ids(args, &mut read, no_number, too_many)?);
            } else if read.take("force") {
                is_forced = true;
            } else if read.take_with("retrycount", 1) {
                let count = u64::try_from(read.int()?);
                deliveries =
                    Some(count.map_err(|_| Fault::text("ERR Invalid RETRYCOUNT value, must be >= 0"))?);
            } else {
                let word = String::from_utf8_lossy(word);
                return Err(Fault::Text(format!("ERR Unrecognized XNACK option '{word}'").into()));
            }
        }
        let given = given.ok_or(Fault::text("ERR syntax error, expected IDS keyword"))?;
        Ok(Nack { blame, ids: ids(given, 0)?, deliveries, is_forced })
    }

    fn deliveries_after(&self, before: u64) -> u64 {
        self.deliveries.unwrap_or(match self.blame {
            Blame::None => before.saturating_sub(1),
            Blame::Consumer => before,
            Blame::Entry => i64::MAX.unsigned_abs(),
        })
    }
}

fn xnack(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    if place.view::<StreamValue>()?.is_none_or(|stream| stream.root.group(args.at(2)).is_none()) {
        return Err(no_group(args.at(1), args.at(2)));
    }
    let nack = Nack::parse(args)?;
    let edited = place.edit::<StreamValue, _>(|stream, arena, _| {
        let (group, log) = stream.group_mut(args.at(2)).ok_or_else(|| no_group(args.at(1), args.at(2)))?;
        let mut count = 0;
        for &id in &nack.ids {
            let before = match group.pending().get(arena, id) {
                Some(pending) => pending.deliveries,
                None if nack.is_forced && log.get(arena, id).is_some() => 0,
                None => continue,
            };
            // Without a consumer and idle since the beginning, so that any claim takes it.
            let deliveries = nack.deliveries_after(before);
            group.give(arena, id, Pending { consumer: NOBODY, delivered_ms: 0, deliveries })?;
            count += 1;
        }
        Ok::<_, Fault>(count)
    })?;
    let count = edited.ok_or_else(|| no_group(args.at(1), args.at(2)))?.result?;
    if count > 0 {
        place.changed(ACKED);
    }
    reply.int(count);
    Ok(())
}

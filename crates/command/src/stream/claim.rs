//! XCLAIM and XAUTOCLAIM: pending entries change hands.

use darter_pack::tree::{Pending, StreamId, StreamLog};
use darter_store::change::Class;
use darter_store::stream_value::group;
use darter_store::{Arena, Event, StreamValue};
use darter_wire::{Args, Reply};

use super::named::NamedVerdict;
use super::regrouping::{RegroupPlan, Who};
use super::{event, id, no_group, reply_entry, reply_id, shown};
use crate::incremental::bulk_add::MANY;
use crate::reader::{ArgReader, int};
use crate::spec::{Group, Keys, Marks, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XCLAIM.
pub const XCLAIM: DataCommand = DataCommand {
    spec: Spec::shrink("xclaim", -6, Keys::ONE).replica_form(ReplicaForm::Claims).tips(&["nondeterministic_output"])
        .fast()
        .doc(
            Group::Stream,
            "5.0.0",
            "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
            "Makes a consumer the owner of pending entries, as if they were delivered to it.",
        )
        .cost("O(log N) for each id"),
    run: xclaim,
};

/// XAUTOCLAIM.
pub const XAUTOCLAIM: DataCommand = DataCommand {
    spec: Spec::shrink("xautoclaim", -6, Keys::ONE)
        .replica_form(ReplicaForm::AutoClaims)
        .key_access("RW delete")
        .tips(&["nondeterministic_output"])
        .mark(Marks::WORDS_ARE_FEW)
        .fast()
        .doc(
            Group::Stream,
            "6.2.0",
            "key group consumer min-idle-time start [COUNT count] [JUSTID]",
            "Makes a consumer the owner of pending entries that were idle for long, in slices.",
        )
        .cost("O(1) for a small COUNT"),
    run: xautoclaim,
};

/// A change that Redis publishes without a name.
const CLAIMED: Event = Event::new(Class(0), "xclaim");
/// Pending entries that XAUTOCLAIM examines, for each that it may claim.
const LOOKS: usize = 10;
/// Redis' own limit: above it, a slice of ids would not fit in memory.
const COUNT_MAX: i64 = i64::MAX / 16;

/// The arguments of XCLAIM.
pub(super) struct ClaimOptions {
    min_idle_ms: u64,
    /// The entries it names.
    pub ids: Vec<StreamId>,
    delivered_ms: u64,
    deliveries: Option<u64>,
    force: bool,
    /// JUSTID.
    pub just_ids: bool,
    /// LASTID, else the lowest.
    pub last_id: StreamId,
}

impl ClaimOptions {
    /// Reads the arguments.
    ///
    /// Errors: those of Redis, in its order.
    pub fn parse(args: Args<'_>, now_ms: u64) -> Result<ClaimOptions, Fault> {
        let min_idle = min_idle(args, "ERR Invalid min-idle-time argument for XCLAIM")?;
        let ids: Vec<StreamId> = args.tail(5).iter().map_while(|arg| id::parse(arg, 0).ok()).collect();
        let mut claim = ClaimOptions {
            min_idle_ms: min_idle,
            delivered_ms: now_ms,
            deliveries: None,
            force: false,
            just_ids: false,
            last_id: StreamId::MIN,
            ids,
        };
        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let mut read = ArgReader::new(args, 5 + claim.ids.len());
        while !read.is_done() {
            if read.take("force") {
                claim.force = true;
            } else if read.take("justid") {
                claim.just_ids = true;
            } else if read.take_with("idle", 1) {
                let idle = option(&mut read, "ERR Invalid IDLE option argument for XCLAIM")?;
                claim.delivered_ms = time(now.wrapping_sub(idle), now);
            } else if read.take_with("time", 1) {
                let at = option(&mut read, "ERR Invalid TIME option argument for XCLAIM")?;
                claim.delivered_ms = time(at, now);
            } else if read.take_with("retrycount", 1) {
                let count = option(&mut read, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.deliveries = u64::try_from(count).ok();
            } else if read.take_with("lastid", 1) {
                claim.last_id = id::parse(read.bytes()?, 0)?;
            } else {
                let option = shown(read.bytes()?);
                return Err(Fault::Text(format!("ERR Unrecognized XCLAIM option '{option}'").into()));
            }
        }
        Ok(claim)
    }

    /// The verdict for an entry, still in the stream or not, that is claimed by a consumer at this time.
    pub fn verdict(&self, before: Option<Pending>, is_there: bool, who: (u32, u64)) -> NamedVerdict {
        let (consumer, now_ms) = who;
        let is_due = match before {
            None => self.force,
            Some(before) => now_ms.saturating_sub(before.delivered_ms) >= self.min_idle_ms,
        };
        if !is_there {
            return NamedVerdict::Drop;
        }
        if !is_due {
            return NamedVerdict::Leave;
        }
        // An entry that FORCE made pending counts as delivered once.
        let deliveries = before.map_or(1, |before| before.deliveries);
        let deliveries = self.deliveries.unwrap_or(deliveries.saturating_add(u64::from(!self.just_ids)));
        NamedVerdict::Give(Pending { consumer, delivered_ms: self.delivered_ms, deliveries })
    }
}

fn min_idle(args: Args<'_>, otherwise: &'static str) -> Result<u64, Fault> {
    let ms = int(args.at(4)).map_err(|_| Fault::text(otherwise))?;
    Ok(u64::try_from(ms).unwrap_or(0))
}

fn option(read: &mut ArgReader<'_>, otherwise: &'static str) -> Result<i64, Fault> {
    read.int_from(i64::MIN, Fault::text(otherwise))
}

/// A delivery time that a client gave; one before 1970 or in the future means now.
fn time(at: i64, now: i64) -> u64 {
    if (0..=now).contains(&at) { at.unsigned_abs() } else { now.unsigned_abs() }
}

/// The claiming consumer, in its group beside the entries.
struct Claimer<'a> {
    group: &'a mut group::ConsumerGroup,
    log: &'a StreamLog,
    number: u32,
    now_ms: u64,
    just_ids: bool,
}

impl<'a> Claimer<'a> {
    /// Finds group and consumer, creating a missing consumer; also returns whether it was created.
    fn new(
        stream: &'a mut StreamValue,
        args: Args<'_>,
        now_ms: u64,
        just_ids: bool,
    ) -> Result<(Claimer<'a>, bool), Fault> {
        let (group, log) = stream.group_mut(args.at(2)).ok_or_else(|| no_group(args.at(1), args.at(2)))?;
        let (number, is_new) = group.find_or_create(args.at(3), now_ms);
        if let Some(consumer) = group.consumer_mut(number) {
            consumer.seen_ms = now_ms;
        }
        Ok((Claimer { group, log, number, now_ms, just_ids }, is_new))
    }

    /// Makes the entry pending with the consumer, and answers it.
    fn take(
        &mut self,
        arena: &mut Arena,
        id: StreamId,
        pending: Pending,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        self.group.give(arena, id, pending)?;
        if let Some(consumer) = self.group.consumer_mut(self.number) {
            consumer.active_ms = Some(self.now_ms);
        }
        match self.log.get(arena, id) {
            Some(entry) if !self.just_ids => reply_entry(reply, entry),
            _ => reply_id(reply, id),
        }
        Ok(())
    }
}

fn xclaim(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    if args.len() > MANY && take_many(ctx, args, reply)? {
        return Ok(());
    }
    let mut place = ctx.read(args.at(1));
    if place.view::<StreamValue>()?.is_none_or(|stream| stream.root.group(args.at(2)).is_none()) {
        return Err(no_group(args.at(1), args.at(2)));
    }
    let claim = ClaimOptions::parse(args, now_ms)?;
    let edited = place.edit::<StreamValue, _>(|stream, arena, _| {
        let (mut claimer, is_new) = Claimer::new(stream, args, now_ms, claim.just_ids)?;
        claimer.group.last_id = claimer.group.last_id.max(claim.last_id);
        let begun = reply.begin_array();
        let mut len = 0;
        for &id in &claim.ids {
            let before = claimer.group.pending().get(arena, id);
            let is_there = claimer.log.get(arena, id).is_some();
            match claim.verdict(before, is_there, (claimer.number, now_ms)) {
                NamedVerdict::Leave => {}
                NamedVerdict::Drop => {
                    claimer.group.release(arena, id);
                }
                NamedVerdict::Give(pending) => {
                    claimer.take(arena, id, pending, reply)?;
                    len += 1;
                }
            }
        }
        reply.end_array(begun, len);
        Ok::<_, Fault>(is_new)
    })?;
    let is_new = match edited {
        Some(edited) => edited.result?,
        None => false,
    };
    if is_new {
        place.changed(event("xgroup-createconsumer"));
    }
    place.changed(CLAIMED);
    Ok(())
}

fn xautoclaim(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let min_idle_ms = min_idle(args, "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let first = id::first(args.at(5))?;
    let (mut count, mut just_ids) = (100, false);
    let mut read = ArgReader::new(args, 6);
    while !read.is_done() {
        if read.take_with("count", 1) {
            const BAD_COUNT: Fault = Fault::text("ERR COUNT must be > 0");
            let given = read.int_from(1, BAD_COUNT)?;
            if given > COUNT_MAX {
                return Err(BAD_COUNT);
            }
            count = usize::try_from(given).unwrap_or(usize::MAX);
        } else if read.take("justid") {
            just_ids = true;
        } else {
            return Err(Fault::Syntax);
        }
    }
    let looks = (count as u64).saturating_mul(LOOKS as u64);
    let plan = RegroupPlan::Claim { first, min_idle_ms, count: count as u64, looks, just_ids };
    if claim_many(ctx, args, plan, reply)? {
        return Ok(());
    }
    let now_ms = ctx.now_ms;
    let mut place = ctx.read(args.at(1));
    let edited = place.edit::<StreamValue, _>(|stream, arena, _| {
        let (mut claimer, is_new) = Claimer::new(stream, args, now_ms, just_ids)?;
        let slice = ClaimSlice::find(&claimer, arena, first, min_idle_ms, count);
        reply.array(3);
        reply_id(reply, slice.next);
        reply.array(slice.due.len());
        for &(id, before) in &slice.due {
            let deliveries = before.saturating_add(u64::from(!just_ids));
            let pending = Pending { consumer: claimer.number, delivered_ms: now_ms, deliveries };
            claimer.take(arena, id, pending, reply)?;
        }
        reply.array(slice.gone.len());
        for &id in &slice.gone {
            claimer.group.release(arena, id);
            reply_id(reply, id);
        }
        Ok::<_, Fault>((is_new, !slice.due.is_empty() || !slice.gone.is_empty()))
    })?;
    let (is_new, has_changed) = edited.ok_or_else(|| no_group(args.at(1), args.at(2)))?.result?;
    if is_new {
        place.changed(event("xgroup-createconsumer"));
    }
    if has_changed {
        place.changed(CLAIMED);
    }
    Ok(())
}

/// Leaves claiming the many named entries to slices, or answers after that. Returns false if they must be claimed
/// now, as with FORCE.
#[cold]
fn take_many(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<bool, Fault> {
    let who = who(args);
    let Some(staged) = ctx.staged.take() else {
        let is_forced = args.tail(5).iter().any(|word| word.eq_ignore_ascii_case(b"force"));
        let plan = RegroupPlan::Take((args.len() - 5) as u64);
        return Ok(ctx.may_slice && !is_forced && who.leave(ctx, plan, reply.is_resp3())?);
    };
    let Some((found, is_new)) = who.put(ctx, staged)? else { return Ok(false) };
    if is_new {
        ctx.changed(who.key, event("xgroup-createconsumer"));
    }
    ctx.changed(who.key, CLAIMED);
    reply.take_over(found.bytes);
    Ok(true)
}

fn who(args: Args<'_>) -> Who<'_> {
    Who { key: args.at(1), group: args.at(2), consumer: Some(args.at(3)) }
}

/// Leaves claiming many entries to slices, or answers after that; false if they must be claimed now.
fn claim_many(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    plan: RegroupPlan,
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    let who = who(args);
    let Some(staged) = ctx.staged.take() else {
        return match ctx.may_slice {
            true => match who.leave(ctx, plan, reply.is_resp3()) {
                // The body says so, and counts that it has found a key.
                Err(Fault::WrongType) => Ok(false),
                left => left,
            },
            false => Ok(false),
        };
    };
    let Some((found, is_new)) = who.put(ctx, staged)? else { return Err(no_group(who.key, who.group)) };
    if is_new {
        ctx.changed(who.key, event("xgroup-createconsumer"));
    }
    if found.numbers.iter().any(|&len| len > 0) {
        ctx.changed(who.key, CLAIMED);
    }
    reply.take_over(found.bytes);
    Ok(true)
}

/// The results of one call of XAUTOCLAIM.
struct ClaimSlice {
    /// Entries to claim, and their numbers of deliveries.
    due: Vec<(StreamId, u64)>,
    /// Pending entries that the stream no longer has.
    gone: Vec<StreamId>,
    /// The next position; the lowest id at the end.
    next: StreamId,
}

impl ClaimSlice {
    fn find(
        claimer: &Claimer<'_>,
        arena: &Arena,
        first: StreamId,
        min_idle_ms: u64,
        count: usize,
    ) -> ClaimSlice {
        let mut slice = ClaimSlice { due: Vec::new(), gone: Vec::new(), next: StreamId::MIN };
        let mut looks = count.saturating_mul(LOOKS);
        for (id, pending) in claimer.group.pending().iter_from(arena, first) {
            if looks == 0 || slice.due.len() + slice.gone.len() >= count {
                slice.next = id;
                break;
            }
            looks -= 1;
            if claimer.log.get(arena, id).is_none() {
                slice.gone.push(id);
            } else if claimer.now_ms.saturating_sub(pending.delivered_ms) >= min_idle_ms {
                slice.due.push((id, pending.deliveries));
            }
        }
        slice
    }
}

//! A consumer group that changes in slices: its pending entries are copied into a draft of the group and changed on
//! the way. Finally the draft replaces the group.
//!
//! Called by the bodies of XREADGROUP, XAUTOCLAIM, XCLAIM, XACK and XGROUP DELCONSUMER, which get the result when
//! they run again, and by `incremental` for the slices. Entries appended meanwhile do no harm. A change of the group,
//! or removed entries, restart it.

use darter_pack::tree::{Direction, Pending, StreamId, StreamLog};
use darter_store::stream_value::Extent;
use darter_store::stream_value::group::{Consumer, ConsumerGroup, NOBODY};
use darter_store::{Arena, Collection, KeyView, Shard, StreamValue};
use darter_wire::{Args, Reply};

use super::named::{Named, NamedVerdict};
use super::{id, reply_entry, reply_id};
use crate::incremental::building::BuildingPlace;
use crate::incremental::pieces::Pieces;
use crate::incremental::{Build, FoundValue, Staged};
use crate::slices::LEN_MAX;
use crate::{Ctx, Fault};

/// The change of the pending entries.
#[derive(Clone, Copy, Debug)]
pub(super) enum RegroupPlan {
    /// XREADGROUP of new entries: this many more become pending, unless they count as acknowledged.
    Deliver {
        /// Entries at most.
        count: u64,
        /// NOACK.
        is_noack: bool,
    },
    /// XREADGROUP of the consumer's own entries: those after an id are delivered again.
    Repeat {
        /// The id.
        after: StreamId,
        /// Entries at most.
        count: u64,
    },
    /// XAUTOCLAIM: entries that have been idle for long are given to the consumer.
    Claim {
        /// The first entry that is examined.
        first: StreamId,
        /// For so long.
        min_idle_ms: u64,
        /// Entries at most.
        count: u64,
        /// Entries looked at, at most.
        looks: u64,
        /// JUSTID.
        just_ids: bool,
    },
    /// XCLAIM: this number of named entries is given to the consumer.
    Take(u64),
    /// XACK: this number of named entries is no longer pending.
    Release(u64),
    /// XGROUP DELCONSUMER: the consumer is removed, and its entries are no longer pending.
    Forget,
}

/// The group, and the consumer of the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who<'a> {
    /// The stream's key.
    pub key: &'a [u8],
    /// The group.
    pub group: &'a [u8],
    /// The consumer, which may not exist yet; `None` if the command has no consumer, or removes it.
    pub consumer: Option<&'a [u8]>,
}

impl Who<'_> {
    /// Leaves changing the group by `plan` to slices. Returns false if it must be done at once, because few entries
    /// change or many more would have to be copied.
    pub(super) fn leave(self, ctx: &mut Ctx<'_>, mut plan: RegroupPlan, resp3: bool) -> Result<bool, Fault> {
        let (now_ms, source) = (ctx.now_ms, BuildingPlace::new(ctx, self.key));
        let mut place = ctx.at(self.key);
        let Some(stream) = place.view::<StreamValue>()? else { return Ok(false) };
        let changed = self.worth(stream, plan);
        if changed <= LEN_MAX {
            return Ok(false);
        }
        if let RegroupPlan::Deliver { count, .. } = &mut plan {
            // A producer that appends faster than slices read is not followed without end.
            *count = (*count).min(2 * changed);
        }
        let gone = gone(stream.root);
        // Never 0, which means unmarked.
        let mark = place.random() | 1;
        let edited = place.edit::<StreamValue, _>(|stream, _, _| {
            let mark = stream.mark_group(self.group, mark)?;
            Some((stream.group(self.group)?.hollow(), mark))
        })?;
        let Some((mut group, mark)) = edited.and_then(|edited| edited.result) else { return Ok(false) };
        let number = self.consumer.map_or(NOBODY, |name| group.find_or_create(name, now_ms).0);
        let source = RegroupSource { place: source, group: self.group.into(), mark, gone };
        let course = Course {
            plan,
            named: Named::default(),
            number,
            now_ms,
            resp3,
            taken: 0,
            told: Pieces::default(),
            answer: Vec::new(),
            lost: Vec::new(),
            next: None,
        };
        let regrouping = Regrouping { source, course, at: Some(StreamId::MIN), is_past_old: false };
        ctx.build(self.key, StreamValue::of_group(group).wrap(), Box::new(regrouping));
        Ok(true)
    }

    /// Number of entries that change, or 0 if it is better done at once.
    fn worth(self, stream: KeyView<'_, StreamValue>, plan: RegroupPlan) -> u64 {
        let Some(group) = stream.root.group(self.group) else { return 0 };
        let (pending, log) = (group.pending(), stream.root.log());
        let (changed, is_possible) = match plan {
            RegroupPlan::Deliver { count, .. } => {
                let Some(first) = id::next(group.last_id) else { return 0 };
                let new = log.len() - log.rank(stream.arena, first);
                // No new entry is pending with a consumer.
                (new.min(count), pending.rank(stream.arena, first) == pending.len())
            }
            RegroupPlan::Repeat { count, .. } => (self.pending_len(group).min(count), true),
            RegroupPlan::Claim { first, count, looks, .. } => {
                let left = pending.len() - pending.rank(stream.arena, first);
                (left.min(count).min(looks), true)
            }
            RegroupPlan::Take(named) | RegroupPlan::Release(named) => (named.min(pending.len()), true),
            RegroupPlan::Forget => (self.pending_len(group), true),
        };
        let is_worth_it = is_possible && pending.len() <= changed.saturating_mul(OLD_PER_CHANGED);
        if is_worth_it { changed } else { 0 }
    }

    /// Number of the consumer's pending entries.
    fn pending_len(self, group: &ConsumerGroup) -> u64 {
        self.consumer.and_then(|name| group.find(name)).map_or(0, Consumer::pending_len)
    }

    /// Replaces the group by the built one. Returns the other results, and whether the consumer is new; `None` if the
    /// stream is gone.
    ///
    /// Errors: there was no room for it.
    pub(super) fn put(
        self,
        ctx: &mut Ctx<'_>,
        mut kept: Staged,
    ) -> Result<Option<(FoundValue, bool)>, Fault> {
        // Not copied: it may be megabytes, and the shard is held.
        let found = std::mem::take(&mut kept.found);
        let Some(mut object) = kept.take(ctx)? else { return Ok(None) };
        let now_ms = ctx.now_ms;
        let mut place = ctx.at(self.key);
        let edited = place.edit::<StreamValue, _>(|stream, _, _| {
            let is_new = self
                .consumer
                .is_some_and(|name| stream.group(self.group).is_some_and(|group| group.find(name).is_none()));
            if let Some(draft) = StreamValue::of_mut(&mut object) {
                stream.swap_group(draft, self.group);
            }
            if let Some(name) = self.consumer
                && let Some((group, _)) = stream.group_mut(self.group)
            {
                let (number, _) = group.find_or_create(name, now_ms);
                if let Some(consumer) = group.consumer_mut(number) {
                    consumer.seen_ms = now_ms;
                }
            }
            is_new
        });
        // The former group.
        place.discard(object);
        Ok(edited?.map(|edited| (found, edited.result)))
    }
}

/// Pending entries that are copied for each that changes, at most.
const OLD_PER_CHANGED: u64 = 2;

/// Number of entries that a stream has lost, and the highest deleted id. While both stay the same, no entry was
/// removed.
pub(super) fn gone(stream: &StreamValue) -> (u64, StreamId) {
    (stream.added().wrapping_sub(stream.len()), stream.max_deleted_id())
}

/// A group on its way.
struct Regrouping {
    source: RegroupSource,
    course: Course,
    // The next position, among the pending entries first, then among the new ones.
    at: Option<StreamId>,
    is_past_old: bool,
}

/// The group that is the source.
struct RegroupSource {
    place: BuildingPlace,
    group: Box<[u8]>,
    // The mark of the group, as long as no other command changes it.
    mark: u64,
    gone: (u64, StreamId),
}

/// The change, and its results.
struct Course {
    plan: RegroupPlan,
    // The entries that the command names, once its words were read.
    named: Named,
    // The consumer's number in the draft.
    number: u32,
    now_ms: u64,
    resp3: bool,
    // Number of entries delivered or claimed, and the answer about them.
    taken: u64,
    told: Pieces,
    // The whole of it.
    answer: Vec<u8>,
    // Pending entries that the stream no longer has, of those claimed.
    lost: Vec<StreamId>,
    // The next position for XAUTOCLAIM.
    next: Option<StreamId>,
}

/// The next entries for the draft.
struct RegroupBatch {
    pending: Vec<(StreamId, Pending)>,
    new: Vec<StreamId>,
    extent: Extent,
    is_last: bool,
}

/// Entries of one batch, and bytes answered of them.
const ENTRIES_AT_ONCE: usize = 48;
const TOLD_AT_ONCE: usize = 8 << 10;

impl RegroupSource {
    /// Passes the stream and the group to `look`; `None` if they have changed.
    fn with<R>(
        &self,
        shard: &mut Shard,
        look: impl FnOnce(KeyView<'_, StreamValue>, &ConsumerGroup) -> R,
    ) -> Option<R> {
        let place = self.place.find(shard);
        let stream = place.view::<StreamValue>().ok()??;
        let group = stream.root.group(&self.group)?;
        (group.mark() == self.mark && gone(stream.root) == self.gone).then(|| look(stream, group))
    }
}

impl Build for Regrouping {
    fn prepare(&mut self, args: Args<'_>) -> Result<(), Fault> {
        self.course.named = match self.course.plan {
            RegroupPlan::Take(_) => Named::claimed(args, self.course.now_ms)?,
            RegroupPlan::Release(_) => Named::acknowledged(args)?,
            RegroupPlan::Deliver { .. }
            | RegroupPlan::Repeat { .. }
            | RegroupPlan::Claim { .. }
            | RegroupPlan::Forget => return Ok(()),
        };
        Ok(())
    }

    fn step(&mut self, shard: &mut Shard, draft: Option<u32>) -> Result<bool, Fault> {
        let Regrouping { source, course, at, is_past_old } = self;
        let batch = source.with(shard, |stream, group| match is_past_old {
            false => course.old(stream, group, at, is_past_old),
            true => course.new_ones(stream, at),
        });
        let Some(batch) = batch else { return Ok(true) };
        let Some(draft) = draft.and_then(|number| shard.draft_mut(number)) else { return Ok(true) };
        if let Some(stream) = StreamValue::of_mut(draft.object)
            && let Some((group, _)) = stream.group_mut(&source.group)
        {
            for (id, pending) in batch.pending {
                group.give(draft.arena, id, pending)?;
            }
            for id in batch.new {
                group.advance(&batch.extent, id);
                if let Some(pending) = course.delivered() {
                    group.give(draft.arena, id, pending)?;
                }
            }
            if batch.is_last {
                course.note_active(group);
                course.close(group, draft.arena);
            }
        }
        Ok(batch.is_last)
    }

    fn is_stale(&self, shard: &mut Shard) -> bool {
        self.source.with(shard, |_, _| ()).is_none()
    }

    fn finish(&mut self) -> bool {
        self.course.compose(&self.source.place.key);
        true
    }

    fn bytes(&self) -> usize {
        self.course.named.bytes()
            + self.course.told.bytes()
            + self.course.answer.capacity()
            + self.course.lost.capacity() * size_of::<StreamId>()
    }

    fn found(&mut self) -> FoundValue {
        let Course { taken, answer, lost, .. } = &mut self.course;
        let numbers = vec![*taken, lost.len() as u64];
        FoundValue { numbers, bytes: std::mem::take(answer), ..FoundValue::default() }
    }
}

impl Course {
    /// The next pending entries with their changes. `at` advances, and after the last of them to the new entries.
    fn old(
        &mut self,
        stream: KeyView<'_, StreamValue>,
        group: &ConsumerGroup,
        at: &mut Option<StreamId>,
        is_past: &mut bool,
    ) -> RegroupBatch {
        let mut told = Vec::new();
        let mut pending = Vec::with_capacity(ENTRIES_AT_ONCE);
        let mut left = ENTRIES_AT_ONCE;
        let rows = at.map(|at| group.pending().iter_from(stream.arena, at));
        *at = None;
        for (id, row) in rows.into_iter().flatten() {
            if left == 0 || told.len() > TOLD_AT_ONCE {
                *at = Some(id);
                break;
            }
            left -= 1;
            pending.extend(self.change(stream.root.log(), stream.arena, (id, row), &mut told));
        }
        self.told.push(told);
        let is_last = at.is_none() && !matches!(self.plan, RegroupPlan::Deliver { .. });
        if at.is_none() {
            *is_past = true;
            *at = id::next(group.last_id);
        }
        RegroupBatch { pending, new: Vec::new(), extent: stream.root.extent(stream.arena), is_last }
    }

    /// The changed form of a pending entry; `None` if it is no longer pending.
    fn change(
        &mut self,
        log: &StreamLog,
        arena: &Arena,
        (id, row): (StreamId, Pending),
        told: &mut Vec<u8>,
    ) -> Option<(StreamId, Pending)> {
        if let RegroupPlan::Take(_) = self.plan {
            return self.take(log, arena, (id, row), told);
        }
        let mut reply = Reply::new(told, self.resp3);
        let idle_ms = self.now_ms.saturating_sub(row.delivered_ms);
        match &mut self.plan {
            RegroupPlan::Repeat { after, count }
                if row.consumer == self.number && id > *after && *count > 0 =>
            {
                *count -= 1;
                self.taken += 1;
                let Some(entry) = log.get(arena, id) else {
                    reply.array(2);
                    reply_id(&mut reply, id);
                    reply.null_array();
                    return Some((id, row));
                };
                reply_entry(&mut reply, entry);
                let deliveries = row.deliveries.saturating_add(1);
                Some((id, Pending { delivered_ms: self.now_ms, deliveries, ..row }))
            }
            RegroupPlan::Claim { first, min_idle_ms, count, looks, just_ids }
                if id >= *first && self.next.is_none() =>
            {
                if *looks == 0 || *count == 0 {
                    self.next = Some(id);
                    return Some((id, row));
                }
                *looks -= 1;
                let Some(entry) = log.get(arena, id) else {
                    *count -= 1;
                    self.lost.push(id);
                    return None;
                };
                if idle_ms < *min_idle_ms {
                    return Some((id, row));
                }
                *count -= 1;
                self.taken += 1;
                match *just_ids {
                    true => reply_id(&mut reply, id),
                    false => reply_entry(&mut reply, entry),
                }
                let deliveries = row.deliveries.saturating_add(u64::from(!*just_ids));
                Some((id, Pending { consumer: self.number, delivered_ms: self.now_ms, deliveries }))
            }
            RegroupPlan::Release(_) if self.named.has(id) => {
                self.taken += 1;
                None
            }
            RegroupPlan::Forget if row.consumer == self.number => {
                self.taken += 1;
                None
            }
            _ => Some((id, row)),
        }
    }

    /// The changed form of an entry by XCLAIM, which may name it more than once.
    fn take(
        &mut self,
        log: &StreamLog,
        arena: &Arena,
        (id, row): (StreamId, Pending),
        told: &mut Vec<u8>,
    ) -> Option<(StreamId, Pending)> {
        let mut row = Some(row);
        for met in self.named.meet(id) {
            let entry = log.get(arena, id);
            match self.named.verdict(row, entry.is_some(), (self.number, self.now_ms)) {
                NamedVerdict::Leave => {}
                NamedVerdict::Drop => row = None,
                NamedVerdict::Give(pending) => {
                    row = Some(pending);
                    self.taken += 1;
                    let from = self.told.bytes() + told.len();
                    let mut reply = Reply::new(told, self.resp3);
                    match entry {
                        Some(entry) if !self.named.are_just_ids() => reply_entry(&mut reply, entry),
                        _ => reply_id(&mut reply, id),
                    }
                    self.named.told(met, from..self.told.bytes() + told.len());
                }
            }
        }
        row.map(|row| (id, row))
    }

    /// The next new entries.
    fn new_ones(&mut self, stream: KeyView<'_, StreamValue>, at: &mut Option<StreamId>) -> RegroupBatch {
        let RegroupPlan::Deliver { count, .. } = self.plan else {
            debug_assert!(false, "only XREADGROUP reads what is new");
            return RegroupBatch {
                pending: Vec::new(),
                new: Vec::new(),
                extent: stream.root.extent(stream.arena),
                is_last: true,
            };
        };
        let wanted = (count - self.taken).min(ENTRIES_AT_ONCE as u64) as usize;
        let entries =
            at.map(|first| stream.root.log().range(stream.arena, first, StreamId::MAX, Direction::Up));
        let new: Vec<StreamId> = entries.into_iter().flatten().take(wanted).map(|entry| entry.id).collect();
        self.taken += new.len() as u64;
        *at = new.last().copied().or(*at).and_then(id::next);
        let is_last = new.len() < ENTRIES_AT_ONCE || self.taken == count;
        RegroupBatch { pending: Vec::new(), new, extent: stream.root.extent(stream.arena), is_last }
    }

    /// The pending entry of a first delivery.
    fn delivered(&self) -> Option<Pending> {
        let is_noack = matches!(self.plan, RegroupPlan::Deliver { is_noack: true, .. });
        (!is_noack).then_some(Pending { consumer: self.number, delivered_ms: self.now_ms, deliveries: 1 })
    }

    /// Notes that the consumer received an entry.
    fn note_active(&self, group: &mut ConsumerGroup) {
        let is_given = match self.plan {
            RegroupPlan::Deliver { is_noack, .. } => !is_noack,
            RegroupPlan::Repeat { .. } => false,
            RegroupPlan::Claim { .. } | RegroupPlan::Take(_) => self.taken > 0,
            RegroupPlan::Release(_) | RegroupPlan::Forget => false,
        };
        if is_given && let Some(consumer) = group.consumer_mut(self.number) {
            consumer.active_ms = Some(self.now_ms);
        }
    }

    /// Ends the change, beyond the entries.
    fn close(&self, group: &mut ConsumerGroup, arena: &mut Arena) {
        group.last_id = group.last_id.max(self.named.last_id());
        if let RegroupPlan::Forget = self.plan
            && let Some(name) = group.consumer(self.number).map(|consumer| consumer.name().to_vec())
        {
            group.remove_consumer(arena, &name);
        }
    }

    /// Assembles the answer, except new entries: these are read in slices once they are pending.
    fn compose(&mut self, key: &[u8]) {
        let taken = self.taken as usize;
        let told = std::mem::take(&mut self.told);
        self.answer.reserve(told.bytes() + key.len() + 64 * (self.lost.len() + 1));
        let mut reply = Reply::new(&mut self.answer, self.resp3);
        match self.plan {
            RegroupPlan::Deliver { .. } | RegroupPlan::Release(_) | RegroupPlan::Forget => {}
            RegroupPlan::Take(_) => self.named.answer(&told.iter().collect::<Vec<_>>().concat(), &mut reply),
            RegroupPlan::Repeat { .. } => {
                reply_stream(&mut reply, key);
                reply.array(taken);
                told.iter().for_each(|piece| reply.raw(piece));
            }
            RegroupPlan::Claim { .. } => {
                reply.array(3);
                reply_id(&mut reply, self.next.unwrap_or(StreamId::MIN));
                reply.array(taken);
                told.iter().for_each(|piece| reply.raw(piece));
                reply.array(self.lost.len());
                self.lost.iter().for_each(|&id| reply_id(&mut reply, id));
            }
        }
    }
}

/// Begins the answer of XREADGROUP about one stream; an array of entries follows.
pub(super) fn reply_stream(reply: &mut Reply<'_>, key: &[u8]) {
    if reply.is_resp3() {
        reply.map(1);
    } else {
        reply.array(1);
        reply.array(2);
    }
    reply.bulk(key);
}

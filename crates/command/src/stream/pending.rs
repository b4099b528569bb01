//! XPENDING key group [[IDLE min-idle-time] start end count [consumer]]

use darter_pack::tree::stream::StreamId;
use darter_pack::tree::{Direction, Pending};
use darter_store::stream_value::group::{self, NOBODY};
use darter_store::{Arena, Keyed, Shard, StreamValue};
use darter_wire::{Args, Reply};

use super::{id, no_group, reply_id};
use crate::incremental::building::BuildingPlace;
use crate::incremental::pieces::Pieces;
use crate::incremental::{Build, FoundValue};
use crate::reader::{int, is};
use crate::slices::LEN_MAX;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XPENDING.
pub const XPENDING: DataCommand = DataCommand {
    spec: Spec::read("xpending", -3, Keys::ONE)
        .tips(&["nondeterministic_output"])
        .doc(
            Group::Stream,
            "5.0.0",
            "key group [[IDLE min-idle-time] start end count [consumer]]",
            "Returns the pending entries of a consumer group.",
        )
        .cost("O(log N + M) for M entries looked at"),
    run: xpending,
};

/// The requested pending entries.
struct PendingRange {
    min_idle_ms: u64,
    first: StreamId,
    last: StreamId,
    count: usize,
    consumer: Option<Box<[u8]>>,
}

impl PendingRange {
    fn parse(args: Args<'_>) -> Result<Option<PendingRange>, Fault> {
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
        Ok(Some(PendingRange { min_idle_ms, first, last, count, consumer: args.get(at + 3).map(Box::from) }))
    }
}

fn xpending(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let range = PendingRange::parse(args)?;
    if ctx.take_answer(reply) {
        return Ok(());
    }
    let (now_ms, may_slice) = (ctx.now_ms, ctx.may_slice);
    let (key, name) = (args.at(1), args.at(2));
    let place = ctx.read(key);
    let stream = place.view::<StreamValue>()?;
    let found = stream.and_then(|stream| Some((stream.root.group(name)?, stream.arena)));
    let (group, arena) = found.ok_or_else(|| no_group(key, name))?;
    let mark = reply.len();
    let mut listing = match range {
        None if !summary(group, arena, reply) => return Ok(()),
        None => PendingListing::Consumers { at: 0, busy: 0 },
        Some(range) => PendingListing::Entries(PendingWalk::new(range, now_ms)),
    };
    if may_slice && listing.rows(group, arena) > LEN_MAX {
        let begun = reply.since(mark).to_vec();
        reply.truncate_to(mark);
        return leave(ctx, (key, name), listing, (begun, reply.is_resp3()));
    }
    let begun = reply.begin_array();
    listing.go_on(group, arena, usize::MAX, reply);
    reply.end_array(begun, listing.shown());
    Ok(())
}

/// Answers the number of pending entries, the first and the last. Returns true if there are some, so that the array
/// of consumers must follow.
fn summary(group: &group::ConsumerGroup, arena: &Arena, reply: &mut Reply<'_>) -> bool {
    let pending = group.pending();
    reply.array(4);
    reply.int(pending.len() as i64);
    let Some(last_at) = pending.len().checked_sub(1) else {
        reply.null();
        reply.null();
        reply.null_array();
        return false;
    };
    let ends =
        [pending.iter(arena, 0, Direction::Up).next(), pending.iter(arena, last_at, Direction::Up).next()];
    ends.iter().flatten().for_each(|&(id, _)| reply_id(reply, id));
    true
}

/// An array on its way.
enum PendingListing {
    /// The consumers with pending entries, among those from a place on.
    Consumers { at: usize, busy: usize },
    /// Pending entries.
    Entries(PendingWalk),
}

/// A way through pending entries.
struct PendingWalk {
    range: PendingRange,
    now_ms: u64,
    // The next position; never beyond the last possible id.
    next: StreamId,
    shown: usize,
}

impl PendingListing {
    /// Most rows that are examined.
    fn rows(&self, group: &group::ConsumerGroup, arena: &Arena) -> u64 {
        match self {
            PendingListing::Consumers { .. } => group.consumers_len() as u64,
            PendingListing::Entries(walk) => walk.rows(group, arena),
        }
    }

    /// Examines some more rows; returns true if those were the last.
    fn go_on(
        &mut self,
        group: &group::ConsumerGroup,
        arena: &Arena,
        rows_max: usize,
        reply: &mut Reply<'_>,
    ) -> bool {
        match self {
            PendingListing::Consumers { at, busy } => {
                for consumer in group.consumers_from(*at).take(rows_max) {
                    *at += 1;
                    if consumer.pending_len() > 0 {
                        *busy += 1;
                        reply.array(2);
                        reply.bulk(consumer.name());
                        reply.bulk_int(consumer.pending_len() as i64);
                    }
                }
                *at == group.consumers_len()
            }
            PendingListing::Entries(walk) => walk.go_on(group, arena, rows_max, reply),
        }
    }

    /// Elements of the array so far.
    fn shown(&self) -> usize {
        match self {
            PendingListing::Consumers { busy, .. } => *busy,
            PendingListing::Entries(walk) => walk.shown,
        }
    }
}

impl PendingWalk {
    fn new(range: PendingRange, now_ms: u64) -> PendingWalk {
        let next = range.first;
        PendingWalk { range, now_ms, next, shown: 0 }
    }

    fn rows(&self, group: &group::ConsumerGroup, arena: &Arena) -> u64 {
        let PendingRange { min_idle_ms, first, last, count, consumer } = &self.range;
        let within = match consumer {
            None => {
                let pending = group.pending();
                let end = id::next(*last).map_or(pending.len(), |after| pending.rank(arena, after));
                end.saturating_sub(pending.rank(arena, *first))
            }
            Some(name) => group.find(name).map_or(0, group::Consumer::pending_len),
        };
        if *min_idle_ms == 0 { within.min(*count as u64) } else { within }
    }

    fn go_on(
        &mut self,
        group: &group::ConsumerGroup,
        arena: &Arena,
        rows_max: usize,
        reply: &mut Reply<'_>,
    ) -> bool {
        match &self.range.consumer {
            None => {
                let rows = group.pending().iter_from(arena, self.next);
                self.show(rows, group, rows_max, reply)
            }
            Some(name) => {
                let ids = group.find(name).map(|consumer| consumer.ids_from(arena, self.next));
                let rows = ids.into_iter().flatten();
                let rows = rows.filter_map(|id| Some((id, group.pending().get(arena, id)?)));
                self.show(rows, group, rows_max, reply)
            }
        }
    }

    /// Shows the wanted ones of some rows; returns true if none follow.
    fn show(
        &mut self,
        rows: impl Iterator<Item = (StreamId, Pending)>,
        group: &group::ConsumerGroup,
        rows_max: usize,
        reply: &mut Reply<'_>,
    ) -> bool {
        let mut left = rows_max;
        for (id, pending) in rows {
            if id > self.range.last || self.shown == self.range.count {
                return true;
            }
            let idle_ms = self.now_ms.saturating_sub(pending.delivered_ms);
            if idle_ms >= self.range.min_idle_ms {
                self.shown += 1;
                reply.array(4);
                reply_id(reply, id);
                reply.bulk(group.consumer(pending.consumer).map_or(&[][..], group::Consumer::name));
                // Entries given back are idle since the beginning.
                reply.int(if pending.consumer == NOBODY { -1 } else { idle_ms as i64 });
                reply.int(pending.deliveries as i64);
            }
            let Some(next) = id::next(id) else { return true };
            self.next = next;
            left -= 1;
            if left == 0 {
                return false;
            }
        }
        true
    }
}

/// The same in slices. The group is marked; if it changes, the answer restarts.
struct PendingSlices {
    place: BuildingPlace,
    group: Box<[u8]>,
    mark: u64,
    listing: PendingListing,
    pieces: Pieces,
    // The beginning of the answer, and in the end all of it.
    answer: Vec<u8>,
    is_begun: bool,
    resp3: bool,
}

/// Rows of one slice: some 20 microseconds, because those of one consumer need lookups.
const ROWS_PER_SLICE: usize = 64;

/// Leaves the list of the group `group` at `key` to slices, after the beginning of the answer.
///
/// Errors: the value has another type.
fn leave(
    ctx: &mut Ctx<'_>,
    (key, group): (&[u8], &[u8]),
    listing: PendingListing,
    (answer, resp3): (Vec<u8>, bool),
) -> Result<(), Fault> {
    let place = BuildingPlace::new(ctx, key);
    let mut at = ctx.at(key);
    // Never 0, which means unmarked.
    let mark = at.random() | 1;
    let edited = at.edit::<StreamValue, _>(|stream, _, _| stream.mark_group(group, mark))?;
    let mark = edited.and_then(|edited| edited.result).ok_or_else(|| no_group(key, group))?;
    let group = group.into();
    let pieces = Pieces::default();
    let slices = PendingSlices { place, group, mark, listing, pieces, answer, is_begun: false, resp3 };
    ctx.build_answer(key, &[], Box::new(slices));
    Ok(())
}

impl PendingSlices {
    /// The group, if it is unchanged.
    fn same<'a>(&self, place: &'a Keyed<'_>) -> Option<(&'a group::ConsumerGroup, &'a Arena)> {
        let stream = place.view::<StreamValue>().ok()??;
        let group = stream.root.group(&self.group)?;
        (group.mark() == self.mark).then_some((group, stream.arena))
    }
}

impl Build for PendingSlices {
    fn step(&mut self, shard: &mut Shard, _draft: Option<u32>) -> Result<bool, Fault> {
        let place = self.place.find(shard);
        let Some((group, arena)) = self.same(&place) else { return Ok(true) };
        let mut piece = Vec::new();
        let mut reply = Reply::new(&mut piece, self.resp3);
        let is_done = self.listing.go_on(group, arena, ROWS_PER_SLICE, &mut reply);
        self.pieces.push(piece);
        Ok(is_done)
    }

    fn is_stale(&self, shard: &mut Shard) -> bool {
        self.same(&self.place.find(shard)).is_none()
    }

    fn finish(&mut self) -> bool {
        if !self.is_begun {
            Reply::new(&mut self.answer, self.resp3).array(self.listing.shown());
            self.is_begun = true;
        }
        self.pieces.join(&mut self.answer)
    }

    fn bytes(&self) -> usize {
        self.pieces.bytes() + self.answer.capacity()
    }

    fn found(&mut self) -> FoundValue {
        FoundValue { bytes: std::mem::take(&mut self.answer), ..FoundValue::default() }
    }
}

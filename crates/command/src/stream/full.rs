//! XINFO STREAM key FULL: the entries of a stream, its groups with their pending entries, and the consumers of these.
//!
//! Called by `info`, at once or in slices. For slices the stream and its groups are marked. If an entry is removed or
//! a group changes before the end, the answer restarts. Appended entries do no harm.

use darter_pack::tree::{Direction, Pending, StreamId};
use darter_store::stream_value::{Extent, group};
use darter_store::{Arena, Shard, StreamValue};
use darter_wire::Reply;

use super::info::{maybe, named_id, number};
use super::regrouping::gone;
use super::{id, reply_entry, reply_id};
use crate::incremental::building::BuildingPlace;
use crate::incremental::pieces::Pieces;
use crate::incremental::{Build, FoundValue};
use crate::slices::LEN_MAX;
use crate::{Ctx, Fault};

/// The parameters and the position of the answer.
pub(super) struct FullInfo {
    // Number of rows answered of each list.
    count: usize,
    extent: Extent,
    at: FullInfoAt,
    // In that list: the next id, and the number of rows wanted.
    from: StreamId,
    left: usize,
}

/// Groups, and consumers of one, by their places in the order of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FullInfoAt {
    Entries,
    Group(usize),
    Pending(usize),
    Consumer(usize, usize),
    Held(usize, usize),
    End,
}

/// Rows answered between two checks of the output's length.
const ROWS_AT_ONCE: usize = 16;
/// Bytes of one slice.
const BYTES_PER_SLICE: usize = 5 << 10;

impl FullInfo {
    /// Begins with the entries.
    pub fn new(count: usize, extent: Extent, reply: &mut Reply<'_>) -> FullInfo {
        let left = count.min(extent.len as usize);
        reply.bulk(b"entries");
        reply.array(left);
        FullInfo { count, extent, at: FullInfoAt::Entries, from: StreamId::MIN, left }
    }

    /// Returns true if the answer about a stream is long enough for slices. Cost: bounded.
    pub fn is_long(count: usize, stream: &StreamValue) -> bool {
        let mut left = LEN_MAX.checked_sub(stream.len().min(count as u64));
        for group in stream.groups() {
            let shown = 2 * group.pending().len().min(count as u64) + 2 * group.consumers_len() as u64 + 4;
            left = left.and_then(|left| left.checked_sub(shown));
            if left.is_none() {
                break;
            }
        }
        left.is_none()
    }

    /// Tells all that is left.
    pub fn tell(mut self, root: &StreamValue, arena: &Arena, reply: &mut Reply<'_>) {
        while !self.is_over() {
            self.go_on(root, arena, reply);
        }
    }

    /// Leaves the rest of the answer about the stream at `name` to slices, after the part already written.
    ///
    /// Errors: the value has another type.
    pub fn leave(
        self,
        ctx: &mut Ctx<'_>,
        name: &[u8],
        (answer, resp3): (Vec<u8>, bool),
    ) -> Result<(), Fault> {
        let place = BuildingPlace::new(ctx, name);
        let mut at = ctx.at(name);
        // Never 0, which means unmarked.
        let mark = at.random() | 1;
        let edited = at.edit::<StreamValue, _>(|stream, _, _| (stream.mark_all(mark), gone(stream)))?;
        let (marks, gone) = edited.map(|edited| edited.result).ok_or(Fault::NoSuchKey)?;
        let slices =
            FullInfoSlices { place, marks, gone, full: self, pieces: Pieces::default(), answer, resp3 };
        ctx.build_answer(name, &[], Box::new(slices));
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.at == FullInfoAt::End
    }

    /// The present group.
    fn group(&self) -> Option<usize> {
        match self.at {
            FullInfoAt::Group(at)
            | FullInfoAt::Pending(at)
            | FullInfoAt::Consumer(at, _)
            | FullInfoAt::Held(at, _) => Some(at),
            FullInfoAt::Entries | FullInfoAt::End => None,
        }
    }

    /// Tells a little more.
    fn go_on(&mut self, root: &StreamValue, arena: &Arena, reply: &mut Reply<'_>) {
        let group = self.group().and_then(|at| root.group_at(at));
        let count = self.count;
        self.at = match (self.at, group) {
            (FullInfoAt::Entries, _) => {
                let entries = root.log().range(arena, self.from, StreamId::MAX, Direction::Up);
                match self.rows(entries, |entry| entry.id, |entry| reply_entry(reply, entry)) {
                    true => {
                        reply.bulk(b"groups");
                        reply.array(root.groups().len());
                        FullInfoAt::Group(0)
                    }
                    false => FullInfoAt::Entries,
                }
            }
            (FullInfoAt::Group(at), Some(group)) => {
                self.head(group, reply);
                self.begin(count.min(group.pending().len() as usize), reply);
                FullInfoAt::Pending(at)
            }
            (FullInfoAt::Pending(at), Some(group)) => {
                let pending = group.pending().iter_from(arena, self.from);
                let show = |(id, pending): (StreamId, Pending)| {
                    reply.array(4);
                    reply_id(reply, id);
                    reply.bulk(group.consumer(pending.consumer).map_or(&[][..], group::Consumer::name));
                    reply.int(pending.delivered_ms as i64);
                    reply.int(pending.deliveries as i64);
                };
                match self.rows(pending, |row| row.0, show) {
                    true => {
                        reply.bulk(b"consumers");
                        reply.array(group.consumers_len());
                        FullInfoAt::Consumer(at, 0)
                    }
                    false => FullInfoAt::Pending(at),
                }
            }
            (FullInfoAt::Consumer(at, nth), Some(group)) => match group.consumers_from(nth).next() {
                Some(consumer) => {
                    consumer_head(consumer, reply);
                    self.begin(count.min(consumer.pending_len() as usize), reply);
                    FullInfoAt::Held(at, nth)
                }
                None => FullInfoAt::Group(at + 1),
            },
            (FullInfoAt::Held(at, nth), Some(group)) => {
                let consumer = group.consumers_from(nth).next();
                let ids = consumer.map(|consumer| consumer.ids_from(arena, self.from)).into_iter().flatten();
                let show = |id: StreamId| {
                    let pending = group.pending().get(arena, id);
                    reply.array(3);
                    reply_id(reply, id);
                    reply.int(pending.map_or(0, |pending| pending.delivered_ms as i64));
                    reply.int(pending.map_or(0, |pending| pending.deliveries as i64));
                };
                if self.rows(ids, |&id| id, show) {
                    FullInfoAt::Consumer(at, nth + 1)
                } else {
                    FullInfoAt::Held(at, nth)
                }
            }
            (
                FullInfoAt::Group(_)
                | FullInfoAt::Pending(_)
                | FullInfoAt::Consumer(..)
                | FullInfoAt::Held(..)
                | FullInfoAt::End,
                _,
            ) => FullInfoAt::End,
        };
    }

    /// Begins a list of this length.
    fn begin(&mut self, len: usize, reply: &mut Reply<'_>) {
        reply.bulk(b"pending");
        reply.array(len);
        (self.from, self.left) = (StreamId::MIN, len);
    }

    /// Shows some rows of a list; returns true if those were the last wanted.
    fn rows<T>(
        &mut self,
        rows: impl Iterator<Item = T>,
        id_of: impl Fn(&T) -> StreamId,
        mut show: impl FnMut(T),
    ) -> bool {
        let mut last = None;
        for row in rows.take(ROWS_AT_ONCE.min(self.left)) {
            last = Some(id_of(&row));
            self.left -= 1;
            show(row);
        }
        match last.and_then(id::next) {
            Some(next) if self.left > 0 => self.from = next,
            _ => return true,
        }
        false
    }

    fn head(&self, group: &group::ConsumerGroup, reply: &mut Reply<'_>) {
        // Entries without a consumer; answered only if there are some, because the field is newer than the rest.
        let owned: u64 = group.consumers().map(group::Consumer::pending_len).sum();
        let nacked = group.pending().len().saturating_sub(owned);
        reply.map(7 + usize::from(nacked > 0));
        reply.bulk(b"name");
        reply.bulk(group.name());
        named_id(reply, "last-delivered-id", group.last_id);
        maybe(reply, "entries-read", group.entries_read.map(|read| read as i64));
        maybe(reply, "lag", self.extent.lag(group));
        number(reply, "pel-count", group.pending().len() as i64);
        if nacked > 0 {
            number(reply, "nacked-count", nacked as i64);
        }
    }
}

fn consumer_head(consumer: &group::Consumer, reply: &mut Reply<'_>) {
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(consumer.name());
    number(reply, "seen-time", consumer.seen_ms as i64);
    number(reply, "active-time", consumer.active_ms.map_or(-1, |ms| ms as i64));
    number(reply, "pel-count", consumer.pending_len() as i64);
}

/// The same in slices.
pub(super) struct FullInfoSlices {
    place: BuildingPlace,
    // The marks of the stream and of its groups.
    marks: Vec<u64>,
    gone: (u64, StreamId),
    full: FullInfo,
    pieces: Pieces,
    // The beginning of the answer, and in the end all of it.
    answer: Vec<u8>,
    resp3: bool,
}

impl FullInfoSlices {
    /// Returns true if the stream, and the present group, are unchanged.
    fn is_same(&self, stream: &StreamValue) -> bool {
        let group = self.full.group().filter(|&at| at < stream.groups().len());
        let nth = group.map_or(0, |at| at + 1);
        gone(stream) == self.gone && stream.mark_at(nth) == self.marks.get(nth).copied()
    }
}

impl Build for FullInfoSlices {
    fn step(&mut self, shard: &mut Shard, _draft: Option<u32>) -> Result<bool, Fault> {
        let place = self.place.find(shard);
        let stream = place.view::<StreamValue>().ok().flatten();
        let Some(stream) = stream.filter(|stream| self.is_same(stream.root)) else { return Ok(true) };
        let mut piece = Vec::with_capacity(BYTES_PER_SLICE + BYTES_PER_SLICE / 4);
        let mut reply = Reply::new(&mut piece, self.resp3);
        while !self.full.is_over() && reply.len() < BYTES_PER_SLICE {
            self.full.go_on(stream.root, stream.arena, &mut reply);
        }
        self.pieces.push(piece);
        Ok(self.full.is_over())
    }

    fn is_stale(&self, shard: &mut Shard) -> bool {
        let place = self.place.find(shard);
        let stream = place.view::<StreamValue>().ok().flatten();
        stream.is_none_or(|stream| {
            gone(stream.root) != self.gone || !stream.root.marks().eq(self.marks.iter().copied())
        })
    }

    fn finish(&mut self) -> bool {
        self.pieces.join(&mut self.answer)
    }

    fn bytes(&self) -> usize {
        self.pieces.bytes() + self.answer.capacity()
    }

    fn found(&mut self) -> FoundValue {
        FoundValue { bytes: std::mem::take(&mut self.answer), ..FoundValue::default() }
    }
}

//! XREAD and XREADGROUP: the entries after an id, of several streams, optionally waiting for them.

use crate::keyspec;
use darter_pack::tree::{Direction, Pending, StreamId};
use darter_store::change::Class;
use darter_store::reads::Stretch;
use darter_store::{Arena, Event, StreamValue};
use darter_wire::{Args, OwnedArgs, Reply};

use super::delivering::read_long;
use super::range::{answer_long, ranks};
use super::reading::{StreamReading, keys_of_read, keys_of_read_group};
use super::{event, id, reply_entry, reply_id, shown};
use crate::ctx::BlockingWait;
use crate::spec::{Flags, Group, Keys, Marks, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault, slices};

/// XREAD.
pub const XREAD: DataCommand = DataCommand {
    spec: Spec::read("xread", -4, Keys::Find(keys_of_read)).key_groups(&[keyspec::streams(1)])
        .flag(Flags::BLOCKING.with(Flags::MOVABLEKEYS))
        .doc(
            Group::Stream,
            "5.0.0",
            "[COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
            "Returns the entries of several streams that come after an id. Waits for one if asked to.",
        )
        .cost("O(log N + M) for each stream, M entries returned"),
    run: xread,
};

/// XREADGROUP.
pub const XREADGROUP: DataCommand = DataCommand {
    spec: Spec::shrink("xreadgroup", -7, Keys::Find(keys_of_read_group)).replica_form(ReplicaForm::Deliveries).key_groups(&[keyspec::streams(4)])
        .flag(Flags::BLOCKING.with(Flags::MOVABLEKEYS))
        .mark(Marks::ENDS_WITH_KEY)
        .doc(
            Group::Stream,
            "5.0.0",
            "GROUP group consumer [COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK milliseconds] [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]",
            "Returns entries of several streams that a group has not read, or that a consumer has pending.",
        )
        .cost("O(M log N) for M entries returned"),
    run: xreadgroup,
};

/// A change that Redis publishes without a name.
pub(super) const READ: Event = Event::new(Class(0), "xreadgroup");
pub(super) const ACTIVE: Event = event("xgroup-createconsumer");

/// The remaining budget of entries to answer: never less than one.
struct Budget {
    left: usize,
    // Bytes of the answered entries, which are the same in every protocol: a journal is replayed in one of them.
    bytes: usize,
    bytes_max: usize,
}

impl Budget {
    fn new(reading: &StreamReading<'_>) -> Budget {
        Budget { left: reading.total, bytes: 0, bytes_max: reading.bytes_max }
    }

    fn is_spent(&self) -> bool {
        self.left == 0 || self.bytes >= self.bytes_max
    }

    /// Gives an entry.
    fn spend(&mut self, reply: &mut Reply<'_>, give: impl FnOnce(&mut Reply<'_>)) {
        let before = reply.len();
        give(reply);
        self.left -= 1;
        self.bytes += reply.len() - before;
    }
}

/// The streams of a reply, begun with the first one that has entries.
struct Streams {
    budget: Budget,
    begun: Option<darter_wire::Deferred>,
    len: usize,
}

impl Streams {
    fn new(reading: &StreamReading<'_>) -> Streams {
        Streams { budget: Budget::new(reading), begun: None, len: 0 }
    }

    fn add(&mut self, reply: &mut Reply<'_>, key: &[u8]) {
        if self.begun.is_none() {
            self.begun = Some(reply.begin_array());
        }
        self.len += 1;
        if !reply.is_resp3() {
            reply.array(2);
        }
        reply.bulk(key);
    }

    /// Ends the reply; returns false if there was no stream.
    fn end(self, reply: &mut Reply<'_>) -> bool {
        let Some(begun) = self.begun else { return false };
        if reply.is_resp3() {
            reply.end_map(begun, self.len);
        } else {
            reply.end_array(begun, self.len);
        }
        true
    }
}

/// Ends a command that found nothing; a pending entry may be claimed at `ready_at_ms`.
fn nothing(ctx: &mut Ctx<'_>, reading: &StreamReading<'_>, ready_at_ms: Option<u64>, reply: &mut Reply<'_>) {
    match reading.block {
        None => reply.null_array(),
        Some(timeout_ms) => {
            ctx.wait_or_reply(BlockingWait { ready_at_ms, ..BlockingWait::for_a_key(timeout_ms, 0) }, reply);
        }
    }
}

fn xread(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let reading = StreamReading::parse(args, false, ctx.now_ms)?;
    let mut after = Vec::with_capacity(reading.streams);
    for at in 0..reading.streams {
        let key = args.at(reading.keys_at + at);
        if ctx.skips(key) {
            after.push(StreamId::MAX);
            continue;
        }
        let place = ctx.read(key);
        let ends = place
            .view::<StreamValue>()?
            .map(|stream| (stream.root.last_id(), stream.root.log().last_id(stream.arena)));
        after.push(start_of(args.at(reading.id_at(at)), ends.unwrap_or_default())?);
    }
    let may_slice = ctx.may_slice && reading.bytes_max == usize::MAX;
    let mut streams = Streams::new(&reading);
    for (at, &after) in after.iter().enumerate() {
        let key = args.at(reading.keys_at + at);
        if ctx.skips(key) {
            continue;
        }
        if streams.budget.is_spent() {
            break;
        }
        let place = ctx.at(key);
        let Some(stream) = place.view::<StreamValue>()? else { continue };
        if stream.root.log().last_id(stream.arena).is_none_or(|last| last <= after) {
            continue;
        }
        let first = id::next(after).unwrap_or(StreamId::MAX);
        if may_slice && at + 1 == reading.streams && stream.root.len() > slices::LEN_MAX {
            // The last entries may be left for later.
            let asked = reading.count.min(streams.budget.left) as u64;
            let (from, len) = ranks(stream, first, StreamId::MAX, asked, Direction::Up);
            streams.add(reply, key);
            answer_long(ctx, key, reply, Stretch::Ranks(from, len, Direction::Up))?;
            break;
        }
        streams.add(reply, key);
        let begun = reply.begin_array();
        let entries = stream.root.log().range(stream.arena, first, StreamId::MAX, Direction::Up);
        let mut len = 0;
        for entry in entries.take(reading.count) {
            if streams.budget.is_spent() {
                break;
            }
            streams.budget.spend(reply, |reply| reply_entry(reply, entry));
            len += 1;
        }
        reply.end_array(begun, len);
    }
    if !streams.end(reply) {
        nothing(ctx, &reading, None, reply);
        if let Some(wait) = &mut ctx.wait {
            wait.args = with_ids(args, &reading, &after);
        }
    }
    Ok(())
}

/// The id after which entries are read, in a stream whose last id was `last_id` and whose last entry is `last_entry`.
fn start_of(arg: &[u8], (last_id, last_entry): (StreamId, Option<StreamId>)) -> Result<StreamId, Fault> {
    match arg {
        b"$" => Ok(last_id),
        b"+" => Ok(last_entry.and_then(id::previous).unwrap_or(last_id)),
        b">" => Err(Fault::text(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        )),
        _ => id::parse(arg, 0),
    }
}

/// The arguments with ids in place of `$`, whose meaning changes until the retry.
fn with_ids(args: Args<'_>, reading: &StreamReading<'_>, after: &[StreamId]) -> Option<OwnedArgs> {
    let first = reading.id_at(0);
    args.tail(first).iter().any(|arg| arg == b"$").then(|| {
        let mut owned = args.head(first).to_owned();
        for (arg, &id) in args.tail(first).iter().zip(after) {
            if arg == b"$" { owned.push(&id::text(id)) } else { owned.push(arg) }
        }
        owned
    })
}

/// The entries that a consumer requests from one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamWanted {
    /// `>`: entries that the group has not read.
    New,
    /// The consumer's pending entries after an id.
    Pending(StreamId),
}

const MEANINGLESS_DOLLAR: Fault = Fault::text(
    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
);
const MEANINGLESS_PLUS: Fault = Fault::text(
    "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would just return an empty result set.",
);
/// Unlike a key of another type under XREAD or BLPOP, one under XREADGROUP ends the wait.
const WRONG_TYPE: Fault = Fault::text("WRONGTYPE Operation against a key holding the wrong kind of value");

fn xreadgroup(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let reading = StreamReading::parse(args, true, ctx.now_ms)?;
    let (group, _) = reading.group.unwrap_or_default();
    let mut wanted = Vec::with_capacity(reading.streams);
    for at in 0..reading.streams {
        let key = args.at(reading.keys_at + at);
        if !ctx.skips(key) {
            let place = ctx.read(key);
            let stream = place.view::<StreamValue>().map_err(|_| WRONG_TYPE)?;
            if stream.is_none_or(|stream| stream.root.group(group).is_none()) {
                return Err(no_group_to_read(key, group));
            }
        }
        wanted.push(match args.at(reading.id_at(at)) {
            b"$" => return Err(MEANINGLESS_DOLLAR),
            b"+" => return Err(MEANINGLESS_PLUS),
            b">" => StreamWanted::New,
            arg => match id::parse(arg, 0)? {
                // To Redis the highest id means the same.
                StreamId::MAX => StreamWanted::New,
                after => StreamWanted::Pending(after),
            },
        });
    }
    if let [wanted] = wanted[..]
        && read_long(ctx, args.at(reading.keys_at), &reading, wanted, reply)?
    {
        return Ok(());
    }
    let mut streams = Streams::new(&reading);
    let mut ready_at_ms = None;
    for (at, &wanted) in wanted.iter().enumerate() {
        let key = args.at(reading.keys_at + at);
        if !ctx.skips(key) && !streams.budget.is_spent() {
            let next_ms = read_group(ctx, key, &reading, wanted, &mut streams, reply)?;
            ready_at_ms = ready_at_ms.into_iter().chain(next_ms).min();
        }
    }
    if !streams.end(reply) {
        nothing(ctx, &reading, ready_at_ms, reply);
    }
    Ok(())
}

fn no_group_to_read(key: &[u8], group: &[u8]) -> Fault {
    let (key, group) = (shown(key), shown(group));
    Fault::Text(
        format!("NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option")
            .into(),
    )
}

/// Answers the entries of one stream. Returns the time at which one of its pending entries may be claimed, if none
/// may be now.
fn read_group(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    reading: &StreamReading<'_>,
    wanted: StreamWanted,
    streams: &mut Streams,
    reply: &mut Reply<'_>,
) -> Result<Option<u64>, Fault> {
    let now_ms = ctx.now_ms;
    let (name, consumer) = reading.group.unwrap_or_default();
    let mut place = ctx.at(key);
    let edited = place.edit::<StreamValue, _>(|stream, arena, _| {
        let Some((group, _)) = stream.group_mut(name) else { return Ok((false, false, None)) };
        let (number, is_new) = group.find_or_create(consumer, now_ms);
        if let Some(consumer) = group.consumer_mut(number) {
            consumer.seen_ms = now_ms;
        }
        let mut reader = GroupReader { stream, arena, name, number, now_ms, reading };
        let (has_read, ready_at_ms) = match wanted {
            StreamWanted::Pending(after) => {
                streams.add(reply, key);
                reader.pending(after, &mut streams.budget, reply)?;
                (true, None)
            }
            StreamWanted::New => {
                let (claimed, ready_at_ms) = reader.claimable();
                let has_read = reader.has_new() || !claimed.is_empty();
                if has_read {
                    streams.add(reply, key);
                    reader.new_entries(&claimed, &mut streams.budget, reply)?;
                }
                (has_read, ready_at_ms)
            }
        };
        Ok::<_, Fault>((is_new, has_read, ready_at_ms))
    })?;
    let Some(edited) = edited else { return Ok(None) };
    let (is_new, has_read, ready_at_ms) = edited.result?;
    if is_new {
        place.changed(ACTIVE);
    }
    if has_read {
        place.changed(READ);
    }
    Ok(ready_at_ms)
}

/// A consumer that reads one stream.
struct GroupReader<'s, 'r> {
    stream: &'s mut StreamValue,
    arena: &'s mut Arena,
    name: &'r [u8],
    number: u32,
    now_ms: u64,
    reading: &'r StreamReading<'r>,
}

impl GroupReader<'_, '_> {
    /// The consumer's pending entries after an id; a removed entry is shown without fields.
    fn pending(&mut self, after: StreamId, budget: &mut Budget, reply: &mut Reply<'_>) -> Result<(), Fault> {
        let Some((group, log)) = self.stream.group_mut(self.name) else { return Ok(()) };
        let mut given = Vec::new();
        let begun = reply.begin_array();
        let mut len = 0;
        if let (Some(consumer), Some(first)) = (group.consumer(self.number), id::next(after)) {
            for id in consumer.ids_from(self.arena, first).take(self.reading.count) {
                if budget.is_spent() {
                    break;
                }
                len += 1;
                match log.get(self.arena, id) {
                    Some(entry) => {
                        budget.spend(reply, |reply| reply_entry(reply, entry));
                        given.push(id);
                    }
                    None => {
                        budget.left -= 1;
                        reply.array(2);
                        reply_id(reply, id);
                        reply.null_array();
                    }
                }
            }
        }
        reply.end_array(begun, len);
        for id in given {
            if let Some(before) = group.pending().get(self.arena, id) {
                let deliveries = before.deliveries.saturating_add(1);
                group.give(self.arena, id, Pending { delivered_ms: self.now_ms, deliveries, ..before })?;
            }
        }
        Ok(())
    }

    fn has_new(&self) -> bool {
        let last_read = self.stream.group(self.name).map(|group| group.last_id);
        self.stream.log().last_id(self.arena) > last_read
    }

    /// Pending entries idle for as long as CLAIM requires: id, idle time, deliveries. If there are none, the time at
    /// which the first will be.
    fn claimable(&self) -> (Vec<(StreamId, u64, u64)>, Option<u64>) {
        let (Some(min_idle_ms), Some(group)) = (self.reading.claim_ms, self.stream.group(self.name)) else {
            return (Vec::new(), None);
        };
        let is_there = |id| self.stream.log().get(self.arena, id).is_some();
        let (mut found, mut ready_at_ms) = (Vec::new(), None);
        for (id, pending) in group.pending().iter(self.arena, 0, Direction::Up) {
            let idle_ms = self.now_ms.saturating_sub(pending.delivered_ms);
            let is_ready = idle_ms >= min_idle_ms;
            let at_ms = pending.delivered_ms.saturating_add(min_idle_ms);
            let is_wanted =
                is_ready || found.is_empty() && ready_at_ms.is_none_or(|first_ms| at_ms < first_ms);
            if !is_wanted || !is_there(id) {
                continue;
            }
            if !is_ready {
                ready_at_ms = Some(at_ms);
                continue;
            }
            found.push((id, idle_ms, pending.deliveries));
            if found.len() == self.reading.count {
                break;
            }
        }
        (found, ready_at_ms)
    }

    /// The claimed entries, then those that the group has not read. All of them become pending with the consumer.
    fn new_entries(
        &mut self,
        claimed: &[(StreamId, u64, u64)],
        budget: &mut Budget,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let extent = self.stream.extent(self.arena);
        let Some((group, log)) = self.stream.group_mut(self.name) else { return Ok(()) };
        let begun = reply.begin_array();
        let mut taken = 0;
        for &(id, idle_ms, deliveries) in claimed {
            let Some(entry) = log.get(self.arena, id).filter(|_| !budget.is_spent()) else { break };
            budget.spend(reply, |reply| reply_claimed(reply, entry, idle_ms, deliveries));
            taken += 1;
        }
        let claimed = claimed.get(..taken).unwrap_or_default();
        let mut ids = Vec::new();
        let first = id::next(group.last_id).unwrap_or(StreamId::MAX);
        let entries = log.range(self.arena, first, StreamId::MAX, Direction::Up);
        for entry in entries.take(self.reading.count - claimed.len()) {
            if budget.is_spent() {
                break;
            }
            let is_claiming = self.reading.claim_ms.is_some();
            let id = entry.id;
            budget.spend(reply, |reply| match is_claiming {
                true => reply_claimed(reply, entry, 0, 0),
                false => reply_entry(reply, entry),
            });
            ids.push(id);
        }
        reply.end_array(begun, claimed.len() + ids.len());
        let (consumer, delivered_ms) = (self.number, self.now_ms);
        for &(id, _, deliveries) in claimed {
            let deliveries = deliveries.saturating_add(1);
            group.give(self.arena, id, Pending { consumer, delivered_ms, deliveries })?;
        }
        for &id in &ids {
            group.advance(&extent, id);
            if !self.reading.is_noack {
                group.give(self.arena, id, Pending { consumer, delivered_ms, deliveries: 1 })?;
            }
        }
        if let Some(consumer) = group.consumer_mut(consumer)
            && (!self.reading.is_noack || !claimed.is_empty())
        {
            consumer.active_ms = Some(delivered_ms);
        }
        Ok(())
    }
}

/// An entry with its idle time and its former number of deliveries.
fn reply_claimed(
    reply: &mut Reply<'_>,
    entry: darter_pack::tree::stream::StreamEntry<'_>,
    idle_ms: u64,
    deliveries: u64,
) {
    reply.array(4);
    reply_id(reply, entry.id);
    reply.array(entry.fields.len() * 2);
    for (name, value) in entry.fields {
        crate::item::reply_item(reply, name);
        crate::item::reply_item(reply, value);
    }
    reply.int(idle_ms as i64);
    reply.int(deliveries as i64);
}

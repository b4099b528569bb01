//! Streams in the value format: nodes of entries as listpacks, then the stream's ids and counters, then its groups.
//!
//! Written in the oldest form that holds everything. Redis 7.0 can read it, unless consumers were seen without
//! receiving entries, which only the form of 7.2 holds.

use std::collections::BTreeMap;

use darter_base::number;
use darter_pack::decimal::Digits;
use darter_pack::entry::Item;
use darter_pack::tree::stream::StreamEntry;
use darter_pack::tree::{Direction, Pending, StreamId};
use darter_slab::Arena;

use super::object::filled;
use super::packed::{self, PackedForm, back_len};
use super::{Corrupt, RdbSource, text};
use crate::object::Object;
use crate::stream_value::group::{Consumer, ConsumerGroup, NOBODY};
use crate::stream_value::producers::Producers;
use crate::stream_value::{Extent, StreamValue};

/// Redis 5 and 6.
pub const TYPE_STREAM: u8 = 15;
/// Redis 7.0: with counters of entries.
pub const TYPE_STREAM_2: u8 = 19;
/// Redis 7.2: with the time a consumer was last active.
pub const TYPE_STREAM_3: u8 = 21;
/// Redis 8.6: with the names of entries that producers sent, as long as they are remembered.
pub const TYPE_STREAM_4: u8 = 26;
/// Redis 8.8: with pending entries that consumers gave back.
pub const TYPE_STREAM_5: u8 = 27;

/// Entries and bytes of a node, as Redis has them by default.
const NODE_ENTRIES_MAX: u64 = 100;
const NODE_BYTES_MAX: usize = 4096;
/// Flags of an entry in a node.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// The form that holds everything of `stream`.
pub fn type_of(stream: &StreamValue) -> u8 {
    if stream.groups().any(ConsumerGroup::has_given_back) {
        return TYPE_STREAM_5;
    }
    if stream.producers().is_some() {
        return TYPE_STREAM_4;
    }
    let mut consumers = stream.groups().flat_map(ConsumerGroup::consumers);
    let is_plain = consumers.all(|consumer| consumer.active_ms == Some(consumer.seen_ms));
    if is_plain { TYPE_STREAM_2 } else { TYPE_STREAM_3 }
}

/// Appends a stream in the form that [`type_of`] names.
pub fn write(stream: &StreamValue, arena: &Arena, out: &mut Vec<u8>) {
    write_nodes(stream.log().iter(arena, 0, Direction::Up), usize::MAX, out);
    write_extent(&stream.extent(arena), out);
    text::write_length(out, stream.groups().len() as u64);
    let kind = type_of(stream);
    for group in stream.groups() {
        write_group_head(group, out);
        text::write_length(out, group.pending().len());
        group.pending().iter(arena, 0, Direction::Up).for_each(|(id, entry)| write_pending(id, entry, out));
        text::write_length(out, group.consumers_len() as u64);
        for consumer in group.consumers() {
            write_consumer_head(consumer, kind >= TYPE_STREAM_3, out);
            write_ids(consumer.pending_len(), consumer.ids_from(arena, StreamId::MIN), out);
        }
        if kind == TYPE_STREAM_5 {
            write_ids(group.given_back(arena).count() as u64, group.given_back(arena), out);
        }
    }
    if kind >= TYPE_STREAM_4 {
        let none = Producers::default();
        let producers = stream.producers().unwrap_or(&none);
        write_producers(producers, None, producers.len(), out);
    }
}

/// `len` ids that are pending with a consumer, or with none.
pub(super) fn write_ids(len: u64, ids: impl Iterator<Item = StreamId>, out: &mut Vec<u8>) {
    text::write_length(out, len);
    ids.for_each(|id| out.extend_from_slice(&raw_id(id)));
}

/// The part between the nodes and the groups.
pub(super) fn write_extent(extent: &Extent, out: &mut Vec<u8>) {
    text::write_length(out, extent.len);
    for id in [extent.last_id, extent.first_id, extent.max_deleted_id] {
        text::write_length(out, id.ms);
        text::write_length(out, id.seq);
    }
    text::write_length(out, extent.added);
}

/// Limits, `count` producers after the one called `after` with the names and ids of their entries, and two counters.
pub(super) fn write_producers(producers: &Producers, after: Option<&[u8]>, count: usize, out: &mut Vec<u8>) {
    text::write_length(out, producers.duration_s);
    text::write_length(out, producers.names_max);
    text::write_length(out, count as u64);
    for (producer, names) in producers.after(after).take(count) {
        text::write_text(out, producer);
        text::write_length(out, names.len() as u64);
        for (name, id) in names {
            text::write_text(out, name);
            text::write_length(out, id.ms);
            text::write_length(out, id.seq);
        }
    }
    text::write_length(out, producers.added);
    text::write_length(out, producers.duplicates);
}

/// Writes the nodes of entries until they take about `bytes_max`; returns how many entries these are.
pub(super) fn write_nodes<'a>(
    entries: impl Iterator<Item = StreamEntry<'a>>,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> u64 {
    let (mut nodes, mut written) = (0, 0);
    let mut body = Vec::new();
    let mut node: Option<RdbStreamNode<'_>> = None;
    for entry in entries {
        if let Some(full) = node.take_if(|node| node.is_full()) {
            full.finish(&mut body);
            nodes += 1;
        }
        let node = node.get_or_insert_with(|| RdbStreamNode::new(entry));
        node.push(entry);
        written += 1;
        if body.len() + node.pack.bytes.len() >= bytes_max {
            break;
        }
    }
    if let Some(last) = node {
        last.finish(&mut body);
        nodes += 1;
    }
    text::write_length(out, nodes);
    out.extend_from_slice(&body);
    written
}

/// A node being written: entries that share the names of the first.
struct RdbStreamNode<'a> {
    first: StreamEntry<'a>,
    entries: u64,
    pack: Listpack,
}

impl<'a> RdbStreamNode<'a> {
    fn new(first: StreamEntry<'a>) -> RdbStreamNode<'a> {
        RdbStreamNode { first, entries: 0, pack: Listpack::default() }
    }

    fn is_full(&self) -> bool {
        self.entries >= NODE_ENTRIES_MAX || self.pack.bytes.len() >= NODE_BYTES_MAX
    }

    fn push(&mut self, entry: StreamEntry<'_>) {
        let names = |entry: StreamEntry<'_>| entry.fields.len();
        let is_same =
            names(entry) == names(self.first) && entry.fields.zip(self.first.fields).all(|(a, b)| a.0 == b.0);
        let before = self.pack.len;
        self.pack.push_int(if is_same { SAME_FIELDS } else { 0 });
        self.pack.push_int(entry.id.ms.wrapping_sub(self.first.id.ms) as i64);
        self.pack.push_int(entry.id.seq.wrapping_sub(self.first.id.seq) as i64);
        if !is_same {
            self.pack.push_int(names(entry) as i64);
        }
        for (name, value) in entry.fields {
            if !is_same {
                self.pack.push(name);
            }
            self.pack.push(value);
        }
        self.pack.push_int((self.pack.len - before) as i64);
        self.entries += 1;
    }

    fn finish(self, out: &mut Vec<u8>) {
        let mut head = Listpack::default();
        head.push_int(self.entries as i64);
        head.push_int(0);
        head.push_int(self.first.fields.len() as i64);
        self.first.fields.for_each(|(name, _)| head.push(name));
        head.push_int(0);
        text::write_text(out, &raw_id(self.first.id));
        let total = head.bytes.len() + self.pack.bytes.len() + 7;
        text::write_length(out, total as u64);
        out.extend_from_slice(&(total as u32).to_le_bytes());
        let elements = u16::try_from(head.len + self.pack.len).unwrap_or(u16::MAX);
        out.extend_from_slice(&elements.to_le_bytes());
        out.extend_from_slice(&head.bytes);
        out.extend_from_slice(&self.pack.bytes);
        out.push(0xff);
    }
}

/// Elements of a listpack, without its head and end.
#[derive(Default)]
struct Listpack {
    bytes: Vec<u8>,
    len: usize,
}

impl Listpack {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Int(value) => self.push_int(value),
            Item::Bytes(bytes) => self.push_bytes(bytes),
        }
    }

    fn push_int(&mut self, value: i64) {
        let start = self.bytes.len();
        match value {
            0..=127 => self.bytes.push(value as u8),
            -0x8000..=0x7fff => {
                self.bytes.push(0xf1);
                self.bytes.extend_from_slice(&(value as i16).to_le_bytes());
            }
            -0x8000_0000..=0x7fff_ffff => {
                self.bytes.push(0xf3);
                self.bytes.extend_from_slice(&(value as i32).to_le_bytes());
            }
            _ => {
                self.bytes.push(0xf4);
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        self.end(start);
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        match bytes.len() {
            len @ 0..64 => self.bytes.push(0x80 | len as u8),
            len @ 64..4096 => self.bytes.extend_from_slice(&(0xe000 | len as u16).to_be_bytes()),
            len => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(bytes);
        self.end(start);
    }

    /// The length of the element once more, for reading backwards: seven bits a byte, the lowest last.
    fn end(&mut self, start: usize) {
        let len = self.bytes.len() - start;
        let back = back_len(len);
        for at in (0..back).rev() {
            let bits = (len >> (7 * at)) as u8 & 0x7f;
            self.bytes.push(if at + 1 == back { bits } else { bits | 0x80 });
        }
        self.len += 1;
    }
}

pub(super) fn raw_id(id: StreamId) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&id.ms.to_be_bytes());
    raw[8..].copy_from_slice(&id.seq.to_be_bytes());
    raw
}

/// The name of a group and its progress.
pub(super) fn write_group_head(group: &ConsumerGroup, out: &mut Vec<u8>) {
    text::write_text(out, group.name());
    text::write_length(out, group.last_id.ms);
    text::write_length(out, group.last_id.seq);
    text::write_length(out, group.entries_read.unwrap_or(u64::MAX));
}

pub(super) fn write_pending(id: StreamId, pending: Pending, out: &mut Vec<u8>) {
    out.extend_from_slice(&raw_id(id));
    out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
    text::write_length(out, pending.deliveries);
}

/// A consumer without its ids.
pub(super) fn write_consumer_head(consumer: &Consumer, has_active: bool, out: &mut Vec<u8>) {
    text::write_text(out, consumer.name());
    out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
    if has_active {
        out.extend_from_slice(&consumer.active_ms.unwrap_or(u64::MAX).to_le_bytes());
    }
}

/// The target of reading a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamOnto {
    /// An empty one.
    Nothing,
    /// A stream of earlier pieces: groups and consumers may exist, ids only rise.
    Begun,
}

/// The stream of type byte `kind` that `source` holds.
///
/// Errors: damaged, entries or pending entries that contradict each other, or no room in the arena.
pub fn read(kind: u8, source: &mut RdbSource<'_>, arena: &mut Arena) -> Result<Object, Corrupt> {
    filled(StreamValue::new(), arena, |stream, arena| {
        read_into(StreamOnto::Nothing, kind, stream, source, arena)
    })
}

/// Adds a piece to a stream whose earlier pieces were read.
pub(super) fn read_more(
    kind: u8,
    stream: &mut StreamValue,
    source: &mut RdbSource<'_>,
    arena: &mut Arena,
) -> Result<(), Corrupt> {
    read_into(StreamOnto::Begun, kind, stream, source, arena)
}

fn read_into(
    onto: StreamOnto,
    kind: u8,
    stream: &mut StreamValue,
    source: &mut RdbSource<'_>,
    arena: &mut Arena,
) -> Result<(), Corrupt> {
    let before = stream.len();
    for _ in 0..source.count()? {
        let first_id = read_id_of(&source.text()?)?;
        read_node(stream, arena, first_id, &source.text()?)?;
    }
    read_ids(kind, stream, before, arena, source)?;
    for _ in 0..source.count()? {
        read_group(onto, kind, stream, arena, source)?;
    }
    if kind >= TYPE_STREAM_4 { read_producers(stream, source) } else { Ok(()) }
}

/// Reads the output of [`write_producers`]. Limits outside our range are moved into it.
fn read_producers(stream: &mut StreamValue, source: &mut RdbSource<'_>) -> Result<(), Corrupt> {
    let mut read = Producers::default();
    read.duration_s = source.count()?.clamp(1, Producers::DURATION_S_MAX);
    read.names_max = source.count()?.clamp(1, Producers::NAMES_MAX);
    let begun = source.count()?;
    let is_known = stream.producers().is_some();
    let producers = match is_known {
        true => {
            let producers = stream.producers_mut(Producers::default);
            (producers.duration_s, producers.names_max) = (read.duration_s, read.names_max);
            producers
        }
        false => &mut read,
    };
    for _ in 0..begun {
        let producer = source.text()?;
        for _ in 0..source.count()? {
            let name = source.text()?;
            let id = StreamId { ms: source.count()?, seq: source.count()? };
            // Time 0 makes nothing too old; later requests remove old names.
            producers.add(&producer, &name, id, 0);
        }
    }
    producers.added = source.count()?;
    producers.duplicates = source.count()?;
    if !is_known && !read.is_untouched() {
        *stream.producers_mut(Producers::default) = read;
    }
    Ok(())
}

/// Reads the ids and counters after the entries, of which `before` existed before this piece.
fn read_ids(
    kind: u8,
    stream: &mut StreamValue,
    before: u64,
    arena: &mut Arena,
    source: &mut RdbSource<'_>,
) -> Result<(), Corrupt> {
    let len = source.count()?;
    let last_id = StreamId { ms: source.count()?, seq: source.count()? };
    if len != stream.len() - before || stream.log().last_id(arena).is_some_and(|id| id > last_id) {
        return Err(Corrupt);
    }
    if kind == TYPE_STREAM {
        stream.set_ids(last_id, Some(len), Some(StreamId::MIN));
        return Ok(());
    }
    // The first id is known from the entries.
    source.count()?;
    source.count()?;
    let max_deleted_id = StreamId { ms: source.count()?, seq: source.count()? };
    stream.set_ids(last_id, Some(source.count()?), Some(max_deleted_id));
    Ok(())
}

/// The elements of a node, as texts.
struct Elements {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    at: usize,
}

impl Elements {
    fn of(node: &[u8]) -> Result<Elements, Corrupt> {
        let mut elements = Elements { bytes: Vec::new(), ends: Vec::new(), at: 0 };
        packed::each(PackedForm::Listpack, node, &mut |item| {
            elements.bytes.extend_from_slice(item.text(&mut Digits::new()));
            elements.ends.push(elements.bytes.len());
            Ok(())
        })?;
        Ok(elements)
    }

    fn text(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(at).copied().unwrap_or(start);
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// The place of the next element.
    fn next(&mut self) -> Result<usize, Corrupt> {
        self.skip(1)
    }

    /// The place of the first of the next `len` elements.
    fn skip(&mut self, len: usize) -> Result<usize, Corrupt> {
        let start = self.at;
        self.at = start.checked_add(len).filter(|&end| end <= self.ends.len()).ok_or(Corrupt)?;
        Ok(start)
    }

    fn int(&mut self) -> Result<i64, Corrupt> {
        let at = self.next()?;
        number::parse_i64(self.text(at)).ok_or(Corrupt)
    }

    fn len(&mut self) -> Result<usize, Corrupt> {
        usize::try_from(self.int()?).map_err(|_| Corrupt)
    }
}

fn read_node(
    stream: &mut StreamValue,
    arena: &mut Arena,
    first_id: StreamId,
    bytes: &[u8],
) -> Result<(), Corrupt> {
    let mut elements = Elements::of(bytes)?;
    let (alive, deleted) = (elements.len()?, elements.len()?);
    let shared_len = elements.len()?;
    let shared = elements.skip(shared_len)?;
    elements.next()?;
    let mut seen = (0, 0);
    while elements.at < elements.ends.len() {
        let flags = elements.int()?;
        let id = StreamId {
            ms: first_id.ms.wrapping_add(elements.int()? as u64),
            seq: first_id.seq.wrapping_add(elements.int()? as u64),
        };
        let is_same = flags & SAME_FIELDS != 0;
        let len = if is_same { shared_len } else { elements.len()? };
        let start = elements.skip(if is_same { len } else { len.checked_mul(2).ok_or(Corrupt)? })?;
        // how many elements the entry has, for reading backwards
        elements.next()?;
        if flags & DELETED != 0 {
            seen.1 += 1;
            continue;
        }
        seen.0 += 1;
        let pairs = (0..len).map(|at| match is_same {
            true => (elements.text(shared + at), elements.text(start + at)),
            false => (elements.text(start + 2 * at), elements.text(start + 2 * at + 1)),
        });
        if len == 0 || !stream.append(arena, id, pairs).map_err(|_| Corrupt)? {
            return Err(Corrupt);
        }
    }
    if seen == (alive, deleted) { Ok(()) } else { Err(Corrupt) }
}

fn read_id_of(raw: &[u8]) -> Result<StreamId, Corrupt> {
    let raw: [u8; 16] = raw.try_into().map_err(|_| Corrupt)?;
    let both = u128::from_be_bytes(raw);
    Ok(StreamId { ms: (both >> 64) as u64, seq: both as u64 })
}

/// A time as RDB has it; nothing for one before 1970.
fn read_ms(source: &mut RdbSource<'_>) -> Result<Option<u64>, Corrupt> {
    Ok(u64::try_from(i64::from_le_bytes(source.array()?)).ok())
}

fn read_group(
    onto: StreamOnto,
    kind: u8,
    stream: &mut StreamValue,
    arena: &mut Arena,
    source: &mut RdbSource<'_>,
) -> Result<(), Corrupt> {
    let name = source.text()?;
    let last_id = StreamId { ms: source.count()?, seq: source.count()? };
    let entries_read = match kind {
        TYPE_STREAM => stream.extent(arena).added_up_to(last_id),
        _ => Some(source.count()?).filter(|&read| read != u64::MAX),
    };
    if !stream.create_group(&name, last_id, entries_read) && onto == StreamOnto::Nothing {
        return Err(Corrupt);
    }
    let mut pending = BTreeMap::new();
    for _ in 0..source.count()? {
        let id = read_id_of(source.take(16)?)?;
        let delivered_ms = read_ms(source)?.unwrap_or(0);
        if pending.insert(id, (delivered_ms, source.count()?)).is_some() {
            return Err(Corrupt);
        }
    }
    let Some((group, _)) = stream.group_mut(&name) else { return Err(Corrupt) };
    for _ in 0..source.count()? {
        read_consumer(onto, kind, group, arena, source, &mut pending)?;
    }
    if kind >= TYPE_STREAM_5 {
        read_given_back(group, arena, source, &mut pending)?;
    }
    // every pending entry has a consumer, and only one
    if pending.is_empty() { Ok(()) } else { Err(Corrupt) }
}

/// Pending entries without a consumer.
fn read_given_back(
    group: &mut ConsumerGroup,
    arena: &mut Arena,
    source: &mut RdbSource<'_>,
    pending: &mut BTreeMap<StreamId, (u64, u64)>,
) -> Result<(), Corrupt> {
    for _ in 0..source.count()? {
        let id = read_id_of(source.take(16)?)?;
        let (delivered_ms, deliveries) = pending.remove(&id).ok_or(Corrupt)?;
        let entry = Pending { consumer: NOBODY, delivered_ms, deliveries };
        group.give(arena, id, entry).map_err(|_| Corrupt)?;
    }
    Ok(())
}

fn read_consumer(
    onto: StreamOnto,
    kind: u8,
    group: &mut ConsumerGroup,
    arena: &mut Arena,
    source: &mut RdbSource<'_>,
    pending: &mut BTreeMap<StreamId, (u64, u64)>,
) -> Result<(), Corrupt> {
    let name = source.text()?;
    let seen_ms = read_ms(source)?.unwrap_or(0);
    let (number, is_new) = group.find_or_create(&name, seen_ms);
    let active_ms = if kind >= TYPE_STREAM_3 { read_ms(source)? } else { Some(seen_ms) };
    let consumer =
        group.consumer_mut(number).filter(|_| is_new || onto == StreamOnto::Begun).ok_or(Corrupt)?;
    consumer.active_ms = active_ms;
    for _ in 0..source.count()? {
        let id = read_id_of(source.take(16)?)?;
        let (delivered_ms, deliveries) = pending.remove(&id).ok_or(Corrupt)?;
        let entry = Pending { consumer: number, delivered_ms, deliveries };
        group.give(arena, id, entry).map_err(|_| Corrupt)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;
    use darter_base::rng::Rng;

    use super::super::read_object;
    use super::*;

    const GIVEN: Pending = Pending { consumer: 0, delivered_ms: 77, deliveries: 2 };

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 1 }
    }

    fn sample(arena: &mut Arena, entries: u64) -> StreamValue {
        let mut stream = StreamValue::new();
        for n in 1..=entries {
            let (name, value) = (format!("f{}", n / 40), "v".repeat(n as usize % 70));
            let pairs = [(name.as_bytes(), value.as_bytes()), (b"n", b"-70000")];
            assert_eq!(stream.append(arena, id(n), pairs.into_iter()), Ok(true));
        }
        stream.delete(arena, id(3));
        stream.create_group(b"g", id(2), Some(2));
        if let Some((group, _)) = stream.group_mut(b"g") {
            for (at, name) in [b"a", b"b"].into_iter().enumerate() {
                let (consumer, _) = group.find_or_create(name, 5);
                for n in [1, 2, 9] {
                    let pending = Pending { consumer, ..GIVEN };
                    assert_eq!(group.give(arena, id(10 * n + at as u64), pending), Ok(()));
                }
            }
        }
        stream
    }

    fn written(stream: &StreamValue, arena: &Arena) -> Vec<u8> {
        let mut out = Vec::new();
        write(stream, arena, &mut out);
        out
    }

    fn clear(object: Object, arena: &mut Arena) {
        let mut object = object;
        object.clear(arena);
    }

    #[test]
    fn a_stream_reads_back_with_its_groups() {
        let mut arena = Arena::with_reserve(1 << 26).expect("an arena");
        for entries in [0, 1, 100, 3000] {
            let stream = sample(&mut arena, entries);
            let bytes = written(&stream, &arena);
            let mut source = RdbSource::new(&bytes);
            let back = read(type_of(&stream), &mut source, &mut arena).expect("what was written");
            assert_eq!(source.left(), 0);
            let Object::Stream(back) = back else { panic!("a stream") };
            assert_eq!(written(&back, &arena), bytes);
            assert_eq!((back.extent(&arena), back.len()), (stream.extent(&arena), stream.len()));
            clear(Object::Stream(back), &mut arena);
            clear(Object::Stream(stream), &mut arena);
            assert_eq!(arena.used_bytes(), 0);
        }
    }

    #[test]
    fn damage_is_refused_or_makes_another_stream_but_leaves_nothing() {
        let mut arena = Arena::with_reserve(1 << 26).expect("an arena");
        let stream = sample(&mut arena, 150);
        let bytes = written(&stream, &arena);
        let kind = type_of(&stream);
        clear(Object::Stream(stream), &mut arena);
        let mut rng = Rng::new(7);
        for _ in 0..3_000 {
            let mut changed = bytes.clone();
            for _ in 0..=rng.below(3) {
                let at = rng.below(changed.len() as u64) as usize;
                changed[at] = rng.next_u64() as u8;
            }
            changed.truncate(changed.len() - rng.below(4) as usize * rng.below(50) as usize);
            let hasher = KeyHasher::new(1);
            if let Ok(object) = read_object(kind, &mut RdbSource::new(&changed), &mut arena, hasher) {
                clear(object, &mut arena);
            }
            assert_eq!(arena.used_bytes(), 0);
        }
    }

    #[test]
    fn an_entry_pending_with_two_consumers_is_refused() {
        let mut arena = Arena::with_reserve(1 << 24).expect("an arena");
        let mut head = vec![0];
        for number in [0, 9, 1, 0, 0, 0, 0, 0] {
            text::write_length(&mut head, number);
        }
        text::write_length(&mut head, 1);
        text::write_text(&mut head, b"g");
        for number in [9, 1, 0, 1] {
            text::write_length(&mut head, number);
        }
        head.extend_from_slice(&raw_id(id(9)));
        head.extend_from_slice(&5u64.to_le_bytes());
        text::write_length(&mut head, 1);
        let consumers = |names: &[&[u8]]| {
            let mut out = head.clone();
            text::write_length(&mut out, names.len() as u64);
            for name in names {
                text::write_text(&mut out, name);
                out.extend_from_slice(&5u64.to_le_bytes());
                text::write_length(&mut out, 1);
                out.extend_from_slice(&raw_id(id(9)));
            }
            out
        };
        let mut read = |bytes: &[u8]| {
            read(TYPE_STREAM_2, &mut RdbSource::new(bytes), &mut arena)
                .map(|object| clear(object, &mut arena))
        };
        assert_eq!(read(&consumers(&[b"a"])), Ok(()));
        assert_eq!(read(&consumers(&[b"a", b"b"])), Err(Corrupt));
        assert_eq!(read(&consumers(&[b"a", b"a"])), Err(Corrupt));
        assert_eq!(read(&consumers(&[])), Err(Corrupt));
    }
}

//! A large stream in pieces, each a separate stream in the newest form, to be read one after another.
//!
//! First the groups with their consumers, then entries, then pending entries, then producers. The last piece has the
//! stream's ids and counters. Called by the cut, which has the stream in its former state.

use std::collections::BTreeMap;

use darter_pack::tree::{Direction, StreamId};
use darter_slab::Arena;

use super::stream::{
    write_consumer_head, write_extent, write_group_head, write_ids, write_nodes, write_pending,
    write_producers,
};
use super::text;
use crate::stream_value::group::{Consumer, ConsumerGroup};
use crate::stream_value::producers::Producers;
use crate::stream_value::{Extent, StreamValue};

/// The start of the next piece.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PiecePlace {
    /// After this many groups and consumers of the next one.
    Heads(usize, usize),
    /// After this many entries.
    Entries(u64),
    /// After this many groups and pending entries of the next one.
    Pending(usize, u64),
    /// After the producer of this name.
    Producers(Option<Box<[u8]>>),
    /// With the end.
    End,
    /// Nowhere.
    Done,
}

/// Writes one stream piece by piece.
#[derive(Debug)]
pub struct StreamPieces {
    place: PiecePlace,
}

/// Groups, consumers or pending entries of one piece.
const PARTS_PER_PIECE: usize = 128;

impl StreamPieces {
    /// From the front.
    pub fn new() -> StreamPieces {
        StreamPieces { place: PiecePlace::Heads(0, 0) }
    }

    /// Number of elements of all pieces of a stream. Cost: O(groups).
    pub fn elements(stream: &StreamValue) -> u64 {
        let of = |group: &ConsumerGroup| 1 + group.consumers_len() as u64 + group.pending().len();
        let producers = stream.producers().map_or(0, Producers::len) as u64;
        stream.groups().map(of).sum::<u64>() + stream.len() + producers + 1
    }

    /// Returns true if the last piece is written.
    pub fn is_done(&self) -> bool {
        self.place == PiecePlace::Done
    }

    /// Appends the next piece, of about `bytes_max`; returns how many elements it has. The last has one, the end.
    pub fn write(&mut self, stream: &StreamValue, arena: &Arena, bytes_max: usize, out: &mut Vec<u8>) -> u64 {
        loop {
            let (next, elements) = match &self.place {
                PiecePlace::Heads(group, consumer) => write_heads(stream, *group, *consumer, out),
                PiecePlace::Entries(rank) => write_entries(stream, arena, *rank, bytes_max, out),
                PiecePlace::Pending(group, rank) => write_group_pending(stream, arena, *group, *rank, out),
                PiecePlace::Producers(after) => {
                    write_some_producers(stream, arena, after.as_deref(), bytes_max, out)
                }
                PiecePlace::End => {
                    write_front(Some(&stream.extent(arena)), 0, out);
                    write_tail(stream.producers(), out);
                    (PiecePlace::Done, 1)
                }
                PiecePlace::Done => return 0,
            };
            self.place = next;
            if elements > 0 {
                return elements;
            }
        }
    }
}

impl Default for StreamPieces {
    fn default() -> StreamPieces {
        StreamPieces::new()
    }
}

/// The front of a piece without entries. `after` has the stream's ids and counters, once all entries are written.
fn write_front(after: Option<&Extent>, groups: u64, out: &mut Vec<u8>) {
    let none = StreamId::MIN;
    let before = Extent { len: 0, added: 0, first_id: none, last_id: none, max_deleted_id: none };
    text::write_length(out, 0);
    write_extent(&Extent { len: 0, ..*after.unwrap_or(&before) }, out);
    text::write_length(out, groups);
}

/// The end of a piece: limits and counters of the producers.
fn write_tail(producers: Option<&Producers>, out: &mut Vec<u8>) {
    write_producers(producers.unwrap_or(&Producers::default()), None, 0, out);
}

/// Groups and consumers, with nothing pending.
fn write_heads(stream: &StreamValue, group: usize, consumer: usize, out: &mut Vec<u8>) -> (PiecePlace, u64) {
    let (mut elements, mut groups, mut at) = (0, 0, (group, consumer));
    let mut body = Vec::new();
    while elements < PARTS_PER_PIECE as u64
        && let Some(group) = stream.group_at(at.0)
    {
        let consumers = (group.consumers_len() - at.1).min(PARTS_PER_PIECE);
        write_group_head(group, &mut body);
        text::write_length(&mut body, 0);
        text::write_length(&mut body, consumers as u64);
        for consumer in group.consumers_from(at.1).take(consumers) {
            write_consumer(consumer, &[], &mut body);
        }
        text::write_length(&mut body, 0);
        elements += consumers as u64 + u64::from(at.1 == 0);
        groups += 1;
        at = if at.1 + consumers < group.consumers_len() { (at.0, at.1 + consumers) } else { (at.0 + 1, 0) };
    }
    if groups == 0 {
        return (PiecePlace::Entries(0), 0);
    }
    write_front(None, groups, out);
    out.extend_from_slice(&body);
    write_tail(None, out);
    (PiecePlace::Heads(at.0, at.1), elements)
}

fn write_consumer(consumer: &Consumer, ids: &[StreamId], out: &mut Vec<u8>) {
    write_consumer_head(consumer, true, out);
    write_ids(ids.len() as u64, ids.iter().copied(), out);
}

fn write_entries(
    stream: &StreamValue,
    arena: &Arena,
    rank: u64,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> (PiecePlace, u64) {
    if rank >= stream.len() {
        return (PiecePlace::Pending(0, 0), 0);
    }
    let mut last_id = StreamId::MIN;
    let entries = stream.log().iter(arena, rank, Direction::Up).inspect(|entry| last_id = entry.id);
    let len = write_nodes(entries, bytes_max, out);
    write_extent(&Extent { len, added: len, first_id: last_id, last_id, max_deleted_id: StreamId::MIN }, out);
    text::write_length(out, 0);
    write_tail(None, out);
    (PiecePlace::Entries(rank + len), len)
}

/// Pending entries of one group, with the consumers that have them.
fn write_group_pending(
    stream: &StreamValue,
    arena: &Arena,
    at: usize,
    rank: u64,
    out: &mut Vec<u8>,
) -> (PiecePlace, u64) {
    let Some(group) = stream.group_at(at) else { return (PiecePlace::Producers(None), 0) };
    let (mut of, mut given_back) = (BTreeMap::<u32, Vec<StreamId>>::new(), Vec::new());
    let mut body = Vec::new();
    let mut elements = 0;
    for (id, pending) in group.pending().iter(arena, rank, Direction::Up).take(PARTS_PER_PIECE) {
        write_pending(id, pending, &mut body);
        match group.consumer(pending.consumer) {
            Some(_) => of.entry(pending.consumer).or_default().push(id),
            None => given_back.push(id),
        }
        elements += 1;
    }
    if elements == 0 {
        return (PiecePlace::Pending(at + 1, 0), 0);
    }
    write_front(Some(&stream.extent(arena)), 1, out);
    write_group_head(group, out);
    text::write_length(out, elements);
    out.extend_from_slice(&body);
    text::write_length(out, of.len() as u64);
    for (number, ids) in &of {
        if let Some(consumer) = group.consumer(*number) {
            write_consumer(consumer, ids, out);
        }
    }
    write_ids(given_back.len() as u64, given_back.iter().copied(), out);
    write_tail(None, out);
    (PiecePlace::Pending(at, rank + elements), elements)
}

/// Producers until they take about `bytes_max`, one at least.
fn write_some_producers(
    stream: &StreamValue,
    arena: &Arena,
    after: Option<&[u8]>,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> (PiecePlace, u64) {
    let Some(producers) = stream.producers() else { return (PiecePlace::End, 0) };
    let (mut count, mut bytes, mut last) = (0, 0, None);
    for (name, names) in producers.after(after) {
        // Approximate bytes of a short name.
        bytes += name.len() + names.len() * 32;
        count += 1;
        last = Some(name);
        if bytes >= bytes_max {
            break;
        }
    }
    let Some(last) = last else { return (PiecePlace::End, 0) };
    write_front(Some(&stream.extent(arena)), 0, out);
    write_producers(producers, after, count, out);
    (PiecePlace::Producers(Some(last.into())), count as u64)
}

#[cfg(test)]
mod tests {
    use darter_pack::tree::Pending;

    use super::super::stream::{TYPE_STREAM_5, write};
    use super::super::{ObjectPieces, RdbSource, read_object};
    use super::*;
    use crate::object::Object;
    use crate::stream_value::group::NOBODY;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 3 }
    }

    /// Some entries, groups with and without consumers, pending entries, some without a consumer, and producers.
    fn sample(arena: &mut Arena, entries: u64, groups: u64, has_producers: bool) -> StreamValue {
        let mut stream = StreamValue::new();
        for n in 1..=entries {
            let (name, value) = (format!("f{}", n / 40), "v".repeat(n as usize % 70));
            let pairs = [(name.as_bytes(), value.as_bytes()), (b"n", b"-70000")];
            assert_eq!(stream.append(arena, id(n), pairs.into_iter()), Ok(true));
        }
        stream.delete(arena, id(3));
        stream.delete(arena, id(entries));
        for g in 0..groups {
            let name = format!("group {g}");
            stream.create_group(name.as_bytes(), id(g), (g % 2 == 0).then_some(g));
            let Some((group, _)) = stream.group_mut(name.as_bytes()) else { panic!("a group") };
            let consumers = if g == 1 { 300 } else { g };
            for n in 0..consumers {
                group.find_or_create(format!("c{n}").as_bytes(), n);
            }
            for n in (0..entries).filter(|n| consumers > 0 && n % 3 == 0) {
                let consumer = if n % 7 == 0 { NOBODY } else { (n % consumers) as u32 };
                let pending = Pending { consumer, delivered_ms: n, deliveries: n % 4 };
                assert_eq!(group.give(arena, id(n), pending), Ok(()));
            }
        }
        if has_producers {
            let producers = stream.producers_mut(|| Producers::new(7, 8));
            (0..entries).for_each(|n| producers.add(&[b'p', n as u8], &n.to_be_bytes(), id(n), 0));
            (producers.added, producers.duplicates) = (9, 10);
        }
        stream
    }

    #[test]
    fn pieces_read_one_after_another_are_the_stream() {
        let mut arena = Arena::with_reserve(1 << 26).expect("an arena");
        for (entries, groups, has_producers) in
            [(0, 0, false), (1, 0, true), (700, 0, true), (1000, 4, false), (0, 300, false), (3000, 3, true)]
        {
            let stream = sample(&mut arena, entries, groups, has_producers);
            let (mut expected, mut elements, mut pieces) = (Vec::new(), 0, StreamPieces::new());
            write(&stream, &arena, &mut expected);
            let mut back: Option<Object> = None;
            while !pieces.is_done() {
                let mut piece = Vec::new();
                elements += pieces.write(&stream, &arena, 2000, &mut piece);
                assert!(piece.len() < 12_000, "{}", piece.len());
                let (mut source, hasher) = (RdbSource::new(&piece), darter_base::hash::KeyHasher::new(1));
                match &mut back {
                    None => {
                        let read = read_object(TYPE_STREAM_5, &mut source, &mut arena, hasher);
                        back = Some(read.expect("a stream"));
                    }
                    Some(Object::Stream(back)) => {
                        let read = back.read_more(TYPE_STREAM_5, &mut source, &mut arena, hasher);
                        assert_eq!(read, Ok(()));
                    }
                    _ => unreachable!(),
                }
                assert_eq!(source.left(), 0);
            }
            assert_eq!(elements, StreamPieces::elements(&stream));
            let Some(Object::Stream(back)) = back else { panic!("no piece") };
            let mut written = Vec::new();
            write(&back, &arena, &mut written);
            assert!(written == expected, "{entries} entries, {groups} groups");
            for stream in [back, stream] {
                Object::Stream(stream).clear(&mut arena);
            }
            assert_eq!(arena.used_bytes(), 0);
        }
    }
}

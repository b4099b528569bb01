//! Random changes while several readers proceed at different speeds: each gets the state at its start.

use std::sync::Arc;

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_slab::Arena;

use super::{SeenLeaf, Tell};
use crate::entry::Item;
use crate::tree::list::ListEnd;
use crate::tree::{Direction, IntSet, List, StreamId, StreamLog, Zset};

/// A collection that the test changes and reads.
trait Subject {
    fn change(&mut self, arena: &mut Arena, rng: &mut Rng);
    fn len(&self) -> u64;
    fn begin(&mut self, number: u32, first: u64, len: u64, direction: Direction, tell: Tell);
    fn step(&mut self, arena: &Arena, number: u32, out: &mut Vec<u8>, bytes_max: usize) -> bool;
    fn end(&mut self, number: u32);
    fn clear(&mut self, arena: &mut Arena);
    fn held_bytes(&self) -> usize;
}

macro_rules! subject {
    ($name:ident, $root:tt) => {
        impl Subject for $name {
            fn change(&mut self, arena: &mut Arena, rng: &mut Rng) {
                self.change_root(arena, rng);
            }
            fn len(&self) -> u64 {
                self.$root.len()
            }
            fn begin(&mut self, number: u32, first: u64, len: u64, direction: Direction, tell: Tell) {
                self.$root.begin_read(number, first, len, direction, tell);
            }
            fn step(&mut self, arena: &Arena, number: u32, out: &mut Vec<u8>, bytes_max: usize) -> bool {
                self.$root.read_step(arena, number, out, bytes_max)
            }
            fn end(&mut self, number: u32) {
                assert_eq!(self.$root.read_aside(number).bytes, 0, "all that was kept has been given");
                self.$root.end_read(number);
            }
            fn clear(&mut self, arena: &mut Arena) {
                self.$root.clear(arena);
            }
            fn held_bytes(&self) -> usize {
                self.$root.bytes()
            }
        }
    };
}

fn tell() -> Tell {
    Arc::new(|seen, out| {
        let line = match seen {
            SeenLeaf::Item(item) => format!("{:?}\n", item.to_vec()),
            SeenLeaf::Field(field, value) => format!("{:?} {:?}\n", field.to_vec(), value.to_vec()),
            SeenLeaf::Scored(item, score) => format!("{:?} {score}\n", item.to_vec()),
            SeenLeaf::Logged(entry) => format!("{:?} {:?}\n", entry.id, entry.fields.len()),
        };
        out.extend_from_slice(line.as_bytes());
    })
}

struct Reader {
    number: u32,
    wanted: Vec<u8>,
    got: Vec<u8>,
    // Readers are not all as fast.
    pace: u64,
}

fn run(subject: &mut impl Subject, seed: u64, growth: u64, rounds: u64) {
    let mut rng = Rng::new(seed);
    let mut arena = Arena::with_reserve(1 << 28).unwrap();
    let (mut readers, mut number) = (Vec::<Reader>::new(), 0);
    for _ in 0..growth {
        subject.change(&mut arena, &mut rng);
    }
    for _ in 0..rounds {
        for _ in 0..rng.below(20) {
            subject.change(&mut arena, &mut rng);
        }
        if readers.len() < 4 && rng.below(30) == 0 && subject.len() > 0 {
            number += 1;
            let first = rng.below(subject.len());
            let len = 1 + rng.below(subject.len() - first);
            let direction = if rng.below(2) == 0 { Direction::Up } else { Direction::Down };
            let mut wanted = Vec::new();
            subject.begin(u32::MAX, first, len, direction, tell());
            assert!(subject.step(&arena, u32::MAX, &mut wanted, usize::MAX));
            subject.end(u32::MAX);
            subject.begin(number, first, len, direction, tell());
            readers.push(Reader { number, wanted, got: Vec::new(), pace: 1 + rng.below(5) });
        }
        readers.retain_mut(|reader| {
            if rng.below(reader.pace) != 0 {
                return true;
            }
            let bytes_max = reader.got.len() + 1 + rng.below(2000) as usize;
            if !subject.step(&arena, reader.number, &mut reader.got, bytes_max) {
                return true;
            }
            let (got, wanted) = (&reader.got, &reader.wanted);
            assert_eq!(String::from_utf8_lossy(got), String::from_utf8_lossy(wanted), "seed {seed}");
            subject.end(reader.number);
            false
        });
    }
    assert!(number > 5, "{number} readers");
    readers.iter().for_each(|reader| {
        let mut rest = Vec::new();
        subject.step(&arena, reader.number, &mut rest, usize::MAX);
        assert_eq!([&reader.got[..], &rest].concat(), reader.wanted);
        subject.end(reader.number);
    });
    subject.clear(&mut arena);
    assert_eq!((subject.held_bytes(), arena.used_bytes()), (0, 0));
}

#[derive(Default)]
struct Items {
    list: List,
    next: u64,
}

impl Items {
    fn change_root(&mut self, arena: &mut Arena, rng: &mut Rng) {
        self.next += 1;
        let text = match rng.below(50) {
            0 => "long".repeat(rng.below(10_000) as usize) + &self.next.to_string(),
            _ => self.next.to_string(),
        };
        let (item, len) = (Item::of(text.as_bytes()), self.list.len());
        let end = if rng.below(2) == 0 { ListEnd::Front } else { ListEnd::Back };
        match rng.below(10) {
            0..4 => self.list.push(arena, end, item).unwrap(),
            4..6 => drop(self.list.pop(arena, end, |_| ())),
            6 => drop(self.list.set(arena, rng.below(len.max(1)), item).unwrap()),
            7 => drop(self.list.insert(arena, rng.below(len + 1), item).unwrap()),
            8 => drop(self.list.remove(arena, rng.below(len.max(1)))),
            _ => {
                let count = if rng.below(50) == 0 { rng.below(300) } else { rng.below(3) };
                self.list.remove_range(arena, rng.below(len.max(1)), count);
            }
        }
    }
}
subject!(Items, list);

#[derive(Default)]
struct Ints(IntSet);

impl Ints {
    fn change_root(&mut self, arena: &mut Arena, rng: &mut Rng) {
        let value = rng.below(6000) as i64;
        match rng.below(12) {
            0 => drop(self.0.remove_ranks(arena, rng.below(self.0.len().max(1)), rng.below(4))),
            1..7 => drop(self.0.insert(arena, value).unwrap()),
            _ => drop(self.0.remove(arena, value)),
        }
    }
}
subject!(Ints, 0);

struct Scored {
    zset: Zset,
    hasher: KeyHasher,
}

impl Scored {
    fn change_root(&mut self, arena: &mut Arena, rng: &mut Rng) {
        let text = format!("member:{}", rng.below(4000));
        let (member, score) = (Item::of(text.as_bytes()), rng.below(100) as f64);
        match rng.below(20) {
            0 => drop(self.zset.pop(arena, &self.hasher, Direction::Up, |_, _| ())),
            1 => drop(self.zset.pop(arena, &self.hasher, Direction::Down, |_, _| ())),
            2 => {
                let rank = rng.below(self.zset.len().max(1));
                self.zset.remove_ranks(arena, &self.hasher, rank, rng.below(5));
            }
            3..8 => drop(self.zset.remove(arena, &self.hasher, member)),
            _ => drop(self.zset.insert(arena, &self.hasher, member, score).unwrap()),
        }
    }
}
subject!(Scored, zset);

#[derive(Default)]
struct Log {
    log: StreamLog,
    next: u64,
}

impl Log {
    fn change_root(&mut self, arena: &mut Arena, rng: &mut Rng) {
        let id = StreamId { ms: 1 + rng.below(self.next.max(1)), seq: 0 };
        match rng.below(20) {
            0 => drop(self.log.remove_first(arena, rng.below(10))),
            1..6 => drop(self.log.remove(arena, id)),
            _ => {
                self.next += 1;
                let text = self.next.to_string();
                let pairs = (0..rng.below(3)).map(|_| (&b"name"[..], text.as_bytes())).collect::<Vec<_>>();
                self.log.append(arena, StreamId { ms: self.next, seq: 0 }, pairs.iter().copied()).unwrap();
            }
        }
    }
}
subject!(Log, log);

#[test]
fn a_list_is_read_as_it_stood() {
    for seed in 0..4 {
        run(&mut Items::default(), seed, 3000, 3000);
    }
}

#[test]
fn a_set_of_integers_is_read_as_it_stood() {
    for seed in 0..4 {
        run(&mut Ints::default(), seed, 5000, 3000);
    }
}

#[test]
fn a_sorted_set_is_read_as_it_stood() {
    for seed in 0..4 {
        run(&mut Scored { zset: Zset::new(), hasher: KeyHasher::new(seed) }, seed, 5000, 3000);
    }
}

#[test]
fn a_stream_is_read_as_it_stood() {
    for seed in 0..4 {
        run(&mut Log::default(), seed, 4000, 3000);
    }
}

#[test]
fn a_consumer_of_what_is_read_leaves_few_pieces() {
    let mut arena = Arena::with_reserve(1 << 28).unwrap();
    for end in [ListEnd::Front, ListEnd::Back] {
        let mut list = List::new();
        for n in 0..10_000 {
            list.push(&mut arena, ListEnd::Back, Item::Int(n)).unwrap();
        }
        list.begin_read(1, 0, 10_000, Direction::Up, tell());
        for _ in 0..5000 {
            list.pop(&mut arena, end, |_| ());
        }
        assert!(list.read_aside(1).pieces <= 2, "{:?}", list.read_aside(1));
        let mut out = Vec::new();
        assert!(list.read_step(&arena, 1, &mut out, usize::MAX));
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 10_000);
        list.end_read(1);
        list.clear(&mut arena);
    }
}

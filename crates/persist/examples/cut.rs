//! Measures the cost of writes during a snapshot: processor time of single writes in one shard, with and without a
//! running cut. The values are strings and collections of a million elements.
//!
//! `cargo run --release -p darter-persist --example cut`

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_pack::entry::Item;
use darter_pack::table::{self, PackKind, Table};
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{List, Zset};
use darter_persist::entry::{self, PartHead};
use darter_store::cut::{CutEntry, Keeper, PieceKeeper};
use darter_store::{Expiry, Key, Keyed, Record, SetValue, Shard};
use rustix::time::{ClockId, clock_gettime};

const NOW_MS: u64 = 1_700_000_000_000;
/// Strings, and bytes of each.
const STRINGS: u64 = 300_000;
const STRING_BYTES: usize = 1024;
/// Elements of a collection.
const ELEMENTS: u64 = 1_000_000;
/// Writes that are measured, each on its own.
const WRITES: usize = 200_000;
/// A batch, as the server sends them to the thread that writes.
const BATCH_BYTES: usize = 256 << 10;

/// Writes entries like the server, and drops them.
#[derive(Default)]
struct Batches {
    bytes: Vec<u8>,
    spare: Vec<u8>,
    sent: usize,
}

impl Batches {
    fn send_if_full(&mut self) {
        if self.bytes.len() >= BATCH_BYTES {
            self.sent += self.bytes.len();
            std::mem::swap(&mut self.bytes, &mut self.spare);
            self.bytes.clear();
        }
    }
}

impl Keeper for Batches {
    fn keep(&mut self, entry: CutEntry<'_>) {
        entry::write_body(entry.record, entry.value, &mut self.bytes);
        self.send_if_full();
    }

    fn keep_in_pieces(&mut self, _: usize, record: Record<'_>, kind: u8, total: u64) -> Box<dyn PieceKeeper> {
        Box::new(Pieces(PartHead::new(record, kind, total)))
    }

    fn note_kept(&mut self, _: isize) {}
}

struct Pieces(PartHead);

impl PieceKeeper for Pieces {
    fn keep(&mut self, before: u64, piece: &[u8]) {
        let mut bytes = Vec::with_capacity(piece.len() + 128);
        self.0.write(before, &mut bytes);
        bytes.extend_from_slice(piece);
        std::hint::black_box(bytes);
    }

    fn another(&self) -> Box<dyn PieceKeeper> {
        Box::new(Pieces(self.0.clone()))
    }
}

/// Processor time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// One kind of write: builds the values, and changes a part of them.
struct Case {
    name: &'static str,
    fill: fn(&mut Bench),
    write: fn(&mut Bench, u64),
}

struct Bench {
    shard: Shard,
    hasher: KeyHasher,
    rng: Rng,
}

impl Bench {
    fn at<R>(&mut self, name: &[u8], act: impl FnOnce(&mut Keyed<'_>) -> R) -> R {
        let key = Key { bytes: name, hash: self.hasher.hash(name) };
        act(&mut Keyed::find(&mut self.shard, 0, key, NOW_MS))
    }

    fn put_string(&mut self, n: u64) {
        let mut value = [0; STRING_BYTES];
        value.iter_mut().for_each(|byte| *byte = 0x80 | self.rng.next_u64() as u8);
        self.at(format!("key:{n}").as_bytes(), |place| place.put_text(&value, Expiry::None).expect("room"));
    }

    fn put_field(&mut self, n: u64) {
        self.at(b"hash", |place| {
            let field = format!("field:{n}");
            let make = || Table::new(PackKind::KeysAndValues);
            let put = |table: &mut Table, arena: &mut _, hasher: KeyHasher| {
                let (hash, of) = (hasher.hash(field.as_bytes()), |key: &[u8]| hasher.hash(key));
                let value = Item::Bytes(b"some value");
                table
                    .insert(arena, hash, field.as_bytes(), value, table::FieldExpiry::Keep, &of)
                    .expect("room");
            };
            place.edit_or_create(make, put).expect("a hash");
        });
    }

    fn put_member(&mut self, n: u64, score: u64) {
        self.at(b"zset", |place| {
            let member = format!("member:{n}");
            let put = |zset: &mut Zset, arena: &mut _, hasher: KeyHasher| {
                zset.insert(arena, &hasher, Item::of(member.as_bytes()), score as f64).expect("room");
            };
            place.edit_or_create(Zset::new, put).expect("a sorted set");
        });
    }

    fn put_int(&mut self, n: u64) {
        self.at(b"ints", |place| {
            let put = |set: &mut SetValue, arena: &mut _, hasher| {
                set.insert(arena, hasher, Item::Int(n.cast_signed()), table::FieldExpiry::Keep)
                    .expect("room");
            };
            place.edit_or_create(SetValue::new, put).expect("a set");
        });
    }

    fn push(&mut self) {
        self.at(b"list", |place| {
            let put = |list: &mut List, arena: &mut _, _| {
                list.push(arena, ListEnd::Back, Item::Bytes(b"some item of a list")).expect("room");
            };
            place.edit_or_create(List::new, put).expect("a list");
        });
    }

    /// Processor time of each write, in nanoseconds, sorted. Between the writes the walk continues if there is a cut.
    fn run(&mut self, write: fn(&mut Bench, u64)) -> Vec<u64> {
        let mut taken: Vec<u64> = (0..WRITES)
            .map(|n| {
                let pick = self.rng.next_u64();
                let began = cpu_ns();
                write(self, pick);
                let ns = cpu_ns() - began;
                if n % 64 == 0 {
                    self.shard.walk_cut(1);
                }
                ns
            })
            .collect();
        taken.sort_unstable();
        taken
    }
}

const CASES: [Case; 5] = [
    Case {
        name: "SET of 1 KiB",
        fill: |bench| (0..STRINGS).for_each(|n| bench.put_string(n)),
        write: |bench, pick| bench.put_string(pick % STRINGS),
    },
    Case {
        name: "HSET in 1M fields",
        fill: |bench| (0..ELEMENTS).for_each(|n| bench.put_field(n)),
        write: |bench, pick| bench.put_field(pick % ELEMENTS),
    },
    Case {
        name: "ZADD in 1M members",
        fill: |bench| (0..ELEMENTS).for_each(|n| bench.put_member(n, n * 7919 % ELEMENTS)),
        write: |bench, pick| bench.put_member(pick % ELEMENTS, pick >> 32),
    },
    Case {
        name: "SADD in 1M integers",
        fill: |bench| (0..ELEMENTS).for_each(|n| bench.put_int(n * 3)),
        write: |bench, pick| bench.put_int(pick % (3 * ELEMENTS)),
    },
    Case {
        name: "RPUSH to 1M items",
        fill: |bench| (0..ELEMENTS).for_each(|_| bench.push()),
        write: |bench, _| bench.push(),
    },
];

fn main() {
    println!(
        "| processor time of a write, µs | mean | p50 | p99 | p99.9 | slowest |\n|---|---|---|---|---|---|"
    );
    for case in &CASES {
        let hasher = KeyHasher::new(7);
        let shard = Shard::new(1, 7, hasher).expect("address space");
        let mut bench = Bench { shard, hasher, rng: Rng::new(7) };
        (case.fill)(&mut bench);
        let calm = bench.run(case.write);
        bench.shard.begin_cut(1, Box::new(Batches::default()));
        let cut = bench.run(case.write);
        for (when, taken) in [("no snapshot", calm), ("in a snapshot", cut)] {
            let us = |ns: u64| ns as f64 / 1e3;
            let at = |fraction: f64| us(taken[((taken.len() - 1) as f64 * fraction) as usize]);
            let mean = us(taken.iter().sum()) / taken.len() as f64;
            println!(
                "| {}, {when} | {mean:.2} | {:.2} | {:.2} | {:.2} | {:.1} |",
                case.name,
                at(0.5),
                at(0.99),
                at(0.999),
                at(1.0)
            );
        }
    }
}

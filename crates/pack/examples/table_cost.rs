//! Measures tables: bytes per member and time per operation for the rows the design promises.
//!
//! `cargo run --release -p darter-pack --example table_cost [row|all] [members]` prints a line per row. The row
//! `worst` prints the longest single operations instead. With a phase as third argument (`make`, `insert`,
//! `overwrite`, `get`, `remove`) it does only that to one table, after the insertions it needs; under `valgrind
//! --tool=callgrind` the difference of two phases is the instructions of one (`make` only makes and hashes the keys).

use std::io;
use std::time::Instant;

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, PackKind, Table};
use darter_slab::Arena;

const ROWS: [&str; 6] = ["hash-8d-10d", "set-10", "hash-16-32", "set-8d", "small-hash", "hash-8d-200"];

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let row = args.next().unwrap_or_else(|| "all".into());
    let members = args.next().and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let rows: Vec<&str> = if row == "all" { ROWS.to_vec() } else { vec![row.as_str()] };
    if row == "worst" {
        return worst(members);
    }
    if let Some(phase) = args.next() {
        return one_phase(&row, members, &phase);
    }
    println!(
        "| row | members | RSS B | committed B | used B | ns/insert | ns/overwrite | ns/get | ns/remove |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in rows {
        if row.starts_with("small-hash") {
            small_hashes(members)?;
        } else {
            one_table(row, members)?;
        }
    }
    Ok(())
}

/// Makes the key and value number `n` of a row.
struct Source {
    rng: Rng,
    row: String,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Source {
    fn new(row: &str) -> Source {
        Source { rng: Rng::new(42), row: row.into(), key: Vec::new(), value: Vec::new() }
    }

    fn next(&mut self) {
        self.key.clear();
        self.value.clear();
        let rng = &mut self.rng;
        match self.row.as_str() {
            "hash-8d-10d" => {
                digits(&mut self.key, 10_000_000 + rng.below(90_000_000));
                digits(&mut self.value, 1_000_000_000 + rng.below(9_000_000_000));
            }
            "set-8d" => digits(&mut self.key, 10_000_000 + rng.below(90_000_000)),
            "set-10" => letters(&mut self.key, rng, 10),
            "hash-16-32" => {
                letters(&mut self.key, rng, 16);
                letters(&mut self.value, rng, 32);
            }
            _ => {
                digits(&mut self.key, 10_000_000 + rng.below(90_000_000));
                letters(&mut self.value, rng, 200);
            }
        }
    }
}

fn digits(out: &mut Vec<u8>, mut n: u64) {
    let from = out.len();
    while n > 0 {
        out.push(b'0' + (n % 10) as u8);
        n /= 10;
    }
    out[from..].reverse();
}

fn letters(out: &mut Vec<u8>, rng: &mut Rng, len: usize) {
    while out.len() < len {
        let word = rng.next_u64();
        out.extend((0..8).map(|i| b'a' + (word >> (8 * i) & 15) as u8));
    }
    out.truncate(len);
}

fn one_table(row: &str, members: usize) -> io::Result<()> {
    let hasher = KeyHasher::new(7);
    let hash = |key: &[u8]| hasher.hash(key);
    let mut arena = Arena::new()?;
    let kind = if row.starts_with("set") { PackKind::Keys } else { PackKind::KeysAndValues };
    let mut table = Table::new(kind);
    let before = rss()?;
    let insert = |table: &mut Table, arena: &mut Arena| {
        let mut source = Source::new(row);
        for _ in 0..members {
            source.next();
            let h = hash(&source.key);
            let _ = table.insert(arena, h, &source.key, Item::Bytes(&source.value), FieldExpiry::Keep, &hash);
        }
    };
    let idle = time(members, || {
        let mut source = Source::new(row);
        for _ in 0..members {
            source.next();
            std::hint::black_box(hash(&source.key));
        }
    });
    let inserting = time(members, || insert(&mut table, &mut arena));
    let len = table.len().max(1) as f64;
    let (rss, committed) = ((rss()? - before) as f64, arena.committed_bytes() as f64);
    let overwriting = time(members, || insert(&mut table, &mut arena));
    let getting = time(members, || {
        let mut source = Source::new(row);
        let mut found = 0;
        for _ in 0..members {
            source.next();
            found += usize::from(table.get(&arena, hash(&source.key), &source.key).is_some());
        }
        assert_eq!(found, members);
    });
    let used = table.arena_bytes() as f64;
    let removing = time(members, || {
        let mut source = Source::new(row);
        for _ in 0..members {
            source.next();
            table.remove(&mut arena, hash(&source.key), &source.key);
        }
    });
    assert_eq!((table.len(), arena.used_bytes()), (0, 0));
    println!(
        "| {row} | {len} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} |",
        rss / len,
        committed / len,
        used / len,
        inserting - idle,
        overwriting - idle,
        getting - idle,
        removing - idle,
    );
    Ok(())
}

/// The insertions, then one phase, without clocks or output.
fn one_phase(row: &str, members: usize, phase: &str) -> io::Result<()> {
    let hasher = KeyHasher::new(7);
    let hash = |key: &[u8]| hasher.hash(key);
    let mut arena = Arena::new()?;
    let kind = if row.starts_with("set") { PackKind::Keys } else { PackKind::KeysAndValues };
    let mut table = Table::new(kind);
    let phases: &[&str] = match phase {
        "make" => &["make"],
        "insert" => &["insert"],
        "make-twice" => &["insert", "make"],
        "overwrite" => &["insert", "insert"],
        "get" => &["insert", "get"],
        _ => &["insert", "remove"],
    };
    for &phase in phases {
        let mut source = Source::new(row);
        for _ in 0..members {
            source.next();
            let h = std::hint::black_box(hash(&source.key));
            match phase {
                "make" => {}
                "insert" => {
                    let value = Item::Bytes(&source.value);
                    let _ = table.insert(&mut arena, h, &source.key, value, FieldExpiry::Keep, &hash);
                }
                "get" => {
                    let entry = table.get(&arena, h, &source.key);
                    std::hint::black_box(entry.map(|e| e.value()));
                }
                _ => {
                    std::hint::black_box(table.remove(&mut arena, h, &source.key));
                }
            }
        }
    }
    Ok(())
}

/// The longest single insertions and removals while a set grows to `members` and is emptied again. The same sequence
/// runs several times and each operation counts with its shortest time, because a single run also measures other load
/// of the machine.
fn worst(members: usize) -> io::Result<()> {
    let hasher = KeyHasher::new(7);
    let hash = |key: &[u8]| hasher.hash(key);
    let mut shortest = vec![u32::MAX; 2 * members];
    for _ in 0..RUNS {
        let (mut arena, mut table) = (Arena::new()?, Table::new(PackKind::Keys));
        let (inserts, removes) = shortest.split_at_mut(members);
        let mut source = Source::new("set-10");
        for shortest in inserts {
            source.next();
            let h = hash(&source.key);
            let start = thread_ns();
            let _ = table.insert(&mut arena, h, &source.key, Item::Bytes(b""), FieldExpiry::Keep, &hash);
            *shortest = (*shortest).min((thread_ns() - start) as u32);
        }
        let mut source = Source::new("set-10");
        for shortest in removes {
            source.next();
            let h = hash(&source.key);
            let start = thread_ns();
            table.remove(&mut arena, h, &source.key);
            *shortest = (*shortest).min((thread_ns() - start) as u32);
        }
    }
    for (name, times) in ["insert", "remove"].into_iter().zip(shortest.chunks_mut(members)) {
        times.sort_unstable();
        println!("{name}: median {} ns, longest {:?} ns", times[members / 2], &times[members - 8..]);
    }
    Ok(())
}

/// Passes over the sequence whose longest operations are wanted.
const RUNS: usize = 4;

/// Hashes of five short fields; a "member" is a hash.
fn small_hashes(members: usize) -> io::Result<()> {
    let hasher = KeyHasher::new(7);
    let hash = |key: &[u8]| hasher.hash(key);
    let mut arena = Arena::new()?;
    let before = rss()?;
    let mut tables: Vec<Table> = Vec::with_capacity(members);
    let mut source = Source::new("hash-8d-10d");
    let inserting = time(members, || {
        for _ in 0..members {
            let mut table = Table::new(PackKind::KeysAndValues);
            for field in [&b"id"[..], b"name", b"age", b"city", b"score"] {
                source.next();
                let value = if field.len() == 4 { &source.key[..6] } else { &source.value[..4] };
                let _ = table.insert(
                    &mut arena,
                    hash(field),
                    field,
                    Item::Bytes(value),
                    FieldExpiry::Keep,
                    &hash,
                );
            }
            tables.push(table);
        }
    });
    let len = members.max(1) as f64;
    println!(
        "| small-hash | {members} | {:.2} | {:.2} | {:.2} | {inserting:.0} | | | |",
        (rss()? - before) as f64 / len,
        arena.committed_bytes() as f64 / len,
        arena.used_bytes() as f64 / len,
    );
    Ok(())
}

/// Processor time of this thread, without that of other processes.
fn thread_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux and `now` is a valid place for its answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds per member.
fn time(members: usize, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / members as f64
}

fn rss() -> io::Result<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|p| p.parse::<usize>().ok());
    Ok(pages.unwrap_or(0) * 4096)
}

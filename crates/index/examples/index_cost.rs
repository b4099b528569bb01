//! Measures the index: bytes per entry at every size, and instructions per operation.
//!
//! `index_cost memory` prints bytes per entry; `fill` the entries of a segment when it first splits; `time`
//! nanoseconds per operation. `find`, `miss`, `insert`, `remove`, `scan`, `prefetch` run a million of one operation
//! (less the loop: `nothing`) for `valgrind --tool=callgrind --toggle-collect='index_cost::measured_*'
//! --callgrind-out-file=/dev/null`.

use darter_index::{Index, ScanPosition};
use darter_slab::Handle;
use std::hint::black_box;
use std::time::Instant;

const OPS: u32 = 1_000_000;
const INDEXES: usize = 16;

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn hash_of(h: Handle) -> u64 {
    mix(u64::from(h.raw()).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn shard(hash: u64) -> usize {
    (hash >> 8) as usize % INDEXES
}

fn add(indexes: &mut [Index], n: u32) {
    let h = Handle::from_raw(n);
    let hash = hash_of(h);
    indexes[shard(hash)].insert(hash, h, hash_of);
}

fn filled(count: u32) -> Vec<Index> {
    let mut indexes: Vec<Index> = (0..INDEXES).map(|_| Index::new()).collect();
    (1..=count).for_each(|n| add(&mut indexes, n));
    indexes
}

#[inline(never)]
fn measured_insert(indexes: &mut [Index], from: u32) {
    (from..from + OPS).for_each(|n| add(indexes, n));
}

#[inline(never)]
fn measured_find(indexes: &[Index], from: u32) -> usize {
    let is_there = |n: &u32| {
        let h = Handle::from_raw(*n);
        let hash = hash_of(h);
        indexes[shard(hash)].find(hash, |other| other == h).is_some()
    };
    (from..from + OPS).filter(is_there).count()
}

#[inline(never)]
fn measured_prefetch(indexes: &[Index], from: u32) {
    for n in from..from + OPS {
        let hash = hash_of(Handle::from_raw(n));
        indexes[shard(hash)].prefetch(hash);
    }
}

#[inline(never)]
fn measured_nothing(from: u32) {
    for n in from..from + OPS {
        let hash = hash_of(Handle::from_raw(n));
        black_box((shard(hash), hash));
    }
}

#[inline(never)]
fn measured_remove(indexes: &mut [Index], from: u32) {
    for n in from..from + OPS {
        let h = Handle::from_raw(n);
        let hash = hash_of(h);
        let index = &mut indexes[shard(hash)];
        if let Some(slot) = index.find(hash, |other| other == h) {
            index.remove(slot, hash);
        }
    }
}

#[inline(never)]
fn measured_scan(indexes: &[Index]) -> usize {
    let mut emitted = 0;
    for index in indexes {
        let mut at = Some(ScanPosition::START);
        while let Some(position) = at {
            at = index.scan(position, hash_of, |_| emitted += 1);
        }
    }
    emitted
}

fn bytes_per_entry(indexes: &[Index]) -> f64 {
    let len: usize = indexes.iter().map(Index::len).sum();
    indexes.iter().map(Index::bytes).sum::<usize>() as f64 / len as f64
}

fn print_memory() {
    let mut indexes = filled(0);
    let mut at: u32 = 0;
    let mut next = 10.0_f64;
    while at < 20_000_000 {
        (at + 1..=next as u32).for_each(|n| add(&mut indexes, n));
        at = next as u32;
        let segments: usize = indexes.iter().map(Index::bytes).sum();
        println!("{at:>9} entries: {:6.2} B/entry ({segments} bytes)", bytes_per_entry(&indexes));
        next *= if next < 500_000.0 { 10.0 } else { 1.26 };
    }
}

fn print_fill() {
    let mut fills: Vec<usize> = (0..1000_u64)
        .map(|seed| {
            let mut index = Index::new();
            let hash = |h: Handle| mix(hash_of(h) ^ seed << 32);
            for n in 1.. {
                let h = Handle::from_raw(n);
                index.insert(hash(h), h, hash);
                if index.bytes() > 4096 + 64 {
                    return index.len() - 1;
                }
            }
            0
        })
        .collect();
    fills.sort_unstable();
    let mean = fills.iter().sum::<usize>() as f64 / fills.len() as f64;
    println!(
        "entries of 640 at the first split: mean {:.3} min {:.3}",
        mean / 640.0,
        fills[0] as f64 / 640.0
    );
}

fn print_time() {
    let time = |name: &str, run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        println!("{name}: {:.1} ns", start.elapsed().as_nanos() as f64 / f64::from(OPS));
    };
    let mut indexes = filled(OPS);
    time("find", &mut || assert_eq!(measured_find(&indexes, 1), OPS as usize));
    time("miss", &mut || assert_eq!(measured_find(&indexes, OPS * 3), 0));
    time("insert", &mut || measured_insert(&mut indexes, OPS + 1));
    time("scan per million", &mut || assert_eq!(measured_scan(&indexes), 2 * OPS as usize));
    time("remove", &mut || measured_remove(&mut indexes, 1));
}

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    match mode.as_str() {
        "memory" => print_memory(),
        "fill" => print_fill(),
        "time" => print_time(),
        "find" => assert_eq!(measured_find(&filled(OPS), 1), OPS as usize),
        "miss" => assert_eq!(measured_find(&filled(OPS), 2 * OPS), 0),
        "insert" => measured_insert(&mut filled(OPS), OPS + 1),
        "remove" => measured_remove(&mut filled(OPS), 1),
        "scan" => assert_eq!(measured_scan(&filled(OPS)), OPS as usize),
        "prefetch" => measured_prefetch(&filled(OPS), 1),
        "nothing" => measured_nothing(1),
        _ => eprintln!("index_cost memory|fill|time|find|miss|insert|remove|scan|prefetch|nothing"),
    }
}

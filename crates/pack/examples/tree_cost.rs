//! Measures the ordered types: bytes per member and time per operation.
//!
//! `cargo run --release -p darter-pack --example tree_cost [row|all] [members]` prints a line per row and operation.
//! Each operation is a function of its own that is never inlined, so that `valgrind --tool=callgrind` and
//! `callgrind_annotate --inclusive=yes` give its instructions. The row `worst` prints the longest single operations
//! instead.

use std::hint::black_box;
use std::time::Instant;

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_pack::entry::Item;
use darter_pack::tree::list::{List, ListEnd};
use darter_pack::tree::{Direction, IntSet, StreamId, StreamLog, Zset};
use darter_slab::Arena;

const ROWS: [&str; 8] =
    ["zset", "zset-float", "zset-text", "zset-rising", "list", "intset", "intset-rising", "stream"];

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let row = args.next().unwrap_or_else(|| "all".into());
    let members: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    if row == "worst" {
        return worst(members);
    }
    let rows: Vec<&str> = if row == "all" { ROWS.to_vec() } else { vec![row.as_str()] };
    println!("| row | members | B/member | committed B | operations, ns each |");
    println!("|---|---|---|---|---|");
    for row in rows {
        let mut arena = Arena::new()?;
        match row {
            "list" => list(&mut arena, members),
            "intset" | "intset-rising" => intset(row, &mut arena, members),
            "stream" => stream(&mut arena, members),
            _ => zset(row, &mut arena, members),
        }
    }
    Ok(())
}

/// Times `act`, which does `count` operations.
fn timed(name: &str, count: u64, act: impl FnOnce()) -> String {
    let start = Instant::now();
    act();
    format!("{name} {:.0}", start.elapsed().as_nanos() as f64 / count.max(1) as f64)
}

fn report(row: &str, len: u64, used: usize, committed: usize, times: &[String]) {
    let each = |bytes: usize| bytes as f64 / len as f64;
    println!("| {row} | {len} | {:.2} | {:.2} | {} |", each(used), each(committed), times.join(", "));
}

/// Members as the row names them: eight digits, or sixteen bytes of text.
fn members_of(row: &str, count: u64) -> Vec<(Vec<u8>, f64)> {
    let mut rng = Rng::new(42);
    let mut made: Vec<(Vec<u8>, f64)> = (0..count)
        .map(|_| {
            let n = 10_000_000 + rng.below(90_000_000);
            let member = if row == "zset-text" { format!("player:{n:09}") } else { n.to_string() };
            let score = match row {
                "zset-float" => rng.unit_f64() * 1e6,
                _ => 1_700_000_000.0 + rng.below(100_000_000) as f64,
            };
            (member.into_bytes(), score)
        })
        .collect();
    if row == "zset-rising" {
        made.sort_by(|a, b| a.1.total_cmp(&b.1));
    }
    made
}

fn zset(row: &str, arena: &mut Arena, members: u64) {
    let hasher = KeyHasher::new(7);
    let made = members_of(row, members);
    let mut set = Zset::new();
    let mut times = vec![timed("insert", members, || zset_insert(&mut set, arena, &hasher, &made))];
    let (len, used, committed) = (set.len(), set.bytes(), arena.committed_bytes());
    times.push(timed("score", members, || zset_score(&set, arena, &hasher, &made)));
    times.push(timed("rank", members, || zset_rank(&set, arena, &hasher, &made)));
    times.push(timed("step", members, || zset_step(&mut set, arena, &hasher, &made)));
    times.push(timed("move", members, || zset_move(&mut set, arena, &hasher, &made)));
    times.push(timed("iterate", members, || zset_iterate(&set, arena)));
    times.push(timed("remove", members, || zset_remove(&mut set, arena, &hasher, &made)));
    report(row, len, used, committed, &times);
}

#[inline(never)]
fn zset_insert(set: &mut Zset, arena: &mut Arena, hasher: &KeyHasher, made: &[(Vec<u8>, f64)]) {
    for (member, score) in made {
        assert!(set.insert(arena, hasher, Item::of(member), *score).is_ok());
    }
}

#[inline(never)]
fn zset_score(set: &Zset, arena: &Arena, hasher: &KeyHasher, made: &[(Vec<u8>, f64)]) {
    for (member, _) in made {
        assert!(set.score(arena, hasher, Item::of(member)).is_some());
    }
}

#[inline(never)]
fn zset_rank(set: &Zset, arena: &Arena, hasher: &KeyHasher, made: &[(Vec<u8>, f64)]) {
    for (member, _) in made {
        assert!(set.rank(arena, hasher, Item::of(member)).is_some());
    }
}

#[inline(never)]
fn zset_step(set: &mut Zset, arena: &mut Arena, hasher: &KeyHasher, made: &[(Vec<u8>, f64)]) {
    for (member, _) in made {
        assert!(set.update(arena, hasher, Item::of(member), |old| old.map(|s| s + 1.0)).is_ok());
    }
}

#[inline(never)]
fn zset_move(set: &mut Zset, arena: &mut Arena, hasher: &KeyHasher, made: &[(Vec<u8>, f64)]) {
    for ((member, _), (_, score)) in made.iter().zip(made.iter().rev()) {
        assert!(set.insert(arena, hasher, Item::of(member), *score).is_ok());
    }
}

#[inline(never)]
fn zset_iterate(set: &Zset, arena: &Arena) {
    let sum: f64 = set.iter(arena, 0, Direction::Up).map(|(_, score)| score).sum();
    black_box(sum);
}

#[inline(never)]
fn zset_remove(set: &mut Zset, arena: &mut Arena, hasher: &KeyHasher, made: &[(Vec<u8>, f64)]) {
    for (member, _) in made {
        black_box(set.remove(arena, hasher, Item::of(member)));
    }
    assert_eq!((set.len(), arena.used_bytes()), (0, 0));
}

fn list(arena: &mut Arena, members: u64) {
    let mut rng = Rng::new(42);
    let made: Vec<i64> = (0..members).map(|_| 1_000_000_000 + rng.below(9_000_000_000) as i64).collect();
    let mut list = List::new();
    let mut times = vec![timed("push back", members, || list_push(&mut list, arena, &made, ListEnd::Back))];
    let (len, used, committed) = (list.len(), list.bytes(), arena.committed_bytes());
    times.push(timed("index", members, || list_index(&list, arena, members)));
    times.push(timed("iterate", members, || list_iterate(&list, arena)));
    times.push(timed("pop back", members, || list_pop(&mut list, arena, ListEnd::Back)));
    times.push(timed("push front", members, || list_push(&mut list, arena, &made, ListEnd::Front)));
    times.push(timed("pop front", members, || list_pop(&mut list, arena, ListEnd::Front)));
    report("list", len, used, committed, &times);
    let made: Vec<String> = made.iter().map(|n| format!("item:{n:x}")).collect();
    let mut times = vec![timed("push back", members, || list_push_text(&mut list, arena, &made))];
    let (len, used, committed) = (list.len(), list.bytes(), arena.committed_bytes());
    times.push(timed("index", members, || list_index(&list, arena, members)));
    times.push(timed("pop front", members, || list_pop(&mut list, arena, ListEnd::Front)));
    report("list-text", len, used, committed, &times);
}

#[inline(never)]
fn list_push(list: &mut List, arena: &mut Arena, made: &[i64], end: ListEnd) {
    for &n in made {
        assert!(list.push(arena, end, Item::Int(n)).is_ok());
    }
}

#[inline(never)]
fn list_push_text(list: &mut List, arena: &mut Arena, made: &[String]) {
    for text in made {
        assert!(list.push(arena, ListEnd::Back, Item::Bytes(text.as_bytes())).is_ok());
    }
}

#[inline(never)]
fn list_index(list: &List, arena: &Arena, members: u64) {
    let mut rng = Rng::new(1);
    for _ in 0..members {
        black_box(list.get(arena, rng.below(members)));
    }
}

#[inline(never)]
fn list_iterate(list: &List, arena: &Arena) {
    black_box(list.iter(arena, 0, ListEnd::Back).filter(|item| matches!(item, Item::Int(7))).count());
}

#[inline(never)]
fn list_pop(list: &mut List, arena: &mut Arena, end: ListEnd) {
    while list.pop(arena, end, |item| {
        black_box(item);
    }) {}
}

fn intset(row: &str, arena: &mut Arena, members: u64) {
    let mut rng = Rng::new(42);
    let made: Vec<i64> = match row {
        "intset" => (0..members).map(|_| 10_000_000 + rng.below(90_000_000) as i64).collect(),
        _ => (0..members as i64).collect(),
    };
    let mut set = IntSet::new();
    let mut times = vec![timed("insert", members, || intset_insert(&mut set, arena, &made))];
    let (len, used, committed) = (set.len(), set.bytes(), arena.committed_bytes());
    times.push(timed("contains", members, || intset_contains(&set, arena, &made)));
    times.push(timed("iterate", members, || intset_iterate(&set, arena)));
    times.push(timed("remove", members, || intset_remove(&mut set, arena, &made)));
    report(row, len, used, committed, &times);
}

#[inline(never)]
fn intset_insert(set: &mut IntSet, arena: &mut Arena, made: &[i64]) {
    for &n in made {
        assert!(set.insert(arena, n).is_ok());
    }
}

#[inline(never)]
fn intset_contains(set: &IntSet, arena: &Arena, made: &[i64]) {
    for &n in made {
        assert!(set.contains(arena, n));
    }
}

#[inline(never)]
fn intset_iterate(set: &IntSet, arena: &Arena) {
    black_box(set.iter(arena, 0, Direction::Up).fold(0, |a: i64, b| a ^ b));
}

#[inline(never)]
fn intset_remove(set: &mut IntSet, arena: &mut Arena, made: &[i64]) {
    for &n in made {
        black_box(set.remove(arena, n));
    }
    assert_eq!((set.len(), arena.used_bytes()), (0, 0));
}

fn stream(arena: &mut Arena, members: u64) {
    let mut log = StreamLog::new();
    let mut times = vec![timed("append", members, || stream_append(&mut log, arena, members))];
    let (len, used, committed) = (log.len(), log.bytes(), arena.committed_bytes());
    times.push(timed("iterate", members, || stream_iterate(&log, arena)));
    times.push(timed("trim", members, || stream_trim(&mut log, arena)));
    report("stream", len, used, committed, &times);
}

#[inline(never)]
fn stream_append(log: &mut StreamLog, arena: &mut Arena, members: u64) {
    for n in 0..members {
        let pairs = [(&b"sensor"[..], &b"kitchen"[..]), (b"temperature", b"21.5")];
        let id = StreamId { ms: 1_700_000_000_000 + n / 3, seq: n % 3 };
        assert!(log.append(arena, id, pairs.into_iter()).is_ok());
    }
}

#[inline(never)]
fn stream_iterate(log: &StreamLog, arena: &Arena) {
    black_box(log.iter(arena, 0, Direction::Up).flat_map(|entry| entry.fields).count());
}

#[inline(never)]
fn stream_trim(log: &mut StreamLog, arena: &mut Arena) {
    while log.remove_first(arena, 1) == 1 {}
}

/// The longest single operations of a sorted set, a list and a set of integers that grow to `members` and shrink
/// again.
///
/// The same operations run several times and each counts with its shortest time, so that load from other processes
/// does not count.
fn worst(members: u64) -> std::io::Result<()> {
    let hasher = KeyHasher::new(7);
    let mut shortest = [const { Vec::new() }; 4];
    for _ in 0..RUNS {
        let mut arena = Arena::new()?;
        let mut set = Zset::new();
        let mut rng = Rng::new(1);
        let made: Vec<(i64, f64)> =
            (0..members).map(|_| (rng.next_u64() as i64 >> 20, rng.below(1 << 40) as f64)).collect();
        each(&mut shortest[0], members, |n| {
            let (member, score) = made[n];
            assert!(set.insert(&mut arena, &hasher, Item::Int(member), score).is_ok());
        });
        each(&mut shortest[1], members, |n| {
            black_box(set.remove(&mut arena, &hasher, Item::Int(made[n].0)));
        });
        let mut list = List::new();
        each(&mut shortest[2], members, |n| {
            assert!(list.push(&mut arena, ListEnd::Back, Item::Int(made[n].0)).is_ok())
        });
        let mut set = IntSet::new();
        each(&mut shortest[3], members, |n| assert!(set.insert(&mut arena, made[n].0).is_ok()));
    }
    for (what, times) in
        ["zset insert", "zset remove", "list push", "intset insert"].iter().zip(&mut shortest)
    {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{what}: median {} ns, 99.9 % {} ns, longest {:?} ns",
            at(0.5),
            at(0.999),
            &times[times.len() - 4..]
        );
    }
    Ok(())
}

/// Times `act` for each number below `count`, and keeps the shorter of this and what `shortest` has.
fn each(shortest: &mut Vec<u32>, count: u64, mut act: impl FnMut(usize)) {
    shortest.resize(count as usize, u32::MAX);
    for (n, kept) in shortest.iter_mut().enumerate() {
        let start = Instant::now();
        act(n);
        *kept = (*kept).min(start.elapsed().as_nanos() as u32);
    }
}

/// Number of times the operations of [`worst`] run.
const RUNS: usize = 4;

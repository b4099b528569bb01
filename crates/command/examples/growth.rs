//! The slowest single insert while a collection grows from empty: command bodies run here without a server, each
//! timed.
//!
//! `growth [MEMBERS [ROUNDS [ONLY]]]` (1,000,000, 3 and all) grows a set of integers, a set of texts, a hash, a
//! sorted set, a list and a stream, by one member a command, in the same way each round. It takes the least of each
//! insert's times, because other load on the machine does not hit the same insert in every round. Times are processor
//! time of the thread, including the kernel's work for it (fresh pages). Wall times are printed beside them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use darter_base::hash::KeyHasher;
use darter_command::{Ctx, DataCommand, Env, FAMILIES};
use darter_store::Shard;
use darter_txn::{Router, ShardPart, ShardSet};
use darter_wire::{OwnedArgs, Reply};

/// Inserts faster than this in some round are ignored.
const NOTED_NANOS: u64 = 5_000;
const NOW_MS: u64 = 1_800_000_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).map(|arg| arg.parse::<u64>().expect("a number"));
    let (members, rounds) = (number(0).unwrap_or(1_000_000), number(1).unwrap_or(3));
    let only = args.get(2).map_or("", String::as_str);
    println!("{members} inserts each, least of {rounds} rounds, in us of the thread");
    println!(
        "{:<14} {:>8} {:>8} {:>8} {:>10} {:>12} {:>12}",
        "", "> 20", "> 50", "> 100", "worst", "at member", "worst wall"
    );
    for (name, command, words) in KINDS.iter().filter(|(name, ..)| name.contains(only)) {
        let command = FAMILIES.iter().flat_map(|family| family.iter()).find(|row| row.spec.name == *command);
        let command = command.expect("a command");
        let mut slow = grow(command, *words, members);
        for _ in 1..rounds {
            let again = grow(command, *words, members);
            slow.retain(|at, times| {
                again.get(at).inspect(|least| *times = [0, 1].map(|i| times[i].min(least[i]))).is_some()
            });
        }
        let over = |us: u64| slow.values().filter(|times| times[0] > us * 1000).count();
        let worst = slow.iter().max_by_key(|(_, times)| times[0]);
        let (at, worst) = worst.map_or((0, 0), |(at, times)| (*at, times[0]));
        let wall = slow.values().map(|times| times[1]).max().unwrap_or(0);
        let (worst, wall) = (worst as f64 / 1000.0, wall as f64 / 1000.0);
        println!(
            "{name:<14} {:>8} {:>8} {:>8} {worst:>10.1} {at:>12} {wall:>12.1}",
            over(20),
            over(50),
            over(100)
        );
    }
}

/// The words of the command that inserts member `n`.
type Words = fn(u64) -> Vec<Vec<u8>>;

const KINDS: &[(&str, &str, Words)] = &[
    ("set of ints", "sadd", |n| words(&["sadd", "k", &(10_000_000 + mixed(n) % 90_000_000).to_string()])),
    ("set of texts", "sadd", |n| words(&["sadd", "k", &format!("member:{:x}", mixed(n))])),
    ("hash", "hset", |n| words(&["hset", "k", &format!("field:{:x}", mixed(n)), &n.to_string()])),
    ("sorted set", "zadd", |n| words(&["zadd", "k", &(mixed(n) >> 32).to_string(), &format!("m{n}")])),
    ("list", "rpush", |n| words(&["rpush", "k", &format!("item:{n}")])),
    ("stream", "xadd", |n| words(&["xadd", "k", &format!("{}-0", n + 1), "name", &n.to_string()])),
];

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn mixed(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ z >> 27
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The inserts that took long, by number, with their nanoseconds of the thread and of the wall.
fn grow(command: &DataCommand, words: Words, members: u64) -> HashMap<u64, [u64; 2]> {
    let hasher = KeyHasher::new(1);
    let mut part = ShardPart::new(Shard::new(1, 0, hasher).expect("address space"), hasher);
    let (router, env) = (Router::new(hasher, 2), Env::default());
    let shard = router.shard_of(router.key(b"k").hash);
    let (mut out, mut slow) = (Vec::new(), HashMap::new());
    for n in 0..members {
        let words = words(n);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let owned = OwnedArgs::from_slices(&words);
        out.clear();
        let (began, began_thread) = (Instant::now(), thread_time());
        let mut ctx = Ctx::new(ShardSet::one(&router, shard, &mut part), &env, 0, 1, NOW_MS, None);
        let done = (command.run)(&mut ctx, owned.args(), &mut Reply::new(&mut out, false));
        let times = [thread_time() - began_thread, began.elapsed()].map(|time| time.as_nanos() as u64);
        assert!(done.is_ok(), "insert {n}");
        if times[0] > NOTED_NANOS {
            slow.insert(n, times);
        }
    }
    slow
}

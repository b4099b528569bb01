//! The slowest single insert while a collection grows from nothing: command bodies run here without a server, each timed.
//!
//! `growth [MEMBERS [ROUNDS]]` (1,000,000 and 3) grows a set of integers, a set of texts, a hash, a sorted set, a list and
//! a stream by one member a command, in the same way each round, and takes the least of each insert's times: what the
//! machine does beside (other processes, interrupts) does not hit the same insert in every round.

use std::collections::HashMap;
use std::time::Instant;

use darter_base::hash::KeyHasher;
use darter_command::{Ctx, DataCommand, Env, FAMILIES};
use darter_store::Shard;
use darter_txn::{Part, Router, ShardSet};
use darter_wire::{OwnedArgs, Reply};

/// Inserts faster than this in some round are not looked at.
const NOTED_NANOS: u64 = 5_000;
const NOW_MS: u64 = 1_800_000_000_000;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let (members, rounds) = (args.next().unwrap_or(1_000_000), args.next().unwrap_or(3));
    println!("{members} inserts each, least of {rounds} rounds, in us");
    println!("{:<14} {:>8} {:>8} {:>8} {:>10} at member", "", "> 20", "> 50", "> 100", "worst");
    for (name, command, words) in KINDS {
        let command = FAMILIES.iter().flat_map(|family| family.iter()).find(|row| row.spec.name == *command);
        let command = command.expect("a command");
        let mut slow = grow(command, *words, members);
        for _ in 1..rounds {
            let again = grow(command, *words, members);
            slow.retain(|at, nanos| again.get(at).inspect(|least| *nanos = (*nanos).min(**least)).is_some());
        }
        let over = |us: u64| slow.values().filter(|nanos| **nanos > us * 1000).count();
        let (at, worst) =
            slow.iter().max_by_key(|(_, nanos)| **nanos).map_or((0, 0), |(at, nanos)| (*at, *nanos));
        let (counts, worst) = ([over(20), over(50), over(100)], worst as f64 / 1000.0);
        println!("{name:<14} {:>8} {:>8} {:>8} {worst:>10.1} {at}", counts[0], counts[1], counts[2]);
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

/// The inserts that took long, by number, with their nanoseconds.
fn grow(command: &DataCommand, words: Words, members: u64) -> HashMap<u64, u64> {
    let hasher = KeyHasher::new(1);
    let mut part = Part::new(Shard::new(1, 0, hasher).expect("address space"));
    let (router, env) = (Router::new(hasher, 2), Env::default());
    let shard = router.shard_of(router.key(b"k").hash);
    let (mut out, mut slow) = (Vec::new(), HashMap::new());
    for n in 0..members {
        let words = words(n);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let owned = OwnedArgs::from_slices(&words);
        out.clear();
        let began = Instant::now();
        let mut ctx = Ctx::new(ShardSet::one(&router, shard, &mut part), &env, 0, 1, NOW_MS, None);
        let done = (command.run)(&mut ctx, owned.args(), &mut Reply::new(&mut out, false));
        let nanos = began.elapsed().as_nanos() as u64;
        assert!(done.is_ok(), "insert {n}");
        if nanos > NOTED_NANOS {
            slow.insert(n, nanos);
        }
    }
    slow
}

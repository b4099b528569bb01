use super::*;
use crate::change::Class;
use crate::record::Expiry;
use crate::{Keyed, Shard};
use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;

const NOW: u64 = 1_700_000_000_000;
const EFFORT: Effort = Effort { keys_max: 32, lines_max: 64 };

fn shard() -> Shard {
    Shard::new(2, 1, KeyHasher::new(5)).expect("address space")
}

fn put(shard: &mut Shard, db: usize, name: &str, len: usize, expiry: Expiry) {
    let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
    Keyed::find(shard, db, key, NOW).put_text(&vec![7; len], expiry).expect("room");
}

fn has(shard: &mut Shard, db: usize, name: &str) -> bool {
    let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
    Keyed::find(shard, db, key, NOW).exists()
}

/// Evicts until a whole round finds nothing; returns the evicted keys.
fn evict_all(shard: &mut Shard, rule: EvictionRule) -> usize {
    let mut keys = 0;
    loop {
        let calls = shard.evict_calls_max();
        let round: usize = (0..calls).map(|_| shard.evict(rule, NOW, usize::MAX, 10).keys).sum();
        keys += round;
        if round == 0 {
            return keys;
        }
    }
}

#[test]
fn every_rule_evicts_what_it_may_and_nothing_else() {
    for order in [EvictionOrder::LeastUsed, EvictionOrder::Random, EvictionOrder::SoonestExpiry] {
        for only_expiring in [false, true] {
            let mut shard = shard();
            for n in 0..3000 {
                let expiry = if n % 3 == 0 { Expiry::At(NOW + 1000 + n) } else { Expiry::None };
                put(&mut shard, n as usize % 2, &format!("k{n}"), n as usize % 90, expiry);
            }
            for n in [3, 4, 5] {
                let name = format!("k{n}");
                let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
                assert!(Keyed::find(&mut shard, n % 2, key, NOW).set_sticky(true));
            }
            let went = evict_all(&mut shard, EvictionRule { order, only_expiring });
            assert_eq!(went, if only_expiring { 999 } else { 2997 }, "{order:?} {only_expiring}");
            assert_eq!(shard.keys_len() + went, 3000);
            assert_eq!(shard.counters.evicted, went as u64);
            for n in [3, 4, 5] {
                assert!(has(&mut shard, n % 2, &format!("k{n}")));
            }
        }
    }
}

#[test]
fn the_dead_go_first_and_the_soonest_before_the_others() {
    let mut shard = shard();
    for n in 0..1000 {
        put(&mut shard, 0, &format!("k{n}"), 20, Expiry::At(NOW + 1000 * n));
    }
    let rule = EvictionRule { order: EvictionOrder::SoonestExpiry, only_expiring: true };
    let went: usize = (0..100).map(|_| shard.evict(rule, NOW + 50_000, usize::MAX, 5).keys).sum();
    assert!(went == 500, "{went}");
    assert!(shard.counters.expired >= 45, "{:?}", shard.counters);
    let early = (0..500).filter(|n| has(&mut shard, 0, &format!("k{n}"))).count();
    let late = (500..1000).filter(|n| has(&mut shard, 0, &format!("k{n}"))).count();
    assert!(late > 3 * early, "{early} early and {late} late keys are left");
}

#[test]
fn memory_stays_at_its_limit_whatever_the_sizes_are() {
    let cases = [(1, [64, 64], 0), (2, [64, 65_536], 0), (3, [16, 300], 0), (4, [4000, 9000], 0)];
    for (seed, sizes, batch) in cases.into_iter().chain([(5, [64, 65_536], 4096), (6, [16, 300], 4096)]) {
        let mut shard = shard();
        let mut rng = Rng::new(seed);
        let limit = 12 << 20;
        let rule = EvictionRule { order: EvictionOrder::LeastUsed, only_expiring: false };
        let (mut worst, mut written, mut paid) = (0, 0, 0);
        let mut n = 0;
        while written < 6 * limit {
            // Twice the sizes change.
            let scale = if written > 4 * limit { 8 } else { 1 };
            let len = (sizes[0] + rng.below((sizes[1] - sizes[0] + 1) as u64) as usize) / scale;
            put(&mut shard, 0, &format!("key:{n}"), len, Expiry::None);
            n += 1;
            written += len + 30;
            if !shard.is_over_quota() && n > 1 {
                continue;
            }
            let over = shard.memory_bytes().saturating_sub(limit);
            worst = worst.max(over);
            if shard.memory_bytes() + limit / 100 < limit {
                shard.allow_growth(32 << 10);
                continue;
            }
            shard.evict_over_quota(Some(rule), over, NOW, EFFORT);
            paid += 1;
            let left = shard.memory_bytes().saturating_sub(limit);
            if left > 8 * batch { shard.allow_nothing() } else { shard.hold_growth(batch) }
        }
        let (used, memory) = (shard.used_bytes(), shard.memory_bytes());
        eprintln!(
            "sizes {sizes:?}: {worst} over, {used} + {} of {memory}, {:?}",
            shard.index_bytes(),
            shard.tidied
        );
        // A dozen keys go together.
        assert!(batch == 0 || sizes[1] > 300 || paid < n / 6, "{paid} times paid for {n} keys");
        assert!(worst < limit / 25, "sizes {sizes:?}: {worst} bytes over");
        assert!(used + shard.index_bytes() > memory * 8 / 10, "sizes {sizes:?}: {used} of {memory} used");
    }
}

#[test]
fn the_shortest_ways_to_read_and_to_set_count_one_use_each() {
    const SET: Event = Event::new(Class::STRING, "set");
    let mut shard = shard();
    let hash = |shard: &Shard, name: &str| shard.hasher.hash(name.as_bytes());
    let hits = |shard: &mut Shard, name: &str| {
        let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
        Keyed::find(shard, 0, key, NOW).eviction_rank() & 3
    };
    for counts in [false, true] {
        shard.remember_uses(counts);
        // Plain strings, enough that some are away from their home line; a packed one; one with a deadline.
        (0..3000).for_each(|n| put(&mut shard, 0, &format!("key:{n:06}"), 20, Expiry::None));
        put(&mut shard, 0, "packed", 600, Expiry::None);
        put(&mut shard, 0, "mortal", 20, Expiry::At(NOW + 1000));
        let names = (0..3000).map(|n| format!("key:{n:06}")).chain(["packed".into(), "mortal".into()]);
        for name in names {
            let key = Key { bytes: name.as_bytes(), hash: hash(&shard, &name) };
            let before = hits(&mut shard, &name);
            // Some are refused by `serve`.
            let takes = |value: &[u8]| value.len() == 20 && !name.ends_with('7');
            if let Some(look) = shard.read_plain(0, key, takes)
                && shard.read_found(0, key, look).is_none()
            {
                assert!(shard.read_looked(0, key, look, NOW).expect("a string").is_some());
            }
            assert_eq!(hits(&mut shard, &name), before + u8::from(counts), "{name} is read, {counts}");
            // In place, in place with another length, and with another block.
            for (nth, len) in [(2, 20), (3, 21)] {
                let look = shard.look(0, key);
                if !shard.overwrite_plain(0, key, look, &vec![7; len], SET) {
                    shard.set_looked(0, key, look, &vec![7; len], NOW, SET).expect("room");
                }
                let wanted = if counts { before + nth } else { before };
                assert_eq!(hits(&mut shard, &name), wanted.min(3), "{name} is set to {len}, {counts}");
            }
        }
    }
}

#[test]
fn a_small_shard_takes_little_for_eviction_and_nothing_when_all_of_it_has_gone() {
    let mut shard = shard();
    let empty = shard.memory_bytes();
    shard.remember_uses(true);
    let rule = EvictionRule { order: EvictionOrder::LeastUsed, only_expiring: false };
    for n in 0..60 {
        put(&mut shard, 0, &format!("k{n}"), 20, Expiry::None);
    }
    let full = shard.memory_bytes();
    assert_eq!(shard.evict_over_quota(Some(rule), 4096, NOW, Effort { keys_max: 4, ..EFFORT }), 4);
    // The fingerprints of one segment.
    assert!(shard.memory_bytes() < full + 1024, "{full} and {}", shard.memory_bytes());
    for _ in 0..100 {
        shard.evict_over_quota(Some(rule), 1 << 20, NOW, EFFORT);
    }
    assert_eq!((shard.keys_len(), shard.memory_bytes()), (0, empty));
}

use std::collections::{BTreeSet, HashMap, HashSet};

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_slab::Arena;

use super::score::ord;
use super::{Direction, Edge, Zset, leaf};
use crate::entry::Item;

/// A sorted set done plainly.
#[derive(Default)]
struct Model {
    scores: HashMap<Vec<u8>, f64>,
    order: BTreeSet<(u64, Vec<u8>)>,
}

impl Model {
    fn set(&mut self, member: Vec<u8>, score: f64) -> Option<f64> {
        let old = self.remove(&member);
        self.order.insert((ord(score), member.clone()));
        self.scores.insert(member, score);
        old
    }

    fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let old = self.scores.remove(member)?;
        assert!(self.order.remove(&(ord(old), member.to_vec())));
        Some(old)
    }

    fn list(&self) -> Vec<(Vec<u8>, u64)> {
        self.order.iter().map(|(_, m)| (m.clone(), self.scores[m].to_bits())).collect()
    }
}

/// Kinds of members and scores to mix.
#[derive(Clone, Copy, Debug)]
struct Mix {
    members: u64,
    scores: u64,
    range: u64,
}

fn member(rng: &mut Rng, mix: Mix) -> Vec<u8> {
    let n = rng.below(mix.range);
    match mix.members {
        0 => (n * 7919 % 100_000_000).to_string().into_bytes(),
        1 => (n as i64 - mix.range as i64 / 2).to_string().into_bytes(),
        2 => format!("member:{n:06}").into_bytes(),
        3 if n.is_multiple_of(5) => n.to_string().into_bytes(),
        3 => format!("{n:x}").into_bytes(),
        _ => {
            let mut text = format!("{n}:").into_bytes();
            let len = match n % 40 {
                0 => 33_000,
                1 => 2_000,
                2 => 511,
                3 => 513,
                _ => n as usize % 120,
            };
            text.resize(text.len() + len, b'm');
            text
        }
    }
}

fn score(rng: &mut Rng, mix: Mix) -> f64 {
    match mix.scores {
        0 => 0.0,
        1 => rng.below(5) as f64,
        2 => 1_700_000_000.0 + rng.below(100_000_000) as f64,
        3 => rng.unit_f64() * 1000.0 - 500.0,
        4 => (rng.below(2000) as f64 - 1000.0) / 4.0,
        _ => match rng.below(30) {
            0 => f64::INFINITY,
            1 => f64::NEG_INFINITY,
            2 => -0.0,
            3 => 0.0,
            4 => f64::MAX,
            5 => 5e-324,
            6 => -5e-324,
            n => n as f64 - 10.0,
        },
    }
}

fn check(set: &Zset, arena: &Arena, hasher: &KeyHasher, model: &Model) {
    assert_eq!(set.len(), model.scores.len() as u64);
    assert_eq!(set.bytes(), arena.used_bytes());
    assert_eq!(set.spine.check(arena, &mut |leaf| leaf::len(arena, leaf) as u32), set.len());
    assert_eq!(set.index.is_empty(), set.spine.is_empty() || set.spine.is_single());
    let expected = model.list();
    let up: Vec<_> = set.iter(arena, 0, Direction::Up).map(|(m, s)| (m.to_vec(), s.to_bits())).collect();
    assert_eq!(up, expected);
    let mut down: Vec<_> = set
        .iter(arena, set.len().saturating_sub(1), Direction::Down)
        .map(|(m, s)| (m.to_vec(), s.to_bits()))
        .collect();
    down.reverse();
    assert_eq!(down, expected);
    let step = expected.len() / 50 + 1;
    for (rank, (member, bits)) in expected.iter().enumerate().step_by(step) {
        assert_eq!(set.rank(arena, hasher, Item::of(member)), Some((rank as u64, f64::from_bits(*bits))));
    }
}

fn scan_all(set: &Zset, arena: &Arena, hasher: &KeyHasher) -> HashSet<Vec<u8>> {
    let (mut seen, mut cursor) = (HashSet::new(), 0);
    loop {
        cursor = set.scan(arena, hasher, cursor, 10, |m, _| {
            seen.insert(m.to_vec());
        });
        if cursor == 0 {
            return seen;
        }
    }
}

fn run(seed: u64, mix: Mix, ops: u64) {
    let mut rng = Rng::new(seed);
    let hasher = KeyHasher::new(seed);
    let mut arena = Arena::with_reserve(1 << 30).unwrap();
    let (mut set, mut model) = (Zset::new(), Model::default());
    for op in 0..ops {
        // Long stretches of growth and of decline.
        let growing = (op * 6 / ops).is_multiple_of(2);
        let name = member(&mut rng, mix);
        let value = score(&mut rng, mix);
        let len = model.scores.len() as u64;
        match rng.below(20) {
            0..=9 if growing => {
                let added = set.insert(&mut arena, &hasher, Item::of(&name), value).unwrap();
                assert_eq!(added, model.set(name, value).is_none());
            }
            0..=9 => {
                let removed = set.remove(&mut arena, &hasher, Item::of(&name));
                assert_eq!(removed.map(f64::to_bits), model.remove(&name).map(f64::to_bits));
            }
            10..=12 if mix.scores > 0 => {
                // A small step from where it is, as ZINCRBY makes.
                let step = [1.0, -1.0, 0.5, 1e9][rng.below(4) as usize];
                let change = set
                    .update(&mut arena, &hasher, Item::of(&name), |old| {
                        old.map(|s| s + step).filter(|s| !s.is_nan())
                    })
                    .unwrap();
                assert_eq!(change.old.map(f64::to_bits), model.scores.get(&name).copied().map(f64::to_bits));
                if let Some(new) = change.new {
                    model.set(name, new);
                }
            }
            13 => {
                let from = if rng.below(2) == 0 { Direction::Up } else { Direction::Down };
                let mut popped = None;
                assert_eq!(set.pop(&mut arena, &hasher, from, |m, _| popped = Some(m.to_vec())), len > 0);
                let expected = if from == Direction::Up { model.order.first() } else { model.order.last() };
                assert_eq!(popped, expected.map(|e| e.1.clone()));
                if let Some(name) = popped {
                    model.remove(&name);
                }
            }
            14 => {
                let count = rng.below(if growing { 3 } else { 60 });
                let rank = rng.below(len + 1);
                let doomed: Vec<_> = model
                    .order
                    .iter()
                    .skip(rank as usize)
                    .take(count as usize)
                    .map(|e| e.1.clone())
                    .collect();
                let removed = set.remove_ranks(&mut arena, &hasher, rank, count);
                assert_eq!(removed, doomed.len() as u64);
                for name in doomed {
                    model.remove(&name);
                }
            }
            15..=16 => {
                let expected = model.order.range(..(ord(value), vec![])).count() as u64;
                assert_eq!(set.rank_of_score(&arena, value, Edge::Before), expected);
                let expected = model.order.range(..(ord(value) + 1, vec![])).count() as u64;
                assert_eq!(set.rank_of_score(&arena, value, Edge::After), expected);
            }
            17 if mix.scores == 0 => {
                let below = model.order.iter().filter(|e| e.1 < name).count() as u64;
                assert_eq!(set.rank_of_text(&arena, &name, Edge::Before), below);
                let most = below + u64::from(model.scores.contains_key(&name));
                assert_eq!(set.rank_of_text(&arena, &name, Edge::After), most);
            }
            _ => {
                let found = set.score(&arena, &hasher, Item::of(&name));
                assert_eq!(found.map(f64::to_bits), model.scores.get(&name).copied().map(f64::to_bits));
            }
        }
        if op % (ops / if mix.range > 5_000 { 12 } else { 40 } + 1) == 0 {
            check(&set, &arena, &hasher, &model);
        }
    }
    check(&set, &arena, &hasher, &model);
    assert_eq!(scan_all(&set, &arena, &hasher), model.scores.keys().cloned().collect());
    while !set.free_step(&mut arena, 3) {}
    assert_eq!((set.len(), set.bytes(), set.spilled_bytes(), arena.used_bytes()), (0, 0, 0, 0));
    set.insert(&mut arena, &hasher, Item::Int(1), 1.0).unwrap();
    set.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn mixed_changes_follow_a_plain_sorted_set() {
    for members in 0..5 {
        for scores in 0..6 {
            for (range, ops) in [(3, 200), (100, 2_000), (1_500, 8_000)] {
                run(range + members * 10 + scores, Mix { members, scores, range }, ops);
            }
        }
    }
}

#[test]
fn large_sets_follow_a_plain_sorted_set() {
    run(1, Mix { members: 0, scores: 2, range: 100_000 }, 250_000);
    run(2, Mix { members: 2, scores: 0, range: 30_000 }, 100_000);
    run(3, Mix { members: 4, scores: 5, range: 10_000 }, 60_000);
}

#[test]
fn entries_in_order_fill_their_leaves() {
    let hasher = KeyHasher::new(1);
    for falling in [false, true] {
        let mut arena = Arena::with_reserve(1 << 30).unwrap();
        let mut set = Zset::new();
        for n in 0..50_000i64 {
            let score = if falling { -n } else { n };
            set.insert(&mut arena, &hasher, Item::Int(n), score as f64).unwrap();
        }
        let per_member = set.bytes() as f64 / 50_000.0;
        assert!(per_member < if falling { 22.0 } else { 18.0 }, "{per_member}");
        assert_eq!(set.rank(&arena, &hasher, Item::Int(777)).unwrap().0, if falling { 49_222 } else { 777 });
        set.clear(&mut arena);
        assert_eq!(arena.used_bytes(), 0);
    }
}

/// The codes 0 and 1 mean the same before and after, all others do not. An earlier version copied them unchanged.
#[test]
fn a_score_far_from_the_others_outlives_new_shapes() {
    let hasher = KeyHasher::new(1);
    let mut arena = Arena::new().expect("address space");
    let (mut set, mut model) = (Zset::new(), Model::default());
    for (member, score) in [("9", f64::INFINITY), ("m", 14.0), ("m", 4.0), ("n", 12.6)] {
        let item = Item::of(member.as_bytes());
        assert!(set.update(&mut arena, &hasher, item, |_| Some(score)).is_ok());
        model.set(member.as_bytes().to_vec(), score);
        check(&set, &arena, &hasher, &model);
    }
    set.clear(&mut arena);
}

#[test]
fn a_scan_sees_all_that_stay_while_others_come_and_go() {
    let hasher = KeyHasher::new(9);
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut arena = Arena::with_reserve(1 << 30).unwrap();
        let mut set = Zset::new();
        let stay = 3_000;
        for n in 0..stay {
            set.insert(&mut arena, &hasher, Item::Int(n), rng.below(100) as f64).unwrap();
        }
        for n in 0..40_000 {
            set.insert(&mut arena, &hasher, Item::Int(1_000_000 + n), rng.below(100) as f64).unwrap();
        }
        let (mut seen, mut cursor, mut calls) = (HashSet::new(), 0, 0);
        loop {
            cursor = set.scan(&arena, &hasher, cursor, 50, |m, _| {
                seen.insert(m.int().unwrap());
            });
            if cursor == 0 {
                break;
            }
            calls += 1;
            for _ in 0..400 {
                let n = 1_000_000 + rng.below(80_000) as i64;
                if (calls / 20 + seed) % 2 == 0 {
                    set.remove(&mut arena, &hasher, Item::Int(n));
                } else {
                    set.insert(&mut arena, &hasher, Item::Int(n), rng.below(100) as f64).unwrap();
                }
                let n = rng.below(stay as u64) as i64;
                set.insert(&mut arena, &hasher, Item::Int(n), rng.below(100) as f64).unwrap();
            }
        }
        assert!(calls > 40);
        assert!((0..stay).all(|n| seen.contains(&n)));
        set.clear(&mut arena);
        assert_eq!(arena.used_bytes(), 0);
    }
}

#[test]
fn a_full_arena_is_an_error_that_changes_nothing() {
    let hasher = KeyHasher::new(5);
    for members in [0, 2, 4] {
        let mut rng = Rng::new(members);
        let mix = Mix { members, scores: 3, range: 100_000 };
        let mut arena = Arena::with_reserve(1 << 20).unwrap();
        let (mut set, mut model) = (Zset::new(), Model::default());
        let mut refused = 0;
        while refused < 3_000 {
            let name = match rng.below(3) {
                0 if !model.order.is_empty() => {
                    let at = rng.below(model.order.len() as u64);
                    set.nth(&arena, at).unwrap().0.to_vec()
                }
                _ => member(&mut rng, mix),
            };
            let value = score(&mut rng, mix);
            match set.insert(&mut arena, &hasher, Item::of(&name), value) {
                Ok(_) => {
                    model.set(name, value);
                }
                Err(_) => {
                    refused += 1;
                    if refused % 500 == 1 {
                        check(&set, &arena, &hasher, &model);
                    }
                }
            }
        }
        check(&set, &arena, &hasher, &model);
        set.clear(&mut arena);
        assert_eq!(arena.used_bytes(), 0);
    }
}

#[test]
fn roots_are_small() {
    assert!(std::mem::size_of::<Zset>() <= 64);
}

#[test]
fn members_expire_in_order_of_their_times() {
    let hasher = KeyHasher::new(4);
    let mut arena = Arena::with_reserve(1 << 26).unwrap();
    let mut set = Zset::new();
    for n in 0..1_000i64 {
        set.insert(&mut arena, &hasher, Item::Int(n), -n as f64).unwrap();
    }
    assert!(!set.set_expiry(&arena, &hasher, Item::Int(5_000), Some(1)));
    for n in (0..1_000).step_by(10) {
        assert!(set.set_expiry(&arena, &hasher, Item::Int(n), Some(10_000 - n as u64)));
    }
    assert_eq!((set.expiry(Item::Int(990)), set.expiry(Item::Int(991))), (Some(9_010), None));
    // Another score keeps the time, another time replaces it, a removal forgets it.
    set.insert(&mut arena, &hasher, Item::Int(990), 7.5).unwrap();
    assert!(set.set_expiry(&arena, &hasher, Item::Int(980), Some(1)));
    assert!(set.set_expiry(&arena, &hasher, Item::Int(970), None));
    set.remove(&mut arena, &hasher, Item::Int(960));
    set.insert(&mut arena, &hasher, Item::Int(960), 1.0).unwrap();
    assert_eq!((set.expiry(Item::Int(960)), set.next_expiry()), (None, Some(1)));
    let mut gone = Vec::new();
    let mut due = |set: &mut Zset, now_ms, count_max| {
        let mut shown = Vec::new();
        let count = set.expire_due(&mut arena, &hasher, now_ms, count_max, |m| shown.push(m.to_vec()));
        assert_eq!(count, shown.len());
        gone.extend(shown.clone());
        shown
    };
    assert_eq!(due(&mut set, 0, 10), Vec::<Vec<u8>>::new());
    assert_eq!(due(&mut set, 9_050, 10), [b"980", b"990", b"950"]);
    assert_eq!(due(&mut set, u64::MAX, 7).len(), 7);
    assert_eq!(due(&mut set, u64::MAX, 1_000).len(), 88);
    assert_eq!((set.len(), set.next_expiry()), (902, None));
    for text in gone {
        assert_eq!(set.score(&arena, &hasher, Item::of(&text)), None);
    }
    set.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

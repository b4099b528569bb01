use super::*;
use darter_slab::Handle;
use std::collections::{HashMap, HashSet};

/// Random numbers from a seed (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Keys are handles; a hash is a function of the handle.
type HashOf = fn(Handle) -> u64;

fn random_hash(h: Handle) -> u64 {
    mix(u64::from(h.raw()))
}

fn key(n: usize) -> Handle {
    Handle::from_raw(n as u32 + 1)
}

fn insert(index: &mut Index, hash_of: HashOf, h: Handle) -> IndexSlot {
    let slot = index.insert(hash_of(h), h, hash_of);
    assert_eq!(index.handle(slot), h);
    slot
}

fn find(index: &Index, hash_of: HashOf, h: Handle) -> Option<IndexSlot> {
    index.find(hash_of(h), |other| other == h)
}

fn remove(index: &mut Index, hash_of: HashOf, h: Handle) {
    let slot = find(index, hash_of, h).expect("present");
    assert_eq!(index.remove(slot, hash_of(h)), h);
}

/// Everything in the index, by a full scan; no handle twice.
fn scan_all(index: &Index, hash_of: HashOf) -> HashSet<Handle> {
    let mut seen = HashSet::new();
    let mut at = Some(ScanPosition::START);
    while let Some(position) = at {
        at = index.scan(ScanPosition::from_raw(position.raw()), hash_of, |h| {
            assert!(seen.insert(h), "{h:?} twice")
        });
    }
    seen
}

fn check(index: &Index, hash_of: HashOf, oracle: &HashSet<Handle>) {
    index.check_lines(hash_of);
    assert_eq!(index.len(), oracle.len());
    for &h in oracle {
        let slot = find(index, hash_of, h).unwrap_or_else(|| panic!("{h:?} lost"));
        assert_eq!(index.handle(slot), h);
    }
    assert_eq!(&scan_all(index, hash_of), oracle);
    let mut each = HashSet::new();
    index.each(|h| assert!(each.insert(h), "{h:?} twice"));
    assert_eq!(&each, oracle);
}

/// Random inserts, removals and merges against a set.
fn churn(seed: u64, hash_of: HashOf, keys: usize, steps: usize) -> Index {
    let mut rng = Rng(seed);
    let mut index = Index::new();
    let mut oracle = HashSet::new();
    let mut grow_percent = 90;
    for step in 0..steps {
        if step % 2048 == 2047 {
            grow_percent = [10, 30, 50, 70, 90][rng.below(5)];
        }
        let h = key(rng.below(keys));
        if oracle.contains(&h) {
            if rng.below(100) >= grow_percent {
                remove(&mut index, hash_of, h);
                oracle.remove(&h);
            }
        } else {
            assert_eq!(find(&index, hash_of, h), None);
            if rng.below(100) < grow_percent {
                insert(&mut index, hash_of, h);
                oracle.insert(h);
            }
        }
        if rng.below(16) == 0 {
            index.merge_step(hash_of);
        }
        if step % 4096 == 0 {
            check(&index, hash_of, &oracle);
        }
    }
    check(&index, hash_of, &oracle);
    index
}

#[test]
fn behaves_like_a_set() {
    for seed in 0..4 {
        churn(seed, random_hash, 700, 20_000);
        churn(seed, random_hash, 20_000, 60_000);
    }
}

#[test]
fn behaves_like_a_set_with_bad_hashes() {
    // One hash for all; few homes; few places; few tags; a common prefix; nothing but a prefix.
    let hashes: [HashOf; 6] = [
        |_| 0x0123_4567_89ab_cdef,
        |h| random_hash(h) & 0xffff_ffff_0100_00ff,
        |h| random_hash(h) & 0xc000_0000_ffff_ffff,
        |h| random_hash(h) & 0xffff_ffff_ffff_ff01,
        |h| random_hash(h) >> 20,
        |h| random_hash(h) << 36,
    ];
    for (seed, hash_of) in hashes.into_iter().enumerate() {
        churn(seed as u64, hash_of, 400, 12_000);
    }
}

#[test]
fn an_empty_index_owns_nothing_and_answers() {
    let mut index = Index::default();
    assert_eq!((index.len(), index.bytes(), index.is_empty()), (0, 0, true));
    assert_eq!(find(&index, random_hash, key(1)), None);
    assert_eq!(index.find_handle(7), None);
    assert_eq!(index.scan(ScanPosition::START, random_hash, |_| panic!("nothing there")), None);
    assert_eq!(index.sample(1), None);
    assert_eq!(index.sweep(ScanPosition::START, 1, 100, |_| None, |_| {}), (ScanPosition::START, 0));
    assert!(!index.merge_step(random_hash));
    index.prefetch(3);
    index.clear();
    let slot = insert(&mut index, random_hash, key(1));
    assert_eq!(index.bytes(), 4096 + 8);
    index.remove(slot, random_hash(key(1)));
    // A stale slot names nothing, or something else, and harms nothing.
    let stale = index.handle(slot);
    assert!(stale.is_none() || stale == key(1));
    assert_eq!(find(&index, random_hash, key(1)), None);
    index.touch(slot);
    index.note_expiry(slot, 5, 1);
    index.clear();
    assert_eq!((index.bytes(), index.handle(slot)), (0, Handle::NONE));
    index.set_handle(slot, key(9));
    assert_eq!(index.remove(slot, 0), Handle::NONE);
}

#[test]
fn an_emptied_index_gives_its_memory_back_step_by_step() {
    let mut index = Index::new();
    (0..100_000).for_each(|n| _ = insert(&mut index, random_hash, key(n)));
    let full = index.bytes();
    (1000..100_000).for_each(|n| remove(&mut index, random_hash, key(n)));
    // A pass over all segments merges at least a pair each 8 of them.
    let steps = full / 4096;
    (0..steps * 4).for_each(|_| _ = index.merge_step(random_hash));
    assert!(index.bytes() < full / 20, "{} of {full}", index.bytes());
    check(&index, random_hash, &(0..1000).map(key).collect());
    (0..1000).for_each(|n| remove(&mut index, random_hash, key(n)));
    assert!(index.merge_step(random_hash));
    assert_eq!(index.bytes(), 0);
    assert!(!index.merge_step(random_hash));
}

/// `merge_at` moves when a pair is looked at.
#[test]
fn pairs_are_looked_at_only_where_entries_have_gone() {
    let mut index = Index::new();
    let looks = |index: &mut Index| (0..1000).any(|_| index.merge_step(random_hash) || index.merge_at != 0);
    for n in 0..200_000 {
        insert(&mut index, random_hash, key(n));
        assert!(n % 10_000 != 0 || !looks(&mut index), "filled with {n}");
    }
    assert!(!looks(&mut index));
    (0..20_000).for_each(|n| remove(&mut index, random_hash, key(n)));
    assert!(!looks(&mut index), "a tenth has gone");
    (20_000..26_000).for_each(|n| remove(&mut index, random_hash, key(n)));
    assert!(looks(&mut index));
    (0..1000).for_each(|_| assert!(!index.merge_step(random_hash), "none of them is small"));
    assert!(!looks(&mut index), "looked at in vain");
    // A snapshot that has written one half of a pair makes it wait, however often it was looked at.
    (26_000..190_000).for_each(|n| remove(&mut index, random_hash, key(n)));
    index.set_epoch(1);
    let segments = index.segments;
    (0..segments as u32).step_by(2).for_each(|n| index.mark(u64::from(n) << 32 << index.shift));
    (0..1000).for_each(|_| _ = index.merge_step(random_hash));
    let marked = index.segments;
    index.set_epoch(0);
    (0..1000).for_each(|_| _ = index.merge_step(random_hash));
    assert!(index.segments < marked, "{} of {marked} of {segments}", index.segments);
    assert!(!looks(&mut index));
    check(&index, random_hash, &(190_000..200_000).map(key).collect());
}

/// An index that rests is hardly larger than one whose pairs are looked at all the time.
#[test]
fn resting_costs_little_memory() {
    let mut rng = Rng(11);
    let (mut rests, mut looks) = (Index::new(), Index::new());
    let mut live: Vec<Handle> = Vec::new();
    let mut next = 0;
    for goal in [60_000, 30_000, 50_000, 9_000, 40_000, 20_000, 2_000, 30_000, 500] {
        while live.len() != goal {
            if live.len() < goal {
                live.push(key(next));
                for index in [&mut rests, &mut looks] {
                    insert(index, random_hash, key(next));
                }
                next += 1;
            } else {
                let h = live.swap_remove(rng.below(live.len()));
                remove(&mut rests, random_hash, h);
                remove(&mut looks, random_hash, h);
            }
            if rng.below(20) == 0 {
                looks.merge_below = usize::MAX;
                rests.merge_step(random_hash);
                looks.merge_step(random_hash);
            }
        }
        let most = looks.segments + looks.segments / 6 + 1;
        assert!(rests.segments <= most, "{} segments, not {}, at {goal}", rests.segments, looks.segments);
    }
    check(&rests, random_hash, &live.into_iter().collect());
}

/// Entries present throughout a scan come exactly once, whatever splits and merges happen meanwhile.
#[test]
fn a_scan_returns_what_stays_exactly_once() {
    for seed in 0..6 {
        let mut rng = Rng(seed);
        let mut index = Index::new();
        let stays = 3000;
        (0..stays).for_each(|n| _ = insert(&mut index, random_hash, key(n)));
        let mut others: Vec<usize> = Vec::new();
        let mut seen = HashSet::new();
        let mut sizes = HashSet::new();
        let mut at = Some(ScanPosition::START);
        let mut grows = seed % 2 == 0;
        while let Some(position) = at {
            assert!(position.raw() < 1 << 38);
            at = index.scan(ScanPosition::from_raw(position.raw()), random_hash, |h| {
                if h.raw() as usize <= stays {
                    assert!(seen.insert(h), "{h:?} twice");
                }
            });
            if rng.below(60) == 0 {
                grows = !grows;
            }
            let changes = if rng.below(4) == 0 { rng.below(1200) } else { 0 };
            for _ in 0..changes {
                if grows {
                    let n = 1_000_000 + rng.below(1_000_000_000);
                    if find(&index, random_hash, key(n)).is_none() {
                        insert(&mut index, random_hash, key(n));
                        others.push(n);
                    }
                } else if !others.is_empty() {
                    let n = others.swap_remove(rng.below(others.len()));
                    remove(&mut index, random_hash, key(n));
                    index.merge_step(random_hash);
                }
            }
            sizes.insert(index.bytes());
        }
        assert_eq!(seen.len(), stays);
        assert!(sizes.len() > 10, "splits and merges must have happened: {}", sizes.len());
    }
}

#[test]
fn a_scan_from_any_number_ends() {
    let mut index = Index::new();
    (0..5000).for_each(|n| _ = insert(&mut index, random_hash, key(n)));
    let mut rng = Rng(1);
    for _ in 0..200 {
        let mut at = Some(ScanPosition::from_raw(rng.next()));
        let mut steps = 0;
        while let Some(position) = at {
            at = index.scan(position, random_hash, |_| {});
            steps += 1;
            assert!(steps < 60 * 64);
        }
    }
}

#[test]
fn segments_are_nearly_full_when_they_split_and_memory_is_steady() {
    let mut fills = Vec::new();
    for seed in 0..200_u64 {
        let hash_of = |h: Handle| mix(random_hash(h) ^ seed << 40);
        let mut index = Index::new();
        for n in 0.. {
            index.insert(hash_of(key(n)), key(n), hash_of);
            if index.bytes() > 4096 + 8 {
                break;
            }
        }
        fills.push((index.len() - 1) as f64 / 640.0);
    }
    let mean = fills.iter().sum::<f64>() / fills.len() as f64;
    assert!((0.95..0.98).contains(&mean), "{mean}");
    assert!(fills.iter().all(|&fill| fill > 0.85));

    let mut index = Index::new();
    let mut checked_at = 30_000.0;
    for n in 0..400_000 {
        insert(&mut index, random_hash, key(n));
        if n as f64 > checked_at {
            checked_at *= 1.05;
            let bytes = index.bytes() as f64 / index.len() as f64;
            assert!((9.0..10.4).contains(&bytes), "{bytes} B/entry at {n}");
        }
    }
}

#[test]
fn the_shard_may_be_chosen_from_bits_17_to_8() {
    let mut index = Index::new();
    let hash_of: HashOf = |h| random_hash(h) & !(0x3ff << 8) | 0x155 << 8;
    (0..30_000).for_each(|n| _ = insert(&mut index, hash_of, key(n)));
    assert!(index.bytes() as f64 / 30_000.0 < 10.4, "{}", index.bytes());
}

#[test]
fn equal_hashes_cost_time_but_neither_memory_nor_entries() {
    let hash_of: HashOf = |h| if h.raw() > 100_000 { random_hash(h) } else { 0xdead_beef_0bad_cafe };
    let mut index = Index::new();
    (0..2000).for_each(|n| _ = insert(&mut index, hash_of, key(n)));
    assert!(index.bytes() < 4096 + 100_000, "{}", index.bytes());
    // Meanwhile the index grows and shrinks as usual.
    (200_000..220_000).for_each(|n| _ = insert(&mut index, hash_of, key(n)));
    check(&index, hash_of, &(0..2000).chain(200_000..220_000).map(key).collect());
    (200_000..220_000).for_each(|n| remove(&mut index, hash_of, key(n)));
    (0..400).for_each(|_| _ = index.merge_step(hash_of));
    check(&index, hash_of, &(0..2000).map(key).collect());
    (0..2000).step_by(2).for_each(|n| remove(&mut index, hash_of, key(n)));
    check(&index, hash_of, &(1..2000).step_by(2).map(key).collect());
    (1..2000).step_by(2).for_each(|n| remove(&mut index, hash_of, key(n)));
    assert_eq!(index.len(), 0);
}

#[test]
fn a_common_prefix_does_not_blow_up_the_directory() {
    // All places in one 2^-26 of the range: a split at depth 26 would need a directory of 512 MiB.
    let hash_of: HashOf = |h| 0x7777_7740_0000_0000 | random_hash(h) & 0x3f_ffff_ffff;
    let mut index = Index::new();
    (0..5000).for_each(|n| _ = insert(&mut index, hash_of, key(n)));
    assert!(index.bytes() < 300_000, "{}", index.bytes());
    check(&index, hash_of, &(0..5000).map(key).collect());
}

#[test]
fn records_can_move() {
    let mut index = Index::new();
    // The hash of a record does not change when it moves: its handle here is its key and its version.
    let hash_of: HashOf = |h| mix(u64::from(h.raw() % 100_000));
    (1..5000).for_each(|n| _ = index.insert(hash_of(Handle::from_raw(n)), Handle::from_raw(n), hash_of));
    for n in 1..5000 {
        let (h, moved) = (Handle::from_raw(n), Handle::from_raw(n + 100_000));
        let slot = find(&index, hash_of, h).unwrap();
        index.set_handle(slot, moved);
        assert_eq!(index.handle(slot), moved);
        assert!(find(&index, hash_of, h).is_none() && find(&index, hash_of, moved) == Some(slot));
    }
}

#[test]
fn all_records_can_move_in_steps() {
    let mut index = Index::new();
    let hash_of: HashOf = |h| if h.raw() % 100_000 < 100 { 3 } else { mix(u64::from(h.raw() % 100_000)) };
    (1..5000).for_each(|n| _ = index.insert(hash_of(Handle::from_raw(n)), Handle::from_raw(n), hash_of));
    let mut at = ScanPosition::START;
    let mut offered = HashSet::new();
    loop {
        (at, _) = index.move_records(at, 37, |h| {
            assert!(offered.insert(h));
            (h.raw() % 3 == 0).then(|| Handle::from_raw(h.raw() + 100_000))
        });
        if at == ScanPosition::START {
            break;
        }
    }
    let moved = |n: u32| Handle::from_raw(if n.is_multiple_of(3) { n + 100_000 } else { n });
    check(&index, hash_of, &(1..5000).map(moved).collect());
    assert_eq!(offered.len(), 4999);
}

#[test]
fn the_candidate_is_the_first_that_find_asks_for() {
    let mut index = Index::new();
    (0..3000).for_each(|n| _ = insert(&mut index, random_hash, key(n)));
    let mut found = 0;
    for n in 0..3000 {
        let hash = random_hash(key(n));
        if let Some(candidate) = index.find_handle(hash) {
            let mut first = None;
            index.find(hash, |h| {
                first.get_or_insert(h);
                h == key(n)
            });
            assert_eq!(first, Some(candidate));
            found += usize::from(candidate == key(n));
        }
    }
    assert!(found > 2000, "{found}");
}

#[test]
fn hits_saturate_and_follow_the_entry() {
    let mut index = Index::new();
    for n in 0..20_000 {
        let slot = insert(&mut index, random_hash, key(n));
        (0..n % 6).for_each(|_| index.touch(slot));
    }
    for n in 0..20_000 {
        let slot = find(&index, random_hash, key(n)).unwrap();
        assert_eq!(usize::from(index.eviction_rank(slot)), (n % 6).min(3));
    }
    (0..19_800).for_each(|n| remove(&mut index, random_hash, key(n)));
    (0..2000).for_each(|_| _ = index.merge_step(random_hash));
    assert!(index.bytes() < 5 * 4096);
    for n in 19_800..20_000 {
        let slot = find(&index, random_hash, key(n)).unwrap();
        assert_eq!(usize::from(index.eviction_rank(slot)), (n % 6).min(3));
    }
}

#[test]
fn samples_are_spread_evenly() {
    for (entries, samples) in [(7, 7000), (3000, 300_000)] {
        let mut index = Index::new();
        (0..entries).for_each(|n| _ = insert(&mut index, random_hash, key(n)));
        let mut rng = Rng(9);
        let mut drawn = vec![0; entries];
        for _ in 0..samples {
            let slot = index.sample(rng.next()).unwrap();
            drawn[index.handle(slot).raw() as usize - 1] += 1;
        }
        let expected = samples / entries;
        // The few entries of a nearly empty index are found by walking, so that gaps count.
        let (low, high) =
            if entries < 100 { (expected / 20, expected * 4) } else { (expected / 3, expected * 3) };
        assert!(
            drawn.iter().all(|&n| n >= low && n <= high),
            "{:?}",
            (drawn.iter().min(), drawn.iter().max())
        );
    }
    // Only spilled entries are left.
    let mut index = Index::new();
    let hash_of: HashOf = |_| 1;
    (0..100).for_each(|n| _ = insert(&mut index, hash_of, key(n)));
    while let Some(slot) = index.find(1, |_| true) {
        assert!(!index.handle(index.sample(index.len() as u64).unwrap()).is_none());
        index.remove(slot, 1);
    }
    assert_eq!(index.len(), 0);
}

/// A simulated day: keys with and without expiry come and go, and each pass finds all that are due.
#[test]
fn a_sweep_finds_what_is_due_and_opens_little_else() {
    let mut rng = Rng(4);
    let mut index = Index::new();
    let mut expiries: HashMap<Handle, Option<u64>> = HashMap::new();
    let mut now_ms = 1_750_000_000_000;
    for round in 0..120 {
        for _ in 0..rng.below(400) {
            let h = key(rng.below(40_000));
            if expiries.contains_key(&h) {
                continue;
            }
            let slot = insert(&mut index, random_hash, h);
            let expiry_ms = match rng.below(4) {
                0 => None,
                1 => Some(now_ms + rng.next() % 5_000),
                2 => Some(now_ms + rng.next() % 3_600_000),
                _ => Some(now_ms + rng.next() % 400_000_000),
            };
            if let Some(ms) = expiry_ms {
                index.note_expiry(slot, ms, now_ms);
            }
            expiries.insert(h, expiry_ms);
        }
        now_ms += [10, 700, 5_000, 60_000, 3_000_000][round % 5];
        let mut due = Vec::new();
        let mut at = ScanPosition::START;
        loop {
            let lines_max = 1 + rng.below(300);
            let (next, lines) = index.sweep(at, now_ms, lines_max, |h| expiries[&h], |h| due.push(h));
            assert!(lines <= lines_max);
            at = next;
            if at == ScanPosition::START {
                break;
            }
        }
        let late = |h: &&Handle| expiries[*h].is_some_and(|ms| ms <= now_ms);
        let expected: HashSet<Handle> = expiries.keys().filter(late).copied().collect();
        assert_eq!(due.len(), expected.len(), "round {round}: nothing twice");
        assert_eq!(due.into_iter().collect::<HashSet<_>>(), expected);
        for h in expected {
            remove(&mut index, random_hash, h);
            expiries.remove(&h);
            if rng.below(4) == 0 {
                index.merge_step(random_hash);
            }
        }
        // Bounds are exact after one more pass; then only what expires within the running tick is asked again.
        index.sweep(ScanPosition::START, now_ms, usize::MAX, |h| expiries[&h], |_| panic!("all are gone"));
        let mut asked = 0;
        let mut ask = |h| {
            asked += 1;
            expiries[&h]
        };
        index.sweep(ScanPosition::START, now_ms, usize::MAX, &mut ask, |_| panic!("all are gone"));
        assert!(asked <= 300, "{asked} of {}", expiries.len());
    }
    assert!(expiries.len() > 1000);
}

#[test]
fn a_sweep_reports_again_what_was_not_removed() {
    let mut index = Index::new();
    let hash_of: HashOf = |h| if h.raw() < 200 { 5 } else { random_hash(h) };
    for n in 0..1000 {
        let slot = insert(&mut index, hash_of, key(n));
        index.note_expiry(slot, 1_000_000 + n as u64 * 10_000, 1_000_000);
    }
    for now_ms in [1_000_000, 1_500_000, 2_000_000, 2_000_000, 9_000_000] {
        let mut due = HashSet::new();
        let expiry_of = |h: Handle| Some(1_000_000 + u64::from(h.raw() - 1) * 10_000);
        index.sweep(ScanPosition::START, now_ms, usize::MAX, expiry_of, |h| assert!(due.insert(h)));
        assert_eq!(due.len(), 1 + ((now_ms - 1_000_000) / 10_000) as usize);
    }
}

/// What a load notes by another clock is found at once, at whatever time of the day.
#[test]
fn bounds_of_another_time_are_not_trusted() {
    for hour in 0..20 {
        let now_ms = 1_750_000_000_000 + hour * 3_600_000;
        let mut index = Index::new();
        for n in 0..1000 {
            let slot = insert(&mut index, random_hash, key(n));
            index.note_expiry(slot, now_ms - 1, 1);
        }
        index.distrust_bounds(now_ms);
        let mut due = 0;
        index.sweep(ScanPosition::START, now_ms, usize::MAX, |_| Some(now_ms - 1), |_| due += 1);
        assert_eq!(due, 1000);
    }
}

#[test]
fn entries_in_the_order_of_their_hashes_spill_nothing() {
    let mut first = Index::new();
    (0..300_000).for_each(|n| _ = insert(&mut first, random_hash, key(n)));
    let mut second = Index::new();
    first.each(|h| {
        insert(&mut second, random_hash, h);
        assert!(second.spill.len() < 100);
    });
    assert!(second.spill.is_empty() && second.len() == first.len());
    assert!(second.bytes() < first.bytes() * 2, "{} and {}", second.bytes(), first.bytes());
}

#[test]
fn a_reserved_index_takes_entries_in_the_order_of_their_hashes() {
    for keys in [0, 1, 400, 481, 5_000, 100_000] {
        let mut first = Index::new();
        (0..keys).for_each(|n| _ = insert(&mut first, random_hash, key(n)));
        // as a snapshot has them
        let mut ordered = Vec::new();
        first.each(|h| ordered.push(h));
        let mut second = Index::new();
        second.reserve(keys);
        let reserved = second.segments;
        ordered.iter().for_each(|&h| _ = insert(&mut second, random_hash, h));
        check(&second, random_hash, &ordered.into_iter().collect());
        assert!(second.spill.is_empty() && second.segments <= reserved.max(1) + reserved / 8, "{keys} keys");
        assert!(second.bytes() <= first.bytes().max(4200) * 2, "{keys} keys");
        // an index that has entries is left alone
        let before = second.bytes();
        second.reserve(1 << 20);
        assert!(keys == 0 || second.bytes() == before);
        while second.merge_step(random_hash) {}
        for n in 0..keys {
            remove(&mut second, random_hash, key(n));
        }
        while second.merge_step(random_hash) {}
        assert!(keys == 0 || second.bytes() == 0);
    }
}

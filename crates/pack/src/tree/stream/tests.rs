use std::collections::BTreeMap;

use darter_base::rng::Rng;
use darter_slab::Arena;

use super::{Direction, StreamEntry, StreamId, StreamLog, leaf};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn pairs(rng: &mut Rng, kind: u64) -> Pairs {
    let text = |rng: &mut Rng| match rng.below(3) {
        0 => rng.below(100_000).to_string().into_bytes(),
        1 => format!("value-{}", rng.below(100)).into_bytes(),
        _ => vec![b'v'; rng.below(40) as usize],
    };
    match kind {
        0 => vec![(b"temperature".to_vec(), text(rng)), (b"humidity".to_vec(), text(rng))],
        1 => {
            let n = 1 + rng.below(3);
            (0..n).map(|f| (format!("field{f}").into_bytes(), text(rng))).collect()
        }
        _ => match rng.below(12) {
            0 => (0..300).map(|f| (format!("f{f}").into_bytes(), text(rng))).collect(),
            1 => (0..3_000).map(|f| (format!("long-field-name-{f}").into_bytes(), text(rng))).collect(),
            2 => vec![(b"big".to_vec(), vec![b'b'; 700]), (b"bigger".to_vec(), vec![b'c'; 40_000])],
            3 => vec![(vec![b'n'; 600], vec![b'd'; 513])],
            4 => (0..80).map(|f| (format!("f{f}").into_bytes(), vec![b'e'; 600])).collect(),
            _ => pairs(rng, 1),
        },
    }
}

fn append(
    log: &mut StreamLog,
    arena: &mut Arena,
    id: StreamId,
    pairs: &Pairs,
) -> Result<bool, crate::tree::TreeFull> {
    log.append(arena, id, pairs.iter().map(|(n, v)| (n.as_slice(), v.as_slice())))
}

fn plain(entry: StreamEntry<'_>) -> (StreamId, Pairs) {
    assert_eq!(entry.fields.len(), entry.fields.count());
    (entry.id, entry.fields.map(|(n, v)| (n.to_vec(), v.to_vec())).collect())
}

fn check(log: &StreamLog, arena: &Arena, model: &BTreeMap<StreamId, Pairs>) {
    assert_eq!(log.len(), model.len() as u64);
    assert_eq!(log.bytes(), arena.used_bytes());
    assert_eq!(log.spine.check(arena, &mut |leaf| leaf::len(arena, leaf) as u32), log.len());
    let expected = || model.iter().map(|(id, p)| (*id, p.clone()));
    assert!(log.iter(arena, 0, Direction::Up).map(plain).eq(expected()));
    let last = log.len().saturating_sub(1);
    assert!(log.iter(arena, last, Direction::Down).map(plain).eq(expected().rev()));
    assert_eq!(log.first_id(arena), model.keys().next().copied());
    assert_eq!(log.last_id(arena), model.keys().next_back().copied());
}

fn run(seed: u64, kind: u64, ops: u64) {
    let mut rng = Rng::new(seed);
    let mut arena = Arena::with_reserve(1 << 30).unwrap();
    let (mut log, mut model) = (StreamLog::new(), BTreeMap::<StreamId, Pairs>::new());
    let mut id = StreamId { ms: 1_700_000_000_000, seq: 0 };
    for op in 0..ops {
        let some = match rng.below(2) {
            0 => StreamId { ms: 1_700_000_000_000 + rng.below(ops * 2), seq: rng.below(3) },
            _ => model.keys().nth(rng.below(model.len() as u64 + 1) as usize / 2).copied().unwrap_or(id),
        };
        if rng.below(20) == 0 {
            log.sweep(&mut arena, 1);
        }
        match rng.below(16) {
            0..=9 if op * 4 / ops != 2 => {
                let pairs = pairs(&mut rng, kind);
                match rng.below(10) {
                    0 => {
                        id = StreamId { ms: id.ms + rng.below(100_000), seq: rng.below(1 << 40) + 1 + id.seq }
                    }
                    1..=4 => id.seq += 1,
                    _ => id = StreamId { ms: id.ms + 1 + rng.below(5), seq: 0 },
                }
                assert!(append(&mut log, &mut arena, id, &pairs).unwrap());
                assert!(!append(&mut log, &mut arena, id, &pairs).unwrap());
                model.insert(id, pairs);
            }
            10..=12 => assert_eq!(log.remove(&mut arena, some), model.remove(&some).is_some()),
            0..=9 | 13 => {
                let near = model.range(some..).next().map_or(some, |e| *e.0);
                assert_eq!(log.remove(&mut arena, near), model.remove(&near).is_some());
                if op % 97 == 0 {
                    let count = [30, 30, 400][rng.below(3) as usize];
                    let count = rng.below(count);
                    let gone: Vec<_> = model.keys().take(count as usize).copied().collect();
                    assert_eq!(log.remove_first(&mut arena, count), gone.len() as u64);
                    gone.iter().for_each(|id| assert!(model.remove(id).is_some()));
                }
            }
            14 => {
                let end = StreamId { ms: some.ms + rng.below(50), seq: rng.below(3) };
                let expected: Vec<_> = match some <= end {
                    true => model.range(some..=end).map(|(id, p)| (*id, p.clone())).collect(),
                    false => vec![],
                };
                assert!(log.range(&arena, some, end, Direction::Up).map(plain).eq(expected.iter().cloned()));
                assert!(
                    log.range(&arena, some, end, Direction::Down)
                        .map(plain)
                        .eq(expected.iter().rev().cloned())
                );
                assert_eq!(log.rank(&arena, some), model.range(..some).count() as u64);
            }
            _ => assert_eq!(log.get(&arena, some).map(|e| plain(e).1), model.get(&some).cloned()),
        }
        if op % (ops / 15 + 1) == 0 {
            check(&log, &arena, &model);
        }
    }
    check(&log, &arena, &model);
    while !log.free_step(&mut arena, 2) {}
    assert_eq!((log.len(), log.bytes(), log.spilled_bytes(), arena.used_bytes()), (0, 0, 0, 0));
}

#[test]
fn mixed_changes_follow_a_btree_map() {
    for kind in 0..3 {
        for ops in [100, 1_000, 6_000] {
            for seed in 0..3 {
                run(seed * 10 + kind, kind, ops);
            }
        }
    }
}

#[test]
fn shared_names_are_written_once_a_leaf() {
    let mut arena = Arena::with_reserve(1 << 28).unwrap();
    let mut log = StreamLog::new();
    for n in 0..20_000u64 {
        let pairs = vec![
            (b"a-rather-long-field-name".to_vec(), (n % 1000).to_string().into_bytes()),
            (b"another-long-field-name".to_vec(), (n * 7).to_string().into_bytes()),
        ];
        let id = StreamId { ms: 1_700_000_000_000 + n / 2, seq: n % 2 };
        assert!(append(&mut log, &mut arena, id, &pairs).unwrap());
    }
    let each = log.bytes() as f64 / 20_000.0;
    assert!(each < 16.0, "{each}");
    let expected = log.first_leaf_len(&arena);
    assert_eq!(log.remove_first(&mut arena, expected), expected);
    assert_eq!(log.len(), 20_000 - expected);
    log.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn a_full_arena_is_an_error_that_changes_nothing() {
    let mut rng = Rng::new(8);
    let mut arena = Arena::with_reserve(2 << 20).unwrap();
    let (mut log, mut model) = (StreamLog::new(), BTreeMap::new());
    let mut refused = 0;
    for n in 0.. {
        let pairs = pairs(&mut rng, 2);
        let id = StreamId { ms: n, seq: 0 };
        match append(&mut log, &mut arena, id, &pairs) {
            Ok(added) => {
                assert!(added);
                model.insert(id, pairs);
            }
            Err(_) => refused += 1,
        }
        if refused == 300 {
            break;
        }
    }
    check(&log, &arena, &model);
    log.clear(&mut arena);
    assert_eq!((arena.used_bytes(), log.spilled_bytes()), (0, 0));
}

#[test]
fn trimmed_entries_are_gone_at_once_and_leave_the_tree_later() {
    let mut arena = Arena::with_reserve(1 << 28).unwrap();
    let mut log = StreamLog::new();
    let id = |ms: u64| StreamId { ms, seq: 0 };
    let pairs = vec![(b"name".to_vec(), b"value".to_vec())];
    for ms in 1..=40_000 {
        assert!(append(&mut log, &mut arena, id(ms), &pairs).unwrap());
    }
    assert_eq!(log.remove_first(&mut arena, 15_000), 15_000);
    assert!(log.is_unswept() && log.len() == 25_000);
    let see = |log: &StreamLog, arena: &Arena| {
        let up: Vec<u64> = log.iter(arena, 0, Direction::Up).map(|entry| entry.id.ms).collect();
        let mut down: Vec<u64> = log.iter(arena, log.len() - 1, Direction::Down).map(|e| e.id.ms).collect();
        down.reverse();
        assert_eq!(up, down);
        (up, log.get(arena, id(15_000)).is_some(), log.rank(arena, id(3)), log.rank(arena, id(15_002)))
    };
    let expected = ((15_001..=40_000).collect::<Vec<u64>>(), false, 0, 1);
    assert_eq!(see(&log, &arena), expected);
    assert!(!log.remove(&mut arena, id(14_000)), "it is gone");
    while !log.sweep(&mut arena, 3) {}
    assert_eq!(see(&log, &arena), expected);
    // Trimmed entries do not disturb ids that were set back.
    assert_eq!(log.remove_first(&mut arena, u64::MAX), 25_000);
    assert!(log.is_unswept() && log.is_empty());
    assert!(append(&mut log, &mut arena, id(7), &pairs).unwrap());
    assert_eq!((log.len(), log.first_id(&arena), log.is_unswept()), (1, Some(id(7)), false));
    log.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

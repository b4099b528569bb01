use std::collections::BTreeMap;

use darter_base::rng::Rng;

use super::*;

const NOW: u64 = 1_000_000;

fn member(rng: &mut Rng, kind: u64) -> Vec<u8> {
    let n = rng.below(400) as i64 - 100;
    match kind {
        0 => n.to_string().into_bytes(),
        1 => format!("m{n}").into_bytes(),
        _ if n % 3 == 0 => format!("{n}x").into_bytes(),
        _ => n.to_string().into_bytes(),
    }
}

fn check(set: &SetValue, arena: &Arena, model: &BTreeMap<Vec<u8>, Option<u64>>) {
    assert_eq!(set.len(), model.len() as u64);
    let mut seen: Vec<Vec<u8>> = set.iter(arena, NOW).map(Item::to_vec).collect();
    seen.sort();
    let alive = model.iter().filter(|(_, ms)| ms.is_none_or(|ms| ms > NOW));
    assert!(seen.iter().eq(alive.map(|(name, _)| name)), "{seen:?}");
    for count in [1, 7, 1000] {
        let (mut scanned, mut cursor) = (Vec::new(), 0);
        loop {
            cursor =
                set.scan(arena, cursor, count, KeyHasher::new(7), NOW, |item| scanned.push(item.to_vec()));
            if cursor == 0 {
                break;
            }
        }
        scanned.sort();
        assert_eq!(scanned, seen);
    }
}

#[test]
fn follows_a_map_through_all_its_forms() {
    for kind in 0..3 {
        let mut rng = Rng::new(kind);
        let hasher = KeyHasher::new(7);
        let mut arena = Arena::with_reserve(1 << 26).expect("address space");
        let mut set = SetValue::new();
        let mut model = BTreeMap::new();
        for op in 0..12_000u64 {
            let name = member(&mut rng, kind);
            let item = Item::of(&name);
            let is_growing = op / 3000 % 2 == 0;
            match rng.below(10) {
                0..=5 if is_growing => {
                    let new = set.insert(&mut arena, hasher, item, FieldExpiry::Keep).expect("room");
                    assert_eq!(new, !model.contains_key(&name));
                    model.entry(name).or_insert(None);
                }
                6 if is_growing => {
                    let ms = NOW - 50 + rng.below(100);
                    let new = set.insert(&mut arena, hasher, item, FieldExpiry::At(ms)).expect("room");
                    assert_eq!(new, model.insert(name, Some(ms)).is_none());
                }
                0..=6 => assert_eq!(set.remove(&mut arena, hasher, item), model.remove(&name).is_some()),
                7 => {
                    let found = set.get(&arena, hasher, item, NOW);
                    let wanted = model.get(&name).filter(|ms| ms.is_none_or(|ms| ms > NOW));
                    assert_eq!(found.map(|found| found.expiry_ms), wanted.copied());
                }
                _ => {
                    let random = set.random(&arena, rng.next_u64()).map(Item::to_vec);
                    assert_eq!(random.is_some(), !model.is_empty());
                    assert!(random.is_none_or(|name| model.contains_key(&name)));
                }
            }
            if op % 500 == 0 {
                check(&set, &arena, &model);
            }
            if op % 2999 == 0 {
                set.expire_due(&mut arena, NOW, usize::MAX);
                model.retain(|_, ms| ms.is_none_or(|ms| ms > NOW));
                check(&set, &arena, &model);
            }
        }
        while !set.free_step(&mut arena, 3) {}
        assert_eq!(arena.used_bytes(), 0);
    }
}

#[test]
fn a_scan_survives_the_loss_of_all_integers() {
    let hasher = KeyHasher::new(7);
    let mut arena = Arena::with_reserve(1 << 26).expect("address space");
    let mut set = SetValue::new();
    let ints = [i64::MIN, i64::MIN + 5, i64::MIN + 9, 0, 1, 2, 3];
    for value in ints {
        set.insert(&mut arena, hasher, Item::Int(value), FieldExpiry::Keep).expect("room");
    }
    let texts: Vec<String> = (0..300).map(|n| format!("text{n}")).collect();
    for text in &texts {
        set.insert(&mut arena, hasher, Item::of(text.as_bytes()), FieldExpiry::Keep).expect("room");
    }
    let mut seen = Vec::new();
    let mut cursor = set.scan(&arena, 0, 1, hasher, NOW, |item| seen.push(item.to_vec()));
    for value in ints {
        assert!(set.remove(&mut arena, hasher, Item::Int(value)));
    }
    while cursor != 0 {
        cursor = set.scan(&arena, cursor, 10, hasher, NOW, |item| seen.push(item.to_vec()));
    }
    assert!(texts.iter().all(|text| seen.contains(&text.as_bytes().to_vec())));
    while !set.free_step(&mut arena, 100) {}
}

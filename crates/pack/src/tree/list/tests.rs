use std::collections::VecDeque;

use darter_base::rng::Rng;
use darter_slab::Arena;

use super::leaf::ListLeafHead;
use super::{List, ListEnd};
use crate::entry::Item;
use crate::tree::block::bytes_of;

/// Texts of the mix that `kind` names: small ints, wide ints, short strings, all of them, or long ones too.
fn text(rng: &mut Rng, kind: u64) -> Vec<u8> {
    match kind {
        0 => rng.below(100).to_string().into_bytes(),
        1 => (rng.next_u64() as i64 >> rng.below(64)).to_string().into_bytes(),
        2 => format!("item:{}", rng.below(1000)).into_bytes(),
        3 => {
            let pick = rng.below(3);
            text(rng, pick)
        }
        _ => match rng.below(20) {
            0 => vec![b'x'; rng.below(1200) as usize],
            1 => vec![b'y'; 500 + rng.below(40) as usize],
            2 => vec![b'z'; 100 + rng.below(100) as usize],
            3 if rng.below(10) == 0 => vec![b'w'; 32_000 + rng.below(2000) as usize],
            _ => text(rng, 3),
        },
    }
}

fn check(list: &List, arena: &Arena, model: &VecDeque<Vec<u8>>) {
    assert_eq!(list.len(), model.len() as u64);
    assert_eq!(list.bytes(), arena.used_bytes());
    let in_tree = list.spine.check(arena, &mut |leaf| ListLeafHead::of(bytes_of(arena, leaf)).len as u32);
    let at_ends: usize = [list.head, list.tail]
        .iter()
        .filter(|h| !h.is_none())
        .map(|&h| ListLeafHead::of(bytes_of(arena, h)).len)
        .sum();
    assert_eq!(in_tree + at_ends as u64, list.len());
    assert!(list.iter(arena, 0, ListEnd::Back).map(Item::to_vec).eq(model.iter().cloned()));
    let last = list.len().saturating_sub(1);
    assert!(list.iter(arena, last, ListEnd::Front).map(Item::to_vec).eq(model.iter().rev().cloned()));
}

fn run(seed: u64, kind: u64, size: u64, ops: u64) {
    let mut rng = Rng::new(seed);
    let mut arena = Arena::with_reserve(1 << 30).unwrap();
    let (mut list, mut model) = (List::new(), VecDeque::new());
    for op in 0..ops {
        let item = text(&mut rng, kind);
        let len = model.len() as u64;
        // Above the wanted size removals win, below it additions do.
        let growing = rng.below(size * 2) >= len;
        match rng.below(16) {
            0..=3 if growing => {
                list.push(&mut arena, ListEnd::Back, Item::of(&item)).unwrap();
                model.push_back(item);
            }
            0..=3 => {
                let mut popped = None;
                assert_eq!(list.pop(&mut arena, ListEnd::Front, |i| popped = Some(i.to_vec())), len > 0);
                assert_eq!(popped, model.pop_front());
            }
            4..=7 if growing => {
                list.push(&mut arena, ListEnd::Front, Item::of(&item)).unwrap();
                model.push_front(item);
            }
            4..=7 => {
                let mut popped = None;
                assert_eq!(list.pop(&mut arena, ListEnd::Back, |i| popped = Some(i.to_vec())), len > 0);
                assert_eq!(popped, model.pop_back());
            }
            8..=9 => {
                let at = rng.below(len + 1);
                assert!(list.insert(&mut arena, at, Item::of(&item)).unwrap());
                model.insert(at as usize, item);
            }
            10 => {
                let at = rng.below(len + 1);
                assert_eq!(list.set(&mut arena, at, Item::of(&item)).unwrap(), at < len);
                if at < len {
                    model[at as usize] = item;
                }
            }
            11 => {
                let at = rng.below(len + 1);
                assert_eq!(list.remove(&mut arena, at), model.remove(at as usize).is_some());
            }
            12 => {
                let (at, count) = (rng.below(len + 1), rng.below(if growing { 4 } else { 40 }));
                let removed = list.remove_range(&mut arena, at, count);
                assert_eq!(removed, count.min(len - at));
                model.drain(at as usize..(at + removed) as usize);
            }
            13 => {
                let at = rng.below(len + 1);
                let expected = model.iter().skip(at as usize).position(|i| *i == item);
                let found = list.position(&arena, Item::of(&item), at, ListEnd::Back, u64::MAX);
                assert_eq!(found, expected.map(|p| p as u64 + at));
                let expected =
                    model.iter().take(at as usize + 1).rposition(|i| *i == item).filter(|_| at < len);
                let found = list.position(&arena, Item::of(&item), at, ListEnd::Front, u64::MAX);
                assert_eq!(found, expected.map(|p| p as u64));
            }
            14 => {
                let (count, from) =
                    (rng.below(3), if rng.below(2) == 0 { ListEnd::Front } else { ListEnd::Back });
                let mut removed = 0;
                while removed < count {
                    let at = match from {
                        ListEnd::Front => model.iter().position(|i| *i == item),
                        ListEnd::Back => model.iter().rposition(|i| *i == item),
                    };
                    let Some(at) = at else { break };
                    model.remove(at);
                    removed += 1;
                }
                assert_eq!(list.remove_equal(&mut arena, Item::of(&item), count, from), removed);
            }
            _ => {
                let at = rng.below(len + 1);
                assert_eq!(list.get(&arena, at).map(Item::to_vec), model.get(at as usize).cloned());
            }
        }
        if op % (size / 2 + 1) == 0 {
            check(&list, &arena, &model);
        }
    }
    check(&list, &arena, &model);
    while !list.free_step(&mut arena, 3) {}
    assert_eq!((list.len(), list.bytes(), list.spilled_bytes(), arena.used_bytes()), (0, 0, 0, 0));
    list.push(&mut arena, ListEnd::Back, Item::Int(1)).unwrap();
    list.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn mixed_changes_follow_a_deque() {
    for kind in 0..5 {
        for (size, ops) in [(1, 300), (12, 2_000), (150, 4_000), (2_000, 12_000)] {
            for seed in 0..4 {
                run(seed * 100 + kind, kind, size, ops);
            }
        }
    }
}

#[test]
fn a_long_list_keeps_its_order_at_three_levels() {
    run(1, 1, 20_000, 60_000);
    let mut arena = Arena::with_reserve(1 << 30).unwrap();
    let mut list = List::new();
    for n in 0..400_000i64 {
        let (end, item) = if n % 3 == 0 { (ListEnd::Front, -n) } else { (ListEnd::Back, n * 1_000_000) };
        list.push(&mut arena, end, Item::Int(item)).unwrap();
    }
    let fronts = 400_000u64.div_ceil(3);
    assert_eq!(list.get(&arena, fronts - 1), Some(Item::Int(0)));
    assert_eq!(list.get(&arena, 0), Some(Item::Int(-399_999)));
    assert_eq!(list.get(&arena, fronts), Some(Item::Int(1_000_000)));
    for at in (0..400_000 - fronts).step_by(997) {
        let n = at / 2 * 3 + 1 + at % 2;
        assert_eq!(list.get(&arena, fronts + at), Some(Item::Int(n as i64 * 1_000_000)));
    }
    assert_eq!(list.remove_range(&mut arena, 1000, 398_000), 398_000);
    assert_eq!(list.iter(&arena, 0, ListEnd::Back).count(), 2000);
    assert_eq!(list.bytes(), arena.used_bytes());
    list.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn small_lists_are_one_small_block() {
    let mut arena = Arena::with_reserve(1 << 24).unwrap();
    let mut list = List::new();
    for n in 0..10 {
        list.push(&mut arena, ListEnd::Back, Item::Int(n)).unwrap();
    }
    assert!(list.bytes() <= 24, "{}", list.bytes());
    assert_eq!(std::mem::size_of::<List>(), 40);
    list.clear(&mut arena);
}

#[test]
fn a_full_arena_is_an_error_that_changes_nothing() {
    let mut rng = Rng::new(3);
    let mut arena = Arena::with_reserve(1 << 20).unwrap();
    let (mut list, mut model) = (List::new(), VecDeque::new());
    let mut refused = 0;
    while refused < 2000 {
        let item = text(&mut rng, 4);
        let len = model.len() as u64;
        let done = match rng.below(4) {
            0 => list.push(&mut arena, ListEnd::Back, Item::of(&item)).map(|()| model.push_back(item)),
            1 => list.push(&mut arena, ListEnd::Front, Item::of(&item)).map(|()| model.push_front(item)),
            2 => {
                let at = rng.below(len + 1);
                list.insert(&mut arena, at, Item::of(&item)).map(|_| model.insert(at as usize, item))
            }
            _ => {
                let at = rng.below(len + 1);
                list.set(&mut arena, at, Item::of(&item)).map(|set| {
                    if set {
                        model[at as usize] = item;
                    }
                })
            }
        };
        if done.is_err() {
            refused += 1;
            if refused % 100 == 1 {
                check(&list, &arena, &model);
            }
        }
    }
    check(&list, &arena, &model);
    list.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

use std::collections::HashSet;

use darter_base::fields::Field;
use proptest::prelude::*;

use super::*;

fn arena() -> Arena {
    Arena::with_reserve(64 << 20).expect("address space")
}

fn free(mut bloom: Bloom, arena: &mut Arena) {
    while !bloom.free_step(arena, 3) {}
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn sizes_are_those_of_redisbloom() {
    let bloom = Bloom::new(100, 0.01, Scaling::By(2)).expect("valid");
    let link = &bloom.links()[0];
    assert_eq!((link.bits().bytes(), link.hashes(), link.error()), (144, 8, 0.005));
    assert_eq!(bloom.nominal_bytes(), 240);
    let bloom = Bloom::new(100, 0.01, Scaling::Fixed(2)).expect("valid");
    assert_eq!((bloom.links()[0].bits().bytes(), bloom.links()[0].hashes()), (120, 7));
    for (capacity, error) in [(0, 0.1), (1, 0.0), (1, f64::NAN), (1, 1.0), (1, -1.0)] {
        assert!(Bloom::new(capacity, error, Scaling::Fixed(2)).is_err(), "{capacity} {error}");
    }
    assert!(matches!(Bloom::new(u64::MAX, 0.01, Scaling::By(2)), Err(BloomFault::NoRoom)));
}

#[test]
fn a_filter_grows_or_is_full() {
    let mut arena = arena();
    for scaling in [Scaling::By(2), Scaling::Fixed(2)] {
        let mut bloom = Bloom::new(10, 0.01, scaling).expect("valid");
        let mut added = 0;
        let fault = loop {
            let hash = bloom.hash(format!("item {added}").as_bytes());
            match bloom.add(&mut arena, hash) {
                Ok(_) => added += 1,
                Err(fault) => break Some(fault),
            }
            if added == 1000 {
                break None;
            }
        };
        match scaling {
            Scaling::By(_) => {
                assert_eq!(fault, None);
                let capacities: Vec<u64> = bloom.links().iter().map(BloomLink::entries).collect();
                assert_eq!(capacities, [10, 20, 40, 80, 160, 320, 640]);
            }
            Scaling::Fixed(_) => assert_eq!((fault, added), (Some(BloomFault::FilterFull), 10)),
        }
        free(bloom, &mut arena);
    }
}

#[test]
fn the_share_of_false_answers_is_below_the_rate_asked_for() {
    let mut arena = arena();
    let mut bloom = Bloom::new(1000, 0.01, Scaling::By(2)).expect("valid");
    for n in 0..20_000_u32 {
        let hash = bloom.hash(&n.to_le_bytes());
        bloom.add(&mut arena, hash).expect("room");
    }
    let wrong =
        (20_000..120_000_u32).filter(|n| bloom.contains(&arena, bloom.hash(&n.to_le_bytes()))).count();
    assert!(wrong < 1000, "{wrong} of 100,000");
    assert!(bloom.items() > 19_800);
    free(bloom, &mut arena);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_was_added_is_found_and_files_and_dumps_keep_it(
        items in prop::collection::vec(0..400_u16, 1..300),
        capacity in 1..200_u64,
        growth in 1..4_u32,
        chunk in 1..200_u64,
    ) {
        let mut arena = arena();
        let mut bloom = Bloom::new(capacity, 0.02, Scaling::By(growth)).expect("valid");
        let mut exact = HashSet::new();
        for item in &items {
            let hash = bloom.hash(&item.to_le_bytes());
            let is_new = bloom.add(&mut arena, hash).expect("room");
            prop_assert!(exact.insert(*item) || !is_new);
        }
        let mut fields: Vec<Field> = Vec::new();
        bloom.save(&arena, &mut fields);
        let loaded = Bloom::load(&mut fields.iter(), dump::VERSION, &mut arena).expect("its own fields");
        let mut dumped = Bloom::of_header(&bloom.dump_header()).expect("its own header");
        let mut iterator = 1;
        loop {
            let (next, bytes) = bloom.dump_chunk(&arena, iterator, chunk);
            if next == 0 { break }
            dumped.load_chunk(&mut arena, next, &bytes).expect("its own chunk");
            iterator = next;
        }
        for copy in [loaded, dumped] {
            for item in &exact {
                prop_assert!(copy.contains(&arena, copy.hash(&item.to_le_bytes())));
            }
            let mut again: Vec<Field> = Vec::new();
            copy.save(&arena, &mut again);
            prop_assert_eq!(&again, &fields);
            let mut copy = copy;
            while !copy.free_step(&mut arena, 1) {}
        }
        free(bloom, &mut arena);
    }

    #[test]
    fn hostile_headers_and_chunks_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), iterator: i64) {
        let mut arena = arena();
        let _ = Bloom::of_header(&bytes);
        let bloom = Bloom::new(10, 0.01, Scaling::By(2)).expect("valid");
        let mut header = bloom.dump_header();
        for (place, byte) in header.iter_mut().zip(&bytes) {
            *place ^= byte & byte.rotate_left(3) & byte.rotate_left(5);
        }
        if let Ok(mut bloom) = Bloom::of_header(&header) {
            let _ = bloom.load_chunk(&mut arena, iterator, &bytes);
        }
    }
}

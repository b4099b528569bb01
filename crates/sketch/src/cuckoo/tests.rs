use std::collections::HashMap;

use darter_base::fields::Field;
use proptest::prelude::*;

use super::*;

const PLAIN: CuckooSettings = CuckooSettings { bucket_size: 2, iterations_max: 20, expansion: 1 };

fn arena() -> Arena {
    Arena::with_reserve(16 << 20).expect("address space")
}

#[test]
fn sizes_are_those_of_redisbloom() {
    let filter = Cuckoo::new(1024, PLAIN).expect("small");
    assert_eq!((filter.buckets(), filter.nominal_bytes()), (512, 1080));
    let odd = Cuckoo::new(1000, CuckooSettings { bucket_size: 3, expansion: 3, ..PLAIN }).expect("small");
    assert_eq!((odd.buckets(), odd.settings().expansion), (512, 4));
    assert!(Cuckoo::new(1 << 62, PLAIN).is_err());
}

#[test]
fn a_filter_that_does_not_grow_is_full_and_stays_as_it_was() {
    let mut arena = arena();
    let mut filter = Cuckoo::new(4, CuckooSettings { expansion: 0, ..PLAIN }).expect("small");
    let mut added = Vec::new();
    for n in 0..100_u32 {
        let before = filter.tables[0].cells.all(&arena).concat();
        match filter.add(&mut arena, hash(&n.to_le_bytes())) {
            Ok(()) => added.push(n),
            Err(fault) => {
                assert_eq!(fault, CuckooFault::FilterFull);
                assert_eq!(filter.tables[0].cells.all(&arena).concat(), before, "kicks are taken back");
            }
        }
    }
    assert!((2..=4).contains(&added.len()), "{added:?}");
    assert!(added.iter().all(|n| filter.contains(&arena, hash(&n.to_le_bytes()))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn counts_are_never_too_low_and_files_and_dumps_keep_them(
        steps in prop::collection::vec((0..200_u16, 0..4_u8), 1..600),
        capacity in 4..200_u64,
        bucket_size in 1..5_u16,
        expansion in 1..5_u16,
    ) {
        let mut arena = arena();
        let settings = CuckooSettings { bucket_size, expansion, ..PLAIN };
        let mut filter = Cuckoo::new(capacity, settings).expect("small");
        let mut exact: HashMap<u16, u64> = HashMap::new();
        for (item, step) in &steps {
            let hash = hash(&item.to_le_bytes());
            let count = exact.entry(*item).or_default();
            if *step > 0 {
                filter.add(&mut arena, hash).expect("room");
                *count += 1;
            } else if *count > 0 {
                prop_assert!(filter.remove(&mut arena, hash).expect("room"));
                *count -= 1;
            }
        }
        prop_assert_eq!(filter.items(), exact.values().sum::<u64>());
        let mut fields: Vec<Field> = Vec::new();
        filter.save(&arena, &mut fields);
        let loaded = Cuckoo::load(&mut fields.iter(), VERSION, &mut arena).expect("its own fields");
        let mut dumped = Cuckoo::of_header(&filter.dump_header()).expect("its own header");
        let mut iterator = 1;
        while let Some((next, bytes)) = filter.dump_chunk(&arena, iterator, 77) {
            dumped.load_chunk(&mut arena, next, &bytes).expect("its own chunk");
            iterator = next;
        }
        for mut copy in [loaded, dumped, filter] {
            for (item, count) in &exact {
                prop_assert!(copy.count(&arena, hash(&item.to_le_bytes())) >= *count);
            }
            copy.compact(&mut arena, KickEffort::All).expect("room");
            for (item, count) in &exact {
                prop_assert!(copy.count(&arena, hash(&item.to_le_bytes())) >= *count);
            }
            while !copy.free_step(&mut arena, 1) {}
        }
        prop_assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn hostile_headers_and_chunks_are_refused(header in prop::collection::vec(any::<u8>(), 38), iterator: i64) {
        let mut arena = arena();
        let _ = Cuckoo::of_header(&header);
        let mut filter = Cuckoo::new(8, PLAIN).expect("small");
        let _ = filter.load_chunk(&mut arena, iterator, &header);
        prop_assert!(filter.load_chunk(&mut arena, i64::MAX, &header).is_err());
    }
}

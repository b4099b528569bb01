use super::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
struct Oracle(BTreeMap<Vec<u8>, BTreeSet<Reader>>);

fn readers_of(seed: u64) -> Readers {
    Readers::new(KeyHasher::new(seed))
}

fn key<'a>(readers: &Readers, bytes: &'a [u8]) -> Key<'a> {
    Key { bytes, hash: readers.hasher.hash(bytes) }
}

fn sorted(readers: Vec<Reader>) -> Vec<Reader> {
    let set: BTreeSet<Reader> = readers.iter().copied().collect();
    assert_eq!(set.len(), readers.len(), "nobody is told twice");
    set.into_iter().collect()
}

impl Oracle {
    fn forget(&mut self, key: &[u8]) -> Vec<Reader> {
        self.0.remove(key).into_iter().flatten().collect()
    }

    fn check(&self, readers: &Readers) {
        let items: usize = self.0.values().map(BTreeSet::len).sum();
        assert_eq!((readers.len(), readers.totals.items.load(Relaxed)), (self.0.len(), items));
    }
}

/// Keys of all lengths from 0 on, some that begin or end alike.
fn name_of(n: u64) -> Vec<u8> {
    let mut name = n.to_string().into_bytes();
    name.resize(if n == 0 { 0 } else { (n % 23) as usize + 3 }, (n % 2) as u8);
    name
}

/// Readers of which most are small numbers, some keys have many and some have none but large ones.
fn reader_of(n: u64, below: &mut impl FnMut(u64) -> u64) -> Reader {
    match n % 5 {
        0 => 50 + below(9) as Reader,
        1 => 1000 + below(3) as Reader,
        2 => READER_MAX - below(2) as Reader,
        3 => below(70) as Reader,
        _ => below(6) as Reader,
    }
}

fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    }
}

#[test]
fn it_is_a_map_from_keys_to_sets() {
    for seed in 1..=4u64 {
        let (mut readers, mut oracle, mut below) = (readers_of(seed), Oracle::default(), numbers(seed));
        for step in 0..40_000 {
            // Many keys for a while, then few, so that tables grow and shrink.
            let n = below(if step / 10_000 % 2 == 0 { 3000 } else { 40 });
            let (name, reader) = (name_of(n), reader_of(n, &mut below));
            let key = key(&readers, &name);
            match below(10) {
                0 | 1 => assert_eq!(sorted(readers.forget(key)), oracle.forget(&name)),
                2 if step % 7 == 0 || step / 10_000 % 2 == 1 => {
                    let Some((name, gone)) = readers.give_up(Some(&name)) else { continue };
                    assert_eq!(sorted(gone), oracle.forget(&name));
                }
                act => {
                    let is_new = !oracle.0.contains_key(&name);
                    let known = oracle.0.entry(name.clone()).or_default().insert(reader);
                    if act < 6 || !readers.note(key, reader) {
                        assert_eq!(readers.add(key, reader), is_new);
                    } else {
                        assert!(!is_new && reader < 56, "{known}");
                    }
                }
            }
            if step % 1000 == 0 {
                oracle.check(&readers);
            }
        }
        let keys = oracle.0.len();
        for name in oracle.0.keys().cloned().collect::<Vec<_>>() {
            let key = key(&readers, &name);
            assert_eq!(sorted(readers.forget(key)), oracle.forget(&name));
        }
        assert!(keys > 20 && readers.is_empty() && readers.give_up(None).is_none());
        let things = readers.names.len() + readers.crowds.len();
        assert_eq!(things, 0, "nothing is kept of what is forgotten");
    }
}

#[test]
fn readers_that_have_gone_are_swept_out_however_the_keys_move_meanwhile() {
    for seed in 1..=8u64 {
        let (mut readers, mut oracle, mut below) = (readers_of(seed), Oracle::default(), numbers(seed));
        for _ in 0..5000 {
            let n = below(2000);
            let (name, reader) = (name_of(n), reader_of(n, &mut below));
            readers.add(key(&readers, &name), reader);
            oracle.0.entry(name).or_default().insert(reader);
        }
        let gone: HashSet<Reader> = [0, 1, 51, 57, 1001, READER_MAX].into();
        let mut swept = SweptReaders { keys: 0, is_done: false };
        let mut given_up = 0;
        while !swept.is_done {
            let more = readers.sweep(seed, &gone, 37);
            swept = SweptReaders { keys: swept.keys + more.keys, is_done: more.is_done };
            for _ in 0..3 {
                let n = below(4000);
                let name = name_of(n);
                let key = key(&readers, &name);
                if below(2) == 0 {
                    // Only a connected reader reads.
                    readers.add(key, 77);
                    oracle.0.entry(name).or_default().insert(77);
                } else {
                    given_up += usize::from(!readers.forget(key).is_empty());
                    oracle.0.remove(&name);
                }
            }
        }
        assert!(given_up > 10);
        oracle.0.values_mut().for_each(|set| set.retain(|reader| !gone.contains(reader)));
        oracle.0.retain(|_, set| !set.is_empty());
        assert!(swept.keys > 10);
        oracle.check(&readers);
        for name in oracle.0.keys().cloned().collect::<Vec<_>>() {
            let key = key(&readers, &name);
            assert_eq!(sorted(readers.forget(key)), oracle.forget(&name));
        }
    }
}

#[test]
fn a_key_of_sixteen_bytes_takes_less_than_forty() {
    let (mut readers, mut noted) = (readers_of(7), 0);
    for n in 0..100_000u32 {
        let name = format!("key:{n:012}");
        let key = key(&readers, name.as_bytes());
        assert!(readers.add(key, 1) && !readers.add(key, 2));
        noted += usize::from(readers.note(key, 3));
        if n > 10_000 && n % 1000 == 0 {
            let places: usize = readers.tables.iter().map(|table| table.places.capacity()).sum();
            assert!(places * size_of::<ReaderPlace>() < 40 * readers.len());
        }
    }
    assert!(noted > 99_000, "{noted}");
    assert_eq!(readers.clear(), 100_000);
    assert!(readers.is_empty() && readers.totals.items.load(Relaxed) == 0);
}

use super::*;
use darter_slab::Handle;
use std::collections::HashSet;

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

fn insert(index: &mut Index, hash_of: HashOf, h: Handle) -> Slot {
    let slot = index.insert(hash_of(h), h, hash_of);
    assert_eq!(index.handle(slot), h);
    slot
}

fn find(index: &Index, hash_of: HashOf, h: Handle) -> Option<Slot> {
    index.find(hash_of(h), |other| other == h)
}

fn remove(index: &mut Index, hash_of: HashOf, h: Handle) {
    let slot = find(index, hash_of, h).expect("present");
    assert_eq!(index.remove(slot, hash_of(h)), h);
}

/// Everything in the index, by a full scan; no handle twice.
fn scan_all(index: &Index, hash_of: HashOf) -> HashSet<Handle> {
    let mut seen = HashSet::new();
    let mut at = Some(Position::START);
    while let Some(position) = at {
        at = index
            .scan(Position::from_raw(position.raw()), hash_of, |h| assert!(seen.insert(h), "{h:?} twice"));
    }
    seen
}

fn check(index: &Index, hash_of: HashOf, oracle: &HashSet<Handle>) {
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

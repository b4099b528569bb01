//! Properties of the table against a `HashMap`, with byte-exact accounting.

use std::collections::{HashMap, HashSet};

use darter_slab::Arena;

use super::*;

/// A small seeded generator; the crate's own tests need nothing better.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut h = 0xCBF2_9CE4_8422_2325u64;
    for &b in key {
        h = (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3);
    }
    Rng(h).next()
}

type Model = HashMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// A table, what it should hold, and the arena they live in.
struct Pair {
    arena: Arena,
    table: Table,
    model: Model,
    hash: fn(&[u8]) -> u64,
}

impl Pair {
    fn new(kind: Kind) -> Pair {
        let arena = Arena::with_reserve(1 << 30).expect("reserve");
        Pair { arena, table: Table::new(kind), model: Model::new(), hash }
    }

    fn insert(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let h = (self.hash)(key);
        let done = self.table.insert(&mut self.arena, h, key, Item::Bytes(value), expiry, &self.hash);
        let old = self.model.get(key).cloned();
        let expected = if old.is_some() { Inserted::Replaced } else { Inserted::New };
        assert_eq!(done, Ok(expected));
        let expiry_ms = match expiry {
            Expiry::Keep => old.and_then(|o| o.1),
            Expiry::Clear => None,
            Expiry::At(ms) => Some(ms),
        };
        let value = if self.table.kind() == Kind::Keys { Vec::new() } else { value.to_vec() };
        self.model.insert(key.to_vec(), (value, expiry_ms));
    }

    fn remove(&mut self, key: &[u8]) {
        let was = self.table.remove(&mut self.arena, (self.hash)(key), key);
        assert_eq!(was, self.model.remove(key).is_some());
    }

    fn check_sizes(&self) {
        assert_eq!(self.table.len(), self.model.len());
        assert_eq!(self.table.arena_bytes(), self.arena.used_bytes());
        let bound = self.table.min_expiry_ms().unwrap_or(u64::MAX);
        let earliest = self.model.values().filter_map(|v| v.1).min().unwrap_or(u64::MAX);
        assert!(bound <= earliest, "{bound} > {earliest}");
    }

    fn check(&self) {
        self.check_sizes();
        for (key, (value, expiry_ms)) in &self.model {
            let entry = self.table.get(&self.arena, (self.hash)(key), key).expect("present");
            assert_eq!(entry.key().to_vec(), *key);
            assert_eq!(entry.value().to_vec(), *value);
            assert_eq!(entry.expiry_ms(), *expiry_ms);
        }
        let mut seen = HashSet::new();
        for entry in self.table.iter(&self.arena) {
            let key = entry.key().to_vec();
            assert_eq!(self.model.get(&key).map(|v| v.0.clone()), Some(entry.value().to_vec()));
            assert!(seen.insert(key));
        }
        assert_eq!(seen.len(), self.model.len());
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            while !self.table.free_step(&mut self.arena, 7) {
                assert_eq!(self.table.arena_bytes(), self.arena.used_bytes());
            }
            assert_eq!((self.table.bytes(), self.arena.used_bytes(), self.table.len()), (0, 0, 0));
        }
    }
}

/// Keys and values of every encoding, the sizes around each border among them.
fn text(rng: &mut Rng, space: u64) -> Vec<u8> {
    let id = rng.below(space);
    match id % 8 {
        0 => id.to_string().into_bytes(),
        1 => (id as i64 * -7_919_317).to_string().into_bytes(),
        2 => format!("0{id}").into_bytes(),
        3 => (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64).to_string().into_bytes(),
        4 => format!("field:{id}").into_bytes(),
        5 => vec![id as u8; (id % 140) as usize],
        6 => format!("{id:0>width$}", width = 10 + (id % 20) as usize).into_bytes(),
        _ => {
            let sizes = [127, 128, 129, 383, 384, 511, 512, 513, 600, 2000, 32_768, 32_769, 40_000];
            let len = sizes[(id / 8) as usize % sizes.len()];
            // Long ones are rare, so that the tables have many packs.
            let len = if (id / 8).is_multiple_of(40) { len } else { len % 60 };
            let mut bytes = vec![b'x'; len];
            let name = id.to_string();
            let end = name.len().min(len);
            bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
            bytes
        }
    }
}

fn run(kind: Kind, seed: u64, ops: usize, space: u64, removes: u64) {
    let (mut pair, mut rng) = (Pair::new(kind), Rng(seed));
    for op in 0..ops {
        let key = text(&mut rng, space);
        match rng.below(100) {
            n if n < removes => pair.remove(&key),
            n if n % 10 == 0 => {
                let ms = (rng.below(2) == 0).then(|| 1 + rng.below(1000));
                let found = pair.table.set_expiry(&mut pair.arena, hash(&key), &key, ms);
                assert_eq!(found, Ok(pair.model.contains_key(&key)));
                if let Some(entry) = pair.model.get_mut(&key) {
                    entry.1 = ms;
                }
            }
            n => {
                let value = text(&mut rng, 5000);
                let expiry = match n % 10 {
                    1 => Expiry::At(1 + rng.below(1000)),
                    2 => Expiry::Clear,
                    _ => Expiry::Keep,
                };
                pair.insert(&key, &value, expiry);
            }
        }
        pair.check_sizes_sometimes(op);
    }
    pair.check();
}

impl Pair {
    fn check_sizes_sometimes(&self, op: usize) {
        if op.is_multiple_of(64) {
            self.check_sizes();
        }
        if op.is_multiple_of(10_000) {
            self.check();
        }
    }
}

#[test]
fn agrees_with_a_map_at_all_sizes() {
    for (seed, space) in [(1, 10), (2, 60), (3, 300), (4, 3000), (5, 100_000)] {
        for kind in [Kind::Keys, Kind::KeysAndValues] {
            run(kind, seed, 20_000, space, 30);
            run(kind, seed + 10, 20_000, space, 60);
        }
    }
}

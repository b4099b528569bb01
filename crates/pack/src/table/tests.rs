//! Properties of the table against a `HashMap`, with byte-exact accounting.

use std::collections::{HashMap, HashSet};

use darter_slab::Arena;

use super::*;
use crate::decimal::canonical_i64;

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

/// A table, its expected content, and their arena.
struct Pair {
    arena: Arena,
    table: Table,
    model: Model,
    hash: fn(&[u8]) -> u64,
}

impl Pair {
    fn new(kind: PackKind) -> Pair {
        let arena = Arena::with_reserve(1 << 30).expect("reserve");
        Pair { arena, table: Table::new(kind), model: Model::new(), hash }
    }

    fn insert(&mut self, key: &[u8], value: &[u8], expiry: FieldExpiry) {
        let h = (self.hash)(key);
        let done = self.table.insert(&mut self.arena, h, key, Item::Bytes(value), expiry, &self.hash);
        let expected = if self.model.contains_key(key) { Inserted::Replaced } else { Inserted::New };
        assert_eq!(done, Ok(expected));
        self.remember(key, value, expiry);
    }

    fn remember(&mut self, key: &[u8], value: &[u8], expiry: FieldExpiry) {
        let expiry_ms = match expiry {
            FieldExpiry::Keep => self.model.get(key).and_then(|old| old.1),
            FieldExpiry::Clear => None,
            FieldExpiry::At(ms) => Some(ms),
        };
        let value = if self.table.kind() == PackKind::Keys { Vec::new() } else { value.to_vec() };
        self.model.insert(key.to_vec(), (value, expiry_ms));
    }

    fn change_int(&mut self, key: &[u8], by: i64) {
        let h = (self.hash)(key);
        let mut was = None;
        let is_done = self.table.replace_int(&mut self.arena, h, key, |old| {
            was = Some(old.to_vec());
            old.int()?.checked_add(by)
        });
        assert_eq!(was, self.model.get(key).map(|old| old.0.clone()));
        let sum = was.and_then(|was| canonical_i64(&was)?.checked_add(by));
        assert!(sum.is_some() || !is_done);
        if let (Some(sum), true) = (sum, is_done) {
            self.remember(key, sum.to_string().as_bytes(), FieldExpiry::Keep);
        }
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

fn run(kind: PackKind, seed: u64, ops: usize, space: u64, removes: u64) {
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
            n if n % 10 == 3 => pair.change_int(&key, rng.below(300) as i64 - 100),
            n => {
                let value = text(&mut rng, 5000);
                let expiry = match n % 10 {
                    1 => FieldExpiry::At(1 + rng.below(1000)),
                    2 => FieldExpiry::Clear,
                    _ => FieldExpiry::Keep,
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
        if op.is_multiple_of(if self.model.len() < 4000 { 64 } else { 8192 }) {
            self.check_sizes();
        }
        if op.is_multiple_of(20_000) {
            self.check();
        }
    }
}

#[test]
fn agrees_with_a_map_at_all_sizes() {
    for (seed, space) in [(1, 10), (2, 60), (3, 300), (4, 3000), (5, 100_000)] {
        for kind in [PackKind::Keys, PackKind::KeysAndValues] {
            run(kind, seed, 20_000, space, 30);
            run(kind, seed + 10, 20_000, space, 60);
        }
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("member:{n}").into_bytes()
}

#[test]
fn equal_numbers_are_equal_only_when_their_texts_are() {
    let mut pair = Pair::new(PackKind::KeysAndValues);
    let texts = [
        "12", "012", "0012", "+12", "12 ", "-12", "-012", "", "0", "-0", "00", "64", "63", "128", "255",
        "-128",
    ];
    for text in texts {
        pair.insert(text.as_bytes(), format!("v{text}").as_bytes(), FieldExpiry::Keep);
        pair.insert(text.as_bytes(), text.as_bytes(), FieldExpiry::Keep);
    }
    assert_eq!(pair.table.len(), texts.len());
    pair.check();
    let entry = pair.table.get(&pair.arena, hash(b"12"), b"12").expect("present");
    assert_eq!((entry.key(), entry.value()), (Item::Int(12), Item::Int(12)));
    let entry = pair.table.get(&pair.arena, hash(b"012"), b"012").expect("present");
    assert_eq!(entry.key(), Item::Bytes(b"012"));
}

#[test]
fn small_tables_are_one_block_of_what_they_need_in_order_of_insertion() {
    let mut pair = Pair::new(PackKind::KeysAndValues);
    for (field, value) in
        [("id", "10000001"), ("name", "Ada"), ("age", "36"), ("city", "London"), ("score", "9000")]
    {
        pair.insert(field.as_bytes(), value.as_bytes(), FieldExpiry::Keep);
    }
    // Header 4, fingerprints 5, fields 2 + 5 + 4 + 5 + 6 with tag, values 5 + 4 + 1 + 7 + 3.
    assert_eq!(pair.table.arena_bytes(), Arena::fits(4 + 5 + 23 + 20));
    let order: Vec<_> = pair.table.iter(&pair.arena).map(|e| e.key().to_vec()).collect();
    assert_eq!(order, [&b"id"[..], b"name", b"age", b"city", b"score"]);
    assert!(pair.table.is_single_pack());
    pair.remove(b"age");
    let order: Vec<_> = pair.table.iter(&pair.arena).map(|e| e.key().to_vec()).collect();
    assert_eq!(order, [&b"id"[..], b"name", b"city", b"score"]);
    // The root of a table of several packs.
    assert!(size_of::<Table>() <= 32);
}

#[test]
fn growing_and_shrinking_leave_exact_bytes_and_no_leak() {
    let mut pair = Pair::new(PackKind::Keys);
    for n in 0..200_000 {
        pair.insert(&key(n), b"", FieldExpiry::Keep);
    }
    pair.check();
    let full = pair.table.arena_bytes();
    // Header, fingerprint, tag, 13 bytes or so, at 80 % fill.
    assert!(full < 200_000 * 20, "{full}");
    for n in 0..199_000 {
        pair.remove(&key(n));
        pair.check_sizes_sometimes(n as usize);
    }
    pair.check();
    assert!(pair.table.arena_bytes() < full / 50, "{} of {full}", pair.table.arena_bytes());
    for n in 199_000..200_000 {
        pair.remove(&key(n));
    }
    assert_eq!((pair.table.bytes(), pair.arena.used_bytes()), (0, 0));
    assert!(pair.table.is_single_pack());
}

/// Scans a table that grows, shrinks or both between the calls; every entry that stays must be seen.
fn scan_under(seed: u64, start: u64, end: u64) {
    let (mut pair, mut rng) = (Pair::new(PackKind::Keys), Rng(seed));
    for n in 0..start.max(1000) {
        pair.insert(&key(n), b"", FieldExpiry::Keep);
    }
    let stays = |n: u64| n.is_multiple_of(16);
    let (mut cursor, mut seen, mut calls) = (0, HashSet::new(), 0);
    let mut current = start.max(1000);
    loop {
        let count = 1 + rng.below(50) as usize;
        cursor = pair.table.scan(&pair.arena, cursor, count, &hash, |e| {
            seen.insert(e.key().to_vec());
        });
        calls += 1;
        assert!(cursor < 1 << 48 && calls < 1_000_000);
        if cursor == 0 {
            break;
        }
        for _ in 0..rng.below(200) {
            if start < end {
                pair.insert(&key(current), b"", FieldExpiry::Keep);
                current += 1;
            } else {
                current = current.saturating_sub(1);
                if !stays(current) {
                    pair.remove(&key(current));
                }
            }
        }
    }
    let present = (0..start.max(1000)).filter(|&n| stays(n)).all(|n| seen.contains(&key(n)));
    assert!(present, "seed {seed}, {start}..{end}");
}

#[test]
fn a_scan_gives_every_entry_that_stays() {
    for seed in 0..6 {
        scan_under(seed, 1000, 100_000);
        scan_under(seed, 30_000, 100_000);
        scan_under(seed, 30_000, 0);
        scan_under(seed, 2_000, 0);
    }
    // A cursor that was never returned is harmless.
    let mut pair = Pair::new(PackKind::Keys);
    assert_eq!(pair.table.scan(&pair.arena, u64::MAX, 10, &hash, |_| ()), 0);
    pair.insert(b"a", b"", FieldExpiry::Keep);
    assert_eq!(pair.table.scan(&pair.arena, u64::MAX, 10, &hash, |_| ()), 0);
}

#[test]
fn a_scan_gives_as_many_as_asked_for_and_each_once() {
    for (len, count) in [(5u64, 2usize), (72, 50), (100, 10), (100, 1), (1000, 7), (20_000, 100)] {
        let mut pair = Pair::new(PackKind::Keys);
        for n in 0..len {
            pair.insert(&key(n), b"", FieldExpiry::Keep);
        }
        let (mut cursor, mut seen) = (0, HashSet::new());
        loop {
            let mut given = 0;
            cursor = pair.table.scan(&pair.arena, cursor, count, &hash, |e| {
                assert!(seen.insert(e.key().to_vec()), "twice");
                given += 1;
            });
            assert!(given == count || cursor == 0 && given < count, "{given} of {count}, {len} entries");
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len() as u64, len);
    }
}

#[test]
fn random_entries_are_equally_likely() {
    for len in [1u64, 5, 64, 100, 1000] {
        let mut pair = Pair::new(PackKind::Keys);
        for n in 0..len {
            pair.insert(&n.to_string().into_bytes(), b"", FieldExpiry::Keep);
        }
        let (mut rng, mut hits) = (Rng(len), vec![0u32; len as usize]);
        let draws = 1000 * len;
        for _ in 0..draws {
            let entry = pair.table.random(&pair.arena, rng.next()).expect("not empty");
            hits[entry.key().int().expect("number") as usize] += 1;
        }
        // Six standard deviations of a fair draw.
        assert!(hits.iter().all(|&h| (810..1190).contains(&h) || len == 1), "{len}: {hits:?}");
    }
    let empty = Pair::new(PackKind::Keys);
    assert!(empty.table.random(&empty.arena, 1).is_none());
}

#[test]
fn due_entries_go_and_others_stay() {
    for space in [20u64, 3000, 50_000] {
        let (mut pair, mut rng) = (Pair::new(PackKind::KeysAndValues), Rng(space));
        for n in 0..space {
            let expiry = if n % 3 == 0 { FieldExpiry::At(1 + rng.below(10_000)) } else { FieldExpiry::Keep };
            pair.insert(&key(n), &n.to_string().into_bytes(), expiry);
        }
        for now_ms in (0..11_000).step_by(500) {
            let mut gone = Vec::new();
            let mut calls = 0;
            loop {
                let step = pair.table.expire_due(&mut pair.arena, now_ms, 3, |e| {
                    assert!(e.expiry_ms().is_some_and(|ms| ms <= now_ms));
                    gone.push((e.key().to_vec(), e.value().to_vec()));
                });
                calls += 1;
                assert!(calls < 100_000);
                if step.done {
                    break;
                }
            }
            for (key, value) in gone {
                assert_eq!(pair.model.remove(&key).map(|v| v.0), Some(value));
            }
            assert!(pair.model.values().all(|v| v.1.is_none_or(|ms| ms > now_ms)));
            pair.check();
            // Entries that arrive during a pass are not forgotten.
            let soon = now_ms + 700;
            pair.insert(&key(space + now_ms), b"late", FieldExpiry::At(soon));
        }
        // The last two late ones are not due yet.
        assert_eq!(pair.model.len() as u64 - 2, space - space.div_ceil(3));
    }
}

#[test]
fn what_arrives_behind_a_pass_is_due_in_the_next() {
    let mut pair = Pair::new(PackKind::Keys);
    for n in 0..20_000 {
        pair.insert(&key(n), b"", if n % 2 == 0 { FieldExpiry::At(1000) } else { FieldExpiry::Keep });
    }
    let late = (20_000..).map(key).find(|key| place_of(hash(key)) < 1 << 60).expect("one of sixteen");
    let mut calls = 0;
    while !pair.table.expire_due(&mut pair.arena, 1000, 50, |_| ()).done {
        calls += 1;
        // By then the pass has left the first sixteenth of hash space behind.
        if calls == 4 {
            pair.insert(&late, b"", FieldExpiry::At(1001));
        }
    }
    assert!(calls > 4);
    pair.model.retain(|_, v| v.1 != Some(1000));
    pair.check();
    assert_eq!(pair.table.min_expiry_ms(), Some(1001));
    while !pair.table.expire_due(&mut pair.arena, 1001, 50, |_| ()).done {}
    pair.model.retain(|_, v| v.1.is_none());
    pair.check();
    assert_eq!((pair.table.min_expiry_ms(), pair.table.len()), (None, 10_000));
}

#[test]
fn ranges_of_hash_space_empty_one_after_another() {
    let mut rng = Rng(11);
    // The order in which the quarters are removed: one chunk of the directory then lies beside deeper ones, at either
    // end.
    for order in [[2, 1, 0, 3], [3, 0, 1, 2], [0, 1, 2, 3]] {
        let mut pair = Pair::new(PackKind::Keys);
        let mut keys: Vec<_> = (0..200_000).map(key).collect();
        for key in &keys {
            pair.insert(key, b"", FieldExpiry::Keep);
        }
        keys.sort_by_cached_key(|key| (order[(place_of(hash(key)) >> 62) as usize], rng.next()));
        let (some, rest): (Vec<_>, Vec<_>) = keys.iter().enumerate().partition(|(n, _)| n % 500 == 0);
        for (n, key) in rest.into_iter().chain(some) {
            pair.remove(key);
            if n.is_multiple_of(49_999) {
                pair.check();
            }
        }
        assert_eq!(pair.arena.used_bytes(), 0);
    }
}

#[test]
fn the_bound_disappears_with_the_last_expiry_time() {
    let mut pair = Pair::new(PackKind::Keys);
    assert_eq!(pair.table.min_expiry_ms(), None);
    pair.insert(b"a", b"", FieldExpiry::At(50));
    pair.insert(b"b", b"", FieldExpiry::At(0));
    pair.model.insert(b"b".to_vec(), (Vec::new(), Some(1)));
    assert_eq!(pair.table.min_expiry_ms(), Some(1));
    pair.insert(b"c", b"", FieldExpiry::At(u64::MAX));
    pair.model.insert(b"c".to_vec(), (Vec::new(), Some(EXPIRY_MS_MAX)));
    pair.check();
    pair.insert(b"b", b"", FieldExpiry::Clear);
    assert_eq!(pair.table.set_expiry(&mut pair.arena, hash(b"c"), b"c", None), Ok(true));
    pair.model.insert(b"c".to_vec(), (Vec::new(), None));
    let mut gone = 0;
    while !pair.table.expire_due(&mut pair.arena, 60, 1, |_| gone += 1).done {}
    pair.model.remove(&b"a"[..]);
    assert_eq!((gone, pair.table.min_expiry_ms()), (1, None));
    pair.check();
}

#[test]
fn equal_hashes_fill_one_pack_and_then_say_so() {
    let mut pair = Pair::new(PackKind::KeysAndValues);
    pair.hash = |_| 0x1234_5678_9ABC_DEF0;
    let mut full_at = None;
    for n in 0..2000 {
        let done = pair.table.insert(
            &mut pair.arena,
            (pair.hash)(b""),
            &key(n),
            Item::Bytes(b"value"),
            FieldExpiry::Keep,
            &pair.hash,
        );
        match done {
            Ok(_) => drop(pair.model.insert(key(n), (b"value".to_vec(), None))),
            Err(PackFull) => {
                full_at.get_or_insert(n);
            }
        }
        pair.check_sizes();
    }
    assert_eq!(full_at, Some(crate::pack::LEN_MAX as u64));
    pair.check();
    for n in 0..2000 {
        pair.remove(&key(n));
    }
}

#[test]
fn a_full_arena_is_an_error_that_changes_nothing() {
    for kind in [PackKind::Keys, PackKind::KeysAndValues] {
        let mut pair = Pair::new(kind);
        pair.arena = Arena::with_reserve(1 << 20).expect("reserve");
        let mut rng = Rng(9);
        let mut refused = 0;
        for _ in 0..200_000 {
            let (k, v) = (text(&mut rng, 50_000), text(&mut rng, 50_000));
            let expiry =
                if rng.below(4) == 0 { FieldExpiry::At(1 + rng.below(99)) } else { FieldExpiry::Keep };
            match rng.below(10) {
                0 => pair.remove(&k),
                _ => {
                    let h = hash(&k);
                    let done = pair.table.insert(&mut pair.arena, h, &k, Item::Bytes(&v), expiry, &hash);
                    match done {
                        Ok(_) => pair.remember(&k, &v, expiry),
                        Err(PackFull) => refused += 1,
                    }
                }
            }
            if refused % 512 == 1 {
                pair.check_sizes();
            }
        }
        assert!(refused > 1000);
        pair.check();
    }
}

#[test]
fn compaction_moves_a_table_that_shrank() {
    for kind in [PackKind::Keys, PackKind::KeysAndValues] {
        let (mut pair, mut rng) = (Pair::new(kind), Rng(3));
        let mut other = Table::new(kind);
        for n in 0..60_000 {
            let (k, v) = (text(&mut rng, 1 << 40), text(&mut rng, 1 << 40));
            // Another table in the same pages, so that they do not empty by themselves.
            let done = other.insert(&mut pair.arena, hash(&k), &k, Item::Bytes(&v), FieldExpiry::Keep, &hash);
            assert!(done.is_ok());
            if n % 10 == 0 {
                pair.insert(&k, &v, if n % 3 == 0 { FieldExpiry::At(n) } else { FieldExpiry::Keep });
            }
        }
        other.clear(&mut pair.arena);
        let before = pair.arena.committed_bytes();
        assert!(pair.arena.start_compaction() > 0);
        let mut cursor = 0;
        loop {
            cursor = pair.table.compact_step(&mut pair.arena, cursor, 5);
            if cursor == 0 {
                break;
            }
        }
        pair.arena.end_compaction();
        // Some seventy classes each keep a run that is not full.
        let slack = pair.arena.committed_bytes() - pair.arena.used_bytes();
        assert!(pair.arena.committed_bytes() < before && slack < 600 << 10, "{before}, {slack}");
        pair.check();
    }
}

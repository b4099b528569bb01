//! Shards with values of every type, and their contents in a form that can be compared. For tests.

use std::collections::BTreeMap;

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_store::Shard;
use darter_store::extras::{Extras, RecordMarks};
use darter_store::rdb as values;

use crate::cursor::Cursor;
use crate::entry::{self, Entries, KeyEntry, LoadedEntry};
use crate::file::{FileOptions, FileWriter};
use crate::layout::{self, LayoutToken};
use crate::storage::name::NameFormat;

/// The time at which tests load.
pub const NOW: u64 = 1_800_000_000_000;
/// The seed of the hashes.
pub const SEED: u64 = 7;

/// An empty shard.
pub fn shard() -> Shard {
    Shard::new(4, 1, KeyHasher::new(SEED)).expect("address space")
}

/// Loads `entry` into database `db`.
pub fn load(shard: &mut Shard, db: usize, entry: &KeyEntry<'_>) -> LoadedEntry {
    let hash = KeyHasher::new(SEED).hash(&entry.key);
    entry.load(shard, db, hash, NOW).expect("a good entry")
}

/// Loads all entries of `bytes`.
pub fn load_all(shard: &mut Shard, db: usize, bytes: &[u8]) {
    for entry in Entries::new(bytes) {
        load(shard, db, &entry.expect("a good entry"));
    }
}

/// The entries of a database.
pub fn entries_of(shard: &Shard, db: usize) -> Vec<u8> {
    let mut out = Vec::new();
    shard.each(db, |record| entry::write(shard, record, &mut out));
    out
}

/// A key as text, with members sorted if their order is free.
pub type Contents = BTreeMap<(usize, Vec<u8>), String>;

/// The content of a shard.
pub fn contents(shard: &Shard) -> Contents {
    let mut all = Contents::new();
    for db in 0..shard.dbs_len() {
        for entry in Entries::new(&entries_of(shard, db)) {
            let entry = entry.expect("a good entry");
            all.insert((db, entry.key.to_vec()), described(&entry));
        }
    }
    all
}

fn described(entry: &KeyEntry<'_>) -> String {
    let mut tokens = Vec::new();
    let layout = layout::of(entry.kind).expect("a type");
    layout::walk(layout.pieces, &mut Cursor::new(entry.value), &mut |token| {
        let bytes = match token {
            LayoutToken::Text(written) => Cursor::new(written).text().expect("a text").into_owned(),
            LayoutToken::Plain(bytes) => bytes.to_vec(),
        };
        tokens.push(bytes);
    })
    .expect("a value");
    let (skip, width) = match entry.kind {
        2 => (1, 1),
        4 | 5 | 32 => (1, 2),
        24 => (2, 3),
        48 => (1, 3),
        _ => (0, tokens.len().max(1)),
    };
    let mut members: Vec<&[Vec<u8>]> = tokens.get(skip..).unwrap_or_default().chunks(width).collect();
    members.sort();
    let head = (entry.kind, entry.deadline_ms, entry.extras);
    format!("{head:?} {} {skip}: {members:?}", entry.is_sticky)
}

/// A text of some form: short, an integer, long and repetitive, or long and not.
pub fn text(rng: &mut Rng, number: u64) -> Vec<u8> {
    match rng.below(6) {
        0 => number.to_string().into_bytes(),
        1 => format!("-{}", number * 1_234_567).into_bytes(),
        2 => format!("{number}:{}", "ab".repeat(rng.below(100) as usize)).into_bytes(),
        3 => (0..8 + rng.below(60)).map(|_| rng.next_u64() as u8).chain(number.to_le_bytes()).collect(),
        4 => format!("member:{number:010}").into_bytes(),
        _ => format!("{number}{}", "The quick brown fox. ".repeat(rng.below(60) as usize)).into_bytes(),
    }
}

/// The value of a type byte with `len` members.
pub fn value(kind: u8, len: u64, rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let is_of_ints = rng.below(3) == 0;
    let member = |rng: &mut Rng, n: u64, out: &mut Vec<u8>| {
        let text = if is_of_ints { (n * 7919).to_string().into_bytes() } else { text(rng, n) };
        values::write_text(out, &text);
    };
    match kind {
        0 => values::write_text(&mut out, &text(rng, len)),
        19 | 21 => return stream(kind, len, rng),
        _ => {
            if kind == 24 {
                out.extend_from_slice(&(NOW + 1000).to_le_bytes());
            }
            values::write_length(&mut out, len);
            for n in 0..len {
                if kind == 24 {
                    values::write_length(&mut out, if n % 3 == 0 { 1 + n * 1000 } else { 0 });
                }
                member(rng, n, &mut out);
                match kind {
                    4 | 24 => values::write_text(&mut out, &text(rng, n)),
                    5 | 48 => out.extend_from_slice(&(rng.unit_f64() * 1e6).to_le_bytes()),
                    _ => {}
                }
                match kind {
                    32 | 48 => values::write_length(&mut out, if n % 3 == 0 { NOW + 5000 + n } else { 0 }),
                    _ => {}
                }
            }
        }
    }
    out
}

fn stream(kind: u8, len: u64, rng: &mut Rng) -> Vec<u8> {
    use darter_pack::tree::{Pending, StreamId};
    let mut arena = darter_store::Arena::with_reserve(1 << 28).expect("an arena");
    let mut stream = darter_store::StreamValue::new();
    for n in 0..len {
        let (name, text) = (format!("field{}", n % 3), text(rng, n));
        let id = StreamId { ms: 1000 + n / 3, seq: n % 3 };
        assert!(stream.append(&mut arena, id, [(name.as_bytes(), &text[..])].into_iter()).expect("room"));
    }
    if len > 3 {
        assert!(stream.delete(&mut arena, StreamId { ms: 1000, seq: 1 }));
    }
    stream.create_group(b"workers", StreamId { ms: 1000, seq: 2 }, Some(3));
    let (group, _) = stream.group_mut(b"workers").expect("a group");
    for name in ["ann", "bob"] {
        let (number, _) = group.find_or_create(name.as_bytes(), NOW);
        let consumer = group.consumer_mut(number).expect("a consumer");
        consumer.active_ms = if kind == 21 && name == "bob" { None } else { Some(NOW) };
    }
    let (number, _) = group.find_or_create(b"ann", NOW);
    for seq in [0, 2] {
        let pending = Pending { consumer: number, delivered_ms: NOW - 5, deliveries: 2 };
        group.give(&mut arena, StreamId { ms: 1000, seq }, pending).expect("room");
    }
    let mut object = darter_store::Object::Stream(stream);
    assert_eq!(values::type_of(&object), kind);
    let mut out = Vec::new();
    values::write_object(&object, &arena, &mut out);
    object.clear(&mut arena);
    out
}

/// A shard with keys of every type in several sizes and databases, with and without deadlines and marks.
pub fn sample(seed: u64, sizes: &[u64]) -> Shard {
    let (mut shard, mut rng) = (shard(), Rng::new(seed));
    for (n, &len) in sizes.iter().enumerate() {
        for kind in [0, 1, 2, 4, 5, 19, 21, 24, 32, 48] {
            let value = value(kind, len, &mut rng);
            let mut entry = KeyEntry::none();
            entry.kind = kind;
            entry.key = format!("key:{kind}:{len}:{n}").into_bytes().into();
            entry.value = &value;
            entry.deadline_ms = (rng.below(3) == 0).then(|| NOW + 1 + rng.below(1 << 40));
            entry.is_sticky = rng.below(4) == 0;
            if kind == 0 && rng.below(2) == 0 {
                entry.extras = Some(Extras {
                    flags: rng.below(3) as u32,
                    cas: (rng.below(2) == 0).then(|| rng.next_u64()),
                    access_s: (rng.below(2) == 0).then(|| rng.next_u64() as u32),
                    marks: RecordMarks(rng.below(8) as u8),
                    frequency: None,
                });
            }
            assert_eq!(load(&mut shard, n % 3, &entry), LoadedEntry::Key);
        }
    }
    shard
}

/// Options of files in tests.
pub fn options(format: NameFormat) -> FileOptions {
    FileOptions { format, packs: true, has_checksum: true, now_ms: NOW, id: 77 }
}

/// The databases of a shard as a file.
pub fn file_of(shard: &Shard, format: NameFormat) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), options(format)).expect("memory");
    for db in 0..shard.dbs_len() {
        let keys = shard.db(db).len() as u32;
        writer.entries(db as u32, 0, keys, &entries_of(shard, db)).expect("entries");
    }
    writer.finish().expect("memory").0
}

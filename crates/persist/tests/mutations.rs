//! Damaged files: an error that names the place, or the unchanged data; never a panic, a hang or much memory.
//!
//! `DARTER_MUTATIONS=10000` for the full number.

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_persist::RdbItem;
use darter_persist::check::check;
use darter_persist::entry::{self, LoadedEntry, RefusedEntry};
use darter_persist::error::PersistError;
use darter_persist::file::{FileOptions, FileSource, FileWriter};
use darter_persist::storage::name::NameFormat;
use darter_store::Shard;
use darter_store::rdb::{write_length, write_text};

const NOW: u64 = 1_800_000_000_000;

fn rounds() -> u64 {
    std::env::var("DARTER_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(600)
}

fn options(format: NameFormat) -> FileOptions {
    FileOptions { format, packs: true, has_checksum: true, now_ms: NOW, id: 5 }
}

/// Entries of every type that Redis has plain forms for, of several sizes, and some in compact forms.
fn entries() -> (Vec<u8>, u32) {
    let (mut out, mut count) = (Vec::new(), 0);
    for (kind, len) in
        [0, 1, 2, 4, 5, 24, 32, 48].into_iter().flat_map(|kind| [1u64, 5, 40].map(|len| (kind, len)))
    {
        count += 1;
        if count % 3 == 0 {
            out.push(0xfc);
            out.extend_from_slice(&(NOW + 1_000_000).to_le_bytes());
        }
        out.push(kind);
        write_text(&mut out, format!("key:{kind}:{len}").as_bytes());
        if kind == 0 {
            write_text(&mut out, "text ".repeat(len as usize).as_bytes());
            continue;
        }
        if kind == 24 {
            out.extend_from_slice(&(NOW + 5).to_le_bytes());
        }
        write_length(&mut out, len);
        for n in 0..len {
            if kind == 24 {
                write_length(&mut out, n % 3);
            }
            write_text(&mut out, format!("member:{n}").as_bytes());
            match kind {
                4 | 24 => write_text(&mut out, (n * n).to_string().as_bytes()),
                5 => out.extend_from_slice(&(n as f64).to_le_bytes()),
                48 => out.extend_from_slice(&(n as f64).to_le_bytes()),
                _ => {}
            }
            if matches!(kind, 32 | 48) {
                write_length(&mut out, if n % 2 == 0 { NOW + n } else { 0 });
            }
        }
    }
    // a hash, a sorted set and a list as listpacks, a set of integers, as Redis 7.0 dumps them; an old zipmap
    let compact: [(u8, &[u8]); 5] = [
        (16, b"\x12\x12\0\0\0\x04\0\x81f\x02\x81v\x02\x81n\x02*\x01\xff"),
        (17, b"\x1d\x1d\0\0\0\x06\0\x81c\x02\x84-inf\x05\x81a\x02\x01\x01\x81b\x02\x832.5\x04\xff"),
        (18, b"\x01\x02\x0c\x0c\0\0\0\x02\0\x01\x01\x81a\x02\xff"),
        (11, b"\x0e\x02\0\0\0\x03\0\0\0\x01\0\x02\0\x03\0"),
        (9, b"\x0d\x02\x01a\x01\0b\x01c\x02\0de\xff"),
    ];
    for (kind, value) in compact {
        out.push(kind);
        write_text(&mut out, format!("compact:{kind}").as_bytes());
        out.extend_from_slice(value);
        count += 1;
    }
    (out, count)
}

fn file(format: NameFormat, entries: &[u8], count: u32) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), options(format)).expect("memory");
    writer.function(b"#!lua name=lib\nreturn 1").expect("memory");
    writer.entries(2, 0, count, entries).expect("entries");
    writer.finish().expect("memory").0
}

/// The loaded content of a file: the entries of the shard, in order of keys.
fn load(bytes: &[u8]) -> Result<Vec<Vec<u8>>, PersistError> {
    let hasher = KeyHasher::new(3);
    let mut shard = Shard::new(16, 1, hasher).expect("address space");
    FileSource::open(bytes)?.each(|item| {
        let RdbItem::Entries(chunk) = item else { return Ok(()) };
        for entry in chunk.iter() {
            let entry = entry.map_err(|fault| PersistError::corrupt(chunk.offset, fault.what))?;
            let refused = |refused: RefusedEntry| PersistError::corrupt(chunk.offset, refused.what());
            if chunk.db < 16 {
                let loaded = entry.load(&mut shard, chunk.db as usize, hasher.hash(&entry.key), NOW);
                assert!(loaded.map_err(refused)? != LoadedEntry::Part);
            }
        }
        Ok(())
    })?;
    let mut all = Vec::new();
    for db in 0..16 {
        shard.each(db, |record| {
            let mut bytes = vec![db as u8];
            entry::write(&shard, record, &mut bytes);
            all.push(bytes);
        });
    }
    all.sort();
    Ok(all)
}

/// One of several small changes.
fn mutate(bytes: &mut Vec<u8>, from: usize, rng: &mut Rng) {
    let at = from + rng.below((bytes.len() - from) as u64) as usize;
    match rng.below(5) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes.truncate(at),
        2 => {
            let end = bytes.len().min(at + 1 + rng.below(64) as usize);
            bytes[at..end].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
        }
        3 => drop(bytes.drain(at..(at + 1 + rng.below(9) as usize).min(bytes.len()))),
        _ => {
            let piece: Vec<u8> =
                (0..1 + rng.below(16)).map(|_| rng.next_u64() as u8 & rng.next_u64() as u8).collect();
            bytes.splice(at..at, piece);
        }
    }
}

#[test]
fn a_damaged_file_is_an_error_or_as_it_was() {
    let (entries, count) = entries();
    for (format, seed) in [(NameFormat::Native, 1), (NameFormat::Rdb, 2)] {
        let good = file(format, &entries, count);
        let expected = load(&good).expect("a good file");
        assert_eq!(expected.len() as u32, count);
        let mut rng = Rng::new(seed);
        let mut noticed = 0;
        for round in 0..rounds() {
            let mut changed = good.clone();
            mutate(&mut changed, 0, &mut rng);
            match load(&changed) {
                Err(error) => {
                    noticed += 1;
                    let text = error.to_string();
                    assert!(text.contains("byte"), "{text}");
                }
                // the version's digits, bytes behind the end
                Ok(loaded) => assert!(loaded == expected, "round {round} of seed {seed}"),
            }
        }
        assert!(noticed * 100 > rounds() * 98, "{noticed} noticed");
    }
}

#[test]
fn damage_under_right_checksums_never_does_harm() {
    let (entries, count) = entries();
    let rdb = file(NameFormat::Rdb, &entries, count);
    let mut rng = Rng::new(3);
    let mut loaded = 0;
    for _ in 0..rounds() {
        let mut changed = rdb.clone();
        let at = changed.len() - 8;
        // 0: no checksum was made
        changed[at..].fill(0);
        mutate(&mut changed, 9, &mut rng);
        loaded += u64::from(load(&changed).is_ok());
        check(&&changed[..]);
        // entries that a writer would have packed and signed unchanged
        let mut changed = entries.clone();
        mutate(&mut changed, 0, &mut rng);
        let mut writer = FileWriter::new(Vec::new(), options(NameFormat::Native)).expect("memory");
        writer.entries(0, 0, count, &changed).expect("not looked at");
        let native = writer.finish().expect("memory").0;
        loaded += u64::from(load(&native).is_ok());
        check(&&native[..]);
    }
    assert!(loaded > 0, "some changes make other data");
}

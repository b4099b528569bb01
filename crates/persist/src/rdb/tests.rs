use darter_base::rng::Rng;
use darter_store::Shard;
use darter_store::rdb as values;
use darter_store::stream_value::group::NOBODY;

use super::{RdbOptions, RdbReader, RdbWriter};
use crate::entry::{Entries, EntryPart, KeyEntry};
use crate::error::PersistError;
use crate::item::RdbItem;
use crate::testing::{self, contents, entries_of, load_all};

/// The databases of a shard as a file.
fn file_of(shard: &Shard, options: RdbOptions) -> Vec<u8> {
    let mut writer = RdbWriter::new(Vec::new(), options);
    writer.aux(b"redis-ver", b"7.0.15").expect("memory");
    writer
        .function(b"#!lua name=lib\nredis.register_function('f', function() return 1 end)")
        .expect("memory");
    for db in 0..shard.dbs_len() {
        let keys = shard.db(db).len() as u64;
        if keys > 0 {
            writer.sizes(db as u32, keys, 0).expect("memory");
            assert_eq!(writer.entries(db as u32, &entries_of(shard, db)).expect("entries"), keys);
        }
    }
    let (bytes, len) = writer.finish().expect("memory");
    assert_eq!(bytes.len() as u64, len);
    bytes
}

/// A file's items besides keys, and a shard with its keys.
fn read_all(bytes: &[u8]) -> Result<(Vec<RdbItem>, Shard, bool), PersistError> {
    let (mut reader, mut others, mut shard) = (RdbReader::new(bytes)?, Vec::new(), testing::shard());
    loop {
        match reader.next()? {
            RdbItem::End => return Ok((others, shard, reader.is_checked())),
            RdbItem::Entries(chunk) => {
                assert_eq!(chunk.iter().count() as u64, chunk.entries);
                load_all(&mut shard, chunk.db as usize, &chunk.bytes);
            }
            other => others.push(other),
        }
    }
}

#[test]
fn a_file_reads_back_as_it_was_written() {
    let shard = testing::sample(3, &[1, 2, 10, 100, 1000, 5000]);
    let mut before = contents(&shard);
    // only one fact is lost: that a consumer never received an entry
    before.retain(|(_, key), _| !key.starts_with(b"key:21"));
    for (packs, has_checksum) in [(true, true), (false, false)] {
        let file = file_of(&shard, RdbOptions { packs, has_checksum });
        let (others, again, is_checked) = read_all(&file).expect("a good file");
        let mut after = contents(&again);
        assert_eq!(after.keys().filter(|(_, key)| key.starts_with(b"key:21")).count(), 6);
        after.retain(|(_, key), _| !key.starts_with(b"key:21"));
        assert_eq!(after, before);
        assert_eq!(is_checked, has_checksum);
        assert!(matches!(&others[0], RdbItem::Aux { name, .. } if name == b"redis-ver"));
        assert!(matches!(&others[1], RdbItem::Function(code) if code.starts_with(b"#!lua name=lib\n")));
        assert_eq!(others.len(), 5, "three databases");
    }
}

#[test]
fn packing_makes_files_smaller() {
    let shard = testing::sample(3, &[100, 1000]);
    let sizes = [true, false].map(|packs| file_of(&shard, RdbOptions { packs, has_checksum: true }).len());
    assert!(sizes[0] * 3 < sizes[1] * 2, "{sizes:?}");
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let shard = testing::sample(5, &[1, 3]);
    let file = file_of(&shard, RdbOptions::default());
    for len in 0..file.len() {
        let Err(error) = read_all(&file[..len]) else { panic!("cut to {len} bytes") };
        assert!(
            matches!(error, PersistError::CutOff { len: said, .. } if said == len as u64),
            "{len}: {error}"
        );
    }
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut changed = file.clone();
            changed[at] ^= 1 << bit;
            let mut reader = match RdbReader::new(&changed[..]) {
                Ok(reader) => reader,
                Err(_) => continue,
            };
            let end = loop {
                match reader.next() {
                    Ok(RdbItem::End) => break Ok(()),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            // A flip in the version or in the checksum's zero... changes no data; all others are noticed.
            assert!(end.is_err() || at < 9, "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn values_in_parts_are_put_together() {
    let (mut rng, mut written) = (Rng::new(9), Vec::new());
    let mut whole = testing::shard();
    for kind in [1, 2, 4, 5, 24, 32, 48] {
        let value = testing::value(kind, 1000, &mut rng);
        let mut entry = KeyEntry::none();
        (entry.kind, entry.value) = (kind, &value);
        entry.key = format!("key:{kind}").into_bytes().into();
        testing::load(&mut whole, 1, &entry);
        write_in_parts(kind, &value, &entry.key, &mut written);
    }
    let mut loaded = testing::shard();
    load_all(&mut loaded, 1, &written);
    assert_eq!(contents(&loaded), contents(&whole));
    let mut writer = RdbWriter::new(Vec::new(), RdbOptions::default());
    writer.entries(1, &written).expect("good parts");
    let (_, again, _) = read_all(&writer.finish().expect("all parts").0).expect("a good file");
    assert_eq!(contents(&again), contents(&whole));
}

#[test]
fn a_stream_in_parts_is_put_together() {
    let mut shard = testing::shard();
    let mut rng = Rng::new(3);
    let value = testing::value(19, 400, &mut rng);
    let mut entry = KeyEntry::none();
    (entry.kind, entry.value, entry.key) = (19, &value, b"stream".as_slice().into());
    testing::load(&mut shard, 1, &entry);
    let (mut parts, mut start) = (Vec::new(), 0);
    shard.each(1, |record| {
        let written = shard.with_object(record, |object, arena| {
            let darter_store::Object::Stream(stream) = object else { panic!("a stream") };
            let (total, mut pieces) = (values::StreamPieces::elements(stream), values::StreamPieces::new());
            while !pieces.is_done() {
                let mut part = Vec::new();
                crate::entry::PartHead::new(record, 27, total).write(start, &mut part);
                start += pieces.write(stream, arena, 1000, &mut part);
                parts.push(part);
            }
            assert_eq!(start, total);
        });
        assert!(written.is_some());
    });
    assert!(parts.len() > 5, "{} parts", parts.len());
    let mut loaded = testing::shard();
    parts.iter().for_each(|part| load_all(&mut loaded, 1, part));
    assert_eq!(contents(&loaded), contents(&shard));
    let written = |parts: &[Vec<u8>]| {
        let mut writer = RdbWriter::new(Vec::new(), RdbOptions::default());
        parts.iter().try_for_each(|part| writer.entries(1, part).map(drop))?;
        writer.finish()
    };
    let (_, again, _) = read_all(&written(&parts).expect("all parts").0).expect("a good file");
    assert_eq!(contents(&again), contents(&shard));
    let mut native = crate::native::SnapshotWriter::new(Vec::new(), 7, 0, true).expect("memory");
    for part in &parts {
        native.entries_in_order(1, 0, 1, part).expect("memory");
    }
    let report = crate::check::check(&&native.finish().expect("memory").0[..]);
    assert!(report.is_good(), "{report}");
    assert_eq!(report.keys.get(&(1, "stream")), Some(&1), "one key, however many parts");
    assert!(written(&parts[..parts.len() - 1]).is_err(), "the end is missing");
    assert!(written(&parts[1..]).is_err(), "the front is missing");
    parts.swap(2, 3);
    assert!(written(&parts).is_err(), "out of order");
}

/// Writes a value of 1000 members in pieces of 128.
fn write_in_parts(kind: u8, value: &[u8], key: &[u8], out: &mut Vec<u8>) {
    let mut cursor = crate::cursor::Cursor::new(value);
    let head: Vec<u8> = if kind == 24 { cursor.take(8).expect("a time").to_vec() } else { Vec::new() };
    let total = cursor.number().expect("a number");
    let mut start = 0;
    while start < total {
        let count = (total - start).min(128);
        out.push(0xd2);
        values::write_length(out, if kind == 1 { start } else { 0 });
        values::write_length(out, total);
        out.push(kind);
        values::write_text(out, key);
        out.extend_from_slice(&head);
        values::write_length(out, count);
        let from = cursor.at();
        for _ in 0..count {
            if kind == 24 {
                cursor.number().expect("a deadline");
            }
            cursor.pass_text().expect("a member");
            match kind {
                4 | 24 => drop(cursor.pass_text().expect("a value")),
                5 | 48 => drop(cursor.take(8).expect("a score")),
                _ => {}
            }
            match kind {
                32 | 48 => drop(cursor.number().expect("a deadline")),
                _ => {}
            }
        }
        out.extend_from_slice(cursor.since(from));
        start += count;
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let part = |start, total, count: u64| {
        let mut out = Vec::new();
        out.push(0xd2);
        values::write_length(&mut out, start);
        values::write_length(&mut out, total);
        out.push(1);
        values::write_text(&mut out, b"list");
        values::write_length(&mut out, count);
        (0..count).for_each(|n| values::write_text(&mut out, n.to_string().as_bytes()));
        out
    };
    let written = |parts: &[Vec<u8>]| {
        let mut writer = RdbWriter::new(Vec::new(), RdbOptions::default());
        parts.iter().try_for_each(|part| writer.entries(0, part).map(drop))?;
        writer.finish()
    };
    assert!(written(&[part(0, 4, 2), part(2, 4, 2)]).is_ok());
    assert!(written(&[part(0, 4, 2)]).is_err(), "one is missing");
    assert!(written(&[part(2, 4, 2), part(0, 4, 2)]).is_err(), "out of order");
    assert!(written(&[part(0, 4, 2), part(2, 4, 3)]).is_err(), "too many");
    let mut shard = testing::shard();
    let second = part(2, 4, 2);
    let entry = Entries::new(&second).next().expect("an entry").expect("a good one");
    assert_eq!(entry.part, Some(EntryPart { start: 2, total: 4 }));
    assert!(entry.load(&mut shard, 0, 1, 0).is_err());
}

/// A file of the given head and body, without a checksum.
fn raw(head: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = head.to_vec();
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.push(0xff);
    bytes.extend_from_slice(&[0; 8]);
    bytes
}

#[test]
fn old_and_foreign_forms_are_read() {
    let ms = (testing::NOW + 5000).to_le_bytes();
    let forever = (-1i64).to_le_bytes();
    // Redis 2.4: seconds, a zipmap, no checksum
    let secs = 2_000_000_000i32.to_le_bytes();
    let mut oldest = raw(b"REDIS0002", &[b"\xfe\x01\xfd", &secs, b"\x09\x01h\x06\x01\x01a\x01\x00b\xff"]);
    // the length of the zipmap, and no checksum
    oldest[9 + 2 + 1 + 4 + 3] = 7;
    oldest.truncate(oldest.len() - 8);
    let (_, shard, is_checked) = read_all(&oldest).expect("a good file");
    let [value] = contents(&shard).into_values().collect::<Vec<_>>().try_into().expect("one key");
    assert!(value.contains("[97], [98]") && value.contains("Some(2000000000000)") && !is_checked, "{value}");
    // Valkey 9: its magic, slots that mean nothing here, its hashes with deadlines
    let hash = [&b"\x16\x01h\x02\x01a\x01b"[..], &ms, b"\x01c\x01d", &forever].concat();
    let slots = b"\xf4\x05\x01\x00\xf3\x04name\x01\x01\x02";
    let (_, shard, _) = read_all(&raw(b"VALKEY080", &[slots, &hash])).expect("a good file");
    let values: Vec<String> = contents(&shard).into_values().collect();
    assert!(values[0].starts_with("(24,") && values[0].contains("[97], [98]"), "{values:?}");
    // the same number in a file of Redis: deadlines in front
    let hash = [&b"\x16\x01h\x01\x81"[..], &(testing::NOW + 5000).to_be_bytes(), b"\x01a\x01b"].concat();
    let (_, shard, _) = read_all(&raw(b"REDIS0012", &[&hash])).expect("a good file");
    assert!(contents(&shard).into_values().all(|value| value.starts_with("(24,")));
}

#[test]
fn what_has_no_place_here_is_passed_over_and_named() {
    // number 0 is module AAAAAAAAA
    let module = b"\x07\x03mod\x00\x02\x05\x05\x02hi\x00";
    let notes = b"\xf7\x00\x02\x01\x01\x07\x00";
    let facts = b"\xf3\x01\x00\x00\x00\x00\x02\x05\x00";
    let array = b"\x1c\x03arr\x02\x01\x07\x00\x00\x01a\x05\x01\x01\x00\x00\x00\x00\x00\x00\x00";
    let string = b"\x00\x01k\x01v";
    let bytes = raw(b"REDIS0014", &[notes, module, facts, string, array, string]);
    let mut reader = RdbReader::new(&bytes[..]).expect("a good file");
    let mut seen = Vec::new();
    loop {
        match reader.next().expect("a good file") {
            RdbItem::End => break,
            RdbItem::Skipped { key, what, .. } => seen.push((key.unwrap_or_default(), what)),
            RdbItem::Entries(chunk) => seen.push((b"entries".to_vec(), chunk.entries.to_string())),
            _ => {}
        }
    }
    let seen: Vec<(String, String)> =
        seen.into_iter().map(|(key, what)| (String::from_utf8_lossy(&key).into_owned(), what)).collect();
    let expected =
        [("", "notes of module AAAAAAAAA"), ("mod", "a value of module AAAAAAAAA"), ("entries", "3")];
    assert_eq!(seen, expected.map(|(key, what)| (key.to_owned(), what.to_owned())));
    let (_, shard, _) = read_all(&raw(b"REDIS0014", &[array])).expect("a good file");
    let arrays = contents(&shard).into_values().filter(|value| value.starts_with("(28,")).count();
    assert_eq!(arrays, 1);
    for (head, body) in
        [(&b"REDIS0014"[..], &b"\x1d\x01k\x01v"[..]), (b"REDIS0009", b"\x06\x01k"), (b"REDIS0009", b"\xf0")]
    {
        let error = read_all(&raw(head, &[body])).err().expect("not known");
        assert!(error.to_string().contains("byte 9"), "{error}");
    }
    for head in [&b"REDIS0017"[..], b"REDIS0000", b"VALKEY079", b"REDISabcd", b"DARTERDB1"] {
        assert!(RdbReader::new(&raw(head, &[])[..]).is_err());
    }
}

#[test]
fn functions_of_release_candidates_get_their_head() {
    let body = b"\xf6\x03lib\x03LUA\x01\x04text\x04code";
    let (items, _, _) = read_all(&raw(b"REDIS0010", &[body])).expect("a good file");
    assert_eq!(items, [RdbItem::Function(b"#!lua name=lib\ncode".to_vec())]);
}

#[test]
fn streams_of_newer_servers_are_read() {
    let mut rng = Rng::new(4);
    let older = testing::value(21, 10, &mut rng);
    let key = b"\x01s";
    // limits, one producer with one entry, counters
    let producers = b"\x0a\x14\x01\x01p\x01\x01i\x05\x00\x01\x00";
    let of = |kind: u8, value: &[u8]| raw(b"REDIS0014", &[&[kind], key, value]);
    let (_, plain, _) = read_all(&of(21, &older)).expect("a good file");
    let newer = [&older[..], producers].concat();
    let (_, shard, _) = read_all(&of(26, &newer)).expect("a good file");
    assert_eq!(kinds(&shard), [26]);
    assert_eq!(
        contents(&written_and_read(&shard)),
        contents(&written_and_read(&plain)),
        "7.0 has no producers"
    );
    // the only group ends the value: no entry was given back
    let newest = [&older[..], b"\x00", producers].concat();
    let (_, mut shard, _) = read_all(&of(27, &newest)).expect("a good file");
    assert_eq!(kinds(&shard), [26]);
    give_back(&mut shard);
    assert_eq!(kinds(&shard), [27]);
    let again = written_and_read(&shard);
    assert_eq!(kinds(&again), [19]);
    let value = contents(&again).into_values().next().expect("a stream");
    assert!(value.contains(&format!("{:?}", b"nacked")), "what nobody has is given to somebody");
}

/// The type bytes of the values.
fn kinds(shard: &Shard) -> Vec<u8> {
    let bytes = testing::entries_of(shard, 0);
    Entries::new(&bytes).map(|entry| entry.expect("a good entry").kind).collect()
}

fn written_and_read(shard: &Shard) -> Shard {
    let bytes = testing::file_of(shard, crate::storage::name::NameFormat::Rdb);
    read_all(&bytes).expect("a good file").1
}

/// Takes a pending entry from its consumer, so that it has none.
fn give_back(shard: &mut Shard) {
    let key =
        darter_store::Key { bytes: b"s", hash: darter_base::hash::KeyHasher::new(testing::SEED).hash(b"s") };
    let mut place = darter_store::Keyed::find(shard, 0, key, testing::NOW);
    let edited = place.edit(|stream: &mut darter_store::StreamValue, arena, _| {
        let group = stream.group_mut(b"workers").expect("a group").0;
        let (id, pending) = group
            .pending()
            .iter(arena, 0, darter_pack::tree::Direction::Up)
            .next()
            .expect("something pending");
        let pending = darter_pack::tree::Pending { consumer: NOBODY, ..pending };
        group.give(arena, id, pending).expect("room");
    });
    edited.expect("a stream");
}

#[test]
fn a_document_is_kept_as_redis_8_writes_it() {
    let mut shard = testing::shard();
    let long = format!("[\"{}\",1.5]", "ab".repeat(200));
    for (key, text) in [("short", "{\"a\":[1,null]}"), ("long", &long)] {
        // the number of module type ReJSON-RL, version 3
        let mut value = vec![0x81];
        value.extend_from_slice(&0x45e25238df912c03_u64.to_be_bytes());
        value.push(5);
        values::write_text(&mut value, text.as_bytes());
        value.push(0);
        let mut entry = KeyEntry::none();
        (entry.kind, entry.key, entry.value) = (7, key.as_bytes().into(), &value);
        assert_eq!(testing::load(&mut shard, 0, &entry), crate::entry::LoadedEntry::Key);
        assert!(entries_of(&shard, 0).windows(value.len()).any(|bytes| bytes == value));
    }
    for packs in [true, false] {
        let file = file_of(&shard, RdbOptions { packs, has_checksum: true });
        let (others, again, _) = read_all(&file).expect("a good file");
        assert_eq!(contents(&again), contents(&shard));
        assert!(!others.iter().any(|item| matches!(item, RdbItem::Skipped { .. })));
    }
}

use darter_base::hash::KeyHasher;
use darter_slab::Arena;

use super::{
    Corrupt, RdbSource, TYPE_VALKEY_HASH, Versions, crc64, read_object, seal, type_of, write_length,
    write_object, write_text,
};

fn open(payload: &[u8]) -> Result<RdbSource<'_>, Corrupt> {
    super::open(payload, Versions::Known).map(|payload| payload.source)
}

fn text_back(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(&mut out, text);
    let mut source = RdbSource::new(&out);
    let back = source.text().expect("what was written reads").into_owned();
    assert_eq!(source.left(), 0);
    back
}

#[test]
fn every_string_reads_back() {
    for text in [
        "",
        "0",
        "-1",
        "127",
        "128",
        "-129",
        "32768",
        "2147483647",
        "2147483648",
        "-2147483648",
        "007",
        "+1",
        "1.5",
    ] {
        assert_eq!(text_back(text.as_bytes()), text.as_bytes());
    }
    for len in [63, 64, 16383, 16384, 70_000] {
        let text = vec![b'x'; len];
        assert_eq!(text_back(&text), text);
    }
}

#[test]
fn integers_are_written_as_redis_does() {
    let bytes = |text: &[u8]| {
        let mut out = Vec::new();
        write_text(&mut out, text);
        out
    };
    assert_eq!(bytes(b"12"), [0xc0, 12]);
    assert_eq!(bytes(b"-300"), [0xc1, 0xd4, 0xfe]);
    assert_eq!(bytes(b"70000"), [0xc2, 0x70, 0x11, 0x01, 0x00]);
    assert_eq!(bytes(b"ab"), [2, b'a', b'b']);
}

#[test]
fn lengths_of_every_width_read_back() {
    for len in [0, 63, 64, 16383, 16384, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
        let mut out = Vec::new();
        write_length(&mut out, len);
        assert_eq!(RdbSource::new(&out).count(), Ok(len));
    }
}

#[test]
fn damaged_lengths_and_strings_are_refused() {
    assert_eq!(RdbSource::new(&[]).text(), Err(Corrupt));
    assert_eq!(RdbSource::new(&[5, b'a']).text(), Err(Corrupt));
    assert_eq!(RdbSource::new(&[0x81, 255, 255, 255, 255, 255, 255, 255, 255]).text(), Err(Corrupt));
    assert_eq!(RdbSource::new(&[0x85, 0]).text(), Err(Corrupt));
    assert_eq!(RdbSource::new(&[0xc4]).text(), Err(Corrupt));
    assert_eq!(RdbSource::new(&[0xc2, 1, 2]).text(), Err(Corrupt));
    // compressed: two bytes that claim to be 2^62
    assert_eq!(RdbSource::new(&[0xc3, 2, 0x81, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, b'a']).text(), Err(Corrupt));
}

#[test]
fn a_sealed_payload_opens_and_a_changed_one_does_not() {
    let mut payload = vec![0, 3, b'a', b'b', b'c'];
    seal(&mut payload);
    // as Redis 7.0.15 dumps the string "abc"
    assert_eq!(payload[5..7], [10, 0]);
    assert_eq!(
        open(&payload).map(|mut s| (s.byte(), s.text().map(|t| t.into_owned()))),
        Ok((Ok(0), Ok(b"abc".to_vec())))
    );
    for at in 0..payload.len() {
        let mut changed = payload.clone();
        changed[at] ^= 1;
        assert!(open(&changed).is_err(), "byte {at}");
    }
    for len in 0..payload.len() {
        assert!(open(&payload[..len]).is_err(), "length {len}");
    }
}

#[test]
fn versions_are_known_or_let_pass() {
    let sealed = |version: u16| {
        let mut payload = vec![22, 0];
        payload.extend_from_slice(&version.to_le_bytes());
        let crc = crc64(&payload);
        payload.extend_from_slice(&crc.to_le_bytes());
        payload
    };
    let kind = |version: u16, versions| super::open(&sealed(version), versions)?.kind();
    for (version, known, any) in [
        (6, Ok(22), Ok(22)),
        (16, Ok(22), Ok(22)),
        (17, Err(Corrupt), Ok(22)),
        (79, Err(Corrupt), Ok(22)),
        (80, Ok(TYPE_VALKEY_HASH), Ok(TYPE_VALKEY_HASH)),
        (90, Err(Corrupt), Ok(TYPE_VALKEY_HASH)),
        (222, Err(Corrupt), Ok(TYPE_VALKEY_HASH)),
    ] {
        assert_eq!(kind(version, Versions::Known), known, "{version}");
        assert_eq!(kind(version, Versions::Any), any, "{version}");
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Dumps made by Redis 7.0.15.
const REDIS_STRINGS: [(&str, &str); 5] = [
    (
        "00c30b3c0361626361e02d020162630a006f6029e4afd764ac",
        "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc",
    ),
    ("00c0fb0a0049c4c6f4d7263f68", "-5"),
    ("00c12c010a00954261f265825c10", "300"),
    ("00c290eefeff0a002875de7b13eb2800", "-70000"),
    ("000568656c6c6f0a006372df766534200a", "hello"),
];

#[test]
fn strings_of_redis_are_read() {
    for (payload, text) in REDIS_STRINGS {
        let payload = hex(payload);
        let mut source = open(&payload).expect("the checksum is right");
        assert_eq!(source.byte(), Ok(0));
        assert_eq!(source.text().as_deref(), Ok(text.as_bytes()));
        assert_eq!(source.left(), 0);
    }
}

/// The elements of a dump as we write it back: one after another.
fn elements_of(payload: &[u8]) -> Vec<String> {
    let (mut arena, hasher) = (Arena::new().expect("address space"), KeyHasher::new(7));
    let mut source = open(payload).expect("the checksum is right");
    let kind = source.byte().expect("a type");
    let mut object = read_object(kind, &mut source, &mut arena, hasher).expect("a value");
    assert_eq!(source.left(), 0);
    let mut out = Vec::new();
    write_object(&object, &arena, &mut out);
    let again = read_object(type_of(&object), &mut RdbSource::new(&out), &mut arena, hasher);
    again.expect("what was written reads").clear(&mut arena);
    object.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
    let mut source = RdbSource::new(&out);
    source.count().expect("a count");
    let mut elements = Vec::new();
    while source.left() > 0 {
        elements.push(String::from_utf8_lossy(&source.text().expect("an element")).into_owned());
    }
    elements
}

const REDIS_LIST: &str = "120102c3404440851f850000000e008161020101dfff027f01c08002cfff02d00002f1001003f1ff7f0c03f200008004f2ffff7f04\
    f3ff20050105f420054000047f09e04678e03c000148ff0a00ae3a9153e086e3fe";

#[test]
fn lists_of_redis_are_read() {
    let ints = "a 1 -1 127 128 4095 -4096 4096 32767 -8388608 8388607 2147483647 9223372036854775807";
    let mut expected: Vec<String> = ints.split(' ').map(str::to_owned).collect();
    expected.push("x".repeat(70));
    assert_eq!(elements_of(&hex(&REDIS_LIST.replace([' ', '\n'], ""))), expected);
}

#[test]
fn hashes_of_redis_are_read() {
    let payload = hex("1012120000000400816602817602816e022a01ff0a00ff30e87f7262d991");
    let mut elements = elements_of(&payload);
    elements.sort();
    assert_eq!(elements, ["42", "f", "n", "v"]);
}

#[test]
fn sets_of_redis_are_read() {
    let ints = hex("0b1404000000030000000100000002000000701101000a0085d5c1065b1dd055");
    assert_eq!(elements_of(&ints), ["1", "2", "70000"]);
    let mut texts = elements_of(&hex("02030162016301610a00b294da2e4ecda6fc"));
    texts.sort();
    assert_eq!(texts, ["a", "b", "c"]);
    // a listpack, as Redis 7.2 saves small sets: "a", 5, -300
    let mut body = vec![20];
    let entries = [0x81, b'a', 2, 5, 1, 0xde, 0xd4, 2, 0xff];
    let head = [&(6 + entries.len() as u32).to_le_bytes()[..], &[3, 0]].concat();
    write_text(&mut body, &[&head[..], &entries].concat());
    seal(&mut body);
    let mut members = elements_of(&body);
    members.sort();
    assert_eq!(members, ["-300", "5", "a"]);
}

/// Member and score of a dump, by score.
fn ranking_of(payload: &[u8]) -> Vec<(String, f64)> {
    let (mut arena, hasher) = (Arena::new().expect("address space"), KeyHasher::new(7));
    let mut source = open(payload).expect("the checksum is right");
    let kind = source.byte().expect("a type");
    let mut object = read_object(kind, &mut source, &mut arena, hasher).expect("a value");
    let mut out = Vec::new();
    write_object(&object, &arena, &mut out);
    object.clear(&mut arena);
    let mut source = RdbSource::new(&out);
    let count = source.count().expect("a count");
    let mut ranking: Vec<(String, f64)> = (0..count)
        .map(|_| {
            let member = String::from_utf8_lossy(&source.text().expect("a member")).into_owned();
            (member, source.double().expect("a score"))
        })
        .collect();
    ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
    ranking
}

#[test]
fn sorted_sets_of_redis_are_read() {
    let expected = [("c".to_owned(), f64::NEG_INFINITY), ("a".to_owned(), 1.0), ("b".to_owned(), 2.5)];
    let listpack = "111d1d0000000600816302842d696e6605816102010181620283322e3504ff0a003992339be11f323d";
    assert_eq!(ranking_of(&hex(listpack)), expected);
    let mut old = vec![3, 3, 1, b'b', 3, b'2', b'.', b'5', 1, b'a', 1, b'1', 1, b'c', 255];
    seal(&mut old);
    assert_eq!(ranking_of(&old), expected);
}

#[test]
fn hashes_with_deadlines_are_read() {
    let deadline_ms: u64 = 1_900_000_000_000;
    // Redis 7.4's small form: f v 0, g w deadline
    let mut entries = vec![0x81, b'f', 2, 0x81, b'v', 2, 0, 1, 0x81, b'g', 2, 0x81, b'w', 2, 0xf4];
    entries.extend_from_slice(&deadline_ms.to_le_bytes());
    entries.extend_from_slice(&[9, 0xff]);
    let head = [&(6 + entries.len() as u32).to_le_bytes()[..], &[6, 0]].concat();
    let mut payload = vec![25];
    payload.extend_from_slice(&deadline_ms.to_le_bytes());
    write_text(&mut payload, &[&head[..], &entries].concat());
    let (mut arena, hasher) = (Arena::new().expect("address space"), KeyHasher::new(7));
    let mut object = read_object(25, &mut RdbSource::new(&payload[1..]), &mut arena, hasher).expect("a hash");
    assert_eq!(type_of(&object), 24);
    let mut out = Vec::new();
    write_object(&object, &arena, &mut out);
    // earliest deadline, number of fields, then time, field and value of each
    assert_eq!(out[..9], [&deadline_ms.to_le_bytes()[..], &[2]].concat());
    let mut again =
        read_object(24, &mut RdbSource::new(&out), &mut arena, hasher).expect("what was written reads");
    assert_eq!(again.next_expiry_ms(), Some(deadline_ms));
    object.clear(&mut arena);
    again.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn ziplists_are_read() {
    // a list as Redis 6 saves it: "ab", 3, -7, 300, 70000, 2^40
    let mut body = vec![10];
    let entries: &[&[u8]] = &[
        &[0, 2, b'a', b'b'],
        &[4, 0xf4],
        &[2, 0xfe, 0xf9],
        &[3, 0xc0, 0x2c, 0x01],
        &[4, 0xf0, 0x70, 0x11, 0x01],
        &[5, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0],
    ];
    let entries = entries.concat();
    let total = 10 + entries.len() + 1;
    let head = [&(total as u32).to_le_bytes()[..], &[0; 4], &[6, 0]].concat();
    write_text(&mut body, &[&head[..], &entries, &[0xff]].concat());
    seal(&mut body);
    assert_eq!(elements_of(&body), ["ab", "3", "-7", "300", "70000", "1099511627776"]);
}

#[test]
fn damaged_compact_forms_are_refused_and_leave_nothing() {
    let (mut arena, hasher) = (Arena::new().expect("address space"), KeyHasher::new(7));
    let list = hex(&REDIS_LIST.replace([' ', '\n'], ""));
    let hash = hex("1012120000000400816602817602816e022a01ff0a00ff30e87f7262d991");
    let set = hex("0b1404000000030000000100000002000000701101000a0085d5c1065b1dd055");
    let zset = hex("111d1d0000000600816302842d696e6605816102010181620283322e3504ff0a003992339be11f323d");
    for payload in [&list[..], &hash, &set, &zset] {
        let body = &payload[..payload.len() - 10];
        for at in 1..body.len() {
            let mut cut = RdbSource::new(&body[1..at]);
            assert!(read_object(body[0], &mut cut, &mut arena, hasher).is_err());
            for bit in 0..8 {
                let mut changed = body.to_vec();
                changed[at] ^= 1 << bit;
                // it may still be a value, but must not cause a panic
                if let Ok(mut object) =
                    read_object(changed[0], &mut RdbSource::new(&changed[1..]), &mut arena, hasher)
                {
                    object.clear(&mut arena);
                }
            }
        }
    }
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn a_large_hash_reads_back() {
    use darter_base::hash::KeyHasher;
    use darter_pack::entry::Item;
    use darter_pack::table::{FieldExpiry, PackKind, Table};

    let hasher = KeyHasher::new(3);
    let mut arena = darter_slab::Arena::with_reserve(1 << 26).expect("address space");
    let mut table = Table::new(PackKind::KeysAndValues);
    for n in 0..5000u64 {
        let field = format!("field:{n}");
        let value = match n % 5 {
            0 => n.to_string(),
            1 => format!("-{}", n * n * n * n),
            2 => "x".repeat(n as usize % 700),
            3 => format!("{:x}", n * 7919),
            _ => (n * 12_345_678_901).to_string(),
        };
        let of_key = |key: &[u8]| hasher.hash(key);
        let hash = of_key(field.as_bytes());
        table
            .insert(
                &mut arena,
                hash,
                field.as_bytes(),
                Item::of(value.as_bytes()),
                FieldExpiry::Keep,
                &of_key,
            )
            .expect("room");
    }
    let object = crate::Object::Hash(table);
    let mut out = Vec::new();
    super::write_object(&object, &arena, &mut out);
    let back = super::read_object(super::type_of(&object), &mut RdbSource::new(&out), &mut arena, hasher);
    let mut again = Vec::new();
    super::write_object(&back.expect("what was written reads"), &arena, &mut again);
    assert_eq!(out.len(), again.len());
}

use super::{Corrupt, Source, lzf, open, seal, write_length, write_text};

fn text_back(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(&mut out, text);
    let mut source = Source::new(&out);
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
        assert_eq!(Source::new(&out).count(), Ok(len));
    }
}

#[test]
fn damaged_lengths_and_strings_are_refused() {
    assert_eq!(Source::new(&[]).text(), Err(Corrupt));
    assert_eq!(Source::new(&[5, b'a']).text(), Err(Corrupt));
    assert_eq!(Source::new(&[0x81, 255, 255, 255, 255, 255, 255, 255, 255]).text(), Err(Corrupt));
    assert_eq!(Source::new(&[0x85, 0]).text(), Err(Corrupt));
    assert_eq!(Source::new(&[0xc4]).text(), Err(Corrupt));
    assert_eq!(Source::new(&[0xc2, 1, 2]).text(), Err(Corrupt));
    // compressed: two bytes that claim to be 2^62
    assert_eq!(Source::new(&[0xc3, 2, 0x81, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, b'a']).text(), Err(Corrupt));
}

#[test]
fn lzf_unpacks_literals_and_references() {
    // "abc" then 9 bytes from 3 back: "abcabcabcabc"
    assert_eq!(lzf::unpack(&[2, b'a', b'b', b'c', 7 << 5, 0, 2], 12), Ok(b"abcabcabcabc".to_vec()));
    assert_eq!(lzf::unpack(&[0, b'x', 7 << 5, 253, 0], 263), Ok(vec![b'x'; 263]));
    assert_eq!(lzf::unpack(&[2, b'a', b'b'], 3), Err(Corrupt), "a literal past the end");
    assert_eq!(lzf::unpack(&[0, b'a', 1 << 5, 1], 4), Err(Corrupt), "a reference before the start");
    assert_eq!(lzf::unpack(&[0, b'a', 1 << 5, 0], 3), Err(Corrupt), "more than promised");
    assert_eq!(lzf::unpack(&[0, b'a'], 2), Err(Corrupt), "less than promised");
    assert_eq!(lzf::unpack(&[0, b'a', 7 << 5], 9), Err(Corrupt), "an end within a reference");
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

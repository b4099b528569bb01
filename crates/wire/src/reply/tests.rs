//! Replies byte for byte, in both protocols.

use super::*;

fn written(resp3: bool, write: impl Fn(&mut Reply<'_>)) -> String {
    let mut out = Vec::new();
    write(&mut Reply::new(&mut out, resp3));
    String::from_utf8(out).unwrap()
}

fn both(write: impl Fn(&mut Reply<'_>)) -> (String, String) {
    (written(false, &write), written(true, &write))
}

fn same(write: impl Fn(&mut Reply<'_>)) -> String {
    let (old, new) = both(write);
    assert_eq!(old, new);
    old
}

#[test]
fn elements_common_to_both_protocols() {
    assert_eq!(same(|r| r.ok()), "+OK\r\n");
    assert_eq!(same(|r| r.status("PONG")), "+PONG\r\n");
    assert_eq!(same(|r| r.error("ERR x")), "-ERR x\r\n");
    for value in [0, 9, 10, -1, 12345, i64::MAX, i64::MIN] {
        assert_eq!(same(|r| r.int(value)), format!(":{value}\r\n"));
        assert_eq!(same(|r| r.bulk_int(value)), format!("${}\r\n{value}\r\n", value.to_string().len()));
    }
    for len in [0, 1, 9, 10, 99, 100, 101, 65536] {
        let text = "x".repeat(len);
        assert_eq!(same(|r| r.bulk(text.as_bytes())), format!("${len}\r\n{text}\r\n"));
        assert_eq!(same(|r| r.array(len)), format!("*{len}\r\n"));
    }
    assert_eq!(same(|r| r.int_len(usize::MAX)), format!(":{}\r\n", i64::MAX));
}

#[test]
fn elements_that_differ() {
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(both(|r| r.null()), pair("$-1\r\n", "_\r\n"));
    assert_eq!(both(|r| r.null_array()), pair("*-1\r\n", "_\r\n"));
    assert_eq!(both(|r| r.bulk_or_null(None)), pair("$-1\r\n", "_\r\n"));
    assert_eq!(both(|r| r.map(7)), pair("*14\r\n", "%7\r\n"));
    assert_eq!(both(|r| r.set(3)), pair("*3\r\n", "~3\r\n"));
    assert_eq!(both(|r| r.push(3)), pair("*3\r\n", ">3\r\n"));
    assert_eq!(both(|r| assert_eq!(r.attribute(1), r.is_resp3())), pair("", "|1\r\n"));
    assert_eq!(both(|r| r.boolean(true)), pair(":1\r\n", "#t\r\n"));
    assert_eq!(both(|r| r.boolean(false)), pair(":0\r\n", "#f\r\n"));
    assert_eq!(both(|r| r.big_number(b"123")), pair("$3\r\n123\r\n", "(123\r\n"));
    assert_eq!(both(|r| r.verbatim(*b"txt", b"hi")), pair("$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"));
    assert_eq!(both(|r| r.double(1.5)), pair("$3\r\n1.5\r\n", ",1.5\r\n"));
    assert_eq!(both(|r| r.double(f64::NEG_INFINITY)), pair("$4\r\n-inf\r\n", ",-inf\r\n"));
    assert_eq!(
        both(|r| r.double(0.1 + 0.2)),
        pair("$19\r\n0.30000000000000004\r\n", ",0.30000000000000004\r\n")
    );
    assert_eq!(both(|r| r.double(1234567890.0)), pair("$10\r\n1234567890\r\n", ",1234567890\r\n"));
    assert_eq!(both(|r| r.double(123456789.0)), pair("$9\r\n123456789\r\n", ",123456789\r\n"));
}

#[test]
fn one_line_replies_cannot_be_broken() {
    assert_eq!(same(|r| r.error("ERR x\r\n+OK\0")), "-ERR x  +OK \r\n");
    assert_eq!(same(|r| r.status("a\nb")), "+a b\r\n");
    assert_eq!(written(true, |r| r.big_number(b"1\r\n2")), "(1  2\r\n");
}

#[test]
fn deferred_lengths_nest() {
    for len in [0usize, 1, 9, 10, 11, 99, 100, 12345] {
        let got = same(|r| {
            let outer = r.begin_array();
            let inner = r.begin_array();
            (0..len).for_each(|_| r.int(1));
            r.end_array(inner, len);
            r.status("end");
            r.end_array(outer, 2);
        });
        assert_eq!(got, format!("*2\r\n*{len}\r\n{}+end\r\n", ":1\r\n".repeat(len)));
    }
    let map = both(|r| {
        let begun = r.begin_array();
        (0..12).for_each(|_| r.int(1));
        r.end_map(begun, 6);
    });
    assert_eq!(map, (format!("*12\r\n{}", ":1\r\n".repeat(12)), format!("%6\r\n{}", ":1\r\n".repeat(12))));
    let set = both(|r| {
        let begun = r.begin_array();
        r.end_set(begun, 0);
    });
    assert_eq!(set, ("*0\r\n".to_string(), "~0\r\n".to_string()));
}

#[test]
fn a_mark_takes_back_what_followed() {
    let got = same(|r| {
        r.ok();
        let mark = r.len();
        r.int(1);
        assert_eq!(r.since(mark), b":1\r\n");
        r.truncate_to(mark);
        r.bulk_header(3);
        r.raw(b"abc");
        r.bulk_end();
    });
    assert_eq!(got, "+OK\r\n$3\r\nabc\r\n");
}

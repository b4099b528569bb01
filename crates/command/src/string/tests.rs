use crate::testing::Bed;

/// Runs `line`s in order and checks each reply.
fn check(bed: &mut Bed, steps: &[(&str, &str)]) {
    for (line, reply) in steps {
        assert_eq!(bed.run(line), *reply, "{line}");
    }
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn set_obeys_its_conditions() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("SET k a XX", "$-1"),
            ("SET k a NX", "+OK"),
            ("SET k b NX", "$-1"),
            ("SET k b NX GET", "$1|a"),
            ("SET k b XX GET", "$1|a"),
            ("SET k c IFEQ a", "$-1"),
            ("SET k c IFEQ b", "+OK"),
            ("SET none c IFEQ b", "$-1"),
            ("SET none c IFNE b", "+OK"),
            ("SET none c IFNE c", "$-1"),
            ("SET k x NX XX", "-ERR syntax error"),
            ("SET k x NX IFEQ c", "-ERR syntax error"),
            ("SET k x NX NX", "$-1"),
            ("SET k x EX", "-ERR syntax error"),
            ("SET k x EX 1 PX 1", "-ERR syntax error"),
            ("SET k x EX 1 KEEPTTL", "-ERR syntax error"),
            ("SET k x EX 1 NONSENSE", "-ERR syntax error"),
            ("SET k x EX abc", "-ERR value is not an integer or out of range"),
            ("SET k x EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET k x PX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
            ("GET k", "$1|c"),
        ],
    );
}

#[test]
fn digests_compare_values() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("DIGEST k", "$-1"),
            ("SET k Hello", "+OK"),
            ("SET key1 test", "+OK"),
            ("DIGEST key1", "$16|9ec9f7918d7dfc40"),
            ("SET key1 x IFDEQ 9ec9f7918d7dfc41", "$-1"),
            ("SET key1 x IFDNE 9ec9f7918d7dfc40", "$-1"),
            ("SET key1 y IFDEQ 9EC9F7918D7DFC40", "+OK"),
            ("SET key1 y IFDEQ 9ec9", "-ERR must be exactly 16 hexadecimal characters"),
            ("DELEX key1 IFEQ x", ":0"),
            ("DELEX key1 IFNE y", ":0"),
            ("DELEX none IFNE y", ":0"),
            // A digest is checked only if there is a value to compare.
            ("DELEX none IFDEQ digest", ":0"),
            ("SET none y IFDEQ digest", "$-1"),
            ("DELEX key1 IFDNE digest", "-ERR must be exactly 16 hexadecimal characters"),
            ("DELEX key1 IFEQ y", ":1"),
            ("DELIFEQ k hello", ":0"),
            ("DELIFEQ k Hello", ":1"),
            ("RPUSH l a", ":1"),
            ("DELEX l IFEQ a", "-ERR Key should be of string type if conditions are specified"),
            ("DELEX l NOPE a", "-ERR Key should be of string type if conditions are specified"),
            ("DELEX key1 IFEQ", "-ERR wrong number of arguments for 'delex' command"),
            ("DELEX none NOPE a", ":0"),
            ("SET other v", "+OK"),
            ("DELEX other NOPE a", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
            ("DIGEST l", WRONG_TYPE),
            ("DELEX l", ":1"),
            ("DELEX l", ":0"),
        ],
    );
}

#[test]
fn deadlines_come_and_go_with_writes() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("SET k v EX 100", "+OK"),
            ("TTL k", ":100"),
            ("SET k v KEEPTTL", "+OK"),
            ("TTL k", ":100"),
            ("APPEND k w", ":2"),
            ("TTL k", ":100"),
            ("GETEX k", "$2|vw"),
            ("GETEX k PERSIST", "$2|vw"),
            ("TTL k", ":-1"),
            ("GETEX k PX 5000", "$2|vw"),
            ("PTTL k", ":5000"),
            ("GETEX k PERSIST EX 5", "-ERR syntax error"),
            ("GETEX k EX -1", "-ERR invalid expire time in 'getex' command"),
            ("GETEX none EX -1", "$-1"),
            ("SET k v", "+OK"),
            ("TTL k", ":-1"),
            ("SETEX k 10 v", "+OK"),
            ("TTL k", ":10"),
            ("SETEX k 0 v", "-ERR invalid expire time in 'setex' command"),
            ("PSETEX k -5 v", "-ERR invalid expire time in 'psetex' command"),
            ("INCR n", ":1"),
            ("GETSET k 5", "$1|v"),
            ("TTL k", ":-1"),
            ("GETEX k EXAT 1", "$1|5"),
            ("EXISTS k", ":0"),
            ("SET k v PXAT 1", "+OK"),
            ("GET k", "$-1"),
        ],
    );
    bed.run("SET short v PX 10");
    bed.now_ms += 9;
    assert_eq!(bed.run("GET short"), "$1|v");
    bed.now_ms += 1;
    assert_eq!(bed.run("GET short"), "$-1");
}

#[test]
fn every_change_is_told_as_redis_names_it() {
    let mut bed = Bed::new();
    for (line, events) in [
        ("SET k 1", "new k,set k"),
        ("SET k 1 EX 5", "set k,expire k"),
        ("INCR k", "incrby k"),
        ("DECRBY k 3", "incrby k"),
        ("INCRBYFLOAT k 0.5", "incrbyfloat k"),
        ("APPEND k x", "append k"),
        ("SETRANGE k 1 zz", "setrange k"),
        ("SETRANGE k 1 ", ""),
        ("GETEX k PERSIST", "persist k"),
        ("GETEX k EX 5", "expire k"),
        ("GETSET k 7", "set k"),
        ("SETNX k 1", ""),
        ("MSET k 1", "set k"),
        ("GETDEL k", "del k"),
        ("GETDEL k", "keymiss k"),
        ("PSETEX k 5 1", "new k,set k,expire k"),
        ("DELEX k IFEQ 1", "del k"),
    ] {
        bed.run(line);
        assert_eq!(bed.events().join(","), events, "{line}");
    }
}

#[test]
fn counting_stays_within_64_bits() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("INCR n", ":1"),
            ("INCRBY n 9223372036854775806", ":9223372036854775807"),
            ("INCR n", "-ERR increment or decrement would overflow"),
            ("DECRBY n -1", "-ERR increment or decrement would overflow"),
            ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
            ("SET n 010", "+OK"),
            ("INCR n", "-ERR value is not an integer or out of range"),
            ("SET f 3.0e3", "+OK"),
            ("INCRBYFLOAT f 200", "$4|3200"),
            ("OBJECT ENCODING f", "$6|embstr"),
            ("INCR f", ":3201"),
            ("OBJECT ENCODING f", "$3|int"),
            ("INCRBYFLOAT f abc", "-ERR value is not a valid float"),
            ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
            ("RPUSH l a", ":1"),
            ("INCR l", WRONG_TYPE),
            ("INCRBYFLOAT l 1", WRONG_TYPE),
        ],
    );
}

#[test]
fn increx_counts_within_its_bounds() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("INCREX n", "*2|:1|:1"),
            ("INCREX n BYINT 10 UBOUND 5", "*2|:1|:0"),
            ("INCREX n BYINT 10 UBOUND 5 SATURATE EX 100", "*2|:5|:4"),
            ("TTL n", ":100"),
            ("INCREX n BYINT -100 LBOUND -3 SATURATE EX 50 ENX", "*2|:-3|:-8"),
            ("TTL n", ":100"),
            ("INCREX n PERSIST", "*2|:-2|:1"),
            ("TTL n", ":-1"),
            ("INCREX n BYINT 9223372036854775807 SATURATE", "*2|:9223372036854775805|:9223372036854775807"),
            ("INCREX n BYINT 5", "*2|:9223372036854775805|:0"),
            ("INCREX new UBOUND 0 EX 5", "*2|:0|:0"),
            ("EXISTS new", ":0"),
            ("INCREX f BYFLOAT 1.5", "*2|$3|1.5|$3|1.5"),
            ("INCREX f BYFLOAT 10 UBOUND 3.25 SATURATE", "*2|$4|3.25|$4|1.75"),
            ("INCREX f BYFLOAT -10 LBOUND 0", "*2|$4|3.25|$1|0"),
            ("INCREX f BYINT 1", "-ERR value is not an integer or out of range"),
            ("INCREX n BYINT 1 BYFLOAT 1", "-ERR syntax error"),
            ("INCREX n BYINT 1 BYINT 1", "-ERR syntax error"),
            ("INCREX n UBOUND 1 UBOUND 1", "-ERR syntax error"),
            ("INCREX n SATURATE SATURATE", "-ERR syntax error"),
            ("INCREX n EX 1 EX 1", "-ERR syntax error"),
            ("INCREX n EX 1 PERSIST", "-ERR syntax error"),
            ("INCREX n PERSIST ENX", "-ERR syntax error"),
            ("INCREX n ENX", "-ERR ENX flag requires an expiration"),
            ("INCREX n BYINT x EX", "-ERR Increment is not an integer or out of range"),
            ("INCREX n BYFLOAT x", "-ERR Increment is not a valid float"),
            ("INCREX n BYFLOAT -inf", "-ERR BYFLOAT increment cannot be Infinity"),
            ("INCREX n LBOUND 5 UBOUND 4 EX 0", "-ERR LBOUND can't be greater than UBOUND"),
            ("INCREX n LBOUND 5.5 UBOUND 5.4 BYFLOAT 1", "-ERR LBOUND can't be greater than UBOUND"),
            ("INCREX n UBOUND 1.5", "-ERR UBOUND is not an integer or out of range"),
            ("INCREX n LBOUND x BYFLOAT 1", "-ERR LBOUND is not a valid float"),
            ("INCREX n EX 0", "-ERR invalid expire time in 'increx' command"),
            ("SET low -9223372036854775808", "+OK"),
            ("INCREX low UBOUND 5 LBOUND 4 SATURATE", "-ERR applied increment would overflow"),
            ("GET low", "$20|-9223372036854775808"),
            ("SET inf inf", "+OK"),
            ("INCREX inf BYFLOAT 1", "-ERR value cannot be Infinity"),
        ],
    );
    // The largest number there is ends at itself, or stays.
    let most = "1.18973149535723176502e4932";
    bed.run(&format!("SET big {most}"));
    let digits = bed.run("INCRBYFLOAT big 0");
    let digits = digits.split('|').next_back().unwrap_or_default();
    assert_eq!(digits.len(), 4933);
    let kept = format!("*2|$4933|{digits}|$1|0");
    assert_eq!(bed.run(&format!("INCREX big BYFLOAT {most}")), kept);
    assert_eq!(bed.run(&format!("INCREX big BYFLOAT {most} SATURATE")), kept);
    let said = bed.run("INCREX big BYFLOAT 1 UBOUND -1e4932 LBOUND -1.1e4932 SATURATE");
    assert_eq!(said, "-ERR applied increment would be Infinity");
    bed.events();
    assert_eq!(bed.run("INCREX new PXAT 1"), "*2|:1|:1");
    assert_eq!(bed.events(), Vec::<String>::new());
    assert_eq!(bed.run("INCREX low PXAT 1"), "*2|:-9223372036854775807|:1");
    assert_eq!(bed.events(), ["del low"]);
    bed.resp3 = true;
    assert_eq!(bed.run("INCREX f BYFLOAT 0.25"), "*2|,3.5|,0.25");
}

#[test]
fn ranges_read_and_write_parts() {
    let mut bed = Bed::new();
    bed.env.proto_max_bulk_len = 100;
    check(
        &mut bed,
        &[
            ("SETRANGE k 3 ab", ":5"),
            ("GET k", "$5|\0\0\0ab"),
            ("OBJECT ENCODING k", "$3|raw"),
            ("SETRANGE k 0 xyz", ":5"),
            ("GETRANGE k 0 -1", "$5|xyzab"),
            ("GETRANGE k -3 -2", "$2|za"),
            ("GETRANGE k -1 -3", "$0|"),
            ("GETRANGE k 9223372036854775807 -9223372036854775808", "$0|"),
            ("GETRANGE none 0 -1", "$0|"),
            ("SUBSTR k 1 1", "$1|y"),
            ("SETRANGE k -1 x", "-ERR offset is out of range"),
            ("SETRANGE k 98 xyz", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
            (
                "SETRANGE k 9223372036854775807 x",
                "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            ),
            ("PREPEND k 12", ":7"),
            ("GET k", "$7|12xyzab"),
            ("PREPEND new x", ":1"),
            ("STRLEN k", ":7"),
            ("STRLEN none", ":0"),
            ("APPEND new 2", ":2"),
            ("GET new", "$2|x2"),
        ],
    );
}

#[test]
fn long_plain_text_is_packed_and_read_back() {
    let mut bed = Bed::new();
    for len in 505..530 {
        let text: Vec<u8> = (0..len).map(|i| b'a' + (i % 26) as u8).collect();
        bed.run_words(&[b"SET", b"k", &text]);
        let reply = bed.run_words(&[b"GETRANGE", b"k", b"1", b"-2"]);
        assert!(reply.ends_with(&[&text[1..len - 1], b"\r\n"].concat()), "{len}");
        assert_eq!(bed.run("STRLEN k"), format!(":{len}"));
        assert_eq!(bed.run("APPEND k x"), format!(":{}", len + 1));
        let whole = bed.run_words(&[b"GET", b"k"]);
        assert!(whole.ends_with(&[&text[..], b"x\r\n"].concat()), "{len}");
    }
}

#[test]
fn many_keys_at_once() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("MSET a 1 b 2 c 3 a 4", "+OK"),
            ("RPUSH l x", ":1"),
            ("MGET a b none l a", "*5|$1|4|$1|2|$-1|$-1|$1|4"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("MSETNX x 1 b 2", ":0"),
            ("EXISTS x", ":0"),
            ("MSETNX x 1 y 2", ":1"),
            ("MSETEX 2 x 3 y 4 EX 10", ":1"),
            ("TTL y", ":10"),
            ("MSETEX 2 x 5 z 5 XX", ":0"),
            ("MSETEX 2 x 5 z 5 NX", ":0"),
            ("MSETEX 1 y 5 KEEPTTL XX", ":1"),
            ("TTL y", ":10"),
            ("MSETEX 2 x 5 z 5 NX XX", "-ERR syntax error"),
            ("MSETEX 3 x 5 z 5", "-ERR wrong number of key-value pairs"),
            ("MSETEX 0 x 5 z 5", "-ERR invalid numkeys value"),
            ("MSETEX -9223372036854775808 x 5", "-ERR invalid numkeys value"),
        ],
    );
}

#[test]
fn lcs_finds_what_two_strings_share() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b", "$6|mytext"),
            ("LCS a b LEN", ":6"),
            ("LCS a b IDX", "*4|$7|matches|*2|*2|*2|:4|:7|*2|:5|:8|*2|*2|:2|:3|*2|:0|:1|$3|len|:6"),
            ("LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN", "*4|$7|matches|*1|*3|*2|:4|:7|*2|:5|:8|:4|$3|len|:6"),
            ("LCS a none", "$0|"),
            ("LCS a b IDX LEN", "-ERR If you want both the length and indexes, please just use IDX."),
            ("LCS a b FOO", "-ERR syntax error"),
            ("RPUSH l a", ":1"),
            ("LCS a l", "-ERR The specified keys must contain string values"),
        ],
    );
    bed.env.proto_max_bulk_len = 100;
    let refused = "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
    assert_eq!(bed.run("LCS a b"), refused);
}

#[test]
fn throttle_lets_a_burst_through_and_then_a_stream() {
    let mut bed = Bed::new();
    // a burst of 3, then one every 2 s
    for remaining in [2, 1, 0] {
        let reset = 2 * (3 - remaining);
        assert_eq!(bed.run("CL.THROTTLE t 2 30 60"), format!("*5|:0|:3|:{remaining}|:-1|:{reset}"));
    }
    assert_eq!(bed.run("CL.THROTTLE t 2 30 60"), "*5|:1|:3|:0|:2|:6");
    assert_eq!(bed.run("CL.THROTTLE t 2 30 60 0"), "*5|:0|:3|:0|:-1|:6");
    bed.now_ms += 2000;
    assert_eq!(bed.run("CL.THROTTLE t 2 30 60"), "*5|:0|:3|:0|:-1|:6");
    assert_eq!(bed.run("CL.THROTTLE t 2 30 60 4"), "*5|:1|:3|:0|:-1|:6");
    assert_eq!(bed.run("PTTL t"), ":6000");
    bed.now_ms += 6000;
    assert_eq!(bed.run("EXISTS t"), ":0");
    for line in ["CL.THROTTLE t -1 1 1", "CL.THROTTLE t 1 0 1", "CL.THROTTLE t 1 1 0", "CL.THROTTLE t 1 1 x"]
    {
        assert_eq!(bed.run(line), "-ERR value is not an integer or out of range", "{line}");
    }
    let overflow = "-ERR increment or decrement would overflow";
    assert_eq!(bed.run("CL.THROTTLE t 9223372036854775807 1 9223372036854775807"), overflow);
}

#[test]
fn a_deadline_written_over_another_counts() {
    let mut bed = Bed::new();
    // short and long forms of a deadline, in every order
    let deadlines = ["100", "5000000000000", "200", "7000000000000", "300"];
    for value in ["a", "bb", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"] {
        for seconds in deadlines {
            assert_eq!(bed.run(&format!("SET k {value} EX {seconds}")), "+OK");
            assert_eq!(bed.run("TTL k"), format!(":{seconds}"));
            assert_eq!(bed.run("GET k"), format!("${}|{value}", value.len()));
        }
    }
    bed.now_ms += 299_999;
    assert_eq!(bed.run("EXISTS k"), ":1");
    bed.now_ms += 1;
    assert_eq!(bed.run("EXISTS k"), ":0");
    assert_eq!(bed.run("DBSIZE"), ":0");
}

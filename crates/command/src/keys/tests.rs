use std::collections::BTreeSet;

use crate::testing::Bed;

fn check(bed: &mut Bed, steps: &[(&str, &str)]) {
    for (line, reply) in steps {
        assert_eq!(bed.run(line), *reply, "{line}");
    }
}

#[test]
fn expire_obeys_its_rules() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("EXPIRE k 10", ":0"),
            ("SET k v", "+OK"),
            ("EXPIRE k 10 XX", ":0"),
            ("EXPIRE k 10 GT", ":0"),
            ("EXPIRE k 10 LT", ":1"),
            ("EXPIRE k 20 LT", ":0"),
            ("EXPIRE k 20 NX", ":0"),
            ("EXPIRE k 20 XX GT", ":1"),
            ("TTL k", ":20"),
            ("PEXPIRE k 1500", ":1"),
            ("TTL k", ":2"),
            ("PTTL k", ":1500"),
            ("EXPIRETIME k", ":1800000002"),
            ("PEXPIRETIME k", ":1800000001500"),
            ("PERSIST k", ":1"),
            ("PERSIST k", ":0"),
            ("EXPIRETIME k", ":-1"),
            ("TTL none", ":-2"),
            ("EXPIRE k 1 FOO", "-ERR Unsupported option FOO"),
            ("EXPIRE k 1 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
            ("EXPIRE k x GT LT", "-ERR GT and LT options at the same time are not compatible"),
            ("EXPIRE k x", "-ERR value is not an integer or out of range"),
            ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
            ("PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
            ("EXPIREAT k 9223372036854775807", "-ERR invalid expire time in 'expireat' command"),
            ("PEXPIREAT k 9223372036854775807", ":1"),
            ("PEXPIRETIME k", ":9223372036854775807"),
            ("EXPIRE k -1", ":1"),
            ("EXISTS k", ":0"),
        ],
    );
    bed.events();
    bed.run("SET k v");
    bed.run("EXPIREAT k 1");
    assert_eq!(bed.events(), ["new k", "set k", "del k"]);
}

/// Pairs of names in one shard and in two, so that both ways of moving are tested.
fn names() -> impl Iterator<Item = (String, String)> {
    (0..16).map(|n| (format!("from{n}"), format!("to{n}")))
}

#[test]
fn rename_carries_value_deadline_and_marks() {
    for (from, to) in names() {
        let mut bed = Bed::new();
        check(
            &mut bed,
            &[
                (&format!("RENAME {from} {to}"), "-ERR no such key"),
                (&format!("RENAMENX {from} {to}"), "-ERR no such key"),
                (&format!("SET {from} 12 EX 100"), "+OK"),
                (&format!("STICK {from}"), ":1"),
                (&format!("APPEND {from} 3"), ":3"),
                (&format!("SET {to} old EX 5"), "+OK"),
                (&format!("RENAMENX {from} {to}"), ":0"),
                (&format!("RENAMENX {from} {from}"), ":0"),
                (&format!("RENAME {from} {from}"), "+OK"),
                (&format!("RENAME {from} {to}"), "+OK"),
                (&format!("GET {to}"), "$3|123"),
                (&format!("OBJECT ENCODING {to}"), "$3|raw"),
                (&format!("TTL {to}"), ":100"),
                (&format!("STICK {to}"), ":0"),
                (&format!("EXISTS {from}"), ":0"),
                ("DBSIZE", ":1"),
                (&format!("RENAMENX {to} {from}"), ":1"),
            ],
        );
        let events: BTreeSet<String> = bed.events().into_iter().collect();
        assert!(
            events.contains(&format!("rename_from {from}")) && events.contains(&format!("rename_to {to}"))
        );
    }
}

#[test]
fn collections_move_and_are_copied() {
    for (from, to) in names() {
        let mut bed = Bed::new();
        let long = "x".repeat(3000);
        check(
            &mut bed,
            &[
                (&format!("RPUSH {from} a 17 {long} b"), ":4"),
                (&format!("COPY {from} {to}"), ":1"),
                (&format!("LRANGE {to} 0 1"), "*2|$1|a|$2|17"),
                (&format!("LPOP {to}"), "$1|a"),
                (&format!("LLEN {from}"), ":4"),
                (&format!("RENAME {from} {to}"), "+OK"),
                (&format!("LINDEX {to} 2"), &format!("$3000|{long}")),
                (&format!("LLEN {to}"), ":4"),
                (&format!("COPY {to} {from} DB 2"), ":1"),
                (&format!("MOVE {to} 2"), ":1"),
                ("DBSIZE", ":0"),
            ],
        );
        bed.db = 2;
        assert_eq!(bed.run(&format!("LLEN {from}")), ":4");
        assert_eq!(bed.run(&format!("LINDEX {to} 2")), format!("$3000|{long}"));
        assert_eq!(bed.run(&format!("DEL {from} {to}")), ":2");
    }
}

#[test]
fn copy_and_move_check_their_target() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("COPY a b", ":0"),
            ("SET a 1 EX 10", "+OK"),
            ("SET b 2", "+OK"),
            ("COPY a b", ":0"),
            ("COPY a b REPLACE", ":1"),
            ("TTL b", ":10"),
            ("COPY a a", "-ERR source and destination objects are the same"),
            ("COPY a a DB 0", "-ERR source and destination objects are the same"),
            ("COPY a a DB 1", ":1"),
            ("COPY a a DB 99", "-ERR DB index is out of range"),
            ("COPY a a DB x", "-ERR value is not an integer or out of range"),
            ("COPY a b FOO", "-ERR syntax error"),
            ("MOVE a 0", "-ERR source and destination objects are the same"),
            ("MOVE a 1", ":0"),
            ("MOVE none 1", ":0"),
            ("MOVE a -1", "-ERR DB index is out of range"),
            ("MOVE a 2", ":1"),
            ("EXISTS a", ":0"),
        ],
    );
}

#[test]
fn databases_are_flushed_and_swapped() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("MSET a 1 b 2 c 3", "+OK"),
            ("DBSIZE", ":3"),
            ("SWAPDB 0 1", "+OK"),
            ("DBSIZE", ":0"),
            ("SWAPDB 0 x", "-ERR invalid second DB index"),
            ("SWAPDB 5000000000 0", "-ERR invalid first DB index"),
            ("SWAPDB 0 9", "-ERR DB index is out of range"),
            ("SET d 4", "+OK"),
            ("FLUSHDB SYNC", "+OK"),
            ("FLUSHDB NOW", "-ERR syntax error"),
            ("SWAPDB 1 0", "+OK"),
            ("DBSIZE", ":3"),
            ("FLUSHALL ASYNC", "+OK"),
            ("DBSIZE", ":0"),
            ("RANDOMKEY", "$-1"),
        ],
    );
}

fn scan_all(bed: &mut Bed, options: &str) -> Vec<String> {
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    for _ in 0..100_000 {
        let reply = bed.run(&format!("SCAN {cursor}{options}"));
        let mut lines = reply.split('|').skip(2);
        cursor = lines.next().expect("a cursor").to_owned();
        found.extend(lines.skip(1).filter(|line| !line.starts_with('$')).map(str::to_owned));
        if cursor == "0" {
            return found;
        }
    }
    panic!("the scan does not end");
}

#[test]
fn a_few_keys_are_scanned_in_one_call() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("SCAN 0"), "*2|$1|0|*0");
    for n in 0..9 {
        bed.run(&format!("SET key:{n} {n}"));
        let reply = bed.run("SCAN 0");
        assert!(reply.starts_with(&format!("*2|$1|0|*{}|", n + 1)), "{reply}");
    }
    assert_eq!(bed.run("SCAN 0 MATCH *:5"), "*2|$1|0|*1|$5|key:5");
    (9..600).for_each(|n| drop(bed.run(&format!("SET key:{n} {n}"))));
    assert!(bed.run("SCAN 0 COUNT 1000").starts_with("*2|$1|0|*600|"));
    assert!(!bed.run("SCAN 0 COUNT 10").starts_with("*2|$1|0|"), "one call does not tell them all");
}

#[test]
fn scan_finds_every_key_once() {
    let mut bed = Bed::new();
    assert!(scan_all(&mut bed, "").is_empty());
    for n in 0..3000 {
        bed.run(&format!("SET key:{n} {n}"));
    }
    for n in 0..50 {
        bed.run(&format!("RPUSH list:{n} {n}"));
        bed.run(&format!("SET dead:{n} {n} PX 1"));
        bed.run(&format!("SET mortal:{n} {n} EX 100"));
    }
    bed.now_ms += 1;
    for options in ["", " COUNT 1", " COUNT 100000"] {
        let found = scan_all(&mut bed, options);
        assert_eq!(found.len(), 3100, "{options}");
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 3100, "{options}");
    }
    assert_eq!(scan_all(&mut bed, " MATCH key:1?").len(), 10);
    assert_eq!(scan_all(&mut bed, " TYPE list").len(), 50);
    assert_eq!(scan_all(&mut bed, " ATTR v").len(), 50);
    assert_eq!(scan_all(&mut bed, " ATTR p TYPE string COUNT 500").len(), 3000);
    bed.run(&format!("SET large {}", "é".repeat(500)));
    bed.run(&format!("RPUSH longlist {}", "é".repeat(500)));
    let mut large = scan_all(&mut bed, " MINMSZ 900 COUNT 500");
    large.sort();
    assert_eq!(large, ["large", "longlist"]);
    check(
        &mut bed,
        &[
            ("SCAN 0 MINMSZ -1", "-ERR syntax error"),
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN 0 TYPE nonsense", "-ERR unknown type name 'nonsense'"),
            ("SCAN 0 COUNT 0", "-ERR syntax error"),
            ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range"),
            ("SCAN 0 MATCH", "-ERR syntax error"),
        ],
    );
    for cursor in ["4095", "18446744073709551615", "281474976710655"] {
        assert!(bed.run(&format!("SCAN {cursor}")).starts_with("*2|"));
    }
}

#[test]
fn keys_and_randomkey_leave_the_dead_out() {
    let mut bed = Bed::new();
    bed.env.keys_output_limit = 5;
    for n in 0..20 {
        bed.run(&format!("SET dead:{n} {n} PX 1"));
    }
    bed.run("SET alive 1");
    bed.now_ms += 1;
    for _ in 0..20 {
        assert_eq!(bed.run("RANDOMKEY"), "$5|alive");
    }
    assert_eq!(bed.run("KEYS *"), "*1|$5|alive");
    assert_eq!(bed.run("KEYS al[i-j]ve"), "*1|$5|alive");
    assert_eq!(bed.run("KEYS b*"), "*0");
    for n in 0..20 {
        bed.run(&format!("SET k{n} {n}"));
    }
    assert!(bed.run("KEYS *").starts_with("*5|"), "cut at keys_output_limit");
    bed.env.keys_output_limit = 0;
    assert!(!bed.run("KEYS *").starts_with("*0|"), "0 lifts the limit");
}

#[test]
fn random_keys_are_spread_over_all() {
    let mut bed = Bed::new();
    (0..50).for_each(|n| drop(bed.run(&format!("SET k{n} {n}"))));
    let found: BTreeSet<String> = (0..2000).map(|_| bed.run("RANDOMKEY")).collect();
    assert_eq!(found.len(), 50);
}

#[test]
fn encodings_have_the_names_redis_gives() {
    let mut bed = Bed::new();
    let (short, long) = ("x".repeat(44), "x".repeat(45));
    check(
        &mut bed,
        &[
            (&format!("MSET a 12 b {short} c {long} d 12345678901234567890 e -9223372036854775808"), "+OK"),
            ("OBJECT ENCODING a", "$3|int"),
            ("OBJECT ENCODING b", "$6|embstr"),
            ("OBJECT ENCODING c", "$3|raw"),
            ("OBJECT ENCODING d", "$6|embstr"),
            ("OBJECT ENCODING e", "$3|int"),
            ("APPEND a 3", ":3"),
            ("OBJECT ENCODING a", "$3|raw"),
            ("APPEND new 3", ":1"),
            ("OBJECT ENCODING new", "$3|int"),
            ("RPUSH l a", ":1"),
            ("OBJECT ENCODING l", "$8|listpack"),
            ("OBJECT ENCODING none", "$-1"),
            ("OBJECT REFCOUNT a", ":1"),
            ("OBJECT IDLETIME a", ":0"),
            ("TYPE l", "+list"),
            ("TYPE none", "+none"),
        ],
    );
    assert!(bed.run("OBJECT FREQ a").starts_with("-ERR An LFU maxmemory policy is not selected"));
    bed.env.policy_is_lfu = true;
    assert!(bed.run("OBJECT IDLETIME a").starts_with("-ERR An LFU maxmemory policy is selected"));
}

fn dump(bed: &mut Bed, name: &str) -> Vec<u8> {
    let reply = bed.run_words(&[b"DUMP", name.as_bytes()]);
    let start = reply.windows(2).position(|pair| pair == b"\r\n").expect("a bulk string") + 2;
    reply[start..reply.len() - 2].to_vec()
}

#[test]
fn dumped_values_are_restored() {
    let mut bed = Bed::new();
    bed.run("MSET int 12 text hello big 123456789012 empty ");
    bed.run(&format!("SET long {}", "x".repeat(700)));
    bed.run("RPUSH list a 1 2 b");
    for name in ["int", "text", "big", "empty", "long", "list"] {
        let payload = dump(&mut bed, name);
        let restore = |bed: &mut Bed, words: &[&[u8]]| {
            let line = [&[b"RESTORE".as_slice(), b"copy"], words].concat();
            String::from_utf8_lossy(&bed.run_words(&line)).trim_end().to_owned()
        };
        assert_eq!(restore(&mut bed, &[b"1000", &payload]), "+OK");
        assert_eq!(bed.run("PTTL copy"), ":1000");
        assert_eq!(dump(&mut bed, "copy"), payload, "{name}");
        assert_eq!(restore(&mut bed, &[b"0", &payload]), "-BUSYKEY Target key name already exists.");
        assert_eq!(restore(&mut bed, &[b"-1", &payload, b"REPLACE"]), "-ERR Invalid TTL value, must be >= 0");
        assert_eq!(restore(&mut bed, &[b"0", &payload, b"REPLACE"]), "+OK");
        assert_eq!(bed.run("PTTL copy"), ":-1");
        assert_eq!(restore(&mut bed, &[b"1", &payload, b"REPLACE", b"ABSTTL"]), "+OK");
        assert_eq!(bed.run("EXISTS copy"), ":0");
        let refused = "-ERR DUMP payload version or checksum are wrong";
        assert_eq!(restore(&mut bed, &[b"0", &payload[..payload.len() - 1]]), refused);
        let unsealed = [&payload[..payload.len() - 8], &[0; 8]].concat();
        assert_eq!(restore(&mut bed, &[b"0", &unsealed]), "+OK");
        assert_eq!(bed.run("DEL copy"), ":1");
        assert_eq!(restore(&mut bed, &[b"0", b""]), refused);
        assert_eq!(
            restore(&mut bed, &[b"0", &payload, b"FREQ", b"256"]),
            "-ERR Invalid FREQ value, must be >= 0 and <= 255"
        );
        assert_eq!(
            restore(&mut bed, &[b"0", &payload, b"FREQ", b"1", b"IDLETIME", b"1"]),
            "-ERR syntax error"
        );
        assert_eq!(bed.run("EXISTS copy"), ":0");
    }
    assert_eq!(bed.run("DUMP none"), "$-1");
}

fn sealed(body: &[u8], version: u16) -> Vec<u8> {
    let mut payload = [body, &version.to_le_bytes()].concat();
    let crc = darter_base::crc::crc64(&payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

#[test]
fn payloads_of_newer_servers_are_restored() {
    let mut bed = Bed::new();
    let restore = |bed: &mut Bed, payload: &[u8]| {
        String::from_utf8_lossy(&bed.run_words(&[b"RESTORE", b"k", b"0", payload, b"REPLACE"])).into_owned()
    };
    // A hash of Valkey 9: a field with a deadline and one without.
    let mut body = vec![22, 2, 1, b'a', 1, b'1'];
    body.extend_from_slice(&1_800_000_060_000i64.to_le_bytes());
    body.extend_from_slice(&[1, b'b', 1, b'2']);
    body.extend_from_slice(&(-1i64).to_le_bytes());
    assert_eq!(restore(&mut bed, &sealed(&body, 80)), "+OK\r\n");
    assert_eq!(bed.run("HMGET k a b"), "*2|$1|1|$1|2");
    assert_eq!(bed.run("HTTL k FIELDS 2 a b"), "*2|:60|:-1");
    // A string of Redis 8.
    assert_eq!(restore(&mut bed, &sealed(&[0, 1, b'x'], 16)), "+OK\r\n");
    assert_eq!(bed.run("GET k"), "$1|x");
    let later = sealed(&[0, 3, b'b', b'a', b'r'], 222);
    assert_eq!(restore(&mut bed, &later), "-ERR DUMP payload version or checksum are wrong\r\n");
    bed.env.restored_versions = darter_store::rdb::Versions::Any;
    assert_eq!(restore(&mut bed, &later), "+OK\r\n");
    assert_eq!(bed.run("GET k"), "$3|bar");
}

#[test]
fn sealed_nonsense_is_refused_and_leaves_no_memory() {
    let mut bed = Bed::new();
    for body in
        [&[0u8][..], &[], &[0, 9, b'a'], &[1, 2, 1, b'a'], &[1, 0], &[4, 1, 1, b'f'], &[99, 1], &[4, 0]]
    {
        let mut payload = body.to_vec();
        darter_store::rdb::seal(&mut payload);
        let reply = bed.run_words(&[b"RESTORE", b"k", b"0", &payload]);
        assert_eq!(reply, b"-ERR Bad data format\r\n", "{body:?}");
    }
    assert_eq!(bed.run("DBSIZE"), ":0");
}

/// A payload of another server's: `body` and its version.
fn of_version(version: u16, body: &[u8]) -> Vec<u8> {
    let mut payload = [body, &version.to_le_bytes()].concat();
    let crc = darter_base::crc::crc64(&payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

#[test]
fn payloads_of_newer_servers_are_restored_by_what_their_versions_mean() {
    let mut bed = Bed::new();
    let mut restore = |version, body: &[u8]| {
        bed.run("DEL k");
        let reply = bed.run_words(&[b"RESTORE", b"k", b"0", &of_version(version, body)]);
        (
            String::from_utf8_lossy(&reply).into_owned(),
            bed.run("TYPE k"),
            bed.run("HPEXPIRETIME k FIELDS 1 f"),
        )
    };
    let made = |kind: &str, deadline: &str| ("+OK\r\n".to_owned(), kind.to_owned(), deadline.to_owned());
    let none = |line: &str| (format!("-ERR {line}\r\n"), "+none".to_owned(), "*1|:-2".to_owned());
    for version in [1, 9, 12, 13, 16, 80, 89] {
        assert_eq!(restore(version, &[4, 1, 1, b'f', 1, b'v']), made("+hash", "*1|:-1"), "{version}");
    }
    let unknown = none("DUMP payload version or checksum are wrong");
    for version in [17, 79, 90, 222, 999, 0xffff] {
        assert_eq!(restore(version, &[0, 1, b'v']), unknown, "{version}");
    }
    const AT: u64 = 0x0f00_0000_0000;
    // Redis 8: a hash with the earliest deadline in front, and the field's distance to it.
    let redis = [&[24u8][..], &AT.to_le_bytes(), &[1, 1, 1, b'f', 1, b'v']].concat();
    // Valkey 9: the deadline behind each field, under a number that release candidates of Redis 7.4 used.
    let valkey = [&[22u8, 1, 1, b'f', 1, b'v'][..], &AT.to_le_bytes()].concat();
    let deadline = format!("*1|:{AT}");
    assert_eq!(restore(16, &redis), made("+hash", &deadline));
    assert_eq!(restore(80, &valkey), made("+hash", &deadline));
    let bad = none("Bad data format");
    assert_eq!(restore(16, &valkey), bad);
    assert_eq!(restore(80, &redis), bad);
    // 32 is a set with deadlines in our payloads alone; newer servers use the number for other types.
    let set = [32, 1, 1, b'm', 0];
    assert_eq!(restore(10, &set).1, "+set");
    for (version, kind) in [(16, 32), (80, 32), (16, 48), (16, 28), (16, 33), (10, 200), (80, 200), (80, 23)]
    {
        assert_eq!(restore(version, &[&[kind], &set[1..]].concat()), bad, "{version} {kind}");
    }
}

#[test]
fn sort_orders_lists() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("RPUSH l 3 1 10 2", ":4"),
            ("SORT l", "*4|$1|1|$1|2|$1|3|$2|10"),
            ("SORT l DESC LIMIT 1 2", "*2|$1|3|$1|2"),
            ("SORT l ALPHA", "*4|$1|1|$2|10|$1|2|$1|3"),
            ("SORT l BY nosort", "*4|$1|3|$1|1|$2|10|$1|2"),
            ("SORT l BY nosort DESC LIMIT 0 1", "*1|$1|2"),
            ("MSET w1 9 w2 8 w3 7 o1 one o2 two", "+OK"),
            ("SORT l BY w*", "*4|$2|10|$1|3|$1|2|$1|1"),
            ("SORT_RO l GET o* GET # LIMIT 0 3", "*6|$3|one|$1|1|$3|two|$1|2|$-1|$1|3"),
            ("SORT l GET fixed LIMIT 0 1", "*1|$-1"),
            ("SORT l GET o* STORE dst", ":4"),
            ("LRANGE dst 0 -1", "*4|$3|one|$3|two|$0||$0|"),
            ("SORT none STORE dst", ":0"),
            ("EXISTS dst", ":0"),
            ("SORT l STORE l", ":4"),
            ("LRANGE l 0 -1", "*4|$1|1|$1|2|$1|3|$2|10"),
            ("RPUSH l x", ":5"),
            ("SORT l", "-ERR One or more scores can't be converted into double"),
            ("SORT none", "*0"),
            ("SORT w1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("SORT l LIMIT 1", "-ERR syntax error"),
            ("SORT l LIMIT a b", "-ERR value is not an integer or out of range"),
            ("SORT_RO l STORE dst", "-ERR syntax error"),
        ],
    );
}

#[test]
fn sort_orders_sets_and_follows_hashes() {
    let mut bed = Bed::new();
    check(
        &mut bed,
        &[
            ("SADD s 3 1 20 b", ":4"),
            ("SORT s ALPHA", "*4|$1|1|$2|20|$1|3|$1|b"),
            ("SORT s BY nosort STORE d", ":4"),
            // As in scripts and EXEC: the result must be deterministic.
            ("SORT s BY nosort", "*4|$1|1|$2|20|$1|3|$1|b"),
            ("LRANGE d 0 -1", "*4|$1|1|$2|20|$1|3|$1|b"),
            ("SREM s b", ":1"),
            ("HSET h1 w 5 n one", ":2"),
            ("HSET h3 w 1", ":1"),
            ("HSET h20 w 3 n twenty", ":2"),
            ("SORT s BY h*->w GET # GET h*->n", "*6|$1|3|$-1|$2|20|$6|twenty|$1|1|$3|one"),
            ("SORT s BY h*->w GET h*->", "*3|$-1|$-1|$-1"),
            ("SORT h1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
    );
}

#[test]
fn a_time_to_live_that_overflows_is_refused() {
    let mut bed = Bed::new();
    bed.run("SET k v");
    let payload = bed.run_words(&[b"DUMP", b"k"]);
    let at = payload.iter().position(|&byte| byte == b'\n').expect("a head") + 1;
    let payload = payload[at..payload.len() - 2].to_vec();
    for (ttl, options, wanted) in [
        (&b"9223372036854775807"[..], None, "-ERR Invalid TTL value, must be >= 0\r\n"),
        (b"9223372000000000000", None, "-ERR Invalid TTL value, must be >= 0\r\n"),
        (b"-1", None, "-ERR Invalid TTL value, must be >= 0\r\n"),
        (b"9223372036854775807", Some(&b"ABSTTL"[..]), "+OK\r\n"),
        (b"100", None, "+OK\r\n"),
    ] {
        let mut words = vec![&b"RESTORE"[..], b"new", ttl, &payload];
        words.extend(options);
        let said = bed.run_words(&words);
        assert_eq!(String::from_utf8_lossy(&said), wanted, "{ttl:?}");
        assert_eq!(bed.run("DEL new"), if wanted == "+OK\r\n" { ":1" } else { ":0" });
    }
}

//! Answers made of several whole collections, or of one in order: slices answer what one step answers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::harness::raw::Link;
use crate::harness::{Client, Server, Value, wait_until};

/// Integers and texts.
fn member(n: u64) -> String {
    if n.is_multiple_of(3) { n.to_string() } else { format!("m:{n}") }
}

fn fill_all(client: &mut Client) {
    client.call_for_each(&["SADD", "a"], 4000, |n, words| words.push(member(n)));
    client.call_for_each(&["SADD", "b"], 3000, |n, words| words.push(member(2 * n)));
    client.call_for_each(&["SADD", "c"], 1500, |n, words| words.push(member(5 * n)));
    let score = |n: u64| match n % 100 {
        0 => "inf".to_owned(),
        1 => "-inf".to_owned(),
        2 => "-0".to_owned(),
        _ => format!("{}.25", n * 7919 % 501),
    };
    client.call_for_each(&["ZADD", "y"], 3000, |n, words| words.extend([score(n), member(n)]));
    client.call_for_each(&["ZADD", "z"], 4000, |n, words| {
        words.extend([score(3 * n + 1), member(n / 2 * 3 + n % 2)])
    });
    client.call_for_each(&["RPUSH", "l"], 4000, |n, words| words.push(format!("{}.5", n * 7919 % 1009)));
    client.call_for_each(&["RPUSH", "texts"], 3000, |n, words| words.push(format!("t{}", n * 31 % 500)));
    // What SORT may point to: most of the texts have a weight, some an object; one is too long, one no hash.
    for n in (0..500).filter(|n| n % 7 != 3) {
        let name = |kind: &str| format!("{kind}:t{n}");
        client.call(&["SET", &name("w"), &(n * 31 % 97).to_string()]);
        client.call(&["HSET", &name("o"), "f", &format!("{}.5", n % 50), "g", &"long".repeat(n % 90)]);
    }
    client.call(&["SET", "o:t5", "no hash"]);
    client.call(&["SET", "w:t6", &"6".repeat(200_000)]);
    client.call(&["SET", "bad:t9", "x"]);
    client.call_for_each(&["RPUSH", "long"], 20_000, |n, words| words.push(member(n % 15_000)));
    client.call_for_each(&["GEOADD", "places"], 6000, |n, words| {
        let (east, north) = (n * 7919 % 1000, n * 104_729 % 1000);
        words.extend([
            format!("{}", east as f64 / 500.0),
            format!("{}", 40.0 + north as f64 / 500.0),
            member(n),
        ])
    });
    client.call_for_each(&["HSET", "h"], 4000, |n, words| words.extend([member(n), member(n + 1)]));
    for n in 0..2500 {
        client.call(&["XADD", "stream", &format!("{n}-1"), "field", &member(n)]);
    }
    client.call(&["SETBIT", "bits", "3000001", "1"]);
    client.call(&["SETBIT", "bits", "4800007", "1"]);
    client.call(&["SETRANGE", "ones", "0", &"\x7f".repeat(400_000)]);
}

/// Commands whose answers have no order, and those whose answers have one.
const IN_NO_ORDER: &[&str] = &[
    "SUNION a b c none",
    "SUNION a",
    "SINTER a b",
    "SINTER c b a",
    "SINTER a a b",
    "SDIFF a b",
    "SDIFF a none c b",
    "SDIFF a b a",
    "SORT a BY nosort",
];
const IN_ORDER: &[&str] = &[
    "SINTERCARD 2 a b",
    "SINTERCARD 2 a b LIMIT 1500",
    "SINTERCARD 2 a b LIMIT 10",
    "SUNIONCARD 3 a b c",
    "SDIFFCARD 2 a b",
    "ZUNION 2 y z",
    "ZUNION 2 y z WITHSCORES",
    "ZUNION 4 y z a none WEIGHTS 2 -1.5 0 9 AGGREGATE MIN WITHSCORES",
    "ZUNION 3 z y a AGGREGATE MAX WITHSCORES",
    "ZUNION 3 z y z AGGREGATE COUNT WITHSCORES",
    "ZINTER 2 y z WITHSCORES",
    "ZINTER 3 y z a WEIGHTS 1 0 -3 WITHSCORES",
    "ZINTER 2 y y",
    "ZDIFF 2 y z WITHSCORES",
    "ZDIFF 3 y none c",
    "ZINTERCARD 2 y z",
    "ZINTERCARD 2 y z LIMIT 1100",
    "SORT l",
    "SORT l DESC LIMIT 10 3000",
    "SORT l LIMIT -5 7",
    "SORT l LIMIT 3990 100",
    "SORT l LIMIT 9000 1",
    "SORT_RO texts ALPHA DESC",
    "SORT a ALPHA LIMIT 100 500",
    "SORT z ALPHA",
    "SORT texts",
    "SORT b DESC LIMIT 0 1",
    "SORT texts BY w:* ALPHA GET #",
    "SORT texts BY o:*->f",
    "SORT texts BY o:*->f DESC LIMIT 100 1500 GET # GET o:*->g GET w:* GET none GET none:*",
    "SORT_RO texts BY o:*->g ALPHA DESC LIMIT 7 2000",
    "SORT texts BY bad:*",
    "SORT texts ALPHA GET o:*->f GET #",
    "SORT texts GET w:*",
    "SORT texts BY nosort GET w:* GET o:*",
    "SORT texts BY nosort DESC LIMIT 2990 100 GET #",
    "SORT texts BY w:* LIMIT 5 -1 GET #",
    "SORT z BY nosort DESC LIMIT 10 1500",
    "SORT l BY w:* GET #",
    "LPOS long 9000",
    "LPOS long m:9001 RANK -1",
    "LPOS long m:4001 RANK 2",
    "LPOS long m:4001 RANK -2 COUNT 0",
    "LPOS long m:4001 RANK 2 MAXLEN 19001",
    "LPOS long m:4001 COUNT 0 MAXLEN 19002",
    "LPOS long m:4001 COUNT 0",
    "LPOS long none",
    "LPOS long none COUNT 3",
    "BITCOUNT bits",
    "BITCOUNT bits 5 -5",
    "BITCOUNT bits 3000002 -1 BIT",
    "BITCOUNT ones 7 3199999 BIT",
    "BITPOS bits 1",
    "BITPOS bits 1 3000002 -1 BIT",
    "BITPOS bits 1 600002",
    "BITPOS bits 0",
    "BITPOS ones 0 1 -1 BYTE",
    "BITPOS ones 1 1 -1 BIT",
    "GEOSEARCH places FROMLONLAT 1 41 BYRADIUS 300 km ASC",
    "GEOSEARCH places FROMLONLAT 1 41 BYRADIUS 90 km DESC COUNT 2000 WITHDIST WITHHASH WITHCOORD",
    "GEOSEARCH places FROMMEMBER 3 BYBOX 200 200 km",
    "GEOSEARCH places FROMLONLAT 1 41 BYRADIUS 300 km COUNT 1500 ANY WITHDIST",
    "GEORADIUS places 1 41 300 km WITHDIST",
    "HRANDFIELD none 5",
    "XREAD STREAMS stream 0",
    "XREAD COUNT 1500 STREAMS stream 700",
    "XREAD COUNT 2000 STREAMS none stream 0 5-1",
    "XREAD STREAMS stream stream 2400 2300-1",
    "XREAD STREAMS stream 2499-1",
];

/// Commands that take a whole collection away: what they answer in order, and the key of it.
const DRAINS: &[&str] =
    &["LPOP long 20000", "RPOP long 30000", "ZPOPMIN y 3000", "ZPOPMAX z 4000", "SPOP a 5000"];

fn call(client: &mut Client, command: &str) -> Value {
    client.call(&command.split(' ').collect::<Vec<_>>())
}

/// The answer in one go, as all of EXEC's are.
fn call_at_once(client: &mut Client, command: &str) -> Value {
    client.call(&["MULTI"]);
    call(client, command);
    let Value::Array(mut replies) = client.call(&["EXEC"]) else { panic!("no replies") };
    replies.remove(0)
}

fn sorted(value: Value) -> Vec<String> {
    let Value::Array(items) = value else { panic!("no array: {value:?}") };
    let mut texts: Vec<String> = items.into_iter().map(|item| format!("{item:?}")).collect();
    texts.sort();
    texts
}

#[test]
fn slices_answer_what_one_go_answers() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        fill_all(&mut client);
        for resp in ["2", "3"] {
            client.call(&["HELLO", resp]);
            for command in IN_NO_ORDER {
                let (mine, wanted) = (call(&mut client, command), call_at_once(&mut client, command));
                assert_eq!(sorted(mine), sorted(wanted), "{command} RESP{resp}");
            }
            for command in IN_ORDER {
                let (mine, wanted) = (call(&mut client, command), call_at_once(&mut client, command));
                assert_eq!(mine, wanted, "{command} RESP{resp}");
            }
        }
        for resp in ["2", "3"] {
            client.call(&["HELLO", resp]);
            for command in DRAINS {
                let mut seen = Vec::new();
                for is_sliced in [true, false] {
                    client.call(&["FLUSHALL"]);
                    fill_all(&mut client);
                    let answer = match is_sliced {
                        true => call(&mut client, command),
                        false => call_at_once(&mut client, command),
                    };
                    let key = command.split(' ').nth(1).expect("a key");
                    assert_eq!(client.call(&["EXISTS", key]), Value::Int(0), "{command}");
                    seen.push(if command.starts_with('S') {
                        format!("{:?}", sorted(answer))
                    } else {
                        format!("{answer:?}")
                    });
                }
                assert_eq!(seen[0], seen[1], "{command} RESP{resp}");
            }
        }
        client.call(&["FLUSHALL"]);
        fill_all(&mut client);
        for (command, all, len) in [
            ("SRANDMEMBER a", "SMEMBERS a", 4000),
            ("HRANDFIELD h", "HKEYS h", 4000),
            ("ZRANDMEMBER y", "ZRANGE y 0 -1", 3000),
        ] {
            for count in [2500, 4000, 9000] {
                let command = format!("{command} {count}");
                let mut members = sorted(call(&mut client, &command));
                let given = members.len();
                members.dedup();
                assert_eq!((members.len(), given), (count.min(len), count.min(len)), "{command}");
                let all = sorted(call(&mut client, all));
                assert!(members.iter().all(|member| all.binary_search(member).is_ok()), "{command}");
            }
        }
        let Value::Array(pairs) = call(&mut client, "HRANDFIELD h 9000 WITHVALUES") else {
            panic!("no pairs")
        };
        let pairs: Vec<(Value, Value)> = pairs
            .into_iter()
            .map(|pair| match pair {
                Value::Array(mut pair) if pair.len() == 2 => (pair.remove(0), pair.remove(0)),
                other => panic!("no pair: {other:?}"),
            })
            .collect();
        assert_eq!(pairs.len(), 4000);
        for (field, value) in pairs.iter().step_by(100) {
            let Value::Text(field) = field else { panic!("no text") };
            assert_eq!(client.call(&["HGET", "h", field]), *value);
        }
        assert!(matches!(call(&mut client, "SUNION a l"), Value::Error(_)));
        assert!(matches!(call(&mut client, "SORT a"), Value::Error(_)));
    }
}

#[test]
fn shards_are_held_for_few_members_at_a_time() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    fill_all(&mut client);
    // Told as some 20 bytes each, 8 KiB and the last pack or leaf in one slice.
    for (command, members) in [
        ("SUNION a b c", 8500),
        ("SINTER a b", 7000),
        ("SDIFF a b", 7000),
        ("SINTERCARD 2 a b", 7000),
        ("ZUNION 2 y z", 7000),
        ("ZINTER 2 y z", 7000),
        ("ZDIFF 2 y z", 7000),
        ("SORT l", 4000),
        ("SORT a ALPHA", 4000),
        ("GEOSEARCH places FROMLONLAT 1 41 BYRADIUS 300 km", 6000),
        ("LPOS long none", 8000),
        ("BITCOUNT ones", 4800),
        ("SRANDMEMBER a 3900", 3900),
        ("HRANDFIELD h 3900", 3900),
        ("ZRANDMEMBER y 2900", 2900),
        ("XREAD STREAMS stream 0", 2500),
        ("ZPOPMIN y 3000", 3000),
    ] {
        let before = client.info::<u64>("transaction", "slices_total");
        call(&mut client, command);
        let slices = client.info::<u64>("transaction", "slices_total") - before;
        assert!(slices >= members / 800, "{command}: {slices} slices");
    }
}

#[test]
fn what_is_gathered_is_one_state_while_members_move() {
    const MEMBERS: u64 = 6000;
    for threads in ["1", "4"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        client.call_for_each(&["SADD", "s"], MEMBERS, |n, words| words.push(member(n)));
        client.call_for_each(&["SADD", "t"], MEMBERS, |n, words| words.push(format!("t:{n}")));
        client.call_for_each(&["RPUSH", "l"], MEMBERS, |n, words| words.push(n.to_string()));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (mut writer, is_over) = (server.client(), &is_over);
            scope.spawn(move || {
                for n in (0..2000).cycle().take_while(|_| !is_over.load(Relaxed)) {
                    let name = member(n);
                    writer.call(&["SMOVE", "s", "t", &name]);
                    writer.call(&["LMOVE", "l", "l", "LEFT", "RIGHT"]);
                    writer.call(&["SMOVE", "t", "s", &name]);
                }
            });
            let whole: Vec<String> = (0..MEMBERS).map(|n| n.to_string()).collect();
            let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
            for _ in 0..8 {
                assert_eq!(sorted(call(&mut client, "SUNION s t")).len() as u64, 2 * MEMBERS);
                assert_eq!(sorted(call(&mut client, "SINTER s t")).len(), 0);
                let left = sorted(call(&mut client, "SDIFF s t")).len() as u64;
                assert!(left == MEMBERS || left == MEMBERS - 1, "{left}");
                assert_eq!(call(&mut client, "SORT l"), Value::array(&whole));
            }
            is_over.store(true, Relaxed);
        });
    }
}

#[test]
fn what_patterns_point_to_is_one_state_while_all_of_it_changes() {
    let server = Server::start(&["--proactor_threads", "3"]);
    let mut client = server.client();
    client.call_for_each(&["RPUSH", "list"], 2000, |n, words| words.push(n.to_string()));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, is_over) = (&server, &is_over);
        scope.spawn(move || {
            let mut writer = server.client();
            for round in 0.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let mut words = vec!["MSET".to_owned()];
                words.extend((0..2000).flat_map(|n| [format!("w:{n}"), round.to_string()]));
                writer.call(&words.iter().map(String::as_str).collect::<Vec<_>>());
                std::thread::sleep(Duration::from_millis(15));
            }
        });
        for _ in 0..40 {
            let Value::Array(weights) = call(&mut client, "SORT list BY nosort GET w:*") else {
                panic!("none")
            };
            assert_eq!(weights.len(), 2000);
            assert!(weights.iter().all(|weight| *weight == weights[0]), "of several rounds");
        }
        is_over.store(true, Relaxed);
    });
    let before = client.info::<u64>("transaction", "slices_total");
    call(&mut client, "SORT list BY w:* GET # GET w:* STORE d");
    assert!(client.info::<u64>("transaction", "slices_total") - before > 60);
    assert_eq!(client.call(&["LLEN", "d"]), Value::Int(4000));
}

#[test]
fn clients_that_go_away_leave_no_reads() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut other = server.client();
    other.call_for_each(&["SADD", "s"], 50_000, |n, words| words.push(format!("member:{n}")));
    other.call_for_each(&["SADD", "t"], 50_000, |n, words| words.push(format!("member:{}", 2 * n)));
    for _ in 0..40 {
        server.client().send_all(&[&["SUNION", "s", "t"]]);
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(sorted(call(&mut other, "SUNION s t")).len(), 75_000);
    assert_eq!(other.call(&["DEL", "s", "t"]), Value::Int(2));
    wait_until("the sets are gone", || other.info::<u64>("memory", "object_used_memory") == 0);
}

#[test]
fn a_value_that_is_dumped_in_slices_comes_back_as_it_was() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        fill_all(&mut client);
        client.call_for_each(&["RPUSH", "numbers"], 70_000, |n, words| words.push((n * n).to_string()));
        let mut link = Link::new(&server);
        for key in ["a", "h", "y", "long", "numbers"] {
            let before = client.info::<u64>("transaction", "slices_total");
            let mine = link.call(&["DUMP", key]);
            assert!(client.info::<u64>("transaction", "slices_total") - before > 4, "{key}");
            link.call(&["MULTI"]);
            link.call(&["DUMP", key]);
            let at_once = link.call(&["EXEC"]);
            let at_once = &at_once.items()[0];
            assert_eq!(mine.bytes().len(), at_once.bytes().len(), "{key}");
            assert!(matches!(key, "a" | "h") || mine == *at_once, "{key}");
            for payload in [&mine, at_once] {
                let restored = link.call(&[&b"RESTORE"[..], b"back", b"0", payload.bytes(), b"REPLACE"]);
                assert_eq!(restored.bytes(), b"+OK", "{key}");
                let mut digest = |key: &str| link.call(&["DEBUG", "DIGEST-VALUE", key]);
                assert_eq!(digest(key), digest("back"), "{key}");
            }
        }
    }
}

/// The error comes from a slice and not from the body.
#[test]
fn a_sort_that_fails_in_slices_counts_as_failed() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    client.call_for_each(&["RPUSH", "l"], 4000, |n, words| words.push(n.to_string()));
    client.call(&["RPUSH", "l", "no number"]);
    assert!(matches!(client.call(&["SORT", "l"]), Value::Error(line) if line.contains("double")));
    let Value::Text(counts) = client.call(&["INFO", "commandstats"]) else { panic!("no text") };
    let sort = counts.lines().find(|line| line.starts_with("cmdstat_sort:")).expect("it was called");
    assert!(sort.contains("calls=1,") && sort.ends_with("failed_calls=1"), "{sort}");
    let Value::Text(errors) = client.call(&["INFO", "errorstats"]) else { panic!("no text") };
    assert!(errors.contains("errorstat_ERR:count=1"), "{errors}");
}

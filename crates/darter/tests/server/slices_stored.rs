//! Stored results that are computed in slices: they equal the result of one step at the moment of the command.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::harness::{Client, PATIENCE, Server, Value, wait_until};

/// Integers and texts.
fn member(n: u64) -> String {
    if n.is_multiple_of(3) { n.to_string() } else { format!("m:{n}") }
}

fn fill_all(client: &mut Client) {
    client.call_for_each(&["SADD", "a"], 4000, |n, words| words.push(member(n)));
    client.call_for_each(&["SADD", "b"], 3000, |n, words| words.push(member(2 * n)));
    client.call_for_each(&["SADD", "far"], 2000, |n, words| words.push(format!("far:{n}")));
    let score = |n: u64| match n % 100 {
        0 => "inf".to_owned(),
        2 => "-0".to_owned(),
        _ => format!("{}.25", n * 7919 % 501),
    };
    client.call_for_each(&["ZADD", "y"], 3000, |n, words| words.extend([score(n), member(n)]));
    client
        .call_for_each(&["ZADD", "z"], 4000, |n, words| words.extend([score(3 * n + 1), member(n / 2 * 3)]));
    client.call_for_each(&["ZADD", "few"], 2000, |n, words| {
        words.extend(["-0".to_owned(), format!("few:{}", n + 1990)])
    });
    client.call_for_each(&["ZADD", "few2"], 2000, |n, words| {
        words.extend(["-0".to_owned(), format!("few:{n}")])
    });
    client.call_for_each(&["RPUSH", "l"], 4000, |n, words| words.push(format!("{}.5", n * 7919 % 1009)));
    client.call_for_each(&["RPUSH", "long"], 30_000, |n, words| words.push(member(n)));
    client.call_for_each(&["HSET", "h"], 3000, |n, words| words.extend([member(n), member(n + 1)]));
    let bytes =
        |n: u64| -> String { (0..600).map(|i| char::from(((n * 31 + i * i) % 95 + 32) as u8)).collect() };
    for (key, count) in [("bits", 600), ("bits2", 500)] {
        for n in 0..count {
            client.call(&["APPEND", key, &bytes(n * count)]);
        }
    }
    client.call(&["SETBIT", "bits2", "3000001", "1"]);
    for key in ["h", "y", "long", "bits"] {
        client.call(&["EXPIREAT", key, "4000000000"]);
    }
    client.call_for_each(&["GEOADD", "places"], 4000, |n, words| {
        let place = |n: u64| (n % 1000) as f64 / 500.0;
        words.extend([place(n * 7919).to_string(), (40.0 + place(n * 104_729)).to_string(), member(n)])
    });
    client.call_for_each(&["RPUSH", "texts"], 3000, |n, words| words.push(format!("t{}", n * 31 % 500)));
    client.call_for_each(&["MSET"], 400, |n, words| {
        words.extend([format!("w:t{n}"), (n * 13 % 41).to_string()])
    });
}

const STORES: &[&str] = &[
    "SUNIONSTORE d a b none",
    "SUNIONSTORE d a",
    "SINTERSTORE d a b",
    "SINTERSTORE d a far",
    "SINTERSTORE d a none",
    "SDIFFSTORE d a b",
    "SDIFFSTORE d a a",
    "SUNIONSTORE a a b",
    "ZUNIONSTORE d 2 y z",
    "ZUNIONSTORE d 3 y z a WEIGHTS 2 -1.5 0 AGGREGATE MIN",
    "ZINTERSTORE d 2 y z",
    "ZINTERSTORE d 2 few few2 AGGREGATE MIN",
    "ZINTERSTORE y 2 y a",
    "ZDIFFSTORE d 2 y z",
    "ZRANGESTORE d z 0 -1",
    "ZRANGESTORE d z 10 -10 REV",
    "ZRANGESTORE d z -inf +inf BYSCORE LIMIT 5 2000",
    "ZRANGESTORE z z 0 1500",
    "SORT l STORE d",
    "SORT l DESC LIMIT 10 3000 STORE l",
    "SORT texts ALPHA STORE d",
    "SORT texts STORE d",
    "SORT a ALPHA STORE d",
    "SORT a BY nosort GET # GET w:* STORE d",
    "SORT texts BY w:* GET # GET w:* STORE d",
    "SORT texts BY w:* DESC LIMIT 100 50 STORE texts",
    "SORT texts BY w:* LIMIT 5000 50 STORE d",
    "SORT texts GET w:* STORE d",
    "COPY a d REPLACE",
    "COPY y d REPLACE",
    "COPY h d REPLACE",
    "COPY l d REPLACE DB 0",
    "COPY l d",
    "RENAME h d",
    "RENAME y d2",
    "RENAME a d3",
    "RENAMENX l d",
    "RENAMENX l d4",
    "ZREMRANGEBYRANK z 500 3400",
    "ZREMRANGEBYRANK y 0 -2",
    "ZREMRANGEBYSCORE y -inf 300",
    "ZREMRANGEBYSCORE y -inf +inf",
    "ZREMRANGEBYLEX few [few:2500 +",
    "LTRIM long 6000 -6000",
    "LTRIM long 1 0",
    "LREM long 0 m:25000",
    "LREM long -1 27000",
    "LREM long -1 3000",
    "LREM long 1 m:7",
    "LREM long 5 none",
    "LREM long 0 99",
    "LREM texts -2 t17",
    "GEOSEARCHSTORE d places FROMLONLAT 1 41 BYRADIUS 300 km",
    "GEOSEARCHSTORE d places FROMLONLAT 1 41 BYRADIUS 250 km DESC COUNT 1500 STOREDIST",
    "GEOSEARCHSTORE places places FROMMEMBER m:4 BYBOX 300 300 km",
    "GEORADIUS places 1 41 300 mi STORE d",
    "LPOP long 20000",
    "RPOP long 9001",
    "LMPOP 3 none long texts RIGHT COUNT 9000",
    "ZPOPMIN z 1500",
    "ZPOPMAX y 1100",
    "ZMPOP 2 none y MIN COUNT 2000",
    "LINSERT long BEFORE m:25000 new",
    "LINSERT long AFTER 27000 new",
    "LINSERT long AFTER none new",
    "BITOP AND d bits bits2",
    "BITOP OR bits bits2 bits",
    "BITOP XOR d bits none bits2 bits",
    "BITOP NOT d bits",
    "BITOP ONE d bits bits2 bits2",
    "BITOP DIFF d bits bits2",
    "BITOP DIFF1 d bits2 bits none",
    "BITOP ANDOR d bits bits2",
];

/// Those that an early look answers, or a few long blocks.
const NOT_SLICED: &[&str] = &[
    "SINTERSTORE d a none",
    "SORT texts STORE d",
    "COPY l d",
    "RENAMENX l d",
    "ZREMRANGEBYSCORE y -inf +inf",
    "LTRIM long 1 0",
    "LREM long 1 m:7",
    "LREM long -1 27000",
    "LREM texts -2 t17",
];

fn call(client: &mut Client, command: &str) -> Value {
    client.call(&command.split(' ').collect::<Vec<_>>())
}

fn texts(value: Value) -> Vec<String> {
    let Value::Array(items) = value else { panic!("no array: {value:?}") };
    items.into_iter().map(|item| format!("{item:?}")).collect()
}

/// The type, value and deadline of a key.
fn look(client: &mut Client, key: &str) -> (Value, Vec<String>, Value) {
    let kind = client.call(&["TYPE", key]);
    let mut members = match &kind {
        Value::Status(kind) if kind == "hash" => {
            texts(client.call(&["HGETALL", key])).chunks(2).map(|pair| pair.join(" ")).collect()
        }
        Value::Status(kind) if kind == "set" => texts(client.call(&["SMEMBERS", key])),
        Value::Status(kind) if kind == "zset" => {
            texts(client.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"]))
        }
        Value::Status(kind) if kind == "list" => texts(client.call(&["LRANGE", key, "0", "-1"])),
        Value::Status(kind) if kind == "string" => vec![format!("{:?}", client.call(&["GET", key]))],
        _ => {
            assert_eq!(kind, Value::Status("none".to_owned()), "{key}");
            Vec::new()
        }
    };
    if matches!(&kind, Value::Status(kind) if kind == "set" || kind == "hash") {
        members.sort();
    }
    (kind, members, client.call(&["EXPIRETIME", key]))
}

#[test]
fn what_slices_store_is_what_one_go_stores() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        for command in STORES {
            let mut seen = Vec::new();
            for is_sliced in [true, false] {
                client.call(&["FLUSHALL"]);
                fill_all(&mut client);
                client.call(&["SET", "d", "before", "EXAT", "4000000001"]);
                let before = client.info::<u64>("transaction", "slices_total");
                let answer = if is_sliced {
                    call(&mut client, command)
                } else {
                    client.call(&["MULTI"]);
                    call(&mut client, command);
                    let Value::Array(mut replies) = client.call(&["EXEC"]) else { panic!("no replies") };
                    replies.remove(0)
                };
                let slices = client.info::<u64>("transaction", "slices_total") - before;
                let may_be_short = NOT_SLICED.contains(command) || command.starts_with("RENAME");
                assert!(!is_sliced || may_be_short || slices > 2, "{command}: {slices} slices");
                let words: Vec<&str> = command.split(' ').collect();
                let keys = if words[0] == "SORT" { &words[words.len() - 1..] } else { &words[1..3] };
                let found: Vec<_> = keys.iter().map(|key| look(&mut client, key)).collect();
                seen.push((answer, found));
            }
            assert_eq!(seen[0], seen[1], "{command}");
        }
        assert!(matches!(call(&mut client, "SUNIONSTORE d a l"), Value::Error(_)));
        assert!(matches!(call(&mut client, "SORT a STORE d"), Value::Error(_)));
    }
}

#[test]
fn what_is_stored_is_one_state_while_members_move() {
    const MEMBERS: u64 = 6000;
    for threads in ["1", "4"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        client.call_for_each(&["SADD", "s"], MEMBERS, |n, words| words.push(member(n)));
        client.call_for_each(&["SADD", "t"], MEMBERS, |n, words| words.push(member(n + MEMBERS)));
        client.call_for_each(&["ZADD", "y"], MEMBERS, |n, words| words.extend([n.to_string(), member(n)]));
        client.call_for_each(&["RPUSH", "q"], 2 * MEMBERS, |n, words| words.push(format!("q:{n}")));
        client.call(&["SETBIT", "bits", "4000000", "1"]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for pause_ms in [0, 40] {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let mut writer = server.client();
                    for n in (0..2000).cycle().take_while(|_| !is_over.load(Relaxed)) {
                        let name = member(n);
                        writer.call(&["SMOVE", "s", "t", &name]);
                        writer.call(&["ZINCRBY", "y", "1", &name]);
                        writer.call(&["LPUSH", "q", "new", "new2"]);
                        writer.call(&["LPOP", "q", "2"]);
                        let place = (n % 2 * 3_999_999).to_string();
                        for bit in ["1", "0"] {
                            writer.call(&["SETBIT", "bits", &place, bit]);
                        }
                        writer.call(&["SMOVE", "t", "s", &name]);
                        std::thread::sleep(Duration::from_millis(pause_ms));
                    }
                });
            }
            for n in 0..10 {
                let item = format!("q:{}", MEMBERS + n);
                let is_len = |len: Value| {
                    let wanted = 2 * MEMBERS as i64;
                    // Each writer has two items there now and then.
                    assert!(
                        matches!(len, Value::Int(len) if (wanted..=wanted + 5).contains(&len)),
                        "{len:?}"
                    );
                };
                is_len(client.call(&["LINSERT", "q", "BEFORE", &item, "before"]));
                assert_eq!(client.call(&["LREM", "q", "-1", "before"]), Value::Int(1));
                assert_eq!(client.call(&["LREM", "q", "0", &item]), Value::Int(1));
                assert_eq!(client.call(&["LPOS", "q", &item]), Value::Null);
                is_len(client.call(&["RPUSH", "q", &item]));
                let Value::Int(ones) = call(&mut client, "BITCOUNT bits") else { panic!("no count") };
                assert!((1..=3).contains(&ones), "{ones}");
                assert_eq!(call(&mut client, "SUNIONSTORE d s t"), Value::Int(2 * MEMBERS as i64));
                assert_eq!(call(&mut client, "SCARD d"), Value::Int(2 * MEMBERS as i64));
                assert_eq!(call(&mut client, "SINTERSTORE d s t"), Value::Int(0));
                assert_eq!(call(&mut client, "EXISTS d"), Value::Int(0));
                assert_eq!(call(&mut client, "ZUNIONSTORE y2 2 y y"), Value::Int(MEMBERS as i64));
                assert_eq!(call(&mut client, "ZRANGESTORE y2 y 0 -1"), Value::Int(MEMBERS as i64));
            }
            is_over.store(true, Relaxed);
        });
    }
}

/// Runs a command of many words in slices or, within EXEC, in one go; its answer, and how many slices it took.
fn run(client: &mut Client, words: &[String], is_sliced: bool) -> (Value, u64) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let before = client.info::<u64>("transaction", "slices_total");
    let answer = if is_sliced {
        client.call(&words)
    } else {
        client.call(&["MULTI"]);
        client.call(&words);
        let Value::Array(mut replies) = client.call(&["EXEC"]) else { panic!("no replies") };
        replies.remove(0)
    };
    (answer, client.info::<u64>("transaction", "slices_total") - before)
}

/// A command of `head`, and what `words` says of 2,500 members.
fn naming(head: &str, words: impl Fn(u64) -> Vec<String>) -> Vec<String> {
    let head = head.split(' ').map(str::to_owned);
    head.chain((0..2500).flat_map(words)).collect()
}

/// Commands that name many members, some of them there already, for a collection that is there and one that is not.
fn namings() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for key in ["a", "new"] {
        all.push(naming(&format!("SADD {key}"), |n| vec![member(n * 7 % 5001)]));
    }
    all.push(naming("SADD a", |n| vec![member(n)]));
    for key in ["h", "new"] {
        all.push(naming(&format!("HSET {key}"), |n| vec![member(n * 7 % 5001), member(n)]));
        all.push(naming(&format!("HMSET {key}"), |n| vec![member(n * 3), format!("{n}.50")]));
    }
    let scores = ["5", "-0", "inf", "1e3", "0.25"];
    for key in ["y", "new"] {
        for option in ["", " CH"] {
            let scored = |n: u64| vec![scores[n as usize % 5].to_owned(), member(n * 7 % 5001 % 2000)];
            all.push(naming(&format!("ZADD {key}{option}"), scored));
        }
    }
    all.push(naming("ZADD few", |n| vec!["-0".to_owned(), format!("few:{}", n % 2000 + 1990)]));
    for key in ["l", "new"] {
        for push in ["RPUSH", "LPUSH", "RPUSHX"] {
            all.push(naming(&format!("{push} {key}"), |n| vec![member(n)]));
        }
    }
    let place = |n: u64| format!("{}.5", n % 80);
    all.push(naming("GEOADD places CH", |n| vec![place(n * 7), place(n * 11), member(n)]));
    all.push(naming("GEOADD new", |n| vec![place(n * 7), place(n * 11), member(n)]));
    all
}

#[test]
fn what_slices_add_is_what_one_go_adds() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        for words in namings() {
            let shown = words[..3].join(" ");
            let seen = [true, false].map(|is_sliced| {
                client.call(&["FLUSHALL"]);
                fill_all(&mut client);
                let (answer, slices) = run(&mut client, &words, is_sliced);
                assert!(
                    (slices > 2) == is_sliced || shown.starts_with("RPUSHX new"),
                    "{shown}: {slices} slices"
                );
                (answer, look(&mut client, &words[1]))
            });
            assert_eq!(seen[0], seen[1], "{shown}");
        }
    }
}

/// Commands that name many members to take out: some that are there, all of them, none; some twice.
fn weedings() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (command, key) in [("SREM", "a"), ("HDEL", "h"), ("ZREM", "y")] {
        let head = format!("{command} {key}");
        all.push(naming(&head, |n| vec![member(n * 7 % 5001), member(n % 40)]));
        all.push(naming(&head, |n| (0..4).map(|part| member(part * 2500 + n)).collect()));
        all.push(naming(&head, |n| vec![format!("none:{n}"), format!("0{n}")]));
    }
    all
}

#[test]
fn what_slices_take_out_is_what_one_go_takes_out() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        for words in weedings() {
            let shown = words[..3].join(" ");
            let seen = [true, false].map(|is_sliced| {
                client.call(&["FLUSHALL"]);
                fill_all(&mut client);
                client.call(&["EXPIREAT", &words[1], "4000000000"]);
                let (answer, slices) = run(&mut client, &words, is_sliced);
                assert_eq!(slices > 2, is_sliced, "{shown}: {slices} slices");
                (answer, look(&mut client, &words[1]))
            });
            assert_eq!(seen[0], seen[1], "{shown}");
        }
        // In one go as ever: what is named is little beside what is there, of another type, expires, or is not there.
        client.call_for_each(&["SADD", "large"], 30_000, |n, words| words.push(member(n)));
        client.call(&["HEXPIRE", "h", "1000", "FIELDS", "1", &member(1)]);
        for head in ["SREM large", "HDEL h", "ZREM none"] {
            let (answer, slices) = run(&mut client, &naming(head, |n| vec![member(n)]), true);
            assert!(
                matches!(answer, Value::Int(_)) && slices == 0,
                "{head}: {answer:?} after {slices} slices"
            );
        }
        let wrong = run(&mut client, &naming("ZREM h", |n| vec![member(n)]), true).0;
        assert!(matches!(&wrong, Value::Error(line) if line.starts_with("WRONGTYPE")), "{wrong:?}");
    }
}

#[test]
fn a_word_that_is_wrong_adds_nothing() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    fill_all(&mut client);
    let before = look(&mut client, "y");
    for key in ["y", "new", "a"] {
        let mut words = naming(&format!("ZADD {key}"), |n| vec![n.to_string(), member(n)]);
        words.extend(["no".to_owned(), "member".to_owned()]);
        let (answer, _) = run(&mut client, &words, true);
        assert_eq!(answer, run(&mut client, &words, false).0);
        assert!(matches!(&answer, Value::Error(line) if line.contains("float")), "{answer:?}");
    }
    let wrong = naming("SADD y", |n| vec![member(n)]);
    assert!(matches!(run(&mut client, &wrong, true).0, Value::Error(line) if line.starts_with("WRONGTYPE")));
    let odd = naming("HSET h odd", |n| vec![member(n), member(n)]);
    assert!(matches!(run(&mut client, &odd, true).0, Value::Error(line) if line.contains("arguments")));
    assert_eq!(look(&mut client, "y"), before);
    assert_eq!(client.call(&["EXISTS", "new"]), Value::Int(0));
}

#[test]
fn what_is_added_is_seen_whole_or_not_at_all() {
    const MEMBERS: usize = 5000;
    let server = Server::start(&["--proactor_threads", "3"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, is_over) = (&server, &is_over);
        scope.spawn(move || {
            let mut reader = server.client();
            while !is_over.load(Relaxed) {
                for (command, key) in [("SCARD", "s"), ("ZCARD", "z"), ("LLEN", "l")] {
                    let Value::Int(len) = reader.call(&[command, key]) else { panic!("no length") };
                    assert!(len % MEMBERS as i64 <= 1, "{len} members of {key}");
                }
                // Now and then it is changed meanwhile.
                reader.call(&["SADD", "s", "one more"]);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut client = server.client();
        for round in 0..12 {
            let names: Vec<String> = (0..MEMBERS).map(|n| format!("m:{round}:{n}")).collect();
            let add = |head: &str, score: Option<&str>| -> Vec<String> {
                let words =
                    names.iter().flat_map(|name| score.map(str::to_owned).into_iter().chain([name.clone()]));
                head.split(' ').map(str::to_owned).chain(words).collect()
            };
            let len = Value::Int(((round % 3 + 1) * MEMBERS) as i64);
            assert_eq!(run(&mut client, &add("SADD s", None), true).0, Value::Int(MEMBERS as i64));
            assert_eq!(run(&mut client, &add("ZADD z", Some("1")), true).0, Value::Int(MEMBERS as i64));
            assert_eq!(run(&mut client, &add("RPUSH l", None), true).0, len);
            if round % 3 == 2 {
                client.call(&["DEL", "s", "z", "l"]);
            }
        }
        is_over.store(true, Relaxed);
    });
}

/// A command that takes some hundred slices, sent by `client` and not waited for, once it is under way.
fn begin_large(other: &mut Client, client: &mut Client, command: &str) {
    let before = other.info::<u64>("transaction", "slices_total");
    client.send_all(&[&command.split(' ').collect::<Vec<_>>()]);
    let began = std::time::Instant::now();
    while other.info::<u64>("transaction", "slices_total") == before {
        assert!(began.elapsed() < PATIENCE, "{command} has not begun");
    }
}

fn fill_large(client: &mut Client) {
    client.call_for_each(&["SADD", "s"], 100_000, |n, words| words.push(format!("member:{n}")));
    client.call_for_each(&["SADD", "t"], 100_000, |n, words| words.push(format!("member:{}", 2 * n)));
}

/// Has `change` happen while `command` is under way; returns its answer then.
fn change_under_way(server: &Server, other: &mut Client, command: &str, change: &[&str]) -> Value {
    for _ in 0..50 {
        other.call(&["FLUSHALL"]);
        other.call(&["ACL", "SETUSER", "u", "on", ">p", "~*", "+@all"]);
        fill_large(other);
        let mut client = server.client();
        assert_eq!(client.call(&["AUTH", "u", "p"]), Value::ok());
        begin_large(other, &mut client, command);
        other.call(&["MULTI"]);
        other.call(&["EXISTS", "d"]);
        other.call(change);
        let Value::Array(replies) = other.call(&["EXEC"]) else { panic!("no replies") };
        let answer = client.read();
        // On a busy machine it may have come to its end before.
        if replies[0] == Value::Int(0) {
            return answer;
        }
    }
    panic!("{command} is never met under way");
}

#[test]
fn a_change_or_the_end_of_a_source_is_not_missed() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut other = server.client();
    let command = "SUNIONSTORE d s t none";
    let answer = change_under_way(&server, &mut other, command, &["SADD", "none", "new"]);
    assert_eq!(answer, Value::Int(150_001));
    assert_eq!(other.call(&["SISMEMBER", "d", "new"]), Value::Int(1));
    let answer = change_under_way(&server, &mut other, command, &["PEXPIREAT", "t", "1"]);
    assert_eq!(answer, Value::Int(100_000));
    assert_eq!(change_under_way(&server, &mut other, command, &["FLUSHALL"]), Value::Int(0));
    assert_eq!(other.call(&["DBSIZE"]), Value::Int(0));
}

#[test]
fn a_right_that_is_taken_is_gone_before_the_result_is_stored() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut other = server.client();
    let change = ["ACL", "SETUSER", "u", "-sunionstore"];
    let answer = change_under_way(&server, &mut other, "SUNIONSTORE d s t", &change);
    assert!(matches!(&answer, Value::Error(line) if line.starts_with("NOPERM")), "{answer:?}");
    assert_eq!(other.call(&["EXISTS", "d"]), Value::Int(0));
}

#[test]
fn nothing_is_stored_while_writers_are_paused() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut other = server.client();
    fill_large(&mut other);
    let mut client = server.client();
    begin_large(&mut other, &mut client, "SUNIONSTORE d s t");
    other.call(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    // Another thread that was let through just before may be at work still.
    std::thread::sleep(Duration::from_millis(100));
    let at_first = other.call(&["EXISTS", "d"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(other.call(&["EXISTS", "d"]), at_first);
    other.call(&["CLIENT", "UNPAUSE"]);
    assert_eq!(client.read(), Value::Int(150_000));
    assert_eq!(other.call(&["SCARD", "d"]), Value::Int(150_000));
}

#[test]
fn clients_that_go_away_leave_no_drafts() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut other = server.client();
    fill_large(&mut other);
    for _ in 0..10 {
        let id = {
            let mut client = server.client();
            let Value::Int(id) = client.call(&["CLIENT", "ID"]) else { panic!("no id") };
            client.send_all(&[&["SUNIONSTORE", "d", "s", "t"]]);
            std::mem::forget(client);
            id
        };
        std::thread::sleep(Duration::from_millis(id.unsigned_abs() % 7 * 10));
        other.call(&["CLIENT", "KILL", "ID", &id.to_string()]);
    }
    other.call(&["DEL", "s", "t", "d"]);
    wait_until("nothing is there any more", || {
        other.call(&["DEL", "d"]);
        other.info::<u64>("memory", "object_used_memory") == 0
    });
}

//! Long answers in slices, over real connections: one state each, whatever changes and goes meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::harness::{Client, PATIENCE, Server, Value, wait_until};

const PAIRS: u64 = 10_000;

/// The texts of an array, those of arrays in it too.
fn texts(value: Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.into_iter().flat_map(texts).collect(),
        Value::Text(text) => vec![text],
        other => panic!("no text: {other:?}"),
    }
}

/// Ends the writers, however the test ends.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn fill_all(client: &mut Client) {
    client.call_for_each(&["SADD", "set"], PAIRS, |n, words| words.push(format!("a:{n}")));
    client.call_for_each(&["SADD", "ints"], PAIRS, |n, words| words.push((2 * n).to_string()));
    client.call_for_each(&["HSET", "hash"], PAIRS, |n, words| {
        words.extend([format!("x:{n}"), "0".to_owned(), format!("y:{n}"), "0".to_owned()]);
    });
    client.call_for_each(&["RPUSH", "list"], PAIRS, |n, words| words.push(n.to_string()));
    client
        .call_for_each(&["ZADD", "zset"], PAIRS, |n, words| words.extend([n.to_string(), format!("m:{n}")]));
    for n in 1..=3000 {
        client.call(&["XADD", "stream", &format!("{n}-0"), "n", &n.to_string()]);
    }
}

/// Moves members about, each move at one point in time.
fn shuffle(client: &mut Client, mut seed: u64, is_over: &AtomicBool, moves: &AtomicU64) {
    while !is_over.load(Relaxed) {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (n, other) = ((seed >> 33) % PAIRS, (seed >> 20) % PAIRS);
        let is_back = seed >> 63 == 0;
        let (from, to) = if is_back { ("b", "a") } else { ("a", "b") };
        let (from_int, to_int) = (2 * n + u64::from(is_back), 2 * n + u64::from(!is_back));
        let script =
            "if redis.call('SREM', KEYS[1], ARGV[1]) == 1 then redis.call('SADD', KEYS[1], ARGV[2]) end";
        let (from, to) = (format!("{from}:{n}"), format!("{to}:{n}"));
        let (x, y, value) = (format!("x:{n}"), format!("y:{n}"), seed.to_string());
        let (m, k) = (format!("m:{n}"), format!("m:{other}"));
        client.send_all(&[
            &["EVAL", script, "1", "set", &from, &to],
            &["EVAL", script, "1", "ints", &from_int.to_string(), &to_int.to_string()],
            &["HSET", "hash", &x, &value, &y, &value],
            &["LMOVE", "list", "list", "LEFT", "RIGHT"],
            &["ZADD", "zset", &other.to_string(), &m, &n.to_string(), &k],
        ]);
        for _ in 0..5 {
            let reply = client.read();
            assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
        }
        moves.fetch_add(1, Relaxed);
    }
}

fn check_set(members: Vec<String>, sides: impl Fn(&str) -> (u64, bool)) {
    assert_eq!(members.len() as u64, PAIRS);
    let numbers: BTreeSet<u64> = members.iter().map(|member| sides(member).0).collect();
    assert_eq!(numbers.len() as u64, PAIRS, "a member on both sides or on none");
}

fn read_all(client: &mut Client) {
    check_set(texts(client.call(&["SMEMBERS", "set"])), |member| {
        (member[2..].parse().expect("a number"), member.starts_with('a'))
    });
    check_set(texts(client.call(&["SMEMBERS", "ints"])), |member| {
        let number: u64 = member.parse().expect("a number");
        (number / 2, number.is_multiple_of(2))
    });
    let hash = texts(client.call(&["HGETALL", "hash"]));
    let fields: BTreeMap<&str, &str> = hash.chunks(2).map(|pair| (&*pair[0], &*pair[1])).collect();
    assert_eq!(fields.len() as u64, 2 * PAIRS);
    for n in 0..PAIRS {
        assert_eq!(fields[&*format!("x:{n}")], fields[&*format!("y:{n}")], "fields {n}");
    }
    assert_eq!(texts(client.call(&["HKEYS", "hash"])).len() as u64, 2 * PAIRS);
    assert_eq!(texts(client.call(&["HVALS", "hash"])).len() as u64, 2 * PAIRS);
    let list = texts(client.call(&["LRANGE", "list", "0", "-1"]));
    let numbers: Vec<u64> = list.iter().map(|item| item.parse().expect("a number")).collect();
    assert_eq!(numbers.len() as u64, PAIRS);
    let follows = |pair: &[u64]| pair[1] == (pair[0] + 1) % PAIRS;
    assert!(numbers.windows(2).all(follows), "the list is no rotation");
    let up = texts(client.call(&["ZRANGE", "zset", "0", "-1", "WITHSCORES"]));
    let down = texts(client.call(&["ZREVRANGE", "zset", "0", "-1"]));
    let scores: Vec<u64> = up.chunks(2).map(|pair| pair[1].parse().expect("a score")).collect();
    assert!(scores.is_sorted());
    for members in [up.iter().step_by(2).collect::<BTreeSet<_>>(), down.iter().collect()] {
        assert_eq!(members.len() as u64, PAIRS);
    }
    let Value::Array(entries) = client.call(&["XREVRANGE", "stream", "+", "-"]) else { panic!("no entries") };
    assert_eq!(entries.len(), 3000);
}

#[test]
fn every_answer_is_one_state_while_members_move() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "4", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        fill_all(&mut client);
        let (is_over, moves) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for seed in 1..3 {
                let mut writer = server.client();
                let (is_over, moves) = (&is_over, &moves);
                scope.spawn(move || shuffle(&mut writer, seed, is_over, moves));
            }
            let _ending = Ending(&is_over);
            // Until much has moved meanwhile.
            let began = std::time::Instant::now();
            for round in 0.. {
                if round == 3 {
                    client.call(&["HELLO", "3"]);
                }
                read_all(&mut client);
                if round >= 5 && moves.load(Relaxed) > 100 {
                    break;
                }
                assert!(began.elapsed() < 2 * PATIENCE, "{moves:?} moves");
            }
        });
        let slices = client.info::<f64>("transaction", "slices_total");
        assert!(slices > 6.0 * 60.0, "{slices} slices");
        assert!(
            client.info::<f64>("transaction", "slice_usec_p50") < 100.0,
            "slices are short even on a busy machine"
        );
    }
}

#[test]
fn an_answer_outlives_its_key_and_waits_for_a_slow_client() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut slow, mut other) = (server.client(), server.client());
    let padding = "p".repeat(200);
    other.call_for_each(&["RPUSH", "list"], 100_000, |n, words| words.push(format!("{n}:{padding}")));
    other
        .call_for_each(&["HSET", "hash"], 100_000, |n, words| words.extend([n.to_string(), padding.clone()]));
    slow.send_all(&[&["CLIENT", "SETNAME", "slow"]]);
    slow.read();
    slow.send_all(&[&["LRANGE", "list", "0", "-1"], &["HGETALL", "hash"], &["GET", "none"], &["PING"]]);
    let mut shown = |name: &str| {
        let Value::Text(clients) = other.call(&["CLIENT", "LIST"]) else { panic!("no list") };
        let line = clients.lines().find(|line| line.contains("name=slow")).expect("it is there");
        let bytes = line.split(' ').find_map(|word| word.strip_prefix(name)).expect("its memory");
        bytes.parse::<u64>().expect("a number")
    };
    // It has begun, and cannot be done: the kernel's buffers take less.
    wait_until("it waits for its client", || shown("omem=") > 0);
    std::thread::sleep(Duration::from_millis(100));
    let memory = shown("tot-mem=");
    assert!(memory < 2 << 20, "21 MB are not copied for it: {memory}");
    for n in 0..200 {
        other.call(&["LSET", "list", &(500 * n).to_string(), "changed"]);
        other.call(&["LPOP", "list"]);
    }
    other.call(&["RENAME", "list", "moved"]);
    assert_eq!(other.call(&["DEL", "moved"]), Value::Int(1));
    assert_eq!(other.call(&["EXISTS", "moved"]), Value::Int(0));
    let list = texts(slow.read());
    assert_eq!(list.len(), 100_000);
    assert!(list.iter().enumerate().all(|(n, item)| item.split(':').next() == Some(&n.to_string())));
    // The next command of the connection runs when the answer before it is out.
    other.call(&["FLUSHALL"]);
    assert!(matches!(slow.read(), Value::Array(fields) if fields.len() == 200_000 || fields.is_empty()));
    assert_eq!((slow.read(), slow.read()), (Value::Null, Value::Status("PONG".to_owned())));
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut other = server.client();
    let padding = "p".repeat(100);
    other.call_for_each(&["SADD", "set"], 100_000, |n, words| words.push(format!("{n}:{padding}")));
    for _ in 0..40 {
        let mut gone = server.client();
        gone.send_all(&[&["SMEMBERS", "set"]]);
        gone.read_line();
    }
    // With readers left over the last ones would have to be answered in one go, and the set could not be freed.
    wait_until("they are gone", || other.info::<u64>("clients", "connected_clients") == 1);
    assert_eq!(texts(other.call(&["SMEMBERS", "set"])).len(), 100_000);
    assert_eq!(other.call(&["DEL", "set"]), Value::Int(1));
    wait_until("nothing is left", || other.info::<u64>("memory", "object_used_memory") == 0);
}

#[test]
fn messages_come_behind_the_answer_and_transactions_see_all_at_once() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut client, mut other) = (server.client(), server.client());
    let padding = "p".repeat(200);
    other.call_for_each(&["SADD", "set"], 50_000, |n, words| words.push(format!("{n}:{padding}")));
    client.call(&["HELLO", "3"]);
    client.call(&["SUBSCRIBE", "news"]);
    client.call(&["CLIENT", "TRACKING", "ON"]);
    let before = other.info::<u64>("transaction", "slices_total");
    client.send_all(&[&["SMEMBERS", "set"], &["PING"]]);
    let ends = std::time::Instant::now() + PATIENCE;
    while other.info::<u64>("transaction", "slices_total") == before {
        assert!(std::time::Instant::now() < ends, "the answer does not begin");
    }
    assert_eq!(other.call(&["PUBLISH", "news", "hello"]), Value::Int(1));
    other.call(&["SADD", "set", "another"]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(texts(client.read()).len(), 50_000);
    assert_eq!(client.read(), Value::array(&["message", "news", "hello"]));
    let pushed = client.read();
    assert!(matches!(&pushed, Value::Array(items) if items[0] == Value::Text("invalidate".to_owned())));
    assert_eq!(client.read(), Value::Status("PONG".to_owned()));
    // Inside EXEC, and where the answer is dropped, nothing is left to slices.
    let slices = other.info::<f64>("transaction", "slices_total");
    other.send_all(&[&["MULTI"], &["SMEMBERS", "set"], &["SCARD", "set"], &["EXEC"]]);
    (0..3).for_each(|_| drop(other.read()));
    let Value::Array(replies) = other.read() else { panic!("no replies") };
    assert!(matches!(&replies[..], [Value::Array(members), Value::Int(50_001)] if members.len() == 50_001));
    other.send_all(&[&["CLIENT", "REPLY", "SKIP"], &["SMEMBERS", "set"], &["PING"]]);
    assert_eq!(other.read(), Value::Status("PONG".to_owned()));
    assert_eq!(other.info::<f64>("transaction", "slices_total"), slices);
}

#[test]
fn all_databases_are_emptied_while_one_is_read() {
    let server = Server::start(&["--proactor_threads", "1"]);
    let (mut slow, mut other) = (server.client(), server.client());
    let padding = "p".repeat(200);
    other.call_for_each(&["SADD", "set"], 50_000, |n, words| words.push(format!("{n}:{padding}")));
    other.call_for_each(&["MSET"], 5000, |n, words| words.extend([format!("key:{n}"), padding.clone()]));
    slow.send_all(&[&["SMEMBERS", "set"]]);
    slow.read_line();
    other.call(&["SELECT", "1"]);
    other.call_for_each(&["MSET"], 5000, |n, words| words.extend([format!("key:{n}"), padding.clone()]));
    other.call(&["SWAPDB", "0", "1"]);
    assert_eq!(other.call(&["FLUSHDB"]), Value::ok());
    assert_eq!(other.call(&["DBSIZE"]), Value::Int(0));
    other.call(&["SELECT", "0"]);
    assert_eq!(other.call(&["DBSIZE"]), Value::Int(5000));
    assert_eq!(other.call(&["FLUSHALL"]), Value::ok());
    assert_eq!(other.call(&["DBSIZE"]), Value::Int(0));
    other.call(&["SADD", "set", "new"]);
    let members: BTreeSet<String> = (0..50_000)
        .map(|_| slow.read())
        .map(|member| match member {
            Value::Text(text) => text,
            other => panic!("no text: {other:?}"),
        })
        .collect();
    assert_eq!(members.len(), 50_000);
    assert_eq!(slow.call(&["SMEMBERS", "set"]), Value::array(&["new"]));
}

#[test]
fn keys_that_stay_are_all_answered_while_others_come_and_go() {
    for threads in ["1", "4"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        client.call_for_each(&["MSET"], 20_000, |n, words| words.extend([format!("key:{n}"), n.to_string()]));
        let is_over = AtomicBool::new(false);
        let slices = client.info::<f64>("transaction", "slices_total");
        std::thread::scope(|scope| {
            let (mut writer, is_over) = (server.client(), &is_over);
            scope.spawn(move || {
                for n in (0..200_000_u64).cycle().take_while(|_| !is_over.load(Relaxed)) {
                    writer.call(&["SET", &format!("other:{n}"), "v"]);
                    writer.call(&["DEL", &format!("other:{}", n / 2)]);
                }
            });
            let _ending = Ending(is_over);
            for _ in 0..5 {
                let all = texts(client.call(&["KEYS", "*"]));
                let stayed: Vec<_> = all.iter().filter(|name| name.starts_with("key:")).collect();
                assert_eq!(stayed.len(), 20_000);
                assert_eq!(stayed.into_iter().collect::<BTreeSet<_>>().len(), 20_000, "each once");
                assert_eq!(texts(client.call(&["KEYS", "key:1999?"])).len(), 10);
            }
        });
        assert!(client.info::<f64>("transaction", "slices_total") > slices + 50.0);
        // Few keys, and those inside EXEC, are answered at once.
        let slices = client.info::<f64>("transaction", "slices_total");
        client.send_all(&[&["MULTI"], &["KEYS", "key:*"], &["EXEC"], &["FLUSHALL"], &["KEYS", "*"]]);
        (0..2).for_each(|_| drop(client.read()));
        assert_eq!(texts(client.read()).len(), 20_000);
        assert_eq!((client.read(), client.read()), (Value::ok(), Value::Array(Vec::new())));
        assert_eq!(client.info::<f64>("transaction", "slices_total"), slices);
    }
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    client.call_for_each(&["MSET"], 20_000, |n, words| words.extend([format!("key:{n}"), n.to_string()]));
    assert_eq!(texts(client.call(&["KEYS", "*"])).len(), 20_000, "all, where no limit is set");
    assert_eq!(client.info::<u64>("stats", "keys_answers_cut"), 0);
    assert_eq!(client.call(&["CONFIG", "SET", "keys_output_limit", "8192"]), Value::ok());
    assert_eq!(texts(client.call(&["KEYS", "*"])).len(), 8192);
    assert_eq!(client.info::<u64>("stats", "keys_answers_cut"), 1);
    // Inside EXEC too; an answer of as many keys as the limit is whole.
    client.send_all(&[&["MULTI"], &["KEYS", "key:*"], &["EXEC"]]);
    (0..2).for_each(|_| drop(client.read()));
    assert_eq!(texts(client.read()).len(), 8192);
    assert_eq!(client.info::<u64>("stats", "keys_answers_cut"), 2);
    assert_eq!(client.call(&["CONFIG", "SET", "keys_output_limit", "10"]), Value::ok());
    assert_eq!(texts(client.call(&["KEYS", "key:1999?"])).len(), 10);
    assert_eq!(client.info::<u64>("stats", "keys_answers_cut"), 2);
}

#[test]
fn an_answer_whose_slices_are_long_comes_to_its_end() {
    // A leaf of such items tells some 64 KiB at a time, so that a few slices fill the output before it is sent.
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    for bytes in [1000, 1500, 4095, 9000, 40_000] {
        let item = "i".repeat(bytes);
        let count = 6_000_000 / bytes as u64;
        client.call_for_each(&["RPUSH", "list"], count, |n, words| words.push(format!("{n}{item}")));
        let Value::Array(items) = client.call(&["LRANGE", "list", "0", "-1"]) else { panic!("no items") };
        assert_eq!(items.len() as u64, count, "items of {bytes} bytes");
        client.call_for_each(&["ZADD", "zset"], count, |n, words| {
            words.extend([n.to_string(), format!("{n}{item}")])
        });
        let Value::Array(items) = client.call(&["ZRANGE", "zset", "0", "-1"]) else { panic!("no members") };
        assert_eq!(items.len() as u64, count, "members of {bytes} bytes");
        client.call(&["DEL", "list", "zset"]);
    }
}

//! Hashes and sets of a real server: what expires untouched, and what several connections do to one set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value};

fn int(client: &mut Client, command: &[&str]) -> i64 {
    match client.call(command) {
        Value::Int(n) => n,
        other => panic!("{command:?}: {other:?}"),
    }
}

/// A set and others of 600 members each, of which the first 300 are dead and have not been looked for; of some all are.
fn with_dead_members(client: &mut Client) {
    client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let name = |n: u64| if n.is_multiple_of(2) { format!("m:{n}") } else { n.to_string() };
    for key in ["set", "set2"] {
        client.call_for_each(&["SADD", key], 600, |n, words| words.push(name(n)));
    }
    client.call_for_each(&["HSET", "hash"], 600, |n, words| words.extend([name(n), "1".to_owned()]));
    client.call_for_each(&["ZADD", "zset"], 600, |n, words| words.extend(["1".to_owned(), name(n)]));
    for key in ["set", "set2", "hash", "zset"] {
        client.call_for_each(&["FIELDEXPIRE", key, "1"], 300, |n, words| words.push(name(n)));
    }
    for key in ["all", "all2", "all3", "all4"] {
        client.call(&["SADD", key, "a", "7"]);
        client.call(&["FIELDEXPIRE", key, "1", "a", "7"]);
    }
    std::thread::sleep(Duration::from_millis(1010));
}

#[test]
fn a_dead_member_is_new_when_it_is_added_and_none_when_it_is_taken_out() {
    let server = Server::start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    with_dead_members(&mut client);
    // The set has more packs than one command goes through in search of what is dead.
    let mut add = vec!["SADD".to_owned(), "set".to_owned()];
    add.extend((0..300).map(|n| if n % 2 == 0 { format!("m:{n}") } else { n.to_string() }));
    let add: Vec<&str> = add.iter().map(String::as_str).collect();
    assert_eq!(int(&mut client, &add), 300);
    assert_eq!(client.call(&["FIELDTTL", "set", "m:200"]), Value::Int(-1));
    assert_eq!(int(&mut client, &["SCARD", "set"]), 600);
    with_dead_members(&mut client);
    let mut remove = add.clone();
    (remove[0], remove[1]) = ("SREM", "set2");
    remove.push("m:400");
    assert_eq!(int(&mut client, &remove), 1);
    with_dead_members(&mut client);
    assert_eq!(int(&mut client, &["SMOVE", "set", "set2", "m:200"]), 0);
    client.call(&["SADD", "one", "m:200", "201"]);
    for member in ["m:200", "201"] {
        assert_eq!(int(&mut client, &["SMOVE", "one", "set2", member]), 1);
        assert_eq!(int(&mut client, &["SISMEMBER", "set2", member]), 1);
        assert_eq!(client.call(&["FIELDTTL", "set2", member]), Value::Int(-1));
    }
    for command in
        [["HSET", "hash", "m:200", "2"], ["HSETNX", "hash", "m:202", "2"], ["ZADD", "zset", "2", "m:200"]]
    {
        assert_eq!(int(&mut client, &command), 1, "{command:?}");
        let member = command.iter().find(|word| word.starts_with("m:")).expect("a member");
        assert_eq!(client.call(&["FIELDTTL", command[1], member]), Value::Int(-1));
    }
    for command in [["HDEL", "hash", "m:210"], ["ZREM", "zset", "m:210"]] {
        assert_eq!(int(&mut client, &command), 0, "{command:?}");
    }
}

#[test]
fn a_key_whose_members_are_all_dead_is_not_there() {
    let server = Server::start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    with_dead_members(&mut client);
    assert_eq!(int(&mut client, &["EXISTS", "all", "all2"]), 0);
    assert_eq!(int(&mut client, &["DEL", "all3"]), 0);
    assert_eq!(client.call(&["DUMP", "all4"]), Value::Null);
    with_dead_members(&mut client);
    assert_eq!(client.call(&["TYPE", "all"]), Value::Status("none".to_owned()));
    assert_eq!(int(&mut client, &["COPY", "all2", "copy"]), 0);
    assert!(matches!(client.call(&["RENAME", "all3", "x"]), Value::Error(_)));
    client.call(&["SET", "text", "x"]);
    assert_eq!(int(&mut client, &["RENAMENX", "text", "all4"]), 1);
}

/// Waits up to some seconds for `command` to answer `wanted`.
fn becomes(client: &mut Client, command: &[&str], wanted: i64) {
    let began = Instant::now();
    loop {
        let answer = int(client, command);
        if answer == wanted {
            return;
        }
        assert!(began.elapsed() < crate::harness::PATIENCE, "{command:?} answers {answer}, not {wanted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn fields_and_members_go_though_nobody_asks_for_them() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..200 {
        let (hash, set) = (format!("hash:{n}"), format!("set:{n}"));
        client.call(&["HSET", &hash, "a", "1", "b", "2"]);
        client.call(&["HPEXPIRE", &hash, "150", "FIELDS", "2", "a", "b"]);
        client.call(&["SADDEX", &set, "1", "7", "text"]);
        let zset = format!("zset:{n}");
        client.call(&["ZADD", &zset, "1", "7", "2", "text"]);
        client.call(&["FIELDEXPIRE", &zset, "1", "7", "text"]);
    }
    client.call(&["SELECT", "3"]);
    let fields: Vec<String> = (0..5000).map(|n| format!("field:{n}")).collect();
    for chunk in fields.chunks(500) {
        let mut set = vec!["HSET", "large"];
        chunk.iter().for_each(|field| set.extend([field.as_str(), "value"]));
        client.call(&set);
        let count = chunk.len().to_string();
        let mut expire = vec!["HPEXPIRE", "large", "300", "FIELDS", &count];
        expire.extend(chunk.iter().map(String::as_str));
        client.call(&expire);
    }
    client.call(&["HSET", "large", "stays", "1"]);
    becomes(&mut client, &["HLEN", "large"], 1);
    client.call(&["DEL", "large"]);
    client.call(&["SELECT", "0"]);
    becomes(&mut client, &["DBSIZE"], 0);
}

#[test]
fn a_member_that_moves_is_always_in_one_of_two_sets() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..50 {
        client.call(&["SADD", "left", &n.to_string(), &format!("text{n}")]);
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (from, to) in [("left", "right"), ("right", "left")] {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let mut client = server.client();
                let mut n = 0;
                while !is_over.load(Ordering::Relaxed) {
                    n = (n + 1) % 50;
                    client.call(&["SMOVE", from, to, &n.to_string()]);
                    client.call(&["SMOVE", from, to, &format!("text{n}")]);
                }
            });
        }
        for _ in 0..500 {
            assert_eq!(int(&mut client, &["SUNIONSTORE", "both", "left", "right"]), 100);
            assert_eq!(int(&mut client, &["SINTERCARD", "2", "left", "right"]), 0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let sizes = int(&mut client, &["SCARD", "left"]) + int(&mut client, &["SCARD", "right"]);
    assert_eq!(sizes, 100);
}

#[test]
fn a_popped_member_is_popped_once() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..400 {
        let members: Vec<String> = (0..10).map(|m| format!("{}{}", ["", "m"][m % 2], n * 10 + m)).collect();
        let mut command = vec!["SADD", "pool"];
        command.extend(members.iter().map(String::as_str));
        client.call(&command);
    }
    let popped: Vec<String> = std::thread::scope(|scope| {
        let pop = || {
            let (mut client, mut popped) = (server.client(), Vec::new());
            while let Value::Text(member) = client.call(&["SPOP", "pool"]) {
                popped.push(member);
            }
            popped
        };
        let jobs: Vec<_> = (0..4).map(|_| scope.spawn(pop)).collect();
        jobs.into_iter().flat_map(|job| job.join().expect("no panic")).collect()
    });
    let mut once = popped.clone();
    once.sort();
    once.dedup();
    assert_eq!((popped.len(), once.len()), (4000, 4000));
    assert_eq!(int(&mut client, &["EXISTS", "pool"]), 0);
}

/// An array of texts and so many nulls.
fn values(texts: &[&str], nulls: usize) -> Value {
    let Value::Array(mut items) = Value::array(texts) else { unreachable!("an array") };
    items.extend((0..nulls).map(|_| Value::Null));
    Value::Array(items)
}

#[test]
fn hashes_with_the_same_fields_are_made_from_values() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let error = |text: &str| Value::Error(format!("ERR {text}"));
    assert_eq!(client.call(&["HIMPORT", "SET", "h", "f", "1"]), error("no such fieldset"));
    assert_eq!(client.call(&["HIMPORT", "PREPARE", "f", "a", "b", "a"]), error("duplicate field name"));
    assert_eq!(client.call(&["HIMPORT", "PREPARE", "f", "a", "b"]), Value::ok());
    client.call(&["HSET", "h", "old", "x"]);
    assert_eq!(client.call(&["HIMPORT", "SET", "h", "f", "1", "two"]), Value::ok());
    assert_eq!(client.call(&["HMGET", "h", "a", "b", "old"]), values(&["1", "two"], 1));
    let wrong = error("value count does not match the fields of the fieldset");
    assert_eq!(client.call(&["HIMPORT", "SET", "h", "f", "1"]), wrong);
    client.call(&["SET", "text", "x"]);
    let answer = format!("{:?}", client.call(&["HIMPORT", "SET", "text", "f", "1", "2"]));
    assert!(answer.contains("WRONGTYPE"), "{answer}");
    client.call(&["MULTI"]);
    client.call(&["HIMPORT", "SET", "h2", "f", "3", "4"]);
    client.call(&["HIMPORT", "PREPARE", "f", "c"]);
    client.call(&["HIMPORT", "SET", "h3", "f", "5"]);
    client.call(&["EXEC"]);
    assert_eq!(client.call(&["HMGET", "h2", "a", "b"]), Value::array(&["3", "4"]));
    assert_eq!(client.call(&["HMGET", "h3", "c", "a"]), values(&["5"], 1));
    assert_eq!(server.client().call(&["HIMPORT", "SET", "h", "f", "1"]), error("no such fieldset"));
    client.call(&["HIMPORT", "PREPARE", "g", "c"]);
    assert_eq!(client.call(&["HIMPORT", "DISCARD", "f"]), Value::Int(1));
    assert_eq!(client.call(&["HIMPORT", "DISCARDALL"]), Value::Int(1));
    client.call(&["HIMPORT", "PREPARE", "g", "c"]);
    client.call(&["RESET"]);
    assert_eq!(client.call(&["HIMPORT", "SET", "h", "g", "1"]), error("no such fieldset"));
}

//! Keys of a real server, over all its shards and from several connections at once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Client, Server, Value, wait_until};

fn int(client: &mut Client, command: &[&str]) -> i64 {
    match client.call(command) {
        Value::Int(n) => n,
        other => panic!("{command:?}: {other:?}"),
    }
}

fn texts(value: Value) -> Vec<String> {
    let Value::Array(items) = value else { panic!("no array: {value:?}") };
    items
        .into_iter()
        .map(|item| match item {
            Value::Text(text) => text,
            other => panic!("no text: {other:?}"),
        })
        .collect()
}

/// Runs `work` on connections of their own until `main` is done.
fn beside(server: &Server, work: &[&(dyn Fn(&mut Client) + Sync)], main: impl FnOnce(&mut Client)) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for job in work {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut client = server.client();
                while !is_over.load(Ordering::Relaxed) {
                    job(&mut client);
                }
            });
        }
        main(&mut server.client());
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_scan_finds_what_stays_while_other_keys_come_and_go() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..2000 {
        client.call(&["SET", &format!("stay:{n}"), "v"]);
    }
    let churn = |client: &mut Client| {
        let names: Vec<String> = (0..3000).map(|n| format!("go:{n}")).collect();
        names.iter().for_each(|name| drop(client.call(&["SET", name, "v"])));
        names.iter().for_each(|name| drop(client.call(&["DEL", name])));
    };
    beside(&server, &[&churn], |client| {
        for count in ["10", "100", "1000"] {
            let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
            loop {
                let Value::Array(mut reply) = client.call(&["SCAN", &cursor, "COUNT", count]) else {
                    panic!("SCAN answers an array");
                };
                found.extend(texts(reply.pop().expect("keys")));
                let Some(Value::Text(next)) = reply.pop() else { panic!("SCAN answers a cursor") };
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
            let stayed: Vec<&String> = found.iter().filter(|name| name.starts_with("stay:")).collect();
            assert_eq!(stayed.len(), 2000, "each once, COUNT {count}");
            assert_eq!(stayed.into_iter().collect::<BTreeSet<_>>().len(), 2000);
        }
    });
}

#[test]
fn commands_over_several_shards_happen_at_one_point_in_time() {
    let server = Server::start(&[]);
    server.client().call(&["MSET", "a", "0", "b", "0", "c", "0", "d", "0", "here", "1"]);
    let write = |client: &mut Client| {
        for n in 0..200 {
            let n = n.to_string();
            client.call(&["MSET", "a", &n, "b", &n, "c", &n, "d", &n]);
        }
    };
    let rename = |client: &mut Client| {
        assert_eq!(client.call(&["RENAME", "here", "there"]), Value::ok());
        assert_eq!(client.call(&["RENAME", "there", "here"]), Value::ok());
    };
    beside(&server, &[&write, &rename], |client| {
        for _ in 0..2000 {
            let values = texts(client.call(&["MGET", "a", "b", "c", "d"]));
            assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
            assert_eq!(int(client, &["EXISTS", "here", "there"]), 1);
            assert_eq!(int(client, &["DBSIZE"]), 5);
        }
    });
}

/// Whether a transaction that watched `key` still runs after `between`.
fn survives(server: &Server, key: &str, between: &[&[&str]]) -> bool {
    let (mut client, mut other) = (server.client(), server.client());
    client.call(&["WATCH", key]);
    for command in between {
        other.call(command);
    }
    client.call(&["MULTI"]);
    client.call(&["PING"]);
    client.call(&["EXEC"]) != Value::Null
}

#[test]
fn watches_notice_what_whole_databases_go_through() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    assert!(survives(&server, "k", &[&["GET", "k"], &["TTL", "k"], &["SCAN", "0"]]));
    assert!(survives(&server, "none", &[&["GET", "none"], &["DEL", "none"]]));
    assert!(survives(&server, "none", &[&["FLUSHALL"]]));
    client.call(&["SET", "k", "v"]);
    assert!(!survives(&server, "k", &[&["FLUSHDB"]]));
    client.call(&["SET", "k", "v"]);
    assert!(survives(&server, "k", &[&["SELECT", "3"], &["FLUSHDB"]]));
    assert!(!survives(&server, "k", &[&["SWAPDB", "0", "5"]]), "it was here");
    assert!(!survives(&server, "k", &[&["SWAPDB", "0", "5"]]), "it came here");
    assert!(survives(&server, "none", &[&["SWAPDB", "0", "5"]]));
    client.call(&["SET", "k", "v"]);
    assert!(!survives(&server, "new", &[&["RENAME", "k", "new"]]));
    assert!(!survives(&server, "new", &[&["RENAME", "new", "k"]]));
    assert!(!survives(&server, "new", &[&["COPY", "k", "new"]]));
    assert!(!survives(&server, "k", &[&["MOVE", "k", "7"]]));
}

#[test]
fn who_waits_for_a_list_gets_what_moves_there() {
    let server = Server::start(&[]);
    let mut other = server.client();
    let ways: &[&[&[&str]]] = &[
        &[&["RPUSH", "from", "x"], &["RENAME", "from", "list"]],
        &[&["RPUSH", "from", "x"], &["COPY", "from", "list"]],
        &[&["SELECT", "1"], &["RPUSH", "list", "x"], &["MOVE", "list", "0"]],
        &[&["SELECT", "1"], &["RPUSH", "list", "x"], &["SWAPDB", "0", "1"]],
        &[&["RPUSH", "from", "x"], &["SORT", "from", "ALPHA", "STORE", "list"]],
    ];
    for way in ways {
        other.call(&["FLUSHALL"]);
        other.call(&["SELECT", "0"]);
        let mut waiting = server.client();
        waiting.send_all(&[&["BLPOP", "list", "0"]]);
        wait_until("it waits", || waits(&mut other));
        way.iter().for_each(|command| drop(other.call(command)));
        assert_eq!(waiting.read(), Value::array(&["list", "x"]), "{way:?}");
    }
}

fn waits(client: &mut Client) -> bool {
    matches!(client.call(&["CLIENT", "LIST"]), Value::Text(list) if list.contains("flags=b"))
}

#[test]
fn a_deadline_past_ends_the_key_everywhere() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["SET", "k", "v", "PX", "30"]);
    let began = std::time::Instant::now();
    while int(&mut client, &["DBSIZE"]) == 1 {
        assert!(began.elapsed() < crate::harness::PATIENCE, "nobody asked for it, and it still went");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    client.call(&["SET", "k", "v"]);
    assert_eq!(int(&mut client, &["EXPIREAT", "k", "1"]), 1);
    assert_eq!(int(&mut client, &["TTL", "k"]), -2);
    client.call(&["SET", "k", "v", "PXAT", "1"]);
    assert_eq!(client.call(&["RANDOMKEY"]), Value::Null);
    assert_eq!(client.call(&["KEYS", "*"]), Value::Array(Vec::new()));
}

#[test]
fn several_strings_at_once_are_alike_in_a_transaction_and_outside() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut plain, mut within) = (server.client(), server.client());
    within.call(&["SELECT", "1"]);
    let mut both = |words: &[&str]| {
        let answer = plain.call(words);
        within.call(&["MULTI"]);
        within.call(words);
        let Value::Array(mut answers) = within.call(&["EXEC"]) else { panic!("EXEC has replies") };
        assert_eq!(Some(&answer), answers.pop().as_ref(), "{words:?}");
        answer
    };
    // Missing, dead, of another type, plain, packed, long, with a deadline, in a record of another size.
    let values: Vec<String> =
        (0..40usize).map(|n| "vw7".repeat([0, 1, 5, 20, 22, 70, 300, 9000][n % 8])).collect();
    let names: Vec<String> =
        (0..40usize).map(|n| format!("{}{n}", "k".repeat([1, 9, 15, 40][n % 4]))).collect();
    let mut random = 7usize;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
    for round in 0..300 {
        let len = [1, 2, 3, 10, 20, 130, 300][next(7)];
        let pick: Vec<&str> = (0..len).map(|_| names[next(40)].as_str()).collect();
        let pairs = pick.iter().flat_map(|name| [*name, values[next(40)].as_str()]).collect::<Vec<_>>();
        both(&[&["MSET"][..], &pairs].concat());
        if len > 1 {
            both(&[&["MSET"][..], &pairs[1..]].concat());
        }
        both(&["DEL", pick[0]]);
        both(&["RPUSH", pick[0], "x"]);
        // Nobody looks at it before it is dead.
        both(&["SET", "dies", "x", "PX", "1"]);
        both(&["SET", &names[next(40)], "lives", "EX", "1000"]);
        both(&["APPEND", &names[round % 40], "more"]);
        let pick: Vec<&str> = (0..len).map(|_| names[next(40)].as_str()).collect();
        std::thread::sleep(std::time::Duration::from_millis(10));
        both(&[&["MGET", "dies", pick[0], "dies"][..], &pick].concat());
        both(&["DEL", pick[0]]);
    }
    plain.call(&["FLUSHALL"]);
    plain.call(&["MSET", "a", "1", "b", "2", "c", "3"]);
    let before = ["keyspace_hits", "keyspace_misses"].map(|field| plain.info::<u64>("stats", field));
    plain.call(&["MGET", "a", "b", "none", "a", "neither"]);
    let after = ["keyspace_hits", "keyspace_misses"].map(|field| plain.info::<u64>("stats", field));
    assert_eq!([after[0] - before[0], after[1] - before[1]], [3, 2]);
    assert!(!survives(&server, "b", &[&["MSET", "x", "1", "b", "2"]]), "a watch hears of MSET");
    assert!(survives(&server, "b", &[&["MSET", "x", "1", "y", "2"], &["MGET", "b", "x"]]));
}

/// Waits until so many clients wait for keys.
fn wait_for_blocked(client: &mut Client, wanted: u64) {
    wait_until(&format!("{wanted} clients wait"), || {
        client.info::<u64>("CLIENTS", "blocked_clients") == wanted
    });
}

#[test]
fn what_several_waiters_cause_is_told_in_the_order_it_happens() {
    let server = Server::start(&["--notify-keyspace-events", "El", "--proactor_threads=2"]);
    let (mut listener, mut writer) = (server.client(), server.client());
    let (mut first, mut second) = (server.client(), server.client());
    listener.call(&["PSUBSCRIBE", "__keyevent*"]);
    // Some destinations lie in the shard of the list, others do not.
    for to in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        first.send_all(&[&["BRPOP", "list", "0"]]);
        wait_for_blocked(&mut writer, 1);
        second.send_all(&[&["BLMOVE", "list", to, "LEFT", "RIGHT", "0"]]);
        wait_for_blocked(&mut writer, 2);
        writer.call(&["RPUSH", "list", "1", "2", "3"]);
        for (event, key) in [("rpush", "list"), ("rpop", "list"), ("rpush", to), ("lpop", "list")] {
            let channel = format!("__keyevent@0__:{event}");
            assert_eq!(listener.read(), Value::array(&["pmessage", "__keyevent*", &channel, key]));
        }
        assert_eq!(first.read(), Value::array(&["list", "3"]));
        assert_eq!(second.read(), Value::Text("1".to_owned()));
        assert_eq!(writer.call(&["LPOP", "list"]), Value::Text("2".to_owned()));
        let left = Value::array(&["pmessage", "__keyevent*", "__keyevent@0__:lpop", "list"]);
        assert_eq!(listener.read(), left);
    }
}

#[test]
fn a_wait_whose_time_is_up_is_answered_a_null_array() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut client, mut other) = (server.client(), server.client());
    let waits: [&[&str]; 6] = [
        &["BLPOP", "none", "0.01"],
        &["BLMOVE", "none", "d", "LEFT", "RIGHT", "0.01"],
        &["BRPOPLPUSH", "none", "d", "0.01"],
        &["BLMPOP", "0.01", "1", "none", "LEFT"],
        &["BZPOPMIN", "none", "0.01"],
        &["BZMPOP", "0.01", "1", "none", "MIN"],
    ];
    for wait in waits {
        client.send_all(&[wait]);
        assert_eq!(client.read_line(), "*-1", "{wait:?}");
        client.call(&["MULTI"]);
        client.call(wait);
        client.send_all(&[&["EXEC"]]);
        assert_eq!(client.read_line(), "*1");
        let moves = wait[0] == "BLMOVE" || wait[0] == "BRPOPLPUSH";
        assert_eq!(client.read_line(), if moves { "$-1" } else { "*-1" }, "{wait:?}");
    }
    let Value::Int(id) = client.call(&["CLIENT", "ID"]) else { panic!("no id") };
    client.send_all(&[&["BLMOVE", "none", "d", "LEFT", "RIGHT", "0"]]);
    wait_until("it waits", || other.call(&["CLIENT", "UNBLOCK", &id.to_string()]) == Value::Int(1));
    assert_eq!(client.read_line(), "*-1");
}

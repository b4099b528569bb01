//! Slots that move as a whole (CLUSTER MIGRATESLOTS, CLUSTER MIGRATION): nothing is lost, made twice or seen too early, whatever
//! happens on the way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as JsonValue, json};

use crate::cluster_moves::{StopOnDrop, write_and_check};
use crate::harness::browser::{Browser, CONSOLE};
use crate::harness::{Client, Value, wait_until};
use crate::stored::{ClusterClient, StoredNodes, is_following, text};

pub fn run(client: &mut Client, line: &str) -> Value {
    client.call(&line.split(' ').collect::<Vec<_>>())
}

/// A migration as a node shows it.
pub type MigrationFields = HashMap<String, String>;

/// The migrations that a node shows by `line`, the latest first.
pub fn shown_by(client: &mut Client, line: &str) -> Vec<MigrationFields> {
    let Value::Array(all) = run(client, line) else { panic!("{line} is refused") };
    let fields = |one: Value| {
        let Value::Array(fields) = one else { panic!("no fields") };
        let words: Vec<String> = fields
            .into_iter()
            .map(|field| if let Value::Int(n) = field { n.to_string() } else { text(field) })
            .collect();
        words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    };
    all.into_iter().map(fields).collect()
}

pub fn shown(client: &mut Client) -> Vec<MigrationFields> {
    shown_by(client, "CLUSTER GETSLOTMIGRATIONS")
}

/// Begins a migration; while what an earlier one has left is removed, or the store is away, it is asked for again.
pub fn begin(nodes: &StoredNodes, from: usize, to: usize, slots: &str) {
    let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slots} NODE {}", nodes.id(to));
    let (mut said, mut was_away) = (Value::Null, false);
    wait_until("the migration is planned", || {
        said = run(&mut nodes.client(from), &line);
        let is_away =
            matches!(&said, Value::Error(line) if line.starts_with("CLUSTERDOWN the cluster's store"));
        was_away |= is_away;
        !is_away && !matches!(&said, Value::Error(line) if line.contains("are being removed"))
    });
    // A store that answered late may have had it planned by the first question.
    assert!(said == Value::ok() || was_away, "{line}: {said:?}");
}

/// Waits for the end of the latest migration of a node; returns its state and its message.
pub fn end(nodes: &StoredNodes, at: usize) -> (String, String) {
    let mut latest = MigrationFields::new();
    wait_until("the migration ends", || {
        latest = shown(&mut nodes.client(at)).remove(0);
        ["success", "failed", "cancelled"].contains(&latest["state"].as_str())
    });
    (latest["state"].clone(), latest["message"].clone())
}

pub fn succeed(nodes: &StoredNodes, from: usize, to: usize, slots: &str) {
    begin(nodes, from, to, slots);
    assert_eq!(end(nodes, from), ("success".to_owned(), String::new()));
}

pub fn keys(nodes: &StoredNodes, at: usize) -> i64 {
    let Value::Int(keys) = run(&mut nodes.client(at), "DBSIZE") else { panic!("no number") };
    keys
}

/// Keys of a slot, hidden ones too.
pub fn keys_in(nodes: &StoredNodes, at: usize, slot: u16) -> i64 {
    let Value::Int(keys) = run(&mut nodes.client(at), &format!("CLUSTER COUNTKEYSINSLOT {slot}")) else {
        panic!("no number")
    };
    keys
}

/// Slot 5061, that of `{bar}`, with keys enough for several batches in a slow migration. It is node 0's.
pub const BAR: u16 = 5061;
pub const BARS: usize = 3000;

pub fn fill_bar(nodes: &StoredNodes) {
    fill(nodes, "{bar}");
}

/// Fills the slot of `tag`, which is node 0's, with as many keys.
fn fill(nodes: &StoredNodes, tag: &str) {
    let mut client = nodes.client(0);
    for n in 0..BARS / 100 {
        let mut words = vec!["MSET".to_owned()];
        (0..100).for_each(|m| words.extend([format!("{tag}{}", n * 100 + m), "v".repeat(100)]));
        assert_eq!(client.call(&words.iter().map(String::as_str).collect::<Vec<_>>()), Value::ok());
    }
}

/// Makes the migrations of a node slow, or as fast as they can be.
pub fn throttle(nodes: &StoredNodes, at: usize, us: u32) {
    let line = format!("CONFIG SET slot_migration_throttle_us {us}");
    assert_eq!(run(&mut nodes.client(at), &line), Value::ok());
}

/// Begins a slow migration of slot 5061 from node 0 to node 1, and waits until some of its keys are there.
pub fn begin_slowly(nodes: &StoredNodes) {
    throttle(nodes, 0, 1_000_000);
    begin(nodes, 0, 1, "5061 5061");
    wait_until("keys arrive", || keys_in(nodes, 1, BAR) > 0);
}

#[test]
fn slots_move_as_a_whole() {
    let Some(nodes) = StoredNodes::create("whole", 3) else { return };
    let mut client = ClusterClient::new(nodes.servers[0].port());
    let makers: [fn(&str) -> Vec<&str>; 6] = [
        |key| vec!["SET", key, "v"],
        |key| vec!["SET", key, "w", "EX", "100000"],
        |key| vec!["HSET", key, "f", "1", "g", "2"],
        |key| vec!["RPUSH", key, "a", "b", "c"],
        |key| vec!["ZADD", key, "1", "a", "2", "b"],
        |key| vec!["XADD", key, "1-1", "f", "v"],
    ];
    let names: Vec<String> = (0..1200).map(|n| format!("key:{n}")).collect();
    let mut digests = Vec::new();
    for (n, key) in names.iter().enumerate() {
        let said = client.call(key, &makers[n % makers.len()](key));
        assert!(!matches!(said, Value::Error(_)), "{said:?}");
        digests.push(client.call(key, &["DUMP", key]));
    }
    let total = |nodes: &StoredNodes| (0..3).map(|at| keys(nodes, at)).sum::<i64>();
    assert_eq!(total(&nodes), 1200);
    let id = nodes.id(1);
    let mut source = nodes.client(0);
    for (line, said) in [
        ("CLUSTER MIGRATESLOTS SLOTSRANGE 5 6 7 NODE x", "ERR syntax error".to_owned()),
        ("CLUSTER MIGRATESLOTS SLOTSRANGE 5 6 NODE x", "ERR Unknown node x".to_owned()),
        ("CLUSTER MIGRATESLOTS SLOTSRANGE 5 16384 NODE x", "ERR Invalid or out of range slot".to_owned()),
        (
            "CLUSTER MIGRATESLOTS SLOTSRANGE 6 5 NODE x",
            "ERR start slot number 6 is greater than end slot number 5".to_owned(),
        ),
        ("CLUSTER CANCELSLOTMIGRATIONS", "ERR No migrations ongoing".to_owned()),
        ("CLUSTER MIGRATION IMPORT 5 6", "ERR this node is already the owner of the slot range".to_owned()),
        ("DARTER IMPORT 12 1", "TRYAGAIN the migration is not known here".to_owned()),
        ("DARTER COMMIT 12 0", "ERR the connection has brought no slots".to_owned()),
    ] {
        assert_eq!(text(run(&mut source, line)), said, "{line}");
    }
    let foreign = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5000 6000 NODE {id}");
    assert_eq!(text(run(&mut source, &foreign)), "ERR slots 5000-6000 are not all of one node");
    assert_eq!(run(&mut source, "CLUSTER MIGRATION CANCEL ALL"), Value::Int(0));

    succeed(&nodes, 0, 1, "0 2000 3000 3100");
    nodes.settle();
    assert_eq!(total(&nodes), 1200, "each key is seen once");
    let mut fresh = ClusterClient::new(nodes.servers[2].port());
    for (key, digest) in names.iter().zip(&digests) {
        assert_eq!(fresh.call(key, &["DUMP", key]), *digest, "{key}");
    }
    let ttl = fresh.call("key:1", &["TTL", "key:1"]);
    assert!(matches!(ttl, Value::Int(99_000..=100_000)), "{ttl:?}");
    let one = shown(&mut source).remove(0);
    let place = |name: &str| one[name].clone();
    assert_eq!(
        (place("operation"), place("slot_ranges")),
        ("EXPORT".to_owned(), "0-2000 3000-3100".to_owned())
    );
    assert_eq!((place("source_node"), place("target_node")), (nodes.id(0), id));
    let status = format!("CLUSTER MIGRATION STATUS ID {}", place("name"));
    let other = shown_by(&mut nodes.client(1), &status).remove(0);
    assert_eq!((other["operation"].as_str(), other["state"].as_str()), ("import", "completed"));
    assert_eq!(other["slots"], "0-2000,3000-3100");
    assert!(shown_by(&mut nodes.client(2), "CLUSTER MIGRATION STATUS ALL").is_empty());
    wait_until("it is counted", || source.info::<u64>("cluster", "cluster_migrations_done") == 1);

    // The other way round, as Redis says it. Questions without a pause held up all else that the store is asked for.
    let mut last = String::new();
    wait_until("the source has removed its keys", || {
        let said = match keys_in(&nodes, 0, 0) {
            0 => run(&mut source, "CLUSTER MIGRATION IMPORT 0 2000 3000 3100"),
            keys => Value::Int(keys),
        };
        let shown = format!("{said:?}");
        if shown != last {
            println!("keys in slot 0, or the answer: {shown}");
            last = shown;
        }
        matches!(said, Value::Text(id) if id.len() == 40)
    });
    assert_eq!(end(&nodes, 0), ("success".to_owned(), String::new()));
    nodes.settle();
    assert_eq!(total(&nodes), 1200);
    for (key, digest) in names.iter().zip(&digests) {
        assert_eq!(fresh.call(key, &["DUMP", key]), *digest, "{key}");
    }
}

#[test]
fn keys_that_arrive_are_hidden_and_a_cancelled_migration_leaves_none() {
    let Some(mut nodes) = StoredNodes::create("hidden", 3) else { return };
    nodes.add();
    let master = nodes.id(1);
    let own = [nodes.address(3), nodes.address(0)];
    nodes.tool(&["add-node", &own[0], &own[1], "--cluster-slave", "--cluster-master-id", &master]);
    let mut replica = nodes.client(3);
    wait_until("the replica follows", || is_following(&mut replica));
    fill_bar(&nodes);
    // foo is the target's own: slot 12182 is node 2's, slot 7000 is node 1's.
    let mut target = nodes.client(1);
    let own = (0..)
        .map(|n| format!("own{n}"))
        .find(|key| (5461..10_923).contains(&darter_base::crc::key_slot(key.as_bytes())));
    let own = own.expect("a key of node 1");
    assert_eq!(target.call(&["SET", &own, "1"]), Value::ok());
    let mut listener = nodes.client(1);
    assert_eq!(run(&mut target, "CONFIG SET notify-keyspace-events KEA"), Value::ok());
    run(&mut listener, "PSUBSCRIBE __key*__:*");
    begin_slowly(&nodes);
    wait_until("keys arrive at the replica", || keys_in(&nodes, 3, BAR) > 0);
    for client in [&mut target, &mut replica] {
        assert_eq!(run(client, "DBSIZE"), Value::Int(1));
        assert_eq!(run(client, "KEYS *"), Value::array(&[&own]));
        assert_eq!(run(client, "RANDOMKEY"), Value::Text(own.clone()));
        let mut cursor = "0".to_owned();
        let mut seen = Vec::new();
        loop {
            let Value::Array(answer) = run(client, &format!("SCAN {cursor} COUNT 1000")) else { panic!() };
            let Value::Array(found) = &answer[1] else { panic!() };
            seen.extend(found.clone());
            cursor = text(answer[0].clone());
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen, [Value::Text(own.clone())]);
        let moved = format!("MOVED {BAR} {}", nodes.address(0));
        for line in ["GET {bar}1", "SET {bar}1 x", "ASKING"] {
            let said = run(client, line);
            assert!(said == Value::ok() || text(said.clone()) == moved, "{line}: {said:?}");
        }
        assert_eq!(text(run(client, "GET {bar}1")), moved);
    }
    let refused = text(run(&mut target, "FLUSHALL"));
    assert!(refused.starts_with("TRYAGAIN Slots are arriving"), "{refused}");
    assert_eq!(
        text(run(&mut nodes.client(0), "CLUSTER SETSLOT 5061 STABLE")).split(" by ").next(),
        Some("ERR slots are moving")
    );
    let mut source = nodes.client(0);
    assert_eq!(shown(&mut source)[0]["state"], "snapshotting");
    assert_eq!(shown(&mut target)[0]["operation"], "IMPORT");
    assert_eq!(run(&mut source, "CLUSTER CANCELSLOTMIGRATIONS"), Value::ok());
    assert_eq!(end(&nodes, 1).0, "cancelled");
    for at in [1, 3] {
        wait_until("what has arrived is removed", || keys_in(&nodes, at, BAR) == 0);
        assert_eq!(keys(&nodes, at), 1);
    }
    assert_eq!(keys(&nodes, 0), BARS as i64);
    // Nobody has heard of a key that came or went: the next event is this one's.
    assert_eq!(target.call(&["SET", &own, "2"]), Value::ok());
    let Value::Array(event) = listener.read() else { panic!() };
    assert_eq!(event[2], Value::Text(format!("__keyspace@0__:{own}")));
    throttle(&nodes, 0, 0);
    succeed(&nodes, 0, 1, "5061 5061");
    assert_eq!(keys(&nodes, 1), BARS as i64 + 1);
    wait_until("the replica shows them", || keys(&nodes, 3) == BARS as i64 + 1);
    assert_eq!(keys(&nodes, 0), 0);
}

#[test]
fn a_migration_that_cannot_go_on_changes_nothing() {
    let Some(nodes) = StoredNodes::create("fails", 3) else { return };
    fill_bar(&nodes);
    let (mut source, mut target) = (nodes.client(0), nodes.client(1));
    assert_eq!(run(&mut target, "CONFIG SET maxmemory 8mb"), Value::ok());
    let big = "x".repeat(1 << 20);
    for n in 0..20 {
        assert_eq!(source.call(&["SET", &format!("{{bar}}big{n}"), &format!("{n}{big}")]), Value::ok());
    }
    begin(&nodes, 0, 1, "5061 5061");
    let (state, why) = end(&nodes, 0);
    assert_eq!(state, "failed");
    assert!(why.starts_with("the target refuses: OOM"), "{why}");
    wait_until("the target is empty", || keys_in(&nodes, 1, BAR) == 0);
    assert_eq!(keys(&nodes, 0), BARS as i64 + 20);
    assert_eq!(run(&mut target, "CONFIG SET maxmemory 0"), Value::ok());

    wait_until("the target may try again", || shown(&mut target)[0]["state"] == "failed");
    begin_slowly(&nodes);
    assert_eq!(run(&mut source, "FLUSHALL"), Value::ok());
    assert_eq!(end(&nodes, 0), ("failed".to_owned(), "the source was flushed".to_owned()));
    wait_until("the target is empty", || keys_in(&nodes, 1, BAR) == 0);
    assert_eq!(keys(&nodes, 0), 0);
    throttle(&nodes, 0, 0);
    assert_eq!(run(&mut source, "SET {bar}1 here"), Value::ok());
    succeed(&nodes, 0, 1, "5061 5061");
    assert_eq!(run(&mut target, "GET {bar}1"), Value::Text("here".to_owned()));
    assert_eq!(source.info::<u64>("cluster", "cluster_migrations_failed"), 2);
}

#[test]
fn a_slow_migration_rests_for_what_it_sends_alone() {
    let Some(nodes) = StoredNodes::create("rests", 3) else { return };
    throttle(&nodes, 0, 2_000_000);
    let began = Instant::now();
    // Two keys in one of 16 databases: one rest or two, as they lie in the index. With one for each database it took 32 s.
    assert_eq!(run(&mut nodes.client(0), "MSET {bar}a 1 {bar}b 2"), Value::ok());
    succeed(&nodes, 0, 1, "5061 5061");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_source_sends_to_several_targets_at_once() {
    let Some(nodes) = StoredNodes::create("several", 3) else { return };
    let tag = (0..).map(|n| format!("{{t{n}}}")).find(|tag| darter_base::crc::key_slot(tag.as_bytes()) < 100);
    let tag = tag.expect("a tag");
    let slot = darter_base::crc::key_slot(tag.as_bytes());
    fill_bar(&nodes);
    fill(&nodes, &tag);
    let mut source = nodes.client(0);
    let slots = format!("{slot} {slot}");
    begin_slowly(&nodes);
    // The first is at it for two minutes, unless it is let go.
    throttle(&nodes, 0, 5_000_000);
    begin(&nodes, 0, 2, &slots);
    wait_until("keys arrive at the other", || keys_in(&nodes, 2, slot) > 0);
    let states = |source: &mut Client| -> Vec<String> {
        shown(source).into_iter().map(|one| one["state"].clone()).collect()
    };
    assert_eq!(states(&mut source), ["snapshotting", "snapshotting"]);
    console_shows(&nodes, slot);
    // What changes meanwhile goes to the target of its slot.
    for tag in ["{bar}", &tag] {
        assert_eq!(run(&mut source, &format!("SET {tag}0 changed")), Value::ok());
        assert_eq!(run(&mut source, &format!("DEL {tag}1 {tag}2")), Value::Int(2));
        assert_eq!(run(&mut source, &format!("SET {tag}new new")), Value::ok());
    }
    // One of them is given up: the other goes on.
    let other = shown(&mut source).remove(0);
    assert_eq!(run(&mut source, &format!("CLUSTER MIGRATION CANCEL ID {}", other["name"])), Value::Int(1));
    assert_eq!(run(&mut source, "SET {bar}0 later"), Value::ok());
    throttle(&nodes, 0, 0);
    wait_until("the first ends", || states(&mut source)[1] == "success");
    assert_eq!(run(&mut nodes.client(1), "MGET {bar}0 {bar}new"), Value::array(&["later", "new"]));
    assert_eq!(keys(&nodes, 1), BARS as i64 - 1);
    wait_until("what has arrived at the other is removed", || keys_in(&nodes, 2, slot) == 0);
    succeed(&nodes, 0, 2, &slots);
    let mut target = nodes.client(2);
    assert_eq!(run(&mut target, &format!("MGET {tag}0 {tag}new")), Value::array(&["changed", "new"]));
    assert_eq!(keys(&nodes, 2), BARS as i64 - 1);
}

/// The console's statistics at the source of two migrations, the second of which is of `slot` alone, and at a target.
fn console_shows(nodes: &StoredNodes, slot: u16) {
    let stats = |at: usize| -> JsonValue {
        let answer = Browser::to(nodes.servers[at].port()).get("/api/stats", CONSOLE);
        let stats: JsonValue = serde_json::from_str(&answer.body).expect("JSON");
        stats["cluster"].clone()
    };
    let cluster = stats(0);
    assert_eq!(cluster["store"]["is_reached"], true);
    let groups = cluster["groups"].as_array().expect("groups");
    let own = groups.iter().find(|one| one["is_own"] == true).expect("its group");
    assert_eq!((groups.len(), &own["slots"]), (3, &json!([[0, 5460]])));
    assert_eq!(own["master"], nodes.address(0));
    let second = &cluster["migrations"][0];
    assert_eq!(second["slots"], json!([[slot, slot]]));
    assert_eq!((&second["source"], &second["target"]), (&json!(nodes.address(0)), &json!(nodes.address(2))));
    assert_eq!(
        (second["state"].as_str(), second["total_keys"].as_u64()),
        (Some("copying"), Some(BARS as u64))
    );
    let number = |name: &str| second[name].as_u64().expect("a number");
    let keys = number("copied_keys");
    assert!(keys > 0 && keys < BARS as u64 && number("sent_bytes") > keys * 100, "{second}");
    assert_eq!(stats(1)["migrations"][0]["state"], "arriving");
}

#[test]
fn who_waits_or_listens_is_sent_to_the_new_owner() {
    let Some(nodes) = StoredNodes::create("waits", 3) else { return };
    let moved = format!("MOVED {BAR} {}", nodes.address(1));
    let mut blocked = nodes.client(0);
    assert!(blocked.try_send(&["BLPOP", "{bar}list", "0"]));
    let mut subscriber = nodes.client(0);
    run(&mut subscriber, "SSUBSCRIBE {bar}channel");
    let mut watcher = nodes.client(0);
    assert_eq!(run(&mut watcher, "SET {bar}watched 1"), Value::ok());
    assert_eq!(run(&mut watcher, "WATCH {bar}watched"), Value::ok());
    assert_eq!(run(&mut watcher, "MULTI"), Value::ok());
    assert_eq!(run(&mut watcher, "SET {bar}watched 2"), Value::Status("QUEUED".to_owned()));
    let mut caching = nodes.client(0);
    run(&mut caching, "HELLO 3");
    assert_eq!(run(&mut caching, "CLIENT TRACKING ON"), Value::ok());
    assert_eq!(run(&mut caching, "GET {bar}watched"), Value::Text("1".to_owned()));
    wait_until("it waits", || nodes.client(0).info::<u64>("clients", "blocked_clients") == 1);
    succeed(&nodes, 0, 1, "5061 5061");
    assert_eq!(text(blocked.read()), moved);
    assert_eq!(subscriber.read(), Value::array(&["sunsubscribe", "{bar}channel", ":0"]));
    assert_eq!(text(run(&mut watcher, "EXEC")), moved);
    let invalidated = caching.read();
    assert!(format!("{invalidated:?}").contains("{bar}watched"), "{invalidated:?}");
    assert_eq!(run(&mut nodes.client(1), "GET {bar}watched"), Value::Text("1".to_owned()));
}

/// Appends numbers to lists and adds them up, by single commands, transactions and scripts; each acknowledged one is there once.
fn append_and_check(port: u16, who: u64, stop: &AtomicBool) {
    const SCRIPT: &str = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('INCR', KEYS[2])";
    let mut client = ClusterClient::new(port);
    let mut sent = vec![Vec::<String>::new(); 40];
    let mut n = 0usize;
    while !stop.load(Ordering::Relaxed) || n < 200 {
        let at = n * 7 % sent.len();
        let tag = format!("{{l{who}:{at}}}");
        let (list, count, value) = (format!("{tag}list"), format!("{tag}count"), n.to_string());
        sent[at].push(value.clone());
        let wanted = Value::Int(sent[at].len() as i64);
        match n % 3 {
            0 => {
                let answer = client.run(&tag, &[&["RPUSH", &list, &value], &["INCR", &count]]);
                assert_eq!(answer, Value::Array(vec![wanted.clone(), wanted]), "{list}");
            }
            1 => {
                assert_eq!(client.call(&tag, &["EVAL", SCRIPT, "2", &list, &count, &value]), wanted, "{list}")
            }
            _ => {
                assert_eq!(client.call(&tag, &["RPUSH", &list, &value]), wanted, "{list}");
                assert_eq!(client.call(&tag, &["INCR", &count]), wanted, "{count}");
            }
        }
        n += 1;
    }
    for (at, values) in sent.iter().enumerate() {
        let list = format!("{{l{who}:{at}}}list");
        let wanted = Value::Array(values.iter().map(|value| Value::Text(value.clone())).collect());
        assert_eq!(client.call(&format!("{{l{who}:{at}}}"), &["LRANGE", &list, "0", "-1"]), wanted, "{list}");
    }
}

/// The number of moves in a test: `usual`, or more by an environment variable.
pub fn rounds(usual: usize) -> usize {
    std::env::var("DARTER_MIGRATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn no_write_is_lost_or_made_twice_while_slots_move_as_a_whole() {
    let Some(nodes) = StoredNodes::create("whole-load", 3) else { return };
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let port = |who: u64| nodes.servers[who as usize % 3].port();
        let mut writers: Vec<_> = (0..2u64)
            .map(|who| {
                let (port, stop, written) = (port(who), &stop, &written);
                scope.spawn(move || write_and_check(port, who, stop, written))
            })
            .collect();
        writers.extend((2..4u64).map(|who| {
            let (port, stop) = (port(who), &stop);
            scope.spawn(move || append_and_check(port, who, stop))
        }));
        let _guard = StopOnDrop(&stop);
        // The first third of the slots goes round the nodes, in two parts.
        let ranges = ["0 2000", "2001 5460"];
        for round in 0..rounds(6) {
            if writers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            let (from, to) = ((round / 2) % 3, (round / 2 + 1) % 3);
            succeed(&nodes, from, to, ranges[round % 2]);
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("every write is there once");
        }
    });
    nodes.settle();
    assert!(written.load(Ordering::Relaxed) > 100);
}

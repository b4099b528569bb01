//! CMS.MERGE of large sketches and ARRING of large arrays: slices give the result of one piece, as of the moment
//! it is stored.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::harness::journal::Dir;
use crate::harness::{Client, Server, Value, wait_until};

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn call(client: &mut Client, line: &str) -> Value {
    client.call(&words(line))
}

fn at_once(client: &mut Client, line: &str) -> Value {
    client.call(&["MULTI"]);
    call(client, line);
    let Value::Array(mut replies) = client.call(&["EXEC"]) else { panic!("no replies") };
    replies.remove(0)
}

fn slices(client: &mut Client) -> u64 {
    client.info("transaction", "slices_total")
}

/// Sketches of 560 KB: `a` has twice of all that `b` has, and `c` something else.
fn fill(client: &mut Client) {
    for key in ["a", "b", "c"] {
        client.call(&["CMS.INITBYDIM", key, "20000", "7"]);
    }
    client.call(&["CMS.INITBYDIM", "wide", "40000", "7"]);
    client.call(&["CMS.INITBYDIM", "small", "2000", "5"]);
    let add = |client: &mut Client, key: &str, factor: u64| {
        client.call_for_each(&["CMS.INCRBY", key], 3000, |n, words| {
            words.extend([format!("item:{n}"), (factor * (n + 1)).to_string()]);
        });
    };
    add(client, "a", 2);
    add(client, "b", 1);
    client.call(&["CMS.INCRBY", "c", "other", "5", "item:7", "1"]);
    client.call(&["EXPIREAT", "c", "4000000000"]);
    client.call(&["SET", "text", "x"]);
}

const MERGES: &[&str] = &[
    "CMS.MERGE c 2 a b",
    "CMS.MERGE c 2 a b WEIGHTS 1 -2",
    "CMS.MERGE c 3 a c b WEIGHTS 3 1 0",
    "CMS.MERGE a 2 a a",
    "CMS.MERGE c 1 c",
    "CMS.MERGE wide 1 wide WEIGHTS 5",
];

/// Refused before anything is read, or in the middle.
const FAULTS: &[&str] = &[
    "CMS.MERGE c 2 a b WEIGHTS 1 -3",
    "CMS.MERGE c 2 b a WEIGHTS 1000000 1000000",
    "CMS.MERGE c 1 a WEIGHTS 9223372036854775807",
    "CMS.MERGE c 2 a none",
    "CMS.MERGE none 2 a b",
    "CMS.MERGE c 2 a text",
    "CMS.MERGE text 2 a b",
    "CMS.MERGE c 2 a wide",
    "CMS.MERGE small 2 a b",
];

#[test]
fn what_slices_merge_is_what_one_go_merges() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--num_shards", "5"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        for line in MERGES.iter().chain(FAULTS) {
            let mut seen = Vec::new();
            for is_sliced in [true, false] {
                client.call(&["FLUSHALL"]);
                fill(&mut client);
                let before = slices(&mut client);
                let reply = if is_sliced { call(&mut client, line) } else { at_once(&mut client, line) };
                let given = slices(&mut client) - before;
                assert!(!is_sliced || FAULTS.contains(line) || given > 30, "{line}: {given} slices");
                assert_eq!(reply == Value::ok(), !FAULTS.contains(line), "{line}: {reply:?}");
                let keys = ["a", "b", "c", "wide", "small"];
                let looks = keys.map(|key| (client.call(&["CMS.INFO", key]), client.call(&["DUMP", key])));
                seen.push((reply, looks, client.call(&["EXPIRETIME", "c"])));
            }
            assert!(seen[0] == seen[1], "{line}");
        }
        fill(&mut client);
        let before = slices(&mut client);
        assert_eq!(call(&mut client, "CMS.MERGE small 1 small"), Value::ok());
        assert_eq!(slices(&mut client), before, "a small one is merged at once");
    }
}

/// The sum of the increments of a sketch.
fn count(client: &mut Client, key: &str) -> Option<i64> {
    match client.call(&["CMS.INFO", key]) {
        Value::Array(parts) => match parts[5] {
            Value::Int(count) => Some(count),
            ref other => panic!("{other:?}"),
        },
        _ => None,
    }
}

#[test]
fn a_merge_is_of_one_moment_while_sketches_change_and_go() {
    for threads in ["1", "3"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        fill(&mut client);
        let (all, is_over) = (count(&mut client, "b").expect("a sketch"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for pause_ms in [0, 30] {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let mut writer = server.client();
                    for n in (0..20_000).take_while(|_| !is_over.load(Relaxed)) {
                        let item = format!("new:{}", n % 50);
                        writer.call(&["MULTI"]);
                        writer.call(&["CMS.INCRBY", "a", &item, "2"]);
                        writer.call(&["CMS.INCRBY", "b", &item, "1"]);
                        writer.call(&["EXEC"]);
                        std::thread::sleep(Duration::from_millis(pause_ms));
                        // Destinations change, go and are of other sizes.
                        match n % 10 {
                            0 => drop(writer.call(&["CMS.INCRBY", "c", "other", "1"])),
                            1 => drop(writer.call(&["SET", "d", "text"])),
                            2 => drop(writer.call(&["DEL", "d"])),
                            3 => drop(writer.call(&["CMS.INITBYDIM", "d", "20000", "7"])),
                            4 => drop(writer.call(&["RENAME", "wide", "d"])),
                            5 => drop(writer.call(&["RENAME", "d", "wide"])),
                            _ => {}
                        }
                    }
                });
            }
            for _ in 0..25 {
                // Twice all of `b`, taken away from `a`: what is left is nothing.
                assert_eq!(call(&mut client, "CMS.MERGE c 2 a b WEIGHTS 1 -2"), Value::ok());
                let items: Vec<String> = (0..50).map(|n| format!("new:{n}")).collect();
                let words = ["CMS.QUERY", "c"].into_iter().chain(items.iter().map(String::as_str));
                let left = client.call(&words.collect::<Vec<_>>());
                assert_eq!(left, Value::Array(vec![Value::Int(0); items.len()]), "sketches of two moments");
                let reply = call(&mut client, "CMS.MERGE d 2 a b");
                let is_other = matches!(&reply, Value::Error(line) if line.starts_with("CMS: ") || line.starts_with("WRONGTYPE"));
                assert!(reply == Value::ok() || is_other, "{reply:?}");
            }
            is_over.store(true, Relaxed);
        });
        let [a, b] = ["a", "b"].map(|key| count(&mut client, key).expect("a sketch"));
        assert!(a == 2 * b && b > all);
        client.call(&["FLUSHALL"]);
        wait_until("nothing is there any more", || client.info::<u64>("memory", "object_used_memory") == 0);
    }
}

#[test]
fn a_source_that_goes_under_way_is_missed() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut other = server.client();
    for change in ["DEL b", "PEXPIREAT b 1", "SET b text", "FLUSHALL"] {
        let mut met = 0;
        for _ in 0..100 {
            other.call(&["FLUSHALL"]);
            // They are zeros but for one item: made quickly, merged slowly.
            for key in ["a", "b", "c"] {
                other.call(&["CMS.INITBYDIM", key, "1000000", "10"]);
                other.call(&["CMS.INCRBY", key, "item", "1"]);
            }
            let before = slices(&mut other);
            let mut client = server.client();
            client.send_all(&[&words("CMS.MERGE c 2 a b WEIGHTS 100 10")]);
            let has_begun = (0..100_000).any(|_| slices(&mut other) > before);
            assert!(has_begun, "{change}: it is made at once");
            call(&mut other, change);
            match client.read() {
                Value::Error(_) => met += 1,
                done => assert_eq!(done, Value::ok()),
            }
            if met == 2 {
                break;
            }
        }
        assert!(met > 0, "{change} is never met under way");
    }
}

#[test]
fn clients_that_go_away_leave_no_sketches() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    fill(&mut client);
    for _ in 0..30 {
        server.client().send_all(&[&words("CMS.MERGE c 2 a b")]);
    }
    wait_until("they are gone", || client.info::<u64>("clients", "connected_clients") == 1);
    client.call(&["DEL", "a", "b", "c", "wide", "small", "text"]);
    wait_until("nothing is there any more", || client.info::<u64>("memory", "object_used_memory") == 0);
}

#[test]
fn merged_sketches_are_read_back_and_come_to_replicas() {
    let dir = Dir::new("sketches");
    let server = dir.start(&["--proactor_threads", "2"]);
    let replica = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    let mut other = replica.client();
    assert_eq!(other.call(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]), Value::ok());
    fill(&mut client);
    let before = slices(&mut client);
    for line in MERGES {
        assert_eq!(call(&mut client, line), Value::ok());
    }
    assert!(slices(&mut client) > before + 100);
    let looks = |client: &mut Client| ["a", "b", "c", "wide"].map(|key| client.call(&["DUMP", key]));
    let wanted = looks(&mut client);
    wait_until("the replica has them", || looks(&mut other) == wanted);
    drop(server);
    let server = dir.start(&["--proactor_threads", "3"]);
    assert!(looks(&mut server.client()) == wanted);
}

/// A ring of texts with gaps whose newest one is at place 31,000; and texts far from each other.
fn fill_rings(client: &mut Client) {
    for from in (0..40_000_u64).step_by(1000) {
        let all = (from..from + 1000).filter(|n| n % 97 != 5).map(|n| format!("{n} text:{n}"));
        let all: Vec<String> = all.collect();
        let words = all.iter().flat_map(|words| words.split(' '));
        client.call(&["ARMSET", "ring"].into_iter().chain(words).collect::<Vec<_>>());
    }
    client.call(&["ARSEEK", "ring", "31001"]);
    client.call_for_each(&["ARMSET", "far"], 3000, |n, words| {
        words.extend([(n * 100_003).to_string(), "x".repeat(n as usize % 70)]);
    });
    for key in ["ring", "far"] {
        client.call(&["EXPIREAT", key, "4000000000"]);
    }
}

const RINGS: &[&str] = &[
    "ARRING ring 20000 new",
    "ARRING ring 39000 new newer",
    "ARRING ring 90000 new",
    "ARRING ring 2000 new",
    "ARRING far 200000000 new",
    "ARRING far 299000000 new",
];

#[test]
fn what_slices_lay_anew_is_what_one_go_lays() {
    let dir = Dir::new("rings");
    let server = dir.start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    for line in RINGS {
        let mut seen = Vec::new();
        for is_sliced in [true, false] {
            client.call(&["FLUSHALL"]);
            fill_rings(&mut client);
            let before = slices(&mut client);
            let reply = if is_sliced { call(&mut client, line) } else { at_once(&mut client, line) };
            let given = slices(&mut client) - before;
            assert!(!is_sliced || given > 3, "{line}: {given} slices");
            let key = words(line)[1];
            seen.push((
                reply,
                call(&mut client, &format!("DUMP {key}")),
                call(&mut client, &format!("EXPIRETIME {key}")),
            ));
        }
        assert!(seen[0] == seen[1], "{line}: {:?} {:?}", seen[0].0, seen[1].0);
    }
    let wanted = client.call(&["DUMP", "far"]);
    drop(server);
    let server = dir.start(&["--proactor_threads", "1"]);
    assert!(server.client().call(&["DUMP", "far"]) == wanted);
}

#[test]
fn a_ring_that_changes_or_goes_under_way_is_laid_as_it_is_at_the_end() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client();
            for n in (0..20_000).take_while(|_| !is_over.load(Relaxed)) {
                // The newest text and the one before it are the same.
                let text = format!("n{n}");
                writer.call(&["ARINSERT", "ring", &text, &text]);
                std::thread::sleep(Duration::from_millis(3));
                match n % 40 {
                    7 => drop(writer.call(&["DEL", "ring"])),
                    17 => drop(writer.call(&["SET", "ring", "text"])),
                    18 => drop(writer.call(&["DEL", "ring"])),
                    _ => {}
                }
            }
        });
        for size in 0..40 {
            fill_rings(&mut client);
            let reply = client.call(&["ARRING", "ring", &(20_000 + 100 * size).to_string(), "last"]);
            let is_other = matches!(&reply, Value::Error(line) if line.starts_with("WRONGTYPE"));
            assert!(is_other || matches!(reply, Value::Int(_)), "{reply:?}");
        }
        for _ in 0..20 {
            server.client().send_all(&[&words("ARRING ring 20000 gone")]);
        }
        is_over.store(true, Relaxed);
    });
    wait_until("they are gone", || client.info::<u64>("clients", "connected_clients") == 1);
    client.call(&["DEL", "ring", "far"]);
    wait_until("nothing is there any more", || client.info::<u64>("memory", "object_used_memory") == 0);
}

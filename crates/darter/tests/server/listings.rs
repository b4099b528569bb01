//! What XPENDING and XINFO STREAM FULL tell in slices: what they tell in one go, of one moment.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::harness::{Client, Server, Value};

const ENTRIES: u64 = 3000;
const CONSUMERS: u64 = 1800;

/// Groups that have read much: one with few consumers, entries that were deleted, and some that were given back; one with
/// many consumers, of which each third has nothing.
fn fill(client: &mut Client) {
    for n in 1..=ENTRIES {
        client.call(&["XADD", "s", &format!("{n}-1"), "field", &format!("value:{n}")]);
    }
    client.call(&["XGROUP", "CREATE", "s", "g", "0"]);
    client.call(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "1500", "STREAMS", "s", ">"]);
    client.call(&["XREADGROUP", "GROUP", "g", "d", "COUNT", "1100", "STREAMS", "s", ">"]);
    client.call(&["XNACK", "s", "g", "SILENT", "IDS", "2", "5-1", "6-1"]);
    client.call(&["XDEL", "s", "7-1"]);
    client.call(&["XGROUP", "CREATE", "s", "many", "0"]);
    for n in 0..CONSUMERS {
        let name = format!("consumer:{n}");
        if n % 3 == 0 {
            client.call(&["XGROUP", "CREATECONSUMER", "s", "many", &name]);
        } else {
            client.call(&["XREADGROUP", "GROUP", "many", &name, "COUNT", "1", "STREAMS", "s", ">"]);
        }
    }
    client.call(&["XGROUP", "CREATE", "s", "new", "$"]);
}

fn call(client: &mut Client, command: &str) -> Value {
    client.call(&command.split(' ').collect::<Vec<_>>())
}

/// The reply without what a clock has made of it: how long pending entries have been idle.
fn still(command: &str, value: Value) -> Value {
    let Value::Array(mut rows) = value else { return value };
    if command.starts_with("XPENDING") {
        for row in &mut rows {
            if let Value::Array(row) = row
                && row.len() == 4
            {
                row[2] = Value::Null;
            }
        }
    }
    Value::Array(rows)
}

#[test]
fn slices_tell_what_one_go_tells() {
    let commands = [
        "XPENDING s g - + 10000",
        "XPENDING s g - + 1300",
        "XPENDING s g (700-1 2000 1200",
        "XPENDING s g - + 10000 d",
        "XPENDING s g 1600 2700 1001 d",
        "XPENDING s g IDLE 3600000 - + 3",
        "XPENDING s g IDLE 1 - + 1200",
        "XPENDING s many",
        "XPENDING s many - + 1000000",
        "XINFO STREAM s FULL COUNT 0",
        "XINFO STREAM s FULL COUNT 600",
        "XINFO STREAM s FULL",
    ];
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        fill(&mut client);
        // So that all is idle for more than a millisecond.
        std::thread::sleep(Duration::from_millis(10));
        for (resp, command) in ["2", "3"].into_iter().flat_map(|resp| commands.map(|command| (resp, command)))
        {
            client.call(&["HELLO", resp]);
            let before = client.info::<u64>("transaction", "slices_total");
            let mine = call(&mut client, command);
            let slices = client.info::<u64>("transaction", "slices_total") - before;
            // 1,800 consumers are much whatever the count.
            assert!(slices >= 10, "{command}: {slices} slices");
            client.call(&["MULTI"]);
            call(&mut client, command);
            let Value::Array(mut replies) = client.call(&["EXEC"]) else { panic!("no replies") };
            assert_eq!(still(command, mine), still(command, replies.remove(0)), "{command} RESP{resp}");
        }
        // Short ones are not for slices.
        let before = client.info::<u64>("transaction", "slices_total");
        for command in ["XPENDING s g", "XPENDING s g - + 10", "XPENDING s g - + 5000 none", "XINFO STREAM s"]
        {
            call(&mut client, command);
        }
        assert_eq!(client.info::<u64>("transaction", "slices_total"), before);
        assert!(matches!(call(&mut client, "XPENDING s none - + 10000"), Value::Error(_)));
    }
}

/// The consumer of each row of XPENDING.
fn consumers(rows: &Value) -> BTreeSet<String> {
    let Value::Array(rows) = rows else { panic!("no rows: {rows:?}") };
    let name = |row: &Value| match row {
        Value::Array(row) => format!("{:?}", row[1]),
        other => panic!("no row: {other:?}"),
    };
    rows.iter().map(name).collect()
}

#[test]
fn what_is_told_is_one_state_while_the_group_changes_and_entries_come() {
    for threads in ["1", "3"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        for n in 1..=ENTRIES {
            client.call(&["XADD", "s", &format!("{n}-1"), "field", "value"]);
        }
        client.call(&["XGROUP", "CREATE", "s", "g", "0"]);
        client.call(&["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"]);
        let ids: Vec<String> = (1..=ENTRIES).map(|n| format!("{n}-1")).collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (server, ids, is_over) = (&server, &ids, &is_over);
            scope.spawn(move || {
                let mut writer = server.client();
                for name in ["b", "a"].iter().cycle().take_while(|_| !is_over.load(Relaxed)) {
                    let mut words = vec!["XCLAIM", "s", "g", name, "0"];
                    words.extend(ids.iter().map(String::as_str));
                    words.push("JUSTID");
                    writer.call(&words);
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            scope.spawn(move || {
                let mut writer = server.client();
                while !is_over.load(Relaxed) {
                    writer.call(&["XADD", "s", "*", "more", "and more"]);
                    // As fast as it can, it would make each look longer than the one before by a part of it.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            for _ in 0..60 {
                let rows = call(&mut client, "XPENDING s g - + 100000");
                assert!(matches!(&rows, Value::Array(rows) if rows.len() as u64 == ENTRIES));
                assert_eq!(consumers(&rows).len(), 1, "of two moments");
                let Value::Array(told) = call(&mut client, "XINFO STREAM s FULL COUNT 0") else { panic!() };
                let at = |name: &str| {
                    let is_it = |item: &Value| *item == Value::Text(name.to_owned());
                    &told[told.iter().position(is_it).expect("told") + 1]
                };
                let Value::Array(entries) = at("entries") else { panic!("no entries") };
                assert_eq!(*at("length"), Value::Int(entries.len() as i64));
                let Value::Array(groups) = at("groups") else { panic!("no groups") };
                let Value::Array(group) = &groups[0] else { panic!("no group") };
                let pending = group.iter().position(|item| *item == Value::Text("pending".to_owned()));
                assert_eq!(consumers(&group[pending.expect("told") + 1]).len(), 1, "of two moments");
            }
            is_over.store(true, Relaxed);
        });
    }
}

#[test]
fn a_stream_that_another_one_replaces_is_not_mixed_with_it() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    for (key, value) in [("a", "one"), ("b", "two")] {
        for n in 1..=ENTRIES {
            client.call(&["XADD", key, &format!("{n}-1"), "field", value]);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, is_over) = (&server, &is_over);
        scope.spawn(move || {
            let mut writer = server.client();
            while !is_over.load(Relaxed) {
                for words in [&["RENAME", "a", "c"], &["RENAME", "b", "a"], &["RENAME", "c", "b"]] {
                    writer.call(words);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        for _ in 0..100 {
            let told = format!("{:?}", call(&mut client, "XINFO STREAM a FULL COUNT 0"));
            assert!(!(told.contains("one") && told.contains("two")), "of two streams");
        }
        is_over.store(true, Relaxed);
    });
}

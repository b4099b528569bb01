//! Streams of a real server: readers that wait, and what ends their wait.

use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use crate::harness::{Client, Server, Value};

/// Sends a command that waits, and returns when one client more waits, as `looker` sees it.
fn wait(looker: &mut Client, client: &mut Client, command: &[&str]) {
    let before = looker.info::<u64>("clients", "blocked_clients");
    client.send_all(&[command]);
    let ends = std::time::Instant::now() + crate::harness::PATIENCE;
    while looker.info::<u64>("clients", "blocked_clients") == before {
        assert!(std::time::Instant::now() < ends, "{command:?} does not wait");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn entry(id: &str, field: &str, value: &str) -> Value {
    Value::Array(vec![Value::Text(id.to_owned()), Value::array(&[field, value])])
}

fn stream(key: &str, entries: Vec<Value>) -> Value {
    Value::Array(vec![Value::Array(vec![Value::Text(key.to_owned()), Value::Array(entries)])])
}

#[test]
fn a_reader_waits_for_what_comes_after_the_last_entry() {
    let server = Server::start(&[]);
    let (mut reader, mut writer) = (server.client(), server.client());
    writer.call(&["XADD", "s", "1-0", "f", "old"]);
    // keys in different shards, of which the second gets something
    wait(&mut writer, &mut reader, &["XREAD", "BLOCK", "0", "STREAMS", "other", "s", "$", "$"]);
    writer.call(&["XADD", "s", "2-0", "f", "new"]);
    assert_eq!(reader.read(), stream("s", vec![entry("2-0", "f", "new")]));
    assert_eq!(reader.call(&["XREAD", "BLOCK", "20", "STREAMS", "s", "$"]), Value::Null);
}

#[test]
fn a_transaction_is_seen_as_one_step_by_who_waits() {
    let server = Server::start(&[]);
    let (mut reader, mut writer) = (server.client(), server.client());
    wait(&mut writer, &mut reader, &["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]);
    // A reader that finds nothing misses the key; this once went on for ever.
    for command in [&["MULTI"][..], &["XADD", "s", "1-0", "f", "gone"], &["DEL", "s"], &["EXEC"]] {
        writer.call(command);
    }
    writer.call(&["XADD", "s", "2-0", "f", "stays"]);
    assert_eq!(reader.read(), stream("s", vec![entry("2-0", "f", "stays")]));
}

#[test]
fn a_reader_in_a_group_is_told_when_its_group_is_gone() {
    let server = Server::start(&[]);
    let (mut reader, mut writer) = (server.client(), server.client());
    let ways: &[&[&str]] = &[
        &["DEL", "s"],
        &["FLUSHALL"],
        &["FLUSHDB"],
        &["XGROUP", "DESTROY", "s", "g"],
        &["SWAPDB", "0", "1"],
        &["SET", "s", "text"],
    ];
    for &way in ways {
        writer.call(&["DEL", "s"]);
        writer.call(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
        wait(&mut writer, &mut reader, &["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"]);
        writer.call(way);
        let Value::Error(line) = reader.read() else { panic!("{way:?}: no error") };
        let code = if way[0] == "SET" { "WRONGTYPE" } else { "NOGROUP" };
        assert!(line.starts_with(code), "{way:?}: {line}");
    }
}

#[test]
fn each_entry_goes_to_one_of_several_waiting_consumers() {
    let server = Server::start(&[]);
    let mut writer = server.client();
    writer.call(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
    let mut readers = [server.client(), server.client(), server.client()];
    for (reader, name) in readers.iter_mut().zip(["a", "b", "c"]) {
        wait(&mut writer, reader, &["XREADGROUP", "GROUP", "g", name, "BLOCK", "0", "STREAMS", "s", ">"]);
    }
    for (at, reader) in readers.iter_mut().enumerate() {
        let id = format!("{}-0", at + 1);
        writer.call(&["XADD", "s", &id, "f", "v"]);
        assert_eq!(reader.read(), stream("s", vec![entry(&id, "f", "v")]));
    }
}

/// A stream of 4,000 entries, of which a group has read 1,500 and acknowledged some, and lost one that is pending.
fn fill_group(client: &mut Client) {
    client.call(&["FLUSHALL"]);
    for n in 1..=4000 {
        client.call(&["XADD", "s", &format!("{n}-1"), "field", &format!("value:{n}")]);
    }
    client.call(&["XGROUP", "CREATE", "s", "g", "0"]);
    client.call(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "1500", "STREAMS", "s", ">"]);
    client.call(&["XREADGROUP", "GROUP", "g", "d", "COUNT", "100", "STREAMS", "s", ">"]);
    client.call(&["XACK", "s", "g", "3-1", "4-1", "1600-1"]);
    client.call(&["XDEL", "s", "7-1"]);
}

/// What a group has pending and how far it has read, without times.
fn look_at_group(client: &mut Client) -> Vec<Value> {
    let without = |value: Value, place: usize| match value {
        Value::Array(rows) => Value::Array(
            rows.into_iter()
                .map(|row| match row {
                    Value::Array(mut row) => {
                        row.truncate(row.len().min(place));
                        Value::Array(row)
                    }
                    row => row,
                })
                .collect(),
        ),
        value => value,
    };
    let pending = client.call(&["XPENDING", "s", "g", "-", "+", "10000"]);
    let deliveries = match &pending {
        Value::Array(rows) => rows
            .iter()
            .map(|row| if let Value::Array(row) = row { row[3].clone() } else { Value::Null })
            .collect(),
        _ => Vec::new(),
    };
    vec![
        without(pending, 2),
        Value::Array(deliveries),
        client.call(&["XPENDING", "s", "g"]),
        client.call(&["XINFO", "GROUPS", "s"]),
        without(client.call(&["XINFO", "CONSUMERS", "s", "g"]), 4),
    ]
}

#[test]
fn a_group_that_is_changed_in_slices_is_what_one_go_makes_it() {
    let ids = |places: &mut dyn Iterator<Item = u64>| {
        places.map(|n| format!("{n}-1")).collect::<Vec<_>>().join(" ")
    };
    let falling = ids(&mut (1..1700).rev());
    let mixed = ids(&mut (0..1500).map(|n| n * 7 % 1501));
    let twice = ids(&mut (400..1000).chain(300..900));
    let named = [
        format!("XACK s g {falling}"),
        format!("XACK s g {twice}"),
        format!("XCLAIM s g d 0 {falling}"),
        format!("XCLAIM s g new 0 {mixed} JUSTID"),
        format!("XCLAIM s g d 0 {twice}"),
        format!("XCLAIM s g d 0 {twice} IDLE 5000 RETRYCOUNT 7 LASTID 2000-1"),
        format!("XCLAIM s g d 3600000 {mixed} LASTID 5-1"),
    ];
    let commands = [
        "XGROUP DELCONSUMER s g c",
        "XREADGROUP GROUP g c STREAMS s >",
        "XREADGROUP GROUP g new STREAMS s >",
        "XREADGROUP GROUP g d COUNT 2000 STREAMS s >",
        "XREADGROUP GROUP g c NOACK STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XREADGROUP GROUP g c COUNT 1100 STREAMS s 100-1",
        "XAUTOCLAIM s g d 0 0 COUNT 5000",
        "XAUTOCLAIM s g new 0 0 COUNT 1200 JUSTID",
        "XAUTOCLAIM s g d 3600000 0 COUNT 1200",
        "XAUTOCLAIM s g c 0 200 COUNT 1300",
    ];
    for protocol in ["2", "3"] {
        let server = Server::start(&["--proactor_threads", protocol]);
        let (mut client, mut asking) = (server.client(), server.client());
        asking.call(&["HELLO", protocol]);
        for command in commands.into_iter().chain(named.iter().map(String::as_str)) {
            let words: Vec<&str> = command.split(' ').collect();
            let seen = [true, false].map(|is_sliced| {
                fill_group(&mut client);
                let before = client.info::<u64>("transaction", "slices_total");
                let answer = if is_sliced {
                    asking.call(&words)
                } else {
                    asking.call(&["MULTI"]);
                    asking.call(&words);
                    let Value::Array(mut replies) = asking.call(&["EXEC"]) else { panic!("no replies") };
                    replies.remove(0)
                };
                let slices = client.info::<u64>("transaction", "slices_total") - before;
                assert_eq!(slices > 10, is_sliced, "{command}: {slices} slices");
                // The group is as good as any other afterwards.
                client.call(&["XADD", "s", "5000-1", "field", "last"]);
                let next = client.call(&["XREADGROUP", "GROUP", "g", "d", "COUNT", "1", "STREAMS", "s", ">"]);
                let acked = client.call(&["XACK", "s", "g", "1500-1", "1599-1", "4000-1"]);
                let looked = look_at_group(&mut client);
                client.call(&["DEBUG", "RELOAD"]);
                assert_eq!(look_at_group(&mut client), looked, "{command}");
                (answer, next, acked, looked)
            });
            assert_eq!(seen[0], seen[1], "{command}");
        }
    }
}

#[test]
fn an_id_that_is_wrong_changes_nothing_of_a_group() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    fill_group(&mut client);
    let before = look_at_group(&mut client);
    let ids: Vec<String> = (1..1600).map(|n| format!("{n}-1")).collect();
    for (head, last) in [("XACK s g", "x"), ("XCLAIM s g c 0", "NOSUCH"), ("XCLAIM s g new 0", "IDLE x")] {
        let words = || head.split(' ').chain(ids.iter().map(String::as_str)).chain(last.split(' '));
        let answer = client.call(&words().collect::<Vec<_>>());
        client.call(&["MULTI"]);
        client.call(&words().collect::<Vec<_>>());
        assert_eq!(client.call(&["EXEC"]), Value::Array(vec![answer.clone()]), "{head}");
        assert!(matches!(answer, Value::Error(_)), "{head}: {answer:?}");
        assert_eq!(look_at_group(&mut client), before, "{head}");
    }
    let forced = ["XCLAIM", "s", "g", "c", "0"].into_iter().chain(ids.iter().map(String::as_str));
    let forced = client.call(&forced.chain(["FORCE", "JUSTID"]).collect::<Vec<_>>());
    // Two of them were acknowledged, and one has lost its entry.
    assert!(matches!(&forced, Value::Array(ids) if ids.len() == 1598), "{forced:?}");
}

#[test]
fn each_entry_is_delivered_once_while_entries_come_and_others_read() {
    const ENTRIES: usize = 6000;
    let server = Server::start(&["--proactor_threads", "3"]);
    let mut client = server.client();
    for n in 0..ENTRIES / 2 {
        client.call(&["XADD", "s", "*", "n", &n.to_string()]);
    }
    client.call(&["XGROUP", "CREATE", "s", "g", "0"]);
    let ids_of = |answer: Value| -> Vec<String> {
        let Value::Array(mut streams) = answer else { return Vec::new() };
        let Some(Value::Array(mut stream)) = streams.pop() else { return Vec::new() };
        let Some(Value::Array(entries)) = stream.pop() else { return Vec::new() };
        let id = |entry: Value| match entry {
            Value::Array(entry) => format!("{:?}", entry[0]),
            other => panic!("no entry: {other:?}"),
        };
        entries.into_iter().map(id).collect()
    };
    let is_over = AtomicBool::new(false);
    let mut ids: Vec<String> = std::thread::scope(|scope| {
        let (server, is_over) = (&server, &is_over);
        scope.spawn(move || {
            let mut writer = server.client();
            for n in 0..ENTRIES / 2 {
                writer.call(&["XADD", "s", "*", "n", &n.to_string()]);
            }
            is_over.store(true, Release);
        });
        let readers: Vec<_> = ["all", "all too", "few"]
            .into_iter()
            .map(|name| {
                scope.spawn(move || {
                    let mut reader = server.client();
                    let mut ids = Vec::new();
                    loop {
                        let was_over = is_over.load(Acquire);
                        let count = if name == "few" { "3" } else { "100000" };
                        let words = ["XREADGROUP", "GROUP", "g", name, "COUNT", count, "STREAMS", "s", ">"];
                        let new = ids_of(reader.call(&words));
                        if new.is_empty() && was_over {
                            return ids;
                        }
                        if new.is_empty() {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        ids.extend(new);
                    }
                })
            })
            .collect();
        readers.into_iter().flat_map(|reader| reader.join().expect("a reader")).collect()
    });
    let Value::Array(pending) = client.call(&["XPENDING", "s", "g"]) else { panic!("no summary") };
    assert_eq!(pending[0], Value::Int(ENTRIES as i64));
    assert_eq!(ids.len(), ENTRIES);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), ENTRIES);
}

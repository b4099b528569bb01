//! Streams of a real server: readers that wait, and what ends their wait.

mod harness;

use std::time::Duration;

use harness::{Client, Server, Value};

/// Sends a command that waits, and gives it the time to be parked.
fn wait(client: &mut Client, command: &[&str]) {
    client.send_all(&[command]);
    std::thread::sleep(Duration::from_millis(100));
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
    wait(&mut reader, &["XREAD", "BLOCK", "0", "STREAMS", "other", "s", "$", "$"]);
    writer.call(&["XADD", "s", "2-0", "f", "new"]);
    assert_eq!(reader.read(), stream("s", vec![entry("2-0", "f", "new")]));
    wait(&mut reader, &["XREAD", "BLOCK", "20", "STREAMS", "s", "$"]);
    assert_eq!(reader.read(), Value::Null);
}

#[test]
fn a_transaction_is_seen_as_one_step_by_who_waits() {
    let server = Server::start(&[]);
    let (mut reader, mut writer) = (server.client(), server.client());
    wait(&mut reader, &["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]);
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
        wait(&mut reader, &["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"]);
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
        wait(reader, &["XREADGROUP", "GROUP", "g", name, "BLOCK", "0", "STREAMS", "s", ">"]);
    }
    for (at, reader) in readers.iter_mut().enumerate() {
        let id = format!("{}-0", at + 1);
        writer.call(&["XADD", "s", &id, "f", "v"]);
        assert_eq!(reader.read(), stream("s", vec![entry(&id, "f", "v")]));
    }
}

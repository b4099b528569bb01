//! SYNC of a real server: what it sends is an RDB file, and `redis-cli --rdb` writes it down.

use std::io::{Read, Write};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, wait_until};

fn start(folder: &Folder, flags: &[&str]) -> Server {
    Server::start(&[&["--dir", folder.text(), "--enable_debug_command", "yes"], flags].concat())
}

const LIBRARY: &str = "#!lua name=lib\nredis.register_function('seven', function() return 7 end)";

fn fill(client: &mut Client, keys: usize) {
    for first in (0..keys).step_by(1000) {
        let words: Vec<[String; 3]> = (first..keys.min(first + 1000))
            .map(|n| ["SET".into(), format!("key:{n}"), format!("{n}:{}", "v".repeat(n % 500))])
            .collect();
        let commands: Vec<Vec<&str>> =
            words.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
        client.send_all(&commands.iter().map(Vec::as_slice).collect::<Vec<_>>());
        commands.iter().for_each(|_| assert_eq!(client.read(), Value::ok()));
    }
    for n in 0..5000 {
        let command = ["RPUSH", "list", &n.to_string(), "x"];
        client.send_all(&[&command, &["HSET", "hash", &n.to_string(), "y"]]);
        let _ = (client.read(), client.read());
    }
    assert_eq!(client.call(&["FUNCTION", "LOAD", LIBRARY]), Value::Text("lib".to_owned()));
}

/// The file that a SYNC on this connection sends, which asks for a copy only; the server closes behind it.
fn receive(client: &mut Client) -> Vec<u8> {
    assert_eq!(client.call(&["REPLCONF", "rdb-only", "1"]), Value::ok());
    client.stream().write_all(b"SYNC\r\n").expect("sent");
    let mut all = Vec::new();
    client.stream().try_clone().expect("a socket").read_to_end(&mut all).expect("all of it");
    let start = all.iter().position(|byte| *byte != b'\n').expect("an answer");
    let end = start + all[start..].iter().position(|byte| *byte == b'\n').expect("a line");
    let head = String::from_utf8_lossy(&all[start..end]).into_owned();
    let len: usize =
        head.trim_end().strip_prefix('$').unwrap_or_else(|| panic!("{head}")).parse().expect("a length");
    assert_eq!(all.len() - end - 1, len, "all of it and nothing behind it");
    all.split_off(end + 1)
}

/// A server that has loaded `file`.
fn loaded(folder: &Folder, file: &str) -> Server {
    let server = start(folder, &["--dbfilename", file]);
    drop(server.client().loaded());
    server
}

#[test]
fn what_sync_sends_is_what_was_there() {
    let folder = Folder::new("copies-sync");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client, 20_000);
    let digest = client.call(&["DEBUG", "DIGEST"]);
    let saved = client.call(&["LASTSAVE"]);
    // Two at once: the second waits for the snapshot of the first.
    let (mut one, mut two) = (server.client(), server.client());
    let other = std::thread::spawn(move || receive(&mut two));
    let bytes = receive(&mut one);
    assert!(bytes.starts_with(b"REDIS0010"));
    assert_eq!(other.join().expect("no panic").len(), bytes.len());
    assert_eq!(client.call(&["LASTSAVE"]), saved, "no save");
    assert_eq!(folder.files().len(), 0, "nothing is left");
    std::fs::write(folder.path().join("copy.rdb"), &bytes).expect("room");
    let copy = loaded(&folder, "copy.rdb");
    let mut reader = copy.client();
    assert_eq!(reader.call(&["DEBUG", "DIGEST"]), digest);
    assert_eq!(reader.call(&["FCALL", "seven", "0"]), Value::Int(7));
}

/// Clients of two threads that ask at the same moment: one begins a snapshot, the others wait for it, and none is refused.
#[test]
fn those_that_ask_at_the_same_moment_all_get_a_copy() {
    let folder = Folder::new("copies-moment");
    let server = start(&folder, &["--threads", "2"]);
    assert_eq!(server.client().call(&["DEBUG", "POPULATE", "200", "key", "50"]), Value::ok());
    for _ in 0..6 {
        let clients: Vec<Client> = (0..2).map(|_| server.client()).collect();
        let moment = Arc::new(Barrier::new(clients.len()));
        let threads: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                let moment = moment.clone();
                std::thread::spawn(move || {
                    moment.wait();
                    receive(&mut client).len()
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| assert!(thread.join().expect("no panic") > 200));
    }
}

/// A client that asks and reads nothing holds up nobody, and a copy is a point in time.
#[test]
fn a_copy_is_of_one_moment_and_a_slow_reader_stops_nobody() {
    let folder = Folder::new("copies-slow");
    let server = start(&folder, &[]);
    let mut client = server.client();
    // Texts that do not compress, more than sockets hold.
    assert_eq!(client.call(&["DEBUG", "POPULATE", "60000", "fill", "1000"]), Value::ok());
    let mut slow = server.client();
    assert_eq!(slow.call(&["REPLCONF", "rdb-only", "1"]), Value::ok());
    slow.stream().write_all(b"SYNC\r\n").expect("sent");
    let (ends, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (mut writer, is_over, count) = (server.client(), ends.clone(), pairs.clone());
    let writing = std::thread::spawn(move || {
        while !is_over.load(Relaxed) {
            let n = count.load(Relaxed).to_string();
            writer.send_all(&[&["MULTI"], &["SET", "a", &n], &["SET", "b", &n], &["EXEC"]]);
            (0..4).for_each(|_| drop(writer.read()));
            count.fetch_add(1, Relaxed);
        }
    });
    wait_until("it writes beside the slow one", || pairs.load(Relaxed) > 100);
    let bytes = receive(&mut server.client());
    ends.store(true, Relaxed);
    writing.join().expect("no panic");
    std::fs::write(folder.path().join("copy.rdb"), &bytes).expect("room");
    let copy = loaded(&folder, "copy.rdb");
    let mut reader = copy.client();
    let a = reader.call(&["GET", "a"]);
    assert!(a != Value::Null && a == reader.call(&["GET", "b"]), "{a:?}");
    // What waits for the slow one is bounded.
    let Value::Text(list) = client.call(&["CLIENT", "LIST"]) else { panic!("no text") };
    let largest =
        list.split_whitespace().filter_map(|word| word.strip_prefix("omem=")?.parse::<u64>().ok()).max();
    assert!(largest.is_some_and(|bytes| bytes < 8 << 20), "{list}");
}

#[test]
fn options_of_replicas_and_copies_are_checked() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let error = |text: &str| Value::Error(text.to_owned());
    assert_eq!(client.call(&["REPLCONF", "capa", "eof", "capa", "psync2"]), Value::ok());
    assert_eq!(
        client.call(&["REPLCONF", "rdb-only", "x"]),
        error("ERR value is not an integer or out of range")
    );
    assert_eq!(client.call(&["REPLCONF", "rdb-only"]), error("ERR syntax error"));
    assert_eq!(client.call(&["REPLCONF", "listening-port", "1"]), Value::ok());
    assert_eq!(
        client.call(&["REPLCONF", "listening-post", "1"]),
        error("ERR Unrecognized REPLCONF option: listening-post")
    );
    assert_eq!(
        client.call(&["REPLCONF", "rdb-filter-only", "keys"]),
        error("ERR Unsupported rdb-filter-only option: keys")
    );
    assert_eq!(client.call(&["REPLCONF", "rdb-only", "1"]), Value::ok());
    assert_eq!(client.call(&["MULTI"]), Value::ok());
    assert_eq!(client.call(&["SYNC"]), error("ERR Command not allowed inside a transaction"));
}

#[test]
fn a_copy_of_the_functions_has_no_keys() {
    let folder = Folder::new("copies-functions");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client, 100);
    for (words, functions) in [("functions", 1), ("", 0)] {
        assert_eq!(client.call(&["REPLCONF", "rdb-only", "1", "rdb-filter-only", words]), Value::ok());
        let bytes = receive(&mut client);
        std::fs::write(folder.path().join("copy.rdb"), &bytes).expect("room");
        let copy = loaded(&folder, "copy.rdb");
        assert_eq!(copy.client().call(&["DBSIZE"]), Value::Int(0));
        let Value::Array(libraries) = copy.client().call(&["FUNCTION", "LIST"]) else { panic!("no list") };
        assert_eq!(libraries.len(), functions);
        client = server.client();
    }
}

/// Runs a program of Redis; `None` where there is none.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    Command::new(program).args(args).output().ok()
}

#[test]
fn redis_cli_makes_a_backup() {
    let folder = Folder::new("copies-cli");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client, 5000);
    let port = server.port().to_string();
    let file = folder.path().join("backup.rdb");
    let path = file.to_str().expect("a text");
    let Some(done) = run("redis-cli", &["-p", &port, "--rdb", path]) else { return };
    assert!(done.status.success(), "{done:?}");
    if let Some(checked) = run("redis-check-rdb", &[path]) {
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(said.contains("RDB looks OK") && said.contains("5002 keys read"), "{said}");
    }
    let copy = loaded(&folder, "backup.rdb");
    assert_eq!(copy.client().call(&["DEBUG", "DIGEST"]), client.call(&["DEBUG", "DIGEST"]));
    let Some(done) = run("redis-cli", &["-p", &port, "--functions-rdb", path]) else { return };
    assert!(done.status.success(), "{done:?}");
    let copy = loaded(&folder, "backup.rdb");
    assert_eq!(copy.client().call(&["FCALL", "seven", "0"]), Value::Int(7));
    assert_eq!(copy.client().call(&["DBSIZE"]), Value::Int(0));
}

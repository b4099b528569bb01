//! Two more ways in: a client that waited and is served, and commands of memcached that stand for one of Redis.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use darter_command::Flags;

use crate::connection::Connection;
use crate::harness::journal::Dir;
use crate::harness::{PATIENCE, wait_until};
use crate::reply::Reply;

use super::observers::ask;
use super::{Hits, Stage};

/// A command that waits: what is there before, itself, and what ends the wait.
const WAITS: &[(&str, &str, &str)] = &[
    ("", "BLPOP k1 k0 0", "RPUSH k0 a b"),
    ("", "BRPOP k0 k1 0", "RPUSH k0 a b"),
    ("", "BLPOP k0 0", "RPUSH k0 a"),
    ("", "BLMOVE k0 k1 LEFT RIGHT 0", "RPUSH k0 a b"),
    ("RPUSH k1 z", "BLMOVE k0 k1 RIGHT LEFT 0", "RPUSH k0 a"),
    ("", "BRPOPLPUSH k0 k1 0", "LPUSH k0 a b"),
    ("", "BRPOPLPUSH k0 k0 0", "LPUSH k0 a b"),
    ("", "BLMOVEM k0 k1 LEFT RIGHT 0 COUNT 2 OBO", "RPUSH k0 a b c"),
    ("", "BLMPOP 0 2 k1 k0 LEFT COUNT 2", "RPUSH k0 a b c"),
    ("", "BZPOPMIN k0 0", "ZADD k0 1 a 2 b"),
    ("", "BZPOPMAX k1 k0 0", "ZADD k0 1 a 2 b"),
    ("", "BZMPOP 0 1 k0 MAX COUNT 2", "ZADD k0 1 a 2 b"),
    ("", "XREAD BLOCK 0 STREAMS k0 k1 0 0", "XADD k0 1-1 f v"),
    ("TS.CREATE k0", "TS.READ k0 0 BLOCK 0 1", "TS.ADD k0 10 1"),
    ("XGROUP CREATE k0 g 0 MKSTREAM", "XREADGROUP GROUP g c BLOCK 0 STREAMS k0 >", "XADD k0 1-1 f v"),
    ("XGROUP CREATE k0 g 0 MKSTREAM", "XREADGROUP GROUP g c BLOCK 0 NOACK STREAMS k0 >", "XADD k0 1-1 f v"),
];

/// Rows whose name is in no line above, and why.
const NEVER_SERVED: &[&str] = &[];

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// What a wait and what ends it lead to; `waits` says whether it waits or comes second.
fn wait(stage: &mut Stage, (before, waiting, ending): (&str, &str, &str), waits: bool) -> Vec<String> {
    let mut waiter = Connection::open(stage.address()).expect("a connection");
    stage.observers.begin();
    if !before.is_empty() {
        ask(&mut stage.client, &words(before));
    }
    stage.observers.look();
    let sent: Vec<Vec<u8>> = words(waiting).iter().map(|word| word.as_bytes().to_vec()).collect();
    let send = |waiter: &mut Connection| waiter.send([sent.as_slice()].into_iter()).expect("sent");
    if waits {
        send(&mut waiter);
        let mut admin = stage.server.client();
        wait_until("it waits", || admin.info::<u64>("clients", "blocked_clients") == 1);
    }
    let ended = ask(&mut stage.client, &words(ending));
    if !waits {
        send(&mut waiter);
    }
    let reply: Reply = waiter.next().expect("a reply");
    let mut lines = vec![ended.to_string(), reply.to_string()];
    // A command that finds nothing, and so waits, has missed its key; a replica is told which key was popped if the command
    // has waited, else where to look.
    const OTHERS: [&str; 3] = ["keyspace_", "misses: ", "replica: "];
    let is_compared = |line: &String| !OTHERS.iter().any(|other| line.starts_with(other));
    lines.extend(stage.observers.seen().into_iter().filter(is_compared));
    lines.extend(stage.observers.end().into_iter().filter(is_compared));
    lines
}

#[test]
fn a_client_that_is_served_gets_and_does_what_one_does_that_need_not_wait() {
    let rows = darter_command::FAMILIES.iter().flat_map(|family| family.iter());
    for row in rows.filter(|row| row.spec.flags.any(Flags::BLOCKING)) {
        let name = row.spec.name.to_ascii_uppercase();
        let is_there = WAITS.iter().any(|(_, waiting, _)| words(waiting)[0] == name);
        assert!(is_there || NEVER_SERVED.contains(&row.spec.name), "{name} is not served here");
    }
    let dir = Dir::new("equivalence-waiters");
    let mut stage = Stage::new(&dir, Hits::Compared);
    for case in WAITS {
        let (at_once, served) = (wait(&mut stage, *case, false), wait(&mut stage, *case, true));
        assert_eq!(at_once, served, "{case:?}");
    }
}

/// Lines of memcached, the reply, and the commands of Redis that do the same.
const TEXTS: &[(&str, &str, &[&str])] = &[
    ("set k0 0 0 1\r\na\r\n", "STORED", &["SET k0 a"]),
    ("get k0\r\n", "VALUE k0 0 1", &["GET k0"]),
    ("get k1\r\n", "END", &["GET k1"]),
    ("append k0 0 0 1\r\nb\r\n", "STORED", &["APPEND k0 b"]),
    ("prepend k0 0 0 1\r\nc\r\n", "STORED", &["PREPEND k0 c"]),
    ("append k1 0 0 1\r\nb\r\n", "NOT_STORED", &[]),
    ("add k1 0 0 1\r\n7\r\n", "STORED", &["SET k1 7 NX"]),
    ("add k1 0 0 1\r\n8\r\n", "NOT_STORED", &["SET k1 8 NX"]),
    ("replace k2 0 0 1\r\n8\r\n", "NOT_STORED", &["SET k2 8 XX"]),
    ("replace k1 0 0 1\r\n8\r\n", "STORED", &["SET k1 8 XX"]),
    ("incr k1 5\r\n", "13", &["INCRBY k1 5"]),
    ("decr k1 3\r\n", "10", &["INCRBY k1 -3"]),
    ("get k0 k1 k2\r\n", "VALUE k0 0 3", &["MGET k0 k1 k2"]),
    ("touch k1 1000\r\n", "TOUCHED", &["EXPIRE k1 1000"]),
    ("gat 2000 k0\r\n", "VALUE k0 0 3", &["GETEX k0 EX 2000"]),
    ("delete k0\r\n", "DELETED", &["DEL k0"]),
    ("delete k0\r\n", "NOT_FOUND", &["DEL k0"]),
    ("set k3 0 1000 2\r\nab\r\n", "STORED", &["SET k3 ab EX 1000"]),
    ("mg k3 v\r\n", "VA 2", &["GET k3"]),
    ("ms k4 1\r\nx\r\n", "HD", &["SET k4 x"]),
    ("md k4\r\n", "HD", &["DEL k4"]),
];

#[test]
fn commands_of_memcached_do_what_those_do_that_they_stand_for() {
    let dir = Dir::new("equivalence-memcached");
    let mut stage = Stage::new(&dir, Hits::Compared);
    let mut socket = TcpStream::connect(("127.0.0.1", stage.server.port())).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.write_all(b"version\r\n").expect("sent");
    let mut memcached = BufReader::new(socket);
    let read_line = |memcached: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        memcached.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    read_line(&mut memcached);
    let mut runs = [Vec::new(), Vec::new()];
    for (at, lines) in runs.iter_mut().enumerate() {
        stage.observers.begin();
        for (text, answer, commands) in TEXTS {
            stage.observers.look();
            if at == 0 {
                memcached.get_mut().write_all(text.as_bytes()).expect("sent");
                let line = read_line(&mut memcached);
                assert!(line.starts_with(answer), "{text:?}: {line}");
                let is_list = text.starts_with("get") || text.starts_with("gat");
                while is_list && line != "END" && read_line(&mut memcached) != "END" {}
                if text.starts_with("mg") {
                    read_line(&mut memcached);
                }
            } else {
                commands.iter().for_each(|command| drop(ask(&mut stage.client, &words(command))));
            }
            lines.push(text.trim_end().to_owned());
            lines.extend(stage.observers.seen());
        }
        // What stands for a command that is not sent is counted as it; a replica gets values in other words.
        let is_compared = |line: &String| line.contains(" = ") || line.starts_with("keyspace_");
        lines.extend(stage.observers.end().into_iter().filter(is_compared));
    }
    let [left, right] = runs;
    assert_eq!(left, right);
}

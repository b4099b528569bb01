//! Slots that move key by key while clients write: no acknowledged write is lost or made twice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use darter_base::rng::Rng;

use crate::harness::raw::memcached;
use crate::harness::{Client, Value};
use crate::stored::{ClusterClient, StoredNodes, text};

fn run(client: &mut Client, line: &str) -> Value {
    client.call(&line.split(' ').collect::<Vec<_>>())
}

/// Begins the move of slot 5061, that of `{bar}`, from node 0 to node 1.
fn open(nodes: &StoredNodes) {
    nodes.change(1, &format!("CLUSTER SETSLOT 5061 IMPORTING {}", nodes.id(0)));
    nodes.change(0, &format!("CLUSTER SETSLOT 5061 MIGRATING {}", nodes.id(1)));
}

fn migrate(nodes: &StoredNodes, keys: &[&str]) -> Value {
    let port = nodes.servers[1].port().to_string();
    let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "KEYS"];
    nodes.client(0).call(&[&head[..], keys].concat())
}

#[test]
fn clients_are_asked_on_for_keys_that_have_left() {
    let Some(nodes) = StoredNodes::create("ask", 3) else { return };
    let (mut source, mut target) = (nodes.client(0), nodes.client(1));
    assert_eq!(run(&mut source, "MSET {bar}1 1 {bar}2 2 {bar}3 3"), Value::ok());
    open(&nodes);
    let lines = [text(run(&mut source, "CLUSTER NODES")), text(run(&mut target, "CLUSTER NODES"))];
    assert!(lines[0].contains(&format!(" [5061->-{}]", nodes.id(1))), "{}", lines[0]);
    assert!(lines[1].contains(&format!(" [5061-<-{}]", nodes.id(0))), "{}", lines[1]);
    assert_eq!(migrate(&nodes, &["{bar}1", "{bar}9"]), Value::ok());
    assert_eq!(migrate(&nodes, &["{bar}9"]), Value::Status("NOKEY".to_owned()));
    let ask = format!("ASK 5061 {}", nodes.address(1));
    let moved = format!("MOVED 5061 {}", nodes.address(0));
    let again = "TRYAGAIN Multiple keys request during rehashing of slot";
    for (line, said) in [
        ("GET {bar}1", ask.as_str()),
        ("SET {bar}1 5", &ask),
        ("SET {bar}new 5", &ask),
        ("MGET {bar}1 {bar}8", &ask),
        ("MGET {bar}1 {bar}2", again),
        ("MSET {bar}2 1 {bar}new 1", again),
        ("RENAME {bar}2 {bar}new", again),
        ("EVAL return(1) 1 {bar}1", &ask),
        ("EVAL return(1) 2 {bar}1 {bar}2", again),
        ("BLPOP {bar}1 0", &ask),
        ("SUNIONSTORE {bar}x {bar}y", &ask),
    ] {
        assert_eq!(text(run(&mut source, line)), said, "{line}");
    }
    assert_eq!(run(&mut source, "MGET {bar}2 {bar}3"), Value::array(&["2", "3"]));
    for line in ["MULTI", "GET {bar}2", "SET {bar}1 7"] {
        run(&mut source, line);
    }
    assert_eq!(text(run(&mut source, "EXEC")), again);
    for line in ["MULTI", "SET {bar}1 7"] {
        run(&mut source, line);
    }
    assert_eq!(text(run(&mut source, "EXEC")), ask);
    let script = ["EVAL", "return redis.pcall('set', '{bar}1', 'x').err", "0"];
    assert_eq!(
        text(source.call(&script)),
        "ERR Script attempted to access a non local key in a cluster node"
    );

    assert_eq!(text(run(&mut target, "GET {bar}1")), moved);
    let mut asked = |line: &str| {
        assert_eq!(run(&mut target, "ASKING"), Value::ok());
        run(&mut target, line)
    };
    assert_eq!(asked("GET {bar}1"), Value::Text("1".to_owned()));
    assert_eq!(asked("SET {bar}1 5"), Value::ok());
    assert_eq!(asked("SET {bar}new 6"), Value::ok());
    assert_eq!(text(asked("MGET {bar}1 {bar}2")), again);
    assert_eq!(asked("MGET {bar}1 {bar}new"), Value::array(&["5", "6"]));
    assert_eq!(text(asked("GET foo")), format!("MOVED 12182 {}", nodes.address(2)));
    assert_eq!(text(run(&mut target, "GET {bar}1")), moved, "ASKING is for one command");
    // A pipeline of the short way goes the same way as single commands.
    let gets: Vec<[&str; 2]> = (0..64).map(|n| ["GET", ["{bar}1", "{bar}2"][n % 2]]).collect();
    source.send_all(&gets.iter().map(<[&str; 2]>::as_slice).collect::<Vec<_>>());
    for get in gets {
        let said = source.read();
        let wanted = if get[1] == "{bar}1" { Value::Error(ask.clone()) } else { Value::Text("2".to_owned()) };
        assert_eq!(said, wanted);
    }
    let give = format!("CLUSTER SETSLOT 5061 NODE {}", nodes.id(1));
    assert!(text(run(&mut source, &give)).starts_with("ERR Can't assign hashslot 5061"));
    assert_eq!(migrate(&nodes, &["{bar}2", "{bar}3"]), Value::ok());
    // Any node may be asked: the owner gives the slot away.
    nodes.change(2, &give);
    assert_eq!(text(run(&mut nodes.client(2), "GET {bar}1")), format!("MOVED 5061 {}", nodes.address(1)));
    nodes.settle();
    assert_eq!(run(&mut target, "MGET {bar}1 {bar}2 {bar}3 {bar}new"), Value::array(&["5", "2", "3", "6"]));
    assert_eq!(run(&mut source, "DBSIZE"), Value::Int(0));
}

#[test]
fn what_memcached_has_stored_and_the_sticky_mark_go_along() {
    let Some(nodes) = StoredNodes::create("marked", 3) else { return };
    let set = "set {bar}flagged 77 0 1\r\nx\r\n";
    assert_eq!(memcached(nodes.servers[0].port(), set, "\r\n"), "STORED\r\n");
    let gets = "gets {bar}flagged\r\n";
    let before = memcached(nodes.servers[0].port(), gets, "END\r\n");
    assert_eq!(run(&mut nodes.client(0), "SET {bar}kept 1"), Value::ok());
    assert_eq!(run(&mut nodes.client(0), "STICK {bar}kept"), Value::Int(1));
    open(&nodes);
    assert_eq!(migrate(&nodes, &["{bar}flagged", "{bar}kept"]), Value::ok());
    nodes.change(0, &format!("CLUSTER SETSLOT 5061 NODE {}", nodes.id(1)));
    nodes.settle();
    assert_eq!(memcached(nodes.servers[1].port(), gets, "END\r\n"), before);
    assert_eq!(run(&mut nodes.client(1), "STICK {bar}kept"), Value::Int(0), "it is still sticky");
}

/// A client that writes until the test ends, and knows the value that each key must have.
pub fn write_and_check(port: u16, who: u64, stop: &AtomicBool, written: &AtomicU64) {
    let mut rng = Rng::new(who);
    let mut client = ClusterClient::new(port);
    let mut counts = vec![0i64; 120];
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) || rounds < 200 {
        rounds += 1;
        let at = rng.below(counts.len() as u64) as usize;
        let tag = format!("{{{who}:{}}}", at / 2);
        let key = |at: usize| format!("{tag}:{}", at % 2);
        let (own, other) = (key(at), key(at ^ 1));
        match rng.below(10) {
            0 => {
                let was = i64::from(counts[at] > 0);
                assert_eq!(client.call(&tag, &["DEL", &own]), Value::Int(was), "{own}");
                counts[at] = 0;
            }
            1 => {
                let next = [counts[at] + 1, counts[at ^ 1] + 1];
                let answer = client.run(&tag, &[&["INCR", &own], &["INCR", &other]]);
                assert_eq!(
                    answer,
                    Value::Array(next.iter().map(|n| Value::Int(*n)).collect()),
                    "{own} {other}"
                );
                (counts[at], counts[at ^ 1]) = (next[0], next[1]);
            }
            2 => {
                let wanted = |at: usize| match counts[at] {
                    0 => Value::Null,
                    n => Value::Text(n.to_string()),
                };
                let answer = client.call(&tag, &["MGET", &own, &other]);
                assert_eq!(answer, Value::Array(vec![wanted(at), wanted(at ^ 1)]), "{own} {other}");
            }
            _ => {
                counts[at] += 1;
                assert_eq!(client.call(&tag, &["INCR", &own]), Value::Int(counts[at]), "{own}");
            }
        }
        written.fetch_add(1, Ordering::Relaxed);
    }
    for (at, count) in counts.iter().enumerate() {
        let tag = format!("{{{who}:{}}}", at / 2);
        let key = format!("{tag}:{}", at % 2);
        let wanted = if *count == 0 { Value::Null } else { Value::Text(count.to_string()) };
        assert_eq!(client.call(&tag, &["GET", &key]), wanted, "{key}");
    }
}

/// Stops the writers, also when a move fails.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_write_is_lost_or_made_twice_while_slots_move() {
    let Some(nodes) = StoredNodes::create("load", 3) else { return };
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|who| {
                let (port, stop, written) = (nodes.servers[who as usize % 3].port(), &stop, &written);
                scope.spawn(move || write_and_check(port, who, stop, written))
            })
            .collect();
        let _guard = StopOnDrop(&stop);
        // The slots of the writers' keys go round, key by key, a few keys at a time; more by DARTER_SLOT_MOVES=n.
        let rounds = std::env::var("DARTER_SLOT_MOVES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
        let mut slots: Vec<u16> = Vec::new();
        for who in 0..4 {
            for pair in 0..60 {
                slots.push(darter_base::crc::key_slot(format!("{{{who}:{pair}}}").as_bytes()));
            }
        }
        for (round, slot) in slots.iter().cycle().take(rounds).enumerate() {
            if writers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            move_slot(&nodes, *slot, round);
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("every write is there once");
        }
    });
    nodes.settle();
    let redirects =
        |name: &str| -> u64 { (0..3).map(|at| nodes.client(at).info::<u64>("cluster", name)).sum() };
    assert!(redirects("cluster_redirects_moved") > 0);
    assert!(written.load(Ordering::Relaxed) > 500);
}

/// Moves a slot from its owner to the next node as `redis-cli --cluster reshard` does.
fn move_slot(nodes: &StoredNodes, slot: u16, round: usize) {
    let name = slot.to_string();
    let ids: Vec<String> = (0..3).map(|at| nodes.id(at)).collect();
    let lines = text(nodes.client(round % 3).call(&["CLUSTER", "NODES"]));
    let owns = |line: &str| {
        line.split(' ').skip(8).filter(|word| !word.starts_with('[')).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (first.parse::<u16>().expect("a slot")..=last.parse().expect("a slot")).contains(&slot)
        })
    };
    let owner = lines.lines().find(|line| owns(line)).expect("an owner");
    let from = ids.iter().position(|id| owner.starts_with(id.as_str())).expect("a node");
    let to = (from + 1 + round % 2) % 3;
    let set = |at: usize, what: &str, id: &str| {
        assert_eq!(nodes.change(at, &format!("CLUSTER SETSLOT {name} {what} {id}")), Value::ok());
    };
    set(to, "IMPORTING", &ids[from]);
    set(from, "MIGRATING", &ids[to]);
    let port = nodes.servers[to].port().to_string();
    loop {
        let Value::Array(keys) = nodes.client(from).call(&["CLUSTER", "GETKEYSINSLOT", &name, "2"]) else {
            panic!("no keys")
        };
        if keys.is_empty() {
            break;
        }
        let keys: Vec<String> = keys.into_iter().map(text).collect();
        let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "REPLACE", "KEYS"];
        let words: Vec<&str> = head.into_iter().chain(keys.iter().map(String::as_str)).collect();
        let said = nodes.client(from).call(&words);
        assert!(matches!(said, Value::Status(_)), "{said:?}");
    }
    for at in [to, from, 3 - to - from] {
        set(at, "NODE", &ids[to]);
    }
}

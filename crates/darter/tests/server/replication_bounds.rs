//! What a master keeps for replicas that do not take it: no more than it was told to.

use crate::harness::wait_until;
use crate::nodes::{Node, catch_up, follow, signal};

/// Resident bytes of a process.
fn resident_bytes(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Bytes of a value, and how many keys have one.
const VALUE_BYTES: usize = 64 << 10;
const KEYS: usize = 32;
/// Values written in all: 256 MiB.
const VALUES: usize = 4096;
/// What may wait for a replica, and what else a master may need: changes that are made ready (64 MiB, `QUEUE_BYTES_MAX`
/// and what is taken from it), and what the allocator holds.
const LIMIT: &str = "replica 16mb 0 0";
const ROOM_BYTES: usize = (16 + 64 + 64) << 20;

#[test]
fn a_replica_that_stands_still_is_dropped_and_costs_no_more_than_its_limit() {
    let (master, replica) = (Node::ours(&["--repl-backlog-size", "1mb"]), Node::ours(&[]));
    let (mut from, mut to) = (master.client(), replica.client());
    from.call(&["CONFIG", "SET", "client-output-buffer-limit", LIMIT]);
    let value = "v".repeat(VALUE_BYTES);
    let mut write = |count: usize| {
        for first in (0..count).step_by(16) {
            let keys: Vec<String> = (first..first + 16).map(|n| format!("k{}", n % KEYS)).collect();
            let commands: Vec<Vec<&str>> =
                keys.iter().map(|key| vec!["SET", key.as_str(), value.as_str()]).collect();
            let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
            from.send_all(&commands);
            commands.iter().for_each(|_| assert_eq!(from.read(), crate::harness::Value::ok()));
        }
        resident_bytes(master.pid())
    };
    write(KEYS * 4);
    follow(&mut to, master.port());
    let before = write(KEYS * 4);
    signal(replica.pid(), "STOP");
    let mut most = before;
    for _ in 0..8 {
        most = most.max(write(VALUES / 8));
    }
    let gained = most.saturating_sub(before);
    assert!(gained < ROOM_BYTES, "{} MiB more", gained >> 20);
    wait_until("it is dropped", || from.info::<u64>("stats", "sync_dropped_slow") == 1);
    assert_eq!(from.info::<u64>("stats", "sync_streams_lost"), 0);
    let full = from.info::<u64>("stats", "sync_full");
    signal(replica.pid(), "CONT");
    from.call(&["SET", "last", "1"]);
    wait_until("it comes back", || from.info::<u64>("stats", "sync_full") > full);
    catch_up(&mut from, &mut to);
    assert_eq!(from.call(&["DBSIZE"]), to.call(&["DBSIZE"]));
    assert_eq!(from.call(&["GET", "k3"]), to.call(&["GET", "k3"]));
}

#[test]
fn a_replica_that_is_silent_is_dropped_and_counted() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    signal(replica.pid(), "STOP");
    from.call(&["CONFIG", "SET", "repl-timeout", "1"]);
    wait_until("it is dropped", || from.info::<u64>("stats", "sync_dropped_silent") == 1);
    from.call(&["CONFIG", "SET", "repl-timeout", "60"]);
    signal(replica.pid(), "CONT");
    catch_up(&mut from, &mut to);
}

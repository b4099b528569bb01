//! Groups whose acknowledgements are of disks (`replica_ack disk`): what was answered is there after all members were lost,
//! and no member acknowledges what its disk has not got.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::groups::{Group, MEMBERS, connect};
use crate::harness::strace::{SYNC_CALLS, Strace};
use crate::harness::{Client, PATIENCE, Server, Value, free_port, wait_until};
use crate::nodes::field;

const DISK: [&str; 8] =
    ["--min_replicas_to_ack", "1", "--replica_ack", "disk", "--appendonly", "yes", "--appendfsync", "always"];

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn get(client: &mut Client, key: &str) -> Value {
    let mut answer = Value::Null;
    wait_until("the leader serves", || {
        answer = client.call(&["GET", key]);
        !matches!(answer, Value::Error(_))
    });
    answer
}

/// Writers that count up, each its own key, until a member is gone; returns the last number of each that was answered.
fn write_until_killed(
    group: &mut Group,
    leader: usize,
    round: u64,
    kill: impl FnOnce(&mut Group),
) -> Vec<u64> {
    let (answered, last) = (AtomicU64::new(0), Mutex::new(vec![0; 4]));
    let clients: Vec<Client> = (0..4).map(|_| group.client(leader).expect("the leader")).collect();
    std::thread::scope(|scope| {
        for (n, mut client) in clients.into_iter().enumerate() {
            let (answered, last) = (&answered, &last);
            scope.spawn(move || {
                for value in round * 1_000_000 + 1.. {
                    let (key, value_text) = (format!("writer-{n}"), value.to_string());
                    if client.try_call(&["SET", &key, &value_text]) != Some(Value::ok()) {
                        return;
                    }
                    last.lock().expect("no panic")[n] = value;
                    answered.fetch_add(1, Relaxed);
                }
            });
        }
        // A disk that others use syncs a few times a second.
        wait_until("some are answered", || answered.load(Relaxed) > 12);
        kill(group);
    });
    last.into_inner().expect("no panic")
}

/// What was answered is there, or what the same writer has sent since.
fn is_kept(client: &mut Client, last: &[u64]) {
    for (n, value) in last.iter().enumerate() {
        let Value::Text(found) = get(client, &format!("writer-{n}")) else { panic!("writer-{n} is lost") };
        let found: u64 = found.parse().expect("a number");
        assert!(
            found == *value || found == value + 1,
            "writer {n} was answered {value}, and there is {found}"
        );
    }
}

#[test]
fn any_member_alone_has_what_was_answered_before_all_were_killed() {
    // One that is dropped, as its disk is slow for a moment, rightly does not lead.
    let patient = ["--replica_ack_timeout_ms", "60000", "--ha_lease_ms", "8000"];
    let mut group = Group::start("disk", &[&DISK[..], &patient].concat());
    for round in 1..4 {
        let leader = group.settled(MEMBERS);
        let last = write_until_killed(&mut group, leader, round, |group| {
            (0..MEMBERS).map(|at| (leader + at) % MEMBERS).for_each(|at| group.kill(at));
        });
        // One that was no leader: whatever it had not applied is in its journal.
        let alone = (leader + round as usize) % MEMBERS;
        group.begin(alone);
        wait_until("it leads alone", || group.leader() == Some(alone));
        is_kept(&mut group.client(alone).expect("the leader"), &last);
        (0..MEMBERS).filter(|at| *at != alone).for_each(|at| group.begin(at));
        assert_eq!(group.writable(), alone);
        is_kept(&mut group.client(alone).expect("the leader"), &last);
    }
}

#[test]
fn what_waits_in_a_member_outlives_a_new_base() {
    let holding = ["--replica_ack_timeout_ms", "60000", "--ha_lease_ms", "8000"];
    let flags: Vec<&str> = DISK.iter().chain(&holding).copied().collect();
    let mut group = Group::start("disk-base", &flags);
    let leader = group.settled(MEMBERS);
    let (stopped, kept) = ((leader + 1) % MEMBERS, (leader + 2) % MEMBERS);
    let mut client = group.client(leader).expect("the leader");
    assert_eq!(client.call(&["SET", "a", "1"]), Value::ok());
    let mut other = group.client(kept).expect("a member");
    wait_until("it has applied that", || get(&mut other, "a") == text("1"));
    group.signal(stopped, "STOP");
    // The other member notes it, and applies nothing that is not committed. What it notes late of the first is shorter.
    let (noted, long) = (journal_bytes(&mut other), "2".repeat(100_000));
    client.send_all(&[&["SET", "a", &long]]);
    wait_until("the member has noted it", || journal_bytes(&mut other) > noted + 50_000);
    assert_eq!(get(&mut other, "a"), text("1"));
    let bases = |client: &mut Client| client.info::<u64>("persistence", "aof_rewrites");
    let before = bases(&mut other);
    wait_until("a base is begun", || !matches!(other.call(&["BGREWRITEAOF"]), Value::Error(_)));
    wait_until("it is there", || {
        bases(&mut other) > before && field_of(&mut other, "aof_rewrite_in_progress") == "0"
    });
    (0..MEMBERS).for_each(|at| group.kill(at));
    group.begin(kept);
    wait_until("it leads alone", || group.leader() == Some(kept));
    assert_eq!(get(&mut group.client(kept).expect("the leader"), "a"), text(&long));
}

fn journal_bytes(client: &mut Client) -> u64 {
    client.info("persistence", "aof_current_size")
}

fn field_of(client: &mut Client, name: &str) -> String {
    client.info("persistence", name)
}

#[test]
fn nothing_is_acknowledged_before_it_is_on_the_disk_of_the_member() {
    let holding = ["--replica_ack_timeout_ms", "60000", "--ha_lease_ms", "30000"];
    let flags: Vec<&str> = DISK.iter().chain(&holding).copied().collect();
    let group = Group::start("disk-slow", &flags);
    let leader = group.settled(MEMBERS);
    // Several syncs are waited for, one after the other perhaps.
    let mut client = connect(group.members[leader].port, PATIENCE).expect("the leader");
    assert_eq!(client.call(&["SET", "a", "1"]), Value::ok());
    let delay = Duration::from_millis(1500);
    let slow = group.pid((leader + 1) % MEMBERS);
    let Some(strace) = Strace::attach(slow, SYNC_CALLS, delay.as_micros() as u32) else { return };
    let began = Instant::now();
    assert_eq!(client.call(&["SET", "a", "2"]), Value::ok());
    assert!(
        began.elapsed() >= delay,
        "answered after {:?}, before the disk of a member had it",
        began.elapsed()
    );
    drop(strace);
}

#[test]
fn disks_need_a_journal_that_syncs_each_answer() {
    let port = free_port().to_string();
    let group =
        ["--ha_store", "etcd://127.0.0.1:1", "--replica_ack", "disk", "--bind", "127.0.0.1", "--port", &port];
    let more: [(&[&str], &str); 3] = [
        (&[], "replica_ack disk needs appendonly yes"),
        (&["--appendonly", "yes"], "replica_ack disk needs appendfsync always"),
        (&["--appendonly", "yes", "--appendfsync", "always"], "replica_ack disk needs min_replicas_to_ack 1"),
    ];
    for (flags, why) in more {
        let dir = crate::harness::folder::Folder::new("disk-refused");
        let dir = dir.path().to_string_lossy().into_owned();
        let started = std::process::Command::new(env!("CARGO_BIN_EXE_darter"))
            .args(group.iter().chain(flags).chain(&["--dir", &dir]))
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&started.stdout) + String::from_utf8_lossy(&started.stderr);
        assert!(!started.status.success() && said.contains(why), "{said}");
    }
    // Without a group there is nothing to acknowledge.
    drop(Server::start(&["--replica_ack", "disk"]));
}

#[test]
fn a_member_that_acknowledges_disks_keeps_its_journal_and_says_so() {
    let steady = ["--replica_ack_timeout_ms", "60000", "--ha_lease_ms", "12000"];
    let group = Group::start("disk-kept", &[&DISK[..], &steady].concat());
    let leader = group.settled(MEMBERS);
    let mut client = group.client(leader).expect("the leader");
    for (name, value) in [("appendonly", "no"), ("appendfsync", "everysec")] {
        let refused = client.call(&["CONFIG", "SET", name, value]);
        assert!(
            matches!(&refused, Value::Error(line) if line.contains("replica_ack disk needs")),
            "{refused:?}"
        );
    }
    wait_until("it says so", || group.field(leader, "replica-ack") == Some(text("disk")));
    assert_eq!(field(&mut client, "replica_ack"), "disk");
}

#[test]
fn a_server_that_acknowledges_memory_is_no_member_of_a_group_of_disks() {
    let patient = ["--replica_ack_timeout_ms", "60000", "--ha_lease_ms", "8000"];
    let mut group = Group::start("disk-and-memory", &[&DISK[..], &patient].concat());
    let leader = group.settled(MEMBERS);
    let other = (leader + 1) % MEMBERS;
    group.kill(other);
    group.begin_with(other, &["--replica_ack", "memory"]);
    let mut client = group.client(leader).expect("the leader");
    assert_eq!(client.call(&["SET", "a", "1"]), Value::ok(), "the third member acknowledges");
    wait_until("it says why it is no member", || group.log(other).contains("it is no member (replica_ack)"));
    let members = |group: &Group| match group.field(leader, "members") {
        Some(Value::Array(all)) => all.len(),
        _ => 0,
    };
    // It follows, and shows what is committed; the leader waits for the third alone.
    let mut follower = group.client(other).expect("it runs");
    wait_until("it follows", || follower.call(&["GET", "a"]) == text("1"));
    assert_eq!(client.call(&["SET", "b", "1"]), Value::ok());
    assert_eq!(members(&group), MEMBERS - 1);
    group.kill(other);
    group.begin(other);
    assert_eq!(group.settled(MEMBERS), leader, "with its disk it is one again");
}

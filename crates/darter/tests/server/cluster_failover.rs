//! A cluster whose masters die: a replica leads the group, the map says so, and what was acknowledged is there.
//!
//! `DARTER_FAULTS_FAILOVER` says how many kills there are, `DARTER_FAULTS_SEED` which, `DARTER_FAULTS_LEASE_MS` for how long a
//! lease lasts: twice the default, as others have the cores, too.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use darter_base::rng::Rng;

use crate::cluster_moves::StopOnDrop;
use crate::harness::{Client, PATIENCE, Value, wait_until};
use crate::stored::{StoredNodes, is_following, text};

/// Three masters with a replica each: node 0 has slot 5061, of `{bar}`.
fn pairs(name: &str, flags: &[&str]) -> Option<StoredNodes> {
    let lease_ms = std::env::var("DARTER_FAULTS_LEASE_MS").unwrap_or_else(|_| "2000".to_owned());
    let nodes = StoredNodes::start_with(name, 6, &[&["--ha_lease_ms", lease_ms.as_str()], flags].concat())?;
    let mut args = vec!["create".to_owned()];
    args.extend((0..6).map(|at| nodes.address(at)));
    args.extend(["--cluster-replicas", "1", "--cluster-yes"].map(str::to_owned));
    nodes.tool(&args.iter().map(String::as_str).collect::<Vec<_>>());
    nodes.settle();
    wait_until("each group has its members", || (0..6).all(|at| members(&nodes, at) == 2));
    Some(nodes)
}

fn field(client: &mut Client, name: &str) -> Option<Value> {
    let Some(Value::Array(items)) = client.try_call(&["DARTER", "GROUP"]) else { return None };
    let at = items.iter().position(|item| *item == Value::Text(name.to_owned()))?;
    items.get(at + 1).cloned()
}

/// How many members a node knows of in its group.
fn members(nodes: &StoredNodes, at: usize) -> usize {
    match field(&mut nodes.client(at), "members") {
        Some(Value::Array(members)) => members.len(),
        _ => 0,
    }
}

/// The node that serves `{bar}`, among those that live.
fn owner(nodes: &StoredNodes) -> Option<usize> {
    (0..nodes.servers.len()).find(|&at| {
        let stream = std::net::TcpStream::connect(("127.0.0.1", nodes.servers[at].port())).ok();
        let said = stream.and_then(|stream| Client::over(stream).try_call(&["EXISTS", "{bar}"]));
        matches!(said, Some(Value::Int(_)))
    })
}

fn wait_for_owner(nodes: &StoredNodes) -> usize {
    let mut found = None;
    wait_until("somebody serves the slot", || {
        found = owner(nodes);
        found.is_some()
    });
    found.expect("there is one")
}

/// Counts up by a key until the end, at whichever node takes it: each increment that was answered is there.
fn count(nodes: &RwLock<StoredNodes>, key: &str, stop: &AtomicBool) -> i64 {
    let (mut acknowledged, mut unknown, mut at) = (0i64, 0i64, 0);
    let began = Instant::now();
    let mut answered = Instant::now();
    while !stop.load(Relaxed) || acknowledged < 20 || unknown > 0 {
        let port = {
            let nodes = nodes.read().expect("nobody has failed");
            nodes.servers[at % nodes.servers.len()].port()
        };
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok();
        let said = stream.and_then(|stream| {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            Client::over(stream).try_call(&["INCR", key])
        });
        assert!(answered.elapsed() < PATIENCE, "nobody has taken a write since {:?}", answered - began);
        match said {
            Some(Value::Int(n)) => {
                let most = acknowledged + unknown + 1;
                assert!(n > acknowledged && n <= most, "{n} of {acknowledged} and {unknown} unknown ones");
                (acknowledged, unknown, answered) = (n, 0, Instant::now());
                continue;
            }
            Some(Value::Error(line)) if line.starts_with("ERR") => panic!("{line}"),
            // Refused: nothing was done.
            Some(Value::Error(_)) => {}
            Some(other) => panic!("{other:?}"),
            // Sent perhaps, and done perhaps.
            None => unknown += 1,
        }
        at += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    acknowledged
}

/// A number that the environment gives.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn nothing_acknowledged_is_lost_when_masters_of_a_cluster_are_killed() {
    let Some(nodes) = pairs("failover", &["--min_replicas_to_ack", "1"]) else { return };
    let (nodes, stop) = (RwLock::new(nodes), AtomicBool::new(false));
    let mut outages = Vec::new();
    std::thread::scope(|scope| {
        let keys = ["{bar}1", "{bar}2", "{bar}3"];
        let writers = keys.map(|key| {
            let (nodes, stop) = (&nodes, &stop);
            scope.spawn(move || count(nodes, key, stop))
        });
        let _guard = StopOnDrop(&stop);
        let mut rng = Rng::new(number("DARTER_FAULTS_SEED", 1));
        for _ in 0..number("DARTER_FAULTS_FAILOVER", 2) {
            if writers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            let at = wait_for_owner(&nodes.read().expect("nobody has failed"));
            wait_until("its replica is a member", || members(&nodes.read().expect("no panic"), at) == 2);
            std::thread::sleep(Duration::from_millis(rng.below(500)));
            let began = Instant::now();
            nodes.write().expect("nobody has failed").servers[at].kill();
            let next = wait_for_owner(&nodes.read().expect("nobody has failed"));
            assert_ne!(next, at);
            outages.push(began.elapsed().as_millis());
            nodes.write().expect("nobody has failed").restart(at);
        }
        stop.store(true, Relaxed);
        for (key, writer) in keys.iter().zip(writers) {
            let counted = writer.join().expect("every increment that was answered is there");
            let nodes = nodes.read().expect("nobody has failed");
            let said = nodes.client(wait_for_owner(&nodes)).call(&["GET", key]);
            assert_eq!(text(said), counted.to_string(), "{key}");
        }
    });
    let nodes = nodes.into_inner().expect("nobody has failed");
    nodes.settle();
    outages.sort_unstable();
    println!("outages, ms: {outages:?}");
}

#[test]
fn a_replica_leads_by_force_and_by_a_takeover() {
    let Some(mut nodes) = pairs("force", &[]) else { return };
    let master = wait_for_owner(&nodes);
    let set = |nodes: &StoredNodes, at: usize, value: &str| {
        wait_until("it takes writes", || nodes.client(at).call(&["SET", "{bar}", value]) == Value::ok());
    };
    set(&nodes, master, "1");
    let id = nodes.id(master);
    let follows = |nodes: &StoredNodes, at: usize| {
        text(nodes.client(at).call(&["CLUSTER", "NODES"]))
            .lines()
            .any(|line| line.contains("myself,slave ") && line.contains(&id))
    };
    let replica = (0..6).find(|&at| follows(&nodes, at)).expect("it has a replica");
    assert_eq!(
        text(nodes.client(master).call(&["CLUSTER", "FAILOVER", "FORCE"])),
        "ERR You should send CLUSTER FAILOVER to a replica"
    );
    assert_eq!(text(nodes.client(replica).call(&["CLUSTER", "FAILOVER", "NOW"])), "ERR syntax error");
    // The master lives: it follows then.
    wait_until("the replica has it", || {
        let mut client = nodes.client(replica);
        client.call(&["READONLY"]);
        client.call(&["GET", "{bar}"]) == Value::Text("1".to_owned())
    });
    assert_eq!(nodes.client(replica).call(&["CLUSTER", "FAILOVER", "FORCE"]), Value::ok());
    set(&nodes, replica, "2");
    wait_until("the old master follows", || is_following(&mut nodes.client(master)));
    // One that may not take over by itself does so when a person wants it.
    for at in [master, replica] {
        let words = ["CONFIG", "SET", "cluster-replica-no-failover", "yes"];
        assert_eq!(nodes.client(at).call(&words), Value::ok());
    }
    nodes.settle();
    wait_until("it is a member again", || members(&nodes, replica) == 2);
    nodes.servers[replica].kill();
    // Longer than a lease and what follows it: it stays what it is.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(nodes.client(master).info::<String>("replication", "role"), "slave");
    let mut client = nodes.client(master);
    assert!(text(client.call(&["CLUSTER", "FAILOVER"])).starts_with("ERR Master is down or failed"));
    assert_eq!(client.call(&["CLUSTER", "FAILOVER", "TAKEOVER"]), Value::ok());
    assert_eq!(client.call(&["GET", "{bar}"]), Value::Text("2".to_owned()));
    set(&nodes, master, "3");
    nodes.restart(replica);
    nodes.settle();
    assert_eq!(wait_for_owner(&nodes), master);
}

#[test]
fn a_master_without_replicas_comes_back_and_a_whole_cluster_does() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut nodes) = pairs("restarts", &flags) else { return };
    let at = wait_for_owner(&nodes);
    assert_eq!(nodes.client(at).call(&["SET", "{bar}", "1"]), Value::ok());
    (0..6).for_each(|at| nodes.servers[at].kill());
    (0..6).for_each(|at| nodes.restart(at));
    let at = wait_for_owner(&nodes);
    assert_eq!(nodes.client(at).call(&["GET", "{bar}"]), Value::Text("1".to_owned()));
    nodes.settle();
}

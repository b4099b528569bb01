//! Kills of the source and the target of a migration, and stores that answer late: one node serves what was acknowledged.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use darter_base::rng::Rng;

use crate::cluster_migrations::{
    BAR, BARS, begin, begin_slowly, end, fill_bar, keys_in, rounds, run, shown, shown_by, throttle,
};
use crate::cluster_moves::StopOnDrop;
use crate::harness::{Client, PATIENCE, Value, wait_until};
use crate::nodes::signal;
use crate::stored::{CutTime, DOOR, NetGate, StoredNodes};

/// Two servers that have the slot of `{bar}` by turns.
pub trait CountingPlaces: Sync + Send {
    /// The port of one of them, as it is now.
    fn port(&self, at: usize) -> u16;
}

impl CountingPlaces for StoredNodes {
    fn port(&self, at: usize) -> u16 {
        self.servers[at].port()
    }
}

/// Counts up by one key of each slot until the end; after a broken connection the last one may be there or not.
pub fn count_through_kills(nodes: &RwLock<impl CountingPlaces>, who: usize, stop: &AtomicBool) {
    let tag = format!("{{bar}}count{who}");
    let (mut acknowledged, mut unknown) = (0i64, 0i64);
    let call = |at: usize, words: &[&str]| -> Option<Value> {
        let port = nodes.read().expect("no writer has failed").port(at);
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        // One that was not answered might be made after a later one: only a broken connection leaves it open.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        Client::over(stream).try_call(words)
    };
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) || acknowledged < 20 {
        match call(at, &["INCR", &tag]) {
            Some(Value::Int(n)) => {
                assert!(
                    n > acknowledged && n <= acknowledged + unknown + 1,
                    "{n} after {acknowledged} and {unknown} of which nothing is known"
                );
                (acknowledged, unknown) = (n, 0);
            }
            Some(Value::Error(line)) if line.starts_with("MOVED") => at = 1 - at,
            Some(Value::Error(line)) if line.starts_with("ERR") => panic!("{line}"),
            // Refused: nothing was done.
            Some(Value::Error(_)) => at = 1 - at,
            Some(other) => panic!("{other:?}"),
            None => {
                unknown += 1;
                at = 1 - at;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "nobody serves the key");
        match call(at, &["GET", &tag]) {
            Some(Value::Text(n)) => {
                let n: i64 = n.parse().expect("a number");
                assert!(
                    (acknowledged..=acknowledged + unknown).contains(&n),
                    "{n}, {acknowledged} were acknowledged"
                );
                return;
            }
            Some(Value::Null) => panic!("{acknowledged} increments are lost"),
            _ => at = 1 - at,
        }
    }
}

/// Runs rounds in which nodes are killed, while three clients count up: every increment is there once.
fn count_in_rounds(
    nodes: StoredNodes,
    seed: u64,
    mut round: impl FnMut(&RwLock<StoredNodes>, usize, &mut Rng),
) {
    fill_bar(&nodes);
    let (nodes, stop) = (RwLock::new(nodes), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|who| {
                let (nodes, stop) = (&nodes, &stop);
                scope.spawn(move || count_through_kills(nodes, who, stop))
            })
            .collect();
        let _guard = StopOnDrop(&stop);
        let mut rng = Rng::new(seed);
        for number in 0..rounds(6) {
            if writers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            round(&nodes, number, &mut rng);
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("every increment is there once");
        }
    });
    has_all(&nodes.into_inner().expect("nobody has failed"), BARS + 3);
}

/// The seed of a test: `usual`, or another one by an environment variable.
pub fn seed(usual: u64) -> u64 {
    std::env::var("DARTER_FAULTS_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn a_kill_of_source_target_or_store_in_any_state_loses_nothing() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(nodes) = StoredNodes::create_with("kills", 3, &flags) else { return };
    count_in_rounds(nodes, seed(7), |nodes, round, rng| {
        let source = {
            let nodes = nodes.read().expect("nobody has failed");
            let source = owner(&nodes);
            // From the first key to the change of the map: some 20 batches.
            throttle(&nodes, source, if round % 2 == 0 { 3000 } else { 0 });
            begin(&nodes, source, 1 - source, "5061 5061");
            source
        };
        std::thread::sleep(Duration::from_millis(rng.below(120)));
        let killed = rng.below(3);
        {
            let mut nodes = nodes.write().expect("nobody has failed");
            match killed {
                0 => nodes.restart(source),
                1 => nodes.restart(1 - source),
                _ => {
                    nodes.etcd.stop();
                    std::thread::sleep(Duration::from_millis(rng.below(500)));
                    nodes.etcd.go_on();
                }
            }
        }
        let (state, why) = end(&nodes.read().expect("nobody has failed"), source);
        println!("{round}: kill of the {}: {state} {why}", ["source", "target", "store"][killed as usize]);
    });
}

#[test]
fn a_cut_while_slots_are_handed_over_loses_nothing() {
    let flags = ["--cluster-announce-port", DOOR];
    let Some(nodes) = StoredNodes::create_with("cuts", 3, &flags) else { return };
    count_in_rounds(nodes, seed(13), |nodes, round, rng| {
        let nodes = nodes.read().expect("nobody has failed");
        let source = owner(&nodes);
        let [door, store, own_store] =
            [&nodes.doors[1 - source], &nodes.gates[1 - source], &nodes.gates[source]];
        let time = if rng.below(2) == 0 { CutTime::Before } else { CutTime::After };
        begin(&nodes, source, 1 - source, "5061 5061");
        // The source from its target, the target from the store, the source from both, each at the words that give the slots
        // away; or the source from its target at any moment.
        let kind = rng.below(4);
        match kind {
            0 | 2 => door.cut_at(b"COMMIT", time),
            // The target changes nothing in the store before it commits.
            1 => store.cut_at(b"/v3/kv/txn", time),
            _ => {
                std::thread::sleep(Duration::from_millis(rng.below(60)));
                door.cut();
            }
        }
        let (began, gates) = (Instant::now(), [door, store, own_store]);
        let is_any = || gates.iter().any(|gate| gate.is_cut());
        while !is_any() && began.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_cut = is_any();
        if kind == 2 {
            own_store.cut();
        }
        // Longer or shorter than the source waits for the word of its target.
        std::thread::sleep(Duration::from_millis(100 + rng.below(3400)));
        let is_late = rng.below(2) == 0;
        gates.iter().for_each(|gate| gate.mend(is_late));
        let (state, why) = end(&nodes, source);
        println!("{round}: cut {kind} {time:?}, cut {is_cut}, late {is_late}: {state} {why}");
    });
}

/// The one of the first two nodes that serves slot 5061.
fn owner(nodes: &StoredNodes) -> usize {
    let serves = |at: usize| {
        let said = nodes.client(at).try_call(&["EXISTS", "{bar}0"]);
        matches!(said, Some(Value::Int(_)))
    };
    wait_until("one of two serves the slot", || serves(0) || serves(1));
    usize::from(!serves(0))
}

/// Waits until the other one of the two has no key of the slot left; the owner must have this many.
fn has_all(nodes: &StoredNodes, keys: usize) {
    let owner = owner(nodes);
    wait_until("nothing hidden is left", || keys_in(nodes, 1 - owner, BAR) == 0);
    let other = run(&mut nodes.client(1 - owner), "EXISTS {bar}0");
    assert!(matches!(&other, Value::Error(line) if line.starts_with("MOVED 5061 ")), "two owners: {other:?}");
    assert_eq!(keys_in(nodes, owner, BAR), keys as i64, "at node {owner}");
}

/// A migration of slot 5061 from node 0 to node 1 whose commit is on its way to the store.
fn commit_is_late(name: &str, flags: &[&str]) -> Option<StoredNodes> {
    let nodes = StoredNodes::create_with(name, 3, flags)?;
    fill_bar(&nodes);
    nodes.gates[1].shut();
    begin(&nodes, 0, 1, "5061 5061");
    wait_until("the source has begun", || shown(&mut nodes.client(0))[0]["state"] != "connecting");
    nodes.gates[0].shut();
    wait_until("the commit is on its way", || nodes.gates[0].kept() + nodes.gates[1].kept() > 0);
    Some(nodes)
}

#[test]
fn a_commit_that_outlives_its_empty_target_gives_it_nothing() {
    let Some(mut nodes) = commit_is_late("late-target", &[]) else { return };
    let (source, target) = (nodes.gates[0].clone(), nodes.gates[1].clone());
    nodes.restart(1);
    target.open();
    source.open();
    println!("{:?}", end(&nodes, 0));
    has_all(&nodes, BARS);
}

#[test]
fn a_commit_that_outlives_its_source_loses_no_write() {
    let Some(mut nodes) = commit_is_late("late-source", &["--appendonly", "yes"]) else { return };
    let target = nodes.gates[1].clone();
    nodes.restart(0);
    assert_eq!(run(&mut nodes.client(0), "SET {bar}new 1"), Value::ok());
    target.open();
    println!("{:?}", end(&nodes, 0));
    has_all(&nodes, BARS + 1);
}

#[test]
fn a_commit_that_nobody_waits_for_any_more_is_none() {
    let Some(nodes) = commit_is_late("late-store", &[]) else { return };
    // The target lives and the store does not hear of its commit: the source takes the slot back.
    nodes.gates[0].open();
    let mut client = nodes.client(0);
    assert_eq!(run(&mut client, "SET {bar}new 1"), Value::ok());
    nodes.gates[1].open();
    println!("{:?}", end(&nodes, 0));
    has_all(&nodes, BARS + 1);
}

#[test]
fn a_target_that_comes_back_empty_in_any_state_loses_nothing() {
    let Some(nodes) = StoredNodes::create("empty", 3) else { return };
    count_in_rounds(nodes, seed(11), |nodes, round, rng| {
        let (source, gates) = {
            let nodes = nodes.read().expect("nobody has failed");
            let source = owner(&nodes);
            // What a target has got and owns may die with it: it does not own it before it is killed.
            throttle(&nodes, source, 100_000);
            begin(&nodes, source, 1 - source, "5061 5061");
            let gates = [nodes.gates[source].clone(), nodes.gates[1 - source].clone()];
            gates[1].shut();
            throttle(&nodes, source, if round % 2 == 0 { 3000 } else { 0 });
            (source, gates)
        };
        std::thread::sleep(Duration::from_millis(rng.below(240)));
        gates[0].shut();
        nodes.write().expect("nobody has failed").restart(1 - source);
        gates.iter().rev().for_each(NetGate::open);
        println!("{round}: {:?}", end(&nodes.read().expect("nobody has failed"), source));
    });
}

/// Times that the latest migration of a node has begun again.
fn retries(nodes: &StoredNodes, at: usize) -> u32 {
    let shown = shown_by(&mut nodes.client(at), "CLUSTER MIGRATION STATUS ALL");
    shown[0]["retries"].parse().expect("a number")
}

/// Kills the target and starts it again while the source stands still: it sees a broken connection and a target that is back,
/// however long the start takes.
fn restart_unseen(nodes: &mut StoredNodes, target: usize) {
    let source = nodes.servers[1 - target].pid();
    signal(source, "STOP");
    nodes.restart(target);
    signal(source, "CONT");
}

#[test]
fn a_migration_begins_again_after_a_failure_that_passes() {
    // However long the last keys take: that would be a failure that passes, too.
    let patient = ["--cluster-slot-migration-write-pause-timeout", "60000"];
    let Some(mut nodes) = StoredNodes::create_with("again", 3, &patient) else { return };
    fill_bar(&nodes);
    begin_slowly(&nodes);
    assert_eq!(retries(&nodes, 0), 0);
    // This one is only at the target when it dies: its second life must not keep it.
    assert_eq!(run(&mut nodes.client(0), "DEL {bar}0"), Value::Int(1));
    nodes.restart(1);
    throttle(&nodes, 0, 0);
    assert_eq!(end(&nodes, 0), ("success".to_owned(), String::new()));
    // More than once, where the target takes longer than half a second for its start.
    assert!((1..=3).contains(&retries(&nodes, 0)));
    assert_eq!(nodes.client(0).info::<u64>("cluster", "cluster_migrations_failed"), 0);
    has_all(&nodes, BARS - 1);
    // The attempts are counted.
    assert_eq!(run(&mut nodes.client(1), "CONFIG SET cluster_migration_retries 1"), Value::ok());
    for (at, says) in [(0, "success"), (1, "failed")] {
        let source = owner(&nodes);
        throttle(&nodes, source, 1_000_000);
        begin(&nodes, source, 1 - source, "5061 5061");
        for _ in 0..=at {
            wait_until("keys arrive", || keys_in(&nodes, 1 - source, BAR) > 0);
            restart_unseen(&mut nodes, 1 - source);
        }
        throttle(&nodes, source, 0);
        let (state, why) = end(&nodes, source);
        assert_eq!((state.as_str(), retries(&nodes, source)), (says, 1), "{why}");
        has_all(&nodes, BARS - 1);
        assert_eq!(run(&mut nodes.client(0), "CONFIG SET cluster_migration_retries 1"), Value::ok());
    }
}

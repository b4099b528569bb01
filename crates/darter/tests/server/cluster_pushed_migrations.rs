//! Moves of slots in a pushed configuration: as Dragonfly shows them, and without a loss whatever happens on the way.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use darter_base::rng::Rng;

use crate::cluster_migration_kills::{CountingPlaces, count_through_kills, seed};
use crate::cluster_migrations::rounds;
use crate::cluster_moves::StopOnDrop;
use crate::harness::browser::{Browser, sample};
use crate::harness::folder::Folder;
use crate::harness::raw::memcached;
use crate::harness::{Client, Server, Value, wait_until};
use crate::stored::{CutTime, NetGate};

const BARS: usize = 3000;

/// A source and a target, `node0` and `node1`.
struct PushedPair {
    servers: Vec<Server>,
    folders: Vec<Folder>,
    flags: Vec<String>,
    /// The ways of all others to them.
    doors: Vec<NetGate>,
}

fn run(client: &mut Client, line: &str) -> Value {
    client.call(&line.split(' ').collect::<Vec<_>>())
}

fn text(value: Value) -> String {
    match value {
        Value::Error(text) | Value::Status(text) | Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

impl PushedPair {
    fn start(name: &str, flags: &[&str]) -> PushedPair {
        let folders: Vec<Folder> = (0..2).map(|at| Folder::new(&format!("pushed-{name}-{at}"))).collect();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut pair = PushedPair { servers: Vec::new(), folders, flags, doors: Vec::new() };
        (0..2).for_each(|at| {
            let server = pair.launch(at);
            pair.doors.push(NetGate::before(server.port()));
            pair.servers.push(server);
        });
        pair
    }

    fn launch(&self, at: usize) -> Server {
        let id = format!("node{at}");
        let mut flags =
            vec!["--cluster_mode=yes", "--cluster_node_id", &id, "--dir", self.folders[at].text()];
        flags.extend(["--proactor_threads", "2"]);
        flags.extend(self.flags.iter().map(String::as_str));
        Server::start(&flags)
    }

    /// Kills a node and starts it again behind its door.
    fn restart(&mut self, at: usize) {
        self.servers[at].kill();
        self.servers[at] = self.launch(at);
        self.doors[at].lead_to(self.servers[at].port());
    }

    fn client(&self, at: usize) -> Client {
        self.servers[at].client()
    }

    /// A configuration: slot 5061 is that of the node `owner`, with a move of it to the other or not.
    fn config(&self, owner: usize, moves: bool) -> String {
        let group = |at: usize| {
            let slots = match (at == 0, owner == 0) {
                (true, true) => r#"{"start":0,"end":8191}"#,
                (true, false) => r#"{"start":0,"end":5060},{"start":5062,"end":8191}"#,
                (false, true) => r#"{"start":8192,"end":16383}"#,
                (false, false) => r#"{"start":5061,"end":5061},{"start":8192,"end":16383}"#,
            };
            let to = 1 - at;
            let moves = if moves && at == owner {
                let port = self.doors[to].port();
                let slots = r#"[{"start":5061,"end":5061}]"#;
                format!(r#"{{"node_id":"node{to}","ip":"127.0.0.1","port":{port},"slot_ranges":{slots}}}"#)
            } else {
                String::new()
            };
            let port = self.doors[at].port();
            format!(
                r#"{{"slot_ranges":[{slots}],"master":{{"id":"node{at}","ip":"127.0.0.1","port":{port}}},"migrations":[{moves}]}}"#
            )
        };
        format!("[{},{}]", group(0), group(1))
    }

    fn push(&self, at: usize, config: &str) {
        assert_eq!(self.client(at).call(&["DFLYCLUSTER", "CONFIG", config]), Value::ok());
    }

    fn push_both(&self, config: &str) {
        (0..2).for_each(|at| self.push(at, config));
    }

    fn fill(&self, at: usize) {
        let mut client = self.client(at);
        for n in 0..BARS / 100 {
            let mut words = vec!["MSET".to_owned()];
            (0..100).for_each(|m| words.extend([format!("{{bar}}{}", n * 100 + m), "v".repeat(100)]));
            assert_eq!(client.call(&words.iter().map(String::as_str).collect::<Vec<_>>()), Value::ok());
        }
    }

    /// The rows of SLOT-MIGRATION-STATUS.
    fn rows(&self, at: usize) -> Vec<Vec<Value>> {
        let Some(Value::Array(rows)) = self.client(at).try_call(&["DFLYCLUSTER", "SLOT-MIGRATION-STATUS"])
        else {
            return Vec::new();
        };
        let row = |row: Value| if let Value::Array(row) = row { row } else { panic!("no row") };
        rows.into_iter().map(row).collect()
    }

    fn state(&self, at: usize) -> String {
        self.rows(at).first().map(|row| text(row[2].clone())).unwrap_or_default()
    }

    fn throttle(&self, at: usize, us: u32) {
        let line = format!("CONFIG SET slot_migration_throttle_us {us}");
        assert_eq!(run(&mut self.client(at), &line), Value::ok());
    }

    /// Keys of slot 5061, that of `{bar}`, at a node, hidden ones too.
    fn keys(&self, at: usize) -> i64 {
        match run(&mut self.client(at), "CLUSTER COUNTKEYSINSLOT 5061") {
            Value::Int(keys) => keys,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_pushed_migration_moves_slots_and_a_configuration_ends_it() {
    let pair = PushedPair::start("moves", &[]);
    pair.push_both(&pair.config(0, false));
    pair.fill(0);
    assert_eq!(run(&mut pair.client(0), "STICK {bar}0"), Value::Int(1));
    // The source hears of it first, as of a control plane that is slow.
    pair.push(0, &pair.config(0, true));
    wait_until("it waits for the target", || pair.state(0) == "CONNECTING");
    pair.push(1, &pair.config(0, true));
    wait_until("both have ended", || pair.state(0) == "FINISHED" && pair.state(1) == "FINISHED");
    let row = |way: &str, other: &str| {
        let texts = [way, other, "FINISHED"].map(|text| Value::Text(text.to_owned()));
        let rest = [Value::Text("0".to_owned()), Value::Text("[5061, 5061]".to_owned())];
        texts.into_iter().chain([Value::Int(BARS as i64)]).chain(rest).collect::<Vec<_>>()
    };
    assert_eq!(pair.rows(0), [row("out", "node1")]);
    assert_eq!(pair.rows(1), [row("in", "node0")]);
    let only = |at: usize, id: &str| pair.client(at).call(&["DFLYCLUSTER", "SLOT-MIGRATION-STATUS", id]);
    assert_eq!(only(0, "node0"), Value::Array(Vec::new()));
    // The target serves, the source says so, and keeps what it had, unseen.
    let moved = format!("MOVED 5061 127.0.0.1:{}", pair.doors[1].port());
    assert_eq!(text(run(&mut pair.client(0), "GET {bar}1")), moved);
    assert_eq!(run(&mut pair.client(1), "SET {bar}more 1"), Value::ok());
    assert_eq!(run(&mut pair.client(1), "STICK {bar}0"), Value::Int(0), "it is still sticky");
    assert_eq!(pair.rows(1), [row("in", "node0")], "the number is that of the change");
    assert_eq!((pair.keys(0), pair.keys(1)), (BARS as i64, BARS as i64 + 1));
    assert_eq!(run(&mut pair.client(0), "DBSIZE"), Value::Int(0));
    let page = Browser::to(pair.servers[0].port()).get("/metrics", "").body;
    for (name, value) in [
        ("darter_cluster_migrated_keys_total", BARS as f64),
        (r#"darter_cluster_migrations_total{outcome="success"}"#, 1.0),
        (r#"darter_cluster_migrations_total{outcome="failed"}"#, 0.0),
        ("darter_cluster_migrations_active", 0.0),
        (r#"dragonfly_moved_errors_total{num="moved errors"}"#, 1.0),
        (r#"dragonfly_migration_errors_total{num="migration errors"}"#, 0.0),
    ] {
        assert_eq!(sample(&page, name), value, "{name}");
    }
    assert!(sample(&page, r#"darter_cluster_migration_bytes_total{dir="out"}"#) > BARS as f64);
    assert_eq!(pair.client(0).info::<usize>("cluster", "total_migrated_keys"), BARS);
    // The same configuration changes nothing.
    pair.push_both(&pair.config(0, true));
    assert_eq!(text(run(&mut pair.client(0), "GET {bar}1")), moved);
    // The next one decides.
    pair.push_both(&pair.config(1, false));
    assert!(pair.rows(0).is_empty() && pair.rows(1).is_empty());
    assert_eq!(text(run(&mut pair.client(0), "GET {bar}1")), moved);
    wait_until("the source has removed its keys", || pair.keys(0) == 0);
    assert_eq!(run(&mut pair.client(1), "DBSIZE"), Value::Int(BARS as i64 + 1));
}

#[test]
fn what_memcached_has_stored_moves_along() {
    let pair = PushedPair::start("marks", &[]);
    pair.push_both(&pair.config(0, false));
    let set = "set {bar}flagged 77 0 1\r\nx\r\n";
    assert_eq!(memcached(pair.servers[0].port(), set, "\r\n"), "STORED\r\n");
    let before = memcached(pair.servers[0].port(), "gets {bar}flagged\r\n", "END\r\n");
    assert!(before.starts_with("VALUE {bar}flagged 77 1 "), "{before}");
    pair.push_both(&pair.config(0, true));
    wait_until("both have ended", || pair.state(0) == "FINISHED" && pair.state(1) == "FINISHED");
    // Client flags, and the token for `cas`.
    assert_eq!(memcached(pair.servers[1].port(), "gets {bar}flagged\r\n", "END\r\n"), before);
}

#[test]
fn a_configuration_without_the_migration_cancels_it() {
    let pair = PushedPair::start("cancel", &[]);
    pair.push_both(&pair.config(0, false));
    pair.fill(0);
    pair.throttle(0, 200_000);
    pair.push_both(&pair.config(0, true));
    wait_until("keys arrive", || pair.keys(1) > 0);
    assert_eq!((pair.state(0), pair.state(1)), ("SYNC".to_owned(), "SYNC".to_owned()));
    assert_eq!(run(&mut pair.client(1), "DBSIZE"), Value::Int(0), "they are hidden");
    pair.push_both(&pair.config(0, false));
    assert!(pair.rows(0).is_empty() && pair.rows(1).is_empty());
    wait_until("the target has removed them", || pair.keys(1) == 0);
    assert_eq!(run(&mut pair.client(0), "SET {bar}new 1"), Value::ok());
    assert_eq!(run(&mut pair.client(0), "DBSIZE"), Value::Int(BARS as i64 + 1));
    // The same move may be pushed again.
    pair.throttle(0, 0);
    pair.push_both(&pair.config(0, true));
    wait_until("it has ended", || pair.state(0) == "FINISHED");
    assert_eq!(run(&mut pair.client(1), "DBSIZE"), Value::Int(BARS as i64 + 1));
}

#[test]
fn slots_that_were_offered_wait_for_the_target_or_a_configuration() {
    for is_configured in [false, true] {
        let flags = ["--appendonly", "yes", "--cluster-require-full-coverage", "no"];
        let mut pair = PushedPair::start(if is_configured { "decided" } else { "asked" }, &flags);
        pair.push_both(&pair.config(0, false));
        pair.fill(0);
        // The target stands still with the question in its hands.
        pair.throttle(0, 30_000);
        pair.push_both(&pair.config(0, true));
        wait_until("keys arrive", || pair.keys(1) > 0);
        let target = pair.servers[1].pid();
        let mut offered = false;
        while !offered {
            let file = std::fs::read_to_string(pair.folders[0].path().join("nodes.conf")).unwrap_or_default();
            offered = file.contains(r#""offered":true"#);
            assert_ne!(pair.state(0), "FINISHED", "it was too fast to be seen");
            if pair.keys(1) == BARS as i64 {
                crate::nodes::signal(target, "STOP");
                std::thread::sleep(Duration::from_millis(100));
                let file =
                    std::fs::read_to_string(pair.folders[0].path().join("nodes.conf")).unwrap_or_default();
                offered = file.contains(r#""offered":true"#);
                if !offered {
                    crate::nodes::signal(target, "CONT");
                }
            }
        }
        // Neither the source nor its next process serves the slot.
        pair.restart(0);
        let mut client = pair.client(0);
        assert!(client.try_send(&["SET", "{bar}new", "1"]));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(pair.rows(0).len(), 1);
        assert_eq!(run(&mut pair.client(0), "SET foo 1"), Value::Error(moved_foo(&pair)));
        if is_configured {
            pair.push(0, &pair.config(0, false));
            assert_eq!(client.read(), Value::ok());
            crate::nodes::signal(target, "CONT");
            pair.push(1, &pair.config(0, false));
            wait_until("the target has nothing", || pair.keys(1) == 0);
        } else {
            crate::nodes::signal(target, "CONT");
            let said = client.read();
            let is_moved = matches!(&said, Value::Error(line) if line.starts_with("MOVED 5061 "));
            assert!(said == Value::ok() || is_moved, "{said:?}");
            wait_until("it ends", || pair.state(0) == "FINISHED" && pair.state(1) == "FINISHED");
            let keys = BARS as i64 + i64::from(said == Value::ok());
            assert_eq!(run(&mut pair.client(1), "DBSIZE"), Value::Int(keys));
        }
    }
}

/// The answer of the source for slot 12182.
fn moved_foo(pair: &PushedPair) -> String {
    format!("MOVED 12182 127.0.0.1:{}", pair.doors[1].port())
}

impl CountingPlaces for PushedPair {
    fn port(&self, at: usize) -> u16 {
        self.servers[at].port()
    }
}

/// Moves the slot to and fro while three clients count up; `fault` happens after the move has begun, and is over when it returns.
fn count_in_rounds(
    pair: PushedPair,
    first_seed: u64,
    mut fault: impl FnMut(&RwLock<PushedPair>, usize, &mut Rng) -> String,
) {
    pair.push_both(&pair.config(0, false));
    pair.fill(0);
    let (pair, stop) = (RwLock::new(pair), AtomicBool::new(false));
    let mut owner = 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|who| {
                let (pair, stop) = (&pair, &stop);
                scope.spawn(move || count_through_kills(pair, who, stop))
            })
            .collect();
        let _guard = StopOnDrop(&stop);
        let mut rng = Rng::new(first_seed);
        for number in 0..rounds(6) {
            if writers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            {
                let pair = pair.read().expect("nobody has failed");
                pair.throttle(owner, if number % 2 == 0 { 3000 } else { 0 });
                pair.push_both(&pair.config(owner, true));
            }
            let said = fault(&pair, owner, &mut rng);
            println!("{number}: {said}");
            let pair = pair.read().expect("nobody has failed");
            wait_until("it ends", || pair.state(0) == "FINISHED" && pair.state(1) == "FINISHED");
            owner = 1 - owner;
            pair.push_both(&pair.config(owner, false));
            wait_until("nothing is left", || pair.keys(1 - owner) == 0);
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("every increment is there once");
        }
    });
    let pair = pair.into_inner().expect("nobody has failed");
    assert_eq!(pair.keys(owner), BARS as i64 + 3);
    let other = run(&mut pair.client(1 - owner), "EXISTS {bar}0");
    assert!(matches!(&other, Value::Error(line) if line.starts_with("MOVED 5061 ")), "two owners: {other:?}");
}

#[test]
fn a_kill_in_any_state_of_a_pushed_migration_loses_nothing() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    count_in_rounds(PushedPair::start("kills", &flags), seed(5), |pair, source, rng| {
        std::thread::sleep(Duration::from_millis(rng.below(160)));
        let killed = rng.below(2) as usize;
        pair.write().expect("nobody has failed").restart(killed);
        format!("kill of the {}", if killed == source { "source" } else { "target" })
    });
}

#[test]
fn a_cut_of_a_pushed_migration_loses_nothing() {
    count_in_rounds(PushedPair::start("cuts", &[]), seed(17), |pair, source, rng| {
        let pair = pair.read().expect("nobody has failed");
        let door = &pair.doors[1 - source];
        let time = if rng.below(2) == 0 { CutTime::Before } else { CutTime::After };
        // At the words that give the slots away, or at any moment.
        let kind = rng.below(3);
        if kind < 2 {
            door.cut_at(b"COMMIT", time);
        } else {
            std::thread::sleep(Duration::from_millis(rng.below(60)));
            door.cut();
        }
        let began = Instant::now();
        while !door.is_cut() && began.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_cut = door.is_cut();
        // Longer or shorter than the source waits for the word of its target.
        std::thread::sleep(Duration::from_millis(100 + rng.below(3400)));
        let is_late = rng.below(2) == 0;
        door.mend(is_late);
        format!("cut {kind} {time:?}, cut {is_cut}, late {is_late}")
    });
}

//! Masters and replicas that are killed or stopped in any state, behind nets that are slow, late, cut or deaf in one direction,
//! on clocks that are an hour off and disks that are full: in the end both have the same.
//!
//! `DARTER_FAULTS_REPLICATION` says how many faults there are, `DARTER_FAULTS_SEED` which. `tools/faults replication` runs many
//! and prints the figures.

use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use darter_base::rng::Rng;

use crate::cluster_migration_kills::{CountingPlaces, count_through_kills, seed};
use crate::cluster_moves::StopOnDrop;
use crate::harness::folder::Folder;
use crate::harness::journal::Dir;
use crate::harness::{Client, Server, Value, wait_until};
use crate::journal::Mount;
use crate::nodes::{Node, Writer, catch_up, contents, field, follow, signal};
use crate::stored::{GateWay, NetGate};

/// The number of faults of a test: `usual`, or more by an environment variable.
fn rounds(usual: usize) -> usize {
    std::env::var("DARTER_FAULTS_REPLICATION").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Waits until both have the same, while nobody writes at the master; returns how long that took.
fn until_equal(from: &mut Client, to: &mut Client) -> Duration {
    assert_eq!(from.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), Value::ok());
    let began = Instant::now();
    wait_until("both have the same", || {
        catch_up(from, to);
        // A consumer that found nothing was seen at the master alone, as in Redis. A digest has that, contents have not.
        let digests = [from.call(&["DEBUG", "DIGEST"]), to.call(&["DEBUG", "DIGEST"])];
        digests[0] == digests[1] || contents(from) == contents(to)
    });
    assert_ne!(from.call(&["DBSIZE"]), Value::Int(0), "there is something to compare");
    let took = began.elapsed();
    assert_eq!(from.call(&["CLIENT", "UNPAUSE"]), Value::ok());
    took
}

/// Says what was done, and how long it took each time until both had the same.
fn times(what: &str, all: Vec<Duration>) {
    let ms: Vec<String> = all.iter().map(|took| took.as_millis().to_string()).collect();
    println!("until equal, ms: {}", ms.join(" "));
    println!("figure: {} {what}", all.len());
}

/// A master and its replica with journals, and the net between them. Both come back after a kill.
struct Pair {
    nodes: [Option<Server>; 2],
    folders: [Folder; 2],
    gate: NetGate,
    master_port: AtomicU16,
}

const JOURNAL: [&str; 6] =
    ["--appendonly", "yes", "--repl-backlog-size", "256kb", "--repl-ping-replica-period", "3600"];

impl CountingPlaces for Pair {
    fn port(&self, _: usize) -> u16 {
        self.master_port.load(Relaxed)
    }
}

impl Pair {
    fn start(name: &str) -> Pair {
        let folders = ["master", "replica"].map(|who| Folder::new(&format!("{name}-{who}")));
        let mut pair =
            Pair { nodes: [None, None], folders, gate: NetGate::before(1), master_port: AtomicU16::new(0) };
        pair.begin(0);
        pair.begin(1);
        pair
    }

    /// Starts one of them again where its files end: 0 is the master.
    fn begin(&mut self, at: usize) {
        let place = format!("127.0.0.1:{}", self.gate.port());
        let mut flags = vec!["--proactor_threads", "2", "--dir", self.folders[at].text()];
        flags.extend(JOURNAL);
        if at == 1 {
            flags.extend(["--replicaof", &place]);
        }
        let server = Server::start(&flags);
        if at == 0 {
            self.gate.lead_to(server.port());
            self.master_port.store(server.port(), Relaxed);
        }
        self.nodes[at] = Some(server);
    }

    fn node(&self, at: usize) -> &Server {
        self.nodes[at].as_ref().expect("it runs")
    }

    fn client(&self, at: usize) -> Client {
        self.node(at).client().loaded()
    }
}

/// The states in which faults happen.
#[derive(Clone, Copy, Debug)]
enum LinkState {
    Steady,
    Full,
    Partial,
    FromDisk,
}

/// Brings the link into a state, or on the way there.
fn reach(pair: &Pair, state: LinkState) {
    match state {
        LinkState::Steady => {}
        LinkState::Full => {
            let mut to = pair.client(1);
            pair.gate.slow(4 << 20, Duration::ZERO);
            assert_eq!(to.call(&["REPLICAOF", "NO", "ONE"]), Value::ok());
            // What is its own has to go.
            to.call(&["SET", "own", "1"]);
            assert_eq!(to.call(&["REPLICAOF", "127.0.0.1", &pair.gate.port().to_string()]), Value::ok());
        }
        LinkState::Partial | LinkState::FromDisk => {
            pair.gate.cut();
            let count = if matches!(state, LinkState::Partial) { 20 } else { 400 };
            let (mut from, value) = (pair.client(0), "v".repeat(4000));
            for n in 0..count {
                from.call(&["SET", &format!("large{}", n % 40), &value]);
            }
            pair.gate.slow(1 << 20, Duration::ZERO);
            pair.gate.mend(false);
        }
    }
}

#[test]
fn a_kill_or_a_stop_in_any_state_loses_nothing() {
    const STATES: [LinkState; 4] =
        [LinkState::Steady, LinkState::Full, LinkState::Partial, LinkState::FromDisk];
    let pair = Pair::start("kills");
    let mut from = pair.client(0);
    write_much(&mut from, 4);
    let (stop, pair, mut rng) = (AtomicBool::new(false), RwLock::new(pair), Rng::new(seed(1)));
    let (mut took, mut full, mut partial, mut from_disk) = (Vec::new(), 0, 0, 0);
    std::thread::scope(|scope| {
        let _guard = StopOnDrop(&stop);
        let counters: Vec<_> = (0..3)
            .map(|who| {
                scope.spawn({
                    let (pair, stop) = (&pair, &stop);
                    move || count_through_kills(pair, who, stop)
                })
            })
            .collect();
        let mut syncs = |pair: &Pair| {
            let mut from = pair.client(0);
            full += from.info::<u64>("stats", "sync_full");
            partial += from.info::<u64>("stats", "sync_partial_ok");
            from_disk += from.info::<u64>("stats", "sync_partial_from_disk");
        };
        for round in 0..rounds(4) {
            let state = STATES[(round + rng.below(2) as usize * 2) % STATES.len()];
            let (at, kills) = (rng.below(2) as usize, rng.below(3) > 0);
            let held = pair.read().expect("nobody has failed");
            reach(&held, state);
            std::thread::sleep(Duration::from_millis(rng.below(400)));
            if !kills {
                let pid = held.node(at).pid();
                signal(pid, "STOP");
                std::thread::sleep(Duration::from_millis(100 + rng.below(1400)));
                signal(pid, "CONT");
                held.gate.slow(0, Duration::ZERO);
                drop(held);
            } else {
                if at == 0 {
                    syncs(&held);
                }
                drop(held);
                let mut pair = pair.write().expect("nobody has failed");
                pair.nodes[at] = None;
                pair.gate.slow(0, Duration::ZERO);
                pair.begin(at);
            }
            let pair = pair.read().expect("nobody has failed");
            took.push(until_equal(&mut pair.client(0), &mut pair.client(1)));
            let (what, who) = (if kills { "kill" } else { "stop" }, ["master", "replica"][at]);
            println!("{round}: {what} of the {who}, {state:?}");
            assert!(!counters.iter().any(std::thread::ScopedJoinHandle::is_finished), "a client has failed");
        }
        stop.store(true, Relaxed);
        counters.into_iter().for_each(|counter| counter.join().expect("no increment is lost"));
        syncs(&pair.read().expect("nobody has failed"));
    });
    times(&format!("kills and stops, {full} full and {partial} partial syncs, {from_disk} from disk"), took);
}

/// Bytes that wait for replicas, in all, whatever the net does: the limit, and what is made ready.
const SLOW_LIMIT: &str = "replica 8mb 0 0";
const SLOW_ROOM: u64 = (8 + 64) << 20;

#[test]
fn a_slow_late_and_broken_net_costs_a_bounded_amount() {
    let (master, replica) = (Node::ours(&["--repl-backlog-size", "1mb"]), Node::ours(&[]));
    let (mut from, mut to, mut rng) = (master.client(), replica.client(), Rng::new(seed(2)));
    from.call(&["CONFIG", "SET", "client-output-buffer-limit", SLOW_LIMIT]);
    let (gate, mut writer) = (NetGate::before(master.port()), Writer::new(seed(3)));
    writer.write(&mut from, 300);
    follow(&mut to, gate.port());
    let (mut took, mut most) = (Vec::new(), 0);
    for round in 0..rounds(3) {
        // 10 Mb/s with 200 ms, or less of one of them.
        gate.slow(1_250_000, Duration::from_millis([0, 50, 200][rng.below(3) as usize]));
        let value = "v".repeat(1 + rng.below(60_000) as usize);
        for n in 0..20 + rng.below(40) {
            let keys: Vec<String> = (0..20).map(|k| format!("slow{}", (n * 20 + k) % 50)).collect();
            let commands: Vec<[&str; 3]> =
                keys.iter().map(|key| ["SET", key.as_str(), value.as_str()]).collect();
            from.send_all(&commands.iter().map(|words| &words[..]).collect::<Vec<_>>());
            commands.iter().for_each(|_| assert_eq!(from.read(), Value::ok()));
            most = most.max(from.info::<u64>("memory", "mem_total_replication_buffers"));
            if rng.below(20) == 0 {
                gate.cut();
                std::thread::sleep(Duration::from_millis(rng.below(100)));
                gate.mend(rng.below(2) == 0);
            }
        }
        writer.write(&mut from, 50);
        gate.slow(0, Duration::ZERO);
        took.push(until_equal(&mut from, &mut to));
        println!("{round}: values of {} bytes", value.len());
    }
    assert!(most < SLOW_ROOM, "{} MiB waited", most >> 20);
    let [full, partial, slow] =
        ["sync_full", "sync_partial_ok", "sync_dropped_slow"].map(|name| from.info::<u64>("stats", name));
    let most = most >> 20;
    times(
        &format!(
            "nets of 10 Mb/s, {full} full and {partial} partial syncs, {slow} drops, up to {most} MiB waited"
        ),
        took,
    );
}

#[test]
fn a_net_that_is_deaf_in_one_direction_tells_no_lies() {
    let flags = ["--repl-timeout", "1", "--repl-backlog-size", "8mb"];
    let (master, replica) = (Node::ours(&flags), Node::ours(&flags));
    let (mut from, mut to, mut rng) = (master.client(), replica.client(), Rng::new(seed(4)));
    let (gate, mut writer) = (NetGate::before(master.port()), Writer::new(seed(5)));
    writer.write(&mut from, 300);
    follow(&mut to, gate.port());
    catch_up(&mut from, &mut to);
    let (mut took, before) = (Vec::new(), from.info::<u64>("stats", "sync_full"));
    for round in 0..rounds(4) {
        // Neither an answer from before, nor a link that is not there yet.
        wait_until("the replica answers", || {
            from.call(&["INCR", "seen"]);
            from.call(&["WAIT", "1", "100"]) == Value::Int(1)
        });
        let way = [GateWay::There, GateWay::Back][rng.below(2) as usize];
        gate.cut_one(way);
        writer.write(&mut from, 20);
        assert_eq!(from.call(&["WAIT", "1", "50"]), Value::Int(0), "{way:?}: nobody can have said so");
        std::thread::sleep(Duration::from_millis(rng.below(2500)));
        writer.write(&mut from, 20);
        gate.mend(rng.below(2) == 0);
        took.push(until_equal(&mut from, &mut to));
        println!("{round}: {way:?}");
    }
    assert_eq!(from.info::<u64>("stats", "sync_full"), before, "what it lacked was enough");
    times("cuts of one direction, no full sync", took);
}

/// The library that shifts the clock of a process; Debian's libfaketime.
const SHIFTS_CLOCKS: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// Starts a server whose clock is what a file says.
fn start_shifted(file: &Path, flags: &[&str]) -> Server {
    let file = file.to_str().expect("a text");
    let env = [
        ("LD_PRELOAD", SHIFTS_CLOCKS),
        ("FAKETIME_TIMESTAMP_FILE", file),
        ("FAKETIME_NO_CACHE", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ];
    Server::start_with_env(&env, &[&["--proactor_threads", "2"], flags].concat())
}

fn seconds(client: &mut Client) -> i64 {
    let Value::Array(time) = client.call(&["TIME"]) else { panic!("two numbers") };
    let Value::Text(seconds) = &time[0] else { panic!("{time:?}") };
    seconds.parse().expect("a number")
}

/// Deadlines are moments, so a key of 30 minutes is dead for a replica whose clock is an hour ahead. It stays there all the same.
#[test]
fn clocks_an_hour_off_change_no_data() {
    if !Path::new(SHIFTS_CLOCKS).exists() {
        eprintln!("SKIPPED: libfaketime is not installed");
        return;
    }
    let folder = Folder::new("clocks");
    let clocks = ["one", "two"].map(|name| folder.path().join(name));
    let shift = |at: usize, hours: i64| std::fs::write(&clocks[at], format!("{hours:+}h\n")).expect("a file");
    shift(0, 0);
    shift(1, 0);
    let [first, second] = [0, 1].map(|at| start_shifted(&clocks[at], &["--repl-backlog-size", "64mb"]));
    let mut clients = [first.client(), second.client()];
    let (mut rng, mut writer, mut master) = (Rng::new(seed(6)), Writer::new(seed(7)), 0);
    let (ports, own) = ([first.port(), second.port()], seconds(&mut clients[0]));
    let was_full = |clients: &mut [Client; 2]| -> u64 {
        clients.iter_mut().map(|client| client.info::<u64>("stats", "sync_full")).sum()
    };
    follow(&mut clients[1], ports[0]);
    let (mut took, mut failovers) = (Vec::new(), 0);
    for round in 0..rounds(4) {
        // A jump, amid writes.
        let (at, hours) = (rng.below(2) as usize, rng.below(3) as i64 - 1);
        writer.write(&mut clients[master], 50);
        shift(at, hours);
        wait_until("its clock is shifted", || {
            (seconds(&mut clients[at]) - own - hours * 3600).unsigned_abs() < 1200
        });
        writer.write(&mut clients[master], 50);
        let key = format!("half-an-hour-{round}");
        assert_eq!(clients[master].call(&["SET", &key, "v", "EX", "1800"]), Value::ok());
        let deadline = clients[master].call(&["PEXPIRETIME", &key]);
        let [one, two] = &mut clients;
        let (from, to) = if master == 0 { (one, two) } else { (two, one) };
        catch_up(from, to);
        // Whoever is behind the other's clock sees it; the other one keeps it.
        let keeps = |to: &mut Client| {
            let Value::Int(ms) = to.call(&["PEXPIRETIME", &key]) else { panic!("a number") };
            ms == -2 || Value::Int(ms) == deadline
        };
        assert!(keeps(to), "round {round}");
        assert_eq!(from.call(&["PERSIST", &key]), Value::Int(1));
        catch_up(from, to);
        assert_eq!(to.call(&["GET", &key]), Value::Text("v".to_owned()), "round {round}: it was kept");
        // Deadlines that pass only for one of them would tell the digests apart.
        assert_eq!(from.call(&["FLUSHALL"]), Value::ok());
        for n in 0..40 {
            from.call(&["RPUSH", "all", &format!("{round}-{n}")]);
        }
        took.push(until_equal(from, to));
        if rng.below(2) == 0 {
            assert_eq!(from.call(&["FAILOVER"]), Value::ok());
            wait_until("roles have changed", || {
                field(to, "role") == "master" && field(from, "role") == "slave"
            });
            wait_until("the link is up", || field(from, "master_link_status") == "up");
            (master, failovers) = (1 - master, failovers + 1);
        }
        println!("{round}: server {at} by {hours} h");
    }
    assert_eq!(was_full(&mut clients), 1, "what was lacked was enough");
    times(&format!("jumps of a clock by up to 2 h, {failovers} failovers, one full sync"), took);
}

/// A replica on a disk of 2 MiB, with an old key. `None`: no disk can be mounted here.
fn on_a_small_disk(name: &str, flags: &[&str]) -> Option<(Mount, Server)> {
    let mount = Mount::new(Dir::new(name), &["-t", "tmpfs", "-o", "size=2m", "tmpfs"])?;
    let dir = mount.path().to_str().expect("a text").to_owned();
    let server = Server::start(&[&["--proactor_threads", "2", "--dir", &dir], flags].concat());
    Some((mount, server))
}

fn write_much(client: &mut Client, megabytes: usize) {
    let mut rng = Rng::new(9);
    for n in 0..megabytes * 8 {
        let value: String = (0..8192).map(|_| format!("{:016x}", rng.next_u64())).collect();
        assert_eq!(client.call(&["SET", &format!("much{}", n % 64), &value]), Value::ok());
    }
}

/// A full sync does not fit while it is stored; returns how long it took once there was room.
fn a_sync_finds_no_room(master: &Node) -> Option<Duration> {
    let mut from = master.client();
    let (mount, replica) = on_a_small_disk("disk-sync", &[])?;
    let mut to = replica.client();
    assert_eq!(to.call(&["SET", "old", "1"]), Value::ok());
    assert_eq!(to.call(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]), Value::ok());
    replica.wait_until_it_says("No space left on device", 1);
    assert_eq!(to.call(&["GET", "old"]), Value::Text("1".to_owned()));
    assert_eq!(field(&mut to, "master_link_status"), "down");
    mount.again("size=64m");
    Some(until_equal(&mut from, &mut to))
}

#[test]
fn a_full_disk_at_a_replica_ends_no_more_than_a_sync() {
    let master = Node::ours(&["--repl-backlog-size", "64mb"]);
    let (mut from, mut took) = (master.client(), Vec::new());
    write_much(&mut from, 8);
    for master in [Node::redis(&["--enable-debug-command", "yes"])].iter().flatten() {
        write_much(&mut master.client(), 8);
        took.extend(a_sync_finds_no_room(master));
    }
    took.extend(a_sync_finds_no_room(&master));
    // While what follows is journalled, and the base after a sync.
    let Some((mount, replica)) = on_a_small_disk("disk-journal", &["--appendonly", "yes"]) else { return };
    let mut to = replica.client();
    follow(&mut to, master.port());
    write_much(&mut from, 8);
    took.push(until_equal(&mut from, &mut to));
    mount.again("size=256m");
    write_much(&mut from, 1);
    took.push(until_equal(&mut from, &mut to));
    times("states of a replica with a full disk", took);
}

#[test]
fn a_full_disk_at_a_master_parts_it_from_no_replica() {
    let Some((mount, master)) = on_a_small_disk("disk-master", &["--appendonly", "yes"]) else { return };
    let replica = Node::ours(&[]);
    let (mut from, mut to, mut took) = (master.client(), replica.client(), Vec::new());
    assert_eq!(from.call(&["SET", "first", "1"]), Value::ok());
    follow(&mut to, master.port());
    let (value, mut refused) = ("v".repeat(100_000), None);
    for n in 0..200 {
        if let Value::Error(line) = from.call(&["SET", &format!("k{n}"), &value]) {
            refused = Some(line);
            break;
        }
    }
    let refused = refused.expect("a refusal");
    assert!(refused.starts_with("MISCONF"), "{refused}");
    took.push(until_equal(&mut from, &mut to));
    mount.again("size=256m");
    wait_until("writes are taken again", || from.call(&["SET", "after", "1"]) == Value::ok());
    took.push(until_equal(&mut from, &mut to));
    assert_eq!(from.info::<u64>("stats", "sync_full"), 1);
    times("states of a master with a full disk", took);
}

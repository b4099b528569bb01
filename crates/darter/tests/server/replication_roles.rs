//! Roles that change: by REPLICAOF, by FAILOVER, by Sentinel.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use crate::cluster_migration_kills::seed;
use crate::harness::{Client, PATIENCE, Value, free_port, wait_until};
use crate::nodes::{Node, Writer, assert_equal, catch_up, field, follow, partner, signal};
use darter_base::rng::Rng;

/// Changes of roles, unless `DARTER_ROLE_CHANGES` says how many.
const CHANGES: usize = 200;
/// No pings: they would make an old master's history longer than its successor's.
const QUIET: [&str; 2] = ["--repl-ping-replica-period", "3600"];

fn fulls(clients: &mut [Client]) -> u64 {
    clients.iter_mut().map(|client| client.info::<u64>("stats", "sync_full")).sum()
}

#[test]
fn many_changes_of_roles_need_no_full_sync() {
    let changes = std::env::var("DARTER_ROLE_CHANGES").ok().and_then(|text| text.parse().ok());
    let mut nodes: Vec<Node> = (0..4).map(|_| Node::ours(&QUIET)).collect();
    nodes.extend(Node::redis(&QUIET));
    let mut clients: Vec<Client> = nodes.iter().map(Node::client).collect();
    let (mut rng, mut writer) = (Rng::new(seed(11)), Writer::new(seed(12)));
    let mut master = 0;
    writer.write(&mut clients[0], 300);
    for client in clients.iter_mut().skip(1) {
        follow(client, nodes[0].port());
    }
    let before = fulls(&mut clients);
    // Each node gets a role in each round.
    let changes = changes.unwrap_or(CHANGES);
    for _ in 0..changes / nodes.len() {
        let (old, mut from) = (master, nodes[master].client());
        // A master removes what has died: what only some replicas get of that would part the others from them.
        assert_eq!(from.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), Value::ok());
        clients
            .iter_mut()
            .enumerate()
            .filter(|(at, _)| *at != master)
            .for_each(|(_, to)| catch_up(&mut from, to));
        master = rng.below(nodes.len() as u64) as usize;
        clients[master].call(&["REPLICAOF", "NO", "ONE"]);
        if master == old {
            from.call(&["CLIENT", "UNPAUSE"]);
        }
        writer.write(&mut clients[master], 60);
        // Some follow a replica.
        let mut placed = vec![master];
        let mut left: Vec<usize> = (0..nodes.len()).filter(|at| *at != master).collect();
        while !left.is_empty() {
            let at = left.remove(rng.below(left.len() as u64) as usize);
            let whom = placed[rng.below(placed.len() as u64) as usize];
            follow(&mut clients[at], nodes[whom].port());
            if at == old {
                from.call(&["CLIENT", "UNPAUSE"]);
            }
            // Who follows it next may have everything already, and must not be ahead of it.
            catch_up(&mut nodes[master].client(), &mut clients[at]);
            placed.push(at);
        }
    }
    let (mut from, began) = (nodes[master].client(), std::time::Instant::now());
    for at in (0..nodes.len()).filter(|at| *at != master) {
        assert_equal(&mut from, &mut clients[at]);
    }
    assert_eq!(fulls(&mut clients), before, "what each lacked was enough");
    println!("until equal, ms: {}", began.elapsed().as_millis());
    println!("figure: {changes} changes of roles among {} nodes, no full sync", nodes.len());
}

/// Increments a counter at the master until `is_over`; `highest` is the highest number acknowledged.
fn count_up(ports: &[u16], is_over: &AtomicBool, highest: &AtomicI64) {
    while !is_over.load(Relaxed) {
        for port in ports {
            let Ok(stream) = std::net::TcpStream::connect(("127.0.0.1", *port)) else { continue };
            // Whoever gives up does not know whether it has counted.
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut client = Client::over(stream);
            while let Some(Value::Int(number)) = client.try_call(&["INCR", "count"]) {
                highest.fetch_max(number, Relaxed);
                if is_over.load(Relaxed) {
                    break;
                }
            }
        }
    }
}

fn roles_swap_under_load(first: &Node, second: &Node) {
    let (mut one, mut two) = (first.client(), second.client());
    follow(&mut two, first.port());
    wait_until("it is known", || field(&mut one, "slave0").contains("state=online"));
    let (ports, is_over) = ([first.port(), second.port()], AtomicBool::new(false));
    let highest = AtomicI64::new(0);
    std::thread::scope(|scope| {
        let counter = scope.spawn(|| count_up(&ports, &is_over, &highest));
        for n in 0..4 {
            std::thread::sleep(Duration::from_millis(100));
            let before = highest.load(Relaxed);
            wait_until("it counts", || highest.load(Relaxed) > before + 25);
            let (from, to) = if n % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
            assert_eq!(from.call(&["FAILOVER"]), Value::ok());
            wait_until("roles have changed", || {
                field(from, "role") == "slave" && field(to, "role") == "master"
            });
            wait_until("the link is up", || field(from, "master_link_status") == "up");
            wait_until("it is known", || field(to, "slave0").contains("state=online"));
        }
        is_over.store(true, Relaxed);
        counter.join().expect("it counts");
        catch_up(&mut one, &mut two);
        let text = Value::Text(highest.load(Relaxed).to_string());
        assert_eq!(
            (one.call(&["GET", "count"]), two.call(&["GET", "count"])),
            (text.clone(), text),
            "nothing is lost"
        );
    });
}

#[test]
fn a_failover_loses_no_write() {
    roles_swap_under_load(&Node::ours(&QUIET), &Node::ours(&QUIET));
    let Some(redis) = Node::redis(&QUIET) else { return };
    roles_swap_under_load(&Node::ours(&QUIET), &redis);
}

fn a_replica_takes_over(master: &Node, replica: &Node) {
    let (mut one, mut two) = (master.client(), replica.client());
    one.call(&["SET", "a", "1"]);
    follow(&mut two, master.port());
    wait_until("it is known", || field(&mut one, "slave0").contains("state=online"));
    assert_eq!(two.call(&["REPLTAKEOVER", "50"]), Value::ok());
    assert_eq!((field(&mut two, "role"), two.call(&["SET", "a", "2"])), ("master".to_owned(), Value::ok()));
    // Whoever asks again is told that it is done.
    assert_eq!(two.call(&["REPLTAKEOVER", "50"]), Value::ok());
    wait_until("the old master follows", || field(&mut one, "master_link_status") == "up");
    catch_up(&mut two, &mut one);
    assert_eq!(one.call(&["GET", "a"]), Value::Text("2".to_owned()));
    assert_eq!(two.info::<u64>("stats", "sync_full"), 0);
}

#[test]
fn a_replica_takes_the_place_of_its_master() {
    a_replica_takes_over(&Node::ours(&QUIET), &Node::ours(&QUIET));
    let Some(redis) = Node::redis(&QUIET) else { return };
    a_replica_takes_over(&redis, &Node::ours(&QUIET));
    let (master, replica) = (Node::ours(&QUIET), Node::ours(&QUIET));
    let mut two = replica.client();
    follow(&mut two, master.port());
    let error = |text: &str| Value::Error(text.to_owned());
    assert_eq!(two.call(&["REPLTAKEOVER", "-1"]), error("ERR timeout is negative"));
    assert_eq!(two.call(&["REPLTAKEOVER", "1", "NOW"]), error("ERR Unsupported option:NOW"));
    drop(master);
    wait_until("the link is down", || field(&mut two, "master_link_status") == "down");
    assert_eq!(two.call(&["REPLTAKEOVER", "1"]), error("ERR Full sync not done"));
}

#[test]
fn a_failover_that_cannot_be_says_why() {
    let (master, replica) = (Node::ours(&QUIET), Node::ours(&QUIET));
    let (mut one, mut two) = (master.client(), replica.client());
    let error = |text: &str| Value::Error(text.to_owned());
    assert_eq!(one.call(&["FAILOVER"]), error("ERR FAILOVER requires connected replicas."));
    assert_eq!(one.call(&["FAILOVER", "ABORT"]), error("ERR No failover in progress."));
    follow(&mut two, master.port());
    assert_eq!(two.call(&["FAILOVER"]), error("ERR FAILOVER is not valid when server is a replica."));
    let elsewhere = one.call(&["FAILOVER", "TO", "127.0.0.1", "1"]);
    assert_eq!(elsewhere, error("ERR FAILOVER target HOST and PORT is not a replica."));
    assert_eq!(one.call(&["FAILOVER", "TIMEOUT", "0"]), error("ERR FAILOVER timeout must be greater than 0"));
    // One that does not answer any more has not everything.
    let Node::Ours(server) = &replica else { panic!("it is ours") };
    signal(server.pid(), "STOP");
    assert_eq!(one.call(&["FAILOVER", "TIMEOUT", "300"]), Value::ok());
    let mut writing = master.client();
    assert_eq!(writing.call(&["SET", "a", "1"]), Value::ok(), "it waits no longer than that");
    wait_until("it is given up", || field(&mut one, "master_failover_state") == "no-failover");
    assert_eq!(field(&mut one, "role"), "master");
    signal(server.pid(), "CONT");
    catch_up(&mut one, &mut two);
    assert_eq!(two.call(&["GET", "a"]), Value::Text("1".to_owned()));
}

/// It was given up after ten seconds, in which clients could not write.
#[test]
fn a_failover_to_one_that_refuses_is_given_up_at_once() {
    let (master, replica) = (Node::ours(&QUIET), Node::ours(&QUIET));
    let (mut one, mut two, mut writing) = (master.client(), replica.client(), master.client());
    follow(&mut two, master.port());
    wait_until("it is known", || field(&mut one, "slave0").contains("state=online"));
    // The master has no password for it.
    assert_eq!(two.call(&["CONFIG", "SET", "requirepass", "secret"]), Value::ok());
    let began = std::time::Instant::now();
    assert_eq!(one.call(&["FAILOVER", "TO", "127.0.0.1", &replica.port().to_string()]), Value::ok());
    assert_eq!(writing.call(&["SET", "a", "1"]), Value::ok());
    wait_until("it is given up", || field(&mut one, "master_failover_state") == "no-failover");
    // Half the time that one has which does not answer; a refusal takes milliseconds.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(field(&mut one, "role"), "master");
    catch_up(&mut one, &mut two);
}

#[test]
fn the_end_of_a_failover_leaves_the_pause_of_a_client_alone() {
    let (master, replica) = (Node::ours(&QUIET), Node::ours(&QUIET));
    let mut one = master.client();
    follow(&mut replica.client(), master.port());
    assert_eq!(one.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), Value::ok());
    signal(replica.pid(), "STOP");
    assert_eq!(one.call(&["FAILOVER"]), Value::ok());
    assert_eq!(one.call(&["FAILOVER", "ABORT"]), Value::ok());
    wait_until("it is given up", || field(&mut one, "master_failover_state") == "no-failover");
    assert_eq!(one.info::<String>("clients", "paused_actions"), "write");
    one.call(&["CLIENT", "UNPAUSE"]);
    assert_eq!(one.info::<String>("clients", "paused_actions"), "none");
    signal(replica.pid(), "CONT");
}

/// Three Sentinels that watch one master, and end with the test.
struct Sentinels {
    processes: Vec<(Child, u16)>,
    folder: PathBuf,
}

impl Sentinels {
    fn start(master: u16) -> Option<Sentinels> {
        // Only Redis itself has them.
        drop(crate::nodes::Redis::start(&[])?);
        let folder = std::env::temp_dir().join(format!("darter-sentinels-{}-{master}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut processes = Vec::new();
        for n in 0..3 {
            let port = free_port();
            let file = folder.join(format!("sentinel-{n}.conf"));
            let text = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor m 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 6000\n",
                folder.display()
            );
            std::fs::write(&file, text).expect("written");
            let process = Command::new(partner()).arg(&file).arg("--sentinel").stdout(Stdio::null()).spawn();
            processes.push((process.expect("it starts"), port));
        }
        Some(Sentinels { processes, folder })
    }

    /// What the first one says of the master.
    fn master(&self) -> Option<u16> {
        let port = self.processes.first()?.1;
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        match Client::over(stream).try_call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"])? {
            Value::Array(place) => match place.get(1) {
                Some(Value::Text(port)) => port.parse().ok(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the first one knows these numbers of replicas and other Sentinels.
    fn knows(&self, replicas: usize, sentinels: usize) -> bool {
        let Some(port) = self.processes.first().map(|(_, port)| *port) else { return false };
        let Ok(stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return false };
        let mut client = Client::over(stream);
        let mut count = |what: &str| match client.try_call(&["SENTINEL", what, "m"]) {
            Some(Value::Array(all)) => all.len(),
            _ => 0,
        };
        count("REPLICAS") == replicas && count("SENTINELS") == sentinels
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        for (process, _) in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn sentinels_find_replicas_fail_over_and_have_the_old_master_follow() {
    let nodes = [Node::ours(&[]), Node::ours(&[]), Node::ours(&[])];
    let mut clients: Vec<Client> = nodes.iter().map(Node::client).collect();
    clients[0].call(&["SET", "a", "1"]);
    follow(&mut clients[1], nodes[0].port());
    follow(&mut clients[2], nodes[0].port());
    let Some(sentinels) = Sentinels::start(nodes[0].port()) else { return };
    wait_until("all are known", || sentinels.knows(2, 2));
    let Node::Ours(first) = &nodes[0] else { panic!("it is ours") };
    signal(first.pid(), "STOP");
    wait_until("another is master", || sentinels.master().is_some_and(|port| port != nodes[0].port()));
    // On a busy machine the new one may seem down too, so it is asked for each time.
    let writes =
        || sentinels.master().filter(|port| ask(*port, &["SET", "b", "2"]) == Some(Value::ok())).is_some();
    wait_until("it writes", writes);
    signal(first.pid(), "CONT");
    wait_until("the old master follows", || {
        let role = ask(nodes[0].port(), &["ROLE"]);
        let master = sentinels.master().map(|port| Value::Int(i64::from(port)));
        matches!(role, Some(Value::Array(role)) if master.is_some() && role.get(2) == master.as_ref())
    });
    let has = |node: &Node| ask(node.port(), &["GET", "b"]) == Some(Value::Text("2".to_owned()));
    wait_until("all have it", || writes() && nodes.iter().all(has));
}

/// What a server answers on a connection of its own; Sentinel closes those of clients when a role changes.
fn ask(port: u16, command: &[&str]) -> Option<Value> {
    let stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    Client::over(stream).try_call(command)
}

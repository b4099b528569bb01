//! Several servers as one cluster, configured by `DFLYCLUSTER CONFIG`: who serves what, and what happens when that changes.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::folder::Folder;
use crate::harness::{Client, PATIENCE, Server, Value, wait_until};

fn text(value: Value) -> String {
    match value {
        Value::Error(text) | Value::Status(text) | Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Runs a line of words without spaces.
fn run(client: &mut Client, line: &str) -> Value {
    client.call(&words(line))
}

/// Servers of a test, each with a folder.
struct Nodes {
    servers: Vec<Server>,
    folders: Vec<Folder>,
}

impl Nodes {
    fn start(name: &str, count: usize, flags: &[&str]) -> Nodes {
        let folders: Vec<Folder> = (0..count).map(|at| Folder::new(&format!("{name}-{at}"))).collect();
        let servers = (0..count).map(|at| start_node(&folders[at], at, flags)).collect();
        Nodes { servers, folders }
    }

    fn client(&self, at: usize) -> Client {
        self.servers[at].client()
    }

    fn port(&self, at: usize) -> u16 {
        self.servers[at].port()
    }

    /// One node of the configuration.
    fn node(&self, at: usize) -> String {
        format!(r#"{{"id":"node{at}","ip":"127.0.0.1","port":{}}}"#, self.port(at))
    }

    /// A group: its slots, its master, its replicas.
    fn group(&self, slots: &[(u16, u16)], master: usize, replicas: &[usize]) -> String {
        let slots: Vec<String> =
            slots.iter().map(|(start, end)| format!(r#"{{"start":{start},"end":{end}}}"#)).collect();
        let replicas: Vec<String> = replicas.iter().map(|at| self.node(*at)).collect();
        format!(
            r#"{{"slot_ranges":[{}],"master":{},"replicas":[{}],"migrations":[]}}"#,
            slots.join(","),
            self.node(master),
            replicas.join(",")
        )
    }

    /// Pushes the groups to every node.
    fn push(&self, groups: &[String]) {
        let json = format!("[{}]", groups.join(","));
        for at in 0..self.servers.len() {
            assert_eq!(self.client(at).call(&["DFLYCLUSTER", "CONFIG", &json]), Value::ok());
        }
    }

    /// Pushes three groups of about a third each.
    fn push_thirds(&self) {
        self.push(&[
            self.group(&[(0, 5460)], 0, &[]),
            self.group(&[(5461, 10922)], 1, &[]),
            self.group(&[(10923, 16383)], 2, &[]),
        ]);
    }
}

fn start_node(folder: &Folder, at: usize, flags: &[&str]) -> Server {
    let id = format!("node{at}");
    let mut all = vec!["--cluster_mode=yes", "--cluster_node_id", &id, "--dir", folder.text()];
    all.extend_from_slice(flags);
    Server::start(&all)
}

#[test]
fn a_second_server_does_not_take_the_id_of_the_first() {
    let folder = Folder::new("cluster-shared");
    let flags = ["--cluster_mode=yes", "--dir", folder.text()];
    let first = Server::start(&flags);
    let second = || {
        // One that starts would stay.
        let mut bounded = Command::new("timeout");
        bounded.args([&PATIENCE.as_secs().to_string(), env!("CARGO_BIN_EXE_darter"), "--port", "0"]);
        let output = bounded.args(flags).output().expect("it runs");
        assert!(!output.status.success(), "it starts");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let said = second();
    assert!(said.contains("another server uses it"), "{said}");
    // A file of its own makes it another node.
    let own = ["--cluster_mode=yes", "--dir", folder.text(), "--cluster-config-file", "nodes-2.conf"];
    let other = Server::start(&own);
    let id = |server: &Server| text(run(&mut server.client(), "DFLYCLUSTER MYID"));
    assert_ne!(id(&first), id(&other));
    // The folder is free once the server is gone, however it went.
    drop(first);
    Server::start(&flags);
}

#[test]
fn without_a_configuration_no_key_is_served() {
    let nodes = Nodes::start("cluster-none", 1, &[]);
    let mut client = nodes.client(0);
    for line in ["GET a", "SET a 1", "DEL a b", "SPUBLISH a b", "EVAL return(1) 1 a"] {
        assert_eq!(text(run(&mut client, line)), "CLUSTERDOWN Hash slot not served", "{line}");
    }
    assert_eq!(text(run(&mut client, "PING")), "PONG");
    assert_eq!(run(&mut client, "DBSIZE"), Value::Int(0));
    assert_eq!(text(run(&mut client, "DFLYCLUSTER MYID")), "node0");
    assert_eq!(run(&mut client, "CLUSTER SLOTS"), Value::Array(Vec::new()));
    let shown = text(run(&mut client, "CLUSTER NODES"));
    let port = nodes.port(0);
    assert_eq!(
        shown,
        format!("node0 127.0.0.1:{port}@{} myself,master - 0 0 0 connected\n", port.wrapping_add(10_000))
    );
    let info = text(run(&mut client, "CLUSTER INFO"));
    assert!(info.starts_with("cluster_state:fail\r\ncluster_slots_assigned:0\r\n"), "{info}");
    assert!(info.contains("cluster_known_nodes:1\r\n"), "{info}");
    assert_eq!(run(&mut client, "DFLYCLUSTER SLOT-MIGRATION-STATUS"), Value::Array(Vec::new()));
    let changes = ["MEET 127.0.0.1 1", "ADDSLOTS 1", "SETSLOT 1 STABLE", "RESET", "FAILOVER", "FORGET x"];
    for change in changes {
        let refusal = text(run(&mut client, &format!("CLUSTER {change}")));
        assert_eq!(refusal, "ERR this cluster is configured by DFLYCLUSTER CONFIG", "{change}");
    }
}

#[test]
fn each_node_serves_its_slots_and_names_the_owners_of_others() {
    let nodes = Nodes::start("cluster-thirds", 3, &[]);
    nodes.push_thirds();
    let mut first = nodes.client(0);
    let moved = |slot: u16, at: usize| format!("MOVED {slot} 127.0.0.1:{}", nodes.port(at));
    // foo is in slot 12182, bar in 5061, hello in 866.
    assert_eq!(run(&mut first, "SET bar 1"), Value::ok());
    assert_eq!(text(run(&mut first, "GET foo")), moved(12182, 2));
    assert_eq!(text(run(&mut first, "SET foo 1")), moved(12182, 2));
    assert_eq!(run(&mut nodes.client(2), "SET foo 2"), Value::ok());
    assert_eq!(
        text(run(&mut first, "MGET bar foo")),
        "CROSSSLOT Keys in request don't hash to the same slot"
    );
    assert_eq!(
        text(run(&mut first, "MSET bar 1 hello 2")),
        "CROSSSLOT Keys in request don't hash to the same slot"
    );
    assert_eq!(run(&mut first, "MGET {bar}1 bar"), Value::Array(vec![Value::Null, Value::Text("1".into())]));
    assert_eq!(text(run(&mut first, "BLPOP foo 1")), moved(12182, 2));
    assert_eq!(text(run(&mut first, "SPUBLISH foo x")), moved(12182, 2));
    assert_eq!(text(run(&mut first, "SSUBSCRIBE foo")), moved(12182, 2));
    assert_eq!(text(run(&mut first, "WATCH foo")), moved(12182, 2));
    assert_eq!(run(&mut first, "PUBLISH foo x"), Value::Int(0));
    assert_eq!(run(&mut first, "CLUSTER COUNTKEYSINSLOT 5061"), Value::Int(1));
    assert_eq!(run(&mut first, "DBSIZE"), Value::Int(1));

    // Many commands at once go the short way.
    let gets: Vec<Vec<String>> = (0..300).map(|n| vec!["GET".to_owned(), format!("key:{n}")]).collect();
    let gets: Vec<Vec<&str>> = gets.iter().map(|get| get.iter().map(String::as_str).collect()).collect();
    first.send_all(&gets.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let mut served = 0;
    for get in &gets {
        let slot = darter_slot(get[1]);
        match first.read() {
            Value::Null => {
                assert!(slot <= 5460, "{slot}");
                served += 1;
            }
            Value::Error(line) => assert_eq!(line, moved(slot, usize::from(slot / 5461).clamp(1, 2))),
            other => panic!("{other:?}"),
        }
    }
    assert!((50..150).contains(&served), "{served}");
    assert!(first.info::<u64>("cluster", "cluster_redirects_moved") > 150);
}

/// The slot of a key without braces.
fn darter_slot(key: &str) -> u16 {
    let crc = key.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16384
}

#[test]
fn transactions_and_scripts_are_checked_too() {
    let nodes = Nodes::start("cluster-exec", 3, &[]);
    nodes.push_thirds();
    let mut first = nodes.client(0);
    let moved = format!("MOVED 12182 127.0.0.1:{}", nodes.port(2));
    run(&mut first, "MULTI");
    assert_eq!(text(run(&mut first, "GET foo")), moved);
    assert_eq!(text(run(&mut first, "EXEC")), "EXECABORT Transaction discarded because of previous errors.");
    run(&mut first, "MULTI");
    assert_eq!(text(run(&mut first, "SET bar 1")), "QUEUED");
    assert_eq!(text(run(&mut first, "SET hello 1")), "QUEUED");
    assert_eq!(text(run(&mut first, "EXEC")), "CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(run(&mut first, "EXISTS bar"), Value::Int(0));
    assert_eq!(text(run(&mut first, "EXEC")), "ERR EXEC without MULTI");
    run(&mut first, "MULTI");
    run(&mut first, "SET bar 1");
    run(&mut first, "INCR {bar}n");
    assert_eq!(run(&mut first, "EXEC"), Value::Array(vec![Value::ok(), Value::Int(1)]));
    // The map changes between MULTI and EXEC.
    run(&mut first, "MULTI");
    assert_eq!(text(run(&mut first, "SET bar 2")), "QUEUED");
    nodes.push(&[nodes.group(&[(0, 5060)], 0, &[]), nodes.group(&[(5061, 16383)], 1, &[])]);
    assert_eq!(text(run(&mut first, "EXEC")), format!("MOVED 5061 127.0.0.1:{}", nodes.port(1)));
    nodes.push_thirds();

    assert_eq!(text(run(&mut first, "EVAL return(1) 1 foo")), moved);
    assert_eq!(
        text(run(&mut first, "EVAL return(1) 2 bar hello")),
        "CROSSSLOT Keys in request don't hash to the same slot"
    );
    let call = |client: &mut Client, script: &str| text(client.call(&["EVAL", script, "1", "bar"]));
    assert!(
        call(&mut first, "return redis.call('GET', 'foo')")
            .starts_with("ERR Script attempted to access a non local key in a cluster node")
    );
    assert_eq!(
        call(&mut first, "redis.call('SET', 'bar', 1) redis.call('SET', 'hello', 1) return 'done'"),
        "done"
    );
    let cross = "#!lua\nredis.call('SET', 'bar', 1) redis.call('SET', 'hello', 1) return 'done'";
    assert!(
        call(&mut first, cross)
            .starts_with("ERR Script attempted to access keys that do not hash to the same slot")
    );
    assert_eq!(call(&mut first, &cross.replace("#!lua", "#!lua flags=allow-cross-slot-keys")), "done");
    let refused = call(&mut first, &cross.replace("#!lua", "#!lua flags=no-cluster"));
    assert_eq!(refused, "ERR Can not run script on cluster, 'no-cluster' flag is set.");
}

#[test]
fn one_command_may_have_several_slots_of_a_node_where_that_is_set() {
    let nodes = Nodes::start("cluster-own", 3, &["--cluster_cross_slot=own"]);
    nodes.push_thirds();
    let mut first = nodes.client(0);
    assert_eq!(run(&mut first, "MSET bar 1 hello 2"), Value::ok());
    assert_eq!(run(&mut first, "MGET bar hello"), Value::array(&["1", "2"]));
    assert_eq!(
        text(run(&mut first, "MGET bar foo")),
        "CROSSSLOT Keys in request don't hash to the same slot"
    );
    assert_eq!(run(&mut first, "CONFIG SET cluster_cross_slot never"), Value::ok());
    assert_eq!(
        text(run(&mut first, "MGET bar hello")),
        "CROSSSLOT Keys in request don't hash to the same slot"
    );
}

#[test]
fn a_bad_configuration_changes_nothing() {
    let nodes = Nodes::start("cluster-bad", 3, &[]);
    nodes.push_thirds();
    let mut first = nodes.client(0);
    run(&mut first, "SET bar 1");
    let before = text(run(&mut first, "CLUSTER NODES"));
    let kept = std::fs::read(nodes.folders[0].path().join("nodes.conf")).expect("the file");
    let group = |slots: &[(u16, u16)], at| nodes.group(slots, at, &[]);
    let whole = |groups: &[String]| format!("[{}]", groups.join(","));
    let migrating = group(&[(0, 9)], 0).replace(
        r#""migrations":[]"#,
        &format!(
            r#""migrations":[{{"node_id":"node1","ip":"127.0.0.1","port":{},"slot_ranges":[]}}]"#,
            nodes.port(1)
        ),
    );
    for (json, reason) in [
        (whole(&[group(&[(0, 9)], 0), group(&[(9, 19)], 1)]), "slot 9 belongs to node0 and to node1"),
        (whole(&[group(&[(0, 9)], 0), group(&[(10, 19)], 0)]), "the node node0 is there twice"),
        (whole(&[group(&[(9, 0)], 0)]), "group 0: the slot range 9 to 0 is reversed"),
        (whole(&[migrating, group(&[(10, 19)], 1)]), "migration: no slots go to node1"),
        ("{}".to_owned(), "it is not an array of groups"),
        ("[".repeat(100_000), "no JSON: recursion limit exceeded at line 1 column 128"),
        (String::new(), "no JSON: EOF while parsing a value at line 1 column 0"),
    ] {
        let refusal = text(first.call(&["DFLYCLUSTER", "CONFIG", &json]));
        assert_eq!(refusal, format!("ERR Invalid cluster configuration: {reason}"));
    }
    assert_eq!(text(run(&mut first, "CLUSTER NODES")), before);
    assert_eq!(text(run(&mut first, "GET bar")), "1");
    assert_eq!(std::fs::read(nodes.folders[0].path().join("nodes.conf")).expect("the file"), kept);
    let plain = Server::start(&["--cluster_mode=emulated"]);
    assert!(text(run(&mut plain.client(), "DFLYCLUSTER CONFIG []")).starts_with("ERR Cluster is disabled"));
}

#[test]
fn keys_of_slots_that_leave_are_removed_and_their_clients_sent_on() {
    let mut nodes = Nodes::start("cluster-leave", 2, &["--appendonly=yes"]);
    nodes.push(&[nodes.group(&[(0, 16383)], 0, &[]), nodes.group(&[], 1, &[])]);
    let mut first = nodes.client(0);
    for n in 0..1000 {
        assert_eq!(run(&mut first, &format!("SET key:{n} {n}")), Value::ok());
    }
    let stays = (0..1000).filter(|n| darter_slot(&format!("key:{n}")) < 8192).count() as i64;
    let (mut waits, mut hears, mut watches) = (nodes.client(0), nodes.client(0), nodes.client(0));
    // foo leaves, bar stays.
    waits.send_all(&[&["BLPOP", "foo", "0"]]);
    assert!(matches!(run(&mut hears, "SSUBSCRIBE foo"), Value::Array(_)));
    assert!(matches!(run(&mut hears, "SSUBSCRIBE bar"), Value::Array(_)));
    run(&mut watches, "WATCH key:0");
    wait_until("it waits", || first.info::<u64>("clients", "blocked_clients") == 1);
    nodes.push(&[nodes.group(&[(0, 8191)], 0, &[]), nodes.group(&[(8192, 16383)], 1, &[])]);
    let moved = format!("MOVED 12182 127.0.0.1:{}", nodes.port(1));
    assert_eq!(text(waits.read()), moved);
    assert_eq!(hears.read(), Value::array(&["sunsubscribe", "foo", ":1"]));
    assert_eq!(run(&mut first, "SPUBLISH bar x"), Value::Int(1));
    assert_eq!(hears.read(), Value::array(&["smessage", "bar", "x"]));
    wait_until("the keys are removed", || run(&mut first, "DBSIZE") == Value::Int(stays));
    assert_eq!(run(&mut first, "CLUSTER COUNTKEYSINSLOT 12182"), Value::Int(0));
    assert!(darter_slot("key:0") < 8192, "it stays, so the transaction runs");
    run(&mut watches, "MULTI");
    assert_eq!(run(&mut watches, "EXEC"), Value::Array(Vec::new()));

    // The configuration and the keys are there after a restart, and nothing else.
    drop(nodes.servers.remove(0));
    nodes.servers.insert(0, start_node(&nodes.folders[0], 0, &["--appendonly=yes"]));
    let mut first = nodes.client(0);
    assert_eq!(text(run(&mut first, "GET foo")), moved);
    assert_eq!(run(&mut first, "DBSIZE"), Value::Int(stays));
    let shown = text(run(&mut first, "CLUSTER NODES"));
    assert!(
        shown.contains("node0 ") && shown.contains(" myself,master - 0 0 2 connected 0-8191\n"),
        "{shown}"
    );
    // A configuration without this node takes nothing from it.
    nodes.push(&[nodes.group(&[(0, 16383)], 1, &[])]);
    assert_eq!(text(run(&mut first, "GET bar")), format!("MOVED 5061 127.0.0.1:{}", nodes.port(1)));
    assert_eq!(run(&mut first, "DBSIZE"), Value::Int(stays));
}

#[test]
fn a_replica_serves_reads_of_clients_that_ask() {
    let nodes = Nodes::start("cluster-replica", 3, &[]);
    nodes.push(&[nodes.group(&[(0, 8191)], 0, &[2]), nodes.group(&[(8192, 16383)], 1, &[])]);
    assert_eq!(nodes.client(2).call(&["REPLICAOF", "127.0.0.1", &nodes.port(0).to_string()]), Value::ok());
    run(&mut nodes.client(0), "SET bar 1");
    let mut replica = nodes.client(2);
    run(&mut replica, "READONLY");
    wait_until("it has the key", || run(&mut replica, "GET bar") == Value::Text("1".into()));
    let moved = |slot: u16, at: usize| format!("MOVED {slot} 127.0.0.1:{}", nodes.port(at));
    assert_eq!(text(run(&mut replica, "SET bar 2")), moved(5061, 0));
    assert_eq!(text(run(&mut replica, "GET foo")), moved(12182, 1));
    run(&mut replica, "MULTI");
    run(&mut replica, "GET bar");
    assert_eq!(run(&mut replica, "EXEC"), Value::array(&["1"]));
    run(&mut replica, "READWRITE");
    assert_eq!(text(run(&mut replica, "GET bar")), moved(5061, 0));
    let id = "node0";
    let Value::Array(lines) = run(&mut replica, &format!("CLUSTER REPLICAS {id}")) else {
        panic!("no lines")
    };
    assert_eq!(lines.len(), 1);
    assert_eq!(text(run(&mut replica, "CLUSTER REPLICAS node2")), "ERR The specified node is not a master");
    assert_eq!(text(run(&mut replica, "CLUSTER MYSHARDID")), "node0");
    // The replica takes over.
    run(&mut replica, "REPLICAOF NO ONE");
    nodes.push(&[nodes.group(&[(0, 8191)], 2, &[0]), nodes.group(&[(8192, 16383)], 1, &[])]);
    assert_eq!(run(&mut replica, "SET bar 3"), Value::ok());
    assert_eq!(text(run(&mut nodes.client(0), "GET bar")), moved(5061, 2));
}

#[test]
fn a_hole_in_the_map_stops_everything_or_its_slots() {
    let nodes = Nodes::start("cluster-hole", 1, &[]);
    nodes.push(&[nodes.group(&[(0, 8191)], 0, &[])]);
    let mut client = nodes.client(0);
    assert_eq!(text(run(&mut client, "GET bar")), "CLUSTERDOWN The cluster is down");
    assert_eq!(text(run(&mut client, "GET foo")), "CLUSTERDOWN Hash slot not served");
    assert!(text(run(&mut client, "CLUSTER INFO")).starts_with("cluster_state:fail\r\n"));
    run(&mut client, "CONFIG SET cluster-allow-reads-when-down yes");
    assert_eq!(run(&mut client, "GET bar"), Value::Null);
    assert_eq!(
        text(run(&mut client, "SET bar 1")),
        "CLUSTERDOWN The cluster is down and only accepts read commands"
    );
    run(&mut client, "CONFIG SET cluster-require-full-coverage no");
    assert_eq!(run(&mut client, "SET bar 1"), Value::ok());
    assert!(text(run(&mut client, "CLUSTER INFO")).starts_with("cluster_state:ok\r\n"));
    assert_eq!(text(run(&mut client, "GET foo")), "CLUSTERDOWN Hash slot not served");
    let Value::Array(found) = run(&mut client, "DFLYCLUSTER GETSLOTINFO SLOTS 5061 5062-5063") else {
        panic!("no slots")
    };
    assert_eq!(found.len(), 3);
    let Value::Array(slot) = &found[0] else { panic!("no slot") };
    assert_eq!(slot[..3], [Value::Int(5061), Value::Text("key_count".into()), Value::Int(1)]);
    assert_eq!(run(&mut client, "DFLYCLUSTER FLUSHSLOTS 5061 5061"), Value::ok());
    assert_eq!(run(&mut client, "DBSIZE"), Value::Int(0));
}

/// Nothing is written under an old map once a new one has been answered, whatever the writers do meanwhile.
#[test]
fn after_the_answer_no_key_of_another_slot_appears() {
    let nodes = Nodes::start("cluster-race", 2, &["--proactor_threads=2"]);
    let all = [nodes.group(&[(0, 16383)], 0, &[]), nodes.group(&[], 1, &[])];
    let half = [nodes.group(&[(0, 8191)], 0, &[]), nodes.group(&[(8192, 16383)], 1, &[])];
    nodes.push(&all);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (nodes, is_over) = (&nodes, &is_over);
            scope.spawn(move || {
                let mut client = nodes.client(0);
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) {
                    round += 1;
                    let sets: Vec<[String; 3]> = (0..64)
                        .map(|n| ["SET".to_owned(), format!("k{writer}:{round}:{n}"), "v".to_owned()])
                        .collect();
                    let sets: Vec<Vec<&str>> =
                        sets.iter().map(|set| set.iter().map(String::as_str).collect()).collect();
                    client.send_all(&sets.iter().map(Vec::as_slice).collect::<Vec<_>>());
                    for _ in &sets {
                        match client.read() {
                            Value::Status(_) => {}
                            Value::Error(line) => assert!(line.starts_with("MOVED "), "{line}"),
                            other => panic!("{other:?}"),
                        }
                    }
                    if round % 50 == 0 {
                        client.call(&["DFLYCLUSTER", "FLUSHSLOTS", "0", "16383"]);
                    }
                }
            });
        }
        let mut client = nodes.client(0);
        for _ in 0..20 {
            let json = format!("[{}]", half.join(","));
            assert_eq!(client.call(&["DFLYCLUSTER", "CONFIG", &json]), Value::ok());
            let foreign = |client: &mut Client| {
                let Value::Array(slots) = run(client, "DFLYCLUSTER GETSLOTINFO SLOTS 8192-16383") else {
                    panic!("no slots")
                };
                let keys = slots.iter().map(|slot| match slot {
                    Value::Array(fields) => fields[2].clone(),
                    other => panic!("{other:?}"),
                });
                keys.filter(|keys| *keys != Value::Int(0)).count()
            };
            wait_until("the keys are removed", || foreign(&mut client) == 0);
            assert_eq!(foreign(&mut client), 0, "none comes back");
            let json = format!("[{}]", all.join(","));
            assert_eq!(client.call(&["DFLYCLUSTER", "CONFIG", &json]), Value::ok());
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn memcached_clients_are_refused_other_slots() {
    use std::io::{BufRead, BufReader, Write};
    let port = crate::harness::free_port();
    let nodes = Nodes::start("cluster-memcached", 1, &["--memcached_port", &port.to_string()]);
    let other =
        r#"{"slot_ranges":[{"start":8192,"end":16383}],"master":{"id":"x","ip":"10.0.0.9","port":7}}"#;
    nodes.push(&[nodes.group(&[(0, 8191)], 0, &[]), other.to_owned()]);
    let stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
    let mut reader = BufReader::new(stream);
    let mut ask = |text: &str, lines: usize| {
        reader.get_mut().write_all(text.as_bytes()).expect("sent");
        let mut answer = String::new();
        (0..lines).for_each(|_| {
            reader.read_line(&mut answer).expect("a line");
        });
        answer
    };
    assert_eq!(ask("set bar 0 0 1\r\n1\r\n", 1), "STORED\r\n");
    assert_eq!(ask("get bar\r\n", 3), "VALUE bar 0 1\r\n1\r\nEND\r\n");
    assert_eq!(ask("get foo\r\n", 1), "SERVER_ERROR MOVED 12182 10.0.0.9:7\r\n");
    assert_eq!(ask("set foo 0 0 1\r\n1\r\n", 1), "SERVER_ERROR MOVED 12182 10.0.0.9:7\r\n");
    assert_eq!(
        ask("get bar foo\r\n", 1),
        "SERVER_ERROR CROSSSLOT Keys in request don't hash to the same slot\r\n"
    );
}

//! A cluster whose map is in etcd: `redis-cli --cluster`, the verbs of CLUSTER, and what happens without the store.

use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value, wait_until};
use crate::stored::{ClusterClient, StoredNodes, is_following, text, tool};

fn run(client: &mut Client, line: &str) -> Value {
    client.call(&line.split(' ').collect::<Vec<_>>())
}

#[test]
fn redis_cli_creates_checks_and_calls() {
    let Some(nodes) = StoredNodes::start("create", 6) else { return };
    let mut fresh = nodes.client(0);
    assert!(text(run(&mut fresh, "CLUSTER INFO")).contains("cluster_known_nodes:1\r\n"));
    assert_eq!(text(run(&mut fresh, "GET a")), "CLUSTERDOWN Hash slot not served");
    let mut args = vec!["create".to_owned()];
    args.extend((0..6).map(|at| nodes.address(at)));
    args.extend(["--cluster-replicas", "1", "--cluster-yes"].map(str::to_owned));
    let said = nodes.tool(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("All 16384 slots covered"), "{said}");
    nodes.settle();
    let said = nodes.tool(&["info", &nodes.address(4)]);
    assert!(said.contains("0 keys in 3 masters"), "{said}");
    assert_eq!(said.matches("| 1 slaves").count(), 3, "{said}");
    let said = nodes.tool(&["call", &nodes.address(2), "PING"]);
    assert_eq!(said.matches("PONG").count(), 6, "{said}");
    nodes.tool(&["set-timeout", &nodes.address(1), "15000"]);

    let mut client = ClusterClient::new(nodes.servers[0].port());
    for n in 0..200 {
        let key = format!("key:{n}");
        assert_eq!(client.call(&key, &["SET", &key, "1"]), Value::ok());
    }
    // The replicas have what their masters have, and serve it to those who ask.
    let keys_of = |role: &str| -> i64 {
        let mut clients: Vec<Client> = (0..6).map(|at| nodes.client(at)).collect();
        clients.retain_mut(|client| client.info::<String>("replication", "role") == role);
        assert_eq!(clients.len(), 3);
        let keys = clients.iter_mut().map(|client| match client.call(&["DBSIZE"]) {
            Value::Int(keys) => keys,
            other => panic!("{other:?}"),
        });
        keys.sum()
    };
    assert_eq!(keys_of("master"), 200);
    wait_until("the replicas have everything", || keys_of("slave") == 200);
    let lines = text(run(&mut fresh, "CLUSTER NODES"));
    assert_eq!(lines.lines().count(), 6, "{lines}");
    assert_eq!(lines.lines().filter(|line| line.contains("slave ")).count(), 3, "{lines}");
    for line in ["REPLICAOF NO ONE", "FAILOVER"] {
        let refusal = text(run(&mut fresh, line));
        assert!(refusal.ends_with("not allowed in cluster mode."), "{refusal}");
    }
    assert!(
        text(run(&mut fresh, "DFLYCLUSTER CONFIG []"))
            .starts_with("ERR the map of this cluster is in a store")
    );
}

#[test]
fn a_replica_takes_over_and_no_write_is_lost() {
    let Some(nodes) = StoredNodes::create("takeover", 3) else { return };
    let mut nodes = nodes;
    nodes.add();
    let master = nodes.id(0);
    nodes.tool(&[
        "add-node",
        &nodes.address(3),
        &nodes.address(0),
        "--cluster-slave",
        "--cluster-master-id",
        &master,
    ]);
    nodes.settle();
    let mut replica = nodes.client(3);
    wait_until("the replica follows", || is_following(&mut replica));
    let mut client = ClusterClient::new(nodes.servers[1].port());
    // {bar} is in slot 5061, of node 0.
    for n in 1..=300 {
        assert_eq!(client.call("bar", &["INCR", "bar"]), Value::Int(n));
        if n == 150 {
            nodes.change(3, "CLUSTER FAILOVER");
        }
    }
    nodes.settle();
    let lines = text(run(&mut replica, "CLUSTER NODES"));
    assert!(lines.lines().any(|line| line.contains("myself,master - ")), "{lines}");
    assert!(lines.contains(&format!(" slave {} ", nodes.id(3))), "{lines}");
    assert_eq!(
        text(run(&mut replica, "CLUSTER FAILOVER")),
        "ERR You should send CLUSTER FAILOVER to a replica"
    );
    let mut old = nodes.client(0);
    wait_until("the old master follows", || is_following(&mut old));
    assert_eq!(run(&mut old, "READONLY"), Value::ok());
    wait_until("the old master has it", || run(&mut old, "GET bar") == Value::Text("300".to_owned()));
}

#[test]
fn nodes_come_and_go() {
    let Some(mut nodes) = StoredNodes::create("grow", 3) else { return };
    nodes.add();
    let mut client = ClusterClient::new(nodes.servers[0].port());
    for n in 0..500 {
        let key = format!("key:{n}");
        assert_eq!(client.call(&key, &["SET", &key, &n.to_string()]), Value::ok());
    }
    nodes.tool(&["add-node", &nodes.address(3), &nodes.address(0)]);
    nodes.agree();
    let said = nodes.tool(&["info", &nodes.address(0)]);
    assert!(said.contains("500 keys in 4 masters"), "{said}");
    let (from, to) = (nodes.id(0), nodes.id(3));
    let reshard = ["reshard", &nodes.address(1), "--cluster-from", &from, "--cluster-to", &to];
    nodes.tool(&[&reshard[..], &["--cluster-slots", "50", "--cluster-yes"]].concat());
    nodes.settle();
    assert!(nodes.client(3).info::<u64>("cluster", "cluster_redirects_moved") == 0);
    let back = ["reshard", &nodes.address(1), "--cluster-from", &to, "--cluster-to", &from];
    nodes.tool(&[&back[..], &["--cluster-slots", "50", "--cluster-yes"]].concat());
    nodes.agree();
    nodes.tool(&["del-node", &nodes.address(0), &to]);
    nodes.settle();
    for n in 0..500 {
        let key = format!("key:{n}");
        assert_eq!(client.call(&key, &["GET", &key]), Value::Text(n.to_string()), "{key}");
    }
    let lines = text(run(&mut nodes.client(3), "CLUSTER NODES"));
    assert_eq!(lines.lines().count(), 1, "it knows itself alone: {lines}");
}

#[test]
fn fix_repairs_each_broken_state() {
    let Some(nodes) = StoredNodes::create("fix", 3) else { return };
    let mut client = ClusterClient::new(nodes.servers[0].port());
    for n in 0..40 {
        assert_eq!(client.call("bar", &["SET", &format!("{{bar}}{n}"), "1"]), Value::ok());
    }
    let ids = [nodes.id(0), nodes.id(1)];
    let half = |nodes: &StoredNodes| {
        let mut words = vec!["MIGRATE", "127.0.0.1"];
        let port = nodes.servers[1].port().to_string();
        words.extend([&port[..], "", "0", "60000", "KEYS"]);
        let keys: Vec<String> = (0..20).map(|n| format!("{{bar}}{n}")).collect();
        words.extend(keys.iter().map(String::as_str));
        nodes.client(0).call(&words)
    };
    type Break = fn(&StoredNodes, &[String; 2]);
    let broken: [(&str, Break); 5] = [
        ("only the source is open", |nodes, ids| {
            nodes.change(0, &format!("CLUSTER SETSLOT 5061 MIGRATING {}", ids[1]));
        }),
        ("only the target is open", |nodes, ids| {
            nodes.change(1, &format!("CLUSTER SETSLOT 5061 IMPORTING {}", ids[0]));
        }),
        ("the slot is nobody's", |nodes, _| {
            nodes.change(0, "CLUSTER DELSLOTS 5061");
        }),
        ("an empty slot is nobody's", |nodes, _| {
            nodes.change(0, "CLUSTER DELSLOTS 7");
        }),
        ("both are open", |nodes, ids| {
            let (to, from) = (format!("MIGRATING {}", ids[1]), format!("IMPORTING {}", ids[0]));
            nodes.change(1, &format!("CLUSTER SETSLOT 5061 {from}"));
            nodes.change(0, &format!("CLUSTER SETSLOT 5061 {to}"));
        }),
    ];
    for (what, breaks) in broken {
        breaks(&nodes, &ids);
        if what == "both are open" {
            assert_eq!(half(&nodes), Value::ok());
        }
        nodes.agree();
        let (is_fine, said) = tool(&["check", &nodes.address(0)]);
        assert!(!is_fine || said.contains("[WARNING]") || said.contains("[ERR]"), "{what}: {said}");
        nodes.tool(&["fix", &nodes.address(2), "--cluster-yes"]);
        nodes.settle();
        for n in 0..40 {
            let key = format!("{{bar}}{n}");
            assert_eq!(client.call("bar", &["GET", &key]), Value::Text("1".to_owned()), "{what}: {key}");
        }
    }
}

#[test]
fn keys_are_imported_from_another_server() {
    let Some(nodes) = StoredNodes::create("import", 3) else { return };
    let source = Server::start(&[]);
    for n in 0..300 {
        assert_eq!(source.client().call(&["SET", &format!("key:{n}"), &n.to_string()]), Value::ok());
    }
    let from = format!("127.0.0.1:{}", source.port());
    nodes.tool(&["import", &nodes.address(0), "--cluster-from", &from]);
    assert_eq!(source.client().call(&["DBSIZE"]), Value::Int(0));
    let mut client = ClusterClient::new(nodes.servers[0].port());
    for n in 0..300 {
        let key = format!("key:{n}");
        assert_eq!(client.call(&key, &["GET", &key]), Value::Text(n.to_string()));
    }
}

#[test]
fn a_message_reaches_the_subscribers_of_every_node_once() {
    let Some(mut nodes) = StoredNodes::create("messages", 3) else { return };
    nodes.add();
    let master = nodes.id(0);
    let slave = ["--cluster-slave", "--cluster-master-id", &master];
    nodes.tool(&[&["add-node", &nodes.address(3), &nodes.address(0)][..], &slave].concat());
    nodes.settle();
    let mut replica = nodes.client(3);
    wait_until("the replica follows", || is_following(&mut replica));
    let mut listeners: Vec<Client> = (0..4).map(|at| nodes.client(at)).collect();
    for listener in &mut listeners {
        assert!(matches!(run(listener, "SUBSCRIBE news"), Value::Array(_)));
    }
    // A connection between two nodes is made with the first message.
    for at in 0..4 {
        for n in 0..50 {
            let said = nodes.client(at).call(&["PUBLISH", "news", &format!("{at}:{n}")]);
            assert_eq!(said, Value::Int(1), "its own subscriber");
        }
    }
    for (who, listener) in listeners.iter_mut().enumerate() {
        let mut next = [0; 4];
        for _ in 0..200 {
            let Value::Array(message) = listener.read() else { panic!("no message") };
            let said = text(message[2].clone());
            let (at, n) = said.split_once(':').expect("two numbers");
            let at: usize = at.parse().expect("a node");
            assert_eq!(n.parse(), Ok(next[at]), "messages of {at} at {who} are in order");
            next[at] += 1;
        }
        assert_eq!(next, [50; 4], "at {who}");
    }
}

#[test]
fn changes_inside_one_exec_are_one_change() {
    let Some(nodes) = StoredNodes::create("exec", 3) else { return };
    nodes.settle();
    let mut first = nodes.client(0);
    let all =
        ["MULTI", "CLUSTER DELSLOTS 1 2", "CLUSTER ADDSLOTS 1", "CLUSTER ADDSLOTS 6000", "CLUSTER BUMPEPOCH"];
    for line in all {
        run(&mut first, line);
    }
    let before = nodes.client(0).info::<u64>("cluster", "cluster_store_revision");
    let Value::Array(answers) = run(&mut first, "EXEC") else { panic!("it is refused") };
    assert_eq!(answers[..2], [Value::ok(), Value::ok()]);
    assert!(text(answers[2].clone()).contains("Slot 6000 is already busy"), "{answers:?}");
    assert_eq!(answers[3], Value::Status("BUMPED 4".to_owned()));
    assert_eq!(first.info::<u64>("cluster", "cluster_store_revision"), before + 1);
    assert!(text(run(&mut first, "CLUSTER INFO")).contains("cluster_slots_assigned:16383\r\n"));
    for line in ["MULTI", "CLUSTER ADDSLOTS 2", "PING"] {
        run(&mut first, line);
    }
    let refused = format!("{:?}", run(&mut first, "EXEC"));
    assert!(refused.contains("goes with other changes alone"), "{refused}");
}

#[test]
fn without_the_store_all_goes_on_but_changes() {
    let Some(mut nodes) = StoredNodes::create("away", 3) else { return };
    nodes.etcd.stop();
    let mut client = ClusterClient::new(nodes.servers[0].port());
    for n in 0..100 {
        let key = format!("key:{n}");
        assert_eq!(client.call(&key, &["SET", &key, "1"]), Value::ok());
    }
    let mut first = nodes.client(0);
    let away = "CLUSTERDOWN the cluster's store cannot be reached";
    for line in ["CLUSTER DELSLOTS 5", "CLUSTER BUMPEPOCH", "CLUSTER SETSLOT 5 STABLE"] {
        assert_eq!(text(run(&mut first, line)), away, "{line}");
    }
    assert_eq!(first.info::<u8>("cluster", "cluster_store_connected"), 0);
    assert!(nodes.etcd.go_on());
    wait_until("the store is back", || first.info::<u8>("cluster", "cluster_store_connected") == 1);
    wait_until("changes are made again", || matches!(run(&mut first, "CLUSTER BUMPEPOCH"), Value::Status(_)));
    nodes.settle();
}

#[test]
fn wrong_words_are_refused_as_by_redis() {
    let Some(nodes) = StoredNodes::create("words", 3) else { return };
    let mut first = nodes.client(0);
    let (own, other) = (nodes.id(0), nodes.id(1));
    for (line, refusal) in [
        ("ADDSLOTS 1", "ERR Slot 1 is already busy"),
        ("ADDSLOTS x", "ERR Invalid or out of range slot"),
        ("ADDSLOTS 16384", "ERR Invalid or out of range slot"),
        ("DELSLOTS 1 1", "ERR Slot 1 specified multiple times"),
        ("ADDSLOTSRANGE 9 8", "ERR start slot number 9 is greater than end slot number 8"),
        ("ADDSLOTSRANGE 9 10 11", "ERR wrong number of arguments for 'cluster|addslotsrange' command"),
        ("SETSLOT 1 IMPORTING OTHER", "ERR I'm already the owner of hash slot 1"),
        ("SETSLOT 16000 MIGRATING OTHER", "ERR I'm not the owner of hash slot 16000"),
        ("SETSLOT 1 MIGRATING x", "ERR I don't know about node x"),
        ("SETSLOT 1 NODE x", "ERR Unknown node x"),
        ("SETSLOT 1 WRONG", "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP"),
        ("FORGET OWN", "ERR I tried hard but I can't forget myself..."),
        ("FORGET x", "ERR Unknown node x"),
        ("REPLICATE OWN", "ERR Can't replicate myself"),
        ("REPLICATE x", "ERR Unknown node x"),
        ("REPLICATE OTHER", "ERR To set a master the node must be empty and without assigned slots."),
        ("MEET host 0", "ERR Invalid node address specified: host:0"),
        (
            "SET-CONFIG-EPOCH 5",
            "ERR The user can assign a config epoch only when the node does not know any other node.",
        ),
        ("SET-CONFIG-EPOCH -5", "ERR Invalid config epoch specified: -5"),
        ("RESET NOW", "ERR syntax error"),
    ] {
        let line = line.replace("OWN", &own).replace("OTHER", &other);
        let said = text(run(&mut first, &format!("CLUSTER {line}")));
        assert_eq!(said, refusal.replace("OTHER", &other), "{line}");
    }
    assert_eq!(run(&mut first, "SET bar 1"), Value::ok());
    let held =
        "ERR Can't assign hashslot 5061 to a different node while I still hold keys for this hash slot.";
    for at in [0, 1] {
        let line = format!("CLUSTER SETSLOT 5061 NODE {other}");
        assert_eq!(text(run(&mut nodes.client(at), &line)), held, "at {at}");
    }
    for line in ["CLUSTER RESET", "CLUSTER FLUSHSLOTS"] {
        assert!(matches!(run(&mut first, line), Value::Error(_)), "there is a key");
    }
    assert!(
        text(run(&mut first, "CLUSTER NODES")).lines().all(|line| !line.contains('[')),
        "no slot is left open"
    );
}

#[test]
fn nodes_that_are_told_of_changes_seldom_ask() {
    let flags = ["--ha_lease_ms", "5000", "--min_replicas_to_ack", "1"];
    let Some(nodes) = StoredNodes::create_with("told", 3, &flags) else { return };
    // Each of the three reads two keys once a second; it was ten times. A second run where a busy machine has lost a watch.
    let asked = || {
        let (before, began) = (nodes.etcd.reads(), Instant::now());
        std::thread::sleep(Duration::from_secs(3));
        (nodes.etcd.reads() - before) / began.elapsed().as_secs_f64()
    };
    wait_until("they ask less than 20 times a second", || asked() < 20.0);
    // Nobody tells this node but the store: others cannot reach it.
    nodes.doors[2].cut();
    nodes.change(0, "CLUSTER DELSLOTSRANGE 0 9");
    let revision = nodes.client(0).info::<u64>("cluster", "cluster_store_revision");
    let mut apart = Client::connect(nodes.servers[2].port());
    wait_until("it knows the change", || apart.info::<u64>("cluster", "cluster_store_revision") >= revision);
    // What the store tells does not arrive any more: a read finds the change, and the node listens on another connection.
    nodes.gates[2].mute();
    nodes.change(0, "CLUSTER ADDSLOTSRANGE 0 9");
    nodes.servers[2].wait_until_it_says("asked often: etcd has not told of a change", 1);
    nodes.doors[2].mend(true);
}

//! What a master and a replica answer about each other: acknowledgements, dead keys, roles, as Redis does.

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, wait_until};
use crate::nodes::{Node, field, follow, signal};

fn has_online(client: &mut Client) -> bool {
    matches!(client.call(&["INFO", "replication"]), Value::Text(info) if info.contains("state=online"))
}

/// A snapshot that was sent counted as acknowledged before it was loaded.
#[test]
fn wait_counts_what_a_replica_has_loaded() {
    let (master, replica) = (Server::start(&[]), Server::start(&["--key-load-delay", "60000000"]));
    let (mut client, mut other) = (master.client(), replica.client());
    client.call(&["SET", "k", "v"]);
    other.call(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    wait_until("the snapshot is sent", || has_online(&mut client));
    assert_eq!(client.call(&["WAIT", "1", "50"]), Value::Int(0));
    assert_eq!(other.call(&["CONFIG", "SET", "key-load-delay", "0"]), Value::ok());
    assert_eq!(client.call(&["WAIT", "1", "0"]), Value::Int(1));
    let mut reader = replica.client();
    assert_eq!(reader.call(&["GET", "k"]), Value::Text("v".to_owned()));
}

/// Dead keys were left out at the start of a master, and stayed with the replicas that continued.
#[test]
fn keys_that_die_while_a_master_is_away_go_at_its_replicas_too() {
    let folder = Folder::new("promises-dead");
    let flags = ["--dir", folder.text(), "--dbfilename", "dump", "--repl-ping-replica-period", "3600"];
    let master = Server::start(&flags);
    let replica = Server::start(&[]);
    let (mut client, mut other) = (master.client(), replica.client());
    for n in 0..50 {
        client.call(&["SET", &format!("stays:{n}"), "v"]);
        client.call(&["SET", &format!("dies:{n}"), "v", "PX", "1500"]);
    }
    follow(&mut other, master.port());
    // Neither a ping nor the end of a key makes the replica's history longer than what is saved.
    assert_eq!(client.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), Value::ok());
    assert_eq!(client.call(&["WAIT", "1", "0"]), Value::Int(1));
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    drop(master);
    std::thread::sleep(std::time::Duration::from_millis(1600));
    // Housekeeping looks at what is there while the rest is read: what it removed then was told to nobody.
    let master = Server::start(&[&flags[..], &["--key-load-delay", "5000"]].concat());
    let mut client = master.client().loaded();
    follow(&mut other, master.port());
    wait_until("what is dead is gone", || {
        [&mut client, &mut other].into_iter().all(|client| client.call(&["DBSIZE"]) == Value::Int(50))
    });
    assert_eq!(client.info::<u64>("stats", "sync_full"), 0);
}

/// Writes over a dead key of a writable replica were answered and lost.
#[test]
fn a_writable_replica_writes_over_dead_keys() {
    let (master, replica) = (Server::start(&[]), Server::start(&["--replica-read-only", "no"]));
    let mut client = replica.client();
    follow(&mut client, master.port());
    let dead = |client: &mut Client, key: &str| {
        client.call(&["SET", key, "5", "PX", "1"]);
        wait_until("it is dead", || client.call(&["EXISTS", key]) == Value::Int(0));
    };
    for key in ["a", "b", "c", "d"] {
        dead(&mut client, key);
    }
    assert_eq!(client.call(&["INCR", "a"]), Value::Int(1));
    assert_eq!(client.call(&["TTL", "a"]), Value::Int(-1));
    assert_eq!(client.call(&["GET", "a"]), Value::Text("1".to_owned()));
    assert_eq!(client.call(&["SET", "b", "2", "NX"]), Value::ok());
    assert_eq!(client.call(&["GET", "b"]), Value::Text("2".to_owned()));
    assert_eq!(client.call(&["RPUSH", "c", "x"]), Value::Int(1));
    assert_eq!(client.call(&["LRANGE", "c", "0", "-1"]), Value::array(&["x"]));
    wait_until("a dead key goes by itself", || client.call(&["DBSIZE"]) == Value::Int(3));
    // As the setting says, from the next command on.
    assert_eq!(client.call(&["CONFIG", "SET", "replica-read-only", "yes"]), Value::ok());
    assert!(matches!(client.call(&["SET", "a", "3"]), Value::Error(line) if line.starts_with("READONLY")));
}

/// Dead keys of a master that stands still, as the clients of a replica see them. The last ones read dead keys to write others:
/// Redis leaves those, so nothing is counted after them.
const AMONG_THE_DEAD: &[&str] = &[
    "DBSIZE",
    "GET k0",
    "EXISTS k0 k1",
    "TTL k0",
    "TYPE k0",
    "DUMP k0",
    "SCAN 0 COUNT 1000",
    "KEYS *",
    "DBSIZE",
    "LLEN l0",
    "HGET h0 f",
    "SCARD s0",
    "DBSIZE",
    "DEL k0 k1",
    "DBSIZE",
    "UNLINK k2",
    "DBSIZE",
    "INCR k3",
    "TTL k3",
    "APPEND k4 x",
    "SET k5 v XX",
    "DBSIZE",
    "SET k5 v NX",
    "GETDEL k6",
    "EXPIRE k8 100",
    "DBSIZE",
    "PERSIST k9",
    "RENAME k10 z",
    "RPUSH l0 c",
    "LRANGE l0 0 -1",
    "LPUSHX l1 c",
    "LPOP l2",
    "HSET h0 g 1",
    "HGETALL h0",
    "HDEL h1 f",
    "SADD s0 c",
    "DBSIZE",
    "MSET k11 a k12 b",
    "TTL k11",
    "MSETNX k13 a k14 b",
    "EVAL return{redis.call('get',KEYS[1]),redis.call('del',KEYS[1])} 1 k15",
    "EVAL return{redis.call('exists',KEYS[1]),redis.call('incr',KEYS[1])} 1 k16",
    "DBSIZE",
    "MULTI",
    "DEL k17",
    "EXISTS k18",
    "SET k18 v",
    "EXEC",
    "DBSIZE",
    "GETEX k7 PERSIST",
    "SMOVE s1 s2 a",
    "SUNIONSTORE s3 s4 s5",
    "FLUSHDB",
    "DBSIZE",
];

fn among_the_dead(master: &Node, replica: &Node) -> Vec<(String, Value)> {
    let (mut from, mut to) = (master.client(), replica.client());
    for n in 0..20 {
        from.call(&["SET", &format!("k{n}"), "5"]);
        if n < 8 {
            from.call(&["RPUSH", &format!("l{n}"), "a", "b"]);
            from.call(&["HSET", &format!("h{n}"), "f", "1"]);
            from.call(&["SADD", &format!("s{n}"), "a", "b"]);
        }
    }
    follow(&mut to, master.port());
    // The master has no time to remove one of them.
    let keys: Vec<String> = match from.call(&["KEYS", "*"]) {
        Value::Array(keys) => keys.iter().map(|key| format!("{key:?}")).collect(),
        other => panic!("{other:?}"),
    };
    let names: Vec<&str> = keys.iter().filter_map(|key| key.split('"').nth(1)).collect();
    let calls: Vec<[&str; 3]> = names.iter().map(|name| ["PEXPIRE", *name, "3000"]).collect();
    from.send_all(&calls.iter().map(|call| &call[..]).collect::<Vec<_>>());
    calls.iter().for_each(|_| assert_eq!(from.read(), Value::Int(1)));
    wait_until("the replica knows of it", || {
        names.iter().all(|name| matches!(to.call(&["PTTL", name]), Value::Int(1..)))
    });
    signal(master.pid(), "STOP");
    wait_until("they are dead", || to.call(&["KEYS", "*"]) == Value::array(&[]));
    let mut seen = Vec::new();
    for line in AMONG_THE_DEAD {
        seen.push(((*line).to_owned(), to.call(&line.split(' ').collect::<Vec<_>>())));
    }
    // What clients of a writable replica let expire goes by itself.
    if to.call(&["SET", "own", "v", "PX", "1"]) == Value::ok() {
        wait_until("it goes", || to.call(&["DBSIZE"]) == Value::Int(0));
    }
    signal(master.pid(), "CONT");
    seen
}

#[test]
fn a_replica_sees_dead_keys_of_its_master_as_one_of_redis() {
    for read_only in ["yes", "no"] {
        let pairs = [Node::redis(&[]), Node::redis(&["--replica-read-only", read_only])];
        let [Some(master), Some(replica)] = pairs else { return };
        let wanted = among_the_dead(&master, &replica);
        let ours = || Node::ours(&["--replica-read-only", read_only]);
        drop(replica);
        for master in [Node::redis(&[]), Some(Node::ours(&[]))].into_iter().flatten() {
            assert_eq!(among_the_dead(&master, &ours()), wanted, "read-only: {read_only}");
        }
    }
}

/// A replica that leads removes what has died meanwhile, though it has swept nothing as a replica.
#[test]
fn a_writable_replica_that_leads_removes_what_is_dead() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--replica-read-only", "no"]));
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    for n in 0..200 {
        from.call(&["SET", &format!("k{n}"), "v", "PX", "1000"]);
    }
    wait_until("all have come", || to.call(&["DBSIZE"]) == Value::Int(200));
    signal(master.pid(), "STOP");
    wait_until("they are dead", || to.call(&["KEYS", "*"]) == Value::array(&[]));
    assert_eq!(to.call(&["DBSIZE"]), Value::Int(200));
    assert_eq!(to.call(&["REPLICAOF", "NO", "ONE"]), Value::ok());
    wait_until("they are gone", || to.call(&["DBSIZE"]) == Value::Int(0));
    signal(master.pid(), "CONT");
}

/// `redis-cli --replica` asks for a copy without anything in it, and for the stream.
#[test]
fn a_replica_that_wants_no_keys_gets_the_stream() {
    let master = Server::start(&[]);
    master.client().call(&["SET", "before", "1"]);
    let mut replica = master.client();
    assert_eq!(replica.call(&["REPLCONF", "rdb-filter-only", ""]), Value::ok());
    replica.send_all(&[&["SYNC"]]);
    // Signs of life come before it.
    while replica.read_bytes(1) != b"$" {}
    let len: usize = replica.read_line().parse().expect("a length");
    let copy = replica.read_bytes(len);
    assert!(copy.starts_with(b"REDIS") && !copy.windows(6).any(|word| word == b"before"));
    master.client().call(&["SET", "after", "2"]);
    let mut seen = Value::Null;
    while seen != Value::array(&["set", "after", "2"]) {
        seen = replica.read();
    }
}

#[test]
fn good_replicas_count_at_once() {
    let master = Server::start(&["--min-replicas-to-write", "1"]);
    let replica = Server::start(&[]);
    let (mut client, mut other) = (master.client(), replica.client());
    assert_eq!(
        client.call(&["SET", "k", "v"]),
        Value::error("NOREPLICAS Not enough good replicas to write.")
    );
    other.call(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    wait_until("it is online", || has_online(&mut client));
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
}

#[test]
fn exec_looks_again_whether_old_data_may_be_served() {
    let server = Server::start(&["--replica-serve-stale-data", "no"]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    assert_eq!(client.call(&["MULTI"]), Value::ok());
    client.call(&["GET", "k"]);
    server.client().call(&["REPLICAOF", "127.0.0.1", "1"]);
    let answer = client.call(&["EXEC"]);
    let starts = "EXECABORT Transaction discarded because of: MASTERDOWN Link with MASTER is down";
    assert!(matches!(&answer, Value::Error(line) if line.starts_with(starts)), "{answer:?}");
}

#[test]
fn words_of_failover_have_no_order_and_an_aborted_one_is_over() {
    let (master, replica) = (Server::start(&[]), Server::start(&[]));
    let (mut client, mut other) = (master.client(), replica.client());
    follow(&mut other, master.port());
    let port = replica.port().to_string();
    let lacks =
        Value::error("ERR FAILOVER with force option requires both a timeout and target HOST and IP.");
    assert_eq!(client.call(&["FAILOVER", "FORCE"]), lacks);
    assert_eq!(client.call(&["FAILOVER", "TO", "127.0.0.1", &port, "FORCE"]), lacks);
    signal(replica.pid(), "STOP");
    client.call(&["SET", "k", "v"]);
    let words = ["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "3600000", "FORCE"];
    for _ in 0..20 {
        assert_eq!(client.call(&words), Value::ok());
        assert_eq!(client.call(&["FAILOVER", "ABORT"]), Value::ok());
        // Its thread may not have been scheduled within the time for which the answer waits.
        wait_until("it is over", || field(&mut client, "master_failover_state") == "no-failover");
    }
    signal(replica.pid(), "CONT");
    assert_eq!(client.call(&["SET", "k", "w"]), Value::ok());
}

#[test]
fn what_is_kept_for_replicas_is_shown_as_memory() {
    let (master, replica) = (Server::start(&[]), Server::start(&[]));
    let (mut client, mut other) = (master.client(), replica.client());
    follow(&mut other, master.port());
    signal(replica.pid(), "STOP");
    let value = "v".repeat(1 << 20);
    (0..16).for_each(|n| assert_eq!(client.call(&["SET", &format!("k{n}"), &value]), Value::ok()));
    wait_until("the bytes are counted", || {
        client.info::<u64>("memory", "mem_total_replication_buffers") > 1 << 20
    });
    signal(replica.pid(), "CONT");
}

/// What a replica had loaded was swept hours after it had become a master, by the time of the day.
#[test]
fn keys_that_a_replica_has_loaded_expire_by_themselves_when_it_leads() {
    let (master, replica) = (Server::start(&[]), Server::start(&[]));
    let (mut client, mut other) = (master.client(), replica.client());
    for n in 0..50 {
        client.call(&["SET", &format!("dies:{n}"), "v", "PX", "3000"]);
    }
    follow(&mut other, master.port());
    assert_eq!(other.call(&["REPLICAOF", "NO", "ONE"]), Value::ok());
    wait_until("what is dead is gone", || other.call(&["DBSIZE"]) == Value::Int(0));
}

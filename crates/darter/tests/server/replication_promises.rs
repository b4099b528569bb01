//! What a master and a replica answer about each other: acknowledgements, dead keys, roles, as Redis does.

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, wait_until};
use crate::nodes::{field, follow, signal};

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

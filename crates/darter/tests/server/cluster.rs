//! The emulated cluster: what cluster clients ask, and what there is none of.

use crate::harness::{Server, Value};

fn text(value: Value) -> String {
    match value {
        Value::Error(text) | Value::Status(text) | Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn without_a_cluster_every_question_is_refused() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for call in [
        "CLUSTER INFO",
        "CLUSTER SLOTS",
        "CLUSTER SHARDS",
        "CLUSTER NODES",
        "CLUSTER MYID",
        "CLUSTER KEYSLOT a",
        "CLUSTER COUNTKEYSINSLOT 1",
        "CLUSTER GETKEYSINSLOT 1 1",
        "CLUSTER HELP",
        "READONLY",
        "READWRITE",
        "ASKING",
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        assert_eq!(text(client.call(&words)), "ERR This instance has cluster support disabled", "{call}");
    }
    assert_eq!(text(client.call(&["CLUSTER", "FOO"])), "ERR unknown subcommand 'FOO'. Try CLUSTER HELP.");
    assert!(text(client.call(&["INFO", "cluster"])).contains("cluster_enabled:0"));
}

#[test]
fn one_server_owns_every_slot() {
    let id = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
    let server = Server::start(&["--cluster_mode=emulated", "--cluster_node_id", id]);
    let mut client = server.client();
    let port = i64::from(server.port());
    let int = Value::Int;
    let word = |word: &str| Value::Text(word.to_owned());
    let node = Value::Array(vec![word("127.0.0.1"), int(port), word(id), Value::Array(Vec::new())]);
    let wanted = Value::Array(vec![Value::Array(vec![int(0), int(16383), node])]);
    assert_eq!(client.call(&["CLUSTER", "SLOTS"]), wanted);
    let line = format!("{id} 127.0.0.1:{port}@{} myself,master - 0 0 1 connected 0-16383\n", port + 10_000);
    assert_eq!(text(client.call(&["CLUSTER", "NODES"])), line);
    let Value::Array(shards) = client.call(&["CLUSTER", "SHARDS"]) else { panic!("no shards") };
    assert_eq!(shards.len(), 1);
    let info = text(client.call(&["CLUSTER", "INFO"]));
    assert!(info.starts_with("cluster_state:ok\r\ncluster_slots_assigned:16384\r\n"), "{info}");
    assert_eq!(client.call(&["CLUSTER", "MYID"]), word(id));
    assert_eq!(client.call(&["CLUSTER", "MYSHARDID"]), word(id));
    assert_eq!(client.call(&["CLUSTER", "LINKS"]), Value::Array(Vec::new()));
    assert_eq!(client.call(&["CLUSTER", "REPLICAS", id]), Value::Array(Vec::new()));
    assert_eq!(client.call(&["CLUSTER", "COUNT-FAILURE-REPORTS", id]), int(0));
    assert_eq!(text(client.call(&["CLUSTER", "REPLICAS", "x"])), "ERR Unknown node x");
    for call in ["READONLY", "READWRITE", "ASKING"] {
        assert_eq!(client.call(&[call]), Value::ok());
    }
    assert!(text(client.call(&["INFO", "cluster"])).contains("cluster_enabled:1"));
    assert!(text(client.call(&["INFO", "server"])).contains("redis_mode:cluster"));
}

#[test]
fn slots_have_keys_and_keys_of_several_slots_go_together() {
    let server = Server::start(&["--cluster-enabled", "yes"]);
    let mut client = server.client();
    assert_eq!(client.call(&["MSET", "foo", "1", "bar", "2", "{foo}x", "3"]), Value::ok());
    assert_eq!(client.call(&["CLUSTER", "KEYSLOT", "foo"]), Value::Int(12182));
    assert_eq!(client.call(&["CLUSTER", "COUNTKEYSINSLOT", "12182"]), Value::Int(2));
    assert_eq!(client.call(&["CLUSTER", "COUNTKEYSINSLOT", "5061"]), Value::Int(1));
    assert_eq!(client.call(&["CLUSTER", "COUNTKEYSINSLOT", "0"]), Value::Int(0));
    assert_eq!(client.call(&["CLUSTER", "GETKEYSINSLOT", "5061", "10"]), Value::array(&["bar"]));
    let Value::Array(found) = client.call(&["CLUSTER", "GETKEYSINSLOT", "12182", "1"]) else {
        panic!("no keys")
    };
    assert_eq!(found.len(), 1);
    assert_eq!(client.call(&["CLUSTER", "GETKEYSINSLOT", "12182", "0"]), Value::Array(Vec::new()));
    for (call, error) in [
        ("COUNTKEYSINSLOT 16384", "ERR Invalid slot"),
        ("COUNTKEYSINSLOT -1", "ERR Invalid slot"),
        ("COUNTKEYSINSLOT x", "ERR value is not an integer or out of range"),
        ("GETKEYSINSLOT 16384 1", "ERR Invalid slot or number of keys"),
        ("GETKEYSINSLOT 1 -1", "ERR Invalid slot or number of keys"),
    ] {
        let words: Vec<&str> = std::iter::once("CLUSTER").chain(call.split(' ')).collect();
        assert_eq!(text(client.call(&words)), error, "{call}");
    }
}

#[test]
fn clients_are_told_what_the_settings_say() {
    let flags = ["--cluster_mode=emulated", "--cluster_announce_ip", "10.1.2.3", "--announce_port", "7000"];
    let server = Server::start(&flags);
    let mut client = server.client();
    let shown = text(client.call(&["CLUSTER", "NODES"]));
    assert!(shown.contains(" 10.1.2.3:7000@17000 myself,master "), "{shown}");
    client.call(&["CONFIG", "SET", "cluster-announce-hostname", "a.example"]);
    client.call(&["CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"]);
    let shown = format!("{:?}", client.call(&["CLUSTER", "SLOTS"]));
    assert!(shown.contains("a.example") && shown.contains("10.1.2.3"), "{shown}");
    assert!(text(client.call(&["CLUSTER", "NODES"])).contains("@17000,a.example "));
}

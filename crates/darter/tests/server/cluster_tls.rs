//! Clusters with TLS: clients are told the ports that they can use, and nodes reach each other encrypted.

use std::fmt::Debug;
use std::io::{Read, Write};

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, free_port, wait_until};
use crate::stored::{Etcd, group_role, is_following, text};
use crate::tls::Authority;

/// A node with a plain port and an encrypted one.
struct Node {
    server: Server,
    tls_port: u16,
    _folder: Folder,
}

impl Node {
    fn start(name: &str, etcd: &Etcd, authority: &Authority) -> Node {
        let (folder, tls_port) = (Folder::new(name), free_port());
        let (store, port) = (etcd.url().replace("http://", "etcd://"), tls_port.to_string());
        let ca = authority.file("ca.crt");
        let flags = authority.flags(&[
            "--cluster_mode=yes",
            "--tls-cluster=yes",
            "--tls-replication=yes",
            "--tls-auth-clients=no",
            // The cores are shared with others.
            "--ha_lease_ms=5000",
            "--cluster_store",
            &store,
            "--dir",
            folder.text(),
            "--tls-port",
            &port,
            "--tls-ca-cert-file",
            &ca,
        ]);
        let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        wait_until("it leads", || group_role(&mut server.client()) == "leading");
        Node { server, tls_port, _folder: folder }
    }

    fn run(&self, line: &str) -> Value {
        run(&mut self.server.client(), line)
    }

    fn id(&self) -> String {
        text(self.run("CLUSTER MYID"))
    }
}

fn run<S: Read + Write>(client: &mut Client<S>, line: &str) -> Value {
    client.call(&line.split(' ').collect::<Vec<_>>())
}

/// The integers in an answer, however deep.
fn integers(value: &Value) -> Vec<i64> {
    match value {
        Value::Int(number) => vec![*number],
        Value::Array(values) => values.iter().flat_map(integers).collect(),
        _ => Vec::new(),
    }
}

fn error(text: impl Debug + ToString) -> Value {
    Value::Error(text.to_string())
}

#[test]
fn clients_are_told_their_kind_of_port_and_nodes_use_the_encrypted_one() {
    let Some(etcd) = Etcd::start("cluster-tls-ports") else { return };
    let authority = Authority::new("cluster-tls-ports");
    authority.sign("server");
    let nodes = ["a", "b", "c"].map(|name| Node::start(&format!("tls-ports-{name}"), &etcd, &authority));
    let [a, b, replica] = &nodes;
    let ports = |node: &Node| (node.server.port(), node.tls_port);
    // Each is met at its encrypted port: nodes are asked by TLS alone.
    for other in [b, replica] {
        assert_eq!(other.run(&format!("CLUSTER MEET 127.0.0.1 {}", a.tls_port)), Value::ok());
    }
    assert_eq!(a.run("CLUSTER ADDSLOTSRANGE 0 8191"), Value::ok());
    assert_eq!(b.run("CLUSTER ADDSLOTSRANGE 8192 16383"), Value::ok());
    assert_eq!(replica.run(&format!("CLUSTER REPLICATE {}", a.id())), Value::ok());
    wait_until("all know all", || {
        nodes.iter().all(|node| {
            text(node.run("CLUSTER INFO")).contains("cluster_state:ok\r\ncluster_slots_assigned:16384\r\n")
        })
    });
    wait_until("it follows by TLS", || is_following(&mut replica.server.client()));

    let (mut plain, mut secure) = (a.server.client(), authority.connect(a.tls_port));
    for (is_tls, slots, lines) in [
        (false, run(&mut plain, "CLUSTER SLOTS"), run(&mut plain, "CLUSTER NODES")),
        (true, run(&mut secure, "CLUSTER SLOTS"), run(&mut secure, "CLUSTER NODES")),
    ] {
        let (told, lines) = (integers(&slots), text(lines));
        for node in &nodes {
            let (port, tls_port) = ports(node);
            let (right, wrong) = if is_tls { (tls_port, port) } else { (port, tls_port) };
            assert!(
                told.contains(&i64::from(right)) && !told.contains(&i64::from(wrong)),
                "{is_tls}: {slots:?}"
            );
            assert!(lines.contains(&format!(" 127.0.0.1:{right}@")), "{is_tls}: {lines}");
        }
    }
    let shards = format!("{:?}", run(&mut plain, "CLUSTER SHARDS"));
    assert!(
        shards.contains(r#"Text("port"), Int("#) && shards.contains(r#"Text("tls-port"), Int("#),
        "{shards}"
    );

    // "foo" is of b, "bar" of a.
    let (port, tls_port) = ports(b);
    assert_eq!(run(&mut plain, "GET foo"), error(format!("MOVED 12182 127.0.0.1:{port}")));
    assert_eq!(run(&mut secure, "GET foo"), error(format!("MOVED 12182 127.0.0.1:{tls_port}")));
    assert_eq!(run(&mut secure, "SET bar 1"), Value::ok());
    wait_until("the replica has it", || {
        let mut client = replica.server.client();
        assert_eq!(client.call(&["READONLY"]), Value::ok());
        client.call(&["GET", "bar"]) == Value::Text("1".to_owned())
    });

    // Key by key: MIGRATE goes by TLS as well.
    assert_eq!(b.run(&format!("CLUSTER SETSLOT 5061 IMPORTING {}", a.id())), Value::ok());
    assert_eq!(run(&mut plain, &format!("CLUSTER SETSLOT 5061 MIGRATING {}", b.id())), Value::ok());
    assert_eq!(run(&mut plain, &format!("MIGRATE 127.0.0.1 {tls_port} bar 0 10000")), Value::ok());
    assert_eq!(run(&mut plain, "GET bar"), error(format!("ASK 5061 127.0.0.1:{port}")));
    assert_eq!(run(&mut secure, "GET bar"), error(format!("ASK 5061 127.0.0.1:{tls_port}")));
    let queued = ["MULTI", "GET bar", "EXEC"].map(|line| run(&mut secure, line));
    assert_eq!(queued[1], Value::Status("QUEUED".to_owned()));
    assert_eq!(queued[2], error(format!("ASK 5061 127.0.0.1:{tls_port}")));
    for node in [b, a] {
        assert_eq!(node.run(&format!("CLUSTER SETSLOT 5061 NODE {}", b.id())), Value::ok());
    }
    wait_until("it has it", || b.run("GET bar") == Value::Text("1".to_owned()));

    // As a whole.
    assert_eq!(b.run("SET {foo}2 2"), Value::ok());
    assert!(matches!(a.run("CLUSTER MIGRATION IMPORT 12182 12182"), Value::Text(_)));
    wait_until("it has come", || a.run("GET {foo}2") == Value::Text("2".to_owned()));
}

#[test]
fn a_node_whose_only_port_is_encrypted_shows_no_other() {
    let authority = Authority::new("cluster-tls-only");
    authority.sign("server");
    let server = authority.start(&["--tls", "--cluster_mode=emulated"]);
    let mut client = authority.connect(server.port());
    let shards = format!("{:?}", run(&mut client, "CLUSTER SHARDS"));
    let port = format!(r#"Text("tls-port"), Int({})"#, server.port());
    assert!(shards.contains(&port) && !shards.contains(r#"Text("port")"#), "{shards}");
    assert!(integers(&run(&mut client, "CLUSTER SLOTS")).contains(&i64::from(server.port())));
}

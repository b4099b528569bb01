//! Links as clients see them: rows of CLIENT LIST, CLIENT KILL, INFO clients, and CLIENT CAPA redirect.

use crate::harness::browser::Browser;
use crate::harness::{Client, Value, wait_until};
use crate::nodes::{Node, field, follow};

fn text(value: Value) -> String {
    match value {
        Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

fn list(client: &mut Client, words: &[&str]) -> Vec<String> {
    let listed = text(client.call(&[&["CLIENT", "LIST"], words].concat()));
    listed.lines().map(str::to_owned).collect()
}

/// The value of a field of a row.
fn part<'a>(row: &'a str, name: &str) -> &'a str {
    let parts = row.split(' ').filter_map(|part| part.split_once('='));
    parts.into_iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
}

fn is_up(client: &mut Client) -> bool {
    field(client, "master_link_status") == "up"
}

/// The id of the one client that is a replica.
fn row_of_replica(master: &mut Client) -> Option<String> {
    let rows = list(master, &["TYPE", "replica"]);
    (rows.len() == 1).then(|| part(&rows[0], "id").to_owned())
}

fn rows_of_a_link(master: &Node, replica: &Node) {
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    wait_until("it is known", || field(&mut from, "slave0").contains("state=online"));
    // At the replica: one client is the master.
    let addr = format!("127.0.0.1:{}", master.port());
    for how in ["ID", "ADDR", "TYPE"] {
        wait_until("the link is up", || is_up(&mut to) && row_of_replica(&mut from).is_some());
        let connection = row_of_replica(&mut from);
        let rows = list(&mut to, &["TYPE", "master"]);
        assert_eq!(rows.len(), 1, "{rows:?}");
        let row = &rows[0];
        let (id, user) = (part(row, "id").to_owned(), part(row, "user"));
        assert_eq!((part(row, "flags"), part(row, "addr"), user), ("M", addr.as_str(), "(superuser)"));
        let all = list(&mut to, &[]);
        assert_eq!(all.iter().filter(|row| part(row, "flags") == "M").count(), 1, "{all:?}");
        assert_eq!(list(&mut to, &["ID", &id]).len(), 1);
        assert_eq!(to.info::<u64>("clients", "connected_clients"), 2);
        let value = match how {
            "ID" => id.as_str(),
            "ADDR" => addr.as_str(),
            _ => "master",
        };
        assert_eq!(to.call(&["CLIENT", "KILL", how, value]), Value::Int(1), "{how} {value}");
        // A replica of Redis keeps the client, with its id, for the next link: the master alone sees another one.
        let is_new = |next: &Option<String>| next.is_some() && *next != connection;
        wait_until("another link has begun", || is_new(&row_of_replica(&mut from)));
    }
    assert_eq!(to.call(&["CLIENT", "KILL", "TYPE", "replica"]), Value::Int(0));
    // At the master: one client is the replica, however many connections it has.
    wait_until("the link is up", || is_up(&mut to) && field(&mut from, "connected_slaves") == "1");
    let rows = list(&mut from, &["TYPE", "replica"]);
    assert_eq!(rows.iter().map(|row| part(row, "flags")).collect::<Vec<_>>(), ["S"], "{rows:?}");
    assert_eq!(from.info::<u64>("clients", "connected_clients"), 1);
    let connection = row_of_replica(&mut from);
    assert_eq!(from.call(&["CLIENT", "KILL", "TYPE", "slave"]), Value::Int(1));
    wait_until("it comes back", || {
        let next = row_of_replica(&mut from);
        next.is_some() && next != connection && is_up(&mut to)
    });
    assert_eq!(list(&mut from, &["TYPE", "master"]).len(), 0);
}

/// Connections of replicas were clients of `/metrics`, each flow one.
#[test]
fn replicas_are_no_clients_of_metrics() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let mut to = replica.client();
    follow(&mut to, master.port());
    let mut browser = Browser::to(master.port());
    let mut clients = |listener: &str| {
        let page = browser.get("/metrics", "").body;
        let name = format!("dragonfly_connected_clients{{listener=\"{listener}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name)).expect("a line");
        line.parse::<u64>().expect("a number")
    };
    // The browser is one.
    wait_until("others are none", || (clients("main"), clients("other")) == (1, 0));
    let other = master.client();
    wait_until("a client is one", || clients("main") == 2);
    drop(other);
    wait_until("the browser is left", || clients("main") == 1);
    assert_eq!(field(&mut master.client(), "connected_slaves"), "1");
}

#[test]
fn a_link_is_one_client_on_each_side() {
    rows_of_a_link(&Node::ours(&[]), &Node::ours(&[]));
    let Some(redis) = Node::redis(&[]) else { return };
    rows_of_a_link(&redis, &Node::ours(&[]));
    let (Some(redis), Some(other)) = (Node::redis(&[]), Node::redis(&[])) else { return };
    rows_of_a_link(&Node::ours(&[]), &redis);
    drop(redis);
    let Some(redis) = Node::redis(&[]) else { return };
    rows_of_a_link(&redis, &other);
}

#[test]
fn a_replica_redirects_those_who_say_that_they_follow() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let (mut from, mut to, mut other) = (master.client(), replica.client(), replica.client());
    let redirect = Value::error(&format!("REDIRECT 127.0.0.1:{}", master.port()));
    from.call(&["SET", "a", "1"]);
    for client in [&mut from, &mut to] {
        assert_eq!(client.call(&["CLIENT", "CAPA", "redirect"]), Value::ok());
    }
    // One who has begun on a master.
    assert_eq!(to.call(&["MULTI"]), Value::ok());
    assert_eq!(to.call(&["SET", "b", "1"]), Value::Status("QUEUED".to_owned()));
    follow(&mut other, master.port());
    assert_eq!(to.call(&["EXEC"]), redirect);
    assert_eq!([to.call(&["GET", "a"]), to.call(&["SET", "a", "2"])], [redirect.clone(), redirect.clone()]);
    assert_eq!(to.call(&["PING"]), Value::Status("PONG".to_owned()));
    assert_eq!(to.call(&["READONLY"]), Value::ok());
    assert_eq!(
        (to.call(&["GET", "a"]), to.call(&["DEL", "a"])),
        (Value::Text("1".to_owned()), redirect.clone())
    );
    assert_eq!(to.call(&["READWRITE"]), Value::ok());
    assert_eq!(to.call(&["MULTI"]), Value::ok());
    assert_eq!(to.call(&["GET", "a"]), redirect);
    assert!(matches!(to.call(&["EXEC"]), Value::Error(line) if line.starts_with("EXECABORT")));
    // Others are answered as before.
    assert_eq!(other.call(&["GET", "a"]), Value::Text("1".to_owned()));
    assert!(matches!(other.call(&["SET", "a", "2"]), Value::Error(line) if line.starts_with("READONLY")));
    assert!(
        matches!(other.call(&["READONLY"]), Value::Error(line) if line.contains("cluster support disabled"))
    );
    // Nobody is redirected from a master.
    assert_eq!(
        [from.call(&["SET", "a", "3"]), other.call(&["REPLICAOF", "NO", "ONE"])],
        [Value::ok(), Value::ok()]
    );
    assert_eq!(to.call(&["SET", "a", "4"]), Value::ok());
}

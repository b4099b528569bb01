//! What a replica shows and keeps while the data of its master comes: `repl-diskless-load`, links that break off, changes of
//! role meanwhile.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use crate::harness::{Client, Value, wait_until};
use crate::nodes::{Node, Writer, assert_equal, field, follow};
use darter_base::rng::Rng;

const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// A proxy before a server. Passes on up to N bytes of its answers, then none until a test allows more.
struct Sluice {
    port: u16,
    server: Arc<AtomicU16>,
    left: Arc<AtomicI64>,
    is_shut: Arc<AtomicBool>,
}

impl Sluice {
    fn before(server: u16, bytes: i64) -> Sluice {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = Arc::new(AtomicU16::new(server));
        let (left, is_shut) = (Arc::new(AtomicI64::new(bytes)), Arc::new(AtomicBool::new(false)));
        let known = (left.clone(), is_shut.clone());
        let led = server.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", led.load(Relaxed))) else { continue };
                let back = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
                let (left, is_shut) = known.clone();
                std::thread::spawn(move || pass_on(back.0, back.1, |_| true));
                std::thread::spawn(move || {
                    pass_on(server, client, |len| {
                        left.fetch_sub(len as i64, Relaxed);
                        while left.load(Relaxed) <= 0 && !is_shut.load(Relaxed) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        !is_shut.load(Relaxed)
                    })
                });
            }
        });
        Sluice { port, server, left, is_shut }
    }

    /// Cuts all connections, and the next ones at their first byte.
    fn shut(&self) {
        self.is_shut.store(true, Relaxed);
    }

    /// Allows N more bytes, or all.
    fn open(&self, bytes: i64) {
        self.left.store(bytes, Relaxed);
        self.is_shut.store(false, Relaxed);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(usize) -> bool) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if !look(len) || to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// More than a connection holds while nobody reads it.
const KEYS: u64 = 4000;
const SOME_BYTES: i64 = 6 << 20;

fn fill(client: &mut Client, name: &str) {
    let mut rng = Rng::new(5);
    for n in 0..KEYS {
        // Bytes that no compression makes shorter than the sluice.
        let value: String = (0..250).map(|_| format!("{:016x}", rng.next_u64())).collect();
        client.call(&["SET", &format!("{name}{n}"), &value]);
    }
}

/// A master with some megabytes, and a sluice that stops in the middle of them.
fn master(node: Node) -> (Node, Sluice) {
    fill(&mut node.client(), "new");
    let sluice = Sluice::before(node.port(), SOME_BYTES);
    (node, sluice)
}

fn replicaof(client: &mut Client, port: u16) {
    assert_eq!(client.call(&["REPLICAOF", "127.0.0.1", &port.to_string()]), Value::ok());
}

fn wait_for_some(client: &mut Client) {
    // Frames count when they are whole, and each flow may have got a part of a long one.
    wait_until("some of it has come", || {
        field(client, "master_sync_in_progress") == "1"
            && client.info::<i64>("replication", "master_sync_read_bytes") > SOME_BYTES / 6
    });
}

fn loading(client: &mut Client) -> (u8, u8) {
    (client.info("persistence", "loading"), client.info("persistence", "async_loading"))
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// Whatever keeps the old data: the transfer is no load, the administrator is obeyed, and a master that dies costs nothing.
fn old_data_stays(master_node: Node, flags: &[&str]) {
    let (master, sluice) = master(master_node);
    let replica = Node::ours(flags);
    let mut to = replica.client();
    assert_eq!(to.call(&["SET", "old", "1"]), Value::ok());
    replicaof(&mut to, sluice.port);
    wait_for_some(&mut to);
    assert_eq!((loading(&mut to), to.call(&["GET", "old"])), ((0, 0), text("1")));
    assert_eq!(to.call(&["GET", "new0"]), Value::Null);
    assert!(matches!(to.call(&["SET", "a", "1"]), Value::Error(line) if line.starts_with("READONLY")));
    assert_eq!(to.call(&["CONFIG", "SET", "repl-timeout", "50"]), Value::ok());
    assert_eq!(to.call(&["CLIENT", "KILL", "ID", "1000000"]), Value::Int(0));
    // The master dies, and comes back for another half.
    sluice.shut();
    wait_until("the link is down", || field(&mut to, "master_sync_in_progress") == "0");
    assert_eq!((to.call(&["GET", "old"]), to.call(&["DBSIZE"])), (text("1"), Value::Int(1)));
    sluice.open(SOME_BYTES);
    wait_for_some(&mut to);
    assert_eq!(to.call(&["SLAVEOF", "NO", "ONE"]), Value::ok());
    assert_eq!((field(&mut to, "role"), to.call(&["GET", "old"])), ("master".to_owned(), text("1")));
    assert_eq!(to.call(&["SET", "old", "2"]), Value::ok());
    // Another master, while one is followed half way.
    let other = Node::ours(&[]);
    Writer::new(30).write(&mut other.client(), 300);
    replicaof(&mut to, sluice.port);
    follow(&mut to, other.port());
    assert_equal(&mut other.client(), &mut to);
    sluice.open(i64::MAX);
    follow(&mut to, sluice.port);
    assert_equal(&mut master.client(), &mut to);
}

#[test]
fn old_data_stays_until_all_of_ours_has_come() {
    old_data_stays(Node::ours(&[]), &[]);
    old_data_stays(Node::ours(&[]), &["--repl-diskless-load", "on-empty-db"]);
}

#[test]
fn old_data_stays_until_all_of_a_redis_has_come() {
    let Some(redis) = Node::redis(&[]) else { return };
    old_data_stays(redis, &[]);
}

#[test]
fn a_server_without_data_is_served_and_obeys_while_data_comes() {
    let (master, sluice) = master(Node::ours(&[]));
    let replica = Node::ours(&[]);
    let mut to = replica.client();
    replicaof(&mut to, sluice.port);
    wait_for_some(&mut to);
    assert_eq!((loading(&mut to), to.call(&["DBSIZE"])), ((0, 0), Value::Int(0)));
    no_other_load_begins(&mut to);
    assert_eq!(to.call(&["REPLICAOF", "NO", "ONE"]), Value::ok());
    assert_eq!(to.call(&["SET", "own", "1"]), Value::ok());
    assert_eq!((to.call(&["DBSIZE"]), field(&mut to, "role")), (Value::Int(1), "master".to_owned()));
    sluice.open(i64::MAX);
    follow(&mut to, sluice.port);
    assert_equal(&mut master.client(), &mut to);
}

/// Has the link broken, and the master write more than it keeps: the next sync is a full one of the same history.
fn need_full_sync(from: &mut Client, to: &mut Client, sluice: &Sluice) {
    sluice.shut();
    wait_until("the link is down", || field(to, "master_link_status") == "down");
    let fulls: u64 = from.info("stats", "sync_full");
    fill(from, "new");
    from.call(&["SET", "last", "2"]);
    sluice.open(SOME_BYTES);
    wait_until("it gets everything", || from.info::<u64>("stats", "sync_full") > fulls);
}

/// What it loads would go with what is here, and its end would be that of the sync.
fn no_other_load_begins(to: &mut Client) {
    for words in [&["DEBUG", "RELOAD"][..], &["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"], &["DEBUG", "LOADAOF"]]
    {
        assert_eq!(to.call(words), Value::error(LOADING), "{words:?}");
    }
}

#[test]
fn swapdb_serves_the_old_state_until_the_new_one_is_loaded() {
    let (master, sluice) = master(Node::ours(&["--repl-backlog-size", "1kb"]));
    let replica = Node::ours(&["--repl-diskless-load", "swapdb"]);
    let (mut from, mut to) = (master.client(), replica.client());
    from.call(&["SET", "last", "1"]);
    sluice.open(i64::MAX);
    follow(&mut to, sluice.port);
    need_full_sync(&mut from, &mut to, &sluice);
    wait_for_some(&mut to);
    assert_eq!((loading(&mut to), to.call(&["GET", "last"])), ((0, 1), text("1")));
    assert_eq!(to.call(&["DBSIZE"]), Value::Int(KEYS as i64 + 1));
    // What does not go with a load is refused, as in Redis.
    assert_eq!(to.call(&["BGSAVE"]), Value::error(LOADING));
    assert_eq!(to.call(&["REPLICAOF", "NO", "ONE"]), Value::error(LOADING));
    no_other_load_begins(&mut to);
    sluice.shut();
    wait_until("the load is given up", || loading(&mut to) == (0, 0));
    assert_eq!((to.call(&["GET", "last"]), to.call(&["DBSIZE"])), (text("1"), Value::Int(KEYS as i64 + 1)));
    // Who watches a key hears that all has changed.
    let mut watcher = replica.client();
    assert_eq!(watcher.call(&["WATCH", "last"]), Value::ok());
    sluice.open(i64::MAX);
    wait_until("the link is up", || field(&mut to, "master_link_status") == "up");
    assert_eq!((loading(&mut to), to.call(&["GET", "last"])), ((0, 0), text("2")));
    watcher.send_all(&[&["MULTI"], &["GET", "last"], &["EXEC"]]);
    assert_eq!([watcher.read(), watcher.read(), watcher.read()][2], Value::Null);
    assert_equal(&mut from, &mut to);
}

/// Other data is not shown for that of the master, but it comes back if the sync fails.
fn swapdb_keeps_other_data(node: Node) {
    let (master, sluice) = master(node);
    let replica = Node::ours(&["--repl-diskless-load", "swapdb"]);
    let mut to = replica.client();
    to.call(&["SET", "old", "1"]);
    replicaof(&mut to, sluice.port);
    wait_for_some(&mut to);
    sluice.shut();
    wait_until("the load is given up", || field(&mut to, "master_sync_in_progress") == "0");
    assert_eq!((to.call(&["GET", "old"]), to.call(&["DBSIZE"])), (text("1"), Value::Int(1)));
    sluice.open(i64::MAX);
    follow(&mut to, sluice.port);
    assert_equal(&mut master.client(), &mut to);
}

#[test]
fn swapdb_keeps_other_data_until_the_new_is_loaded() {
    swapdb_keeps_other_data(Node::ours(&[]));
    let Some(redis) = Node::redis(&[]) else { return };
    swapdb_keeps_other_data(redis);
}

#[test]
fn flush_before_load_empties_first() {
    let (master, sluice) = master(Node::ours(&[]));
    let replica = Node::ours(&["--repl-diskless-load", "flush-before-load"]);
    let mut to = replica.client();
    to.call(&["SET", "old", "1"]);
    replicaof(&mut to, sluice.port);
    wait_for_some(&mut to);
    assert_eq!((loading(&mut to), to.call(&["GET", "old"])), ((1, 0), Value::error(LOADING)));
    assert_eq!(to.call(&["REPLICAOF", "NO", "ONE"]), Value::error(LOADING));
    sluice.shut();
    wait_until("the load is given up", || loading(&mut to) == (0, 0));
    assert_eq!(to.call(&["DBSIZE"]), Value::Int(0));
    sluice.open(i64::MAX);
    wait_until("the link is up", || field(&mut to, "master_link_status") == "up");
    assert_equal(&mut master.client(), &mut to);
}

/// Values of every type, which are loaded aside, or stored first.
#[test]
fn every_type_comes_by_each_way() {
    let master = Node::ours(&["--repl-backlog-size", "1kb"]);
    let (mut from, mut writer) = (master.client(), Writer::new(31));
    writer.write(&mut from, 2000);
    for way in ["swapdb", "disabled", "flush-before-load"] {
        let sluice = Sluice::before(master.port(), i64::MAX);
        let replica = Node::ours(&["--repl-diskless-load", way]);
        let mut to = replica.client();
        follow(&mut to, sluice.port);
        need_full_sync(&mut from, &mut to, &sluice);
        // Records come while the rest of the blocks waits.
        writer.write(&mut from, 2000);
        sluice.open(i64::MAX);
        assert_equal(&mut from, &mut to);
    }
}

/// `break_replication_on_master_restart` keeps a replica's data when its master has started anew without any.
fn master_is_started_anew(flags: &[&str]) -> (Node, String) {
    let first = Node::ours(&[]);
    first.client().call(&["SET", "a", "1"]);
    let sluice = Sluice::before(first.port(), i64::MAX);
    let replica = Node::ours(flags);
    let mut to = replica.client();
    follow(&mut to, sluice.port);
    // A break of the link alone ends nothing.
    assert_eq!(to.call(&["CLIENT", "KILL", "TYPE", "master"]), Value::Int(1));
    first.client().call(&["SET", "b", "1"]);
    wait_until("the link is back", || to.call(&["DBSIZE"]) == Value::Int(2));
    let second = Node::ours(&[]);
    sluice.server.store(second.port(), Relaxed);
    drop(first);
    second.client().call(&["SET", "c", "1"]);
    let Node::Ours(server) = &replica else { panic!("it is ours") };
    wait_until("it has met the new master", || {
        server.says("has ended for good") > 0 || to.call(&["EXISTS", "c"]) == Value::Int(1)
    });
    let seen = format!("{:?} {:?}", to.call(&["DBSIZE"]), field(&mut to, "master_link_status"));
    // REPLICAOF begins it anew.
    if server.says("break_replication_on_master_restart") > 0 {
        follow(&mut to, sluice.port);
        assert_eq!(to.call(&["GET", "c"]), text("1"));
    }
    (replica, seen)
}

#[test]
fn a_master_that_was_started_anew_is_followed_unless_that_is_not_wanted() {
    let (_replica, seen) = master_is_started_anew(&[]);
    assert_eq!(seen, r#"Int(1) "up""#);
    let (_replica, seen) = master_is_started_anew(&["--break_replication_on_master_restart", "true"]);
    assert_eq!(seen, r#"Int(2) "down""#);
}

//! Replication between two of ours by flows of records: full and partial syncs, chains, reading one's own writes, and links
//! that are cut or on which bytes are flipped.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use crate::cluster_migration_kills::seed;
use crate::harness::{Client, Value, wait_until};
use crate::nodes::{Node, Writer, assert_equal, catch_up, field, follow, signal};
use darter_base::rng::Rng;

/// No pings: they would make an old master's history longer than its successor's.
const QUIET: [&str; 2] = ["--repl-ping-replica-period", "3600"];

/// History and next sequence of a node.
fn sequence(client: &mut Client) -> (String, i64) {
    let Value::Array(items) = client.call(&["DARTER", "SEQ"]) else { panic!("two items") };
    match &items[..] {
        [Value::Text(id), Value::Int(sequence)] => (id.clone(), *sequence),
        other => panic!("{other:?}"),
    }
}

/// Waits until both are at the same place of one history: the master may write at any moment, a ping or the end of a key.
fn same_sequences(from: &mut Client, to: &mut Client) {
    wait_until("the same sequences", || sequence(from) == sequence(to));
}

fn fulls(client: &mut Client) -> u64 {
    client.info("stats", "sync_full")
}

fn wait_seq(client: &mut Client, (id, sequence): &(String, i64), ms: u32) -> Value {
    client.call(&["DARTER", "WAITSEQ", id, &sequence.to_string(), &ms.to_string()])
}

#[test]
fn a_chain_has_the_same_sequences_and_waits_for_them() {
    let nodes: Vec<Node> = (0..3).map(|_| Node::ours(&QUIET)).collect();
    let mut clients: Vec<Client> = nodes.iter().map(Node::client).collect();
    let mut writer = Writer::new(3);
    writer.write(&mut clients[0], 200);
    follow(&mut clients[1], nodes[0].port());
    follow(&mut clients[2], nodes[1].port());
    for n in 0..50 {
        clients[0].call(&["SET", "own", &n.to_string()]);
        let written = sequence(&mut clients[0]);
        assert_eq!(wait_seq(&mut clients[2], &written, 0), Value::Int(1));
        assert_eq!(clients[2].call(&["GET", "own"]), Value::Text(n.to_string()));
    }
    writer.write(&mut clients[0], 500);
    let [first, middle, last] = &mut clients[..] else { panic!("three") };
    assert_equal(first, last);
    // From here on it writes nothing by itself, not even the end of a key: that would part it from its successor.
    assert_eq!(first.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), Value::ok());
    wait_until("the same sequences", || {
        let written = sequence(first);
        sequence(middle) == written && sequence(last) == written
    });
    // What never comes is waited for as long as is said, and another history too.
    let (id, next) = sequence(first);
    assert_eq!(wait_seq(last, &(id.clone(), next + 1_000_000), 20), Value::Int(0));
    assert_eq!(wait_seq(last, &("x".repeat(40), 1), 20), Value::Int(0));
    // The middle one goes on as a master with the sequences that it has.
    middle.call(&["REPLICAOF", "NO", "ONE"]);
    middle.call(&["SET", "more", "1"]);
    let after = sequence(middle);
    assert!(after.0 != id && after.1 > next, "{after:?} after {next}");
    assert_eq!(wait_seq(last, &after, 0), Value::Int(1));
    follow(first, nodes[1].port());
    first.call(&["CLIENT", "UNPAUSE"]);
    catch_up(middle, first);
    wait_until("the sequence of the new master", || sequence(first) == sequence(middle));
    assert_eq!(fulls(middle), 1, "one full sync, that of the last node");
}

#[test]
fn everything_arrives_while_it_changes() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--dbfilename", ""]));
    let (mut from, mut to) = (master.client(), replica.client());
    let code = "#!lua name=l\n\
        redis.register_function{function_name='f', callback=function() return 7 end, flags={'no-writes'}}";
    from.call(&["FUNCTION", "LOAD", code]);
    let items: Vec<String> = (0..60_000).map(|n| format!("item-{n}")).collect();
    for chunk in items.chunks(1000) {
        let words = chunk.iter().map(String::as_str);
        from.call(&["RPUSH", "long"].into_iter().chain(words).collect::<Vec<_>>());
    }
    from.call(&["SET", "large", &"x".repeat(3 << 20)]);
    from.call(&["DEBUG", "POPULATE", "20000", "many", "100"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let (mut client, mut writer) = (master.client(), Writer::new(5));
            while !is_over.load(Relaxed) {
                writer.write(&mut client, 50);
                client.call(&["RPUSH", "long", "later"]);
                client.call(&["RPOPLPUSH", "long", "longer"]);
            }
        });
        follow(&mut to, master.port());
        is_over.store(true, Relaxed);
        writing.join().expect("it writes to the end");
    });
    assert_equal(&mut from, &mut to);
    assert_eq!(to.call(&["FCALL_RO", "f", "0"]), Value::Int(7));
    same_sequences(&mut from, &mut to);
    assert_eq!(fulls(&mut from), 1);
}

/// Blocks and records come from two threads: a frame is sent in one piece, or the replica finds it damaged.
#[test]
fn no_full_sync_of_a_master_that_changes_breaks_off() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--dbfilename", ""]));
    let (mut from, mut to) = (master.client(), replica.client());
    from.call(&["DEBUG", "POPULATE", "20000", "many", "100"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for own in ["one", "two"] {
            let (master, is_over) = (&master, &is_over);
            scope.spawn(move || {
                let mut client = master.client();
                while !is_over.load(Relaxed) {
                    client.call(&["RPUSH", own, "later"]);
                    client.call(&["LPOP", own]);
                }
            });
        }
        for n in 1..=15 {
            to.call(&["REPLICAOF", "NO", "ONE"]);
            to.call(&["SET", "own", "1"]);
            follow(&mut to, master.port());
            assert_eq!(fulls(&mut from), n);
        }
        is_over.store(true, Relaxed);
    });
}

#[test]
fn a_stranger_opens_no_flow() {
    let master = Node::ours(&[]);
    let mut client = master.client();
    let id = "a".repeat(40);
    assert!(matches!(client.call(&["DARTER", "FLOW", &id, "0"]), Value::Error(_)));
    assert!(matches!(client.call(&["DARTER", "HELLO", "2", &id, &id]), Value::Error(_)));
    assert!(matches!(client.call(&["DARTER", "HELLO", "1", &id, &id]), Value::Array(_)));
    assert!(matches!(client.call(&["DARTER", "WAITSEQ", "short", "1", "1"]), Value::Error(_)));
    // A session whose flows never come is nobody's replica.
    let Value::Status(line) = client.call(&["DARTER", "SYNC", "?", "-1"]) else { panic!("a session") };
    let session = line.split(' ').nth(1).expect("an id").to_owned();
    let mut other = master.client();
    assert!(matches!(other.call(&["DARTER", "FLOW", &session, "99"]), Value::Error(_)));
    assert_eq!(other.call(&["DARTER", "FLOW", &session, "0"]), Value::ok());
    let mut third = master.client();
    assert!(matches!(third.call(&["DARTER", "FLOW", &session, "0"]), Value::Error(_)), "it is taken");
    assert!(matches!(client.call(&["DARTER", "SYNC", "?", "-1"]), Value::Error(_)), "one session each");
    drop(client);
    wait_until("its flow is closed", || other.is_closed());
}

#[test]
fn a_replica_that_stood_still_is_sent_what_it_lacks() {
    let (master, replica) = (Node::ours(&["--repl-backlog-size", "8mb"]), Node::ours(&[]));
    let (mut from, mut to) = (master.client(), replica.client());
    Writer::new(8).write(&mut from, 100);
    follow(&mut to, master.port());
    signal(replica.pid(), "STOP");
    for n in 0..2000 {
        from.call(&["SET", &format!("k{n}"), &"v".repeat(1000)]);
    }
    signal(replica.pid(), "CONT");
    assert_equal(&mut from, &mut to);
    assert_eq!((fulls(&mut from), field(&mut from, "connected_slaves")), (1, "1".to_owned()));
}

/// A proxy before a server. It cuts a connection, or flips a bit of a flow, after a given number of bytes from the server.
struct Proxy {
    port: u16,
    left: Arc<AtomicI64>,
}

impl Proxy {
    fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let known = left.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
                let is_flow = Arc::new(AtomicBool::new(false));
                let handles = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
                let (left, flow) = (known.clone(), is_flow.clone());
                std::thread::spawn(move || {
                    pass_on(handles.0, handles.1, |bytes| {
                        is_flow.fetch_or(bytes.windows(4).any(|word| word == b"FLOW"), Relaxed);
                        true
                    })
                });
                std::thread::spawn(move || {
                    pass_on(server, client, |bytes| {
                        let before = left.fetch_sub(bytes.len() as i64, Relaxed);
                        if before <= 0 || before > bytes.len() as i64 {
                            return true;
                        }
                        // Frames are summed; lines of a handshake are not, and are cut.
                        let at = before as usize - 1;
                        let flips = flow.load(Relaxed) && !at.is_multiple_of(3);
                        if flips {
                            bytes[at] ^= 1 << (at % 8);
                        }
                        flips
                    })
                });
            }
        });
        Proxy { port, left }
    }
}

/// Passes bytes on until `look` says false.
fn pass_on(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut [u8]) -> bool) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if !look(&mut bytes[..len]) || to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Faults, unless `DARTER_FAULTS` says how many.
const FAULTS: usize = 6;
/// Many faults are shared among pairs of servers: most of the time a replica waits before it connects again.
const FAULTS_OF_A_PAIR: usize = 100;
const PAIRS_MAX: usize = 12;
/// Faults between two comparisons of all values.
const COMPARED_AFTER: usize = 500;

#[test]
fn a_session_that_is_cut_or_flipped_at_any_byte_goes_on() {
    let faults = std::env::var("DARTER_FAULTS").ok().and_then(|text| text.parse().ok());
    let faults: usize = faults.unwrap_or(FAULTS);
    let pairs = (faults / FAULTS_OF_A_PAIR).clamp(1, PAIRS_MAX);
    std::thread::scope(|scope| {
        for pair in 0..pairs {
            scope.spawn(move || cut_and_flip(pair as u64, (faults + pair) / pairs));
        }
    });
    println!("figure: {faults} cuts and flips, no full sync");
}

/// Cuts the sessions of one pair of servers, or flips a bit of them, one session after the other.
fn cut_and_flip(pair: u64, faults: usize) {
    // Whoever is not scheduled for some seconds may lack a megabyte.
    let (master, replica) = (Node::ours(&["--repl-backlog-size", "64mb"]), Node::ours(&[]));
    let proxy = Proxy::before(master.port());
    let (mut from, mut to) = (master.client(), replica.client());
    let (mut rng, mut writer) = (Rng::new(seed(21 + 100 * pair)), Writer::new(seed(22 + 100 * pair)));
    writer.write(&mut from, 300);
    follow(&mut to, proxy.port);
    for fault in 1..=faults {
        let links: u64 = to.info("stats", "sync_full");
        assert_eq!(links, 0, "it serves nobody");
        proxy.left.store(1 + rng.below(20_000) as i64, Relaxed);
        let mut rounds = 0;
        while proxy.left.load(Relaxed) > 0 {
            writer.write(&mut from, 40);
            rounds += 1;
            assert!(rounds < 10_000, "nothing is sent");
        }
        catch_up(&mut from, &mut to);
        assert_eq!(fulls(&mut from), 1, "each time what it lacked was enough");
        if fault == faults || fault.is_multiple_of(COMPARED_AFTER) {
            proxy.left.store(i64::MAX, Relaxed);
            assert_equal(&mut from, &mut to);
            same_sequences(&mut from, &mut to);
        }
    }
}

const ACCOUNTS: u64 = 8;
/// Reads that are sent together.
const READS_AT_ONCE: usize = 500;

/// Ends the writers, also when the reader panics.
struct EndOfWriters<'a>(&'a AtomicBool);

impl Drop for EndOfWriters<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Moves money between accounts by EXEC and by a script.
fn move_money(client: &mut Client, rng: &mut Rng) {
    let account = |rng: &mut Rng| format!("account-{}", rng.below(ACCOUNTS));
    let (from, to, sum) = (account(rng), account(rng), rng.below(100).to_string());
    if rng.below(2) == 0 {
        client.send_all(&[&["MULTI"], &["DECRBY", &from, &sum], &["INCRBY", &to, &sum], &["EXEC"]]);
        for _ in 0..4 {
            assert!(!matches!(client.read(), Value::Error(_)));
        }
    } else {
        let code = "redis.call('decrby', KEYS[1], ARGV[1]) return redis.call('incrby', KEYS[2], ARGV[1])";
        assert!(matches!(client.call(&["EVAL", code, "2", &from, &to, &sum]), Value::Int(_)));
    }
}

/// A million reads of all accounts; more with DARTER_BANK_READS.
#[test]
fn a_total_is_constant_on_a_replica() {
    let reads = std::env::var("DARTER_BANK_READS").ok().and_then(|text| text.parse().ok());
    let reads: usize = reads.unwrap_or(1_000_000);
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--dbfilename", ""]));
    let names: Vec<String> = (0..ACCOUNTS).map(|n| format!("account-{n}")).collect();
    for name in &names {
        master.client().call(&["SET", name, "1000"]);
    }
    follow(&mut replica.client(), master.port());
    let is_over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        for seed in 0..3 {
            let (master, is_over) = (&master, &is_over);
            scope.spawn(move || {
                let (mut client, mut rng) = (master.client(), Rng::new(seed));
                while !is_over.load(Relaxed) {
                    move_money(&mut client, &mut rng);
                }
            });
        }
        let _end = EndOfWriters(&is_over);
        let mut client = replica.client();
        let read: Vec<&str> = ["MGET"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let reads_at_once = vec![read.as_slice(); READS_AT_ONCE];
        let mut states = std::collections::HashSet::new();
        for _ in 0..reads / READS_AT_ONCE {
            client.send_all(&reads_at_once);
            for _ in 0..READS_AT_ONCE {
                let Value::Array(items) = client.read() else { panic!("a list") };
                let sums: Vec<i64> = items
                    .iter()
                    .map(|item| match item {
                        Value::Text(text) => text.parse().expect("a number"),
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert_eq!(sums.iter().sum::<i64>(), 1000 * ACCOUNTS as i64, "{sums:?}");
                states.insert(sums);
            }
        }
        states.len()
    });
    assert!(seen > 100, "only {seen} states were seen: nothing was moved meanwhile");
    println!("figure: {reads} reads of a total, {seen} states");
}

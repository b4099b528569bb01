//! What a stream carries besides plain commands, and partners that are older or refused.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, wait_until};
use crate::nodes::{Node, Writer, assert_equal, catch_up, field, follow, signal};

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// Sends a memcached command and reads this number of lines.
fn ask_memcached(port: u16, words: &str, lines: usize) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
    // By this it is recognised.
    stream.write_all(b"version\r\n").expect("sent");
    let (mut answer, mut reader) = (String::new(), BufReader::new(stream));
    reader.read_line(&mut answer).expect("a version");
    reader.get_mut().write_all(words.as_bytes()).expect("sent");
    answer.clear();
    for _ in 0..lines {
        assert!(reader.read_line(&mut answer).expect("an answer") > 0, "closed after {answer:?}");
    }
    answer
}

#[test]
fn a_new_consumer_is_at_replicas_without_the_stream() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let mut nodes = vec![replica];
    nodes.extend(Node::redis(&[]));
    let mut from = master.client();
    for key in ["s", "other"] {
        from.call(&["XGROUP", "CREATE", key, "g", "0", "MKSTREAM"]);
    }
    from.send_all(&vec![["XADD", "s", "*", "field", "some value that takes room"].as_slice(); 2000]);
    (0..2000).for_each(|_| drop(from.read()));
    from.call(&["XREADGROUP", "GROUP", "g", "all", "NOACK", "STREAMS", "s", ">"]);
    let mut replicas: Vec<Client> = nodes.iter().map(Node::client).collect();
    for to in &mut replicas {
        follow(to, master.port());
    }
    let (before, noack) = (field(&mut from, "master_repl_offset"), "NOACK");
    // Nothing is there to read, without and with a wait; nothing to claim.
    from.call(&["XREADGROUP", "GROUP", "g", "w1", "STREAMS", "s", ">"]);
    from.call(&["XREADGROUP", "GROUP", "g", "w2", "BLOCK", "1", "STREAMS", "s", ">"]);
    from.call(&["XREADGROUP", "GROUP", "g", "w3", noack, "STREAMS", "s", "other", ">", ">"]);
    from.call(&["XAUTOCLAIM", "s", "g", "w4", "1000000", "0"]);
    // Something is there in one of two streams.
    from.call(&["XADD", "s", "*", "f", "v"]);
    from.call(&["XREADGROUP", "GROUP", "g", "w5", noack, "STREAMS", "s", "other", ">", ">"]);
    from.call(&["XADD", "s", "*", "f", "v"]);
    from.call(&["XREADGROUP", "GROUP", "g", "w6", "STREAMS", "other", "s", ">", ">"]);
    let names = |client: &mut Client, key: &str| {
        let Value::Array(rows) = client.call(&["XINFO", "CONSUMERS", key, "g"]) else { panic!("rows") };
        let name = |row: &Value| match row {
            Value::Array(row) => row[1].clone(),
            other => panic!("a row: {other:?}"),
        };
        rows.iter().map(name).collect::<Vec<_>>()
    };
    let of_s = names(&mut from, "s");
    assert_eq!(of_s.len(), 7, "{of_s:?}");
    for to in &mut replicas {
        catch_up(&mut from, to);
        assert_eq!(names(to, "s"), of_s);
        assert_eq!(names(to, "other"), ["w3", "w5", "w6"].map(text));
        for key in ["s", "other"] {
            let groups = ["XINFO", "GROUPS", key];
            assert_eq!(to.call(&groups), from.call(&groups));
        }
    }
    let number = |text: String| text.parse::<u64>().expect("a number");
    let sent = number(field(&mut from, "master_repl_offset")) - number(before);
    assert!(sent < 10_000, "{sent} bytes");
}

#[test]
fn deadlines_of_fields_and_flags_of_memcached_arrive_and_redis_passes_over_them() {
    let (master, middle, last) = (Node::ours(&[]), Node::ours(&[]), Node::ours(&[]));
    let redis = Node::redis(&[]);
    let mut from = master.client();
    from.call(&["SET", "before", "1"]);
    follow(&mut middle.client(), master.port());
    follow(&mut last.client(), middle.port());
    if let Some(redis) = &redis {
        follow(&mut redis.client(), master.port());
    }
    from.call(&["HSET", "h", "f", "v", "g", "w"]);
    from.call(&["HPEXPIRE", "h", "1000000", "FIELDS", "1", "f"]);
    let said = ask_memcached(master.port(), "set flagged 77 0 3\r\nabc\r\n", 1);
    assert_eq!(said, "STORED\r\n");
    from.call(&["MULTI"]);
    from.call(&["HSET", "h2", "f", "v"]);
    from.call(&["HPEXPIRE", "h2", "2000000", "FIELDS", "1", "f"]);
    from.call(&["SET", "after", "1"]);
    from.call(&["EXEC"]);
    let due = [
        from.call(&["HPEXPIRETIME", "h", "FIELDS", "2", "f", "g"]),
        from.call(&["HPEXPIRETIME", "h2", "FIELDS", "1", "f"]),
    ];
    for node in [&middle, &last] {
        let mut to = node.client();
        catch_up(&mut from, &mut to);
        let there = [
            to.call(&["HPEXPIRETIME", "h", "FIELDS", "2", "f", "g"]),
            to.call(&["HPEXPIRETIME", "h2", "FIELDS", "1", "f"]),
        ];
        assert_eq!(there, due);
        assert_eq!(to.call(&["GET", "flagged"]), text("abc"));
        let said = ask_memcached(node.port(), "get flagged\r\n", 3);
        assert_eq!(said, "VALUE flagged 77 3\r\nabc\r\nEND\r\n");
    }
    if let Some(redis) = &redis {
        let mut to = redis.client();
        catch_up(&mut from, &mut to);
        assert_eq!(to.call(&["HGETALL", "h"]), Value::array(&["f", "v", "g", "w"]));
        assert_eq!(to.call(&["MGET", "flagged", "after"]), Value::array(&["abc", "1"]));
    }
    // A later value of the same key has neither.
    from.call(&["HSET", "h", "f", "new"]);
    from.call(&["SET", "flagged", "plain"]);
    let mut to = last.client();
    catch_up(&mut from, &mut to);
    assert_eq!(to.call(&["HTTL", "h", "FIELDS", "1", "f"]), Value::array(&[":-1"]));
    let said = ask_memcached(last.port(), "get flagged\r\n", 3);
    assert_eq!(said, "VALUE flagged 0 5\r\nplain\r\nEND\r\n");
}

/// `get` removed them, as those of a master.
#[test]
fn memcached_leaves_dead_keys_of_a_writable_replica() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--replica-read-only", "no"]));
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    for n in 0..4 {
        from.call(&["SET", &format!("k{n}"), "v", "PX", "1500"]);
    }
    wait_until("all have come", || to.call(&["DBSIZE"]) == Value::Int(4));
    signal(master.pid(), "STOP");
    wait_until("they are dead", || to.call(&["KEYS", "*"]) == Value::array(&[]));
    assert_eq!(
        ask_memcached(replica.port(), "get k0\r\ngets k0 k1\r\nmg k2 v\r\n", 3),
        "END\r\nEND\r\nEN\r\n"
    );
    assert_eq!(to.call(&["DBSIZE"]), Value::Int(4));
    assert_eq!(
        ask_memcached(replica.port(), "add k3 0 0 1\r\nx\r\nget k3\r\n", 3),
        "STORED\r\nVALUE k3 0 1\r\nx\r\n"
    );
    signal(master.pid(), "CONT");
}

#[test]
fn a_field_that_dies_at_the_master_goes_at_the_replica() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    from.call(&["HSET", "h", "f", "v", "g", "w"]);
    from.call(&["HPEXPIRE", "h", "30", "FIELDS", "1", "f"]);
    catch_up(&mut from, &mut to);
    wait_until("it has died", || from.call(&["HGETALL", "h"]) == Value::array(&["g", "w"]));
    wait_until("it is gone", || to.call(&["HGETALL", "h"]) == Value::array(&["g", "w"]));
}

fn messages_arrive(master: &Node, replica: &Node) {
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    let mut hearing = replica.client();
    hearing.call(&["SUBSCRIBE", "c"]);
    from.call(&["PUBLISH", "c", "one"]);
    from.call(&["MULTI"]);
    from.call(&["SET", "a", "1"]);
    from.call(&["PUBLISH", "c", "two"]);
    from.call(&["EXEC"]);
    from.call(&["EVAL", "return redis.call('publish', 'c', 'three')", "0"]);
    for word in ["one", "two", "three"] {
        assert_eq!(hearing.read(), Value::array(&["message", "c", word]));
    }
    catch_up(&mut from, &mut to);
    assert_eq!(to.call(&["GET", "a"]), text("1"));
}

#[test]
fn messages_reach_subscribers_of_replicas() {
    messages_arrive(&Node::ours(&[]), &Node::ours(&[]));
    let Some(redis) = Node::redis(&[]) else { return };
    messages_arrive(&Node::ours(&[]), &redis);
    let Some(redis) = Node::redis(&[]) else { return };
    messages_arrive(&redis, &Node::ours(&[]));
}

#[test]
fn messages_take_no_room_in_a_journal_that_is_read_back() {
    let folder = Folder::new("stream-messages");
    let flags = ["--dir", folder.text(), "--appendonly", "yes"];
    let (master, replica) = (Node::ours(&flags), Node::ours(&[]));
    let mut from = master.client().loaded();
    follow(&mut replica.client(), master.port());
    let long = "m".repeat(100_000);
    let before = from.info::<i64>("persistence", "aof_current_size");
    for _ in 0..20 {
        from.call(&["PUBLISH", "c", &long]);
    }
    from.call(&["SET", "a", "1"]);
    let grown = from.info::<i64>("persistence", "aof_current_size") - before;
    assert!(grown < long.len() as i64, "{grown} bytes");
    drop(master);
    let master = Node::ours(&flags);
    assert_eq!(master.client().loaded().call(&["GET", "a"]), text("1"));
}

#[test]
fn who_was_refused_is_no_replica() {
    let folder = Folder::new("stream-refused");
    let server = Server::start(&["--dir", folder.text()]);
    let mut client = server.client();
    // Without a folder there can be no snapshot.
    std::fs::remove_dir_all(folder.path()).expect("it is removed");
    assert!(matches!(client.call(&["PSYNC", "?", "-1"]), Value::Error(_)));
    let Value::Text(said) = client.call(&["CLIENT", "INFO"]) else { panic!("a text") };
    assert!(said.contains(" flags=N "), "{said}");
    assert_eq!(field(&mut server.client(), "connected_slaves"), "0");
}

#[test]
fn a_replica_that_reloads_goes_on() {
    let folder = Folder::new("stream-reload");
    // What comes while a slow machine reloads is more than a megabyte.
    let master = Node::ours(&["--repl-backlog-size", "256mb"]);
    let replica = Node::ours(&["--dir", folder.text(), "--dbfilename", "dump"]);
    let (mut from, mut to, mut writer) = (master.client(), replica.client(), Writer::new(41));
    writer.write(&mut from, 300);
    follow(&mut to, master.port());
    std::thread::scope(|scope| {
        let reloads = scope.spawn(|| {
            for _ in 0..3 {
                assert_eq!(to.call(&["DEBUG", "RELOAD"]), Value::ok());
            }
        });
        while !reloads.is_finished() {
            writer.write(&mut from, 50);
        }
    });
    assert_equal(&mut from, &mut to);
    assert_eq!(from.info::<u64>("stats", "sync_full"), 1);
}

/// A master that sends a fixed script to one replica.
fn old_master(stream: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a replica");
        let mut reader = BufReader::new(socket.try_clone().expect("a handle"));
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim() {
                "PING" => socket.write_all(b"+PONG\r\n").expect("sent"),
                "REPLCONF" => socket.write_all(b"+OK\r\n").expect("sent"),
                "DARTER" => socket.write_all(b"-ERR unknown command\r\n").expect("sent"),
                "PSYNC" => break,
                _ => {}
            }
        }
        let empty = [b"REDIS0009\xff".as_slice(), &[0; 8]].concat();
        let head = format!("+FULLRESYNC {} 0\r\n${}\r\n", "f".repeat(40), empty.len());
        for bytes in [head.as_bytes(), &empty, stream] {
            socket.write_all(bytes).expect("sent");
        }
        // What it acknowledges is read until it goes.
        let _ = reader.read_to_end(&mut Vec::new());
    });
    port
}

#[test]
fn times_of_masters_before_redis_7_count_from_now() {
    const STREAM: &[u8] = b"*4\r\n$5\r\nSETEX\r\n$1\r\na\r\n$4\r\n1000\r\n$1\r\nv\r\n\
        *5\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\nv\r\n$2\r\nEX\r\n$4\r\n1000\r\n\
        *3\r\n$3\r\nSET\r\n$1\r\nc\r\n$1\r\nv\r\n\
        *3\r\n$6\r\nEXPIRE\r\n$1\r\nc\r\n$4\r\n1000\r\n\
        *3\r\n$3\r\nSET\r\n$1\r\nd\r\n$1\r\nv\r\n";
    let replica = Node::ours(&[]);
    let mut to: Client = replica.client();
    follow(&mut to, old_master(STREAM));
    wait_until("all is there", || to.call(&["EXISTS", "d"]) == Value::Int(1));
    for key in ["a", "b", "c"] {
        assert_eq!(to.call(&["GET", key]), text("v"), "{key}");
        let Value::Int(ttl) = to.call(&["TTL", key]) else { panic!("a time") };
        assert!((900..=1000).contains(&ttl), "{key} {ttl}");
    }
}

/// The feed thread has taken a long change and still writes it. INFO must wait for that change.
#[test]
fn an_offset_that_is_told_counts_each_change_that_was_answered() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let (mut from, value) = (master.client(), "x".repeat(3_000_000));
    follow(&mut replica.client(), master.port());
    let mut before: usize = from.info("replication", "master_repl_offset");
    for round in 0..20 {
        assert_eq!(from.call(&["SET", "long", &value]), Value::ok());
        let told: usize = from.info("replication", "master_repl_offset");
        assert!(told >= before + value.len(), "round {round}: {told} after {before}");
        before = told;
    }
}

/// Reads messages about events of keys until `is_last` is among them; the events in order, with the keys.
fn events_until(client: &mut Client, is_last: impl Fn(&str, &str) -> bool) -> Vec<(String, String)> {
    let mut events = Vec::new();
    loop {
        let Value::Array(message) = client.read() else { panic!("no message") };
        let [_, _, Value::Text(channel), Value::Text(key)] = &message[..] else { panic!("{message:?}") };
        let event = channel.rsplit(':').next().unwrap_or_default().to_owned();
        let ends = is_last(&event, key);
        events.push((event, key.clone()));
        if ends {
            return events;
        }
    }
}

#[test]
fn keys_that_expire_or_are_evicted_keep_their_events_on_replicas() {
    let flags = ["--notify-keyspace-events", "EA"];
    let (master, middle, last) = (Node::ours(&[]), Node::ours(&flags), Node::ours(&flags));
    let mut from = master.client();
    follow(&mut middle.client(), master.port());
    follow(&mut last.client(), middle.port());
    let mut listeners = [middle.client(), last.client()];
    for listener in &mut listeners {
        listener.call(&["PSUBSCRIBE", "__keyevent@*__:*"]);
    }
    let filler = "x".repeat(10_000);
    for n in 0..300 {
        from.call(&["SET", &format!("filler-{n}"), &filler]);
    }
    from.call(&["SELECT", "3"]);
    from.call(&["SET", "brief", "1", "PX", "1"]);
    wait_until("its end", || from.call(&["EXISTS", "brief"]) == Value::Int(0));
    from.call(&["SELECT", "0"]);
    let used: u64 = from.info("memory", "used_memory");
    from.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    from.call(&["CONFIG", "SET", "maxmemory", &(used - 1_000_000).to_string()]);
    wait_until("an eviction", || from.info::<u64>("stats", "evicted_keys") > 0);
    from.call(&["CONFIG", "SET", "maxmemory", "0"]);
    from.call(&["SET", "end", "1"]);
    from.call(&["DEL", "end"]);
    for listener in &mut listeners {
        let events = events_until(listener, |event, key| (event, key) == ("del", "end"));
        let of = |wanted: &str| -> Vec<String> {
            events.iter().filter(|(event, _)| event == wanted).map(|(_, key)| key.clone()).collect()
        };
        assert_eq!(of("expired"), ["brief"]);
        let evicted = of("evicted");
        assert!(!evicted.is_empty() && evicted.iter().all(|key| key.starts_with("filler-")), "{evicted:?}");
        assert_eq!(of("del"), ["end"], "nothing else was deleted");
    }
    for node in [&middle, &last] {
        assert_equal(&mut from, &mut node.client());
    }
}

#[test]
fn a_replica_that_outgrows_its_memory_leaves_and_says_so() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    let used: u64 = to.info("memory", "used_memory");
    to.call(&["CONFIG", "SET", "maxmemory", &(used + 1_000_000).to_string()]);
    let value = "x".repeat(100_000);
    for n in 0..(used / 3 / 100_000 + 40) {
        from.call(&["SET", &n.to_string(), &value]);
    }
    wait_until("the end of the link", || field(&mut to, "master_link_status") == "down");
    assert!(matches!(to.call(&["SET", "k", "v"]), Value::Error(_)), "it is a replica still");
    // With more room it begins anew.
    to.call(&["CONFIG", "SET", "maxmemory", "0"]);
    follow(&mut to, master.port());
    assert_equal(&mut from, &mut to);
}

//! Long answers and slow clients: what they hold while they are there, what others wait for them, and what is given back.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::raw::{Link, encoded};
use crate::harness::{Client, Server, Value, wait_until};

const MIB: u64 = 1 << 20;

/// Resident bytes, without a word to the server: one that is asked something may tidy up on the occasion.
fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// Waits until an idle server holds little more than it uses.
fn wait_for_memory(server: &Server) {
    let mut client = server.client();
    let mut allowed = u64::MAX;
    wait_until("memory is not given back", || {
        // What it uses becomes less, too; it is asked only when it holds little beside that.
        if resident_bytes(server) > allowed {
            return false;
        }
        let before =
            std::mem::replace(&mut allowed, client.info::<u64>("memory", "used_memory") / 10 * 11 + 16 * MIB);
        before <= allowed
    });
}

/// Bytes that no text is packed to.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 253) as u8 | 0x80).collect()
}

fn set_bytes(server: &Server, key: &str, value: &[u8]) {
    assert!(Link::new(server).call(&[b"SET" as &[u8], key.as_bytes(), value]).text().contains("OK"));
}

/// A client that asks and does not read.
fn ask(server: &Server, words: &[&str]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    stream.write_all(&encoded(words)).expect("it is sent");
    stream
}

/// Bytes that wait for clients, and how many such clients there are.
fn unsent(client: &mut Client) -> (u64, usize) {
    let Value::Text(list) = client.call(&["CLIENT", "LIST"]) else { panic!("no list") };
    let found = list.split_whitespace().filter_map(|field| field.strip_prefix("omem=")?.parse::<u64>().ok());
    found.filter(|&bytes| bytes > 0).fold((0, 0), |(sum, n), bytes| (sum + bytes, n + 1))
}

#[test]
fn slow_readers_of_a_long_string_hold_little_and_leave_nothing() {
    for flags in [&["--proactor_threads", "1", "--force_epoll"][..], &["--proactor_threads", "2"]] {
        let server = Server::start(flags);
        set_bytes(&server, "long", &bytes(10 << 20));
        let mut client = server.client();
        wait_until("who wrote is gone", || client.info::<u64>("clients", "connected_clients") == 1);
        let before = client.info::<u64>("memory", "used_memory");
        let readers: Vec<TcpStream> = (0..50).map(|_| ask(&server, &["GET", "long"])).collect();
        wait_until("all wait", || unsent(&mut client).1 == readers.len());
        // Half a megabyte each, where a copy of the string would be ten.
        let held = client.info::<u64>("memory", "used_memory").saturating_sub(before);
        assert!(held < 50 * MIB, "{held} bytes");
        drop(readers);
        wait_until("they are gone", || client.info::<u64>("clients", "connected_clients") == 1);
        assert_eq!(client.call(&["DEL", "long"]), Value::Int(1));
        wait_for_memory(&server);
    }
}

#[test]
fn slow_subscribers_and_monitors_leave_nothing() {
    let server = Server::start(&["--proactor_threads", "2", "--client-output-buffer-limit", "pubsub 0 0 0"]);
    let mut client = server.client();
    let mut listeners: Vec<TcpStream> = (0..10).map(|_| ask(&server, &["SUBSCRIBE", "news"])).collect();
    listeners.push(ask(&server, &["MONITOR"]));
    wait_until("all listen", || {
        client.call(&["PUBSUB", "NUMSUB", "news"])
            == Value::Array(vec![Value::Text("news".into()), Value::Int(10)])
    });
    let news = "n".repeat(100_000);
    for _ in 0..150 {
        assert_eq!(client.call(&["PUBLISH", "news", &news]), Value::Int(10));
    }
    wait_until("much waits", || resident_bytes(&server) > 80 * MIB);
    drop(listeners);
    wait_until("they are gone", || client.info::<u64>("clients", "connected_clients") == 1);
    wait_for_memory(&server);
}

#[test]
fn a_long_list_of_keys_leaves_nothing() {
    let server = Server::start(&["--proactor_threads", "2", "--keys_output_limit", "0"]);
    let mut client = server.client();
    assert_eq!(
        client.call(&["DEBUG", "POPULATE", "500000", "a-rather-long-name-of-a-key", "8"]),
        Value::ok()
    );
    let Value::Array(keys) = client.call(&["KEYS", "*"]) else { panic!("no keys") };
    assert_eq!(keys.len(), 500_000);
    assert_eq!(client.call(&["FLUSHALL"]), Value::ok());
    wait_for_memory(&server);
}

#[test]
fn the_part_of_long_answers_in_a_turn_is_bounded_and_every_reader_gets_its_own() {
    // Four parts of 128 KiB, and what short answers there are; a turn without a bound sends megabytes.
    const TURN_BYTES_MAX: u64 = 4 * (128 << 10) + (64 << 10);
    for flags in [&["--proactor_threads", "1", "--force_epoll"][..], &["--proactor_threads", "2"]] {
        let server = Server::start(flags);
        let value = bytes(3 << 20);
        set_bytes(&server, "long", &value);
        let read = |link: &mut Link| link.read().expect("an answer");
        std::thread::scope(|scope| {
            for n in 0..12 {
                let (server, value) = (&server, &value);
                scope.spawn(move || {
                    let mut link = Link::new(server);
                    for _ in 0..3 {
                        match n % 3 {
                            0 => assert!(link.call(&["GET", "long"]).bytes() == value),
                            1 => {
                                let part = link.call(&["GETRANGE", "long", "100", "2000099"]);
                                assert!(part.bytes() == &value[100..2_000_100]);
                            }
                            // In one piece, and sent in parts all the same.
                            _ => {
                                link.call(&["MULTI"]);
                                link.call(&["GET", "long"]);
                                assert!(link.call(&["EXEC"]).items()[0].bytes() == value);
                            }
                        }
                        link.send(&["PING"]).expect("it is sent");
                        assert_eq!(read(&mut link).text(), "+PONG");
                    }
                });
            }
        });
        let most = server.client().info::<u64>("transaction", "turn_sent_bytes_max");
        assert!((128 << 10..=TURN_BYTES_MAX).contains(&most), "{most} bytes in one turn");
    }
}

#[test]
fn a_reader_gets_the_string_that_it_asked_for_though_it_changes() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    for change in [
        &["SET", "long", "short"][..],
        &["APPEND", "long", "more"],
        &["SETRANGE", "long", "5000000", "patch"],
        &["DEL", "long"],
        &["RENAME", "long", "other"],
        &["FLUSHALL"],
        &["EXPIRE", "long", "100"],
        &["PEXPIRE", "long", "1"],
        &["COPY", "long", "other"],
    ] {
        let value = bytes(8 << 20);
        set_bytes(&server, "long", &value);
        let mut reader = ask(&server, &["GET", "long"]);
        // It has begun, and cannot be done: the kernel's buffers take less.
        wait_until("it waits", || unsent(&mut client).1 == 1);
        client.call(change);
        let other = bytes(8 << 20).into_iter().rev().collect::<Vec<u8>>();
        set_bytes(&server, "long", &other);
        let mut answer = vec![0; value.len() + 12];
        reader.read_exact(&mut answer).expect("the answer");
        assert!(answer.starts_with(b"$8388608\r\n") && answer.ends_with(b"\r\n"), "{change:?}");
        assert!(answer[10..10 + value.len()] == value, "{change:?}");
        client.call(&["FLUSHALL"]);
    }
}

#[test]
fn many_slow_readers_leave_room_for_writes() {
    let server = Server::start(&["--proactor_threads", "1", "--maxmemory", "64mb"]);
    set_bytes(&server, "long", &bytes(1 << 20));
    let mut client = server.client();
    // Each pipeline asks for ten megabytes.
    let asked = encoded(&["GET", "long"]).repeat(10);
    let mut readers = Vec::new();
    for _ in 0..60 {
        let mut reader = ask(&server, &["PING"]);
        reader.write_all(&asked).expect("it is sent");
        readers.push(reader);
    }
    wait_until("all wait", || unsent(&mut client).1 == readers.len());
    assert_eq!(client.call(&["SET", "more", &"m".repeat(1 << 20)]), Value::ok());
    let used = client.info::<u64>("memory", "used_memory");
    assert!(used < 48 * MIB, "{used} bytes");
}

#[test]
fn a_giant_counts_what_it_is_and_leaves_at_once() {
    let server = Server::start(&["--proactor_threads", "1", "--maxmemory", "200mb"]);
    let mut client = server.client();
    let used = |client: &mut Client| client.info::<u64>("memory", "used_memory");
    let empty = used(&mut client);
    let value = bytes(70 << 20);
    for policy in ["noeviction", "allkeys-lru"] {
        client.call(&["CONFIG", "SET", "maxmemory-policy", policy]);
        for n in 0..1000 {
            client.call(&["SET", &format!("small:{n}"), "x"]);
        }
        for ends in
            [&["DEL", "giant"][..], &["SET", "giant", "x"], &["EVAL", "redis.call('del', 'giant')", "0"]]
        {
            set_bytes(&server, "giant", &value);
            let held = used(&mut client) - empty;
            // Steps of an eighth would make it 79.
            assert!(held < 75 * MIB, "{held} bytes for 70 MiB");
            client.send_all(&[ends, &["INFO", "memory"]]);
            client.read();
            let Value::Text(info) = client.read() else { panic!("no report") };
            let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("the line");
            let left = line.parse::<u64>().expect("a number") - empty;
            assert!(left < 4 * MIB, "{left} bytes left after {ends:?}");
            // The next one has room at once, with the request it comes in, and nothing goes for it.
            set_bytes(&server, "giant", &value);
            client.call(&["DEL", "giant"]);
        }
        assert_eq!(client.info::<u64>("stats", "evicted_keys"), 0, "{policy}");
    }
    wait_for_memory(&server);
}

#[test]
fn a_long_string_is_written_in_slices_and_is_there_all_at_once() {
    let folder = crate::harness::folder::Folder::new("output-writes");
    let flags = ["--proactor_threads", "2", "--dir", folder.text(), "--appendonly", "yes", "--save", ""];
    let server = Server::start(&flags);
    let mut client = server.client();
    let slices = |client: &mut Client| client.info::<u64>("transaction", "slices_total");
    let text: Vec<u8> = (0..6 << 20).map(|at| b'a' + (at % 23) as u8).collect();
    for (name, value) in [("k", bytes(6 << 20)), ("text", text), ("k", bytes(6 << 20)), ("k", bytes(5 << 20))]
    {
        let before = slices(&mut client);
        let mut link = Link::new(&server);
        // What follows in the pipeline waits, and finds it.
        let mut sent = encoded(&[b"SET" as &[u8], name.as_bytes(), &value]);
        sent.extend(encoded(&["STRLEN", name]));
        sent.extend(encoded(&["GET", name]));
        link.0.get_mut().write_all(&sent).expect("it is sent");
        assert_eq!(link.read().expect("a reply").text(), "+OK");
        assert_eq!(link.read().expect("a reply").text(), format!(":{}", value.len()));
        assert!(link.read().expect("a reply").bytes() == value);
        // 32 KiB each.
        assert!(slices(&mut client) - before > 150, "{name}");
    }
    // Over another type, and with options.
    client.call(&["RPUSH", "list", "x"]);
    set_bytes(&server, "list", &bytes(2 << 20));
    let mut link = Link::new(&server);
    let value = bytes(3 << 20);
    assert_eq!(link.call(&[b"SET" as &[u8], b"dying", &value, b"EX", b"1000"]).text(), "+OK");
    assert_eq!(link.call(&[b"SET" as &[u8], b"k", &value, b"NX"]).bytes(), b"");
    assert!(link.call(&["GET", "dying"]).bytes() == value);
    link.call(&["MULTI"]);
    link.call(&[b"SET" as &[u8], b"multi", &value]);
    assert_eq!(link.call(&["EXEC"]).text(), "+OK");
    drop(server);
    let server = Server::start(&flags);
    server.client().loaded();
    let mut link = Link::new(&server);
    let lens: Vec<String> =
        ["k", "text", "list", "dying", "multi"].map(|key| link.call(&["STRLEN", key]).text()).to_vec();
    assert_eq!(lens, [":5242880", ":6291456", ":2097152", ":3145728", ":3145728"]);
    assert!(link.call(&["GET", "k"]).bytes() == bytes(5 << 20));
}

/// A command before, words before and behind the value, the reply, and whether the key has a deadline then.
type LongWrite<'a> = (&'a [&'a str], &'a str, &'a [&'a str], &'a str, bool);

/// A command before, the words, where the new bytes begin, and these.
type Growth<'a> = (&'a [&'a str], Vec<&'a [u8]>, usize, &'a [u8]);

/// Every way to store one long string: in slices, with the deadline it should have, and what follows in the pipeline waits.
#[test]
fn a_long_string_with_options_is_written_in_slices() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut client, mut link) = (server.client(), Link::new(&server));
    let slices = |client: &mut Client| client.info::<u64>("transaction", "slices_total");
    let value = bytes(4 << 20);
    let cases: [LongWrite<'_>; 12] = [
        (&[], "SET k", &["EX", "1000"], "+OK", true),
        (&["SET", "k", "x", "EX", "1000"], "SET k", &["KEEPTTL"], "+OK", true),
        (&["SET", "k", "x"], "SET k", &["KEEPTTL"], "+OK", false),
        (&["SET", "k", "x"], "SET k", &["PXAT", "99999999999999"], "+OK", true),
        (&["SET", "k", "x"], "SET k", &["XX"], "+OK", false),
        (&[], "SET k", &["NX", "PX", "1000000"], "+OK", true),
        (&["SET", "k", "x"], "SET k", &["IFEQ", "x"], "+OK", false),
        (&["SET", "k", "old", "EX", "1000"], "SET k", &["GET"], "old", false),
        (&[], "SETEX k 1000", &[], "+OK", true),
        (&["RPUSH", "k", "x"], "PSETEX k 1000000", &[], "+OK", true),
        (&[], "SETNX k", &[], ":1", false),
        (&["SET", "k", "old"], "GETSET k", &[], "old", false),
    ];
    for (before, head, tail, reply, dies) in cases {
        client.call(&["DEL", "k"]);
        if !before.is_empty() {
            client.call(before);
        }
        let count = slices(&mut client);
        let mut words: Vec<&[u8]> = head.split(' ').map(str::as_bytes).collect();
        words.push(&value);
        words.extend(tail.iter().map(|word| word.as_bytes()));
        let mut sent = encoded(&words);
        sent.extend(encoded(&["GET", "k"]));
        link.0.get_mut().write_all(&sent).expect("it is sent");
        assert_eq!(link.read().expect("a reply").text(), reply, "{head} {tail:?}");
        assert!(link.read().expect("a reply").bytes() == value, "{head} {tail:?}");
        // 32 KiB each, and those of the GET.
        assert!(slices(&mut client) - count > 200, "{head} {tail:?}");
        let Value::Int(ttl) = client.call(&["PTTL", "k"]) else { panic!("no number") };
        assert_eq!(ttl > 0, dies, "{head} {tail:?}: {ttl}");
    }
    // A condition that does not hold is seen before anything is written.
    let count = slices(&mut client);
    for words in
        [&["SET", "k", "NX"][..], &["SET", "none", "XX"], &["SET", "k", "IFEQ", "x"], &["SETNX", "k"]]
    {
        let mut all: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        all.insert(2, &value);
        let reply = link.call(&all).text();
        assert!(["", ":0"].contains(&reply.as_str()), "{words:?}: {reply}");
    }
    assert_eq!(slices(&mut client), count);
    client.call(&["FLUSHALL"]);
    wait_for_memory(&server);
}

/// A string that becomes a giant by its offset, or by what is added to it.
#[test]
fn a_string_that_grows_long_is_written_in_slices() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut client, mut link) = (server.client(), Link::new(&server));
    let slices = |client: &mut Client| client.info::<u64>("transaction", "slices_total");
    let value = bytes(4 << 20);
    let (far, bit) = ((4 << 20).to_string(), ((4 << 23) + 7).to_string());
    let cases: [Growth<'_>; 7] = [
        (&[], vec![b"SETRANGE", b"k", far.as_bytes(), b"end"], 4 << 20, b"end"),
        (
            &["SET", "k", "old", "EX", "1000"],
            vec![b"SETRANGE", b"k", far.as_bytes(), b"end"],
            4 << 20,
            b"end",
        ),
        (&["SET", "k", "old"], vec![b"SETRANGE", b"k", b"7", &value], 7, &value),
        (&[], vec![b"SETBIT", b"k", bit.as_bytes(), b"1"], 4 << 20, b"\x01"),
        (&["SET", "k", "old"], vec![b"SETBIT", b"k", bit.as_bytes(), b"1"], 4 << 20, b"\x01"),
        (&[], vec![b"APPEND", b"k", &value], 0, &value),
        (&["SET", "k", "old", "EX", "1000"], vec![b"APPEND", b"k", &value], 3, &value),
    ];
    for (before, words, at, tail) in cases {
        client.call(&["DEL", "k"]);
        let mut wanted = vec![0; at];
        if !before.is_empty() {
            client.call(before);
            wanted[..3].copy_from_slice(b"old");
        }
        wanted.extend_from_slice(tail);
        let (name, count) = (words[0].escape_ascii().to_string(), slices(&mut client));
        let mut sent = encoded(&words);
        sent.extend(encoded(&["GET", "k"]));
        link.0.get_mut().write_all(&sent).expect("it is sent");
        let reply = link.read().expect("a reply").text();
        assert_eq!(reply, if name == "SETBIT" { ":0".to_owned() } else { format!(":{}", wanted.len()) });
        assert!(link.read().expect("a reply").bytes() == wanted, "{name} {before:?}");
        assert!(slices(&mut client) - count > 200, "{name} {before:?}");
        let Value::Int(ttl) = client.call(&["TTL", "k"]) else { panic!("no number") };
        assert_eq!(ttl > 0, before.contains(&"EX"), "{name} {before:?}");
        // It may be changed in place, and grow.
        client.call(&["SETRANGE", "k", "1", "x"]);
        assert_eq!(client.call(&["APPEND", "k", "more"]), Value::Int(wanted.len() as i64 + 4));
    }
    client.call(&["FLUSHALL"]);
    wait_for_memory(&server);
}

#[test]
fn clients_that_go_while_they_write_leave_nothing() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let sent = encoded(&[b"SET" as &[u8], b"k", &bytes(40 << 20)]);
    for _ in 0..6 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        // Without its last bytes, and with them.
        let _ = stream.write_all(&sent[..sent.len() - 1]);
        drop(stream);
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        let _ = stream.write_all(&sent);
        drop(stream);
        server.client().call(&["FLUSHALL"]);
    }
    let mut client = server.client();
    wait_until("they are gone", || client.info::<u64>("clients", "connected_clients") == 1);
    client.call(&["FLUSHALL"]);
    wait_for_memory(&server);
    wait_until("little is used", || client.info::<u64>("memory", "used_memory") < 16 * MIB);
}

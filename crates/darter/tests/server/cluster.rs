//! The emulated cluster: what cluster clients ask, and what there is none of.

use crate::harness::{Client, Server, Value, wait_until};

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

/// The columns of a slot in CLUSTER SLOT-STATS.
fn slot_stats(client: &mut Client, slot: u16) -> Vec<(String, i64)> {
    let slot = slot.to_string();
    let Value::Array(mut rows) = client.call(&["CLUSTER", "SLOT-STATS", "SLOTSRANGE", &slot, &slot]) else {
        panic!("no answer")
    };
    let Value::Array(mut row) = rows.remove(0) else { panic!("no row") };
    let Value::Array(columns) = row.remove(1) else { panic!("no columns") };
    let pair = |pair: &[Value]| match pair {
        [Value::Text(name), Value::Int(value)] => (name.clone(), *value),
        other => panic!("{other:?}"),
    };
    columns.chunks(2).map(pair).collect()
}

/// Bytes of a request.
fn request_len(words: &[&str]) -> i64 {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len()).len();
    (format!("*{}\r\n", words.len()).len() + words.iter().map(word).sum::<usize>()) as i64
}

#[test]
fn time_and_bytes_are_counted_by_slot_if_that_is_wanted() {
    const FOO: u16 = 12_182;
    let server = Server::start(&["--cluster_mode=emulated", "--cluster-slot-stats-enabled", "yes"]);
    let mut client = server.client();
    let figures = |client: &mut Client, slot: u16| {
        let columns = slot_stats(client, slot);
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["key-count", "cpu-usec", "network-bytes-in", "network-bytes-out"]);
        (columns[2].1, columns[3].1)
    };
    let mut wanted = (0, 0);
    let calls: [(&[&str], usize); 6] = [
        (&["SET", "foo", "value"], "+OK".len()),
        (&["GET", "foo"], "$5\r\nvalue".len()),
        (&["MGET", "{foo}1", "foo"], "*2\r\n$-1\r\n$5\r\nvalue".len()),
        (&["APPEND", "foo", "x"], ":6".len()),
        // An error is an answer, too; and a script counts for the keys that it declares.
        (&["LPUSH", "foo", "x"], "-WRONGTYPE Operation against a key holding the wrong kind of value".len()),
        (&["EVAL", "return redis.call('STRLEN', KEYS[1])", "1", "foo"], ":6".len()),
    ];
    for (words, reply) in calls {
        client.call(words);
        wanted = (wanted.0 + request_len(words), wanted.1 + reply as i64 + 2);
        assert_eq!(figures(&mut client, FOO), wanted, "{words:?}");
    }
    // Of several slots, and of none.
    client.call(&["MGET", "foo", "bar"]);
    client.call(&["PING"]);
    // Together, and in a transaction.
    let get: &[&str] = &["GET", "foo"];
    client.send_all(&[get; 30]);
    (0..30).for_each(|_| drop(client.read()));
    for words in [&["MULTI"][..], get, get, &["EXEC"]] {
        client.call(words);
    }
    wanted = (wanted.0 + 32 * request_len(get), wanted.1 + 32 * ("$6\r\nvaluex".len() + 2) as i64);
    assert_eq!(figures(&mut client, FOO), wanted);
    assert_eq!(figures(&mut client, 5061), (0, 0));
    // One that waits counts once, when it is served.
    let mut blocked = server.client();
    assert!(blocked.try_send(&["BLPOP", "{foo}list", "0"]));
    wait_until("it waits", || client.info::<u64>("clients", "blocked_clients") == 1);
    client.call(&["RPUSH", "{foo}list", "x"]);
    blocked.read();
    let more = request_len(&["BLPOP", "{foo}list", "0"]) + request_len(&["RPUSH", "{foo}list", "x"]);
    let reply = "*2\r\n$9\r\n{foo}list\r\n$1\r\nx\r\n".len() + ":1\r\n".len();
    wanted = (wanted.0 + more, wanted.1 + reply as i64);
    let mut seen = (0, 0);
    wait_until("both are counted", || {
        seen = figures(&mut client, FOO);
        seen.0 >= wanted.0 && seen.1 >= wanted.1
    });
    assert_eq!(seen, wanted);
    client.call(&["EVAL", "for n = 1, 100000 do redis.call('GET', KEYS[1]) end", "1", "foo"]);
    let time_us = slot_stats(&mut client, FOO)[1].1;
    assert!(time_us > 100, "{time_us}");
    let Value::Array(first) = client.call(&["CLUSTER", "SLOT-STATS", "ORDERBY", "CPU-USEC", "LIMIT", "1"])
    else {
        panic!("no answer")
    };
    assert!(matches!(&first[0], Value::Array(row) if row[0] == Value::Int(i64::from(FOO))), "{first:?}");
    client.call(&["CONFIG", "RESETSTAT"]);
    assert_eq!(figures(&mut client, FOO), (0, 0));
    assert_eq!(client.call(&["CONFIG", "SET", "cluster-slot-stats-enabled", "no"]), Value::ok());
    assert_eq!(slot_stats(&mut client, FOO), [("key-count".to_owned(), 1)]);
    let refused = client.call(&["CLUSTER", "SLOT-STATS", "ORDERBY", "CPU-USEC"]);
    assert_eq!(refused, Value::Error("ERR Unrecognized sort metric for ORDERBY.".to_owned()));
}

#[test]
fn reads_and_writes_are_counted_by_slot_if_that_is_wanted() {
    for (setting, reads, writes) in [("no", 0, 0), ("yes", 4, 3)] {
        let server = Server::start(&["--cluster_mode=emulated", "--cluster-slot-stats-enabled", setting]);
        let mut client = server.client();
        // Slot 12182; bar is in another one.
        for line in [
            "SET foo 1",
            "GET foo",
            "MGET foo {foo}x bar",
            "MSET bar 1 {foo}y 2",
            "DEL {foo}y",
            "GET bar",
            "PING",
        ] {
            client.call(&line.split(' ').collect::<Vec<_>>());
        }
        for words in [&["MULTI"][..], &["GET", "foo"], &["EXEC"]] {
            client.call(words);
        }
        let figures = |client: &mut Client| {
            let Value::Array(mut rows) = client.call(&["DFLYCLUSTER", "GETSLOTINFO", "SLOTS", "12182"])
            else {
                panic!("no answer")
            };
            let Value::Array(row) = rows.remove(0) else { panic!("no row") };
            assert_eq!(row[3..=3], [Value::Text("total_reads".to_owned())]);
            assert_eq!(row[5..=5], [Value::Text("total_writes".to_owned())]);
            (row[4].clone(), row[6].clone())
        };
        assert_eq!(figures(&mut client), (Value::Int(reads), Value::Int(writes)), "{setting}");
        client.call(&["CONFIG", "RESETSTAT"]);
        assert_eq!(figures(&mut client), (Value::Int(0), Value::Int(0)));
    }
}

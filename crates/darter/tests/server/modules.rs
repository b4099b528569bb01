//! Values of the families of modules, and arrays: what restarts, copies, replicas and several shards make of them.

use crate::harness::journal::{Dir, wait_for_base};
use crate::harness::raw::{Link, Raw};
use crate::harness::{Client, Server, Value, wait_until};
use crate::nodes::{Node, catch_up, follow};

fn all(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let reply = client.call(&words);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
}

const FED: &[&str] = &[
    "TS.CREATE src LABELS kind raw host a",
    "TS.CREATE sums RETENTION 600000 LABELS kind sum host a",
    "TS.CREATE means LABELS kind mean host a",
    "TS.CREATERULE src sums AGGREGATION sum 10",
    "TS.CREATERULE src means AGGREGATION avg 10",
    "TS.ADD src 1 1",
    "TS.MADD src 4 4 src 12 6 src 18 8",
    "RENAME src source",
    "RENAME sums totals",
];

/// Everything that a client can ask of a series with rules.
fn told(client: &mut Client) -> Vec<Value> {
    let mut told = Vec::new();
    for line in [
        "TS.RANGE source - +",
        "TS.RANGE totals - + LATEST",
        "TS.RANGE means - + LATEST",
        "TS.QUERYINDEX host=a",
        "TS.QUERYINDEX kind=(sum,mean)",
        "TS.MRANGE - + WITHLABELS FILTER host=a",
    ] {
        told.push(client.call(&line.split(' ').collect::<Vec<_>>()));
    }
    for key in ["source", "totals", "means"] {
        // Bytes depend on what has been allocated ahead.
        let is_size = |row: &[Value]| row.first() == Some(&Value::Status("memoryUsage".to_owned()));
        match client.call(&["TS.INFO", key]) {
            Value::Array(info) => told.extend(info.chunks(2).filter(|row| !is_size(row)).flatten().cloned()),
            other => told.push(other),
        }
    }
    told
}

#[test]
fn rules_and_labels_survive_journal_and_snapshot() {
    let dir = Dir::new("modules-rules");
    let server = dir.start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    all(&mut client, FED);
    let before = told(&mut client);
    client.call(&["WAITAOF", "1", "0", "0"]);
    drop(server);
    // From the journal's commands.
    let server = dir.start(&["--proactor_threads", "2", "--num_shards", "4"]);
    let mut client = server.client();
    assert_eq!(told(&mut client), before);
    // From a snapshot as its base.
    client.call(&["BGREWRITEAOF"]);
    wait_for_base(&server);
    drop(server);
    let server = dir.start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    assert_eq!(told(&mut client), before);
    // The open bucket goes on where it was.
    all(&mut client, &["TS.ADD source 31 1"]);
    assert_eq!(
        client.call(&["TS.RANGE", "totals", "-", "+"]),
        Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Status("5".to_owned())]),
            Value::Array(vec![Value::Int(10), Value::Status("14".to_owned())]),
        ])
    );
}

#[test]
fn a_replica_has_the_same_series_and_arrays() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--num_shards", "4"]));
    let (mut from, mut to) = (master.client(), replica.client());
    all(
        &mut from,
        &["TS.CREATE src LABELS kind raw host a", "TS.CREATE early LABELS host a", "ARSET a 5 x y"],
    );
    follow(&mut to, master.port());
    all(&mut from, FED.get(1..).unwrap_or_default());
    all(
        &mut from,
        &["TS.INCRBY counter 5", "TS.ADD clock * 7", "ARRING r 3 a b c d", "ARDEL a 5", "ARSEEK r 1"],
    );
    // What is written is in the stream a moment later.
    let lines =
        ["TS.RANGE counter - +", "TS.RANGE clock - +", "ARLASTITEMS r 9", "ARNEXT r", "ARSCAN a 0 100"];
    let asked = |client: &mut Client| {
        let replies = lines.map(|line| client.call(&line.split(' ').collect::<Vec<_>>()));
        (told(client), replies)
    };
    wait_until("the replica has the same", || {
        catch_up(&mut from, &mut to);
        asked(&mut to) == asked(&mut from)
    });
}

/// Commands of every family whose results hang on order, on chance or on what was there.
const VARIED: &[&str] = &[
    r#"JSON.SET d $ {"n":1,"f":0.5,"t":"x","a":[1,2,3],"o":{"b":true}}"#,
    "JSON.NUMINCRBY d $.n 2.5",
    "JSON.NUMMULTBY d $..f 3",
    "JSON.NUMPOWBY d $.n 3",
    "JSON.ARRAPPEND d $.a 4 5 6",
    "JSON.ARRINSERT d $.a 1 0.125",
    "JSON.ARRPOP d $.a 0",
    "JSON.ARRTRIM d $.a 0 3",
    r#"JSON.STRAPPEND d $.t "yz""#,
    "JSON.TOGGLE d $.o.b",
    r#"JSON.MERGE d $.o {"c":{"d":null,"e":1}}"#,
    "JSON.SET d $.h [0.1,0.2] FPHA FP16",
    r#"JSON.MSET e $ {"x":1} f $ [1,2]"#,
    "JSON.CLEAR f $",
    "JSON.DEL d $.f",
    "BF.RESERVE bf 0.01 10",
    "BF.MADD bf a b c d e f g h i j k l m n o p q r s t u",
    "BF.INSERT bg CAPACITY 50 ERROR 0.02 ITEMS x y z",
    "CF.RESERVE cf 8 BUCKETSIZE 2 EXPANSION 2",
    "CF.INSERT cf ITEMS a b c d e f g h i j k l m n o p q r s t u",
    "CF.DEL cf c",
    "CMS.INITBYDIM cm 50 4",
    "CMS.INITBYDIM cn 50 4",
    "CMS.INCRBY cm a 3 b 5 c 9",
    "CMS.MERGE cn 2 cm cm WEIGHTS 1 2",
    "TOPK.RESERVE tk 3 4 3 0.5",
    "TOPK.ADD tk a b c d e f g a b a c d d d e a b h i j k l m n o p",
    "TOPK.INCRBY tk z 40 y 20 x 30 a 5",
    "TDIGEST.CREATE td COMPRESSION 20",
    "TDIGEST.ADD td 5 1 9 3 7 2.5 8 4 6",
    "TDIGEST.QUANTILE td 0.5",
    "TDIGEST.ADD td 11 12 0.5 3.25 99 1 2 3 4 5 6 7 8 9 10",
    "TDIGEST.TRIMMED_MEAN td 0.1 0.9",
    "TDIGEST.ADD td 2 4 8",
    "TDIGEST.CREATE te",
    "TDIGEST.MERGE te 1 td",
    "ARSET ar 5 x y z",
    "ARINSERT ar q",
    "ARRING ar 3 a b c d",
];

#[test]
fn a_replica_runs_the_commands_of_modules() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--num_shards", "4"]));
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    all(&mut from, VARIED);
    let rows: Vec<String> =
        (0..20_000).map(|row| format!(r#"{{"id":{row},"name":"the row {row}"}}"#)).collect();
    let text = format!(r#"{{"count":0,"rows":[{}]}}"#, rows.join(","));
    assert_eq!(from.call(&["JSON.SET", "large", "$", &text]), Value::ok());
    catch_up(&mut from, &mut to);
    let before: u64 = from.info("replication", "master_repl_offset");
    let calls = 100;
    for _ in 0..calls {
        let reply = from.call(&["JSON.NUMINCRBY", "large", "$.count", "1"]);
        assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
    }
    catch_up(&mut from, &mut to);
    let bytes = from.info::<u64>("replication", "master_repl_offset") - before;
    assert!(bytes < calls * 100, "{bytes} bytes for {calls} numbers of a document of {} bytes", text.len());
    wait_until("the replica has the same", || {
        catch_up(&mut from, &mut to);
        to.call(&["DEBUG", "DIGEST"]) == from.call(&["DEBUG", "DIGEST"])
    });
    for line in VARIED {
        let key = line.split(' ').nth(1).unwrap_or_default();
        let value = ["DEBUG", "DIGEST-VALUE", key];
        assert_eq!(to.call(&value), from.call(&value), "{key}");
        assert_eq!(to.call(&["DUMP", key]), from.call(&["DUMP", key]), "{key}");
    }
}

#[test]
fn a_journal_runs_the_commands_of_modules_again() {
    let dir = Dir::new("modules-varied");
    let server = dir.start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    all(&mut client, VARIED);
    let digest = client.call(&["DEBUG", "DIGEST"]);
    client.call(&["WAITAOF", "1", "0", "0"]);
    drop(server);
    let server = dir.start(&["--proactor_threads", "2", "--num_shards", "4"]);
    assert_eq!(server.client().call(&["DEBUG", "DIGEST"]), digest);
}

#[test]
fn arrays_survive_journal_snapshot_and_dump() {
    let dir = Dir::new("modules-arrays");
    let server = dir.start(&[]);
    let mut client = server.client();
    let long = "long ".repeat(40);
    client.call(&["ARSET", "a", "7", "x", &long]);
    all(&mut client, &["ARMSET a 9223372036854775000 end 1000000 middle", "ARINSERT a first second"]);
    for n in 0..3_000 {
        client.call(&["ARSET", "large", &(n * 37).to_string(), &format!("element {n}"), &long]);
    }
    let told = |client: &mut Client| {
        ["a", "large"].map(|key| {
            let scan = client.call(&["ARSCAN", key, "0", "18446744073709551614"]);
            (scan, client.call(&["ARNEXT", key]), client.call(&["ARLEN", key]))
        })
    };
    let before = told(&mut client);
    assert!(matches!(client.call(&["MEMORY", "USAGE", "large"]), Value::Int(600_000..2_000_000)));
    assert_eq!(client.call(&["SCAN", "0", "TYPE", "array", "COUNT", "1000"]), {
        let Value::Array(found) = client.call(&["SCAN", "0", "COUNT", "1000"]) else { panic!("no keys") };
        Value::Array(found)
    });
    client.call(&["WAITAOF", "1", "0", "0"]);
    drop(server);
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(told(&mut client), before);
    client.call(&["BGREWRITEAOF"]);
    wait_for_base(&server);
    all(&mut client, &["COPY a b", "DEL a", "RENAME b a"]);
    drop(server);
    let server = dir.start(&["--dbfilename", "reloaded"]);
    assert_eq!(told(&mut server.client()), before);
    let reply = server.client().call(&["DEBUG", "RELOAD"]);
    assert_eq!(reply, Value::ok());
    assert_eq!(told(&mut server.client()), before);
}

/// Documents whose floats have less than 64 bits: their text does not tell it, their DUMP does.
const FLOATS: [(&str, &str); 3] = [("half", "FP16"), ("brain", "BF16"), ("single", "FP32")];

fn fill_floats(client: &mut Client) {
    let vectors: Vec<String> = (0..4000).map(|n| format!("[0.1,-{n}.5,{}e-6,0.25]", n % 90 + 1)).collect();
    for (key, format) in FLOATS {
        let text = format!("[{}]", vectors.join(","));
        assert_eq!(client.call(&["JSON.SET", key, "$", &text, "FPHA", format]), Value::ok());
        client.call(&["JSON.SET", key, "$[7]", "[1.1,2.2]", "FPHA", format]);
    }
}

/// Values that are written to files and to replicas in pieces.
fn fill_large(client: &mut Client) {
    let rows: Vec<String> = (0..8000).map(|n| format!(r#"{{"id":{n},"name":"item {n}"}}"#)).collect();
    assert_eq!(client.call(&["JSON.SET", "doc", "$", &format!("[{}]", rows.join(","))]), Value::ok());
    fill_floats(client);
    all(
        client,
        &[
            "TS.CREATE series",
            "BF.RESERVE bloom 0.001 200000",
            "CF.RESERVE cuckoo 200000",
            "CMS.INITBYDIM sketch 20000 5",
            "TOPK.RESERVE top 1000 4000 7 0.9",
            "TDIGEST.CREATE digest COMPRESSION 5000",
        ],
    );
    let word = |n: u64, words: &mut Vec<String>| words.push(format!("item {n}"));
    client.call_for_each(&["TS.MADD"], 60_000, |n, words| {
        words.extend(["series".to_owned(), (1000 + n * 10).to_string(), (n * n % 977).to_string()])
    });
    client.call_for_each(&["ARMSET", "array"], 30_000, |n, words| {
        words.extend([(n * 3).to_string(), format!("element {n}")])
    });
    client.call_for_each(&["BF.MADD", "bloom"], 5000, word);
    client.call_for_each(&["CF.INSERT", "cuckoo", "ITEMS"], 5000, word);
    client.call_for_each(&["CMS.INCRBY", "sketch"], 5000, |n, words| {
        words.extend([format!("item {n}"), n.to_string()])
    });
    client.call_for_each(&["TOPK.ADD", "top"], 5000, word);
    client.call_for_each(&["TDIGEST.ADD", "digest"], 20_000, |n, words| {
        words.push((n * 7919 % 9973).to_string())
    });
}

/// What clients see of these values: digests, the samples of a series, and DUMPs of floats bit for bit.
#[derive(PartialEq)]
struct LargeValues {
    digests: Vec<Value>,
    series: Value,
    floats: Vec<Raw>,
}

impl LargeValues {
    fn at(port: u16) -> LargeValues {
        let keys = ["doc", "array", "bloom", "cuckoo", "sketch", "top", "digest"];
        let mut client = Client::connect(port).loaded();
        let digests = keys.map(|key| client.call(&["DEBUG", "DIGEST-VALUE", key])).to_vec();
        // The digest of a series knows its blocks, which an RDB file cuts in another way.
        let series = client.call(&["TS.RANGE", "series", "-", "+"]);
        LargeValues { digests, series, floats: dumps(port, "") }
    }
}

/// The DUMP of each document of short floats.
fn dumps(port: u16, suffix: &str) -> Vec<Raw> {
    let mut link = Link::to(port);
    FLOATS.map(|(key, _)| link.call(&["DUMP", &format!("{key}{suffix}")])).to_vec()
}

/// Fills a server, and compares what `read` finds at its port with what it finds after a start from the journal, a base, a
/// snapshot and an RDB file, and on a replica. `each` gets the servers of both files.
fn survive<T: PartialEq>(
    name: &str,
    fill: impl FnOnce(&mut Client),
    read: impl Fn(u16) -> T,
    each: impl Fn(&Server, &T),
) {
    let dir = Dir::new(name);
    let flags = ["--proactor_threads", "2", "--dbfilename", "dump"];
    let server = dir.start(&flags);
    let mut client = server.client();
    fill(&mut client);
    let before = read(server.port());
    client.call(&["WAITAOF", "1", "0", "0"]);
    drop(server);
    let server = dir.start(&flags);
    assert!(read(server.port()) == before, "from the journal's commands");
    let mut client = server.client();
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    assert_eq!(client.call(&["SAVE", "RDB"]), Value::ok());
    client.call(&["BGREWRITEAOF"]);
    wait_for_base(&server);
    drop(server);
    assert!(read(dir.start(&["--num_shards", "4"]).port()) == before, "from a base");
    for name in ["dump.darter", "dump.rdb"] {
        let server = dir.start(&["--appendonly", "no", "--dbfilename", name]);
        assert!(read(server.port()) == before, "from {name}");
        let replica = Node::ours(&["--num_shards", "4"]);
        follow(&mut replica.client(), server.port());
        assert!(read(replica.port()) == before, "on a replica of what is from {name}");
        each(&server, &before);
    }
}

#[test]
fn large_values_survive_snapshot_base_and_full_sync() {
    survive("modules-large", fill_large, LargeValues::at, |_, _| ());
}

/// The text of each of many documents, which have most names in common.
fn texts(port: u16) -> Vec<Value> {
    let mut client = Client::connect(port).loaded();
    (0..400).map(|n| client.call(&["JSON.GET", &format!("doc:{n}")])).collect()
}

#[test]
fn documents_with_the_same_names_survive_snapshot_base_full_sync_and_migrate() {
    let fill = |client: &mut Client| {
        for n in 0..400 {
            let text =
                format!("{{\"a name\":{n},\"another name\":[{{\"a third name\":{n}}}],\"own {n}\":1}}");
            assert_eq!(client.call(&["JSON.SET", &format!("doc:{n}"), "$", &text]), Value::ok());
        }
        let merged = "{\"another name\":null,\"a new name\":{\"a name\":2}}";
        client.call(&["JSON.MERGE", "doc:399", "$", merged]);
    };
    survive("modules-names", fill, texts, |server, before| {
        let target = Node::ours(&["--proactor_threads", "1"]);
        for n in 0..400 {
            let (port, key) = (target.port().to_string(), format!("doc:{n}"));
            let moved = server.client().call(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
            assert_eq!(moved, Value::ok());
        }
        assert!(texts(target.port()) == *before, "moved to another server");
    });
}

#[test]
fn copies_of_short_floats_have_the_same_bits() {
    let node = Node::ours(&["--proactor_threads", "2"]);
    let mut client = node.client();
    fill_floats(&mut client);
    let before = dumps(node.port(), "");
    let mut link = Link::to(node.port());
    for ((key, format), dump) in FLOATS.iter().zip(&before) {
        assert_eq!(client.call(&["COPY", key, &format!("{key} copy")]), Value::Int(1));
        let name = format!("{key} restored");
        let restored = link.call(&[b"RESTORE", name.as_bytes(), b"0", dump.bytes()]);
        assert_eq!(restored.bytes(), b"+OK", "{format}");
        let bytes = client.call(&["MEMORY", "USAGE", key]);
        let Value::Int(bytes) = bytes else { panic!("{bytes:?}") };
        assert!(bytes < if *format == "FP32" { 160_000 } else { 120_000 }, "{format}: {bytes} bytes");
    }
    assert!(dumps(node.port(), " copy") == before);
    assert!(dumps(node.port(), " restored") == before);
}

/// Many connections write to series with rules in all shards, alone, in transactions and in scripts.
#[test]
fn rules_hold_under_many_writers() {
    let node = Node::ours(&["--proactor_threads", "2"]);
    let mut client = node.client();
    for n in 0..8 {
        let (source, target) = (format!("s{n}"), format!("t{n}"));
        client.call(&["TS.CREATE", &source]);
        client.call(&["TS.CREATE", &target]);
        assert_eq!(
            client.call(&["TS.CREATERULE", &source, &target, "AGGREGATION", "count", "10"]),
            Value::ok()
        );
    }
    let port = node.port();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            std::thread::spawn(move || {
                let mut client = Client::connect(port);
                for n in 0..1_000_u64 {
                    let (key, time) = (format!("s{}", n % 8), (n * 4 + writer).to_string());
                    let reply = match (n + writer) % 3 {
                        0 => client.call(&["TS.ADD", &key, &time, "1"]),
                        1 => {
                            client.call(&["MULTI"]);
                            client.call(&["TS.ADD", &key, &time, "1"]);
                            client.call(&["EXEC"])
                        }
                        _ => client.call(&[
                            "EVAL",
                            "return redis.call('ts.add', KEYS[1], ARGV[1], 1)",
                            "1",
                            &key,
                            &time,
                        ]),
                    };
                    assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    for n in 0..8 {
        let all = client.call(&["TS.RANGE", &format!("s{n}"), "-", "+", "AGGREGATION", "count", "10"]);
        let Value::Array(mut all) = all else { panic!("no samples") };
        all.pop();
        assert_eq!(client.call(&["TS.RANGE", &format!("t{n}"), "-", "+"]), Value::Array(all), "t{n}");
    }
}

/// For servers without modules: keys of the families are left out of an RDB file, the others are in it.
#[test]
fn an_rdb_file_may_do_without_modules() {
    let folder = crate::harness::folder::Folder::new("modules-rdb");
    let flags = ["--dir", folder.text(), "--dbfilename", "plain.rdb", "--rdb_modules=no"];
    let server = Server::start(&flags);
    let mut client = server.client();
    all(
        &mut client,
        &["SET text 1", "JSON.SET doc $ {}", "TS.ADD series 1 1", "ARSET array 0 x", "BF.ADD bloom x"],
    );
    assert_eq!(client.call(&["SAVE", "RDB"]), Value::ok());
    drop(server);
    let server = Server::start(&flags);
    let mut client = server.client().loaded();
    assert_eq!(client.call(&["KEYS", "*"]), Value::array(&["text"]));
    all(&mut client, &["CONFIG SET rdb_modules yes", "TS.ADD series 1 1", "ARSET array 0 x", "SAVE RDB"]);
    drop(server);
    assert_eq!(Server::start(&flags).client().loaded().call(&["DBSIZE"]), Value::Int(3));
}

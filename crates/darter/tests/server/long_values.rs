//! Large documents and long series: read in slices while they change, written to snapshots in pieces.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, wait_until};

fn text_of(rows: u64) -> String {
    let rows: Vec<String> = (0..rows).map(|n| format!("{{\"id\":{n},\"name\":\"item {n}\"}}")).collect();
    format!("{{\"rows\":[{}],\"n\":0}}", rows.join(","))
}

/// The same command at once and in slices: EXEC answers in one piece.
fn at_once(client: &mut Client, words: &[&str]) -> Value {
    client.call(&["MULTI"]);
    client.call(words);
    match client.call(&["EXEC"]) {
        Value::Array(mut all) => all.pop().unwrap_or(Value::Null),
        other => other,
    }
}

#[test]
fn a_large_document_is_answered_in_slices_as_it_was() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    let text = text_of(40_000);
    client.call(&["JSON.SET", "d", "$", &text]);
    for words in [
        &["JSON.GET", "d"][..],
        &["JSON.GET", "d", "$"],
        &["JSON.GET", "d", "INDENT", " ", "NEWLINE", "\n", "SPACE", " ", "$.rows"],
        &["JSON.GET", "d", ".rows", ".n"],
        &["JSON.GET", "d", "$..id", "$.none"],
    ] {
        let whole = at_once(&mut client, words);
        assert!(client.call(words) == whole, "{words:?}");
    }
    assert_eq!(client.call(&["JSON.GET", "d"]), Value::Text(text));
    let is_over = AtomicBool::new(false);
    client.call(&["JSON.SET", "d", "$.rows[*].id", "8"]);
    let answers = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client();
            // All ids change by one command, so that an answer with two of them is a mixed one.
            while !is_over.load(Relaxed) {
                writer.call(&["JSON.NUMINCRBY", "d", "$.n", "1"]);
                writer.call(&["JSON.SET", "d", "$.rows[*].id", "7"]);
                writer.call(&["JSON.ARRPOP", "d", "$.rows", "0"]);
                writer.call(&["JSON.SET", "d", "$.rows[*].id", "8"]);
            }
        });
        let answers: Vec<Value> = (0..6).map(|_| client.call(&["JSON.GET", "d", "$.rows[*].id"])).collect();
        is_over.store(true, Relaxed);
        answers
    });
    for answer in answers {
        let Value::Text(ids) = answer else { panic!("a text") };
        let of = |id: &str| ids.matches(&format!("{id},")).count();
        assert!(ids.len() < 30_000 || of("7") == 0 || of("8") == 0, "one state");
    }
    client.call(&["DEL", "d"]);
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(0));
}

#[test]
fn a_large_document_changes_while_it_is_written_to_a_snapshot() {
    let folder = Folder::new("long-document");
    let start = |name: &str| {
        Server::start(&["--proactor_threads", "1", "--dir", folder.text(), "--dbfilename", name])
    };
    let server = start("after");
    let mut client = server.client();
    client.call(&["JSON.SET", "d", "$", &text_of(60_000)]);
    let before = at_once(&mut client, &["JSON.GET", "d"]);
    assert_eq!(client.call(&["BGSAVE", "before"]), Value::Status("Background saving started".to_owned()));
    for n in 0..300 {
        client.call(&["JSON.SET", "d", &format!("$.rows[{}].id", n * 199), "-1"]);
    }
    client.call(&["JSON.ARRTRIM", "d", "$.rows", "10", "50000"]);
    let after = at_once(&mut client, &["JSON.GET", "d"]);
    wait_until("it is written", || client.info::<u64>("persistence", "rdb_bgsave_in_progress") == 0);
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    drop(server);
    for (name, value) in [("before", before), ("after", after)] {
        assert!(start(name).client().call(&["JSON.GET", "d"]) == value, "{name}");
    }
}

/// Blocks of memory that the greatest hold of a shard touches while `words` runs, and the reply.
fn greatest_hold(client: &mut Client, words: &[&str]) -> (u64, Value) {
    client.call(&["CONFIG", "RESETSTAT"]);
    let reply = client.call(words);
    (client.info("transaction", "hold_blocks_max"), reply)
}

#[test]
fn a_large_document_is_set_in_slices() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    // Every command is timed, and its blocks are counted.
    client.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let text = text_of(60_000);
    let mut blocks_max = 0;
    for words in [
        &["JSON.SET", "d", "$", &text][..],
        &["JSON.SET", "d", "$.copy", &text],
        &["JSON.SET", "d", "$.copy", &text, "XX"],
        &["JSON.SET", "d", ".copy.rows[7]", &text],
        &["JSON.SET", "small", "$", "{\"a\":1}"],
        &["JSON.SET", "small", "$.b", &text, "NX"],
        &["JSON.SET", "small", "$", &text],
        &["JSON.MERGE", "merged", "$", &text],
    ] {
        let (blocks, reply) = greatest_hold(&mut client, words);
        assert_eq!(reply, Value::ok(), "{:?}", &words[..3]);
        blocks_max = blocks_max.max(blocks);
        let mut once: Vec<&str> = words.to_vec();
        let other = format!("{} at once", words[1]);
        once[1] = &other;
        assert_eq!(at_once(&mut client, &once), Value::ok(), "{:?}", &words[..3]);
        let texts = [words[1], &other].map(|key| client.call(&["JSON.GET", key]));
        assert!(texts[0] == texts[1], "{:?}", &words[..3]);
    }
    assert!(blocks_max < 300, "{blocks_max} blocks in one hold");
    client.call(&["EXPIRE", "d", "1000"]);
    assert_eq!(client.call(&["JSON.SET", "d", "$", &text, "NX"]), Value::Null);
    assert_eq!(client.call(&["JSON.SET", "none", "$", &text, "XX"]), Value::Null);
    assert_eq!(client.call(&["JSON.SET", "d", "$", &text, "XX"]), Value::ok());
    assert_eq!(client.call(&["JSON.GET", "d"]), Value::Text(text.clone()));
    assert!(matches!(client.call(&["TTL", "d"]), Value::Int(1..)), "the deadline stays");
    let (cut, repeated) = (&text[..text.len() - 1], text.replace("\"n\":0", "\"rows\":0"));
    client.call(&["SET", "string", "x"]);
    for words in [
        &["JSON.SET", "e", "$", cut][..],
        &["JSON.SET", "d", "$.a", cut],
        &["JSON.SET", "e", "$.a", &text],
        &["JSON.SET", "d", "$.a.b", &text],
        &["JSON.SET", "d", "$.rows[90000]", &text],
        &["JSON.SET", "string", "$", &text],
        &["JSON.SET", "d", "$", &repeated],
        &["JSON.SET", "d", "$.rows[0,1].id", &text],
    ] {
        let reply = client.call(words);
        assert_eq!(reply, at_once(&mut client, words), "{:?}", &words[..3]);
    }
    assert_eq!(client.call(&["JSON.GET", "d", "$.n"]), client.call(&["JSON.GET", "d", "$.none"]));
    client.call(&["FLUSHALL"]);
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(0));
}

/// Others change the document, its names and its key while a value for it is parsed.
#[test]
fn a_value_set_in_slices_fits_the_document_of_its_end() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let text = text_of(20_000);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = server.client();
            let named = format!("[{}0]", "{\"a long name that is kept once\":1},".repeat(50));
            while !is_over.load(Relaxed) {
                other.call(&["JSON.SET", "d", "$", &format!("{{\"named\":{named}}}")]);
                other.call(&["JSON.SET", "d", "$", "{\"x\":1}"]);
                other.call(&["DEL", "d"]);
                other.call(&["JSON.SET", "d", "$", "[1,2,3]"]);
                other.call(&["SET", "d", "x"]);
                other.call(&["DEL", "d"]);
            }
        });
        let mut client = server.client();
        for _ in 0..40 {
            for path in ["$.part", "$"] {
                let reply = client.call(&["JSON.SET", "d", path, &text]);
                let read = client.call(&["JSON.GET", "d", path]);
                let is_whole = matches!(&read, Value::Text(found) if found[1..].starts_with(&text));
                let is_other = !matches!(&read, Value::Text(found) if found.len() > 10_000);
                assert!(is_whole || is_other, "{reply:?}");
            }
        }
        // What was begun for a client that has gone is given up.
        for _ in 0..10 {
            server.client().send_all(&[&["JSON.SET", "gone", "$", &text]]);
        }
        is_over.store(true, Relaxed);
    });
    let mut client = server.client();
    client.call(&["DEL", "d"]);
    assert_eq!(client.call(&["JSON.SET", "d", "$", &text]), Value::ok());
    assert!(at_once(&mut client, &["JSON.GET", "d"]) == Value::Text(text));
}

fn fill(client: &mut Client, key: &str, label: &str, samples: u64) {
    client.call(&["TS.CREATE", key, "LABELS", "kind", "long", "of", label]);
    let mut from = 0;
    while from < samples {
        let mut words = vec!["TS.MADD".to_owned()];
        for n in from..(from + 500).min(samples) {
            words.extend([key.to_owned(), (1000 + n * 10).to_string(), (n % 97).to_string()]);
        }
        client.call(&words.iter().map(String::as_str).collect::<Vec<_>>());
        from += 500;
    }
}

const RANGES: &[&str] = &[
    "TS.RANGE a - +",
    "TS.REVRANGE a - +",
    "TS.RANGE a 100000 250000 COUNT 9000",
    "TS.REVRANGE a 100000 250000 COUNT 9000",
    "TS.RANGE a - + AGGREGATION avg,max,count 700",
    "TS.REVRANGE a - + AGGREGATION twa 1000",
    "TS.REVRANGE a - + COUNT 5 AGGREGATION sum 1000",
    "TS.RANGE a - + FILTER_BY_VALUE 5 9 AGGREGATION last 990 EMPTY",
    "TS.MRANGE - + FILTER kind=long",
    "TS.MREVRANGE - + WITHLABELS AGGREGATION min 5000 FILTER kind=long",
    "TS.MRANGE - + SELECTED_LABELS of AGGREGATION min 5000 FILTER kind=long GROUPBY kind REDUCE sum",
    "TS.MREVRANGE - + COUNT 3 AGGREGATION avg 100 FILTER kind=long GROUPBY of REDUCE max",
    "TS.NRANGE 2 a b - +",
    "TS.NREVRANGE 3 a b c 5000 200000 COUNT 7000",
    "TS.NRANGE 3 c a b - + AGGREGATION avg max,min count 770",
    "TS.NREVRANGE 2 b a - + COUNT 20 AGGREGATION twa max 1000",
    "TS.MRANGE 9000000 + FILTER kind=long EXCLUDEEMPTY",
    "TS.MRANGE - + FILTER_BY_VALUE 200 300 FILTER kind=long EXCLUDEEMPTY",
];

/// Compares the answers of lines in slices with those in one piece, in both protocols.
fn assert_same_in_slices(client: &mut Client, lines: &[&str]) {
    for protocol in ["2", "3"] {
        client.call(&["HELLO", protocol]);
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let whole = at_once(client, &words);
            assert!(!matches!(whole, Value::Error(_)), "{line}: {whole:?}");
            assert!(client.call(&words) == whole, "{line}");
        }
    }
    client.call(&["HELLO", "2"]);
}

#[test]
fn long_ranges_are_answered_in_slices_as_they_were() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    for (key, label, samples) in [("a", "x", 30_000), ("b", "y", 20_000), ("c", "x", 700)] {
        fill(&mut client, key, label, samples);
    }
    assert_same_in_slices(&mut client, RANGES);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client();
            // Both series lose and get the same samples in one transaction: the sums of their values differ by a
            // constant at any moment.
            while !is_over.load(Relaxed) {
                for value in ["1", "2"] {
                    writer.call(&["MULTI"]);
                    writer.call(&["TS.DEL", "a", "50000", "150000"]);
                    writer.call(&["TS.DEL", "b", "50000", "150000"]);
                    writer.call(&["TS.MADD", "a", "70000", value, "b", "70000", value]);
                    writer.call(&["EXEC"]);
                }
            }
        });
        let of = |reply: &Value| format!("{reply:?}").matches("70000").count();
        for _ in 0..20 {
            let words = ["TS.MRANGE", "70000", "70000", "FILTER", "kind=long", "of=(x,y)"];
            assert!(of(&client.call(&words)) != 1, "one moment");
            client.call(&["TS.MRANGE", "-", "+", "FILTER", "kind=long"]);
        }
        is_over.store(true, Relaxed);
    });
}

const PLACES: &[&str] = &[
    "ARGETRANGE a 0 99999",
    "ARGETRANGE a 120000 3",
    "ARGETRANGE a 900000 1800000",
    "ARSCAN a 0 18446744073709551614",
    "ARSCAN a 90000 0 LIMIT 30000",
    "ARGREP a - + MATCH 7 WITHVALUES",
    "ARGREP a + - RE ^v.*9$ GLOB *1* AND LIMIT 700",
    "ARGREP a - + EXACT none",
    "AROP a 0 1000000 SUM",
    "AROP a 0 1000000 USED",
    "AROP a 5 900000 MATCH v77",
    "AROP a 1 999999 XOR",
    "ARLASTITEMS a 70000",
    "ARLASTITEMS a 70000 REV",
];

#[test]
fn long_arrays_are_answered_in_slices_as_they_were() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    for from in (0..100_000_u64).step_by(1000) {
        let mut words = vec!["ARMSET".to_owned(), "a".to_owned()];
        for n in from..from + 1000 {
            // Gaps, and places far behind.
            let place = n + n / 5000 * 3000 + if n > 99_000 { 1 << 40 } else { 0 };
            words.extend([place.to_string(), if n % 3 == 0 { n.to_string() } else { format!("v{n}") }]);
        }
        client.call(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    client.call(&["ARSEEK", "a", "70000"]);
    client.call(&["ARINSERT", "a", "inserted"]);
    assert_same_in_slices(&mut client, PLACES);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client();
            // The first and the last place always hold the same text.
            while !is_over.load(Relaxed) {
                for text in ["x", "y"] {
                    writer.call(&["ARMSET", "a", "0", text, "80000", text]);
                    writer.call(&["ARDELRANGE", "a", "100", "60000"]);
                    writer.call(&["ARSET", "a", "30000", "z", "z", "z"]);
                }
            }
        });
        for _ in 0..30 {
            let Value::Array(all) = client.call(&["ARGETRANGE", "a", "0", "80000"]) else {
                panic!("an array")
            };
            assert_eq!(all.len(), 80_001);
            // Until the writer has begun they differ.
            let ends = [all.first(), all.last()];
            let is_written =
                |end: &Option<&Value>| matches!(end, Some(Value::Text(t)) if t == "x" || t == "y");
            assert!(!ends.iter().all(is_written) || ends[0] == ends[1], "one moment: {ends:?}");
        }
        is_over.store(true, Relaxed);
    });
    client.call(&["DEL", "a"]);
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(0));
}

#[test]
fn a_client_that_leaves_lets_the_blocks_go() {
    let server = Server::start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    fill(&mut client, "a", "x", 60_000);
    client.call(&["JSON.SET", "d", "$", &text_of(40_000)]);
    for _ in 0..20 {
        let mut other = server.client();
        other.send_all(&[&["TS.RANGE", "a", "-", "+"]]);
        drop(other);
        let mut other = server.client();
        other.send_all(&[&["JSON.GET", "d"]]);
        drop(other);
    }
    client.call(&["DEL", "a", "d"]);
    // With a reader that nobody ends the arena would never be empty.
    wait_until("the arena is empty", || {
        client.call(&["PING"]);
        let info = client.call(&["INFO", "memory"]);
        let text = format!("{info:?}");
        let used = text.split("used_memory_dataset:").nth(1).and_then(|rest| rest.split('\\').next());
        used.and_then(|used| used.parse::<u64>().ok()).is_some_and(|used| used < 200_000)
    });
}

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

/// Commands that go through all of a large document, or through many.
const WHOLE: &[&str] = &[
    "JSON.GET d",
    "JSON.GET d .",
    "JSON.GET d $..id",
    "JSON.GET d $..* $.n",
    "JSON.GET d INDENT _ NEWLINE | $.rows[?(@.id>4990)] $..none",
    "JSON.GET d $.rows[::7]['name','id','none']",
    "JSON.MGET d none s1 string s2 d $..id",
    "JSON.MGET s1 d .rows",
    "JSON.MGET s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 s12 s13 s14 d1 d2 d3 d4 d5 d6 d7 d8 d9 $..name",
    "JSON.RESP d",
    "JSON.RESP d $..*",
    "JSON.TYPE d $..*",
    "JSON.STRLEN d $..*",
    "JSON.ARRLEN d $..rows",
    "JSON.OBJLEN d $.rows[*]",
    "JSON.OBJKEYS d $.rows[*]",
];

#[test]
fn what_goes_through_all_of_a_document_does_so_in_slices() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    client.call(&["JSON.SET", "d", "$", &text_of(5000)]);
    for n in 0..20 {
        client.call(&["JSON.SET", &format!("s{n}"), "$", &text_of(12)]);
        client.call(&["JSON.SET", &format!("d{n}"), "$", &text_of(900)]);
    }
    client.call(&["SET", "string", "x"]);
    let slices = |client: &mut Client| client.info::<u64>("transaction", "slices_total");
    for protocol in ["2", "3"] {
        client.call(&["HELLO", protocol]);
        for line in WHOLE {
            let words: Vec<&str> = line.split(' ').collect();
            let before = slices(&mut client);
            let mine = client.call(&words);
            assert!(slices(&mut client) > before + 2, "{line}");
            assert!(!matches!(mine, Value::Error(_)), "{line}: {mine:?}");
            assert!(mine == at_once(&mut client, &words), "{line} RESP{protocol}");
        }
    }
    client.call(&["HELLO", "2"]);
    // All ids change by one command: an answer with two of them is a mixed one.
    client.call(&["JSON.SET", "d", "$.rows[*].id", "8"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client();
            while !is_over.load(Relaxed) {
                for id in ["7", "8"] {
                    writer.call(&["JSON.SET", "d", "$.rows[*].id", id]);
                    writer.call(&["JSON.ARRINSERT", "d", "$.rows", "9", &format!("{{\"id\":{id}}}")]);
                    writer.call(&["JSON.ARRPOP", "d", "$.rows", "9"]);
                }
            }
        });
        for _ in 0..10 {
            for line in ["JSON.MGET d d $..id", "JSON.RESP d $.rows[*].id"] {
                let mut ids = Vec::new();
                match client.call(&line.split(' ').collect::<Vec<_>>()) {
                    Value::Array(all) if line.contains("RESP") => ids.extend(all),
                    Value::Array(all) => {
                        assert_eq!(all[0], all[1], "of one key");
                        let Value::Text(text) = &all[0] else { panic!("{all:?}") };
                        ids.extend(text[1..text.len() - 1].split(',').map(|id| Value::Text(id.to_owned())));
                    }
                    other => panic!("{other:?}"),
                }
                assert!(
                    ids.len() >= 5000 && ids.iter().all(|id| *id == ids[0]),
                    "{line}: ids of two moments"
                );
            }
        }
        is_over.store(true, Relaxed);
    });
    // What was begun for clients that have gone is given up.
    for line in WHOLE {
        server.client().send_all(&[&line.split(' ').collect::<Vec<_>>()]);
    }
    nothing_stays_of(&mut client);
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

/// Commands with long texts for documents whose keys begin with `key`.
fn long_texts(key: &str, text: &str) -> Vec<Vec<String>> {
    let (a, m) = (format!("{key}a"), format!("{key}m"));
    let [s1, s2] = ["s1", "s2"].map(|name| format!("{key}{name}"));
    let other = text.replace("\"id\"", "\"a name of its own\"");
    let commands: Vec<Vec<&str>> = vec![
        vec!["JSON.SET", &a, "$", r#"[1,{"x":[]},{"id":1,"name":2},{"id":1,"name":2},{"x":[3]}]"#],
        vec!["JSON.SET", &m, "$", r#"{"rows":[1],"k":{"z":1,"n":[{"id":1},{"id":1},{"id":2}]}}"#],
        vec!["JSON.ARRAPPEND", &a, "$", text],
        vec!["JSON.ARRAPPEND", &a, ".[1].x", text],
        vec!["JSON.ARRAPPEND", &a, ".", text, "7", &other],
        vec!["JSON.ARRAPPEND", &a, "$..x", &other],
        vec!["JSON.ARRINSERT", &a, "$", "-1", text],
        vec!["JSON.ARRINSERT", &a, "$[1].x", "0", &other, "null"],
        vec!["JSON.SET", &a, "$[1,2,3].id", text],
        vec!["JSON.MERGE", &m, "$", text],
        vec!["JSON.MERGE", &m, "$.k", &other],
        vec!["JSON.MERGE", &m, "$.new", text],
        vec!["JSON.MSET", &s1, "$", text, &s2, "$", &other, &m, "$.k.part", text, &m, ".n", "5"],
    ];
    commands.into_iter().map(|words| words.into_iter().map(str::to_owned).collect()).collect()
}

fn refs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn long_texts_are_parsed_without_a_shard() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    client.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let text = text_of(10_000);
    for (words, once) in long_texts("slices:", &text).iter().zip(long_texts("once:", &text)) {
        let (blocks, reply) = greatest_hold(&mut client, &refs(words));
        assert!(!matches!(reply, Value::Error(_)), "{:?}: {reply:?}", &words[..3]);
        // A single value for a single array comes in pieces that are stored before.
        let is_piece = words[0].starts_with("JSON.ARR") && words.len() <= 5 && !words[2].contains("..");
        let holds: u64 = client.info("transaction", "holds_total");
        let is_sliced = is_piece || words[0] == "JSON.MSET";
        assert!(!is_sliced || holds >= 2, "{:?}: held {holds} times", &words[..3]);
        assert!(!is_piece || blocks < 300, "{:?}: {blocks} blocks in one hold", &words[..3]);
        assert_eq!(reply, at_once(&mut client, &refs(&once)), "{:?}", &words[..3]);
        for key in ["a", "m", "s1", "s2"] {
            let texts = ["slices:", "once:"].map(|name| client.call(&["JSON.GET", &format!("{name}{key}")]));
            assert!(texts[0] == texts[1], "{key} after {:?}", &words[..3]);
        }
    }
    // What is wrong is told as it is at once, and changes nothing.
    client.call(&["SET", "string", "x"]);
    let before = client.call(&["DEBUG", "DIGEST"]);
    let (cut, deep) = (&text[..text.len() - 1], format!("{}{text}{}", "[".repeat(126), "]".repeat(126)));
    for words in [
        &["JSON.SET", "slices:a", "$..id", cut][..],
        &["JSON.ARRAPPEND", "slices:a", "$", cut],
        &["JSON.ARRAPPEND", "slices:a", "$", &text, cut],
        &["JSON.ARRAPPEND", "slices:a", "$", &deep],
        &["JSON.ARRAPPEND", "slices:a", "$[0]", &text],
        &["JSON.ARRAPPEND", "slices:a", ".[0]", &text],
        &["JSON.ARRAPPEND", "none", "$", &text],
        &["JSON.ARRAPPEND", "string", "$", &text],
        &["JSON.ARRINSERT", "slices:a", "$", "9000", &text],
        &["JSON.ARRINSERT", "slices:a", ".none", "0", &text],
        &["JSON.MERGE", "slices:m", "$", cut],
        &["JSON.MERGE", "slices:m", "$.a.b", &text],
        &["JSON.MERGE", "none", "$.a", &text],
        &["JSON.MERGE", "string", "$", &text],
        &["JSON.MSET", "slices:a", "$", &text, "slices:m", "$", cut],
        &["JSON.MSET", "slices:a", "$", cut, "slices:m", "$$$", &text],
        &["JSON.MSET", "none", "$", &text, "none", "$.a", &text],
        &["JSON.MSET", "none", "$", &text, "string", "$", &text],
    ] {
        let reply = client.call(words);
        assert_eq!(reply, at_once(&mut client, words), "{:?}", &words[..3]);
        assert_eq!(client.call(&["DEBUG", "DIGEST"]), before, "{:?}", &words[..3]);
    }
}

/// Clients that closed at once leave nothing behind, neither connections nor memory. One of them may not have been
/// accepted yet when the others are gone; its command runs after the first FLUSHALL.
fn nothing_stays_of(client: &mut Client) {
    wait_until("they are gone", || client.info::<u64>("clients", "connected_clients") == 1);
    wait_until("the documents are gone", || {
        client.call(&["FLUSHALL"]);
        client.info::<u64>("memory", "object_used_memory") == 0
    });
}

/// Others change the documents while texts for them are parsed.
#[test]
fn values_parsed_in_slices_come_to_the_documents_of_the_end() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let text = text_of(5000);
    let mut client = server.client();
    client.call(&["JSON.SET", "d", "$", "[]"]);
    let is_over = AtomicBool::new(false);
    let appended = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (mut other, mut appended) = (server.client(), 0);
            while !is_over.load(Relaxed) {
                assert!(matches!(other.call(&["JSON.ARRAPPEND", "d", "$", "1"]), Value::Array(_)));
                other.call(&["JSON.SET", "m", "$", r#"{"n":0,"stays":1}"#]);
                other.call(&["JSON.NUMINCRBY", "m", "$.n", "1"]);
                other.call(&["DEL", "m"]);
                appended += 1;
            }
            appended
        });
        for _ in 0..20 {
            assert!(matches!(client.call(&["JSON.ARRAPPEND", "d", "$", &text]), Value::Array(_)));
            assert!(matches!(client.call(&["JSON.ARRINSERT", "d", "$", "0", &text, "2"]), Value::Array(_)));
            assert_eq!(client.call(&["JSON.MERGE", "m", "$", &text]), Value::ok());
            assert_eq!(client.call(&["JSON.MSET", "m", "$", &text, "e", "$", &text]), Value::ok());
        }
        is_over.store(true, Relaxed);
        other.join().expect("no panic")
    });
    assert_eq!(client.call(&["JSON.ARRLEN", "d"]), Value::Int(60 + appended));
    assert_eq!(client.call(&["JSON.GET", "d", ".[0]"]), Value::Text(text.clone()));
    assert_eq!(client.call(&["JSON.GET", "e"]), Value::Text(text.clone()));
    // What was begun for clients that have gone is given up.
    for words in long_texts("slices:", &text) {
        server.client().send_all(&[&refs(&words)]);
    }
    nothing_stays_of(&mut client);
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

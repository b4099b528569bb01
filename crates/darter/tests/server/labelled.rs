//! Many series found by their labels in slices: the answer is what one go gives, and the state of one moment.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::{Client, Server, Value, wait_until};

const SERIES: u64 = 2000;

fn fill(client: &mut Client) {
    for n in 0..SERIES {
        let (key, host, part) = (format!("s:{n}"), format!("h{}", n % 500), format!("p{}", n % 3));
        client.call(&["TS.CREATE", &key, "LABELS", "kind", "all", "host", &host, "part", &part]);
        if n % 7 > 0 {
            client.call(&["TS.ADD", &key, &(1000 + n).to_string(), &n.to_string()]);
        }
    }
    // Some have more blocks than one step reads.
    for n in [0, 70, 701, 1402] {
        let words =
            |n: u64| (0..3000).map(move |time| format!("s:{n} {} {}.25", 9000 + 10 * time, time % 100));
        let samples: Vec<String> = words(n).collect();
        let samples = samples.iter().flat_map(|sample| sample.split(' '));
        client.call(&["TS.MADD"].into_iter().chain(samples).collect::<Vec<_>>());
    }
    client.call(&["TS.CREATE", "t:0", "LABELS", "kind", "all", "host", "sums"]);
    client.call(&["TS.CREATERULE", "s:1", "t:0", "AGGREGATION", "sum", "10"]);
    client.call(&["TS.MADD", "s:1", "5000", "4", "s:1", "5001", "5"]);
}

const LINES: &[&str] = &[
    "TS.QUERYINDEX kind=all",
    "TS.QUERYINDEX kind=all host!=h7 part=(p0,p1,p0)",
    "TS.QUERYINDEX part=(p0,p2) kind=all host=",
    "TS.QUERYLABELS LABELS",
    "TS.QUERYLABELS VALUES host FILTER kind=all",
    "TS.QUERYLABELS VALUES none FILTER kind=all",
    "TS.MGET FILTER kind=all",
    "TS.MGET LATEST WITHLABELS FILTER kind=all part!=p1",
    "TS.MGET FILTER kind=all part=(p0,p1)",
    "TS.MGET SELECTED_LABELS host none FILTER kind=all",
    "TS.MRANGE - + COUNT 1 WITHLABELS FILTER kind=all",
    "TS.MREVRANGE - + LATEST AGGREGATION sum 1000 FILTER kind=all GROUPBY part REDUCE max",
    "TS.MRANGE - + LATEST FILTER kind=all",
    "TS.MREVRANGE - + COUNT 500 FILTER kind=all EXCLUDEEMPTY",
    "TS.MRANGE 1500 20000 AGGREGATION avg,count,max 70 FILTER kind=all",
    "TS.MREVRANGE - + COUNT 3 SELECTED_LABELS host AGGREGATION sum 700 EMPTY FILTER kind=all",
    "TS.MRANGE - + WITHLABELS FILTER kind=all GROUPBY host REDUCE sum",
    "TS.MREVRANGE - + COUNT 100 FILTER kind=all GROUPBY part REDUCE avg",
    "TS.MRANGE - + AGGREGATION max 50 FILTER kind=all GROUPBY none REDUCE sum",
];

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn call_at_once(client: &mut Client, words: &[&str]) -> Value {
    client.call(&["MULTI"]);
    client.call(words);
    let Value::Array(mut replies) = client.call(&["EXEC"]) else { panic!("no replies") };
    replies.remove(0)
}

fn slices(client: &mut Client) -> u64 {
    client.info("transaction", "slices_total")
}

#[test]
fn slices_find_the_series_that_one_go_finds() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--num_shards", "5"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        fill(&mut client);
        for protocol in ["2", "3"] {
            client.call(&["HELLO", protocol]);
            for line in LINES {
                let before = slices(&mut client);
                let mine = client.call(&words(line));
                assert!(slices(&mut client) > before + 10, "{line}");
                assert!(!matches!(mine, Value::Error(_)), "{line}: {mine:?}");
                assert!(mine == call_at_once(&mut client, &words(line)), "{line} RESP{protocol}");
            }
        }
    }
}

#[test]
fn a_user_sees_only_the_series_that_it_may_read() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    fill(&mut client);
    client.call(&["ACL", "SETUSER", "some", "on", "nopass", "+@all", "~s:*"]);
    client.call(&["AUTH", "some", "x"]);
    for line in LINES {
        let mine = client.call(&words(line));
        assert!(mine == call_at_once(&mut client, &words(line)), "{line}");
        let is_refused = matches!(&mine, Value::Error(line) if line.starts_with("NOPERM TSDB"));
        // `t:0` has no part.
        assert_eq!(is_refused, !line.contains("QUERY") && !line.contains("part=("), "{line}: {mine:?}");
    }
}

/// Series come and go in pairs, and all samples change by one command.
#[test]
fn what_is_found_is_one_state_while_series_come_and_go() {
    const PAIRS: u64 = 400;
    for threads in ["1", "3"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        let keys: Vec<String> = (0..PAIRS).flat_map(|n| [format!("a{n}"), format!("b{n}")]).collect();
        for key in &keys {
            client.call(&["TS.CREATE", key, "LABELS", "kind", "pair", "of", &key[1..]]);
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = server.client();
                for n in (1..10_000).take_while(|_| !is_over.load(Relaxed)) {
                    let time = n.to_string();
                    let all = keys.iter().flat_map(|key| [key.as_str(), &time, &time]);
                    writer.call(&["TS.MADD"].into_iter().chain(all).collect::<Vec<_>>());
                    let (a, b) = (format!("a{}", n % PAIRS), format!("b{}", n % PAIRS));
                    writer.call(&["MULTI"]);
                    writer.call(&["DEL", &a, &b]);
                    writer.call(&["EXEC"]);
                    writer.call(&["MULTI"]);
                    for key in [&a, &b] {
                        writer.call(&["TS.CREATE", key, "LABELS", "kind", "pair", "of", &key[1..]]);
                        writer.call(&["TS.ADD", key, &time, &time]);
                    }
                    writer.call(&["EXEC"]);
                }
            });
            for _ in 0..40 {
                let Value::Array(found) = client.call(&["TS.QUERYINDEX", "kind=pair"]) else {
                    panic!("keys")
                };
                assert_eq!(found.len() % 2, 0, "a pair and its half");
                assert!(found.len() as u64 >= 2 * PAIRS - 2);
                let Value::Array(found) = client.call(&["TS.MGET", "FILTER", "kind=pair"]) else {
                    panic!("series")
                };
                assert_eq!(found.len() % 2, 0, "a pair and its half");
                let samples: Vec<&Value> = found
                    .iter()
                    .map(|one| match one {
                        Value::Array(parts) => &parts[2],
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert!(samples.iter().all(|sample| *sample == samples[0]), "samples of two moments");
            }
            is_over.store(true, Relaxed);
        });
        // Clients that leave in the middle leave nothing behind.
        for _ in 0..20 {
            LINES.iter().for_each(|line| server.client().send_all(&[&words(&line.replace("all", "pair"))]));
        }
        wait_until("they are gone", || client.info::<u64>("clients", "connected_clients") == 1);
        client.call(&["FLUSHALL"]);
        wait_until("the series are gone", || client.info::<u64>("memory", "object_used_memory") == 0);
    }
}

/// The newest sample of each series of an answer to TS.MGET, or to TS.MREVRANGE with COUNT 1.
fn samples(found: Value) -> Vec<String> {
    let Value::Array(found) = found else { panic!("series: {found:?}") };
    let sample = |one: Value| match one {
        Value::Array(parts) => format!("{:?}", parts[2]).replace('[', "").replace(']', ""),
        other => panic!("{other:?}"),
    };
    found.into_iter().map(sample).collect()
}

/// All samples change by one command, while series go, come back and get other keys. Changes of the labels are rare, so
/// that most answers are of the moment at which the series were found.
#[test]
fn the_samples_of_many_series_are_of_one_moment() {
    const SERIES: u64 = 1500;
    for threads in ["1", "3"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        let keys: Vec<String> = (0..SERIES).map(|n| format!("s{n}")).collect();
        let create = |client: &mut Client, key: &str, time: &str| {
            client.call(&["MULTI"]);
            client.call(&["TS.CREATE", key, "LABELS", "kind", "one"]);
            client.call(&["TS.ADD", key, time, time]);
            client.call(&["EXEC"]);
        };
        keys.iter().for_each(|key| create(&mut client, key, "1"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = server.client();
                for n in (2..20_000).take_while(|_| !is_over.load(Relaxed)) {
                    let (time, key) = (n.to_string(), &keys[n % keys.len()]);
                    if n % 40 == 0 {
                        // The answer is without it, or with what it had when it was found.
                        let Value::Array(last) = writer.call(&["TS.GET", key]) else { panic!("a sample") };
                        let Value::Int(last) = last[0] else { panic!("a time") };
                        writer.call(&["RENAME", key, "other"]);
                        writer.call(&["RENAME", "other", key]);
                        writer.call(&["DEL", key]);
                        create(&mut writer, key, &last.to_string());
                    }
                    let all = keys.iter().flat_map(|key| [key.as_str(), &time, &time]);
                    writer.call(&["TS.MADD"].into_iter().chain(all).collect::<Vec<_>>());
                }
            });
            for n in 0..60 {
                let words = match n % 3 {
                    0 => "TS.MGET FILTER kind=one",
                    1 => "TS.MREVRANGE - + COUNT 1 FILTER kind=one",
                    _ => "TS.MREVRANGE - + COUNT 1 AGGREGATION last 1 FILTER kind=one",
                };
                let found = samples(client.call(&words.split(' ').collect::<Vec<_>>()));
                assert!(found.len() as u64 >= SERIES - 1);
                assert!(found.iter().all(|sample| *sample == found[0]), "samples of two moments");
            }
            is_over.store(true, Relaxed);
        });
        // Series that go all at once while they are read are in the answer, and nothing stays of them.
        for _ in 0..20 {
            let mut other = server.client();
            other.send_all(&[&["TS.MRANGE", "-", "+", "FILTER", "kind=one"]]);
            client.call(&["FLUSHALL"]);
            let Value::Array(found) = other.read() else { panic!("series") };
            assert!(found.is_empty() || found.len() as u64 == SERIES, "{}", found.len());
            keys.iter().for_each(|key| create(&mut client, key, "1"));
        }
        client.call(&["FLUSHALL"]);
        wait_until("the series are gone", || client.info::<u64>("memory", "object_used_memory") == 0);
    }
}

#[test]
fn series_that_come_to_their_end_meanwhile_are_found_together_or_not_at_all() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    fill(&mut client);
    let Value::Array(now) = client.call(&["TIME"]) else { panic!("no time") };
    let Value::Text(seconds) = &now[0] else { panic!("no text") };
    let at = (seconds.parse::<u64>().expect("a number") + 2).to_string();
    for n in 0..SERIES {
        client.call(&["EXPIREAT", &format!("s:{n}"), &at]);
    }
    loop {
        let Value::Array(found) = client.call(&["TS.QUERYINDEX", "kind=all"]) else { panic!("keys") };
        match found.len() as u64 {
            1 => break,
            len => assert_eq!(len, SERIES + 1),
        }
    }
}

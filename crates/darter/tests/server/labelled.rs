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

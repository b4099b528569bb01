//! Replicas that are far behind: their threads run a master's changes together, and nobody can tell.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use darter_base::rng::Rng;

use crate::harness::browser::{Browser, sample};
use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, wait_until};
use crate::nodes::{Node, Writer, assert_equal, catch_up, follow, signal};

/// No pings: a copy that starts alone has had none. Nothing that is said is too much for a listener that reads late.
const FLAGS: [&str; 8] = [
    "--repl-ping-replica-period",
    "3600",
    "--repl-backlog-size",
    "256mb",
    "--client-output-buffer-limit",
    "replica 0 0 0 pubsub 0 0 0",
    "--notify-keyspace-events",
    "KA",
];
const ACCOUNTS: u64 = 40;
const MONEY: i64 = 1_000_000;

fn start(threads: &str, flags: &[&str]) -> Node {
    Node::Ours(Server::start(&[&["--proactor_threads", threads], &FLAGS[..], flags].concat()))
}

/// Sends commands, and reads what they are answered.
fn send(client: &mut Client, lines: &[Vec<String>]) {
    for lines in lines.chunks(500) {
        let words: Vec<Vec<&str>> =
            lines.iter().map(|line| line.iter().map(String::as_str).collect()).collect();
        client.send_all(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for line in lines {
            let said = client.read();
            assert!(!matches!(said, Value::Error(_)), "{line:?}: {said:?}");
        }
    }
}

fn words(line: String) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Changes of single keys whose events a replica tells as its master does, long stretches of them; transfers between accounts,
/// whole in transactions; and now and then what no part can run: several keys, messages, scripts.
fn changes(rng: &mut Rng, count: usize) -> Vec<Vec<String>> {
    let (mut lines, mut messages) = (Vec::new(), 0);
    for at in 0..count {
        let (key, n) = (rng.below(400), rng.below(30));
        match rng.below(14) {
            0 => lines.push(format!("SET t{key} {at}")),
            1 => lines.push(format!("APPEND t{key} {n}")),
            2 => lines.push(format!("INCRBY c{key} {n}")),
            3 | 4 => lines.push(format!("HSET h{key} f{n} {}", "v".repeat(60))),
            5 => lines.push(format!("HDEL h{key} f{n}")),
            6 | 7 => lines.push(format!("ZADD z{key} {at} m{n}")),
            8 => lines.push(format!("RPUSH l{key} {at} {n}")),
            9 => lines.push(format!("LPOP l{key}")),
            10 => lines.push(format!("SADD s{key} {n}")),
            11 => lines.push(format!("DEL t{key}")),
            12 => lines.push(format!("EXPIRE h{key} 10000")),
            _ => {
                let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                lines.push("MULTI".to_owned());
                lines.push(format!("DECRBY account{from} {n}"));
                lines.push("INCR tick".to_owned());
                lines.push(format!("INCRBY account{to} {n}"));
                lines.push("EXEC".to_owned());
            }
        }
        if rng.below(600) == 0 {
            lines.push(format!("MSET t{key} {at} t{n} {at} c{key} 1"));
            lines.push(format!("PUBLISH news {messages}"));
            messages += 1;
        }
        if rng.below(1000) == 0 {
            lines.push("SELECT 1".to_owned());
            (0..20).for_each(|n| lines.push(format!("SET other{n} {at}")));
            lines.push("SELECT 0".to_owned());
        }
    }
    lines.into_iter().map(words).collect()
}

/// The number behind a name in the statistics: parts that the thread with their shards has run, and those that others have.
fn parts(node: &Node) -> (f64, f64) {
    let text = Browser::to(node.port()).get("/metrics", "").body;
    let of = |by: &str| sample(&text, &format!(r#"darter_replica_parts_total{{by="{by}"}}"#));
    (of("applier"), of("other"))
}

fn digest(client: &mut Client) -> Value {
    client.call(&["DEBUG", "DIGEST"])
}

/// Reads all accounts at once until told to stop; returns how often.
fn audit(node: &Node, is_over: &AtomicBool) -> u64 {
    let (mut client, mut looks, mut last) = (node.client(), 0, 0);
    let keys: Vec<String> = (0..ACCOUNTS).map(|n| format!("account{n}")).collect();
    let ask: Vec<&str> = ["MGET", "tick"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    while !is_over.load(Relaxed) {
        let Value::Array(found) = client.call(&ask) else { panic!("numbers") };
        let numbers = found.iter().map(|value| match value {
            Value::Text(text) => text.parse::<i64>().expect("a number"),
            other => panic!("{other:?}"),
        });
        let numbers: Vec<i64> = numbers.collect();
        assert_eq!(numbers[1..].iter().sum::<i64>(), MONEY * ACCOUNTS as i64, "half a transfer was seen");
        assert!(numbers[0] >= last, "it went back from {last} to {}", numbers[0]);
        last = numbers[0];
        looks += 1;
    }
    looks
}

/// A client that hears of all changes and of messages.
fn listen(node: &Node) -> Client {
    let mut client = node.client();
    client.call(&["PSUBSCRIBE", "__keyspace@*__:*"]);
    client.call(&["SUBSCRIBE", "news"]);
    client
}

/// What a listener has heard up to the end: of each key its events, and messages.
fn heard(client: &mut Client) -> (HashMap<String, Vec<String>>, Vec<String>) {
    let (mut events, mut messages) = (HashMap::<String, Vec<String>>::new(), Vec::new());
    loop {
        let Value::Array(items) = client.read() else { panic!("a message") };
        let texts: Vec<String> = items
            .into_iter()
            .map(|item| match item {
                Value::Text(text) => text,
                other => panic!("{other:?}"),
            })
            .collect();
        match &texts[..] {
            [_, _, channel, event] if channel.ends_with(":end") && event == "set" => {
                return (events, messages);
            }
            [_, _, channel, event] => events.entry(channel.clone()).or_default().push(event.clone()),
            [_, _, message] => messages.push(message.clone()),
            other => panic!("{other:?}"),
        }
    }
}

fn a_backlog_is_run(threads: &str, seed: u64) {
    let folder = Folder::new(&format!("parts-{threads}"));
    let own = ["--dir", folder.text(), "--appendonly", "yes"];
    let (master, replica) = (start("2", &["--dbfilename", ""]), start(threads, &own));
    let chained = start("2", &["--dbfilename", ""]);
    let (mut from, mut to, mut last) = (master.client(), replica.client(), chained.client());
    let mut rng = Rng::new(seed);
    let accounts: Vec<Vec<String>> =
        (0..ACCOUNTS).map(|n| words(format!("SET account{n} {MONEY}"))).collect();
    send(&mut from, &accounts);
    send(&mut from, &[words("SET tick 0".to_owned())]);
    follow(&mut to, master.port());
    follow(&mut last, replica.port());
    wait_until("there is a base", || {
        to.info::<u64>("persistence", "aof_rewrites") >= 1
            && to.info::<u64>("persistence", "aof_rewrite_in_progress") == 0
    });
    let mut listeners = [listen(&master), listen(&replica), listen(&chained)];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let auditor = scope.spawn(|| audit(&replica, &is_over));
        for _ in 0..3 {
            signal(replica.pid(), "STOP");
            send(&mut from, &changes(&mut rng, 20_000));
            signal(replica.pid(), "CONT");
            // Some of it comes while the rest is run.
            send(&mut from, &changes(&mut rng, 2_000));
            catch_up(&mut from, &mut to);
            assert_eq!(digest(&mut from), digest(&mut to));
        }
        is_over.store(true, Relaxed);
        assert!(auditor.join().expect("all was whole") > 0);
    });
    send(&mut from, &[words("SET end 1".to_owned())]);
    let mut told = listeners.iter_mut().map(heard);
    let (events, messages) = told.next().expect("the master's");
    assert!(events.len() > 1000 && messages.len() > 20);
    for (others, other_messages) in told {
        assert_eq!(other_messages, messages);
        for (key, of_key) in &events {
            assert_eq!(others.get(key), Some(of_key), "{key}");
        }
        assert_eq!(others.len(), events.len());
    }
    let (applier, other) = parts(&replica);
    match threads {
        "1" => assert_eq!((applier, other), (0.0, 0.0)),
        _ => assert!(applier > 0.0 && applier + other > 100.0, "{applier} and {other}"),
    }
    assert_eq!(to.info::<u64>("stats", "sync_full"), 1, "the chained one was brought up to date once");
    catch_up(&mut to, &mut last);
    assert_eq!(digest(&mut from), digest(&mut last));
    // It is killed, and its journal alone has everything.
    let wanted = digest(&mut to);
    assert_eq!(digest(&mut from), wanted);
    drop((replica, chained));
    let replica = start(threads, &own);
    let mut to = replica.client().loaded();
    assert_eq!(digest(&mut to), wanted);
    // Whatever else there is: what a random writer makes of keys, deadlines and scripts.
    follow(&mut to, master.port());
    signal(replica.pid(), "STOP");
    Writer::new(seed).write(&mut from, 3000);
    send(&mut from, &changes(&mut rng, 5_000));
    signal(replica.pid(), "CONT");
    assert_equal(&mut from, &mut to);
}

#[test]
fn one_thread_runs_a_backlog_alone() {
    a_backlog_is_run("1", 11);
}

#[test]
fn two_threads_run_a_backlog_together() {
    a_backlog_is_run("2", 12);
}

#[test]
fn four_threads_run_a_backlog_together() {
    a_backlog_is_run("4", 14);
}

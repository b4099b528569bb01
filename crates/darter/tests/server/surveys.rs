//! Many keys, and very long strings, read in slices: the answer is what one go gives, and the state of one moment.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::{Client, Server, Value};

const KEYS: usize = 3000;

fn words(head: &str, tail: impl Iterator<Item = String>) -> Vec<String> {
    head.split(' ').map(str::to_owned).chain(tail).collect()
}

fn call(client: &mut Client, words: &[String]) -> Value {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    client.call(&words)
}

fn call_at_once(client: &mut Client, words: &[String]) -> Value {
    client.call(&["MULTI"]);
    call(client, words);
    let Value::Array(mut replies) = client.call(&["EXEC"]) else { panic!("no replies") };
    replies.remove(0)
}

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|n| format!("k:{n}"))
}

fn slices(client: &mut Client) -> u64 {
    client.info("transaction", "slices_total")
}

#[test]
fn slices_read_what_one_go_reads() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        // Every third is not there, some are no strings, one is long.
        client.call_for_each(&["MSET"], KEYS as u64 / 2, |n, words| {
            words.extend([format!("k:{}", n * 3), format!("{}", n * n)])
        });
        client.call(&["RPUSH", "k:1", "x"]);
        client.call(&["SET", "k:4", &"long ".repeat(100_000)]);
        client.call(&["SETRANGE", "k:7", "300000", &"\u{7f}".repeat(300_000)]);
        client.call(&["SET", "k:10", "x", "EX", "1000"]);
        let twice = || keys().chain(keys().take(5));
        let cases = [
            words("MGET", twice()),
            words("EXISTS", twice()),
            words("TOUCH", twice()),
            words("GET k:4", std::iter::empty()),
            words("GET k:7", std::iter::empty()),
            words("GETRANGE k:4 3 -3", std::iter::empty()),
            words("SUBSTR k:7 1000 500000", std::iter::empty()),
        ];
        for resp in ["2", "3"] {
            client.call(&["HELLO", resp]);
            for case in &cases {
                let before = slices(&mut client);
                let mine = call(&mut client, case);
                assert!(slices(&mut client) > before, "{}", case[0]);
                assert_eq!(mine, call_at_once(&mut client, case), "{} RESP{resp}", case[0]);
            }
        }
        // In a pipeline, after and before others.
        let long: Vec<&str> = cases[3].iter().map(String::as_str).collect();
        client.send_all(&[&["SET", "a", "1"], &["GET", "a"], &long, &["GET", "a"], &long, &["PING"]]);
        let replies: Vec<Value> = (0..6).map(|_| client.read()).collect();
        let (one, text) = (Value::Text("1".into()), Value::Text("long ".repeat(100_000)));
        assert_eq!(
            replies,
            [Value::ok(), one.clone(), text.clone(), one, text, Value::Status("PONG".into())]
        );
    }
}

#[test]
fn what_is_read_is_one_state_while_all_of_it_changes() {
    for threads in ["1", "4"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (mut writer, is_over) = (server.client(), &is_over);
            scope.spawn(move || {
                for n in (0..1000).cycle().take_while(|_| !is_over.load(Relaxed)) {
                    call(&mut writer, &words("MSET", keys().flat_map(|key| [key, n.to_string()])));
                    let fill = if n % 2 == 0 { "a" } else { "b" };
                    writer.call(&["SET", "long", &fill.repeat(400_000)]);
                    if n % 3 == 0 {
                        call(&mut writer, &words("DEL", keys()));
                    }
                }
            });
            let (mget, exists) = (words("MGET", keys()), words("EXISTS", keys()));
            for _ in 0..30 {
                let Value::Array(values) = call(&mut client, &mget) else { panic!("no array") };
                assert_eq!(values.len(), KEYS);
                assert!(values.iter().all(|value| *value == values[0]), "values of two moments");
                let Value::Int(count) = call(&mut client, &exists) else { panic!("no number") };
                assert!(count == 0 || count == KEYS as i64, "{count} keys");
                if let Value::Text(text) = client.call(&["GET", "long"]) {
                    assert_eq!(text.len(), 400_000);
                    assert!(text.bytes().all(|byte| byte == text.as_bytes()[0]), "bytes of two moments");
                }
            }
            is_over.store(true, Relaxed);
        });
    }
}

#[test]
fn keys_that_come_to_their_end_meanwhile_are_there_together_or_not_at_all() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    let exists = words("EXISTS", keys());
    for _ in 0..3 {
        call(&mut client, &words("MSET", keys().flat_map(|key| [key, "x".to_owned()])));
        let Value::Array(now) = client.call(&["TIME"]) else { panic!("no time") };
        let Value::Text(seconds) = &now[0] else { panic!("no text") };
        // All at once, in a second or two.
        let at = (seconds.parse::<u64>().expect("a number") + 2).to_string();
        for key in keys() {
            client.call(&["EXPIREAT", &key, &at]);
        }
        loop {
            match call(&mut client, &exists) {
                Value::Int(0) => break,
                count => assert_eq!(count, Value::Int(KEYS as i64)),
            }
        }
    }
}

#[test]
fn elements_are_popped_once_by_many_at_a_time() {
    const LEN: usize = 60_000;
    let server = Server::start(&["--proactor_threads", "3"]);
    let mut client = server.client();
    client.call_for_each(&["RPUSH", "l"], LEN as u64, |n, words| words.push(n.to_string()));
    client.call_for_each(&["SADD", "s"], LEN as u64, |n, words| words.push(n.to_string()));
    client.call_for_each(&["ZADD", "z"], LEN as u64, |n, words| words.extend([n.to_string(), n.to_string()]));
    for (front, back) in [
        ("LPOP l 6000", "RPOP l 9000"),
        ("ZPOPMIN z 6000", "ZPOPMAX z 9000"),
        ("SPOP s 6000", "SPOP s 30000"),
    ] {
        let take = |command: &'static str| {
            let mut client = server.client();
            move || {
                let (mut taken, step) = (Vec::new(), if command.starts_with('Z') { 2 } else { 1 });
                loop {
                    match call(&mut client, &words(command, std::iter::empty())) {
                        Value::Array(items) if !items.is_empty() => {
                            taken.extend(items.into_iter().step_by(step));
                        }
                        _ => return taken,
                    }
                }
            }
        };
        let taken = std::thread::scope(|scope| {
            let (front, back) = (scope.spawn(take(front)), scope.spawn(take(back)));
            (front.join().expect("no panic"), back.join().expect("no panic"))
        });
        let mut all: Vec<Value> = taken.0.into_iter().chain(taken.1.into_iter().rev()).collect();
        if front.starts_with('S') {
            all.sort_by_key(|item| match item {
                Value::Text(text) => text.parse::<usize>().expect("a number"),
                other => panic!("no text: {other:?}"),
            });
        }
        let wanted: Vec<Value> = (0..LEN).map(|n| Value::Text(n.to_string())).collect();
        assert!(all == wanted, "{front}: {} elements, not each once in its order", all.len());
    }
}

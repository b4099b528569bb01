//! Many connections on few keys: every command is one step, whatever threads and shards it crosses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::harness::{Client, Server, Value};

const SETUPS: &[&[&str]] = &[
    &["--proactor_threads", "1"],
    &["--proactor_threads", "2"],
    &["--proactor_threads", "4", "--force_epoll"],
    &["--proactor_threads", "8"],
];

fn each_setup(test: impl Fn(&Arc<Server>)) {
    for flags in SETUPS {
        test(&Arc::new(Server::start(flags)));
    }
}

fn int(value: Value) -> i64 {
    match value {
        Value::Int(n) => n,
        Value::Text(text) => text.parse().expect("an integer"),
        other => panic!("no integer: {other:?}"),
    }
}

fn many(server: &Arc<Server>, clients: usize, work: impl Fn(usize, Client) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..clients)
        .map(|n| {
            let (server, work) = (server.clone(), work.clone());
            thread::spawn(move || work(n, server.client()))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a client"));
}

#[test]
fn a_counter_that_everybody_increments_loses_nothing() {
    each_setup(|server| {
        many(server, 8, |_, mut client| {
            for _ in 0..40 {
                let batch: Vec<&[&str]> = vec![&["INCR", "hot"]; 50];
                client.send_all(&batch);
                let counts: Vec<i64> = (0..50).map(|_| int(client.read())).collect();
                assert!(counts.is_sorted(), "a pipeline runs in order: {counts:?}");
            }
        });
        assert_eq!(int(server.client().call(&["GET", "hot"])), 8 * 40 * 50);
    });
}

#[test]
fn keys_set_together_are_read_together() {
    each_setup(|server| {
        let names: Vec<String> = (0..10).map(|n| format!("part:{n}")).collect();
        many(server, 6, move |client_no, mut client| {
            for round in 0..300 {
                let value = format!("{client_no}:{round}");
                if client_no % 2 == 0 {
                    let mut mset = vec!["MSET"];
                    for name in &names {
                        mset.extend([name.as_str(), value.as_str()]);
                    }
                    assert_eq!(client.call(&mset), Value::ok());
                } else {
                    let mut mget = vec!["MGET"];
                    mget.extend(names.iter().map(String::as_str));
                    let Value::Array(values) = client.call(&mget) else { panic!("an array") };
                    assert!(values.iter().all(|value| *value == values[0]), "read skew: {values:?}");
                }
            }
        });
    });
}

#[test]
fn an_ordered_pair_of_increments_is_never_seen_in_the_wrong_order() {
    each_setup(|server| {
        let is_done = Arc::new(AtomicBool::new(false));
        let stop = is_done.clone();
        let reader_server = server.clone();
        let reader = thread::spawn(move || {
            let mut client = reader_server.client();
            while !stop.load(Ordering::Relaxed) {
                let Value::Array(values) = client.call(&["MGET", "first", "second"]) else {
                    panic!("an array")
                };
                let count = |value: &Value| if *value == Value::Null { 0 } else { int(value.clone()) };
                assert!(count(&values[0]) >= count(&values[1]), "second before first: {values:?}");
            }
        });
        let mut client = server.client();
        for _ in 0..3000 {
            client.call(&["INCR", "first"]);
            client.call(&["INCR", "second"]);
        }
        is_done.store(true, Ordering::Relaxed);
        reader.join().expect("the reader");
    });
}

#[test]
fn transfers_keep_the_total() {
    const ACCOUNTS: usize = 12;
    each_setup(|server| {
        let mut client = server.client();
        for n in 0..ACCOUNTS {
            client.call(&["SET", &format!("account:{n}"), "100"]);
        }
        many(server, 6, |client_no, mut client| {
            let mut random = client_no as u64 * 7919 + 1;
            let mut next = |below: usize| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) as usize % below
            };
            for _ in 0..200 {
                let (from, to) = (next(ACCOUNTS), next(ACCOUNTS));
                let (from, to) = (format!("account:{from}"), format!("account:{to}"));
                if client_no == 0 {
                    let names: Vec<String> = (0..ACCOUNTS).map(|n| format!("account:{n}")).collect();
                    let mut mget = vec!["MGET"];
                    mget.extend(names.iter().map(String::as_str));
                    let Value::Array(values) = client.call(&mget) else { panic!("an array") };
                    assert_eq!(values.into_iter().map(int).sum::<i64>(), 100 * ACCOUNTS as i64);
                } else {
                    client.call(&["MULTI"]);
                    client.call(&["DECRBY", &from, "3"]);
                    client.call(&["INCRBY", &to, "3"]);
                    assert!(matches!(client.call(&["EXEC"]), Value::Array(_)));
                }
            }
        });
    });
}

#[test]
fn a_watched_key_that_changed_stops_the_exec() {
    each_setup(|server| {
        // Optimistic increments: every EXEC that goes through saw the value it replaced.
        many(server, 4, |_, mut client| {
            for _ in 0..50 {
                loop {
                    client.call(&["WATCH", "optimistic"]);
                    let seen = match client.call(&["GET", "optimistic"]) {
                        Value::Null => 0,
                        value => int(value),
                    };
                    client.call(&["MULTI"]);
                    client.call(&["SET", "optimistic", &(seen + 1).to_string()]);
                    if matches!(client.call(&["EXEC"]), Value::Array(_)) {
                        break;
                    }
                }
            }
        });
        assert_eq!(int(server.client().call(&["GET", "optimistic"])), 200);
    });
}

#[test]
fn every_element_pushed_is_popped_once_by_those_who_wait() {
    each_setup(|server| {
        let names = ["queue:a", "queue:b", "queue:c"];
        many(server, 8, move |client_no, mut client| {
            if client_no < 4 {
                for round in 0..150 {
                    let name = names[round % names.len()];
                    client.call(&["RPUSH", name, &format!("{client_no}:{round}")]);
                }
            } else {
                for _ in 0..150 {
                    let Value::Array(popped) = client.call(&["BLPOP", "queue:a", "queue:b", "queue:c", "50"])
                    else {
                        panic!("an element was lost");
                    };
                    let Value::Text(element) = &popped[1] else { panic!("no text") };
                    assert_eq!(int(client.call(&["INCR", &format!("seen:{element}")])), 1, "popped twice");
                }
            }
        });
        assert_eq!(server.client().call(&["EXISTS", "queue:a", "queue:b", "queue:c"]), Value::Int(0));
    });
}

#[test]
fn elements_travel_through_lists_that_wait_for_each_other() {
    each_setup(|server| {
        let movers: Vec<_> = [("stage:0", "stage:1"), ("stage:1", "stage:2"), ("stage:2", "stage:3")]
            .into_iter()
            .map(|(from, to)| {
                let server = server.clone();
                thread::spawn(move || {
                    let mut client = server.client();
                    for _ in 0..300 {
                        let moved = client.call(&["BLMOVE", from, to, "LEFT", "RIGHT", "50"]);
                        assert!(matches!(moved, Value::Text(_)), "nothing came: {moved:?}");
                    }
                })
            })
            .collect();
        let mut client = server.client();
        for n in 0..300 {
            client.call(&["RPUSH", "stage:0", &n.to_string()]);
        }
        movers.into_iter().for_each(|mover| mover.join().expect("a mover"));
        let Value::Array(arrived) = client.call(&["LRANGE", "stage:3", "0", "-1"]) else {
            panic!("an array")
        };
        let arrived: Vec<i64> = arrived.into_iter().map(int).collect();
        assert_eq!(arrived, (0..300).collect::<Vec<i64>>());
    });
}

#[test]
fn unwatch_inside_a_transaction_does_nothing_and_says_ok() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    client.call(&["WATCH", "k"]);
    client.call(&["MULTI"]);
    assert_eq!(client.call(&["UNWATCH"]), Value::Status("QUEUED".into()));
    client.call(&["SET", "k", "v"]);
    assert_eq!(client.call(&["EXEC"]), Value::Array(vec![Value::ok(), Value::ok()]));
}

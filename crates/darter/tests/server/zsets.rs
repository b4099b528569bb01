//! Sorted sets of a real server: who waits is served, and what several connections do to one set.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value};

/// Waits until so many clients wait for a key.
fn until_waiting(client: &mut Client, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    let began = Instant::now();
    while !matches!(client.call(&["INFO", "clients"]), Value::Text(info) if info.contains(&wanted)) {
        assert!(began.elapsed() < crate::harness::PATIENCE, "{wanted}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_way_to_make_a_sorted_set_serves_who_waits() {
    let server = Server::start(&[]);
    let (mut client, mut waiter) = (server.client(), server.client());
    client.call(&["ZADD", "source", "1", "a"]);
    for (wait, make) in [
        (&["BZPOPMIN", "z", "y", "0"][..], &["ZADD", "z", "1", "a"][..]),
        (&["BZPOPMAX", "y", "z", "0"], &["ZINCRBY", "z", "1", "a"]),
        (&["BZPOPMIN", "z", "0"], &["ZUNIONSTORE", "z", "1", "source"]),
        (&["BZPOPMIN", "z", "0"], &["ZRANGESTORE", "z", "source", "0", "0"]),
        (&["BZPOPMIN", "z", "0"], &["COPY", "source", "z"]),
        (&["BZPOPMIN", "z", "0"], &["RENAME", "source", "z"]),
    ] {
        waiter.send_all(&[wait]);
        until_waiting(&mut client, 1);
        client.call(make);
        assert_eq!(waiter.read(), Value::array(&["z", "a", "1"]), "{make:?}");
        assert_eq!(client.call(&["EXISTS", "z"]), Value::Int(0));
    }
    waiter.send_all(&[&["BZMPOP", "0", "2", "y", "z", "MAX", "COUNT", "2"]]);
    until_waiting(&mut client, 1);
    client.call(&["SET", "z", "no sorted set"]);
    client.call(&["DEL", "z"]);
    client.call(&["GEOADD", "y", "1", "1", "a", "2", "2", "b", "3", "3", "c"]);
    match waiter.read() {
        Value::Array(parts) => assert!(matches!(&parts[..], [_, Value::Array(pairs)] if pairs.len() == 2)),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.call(&["ZRANGE", "y", "0", "-1"]), Value::array(&["a"]));
    assert_eq!(waiter.call(&["BZPOPMIN", "none", "0.01"]), Value::Null);
}

#[test]
fn the_oldest_waiter_is_served_first_and_each_member_once() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let mut waiters: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send_all(&[&["BZPOPMIN", "z", "0"]]);
        until_waiting(&mut client, n + 1);
    }
    client.call(&["ZADD", "z", "1", "1", "2", "2", "3", "3", "4", "4"]);
    client.call(&["ZADD", "z", "5", "5", "6", "6", "7", "7", "8", "8", "9", "9"]);
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let text = (n + 1).to_string();
        assert_eq!(waiter.read(), Value::array(&["z", &text, &text]));
    }
    assert_eq!(client.call(&["ZRANGE", "z", "0", "-1"]), Value::array(&["9"]));
}

#[test]
fn a_scan_misses_no_member_that_stays() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for chunk in 0..40 {
        let members: Vec<String> = (0..500).map(|n| format!("stays:{}", chunk * 500 + n)).collect();
        let mut add = vec!["ZADD", "z"];
        members.iter().for_each(|member| add.extend(["1", member.as_str()]));
        client.call(&add);
    }
    let (mut cursor, mut seen, mut round) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        // Others come, go and move meanwhile.
        let (new, old) = (format!("new:{round}"), format!("new:{}", round - 20));
        client.call(&["ZADD", "z", "2", &new, "3", &format!("stays:{}", round * 7 % 20_000)]);
        client.call(&["ZREM", "z", &old]);
        round += 1;
        let Value::Array(parts) = client.call(&["ZSCAN", "z", &cursor, "COUNT", "300"]) else {
            panic!("no scan")
        };
        let [Value::Text(next), Value::Array(items)] = &parts[..] else { panic!("{parts:?}") };
        for item in items.iter().step_by(2) {
            if let Value::Text(member) = item
                && member.starts_with("stays")
            {
                seen.insert(member.clone());
            }
        }
        cursor.clone_from(next);
        if cursor == "0" {
            break;
        }
        assert!(round < 10_000, "the scan ends");
    }
    assert_eq!(seen.len(), 20_000);
}

#[test]
fn increments_of_several_connections_add_up() {
    let server = Server::start(&[]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                for n in 0..2000 {
                    let member = (n % 10).to_string();
                    client.call(&["ZINCRBY", "z", "1", &member]);
                    client.call(&["ZUNIONSTORE", "copy", "1", "z", "WEIGHTS", "2"]);
                }
            });
        }
    });
    let mut client = server.client();
    for member in 0..10 {
        let member = member.to_string();
        assert_eq!(client.call(&["ZSCORE", "z", &member]), Value::Text("800".to_owned()));
    }
    assert_eq!(client.call(&["ZCARD", "copy"]), Value::Int(10));
}

//! Members drawn at random in slices: as many as are asked for, of the members of one moment, each as likely as any other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::{Client, Server, Value};

const MEMBERS: u64 = 6000;

/// Integers and texts.
fn member(n: u64) -> String {
    if n.is_multiple_of(3) { n.to_string() } else { format!("m:{n}") }
}

fn fill(client: &mut Client) {
    client.call_for_each(&["SADD", "set"], MEMBERS, |n, words| words.push(member(n)));
    client.call_for_each(&["HSET", "hash"], MEMBERS, |n, words| words.extend([member(n), member(7 * n)]));
    client.call_for_each(&["ZADD", "zset"], MEMBERS, |n, words| words.extend([n.to_string(), member(n)]));
    client.call_for_each(&["SADD", "few"], 5, |n, words| words.push(member(n)));
    client.call_for_each(&["HSET", "few:hash"], 5, |n, words| words.extend([member(n), member(7 * n)]));
    client.call_for_each(&["ZADD", "few:zset"], 700, |n, words| words.extend([n.to_string(), member(n)]));
}

fn call(client: &mut Client, command: &str) -> Value {
    client.call(&command.split(' ').collect::<Vec<_>>())
}

fn call_at_once(client: &mut Client, command: &str) -> Value {
    client.call(&["MULTI"]);
    call(client, command);
    let Value::Array(mut replies) = client.call(&["EXEC"]) else { panic!("no replies") };
    replies.remove(0)
}

fn slices(client: &mut Client) -> u64 {
    client.info("transaction", "slices_total")
}

/// The drawn members, each with its value or score.
fn drawn(value: Value, is_flat: bool) -> Vec<(String, Option<Value>)> {
    let Value::Array(items) = value else { panic!("no array: {value:?}") };
    let text = |value: Value| match value {
        Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    };
    let mut items = items.into_iter();
    let mut pairs = Vec::new();
    while let Some(item) = items.next() {
        pairs.push(match item {
            Value::Array(mut pair) if pair.len() == 2 => {
                let value = pair.pop();
                (text(pair.remove(0)), value)
            }
            item if is_flat => (text(item), items.next()),
            item => (text(item), None),
        });
    }
    pairs
}

#[test]
fn draws_in_slices_give_what_draws_in_one_go_give() {
    for flags in [&["--proactor_threads", "1"][..], &["--proactor_threads", "3", "--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        fill(&mut client);
        for (resp, command, with, key, len) in ["2", "3"].into_iter().flat_map(|resp| {
            [
                ("SRANDMEMBER", "", "set", MEMBERS),
                ("SRANDMEMBER", "", "few", 5),
                ("HRANDFIELD", "", "hash", MEMBERS),
                ("HRANDFIELD", " WITHVALUES", "hash", MEMBERS),
                ("HRANDFIELD", " WITHVALUES", "few:hash", 5),
                ("ZRANDMEMBER", "", "zset", MEMBERS),
                ("ZRANDMEMBER", " WITHSCORES", "zset", MEMBERS),
                ("ZRANDMEMBER", " WITHSCORES", "few:zset", 700),
            ]
            .map(|(command, with, key, len)| (resp, command, with, key, len))
        }) {
            client.call(&["HELLO", resp]);
            let all = match command {
                "SRANDMEMBER" => drawn(call(&mut client, &format!("SMEMBERS {key}")), false),
                "HRANDFIELD" => {
                    let whole = call(&mut client, &format!("HRANDFIELD {key} 9000 WITHVALUES"));
                    drawn(whole, resp == "2")
                }
                _ => drawn(call(&mut client, &format!("ZRANGE {key} 0 -1 WITHSCORES")), resp == "2"),
            };
            let all: BTreeMap<String, Option<Value>> = all.into_iter().collect();
            assert_eq!(all.len() as u64, len);
            // Drawn one by one with the key watched, gone through, each several times; then different ones.
            for count in [-150, -5000, -20_000, 150, 1900] {
                if count > 0 && len < MEMBERS {
                    continue;
                }
                let command = format!("{command} {key} {count}{with}");
                let before = slices(&mut client);
                let mine = drawn(call(&mut client, &command), resp == "2" && !with.is_empty());
                let is_sliced = slices(&mut client) > before;
                assert_eq!(is_sliced, len == MEMBERS, "{command}");
                let at_once = drawn(call_at_once(&mut client, &command), resp == "2" && !with.is_empty());
                for draws in [&mine, &at_once] {
                    assert_eq!(draws.len() as i64, i64::abs(count), "{command} RESP{resp}");
                    for (member, value) in draws {
                        let wanted = all.get(member).unwrap_or_else(|| panic!("{command}: {member}"));
                        let wanted = if with.is_empty() { &None } else { wanted };
                        assert_eq!(value, wanted, "{command} RESP{resp}");
                    }
                }
                if count > 0 {
                    let different: BTreeSet<&String> = mine.iter().map(|(member, _)| member).collect();
                    assert_eq!(different.len() as i64, count, "{command}");
                }
            }
        }
        assert!(matches!(call(&mut client, "SRANDMEMBER zset -500"), Value::Error(_)));
        assert!(matches!(call(&mut client, "ZRANDMEMBER set -500 WITHSCORES"), Value::Error(_)));
        assert_eq!(call(&mut client, "HRANDFIELD none -500"), Value::Array(Vec::new()));
        assert!(matches!(call(&mut client, "HRANDFIELD hash -200000000"), Value::Error(_)));
    }
}

#[test]
fn each_member_is_as_likely_as_any_other_in_every_place() {
    let server = Server::start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    client.call_for_each(&["ZADD", "zset"], MEMBERS, |n, words| words.extend([n.to_string(), n.to_string()]));
    // Drawn with the key watched, gone through, gone through with all kept; then different ones.
    for count in [-300i64, -5000, -30_000, 300, 1900] {
        let (mut tenths, mut rising, mut repeated, mut total) = ([0u64; 10], 0u64, 0u64, 0u64);
        for _ in 0..(60_000 / count.unsigned_abs()) {
            let draws = drawn(call(&mut client, &format!("ZRANDMEMBER zset {count}")), false);
            let draws: Vec<u64> = draws.iter().map(|(member, _)| member.parse().expect("a number")).collect();
            total += draws.len() as u64;
            repeated += (draws.len() - draws.iter().collect::<BTreeSet<_>>().len()) as u64;
            draws.iter().for_each(|n| tenths[(n * 10 / MEMBERS) as usize] += 1);
            rising += draws.windows(2).filter(|pair| pair[0] < pair[1]).count() as u64;
        }
        let is_near = |seen: u64, wanted: f64| (seen as f64 - wanted).abs() < 8.0 * wanted.sqrt() + 1.0;
        assert!(tenths.iter().all(|&seen| is_near(seen, total as f64 / 10.0)), "{count}: {tenths:?}");
        assert!(is_near(rising, total as f64 / 2.0), "{count}: {rising} of {total} rise");
        // Of n draws out of m members those are different that n draws leave not untouched.
        let (n, m) = (count.unsigned_abs() as f64, MEMBERS as f64);
        let wanted = (n - m * (1.0 - (1.0 - 1.0 / m).powf(n))) * total as f64 / n;
        let wanted = if count > 0 { 0.0 } else { wanted };
        assert!(is_near(repeated, wanted), "{count}: {repeated} repeated, not {wanted}");
    }
}

#[test]
fn all_draws_are_of_one_moment() {
    for threads in ["1", "3"] {
        let server = Server::start(&["--proactor_threads", threads]);
        let mut client = server.client();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (server, is_over) = (&server, &is_over);
            let fill = |client: &mut Client, round: u64| {
                client.call_for_each(&["HSET", "new"], MEMBERS, |n, words| {
                    words.extend([format!("{round}:{n}"), round.to_string()]);
                });
                client.call(&["RENAME", "new", "hash"]);
            };
            fill(&mut client, 0);
            scope.spawn(move || {
                let mut writer = server.client();
                for round in (1..).take_while(|_| !is_over.load(Relaxed)) {
                    fill(&mut writer, round);
                }
            });
            for count in [-150, -4000, -30_000, 150, 1500].iter().cycle().take(60) {
                let command = format!("HRANDFIELD hash {count} WITHVALUES");
                let draws = drawn(call(&mut client, &command), true);
                assert_eq!(draws.len() as i64, i64::abs(*count));
                assert!(draws.iter().all(|(_, round)| *round == draws[0].1), "{command}: of two moments");
            }
            is_over.store(true, Relaxed);
        });
    }
}

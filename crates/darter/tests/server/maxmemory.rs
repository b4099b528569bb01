//! The memory limit of a real server: refusal, eviction by every policy, events, a limit that is lowered, clients.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value, wait_until};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

fn set_config(client: &mut Client, name: &str, value: &str) {
    assert_eq!(client.call(&["CONFIG", "SET", name, value]), Value::ok());
}

/// Resident bytes of a process without its code.
fn rss_bytes(server: &Server) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<i64>().expect("a number") * 1024
}

/// Writes `count` keys of `len` bytes in pipelines; returns how many writes were refused.
fn fill(client: &mut Client, prefix: &str, count: usize, len: impl Fn(usize) -> usize) -> usize {
    let mut refused = 0;
    for first in (0..count).step_by(50) {
        let last = count.min(first + 50);
        let mut bytes = Vec::new();
        for n in first..last {
            let (key, len) = (format!("{prefix}{n}"), len(n));
            bytes.extend_from_slice(
                format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len()).as_bytes(),
            );
            // Not text, so that it takes what it says.
            bytes.resize(bytes.len() + len, 0xe5);
            bytes.extend_from_slice(b"\r\n");
        }
        client.stream().write_all(&bytes).expect("sent");
        for _ in first..last {
            match client.read() {
                Value::Error(line) => {
                    assert_eq!(line, OOM);
                    refused += 1;
                }
                other => assert_eq!(other, Value::ok()),
            }
        }
    }
    refused
}

#[test]
fn without_eviction_writes_are_refused_and_room_made_by_hand_is_used_at_once() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let used = client.info::<i64>("everything", "used_memory");
    set_config(&mut client, "maxmemory", &(used + (4 << 20)).to_string());
    let refused = fill(&mut client, "key:", 10_000, |_| 1000);
    assert!((5500..6800).contains(&refused), "{refused} of 10,000 refused");
    assert!(client.info::<i64>("everything", "used_memory") < used + (4 << 20) + (300 << 10));
    assert_eq!(client.call(&["LPUSH", "l", "x"]), Value::Error(OOM.to_owned()));
    assert_eq!(client.call(&["EXISTS", "key:1"]), Value::Int(1));
    assert_eq!(client.info::<i64>("everything", "evicted_keys"), 0);
    let keys: Vec<String> = (0..2000).map(|n| format!("key:{n}")).collect();
    let del: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    client.send_all(&[&del, &["LPUSH", "l", "x"]]);
    assert!(matches!(client.read(), Value::Int(n) if n > 500));
    assert_eq!(client.read(), Value::Int(1));
    client.send_all(&[&["CONFIG", "SET", "maxmemory", "1"], &["SET", "a", "1"], &["GET", "a"]]);
    assert_eq!(client.read(), Value::ok());
    assert_eq!(client.read(), Value::Error(OOM.to_owned()));
    assert_eq!(client.read(), Value::Null);
    let Value::Text(advice) = client.call(&["MEMORY", "DOCTOR"]) else { panic!("no text") };
    assert!(advice.contains("maxmemory is 1: writes that need memory are refused"), "{advice}");
}

#[test]
fn every_policy_keeps_the_limit_and_what_it_must_not_evict() {
    for policy in [
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-lrm",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-lrm",
        "volatile-random",
        "volatile-ttl",
    ] {
        let server = Server::start(&["--maxmemory-policy", policy]);
        let mut client = server.client();
        let limit = client.info::<i64>("everything", "used_memory") + (3 << 20);
        set_config(&mut client, "maxmemory", &limit.to_string());
        assert_eq!(fill(&mut client, "stays:", 500, |_| 1000), 0);
        for n in 0..20_000 {
            let value = "v".repeat(100 + n % 300);
            let key = format!("goes:{n}");
            client.send_all(&[&["SET", &key, &value, "EX", "10000"]]);
            if n % 50 == 49 {
                (0..50).for_each(|_| assert_eq!(client.read(), Value::ok(), "{policy}"));
            }
        }
        assert!(client.info::<i64>("everything", "evicted_keys") > 8000, "{policy}");
        // What the last writes could not pay, because another thread had a shard, housekeeping pays.
        wait_until(&format!("{policy} keeps the limit"), || {
            client.info::<i64>("everything", "used_memory") < limit + (100 << 10)
        });
        let left =
            (0..500).filter(|n| client.call(&["EXISTS", &format!("stays:{n}")]) == Value::Int(1)).count();
        if policy.starts_with("volatile") {
            assert_eq!(left, 500, "{policy}");
            // Nothing that expires is left in the end: then writes are refused.
            assert!(fill(&mut client, "more:", 5000, |_| 1000) > 500, "{policy}");
        } else {
            assert!(left < 400, "{policy}: {left} left");
        }
    }
}

#[test]
fn a_limit_just_above_what_is_used_holds_and_the_latest_keys_stay() {
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl"] {
        let server = Server::start(&["--maxmemory-policy", policy]);
        let mut client = server.client();
        // The answer to the first one grows the client's buffer.
        client.info::<i64>("everything", "used_memory");
        // Some 25 KiB a shard: two threads may each make room for the same excess, which is a few pages.
        let limit = client.info::<i64>("everything", "used_memory") + (400 << 10);
        set_config(&mut client, "maxmemory", &limit.to_string());
        let mut found = 0;
        for n in 0..1200 {
            let key = format!("key:{}{n}", "k".repeat(n % 200));
            let value = "x".repeat(n % 500);
            assert_eq!(client.call(&["SET", &key, &value, "EX", "10000"]), Value::ok(), "{policy}");
            found += usize::from(client.call(&["EXISTS", &key]) == Value::Int(1));
        }
        assert_ne!(client.info::<i64>("everything", "evicted_keys"), 0, "{policy}");
        // A shard that another thread holds pays a little later.
        let ends = Instant::now() + crate::harness::PATIENCE;
        while client.info::<i64>("everything", "used_memory") > limit {
            assert!(
                Instant::now() < ends,
                "{policy}: {} of {limit}",
                client.info::<i64>("everything", "used_memory")
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(found > 600, "{policy}: {found}");
        assert_ne!(client.call(&["DBSIZE"]), Value::Int(0), "{policy}");
    }
}

#[test]
fn the_first_step_to_a_lower_limit_is_done_when_the_command_answers() {
    // It takes a millisecond at most, in which its thread may be kept from the processor.
    let is_done = (0..8).any(|_| {
        let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
        let mut client = server.client();
        assert_eq!(fill(&mut client, "key:", 300, |_| 1000), 0);
        client.info::<i64>("everything", "used_memory");
        let limit = client.info::<i64>("everything", "used_memory") - (40 << 10);
        set_config(&mut client, "maxmemory", &limit.to_string());
        let evicted = client.info::<i64>("everything", "evicted_keys");
        evicted > 10 && matches!(client.call(&["DBSIZE"]), Value::Int(150..300))
    });
    assert!(is_done);
}

#[test]
fn full_speed_writes_of_mixed_sizes_stay_within_the_limit_and_none_is_refused() {
    let server = Server::start(&["--cache_mode", "--maxmemory", "64mb"]);
    let mut worst = 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|w| {
                let mut client = server.client();
                scope.spawn(move || {
                    let size = move |n: usize| (64 << (n * 7919 % 11)) | (n % 64);
                    fill(&mut client, &format!("w{w}:"), 20_000, size)
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            worst = worst.max(rss_bytes(&server));
            std::thread::sleep(Duration::from_millis(5));
        }
        for writer in writers {
            assert_eq!(writer.join().expect("it ends"), 0);
        }
    });
    // Input buffers of megabytes come and go between two looks at them. The soak test of tools/bench is stricter.
    assert!(worst < (64 << 20) + (64 << 20) / 20 + (16 << 20), "{worst} bytes resident");
    let mut client = server.client();
    let used = |client: &mut Client| client.info::<i64>("everything", "used_memory");
    wait_until("it is within the limit", || used(&mut client) < (64 << 20) + (1 << 20));
    let used = used(&mut client);
    assert!(used > (64 << 20) * 8 / 10, "{used} used");
}

#[test]
fn a_lowered_limit_is_reached_step_by_step_without_a_write() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    fill(&mut client, "key:", 30_000, |_| 1000);
    assert_eq!(client.call(&["SADD", "big", "x"]), Value::Int(1));
    for first in (0..20_000).step_by(1000) {
        let members: Vec<String> = (first..first + 1000).map(|n| format!("member:{n}")).collect();
        let command: Vec<&str> =
            ["SADD", "big"].into_iter().chain(members.iter().map(String::as_str)).collect();
        assert_eq!(client.call(&command), Value::Int(1000));
    }
    let limit = client.info::<i64>("everything", "used_memory_startup") + (8 << 20);
    assert_eq!(client.info::<i64>("everything", "total_eviction_exceeded_time"), 0);
    set_config(&mut client, "maxmemory", &limit.to_string());
    let began = Instant::now();
    while client.info::<i64>("everything", "used_memory") > limit
        || client.info::<i64>("everything", "current_eviction_exceeded_time") > 0
    {
        assert!(began.elapsed() < crate::harness::PATIENCE, "it takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(client.info::<i64>("everything", "total_eviction_exceeded_time") > 0);
    assert!(client.info::<i64>("everything", "evicted_keys") > 15_000);
}

#[test]
fn what_is_evicted_is_told_to_those_who_asked() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-random", "--notify-keyspace-events", "Ee"]);
    let mut client = server.client();
    let mut subscriber = server.client();
    let mut watcher = server.client();
    let mut tracker = server.client();
    assert_eq!(client.call(&["SET", "only", "1"]), Value::ok());
    subscriber.call(&["SUBSCRIBE", "__keyevent@0__:evicted"]);
    assert_eq!(watcher.call(&["WATCH", "only"]), Value::ok());
    tracker.call(&["HELLO", "3"]);
    assert_eq!(tracker.call(&["CLIENT", "TRACKING", "ON"]), Value::ok());
    assert_eq!(tracker.call(&["GET", "only"]), Value::Text("1".to_owned()));
    set_config(&mut client, "maxmemory", "1");
    let message = Value::array(&["message", "__keyevent@0__:evicted", "only"]);
    assert_eq!(subscriber.read(), message);
    assert_eq!(
        tracker.read(),
        Value::Array(vec![Value::Text("invalidate".to_owned()), Value::array(&["only"])])
    );
    set_config(&mut client, "maxmemory", "0");
    watcher.send_all(&[&["MULTI"], &["PING"], &["EXEC"]]);
    assert_eq!(watcher.read(), Value::ok());
    assert_eq!(watcher.read(), Value::Status("QUEUED".to_owned()));
    assert_eq!(watcher.read(), Value::Null);
}

#[test]
fn sticky_keys_stay_in_cache_mode() {
    let server = Server::start(&["--cache_mode"]);
    let mut client = server.client();
    let limit = client.info::<i64>("everything", "used_memory") + (3 << 20);
    set_config(&mut client, "maxmemory", &limit.to_string());
    fill(&mut client, "kept:", 300, |_| 1000);
    for n in 0..300 {
        assert_eq!(client.call(&["STICK", &format!("kept:{n}")]), Value::Int(1));
    }
    assert_eq!(fill(&mut client, "goes:", 10_000, |_| 1000), 0);
    let left = (0..300).filter(|n| client.call(&["EXISTS", &format!("kept:{n}")]) == Value::Int(1)).count();
    assert_eq!(left, 300);
}

#[test]
fn the_fattest_client_goes_when_all_take_too_much() {
    let server = Server::start(&["--maxmemory-clients", "4mb"]);
    let mut client = server.client();
    let (mut fat, mut protected) = (server.client(), server.client());
    assert_eq!(protected.call(&["CLIENT", "NO-EVICT", "ON"]), Value::ok());
    for (writer, len) in [(&mut protected, 1_000_000), (&mut fat, 3_900_000)] {
        // A command that never ends.
        let mut bytes = b"*2\r\n$3\r\nGET\r\n$4000000\r\n".to_vec();
        bytes.resize(len, b'x');
        let _ = writer.stream().write_all(&bytes);
    }
    let began = Instant::now();
    while client.info::<i64>("everything", "evicted_clients") == 0 {
        assert!(began.elapsed() < crate::harness::PATIENCE, "nobody was closed");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()));
    assert_eq!(client.info::<i64>("everything", "evicted_clients"), 1);
    // Its socket is closed a moment after it was counted.
    while client.info::<i64>("everything", "connected_clients") != 2 {
        assert!(began.elapsed() < crate::harness::PATIENCE, "it is still connected");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn small_limits_hold_what_fits_in_large_values() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    let used = client.info::<i64>("everything", "used_memory");
    set_config(&mut client, "maxmemory", &(used + (6 << 20)).to_string());
    for _ in 0..5 {
        assert_eq!(fill(&mut client, "key:", 50, |_| 100_000), 0);
        assert_eq!(client.call(&["DBSIZE"]), Value::Int(50));
        assert_eq!(client.call(&["FLUSHDB"]), Value::ok());
        // What was removed is counted a moment longer if housekeeping has its shard.
        wait_until("its room is free", || client.info::<i64>("everything", "used_memory") < used + (1 << 20));
    }
    assert_eq!(client.info::<i64>("everything", "evicted_keys"), 0);
    // Thirty such values take 2.9 MiB.
    set_config(&mut client, "maxmemory", &(used + (3 << 20)).to_string());
    for round in 0..4 {
        // One at a time: what waits in a client's buffers counts too.
        (0..50).for_each(|n| assert_eq!(fill(&mut client, &format!("r{round}:{n}:"), 1, |_| 100_000), 0));
        let Value::Int(left) = client.call(&["DBSIZE"]) else { panic!("no number") };
        // 26 or 27; beside busy neighbours what was removed is counted for a moment longer, and up to four more go.
        assert!((18..=30).contains(&left), "{left} left");
    }
}

#[test]
fn reads_of_a_client_that_asked_for_it_do_not_count_as_uses() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lfu", "--maxmemory", "64mb"]);
    let (mut client, mut quiet) = (server.client(), server.client());
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    let freq = |client: &mut Client| match client.call(&["OBJECT", "FREQ", "k"]) {
        Value::Int(n) => n,
        other => panic!("{other:?}"),
    };
    assert_eq!(freq(&mut client), 5);
    assert_eq!(quiet.call(&["CLIENT", "NO-TOUCH", "ON"]), Value::ok());
    for command in [
        &["GET", "k"][..],
        &["MGET", "k", "k"],
        &["EVAL", "return redis.call('get', KEYS[1])", "1", "k"],
        &["MULTI"],
        &["GET", "k"],
        &["EXEC"],
    ] {
        quiet.call(command);
    }
    assert_eq!(freq(&mut client), 5);
    assert_eq!(quiet.call(&["TOUCH", "k"]), Value::Int(1));
    assert_eq!(freq(&mut client), 6);
    client.call(&["GET", "k"]);
    assert_eq!(freq(&mut client), 7);
    assert_eq!(quiet.call(&["CLIENT", "NO-TOUCH", "OFF"]), Value::ok());
    quiet.call(&["GET", "k"]);
    assert_eq!(freq(&mut client), 8);
}

#[test]
fn a_restored_key_stands_as_its_frequency_says() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lfu", "--maxmemory", "64mb"]);
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    // What DUMP answers for it.
    let payload: &[u8] = b"\x00\x01v\n\x00\x91\x08\xce\xb2\x19\x38\x8a\xce";
    for (given, shown) in [("0", 0), ("7", 7), ("100", 100), ("255", 255)] {
        let command: Vec<&[u8]> =
            vec![b"RESTORE", b"k", b"0", payload, b"REPLACE", b"FREQ", given.as_bytes()];
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for word in command {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        client.stream().write_all(&bytes).expect("sent");
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.call(&["OBJECT", "FREQ", "k"]), Value::Int(shown));
        assert_eq!(client.call(&["GET", "k"]), Value::Text("v".to_owned()));
        assert_eq!(
            client.call(&["OBJECT", "FREQ", "k"]),
            Value::Int(if shown < 8 { shown.max(5) + 1 } else { shown })
        );
    }
    // What was said is gone with what it was said of.
    assert_eq!(client.call(&["DEL", "k"]), Value::Int(1));
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(client.call(&["OBJECT", "FREQ", "k"]), Value::Int(5));
}

#[test]
fn watches_subscriptions_and_prefixes_count_as_their_clients_memory() {
    let server = Server::start(&["--maxmemory-clients", "150kb"]);
    let mut client = server.client();
    let commands: [fn(usize) -> Vec<String>; 4] = [
        |n| vec!["WATCH".into(), format!("{n}")],
        |n| vec!["PSUBSCRIBE".into(), format!("{n}")],
        |n| vec!["SSUBSCRIBE".into(), format!("{n}")],
        |n| {
            ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX"]
                .map(String::from)
                .into_iter()
                .chain([format!("p{n:09}")])
                .collect()
        },
    ];
    for (round, command) in commands.iter().enumerate() {
        let mut greedy = server.client();
        let (mut sent, began) = (0, Instant::now());
        while client.info::<i64>("everything", "evicted_clients") as usize == round {
            assert!(began.elapsed() < crate::harness::PATIENCE, "never closed: {:?}", command(0));
            if sent >= 2600 {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let mut bytes = Vec::new();
            for n in sent..sent + 200 {
                let words = command(n);
                bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
                for word in words {
                    bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
                }
            }
            sent += 200;
            // It may be closed meanwhile.
            let _ = greedy.stream().write_all(&bytes);
        }
        assert!(sent >= 400, "{sent}");
    }
}

#[test]
fn values_moved_together_and_collections_freed_later_are_counted() {
    let server = Server::start(&[]);
    let mut client = server.client();
    fill(&mut client, "key:", 20_000, |n| 100 + n % 400);
    for first in (0..30_000).step_by(1000) {
        let members: Vec<String> = (first..first + 1000).map(|n| format!("member:{n}")).collect();
        let command: Vec<&str> =
            ["SADD", "big"].into_iter().chain(members.iter().map(String::as_str)).collect();
        assert_eq!(client.call(&command), Value::Int(1000));
    }
    for first in (0..20_000).step_by(1000) {
        let keys: Vec<String> =
            (first..first + 1000).filter(|n| n % 3 > 0).map(|n| format!("key:{n}")).collect();
        let command: Vec<&str> = ["UNLINK"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        client.call(&command);
    }
    assert_eq!(client.call(&["MEMORY", "DEFRAGMENT"]), Value::ok());
    assert_eq!(client.call(&["UNLINK", "big"]), Value::Int(1));
    let began = Instant::now();
    while client.info::<i64>("everything", "active_defrag_hits") < 1000
        || client.info::<i64>("everything", "active_defrag_running") > 0
        || client.info::<i64>("everything", "lazyfreed_objects") < 1
        || client.info::<i64>("everything", "lazyfree_pending_objects") > 0
    {
        assert!(began.elapsed() < crate::harness::PATIENCE, "nothing is moved or freed");
        std::thread::sleep(Duration::from_millis(10));
    }
    for n in (0..20_000).step_by(3) {
        assert_eq!(client.call(&["STRLEN", &format!("key:{n}")]), Value::Int(100 + n as i64 % 400), "{n}");
    }
}

//! The journal of a server that is killed at any moment.

mod harness;
#[path = "../../../tests/compat/src/rng.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod rng;

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::Server;
use harness::journal::{Dir, setting};
use harness::raw::{Link, Raw, encoded};
use rng::Rng;

/// Counts pairs up in transactions until the server is killed; what was answered must be there, and pairs equal.
///
/// Without `always` a reply does not wait for older records of other threads: what they had not handed to the kernel
/// takes what came after it along, though never what the round before had left.
fn kill_round(dir: &Dir, fsync: &str, round: usize, rng: &mut Rng, expected: &mut [(u64, u64); 4]) {
    let threads = THREADS[round % 3];
    let server = Arc::new(dir.start(&["--appendfsync", fsync, "--proactor_threads", threads]));
    let mut link = Link::new(&server);
    for (writer, expected) in expected.iter_mut().enumerate() {
        let pair = link.call(&["MGET".to_owned(), format!("a{writer}"), format!("b{writer}")]);
        let [a, b] = pair.items() else { panic!("a pair: {pair:?}") };
        assert_eq!(a, b, "round {round}: half a transaction");
        let found: u64 = a.text().parse().unwrap_or(0);
        let (safe, acknowledged) = *expected;
        let is_alone = round > 0 && THREADS[(round - 1) % 3] == "1";
        let wanted = if fsync == "always" || is_alone { acknowledged } else { safe };
        assert!(found >= wanted, "round {round}, {fsync}: {found} of {wanted} are there");
        *expected = (found, found);
    }
    let acknowledged: Arc<[AtomicU64; 4]> = Arc::new(expected.map(|(found, _)| AtomicU64::new(found)));
    let ends = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (server, acknowledged, ends) = (server.clone(), acknowledged.clone(), ends.clone());
            std::thread::spawn(move || write_pairs(&server, writer, &acknowledged[writer], &ends))
        })
        .collect();
    let ends_at = Instant::now() + Duration::from_millis(20 + rng.below(150) as u64);
    while Instant::now() < ends_at {
        // a new base at any moment, too
        if round % 2 == 1 {
            link.call(&["BGREWRITEAOF"]);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let killed = std::process::Command::new("kill").args(["-9", &server.pid().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    ends.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    expected
        .iter_mut()
        .zip(&*acknowledged)
        .for_each(|(expected, seen)| expected.1 = seen.load(Ordering::Relaxed));
}

const THREADS: [&str; 3] = ["1", "2", "4"];

fn write_pairs(server: &Server, writer: usize, acknowledged: &AtomicU64, ends: &AtomicBool) {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", server.port())) else { return };
    let mut link = Link(BufReader::new(stream));
    let (a, b) = (format!("a{writer}"), format!("b{writer}"));
    for n in 0.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        // as a transaction, as a script, as one command of two keys
        let reply = match n % 3 {
            0 => {
                let sent = [vec!["MULTI"], vec!["INCR", &a], vec!["INCR", &b], vec!["EXEC"]];
                let bytes: Vec<u8> = sent.iter().flat_map(|args| encoded(args)).collect();
                if link.0.get_mut().write_all(&bytes).is_err() {
                    return;
                }
                (0..4).map(|_| link.read()).last().flatten().and_then(|reply| reply.items().first().cloned())
            }
            1 => {
                let script = "redis.call('incr',KEYS[1]) return redis.call('incr',KEYS[2])";
                link.try_call(&["EVAL", script, "2", &a, &b])
            }
            _ => {
                let next = (acknowledged.load(Ordering::Relaxed) + 1).to_string();
                let reply = link.try_call(&["MSET", &a, &next, &b, &next]);
                reply.map(|_| Raw::Line(format!(":{next}").into_bytes()))
            }
        };
        let Some(reply) = reply else { return };
        let text = reply.text();
        let Ok(value) = text.trim_start_matches(':').parse() else { panic!("a number: {text}") };
        acknowledged.store(value, Ordering::Relaxed);
    }
}

fn kill_campaign(fsync: &str, usual: usize) {
    let rounds = setting("DARTER_KILL_ROUNDS", usual);
    let dir = Dir::new(&format!("kill-{fsync}"));
    let mut rng = Rng::new(setting("DARTER_SEED", 1) as u64);
    let mut expected = [(0, 0); 4];
    for round in 0..=rounds {
        kill_round(&dir, fsync, round, &mut rng, &mut expected);
    }
    let written: u64 = expected.iter().map(|(found, _)| found).sum();
    assert!(written > rounds as u64, "nothing was written: {expected:?}");
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_answered_with_always() {
    kill_campaign("always", 6);
}

#[test]
fn a_kill_at_any_moment_leaves_a_prefix_with_everysec() {
    kill_campaign("everysec", 6);
}

/// More than the tails in memory hold goes through them, so that the kill finds them at any place, their bytes on the way.
#[test]
fn a_kill_amid_megabytes_loses_nothing_that_was_answered() {
    let dir = Dir::new("kill-megabytes");
    let mut rng = Rng::new(setting("DARTER_SEED", 1) as u64);
    let mut acknowledged = 0;
    for round in 0..=setting("DARTER_KILL_ROUNDS", 4) {
        // Bases keep the folder small; rounds without them read what several lives have left.
        let growth = if round % 3 == 0 { "100" } else { "0" };
        let server = dir.start(&["--proactor_threads", "1", "--auto-aof-rewrite-percentage", growth]);
        let mut link = Link::new(&server);
        let found: usize = link.call(&["GET", "n"]).text().parse().unwrap_or(0);
        assert!(found >= acknowledged, "round {round}: {found} of {acknowledged} are there");
        for n in found.saturating_sub(KEYS)..found {
            let value = link.call(&["GET", &format!("k{}", n % KEYS)]);
            assert!(value.bytes() == value_of(n), "round {round}: value {n} of {found}");
        }
        let (pid, wait) = (server.pid().to_string(), Duration::from_millis(100 + rng.below(400) as u64));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(wait);
            std::process::Command::new("kill").args(["-9", &pid]).status()
        });
        let mut writes = Link::new(&server);
        acknowledged = found;
        for n in found.. {
            let (key, next) = (format!("k{}", n % KEYS), (n + 1).to_string());
            let pair: [&[u8]; 5] = [b"MSET", key.as_bytes(), &value_of(n), b"n", next.as_bytes()];
            match writes.try_call(&pair) {
                Some(Raw::Line(line)) if line == b"+OK" => acknowledged = n + 1,
                _ => break,
            }
        }
        assert!(killer.join().expect("a killer").expect("kill runs").success());
        drop(server);
    }
    assert!(acknowledged > 0);
}

const KEYS: usize = 40;

/// What is written as number `n`: some ten kilobytes, now and then more than a tail holds.
fn value_of(n: usize) -> Vec<u8> {
    let bytes = if n % 601 == 600 { 5 << 20 } else { n * 7919 % 50_000 };
    (0..bytes).map(|at| (at + n) as u8).collect()
}

/// Scripts count their own key up and note what they have seen of another's, until the server is told to end: what was
/// answered is there, and nothing that came of what is not.
#[test]
fn a_clean_end_amid_scripts_loses_nothing_that_was_answered_or_seen() {
    const WRITERS: usize = 6;
    const SCRIPT: &str = "local n = redis.call('incr', KEYS[1]) for i = 1, 30000 do end
        redis.call('set', KEYS[3], redis.call('get', KEYS[2]) or '0') return n";
    let dir = Dir::new("end-amid-scripts");
    let mut rng = Rng::new(setting("DARTER_SEED", 1) as u64);
    let mut answered = [0; WRITERS];
    for round in 0..=setting("DARTER_KILL_ROUNDS", 12) {
        let server = dir.start(&["--proactor_threads", "4"]);
        let mut link = Link::new(&server);
        let mut number = |name: String| link.call(&["GET", &name]).text().parse::<u64>().unwrap_or(0);
        let found: [u64; WRITERS] = std::array::from_fn(|writer| number(format!("a{writer}")));
        for (writer, (found_own, answered)) in found.iter().zip(&answered).enumerate() {
            assert!(found_own >= answered, "round {round}: {found_own} of {answered} are there");
            for (other, there) in found.iter().enumerate() {
                let seen = number(format!("seen{writer}:{other}"));
                assert!(seen <= *there, "round {round}: {writer} saw {seen} of {other}, {there} are there");
            }
        }
        let counts: Vec<_> = (0..WRITERS).map(|writer| AtomicU64::new(found[writer])).collect();
        std::thread::scope(|scope| {
            for (writer, count) in counts.iter().enumerate() {
                let server = &server;
                scope.spawn(move || {
                    let mut link = Link::new(server);
                    for n in 0.. {
                        let other = (writer + 1 + n % (WRITERS - 1)) % WRITERS;
                        let keys =
                            [format!("a{writer}"), format!("a{other}"), format!("seen{writer}:{other}")];
                        let reply = link.try_call(&["EVAL", SCRIPT, "3", &keys[0], &keys[1], &keys[2]]);
                        let Some(Raw::Line(line)) = reply else { return };
                        let line = String::from_utf8_lossy(&line).into_owned();
                        // One that was broken off says so.
                        let Some(n) = line.strip_prefix(':') else { return };
                        count.store(n.parse().expect("a number"), Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(40 + rng.below(80) as u64));
            let how = if round % 2 == 0 { vec!["SHUTDOWN"] } else { vec!["SHUTDOWN", "NOSAVE"] };
            assert!(link.try_call(&how).is_none(), "it ends");
        });
        answered = std::array::from_fn(|writer| counts[writer].load(Ordering::Relaxed));
        assert!(server.wait_for_end(), "round {round}");
    }
    assert!(answered.iter().all(|answered| *answered > 0), "nothing was written: {answered:?}");
}

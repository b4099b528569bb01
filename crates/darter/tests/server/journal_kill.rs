//! The journal of a server that is killed at any moment.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::Server;
use crate::harness::journal::{Dir, setting};
use crate::harness::raw::{Link, Raw, encoded};
use crate::harness::strace::{DISK_CALLS, Strace};
use crate::rng::Rng;

/// Counts pairs up in transactions until the server is killed; what was answered must be there, and pairs equal.
/// `expected` is what was answered before. What `meanwhile` returns is dropped after the kill.
fn kill_round<T>(
    dir: &Dir,
    fsync: &str,
    round: usize,
    rng: &mut Rng,
    expected: &mut [u64; 4],
    meanwhile: impl FnOnce(&Server) -> T,
) {
    let threads = THREADS[round % THREADS.len()];
    let server = Arc::new(dir.start(&["--appendfsync", fsync, "--proactor_threads", threads]));
    let mut link = Link::new(&server);
    for (writer, expected) in expected.iter_mut().enumerate() {
        let pair = link.call(&["MGET".to_owned(), format!("a{writer}"), format!("b{writer}")]);
        let [a, b] = pair.items() else { panic!("a pair: {pair:?}") };
        assert_eq!(a, b, "round {round}: half a transaction");
        let found: u64 = a.text().parse().unwrap_or(0);
        assert!(found >= *expected, "round {round}, {fsync}: {found} of {expected} are there");
        *expected = found;
    }
    let held = meanwhile(&server);
    let acknowledged: Arc<[AtomicU64; 4]> = Arc::new(expected.map(AtomicU64::new));
    let ends = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (server, acknowledged, ends) = (server.clone(), acknowledged.clone(), ends.clone());
            std::thread::spawn(move || write_pairs(&server, writer, &acknowledged[writer], &ends))
        })
        .collect();
    let ends_at = Instant::now() + Duration::from_millis(20 + rng.below(150) as u64);
    // The first rounds are as long as it takes to write something.
    let is_slow =
        || round < 2 && acknowledged.iter().map(|seen| seen.load(Ordering::Relaxed)).sum::<u64>() < 40;
    let began = Instant::now();
    while Instant::now() < ends_at || is_slow() {
        assert!(began.elapsed() < crate::harness::PATIENCE, "nothing is written");
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
    drop(held);
    expected
        .iter_mut()
        .zip(&*acknowledged)
        .for_each(|(expected, seen)| *expected = seen.load(Ordering::Relaxed));
}

const THREADS: [&str; 6] = ["2", "4", "1", "8", "3", "6"];

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

fn kill_campaign<T>(fsync: &str, usual: usize, meanwhile: impl Fn(&Server) -> T) {
    let rounds = setting("DARTER_KILL_ROUNDS", usual);
    let dir = Dir::new(&format!("kill-{fsync}-{usual}"));
    let mut rng = Rng::new(setting("DARTER_SEED", 1) as u64);
    let mut expected = [0; 4];
    for round in 0..=rounds {
        kill_round(&dir, fsync, round, &mut rng, &mut expected, &meanwhile);
    }
    let written: u64 = expected.iter().sum();
    assert!(written > rounds as u64, "nothing was written: {expected:?}");
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_answered_with_always() {
    kill_campaign("always", 7, |_| ());
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_answered_with_everysec() {
    kill_campaign("everysec", 8, |_| ());
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_answered_with_no() {
    kill_campaign("no", 9, |_| ());
}

#[test]
fn a_kill_while_the_disk_is_slow_loses_nothing_that_was_answered() {
    kill_campaign("everysec", 6, |server| Strace::attach(server.pid(), DISK_CALLS, 30_000));
}

/// The journal's thread makes the segments behind a new base. No thread that serves clients waits for that, however slow
/// the disk is: 16 s of silence were seen, for two threads, with 1.5 s for each call.
#[test]
fn threads_that_serve_do_not_wait_for_the_disk() {
    let dir = Dir::new("slow-base");
    let server = dir.start(&["--appendfsync", "everysec", "--proactor_threads", "2"]);
    let mut links: Vec<_> = (0..8).map(|_| Link::new(&server)).collect();
    links.iter_mut().for_each(|link| assert_eq!(link.call(&["PING"]).bytes(), b"+PONG"));
    // The first segment takes four calls, so 1.4 s; thread 0 looks after the journal once a second.
    let Some(_slow) = Strace::attach(server.pid(), DISK_CALLS, 350_000) else { return };
    let began = Instant::now();
    loop {
        let generation_of = |path: &std::path::PathBuf| -> Option<u64> {
            path.file_name()?.to_str()?.split('.').nth(1)?.parse().ok()
        };
        let newest = dir.segments().iter().filter_map(generation_of).max().expect("a segment");
        let last = dir.journal().join(format!("journal.{}.1.seg", newest + 1));
        let reply = links[0].call(&["BGREWRITEAOF"]);
        assert!(reply.text().contains("started") || reply.text().contains("progress"), "{reply:?}");
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_millis(1_100) {
            links.iter_mut().for_each(|link| assert_eq!(link.call(&["PING"]).bytes(), b"+PONG"));
            links[1].call(&["BGREWRITEAOF"]);
        }
        if !last.exists() {
            return;
        }
        // A neighbour may have made it late; a server that waits is late each time.
        assert!(began.elapsed() < crate::harness::PATIENCE, "clients wait until segments are made");
        crate::harness::wait_until("the base is there", || {
            !links[0].call(&["INFO", "persistence"]).text().contains("aof_rewrite_in_progress:1")
        });
    }
}

/// A thread notes a change and then runs something long in the same turn: what others have answered meanwhile does not
/// wait for it, and is not lost with it.
#[test]
fn a_kill_while_a_thread_is_in_a_long_command_loses_nothing_that_was_answered() {
    for fsync in ["everysec", "no"] {
        let dir = Dir::new(&format!("kill-asleep-{fsync}"));
        for round in 0..=setting("DARTER_KILL_ROUNDS", 2) {
            let server = dir.start(&["--appendfsync", fsync, "--proactor_threads", "4"]);
            let mut sleeper = Link::new(&server);
            // The thread that takes connections may be the one that sleeps: all of them are taken before.
            let mut links: Vec<_> = (0..32).map(|_| Link::new(&server)).collect();
            links.iter_mut().for_each(|link| assert_eq!(link.call(&["PING"]).bytes(), b"+PONG"));
            // Both are one turn, before whose end nothing is answered. The kill comes long before the sleep ends.
            let sent = [vec!["SET", "before", "1"], vec!["DEBUG", "SLEEP", "600"]];
            let bytes: Vec<u8> = sent.iter().flat_map(|args| encoded(args)).collect();
            sleeper.0.get_mut().write_all(&bytes).expect("it is sent");
            std::thread::sleep(Duration::from_millis(60));
            let (answers, answered) = std::sync::mpsc::channel();
            let waiting: Vec<_> = links
                .into_iter()
                .enumerate()
                .map(|(n, mut link)| {
                    let (key, answers) = (format!("k{round}:{n}"), answers.clone());
                    std::thread::spawn(move || {
                        if link.try_call(&["SET", &key, "1"]).is_some_and(|reply| reply.bytes() == b"+OK") {
                            answers.send(key).expect("the test waits");
                        }
                    })
                })
                .collect();
            // One thread of four sleeps: at most 8 of the 32 are its own, and 8 of the others are waited for.
            let next = |_| {
                answered.recv_timeout(crate::harness::PATIENCE).expect("threads that do not sleep answer")
            };
            let mut keys: Vec<String> = (0..8).map(next).collect();
            drop(server);
            waiting.into_iter().for_each(|thread| thread.join().expect("a client"));
            keys.extend(answered.try_iter());
            let server = dir.start(&["--appendfsync", fsync]);
            let mut link = Link::new(&server);
            for key in &keys {
                assert_eq!(link.call(&["GET", key]).bytes(), b"1", "round {round}, {fsync}: {key}");
            }
            drop(server);
        }
    }
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

/// The value number `n`: some ten kilobytes, sometimes more than a tail holds.
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
        // No script is overdue, however few of the cores it has: the end waits for it.
        let server = dir.start(&["--proactor_threads", "4", "--busy-reply-threshold", "600000"]);
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
        // All are in before the server is told to end.
        let links: Vec<Link> = (0..WRITERS).map(|_| Link::new(&server)).collect();
        std::thread::scope(|scope| {
            for ((writer, count), mut link) in counts.iter().enumerate().zip(links) {
                scope.spawn(move || {
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
            if round == 0 {
                let has_written = |count: &AtomicU64| count.load(Ordering::Relaxed) > 0;
                crate::harness::wait_until("each has written", || counts.iter().all(has_written));
            }
            let how = if round % 2 == 0 { vec!["SHUTDOWN"] } else { vec!["SHUTDOWN", "NOSAVE"] };
            assert!(link.try_call(&how).is_none(), "it ends");
        });
        answered = std::array::from_fn(|writer| counts[writer].load(Ordering::Relaxed));
        assert!(server.wait_for_end(), "round {round}");
    }
    assert!(answered.iter().all(|answered| *answered > 0), "nothing was written: {answered:?}");
}

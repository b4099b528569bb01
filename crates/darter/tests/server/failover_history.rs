//! Clients of a group while members are killed and stopped and the net is cut: nothing that was answered is lost, nothing
//! that was shown vanishes, and no master shows old data.
//!
//! `DARTER_FAULTS_FAILOVER` says how many faults there are, `DARTER_FAULTS_KIND` of which kind (kills, stops, cuts or store;
//! else any), `DARTER_FAULTS_SEED` which, `DARTER_FAULTS_LEASE_MS` for how long a lease lasts: twice the default, as others
//! have the cores, too. `tools/faults failover` runs many and prints the figures.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::groups::history::{Operation, Outcome, check};
use crate::groups::{Group, MEMBERS, connect};
use crate::harness::{Client, Value, wait_until};
use darter_base::rng::Rng;

const CLIENTS: u64 = 8;
/// Appends to one list before the next is begun.
const LIST_LEN: u64 = 150;
/// Lists that are in use at a time.
const LISTS: u64 = 3;
/// A client gives up waiting after this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Clients at work, and the outcome of all they did.
struct Workload {
    ports: Vec<u16>,
    began: Instant,
    next: AtomicU64,
    answered: AtomicU64,
    is_over: AtomicBool,
    seen: Mutex<Vec<Operation>>,
}

impl Workload {
    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Appends to lists and reads them until it is over, on whichever member takes that.
    fn run(&self, seed: u64) {
        let mut rng = Rng::new(seed);
        let (mut at, mut client) = (0, None);
        let mut seen = Vec::new();
        while !self.is_over.load(Relaxed) {
            if client.is_none() {
                at = (at + 1) % self.ports.len();
                client = connect(self.ports[at], PATIENCE);
            }
            let Some(known) = &mut client else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let value = self.next.fetch_add(1, Relaxed);
            let list = value / (LIST_LEN * LISTS) * LISTS + rng.below(LISTS);
            let appends = (rng.below(4) > 0).then_some(value);
            let began_us = self.now_us();
            let outcome = ask(known, list, appends);
            if matches!(outcome, Outcome::Seen(_)) {
                self.answered.fetch_add(1, Relaxed);
            } else {
                client = None;
                std::thread::sleep(Duration::from_millis(2));
            }
            let ended_us = self.now_us();
            seen.push(Operation { list, appends, began_us, ended_us, outcome });
        }
        self.seen.lock().expect("no panic").append(&mut seen);
    }

    /// Operations that were answered until now.
    fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }
}

/// Runs one operation. SORT counts as a write, so a replica refuses it, and it changes nothing.
fn ask(client: &mut Client, list: u64, appends: Option<u64>) -> Outcome {
    let key = format!("list-{list}");
    let reads = ["SORT", &key, "BY", "nosort"];
    let answer = match appends {
        None => client.try_send(&reads).then(|| client.try_read()).flatten(),
        Some(value) => {
            let value = value.to_string();
            let code = "redis.call('rpush', KEYS[1], ARGV[1]) return redis.call('lrange', KEYS[1], 0, -1)";
            let words = ["EVAL", code, "1", &key, &value];
            client.try_send(&words).then(|| client.try_read()).flatten()
        }
    };
    match answer {
        Some(Value::Array(items)) => {
            let number = |item: Value| match item {
                Value::Text(text) => text.parse().expect("a number"),
                other => panic!("{other:?}"),
            };
            Outcome::Seen(items.into_iter().map(number).collect())
        }
        Some(Value::Error(_)) => Outcome::Refused,
        Some(other) => panic!("{other:?}"),
        None => Outcome::Unknown,
    }
}

/// Faults that came about.
#[derive(Debug, Default)]
struct FaultCounts {
    kills: u64,
    stops: u64,
    cuts: u64,
    store_cuts: u64,
    leaders: u64,
    // when the leader was killed
    kills_us: Vec<u64>,
}

/// The kinds of faults by their names, as draws of [`disturb`].
const KINDS: [(&str, std::ops::Range<u64>); 4] =
    [("kills", 0..3), ("stops", 3..5), ("cuts", 5..7), ("store", 7..8)];

/// The draws of faults that are wanted.
fn wanted() -> std::ops::Range<u64> {
    let name = std::env::var("DARTER_FAULTS_KIND").unwrap_or_default();
    let found = KINDS.iter().find(|(known, _)| *known == name);
    assert!(name.is_empty() || found.is_some(), "no kind of faults: {name}");
    found.map_or(0..8, |(_, draws)| draws.clone())
}

/// Milliseconds from each kill of the leader to the end of the first append that was begun after it and answered.
fn outages_ms(seen: &[Operation], kills_us: &[u64]) -> Vec<u64> {
    let answered = |one: &&Operation| one.appends.is_some() && matches!(one.outcome, Outcome::Seen(_));
    let until = |from_us: u64| {
        let after = seen.iter().filter(answered).filter(|one| one.began_us >= from_us);
        after.map(|one| one.ended_us).min().map(|end_us| (end_us - from_us) / 1000)
    };
    let mut all: Vec<u64> = kills_us.iter().filter_map(|from_us| until(*from_us)).collect();
    all.sort_unstable();
    all
}

/// Does harm, and waits until all is well again.
fn disturb(group: &mut Group, rng: &mut Rng, counts: &mut FaultCounts, now_us: impl Fn() -> u64) {
    let leader = group.settled(MEMBERS);
    // More often than not the leader is hit.
    let at = if rng.below(3) > 0 { leader } else { rng.below(MEMBERS as u64) as usize };
    counts.leaders += u64::from(at == leader);
    std::thread::sleep(Duration::from_millis(rng.below(200)));
    let draws = wanted();
    match draws.start + rng.below(draws.end - draws.start) {
        0..=2 => {
            if at == leader {
                counts.kills_us.push(now_us());
            }
            group.kill(at);
            counts.kills += 1;
            std::thread::sleep(Duration::from_millis(rng.below(5000)));
            group.begin(at);
        }
        3 | 4 => {
            group.signal(at, "STOP");
            counts.stops += 1;
            std::thread::sleep(Duration::from_millis(500 + rng.below(5500)));
            group.signal(at, "CONT");
        }
        5 | 6 => {
            counts.cuts += 1;
            match rng.below(3) {
                0 => group.net.isolate(at),
                1 => group.net.cut(at, (at + 1) % MEMBERS, true),
                _ => group.net.cut((at + 2) % MEMBERS, at, true),
            }
            let with_store = rng.below(2) == 0;
            group.store.shut(at, with_store);
            std::thread::sleep(Duration::from_millis(500 + rng.below(5500)));
            group.net.mend();
            group.store.shut(at, false);
        }
        _ => {
            counts.store_cuts += 1;
            (0..MEMBERS).for_each(|door| group.store.shut(door, true));
            std::thread::sleep(Duration::from_millis(rng.below(1500)));
            if rng.below(2) == 0 {
                group.kill(at);
                counts.kills += 1;
                std::thread::sleep(Duration::from_millis(rng.below(1500)));
                group.begin(at);
            }
            (0..MEMBERS).for_each(|door| group.store.shut(door, false));
        }
    }
}

/// Runs clients while `harm` is done; returns what they saw, with a read of all lists at the end.
fn run(group: &mut Group, seed: u64, harm: impl FnOnce(&mut Group, &Workload)) -> Vec<Operation> {
    let work = Workload {
        ports: group.members.iter().map(|member| member.port).collect(),
        began: Instant::now(),
        next: AtomicU64::new(1),
        answered: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        seen: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let work = &work;
            scope.spawn(move || work.run(seed * 100 + client));
        }
        let _end = EndOfClients(&work.is_over);
        harm(group, &work);
    });
    let mut all = work.seen.lock().expect("no panic").clone();
    let mut lists: Vec<u64> = all.iter().map(|one| one.list).collect();
    lists.sort_unstable();
    lists.dedup();
    for list in lists {
        wait_until("the last read is answered", || {
            let mut client = group.client(group.writable()).expect("the leader");
            let began_us = work.now_us();
            let outcome = ask(&mut client, list, None);
            let is_answered = matches!(outcome, Outcome::Seen(_));
            let ended_us = work.now_us();
            all.push(Operation { list, appends: None, began_us, ended_us, outcome });
            is_answered
        });
    }
    all
}

/// Ends the clients, also when a test panics.
struct EndOfClients<'a>(&'a AtomicBool);

impl Drop for EndOfClients<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A group with a lease for machines that others use.
fn start(name: &str, acks: &str) -> Group {
    let lease_ms = number("DARTER_FAULTS_LEASE_MS", 2000);
    let (lease, silence) = (lease_ms.to_string(), (lease_ms / 2).to_string());
    let flags =
        ["--min_replicas_to_ack", acks, "--ha_lease_ms", &lease, "--replica_ack_timeout_ms", &silence];
    let group = Group::start(name, &flags);
    group.settled(MEMBERS);
    group
}

#[test]
fn nothing_is_lost_and_nothing_shown_vanishes() {
    let (faults, seed) = (number("DARTER_FAULTS_FAILOVER", 4), number("DARTER_FAULTS_SEED", 1));
    let mut group = start("history", "1");
    let (mut rng, mut counts) = (Rng::new(seed), FaultCounts::default());
    let seen = run(&mut group, seed, |group, work| {
        for _ in 0..faults {
            let before = work.answered();
            disturb(group, &mut rng, &mut counts, || work.now_us());
            group.settled(MEMBERS);
            wait_until("clients are answered again", || work.answered() >= before + 50);
        }
    });
    let found = check(&seen);
    let outages = outages_ms(&seen, &counts.kills_us);
    counts.kills_us.clear();
    println!("{counts:?}: {found:?}");
    println!("from a kill of the leader to the next answered write: {}", shown(&outages));
    println!("outages, ms: {}", outages.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    let found = found.unwrap_or_else(|why| panic!("seed {seed}, {counts:?}: {why}"));
    assert!(found.answered > 50 * faults, "{found:?}");
}

/// The middle and the ends of sorted times.
fn shown(times: &[u64]) -> String {
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
    match (at(50), at(99), times.last()) {
        (Some(p50), Some(p99), Some(max)) => {
            format!("p50 {p50} ms, p99 {p99} ms, max {max} ms ({} kills)", times.len())
        }
        _ => "no leader was killed".to_owned(),
    }
}

/// The same clients on a group that answers before its members have a change.
#[test]
fn the_checker_sees_answers_that_were_too_early() {
    let mut group = start("early", "0");
    for seed in 0..20 {
        let seen = run(&mut group, seed, |group, work| {
            let leader = group.settled(MEMBERS);
            std::thread::sleep(Duration::from_millis(300));
            // The others stop for a moment, as a slow net would have them; then the leader is lost.
            let others = || (0..MEMBERS).filter(move |at| *at != leader);
            others().for_each(|at| group.signal(at, "STOP"));
            // Until clients had time for some answers, but for less than a lease.
            let (before, began) = (work.answered(), Instant::now());
            std::thread::sleep(Duration::from_millis(100));
            while work.answered() < before + 20 && began.elapsed() < Duration::from_secs(1) {
                std::thread::sleep(Duration::from_millis(20));
            }
            group.kill(leader);
            others().for_each(|at| group.signal(at, "CONT"));
            group.begin(leader);
            group.writable();
        });
        if let Err(why) = check(&seen) {
            println!("seen with seed {seed}: {why}");
            return;
        }
    }
    panic!("nothing was seen");
}

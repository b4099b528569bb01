//! The cluster client of the `redis` crate at work while the cluster changes: HOST PORT exact|any, as changes.py says.

use std::collections::HashSet;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Commands, RedisResult};

const WORKERS: usize = 4;
const KEYS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(60);

static ANSWERS: AtomicU64 = AtomicU64::new(0);
static IS_OVER: AtomicBool = AtomicBool::new(false);

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let client = ClusterClient::builder([format!("redis://{}:{}", words[1], words[2])])
        .response_timeout(Duration::from_secs(5))
        .connection_timeout(Duration::from_secs(1))
        .build()
        .expect("an address");
    let work = if words[3] == "exact" { exact } else { any };
    let mut workers = Vec::new();
    for who in 0..WORKERS {
        let mut r = client.get_connection().expect("a connection");
        workers.push(thread::spawn(move || {
            // The others would go on, and nobody would hear of it.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut r, who)));
            if !matches!(done, Ok(Ok(()))) {
                eprintln!("redis-rs cluster: {done:?}");
                std::process::exit(1);
            }
        }));
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    IS_OVER.store(true, Relaxed);
    workers.into_iter().for_each(|worker| worker.join().expect("it has ended well"));
}

fn told() {
    if ANSWERS.fetch_add(1, Relaxed) % 100 == 99 {
        println!("answered");
    }
}

/// Adds to a list in order, and counts.
fn exact(r: &mut ClusterConnection, who: usize) -> RedisResult<()> {
    let script = redis::Script::new("redis.call('rpush', KEYS[2], ARGV[1]) return redis.call('incr', KEYS[1])");
    let mut counts = [0u64; KEYS];
    for n in 0.. {
        if IS_OVER.load(Relaxed) {
            break;
        }
        let (number, list) = (format!("{{{who}-{}}}n", n % KEYS), format!("{{{who}-{}}}l", n % KEYS));
        counts[n % KEYS] += 1;
        let wanted = counts[n % KEYS];
        if n % 4 == 0 {
            assert_eq!(script.key(number).key(list).arg(wanted).invoke::<u64>(r)?, wanted);
        } else {
            assert_eq!(r.incr::<_, _, u64>(number, 1)?, wanted);
            assert_eq!(r.rpush::<_, _, u64>(list, wanted)?, wanted);
        }
        told();
    }
    for (at, count) in counts.into_iter().enumerate() {
        assert_eq!(r.lrange::<_, Vec<u64>>(format!("{{{who}-{at}}}l"), 0, -1)?, (1..=count).collect::<Vec<_>>());
    }
    Ok(())
}

/// Adds numbers to sets; an error leaves open whether that took place.
fn any(r: &mut ClusterConnection, who: usize) -> RedisResult<()> {
    let mut answered = vec![Vec::new(); KEYS];
    let mut last = Instant::now();
    for n in 0.. {
        if IS_OVER.load(Relaxed) {
            break;
        }
        match r.sadd::<_, _, ()>(format!("{{{who}-{}}}s", n % KEYS), n) {
            Ok(()) => {
                answered[n % KEYS].push(n);
                told();
                last = Instant::now();
            }
            Err(error) if last.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
    for (at, numbers) in answered.into_iter().enumerate() {
        let found: HashSet<usize> = r.smembers(format!("{{{who}-{at}}}s"))?;
        assert!(numbers.iter().all(|number| found.contains(number)), "lost");
    }
    Ok(())
}

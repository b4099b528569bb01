//! What replication costs: a master's and a replica's CPU for a SET, the lag of a replica, and a full sync; Redis to Redis
//! and Darter to Darter.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{Load, Shape};
use crate::replies::Protocol;
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::template::{Filling, Pool};
use crate::usage::{self, Cpu};
use crate::workload::Workload;

const CONNECTIONS: usize = 64;
const DEPTH: usize = 16;
const KEYS: u64 = 100_000;
/// The longest that one load is measured, at scale 1.
const WALL: Duration = Duration::from_secs(4);
/// Clients of the load beside which the lag is measured: far less than the server can do.
const LAG_CONNECTIONS: usize = 4;
const LAG_SAMPLES: u64 = 2000;
/// GETs one after the other before a full sync, beside which there are as many as fit.
const GET_SAMPLES: u64 = 20_000;
/// What a full sync carries at scale 1: a million values of 1,000 bytes.
const SYNC_KEYS: u64 = 1_000_000;
const SYNC_VALUE_BYTES: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(2);

/// Runs it and returns the tables.
pub fn tables(setting: &Setting) -> String {
    let mut costs = "| SET 256 B, 64 clients, depth 16 | master CPU µs/op alone | with a replica | ratio | replica CPU µs/op | \
        replica has all after ms |\n|---|---|---|---|---|---|\n"
        .to_owned();
    let mut lags = "| a write until its replica shows it, beside 4 clients | p50 µs | p99 µs | p99.9 µs |\n|---|---|---|---|\n".to_owned();
    let mut syncs =
        "| full sync | MB of values | s | MB/s | master gains MiB | a GET before, p99.9 µs | meanwhile |\n|---|---|---|---|---|---|---|\n".to_owned();
    for program in [setting.redis(), setting.darter(1)] {
        let name = program.label();
        eprintln!("{name}: cost of a SET");
        let _ = match cost(&program, setting) {
            Ok(line) => writeln!(costs, "| {name} | {line} |"),
            Err(error) => writeln!(costs, "| {name} | {error} | | | | |"),
        };
        eprintln!("{name}: lag");
        let _ = match lag(&program, setting) {
            Ok(line) => writeln!(lags, "| {name} | {line} |"),
            Err(error) => writeln!(lags, "| {name} | {error} | | |"),
        };
        eprintln!("{name}: full sync");
        let _ = match sync(&program, setting) {
            Ok(line) => writeln!(syncs, "| {name} | {line} |"),
            Err(error) => writeln!(syncs, "| {name} | {error} | | | | | |"),
        };
    }
    format!("{costs}\n{lags}\n{syncs}")
}

/// A master and its replica, the latter on the client's core.
fn pair(program: &Program, setting: &Setting) -> io::Result<(Server, Server)> {
    let program = match program {
        // Else Redis waits for five seconds for more replicas, and refuses DEBUG POPULATE.
        Program::Redis { .. } => {
            program.clone().with_flags(&["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        }
        _ => program.clone(),
    };
    let master = Server::start(&program, &setting.server_cores)?;
    Ok((master, Server::start(&program, &setting.client_cores)?))
}

fn follow(replica: &Server, master: &Server) -> io::Result<Duration> {
    let began = Instant::now();
    replica.ask(&["REPLICAOF", "127.0.0.1", &master.address().port().to_string()])?;
    let mut asking = Asking::new(replica)?;
    loop {
        if asking.field("master_link_status")?.as_deref() == Some("up") {
            return Ok(began.elapsed());
        }
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("the link does not come up"));
        }
        thread::sleep(LOOK);
    }
}

/// Waits until the replica has everything; returns how long that took.
fn catch_up(replica: &Server, master: &Server) -> io::Result<Duration> {
    let began = Instant::now();
    let (mut one, mut two) = (Asking::new(master)?, Asking::new(replica)?);
    while two.number("slave_repl_offset")? < one.number("master_repl_offset")? {
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("the replica does not catch up"));
        }
        thread::sleep(LOOK);
    }
    Ok(began.elapsed())
}

fn load(master: &Server, setting: &Setting, (connections, pipeline): (usize, usize), wall: Duration) -> Load {
    Load {
        address: master.address(),
        ops: u64::MAX,
        wall,
        connections,
        pipeline,
        shape: Shape::Batch,
        threads: 1,
        cores: setting.client_cores.clone(),
        seed: 3,
        greeting: Vec::new(),
    }
}

fn set() -> io::Result<Workload> {
    Workload::by_name("set", Protocol::Resp, KEYS, 256).map_err(io::Error::other)
}

fn cost(program: &Program, setting: &Setting) -> io::Result<String> {
    let (master, replica) = pair(program, setting)?;
    let (set, pool) = (set()?, Pool::new(Filling::Binary));
    let run = |wall| load(&master, setting, (CONNECTIONS, DEPTH), wall).run(&set, &pool);
    run(WALL.mul_f64(0.25 * setting.scale))?;
    let before = Cpu::of(master.pid())?;
    let alone = run(WALL.mul_f64(setting.scale))?;
    let alone_us = per_op(Cpu::of(master.pid())?.since(&before), alone.ops);
    follow(&replica, &master)?;
    run(WALL.mul_f64(0.25 * setting.scale))?;
    catch_up(&replica, &master)?;
    let (before, theirs) = (Cpu::of(master.pid())?, Cpu::of(replica.pid())?);
    let followed = run(WALL.mul_f64(setting.scale))?;
    let took = catch_up(&replica, &master)?;
    let followed_us = per_op(Cpu::of(master.pid())?.since(&before), followed.ops);
    let replica_us = per_op(Cpu::of(replica.pid())?.since(&theirs), followed.ops);
    Ok(format!(
        "{alone_us:.2} | {followed_us:.2} | {:.2} | {replica_us:.2} | {:.0}",
        followed_us / alone_us,
        took.as_secs_f64() * 1e3
    ))
}

fn per_op(cpu: Cpu, ops: u64) -> f64 {
    cpu.total.as_secs_f64() * 1e6 / ops.max(1) as f64
}

fn lag(program: &Program, setting: &Setting) -> io::Result<String> {
    let (master, replica) = pair(program, setting)?;
    follow(&replica, &master)?;
    let (set, pool, is_over) = (set()?, Pool::new(Filling::Binary), AtomicBool::new(false));
    let samples = thread::scope(|scope| {
        let loading = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let run = load(&master, setting, (LAG_CONNECTIONS, 1), Duration::from_millis(500));
                run.run(&set, &pool)?;
            }
            Ok::<(), io::Error>(())
        });
        let samples = probe(&master, &replica);
        is_over.store(true, Relaxed);
        loading.join().map_err(|_| io::Error::other("the load panicked"))??;
        samples
    })?;
    let at = |part: f64| samples[((samples.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    Ok(format!("{:.0} | {:.0} | {:.0}", at(0.5), at(0.99), at(0.999)))
}

/// From a write's reply at the master until the replica shows it, sorted.
fn probe(master: &Server, replica: &Server) -> io::Result<Vec<Duration>> {
    let (mut one, mut two) = (Asking::new(master)?, Asking::new(replica)?);
    let mut samples = Vec::new();
    for n in 0..LAG_SAMPLES {
        let value = n.to_string();
        one.ask(&["SET", "probe", &value])?;
        let began = Instant::now();
        while two.ask(&["GET", "probe"])? != value {
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other("the replica does not show it"));
            }
        }
        samples.push(began.elapsed());
    }
    samples.sort();
    Ok(samples)
}

fn sync(program: &Program, setting: &Setting) -> io::Result<String> {
    let (master, replica) = pair(program, setting)?;
    let keys = ((SYNC_KEYS as f64 * setting.scale) as u64).max(1000);
    master.ask(&["DEBUG", "POPULATE", &keys.to_string(), "key", &SYNC_VALUE_BYTES.to_string()])?;
    if master.ask_count(&["DBSIZE"])? != keys {
        return Err(io::Error::other("it has not made the keys"));
    }
    let (before, is_over) = (usage::resident_quickly(master.pid())?, AtomicBool::new(false));
    let began = Instant::now();
    let alone = gets(&master, |count| count >= GET_SAMPLES || began.elapsed() > PATIENCE)?;
    let (took, most, meanwhile) = thread::scope(|scope| {
        let getting = scope.spawn(|| gets(&master, |_| is_over.load(Relaxed)));
        let watching = scope.spawn(|| {
            let mut most = before;
            while !is_over.load(Relaxed) {
                // With its children: Redis forks. A look that takes long is followed by a longer rest.
                let began = Instant::now();
                most = most.max(usage::tree_bytes(master.pid()).unwrap_or(0));
                thread::sleep((LOOK * 10).max(began.elapsed() * 20));
            }
            most
        });
        let took = follow(&replica, &master);
        is_over.store(true, Relaxed);
        (took, watching.join().unwrap_or(before), getting.join())
    });
    let meanwhile = meanwhile.map_err(|_| io::Error::other("the reader panicked"))??;
    let took = took?.as_secs_f64();
    let bytes = (keys * SYNC_VALUE_BYTES) as f64 / 1e6;
    let gained = most.saturating_sub(before) >> 20;
    let p999 = |samples: &[Duration]| samples[(samples.len() - 1) * 999 / 1000].as_secs_f64() * 1e6;
    Ok(format!(
        "{bytes:.0} | {took:.2} | {:.0} | {gained} | {:.0} | {:.0}",
        bytes / took,
        p999(&alone),
        p999(&meanwhile)
    ))
}

/// Times of one GET after the other until `is_over` says so of their number, sorted; at least one.
fn gets(master: &Server, is_over: impl Fn(u64) -> bool) -> io::Result<Vec<Duration>> {
    let (mut asking, mut samples) = (Asking::new(master)?, Vec::new());
    while samples.is_empty() || !is_over(samples.len() as u64) {
        let began = Instant::now();
        asking.ask(&["GET", "key:1"])?;
        samples.push(began.elapsed());
    }
    samples.sort();
    Ok(samples)
}

/// A connection that asks for one thing after the other.
struct Asking(BufReader<TcpStream>);

impl Asking {
    fn new(server: &Server) -> io::Result<Asking> {
        let stream = TcpStream::connect_timeout(&server.address(), Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Asking(BufReader::new(stream)))
    }

    /// The text of a reply that is a string, a status or an integer.
    fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            let _ = write!(request, "${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let Some(len) = line.strip_prefix('$') else { return Ok(line.trim().to_owned()) };
        let Ok(len) = len.trim().parse::<usize>() else { return Ok(String::new()) };
        let mut text = vec![0; len + 2];
        io::Read::read_exact(&mut self.0, &mut text)?;
        text.truncate(len);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn field(&mut self, name: &str) -> io::Result<Option<String>> {
        let info = self.ask(&["INFO", "replication"])?;
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(line.map(str::to_owned))
    }

    fn number(&mut self, name: &str) -> io::Result<u64> {
        let field = self.field(name)?.and_then(|text| text.trim().parse().ok());
        field.ok_or_else(|| io::Error::other(format!("INFO has no {name}")))
    }
}

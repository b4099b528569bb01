//! The rows of publish and subscribe, client-side caches and notifications: one figure each.
//!
//! In each round every contender starts anew and runs alone, on the first core; the client is on the second.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::fanout::{FanOut, request};
use crate::histogram::Histogram;
use crate::keys::Distribution;
use crate::load::{Load, Shape};
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::speed;
use crate::template::{Filling, Part, Pool, Template, fixed};
use crate::usage::{Cpu, resident_bytes};
use crate::workload::Workload;

/// A row.
pub struct Row {
    /// Its name in the table.
    pub name: &'static str,
    /// What the figure is.
    pub unit: &'static str,
    /// The goal.
    pub must: &'static str,
    contenders: &'static [Contender],
    measure: Measure,
}

/// One contender's figures of all rounds.
pub struct Figures {
    /// Its name in the table.
    pub server: &'static str,
    /// One figure per round.
    pub figures: Vec<f64>,
    /// Why rounds have none.
    pub faults: Vec<String>,
}

/// A server and how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    /// Redis.
    Redis,
    /// Darter, one thread.
    Darter,
    /// Darter with what the row is about switched on; [`Contender::Darter`] then has it off.
    DarterOn,
    /// Darter with two threads on both cores.
    DarterPair,
}

/// What a row does with a server that has just started.
pub type Measure = fn(&Contest<'_>) -> io::Result<f64>;

/// A server that has just started.
pub struct Contest<'a> {
    /// It.
    pub server: Server,
    /// What holds for all rows.
    pub setting: &'a Setting,
    is_on: bool,
}

/// Redis, and Darter on one thread.
pub const BOTH: &[Contender] = &[Contender::Redis, Contender::Darter];
/// Darter without and with what a row is about.
pub const OFF_AND_ON: &[Contender] = &[Contender::Darter, Contender::DarterOn];

/// A row.
pub fn row(
    name: &'static str,
    unit: &'static str,
    must: &'static str,
    contenders: &'static [Contender],
    measure: Measure,
) -> Row {
    Row { name, unit, must, contenders, measure }
}

/// All rows.
pub fn rows() -> Vec<Row> {
    let per_message = "µs of CPU a delivered message";
    vec![
        row("PUBLISH to 1,000 subscribers, pipeline 30", per_message, "0.6", BOTH, |c| c.fan_out(1500, 30)),
        row("PUBLISH to 1,000 subscribers, one at a time", per_message, "0.6", BOTH, |c| c.fan_out(150, 1)),
        row("PUBLISH to nobody, pipeline 30", OP, "0.6", BOTH, |c| c.publish(1_000_000, 30)),
        row("PUBLISH to nobody, one at a time", OP, "0.6", BOTH, |c| c.publish(150_000, 1)),
        row("PUBLISH past 10,000 patterns, pipeline 30", OP, "2 µs", BOTH, |c| c.publish_past_patterns()),
        row("GET of 1M tracked keys, one at a time", OP, "1.1 × off", OFF_AND_ON, |c| c.tracked(200_000, 1)),
        row("GET of 1M tracked keys, pipeline 30", OP, "1.1 × off", OFF_AND_ON, |c| {
            c.tracked(2_000_000, 30)
        }),
        row("bytes a tracked key of 16 bytes", "bytes", "40", TRACKED, |c| c.tracked_bytes()),
        row("SET with KEA and no subscriber, pipeline 30", OP, "1.05 × off", OFF_AND_ON, |c| c.notified(30)),
        row("SET with KEA and no subscriber, one at a time", OP, "1.05 × off", OFF_AND_ON, |c| {
            c.notified(1)
        }),
        row("invalidation to an idle client, p50", "µs", "100 µs", INVALIDATED, |c| c.invalidation_us(0.5)),
        row("invalidation to an idle client, p99", "µs", "-", INVALIDATED, |c| c.invalidation_us(0.99)),
    ]
}

const OP: &str = "µs of CPU/op";
const TRACKED: &[Contender] = BOTH;
const INVALIDATED: &[Contender] = &[Contender::Redis, Contender::DarterPair];
const KEYS: u64 = 1_000_000;

/// Runs a row for all its contenders, round by round.
pub fn run(row: &Row, setting: &Setting) -> Vec<Figures> {
    let figures = |contender: &Contender| {
        let server = match contender {
            Contender::Redis => "redis",
            Contender::Darter if row.contenders == OFF_AND_ON => "darter, off",
            Contender::Darter => "darter",
            Contender::DarterOn => "darter, on",
            Contender::DarterPair => "darter, 2 threads",
        };
        Figures { server, figures: Vec::new(), faults: Vec::new() }
    };
    let mut all: Vec<Figures> = row.contenders.iter().map(figures).collect();
    for round in 0..setting.rounds {
        for step in 0..all.len() {
            let at = (step + round) % all.len();
            match measure(row, row.contenders[at], setting) {
                Ok(figure) => all[at].figures.push(figure),
                Err(error) => all[at].faults.push(error.to_string()),
            }
        }
    }
    all
}

fn measure(row: &Row, contender: Contender, setting: &Setting) -> io::Result<f64> {
    let (program, cores): (Program, _) = match contender {
        Contender::Redis => (setting.redis(), &setting.server_cores),
        Contender::DarterPair => (setting.darter(2), &setting.all_cores),
        _ => (setting.darter(1), &setting.server_cores),
    };
    let server = Server::start(&program, cores)?;
    (row.measure)(&Contest { server, setting, is_on: contender == Contender::DarterOn })
}

impl Contest<'_> {
    /// Whether what the row is about is switched on.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    fn fan_out(&self, messages: u64, pipeline: u64) -> io::Result<f64> {
        const SUBSCRIBERS: usize = 1000;
        let messages = (messages as f64 * self.setting.scale).max(20.0) as u64;
        let fan_out = FanOut { subscribers: SUBSCRIBERS, messages, pipeline };
        let pid = self.server.pid();
        let before = fan_out.run(self.server.address(), &self.setting.client_cores, || Cpu::of(pid))?;
        let used = Cpu::of(pid)?.since(&before).total;
        Ok(used.as_secs_f64() * 1e6 / (messages * SUBSCRIBERS as u64) as f64)
    }

    fn publish(&self, ops: u64, pipeline: usize) -> io::Result<f64> {
        let parts =
            [fixed("PUBLISH"), Part::key("chan"), fixed("a message of some forty bytes, more or less")];
        self.cpu_per_op(&Workload::of(Template::resp(&parts), 1000), ops, pipeline, Vec::new())
    }

    fn publish_past_patterns(&self) -> io::Result<f64> {
        let mut subscriber = TcpStream::connect(self.server.address())?;
        let patterns: Vec<String> = (0..10_000).map(|n| format!("user:{n}:*")).collect();
        for pattern in &patterns {
            subscriber.write_all(&request(&["PSUBSCRIBE", pattern]))?;
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.server.ask_count(&["PUBSUB", "NUMPAT"])? < patterns.len() as u64 {
            // The answers must be taken, or the server could not go on.
            let _ = subscriber.read(&mut vec![0; 1 << 20])?;
            if Instant::now() > deadline {
                return Err(io::Error::other("patterns are missing"));
            }
        }
        self.publish(200_000, 30)
    }

    /// Fills the server, and with tracking on has one client read every key.
    fn fill_tracked(&self) -> io::Result<Vec<u8>> {
        let keys = Workload::of(Template::set(self.protocol(), "key:", 32), KEYS)
            .with_distribution(Distribution::Sequential);
        speed::fill(&self.server, &keys, &Pool::new(Filling::Binary), KEYS, &self.setting.client_cores)?;
        Ok(request(&["CLIENT", "TRACKING", "ON"]))
    }

    fn read_all(&self, greeting: Vec<u8>) -> io::Result<()> {
        let keys = self.reads().with_distribution(Distribution::Shuffled);
        let load = Load { connections: 1, ..self.load(KEYS, 64, greeting) };
        load.run(&keys, &Pool::new(Filling::Binary)).map(drop)
    }

    fn reads(&self) -> Workload {
        Workload::of(Template::get(self.protocol(), "key:"), KEYS)
    }

    fn protocol(&self) -> crate::replies::Protocol {
        crate::replies::Protocol::Resp
    }

    fn tracked(&self, ops: u64, pipeline: usize) -> io::Result<f64> {
        let greeting = self.fill_tracked()?;
        let greeting = if self.is_on { greeting } else { Vec::new() };
        self.read_all(greeting.clone())?;
        self.cpu_per_op(&self.reads(), ops, pipeline, greeting)
    }

    fn tracked_bytes(&self) -> io::Result<f64> {
        let greeting = self.fill_tracked()?;
        // Once without, so that what reading itself takes is there already.
        self.read_all(Vec::new())?;
        thread::sleep(Duration::from_millis(500));
        let before = resident_bytes(self.server.pid())?;
        self.read_all(greeting)?;
        thread::sleep(Duration::from_millis(500));
        Ok(resident_bytes(self.server.pid())?.saturating_sub(before) as f64 / KEYS as f64)
    }

    fn notified(&self, pipeline: usize) -> io::Result<f64> {
        if self.is_on {
            self.server.ask(&["CONFIG", "SET", "notify-keyspace-events", "KEA"])?;
        }
        let ops = if pipeline == 1 { 150_000 } else { 2_000_000 };
        let sets = Workload::of(Template::set(self.protocol(), "key:", 32), 100_000);
        self.cpu_per_op(&sets, ops, pipeline, Vec::new())
    }

    /// Processor time of the server for each request, in microseconds.
    pub fn cpu_per_op(
        &self,
        workload: &Workload,
        ops: u64,
        pipeline: usize,
        greeting: Vec<u8>,
    ) -> io::Result<f64> {
        let load = self.load(self.setting.scaled(ops), pipeline, greeting);
        let before = Cpu::of(self.server.pid())?;
        let measured = load.run(workload, &Pool::new(Filling::Binary))?;
        let used = Cpu::of(self.server.pid())?.since(&before).total;
        match measured.first_error {
            Some(error) => Err(io::Error::other(error)),
            None => Ok(used.as_secs_f64() * 1e6 / measured.ops.max(1) as f64),
        }
    }

    fn load(&self, ops: u64, pipeline: usize, greeting: Vec<u8>) -> Load {
        Load {
            address: self.server.address(),
            ops,
            wall: self.setting.wall,
            connections: 50,
            pipeline,
            shape: Shape::Batch,
            threads: 1,
            cores: self.setting.client_cores.clone(),
            seed: 42,
            greeting,
        }
    }

    /// From the send of a SET to the arrival of the message at a client that waits, on another thread of the server.
    fn invalidation_us(&self, quantile: f64) -> io::Result<f64> {
        let open = || -> io::Result<TcpStream> {
            let stream = TcpStream::connect(self.server.address())?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok(stream)
        };
        let (mut cache, mut writer) = (open()?, open()?);
        cache.write_all(&request(&["HELLO", "3"]))?;
        thread::sleep(Duration::from_millis(50));
        let _ = cache.read(&mut [0; 4096])?;
        ask(&mut cache, &["CLIENT", "TRACKING", "ON"], b"+OK\r\n")?;
        ask(&mut writer, &["SET", "k", "v"], b"+OK\r\n")?;
        let message = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
        let mut latency = Histogram::new();
        for round in 0..1000 {
            ask(&mut cache, &["GET", "k"], b"$1\r\nv\r\n")?;
            // Long enough for the thread to fall asleep.
            thread::sleep(Duration::from_micros(500));
            let began = Instant::now();
            writer.write_all(&request(&["SET", "k", "v"]))?;
            expect(&mut cache, message)?;
            if round >= 100 {
                latency.record(began.elapsed(), 1);
            }
            expect(&mut writer, b"+OK\r\n")?;
        }
        Ok(latency.quantile(quantile).as_secs_f64() * 1e6)
    }
}

fn ask(stream: &mut TcpStream, args: &[&str], answer: &[u8]) -> io::Result<()> {
    stream.write_all(&request(args))?;
    expect(stream, answer)
}

fn expect(stream: &mut TcpStream, wanted: &[u8]) -> io::Result<()> {
    let mut got = vec![0; wanted.len()];
    stream.read_exact(&mut got)?;
    if got == wanted {
        return Ok(());
    }
    Err(io::Error::other(format!("got {}, wanted {}", got.escape_ascii(), wanted.escape_ascii())))
}

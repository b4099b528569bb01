//! Drives a workload over many connections and measures it: operations, time, latencies.
//!
//! Closed loop: each connection has `pipeline` requests in flight, in one of two shapes. A latency is counted from the
//! send of a request to the arrival of its reply. Every run ends: by its count of operations, by its wall limit, or with an
//! error.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::cores;
use crate::histogram::Histogram;
use crate::replies::{NotAReply, ReplyCounter};
use crate::template::Pool;
use crate::workload::{Encoder, Workload};

/// When a connection sends again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Shape {
    /// A whole batch, when the last one was answered to the end: what redis-benchmark does.
    #[default]
    Batch,
    /// As many requests as replies have just been read, 4 KiB at a time: what memtier_benchmark does.
    Refill,
}

impl Shape {
    /// By its name on the command line.
    pub fn by_name(name: &str) -> Option<Shape> {
        match name {
            "batch" => Some(Shape::Batch),
            "refill" => Some(Shape::Refill),
            _ => None,
        }
    }
}

/// What a client that refills reads at a time.
const REFILL_BYTES: usize = 4096;

/// How a workload is driven.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Operations over all connections; the run ends when they are answered.
    pub ops: u64,
    /// The run ends after this time, whatever was answered.
    pub wall: Duration,
    /// Connections over all threads.
    pub connections: usize,
    /// Requests in flight per connection.
    pub pipeline: usize,
    /// When the next ones are sent.
    pub shape: Shape,
    /// Client threads.
    pub threads: usize,
    /// The cores the client may run on; empty: any.
    pub cores: Vec<usize>,
    /// Picks follow from it.
    pub seed: u64,
    /// A RESP request that every connection sends first, answered `+OK`; empty: none.
    pub greeting: Vec<u8>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Operations answered.
    pub ops: u64,
    /// From the first send to the last reply.
    pub elapsed: Duration,
    /// Latency of every operation.
    pub latency: Histogram,
    /// Error replies among them.
    pub errors: u64,
    /// The text of one of them.
    pub first_error: Option<String>,
}

impl Measured {
    /// Operations per second.
    pub fn ops_per_second(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl Load {
    /// Runs the workload.  Errors: no connection, a connection that closed, bytes that are no reply.
    pub fn run(&self, workload: &Workload, pool: &Pool) -> io::Result<Measured> {
        let threads = self.threads.max(1);
        let parts = thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|index| scope.spawn(move || Worker::new(self, index, workload, pool)?.run()))
                .collect();
            let joined = running
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("a load thread panicked"))));
            joined.collect::<io::Result<Vec<Measured>>>()
        })?;
        let mut sum = Measured {
            ops: 0,
            elapsed: Duration::ZERO,
            latency: Histogram::new(),
            errors: 0,
            first_error: None,
        };
        for part in parts {
            sum.ops += part.ops;
            sum.elapsed = sum.elapsed.max(part.elapsed);
            sum.latency.merge(&part.latency);
            sum.errors += part.errors;
            sum.first_error = sum.first_error.or(part.first_error);
        }
        Ok(sum)
    }
}

struct Connection {
    stream: TcpStream,
    replies: ReplyCounter,
    out: Vec<u8>,
    written: usize,
    in_flight: u64,
    /// When requests in flight were sent, the oldest first, and how many of each time are unanswered.
    sent: VecDeque<(Instant, u64)>,
    wants_write: bool,
}

struct Worker<'l> {
    load: &'l Load,
    encoder: Encoder<'l>,
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    /// Operations this thread may still send.
    unsent: u64,
    latency: Histogram,
    answered: u64,
    inbox: Vec<u8>,
}

impl<'l> Worker<'l> {
    fn new(load: &'l Load, index: usize, workload: &'l Workload, pool: &'l Pool) -> io::Result<Self> {
        cores::pin_thread(&load.cores)?;
        let threads = load.threads.max(1);
        let share = |whole: u64| whole / threads as u64 + u64::from((index as u64) < whole % threads as u64);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for number in 0..share(load.connections as u64).max(1) {
            let stream = TcpStream::connect_timeout(&load.address, Duration::from_secs(5))?;
            stream.set_nodelay(true)?;
            greet(&stream, &load.greeting)?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
            connections.push(Connection {
                stream,
                replies: ReplyCounter::new(workload.protocol()),
                out: Vec::new(),
                written: 0,
                in_flight: 0,
                sent: VecDeque::new(),
                wants_write: false,
            });
        }
        let seed = load.seed.wrapping_add(1 + index as u64 * 7919);
        Ok(Self {
            load,
            encoder: Encoder::new(workload, pool, seed),
            epoll,
            connections,
            unsent: share(load.ops),
            latency: Histogram::new(),
            answered: 0,
            inbox: vec![0; if load.shape == Shape::Refill { REFILL_BYTES } else { 64 * 1024 }],
        })
    }

    fn run(mut self) -> io::Result<Measured> {
        let start = Instant::now();
        let deadline = start + self.load.wall;
        let batch = self.load.pipeline.max(1) as u64;
        for index in 0..self.connections.len() {
            self.send_batch(index, batch)?;
        }
        let mut last = start;
        let mut events = Vec::with_capacity(64);
        while self.connections.iter().any(|c| c.in_flight > 0) {
            // A tenth of a second at most, so that the wall limit holds when the server falls silent.
            let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&pause)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.serve(event.data.u64() as usize, event.flags)?;
            }
            last = Instant::now();
            if last >= deadline {
                break;
            }
        }
        let errors = self.connections.iter().map(|c| c.replies.errors()).sum();
        let first_error = self.connections.iter().find_map(|c| c.replies.first_error().map(str::to_owned));
        Ok(Measured { ops: self.answered, elapsed: last - start, latency: self.latency, errors, first_error })
    }

    fn serve(&mut self, index: usize, flags: epoll::EventFlags) -> io::Result<()> {
        if flags.contains(epoll::EventFlags::OUT) {
            self.flush(index)?;
        }
        if !flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            return Ok(());
        }
        let connection = &mut self.connections[index];
        let len = match connection.stream.read(&mut self.inbox) {
            Ok(0) => return Err(io::Error::other("the server closed the connection")),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let done = connection.replies.feed(&self.inbox[..len]).map_err(|NotAReply(line)| {
            io::Error::other(format!("the server sent something that is no reply: {line:?}"))
        })?;
        if done == 0 {
            return Ok(());
        }
        if done > connection.in_flight {
            return Err(io::Error::other("the server sent more replies than requests"));
        }
        let (now, mut told) = (Instant::now(), 0);
        while let Some((at, unanswered)) = connection.sent.front_mut().filter(|_| told < done) {
            let part = (*unanswered).min(done - told);
            self.latency.record(now.duration_since(*at), part);
            (told, *unanswered) = (told + part, *unanswered - part);
            if *unanswered == 0 {
                connection.sent.pop_front();
            }
        }
        self.answered += done;
        connection.in_flight -= done;
        match self.load.shape {
            Shape::Batch if connection.in_flight > 0 => Ok(()),
            Shape::Batch => self.send_batch(index, self.load.pipeline.max(1) as u64),
            Shape::Refill => self.send_batch(index, done),
        }
    }

    fn send_batch(&mut self, index: usize, len: u64) -> io::Result<()> {
        let batch = self.unsent.min(len);
        if batch == 0 {
            return Ok(());
        }
        self.unsent -= batch;
        let connection = &mut self.connections[index];
        if connection.written == connection.out.len() {
            connection.out.clear();
            connection.written = 0;
        }
        for _ in 0..batch {
            self.encoder.write(&mut connection.out);
        }
        connection.in_flight += batch;
        connection.sent.push_back((Instant::now(), batch));
        self.flush(index)
    }

    fn flush(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        while connection.written < connection.out.len() {
            match connection.stream.write(&connection.out[connection.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => connection.written += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let wants_write = connection.written < connection.out.len();
        if wants_write != connection.wants_write {
            connection.wants_write = wants_write;
            let out = if wants_write { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.stream, data, epoll::EventFlags::IN | out)?;
        }
        Ok(())
    }
}

/// Sends `greeting` and waits for its answer.
fn greet(mut stream: &TcpStream, greeting: &[u8]) -> io::Result<()> {
    if greeting.is_empty() {
        return Ok(());
    }
    stream.write_all(greeting)?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    if &answer == b"+OK\r\n" { Ok(()) } else { Err(io::Error::other("the greeting was refused")) }
}

//! Clients that come at a rate, whether or not the server keeps up, and go again.
//!
//! Called by the suite of doors and by `darter-bench connections`. Nobody waits to be let in: a connection is begun, and
//! some hundred clients later it is looked at, reset and counted. The server runs already.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::connections::Visit;
use crate::cores;
use crate::fanout::request;
use crate::histogram::Histogram;
use crate::usage::{Cpu, resident_bytes};

/// Clients that a thread has at the door together.
const CROWD_LEN: usize = 256;
/// How often the client that stays asks.
const STEADY_PAUSE: Duration = Duration::from_millis(1);

/// How clients come.
#[derive(Clone, Debug)]
pub enum Door {
    /// By TCP, at the address that is visited.
    Tcp,
    /// By this Unix socket: what a server does is the same, and the kernel does less.
    Unix(PathBuf),
}

/// What a flood was like.
#[derive(Debug)]
pub struct Flood {
    /// Clients that began to connect.
    pub offered: u64,
    /// That were refused or cut off.
    pub refused: u64,
    /// That the server has accepted.
    pub accepted: u64,
    /// How long it lasted.
    pub elapsed: Duration,
    /// Processor time of the server.
    pub cpu: Duration,
    /// Resident bytes of the server more than before, once all have gone.
    pub grown_bytes: u64,
    /// What another client, that stays, waited for its GET.
    pub latency: Histogram,
}

impl Flood {
    /// So many of `count` a second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.elapsed.as_secs_f64()
    }
}

/// What became of clients.
#[derive(Default)]
struct Counts {
    offered: u64,
    refused: u64,
}

impl Visit {
    /// Clients come by `door`, `rate` of them a second, for `time`.
    ///
    /// Errors: the server refused or cut off one of them, does not answer its other client, or keeps descriptors.
    pub fn flooded(&self, door: &Door, rate: u64, time: Duration) -> io::Result<Flood> {
        let mut steady = Steady::new(self.address)?;
        let [accepted, rejected] = steady.totals()?;
        let resident = resident_bytes(self.pid)?;
        let mut flood = self.outlived(|| self.flood(door, rate, time, &mut steady))?;
        let totals = steady.totals()?;
        flood.accepted = totals[0] - accepted;
        flood.grown_bytes = resident_bytes(self.pid)?.saturating_sub(resident);
        match flood.refused + totals[1] - rejected {
            0 => Ok(flood),
            refused => Err(io::Error::other(format!("{refused} of {} were refused", flood.offered))),
        }
    }

    fn flood(&self, door: &Door, rate: u64, time: Duration, steady: &mut Steady) -> io::Result<Flood> {
        let (began, cpu) = (Instant::now(), Cpu::of(self.pid)?);
        let mut counts = Counts::default();
        let mut latency = Histogram::new();
        thread::scope(|scope| -> io::Result<()> {
            let comers: Vec<_> = (0..self.threads)
                .map(|_| scope.spawn(|| self.come(door, rate / self.threads.max(1) as u64, time)))
                .collect();
            while comers.iter().any(|comer| !comer.is_finished()) {
                latency.record(steady.get()?, 1);
                thread::sleep(STEADY_PAUSE);
            }
            for comer in comers {
                let own = comer.join().map_err(|_| io::Error::other("a client's thread ended early"))??;
                counts.offered += own.offered;
                counts.refused += own.refused;
            }
            Ok(())
        })?;
        let Counts { offered, refused } = counts;
        let cpu = Cpu::of(self.pid)?.since(&cpu).total;
        let elapsed = began.elapsed();
        Ok(Flood { offered, refused, accepted: 0, elapsed, cpu, grown_bytes: 0, latency })
    }

    /// One thread's clients.
    fn come(&self, door: &Door, rate: u64, time: Duration) -> io::Result<Counts> {
        // Where it may not be pinned it runs anywhere.
        let _ = cores::pin_thread(&self.cores);
        let mut counts = Counts::default();
        let mut crowd = VecDeque::with_capacity(CROWD_LEN + 1);
        let began = Instant::now();
        while began.elapsed() < time {
            let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
            if counts.offered >= due {
                thread::sleep(Duration::from_micros(100));
            }
            while counts.offered < due && began.elapsed() < time {
                counts.offered += 1;
                match begin(self.address, door) {
                    Ok(client) => crowd.push_back(client),
                    // The queue of a Unix socket is full.
                    Err(Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
                if crowd.len() > CROWD_LEN
                    && let Some(client) = crowd.pop_front()
                {
                    counts.see_off(&client)?;
                }
            }
        }
        crowd.iter().try_for_each(|client| counts.see_off(client))?;
        Ok(counts)
    }
}

/// A client at the door; its connection may take any time.
fn begin(address: SocketAddr, door: &Door) -> Result<OwnedFd, Errno> {
    let family = match (door, address) {
        (Door::Unix(_), _) => AddressFamily::UNIX,
        (Door::Tcp, SocketAddr::V4(_)) => AddressFamily::INET,
        (Door::Tcp, SocketAddr::V6(_)) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let client = socket_with(family, SocketType::STREAM, flags, None)?;
    let begun = match door {
        Door::Tcp => connect(&client, &address),
        Door::Unix(path) => connect(&client, &SocketAddrUnix::new(path)?),
    };
    match begun {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(client),
        Err(error) => Err(error),
    }
}

impl Counts {
    /// Looks at what a client has come to, and has it go without a port that waits for late packets.
    fn see_off(&mut self, client: &OwnedFd) -> io::Result<()> {
        self.refused += u64::from(sockopt::socket_error(client)?.is_err());
        // Only TCP has such ports.
        let _ = sockopt::set_socket_linger(client, Some(Duration::ZERO));
        Ok(())
    }
}

/// A client that stays.
struct Steady(TcpStream);

impl Steady {
    fn new(address: SocketAddr) -> io::Result<Steady> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(Steady(stream))
    }

    /// How long a GET took.
    fn get(&mut self) -> io::Result<Duration> {
        let began = Instant::now();
        self.0.write_all(&request(&["GET", "nothing"]))?;
        let mut answer = [0; 5];
        self.0.read_exact(&mut answer)?;
        if &answer == b"$-1\r\n" {
            Ok(began.elapsed())
        } else {
            Err(io::Error::other("GET was not answered"))
        }
    }

    /// Connections that the server has accepted, and that it has refused, since it began.
    fn totals(&mut self) -> io::Result<[u64; 2]> {
        self.0.write_all(&request(&["INFO", "stats"]))?;
        let (mut answer, mut chunk) = (Vec::new(), [0; 16 << 10]);
        let text = loop {
            let len = self.0.read(&mut chunk)?;
            answer.extend_from_slice(&chunk[..len]);
            let text = String::from_utf8_lossy(&answer);
            let whole = text.split_once("\r\n").and_then(|(head, body)| {
                let wanted: usize = head.strip_prefix('$')?.parse().ok()?;
                (body.len() >= wanted + 2).then(|| body.to_owned())
            });
            match whole {
                Some(text) => break text,
                None if len == 0 => return Err(io::Error::other("INFO was not answered")),
                None => {}
            }
        };
        let total = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
            line.ok_or_else(|| io::Error::other(format!("INFO does not tell {name}")))
        };
        Ok([total("total_connections_received")?, total("rejected_connections")?])
    }
}

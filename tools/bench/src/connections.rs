//! What connections cost: the memory of idle ones, and what becomes of a server while clients come and go.
//!
//! Called by `darter-bench connections` and by the suite of doors. The server runs already; it is watched by its
//! process id. Clients here wait until they are let in; those of `flood` do not.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cores;
use crate::flood::Door;
use crate::histogram::Histogram;
use crate::usage::{Cpu, resident_bytes};

/// Connections opened before the first look, so that tables have grown.
const WARM_LEN: usize = 100;
/// Long enough for a server to give back what an idle connection does not need.
const SETTLE: Duration = Duration::from_secs(3);
/// Clients a second that a server is to survive.
pub const FLOOD_RATE: u64 = 50_000;
/// Connections that one thread of a storm has open together.
const WAVE_LEN: usize = 64;

/// A server, and who visits it.
pub struct Visit {
    /// Where it listens, for RESP.
    pub address: SocketAddr,
    /// Its process.
    pub pid: u32,
    /// Threads that come and go.
    pub threads: usize,
    /// Where these run; empty: anywhere.
    pub cores: Vec<usize>,
}

/// What clients of a storm do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guest {
    /// They connect and reset.
    ComesAndGoes,
    /// They say PING, are answered, and reset.
    IsAnswered,
}

/// What a storm was like.
pub struct Storm {
    /// Connections made.
    pub made: u64,
    /// Connections refused or broken.
    pub failed: u64,
    /// How long it lasted.
    pub elapsed: Duration,
    /// Processor time of the server.
    pub cpu: Duration,
    /// What another client, that stays, waited for its PING.
    pub latency: Histogram,
}

impl Storm {
    /// Connections made each second.
    pub fn per_second(&self) -> f64 {
        self.made as f64 / self.elapsed.as_secs_f64()
    }

    /// Processor time of the server for each, in microseconds.
    pub fn cpu_us_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.made.max(1) as f64
    }
}

impl Visit {
    /// Holds `idle` connections, then lets clients come and go, and prints what was measured.
    ///
    /// Errors: a connection of the first part is refused, or the server keeps something of the second.
    pub fn run(&self, idle: usize, time: Duration) -> io::Result<()> {
        println!("{idle} idle connections: {:.0} resident bytes each", self.idle_bytes(idle)?);
        for (name, guest) in [("come and go", Guest::ComesAndGoes), ("are answered", Guest::IsAnswered)] {
            let storm = self.survived(guest, time)?;
            println!(
                "clients that {name}: {:.0}/s for {:.1} s, {} refused, server CPU {:.1} µs each",
                storm.per_second(),
                storm.elapsed.as_secs_f64(),
                storm.failed,
                storm.cpu_us_each()
            );
            let us = |fraction| storm.latency.quantile(fraction).as_secs_f64() * 1e6;
            println!(
                "PING meanwhile, µs: p50 {:.0}  p99 {:.0}  slowest {}",
                us(0.5),
                us(0.99),
                storm.latency.max().as_micros()
            );
        }
        for rate in [10_000, FLOOD_RATE] {
            let flood = self.flooded(&Door::Tcp, rate, time)?;
            println!(
                "{rate} clients a second: {:.0} came, {:.0} were accepted, none refused, server CPU {:.1} µs each, {} KiB \
                 more resident afterwards; GET meanwhile, µs: p50 {:.0}  p99 {:.0}",
                flood.per_second(flood.offered),
                flood.per_second(flood.accepted),
                flood.cpu.as_secs_f64() * 1e6 / flood.accepted.max(1) as f64,
                flood.grown_bytes >> 10,
                flood.latency.quantile(0.5).as_secs_f64() * 1e6,
                flood.latency.quantile(0.99).as_secs_f64() * 1e6,
            );
        }
        println!("the server answers and keeps nothing of them");
        Ok(())
    }

    /// Resident bytes of each of `len` connections that have said PING once.
    pub fn idle_bytes(&self, len: usize) -> io::Result<f64> {
        let open = |len: usize| -> io::Result<Vec<TcpStream>> {
            (0..len)
                .map(|_| {
                    let mut stream = connect(self.address)?;
                    ping(&mut stream).map(|()| stream)
                })
                .collect()
        };
        let warm = open(WARM_LEN)?;
        thread::sleep(SETTLE);
        let before = resident_bytes(self.pid)?;
        let kept = open(len)?;
        thread::sleep(SETTLE);
        let after = resident_bytes(self.pid)?;
        drop((warm, kept));
        Ok(after.saturating_sub(before) as f64 / len.max(1) as f64)
    }

    /// A storm of clients that wait to be let in.  Errors: the server does not answer afterwards, or keeps descriptors.
    pub fn survived(&self, guest: Guest, time: Duration) -> io::Result<Storm> {
        self.outlived(|| self.storm(guest, time))
    }

    /// What `storm` was, and a look at the server afterwards.  Errors: it does not answer, or keeps descriptors.
    pub fn outlived<T>(&self, storm: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let open = || fs::read_dir(format!("/proc/{}/fd", self.pid)).map(Iterator::count);
        ping(&mut connect(self.address)?)?;
        thread::sleep(SETTLE / 3);
        let before = open()?;
        let storm = storm()?;
        let deadline = Instant::now() + SETTLE;
        while open()? > before && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        ping(&mut connect(self.address)?)?;
        match open()?.saturating_sub(before + 1) {
            0 => Ok(storm),
            kept => Err(io::Error::other(format!("{kept} descriptors are still open after the storm"))),
        }
    }

    /// Clients come in waves, on each thread; meanwhile another one, that stays, says PING.
    fn storm(&self, guest: Guest, time: Duration) -> io::Result<Storm> {
        let (made, failed, ends) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let mut latency = Histogram::new();
        let mut steady = connect(self.address)?;
        let (began, cpu) = (Instant::now(), Cpu::of(self.pid)?);
        thread::scope(|scope| -> io::Result<()> {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    // Where it may not be pinned it runs anywhere.
                    let _ = cores::pin_thread(&self.cores);
                    while !ends.load(Ordering::Relaxed) {
                        let len = wave(self.address, guest);
                        made.fetch_add(len as u64, Ordering::Relaxed);
                        failed.fetch_add((WAVE_LEN - len) as u64, Ordering::Relaxed);
                    }
                });
            }
            let mut answered = Ok(());
            while began.elapsed() < time && answered.is_ok() {
                let asked = Instant::now();
                answered = ping(&mut steady);
                latency.record(asked.elapsed(), 1);
                thread::sleep(Duration::from_millis(1));
            }
            ends.store(true, Ordering::Relaxed);
            answered
        })?;
        Ok(Storm {
            made: made.into_inner(),
            failed: failed.into_inner(),
            elapsed: began.elapsed(),
            cpu: Cpu::of(self.pid)?.since(&cpu).total,
            latency,
        })
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn ping(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    if &answer == b"+PONG\r\n" { Ok(()) } else { Err(io::Error::other("PING was not answered")) }
}

/// A wave of clients that are there together; how many had what they came for.
fn wave(address: SocketAddr, guest: Guest) -> usize {
    let mut streams: Vec<TcpStream> = (0..WAVE_LEN).filter_map(|_| open_resetting(address).ok()).collect();
    if guest == Guest::IsAnswered {
        streams.retain_mut(|stream| stream.write_all(b"PING\r\n").is_ok());
        streams.retain_mut(|stream| stream.read_exact(&mut [0; 7]).is_ok());
    }
    streams.len()
}

/// A connection that ends without a port that waits for late packets.
fn open_resetting(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(stream)
}

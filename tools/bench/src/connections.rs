//! What connections cost: the memory of idle ones, and what becomes of a server while clients come and go.
//!
//! Called by `darter-bench connections`. The server runs already; it is watched by its process id.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::usage::{Cpu, resident_bytes};

/// Connections opened before the first look, so that tables have grown.
const WARM_LEN: usize = 100;
/// Long enough for a server to give back what an idle connection does not need.
const SETTLE: Duration = Duration::from_secs(3);

/// What is asked of a server.
pub struct Visit {
    /// Where it listens, for RESP.
    pub address: SocketAddr,
    /// Its process.
    pub pid: u32,
    /// Connections that stay open, each after one PING.
    pub idle: usize,
    /// How long clients come and go.
    pub storm: Duration,
    /// Threads that do.
    pub threads: usize,
}

impl Visit {
    /// Does it all, one after the other, and prints what was measured.
    ///
    /// Errors: a connection of the first part is refused, or the server does not answer after the second.
    pub fn run(&self) -> io::Result<()> {
        let kept = self.hold_idle()?;
        drop(kept);
        self.storm("that come and go", come_and_go)?;
        self.storm("that are answered", be_answered)?;
        ping(&mut connect(self.address)?)?;
        println!("the server answers");
        Ok(())
    }

    fn hold_idle(&self) -> io::Result<Vec<TcpStream>> {
        let open = |len: usize| -> io::Result<Vec<TcpStream>> {
            (0..len)
                .map(|_| {
                    let mut stream = connect(self.address)?;
                    ping(&mut stream).map(|()| stream)
                })
                .collect()
        };
        let mut kept = open(WARM_LEN)?;
        thread::sleep(SETTLE);
        let before = resident_bytes(self.pid)?;
        kept.extend(open(self.idle)?);
        thread::sleep(SETTLE);
        let after = resident_bytes(self.pid)?;
        let each = after.saturating_sub(before) as f64 / self.idle.max(1) as f64;
        println!("{} idle connections: {each:.0} resident bytes each", self.idle);
        Ok(kept)
    }

    /// Clients make their `visit`, one after the other on each thread; meanwhile another one says PING.
    fn storm(&self, name: &str, visit: fn(SocketAddr) -> io::Result<()>) -> io::Result<()> {
        let (made, failed, ends) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let mut latency = Histogram::new();
        let mut steady = connect(self.address)?;
        let (began, cpu) = (Instant::now(), Cpu::of(self.pid)?);
        thread::scope(|scope| -> io::Result<()> {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    while !ends.load(Ordering::Relaxed) {
                        let count = if visit(self.address).is_ok() { &made } else { &failed };
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut answered = Ok(());
            while began.elapsed() < self.storm && answered.is_ok() {
                let asked = Instant::now();
                answered = ping(&mut steady);
                latency.record(asked.elapsed(), 1);
                thread::sleep(Duration::from_millis(1));
            }
            ends.store(true, Ordering::Relaxed);
            answered
        })?;
        let (made, seconds) = (made.into_inner(), began.elapsed().as_secs_f64());
        let cpu = Cpu::of(self.pid)?.since(&cpu).total.as_secs_f64() * 1e6 / made.max(1) as f64;
        println!(
            "clients {name}: {:.0}/s for {seconds:.1} s, {} refused, server CPU {cpu:.1} µs each",
            made as f64 / seconds,
            failed.into_inner()
        );
        let us = |fraction| latency.quantile(fraction).as_secs_f64() * 1e6;
        println!(
            "PING meanwhile, µs: p50 {:.0}  p99 {:.0}  slowest {}",
            us(0.5),
            us(0.99),
            latency.max().as_micros()
        );
        Ok(())
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
    stream.read_exact(&mut answer)
}

/// A connection that the kernel accepts and that is reset at once.
fn come_and_go(address: SocketAddr) -> io::Result<()> {
    reset(&TcpStream::connect(address)?)
}

/// A connection that is reset after one PING.
fn be_answered(address: SocketAddr) -> io::Result<()> {
    let mut stream = connect(address)?;
    ping(&mut stream)?;
    reset(&stream)
}

/// Has a connection end without a port that waits for late packets.
fn reset(stream: &TcpStream) -> io::Result<()> {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
    Ok(())
}

//! A soak of the memory limit: writes of mixed sizes at full speed for minutes, in cache mode.
//!
//! Called by `darter-bench soak`; CI runs it for some seconds. Fails when more is resident than the limit allows, or when
//! a write is refused.

use std::fmt::Write;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::bgsave::{Inside, time_anew, times_of};
use crate::caching::peak_while;
use crate::load::{Load, Shape};
use crate::replies::Protocol;
use crate::server::Server;
use crate::setting::Setting;
use crate::template::{Filling, Pool, Template};
use crate::usage::{Cpu, resident_quickly};
use crate::workload::Workload;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// `maxmemory`.
    pub limit_bytes: u64,
    /// How long writes go on once the limit is reached.
    pub time: Duration,
    /// Connections that write.
    pub connections: usize,
}

/// What one server did.
struct Stretch {
    name: &'static str,
    writes: u64,
    seconds: f64,
    cpu_us: f64,
    sets: Inside,
    peak_bytes: u64,
    evicted: u64,
}

/// Of the limit, so much may be resident.
const PEAK_PERCENT_MAX: u64 = 105;
/// Sizes of values: so many to a doubling, from 64 bytes to 64 KiB.
const SIZES_OF_DOUBLING: u32 = 2;
const DOUBLINGS: u32 = 10;
/// The server without a limit takes this many bytes before it is timed, and as many while it is.
const UNLIMITED_BYTES: u64 = 256 << 20;
/// Time between two lines on what has come about.
const TOLD_EVERY: Duration = Duration::from_secs(30);

impl Soak {
    /// Runs it without a limit for a moment, then at the limit; prints a table.
    ///
    /// Errors: too much is resident, a write is refused, or a server fails.
    pub fn run(&self, setting: &Setting) -> io::Result<()> {
        let mean_bytes = sizes().map(u64::from).sum::<u64>() / sizes().count() as u64;
        let unlimited = UNLIMITED_BYTES.min(self.limit_bytes) / mean_bytes;
        let free = {
            let server = Server::start(&setting.darter(2), &[])?;
            self.stretch("no limit", &server, [unlimited, unlimited], Duration::MAX)?
        };
        let limit = self.limit_bytes.to_string();
        let program = setting.darter(2).with_flags(&["--cache_mode", "--maxmemory", &limit]);
        let server = Server::start(&program, &[])?;
        let until_full = self.limit_bytes / mean_bytes * 5 / 4;
        let is_over = AtomicBool::new(false);
        let held = thread::scope(|scope| {
            scope.spawn(|| self.tell(&server, &is_over));
            let held = self.stretch("at the limit", &server, [until_full, u64::MAX], self.time);
            is_over.store(true, Relaxed);
            held
        })?;
        println!("{}", self.table(&[&free, &held]));
        if held.peak_bytes > self.limit_bytes / 100 * PEAK_PERCENT_MAX {
            return Err(io::Error::other(format!("more than {PEAK_PERCENT_MAX} % of the limit is resident")));
        }
        Ok(())
    }

    /// Writes `before` keys, then `counted` ones, which are measured, for `time` at most.
    fn stretch(
        &self,
        name: &'static str,
        server: &Server,
        [before, counted]: [u64; 2],
        time: Duration,
    ) -> io::Result<Stretch> {
        let load = |prefix, ops, wall| -> io::Result<(u64, f64)> {
            let load = Load {
                address: server.address(),
                ops,
                wall,
                connections: self.connections,
                pipeline: 16,
                shape: Shape::Batch,
                threads: 1,
                cores: Vec::new(),
                seed: 42,
                greeting: Vec::new(),
            };
            let measured = load.run(&writes(prefix), &Pool::new(Filling::Binary))?;
            match measured.first_error {
                Some(text) => Err(io::Error::other(format!("{} writes refused: {text}", measured.errors))),
                None => Ok((measured.ops, measured.elapsed.as_secs_f64())),
            }
        };
        let (done, peak_bytes) = peak_while(server, || -> io::Result<(u64, f64, f64)> {
            load("old:", before, Duration::from_secs(600))?;
            time_anew(server)?;
            let cpu = Cpu::of(server.pid())?;
            let (writes, seconds) = load("key:", counted, time.min(Duration::from_secs(86_400)))?;
            let cpu_us = Cpu::of(server.pid())?.since(&cpu).total.as_secs_f64() * 1e6 / writes.max(1) as f64;
            Ok((writes, seconds, cpu_us))
        });
        let (writes, seconds, cpu_us) = done?;
        let [sets, _] = times_of(server)?;
        let evicted = field(&server.ask(&["INFO", "stats"])?, "evicted_keys");
        Ok(Stretch { name, writes, seconds, cpu_us, sets, peak_bytes, evicted })
    }

    /// Says every half minute how it stands.
    fn tell(&self, server: &Server, is_over: &AtomicBool) {
        let began = Instant::now();
        let mut next = TOLD_EVERY;
        while !is_over.load(Relaxed) {
            thread::sleep(Duration::from_millis(100));
            if began.elapsed() >= next {
                let mb = resident_quickly(server.pid()).unwrap_or(0) >> 20;
                eprintln!("{} s: {mb} MiB resident of {}", next.as_secs(), self.limit_bytes >> 20);
                next += TOLD_EVERY;
            }
        }
    }

    fn table(&self, stretches: &[&Stretch]) -> String {
        let mut text = String::from(
            "| SET of new keys, 64 B to 64 KiB | seconds | writes | keys evicted | CPU µs/op | p99.9 in the server, µs | \
             slowest, µs | most resident, MiB | of the limit |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for one in stretches {
            let part = one.peak_bytes as f64 / self.limit_bytes as f64;
            let part = if one.evicted > 0 { format!("{part:.3}") } else { "-".into() };
            let _ = writeln!(
                text,
                "| {} | {:.0} | {} | {} | {:.2} | {:.0} | {:.0} | {} | {part} |",
                one.name,
                one.seconds,
                one.writes,
                one.evicted,
                one.cpu_us,
                one.sets.p999,
                one.sets.slowest,
                one.peak_bytes >> 20
            );
        }
        text
    }
}

/// Bytes of values, evenly over the logarithm.
fn sizes() -> impl Iterator<Item = u32> {
    (0..=DOUBLINGS * SIZES_OF_DOUBLING)
        .map(|step| (64.0 * 2f64.powf(f64::from(step) / f64::from(SIZES_OF_DOUBLING))) as u32)
}

fn writes(prefix: &'static str) -> Workload {
    let templates = sizes().map(|bytes| (1, Template::set(Protocol::Resp, prefix, bytes as usize)));
    Workload::new(Protocol::Resp, templates.collect(), u64::from(u32::MAX))
}

fn field(info: &str, name: &str) -> u64 {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|digits| digits.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_from_64_bytes_to_64_kib() {
        let sizes: Vec<u32> = sizes().collect();
        assert_eq!((sizes.len(), sizes[0], sizes[2], sizes[20]), (21, 64, 128, 64 << 10));
    }
}

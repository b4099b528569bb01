//! Miss ratios of Darter's own table beside those of known policies, on made and on recorded traces.
//!
//! `darter-cachesim grid` makes the table and the plot of docs/caching.md; `darter-cachesim file TRACE` reads a trace
//! in libCacheSim's oracleGeneral format.
#![forbid(unsafe_code)]

mod guess;
mod list;
mod ours;
mod policy;
mod report;
mod sweep;
mod tinylfu;
mod trace;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use darter_store::evict::EvictionOrder;

use policy::{Cache, Tuning};
use trace::{GRID, OBJECTS, Replacing, Trace};

#[derive(Parser)]
#[command(about = "Miss ratios of Darter's table and of known policies")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs the grid of made traces; prints the table.
    Grid {
        /// Requests of each trace.
        #[arg(long, default_value_t = 4_000_000)]
        requests: usize,
        /// Cache sizes, in objects of mean size.
        #[arg(long, value_delimiter = ',', default_value = "9000,100000")]
        objects: Vec<u64>,
        /// Only traces whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// Only these policies.
        #[arg(long, value_delimiter = ',')]
        policies: Vec<String>,
        /// Writes the table into this file, between its two marks, and the plot beside it.
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Drives real servers with equal memory through the wire: GET, on a miss SET.
    Wire {
        /// Darter's binary.
        #[arg(long, default_value = "target/release/darter")]
        darter: String,
        /// Requests of each trace.
        #[arg(long, default_value_t = 2_000_000)]
        requests: usize,
        /// The limit of each server in megabytes.
        #[arg(long, default_value_t = 64)]
        mb: u64,
        /// Only traces whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// What policies could gain on LRU where popularity changes: variants of the known ones, and two bounds.
    Sweep {
        /// Requests of each trace.
        #[arg(long, default_value_t = 4_000_000)]
        requests: usize,
        /// Objects in the cache.
        #[arg(long, default_value_t = 100_000)]
        objects: u64,
    },
    /// Reads a trace from a file.
    File {
        /// The file, oracleGeneral.
        path: PathBuf,
        /// Cache sizes, in objects of mean size.
        #[arg(long, value_delimiter = ',', default_value = "10000,100000")]
        objects: Vec<u64>,
        /// Counts objects, not bytes.
        #[arg(long)]
        ignore_sizes: bool,
        /// Only these policies.
        #[arg(long, value_delimiter = ',')]
        policies: Vec<String>,
    },
}

/// Builds a cache of so many bytes for a trace.
pub type Build = fn(&Trace, u64) -> Box<dyn Cache>;

/// The policy that must know how often objects are replaced: only made traces with churn tell.
const BEST_GUESS: &str = "best guess";

/// Every policy by its name, ours first.
pub const POLICIES: &[(&str, Build)] = &[
    ("Darter", |_, capacity| Box::new(ours::Ours::new(capacity, EvictionOrder::LeastUsed))),
    ("FIFO", |trace, capacity| Box::new(policy::Lru::new(trace, capacity, false))),
    ("LRU", |trace, capacity| Box::new(policy::Lru::new(trace, capacity, true))),
    ("Redis LRU", |trace, capacity| Box::new(policy::Sampled::new(trace, capacity, false))),
    ("Redis LFU", |trace, capacity| Box::new(policy::Sampled::new(trace, capacity, true))),
    ("2Q", |trace, capacity| Box::new(policy::TwoQueues::new(trace, capacity))),
    ("SIEVE", |trace, capacity| Box::new(policy::Sieve::new(trace, capacity))),
    ("S3-FIFO", |trace, capacity| Box::new(policy::S3Fifo::new(trace, capacity, Tuning::PUBLISHED))),
    ("W-TinyLFU", |trace, capacity| Box::new(tinylfu::TinyLfu::new(trace, capacity, 1))),
    (BEST_GUESS, |trace, capacity| Box::new(guess::Guess::new(trace, capacity))),
    ("Belady", |trace, capacity| Box::new(policy::Belady::new(trace, capacity))),
];

/// What one policy came to on one trace with one size.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Requests that missed, of all after the first third.
    pub object_misses: f64,
    /// The same by bytes.
    pub byte_misses: f64,
    /// Time of a request, the trace's own cost included.
    pub nanos: f64,
}

/// Runs a trace through a cache.
fn run(trace: &Trace, cache: &mut dyn Cache) -> Outcome {
    let warm = trace.requests.len() / 3;
    let (mut misses, mut missed_bytes, mut bytes) = (0u64, 0u64, 0u64);
    let began = cpu_nanos();
    for (at, &id) in trace.requests.iter().enumerate() {
        let is_hit = cache.request(trace, at, id);
        if at >= warm {
            let size = u64::from(trace.sizes[id as usize]);
            bytes += size;
            if !is_hit {
                misses += 1;
                missed_bytes += size;
            }
        }
    }
    Outcome {
        object_misses: misses as f64 / (trace.requests.len() - warm) as f64,
        byte_misses: missed_bytes as f64 / bytes.max(1) as f64,
        nanos: (cpu_nanos() - began) as f64 / trace.requests.len() as f64,
    }
}

/// Time that this thread has run, in nanoseconds.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

/// All chosen policies on one trace.
fn compare(trace: &Trace, objects: u64, chosen: &[String]) -> Vec<Option<Outcome>> {
    let all: u64 = trace.sizes.iter().map(|&bytes| u64::from(bytes)).sum();
    let capacity = objects * all / trace.sizes.len().max(1) as u64;
    let is_chosen = |name: &str| {
        let is_named = chosen.is_empty() || chosen.iter().any(|one| one.eq_ignore_ascii_case(name));
        is_named && (name != BEST_GUESS || trace.replacing != Replacing::Unknown)
    };
    POLICIES
        .iter()
        .map(|(name, build)| is_chosen(name).then(|| run(trace, build(trace, capacity).as_mut())))
        .collect()
}

fn main() -> ExitCode {
    match work(Args::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("darter-cachesim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(task: Task) -> Result<(), Box<dyn std::error::Error>> {
    match task {
        Task::Grid { requests, objects, only, policies, write } => {
            let mut table = report::Table::default();
            for shape in GRID.iter().filter(|shape| shape.name.contains(&only)) {
                let trace = Trace::make(shape, requests, OBJECTS, 42);
                for &size in &objects {
                    table.add(&trace, size, compare(&trace, size, &policies));
                }
            }
            println!("{}", table.text());
            if let Some(path) = write {
                report::write(&path, &table, requests)?;
            }
        }
        Task::Wire { darter, requests, mb, only } => {
            println!("| trace, {mb} MB each | server | miss ratio | RSS, MB |\n|---|---|---|---|");
            for shape in GRID.iter().filter(|shape| shape.name.contains(&only)) {
                let trace = Trace::make(shape, requests, OBJECTS, 42);
                for contender in wire::CONTENDERS {
                    let measured = wire::measure(contender, &darter, &trace, mb)?;
                    let (misses, rss_mb) = (measured.misses, measured.rss_mb);
                    println!("| {} | {} | {misses:.4} | {rss_mb:.0} |", trace.name, contender.name);
                }
            }
        }
        Task::Sweep { requests, objects } => print!("{}", sweep::table(requests, objects)),
        Task::File { path, objects, ignore_sizes, policies } => {
            let trace = Trace::read(&path, ignore_sizes)?;
            let mut table = report::Table::default();
            for size in objects {
                table.add(&trace, size, compare(&trace, size, &policies));
            }
            println!("{}", table.text());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

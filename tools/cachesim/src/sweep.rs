//! What can be gained on LRU where popularity changes: variants of S3-FIFO and W-TinyLFU beside the policies of the grid.
//!
//! Called by `darter-cachesim sweep`, for docs/caching.md.

use std::fmt::Write as _;

use crate::policy::{Cache, S3Fifo, Tuning};
use crate::tinylfu::TinyLfu;
use crate::trace::{GRID, OBJECTS, Replacing, Trace};
use crate::{Build, POLICIES, run};

fn s3(trace: &Trace, capacity: u64, [small_percent, gone_percent, hits]: [u64; 3]) -> Box<dyn Cache> {
    Box::new(S3Fifo::new(trace, capacity, Tuning { small_percent, gone_percent, hits: hits as u8 }))
}

const VARIANTS: &[(&str, Build)] = &[
    ("S3-FIFO, small 1 %", |trace, capacity| s3(trace, capacity, [1, 90, 2])),
    ("S3-FIFO, small 5 %", |trace, capacity| s3(trace, capacity, [5, 90, 2])),
    ("S3-FIFO, small 25 %", |trace, capacity| s3(trace, capacity, [25, 90, 2])),
    ("S3-FIFO, small 50 %", |trace, capacity| s3(trace, capacity, [50, 90, 2])),
    ("S3-FIFO, one hit", |trace, capacity| s3(trace, capacity, [10, 90, 1])),
    ("S3-FIFO, one hit, small 25 %", |trace, capacity| s3(trace, capacity, [25, 90, 1])),
    ("S3-FIFO, one hit, small 50 %", |trace, capacity| s3(trace, capacity, [50, 90, 1])),
    ("S3-FIFO, ghosts 45 %", |trace, capacity| s3(trace, capacity, [10, 45, 2])),
    ("S3-FIFO, ghosts 180 %", |trace, capacity| s3(trace, capacity, [10, 180, 2])),
    ("S3-FIFO, ghosts 360 %", |trace, capacity| s3(trace, capacity, [10, 360, 2])),
    ("S3-FIFO, one hit, small 25 %, ghosts 180 %", |trace, capacity| s3(trace, capacity, [25, 180, 1])),
    ("W-TinyLFU, window 20 %", |trace, capacity| Box::new(TinyLfu::new(trace, capacity, 20))),
    ("W-TinyLFU, window 60 %", |trace, capacity| Box::new(TinyLfu::new(trace, capacity, 60))),
];

/// A table in Markdown: of every policy and variant, by how many percent it misses less often than LRU does.
pub fn table(requests: usize, objects: u64) -> String {
    let made = |shape| Trace::make(shape, requests, OBJECTS, 42);
    let traces: Vec<Trace> =
        GRID.iter().map(made).filter(|trace| trace.replacing != Replacing::Unknown).collect();
    let misses = |trace: &Trace, build: Build| run(trace, build(trace, objects).as_mut()).object_misses;
    let mut text = String::from("| fewer misses than LRU, percent |");
    traces.iter().for_each(|trace| _ = write!(text, " {} |", trace.name));
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(traces.len()));
    let lru = POLICIES.iter().find(|(name, _)| *name == "LRU").map_or(POLICIES[0].1, |(_, build)| *build);
    let bases: Vec<f64> = traces.iter().map(|trace| misses(trace, lru)).collect();
    for (name, build) in POLICIES.iter().chain(VARIANTS) {
        let _ = write!(text, "| {name} |");
        for (trace, base) in traces.iter().zip(&bases) {
            let _ = write!(text, " {:.1} |", 100.0 * (1.0 - misses(trace, *build) / base));
        }
        text.push('\n');
    }
    text
}

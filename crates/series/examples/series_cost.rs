//! Measures series: bytes a sample, and nanoseconds of CPU to add, to read and to aggregate.
//!
//! `cargo run --release -p darter-series --example series_cost`

use std::hint::black_box;

use darter_series::query::{BucketGaps, Buckets, SampleOrder, SeriesQuery, Stamp};
use darter_series::series::SeriesSettings;
use darter_series::{Aggregator, DuplicatePolicy, Sample, Series};
use darter_slab::Arena;

const SAMPLES: u64 = 10_000_000;
const STEP_MS: u64 = 10_000;

fn main() {
    for (name, value, jitter_ms) in [
        ("decimals", decimal as fn(u64) -> f64, 1),
        ("any floats", any_float as fn(u64) -> f64, 1),
        ("one value", |_| 42.0, 1),
        ("decimals at irregular times", decimal as fn(u64) -> f64, 1000),
        ("any floats at irregular times", any_float as fn(u64) -> f64, 1000),
    ] {
        let mut arena = Arena::with_reserve(1 << 30).expect("address space");
        let mut series = Series::new(SeriesSettings::default());
        let began = cpu_nanos();
        for n in 0..SAMPLES {
            let time = 1_700_000_000_000 + n * STEP_MS + mixed(n) % jitter_ms;
            let sample = Sample::new(time, value(n));
            series.add(&mut arena, sample, DuplicatePolicy::Block).expect("newer");
        }
        let added = (cpu_nanos() - began) / SAMPLES as f64;
        let bytes = series.memory_bytes() as f64 / SAMPLES as f64;
        println!("{name}: {bytes:.3} bytes a sample, {added:.0} ns to add one");
        for (bucket, kind, samples_per_bucket) in [
            ("a week", Aggregator::Avg, 60_480),
            ("a day", Aggregator::Twa, 8_640),
            ("an hour", Aggregator::Max, 360),
            ("a minute", Aggregator::Sum, 6),
        ] {
            let buckets = Buckets {
                kinds: vec![kind],
                ms: samples_per_bucket * STEP_MS,
                align_ms: 0,
                stamp: Stamp::Start,
                gaps: BucketGaps::Skipped,
            };
            let query = SeriesQuery {
                order: SampleOrder::Up,
                buckets: Some(buckets),
                ..SeriesQuery::new(0, u64::MAX)
            };
            let began = cpu_nanos();
            let rows = black_box(query.run(&series, &arena)).expect("few rows").len();
            let rate = SAMPLES as f64 / (cpu_nanos() - began) * 1e3;
            println!("  {} by {bucket}: {rows} rows, {rate:.0} million samples a second", kind.name());
        }
        let began = cpu_nanos();
        let rows = black_box(SeriesQuery::new(0, u64::MAX).run(&series, &arena)).expect("rows").len();
        println!("  all samples: {:.0} million a second", rows as f64 / (cpu_nanos() - began) * 1e3);
    }
}

fn mixed(n: u64) -> u64 {
    let mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A temperature with one decimal.
fn decimal(n: u64) -> f64 {
    (200 + mixed(n / 50) % 50 + mixed(n) % 10) as f64 / 10.0
}

/// A float of random bits.
fn any_float(n: u64) -> f64 {
    f64::from_bits(mixed(n) >> 2 | 1 << 52)
}

/// CPU of this process so far, nanoseconds.
fn cpu_nanos() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0.0)
}

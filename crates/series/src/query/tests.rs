use proptest::prelude::*;

use super::*;
use crate::sample::DuplicatePolicy;
use crate::series::SeriesSettings;

fn series(samples: &[(u64, f64)]) -> (Series, Arena) {
    let mut arena = Arena::with_reserve(16 << 20).expect("address space");
    let mut series = Series::new(SeriesSettings::default());
    for &(time, value) in samples {
        series.add(&mut arena, Sample::new(time, value), DuplicatePolicy::Last).expect("room");
    }
    (series, arena)
}

fn buckets(kinds: &[Aggregator], ms: u64) -> Buckets {
    Buckets { kinds: kinds.to_vec(), ms, align_ms: 0, stamp: Stamp::Start, gaps: BucketGaps::Skipped }
}

fn run(query: &SeriesQuery, samples: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let (series, arena) = series(samples);
    let rows = query.run(&series, &arena).expect("few");
    rows.iter().map(|(time, numbers)| (time, numbers[0])).collect()
}

const STOCK: [(u64, f64); 9] = [
    (1000, 100.0),
    (1010, 110.0),
    (1020, 120.0),
    (2000, 200.0),
    (2010, 210.0),
    (2020, 220.0),
    (3000, 300.0),
    (3010, 310.0),
    (3020, 320.0),
];

/// The example of the docs of TS.RANGE.
#[test]
fn buckets_begin_where_they_are_aligned() {
    let mut query =
        SeriesQuery { buckets: Some(buckets(&[Aggregator::Min], 20)), ..SeriesQuery::new(0, u64::MAX) };
    let expected = [(1000, 100.0), (1020, 120.0), (2000, 200.0), (2020, 220.0), (3000, 300.0), (3020, 320.0)];
    assert_eq!(run(&query, &STOCK), expected);
    query.buckets.as_mut().expect("set").align_ms = 10;
    let expected = [(990, 100.0), (1010, 110.0), (1990, 200.0), (2010, 210.0), (2990, 300.0), (3010, 310.0)];
    assert_eq!(run(&query, &STOCK), expected);
    query.order = SampleOrder::Down;
    query.count = Some(2);
    assert_eq!(run(&query, &STOCK), [(3010, 310.0), (2990, 300.0)]);
    query.buckets.as_mut().expect("set").stamp = Stamp::Mid;
    assert_eq!(run(&query, &STOCK), [(3020, 310.0), (3000, 300.0)]);
}

#[test]
fn filters_take_times_and_values() {
    let mut query = SeriesQuery { values: Some((110.0, 300.0)), ..SeriesQuery::new(0, 2999) };
    let expected = [(1010, 110.0), (1020, 120.0), (2000, 200.0), (2010, 210.0), (2020, 220.0)];
    assert_eq!(run(&query, &STOCK), expected);
    query.times = Some(vec![1000, 1020, 2010, 2015]);
    assert_eq!(run(&query, &STOCK), [(1020, 120.0), (2010, 210.0)]);
    query.order = SampleOrder::Down;
    query.latest = Some(Sample::new(2015, 222.0));
    assert_eq!(run(&query, &STOCK), [(2015, 222.0), (2010, 210.0), (1020, 120.0)]);
}

#[test]
fn empty_buckets_are_filled_between_samples() {
    let samples = [(100, 1.0), (150, 3.0), (400, 8.0)];
    let with = |kind, from, to| {
        let mut all = buckets(&[kind], 100);
        all.gaps = BucketGaps::Filled;
        run(&SeriesQuery { buckets: Some(all), ..SeriesQuery::new(from, to) }, &samples)
    };
    assert_eq!(with(Aggregator::Sum, 0, 1000), [(100, 4.0), (200, 0.0), (300, 0.0), (400, 8.0)]);
    assert_eq!(with(Aggregator::Last, 0, 1000), [(100, 3.0), (200, 3.0), (300, 3.0), (400, 8.0)]);
    assert_eq!(with(Aggregator::Last, 200, 399), [(200, 3.0), (300, 3.0)]);
    assert!(with(Aggregator::Avg, 0, 350).iter().skip(1).all(|(_, number)| number.is_nan()));
    // The line from 3 at 150 to 8 at 400.
    let twa = with(Aggregator::Twa, 0, 1000);
    assert_eq!(twa[1], (200, 5.0));
    assert_eq!(twa[2], (300, 7.0));
}

#[test]
fn means_by_time_use_neighbours() {
    let samples = [(0, 0.0), (100, 10.0), (200, 20.0)];
    let query = SeriesQuery { buckets: Some(buckets(&[Aggregator::Twa], 100)), ..SeriesQuery::new(0, 1000) };
    assert_eq!(run(&query, &samples), [(0, 5.0), (100, 15.0), (200, 20.0)]);
    let query = SeriesQuery { buckets: Some(buckets(&[Aggregator::Twa], 100)), ..SeriesQuery::new(50, 150) };
    assert_eq!(run(&query, &samples), [(100, 12.5)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn rows_are_those_of_a_naive_walk(
        samples in prop::collection::btree_map(0..3_000_u64, -50..50_i32, 1..300),
        ms in 1..500_u64,
        align_ms in 0..600_u64,
        from in 0..2_000_u64,
        len in 0..3_000_u64,
    ) {
        let samples: Vec<(u64, f64)> = samples.into_iter().map(|(time, value)| (time, f64::from(value))).collect();
        let kinds = [Aggregator::Sum, Aggregator::Min, Aggregator::Last, Aggregator::CountAll];
        let all = Buckets { align_ms, ..buckets(&kinds, ms) };
        let query = SeriesQuery { buckets: Some(all), ..SeriesQuery::new(from, from + len) };
        let (series, arena) = series(&samples);
        let rows = query.run(&series, &arena).expect("few");
        let mut expected: Vec<(u64, Vec<f64>)> = Vec::new();
        let mut last_start = i128::MIN;
        for (time, value) in samples.into_iter().filter(|(time, _)| (from..=from + len).contains(time)) {
            let start = raw_start(time, ms, align_ms);
            if start != last_start {
                expected.push((clamp(start), vec![0.0, f64::MAX, 0.0, 0.0]));
                last_start = start;
            }
            let row = &mut expected.last_mut().expect("pushed").1;
            row[0] += value;
            row[1] = row[1].min(value);
            row[2] = value;
            row[3] += 1.0;
        }
        let rows: Vec<(u64, Vec<f64>)> = rows.iter().map(|(time, numbers)| (time, numbers.to_vec())).collect();
        prop_assert_eq!(rows, expected);
    }
}

/// A filter that takes every value has each sample read.
#[test]
fn blocks_taken_whole_count_as_their_samples() {
    let value = |n: u64| match n {
        30_000..30_010 => f64::NAN,
        40_000..45_000 => f64::MAX / 1e3,
        _ => (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as f64 - 500_000.0,
    };
    let samples: Vec<(u64, f64)> = (0..60_000u64).map(|n| (n * 7 + n / 10_000 * 900_000, value(n))).collect();
    let (series, arena) = series(&samples);
    for ms in [333, 7_056, 50_000, 1_000_000, 10_000_000] {
        for (gaps, order) in [(BucketGaps::Skipped, SampleOrder::Up), (BucketGaps::Filled, SampleOrder::Down)]
        {
            for count in [None, Some(3)] {
                let all = Buckets { gaps, align_ms: 11, ..buckets(&Aggregator::ALL, ms) };
                let query =
                    SeriesQuery { order, count, buckets: Some(all), ..SeriesQuery::new(500, 5_000_000) };
                let read = SeriesQuery { values: Some((f64::MIN, f64::MAX)), ..query.clone() };
                let (rows, read) = (query.run(&series, &arena), read.run(&series, &arena));
                let (rows, read) = (rows.expect("few rows"), read.expect("few rows"));
                assert_eq!(rows.times, read.times, "{ms}");
                for (at, (a, b)) in rows.numbers.iter().zip(&read.numbers).enumerate() {
                    let kind = Aggregator::ALL[at % Aggregator::ALL.len()];
                    // The filter takes no NaN.
                    let is_other = matches!(kind, Aggregator::CountNan | Aggregator::CountAll);
                    let is_near = a == b || a.is_nan() == b.is_nan() && (a - b).abs() <= a.abs() * 1e-9;
                    assert!(is_other || is_near || !(a - b).is_finite(), "{kind:?} by {ms}: {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn steps_yield_the_rows_of_one_run() {
    let samples: Vec<(u64, f64)> = (0..30_000u64)
        .map(|n| (n * 7 + n / 1000 * 900, if n % 53 == 0 { f64::NAN } else { n as f64 }))
        .collect();
    let (series, arena) = series(&samples);
    for order in [SampleOrder::Up, SampleOrder::Down] {
        for count in [None, Some(1), Some(4000), Some(20_000)] {
            for buckets in [
                None,
                Some(buckets(&[Aggregator::Avg, Aggregator::Count], 333)),
                Some(buckets(&[Aggregator::Twa], 50_000)),
            ] {
                let gaps = |mut buckets: Buckets| {
                    buckets.gaps = BucketGaps::Filled;
                    buckets
                };
                for buckets in [buckets.clone(), buckets.map(gaps)] {
                    let query = SeriesQuery { order, count, buckets, ..SeriesQuery::new(500, 200_000) };
                    let whole = query.run(&series, &arena).expect("few rows");
                    let (mut running, mut rows) = (QueryProgress::default(), SampleRows::default());
                    loop {
                        let is_done = query.step(&mut running, &series, &arena).expect("few rows");
                        let part = running.take();
                        rows.width = part.width;
                        rows.times.extend(part.times);
                        rows.numbers.extend(part.numbers);
                        if is_done {
                            break;
                        }
                    }
                    if query.is_backwards() {
                        rows.reverse();
                        rows.truncate(count.unwrap_or(usize::MAX));
                    }
                    assert_eq!(rows.times, whole.times, "{query:?}");
                    assert!(rows.numbers.iter().zip(&whole.numbers).all(|(a, b)| a.to_bits() == b.to_bits()));
                }
            }
        }
    }
    let naive: Vec<u64> =
        samples.iter().map(|sample| sample.0).filter(|time| (500..=200_000).contains(time)).collect();
    assert_eq!(SeriesQuery::new(500, 200_000).run(&series, &arena).expect("few rows").times, naive);
}

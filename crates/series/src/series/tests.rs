use std::collections::BTreeMap;

use darter_base::fields::Field;
use proptest::prelude::*;

use super::*;
use crate::file::CrossReferences;

fn arena() -> Arena {
    Arena::with_reserve(64 << 20).expect("address space")
}

fn all(series: &Series, arena: &Arena) -> Vec<(u64, u64)> {
    let mut samples = Vec::new();
    series.each(arena, 0, u64::MAX, &mut |sample| {
        samples.push((sample.time, sample.value.to_bits()));
        true
    });
    samples
}

#[derive(Clone, Debug)]
enum Step {
    Add(u64, f64, DuplicatePolicy),
    Next(u64, f64, usize),
    Remove(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let policy = || prop::sample::select(DuplicatePolicy::ALL.to_vec());
    let value = || (-500..500_i32).prop_map(|n| f64::from(n) / 10.0);
    prop_oneof![
        3 => (0..5_000_u64, value(), policy()).prop_map(|(time, value, policy)| Step::Add(time, value, policy)),
        3 => (1..20_u64, value(), 1..200_usize).prop_map(|(gap, value, n)| Step::Next(gap, value, n)),
        1 => (0..5_000_u64, 0..1_000_u64).prop_map(|(from, len)| Step::Remove(from, from + len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_series_is_a_sorted_map(steps in prop::collection::vec(step(), 1..60)) {
        let mut arena = arena();
        let mut series = Series::new(SeriesSettings::default());
        let mut exact: BTreeMap<u64, f64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add(time, value, policy) => {
                    let expected = match exact.get(&time) {
                        Some(&old) => policy.combine(old, value).ok(),
                        None => Some(value),
                    };
                    let done = series.add(&mut arena, Sample::new(time, value), policy);
                    prop_assert_eq!(done.is_ok(), expected.is_some());
                    if let Some(value) = expected {
                        exact.insert(time, value);
                    }
                }
                Step::Next(gap, value, n) => {
                    for _ in 0..n {
                        let time = exact.last_key_value().map_or(0, |(time, _)| time + gap);
                        series.add(&mut arena, Sample::new(time, value), DuplicatePolicy::Block).expect("newer");
                        exact.insert(time, value);
                    }
                }
                Step::Remove(from, to) => {
                    let gone = exact.range(from..=to).count() as u64;
                    prop_assert_eq!(series.remove(&mut arena, from, to), Ok(gone));
                    exact.retain(|time, _| !(from..=to).contains(time));
                }
            }
        }
        let expected: Vec<(u64, u64)> = exact.iter().map(|(time, value)| (*time, value.to_bits())).collect();
        prop_assert_eq!(all(&series, &arena), &expected[..]);
        prop_assert_eq!(series.len(), expected.len() as u64);
        prop_assert_eq!(series.newest().map(|newest| newest.time), exact.last_key_value().map(|(time, _)| *time));
        let mut reversed = Vec::new();
        series.each_reversed(&arena, 100, 3_000, &mut |sample| {
            reversed.push(sample.time);
            true
        });
        let within: Vec<u64> = exact.range(100..=3_000).map(|(time, _)| *time).rev().collect();
        prop_assert_eq!(reversed, within);
        for is_uncompressed in [false, true] {
            series.settings.is_uncompressed = is_uncompressed;
            let mut fields: Vec<Field> = Vec::new();
            series.save(CrossReferences::Kept, &arena, &mut fields);
            let mut loaded = Series::load(&mut fields.iter(), crate::VERSION, &mut arena).expect("its own fields");
            prop_assert_eq!(all(&loaded, &arena), &expected[..]);
            while !loaded.free_step(&mut arena, 2) {}
        }
        while !series.free_step(&mut arena, 1) {}
        prop_assert_eq!(arena.used_bytes(), 0);
    }
}

#[test]
fn the_retention_drops_old_samples() {
    let mut arena = arena();
    let mut series = Series::new(SeriesSettings { retention_ms: 1000, ..SeriesSettings::default() });
    for n in 0..10_000 {
        series.add(&mut arena, Sample::new(n * 10, n as f64), DuplicatePolicy::Block).expect("newer");
    }
    let kept = all(&series, &arena);
    assert_eq!((kept.len(), kept[0].0), (101, 98_990));
    assert!(series.len() < 1400, "{}", series.len());
    let old = series.add(&mut arena, Sample::new(98_000, 1.0), DuplicatePolicy::Last);
    assert_eq!(old, Err(AddFault::TooOld));
    assert_eq!(series.add(&mut arena, Sample::new(98_995, 1.0), DuplicatePolicy::Last), Ok(Added::Upserted));
}

#[test]
fn near_samples_are_ignored() {
    let mut arena = arena();
    let settings = SeriesSettings { ignore_ms: 10, ignore_value: 1.0, ..SeriesSettings::default() };
    let mut series = Series::new(settings);
    let mut add = |time, value| series.add(&mut arena, Sample::new(time, value), DuplicatePolicy::Last);
    assert_eq!(add(100, 5.0), Ok(Added::Appended));
    assert_eq!(add(105, 5.5), Ok(Added::Ignored));
    assert_eq!(add(105, 7.0), Ok(Added::Appended));
    assert_eq!(add(120, 7.0), Ok(Added::Appended));
}

/// The goal is 1.2 bytes a sample for regular times and decimals.
#[test]
fn a_sample_takes_about_a_byte() {
    let mut arena = arena();
    let mut series = Series::new(SeriesSettings::default());
    let mut value = 250_i64;
    for n in 0..100_000_u64 {
        value += (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as i64 % 5 - 2;
        series
            .add(&mut arena, Sample::new(n * 1000, value as f64 / 10.0), DuplicatePolicy::Block)
            .expect("newer");
    }
    let per_sample = series.memory_bytes() as f64 / 100_000.0;
    assert!(per_sample < 1.2, "{per_sample}");
}

/// The goal is 8.2 bytes a sample for values that nothing can make smaller.
#[test]
fn a_sample_of_any_value_takes_little_more_than_its_value() {
    let mut arena = Arena::with_reserve(64 << 20).expect("address space");
    let mut series = Series::new(SeriesSettings::default());
    for n in 0..200_000_u64 {
        let value = f64::from_bits(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2 | 1 << 52);
        series.add(&mut arena, Sample::new(n * 1000, value), DuplicatePolicy::Block).expect("newer");
    }
    let per_sample = series.memory_bytes() as f64 / 200_000.0;
    assert!(per_sample < 8.2, "{per_sample}");
}

use darter_base::fields::Field;
use proptest::prelude::*;

use super::*;

fn of(values: impl IntoIterator<Item = f64>) -> Digest {
    let mut digest = Digest::new(100).expect("valid");
    values.into_iter().for_each(|value| digest.add(value, 1).expect("few"));
    digest.compress().expect("few");
    digest
}

#[test]
fn few_values_are_answered_exactly() {
    let digest = of([1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0]);
    // The examples of the docs of TDIGEST.RANK, BYRANK and QUANTILE.
    let ranks: Vec<i64> = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|value| digest.rank(value)).to_vec();
    assert_eq!(ranks, [-1, 0, 2, 4, 8, 12, 15]);
    let reverse: Vec<i64> =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|value| digest.reverse_rank(value)).to_vec();
    assert_eq!(reverse, [15, 14, 13, 10, 7, 2, -1]);
    let by_rank: Vec<f64> = (0..=15).map(|rank| digest.at_rank(f64::from(rank))).collect();
    let sorted = [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0, f64::INFINITY];
    assert_eq!(by_rank, sorted);
    let quantiles = digest.quantiles(&[0.0, 0.1, 0.5, 0.9, 1.0, 0.5]);
    assert_eq!(quantiles, [1.0, 2.0, 4.0, 5.0, 5.0, 4.0]);
}

#[test]
fn an_empty_digest_has_answers() {
    let digest = Digest::new(100).expect("valid");
    assert!(
        digest.quantile(0.5).is_nan() && digest.cdf(1.0).is_nan() && digest.trimmed_mean(0.1, 0.9).is_nan()
    );
    assert_eq!((digest.rank(1.0), digest.reverse_rank(1.0)), (-2, -2));
    assert!(digest.at_rank(0.0).is_nan() && digest.at_reverse_rank(3.0).is_nan());
    assert!(Digest::new(0).is_err() && Digest::new(COMPRESSION_MAX + 1).is_err());
    assert_eq!(digest.capacity(), 610);
}

#[test]
fn quantiles_of_many_values_are_near() {
    let digest = of((0..100_000).map(|n| f64::from(n * 7919 % 100_000)));
    for q in [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999] {
        let value = digest.quantile(q);
        let allowed = 2_000.0 * (q * (1.0 - q)).sqrt() + 20.0;
        assert!((value - q * 100_000.0).abs() < allowed, "{q}: {value}");
        assert!((digest.cdf(value) - q).abs() < 0.01, "{q}");
    }
    let mean = digest.trimmed_mean(0.1, 0.9);
    assert!((mean - 50_000.0).abs() < 500.0, "{mean}");
    assert!(digest.nodes().0 < 200, "{:?}", digest.nodes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn weights_and_ends_are_kept_and_files_too(
        values in prop::collection::vec(-1000.0..1000.0_f64, 1..3000),
        compression in 1..200_u64,
    ) {
        let mut digest = Digest::new(compression).expect("valid");
        values.iter().for_each(|value| digest.add(*value, 1).expect("few"));
        let mut fields: Vec<Field> = Vec::new();
        digest.save(&mut fields);
        let mut loaded = Digest::load(&mut fields.iter(), VERSION).expect("its own fields");
        digest.compress().expect("few");
        let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
        prop_assert_eq!((digest.min(), digest.max(), digest.len()), (min, max, values.len() as i64));
        let mut last = f64::NEG_INFINITY;
        for n in 0..=20 {
            let q = f64::from(n) / 20.0;
            let value = digest.quantile(q);
            prop_assert!(value >= min && value <= max && value >= last - 1e-9, "{} {} {}", q, value, last);
            prop_assert_eq!(value, loaded.quantile(q));
            last = value;
        }
        loaded.merge(&digest).expect("few");
        prop_assert_eq!(loaded.len(), 2 * values.len() as i64);
    }
}

#[test]
fn a_digest_takes_no_more_than_it_can_hold() {
    for compression in [1, 20, 100, 1000] {
        let mut digest = Digest::new(compression).expect("valid");
        (0..20_000).for_each(|n| digest.add(f64::from(n * 7919 % 9973), 1).expect("small"));
        assert_eq!(digest.memory_bytes() as u64, bytes_of(compression), "{compression}");
    }
}

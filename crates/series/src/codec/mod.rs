//! The bytes of a sealed block: its times, then its values, each in the form that is smallest for them.

mod times;
mod values;

use crate::sample::Sample;

/// Samples of a block at most: with eight bytes each, their head and their times, they fill 8 KiB.
pub(crate) const SAMPLES_MAX: usize = 1008;

/// The compression of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    /// They are.
    Small,
    /// They stay unchanged: the client asked for chunks without compression.
    Plain,
}

/// Writes `samples`, which are sorted by time without repetition and not empty.
pub(crate) fn encode(samples: &[Sample], packing: Packing, out: &mut Vec<u8>) {
    times::encode(samples, out);
    match packing {
        Packing::Small => values::encode(samples, out),
        Packing::Plain => values::encode_plain(samples, out),
    }
}

/// Replaces `out` by the samples of a block; the first has time `first`.
pub(crate) fn decode(mut bytes: &[u8], first: u64, count: usize, out: &mut Vec<Sample>) {
    out.clear();
    out.resize(count, Sample { time: first, value: 0.0 });
    // Blocks are made only by `encode`. A block that does not decode is a defect, and stays zero.
    let done = times::decode(&mut bytes, out).and_then(|()| values::decode(&mut bytes, out));
    debug_assert!(done.is_some(), "a block does not decode");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn back(samples: &[Sample]) -> usize {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        encode(samples, Packing::Plain, &mut bytes);
        decode(&bytes, samples[0].time, samples.len(), &mut out);
        assert!(samples.iter().zip(&out).all(|(a, b)| a.value.to_bits() == b.value.to_bits()));
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        encode(samples, Packing::Small, &mut bytes);
        decode(&bytes, samples[0].time, samples.len(), &mut out);
        for (a, b) in samples.iter().zip(&out) {
            assert_eq!((a.time, a.value.to_bits()), (b.time, b.value.to_bits()));
        }
        bytes.len()
    }

    fn regular(value: impl Fn(u64) -> f64) -> Vec<Sample> {
        (0..1024).map(|n| Sample::new(1_700_000_000_000 + n * 10_000, value(n))).collect()
    }

    #[test]
    fn usual_series_are_small() {
        let noise = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 100;
        for (name, samples, bytes_max) in [
            ("constant", regular(|_| 42.0), 32),
            ("counter", regular(|n| n as f64 * 3.0), 64),
            ("percent", regular(|n| 40.0 + noise(n) as f64 / 10.0), 1024),
            ("temperature", regular(|n| (210 + n / 50 + noise(n) % 3) as f64 / 10.0), 512),
            ("random floats", regular(|n| (n as f64).sin()), 8 * 1024 + 40),
            ("some NaN", regular(|n| if n % 100 == 0 { f64::NAN } else { n as f64 }), 400),
        ] {
            let bytes = back(&samples);
            assert!(bytes <= bytes_max, "{name}: {bytes}");
        }
        let mut jitter = regular(|_| 1.0);
        jitter.iter_mut().enumerate().for_each(|(n, sample)| sample.time += noise(n as u64) / 7);
        jitter.iter_mut().skip(500).for_each(|sample| sample.time += 3_600_000);
        let bytes = back(&jitter);
        assert!(bytes < 700, "jitter and a gap: {bytes}");
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            (-1_000_000..1_000_000_i64).prop_map(|n| n as f64 / 100.0),
            any::<f64>().prop_map(|value| Sample::new(0, value).value),
            Just(-0.0),
            Just(f64::INFINITY),
            any::<i64>().prop_map(|n| n as f64),
        ]
    }

    proptest! {
        #[test]
        fn samples_come_back(
            steps in prop::collection::vec((prop_oneof![1..3_u64, 1..1_000_000_u64, Just(60_000)], value()), 1..300),
            start in prop_oneof![Just(0_u64), any::<u32>().prop_map(u64::from)],
        ) {
            let mut time = start;
            let samples: Vec<Sample> = steps.iter().map(|&(step, value)| {
                time += step;
                Sample::new(time, value)
            }).collect();
            prop_assert!(back(&samples) <= 18 * samples.len() + 40);
        }
    }
}

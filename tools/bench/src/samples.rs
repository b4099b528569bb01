//! What the rounds of a row gave per server, and the medians over them.

use crate::load::Measured;
use crate::usage::Cpu;

/// One server in one round of one row.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations per second.
    pub ops_per_second: f64,
    /// Latencies in microseconds: median, 99 %, 99.9 %.
    pub latency_us: [f64; 3],
    /// Server CPU per operation in microseconds, user and system of all threads.
    pub cpu_us: f64,
    /// The system share of it, 0..=1.
    pub system_share: f64,
}

impl Sample {
    /// Derives a sample from what the client and /proc saw.
    pub fn new(measured: &Measured, cpu: &Cpu) -> Self {
        let us = |fraction| measured.latency.quantile(fraction).as_secs_f64() * 1e6;
        let both = (cpu.user + cpu.system).as_secs_f64();
        Self {
            ops_per_second: measured.ops_per_second(),
            latency_us: [us(0.5), us(0.99), us(0.999)],
            cpu_us: cpu.total.as_secs_f64() * 1e6 / measured.ops.max(1) as f64,
            system_share: if both > 0.0 { cpu.system.as_secs_f64() / both } else { 0.0 },
        }
    }
}

/// One server's rounds of one row.
#[derive(Clone, Debug)]
pub struct Series {
    /// The server's name in the table.
    pub server: String,
    /// One entry per round; the text says why a round has no sample.
    pub rounds: Vec<Result<Sample, String>>,
}

impl Series {
    /// A figure of each round that has a sample.
    pub fn figures(&self, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.rounds.iter().flatten().map(figure).collect()
    }

    /// This server's CPU per operation over that of `base`, round by round.
    pub fn cpu_ratios_to(&self, base: &Self) -> Vec<f64> {
        let pairs = self.rounds.iter().zip(&base.rounds);
        pairs
            .filter_map(|(mine, other)| Some(mine.as_ref().ok()?.cpu_us / other.as_ref().ok()?.cpu_us))
            .collect()
    }

    /// Why rounds are missing, without repeats.
    pub fn faults(&self) -> Vec<&str> {
        let mut faults: Vec<&str> =
            self.rounds.iter().filter_map(|r| r.as_ref().err().map(String::as_str)).collect();
        faults.dedup();
        faults
    }
}

/// Least, middle and greatest of some figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The middle one; the mean of the two middle ones when there is an even number.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// `None` for no figures.
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let half = figures.len() / 2;
        let median =
            if figures.len() % 2 == 1 { figures[half] } else { (figures[half - 1] + figures[half]) / 2.0 };
        Some(Self { min, median, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_odd_even_and_none() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of(vec![1.0, 2.0]).map(|s| s.median), Some(1.5));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn ratios_pair_the_same_round() {
        let sample = |cpu_us| Sample { ops_per_second: 1.0, latency_us: [0.0; 3], cpu_us, system_share: 0.0 };
        let redis = Series {
            server: "redis".into(),
            rounds: vec![Ok(sample(2.0)), Err("x".into()), Ok(sample(4.0))],
        };
        let darter = Series {
            server: "darter".into(),
            rounds: vec![Ok(sample(1.0)), Ok(sample(9.0)), Ok(sample(1.0))],
        };
        assert_eq!(darter.cpu_ratios_to(&redis), [0.5, 0.25]);
    }
}

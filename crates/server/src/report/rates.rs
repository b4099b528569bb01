//! Rates per second over the last one and a half seconds, sampled by thread 0 as housekeeping.

use std::time::{Duration, Instant};

use super::ReportTotals;
use super::trend::{Point, Trend};
use crate::clock::unix_ms;
use crate::shared::Shared;
use crate::sync::lock;

/// Samples remembered.
const LEN: usize = 16;
/// The least time between two samples.
const PERIOD: Duration = Duration::from_millis(100);

/// Per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Commands.
    pub commands: f64,
    /// Bytes received.
    pub input_bytes: f64,
    /// Bytes sent.
    pub output_bytes: f64,
    /// Bytes received from the master.
    pub master_bytes: f64,
    /// Bytes sent to replicas.
    pub replica_bytes: f64,
    /// Turns of the loops.
    pub turns: f64,
    /// Microseconds of a turn.
    pub turn_us: f64,
}

/// The last samples.
#[derive(Debug, Default)]
pub struct RateHistory {
    before: Option<(Instant, ReportTotals)>,
    samples: Vec<Rates>,
    next: usize,
    second_began: Option<(Instant, ReportTotals)>,
    trend: Trend,
}

impl RateHistory {
    /// Takes a sample if it is time. Cost: the counters of every command of every thread.
    pub fn sample(shared: &Shared) {
        let mut history = lock(&shared.history);
        let now = Instant::now();
        if history.before.as_ref().is_none_or(|(at, _)| now.duration_since(*at) >= PERIOD) {
            let totals = ReportTotals::of(shared);
            history.add_second(now, &totals, (unix_ms(), shared.limit.keyspace_bytes()));
            history.add(now, totals);
        }
    }

    fn add_second(&mut self, now: Instant, totals: &ReportTotals, (at_ms, data_bytes): (u64, u64)) {
        let Some((began, before)) = &self.second_began else {
            self.second_began = Some((now, totals.clone()));
            return;
        };
        let seconds = now.duration_since(*began).as_secs_f64();
        if seconds < 1.0 {
            return;
        }
        let per_second = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as f32;
        self.trend.add(Point {
            at_ms,
            commands: per_second(totals.commands, before.commands),
            input_bytes: per_second(totals.input_bytes, before.input_bytes),
            output_bytes: per_second(totals.output_bytes, before.output_bytes),
            data_bytes,
        });
        self.second_began = Some((now, totals.clone()));
    }

    /// Load and memory of the last 24 hours.
    pub fn trend(&self) -> &Trend {
        &self.trend
    }

    /// Restarts the rates after the counters were reset. The trend stays.
    pub fn restart(&mut self) {
        let trend = std::mem::take(&mut self.trend);
        *self = RateHistory { trend, ..RateHistory::default() };
    }

    fn add(&mut self, now: Instant, totals: ReportTotals) {
        if let Some((at, before)) = &self.before {
            let seconds = now.duration_since(*at).as_secs_f64();
            let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            let turns = totals.lively_turns.saturating_sub(before.lively_turns);
            let sample = Rates {
                commands: per_second(totals.commands, before.commands),
                input_bytes: per_second(totals.input_bytes, before.input_bytes),
                output_bytes: per_second(totals.output_bytes, before.output_bytes),
                master_bytes: per_second(totals.master_bytes, before.master_bytes),
                replica_bytes: per_second(totals.replica_bytes, before.replica_bytes),
                turns: per_second(totals.lively_turns, before.lively_turns),
                turn_us: totals.busy_us.saturating_sub(before.busy_us) as f64 / turns.max(1) as f64,
            };
            match self.samples.get_mut(self.next) {
                Some(place) => *place = sample,
                None => self.samples.push(sample),
            }
            self.next = (self.next + 1) % LEN;
        }
        self.before = Some((now, totals));
    }

    /// The average of the samples.
    pub fn rates(&self) -> Rates {
        let average = |of: fn(&Rates) -> f64| {
            self.samples.iter().map(of).sum::<f64>() / self.samples.len().max(1) as f64
        };
        Rates {
            commands: average(|rates| rates.commands),
            input_bytes: average(|rates| rates.input_bytes),
            output_bytes: average(|rates| rates.output_bytes),
            master_bytes: average(|rates| rates.master_bytes),
            replica_bytes: average(|rates| rates.replica_bytes),
            turns: average(|rates| rates.turns),
            turn_us: average(|rates| rates.turn_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_is_kept_also_when_rates_start_again() {
        let mut history = RateHistory::default();
        let start = Instant::now();
        for n in 0..2500u64 {
            let totals = ReportTotals { commands: n * 50, ..ReportTotals::default() };
            history.add_second(start + Duration::from_millis(100 * n), &totals, (100 * n, n));
        }
        history.restart();
        let seconds: Vec<Point> = history.trend().tiers()[0].points().copied().collect();
        assert_eq!(seconds.len(), 249);
        assert!(seconds.iter().all(|second| (second.commands - 500.0).abs() < 1.0));
        assert_eq!(seconds.last().map(|second| (second.at_ms, second.data_bytes)), Some((249_000, 2490)));
    }

    #[test]
    fn rates_are_averages_and_forget() {
        let mut history = RateHistory::default();
        let start = Instant::now();
        assert_eq!(history.rates(), Rates::default());
        for n in 0..=20u64 {
            let totals = ReportTotals { commands: n * 50, ..ReportTotals::default() };
            history.add(start + Duration::from_millis(100 * n), totals);
        }
        assert!((history.rates().commands - 500.0).abs() < 1.0);
        for n in 21..=36u64 {
            history.add(
                start + Duration::from_millis(100 * n),
                ReportTotals { commands: 1000, ..ReportTotals::default() },
            );
        }
        assert_eq!(history.rates().commands, 0.0);
    }
}

//! Events that took longer than `latency-monitor-threshold`: shown by LATENCY LATEST, HISTORY and DOCTOR.

use std::collections::BTreeMap;

/// Samples remembered of each event.
pub const SAMPLES: usize = 160;

/// One slow moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatencySample {
    /// When, Unix seconds.
    pub unix_s: u64,
    /// Duration in milliseconds; the longest within that second.
    pub ms: u64,
}

/// One kind of event.
#[derive(Clone, Debug, Default)]
pub struct LatencySeries {
    samples: std::collections::VecDeque<LatencySample>,
    /// The worst ever, milliseconds.
    pub max_ms: u64,
    /// All milliseconds added up, and how many times it happened.
    pub sum_ms: u64,
    /// Times it happened.
    pub count: u64,
}

impl LatencySeries {
    /// Samples, oldest first.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &LatencySample> {
        self.samples.iter()
    }

    /// The last sample.
    pub fn last(&self) -> Option<LatencySample> {
        self.samples.back().copied()
    }
}

/// All events by name.
#[derive(Debug, Default)]
pub struct Monitor {
    series: BTreeMap<&'static str, LatencySeries>,
}

impl Monitor {
    /// Notes that `event` took `ms` now.
    pub fn note(&mut self, event: &'static str, unix_s: u64, ms: u64) {
        let series = self.series.entry(event).or_default();
        series.max_ms = series.max_ms.max(ms);
        series.sum_ms = series.sum_ms.saturating_add(ms);
        series.count += 1;
        match series.samples.back_mut() {
            Some(last) if last.unix_s == unix_s => last.ms = last.ms.max(ms),
            _ => {
                if series.samples.len() == SAMPLES {
                    series.samples.pop_front();
                }
                series.samples.push_back(LatencySample { unix_s, ms });
            }
        }
    }

    /// Every event that happened.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &LatencySeries)> {
        self.series.iter().map(|(event, series)| (*event, series))
    }

    /// Number of kinds of events that happened.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// One event's samples.
    pub fn get(&self, event: &[u8]) -> Option<&LatencySeries> {
        self.series
            .iter()
            .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(event))
            .map(|(_, series)| series)
    }

    /// Forgets an event; returns whether it had happened.
    pub fn forget(&mut self, event: &[u8]) -> bool {
        let before = self.series.len();
        self.series.retain(|name, _| !name.as_bytes().eq_ignore_ascii_case(event));
        self.series.len() < before
    }

    /// Forgets everything; returns how many events had happened.
    pub fn clear(&mut self) -> usize {
        std::mem::take(&mut self.series).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_keeps_its_worst_and_old_ones_go() {
        let mut monitor = Monitor::default();
        monitor.note("command", 1, 5);
        monitor.note("command", 1, 9);
        monitor.note("command", 1, 7);
        assert_eq!(
            monitor.get(b"COMMAND").and_then(LatencySeries::last),
            Some(LatencySample { unix_s: 1, ms: 9 })
        );
        (2..200).for_each(|unix_s| monitor.note("command", unix_s, 1));
        let series = monitor.get(b"command").cloned().unwrap_or_default();
        assert_eq!((series.samples().len(), series.max_ms, series.count), (SAMPLES, 9, 201));
        assert!(monitor.forget(b"command") && !monitor.forget(b"command"));
        monitor.note("a", 1, 1);
        monitor.note("b", 1, 1);
        assert_eq!((monitor.clear(), monitor.is_empty()), (2, true));
    }
}

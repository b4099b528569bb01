//! Load and memory of the last 24 hours in bounded memory, for the console's charts.
//!
//! Each second for 15 minutes, each 10 s for 6 hours, each minute for 24 hours: at most 4,500 points of 32 bytes.

use std::collections::VecDeque;

/// Load and memory at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The end of the time that the point covers, Unix milliseconds.
    pub at_ms: u64,
    /// Commands per second.
    pub commands: f32,
    /// Bytes received per second.
    pub input_bytes: f32,
    /// Bytes sent per second.
    pub output_bytes: f32,
    /// Bytes of data.
    pub data_bytes: u64,
}

/// Points of one distance.
#[derive(Debug)]
pub struct Tier {
    /// Seconds between two points.
    pub seconds: u64,
    len_max: usize,
    points: VecDeque<Point>,
    /// The mean of the points of the unfinished slot, and their number.
    open: Option<(Point, u32)>,
}

impl Tier {
    const fn new(seconds: u64, len_max: usize) -> Tier {
        Tier { seconds, len_max, points: VecDeque::new(), open: None }
    }

    /// The points, oldest first. Without the unfinished slot.
    pub fn points(&self) -> impl ExactSizeIterator<Item = &Point> {
        self.points.iter()
    }

    fn add(&mut self, point: Point) {
        if self.seconds == 1 {
            return self.push(point);
        }
        let slot = |point: &Point| point.at_ms / 1000 / self.seconds;
        match &mut self.open {
            Some((mean, count)) if slot(mean) == slot(&point) => {
                *count += 1;
                let part = 1.0 / *count as f32;
                mean.at_ms = point.at_ms;
                mean.commands += (point.commands - mean.commands) * part;
                mean.input_bytes += (point.input_bytes - mean.input_bytes) * part;
                mean.output_bytes += (point.output_bytes - mean.output_bytes) * part;
                mean.data_bytes = point.data_bytes;
            }
            _ => {
                if let Some((mean, _)) = self.open.replace((point, 1)) {
                    self.push(mean);
                }
            }
        }
    }

    fn push(&mut self, point: Point) {
        if self.points.len() == self.len_max {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }
}

/// The last 24 hours.
#[derive(Debug)]
pub struct Trend([Tier; 3]);

impl Default for Trend {
    fn default() -> Trend {
        Trend([Tier::new(1, 900), Tier::new(10, 2160), Tier::new(60, 1440)])
    }
}

impl Trend {
    /// Adds the last second.
    pub fn add(&mut self, point: Point) {
        self.0.iter_mut().for_each(|tier| tier.add(point));
    }

    /// Points of every distance, the shortest first.
    pub fn tiers(&self) -> &[Tier] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_kept_in_three_distances() {
        let mut trend = Trend::default();
        let start_ms = 1_700_000_040_000;
        for second in 0..100_000u64 {
            let commands = (second % 10) as f32;
            trend.add(Point {
                at_ms: start_ms + second * 1000,
                commands,
                data_bytes: second,
                ..Point::default()
            });
        }
        let [seconds, tens, minutes] = trend.tiers() else { panic!("three tiers") };
        assert_eq!([seconds.points().len(), tens.points().len(), minutes.points().len()], [900, 2160, 1440]);
        assert_eq!(seconds.points().last().map(|point| point.data_bytes), Some(99_999));
        assert!(tens.points().chain(minutes.points()).all(|point| (point.commands - 4.5).abs() < 0.01));
        let times: Vec<u64> = minutes.points().map(|point| point.at_ms).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 60_000));
    }

    #[test]
    fn a_pause_stays_a_gap() {
        let mut trend = Trend::default();
        for at_ms in [1000, 2000, 95_000, 200_000] {
            trend.add(Point { at_ms, commands: 1.0, ..Point::default() });
        }
        let tens: Vec<u64> = trend.tiers()[1].points().map(|point| point.at_ms).collect();
        assert_eq!(tens, [2000, 95_000]);
    }
}

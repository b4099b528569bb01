//! Queries of a digest whose buffer has been merged: quantiles, the distribution function, trimmed means.

use super::{Centroid, Digest};

/// The position in a walk of ascending quantiles.
#[derive(Clone, Copy)]
struct CentroidWalk {
    at: usize,
    before: f64,
}

/// The weighted mean of two points, never outside them.
fn between(x: f64, x_weight: f64, y: f64, y_weight: f64) -> f64 {
    let ((low, low_weight), (high, high_weight)) =
        if x <= y { ((x, x_weight), (y, y_weight)) } else { ((y, y_weight), (x, x_weight)) };
    let mean = (low * low_weight + high * high_weight) / (low_weight + high_weight);
    low.max(mean.min(high))
}

impl Digest {
    fn weight_at(&self, at: usize) -> f64 {
        self.centroids.get(at).map_or(0.0, |centroid| centroid.weight as f64)
    }

    /// The first and the last centroid; `None` if there is none.
    fn ends(&self) -> Option<(Centroid, Centroid)> {
        Some((*self.centroids.first()?, *self.centroids.last()?))
    }

    /// The value below which the share `q` of all values lies; NaN if there is no value. The buffer must be merged.
    pub fn quantile(&self, q: f64) -> f64 {
        let Some((first, _)) = self.ends() else { return f64::NAN };
        let index = q * self.merged_weight as f64;
        match self.centroids.len() {
            1 => first.mean,
            _ if index < 1.0 => self.min,
            _ => self.value_at(index, &mut CentroidWalk { at: 0, before: first.weight as f64 / 2.0 }),
        }
    }

    /// The values at several quantiles; faster if they ascend. The buffer must be merged.
    pub fn quantiles(&self, quantiles: &[f64]) -> Vec<f64> {
        let Some((first, _)) = self.ends() else { return vec![f64::NAN; quantiles.len()] };
        if self.centroids.len() == 1 {
            return vec![first.mean; quantiles.len()];
        }
        let start = CentroidWalk { at: 0, before: first.weight as f64 / 2.0 };
        let (mut walk, mut last) = (start, f64::NEG_INFINITY);
        let mut value = |&q: &f64| {
            if q < last {
                walk = start;
            }
            last = q;
            self.value_at(q * self.merged_weight as f64, &mut walk)
        };
        quantiles.iter().map(&mut value).collect()
    }

    /// The value at rank `index`, between centroids by their weights. There are at least two centroids.
    fn value_at(&self, index: f64, walk: &mut CentroidWalk) -> f64 {
        let Some((first, last)) = self.ends() else { return f64::NAN };
        let total = self.merged_weight as f64;
        let (left, right) = (first.weight as f64, last.weight as f64);
        if left > 1.0 && index < left / 2.0 {
            // One value is the minimum itself.
            return self.min + (index - 1.0) / (left / 2.0 - 1.0) * (first.mean - self.min);
        }
        if index > total - 1.0 {
            return self.max;
        }
        if right > 1.0 && total - index <= right / 2.0 {
            return self.max - (total - index - 1.0) / (right / 2.0 - 1.0) * (self.max - last.mean);
        }
        while let (Some(low), Some(high)) = (self.centroids.get(walk.at), self.centroids.get(walk.at + 1)) {
            let step = (low.weight as f64 + high.weight as f64) / 2.0;
            if walk.before + step > index {
                return within(*low, *high, index - walk.before, step);
            }
            walk.before += step;
            walk.at += 1;
        }
        let beyond = index - total - right / 2.0;
        between(last.mean, beyond, self.max, right / 2.0 - beyond)
    }

    /// The share of values at or below `value`; NaN if there is no value. The buffer must be merged.
    pub fn cdf(&self, value: f64) -> f64 {
        let Some((first, last)) = self.ends() else { return f64::NAN };
        let total = self.merged_weight as f64;
        if value < self.min {
            return 0.0;
        }
        if value > self.max {
            return 1.0;
        }
        if self.centroids.len() == 1 {
            let width = self.max - self.min;
            return if value - self.min <= width { 0.5 } else { (value - self.min) / width };
        }
        if value < first.mean {
            return tail(value, self.min, first, total);
        }
        if value > last.mean {
            // The upper tail, mirrored.
            let mirrored = Centroid { mean: -last.mean, ..last };
            return 1.0 - tail(-value, -self.max, mirrored, total);
        }
        self.cdf_between(value, total)
    }

    /// [`Digest::cdf`] of a value that is not outside the means.
    fn cdf_between(&self, value: f64, total: f64) -> f64 {
        let mut before = 0.0;
        for (at, pair) in self.centroids.windows(2).enumerate() {
            let [low, high] = pair else { continue };
            if low.mean == value {
                let same = self.centroids.iter().skip(at).take_while(|centroid| centroid.mean == value);
                let weight: f64 = same.map(|centroid| centroid.weight as f64).sum();
                return (before + weight / 2.0) / total;
            }
            if low.mean <= value && value < high.mean {
                return (before + share(*low, *high, value)) / total;
            }
            before += low.weight as f64;
        }
        1.0 - 0.5 / total
    }

    /// The mean of the values between two quantiles; NaN if there are no values. The buffer must be merged.
    pub fn trimmed_mean(&self, low: f64, high: f64) -> f64 {
        if let [only] = self.centroids[..] {
            return only.mean;
        }
        let total = self.merged_weight as f64;
        let (from, to) = ((total * low).floor(), (total * high).ceil());
        let (mut done, mut sum, mut count) = (0.0, 0.0, 0.0);
        for at in 0..self.centroids.len() {
            let weight = self.weight_at(at);
            let mut part = weight;
            part -= (from - done).max(0.0).min(part);
            part = (to - done).max(0.0).min(part);
            done += weight;
            sum += self.centroids.get(at).map_or(0.0, |centroid| centroid.mean) * part;
            count += part;
            if done >= to {
                break;
            }
        }
        sum / count
    }

    /// Number of values below `value`, plus half of those equal to it; -2 without values, -1 below all. The buffer
    /// must be merged.
    pub fn rank(&self, value: f64) -> i64 {
        if self.is_empty() {
            -2
        } else if value < self.min {
            -1
        } else if value > self.max {
            self.len()
        } else {
            half_down(self.cdf(value) * self.len() as f64) as i64
        }
    }

    /// Number of values above `value`; -2 without values, -1 above all. The buffer must be merged.
    pub fn reverse_rank(&self, value: f64) -> i64 {
        if self.is_empty() {
            -2
        } else if value < self.min {
            self.len()
        } else if value > self.max {
            -1
        } else {
            let size = self.len() as f64;
            (size - (self.cdf(value) * size).round()).round() as i64
        }
    }

    /// The value with `rank` smaller ones; NaN if there is no value, infinite past the last. The buffer must be merged.
    pub fn at_rank(&self, rank: f64) -> f64 {
        let size = self.len() as f64;
        if size == 0.0 {
            f64::NAN
        } else if rank == 0.0 {
            self.min
        } else if rank >= size {
            f64::INFINITY
        } else {
            self.quantile(rank / size)
        }
    }

    /// The value with `rank` larger ones; NaN if there is no value, minus infinity past the last. The buffer must be
    /// merged.
    pub fn at_reverse_rank(&self, rank: f64) -> f64 {
        let size = self.len() as f64;
        if size == 0.0 {
            f64::NAN
        } else if rank == 0.0 {
            self.max
        } else if rank >= size {
            f64::NEG_INFINITY
        } else {
            self.quantile((size - rank - 1.0) / size)
        }
    }
}

/// The value `index` after the middle of `low`, with `step` from middle to middle. A centroid of one value is that value.
fn within(low: Centroid, high: Centroid, index: f64, step: f64) -> f64 {
    let (mut low_unit, mut high_unit) = (0.0, 0.0);
    if low.weight == 1 {
        if index < 0.5 {
            return low.mean;
        }
        low_unit = 0.5;
    }
    if high.weight == 1 {
        if step - index <= 0.5 {
            return high.mean;
        }
        high_unit = 0.5;
    }
    between(low.mean, step - index - high_unit, high.mean, index - low_unit)
}

/// The share of values at or below one that lies between the minimum and the first mean.
fn tail(value: f64, min: f64, first: Centroid, total: f64) -> f64 {
    let width = first.mean - min;
    if width <= 0.0 {
        0.0
    } else if value == min {
        0.5 / total
    } else {
        (1.0 + (value - min) / width * (first.weight as f64 / 2.0 - 1.0)) / total
    }
}

/// The weight at or below `value` from the start of `low` on; `value` is from the mean of `low` to that of `high`.
fn share(low: Centroid, high: Centroid, value: f64) -> f64 {
    let step = (low.weight as f64 + high.weight as f64) / 2.0;
    if high.mean - low.mean <= 0.0 {
        return step;
    }
    let (low_unit, high_unit) = match (low.weight, high.weight) {
        (1, 1) => return 1.0,
        (1, _) => (0.5, 0.0),
        (_, 1) => (0.0, 0.5),
        _ => (0.0, 0.0),
    };
    let inner = step - low_unit - high_unit;
    low.weight as f64 / 2.0 + low_unit + inner * (value - low.mean) / (high.mean - low.mean)
}

/// `x` to the next whole number, halves towards zero.
fn half_down(x: f64) -> f64 {
    let whole = x.trunc();
    if (x - whole).abs() <= 0.5 { whole } else { whole + 1.0_f64.copysign(x) }
}

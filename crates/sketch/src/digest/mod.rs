//! A t-digest of the merging kind: quantiles of a stream from centroids that are small at both ends.
//!
//! Capacity, limits of merging and interpolation are those of the digest in RedisBloom, so answers agree to the last
//! digits. Values are buffered, and merged when the buffer is full or a query needs it.

mod ask;
mod file;
#[cfg(test)]
mod tests;

pub use file::VERSION;

/// Compressions above this are refused.
pub const COMPRESSION_MAX: u64 = (i32::MAX as u64 - 10) / 6;

/// Weights or their sum are too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DigestOverflow;

/// A point that represents the values around it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Centroid {
    mean: f64,
    weight: i64,
}

/// A digest.
#[derive(Clone, Debug)]
pub struct Digest {
    compression: f64,
    min: f64,
    max: f64,
    // The first `merged` are sorted centroids; the others are buffered values.
    centroids: Vec<Centroid>,
    merged: usize,
    merged_weight: i64,
    unmerged_weight: i64,
    compressions: i64,
}

/// Centroids that an empty digest makes room for.
const ROOM_MIN: usize = 16;

/// Centroids and buffered values of a digest, at most.
fn capacity_of(compression: f64) -> usize {
    6 * compression as usize + 10
}

/// Bytes that a digest takes at most.
pub fn bytes_of(compression: u64) -> u64 {
    compression.saturating_mul(6).saturating_add(10).saturating_mul(size_of::<Centroid>() as u64)
}

impl Digest {
    /// An empty digest. Fails if `compression` is 0 or above [`COMPRESSION_MAX`].
    pub fn new(compression: u64) -> Result<Digest, DigestOverflow> {
        if compression == 0 || compression > COMPRESSION_MAX {
            return Err(DigestOverflow);
        }
        let mut digest = Digest {
            compression: compression as f64,
            min: 0.0,
            max: 0.0,
            centroids: Vec::new(),
            merged: 0,
            merged_weight: 0,
            unmerged_weight: 0,
            compressions: 0,
        };
        digest.reset();
        Ok(digest)
    }

    /// Removes all values.
    pub fn reset(&mut self) {
        self.min = f64::MAX;
        self.max = -f64::MAX;
        self.centroids = Vec::new();
        self.merged = 0;
        self.merged_weight = 0;
        self.unmerged_weight = 0;
        self.compressions = 0;
    }

    /// Adds a finite value `weight` times. Fails if the sum of weights would be too large.
    #[inline]
    pub fn add(&mut self, mean: f64, weight: i64) -> Result<(), DigestOverflow> {
        if self.centroids.len() + 1 >= self.capacity() {
            self.compress()?;
        }
        if self.centroids.len() >= self.capacity() {
            return Err(DigestOverflow);
        }
        let unmerged = self.unmerged_weight.checked_add(weight).ok_or(DigestOverflow)?;
        unmerged.checked_add(self.merged_weight).ok_or(DigestOverflow)?;
        self.min = self.min.min(mean);
        self.max = self.max.max(mean);
        if self.centroids.len() == self.centroids.capacity() {
            self.grow();
        }
        self.centroids.push(Centroid { mean, weight });
        self.unmerged_weight = unmerged;
        Ok(())
    }

    /// Makes room for twice as much, but not for more than the digest ever holds.
    #[cold]
    fn grow(&mut self) {
        let len = self.centroids.len();
        let room = (2 * len).clamp(ROOM_MIN, self.capacity().max(ROOM_MIN));
        self.centroids.reserve_exact(room - len);
    }

    /// Adds the content of another digest. Fails if the sum of weights would be too large.
    pub fn merge(&mut self, from: &Digest) -> Result<(), DigestOverflow> {
        let mut from = from.clone();
        self.compress()?;
        from.compress()?;
        from.centroids.iter().try_for_each(|centroid| self.add(centroid.mean, centroid.weight))
    }

    /// Returns true if there are values that [`Digest::compress`] would merge.
    pub fn is_buffered(&self) -> bool {
        self.centroids.len() > self.merged
    }

    /// Merges buffered values into centroids.
    pub fn compress(&mut self) -> Result<(), DigestOverflow> {
        if !self.is_buffered() {
            return Ok(());
        }
        self.centroids.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let total = self.merged_weight + self.unmerged_weight;
        if total > 1 {
            self.merge_neighbours(total as f64);
        }
        self.merged = self.centroids.len();
        self.merged_weight = total;
        self.unmerged_weight = 0;
        self.compressions += 1;
        Ok(())
    }

    /// Merges neighbours of the sorted centroids as long as the result is small enough for its quantile.
    fn merge_neighbours(&mut self, total: f64) {
        let normaliser = self.compression / (2.0 * std::f64::consts::PI * total * total.ln());
        let mut before = 0.0;
        let mut kept = 0;
        for at in 1..self.centroids.len() {
            let (Some(&current), Some(&next)) = (self.centroids.get(kept), self.centroids.get(at)) else {
                break;
            };
            let weight = current.weight as f64 + next.weight as f64;
            let (low, high) = (before / total, (before + weight) / total);
            let z = weight * normaliser;
            if z <= low * (1.0 - low) && z <= high * (1.0 - high) {
                let weight = current.weight + next.weight;
                let step = (next.mean - current.mean) * next.weight as f64 / weight as f64;
                self.put(kept, Centroid { mean: current.mean + step, weight });
            } else {
                before += current.weight as f64;
                kept += 1;
                self.put(kept, next);
            }
        }
        self.centroids.truncate(kept + 1);
    }

    fn put(&mut self, at: usize, centroid: Centroid) {
        if let Some(place) = self.centroids.get_mut(at) {
            *place = centroid;
        }
    }

    /// The compression it was made with.
    pub fn compression(&self) -> u64 {
        self.compression as u64
    }

    /// Centroids and buffered values it holds at most.
    pub fn capacity(&self) -> usize {
        capacity_of(self.compression)
    }

    /// Values added.
    pub fn len(&self) -> i64 {
        self.merged_weight + self.unmerged_weight
    }

    /// Returns true if no value was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The smallest value; the largest number without values.
    pub fn min(&self) -> f64 {
        self.min
    }

    /// The largest value; the smallest number without values.
    pub fn max(&self) -> f64 {
        self.max
    }

    /// Centroids, and buffered values.
    pub fn nodes(&self) -> (usize, usize) {
        (self.merged, self.centroids.len() - self.merged)
    }

    /// Values in centroids, and buffered ones.
    pub fn weights(&self) -> (i64, i64) {
        (self.merged_weight, self.unmerged_weight)
    }

    /// Number of times buffered values were merged.
    pub fn compressions(&self) -> i64 {
        self.compressions
    }

    /// Bytes that RedisBloom would hold, as TDIGEST.INFO says.
    pub fn nominal_bytes(&self) -> u64 {
        const ROOT: u64 = 80;
        ROOT + 16 * self.capacity() as u64
    }

    /// Bytes on the heap, without the root.
    pub fn memory_bytes(&self) -> usize {
        self.centroids.capacity() * size_of::<Centroid>()
    }
}

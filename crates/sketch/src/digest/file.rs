//! The fields of a digest in an RDB file.

use darter_base::fields::{FieldSink, FieldSource};

use super::{COMPRESSION_MAX, Centroid, Digest, capacity_of};
use crate::SketchLoadFault;

/// The version of the RDB form.
pub const VERSION: u16 = 0;

impl Digest {
    /// Writes the fields of an RDB file, with buffered values merged.
    pub fn save(&self, out: &mut dyn FieldSink) {
        let mut whole;
        let mut digest = self;
        if self.is_buffered() {
            whole = self.clone();
            if whole.compress().is_ok() {
                digest = &whole;
            }
        }
        out.double(digest.compression);
        out.double(digest.min);
        out.double(digest.max);
        out.signed(digest.capacity() as i64);
        out.signed(digest.merged as i64);
        out.signed(0);
        out.signed(digest.compressions);
        out.double(digest.merged_weight as f64);
        out.double(0.0);
        let merged = || digest.centroids.iter().take(digest.merged);
        merged().for_each(|centroid| out.double(centroid.mean));
        merged().for_each(|centroid| out.double(centroid.weight as f64));
    }

    /// Reads the fields of an RDB file. Fails if they are not those of a digest.
    pub fn load(source: &mut dyn FieldSource, version: u16) -> Result<Digest, SketchLoadFault> {
        let compression = source.double()?;
        let (min, max) = (source.double()?, source.double()?);
        let (capacity, merged, _unmerged) = (source.signed()?, source.signed()?, source.signed()?);
        let compressions = source.signed()?;
        let (merged_weight, _unmerged_weight) = (source.double()?, source.double()?);
        let is_compression = compression >= 1.0 && compression <= COMPRESSION_MAX as f64;
        if version > VERSION || !is_compression || min.is_nan() || max.is_nan() {
            return Err(SketchLoadFault::Corrupt);
        }
        let merged = usize::try_from(merged).map_err(|_| SketchLoadFault::Corrupt)?;
        if merged > capacity_of(compression) || capacity != capacity_of(compression) as i64 {
            return Err(SketchLoadFault::Corrupt);
        }
        let mut means = Vec::new();
        for _ in 0..merged {
            means.push(source.double()?);
        }
        let mut centroids = Vec::new();
        let mut total = 0_i64;
        for mean in means {
            let weight = source.double()?;
            let is_valid = mean.is_finite() && weight >= 1.0 && weight < i64::MAX as f64;
            let is_sorted = centroids.last().is_none_or(|last: &Centroid| last.mean <= mean);
            if !is_valid || !is_sorted {
                return Err(SketchLoadFault::Corrupt);
            }
            let weight = weight as i64;
            total = total.checked_add(weight).ok_or(SketchLoadFault::Corrupt)?;
            centroids.push(Centroid { mean, weight });
        }
        if total as f64 != merged_weight {
            return Err(SketchLoadFault::Corrupt);
        }
        Ok(Digest {
            compression,
            min,
            max,
            centroids,
            merged,
            merged_weight: total,
            unmerged_weight: 0,
            compressions,
        })
    }
}

//! A count-min sketch: rows of 32-bit counters, of which an item's smallest is its estimated count.

use darter_base::fields::{FieldSink, FieldSource};
use darter_slab::Arena;

use crate::blocks::Blocks;
use crate::murmur::murmur2;
use crate::{SketchFull, SketchLoadFault};

/// The version of the RDB form.
pub const VERSION: u16 = 0;

const CELL_BYTES: usize = 4;

/// A sketch of `width` counters in each of `depth` rows.
#[derive(Debug)]
pub struct Cms {
    width: u64,
    depth: u64,
    count: u64,
    cells: Blocks,
}

/// The sums of a merge do not fit their cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeFault {
    /// A cell or the total would be negative or too large.
    Overflow,
    /// There is no room.
    Full,
}

/// Sums of counters of several sketches that lie at the same places.
#[derive(Clone, Debug, Default)]
pub struct CellSums(Vec<i64>);

impl CellSums {
    /// Zeros for the counters of `bytes` bytes.
    pub fn new(bytes: usize) -> CellSums {
        CellSums(vec![0; bytes / CELL_BYTES])
    }

    /// Adds the counters `cells` of a sketch with its weight. Fails if a sum is too large or too small.
    pub fn add(&mut self, cells: &[u8], weight: i64) -> Result<(), MergeFault> {
        for (sum, cell) in self.0.iter_mut().zip(cells.as_chunks().0) {
            let product = i64::from(u32::from_le_bytes(*cell)).checked_mul(weight);
            *sum = product.and_then(|product| sum.checked_add(product)).ok_or(MergeFault::Overflow)?;
        }
        Ok(())
    }

    /// The bytes of counters with these sums. Fails if one is negative or too large.
    pub fn cells(&self) -> Result<Vec<u8>, MergeFault> {
        let mut cells = Vec::with_capacity(self.0.len() * CELL_BYTES);
        for sum in &self.0 {
            cells.extend(u32::try_from(*sum).map_err(|_| MergeFault::Overflow)?.to_le_bytes());
        }
        Ok(cells)
    }
}

/// The count of the sum of sketches with these counts and weights. Fails if it is negative or too large.
pub fn sum_of_counts(sources: impl Iterator<Item = (u64, i64)>) -> Result<u64, MergeFault> {
    let mut sum = 0_i64;
    for (count, weight) in sources {
        let product = count.cast_signed().checked_mul(weight);
        sum = product.and_then(|product| sum.checked_add(product)).ok_or(MergeFault::Overflow)?;
    }
    u64::try_from(sum).map_err(|_| MergeFault::Overflow)
}

/// Width and depth for an error rate and the probability of exceeding it, both inside (0, 1).
pub fn dimensions(error: f64, probability: f64) -> (u64, u64) {
    let width = (2.0 / error).ceil();
    let depth = ((probability as f32).log10() / 0.5_f32.log10()).ceil();
    (width as u64, depth as u64)
}

/// Bytes of the cells; the largest number if that has no more bits.
pub fn bytes_of(width: u64, depth: u64) -> u64 {
    width.checked_mul(depth).and_then(|cells| cells.checked_mul(4)).unwrap_or(u64::MAX)
}

impl Cms {
    /// A sketch of zeros. Fails if it would fit no arena.
    pub fn new(width: u64, depth: u64) -> Result<Cms, SketchFull> {
        Ok(Cms { width, depth, count: 0, cells: Blocks::zeroed(bytes_of(width, depth))? })
    }

    /// Counters in a row.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Rows.
    pub fn depth(&self) -> u64 {
        self.depth
    }

    /// The sum of all increments.
    pub fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    fn place(&self, item: &[u8], row: u64) -> u64 {
        u64::from(murmur2(item, row as u32)) % self.width + row * self.width
    }

    #[inline]
    fn cell(&self, arena: &Arena, at: u64) -> u32 {
        u32::from_le_bytes(self.cells.cell(arena, at))
    }

    /// Adds `value` to an item's counters, which stop at their largest value; returns the new estimate. Fails if there
    /// is no room for the counters.
    pub fn add(&mut self, arena: &mut Arena, item: &[u8], value: u64) -> Result<u32, SketchFull> {
        let step = u32::try_from(value).unwrap_or(u32::MAX);
        let mut least = u32::MAX;
        for row in 0..self.depth {
            let at = self.place(item, row);
            let sum = self.cell(arena, at).saturating_add(step);
            if step > 0 {
                self.cells.set_cell(arena, at, sum.to_le_bytes())?;
            }
            least = least.min(sum);
        }
        self.count = self.count.wrapping_add(value);
        Ok(least)
    }

    /// The estimated count of an item, never below the true one.
    pub fn estimate(&self, arena: &Arena, item: &[u8]) -> u32 {
        (0..self.depth).map(|row| self.cell(arena, self.place(item, row))).min().unwrap_or(u32::MAX)
    }

    /// The bytes of all counters, row after row, and the count.
    pub fn contents(&self, arena: &Arena) -> (Vec<u8>, u64) {
        (self.cells.all(arena).concat(), self.count)
    }

    /// Replaces the contents by the sum of `sources` (contents of sketches of the same dimensions, each with its
    /// weight). Fails, with the contents unchanged, if a sum does not fit.
    pub fn assign_sum(
        &mut self,
        arena: &mut Arena,
        sources: &[((Vec<u8>, u64), i64)],
    ) -> Result<(), MergeFault> {
        let mut sums = CellSums::new(usize::try_from(self.bytes()).map_err(|_| MergeFault::Full)?);
        for ((cells, _), weight) in sources {
            sums.add(cells, *weight)?;
        }
        let count = sum_of_counts(sources.iter().map(|((_, count), weight)| (*count, *weight)))?;
        self.cells.write(arena, 0, &sums.cells()?).map_err(|_| MergeFault::Full)?;
        self.count = count;
        Ok(())
    }

    /// Sets the sum of all increments of a sketch whose cells are written by [`Cms::write`].
    pub fn set_count(&mut self, count: u64) {
        self.count = count;
    }

    /// Writes the fields of an RDB file.
    pub fn save(&self, arena: &Arena, out: &mut dyn FieldSink) {
        self.save_root(out);
        out.string(&self.cells.all(arena));
    }

    /// Writes everything except the cells.
    pub fn save_root(&self, out: &mut dyn FieldSink) {
        out.unsigned(self.width);
        out.unsigned(self.depth);
        out.unsigned(self.count);
    }

    /// Reads the output of [`Cms::save_root`]; cells are zero. Fails if these are not the fields of a sketch.
    pub fn load_root(source: &mut dyn FieldSource) -> Result<Cms, SketchLoadFault> {
        let (width, depth, count) = (source.unsigned()?, source.unsigned()?, source.unsigned()?);
        if width == 0 || depth == 0 {
            return Err(SketchLoadFault::Corrupt);
        }
        Ok(Cms { count, ..Cms::new(width, depth)? })
    }

    /// Reads the fields of an RDB file. Fails if they are not those of a sketch.
    pub fn load(
        source: &mut dyn FieldSource,
        version: u16,
        arena: &mut Arena,
    ) -> Result<Cms, SketchLoadFault> {
        let mut cms = Cms::load_root(source)?;
        let bytes = source.string()?;
        if version > VERSION || bytes.len() as u64 != cms.bytes() {
            return Err(SketchLoadFault::Corrupt);
        }
        if let Err(full) = cms.cells.write(arena, 0, &bytes) {
            while !cms.free_step(arena, usize::MAX) {}
            return Err(full.into());
        }
        Ok(cms)
    }

    /// A value without content, until its root is read.
    pub fn empty() -> Cms {
        Cms { width: 1, depth: 0, count: 0, cells: Blocks::default() }
    }

    /// Bytes in the arena and on the heap, without the root.
    pub fn memory_bytes(&self) -> usize {
        self.cells.memory_bytes()
    }

    /// A copy of the root for a reader of the present state. The copy must never free its blocks.
    pub fn frozen(&self) -> Cms {
        Cms { width: self.width, depth: self.depth, count: self.count, cells: self.cells.frozen() }
    }

    /// Bytes of the cells.
    pub fn bytes(&self) -> u64 {
        self.cells.bytes()
    }

    /// Adds cells from byte `from` on to `out`, `len` bytes of them as far as they exist.
    pub fn read_to(&self, arena: &Arena, from: u64, len: u64, out: &mut Vec<u8>) {
        self.cells.parts(arena, from, len).iter().for_each(|part| out.extend_from_slice(part));
    }

    /// Cells from byte `from` on, `len` bytes of them as far as they exist.
    pub fn read(&self, arena: &Arena, from: u64, len: u64) -> Vec<u8> {
        self.cells.parts(arena, from, len).concat()
    }

    /// Writes the output of [`Cms::read`]. Fails if it is too long or there is no room.
    pub fn write(&mut self, arena: &mut Arena, from: u64, bytes: &[u8]) -> Result<(), SketchFull> {
        self.cells.write(arena, from, bytes)
    }

    /// Frees up to `blocks_max` blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        self.cells.free_step(arena, blocks_max)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use darter_base::fields::Field;
    use proptest::prelude::*;

    use super::*;

    fn arena() -> Arena {
        Arena::with_reserve(16 << 20).expect("address space")
    }

    #[test]
    fn dimensions_are_those_of_redisbloom() {
        assert_eq!(dimensions(0.001, 0.01), (2000, 7));
        assert_eq!(dimensions(0.01, 0.5), (200, 1));
        assert!(Cms::new(u64::MAX, 2).is_err());
        assert!(Cms::new(1 << 40, 1).is_err());
    }

    #[test]
    fn counters_stop_at_their_end() {
        let mut arena = arena();
        let mut cms = Cms::new(10, 2).expect("small");
        assert_eq!(cms.add(&mut arena, b"a", u64::MAX / 4), Ok(u32::MAX));
        assert_eq!(cms.add(&mut arena, b"a", 5), Ok(u32::MAX));
        let contents = cms.contents(&arena);
        assert_eq!(cms.assign_sum(&mut arena, &[(contents, 2)]), Err(MergeFault::Overflow));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn estimates_are_never_too_low_and_merges_add(
            adds in prop::collection::vec((0..50_u8, 0..1000_u64), 0..100),
            width in 1..500_u64,
            depth in 1..8_u64,
            weight in 0..5_i64,
        ) {
            let mut arena = arena();
            let mut cms = Cms::new(width, depth).expect("small");
            let mut exact: HashMap<u8, u64> = HashMap::new();
            for (item, value) in &adds {
                cms.add(&mut arena, &[*item], *value).expect("room");
                *exact.entry(*item).or_default() += value;
            }
            let mut fields: Vec<Field> = Vec::new();
            cms.save(&arena, &mut fields);
            let loaded = Cms::load(&mut fields.iter(), 0, &mut arena).expect("its own fields");
            let mut merged = Cms::new(width, depth).expect("small");
            let sources = [(cms.contents(&arena), weight), (loaded.contents(&arena), 1)];
            merged.assign_sum(&mut arena, &sources).expect("small sums");
            prop_assert_eq!(merged.count(), cms.count() * (weight as u64 + 1));
            for (item, value) in &exact {
                prop_assert!(u64::from(loaded.estimate(&arena, &[*item])) >= *value);
                let twice = u64::from(cms.estimate(&arena, &[*item])) * (weight as u64 + 1);
                prop_assert_eq!(u64::from(merged.estimate(&arena, &[*item])), twice);
            }
        }
    }
}

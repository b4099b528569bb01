//! Marks for a snapshot that runs while the index changes: they say which homes are written already.
//!
//! All entries of one home line in one segment are written together, wherever they sit: at home, next to it, in the
//! stash or in the spill. Moves within a segment do not change the home; a split copies the marks; a merge waits
//! until both segments have the same ones. An entry is therefore written if its home line is marked.

use crate::hash;
use crate::index::Index;
use crate::scan::{ScanPosition, span_of};
use crate::segment::{HOMES, IndexSegment};
use darter_slab::Handle;

impl Index {
    /// Sets the snapshot whose marks are used from now on. `epoch` must differ from those of the last thousands of
    /// snapshots; 0 ends marking.
    pub fn set_epoch(&mut self, epoch: u16) {
        self.epoch = epoch;
    }

    /// Returns true if the home of `hash` is marked; that of an index without memory is not.
    #[inline]
    pub fn is_marked(&self, hash: u64) -> bool {
        let Some(segment) = self.segment(hash::place(hash)) else { return false };
        segment.lines[hash::home(hash)].written == self.epoch
    }

    /// Marks the home of `hash`.
    #[inline]
    pub fn mark(&mut self, hash: u64) {
        let epoch = self.epoch;
        if let Some(segment) = self.segment_mut(hash::place(hash)) {
            segment.lines[hash::home(hash)].written = epoch;
        }
    }

    /// Emits every entry with the home of `hash` in its segment. `hash_of` is asked for stashed entries.
    pub fn each_like(&self, hash: u64, hash_of: impl FnMut(Handle) -> u64, emit: impl FnMut(Handle)) {
        let place = hash::place(hash);
        if let Some(segment) = self.segment(place) {
            let at = ScanPosition { line: hash::home(hash) as u8, place: span_of(segment, place).0 };
            self.scan(at, hash_of, emit);
        }
    }

    /// Marks the home at `at` and emits its entries, unless it is marked already. Returns the next position, segment
    /// by segment, or `None` at the end. From `START` to the end every home is marked, whatever happens in between.
    pub fn mark_next(
        &mut self,
        at: ScanPosition,
        hash_of: impl FnMut(Handle) -> u64,
        emit: impl FnMut(Handle),
    ) -> Option<ScanPosition> {
        let epoch = self.epoch;
        let segment = self.segment_mut(at.place)?;
        let (start, end) = span_of(segment, at.place);
        let home = usize::from(at.line);
        if home < HOMES && segment.lines[home].written != epoch {
            segment.lines[home].written = epoch;
            self.scan(ScanPosition { line: at.line, place: start }, hash_of, emit);
        }
        if home + 1 < HOMES {
            return Some(ScanPosition { line: at.line + 1, ..at });
        }
        u32::try_from(end).ok().map(|place| ScanPosition { line: 0, place })
    }

    /// Names the records in the line at `at`, for a caller that asks for their memory ahead of `mark_next`.
    #[inline]
    pub fn each_in_line(&self, at: ScanPosition, mut emit: impl FnMut(Handle)) {
        let Some(line) = self.segment(at.place).and_then(|segment| segment.lines.get(usize::from(at.line)))
        else {
            return;
        };
        let mut used = line.occupied();
        while used != 0 {
            emit(line.handle(used.trailing_zeros() as usize));
            used &= used - 1;
        }
    }
}

impl IndexSegment {
    /// Takes over the marks of another segment.
    pub(crate) fn copy_marks(&mut self, from: &IndexSegment) {
        for (line, from) in self.lines.iter_mut().zip(&from.lines).take(HOMES) {
            line.written = from.written;
        }
    }

    /// Returns true if the same homes are marked in both.
    pub(crate) fn has_marks_of(&self, other: &IndexSegment, epoch: u16) -> bool {
        let pairs = self.lines.iter().zip(&other.lines).take(HOMES);
        pairs.into_iter().all(|(a, b)| (a.written == epoch) == (b.written == epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A step of splitmix64; the hash of a handle is a function of its number.
    fn mix(mut z: u64) -> u64 {
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn spread(h: Handle) -> u64 {
        mix(u64::from(h.raw()))
    }

    /// Few homes and one segment: stashes and spills.
    fn crowded(h: Handle) -> u64 {
        let z = mix(u64::from(h.raw()));
        z & 0x00ff_ffff_0000_00ff | (z >> 40 & 3) << 24
    }

    /// Writes the unwritten entries in the home of `hash`, as required before a change.
    fn keep(index: &mut Index, hash_of: fn(Handle) -> u64, hash: u64, dump: &mut Vec<Handle>) {
        if !index.is_marked(hash) {
            index.each_like(hash, hash_of, |h| dump.push(h));
            index.mark(hash);
        }
    }

    fn run(seed: u64, hash_of: fn(Handle) -> u64, keys: u64, steps: usize) {
        let mut random = seed;
        let mut next = |below: u64| {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(random) % below
        };
        let (mut index, mut there) = (Index::new(), HashSet::new());
        for epoch in 1..5u16 {
            // Grows and shrinks repeatedly, so that segments split and merge while they are walked.
            for _ in 0..keys * 2 {
                let h = Handle::from_raw(next(keys) as u32 + 1);
                let slot = index.find(hash_of(h), |other| other == h);
                match (slot, next(16) < if epoch % 2 == 1 { 12 } else { 1 }) {
                    (None, true) => drop(index.insert(hash_of(h), h, hash_of)),
                    (Some(slot), false) => drop(index.remove(slot, hash_of(h))),
                    _ => continue,
                }
                if slot.is_some() {
                    there.remove(&h)
                } else {
                    there.insert(h)
                };
            }
            let cut = there.clone();
            index.set_epoch(epoch);
            let (mut dump, mut at) = (Vec::new(), Some(ScanPosition::START));
            while let Some(position) = at {
                for _ in 0..next(steps as u64) {
                    let h = Handle::from_raw(next(keys) as u32 + 1);
                    keep(&mut index, hash_of, hash_of(h), &mut dump);
                    match index.find(hash_of(h), |other| other == h) {
                        None => {
                            index.insert(hash_of(h), h, hash_of);
                            index.mark(hash_of(h));
                            there.insert(h);
                        }
                        Some(slot) if epoch % 2 == 0 || next(3) == 0 => {
                            index.remove(slot, hash_of(h));
                            there.remove(&h);
                        }
                        Some(_) => {}
                    }
                    if next(64) == 0 {
                        index.merge_step(hash_of);
                    }
                }
                at = index.mark_next(position, hash_of, |h| dump.push(h));
            }
            index.check_lines(hash_of);
            index.set_epoch(0);
            assert_eq!(dump.len(), dump.iter().collect::<HashSet<_>>().len(), "written twice");
            assert_eq!(dump.into_iter().collect::<HashSet<_>>(), cut, "seed {seed}, epoch {epoch}");
            assert_eq!(index.len(), there.len());
        }
    }

    #[test]
    fn a_walk_with_changes_between_its_steps_yields_what_was_there_at_its_start() {
        (0..20).for_each(|seed| run(seed, spread, 4000, 40));
        (0..10).for_each(|seed| run(seed, spread, 200, 10));
        (0..10).for_each(|seed| run(seed, crowded, 3000, 30));
        run(99, spread, 40_000, 100);
    }
}

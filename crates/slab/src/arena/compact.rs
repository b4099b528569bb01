//! Emptying sparse runs by moving their blocks, so that memory follows what is stored after many deletes.
//!
//! One pass: `start_compaction` chooses the runs, the owner of the handles offers each of them to `compact` and
//! keeps the new one, `end_compaction` puts back what was not emptied. Blocks may come and go in between.

use super::Arena;
use crate::class;
use crate::handle::Handle;
use crate::page::{UNIT_BYTES, UNIT_GRANULES};

/// Runs of one class that a pass looks at; bounds the time of `start_compaction`.
const RUNS_LOOKED_MAX: usize = 16 << 10;
/// A class is left alone while less than this part of its partly filled runs is empty.
const WASTE_MIN_PERCENT: usize = 10;

impl Arena {
    /// Chooses sparse runs to empty and takes them out of use; returns their bytes, 0 = nothing worth doing.
    /// Cost: a sort of at most 16,384 runs a class.
    pub fn start_compaction(&mut self) -> usize {
        self.end_compaction();
        self.free_kept();
        let mut units = 0;
        for class in 1..class::COUNT {
            for unit in self.sparse_runs(class) {
                self.unlist(class, unit);
                let page = &mut self.region.pages_mut()[unit as usize];
                page.start_emptying();
                units += usize::from(page.units());
                self.emptying.push(unit);
            }
        }
        units * UNIT_BYTES
    }

    /// Moves a block out of a run that is being emptied; the old handle is then free. `None`: it may stay.
    /// Cost: two loads when it stays.
    #[inline]
    pub fn compact(&mut self, h: Handle) -> Option<Handle> {
        let pages = self.region.pages();
        let unit = h.raw() / UNIT_GRANULES;
        let first = pages.get(unit as usize)?.first(unit);
        if pages.get(first as usize)?.is_emptying() { self.move_block(h) } else { None }
    }

    /// Puts the runs that were not emptied back into use.
    pub fn end_compaction(&mut self) {
        for unit in std::mem::take(&mut self.emptying) {
            let page = &mut self.region.pages_mut()[unit as usize];
            // An emptied run may have become part of another one meanwhile.
            if page.is_emptying() {
                page.stop_emptying();
                let class = usize::from(page.class);
                self.list(class, unit);
            }
        }
    }

    fn move_block(&mut self, h: Handle) -> Option<Handle> {
        let page = self.region.pages()[(h.raw() / UNIT_GRANULES) as usize];
        let class = usize::from(page.class);
        // When writers took the room there was, this adds a run: it will be a full one.
        let to = self.alloc_in_run(class)?;
        let (from_block, to_block) = self.two_mut(h, to);
        to_block.copy_from_slice(from_block);
        self.used_bytes -= usize::from(class::BYTES[class]);
        self.free_in_run(h);
        Some(to)
    }

    /// The sparsest runs of a class, as many as have room in its other runs.
    fn sparse_runs(&self, class: usize) -> Vec<u32> {
        let pages = self.region.pages();
        let block_bytes = class::bytes_of(class);
        let blocks_of = |unit: u32| usize::from(pages[unit as usize].units()) * UNIT_BYTES / block_bytes;
        let live_of = |unit: u32| usize::from(pages[unit as usize].live);
        let mut runs = Vec::new();
        let mut unit = self.bins[class].partial;
        while unit != 0 && runs.len() < RUNS_LOOKED_MAX {
            runs.push(unit);
            unit = pages[unit as usize].next;
        }
        let blocks: usize = runs.iter().map(|&unit| blocks_of(unit)).sum();
        let live: usize = runs.iter().map(|&unit| live_of(unit)).sum();
        let mut room = blocks - live;
        if runs.len() < 2 || room * 100 < blocks * WASTE_MIN_PERCENT {
            return Vec::new();
        }
        runs.sort_unstable_by_key(|&unit| live_of(unit) * 1024 / blocks_of(unit));
        let mut moving = 0;
        let keep_from = runs.iter().position(|&unit| {
            moving += live_of(unit);
            room -= blocks_of(unit) - live_of(unit);
            moving > room
        });
        runs.truncate(keep_from.unwrap_or(0));
        runs
    }
}

//! The runs of units that hold no block: found by length, joined with empty neighbours, given back on request.
//!
//! Lengths and links lie in the page records of a run's two ends. Called by `Arena` when a class needs a run or
//! has emptied one; never on the path of a single block.

use crate::page::{CLEAN, DIRTY, Page, UNIT_BYTES};
use crate::region::Region;

/// List `n` of 1..`LISTS - 1` holds runs of exactly `n` units; the last list holds longer runs. No class needs as
/// many units as the shortest of those, so that the first run of the last list always does.
const LISTS: usize = 32;

/// Long runs looked at for a block longer than any class; past them the arena grows.
const LONG_LOOKED_MAX: usize = 64;

/// All empty runs of an arena.
pub(crate) struct PageRuns {
    // 1 <= top <= units; every unit from `top` on was never used or was given back.
    top: u32,
    dirty: Lists,
    clean: Lists,
    dirty_units: u32,
    // 0 <= dirty_units_low <= dirty_units: the fewest there were since the last look.
    dirty_units_low: u32,
}

/// Doubly linked lists of empty runs of one kind, by length.
struct Lists {
    heads: [u32; LISTS],
    // Bit i: `heads[i]` is not empty.
    filled: u32,
}

impl PageRuns {
    /// No empty run; unit 0 is left out so that handle 0 names nothing.
    pub(crate) const fn new() -> PageRuns {
        PageRuns { top: 1, dirty: Lists::new(), clean: Lists::new(), dirty_units: 0, dirty_units_low: 0 }
    }

    /// Creates one empty run of all units below `top`, at least two. Its units count as resident as far as they were
    /// used.
    pub(crate) fn all_empty(pages: &mut [Page], top: u32) -> PageRuns {
        let mut runs = PageRuns { top, ..PageRuns::new() };
        runs.link(pages, 1, top - 1, DIRTY);
        runs
    }

    /// Units that were ever in use and not given back at the end of the arena.
    pub(crate) fn top(&self) -> u32 {
        self.top
    }

    /// Empty units whose bytes are still resident.
    pub(crate) fn dirty_units(&self) -> u32 {
        self.dirty_units
    }

    /// Resident empty units that were in use at some time since the last call, and are not now.
    pub(crate) fn take_reused(&mut self) -> u32 {
        let low = std::mem::replace(&mut self.dirty_units_low, self.dirty_units);
        self.dirty_units - low
    }

    /// Takes `units` units, at least one, resident ones first; returns the first. `None`: the reservation is full.
    pub(crate) fn take(&mut self, pages: &mut [Page], units: u32) -> Option<u32> {
        for class in [DIRTY, CLEAN] {
            let Some(first) = self.lists(class).find(pages, units) else { continue };
            let had = pages[first as usize].empty_units();
            self.unlink(pages, first, had, class);
            if had > units {
                self.link(pages, first + units, had - units, class);
            }
            return Some(first);
        }
        let first = self.top;
        if units as usize > pages.len() - first as usize {
            return None;
        }
        self.top += units;
        Some(first)
    }

    /// Takes back a run that just lost its last block.
    pub(crate) fn put(&mut self, pages: &mut [Page], first: u32, units: u32) {
        self.join(pages, first, units, DIRTY);
    }

    /// Gives at most `pages_max` resident empty units back to the kernel, the longest runs first; returns their
    /// number.
    pub(crate) fn release(&mut self, region: &mut Region, pages_max: u32) -> usize {
        let mut left = pages_max;
        while left > 0 && self.dirty.filled != 0 {
            let first = self.dirty.heads[self.dirty.filled.ilog2() as usize];
            let pages = region.pages_mut();
            let had = pages[first as usize].empty_units();
            let units = had.min(left);
            self.unlink(pages, first, had, DIRTY);
            if had > units {
                self.link(pages, first + units, had - units, DIRTY);
            }
            region.discard(first, units);
            self.join(region.pages_mut(), first, units, CLEAN);
            left -= units;
        }
        (pages_max - left) as usize * UNIT_BYTES
    }

    /// Adds an empty run and joins it with the empty runs of the same kind on both sides.
    fn join(&mut self, pages: &mut [Page], mut first: u32, mut units: u32, class: u8) {
        let below = pages[first as usize - 1];
        if below.class == class {
            let more = below.empty_units();
            first -= more;
            units += more;
            self.unlink(pages, first, more, class);
        }
        let end = first + units;
        if end < self.top && pages[end as usize].class == class {
            let more = pages[end as usize].empty_units();
            self.unlink(pages, end, more, class);
            units += more;
        }
        if class == CLEAN && first + units == self.top {
            self.top = first;
            // Records above `top` may say anything: they are never read before they are written.
            return;
        }
        self.link(pages, first, units, class);
    }

    fn link(&mut self, pages: &mut [Page], first: u32, units: u32, class: u8) {
        let list = list_of(units);
        let head = self.lists(class).heads[list];
        let mut page = Page::empty(units, class);
        pages[(first + units - 1) as usize] = page;
        page.next = head;
        pages[first as usize] = page;
        if head != 0 {
            pages[head as usize].prev = first;
        }
        let lists = self.lists(class);
        lists.heads[list] = first;
        lists.filled |= 1 << list;
        if class == DIRTY {
            self.dirty_units += units;
        }
    }

    fn unlink(&mut self, pages: &mut [Page], first: u32, units: u32, class: u8) {
        let Page { next, prev, .. } = pages[first as usize];
        if next != 0 {
            pages[next as usize].prev = prev;
        }
        if prev != 0 {
            pages[prev as usize].next = next;
        } else {
            let list = list_of(units);
            let lists = self.lists(class);
            lists.heads[list] = next;
            if next == 0 {
                lists.filled &= !(1 << list);
            }
        }
        if class == DIRTY {
            self.dirty_units -= units;
            self.dirty_units_low = self.dirty_units_low.min(self.dirty_units);
        }
    }

    fn lists(&mut self, class: u8) -> &mut Lists {
        if class == DIRTY { &mut self.dirty } else { &mut self.clean }
    }
}

impl Lists {
    const fn new() -> Lists {
        Lists { heads: [0; LISTS], filled: 0 }
    }

    /// A run of at least `units` units, from the list of the shortest that do.
    fn find(&self, pages: &[Page], units: u32) -> Option<u32> {
        if units as usize >= LISTS - 1 {
            return self.find_long(pages, units);
        }
        let enough = self.filled & (u32::MAX << units);
        (enough != 0).then(|| self.heads[enough.trailing_zeros() as usize])
    }

    /// The first run of the last list that is long enough, among the first few.
    fn find_long(&self, pages: &[Page], units: u32) -> Option<u32> {
        let mut first = self.heads[LISTS - 1];
        for _ in 0..LONG_LOOKED_MAX {
            if first == 0 {
                return None;
            }
            let page = &pages[first as usize];
            if page.empty_units() >= units {
                return Some(first);
            }
            first = page.next;
        }
        None
    }
}

fn list_of(units: u32) -> usize {
    (units as usize).min(LISTS - 1)
}

//! Checks for tests: an arena's counters and lists must agree with a walk over its pages.

use super::Arena;
use crate::class;
use crate::page::{CLEAN, DIRTY, LARGE};

impl Arena {
    /// Compares every counter and list with a walk over all pages; `blocks` blocks are live and no freed ones are
    /// kept.
    pub(crate) fn check_pages(&self, blocks: usize) {
        let pages = self.region.pages();
        let (mut live, mut committed, mut dirty, mut unit) = (0, 0, 0, 1);
        let mut runs = [0; class::COUNT];
        while unit < self.runs.top() as usize {
            let page = pages[unit];
            let units = if page.class < LARGE { page.units().into() } else { page.empty_units() as usize };
            match page.class {
                DIRTY => dirty += units,
                CLEAN => {}
                LARGE => {
                    live += 1;
                    committed += units;
                    assert_eq!(pages[unit + units - 1].empty_units() as usize, units);
                }
                class => {
                    live += usize::from(page.live);
                    committed += units;
                    runs[usize::from(class)] += 1;
                    assert!(page.live > 0);
                    for (at, inner) in pages.iter().enumerate().skip(unit).take(units) {
                        assert_eq!((inner.class, inner.first(at as u32)), (class, unit as u32));
                    }
                }
            }
            assert!(units > 0);
            unit += units;
        }
        assert_eq!(unit, self.runs.top() as usize);
        assert_eq!((live, committed), (blocks, self.committed_units));
        assert_eq!(dirty, self.runs.dirty_units() as usize);
        for (class, bin) in self.bins.iter().enumerate() {
            assert_eq!((bin.runs, bin.kept), (runs[class], 0));
            let (mut unit, mut before) = (bin.partial, 0);
            while unit != 0 {
                let page = pages[unit as usize];
                assert!(!page.is_full() && usize::from(page.class) == class && page.prev == before);
                before = std::mem::replace(&mut unit, page.next);
            }
        }
    }

    /// Bytes of blocks that the kernel holds in memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.region.resident_bytes()
    }

    /// The first unit that was never used or was given back.
    pub(crate) fn top(&self) -> u32 {
        self.runs.top()
    }
}

//! Blocks longer than any size class: runs of whole pages, one block each.
//!
//! Their lengths go up in steps of at most 12.5 % as the classes do, so that a value that grows by appending is
//! copied seldom.

use super::Arena;
use crate::LARGE_BYTES_MAX;
use crate::handle::Handle;
use crate::page::{LARGE, Page, UNIT_BYTES, UNIT_GRANULES, UNUSED};

/// Units of a block for `bytes`.
pub(super) fn units_for(bytes: usize) -> u32 {
    let units = bytes.div_ceil(UNIT_BYTES);
    // At least 9 units here; the step is an eighth of the power of two below.
    let step = 1 << (units.ilog2().saturating_sub(3));
    u32::try_from(units.next_multiple_of(step)).unwrap_or(u32::MAX)
}

/// Bytes of the large block that begins at `page`; 0 when none does.
#[cold]
pub(super) fn bytes(page: &Page) -> usize {
    if page.class == LARGE { page.empty_units() as usize * UNIT_BYTES } else { 0 }
}

impl Arena {
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_large(&mut self, bytes: usize) -> Option<Handle> {
        if bytes == 0 || bytes > LARGE_BYTES_MAX {
            return None;
        }
        let units = units_for(bytes);
        let pages = self.region.pages_mut();
        let first = self.runs.take(pages, units)?;
        pages[first as usize] = Page::empty(units, LARGE);
        pages[(first + units - 1) as usize] = Page::empty(units, LARGE);
        self.committed_units += units as usize;
        self.used_bytes += units as usize * UNIT_BYTES;
        Some(Handle::from_raw(first * UNIT_GRANULES))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn free_large(&mut self, h: Handle) {
        let first = h.raw() / UNIT_GRANULES;
        let pages = self.region.pages_mut();
        let page = pages[first as usize];
        if page.class != LARGE || !h.raw().is_multiple_of(UNIT_GRANULES) {
            debug_assert!(false, "freed a block that is not live: {h:?}");
            return;
        }
        let units = page.empty_units();
        pages[first as usize] = Page::empty(0, UNUSED);
        pages[(first + units - 1) as usize] = Page::empty(0, UNUSED);
        self.committed_units -= units as usize;
        self.used_bytes -= units as usize * UNIT_BYTES;
        self.runs.put(pages, first, units);
    }
}

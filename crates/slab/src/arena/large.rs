//! Blocks longer than any size class: runs of whole pages, one block each.
//!
//! Below a mebibyte, lengths grow in steps of at most 12.5 %, as for classes. A longer block has only the pages it
//! needs, and a caller that lets a value grow must ask for spare room itself. A block that is read in slices is
//! pinned. If it is freed meanwhile, it is no longer counted, but its pages stay until the last reader has finished.

use super::Arena;
use crate::LARGE_BYTES_MAX;
use crate::handle::Handle;
use crate::page::{LARGE, Page, UNIT_BYTES, UNIT_GRANULES, UNUSED};

/// Blocks of at least this many units are not rounded up to steps.
const EXACT_UNITS_MIN: usize = (1 << 20) / UNIT_BYTES;

/// A large block with readers.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pin {
    block: Handle,
    // 1 <= readers
    readers: u32,
    // The block was freed and waits for them.
    is_freed: bool,
}

/// Units of a block for `bytes`.
pub(super) fn units_for(bytes: usize) -> u32 {
    let units = bytes.div_ceil(UNIT_BYTES);
    if units >= EXACT_UNITS_MIN {
        return u32::try_from(units).unwrap_or(u32::MAX);
    }
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
        let pin = self.pins.iter_mut().find(|pin| pin.block == h);
        if pin.as_ref().is_some_and(|pin| pin.is_freed) {
            debug_assert!(false, "freed a block that is not live: {h:?}");
            return;
        }
        self.committed_units -= units as usize;
        self.used_bytes -= units as usize * UNIT_BYTES;
        match pin {
            Some(pin) => pin.is_freed = true,
            None => self.drop_large(first, units),
        }
    }

    fn drop_large(&mut self, first: u32, units: u32) {
        let pages = self.region.pages_mut();
        pages[first as usize] = Page::empty(0, UNUSED);
        pages[(first + units - 1) as usize] = Page::empty(0, UNUSED);
        self.runs.put(pages, first, units);
    }

    /// Pins a large block, so that it stays unchanged until [`Arena::unpin`] was called as often. Returns false if
    /// `h` is not a large block. Code that changes blocks in place must check [`Arena::is_pinned`] first. Cost: a
    /// comparison for each pinned block.
    pub fn pin(&mut self, h: Handle) -> bool {
        let page = self.region.pages().get((h.raw() / UNIT_GRANULES) as usize);
        if page.is_none_or(|page| page.class != LARGE) || !h.raw().is_multiple_of(UNIT_GRANULES) {
            return false;
        }
        match self.pins.iter_mut().find(|pin| pin.block == h) {
            Some(pin) => pin.readers += 1,
            None => self.pins.push(Pin { block: h, readers: 1, is_freed: false }),
        }
        true
    }

    /// Ends one [`Arena::pin`]. A block that was freed meanwhile is released with its last reader.
    pub fn unpin(&mut self, h: Handle) {
        let Some(at) = self.pins.iter().position(|pin| pin.block == h) else { return };
        let pin = &mut self.pins[at];
        pin.readers -= 1;
        if pin.readers > 0 {
            return;
        }
        let Pin { is_freed, .. } = self.pins.swap_remove(at);
        if is_freed {
            let first = h.raw() / UNIT_GRANULES;
            let units = self.region.pages()[first as usize].empty_units();
            self.drop_large(first, units);
        }
    }

    /// Returns true if the block is read in slices, so that it must not be changed in place.
    #[cold]
    pub fn is_pinned(&self, h: Handle) -> bool {
        self.pins.iter().any(|pin| pin.block == h)
    }

    /// The share in bytes of each reader in a block that was freed while it has readers; 0 for any other block.
    pub fn left_behind_bytes(&self, h: Handle) -> usize {
        let pin = self.pins.iter().find(|pin| pin.block == h && pin.is_freed);
        pin.map_or(0, |pin| self.size(h) / pin.readers as usize)
    }
}

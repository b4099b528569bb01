//! The mapping of an arena: page records, then blocks, then a guard that any 16-bit step may run into.

use crate::page::{Page, UNIT_BYTES};
use std::io;
use std::ptr::NonNull;

/// Bytes mapped behind the last unit. A free list link has 16 bits of granules and lies in memory that a stale handle
/// may have overwritten. A broken link must stay inside the mapping.
const GUARD_BYTES: usize = 2 * (u16::MAX as usize + 1) * 8;
/// Reservations are whole multiples of this, so that the page records fill whole kernel pages.
const STEP_BYTES: usize = 256 * UNIT_BYTES;
/// All that a 32-bit handle can name.
const RESERVE_BYTES_MAX: usize = 8 << 32;

/// An address range of zeros. The kernel provides memory as it is touched.
pub(crate) struct Region {
    // `pages` points at `units` page records, `blocks` at `units` units and the guard. Both are inside one mapping
    // that starts at `pages`, lives as long as this value and is reachable only through it.
    pages: NonNull<Page>,
    blocks: NonNull<u8>,
    units: u32,
}

// SAFETY: the mapping belongs to this value alone; nothing in it depends on the thread.
unsafe impl Send for Region {}
// SAFETY: `&Region` only gives shared slices.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves room for `bytes` of blocks, rounded up to 1 MiB, at most 32 GiB. Errors: the kernel's.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Region> {
        let bytes = bytes.clamp(1, RESERVE_BYTES_MAX).next_multiple_of(STEP_BYTES);
        let units = (bytes / UNIT_BYTES) as u32;
        let mapped = mapped_bytes(units);
        // SAFETY: a fresh anonymous mapping at an address the kernel picks touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Without this a shard of ten keys would cost 2 MiB where huge pages are always on. Refusal is harmless.
        // SAFETY: the range was just mapped and is ours.
        unsafe { libc::madvise(start, mapped, libc::MADV_NOHUGEPAGE) };
        let pages = NonNull::new(start.cast::<Page>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the records take `records_bytes(units)` of the `mapped` bytes, so the sum is inside the mapping.
        let blocks = unsafe { pages.cast::<u8>().add(records_bytes(units)) };
        Ok(Region { pages, blocks, units })
    }

    /// Units of 4 KiB, the first of which is never used.
    #[inline]
    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    #[inline]
    pub(crate) fn pages(&self) -> &[Page] {
        // SAFETY: `units` records, zeroed by the kernel and valid as zeros, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr(), self.units as usize) }
    }

    #[inline]
    pub(crate) fn pages_mut(&mut self) -> &mut [Page] {
        // SAFETY: as `pages`; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_ptr(), self.units as usize) }
    }

    /// The address of granule 0.
    #[inline]
    pub(crate) fn blocks(&self) -> *mut u8 {
        self.blocks.as_ptr()
    }

    /// The address of granule `granule`.
    ///
    /// # Safety
    /// `granule` is below `units * 512` or less than 2^17 past it (the guard).
    #[inline]
    pub(crate) unsafe fn at(&self, granule: u32) -> *mut u8 {
        // SAFETY: the caller keeps the granule inside the mapping.
        unsafe { self.blocks.as_ptr().add(granule as usize * 8) }
    }

    /// Gives `units` units from `first` back to the kernel; they read as zeros again.
    pub(crate) fn discard(&mut self, first: u32, units: u32) {
        assert!(u64::from(first) + u64::from(units) <= u64::from(self.units));
        // SAFETY: the range is inside the mapping and exclusively ours; `MADV_DONTNEED` leaves it mapped.
        unsafe {
            let start = self.blocks.as_ptr().add(first as usize * UNIT_BYTES);
            libc::madvise(start.cast(), units as usize * UNIT_BYTES, libc::MADV_DONTNEED);
        }
    }

    /// Bytes of units that the kernel holds in memory.
    #[cfg(test)]
    pub(crate) fn resident_bytes(&self) -> usize {
        let mut resident = vec![0_u8; self.units as usize];
        // SAFETY: the range is mapped, and there is one byte for each of its pages.
        let done = unsafe {
            libc::mincore(self.blocks().cast(), self.units as usize * UNIT_BYTES, resident.as_mut_ptr())
        };
        assert_eq!(done, 0);
        resident.iter().filter(|&&page| page & 1 == 1).count() * UNIT_BYTES
    }

    /// Gives everything below unit `top` back to the kernel, page records included, with one call.
    pub(crate) fn discard_all(&mut self, top: u32) {
        self.discard_from_start(records_bytes(self.units) + top.min(self.units) as usize * UNIT_BYTES);
    }

    /// Clears the records of the units below `top`; the units keep their content.
    pub(crate) fn discard_records(&mut self, top: u32) {
        self.discard_from_start(records_bytes(top.min(self.units)));
    }

    fn discard_from_start(&mut self, bytes: usize) {
        // SAFETY: as `discard`; zeroed page records are valid ones.
        unsafe { libc::madvise(self.pages.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `reserve` with this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.pages.as_ptr().cast(), mapped_bytes(self.units)) };
    }
}

fn records_bytes(units: u32) -> usize {
    units as usize * size_of::<Page>()
}

fn mapped_bytes(units: u32) -> usize {
    records_bytes(units) + units as usize * UNIT_BYTES + GUARD_BYTES
}

//! The arena of one shard: blocks by size class, from runs of pages, behind 32-bit handles.

#[cfg(test)]
mod check;
mod compact;
mod large;
mod left;
mod past;

use crate::class;
use crate::handle::Handle;
use crate::lexicon::Lexicon;
use crate::page::{NOTHING, Page, UNIT_BYTES, UNIT_GRANULES};
use crate::region::Region;
use crate::runs::PageRuns;
use crate::touched;
use std::io;

pub use past::Past;

/// Address space reserved by [`Arena::new`], in bytes: all that 32-bit handles can name.
const RESERVE_BYTES: usize = 32 << 30;
/// Below this the kernel's refusal is final.
const RESERVE_BYTES_MIN: usize = 64 << 20;
/// Cache lines of a block that are asked for ahead.
#[cfg(target_arch = "x86_64")]
const PREFETCH_LINES: usize = 5;

/// Blocks of one shard in one reserved address range. Safe with any handle: a stale one may read or spoil other
/// blocks of the same arena, never memory outside of it. One that is beyond the reservation panics.
#[repr(C)]
pub struct Arena {
    // The blocks and their page records, beside the numbers that `maxmemory` reads.
    region: Region,
    used_bytes: usize,
    committed_units: usize,
    looks_back: bool,
    runs: PageRuns,
    bins: [Bin; class::COUNT],
    // One bit for each class: it keeps blocks, or did when this was last looked at.
    keeping: [u64; class::COUNT.div_ceil(64)],
    // First units of the runs that `compact` empties. Those still marked as such are in no list.
    emptying: Vec<u32>,
    // Blocks kept before their first change, or older blocks shown in place of the present ones.
    past: Option<Box<Past>>,
    // Large blocks that are read in slices.
    pins: Vec<large::Pin>,
    // Blocks given up while they are read in slices.
    left: left::LeftBlocks,
    // Words that blocks refer to, while there are such blocks.
    lexicon: Option<Box<Lexicon>>,
}

/// The runs of one class.
#[derive(Copy, Clone)]
struct Bin {
    // The run with room that is filled next, 0 = none. Full runs are in no list.
    partial: u32,
    // Runs of the class, full ones included.
    runs: u32,
    // 0 <= kept <= 8: blocks freed last. Their runs still count them as live.
    kept: u32,
    newest: [Handle; KEPT_MASK + 1],
}

impl Bin {
    const EMPTY: Bin = Bin { partial: 0, runs: 0, kept: 0, newest: [Handle::NONE; KEPT_MASK + 1] };
}

/// Empty pages that count as taken, at most.
const EMPTY_COUNTED_UNITS: usize = (1 << 20) / UNIT_BYTES;

/// Larger arenas are not given back with one call.
const CLEARED_UNITS_MAX: u32 = 256;

/// Each class keeps up to 8 freed blocks, so that replacing values of one size touches no page record.
const KEPT_MASK: usize = 7;

impl Arena {
    /// An empty arena over 32 GiB of address space, or as much of it as the kernel gives; no memory is used yet.
    /// Errors: not even 64 MiB could be reserved.
    pub fn new() -> io::Result<Arena> {
        let mut bytes = RESERVE_BYTES;
        loop {
            match Arena::with_reserve(bytes) {
                Err(_) if bytes > RESERVE_BYTES_MIN => bytes /= 2,
                done => return done,
            }
        }
    }

    /// An empty arena over `bytes` of address space, rounded up to whole MiB, at most 32 GiB. Errors: the kernel's.
    pub fn with_reserve(bytes: usize) -> io::Result<Arena> {
        Ok(Arena {
            region: Region::reserve(bytes)?,
            bins: [Bin::EMPTY; class::COUNT],
            runs: PageRuns::new(),
            used_bytes: 0,
            committed_units: 0,
            keeping: [0; _],
            emptying: Vec::new(),
            past: None,
            pins: Vec::new(),
            left: left::LeftBlocks::default(),
            looks_back: false,
            lexicon: None,
        })
    }

    /// A block of at least `bytes`, 1..=`LARGE_BYTES_MAX`, with unspecified (old) contents. `None`: the reservation
    /// is exhausted, or `bytes` is out of range. Past `BLOCK_BYTES_MAX` a block is a run of whole pages.
    #[inline]
    pub fn alloc(&mut self, bytes: usize) -> Option<Handle> {
        if bytes.wrapping_sub(1) >= class::BYTES_MAX {
            return self.alloc_large(bytes);
        }
        let class = class::of(bytes);
        let bin = &mut self.bins[class];
        if bin.kept == 0 {
            return self.alloc_in_run(class);
        }
        bin.kept -= 1;
        let h = bin.newest[bin.kept as usize & KEPT_MASK];
        self.used_bytes += usize::from(class::BYTES[class]);
        Some(h)
    }

    /// Frees a block. Does nothing if the handle names no block of this arena. A block that is freed twice may be
    /// handed out twice, or stop the process.
    #[inline]
    pub fn free(&mut self, h: Handle) {
        touched::note();
        let Some(page) = self.region.pages().get((h.raw() / UNIT_GRANULES) as usize) else { return };
        let class = usize::from(page.class);
        if class.wrapping_sub(1) >= class::COUNT - 1 {
            return self.free_large(h);
        }
        self.used_bytes -= usize::from(class::BYTES[class]);
        let bin = &mut self.bins[class];
        if bin.kept as usize > KEPT_MASK {
            return self.free_in_run(h);
        }
        bin.newest[bin.kept as usize] = h;
        bin.kept += 1;
        self.keeping[class / 64] |= 1 << (class % 64);
    }

    /// Usable bytes of the block: those of its size class. 0 when the handle names no block.
    #[inline]
    pub fn size(&self, h: Handle) -> usize {
        let page = &self.region.pages()[(h.raw() / UNIT_GRANULES) as usize];
        match class::BYTES[usize::from(page.class)] {
            0 => large::bytes(page),
            bytes => usize::from(bytes),
        }
    }

    /// The bytes that a block for `bytes` has, 1..=`LARGE_BYTES_MAX`, without looking at any arena.
    #[inline]
    pub fn fits(bytes: usize) -> usize {
        if bytes > class::BYTES_MAX {
            return large::units_for(bytes) as usize * UNIT_BYTES;
        }
        class::bytes_of(class::of(bytes.max(1)))
    }

    /// The block, exactly `size(h)` bytes.
    #[inline]
    pub fn block(&self, h: Handle) -> &[u8] {
        touched::note();
        let bytes = self.size(h);
        // SAFETY: `size` checked that the unit is below `units`. No class is longer than the guard behind the last
        // unit, and a large block lies whole below `units`.
        unsafe { std::slice::from_raw_parts(self.region.at(h.raw()), bytes) }
    }

    /// The block for writing, exactly `size(h)` bytes.
    #[inline]
    pub fn block_mut(&mut self, h: Handle) -> &mut [u8] {
        touched::note();
        let bytes = self.size(h);
        // SAFETY: as `block`; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.region.at(h.raw()), bytes) }
    }

    /// From the block to the end of the reservation, for records that tell their own length: no class lookup.
    #[inline]
    pub fn tail(&self, h: Handle) -> &[u8] {
        touched::note();
        let bytes = self.tail_bytes(h);
        // SAFETY: `tail_bytes` checked that the block starts in the mapping and counted the bytes that follow.
        unsafe { std::slice::from_raw_parts(self.region.at(h.raw()), bytes) }
    }

    /// From the block to the end of the reservation for writing; only the block's own bytes are the caller's.
    #[inline]
    pub fn tail_mut(&mut self, h: Handle) -> &mut [u8] {
        touched::note();
        let bytes = self.tail_bytes(h);
        // SAFETY: as `tail`; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.region.at(h.raw()), bytes) }
    }

    /// Two different blocks for writing. Panics when they overlap.
    #[inline]
    pub fn two_mut(&mut self, a: Handle, b: Handle) -> (&mut [u8], &mut [u8]) {
        touched::note();
        let (a_bytes, b_bytes) = (self.size(a), self.size(b));
        let (low, low_bytes, high) = if a.raw() < b.raw() { (a, a_bytes, b) } else { (b, b_bytes, a) };
        assert!((high.raw() - low.raw()) as usize * 8 >= low_bytes && a != b, "blocks overlap: {a:?} {b:?}");
        // SAFETY: each block is in the mapping as in `block`, and the two do not overlap.
        unsafe {
            (
                std::slice::from_raw_parts_mut(self.region.at(a.raw()), a_bytes),
                std::slice::from_raw_parts_mut(self.region.at(b.raw()), b_bytes),
            )
        }
    }

    /// Prefetches the block's first cache lines, as many as a value of 256 bytes occupies. Prefetching only the first
    /// would leave the caller waiting for the others one after another. Harmless with any handle.
    #[inline]
    pub fn prefetch(&self, h: Handle) {
        let block = self.region.blocks().wrapping_add(h.raw() as usize * 8);
        #[cfg(target_arch = "x86_64")]
        for line in 0..PREFETCH_LINES {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing and never faults, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(line * 64).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = block;
    }

    /// Prefetches the cache line of byte `at` of the block. Harmless with any handle and any `at`.
    #[inline]
    pub fn prefetch_at(&self, h: Handle, at: usize) {
        let byte = self.region.blocks().wrapping_add(h.raw() as usize * 8).wrapping_add(at);
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing and never faults, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(byte.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = byte;
    }

    /// Class bytes of all live blocks.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes of the pages that hold a live block or one of the last 8 freed of its class. `maxmemory` counts these.
    #[inline]
    pub fn committed_bytes(&self) -> usize {
        self.committed_units * UNIT_BYTES
    }

    /// Bytes of pages that the kernel holds for the arena: those with blocks, and the empty ones not given back yet.
    /// Counts at most `EMPTY_COUNTED_UNITS` of the empty ones, because the others are about to be given back.
    #[inline]
    pub fn occupied_bytes(&self) -> usize {
        (self.committed_units + (self.runs.dirty_units() as usize).min(EMPTY_COUNTED_UNITS)) * UNIT_BYTES
    }

    /// Bytes of the page records up to the highest page in use.
    pub fn page_record_bytes(&self) -> usize {
        (self.runs.top() as usize - 1) * size_of::<Page>()
    }

    /// Bytes of empty pages that are still resident: what [`Arena::release_empty`] can give back.
    #[inline]
    pub fn empty_bytes(&self) -> usize {
        self.runs.dirty_units() as usize * UNIT_BYTES
    }

    /// Bytes of empty pages that held blocks at some time since the last call: those that are likely to be needed again.
    pub fn take_reused_bytes(&mut self) -> usize {
        self.runs.take_reused() as usize * UNIT_BYTES
    }

    /// Gives at most `pages_max` empty pages of 4 KiB back to the kernel; returns the bytes given back. From here on
    /// every committed page holds a live block.
    pub fn release_empty(&mut self, pages_max: usize) -> usize {
        self.free_kept();
        let pages_max = u32::try_from(pages_max).unwrap_or(u32::MAX);
        self.runs.release(&mut self.region, pages_max)
    }

    /// The words that blocks may refer to; `None` if there is no such block.
    #[inline]
    pub fn lexicon(&self) -> Option<&Lexicon> {
        self.lexicon.as_deref()
    }

    /// The same, to ask for more.
    pub fn lexicon_mut(&mut self) -> Option<&mut Lexicon> {
        self.lexicon.as_deref_mut()
    }

    /// Notes a block that may refer to words.
    pub fn refer(&mut self) {
        self.lexicon.get_or_insert_default().blocks += 1;
    }

    /// Notes that such a block has gone. The words go with the last one.
    pub fn refer_less(&mut self) {
        if let Some(lexicon) = &mut self.lexicon {
            lexicon.blocks -= 1;
            if lexicon.blocks == 0 {
                self.lexicon = None;
            }
        }
    }

    /// Drops every block. A small arena is given back with one system call, at some hundred nanoseconds a page. A
    /// larger one becomes one empty run, which [`Arena::release_empty`] gives back in steps.
    pub fn clear(&mut self) {
        debug_assert!(self.pins.is_empty(), "dropped a block that is being read");
        self.pins = Vec::new();
        self.left = left::LeftBlocks::default();
        self.lexicon = None;
        let top = self.runs.top();
        self.bins = [Bin::EMPTY; class::COUNT];
        if top <= CLEARED_UNITS_MAX {
            self.region.discard_all(top);
            self.runs = PageRuns::new();
        } else {
            self.region.discard_records(top);
            self.runs = PageRuns::all_empty(self.region.pages_mut(), top);
        }
        self.used_bytes = 0;
        self.committed_units = 0;
        self.emptying = Vec::new();
    }

    #[inline]
    fn tail_bytes(&self, h: Handle) -> usize {
        let end = self.region.units() as usize * UNIT_BYTES;
        let start = h.raw() as usize * 8;
        assert!(start < end, "handle beyond the reservation: {h:?}");
        end - start
    }

    /// A block from the run that is filled now.
    #[inline(never)]
    fn alloc_in_run(&mut self, class: usize) -> Option<Handle> {
        let mut unit = self.bins[class].partial;
        if unit == 0 {
            unit = self.add_run(class)?;
        }
        let block_bytes = class::BYTES[class];
        let blocks = self.region.blocks();
        let page = &mut self.region.pages_mut()[unit as usize];
        let granule;
        if page.free != NOTHING {
            granule = unit * UNIT_GRANULES + u32::from(page.free);
            // SAFETY: the unit is below `units` and the place 16 bits, so the granule is in the mapping or its guard.
            page.free = unsafe { blocks.add(granule as usize * 8).cast::<u16>().read() };
        } else {
            granule = unit * UNIT_GRANULES + u32::from(page.fresh);
            let after = u32::from(page.fresh) + u32::from(block_bytes >> 2);
            let room = u32::from(page.units()) * UNIT_GRANULES;
            page.fresh = if after <= room { page.fresh + (block_bytes >> 3) } else { NOTHING };
        }
        page.live += 1;
        if page.is_full() {
            self.unlist(class, unit);
        }
        self.used_bytes += usize::from(block_bytes);
        Some(Handle::from_raw(granule))
    }

    /// Gives a block back to its run. `free` found its unit below `units` and of a class.
    #[inline(never)]
    fn free_in_run(&mut self, h: Handle) {
        let granule = h.raw();
        let blocks = self.region.blocks();
        let pages = self.region.pages_mut();
        let unit = granule / UNIT_GRANULES;
        let unit = pages[unit as usize].first(unit);
        let page = &mut pages[unit as usize];
        let class = usize::from(page.class);
        // SAFETY: `pages` was indexed by the granule's unit, so the unit is below `units`.
        unsafe { blocks.add(granule as usize * 8).cast::<u16>().write(page.free) };
        let was_full = page.is_full();
        page.free = (granule - unit * UNIT_GRANULES) as u16;
        page.live -= 1;
        let is_empty = page.live == 0;
        if was_full {
            self.list(class, unit);
        }
        if is_empty {
            self.drop_run(class, unit);
        }
    }

    /// Gives the kept blocks of all classes back to their runs.
    fn free_kept(&mut self) {
        for (word, classes) in std::mem::take(&mut self.keeping).into_iter().enumerate() {
            let mut left = classes;
            while left != 0 {
                let bin = &mut self.bins[word * 64 + left.trailing_zeros() as usize];
                left &= left - 1;
                let (newest, kept) = (bin.newest, std::mem::take(&mut bin.kept));
                newest.iter().take(kept as usize).for_each(|&h| self.free_in_run(h));
            }
        }
    }

    /// Gives `class` another run; returns its first unit. The first run of a class is as short as possible and the
    /// next two are short, so that a shard with a few blocks of each class stays small.
    #[cold]
    #[inline(never)]
    fn add_run(&mut self, class: usize) -> Option<u32> {
        let units = match self.bins[class].runs {
            0 => class::bytes_of(class).div_ceil(UNIT_BYTES) as u8,
            1 | 2 => class::FEW_UNITS[class],
            _ => class::RUN_UNITS[class],
        };
        let pages = self.region.pages_mut();
        let unit = self.runs.take(pages, u32::from(units))?;
        pages[unit as usize] = Page::used(units, class as u8);
        for back in 1..units {
            pages[unit as usize + usize::from(back)] = Page::inner(back, class as u8);
        }
        self.bins[class].partial = unit;
        self.bins[class].runs += 1;
        self.committed_units += usize::from(units);
        Some(unit)
    }

    /// Takes an emptied run from its class.
    #[cold]
    #[inline(never)]
    fn drop_run(&mut self, class: usize, unit: u32) {
        if !self.region.pages()[unit as usize].is_emptying() {
            self.unlist(class, unit);
        }
        self.bins[class].runs -= 1;
        let pages = self.region.pages_mut();
        let units = pages[unit as usize].units();
        self.committed_units -= usize::from(units);
        for page in &mut pages[unit as usize..unit as usize + usize::from(units)] {
            *page = Page::empty(0, crate::page::UNUSED);
        }
        self.runs.put(pages, unit, u32::from(units));
    }

    /// Puts a run that has room at the front of its class, so that the fullest runs are filled first and the others
    /// can empty.
    #[inline(never)]
    fn list(&mut self, class: usize, unit: u32) {
        let head = std::mem::replace(&mut self.bins[class].partial, unit);
        let pages = self.region.pages_mut();
        if head != 0 {
            pages[head as usize].prev = unit;
        }
        pages[unit as usize].next = head;
        pages[unit as usize].prev = 0;
    }

    #[inline(never)]
    fn unlist(&mut self, class: usize, unit: u32) {
        let pages = self.region.pages_mut();
        let Page { next, prev, .. } = pages[unit as usize];
        if next != 0 {
            pages[next as usize].prev = prev;
        }
        if prev != 0 {
            pages[prev as usize].next = next;
        } else {
            self.bins[class].partial = next;
        }
    }
}

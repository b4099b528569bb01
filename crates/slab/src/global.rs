//! The general allocator for everything outside the keyspace: buffers, tables, connections. Mimalloc, except that the
//! longest blocks are separate mappings.
//!
//! The binary names [`Allocator`] in its `#[global_allocator]`; the server's housekeeping calls [`give_back`]. Small
//! alignments take the plain entry points: the aligned ones over-allocate when no page of the size class exists yet.

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

unsafe extern "C" {
    // Part of mimalloc that its crate names only together with all the rest.
    fn mi_collect(force: bool);
}

/// mimalloc as the process's allocator.
pub struct Allocator;

/// Blocks of at least this many bytes are mappings. They return to the kernel when freed, and grow without a copy.
/// Shorter blocks are often reused immediately, for example by scripts, and a new mapping would cost a page fault for
/// each page.
const MAPPED_BYTES_MIN: usize = 32 << 20;
/// The kernel's pages, which a mapping is aligned to.
const PAGE_BYTES: usize = 4096;
/// Freed blocks of at least this many bytes are counted for [`give_back`].
const COUNTED_BYTES_MIN: usize = 16 << 10;
/// Number of such bytes that makes a search for empty pages worthwhile.
const WORTH_BYTES: usize = 256 << 10;

thread_local! {
    static FREED_BYTES: Cell<usize> = const { Cell::new(0) };
    static SEEN_ROUND: Cell<u32> = const { Cell::new(0) };
}

// Counts the times a thread has freed enough that all threads should look for empty pages.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// Gives freed memory back to the kernel. Mimalloc by itself does so only at the next allocation. Each thread that
/// uses long buffers calls it once a second, because a thread may free memory of another. Cost: nothing if little was
/// freed since the last call; else as [`purge`].
pub fn give_back() {
    if FREED_BYTES.replace(0) >= WORTH_BYTES {
        ROUND.fetch_add(1, Relaxed);
    }
    let round = ROUND.load(Relaxed);
    if SEEN_ROUND.replace(round) != round {
        purge();
    }
}

/// Gives all empty pages of this thread, and those of ended threads, back to the kernel. Cost: some ten nanoseconds
/// for each page of the thread, and a system call for each run of empty ones.
pub fn purge() {
    // SAFETY: it frees nothing that is in use; a thread may call it at any time.
    unsafe { mi_collect(true) };
}

/// Returns true if mimalloc's natural alignment is enough: 8 bytes always, 16 from 16 bytes on.
#[inline]
fn is_plain(align: usize, bytes: usize) -> bool {
    align <= 8 || (align <= 16 && bytes >= 16)
}

#[inline]
fn is_mapped(align: usize, bytes: usize) -> bool {
    bytes >= MAPPED_BYTES_MIN && align <= PAGE_BYTES
}

#[cold]
fn note_freed(bytes: usize) {
    // A thread that is ending has no counter any more; other threads take over its memory.
    let _ = FREED_BYTES.try_with(|freed| freed.set(freed.get().saturating_add(bytes)));
}

/// A mapping of zeros; null if the kernel refuses.
#[cold]
fn map(bytes: usize) -> *mut u8 {
    // SAFETY: a fresh anonymous mapping at an address the kernel picks touches no existing memory.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED { std::ptr::null_mut() } else { start.cast() }
}

/// Changes the length of a block that is, or becomes, a mapping.
///
/// # Safety
/// `block` is live, of this allocator and this layout; `bytes` is a valid new size.
#[cold]
unsafe fn remap(block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
    let (old, align) = (layout.size(), layout.align());
    if is_mapped(align, old) && is_mapped(align, bytes) {
        // SAFETY: the block is a mapping of `old` bytes, and only the caller refers to it, moved or not.
        let moved = unsafe { libc::mremap(block.cast(), old, bytes, libc::MREMAP_MAYMOVE) };
        return if moved == libc::MAP_FAILED { std::ptr::null_mut() } else { moved.cast() };
    }
    // SAFETY: the caller says that the new layout is valid. Both blocks hold the copied bytes and do not overlap. The
    // old block is the caller's to free.
    unsafe {
        let to = Allocator.alloc(Layout::from_size_align_unchecked(bytes, align));
        if !to.is_null() {
            std::ptr::copy_nonoverlapping(block, to, old.min(bytes));
            Allocator.dealloc(block, layout);
        }
        to
    }
}

// SAFETY: every method passes the layout on unchanged. Mimalloc gives blocks of at least that size and alignment,
// `mi_free` takes blocks of every entry point, and none of them unwinds. The layout decides whether a block is a
// mapping, and it is the same when the block is freed.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        if is_mapped(align, bytes) {
            return map(bytes);
        }
        // SAFETY: no obligation beyond a valid layout, which the caller keeps.
        unsafe {
            if is_plain(align, bytes) { mi::mi_malloc(bytes) } else { mi::mi_malloc_aligned(bytes, align) }
                .cast()
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        if is_mapped(align, bytes) {
            return map(bytes);
        }
        // SAFETY: as `alloc`.
        unsafe {
            if is_plain(align, bytes) { mi::mi_zalloc(bytes) } else { mi::mi_zalloc_aligned(bytes, align) }
                .cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() >= COUNTED_BYTES_MIN {
            if is_mapped(layout.align(), layout.size()) {
                // SAFETY: the caller gives a live block, which is a mapping of this length.
                unsafe { libc::munmap(block.cast(), layout.size()) };
                return;
            }
            note_freed(layout.size());
        }
        // SAFETY: the caller gives a live block of this allocator.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if is_mapped(layout.align(), layout.size().max(bytes)) {
            // SAFETY: the caller gives a live block of this allocator and a valid new size.
            return unsafe { remap(block, layout, bytes) };
        }
        if layout.size() >= COUNTED_BYTES_MIN {
            note_freed(layout.size());
        }
        // SAFETY: the caller gives a live block of this allocator and a valid new size.
        unsafe {
            if is_plain(layout.align(), bytes) {
                mi::mi_realloc(block.cast(), bytes)
            } else {
                mi::mi_realloc_aligned(block.cast(), bytes, layout.align())
            }
            .cast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_block_keeps_its_bytes_as_it_grows_and_shrinks_over_every_border() {
        let sizes = [100, MAPPED_BYTES_MIN - 1, MAPPED_BYTES_MIN, 3 * MAPPED_BYTES_MIN + 77];
        for from in sizes {
            for to in sizes {
                for align in [1, 64] {
                    let layout = Layout::from_size_align(from, align).expect("a layout");
                    let kept = from.min(to);
                    // SAFETY: each block is used within its length, and freed with the layout it has at the end.
                    unsafe {
                        let block = Allocator.alloc(layout);
                        assert!(!block.is_null() && block.addr().is_multiple_of(align));
                        // A byte of each page, and the last one.
                        (0..from)
                            .step_by(4096)
                            .for_each(|at| block.add(at).write(at as u8 ^ (at >> 12) as u8));
                        block.add(from - 1).write(7);
                        let block = Allocator.realloc(block, layout, to);
                        assert!(!block.is_null() && block.addr().is_multiple_of(align));
                        let is_kept = |at| block.add(at).read() == at as u8 ^ (at >> 12) as u8;
                        assert!((0..kept - 1).step_by(4096).all(is_kept), "{from} to {to}");
                        assert!(to < from || block.add(from - 1).read() == 7);
                        block.add(to - 1).write(8);
                        Allocator.dealloc(block, Layout::from_size_align(to, align).expect("a layout"));
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_block_of_zeros_is_one() {
        let layout = Layout::from_size_align(2 * MAPPED_BYTES_MIN, 8).expect("a layout");
        // SAFETY: as above.
        unsafe {
            let block = Allocator.alloc_zeroed(layout);
            assert!((0..layout.size()).step_by(4096).all(|at| block.add(at).read() == 0));
            Allocator.dealloc(block, layout);
        }
    }
}

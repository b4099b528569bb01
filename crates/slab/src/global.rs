//! The general allocator, mimalloc, for everything that is not in the keyspace: buffers, tables, connections.
//!
//! The binary names [`Allocator`] in its `#[global_allocator]`. Small alignments take the plain entry points: the
//! aligned ones over-allocate when no page of the size class exists yet.

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};

/// mimalloc as the process's allocator.
pub struct Allocator;

/// Whether mimalloc's natural alignment is enough: 8 bytes always, 16 from 16 bytes on.
#[inline]
fn is_plain(align: usize, bytes: usize) -> bool {
    align <= 8 || (align <= 16 && bytes >= 16)
}

// SAFETY: every method passes the layout on unchanged; mimalloc gives blocks of at least that size and alignment,
// `mi_free` takes blocks of every entry point, and none of them unwinds.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        // SAFETY: no obligation beyond a valid layout, which the caller keeps.
        unsafe {
            if is_plain(align, bytes) { mi::mi_malloc(bytes) } else { mi::mi_malloc_aligned(bytes, align) }
                .cast()
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        // SAFETY: as `alloc`.
        unsafe {
            if is_plain(align, bytes) { mi::mi_zalloc(bytes) } else { mi::mi_zalloc_aligned(bytes, align) }
                .cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives a live block of this allocator.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
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

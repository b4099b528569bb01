//! An allocator that counts, for tests which prove that a path allocates nothing.
//!
//! A test names [`Counting`] in its `#[global_allocator]`; no product does.

use crate::global::Allocator;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

/// [`Allocator`], which also counts what each thread asks for.
pub struct Counting;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Allocations and changes of size that this thread has asked for.
pub fn made() -> u64 {
    MADE.with(Cell::get)
}

fn count() {
    // A thread that is ending has no counter any more.
    let _ = MADE.try_with(|made| made.set(made.get() + 1));
}

// SAFETY: every method passes its arguments on unchanged to an allocator that keeps the contract; counting does not
// allocate, as the counter is a constant-initialised number without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are passed on.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are passed on.
        unsafe { Allocator.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are passed on.
        unsafe { Allocator.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are passed on.
        unsafe { Allocator.realloc(block, layout, bytes) }
    }
}

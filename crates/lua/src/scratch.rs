//! A buffer of the thread, in which a library's C function puts a text together.
//!
//! It outlives an error that jumps over those who write it. `run` gives back what one large value has used.

use std::cell::UnsafeCell;

thread_local! {
    static SCRATCH: UnsafeCell<Vec<u8>> = const { UnsafeCell::new(Vec::new()) };
}

/// A buffer that one large value has used is not kept.
const KEPT_BYTES: usize = 64 << 10;

/// The buffer, empty.
///
/// # Safety
/// No other reference to it is in use: the caller is a C function that has just been called, and calls nothing that runs
/// a script's code while it holds the reference.
pub(crate) unsafe fn take<'a>() -> &'a mut Vec<u8> {
    // SAFETY: the caller's promise; the thread's buffer outlives every C function of its scripts.
    let scratch = unsafe { &mut *SCRATCH.with(UnsafeCell::get) };
    scratch.clear();
    scratch
}

/// Frees the buffer if it is large.
///
/// # Safety
/// As for [`take`].
pub(crate) unsafe fn shrink() {
    // SAFETY: the caller's promise.
    let scratch = unsafe { take() };
    if scratch.capacity() > KEPT_BYTES {
        *scratch = Vec::new();
    }
}

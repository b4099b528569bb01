//! Counts the blocks that a thread has accessed, in debug builds. Tests bound this count because a clock would only
//! measure the load of the machine.
//!
//! Called by the arena; read by the server's account of the work a command does while it holds its shards.

#[cfg(debug_assertions)]
thread_local! {
    static TOUCHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Blocks that this thread has asked for so far, each as often as it did; always 0 in release builds.
pub fn blocks() -> u64 {
    #[cfg(debug_assertions)]
    return TOUCHED.get();
    #[cfg(not(debug_assertions))]
    0
}

/// Counts one.
#[inline(always)]
pub(crate) fn note() {
    #[cfg(debug_assertions)]
    TOUCHED.set(TOUCHED.get().wrapping_add(1));
}

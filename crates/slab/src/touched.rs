//! How many blocks a thread has asked for, in debug builds: what a test holds against a bound where a clock would only
//! say how busy the machine is.
//!
//! Called by the arena; read by the server's account of what a command does while it holds its shards.

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

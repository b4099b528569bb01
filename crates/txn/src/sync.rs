//! The only file that names atomics of protocols between threads, so that the unit tests run the real code under the
//! shuttle scheduler. Everything outside the unit tests gets the hardware's atomics.

#[cfg(not(test))]
pub(crate) use core::sync::atomic::{AtomicU8, Ordering};
#[cfg(test)]
pub(crate) use shuttle::sync::atomic::{AtomicU8, Ordering};

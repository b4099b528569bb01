//! The only file that names atomics. This crate's unit tests therefore run the real code under the shuttle scheduler.
//! Everything outside the unit tests, `tests/` included, gets the hardware's atomics.

#[cfg(not(test))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, Ordering},
};
#[cfg(test)]
pub(crate) use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, Ordering},
};

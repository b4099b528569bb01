//! The only file that names atomics and locks of protocols between threads, so that the unit tests run the real code under
//! the shuttle scheduler. Everything outside the unit tests gets the hardware's atomics and the system's locks.

#[cfg(test)]
pub(crate) use shuttle::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering},
};
#[cfg(not(test))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

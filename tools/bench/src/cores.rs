//! Which cores a thread, or a process started by it, may run on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds the calling thread to `cores`; an empty list leaves it as it is.  Errors: no such core here.
pub fn pin_thread(cores: &[usize]) -> io::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs `start` bound to `cores`, so that a process it starts inherits them, and unbinds the thread again.
pub fn bound_to<T>(cores: &[usize], start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    pin_thread(cores)?;
    let result = start();
    sched_setaffinity(None, &before)?;
    result
}

/// The cores this process may use.
pub fn usable() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

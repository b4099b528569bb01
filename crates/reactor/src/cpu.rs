//! The cores that this process may use, and binding a thread to cores.

use std::io;

use crate::{cgroup, sys};

/// Number of cores worth running a thread on: those of the affinity mask, at most the control group's quota rounded
/// up, at least 1.
pub fn usable_cores() -> usize {
    let allowed = allowed_cores().len().max(1);
    match cgroup::cpu_quota() {
        // A quota of 1.5 cores keeps two threads busy enough.
        Some(quota) => allowed.min(quota.ceil() as usize).max(1),
        None => allowed,
    }
}

/// Numbers of the cores the affinity mask allows, ascending; empty only if the kernel does not tell.
pub fn allowed_cores() -> Vec<usize> {
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes into `mask`; it takes any multiple of a word.
    let result = unsafe {
        libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast::<libc::cpu_set_t>())
    };
    if result < 0 {
        return Vec::new();
    }
    (0..MASK_WORDS * 64).filter(|core| mask[core / 64] >> (core % 64) & 1 == 1).collect()
}

/// Keeps the calling thread on one core. Errors: `InvalidInput` for a core that is not allowed.
pub fn pin_thread(core: usize) -> io::Result<()> {
    keep_thread_on(&[core])
}

/// Lets the calling thread, and those it starts, run on any of `cores`: a thread inherits the one core of the thread
/// that started it. Errors: `InvalidInput` when none of them is allowed.
pub fn keep_thread_on(cores: &[usize]) -> io::Result<()> {
    let mut mask = [0_u64; MASK_WORDS];
    for core in cores {
        let word = mask.get_mut(core / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (core % 64);
    }
    // SAFETY: the kernel reads `size_of_val(&mask)` bytes of `mask`.
    sys::check(unsafe {
        libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast::<libc::cpu_set_t>())
    })
    .map(drop)
}

/// Lowers the priority of the calling thread: `nice` is 1..=19. Errors: the kernel refuses.
pub fn step_back(nice: i32) -> io::Result<()> {
    // SAFETY: plain numbers; on Linux the priority is that of the calling thread.
    sys::check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(drop)
}

// 8,192 cores, the kernel's own limit.
const MASK_WORDS: usize = 128;

/// Makes the kernel end this thread's sleeps exactly, instead of gathering them within 50 microseconds.
pub(crate) fn use_exact_timers() {
    // SAFETY: prctl takes no pointers here. It cannot fail with these arguments; if it did, sleeps would be longer.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_allowed_one_core() {
        let cores = allowed_cores();
        assert!(!cores.is_empty() && (1..=cores.len()).contains(&usable_cores()));
        let last = *cores.last().unwrap();
        std::thread::spawn(move || {
            pin_thread(last).unwrap();
            assert_eq!(allowed_cores(), [last]);
            assert_eq!(usable_cores(), 1);
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cores(), cores);
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert_eq!(pin_thread(MASK_WORDS * 64 - 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(pin_thread(usize::MAX).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

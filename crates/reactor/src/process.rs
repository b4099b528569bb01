//! Usage and limits of the process: memory, processor time, open files.

use std::fs;
use std::io;
use std::time::Duration;

use crate::{cgroup, sys};

/// Processor time used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In our own code.
    pub user: Duration,
    /// In the kernel on our behalf.
    pub system: Duration,
}

/// Memory of the process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident now.
    pub rss_bytes: u64,
    /// The most that ever was resident.
    pub rss_bytes_max: u64,
}

/// Resident bytes now; 0 if `/proc` is not mounted. Cost: one small file read.
pub fn rss_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages.saturating_mul(page_bytes())
}

/// Memory figures of the process; zeros if `/proc` is not mounted. Cost: one file of about 1.5 KiB.
pub fn memory() -> ProcessMemory {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name| kib_field(&text, name).unwrap_or(0);
    ProcessMemory { rss_bytes: field("VmRSS:"), rss_bytes_max: field("VmHWM:") }
}

/// Bytes this process may use before the kernel kills it: the control group's limit or the machine's memory, the
/// smaller one; `None` if neither is known.
pub fn memory_limit_bytes() -> Option<u64> {
    match (cgroup::memory_limit(), machine_memory_bytes()) {
        (Some(group), Some(machine)) => Some(group.min(machine)),
        (group, machine) => group.or(machine),
    }
}

/// Memory of the machine in bytes; `None` if `/proc` is not mounted.
pub fn machine_memory_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// Milliseconds since the machine started, with the time it slept: the clock of leases. Nobody can set it.
pub fn boot_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec into `time`. Linux has had this clock since 2.6.39, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    (time.tv_sec as u64).saturating_mul(1000).saturating_add(time.tv_nsec as u64 / 1_000_000)
}

/// Processor time of the whole process.
pub fn cpu_times() -> CpuTimes {
    usage(libc::RUSAGE_SELF)
}

/// Processor time of the calling thread.
pub fn thread_cpu_times() -> CpuTimes {
    usage(libc::RUSAGE_THREAD)
}

/// Processor time of children that ended and were waited for.
pub fn children_cpu_times() -> CpuTimes {
    usage(libc::RUSAGE_CHILDREN)
}

/// Lets the process open at least `wanted` files if the hard limit, or the right to raise it, allows; returns the
/// resulting limit, which may be less. Never lowers it.
pub fn raise_open_files(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit into `limit`.
    sys::check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    // With privilege the hard limit moves too; without it, the hard limit is the best there is.
    let hard = libc::rlimit { rlim_cur: wanted, rlim_max: limit.rlim_max.max(wanted) };
    let soft = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), rlim_max: limit.rlim_max };
    for attempt in [hard, soft] {
        // SAFETY: the kernel reads one rlimit from `attempt`.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const attempt) } == 0 {
            return Ok(attempt.rlim_cur);
        }
    }
    Ok(limit.rlim_cur)
}

/// Bytes of address space that the process may still map; `None` without a limit.
pub fn address_space_left() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit into `limit`.
    sys::check(unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) }).ok()?;
    if limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    let mapped = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = mapped.split(' ').next()?.parse().ok()?;
    Some(limit.rlim_cur.saturating_sub(pages * page_bytes()))
}

fn page_bytes() -> u64 {
    // SAFETY: sysconf takes no pointers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A line like `MemTotal:  8016812 kB`, in bytes.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn usage(who: libc::c_int) -> CpuTimes {
    // SAFETY: rusage is plain integers; all-zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage into `usage`; on an unknown argument it stays zero.
    unsafe { libc::getrusage(who, &raw mut usage) };
    CpuTimes { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_follows_touched_pages() {
        let before = rss_bytes();
        let block = vec![1_u8; 64 << 20];
        let during = rss_bytes();
        assert!(during >= before + (60 << 20), "{before} -> {during}");
        let memory = memory();
        assert!(memory.rss_bytes_max >= 60 << 20 && memory.rss_bytes_max >= memory.rss_bytes);
        drop(block);
    }

    #[test]
    fn processor_time_of_a_thread_is_its_own() {
        let idle = thread_cpu_times();
        let spent = std::thread::spawn(|| {
            let start = std::time::Instant::now();
            // Other processes may take most of the time away.
            loop {
                let times = thread_cpu_times();
                let spent = times.user + times.system;
                if spent >= Duration::from_millis(20) || start.elapsed() > Duration::from_secs(20) {
                    return spent;
                }
            }
        })
        .join()
        .unwrap();
        assert!(spent >= Duration::from_millis(5), "{spent:?}");
        let mine = thread_cpu_times();
        assert!(mine.user + mine.system < idle.user + idle.system + spent);
        let all = cpu_times();
        assert!(all.user + all.system >= spent);
    }

    #[test]
    fn memory_limit_is_within_the_machine() {
        let machine = machine_memory_bytes().unwrap();
        assert!(memory_limit_bytes().is_some_and(|limit| limit > 0 && limit <= machine));
        assert_eq!(kib_field("A: 1 kB\nMemTotal:   12 kB\n", "MemTotal:"), Some(12 * 1024));
        assert_eq!(kib_field("MemTotal: many\n", "MemTotal:"), None);
    }

    #[test]
    fn open_files_are_raised_and_never_lowered() {
        let now = raise_open_files(0).unwrap();
        assert_eq!(raise_open_files(now).unwrap(), now);
        assert!(raise_open_files(now + 1).unwrap() >= now);
    }
}

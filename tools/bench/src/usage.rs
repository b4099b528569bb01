//! What a process has used so far, from /proc: CPU of all its threads, resident memory.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::Duration;

/// CPU of a process since its start.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// User and system time of all threads together; to the nanosecond where the kernel tells it.
    pub total: Duration,
    /// User time, in whole ticks of 10 ms.
    pub user: Duration,
    /// System time, in whole ticks of 10 ms.
    pub system: Duration,
}

impl Cpu {
    /// Reads the counters of process `pid`.  Errors: the process is gone, or /proc is not Linux'.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The command name may hold spaces and parentheses, so the fields are counted from the last ')'.
        let after_name = stat.rsplit(')').next().unwrap_or("");
        let mut fields = after_name.split_whitespace().skip(11).map(|f| f.parse::<u64>().unwrap_or(0));
        let user = ticks(fields.next().unwrap_or(0));
        let system = ticks(fields.next().unwrap_or(0));
        let total = scheduled(pid).unwrap_or(user + system);
        Ok(Self { total, user, system })
    }

    /// What was used since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// The kernel's USER_HZ is 100 on every Linux that Rust runs on.
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 10)
}

/// Run time of all living threads; `None` where the kernel has no schedstat.
///
/// A thread that ended in between would be missing: none of the measured servers ends threads while it serves.
fn scheduled(pid: u32) -> Option<Duration> {
    let sum: Duration = thread_times(pid).ok()?.into_values().sum();
    (sum > Duration::ZERO).then_some(sum)
}

/// Run time of each living thread of process `pid`, by the thread's number.  Errors: it is gone, or there is no schedstat.
pub fn thread_times(pid: u32) -> io::Result<HashMap<u32, Duration>> {
    let mut times = HashMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        let line = fs::read_to_string(task.path().join("schedstat"))?;
        let nanos = line.split_whitespace().next().and_then(|field| field.parse().ok());
        let thread = task.file_name().to_str().and_then(|name| name.parse().ok());
        if let (Some(thread), Some(nanos)) = (thread, nanos) {
            times.insert(thread, Duration::from_nanos(nanos));
        }
    }
    Ok(times)
}

/// Resident bytes of process `pid`: exact from smaps_rollup, else VmRSS.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        && let Some(bytes) = kib_field(&text, "Rss:")
    {
        return Ok(bytes);
    }
    resident_quickly(pid)
}

/// Resident bytes of process `pid`, to some dozen pages: without a walk through its memory, in which it could not grow.
pub fn resident_quickly(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    kib_field(&text, "VmRSS:").ok_or_else(|| io::Error::other("no VmRSS in /proc"))
}

/// Bytes of process `pid` and its children: what several share counts once. With children the kernel walks the page tables,
/// 10 ms and more for gigabytes, and the process waits for its own page faults meanwhile; ask rarely.
pub fn tree_bytes(pid: u32) -> io::Result<u64> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    if children.trim().is_empty() {
        return resident_quickly(pid);
    }
    let own = |pid| -> io::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        kib_field(&text, "Pss:").ok_or_else(|| io::Error::other("no Pss in /proc"))
    };
    // A child that ends meanwhile counts nothing.
    let theirs: u64 = children.split_whitespace().filter_map(|pid| own(pid.parse().ok()?).ok()).sum();
    Ok(own(pid)? + theirs)
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_seen() {
        let pid = std::process::id();
        let before = Cpu::of(pid).unwrap();
        let start = std::time::Instant::now();
        // Other processes may take most of the time away.
        let mut used = Cpu::of(pid).unwrap().since(&before);
        while used.total < Duration::from_millis(20) && start.elapsed() < Duration::from_secs(60) {
            let sum = (0..1_000_000u64).fold(0u64, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
            std::hint::black_box(sum);
            used = Cpu::of(pid).unwrap().since(&before);
        }
        assert!(used.total >= Duration::from_millis(20), "{used:?}");
        assert!(resident_bytes(pid).unwrap() > 100_000);
    }
}

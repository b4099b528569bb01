//! Processor time of the calling test, which other load on the machine does not change.

use std::time::Duration;

/// Processor time of this thread so far. Zero on a kernel that does not count it.
pub fn of_thread() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default();
    Duration::from_nanos(nanos)
}

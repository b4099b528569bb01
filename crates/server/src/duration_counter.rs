//! How long something lasts that comes and goes, for INFO.
//!
//! Noted by one thread's housekeeping at a time, read by all.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time for which something is so, this time and before.
#[derive(Default)]
pub struct DurationCounter {
    // Unix milliseconds; 0: it is not so.
    since_ms: AtomicU64,
    // Of the times that have ended.
    ended_ms: AtomicU64,
}

impl DurationCounter {
    /// Notes whether it is so now. Returns how many milliseconds, at least one, it was, if that ends now.
    pub fn note(&self, is_so: bool, now_ms: u64) -> Option<u64> {
        if is_so {
            _ = self.since_ms.compare_exchange(0, now_ms.max(1), Relaxed, Relaxed);
            return None;
        }
        let ms = match self.since_ms.swap(0, Relaxed) {
            0 => return None,
            since_ms => now_ms.saturating_sub(since_ms).max(1),
        };
        self.ended_ms.fetch_add(ms, Relaxed);
        Some(ms)
    }

    /// Milliseconds since it has been so, at least one; 0 where it is not.
    pub fn current_ms(&self, now_ms: u64) -> u64 {
        match self.since_ms.load(Relaxed) {
            0 => 0,
            since_ms => now_ms.saturating_sub(since_ms).max(1),
        }
    }

    /// Milliseconds of all such times.
    pub fn total_ms(&self, now_ms: u64) -> u64 {
        self.ended_ms.load(Relaxed) + self.current_ms(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_with_the_one_that_goes_on() {
        let spell = DurationCounter::default();
        assert_eq!((spell.note(false, 10), spell.current_ms(10), spell.total_ms(10)), (None, 0, 0));
        assert_eq!((spell.note(true, 20), spell.note(true, 25)), (None, None));
        assert_eq!((spell.current_ms(27), spell.total_ms(27)), (7, 7));
        assert_eq!((spell.note(false, 30), spell.note(false, 31)), (Some(10), None));
        spell.note(true, 40);
        assert_eq!((spell.current_ms(40), spell.total_ms(45)), (1, 15));
    }
}

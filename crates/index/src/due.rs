//! When the earliest entry of a line expires, in 16 bits: a time of day that wraps every 18.6 hours.

/// A lower bound of expiry times in ticks of 1,024 ms modulo 2^16; 0 = nothing in the line expires.
///
/// Shape: between `LATE_TICKS` before now and `AHEAD_TICKS` after it. Later times are cut to that, so that the line
/// is examined once before. Valid while every line is swept at least once in `LATE_TICKS` (4.6 hours); after a longer
/// pause a bound may be missed for one turn of the 18.6 hours.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub(crate) struct Due(u16);

impl Due {
    pub(crate) const NEVER: Due = Due(0);

    /// The bound of an entry that expires at `expiry_ms`.
    pub(crate) fn at(expiry_ms: u64, now_ms: u64) -> Due {
        let latest = (now_ms / TICK_MS).saturating_add(AHEAD_TICKS);
        let earliest = now_ms / TICK_MS;
        Due::of((expiry_ms / TICK_MS).clamp(earliest, latest))
    }

    /// The tick of `now_ms`.
    pub(crate) fn now(now_ms: u64) -> Due {
        Due::of(now_ms / TICK_MS)
    }

    /// Returns true if something in the line may have expired by the tick `now`.
    #[inline]
    pub(crate) fn is_past(self, now: Due) -> bool {
        self != Due::NEVER && self.rank(now) <= LATE_TICKS
    }

    /// The earlier of two bounds as seen from the tick `now`.
    #[inline]
    pub(crate) fn earlier(self, other: Due, now: Due) -> Due {
        if other == Due::NEVER || (self != Due::NEVER && self.rank(now) <= other.rank(now)) {
            self
        } else {
            other
        }
    }

    /// 0 is reserved, so its tick is stored as one earlier: a bound may be low, never high.
    fn of(tick: u64) -> Due {
        let low = tick as u16;
        Due(if low == 0 { u16::MAX } else { low })
    }

    /// Ticks since the earliest time that still counts as past.
    #[inline]
    fn rank(self, now: Due) -> u64 {
        u64::from(self.0.wrapping_sub(now.0).wrapping_add(LATE_TICKS as u16))
    }
}

const TICK_MS: u64 = 1024;
const LATE_TICKS: u64 = 0x4000;
const AHEAD_TICKS: u64 = 0xbf00;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_past_from_its_tick_on_and_never_before() {
        for now_ms in (0..200_000_000).step_by(777_777) {
            let now = Due::now(now_ms);
            assert!(!Due::NEVER.is_past(now));
            assert!(Due::at(now_ms, now_ms).is_past(now));
            assert!(Due::at(0, now_ms).is_past(now));
            for later_ms in [3 * TICK_MS, 60_000, 3_600_000, 40_000_000, u64::MAX / 2] {
                let due = Due::at(now_ms + later_ms, now_ms);
                assert!(!due.is_past(now), "{now_ms} {later_ms}");
                let then_ms = now_ms + later_ms.min(AHEAD_TICKS * TICK_MS);
                assert!(due.is_past(Due::now(then_ms)));
                assert!(due.is_past(Due::now(then_ms + 16_000_000)));
                assert_eq!(due.earlier(Due::NEVER, now), due);
                assert_eq!(Due::NEVER.earlier(due, now), due);
                assert_eq!(due.earlier(Due::at(now_ms + 1, now_ms), now), Due::at(now_ms + 1, now_ms));
            }
        }
    }
}

//! Moments as numbers. Whoever holds a clock passes one of these down; nothing here reads a clock.

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// The moment `ms` milliseconds later, or `None` past the end of the range.
    #[inline]
    pub fn checked_add_ms(self, ms: u64) -> Option<UnixMs> {
        self.0.checked_add(ms).map(UnixMs)
    }

    /// Milliseconds from `earlier` to here, 0 when `earlier` is not earlier.
    #[inline]
    pub fn since(self, earlier: UnixMs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since the Unix epoch.
    #[inline]
    pub fn secs(self) -> u64 {
        self.0 / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_saturate_backwards_and_are_checked_forwards() {
        assert_eq!(UnixMs(5).since(UnixMs(9)), 0);
        assert_eq!(UnixMs(9).since(UnixMs(5)), 4);
        assert_eq!(UnixMs(u64::MAX).checked_add_ms(1), None);
        assert_eq!(UnixMs(1999).secs(), 1);
    }
}

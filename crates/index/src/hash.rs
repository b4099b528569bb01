//! The parts of a hash that the index uses: a place in the directory, a home line, a tag.

use crate::segment::HOMES;

/// The place of a hash in the directory, as a fraction of 2^32.
///
/// Not the top half itself: places are twice as dense at the start of the range as at its end. With even density all
/// segments of all shards would fill, and split, at the same time, and memory per entry would vary between 6.6 and
/// 13.2 bytes. With these places it stays between 9.4 and 9.9 at any size.
#[inline]
pub(crate) fn place(hash: u64) -> u32 {
    let even = hash >> 32;
    // even * (2 + even) / 3 with even in 0..1: grows everywhere, from slope 2/3 to slope 4/3.
    let slope = 0xaaaa_aaaa + ((even * 0x5555_5555) >> 32);
    ((even * slope) >> 32) as u32
}

/// The home line of a hash in its segment, 0..60.
#[inline]
pub(crate) fn home(hash: u64) -> usize {
    (((hash as u32 >> 8) * HOMES as u32) >> 24) as usize
}

/// The tag of a hash, 1..=255; 0 marks an empty slot.
#[inline]
pub(crate) fn tag(hash: u64) -> u8 {
    let low = hash as u8;
    low + u8::from(low == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_rise_with_the_hash_and_fill_the_range() {
        let mut last = 0;
        for high in (0..=u32::MAX as u64).step_by(65_521) {
            let here = place(high << 32);
            assert!(here >= last);
            last = here;
        }
        assert_eq!(place(0), 0);
        assert!(place(u64::MAX) > u32::MAX - 4);
        // Shape: (sqrt(2.5) - 1) of all hashes are in the lower half.
        let middle = (0.581_138_8 * 4_294_967_296.0) as u64;
        assert!(place(middle << 32).abs_diff(1 << 31) < 1 << 8);
    }

    #[test]
    fn homes_and_tags_stay_in_range() {
        assert_eq!((home(0), home(u64::MAX)), (0, 59));
        assert_eq!((tag(0), tag(1), tag(255), tag(256)), (1, 1, 255, 1));
    }
}

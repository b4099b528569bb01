//! The search for a byte among the fingerprints of a pack.

/// Bit i is set if byte i of the first `len` (1..=64) bytes equals `wanted`. `bytes` may be longer.
#[inline]
pub(crate) fn equal_bytes(bytes: &[u8], len: usize, wanted: u8) -> u64 {
    debug_assert!((1..=64).contains(&len));
    let used = u64::MAX >> (64 - len);
    if len <= 16
        && let Some(lane) = bytes.first_chunk::<16>()
    {
        return u64::from(equal_lane(lane, wanted)) & used;
    }
    match bytes.first_chunk::<64>() {
        Some(lanes) => equal_lanes(lanes, wanted) & used,
        None => equal_slowly(&bytes[..len], wanted),
    }
}

#[inline]
fn equal_lanes(lanes: &[u8; 64], wanted: u8) -> u64 {
    let (lanes, _) = lanes.as_chunks::<16>();
    lanes.iter().rev().fold(0, |hits, lane| hits << 16 | u64::from(equal_lane(lane, wanted)))
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn equal_lane(lane: &[u8; 16], wanted: u8) -> u16 {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    // SAFETY: the reference covers the 16 bytes and the load needs no alignment; SSE2 is part of x86-64.
    unsafe {
        let bytes = _mm_loadu_si128(lane.as_ptr().cast::<__m128i>());
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted as i8))) as u16
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn equal_lane(lane: &[u8; 16], wanted: u8) -> u16 {
    equal_slowly(lane, wanted) as u16
}

/// The same byte by byte, for the end of the arena's reservation and for other processors.
fn equal_slowly(bytes: &[u8], wanted: u8) -> u64 {
    bytes.iter().rev().fold(0, |hits, &byte| hits << 1 | u64::from(byte == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_loop_finds() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * i % 7) as u8).collect();
        for len in 1..=64 {
            for start in 0..bytes.len() - len {
                for end in [start + len, bytes.len()] {
                    for wanted in 0..8 {
                        let hits = equal_bytes(&bytes[start..end], len, wanted);
                        assert_eq!(hits, equal_slowly(&bytes[start..start + len], wanted));
                    }
                }
            }
        }
    }
}

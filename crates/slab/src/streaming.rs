//! Copies of values so large that a cache gains nothing from them.
//!
//! Called by the store where it writes a string. Never used for what is read at once.

/// From this length on a copy goes past the cache. Such a value pushes out much that others need, and is seldom read soon.
pub const PAST_CACHE_BYTES_MIN: usize = 256 << 10;

/// Copies `from` over `to`, which must be as long.
///
/// Cost: for 1 MB two thirds of `copy_from_slice`, because the lines of `to` are not read first.
#[inline(always)]
pub fn copy(to: &mut [u8], from: &[u8]) {
    if from.len() < PAST_CACHE_BYTES_MIN { to.copy_from_slice(from) } else { copy_past_cache(to, from) }
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn copy_past_cache(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    assert_eq!(to.len(), from.len());
    let head = to.as_ptr().align_offset(LINE).min(to.len());
    let ((to_head, to), (from_head, from)) = (to.split_at_mut(head), from.split_at(head));
    to_head.copy_from_slice(from_head);
    let (mut lines, from_lines) = (to.chunks_exact_mut(LINE), from.chunks_exact(LINE));
    let from_tail = from_lines.remainder();
    for (line, bytes) in lines.by_ref().zip(from_lines) {
        let (line, bytes) = (line.as_mut_ptr().cast::<__m128i>(), bytes.as_ptr().cast::<__m128i>());
        for part in 0..LINE / 16 {
            // SAFETY: both chunks have `LINE` bytes, and `line` is aligned to `LINE`. The fence below orders the stores before
            // anything that reads them.
            unsafe { _mm_stream_si128(line.add(part), _mm_loadu_si128(bytes.add(part))) };
        }
    }
    // SAFETY: a fence touches no memory.
    unsafe { _mm_sfence() };
    lines.into_remainder().copy_from_slice(from_tail);
}

#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

#[cfg(not(target_arch = "x86_64"))]
fn copy_past_cache(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_no_other_changes() {
        let from: Vec<u8> = (0..PAST_CACHE_BYTES_MIN + 200).map(|n| ((n * 31) >> 3) as u8).collect();
        for (start, len) in
            (0..70).flat_map(|start| [(start, PAST_CACHE_BYTES_MIN), (start, from.len() - 70)])
        {
            let mut to = vec![7; from.len() + 1];
            copy(&mut to[start..start + len], &from[1..=len]);
            assert!(to[start..start + len] == from[1..=len], "{start} {len}");
            assert!(to[..start].iter().chain(&to[start + len..]).all(|byte| *byte == 7), "{start} {len}");
        }
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn two_lengths_are_refused() {
        copy(&mut vec![0; PAST_CACHE_BYTES_MIN], &vec![0; PAST_CACHE_BYTES_MIN + 1]);
    }
}

//! Copies and comparisons of the few bytes that keys and values mostly have, inlined: calling out costs more than they do.
//!
//! Called by the store for records and by the wire for replies.

/// Copies `from` over `to`, which is as long. Up to 64 bytes go as two chunks that overlap, without a call.
#[inline(always)]
pub fn copy(to: &mut [u8], from: &[u8]) {
    debug_assert_eq!(to.len(), from.len());
    let len = from.len();
    if (16..=32).contains(&len) {
        copy_ends::<16>(to, from);
    } else if (8..16).contains(&len) {
        copy_ends::<8>(to, from);
    } else if (33..=64).contains(&len) {
        copy_ends::<32>(to, from);
    } else {
        to.copy_from_slice(from);
    }
}

#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(head), Some(tail)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        if let Some(place) = to.first_chunk_mut::<N>() {
            *place = *head;
        }
        if let Some(place) = to.last_chunk_mut::<N>() {
            *place = *tail;
        }
    }
}

/// Returns true if two slices of one length are equal. Up to 32 bytes in two overlapping halves, without a call.
#[inline(always)]
pub fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if let (Some(a0), Some(b0), Some(a1), Some(b1)) =
        (a.first_chunk::<8>(), b.first_chunk::<8>(), a.last_chunk::<8>(), b.last_chunk::<8>())
        && a.len() <= 16
    {
        let word = |chunk: &[u8; 8]| u64::from_le_bytes(*chunk);
        return ((word(a0) ^ word(b0)) | (word(a1) ^ word(b1))) == 0;
    }
    if let (Some(a0), Some(b0), Some(a1), Some(b1)) =
        (a.first_chunk::<16>(), b.first_chunk::<16>(), a.last_chunk::<16>(), b.last_chunk::<16>())
        && a.len() <= 32
    {
        let word = |chunk: &[u8; 16]| u128::from_le_bytes(*chunk);
        return ((word(a0) ^ word(b0)) | (word(a1) ^ word(b1))) == 0;
    }
    a == b
}

/// The one to eight bytes of `text` as a little-endian word, padded with zeros. `None` for any other length.
#[inline(always)]
pub fn word(text: &[u8]) -> Option<u64> {
    let len = text.len();
    if len > 8 {
        return None;
    }
    if let (Some(head), Some(tail)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        // The overlapping bytes are equal in both.
        let (head, tail) = (u64::from(u32::from_le_bytes(*head)), u64::from(u32::from_le_bytes(*tail)));
        return Some(head | tail << (8 * (len - 4)));
    }
    let [first, .., last] = text else { return text.first().map(|&only| u64::from(only)) };
    let middle = text.get(len / 2)?;
    Some(u64::from(*first) | u64::from(*middle) << (8 * (len / 2)) | u64::from(*last) << (8 * (len - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_eight_bytes_are_a_word() {
        for len in 0..12_usize {
            let text: Vec<u8> = (1..=len as u8).map(|n| n * 17).collect();
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(&text).for_each(|(to, from)| *to = *from);
            let wanted = (1..=8).contains(&len).then(|| u64::from_le_bytes(bytes));
            assert_eq!(word(&text), wanted, "{len}");
        }
    }

    #[test]
    fn every_length_is_copied_whole_and_compared_whole() {
        for len in 0..200_usize {
            let from: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
            let mut to = vec![0xff; len];
            copy(&mut to, &from);
            assert!(is_equal(&to, &from) && to == from, "{len}");
            for at in 0..len {
                to[at] ^= 0x10;
                assert!(!is_equal(&to, &from), "{len}, byte {at}");
                to[at] ^= 0x10;
            }
        }
    }
}

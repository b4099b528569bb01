//! SHA-1, which Redis names scripts and compares data sets with. Not for anything that must be secret.

/// Bytes of a digest.
pub const LEN: usize = 20;
/// Bytes taken in at a time.
const BLOCK_LEN: usize = 64;

/// The digest of `bytes`. Cost: about 3 ns a byte.
pub fn sha1(bytes: &[u8]) -> [u8; LEN] {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<BLOCK_LEN>();
    blocks.iter().for_each(|block| mix(&mut state, block));
    // one bit, zeros, and the length in bits fill the last block or two
    let mut last = [0u8; 2 * BLOCK_LEN];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < BLOCK_LEN - 8 { BLOCK_LEN } else { 2 * BLOCK_LEN };
    last[end - 8..end].copy_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_be_bytes());
    last[..end].as_chunks::<BLOCK_LEN>().0.iter().for_each(|block| mix(&mut state, block));
    let mut digest = [0; LEN];
    for (out, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *out = word.to_be_bytes();
    }
    digest
}

/// The digest of `bytes` as forty hexadecimal digits.
pub fn sha1_hex(bytes: &[u8]) -> [u8; 2 * LEN] {
    hex(&sha1(bytes))
}

/// A digest as forty hexadecimal digits.
pub fn hex(digest: &[u8; LEN]) -> [u8; 2 * LEN] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 2 * LEN];
    for (out, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(digest) {
        *out = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    text
}

fn mix(state: &mut [u32; 5], block: &[u8; BLOCK_LEN]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for i in 16..80 {
        words[i] = (words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (i, word) in words.iter().enumerate() {
        let (choice, constant) = match i {
            0..20 => (b & c | !b & d, 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let next =
            a.rotate_left(5).wrapping_add(choice).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(&sha1_hex(bytes)).into_owned()
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(text(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(text(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(text(long), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(text(&vec![b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }

    #[test]
    fn every_length_around_a_block_is_padded_differently() {
        let digests: std::collections::HashSet<_> = (0..200).map(|len| sha1(&vec![0; len])).collect();
        assert_eq!(digests.len(), 200);
    }
}

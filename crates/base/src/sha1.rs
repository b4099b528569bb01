//! SHA-1, which Redis names scripts and compares data sets with. Not for anything that must be secret.

use ::sha1::Digest;

/// Bytes of a digest.
pub const LEN: usize = 20;

/// The digest of `bytes`. Cost: a third of a nanosecond a byte and more, by the processor's own instructions where it
/// has them.
pub fn sha1(bytes: &[u8]) -> [u8; LEN] {
    ::sha1::Sha1::digest(bytes).into()
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

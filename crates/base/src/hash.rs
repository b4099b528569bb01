//! The hash of a key: one function for the index, the shard choice and every collection.
//!
//! Seeded at start-up, secrets included, so that nobody outside can prepare colliding keys. It is not a digest and
//! its values are never written to disk or sent to a peer.

use std::hash::{BuildHasher, Hasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

/// A seeded 64-bit hash function (rapidhash v3 nano); 64 bytes, meant to be kept beside the table it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHasher {
    // All multipliers come from the seed: with the published ones, keys that collide under every seed are known.
    secrets: RapidSecrets,
    // For keys of 8 to 16 bytes, drawn from the same seed: the same two multiplications, inlined where it is called.
    short: [u64; 3],
}

impl KeyHasher {
    /// The hash function of `seed`; equal seeds give equal hashes. Cost: about 10 multiplications.
    pub fn new(seed: u64) -> Self {
        let secrets = RapidSecrets::seed(seed);
        let draw = |n: u8| rapidhash_v3_nano_inline::<true, false>(&[n; 24], &secrets) | 1;
        Self { secrets, short: [draw(1), draw(2), draw(3)] }
    }

    /// A hash function seeded from the operating system through std's `RandomState`, so that nobody can predict it.
    pub fn random() -> Self {
        Self::new(RandomState::new().build_hasher().finish())
    }

    /// The 64-bit hash of `key`; all bits are usable. Cost: about 25 instructions up to 16 bytes.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        match (key.first_chunk(), key.last_chunk()) {
            (Some(head), Some(tail)) if key.len() <= 16 => self.hash_short(*head, *tail, key.len() as u64),
            _ => self.hash_any(key),
        }
    }

    #[inline(always)]
    fn hash_short(&self, head: [u8; 8], tail: [u8; 8], len: u64) -> u64 {
        let [a, b, c] = self.short;
        let (low, high) = fold(u64::from_le_bytes(head) ^ a, u64::from_le_bytes(tail) ^ b ^ len);
        let (low, high) = fold(low ^ c, high ^ a);
        low ^ high
    }

    #[inline(never)]
    fn hash_any(&self, key: &[u8]) -> u64 {
        rapidhash_v3_nano_inline::<true, false>(key, &self.secrets)
    }
}

/// The two halves of a product.
#[inline(always)]
fn fold(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    (product as u64, (product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_decide_the_hash() {
        let (a, b) = (KeyHasher::new(1), KeyHasher::new(2));
        assert_eq!(a.hash(b"key:1"), KeyHasher::new(1).hash(b"key:1"));
        assert_ne!(a.hash(b"key:1"), b.hash(b"key:1"));
        assert_ne!(KeyHasher::random().hash(b"key:1"), KeyHasher::random().hash(b"key:1"));
    }

    #[test]
    fn every_part_of_the_hash_spreads_over_keys_of_all_lengths() {
        let hasher = KeyHasher::new(7);
        // 64 bins of the top, the middle and the low bits: each must be near n / 64.
        for shift in [58, 32, 0] {
            let mut bins = [0u32; 64];
            for n in 0..64_000u32 {
                let key = format!("{:0width$}", n, width = 5 + (n % 40) as usize);
                bins[(hasher.hash(key.as_bytes()) >> shift) as usize % 64] += 1;
            }
            assert!(bins.iter().all(|&n| (800..1200).contains(&n)), "{shift}: {bins:?}");
        }
    }

    #[test]
    fn short_keys_that_differ_in_one_bit_or_in_length_differ_in_half_of_their_hash() {
        let hasher = KeyHasher::new(11);
        for len in 8..=16usize {
            let key: Vec<u8> = (0..len as u8).map(|n| n.wrapping_mul(37)).collect();
            let (mut changed, mut flips) = (0, 0);
            for bit in 0..len * 8 {
                let mut other = key.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let differs = (hasher.hash(&key) ^ hasher.hash(&other)).count_ones();
                assert!((8..=56).contains(&differs), "bit {bit} of {len} bytes changes {differs}");
                changed += differs;
                flips += 1;
            }
            assert!((28 * flips..36 * flips).contains(&changed), "{len} bytes: {changed} in {flips}");
        }
        // The same sixteen bytes are looked at for all of these.
        let mut hashes: Vec<u64> = (8..=16).map(|len| hasher.hash(&[7; 16][..len])).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 9);
    }

    #[test]
    fn keys_that_collide_under_the_published_secrets_do_not_collide_here() {
        // With the well-known multiplier as the first half, the product is 0 whatever the second half is.
        let mut keys = Vec::new();
        for n in 0..64u64 {
            let mut key = 0x8bb84b93962eacc9u64.to_le_bytes().to_vec();
            key.extend_from_slice(&n.to_le_bytes());
            keys.push(KeyHasher::new(3).hash(&key));
        }
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 64);
    }
}

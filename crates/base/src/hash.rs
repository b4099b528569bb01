//! The hash of a key: one function for the index, the shard choice and every collection.
//!
//! Seeded at start-up, secrets included, so that nobody outside can prepare colliding keys. It is not a digest and
//! its values are never written to disk or sent to a peer.

use std::hash::{BuildHasher, Hasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

use crate::crc::SLOTS_LEN;
use crate::slot::slot_of;

/// A seeded 64-bit hash function (rapidhash v3 nano); 72 bytes, meant to be kept beside the table it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHasher {
    // All multipliers come from the seed: with the published ones, keys that collide under every seed are known.
    secrets: RapidSecrets,
    // For keys of 8 to 16 bytes, drawn from the same seed: the same two multiplications, inlined where it is called.
    short: [u64; 3],
    // Hashes of keys carry the slot.
    by_slot: bool,
}

/// The place of the slot in the hash of a key: the half by which the index and others choose lines is free of it, and in the
/// other half it is the end by which the index tells segments apart once it has more than 2^18.
const SLOT_SHIFT: u32 = 32;
const SLOT_MASK: u64 = (SLOTS_LEN as u64 - 1) << SLOT_SHIFT;
/// Spreads slots, so that those of a range are everywhere; and the factor that undoes it.
const SPREAD: u64 = 10_125;
const UNSPREAD: u64 = inverse(SPREAD);

/// The number that multiplied by the odd `factor` gives 1, modulo 2^64.
const fn inverse(factor: u64) -> u64 {
    let (mut found, mut round) = (factor, 0);
    while round < 6 {
        found = found.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(found)));
        round += 1;
    }
    found
}

/// The slot that a hash by slot carries.
#[inline]
pub fn slot_in(hash: u64) -> u16 {
    ((hash >> SLOT_SHIFT).wrapping_mul(UNSPREAD) as u16) & (SLOTS_LEN - 1)
}

/// The slots in the order that shards by slot are cut from, 0..16384: shard and place in it.
#[inline]
pub fn spread_slot_in(hash: u64) -> u16 {
    (hash >> SLOT_SHIFT) as u16 & (SLOTS_LEN - 1)
}

/// The hash of a slot's keys in the bits of [`spread_slot_in`], 0 elsewhere.
pub fn hash_bits_of(slot: u16) -> u64 {
    (u64::from(slot).wrapping_mul(SPREAD) << SLOT_SHIFT) & SLOT_MASK
}

impl KeyHasher {
    /// The hash function of `seed`; equal seeds give equal hashes. Cost: about 10 multiplications.
    pub fn new(seed: u64) -> Self {
        let secrets = RapidSecrets::seed(seed);
        let draw = |n: u8| rapidhash_v3_nano_inline::<true, false>(&[n; 24], &secrets) | 1;
        Self { secrets, short: [draw(1), draw(2), draw(3)], by_slot: false }
    }

    /// A hash function seeded from the operating system through std's `RandomState`, so that nobody can predict it.
    pub fn random() -> Self {
        Self::new(RandomState::new().build_hasher().finish())
    }

    /// The same function, whose hashes of keys carry the cluster slot in 14 of their bits: see [`slot_in`].
    pub fn by_slot(self) -> Self {
        Self { by_slot: true, ..self }
    }

    /// Returns true if hashes of keys carry the slot.
    #[inline]
    pub fn is_by_slot(&self) -> bool {
        self.by_slot
    }

    /// The hash of a key of the keyspace: with its slot if this function is one by slot. Cost: [`KeyHasher::hash`], and then
    /// that of the slot.
    #[inline(always)]
    pub fn hash_key(&self, key: &[u8]) -> u64 {
        if self.by_slot { self.hash_with_slot(key) } else { self.hash(key) }
    }

    /// [`KeyHasher::hash_key`] of a function by slot.
    #[inline(never)]
    pub fn hash_with_slot(&self, key: &[u8]) -> u64 {
        self.hash(key) & !SLOT_MASK | hash_bits_of(slot_of(key))
    }

    /// The 64-bit hash of `key`, a member or a field; all bits are usable. Cost: about 25 instructions up to 16 bytes.
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
    fn a_hash_by_slot_tells_the_slot_and_spreads_otherwise() {
        let (plain, hasher) = (KeyHasher::new(5), KeyHasher::new(5).by_slot());
        assert_eq!(SPREAD.wrapping_mul(UNSPREAD), 1);
        let mut changed = 0;
        for n in 0..20_000u32 {
            let name = format!("key:{n}");
            let hash = hasher.hash_key(name.as_bytes());
            assert_eq!(slot_in(hash), slot_of(name.as_bytes()));
            assert_eq!(hash_bits_of(slot_in(hash)) >> SLOT_SHIFT, u64::from(spread_slot_in(hash)));
            changed |= hash ^ plain.hash_key(name.as_bytes());
            assert_eq!(hasher.hash(name.as_bytes()), plain.hash(name.as_bytes()), "members have no slot");
        }
        assert_eq!(changed, SLOT_MASK, "nothing else has changed");
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

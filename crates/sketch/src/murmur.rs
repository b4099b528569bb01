//! MurmurHash2 in its 32-bit and its 64-bit "A" form, by Austin Appleby (public domain), written from the description.
//!
//! Filters of other servers are read and written, so the bits must be the same; nothing else should use these hashes.

const M32: u32 = 0x5bd1_e995;
const R32: u32 = 24;
const M64: u64 = 0xc6a4_a793_5bd1_e995;
const R64: u32 = 47;

/// The 32-bit hash of `bytes`.
pub fn murmur2(bytes: &[u8], seed: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut hash = seed ^ bytes.len() as u32;
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M32);
        k = (k ^ k >> R32).wrapping_mul(M32);
        hash = hash.wrapping_mul(M32) ^ k;
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M32);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M32);
    hash ^ hash >> 15
}

/// The 64-bit hash of `bytes`, variant A.
pub fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M64);
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M64);
        k = (k ^ k >> R64).wrapping_mul(M64);
        hash = (hash ^ k).wrapping_mul(M64);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M64);
    }
    hash = (hash ^ hash >> R64).wrapping_mul(M64);
    hash ^ hash >> R64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checks that SMHasher makes: hashes of keys 0, 0 1, ... with seeds 256 - length, hashed together.
    #[test]
    fn the_verification_values_of_smhasher_come_out() {
        let key: Vec<u8> = (0..=255).collect();
        let (mut all32, mut all64) = (Vec::new(), Vec::new());
        for len in 0..256usize {
            all32.extend(murmur2(&key[..len], 256 - len as u32).to_le_bytes());
            all64.extend(murmur64a(&key[..len], 256 - len as u64).to_le_bytes());
        }
        assert_eq!(murmur2(&all32, 0), 0x27864c1e);
        assert_eq!(murmur64a(&all64, 0) as u32, 0x1f0d3804);
    }
}

//! The arithmetic of HyperLogLog: the register of an element, and the number of elements that registers represent.
//!
//! Hash and estimator are Redis' (MurmurHash64A; Ertl's improved estimator, arXiv 1702.01284), so that counts agree.

/// Bits of the hash that choose a register.
const INDEX_BITS: u32 = 14;
/// Registers.
pub const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of the hash that give a register its value.
const VALUE_BITS: u32 = 64 - INDEX_BITS;

/// The register of `element`, and its value: 1..=51.
pub fn place_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, 0xadc8_3b19);
    let index = hash as usize & (REGISTERS - 1);
    let rest = hash >> INDEX_BITS | 1 << VALUE_BITS;
    (index, rest.trailing_zeros() as u8 + 1)
}

fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| {
        let word = word.wrapping_mul(M);
        (word ^ word >> 47).wrapping_mul(M)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    for word in words {
        hash = (hash ^ mix(u64::from_le_bytes(*word))).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

/// Estimated number of distinct elements of these registers.
pub fn count(registers: &[u8; REGISTERS]) -> u64 {
    let mut histogram = [0u32; 64];
    for &value in registers {
        histogram[usize::from(value & 63)] += 1;
    }
    let m = REGISTERS as f64;
    let top = VALUE_BITS as usize;
    let mut z = m * tau((m - f64::from(histogram[top + 1])) / m);
    for value in (1..=top).rev() {
        z = (z + f64::from(histogram[value])) * 0.5;
    }
    z += m * sigma(f64::from(histogram[0]) / m);
    const ALPHA_INFINITY: f64 = 0.721_347_520_444_481_7;
    (ALPHA_INFINITY * m * m / z).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_within_the_known_error() {
        for n in [0u32, 1, 10, 1000, 20_000, 300_000] {
            let mut registers = [0; REGISTERS];
            for element in 0..n {
                let (at, value) = place_of(&element.to_le_bytes());
                registers[at] = registers[at].max(value);
            }
            let error = (count(&registers) as f64 - f64::from(n)).abs();
            assert!(error <= f64::from(n) * 0.03 + 0.5, "{n}: off by {error}");
        }
    }
}

//! One link of a Bloom filter: its parameters and its bits.

use darter_slab::Arena;

use super::{BloomFault, ENTRIES_ARE_BITS, Hash, NO_ROUND};
use crate::blocks::Blocks;
use crate::{CorruptSketch, SketchFull};

/// ln(2), with the digits RedisBloom uses.
#[allow(clippy::approx_constant, reason = "the last digits decide about rounding")]
const LN_2: f64 = 0.693_147_180_559_945;
/// ln(2) squared.
const LN_2_SQUARED: f64 = 0.480_453_013_918_201;

/// A filter of fixed size.
#[derive(Debug)]
pub struct BloomLink {
    bits: Blocks,
    params: Params,
}

/// The parameters of a link, as in files.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Params {
    pub entries: u64,
    pub error: f64,
    pub bits_per_entry: f64,
    pub hashes: u32,
    // Bits of the filter: eight times its bytes.
    pub bits: u64,
    // Positions are taken modulo 2 to the power of this; if it is 0, modulo `bits`.
    pub n2: u8,
    pub items: u64,
}

impl Params {
    /// The parameters of a new link. Fails if capacity or error rate is invalid.
    fn new(entries: u64, error: f64, options: u32) -> Result<Params, BloomFault> {
        if entries < 1 || !(error > 0.0 && error < 1.0) {
            return Err(BloomFault::Invalid);
        }
        let bits_per_entry = bits_per_entry(error);
        let (entries, wanted, n2) = if options & ENTRIES_ARE_BITS != 0 {
            let n2 = u8::try_from(entries).ok().filter(|&n2| n2 < 64).ok_or(BloomFault::Invalid)?;
            let bits = 1_u64 << n2;
            ((bits as f64 / bits_per_entry) as u64, bits, n2)
        } else if options & NO_ROUND != 0 {
            (entries, ((entries as f64 * bits_per_entry) as u64).max(1), 0)
        } else {
            rounded(entries, bits_per_entry)?
        };
        let bits = wanted.div_ceil(64).checked_mul(64).ok_or(BloomFault::NoRoom)?;
        let hashes = (LN_2 * bits_per_entry).ceil() as u32;
        Ok(Params { entries, error, bits_per_entry, hashes, bits, n2, items: 0 })
    }

    /// Fails unless a file's parameters are possible for a filter.
    fn check(&self, bytes: u64) -> Result<(), CorruptSketch> {
        let is_error = self.error > 0.0 && self.error < 1.0;
        let is_power = self.n2 == 0 || (self.n2 < 64 && self.bits >= 1 << self.n2);
        let is_long = self.bits != 0 && bytes.checked_mul(8) == Some(self.bits);
        let is_hashed = f64::from(self.hashes) == (LN_2 * self.bits_per_entry).ceil();
        if is_error && is_power && is_long && is_hashed { Ok(()) } else { Err(CorruptSketch) }
    }
}

fn bits_per_entry(error: f64) -> f64 {
    (error.ln() / LN_2_SQUARED).abs()
}

/// Capacity, bits and their logarithm when bits are rounded up to a power of two, as old filters do.
fn rounded(entries: u64, bits_per_entry: f64) -> Result<(u64, u64, u8), BloomFault> {
    let wanted = entries as f64 * bits_per_entry;
    let n2 = wanted.log2().floor() + 1.0;
    if !(0.0..64.0).contains(&n2) {
        return Err(BloomFault::Invalid);
    }
    let bits = 1_u64 << n2 as u32;
    let spare = (bits as f64 - wanted) as u64;
    Ok((entries + (spare as f64 / bits_per_entry) as u64, bits, n2 as u8))
}

impl BloomLink {
    /// A link without items.
    pub(super) fn new(entries: u64, error: f64, options: u32) -> Result<BloomLink, BloomFault> {
        let params = Params::new(entries, error, options)?;
        Ok(BloomLink { bits: Blocks::zeroed(params.bits / 8)?, params })
    }

    /// A link of a file, its bits still zero. Fails if the parameters contradict each other.
    pub(super) fn of_params(params: Params, bytes: u64) -> Result<BloomLink, crate::SketchLoadFault> {
        params.check(bytes)?;
        Ok(BloomLink { bits: Blocks::zeroed(bytes)?, params })
    }

    /// Bytes of bits for a capacity and an error rate; the largest number if they are invalid.
    pub fn bytes_of(entries: u64, error: f64) -> u64 {
        Params::new(entries, error, NO_ROUND).map_or(u64::MAX, |params| params.bits / 8)
    }

    #[inline]
    fn position(&self, hash: Hash, n: u32) -> u64 {
        let at = hash.a.wrapping_add(u64::from(n).wrapping_mul(hash.b));
        match self.params.n2 {
            0 => at % self.params.bits,
            n2 => at & ((1 << n2) - 1),
        }
    }

    /// Prefetches the memory of the first positions, which decide about most items.
    #[inline]
    pub(super) fn prefetch(&self, arena: &Arena, hash: Hash) {
        for n in 0..self.params.hashes {
            self.bits.prefetch(arena, self.position(hash, n) >> 3);
        }
    }

    #[inline]
    pub(super) fn contains(&self, arena: &Arena, hash: Hash) -> bool {
        (0..self.params.hashes).all(|n| {
            let at = self.position(hash, n);
            self.bits.byte(arena, at >> 3) & (1 << (at & 7)) != 0
        })
    }

    /// Sets the bits of an item; returns whether one was not set before.
    #[inline]
    pub(super) fn add(&mut self, arena: &mut Arena, hash: Hash) -> Result<bool, SketchFull> {
        let mut is_new = false;
        for n in 0..self.params.hashes {
            let at = self.position(hash, n);
            let byte = self.bits.byte(arena, at >> 3);
            let mask = 1 << (at & 7);
            if byte & mask == 0 {
                self.bits.set_byte(arena, at >> 3, byte | mask)?;
                is_new = true;
            }
        }
        self.params.items += u64::from(is_new);
        Ok(is_new)
    }

    pub(super) fn is_full(&self) -> bool {
        self.params.items >= self.params.entries
    }

    pub(super) fn params(&self) -> &Params {
        &self.params
    }

    pub(super) fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    pub(super) fn bits_mut(&mut self) -> &mut Blocks {
        &mut self.bits
    }

    pub(super) fn frozen(&self) -> BloomLink {
        BloomLink { bits: self.bits.frozen(), params: self.params }
    }

    /// Its bits.
    pub fn bits(&self) -> &Blocks {
        &self.bits
    }

    /// Items that it is made for.
    pub fn entries(&self) -> u64 {
        self.params.entries
    }

    /// The share of false positives for which it is built.
    pub fn error(&self) -> f64 {
        self.params.error
    }

    /// Positions of an item.
    pub fn hashes(&self) -> u32 {
        self.params.hashes
    }

    /// Items added.
    pub fn items(&self) -> u64 {
        self.params.items
    }
}

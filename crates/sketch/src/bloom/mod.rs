//! A Bloom filter that grows by links, each with more room and half the error of the one before.
//!
//! Parameters and positions are those of RedisBloom; its files and dumps load here, and ours load there.

mod dump;
mod link;
#[cfg(test)]
mod tests;

use darter_slab::Arena;

use crate::SketchFull;
use crate::blocks::{Blocks, bytes_across, read_across, write_across};
use crate::murmur::{murmur2, murmur64a};
pub use dump::{ChunkFault, VERSION};
pub use link::BloomLink;

/// Error rates above this are lowered to it.
pub const ERROR_RATE_CAP: f64 = 0.25;

/// Bits are not rounded up to a power of two.
const NO_ROUND: u32 = 1;
/// The capacity of a link is the logarithm of its bits.
const ENTRIES_ARE_BITS: u32 = 2;
/// Items are hashed to 64 bits.
const FORCE_64: u32 = 4;
/// No link is added to the first.
const NO_SCALING: u32 = 8;

/// The factor by which the error of each further link is smaller.
const TIGHTENING: f64 = 0.5;
const SEED_64: u64 = 0xc6a4_a793_5bd1_e995;
const SEED_32: u32 = 0x9747_b28c;

/// The growth of a full filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scaling {
    /// Links are added, each with this multiple of the last one's capacity.
    By(u32),
    /// Adding to a full filter is an error; the number is kept but not used.
    Fixed(u32),
}

/// The reason why an item was not added, or a filter not created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BloomFault {
    /// The filter is full and does not grow.
    FilterFull,
    /// There is no room for the bits.
    NoRoom,
    /// Capacity or error rate are not usable.
    Invalid,
}

impl From<SketchFull> for BloomFault {
    fn from(_: SketchFull) -> BloomFault {
        BloomFault::NoRoom
    }
}

/// A filter of one or more links, the newest last.
#[derive(Debug)]
pub struct Bloom {
    links: Vec<BloomLink>,
    items: u64,
    options: u32,
    growth: u32,
}

/// The two numbers from which an item's positions are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hash {
    a: u64,
    b: u64,
}

impl Bloom {
    /// A filter without items. Fails if `capacity` is 0, `error` is not inside (0, 1), or the bits would fit no arena.
    pub fn new(capacity: u64, error: f64, scaling: Scaling) -> Result<Bloom, BloomFault> {
        let (options, growth) = match scaling {
            Scaling::By(growth) => (NO_ROUND | FORCE_64, growth),
            Scaling::Fixed(growth) => (NO_ROUND | FORCE_64 | NO_SCALING, growth),
        };
        let error = if options & NO_SCALING == 0 { error * TIGHTENING } else { error };
        let link = BloomLink::new(capacity, error, options)?;
        Ok(Bloom { links: vec![link], items: 0, options, growth })
    }

    /// The hash of `item` in this filter.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        if self.options & FORCE_64 != 0 {
            let a = murmur64a(item, SEED_64);
            Hash { a, b: murmur64a(item, a) }
        } else {
            let a = murmur2(item, SEED_32);
            Hash { a: u64::from(a), b: u64::from(murmur2(item, a)) }
        }
    }

    /// Prefetches the memory of the first positions of an item.
    #[inline]
    pub fn prefetch(&self, arena: &Arena, hash: Hash) {
        if let Some(link) = self.links.last() {
            link.prefetch(arena, hash);
        }
    }

    /// Returns true if an item may have been added.
    #[inline]
    pub fn contains(&self, arena: &Arena, hash: Hash) -> bool {
        self.links.iter().rev().any(|link| link.contains(arena, hash))
    }

    /// Adds an item; returns false if it may have been present. Fails, with the filter unchanged, if it is full or
    /// has no room.
    #[inline]
    pub fn add(&mut self, arena: &mut Arena, hash: Hash) -> Result<bool, BloomFault> {
        if self.contains(arena, hash) {
            return Ok(false);
        }
        if self.links.last().is_none_or(BloomLink::is_full) {
            self.grow()?;
        }
        let Some(link) = self.links.last_mut() else { return Err(BloomFault::Invalid) };
        let is_new = link.add(arena, hash)?;
        self.items += u64::from(is_new);
        Ok(is_new)
    }

    #[cold]
    fn grow(&mut self) -> Result<(), BloomFault> {
        if self.options & NO_SCALING != 0 {
            return Err(BloomFault::FilterFull);
        }
        let last = self.links.last().ok_or(BloomFault::Invalid)?;
        let capacity = last.entries().wrapping_mul(u64::from(self.growth));
        self.links.push(BloomLink::new(capacity, last.error() * TIGHTENING, self.options)?);
        Ok(())
    }

    /// Bytes of bits that the next item requires, if it makes the filter grow.
    pub fn growth_bytes(&self) -> u64 {
        match self.links.last() {
            Some(last) if last.is_full() && self.options & NO_SCALING == 0 => {
                let capacity = last.entries().wrapping_mul(u64::from(self.growth));
                BloomLink::bytes_of(capacity, last.error() * TIGHTENING)
            }
            _ => 0,
        }
    }

    /// Items added.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The links, oldest first.
    pub fn links(&self) -> &[BloomLink] {
        &self.links
    }

    /// Items for which the filter keeps its error rate.
    pub fn capacity(&self) -> u64 {
        self.links.iter().fold(0, |sum, link| sum.wrapping_add(link.entries()))
    }

    /// The factor by which capacity grows; `None` if it does not.
    pub fn expansion(&self) -> Option<u32> {
        (self.options & NO_SCALING == 0).then_some(self.growth)
    }

    /// Bits of the hash: 32 in old filters, else 64.
    pub fn hash_bits(&self) -> u32 {
        if self.options & FORCE_64 == 0 { 32 } else { 64 }
    }

    /// Bytes that RedisBloom would hold, as BF.INFO says.
    pub fn nominal_bytes(&self) -> u64 {
        const ROOT: u64 = 32;
        const LINK: u64 = 64;
        self.links.iter().fold(ROOT, |sum, link| sum + LINK + link.bits().bytes())
    }

    /// A value without content, until its root is read.
    pub fn empty() -> Bloom {
        Bloom { links: Vec::new(), items: 0, options: 0, growth: 0 }
    }

    /// Bytes in the arena and on the heap, without the root.
    pub fn memory_bytes(&self) -> usize {
        let links: usize = self.links.iter().map(|link| link.bits().memory_bytes()).sum();
        links + self.links.capacity() * size_of::<BloomLink>()
    }

    /// A copy of the root for a reader of the present state. The copy must never free its blocks.
    pub fn frozen(&self) -> Bloom {
        let links = self.links.iter().map(BloomLink::frozen).collect();
        Bloom { links, items: self.items, options: self.options, growth: self.growth }
    }

    /// Bytes of bits in all links.
    pub fn bytes(&self) -> u64 {
        let all: Vec<&Blocks> = self.links.iter().map(BloomLink::bits).collect();
        bytes_across(&all)
    }

    /// Bits of all links from byte `from` on, `len` bytes of them as far as they exist.
    pub fn read(&self, arena: &Arena, from: u64, len: u64) -> Vec<u8> {
        let all: Vec<&Blocks> = self.links.iter().map(BloomLink::bits).collect();
        read_across(&all, arena, from, len)
    }

    /// Writes the output of [`Bloom::read`]. Fails if it is too long or there is no room.
    pub fn write(&mut self, arena: &mut Arena, from: u64, bytes: &[u8]) -> Result<(), SketchFull> {
        write_across(self.links.iter_mut().map(BloomLink::bits_mut), arena, from, bytes)
    }

    /// Frees up to `blocks_max` blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        match self.links.last_mut() {
            None => return true,
            Some(link) => {
                if link.bits_mut().free_step(arena, blocks_max) {
                    self.links.pop();
                }
            }
        }
        self.links.is_empty()
    }
}

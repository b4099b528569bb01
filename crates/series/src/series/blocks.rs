//! A sealed block: the span of its samples, and the place of their bytes.

use darter_slab::{Arena, Handle};

use super::head::{self, BlockHead};
use crate::SeriesFull;
use crate::codec::{self, Packing};
use crate::sample::Sample;

/// Sealed samples.
#[derive(Clone, Debug)]
pub(super) struct SampleBlock {
    first: u64,
    last: u64,
    count: u32,
    handle: Handle,
}

impl SampleBlock {
    /// Seals `samples`, which are sorted and not empty. Fails if there is no room.
    pub fn new(arena: &mut Arena, samples: &[Sample], packing: Packing) -> Result<SampleBlock, SeriesFull> {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Err(SeriesFull) };
        let mut bytes = Vec::new();
        head::write(samples, &mut bytes);
        codec::encode(samples, packing, &mut bytes);
        let handle = arena.alloc(bytes.len()).ok_or(SeriesFull)?;
        arena.keep_none(handle);
        if let Some(place) = arena.block_mut(handle).get_mut(..bytes.len()) {
            place.copy_from_slice(&bytes);
        }
        Ok(SampleBlock { first: first.time, last: last.time, count: samples.len() as u32, handle })
    }

    /// Time of its first sample.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Time of its last sample.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Its samples.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Bytes in the arena.
    pub fn bytes(&self, arena: &Arena) -> usize {
        arena.size(self.handle)
    }

    /// Replaces `out` by its samples.
    pub fn decode(&self, arena: &Arena, out: &mut Vec<Sample>) {
        codec::decode(head::skip(arena.seen(self.handle)), self.first, self.len(), out);
    }

    /// What its samples add up to; `None` if it has no head.
    pub fn head(&self, arena: &Arena) -> Option<BlockHead> {
        head::read(arena.seen(self.handle), (self.first, self.last), u64::from(self.count))
    }

    /// Frees its bytes; returns their number.
    pub fn free(&mut self, arena: &mut Arena) -> usize {
        let bytes = arena.size(self.handle);
        arena.give_up(self.handle);
        bytes
    }
}

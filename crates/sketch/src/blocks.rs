//! Bytes in blocks of 16 KiB of an arena: a running snapshot copies one block, not the whole sketch.
//!
//! A block that holds only zeros takes no memory until its first write.

use darter_slab::{Arena, Handle};

use crate::SketchFull;

/// Bytes of a block.
const BLOCK_BYTES: usize = 16 << 10;
const BLOCK_SHIFT: u32 = BLOCK_BYTES.trailing_zeros();
/// More bytes than this are refused: an arena holds no more.
pub const BYTES_MAX: u64 = 32 << 30;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// A fixed number of bytes, all zero at first.
#[derive(Debug, Default)]
pub struct Blocks {
    handles: Vec<Handle>,
    bytes: u64,
    // Bytes of the blocks that are there.
    held: usize,
}

impl Blocks {
    /// `bytes` zeros. Fails if an arena cannot hold as many.
    pub fn zeroed(bytes: u64) -> Result<Blocks, SketchFull> {
        if bytes > BYTES_MAX {
            return Err(SketchFull);
        }
        let blocks = bytes.div_ceil(BLOCK_BYTES as u64) as usize;
        Ok(Blocks { handles: vec![Handle::NONE; blocks], bytes, held: 0 })
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory: blocks that are there, and their directory.
    pub fn memory_bytes(&self) -> usize {
        self.held + self.handles.capacity() * size_of::<Handle>()
    }

    /// Bytes of block `block` of the contents.
    fn len_of(&self, block: usize) -> usize {
        (self.bytes - ((block as u64) << BLOCK_SHIFT)).min(BLOCK_BYTES as u64) as usize
    }

    /// The contents of block `block`.
    #[inline]
    fn block<'a>(&self, arena: &'a Arena, block: usize) -> &'a [u8] {
        match self.handles.get(block) {
            Some(&handle) if !handle.is_none() => arena.seen(handle),
            _ => &ZEROS,
        }
    }

    /// Block `block` for writing, created if it is missing.
    #[inline]
    fn block_mut<'a>(&mut self, arena: &'a mut Arena, block: usize) -> Result<&'a mut [u8], SketchFull> {
        let handle = *self.handles.get(block).ok_or(SketchFull)?;
        if handle.is_none() {
            return self.make(arena, block);
        }
        arena.keep_first(handle);
        Ok(arena.block_mut(handle))
    }

    #[cold]
    fn make<'a>(&mut self, arena: &'a mut Arena, block: usize) -> Result<&'a mut [u8], SketchFull> {
        let handle = arena.alloc(self.len_of(block)).ok_or(SketchFull)?;
        arena.keep_none(handle);
        if let Some(place) = self.handles.get_mut(block) {
            *place = handle;
        }
        self.held += arena.size(handle);
        let bytes = arena.block_mut(handle);
        bytes.fill(0);
        Ok(bytes)
    }

    /// Byte `at`; 0 past the end.
    #[inline]
    pub fn byte(&self, arena: &Arena, at: u64) -> u8 {
        let within = at as usize & (BLOCK_BYTES - 1);
        self.block(arena, (at >> BLOCK_SHIFT) as usize).get(within).copied().unwrap_or(0)
    }

    /// Sets byte `at`. Fails if there is no room for its block.
    #[inline]
    pub fn set_byte(&mut self, arena: &mut Arena, at: u64, value: u8) -> Result<(), SketchFull> {
        let within = at as usize & (BLOCK_BYTES - 1);
        let block = self.block_mut(arena, (at >> BLOCK_SHIFT) as usize)?;
        if let Some(byte) = block.get_mut(within) {
            *byte = value;
        }
        Ok(())
    }

    /// Prefetches the memory of byte `at`.
    #[inline]
    pub fn prefetch(&self, arena: &Arena, at: u64) {
        if let Some(&handle) = self.handles.get((at >> BLOCK_SHIFT) as usize)
            && !handle.is_none()
        {
            arena.prefetch_at(handle, at as usize & (BLOCK_BYTES - 1));
        }
    }

    /// The `N` bytes of cell `cell`; `N` divides 16 KiB.
    #[inline]
    pub fn cell<const N: usize>(&self, arena: &Arena, cell: u64) -> [u8; N] {
        let at = cell * N as u64;
        let within = at as usize & (BLOCK_BYTES - 1);
        let block = self.block(arena, (at >> BLOCK_SHIFT) as usize);
        block.get(within..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    /// Sets the `N` bytes of cell `cell`; `N` divides 16 KiB. Fails if there is no room for its block.
    #[inline]
    pub fn set_cell<const N: usize>(
        &mut self,
        arena: &mut Arena,
        cell: u64,
        value: [u8; N],
    ) -> Result<(), SketchFull> {
        let at = cell * N as u64;
        let within = at as usize & (BLOCK_BYTES - 1);
        let block = self.block_mut(arena, (at >> BLOCK_SHIFT) as usize)?;
        if let Some(cell) = block.get_mut(within..).and_then(|rest| rest.first_chunk_mut()) {
            *cell = value;
        }
        Ok(())
    }

    /// The bytes `from..from + len`, as far as they exist, in pieces.
    pub fn parts<'a>(&self, arena: &'a Arena, from: u64, len: u64) -> Vec<&'a [u8]> {
        let end = from.saturating_add(len).min(self.bytes);
        let mut parts = Vec::new();
        let mut at = from;
        while at < end {
            let block = (at >> BLOCK_SHIFT) as usize;
            let within = at as usize & (BLOCK_BYTES - 1);
            let n = (BLOCK_BYTES - within).min((end - at) as usize);
            let Some(part) = self.block(arena, block).get(within..within + n) else { break };
            parts.push(part);
            at += n as u64;
        }
        parts
    }

    /// All bytes, in pieces.
    pub fn all<'a>(&self, arena: &'a Arena) -> Vec<&'a [u8]> {
        self.parts(arena, 0, self.bytes)
    }

    /// Writes `bytes` from `from` on; zeros make no block. Fails if they end past the end or there is no room.
    pub fn write(&mut self, arena: &mut Arena, from: u64, bytes: &[u8]) -> Result<(), SketchFull> {
        let end = from.checked_add(bytes.len() as u64).ok_or(SketchFull)?;
        if end > self.bytes {
            return Err(SketchFull);
        }
        let (mut at, mut rest) = (from, bytes);
        while !rest.is_empty() {
            let block = (at >> BLOCK_SHIFT) as usize;
            let within = at as usize & (BLOCK_BYTES - 1);
            let n = (BLOCK_BYTES - within).min(rest.len());
            let (piece, after) = rest.split_at(n);
            let is_absent = self.handles.get(block).is_none_or(|handle| handle.is_none());
            if !is_absent || piece.iter().any(|&byte| byte != 0) {
                let place = self.block_mut(arena, block)?;
                if let Some(place) = place.get_mut(within..within + n) {
                    place.copy_from_slice(piece);
                }
            }
            at += n as u64;
            rest = after;
        }
        Ok(())
    }

    /// The same blocks for a reader of the present state. The copy must never free them.
    pub fn frozen(&self) -> Blocks {
        Blocks { handles: self.handles.clone(), bytes: self.bytes, held: self.held }
    }

    /// Frees up to `blocks_max` blocks; returns true if none is left. The contents are lost.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        let mut freed = 0;
        while let Some(handle) = self.handles.pop() {
            if handle.is_none() {
                continue;
            }
            self.held = self.held.saturating_sub(arena.size(handle));
            arena.keep_first(handle);
            arena.free(handle);
            freed += 1;
            if freed >= blocks_max {
                return self.handles.is_empty();
            }
        }
        true
    }
}

/// Bytes of several one after the other.
pub(crate) fn bytes_across(all: &[&Blocks]) -> u64 {
    all.iter().map(|blocks| blocks.bytes).sum()
}

/// The bytes `from..from + len` of several one after the other, as far as they exist.
pub(crate) fn read_across(all: &[&Blocks], arena: &Arena, mut from: u64, len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for blocks in all {
        let left = len - out.len() as u64;
        if from < blocks.bytes {
            blocks.parts(arena, from, left).iter().for_each(|part| out.extend_from_slice(part));
        }
        from = from.saturating_sub(blocks.bytes);
        if out.len() as u64 >= len {
            break;
        }
    }
    out
}

/// Writes `bytes` from `from` on over several one after the other. Fails if they end past the end or there is no room.
pub(crate) fn write_across<'a>(
    all: impl Iterator<Item = &'a mut Blocks>,
    arena: &mut Arena,
    mut from: u64,
    mut bytes: &[u8],
) -> Result<(), SketchFull> {
    for blocks in all {
        if from < blocks.bytes {
            let n = usize::try_from(blocks.bytes - from).unwrap_or(usize::MAX).min(bytes.len());
            let (own, rest) = bytes.split_at(n);
            blocks.write(arena, from, own)?;
            bytes = rest;
            from = blocks.bytes;
        }
        from -= blocks.bytes;
    }
    if bytes.is_empty() { Ok(()) } else { Err(SketchFull) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_slab::Past;

    #[test]
    fn bytes_are_zero_until_written_and_memory_comes_with_the_write() {
        let mut arena = Arena::with_reserve(4 << 20).expect("address space");
        let mut blocks = Blocks::zeroed(40_000).expect("small");
        assert_eq!((blocks.byte(&arena, 39_999), arena.used_bytes()), (0, 0));
        blocks.write(&mut arena, 16_380, b"over the edge").expect("room");
        blocks.set_byte(&mut arena, 39_999, 7).expect("room");
        assert_eq!(blocks.parts(&arena, 16_380, 13).concat(), b"over the edge");
        assert_eq!(blocks.all(&arena).concat().len(), 40_000);
        assert_eq!(blocks.byte(&arena, 39_999), 7);
        assert_eq!(blocks.write(&mut arena, 39_999, b"ab"), Err(SketchFull));
        while !blocks.free_step(&mut arena, 1) {}
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn several_are_read_and_written_as_one() {
        let mut arena = Arena::with_reserve(4 << 20).expect("address space");
        let mut all = [10, 20_000, 7].map(|bytes| Blocks::zeroed(bytes).expect("small"));
        let text: Vec<u8> = (0..20_017_u32).map(|n| n as u8 | 1).collect();
        for (n, piece) in text.chunks(999).enumerate() {
            write_across(all.iter_mut(), &mut arena, n as u64 * 999, piece).expect("room");
        }
        let all = all.each_ref();
        assert_eq!(bytes_across(&all), 20_017);
        assert_eq!(read_across(&all, &arena, 5, 20_010), &text[5..20_015]);
        assert_eq!(read_across(&all, &arena, 20_011, 100), &text[20_011..]);
    }

    #[test]
    fn a_frozen_copy_sees_the_past() {
        let mut arena = Arena::with_reserve(4 << 20).expect("address space");
        let mut blocks = Blocks::zeroed(100_000).expect("small");
        blocks.write(&mut arena, 0, &[1; 20_000]).expect("room");
        let frozen = blocks.frozen();
        arena.keep_into(Box::new(Past::new()));
        blocks.write(&mut arena, 10, &[2; 90_000]).expect("room");
        let past = arena.end_past().expect("kept");
        assert!(past.bytes() < 40_000, "two blocks at most: {}", past.bytes());
        arena.look_back(past);
        let mut expected = vec![1; 20_000];
        expected.resize(100_000, 0);
        assert_eq!(frozen.all(&arena).concat(), expected);
    }
}

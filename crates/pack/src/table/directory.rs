//! The directory of a table: from the leading bits of a place in hash space to the pack that holds it.
//!
//! Called by the table only. Up to two levels of nodes in arena blocks above the packs: a *chunk* maps up
//! to ten further bits to packs, the *top* maps up to thirteen to chunks. A node is an extendible array:
//! doubling or halving one copies at most 32 KiB, so no mutation ever touches the whole directory.
//!
//! Node block: `prefix:u8 bits:u8 freed:u16 pad:u32`, then `1 << bits` handles. A child of depth d fills
//! `1 << (prefix + bits - d)` neighbouring slots.

use darter_slab::{Arena, Handle};

use crate::pack::{Pack, PackFull};

/// Root of the directory: a pack, a chunk or a top, by level.
#[derive(Clone, Copy, Debug)]
// Packed, so that the root of a table takes 32 bytes.
#[repr(C, packed)]
pub(super) struct TableDirectory {
    /// Block of the root; none while the table is empty.
    pub root: Handle,
    /// Nodes above a pack: 0, 1 or 2.
    pub level: u8,
}

/// The header of a node.
#[derive(Clone, Copy)]
struct DirectoryNode {
    handle: Handle,
    /// Leading bits its children share.
    prefix: u32,
    /// Bits it maps: it has `1 << bits` slots.
    bits: u32,
}

impl TableDirectory {
    /// No packs.
    pub const EMPTY: TableDirectory = TableDirectory { root: Handle::NONE, level: 0 };

    /// The pack that holds place `x`; none while the table is empty.
    #[inline]
    pub fn find(self, arena: &Arena, x: u64) -> Handle {
        let mut h = self.root;
        for _ in 0..self.level {
            h = slot_of(arena.tail(h), x);
        }
        h
    }

    /// Points the range of the pack of `depth` that holds place `x` to `pack`.
    pub fn replace(&mut self, arena: &mut Arena, x: u64, depth: u32, pack: Handle) {
        if self.level == 0 {
            self.root = pack;
        } else {
            let chunk = self.chunk(arena, x);
            chunk.fill(arena, x, depth, pack);
        }
    }

    /// Puts two packs of `depth + 1` in place of the pack of `depth` that holds `x`.
    ///
    /// Errors: the directory cannot get deeper; only its shape is changed.
    pub fn split(
        &mut self,
        arena: &mut Arena,
        bytes: &mut Bytes,
        x: u64,
        depth: u32,
        halves: [Handle; 2],
    ) -> Result<(), PackFull> {
        if self.level == 0 {
            let pack = self.root;
            self.root = DirectoryNode::create(arena, bytes, 0, 0)?.fill_one(arena, pack);
            self.level = 1;
        }
        loop {
            let chunk = self.chunk(arena, x);
            if depth < chunk.prefix + chunk.bits {
                chunk.fill_halves(arena, x, depth, halves);
                return Ok(());
            }
            self.deepen(arena, bytes, x, chunk)?;
        }
    }

    /// Puts one pack of `depth - 1` in place of two packs of `depth`, the one that holds `x` and its buddy. Frees the
    /// slots no longer needed.
    pub fn merge(&mut self, arena: &mut Arena, bytes: &mut Bytes, x: u64, depth: u32, pack: Handle) {
        let chunk = self.chunk(arena, x);
        debug_assert!(depth > chunk.prefix);
        chunk.fill(arena, x, depth - 1, pack);
        self.contract(arena, bytes, x);
    }

    /// Returns true if the pack of `depth` that holds `x` has its buddy in the same chunk.
    pub fn has_buddy(self, arena: &Arena, x: u64, depth: u32) -> bool {
        self.level != 0 && depth > self.chunk(arena, x).prefix
    }

    /// Moves the nodes above place `x` out of pages that the arena wants to empty.
    pub fn compact(&mut self, arena: &mut Arena, x: u64) {
        if self.level != 0 {
            let chunk = self.chunk(arena, x);
            if let Some(moved) = arena.compact(chunk.handle) {
                self.place_chunk(arena, x, DirectoryNode { handle: moved, ..chunk });
            }
        }
        if self.level == 2 {
            self.root = arena.compact(self.root).unwrap_or(self.root);
        }
    }

    /// Removes the last pack of hash space, with the nodes that held only it; `None` if none is left. After the first
    /// call the directory must be emptied before any other use.
    pub fn pop(&mut self, arena: &mut Arena, bytes: &mut Bytes) -> Option<Handle> {
        if self.level == 0 {
            let pack = self.root;
            self.root = Handle::NONE;
            return (!pack.is_none()).then_some(pack);
        }
        let root = DirectoryNode::open(arena, self.root);
        let chunk = if self.level == 2 { DirectoryNode::open(arena, root.last(arena)) } else { root };
        let pack = chunk.last(arena);
        chunk.drop_last(arena, Pack::open(arena, pack).head().depth());
        if chunk.is_freed(arena) {
            bytes.free(arena, chunk.handle);
            if self.level == 2 {
                root.drop_last(arena, chunk.prefix);
                if !root.is_freed(arena) {
                    return Some(pack);
                }
                bytes.free(arena, root.handle);
            }
            *self = TableDirectory::EMPTY;
        }
        Some(pack)
    }

    fn chunk(self, arena: &Arena, x: u64) -> DirectoryNode {
        let h = if self.level == 2 { slot_of(arena.tail(self.root), x) } else { self.root };
        DirectoryNode::open(arena, h)
    }

    /// Makes room for one more bit below the chunk that holds `x`: doubles or splits it.
    fn deepen(
        &mut self,
        arena: &mut Arena,
        bytes: &mut Bytes,
        x: u64,
        chunk: DirectoryNode,
    ) -> Result<(), PackFull> {
        if chunk.bits < CHUNK_BITS {
            return self.double_chunk(arena, bytes, x, chunk);
        }
        if self.level == 1 {
            self.root = DirectoryNode::create(arena, bytes, 0, 0)?.fill_one(arena, chunk.handle);
            self.level = 2;
        }
        let mut top = DirectoryNode::open(arena, self.root);
        if chunk.prefix == top.bits {
            if top.bits == NODE_BITS_MAX {
                // Past 2^23 slots the chunks grow instead.
                return if chunk.bits < NODE_BITS_MAX {
                    self.double_chunk(arena, bytes, x, chunk)
                } else {
                    Err(PackFull)
                };
            }
            top = top.doubled(arena, bytes)?;
            self.root = top.handle;
        }
        let halves = chunk.halves(arena, bytes)?;
        top.fill_halves(arena, x, chunk.prefix, halves);
        Ok(())
    }

    fn double_chunk(
        &mut self,
        arena: &mut Arena,
        bytes: &mut Bytes,
        x: u64,
        chunk: DirectoryNode,
    ) -> Result<(), PackFull> {
        let doubled = chunk.doubled(arena, bytes)?;
        self.place_chunk(arena, x, doubled);
        Ok(())
    }

    fn place_chunk(&mut self, arena: &mut Arena, x: u64, chunk: DirectoryNode) {
        if self.level == 2 {
            DirectoryNode::open(arena, self.root).fill(arena, x, chunk.prefix, chunk.handle);
        } else {
            self.root = chunk.handle;
        }
    }

    /// Halves the chunk that holds `x` while all its neighbours are equal, then joins it with its buddy and halves
    /// the top, as far as the arena has room for the smaller copies.
    fn contract(&mut self, arena: &mut Arena, bytes: &mut Bytes, x: u64) {
        let mut chunk = self.chunk(arena, x);
        while chunk.bits > 0 && chunk.is_paired(arena) {
            let Ok(halved) = chunk.halved(arena, bytes) else { return };
            self.place_chunk(arena, x, halved);
            chunk = halved;
        }
        if self.level == 2 {
            self.join_chunks(arena, bytes, x, chunk);
            self.contract_top(arena, bytes);
        } else if chunk.bits == 0 {
            self.root = chunk.first(arena);
            self.level = 0;
            bytes.free(arena, chunk.handle);
        }
    }

    fn join_chunks(&mut self, arena: &mut Arena, bytes: &mut Bytes, x: u64, chunk: DirectoryNode) {
        if chunk.prefix == 0 || chunk.bits > JOIN_BITS {
            return;
        }
        let buddy = self.chunk(arena, x ^ bit(chunk.prefix));
        if buddy.prefix != chunk.prefix || buddy.bits > JOIN_BITS {
            return;
        }
        let (low, high) = if x & bit(chunk.prefix) == 0 { (chunk, buddy) } else { (buddy, chunk) };
        let Ok(joined) = DirectoryNode::join(arena, bytes, low, high) else { return };
        self.place_chunk(arena, x, joined);
    }

    fn contract_top(&mut self, arena: &mut Arena, bytes: &mut Bytes) {
        let mut top = DirectoryNode::open(arena, self.root);
        while top.bits > 0 && top.is_paired(arena) {
            let Ok(halved) = top.halved(arena, bytes) else { return };
            self.root = halved.handle;
            top = halved;
        }
        if top.bits == 0 {
            self.root = top.first(arena);
            self.level = 1;
            bytes.free(arena, top.handle);
        }
    }
}

/// The running sum of the sizes of a table's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub usize);

impl Bytes {
    /// Allocates a block and counts it.
    pub fn alloc(&mut self, arena: &mut Arena, bytes: usize) -> Result<Handle, PackFull> {
        let h = arena.alloc(bytes).ok_or(PackFull)?;
        self.0 += arena.size(h);
        Ok(h)
    }

    /// Frees a block and counts it out.
    pub fn free(&mut self, arena: &mut Arena, h: Handle) {
        self.0 -= arena.size(h);
        arena.free(h);
    }
}

impl DirectoryNode {
    fn open(arena: &Arena, handle: Handle) -> DirectoryNode {
        let block = arena.tail(handle);
        DirectoryNode { handle, prefix: u32::from(block[0]), bits: u32::from(block[1]) }
    }

    fn create(
        arena: &mut Arena,
        bytes: &mut Bytes,
        prefix: u32,
        bits: u32,
    ) -> Result<DirectoryNode, PackFull> {
        debug_assert!(bits <= NODE_BITS_MAX && prefix < 64);
        let handle = bytes.alloc(arena, SLOTS_AT + (4 << bits))?;
        arena.block_mut(handle)[..SLOTS_AT].copy_from_slice(&[prefix as u8, bits as u8, 0, 0, 0, 0, 0, 0]);
        Ok(DirectoryNode { handle, prefix, bits })
    }

    /// Fills the only slot of a node without bits; returns the node's handle.
    fn fill_one(self, arena: &mut Arena, child: Handle) -> Handle {
        debug_assert_eq!(self.bits, 0);
        write_slot(arena.block_mut(self.handle), 0, child);
        self.handle
    }

    /// Points the slots of the child of `depth` that holds `x` to `child`.
    fn fill(self, arena: &mut Arena, x: u64, depth: u32, child: Handle) {
        let span = 1usize << (self.prefix + self.bits - depth);
        let first = index_of(x, self.prefix, self.bits) & !(span - 1);
        let block = arena.block_mut(self.handle);
        for at in first..first + span {
            write_slot(block, at, child);
        }
    }

    fn fill_halves(self, arena: &mut Arena, x: u64, depth: u32, halves: [Handle; 2]) {
        let side = bit(depth + 1);
        self.fill(arena, x & !side, depth + 1, halves[0]);
        self.fill(arena, x | side, depth + 1, halves[1]);
    }

    /// A copy with one bit more in place of this node.
    fn doubled(self, arena: &mut Arena, bytes: &mut Bytes) -> Result<DirectoryNode, PackFull> {
        let node = DirectoryNode::create(arena, bytes, self.prefix, self.bits + 1)?;
        let (to, from) = arena.two_mut(node.handle, self.handle);
        for at in 0..1usize << node.bits {
            write_slot(to, at, read_slot(from, at / 2));
        }
        bytes.free(arena, self.handle);
        Ok(node)
    }

    /// A copy with one bit less in place of this node, whose slots are pairs of equals.
    fn halved(self, arena: &mut Arena, bytes: &mut Bytes) -> Result<DirectoryNode, PackFull> {
        let node = DirectoryNode::create(arena, bytes, self.prefix, self.bits - 1)?;
        let (to, from) = arena.two_mut(node.handle, self.handle);
        for at in 0..1usize << node.bits {
            write_slot(to, at, read_slot(from, 2 * at));
        }
        bytes.free(arena, self.handle);
        Ok(node)
    }

    /// Two nodes in place of this one, each with half of the slots.
    fn halves(self, arena: &mut Arena, bytes: &mut Bytes) -> Result<[Handle; 2], PackFull> {
        let low = DirectoryNode::create(arena, bytes, self.prefix + 1, self.bits - 1)?;
        let high = match DirectoryNode::create(arena, bytes, self.prefix + 1, self.bits - 1) {
            Ok(high) => high,
            Err(full) => {
                bytes.free(arena, low.handle);
                return Err(full);
            }
        };
        let len = 4usize << low.bits;
        for (half, first) in [(low, SLOTS_AT), (high, SLOTS_AT + len)] {
            let (to, from) = arena.two_mut(half.handle, self.handle);
            to[SLOTS_AT..SLOTS_AT + len].copy_from_slice(&from[first..first + len]);
        }
        bytes.free(arena, self.handle);
        Ok([low.handle, high.handle])
    }

    /// One node in place of two buddies.
    fn join(
        arena: &mut Arena,
        bytes: &mut Bytes,
        low: DirectoryNode,
        high: DirectoryNode,
    ) -> Result<DirectoryNode, PackFull> {
        let bits = low.bits.max(high.bits);
        let node = DirectoryNode::create(arena, bytes, low.prefix - 1, bits + 1)?;
        for (half, first) in [(low, 0), (high, 1usize << bits)] {
            let (to, from) = arena.two_mut(node.handle, half.handle);
            for at in 0..1usize << bits {
                write_slot(to, first + at, read_slot(from, at >> (bits - half.bits)));
            }
            bytes.free(arena, half.handle);
        }
        Ok(node)
    }

    /// Returns true if no child has the full depth, so that half of the slots would do.
    fn is_paired(self, arena: &Arena) -> bool {
        let block = arena.block(self.handle);
        (0..1usize << self.bits).step_by(2).all(|at| read_slot(block, at) == read_slot(block, at + 1))
    }

    fn first(self, arena: &Arena) -> Handle {
        read_slot(arena.block(self.handle), 0)
    }

    /// The last child not yet dropped.
    fn last(self, arena: &Arena) -> Handle {
        let block = arena.block(self.handle);
        read_slot(block, (1 << self.bits) - 1 - freed(block))
    }

    fn drop_last(self, arena: &mut Arena, depth: u32) {
        let block = arena.block_mut(self.handle);
        let dropped = freed(block) + (1 << (self.prefix + self.bits - depth));
        block[2..4].copy_from_slice(&(dropped as u16).to_le_bytes());
    }

    fn is_freed(self, arena: &Arena) -> bool {
        freed(arena.block(self.handle)) == 1 << self.bits
    }
}

/// The bit of a place that distinguishes the two halves of depth `depth`.
#[inline]
pub(super) fn bit(depth: u32) -> u64 {
    1 << (64 - depth)
}

#[inline]
fn slot_of(block: &[u8], x: u64) -> Handle {
    let Some(&[prefix, bits]) = block.first_chunk::<2>() else { return Handle::NONE };
    read_slot(block, index_of(x, u32::from(prefix), u32::from(bits)))
}

/// The `bits` bits of `x` after its first `prefix` bits.
#[inline]
fn index_of(x: u64, prefix: u32, bits: u32) -> usize {
    // Two shifts, since `bits` may be 0.
    ((x << prefix) >> 1 >> (63 - bits)) as usize
}

#[inline]
fn read_slot(block: &[u8], at: usize) -> Handle {
    let slot = block.get(SLOTS_AT + 4 * at..).and_then(|slots| slots.first_chunk::<4>());
    slot.map_or(Handle::NONE, |raw| Handle::from_raw(u32::from_le_bytes(*raw)))
}

fn write_slot(block: &mut [u8], at: usize, child: Handle) {
    let at = SLOTS_AT + 4 * at;
    block[at..at + 4].copy_from_slice(&child.raw().to_le_bytes());
}

fn freed(block: &[u8]) -> usize {
    u16::from_le_bytes([block[2], block[3]]) as usize
}

const SLOTS_AT: usize = 8;
/// Bits of a chunk before it is split in two.
const CHUNK_BITS: u32 = 10;
/// Bits of any node: 8 + 4 * 2^12 bytes is the largest that fits a block.
const NODE_BITS_MAX: u32 = 12;
/// Chunks of at most this many bits are joined.
const JOIN_BITS: u32 = 6;

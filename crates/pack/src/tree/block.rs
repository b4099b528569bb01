//! The bytes of a block, as every type of the tree looks at them.

use darter_slab::{Arena, Handle};

/// The bytes from the start of the block on. Only the block's own bytes are meaningful; debug builds return no
/// others.
#[inline(always)]
pub(super) fn bytes_of(arena: &Arena, block: Handle) -> &[u8] {
    // Finding the end of a block costs two loads, which content that encodes its own length does not need.
    if cfg!(debug_assertions) || arena.looks_back() { arena.seen(block) } else { arena.tail(block) }
}

/// Like [`bytes_of`], for writing. A reader of an older version of the tree still sees the former block.
#[inline(always)]
pub(super) fn bytes_of_mut(arena: &mut Arena, block: Handle) -> &mut [u8] {
    arena.keep_first(block);
    if cfg!(debug_assertions) { arena.block_mut(block) } else { arena.tail_mut(block) }
}

/// Two different blocks for writing, each with its exact length.
#[inline]
pub(super) fn two_of_mut(arena: &mut Arena, a: Handle, b: Handle) -> (&mut [u8], &mut [u8]) {
    arena.keep_first(a);
    arena.keep_first(b);
    arena.two_mut(a, b)
}

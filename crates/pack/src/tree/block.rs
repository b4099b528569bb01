//! The bytes of a block, as every type of the tree looks at them.

use darter_slab::{Arena, Handle};

/// The bytes from the start of a block on. Only the block's own mean anything, and debug builds give no others.
#[inline(always)]
pub(super) fn bytes_of(arena: &Arena, block: Handle) -> &[u8] {
    // Finding where a block ends costs two loads, which decoding what says its own length does not need.
    if cfg!(debug_assertions) { arena.block(block) } else { arena.tail(block) }
}

/// As [`bytes_of`], for writing.
#[inline(always)]
pub(super) fn bytes_of_mut(arena: &mut Arena, block: Handle) -> &mut [u8] {
    if cfg!(debug_assertions) { arena.block_mut(block) } else { arena.tail_mut(block) }
}

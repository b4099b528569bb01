//! What a collection holds of the arena, to the byte.

use darter_slab::{Arena, Handle};

use super::Full;
use crate::entry::{self, Coded};
use crate::spill::Spill;

/// The arena bytes of one collection: every block of the tree is taken and given back through here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owned(u64);

impl Owned {
    /// Nothing held.
    pub(super) const NONE: Owned = Owned(0);

    /// Class sizes of all blocks held, in bytes.
    pub(super) fn bytes(self) -> usize {
        self.0 as usize
    }

    /// A block of at least `bytes` (1 to 32 KiB). Errors: the arena's reservation is used up.
    #[inline]
    pub(super) fn alloc(&mut self, arena: &mut Arena, bytes: usize) -> Result<Handle, Full> {
        let block = arena.alloc(bytes).ok_or(Full)?;
        arena.keep_none(block);
        self.0 += Arena::fits(bytes) as u64;
        Ok(block)
    }

    /// Gives a block back.
    #[inline]
    pub(super) fn free(&mut self, arena: &mut Arena, block: Handle) {
        let bytes = arena.size(block) as u64;
        debug_assert!(bytes <= self.0);
        self.0 -= bytes;
        arena.keep_first(block);
        arena.free(block);
    }

    /// Moves a long item out of line, into a block of its own or the spill. Errors: nothing is kept.
    #[cold]
    pub(super) fn spill<'a>(
        &mut self,
        arena: &mut Arena,
        spill: &mut Spill,
        long: Coded<'a>,
    ) -> Result<Coded<'a>, Full> {
        let before = arena.used_bytes();
        let short = long.spill(arena, spill).ok_or(Full)?;
        self.0 += (arena.used_bytes() - before) as u64;
        Ok(short)
    }

    /// Gives back what the item coded at the front of `code` holds out of line, if anything.
    #[inline]
    pub(super) fn release(&mut self, arena: &mut Arena, spill: &mut Spill, code: &[u8]) {
        if let Some(block) = entry::release(code, spill) {
            self.free(arena, block);
        }
    }
}

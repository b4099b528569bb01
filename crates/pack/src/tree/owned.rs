//! The arena bytes of a collection, exactly.

use darter_slab::{Arena, Handle};

use super::TreeFull;
use crate::entry::{self, Coded};
use crate::spill::Spill;

/// The out-of-line part of an item.
#[derive(Clone, Copy)]
pub(super) enum Far {
    Nothing,
    Block(Handle),
    Boxed(u32),
}

impl Far {
    /// Of the item coded at the front of `code`.
    #[inline]
    pub(super) fn of(code: &[u8]) -> Far {
        match (entry::block(code), entry::boxed(code)) {
            (Some(block), _) => Far::Block(block),
            (None, Some(at)) => Far::Boxed(at),
            (None, None) => Far::Nothing,
        }
    }
}

/// The arena bytes of one collection: every block of the tree is taken and given back through here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnedEntry(u64);

impl OwnedEntry {
    /// Nothing held.
    pub(super) const NONE: OwnedEntry = OwnedEntry(0);

    /// Class sizes of all blocks held, in bytes.
    pub(super) fn bytes(self) -> usize {
        self.0 as usize
    }

    /// A block of at least `bytes` (1 to 32 KiB). Errors: the arena's reservation is used up.
    #[inline]
    pub(super) fn alloc(&mut self, arena: &mut Arena, bytes: usize) -> Result<Handle, TreeFull> {
        let block = arena.alloc(bytes).ok_or(TreeFull)?;
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

    /// Moves a long item out of line, into its own block or the spill. Errors: nothing is kept.
    #[cold]
    pub(super) fn spill<'a>(
        &mut self,
        arena: &mut Arena,
        spill: &mut Spill,
        long: Coded<'a>,
    ) -> Result<Coded<'a>, TreeFull> {
        let before = arena.used_bytes();
        let short = long.spill(arena, spill).ok_or(TreeFull)?;
        self.0 += (arena.used_bytes() - before) as u64;
        if let Some(at) = short.boxed() {
            arena.keep_no_text(at);
        }
        Ok(short)
    }

    /// Frees the out-of-line part of the item coded at the front of `code`, if any. Returns true if that was a block.
    #[inline]
    pub(super) fn release(&mut self, arena: &mut Arena, spill: &mut Spill, code: &[u8]) -> bool {
        let far = Far::of(code);
        self.release_far(arena, spill, far)
    }

    /// The same for a code that was examined already.
    #[inline]
    pub(super) fn release_far(&mut self, arena: &mut Arena, spill: &mut Spill, far: Far) -> bool {
        match far {
            Far::Nothing => {}
            Far::Block(block) => self.free(arena, block),
            Far::Boxed(at) => arena.keep_text(at, spill.remove(at)),
        }
        matches!(far, Far::Block(_))
    }
}

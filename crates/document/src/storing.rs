//! Blocks on their way into an arena, some at a time.
//!
//! Called by [`StagedPieces::store`], which puts all of them there at once, and for long documents that are stored in
//! steps. Blocks of which nothing refers to yet belong to the [`Storing`].

use darter_slab::{Arena, Handle};

use crate::stage::{NoRoom, StagedPieces, resolve, resolve_node};
use crate::tree::Fresh;

/// New blocks of a document, of which some are in an arena already.
#[derive(Debug, Default)]
pub struct Storing {
    // A block is behind those that it refers to.
    fresh: Vec<Fresh>,
    // Those of the first blocks, 0 for one that is not needed.
    handles: Vec<u32>,
    made_bytes: usize,
}

impl Storing {
    /// Nothing is stored yet. What `stage` gives up is not looked at.
    pub fn new(stage: StagedPieces) -> Storing {
        let fresh = stage.into_fresh();
        Storing { handles: Vec::with_capacity(fresh.len()), fresh, made_bytes: 0 }
    }

    /// Stores up to `blocks_max` blocks; returns true if those were the last.
    ///
    /// Errors: no room.
    pub fn step(&mut self, arena: &mut Arena, blocks_max: usize) -> Result<bool, NoRoom> {
        let begin = self.handles.len();
        for fresh in self.fresh.iter_mut().skip(begin).take(blocks_max) {
            let mut bytes = std::mem::take(&mut fresh.bytes);
            if bytes.is_empty() {
                self.handles.push(0);
                continue;
            }
            resolve(&mut bytes, fresh.sort, &self.handles);
            let block = arena.alloc(bytes.len()).ok_or(NoRoom)?;
            arena.keep_none(block);
            if let Some(room) = arena.block_mut(block).get_mut(..bytes.len()) {
                room.copy_from_slice(&bytes);
            }
            self.made_bytes += arena.size(block);
            self.handles.push(block.raw());
        }
        Ok(self.handles.len() == self.fresh.len())
    }

    /// Bytes of the blocks that are stored.
    pub fn made_bytes(&self) -> usize {
        self.made_bytes
    }

    /// Corrects what `first`, the document's first block, says of the blocks, all of which are stored. They belong to the
    /// document now.
    pub fn end(self, first: &mut [u8]) {
        debug_assert_eq!(self.handles.len(), self.fresh.len());
        let root_at = crate::Doc::new(first).root_at();
        resolve_node(first, root_at, &self.handles);
    }

    /// Frees up to `blocks_max` of the stored blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        for _ in 0..blocks_max {
            let Some(raw) = self.handles.pop() else { return true };
            if raw != 0 {
                self.made_bytes -= arena.size(Handle::from_raw(raw));
                arena.free(Handle::from_raw(raw));
            }
        }
        self.handles.is_empty()
    }
}

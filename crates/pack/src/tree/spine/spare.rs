//! The blocks a split may need, so that it cannot fail half-way.

use darter_slab::{Arena, Handle};

use super::node::{CAP_DIVIDED, CAPS, LEN_MAX, SpineNode};
use super::{HEIGHT_MAX, SpinePath};
use crate::tree::TreeFull;
use crate::tree::block::bytes_of;
use crate::tree::owned::OwnedEntry;

/// The blocks a split will need, taken before anything is changed. In the order of use, bottom first.
pub(super) struct Spare {
    blocks: [Handle; HEIGHT_MAX + 1],
    // 0 <= taken <= len
    taken: usize,
}

impl Spare {
    pub(super) fn reserve<const K: usize>(
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        path: &SpinePath,
    ) -> Result<Spare, TreeFull> {
        let mut spare = Spare { blocks: [Handle::NONE; HEIGHT_MAX + 1], taken: 0 };
        let mut len = 0;
        let mut grows_root = true;
        for level in (0..path.depth).rev() {
            let node = SpineNode::of(bytes_of(arena, path.nodes[level]));
            let cap = if node.len == LEN_MAX { CAP_DIVIDED } else { node.cap_after() };
            if node.len < LEN_MAX {
                grows_root = false;
                if node.len < node.cap {
                    break;
                }
            }
            spare.push(arena, owned, SpineNode::bytes::<K>(cap), &mut len)?;
            if !grows_root {
                break;
            }
        }
        if grows_root {
            if path.depth == HEIGHT_MAX {
                spare.give_back(arena, owned, len);
                return Err(TreeFull);
            }
            spare.push(arena, owned, SpineNode::bytes::<K>(CAPS[0]), &mut len)?;
        }
        Ok(spare)
    }

    fn push(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        bytes: usize,
        len: &mut usize,
    ) -> Result<(), TreeFull> {
        match owned.alloc(arena, bytes) {
            Ok(block) => {
                self.blocks[*len] = block;
                *len += 1;
                Ok(())
            }
            Err(full) => {
                self.give_back(arena, owned, *len);
                Err(full)
            }
        }
    }

    fn give_back(&mut self, arena: &mut Arena, owned: &mut OwnedEntry, len: usize) {
        for &block in &self.blocks[..len] {
            owned.free(arena, block);
        }
    }

    pub(super) fn take(&mut self) -> Handle {
        let block = self.blocks[self.taken];
        debug_assert!(!block.is_none());
        self.taken += 1;
        block
    }
}

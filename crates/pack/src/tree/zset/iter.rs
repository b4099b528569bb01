//! Walking a sorted set from a rank, up or down.

use darter_slab::Arena;

use super::Zset;
use super::leaf::{self, ZsetLeafHead};
use crate::entry::Item;
use crate::tree::Direction;
use crate::tree::block::bytes_of;
use crate::tree::spine::SpineWalk;

/// Members and scores in order; made by [`Zset::iter`].
pub struct ZsetIter<'a> {
    set: &'a Zset,
    arena: &'a Arena,
    walk: SpineWalk<'a, 2>,
    // The leaf the walk is in, and its head; None before the first.
    leaf: Option<(&'a [u8], ZsetLeafHead)>,
}

impl Zset {
    /// Members and scores from this rank on, in a direction; nothing when `rank` is not below the length.
    pub fn iter<'a>(&'a self, arena: &'a Arena, rank: u64, direction: Direction) -> ZsetIter<'a> {
        let mut iter = ZsetIter {
            set: self,
            arena,
            walk: SpineWalk::nowhere(&self.spine, arena, direction),
            leaf: None,
        };
        if rank < self.len {
            let (leaf, path, at) = self.spine.by_rank(arena, rank);
            let block = bytes_of(arena, leaf);
            let head = ZsetLeafHead::of(block);
            iter.walk.begin(path, at, head.len);
            iter.leaf = Some((block, head));
        }
        iter
    }
}

impl<'a> Iterator for ZsetIter<'a> {
    type Item = (Item<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<(Item<'a>, f64)> {
        let at = match self.walk.place() {
            Some(at) => at,
            None => {
                let block = bytes_of(self.arena, self.walk.advance(|leaf| leaf::len(self.arena, leaf))?);
                self.leaf = Some((block, ZsetLeafHead::of(block)));
                self.walk.place()?
            }
        };
        let (block, head) = self.leaf.as_ref()?;
        Some((head.member(block, at, self.arena, &self.set.spill), head.score(block, at)))
    }
}

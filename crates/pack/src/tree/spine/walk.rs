//! Walking the entries of a tree in order, leaf by leaf, either way.

use darter_slab::{Arena, Handle};

use super::{Spine, SpineNode, SpinePath};
use crate::tree::Direction;
use crate::tree::block::bytes_of;

impl<const K: usize> Spine<K> {
    /// Moves `path` to the next leaf. `None` at the end, and `path` is then of no use.
    pub(in crate::tree) fn next(&self, arena: &Arena, path: &mut SpinePath) -> Option<Handle> {
        self.step(arena, path, |at, len| (at + 1 < len).then_some(at + 1), |_| 0)
    }

    /// Moves `path` to the leaf before. `None` at the start, and `path` is then of no use.
    pub(in crate::tree) fn prev(&self, arena: &Arena, path: &mut SpinePath) -> Option<Handle> {
        self.step(arena, path, |at, _| at.checked_sub(1), |len| len - 1)
    }

    fn step(
        &self,
        arena: &Arena,
        path: &mut SpinePath,
        sideways: impl Fn(usize, usize) -> Option<usize>,
        edge: impl Fn(usize) -> usize,
    ) -> Option<Handle> {
        while path.depth > 0 {
            path.depth -= 1;
            let node_at = path.nodes[path.depth];
            let block = bytes_of(arena, node_at);
            let node = SpineNode::of(block);
            let Some(at) = sideways(path.at[path.depth] as usize, node.len) else { continue };
            path.push(node_at, at);
            let mut child = node.child(block, at);
            while path.depth < self.height as usize {
                let block = bytes_of(arena, child);
                let node = SpineNode::of(block);
                let at = edge(node.len);
                path.push(child, at);
                child = node.child(block, at);
            }
            return Some(child);
        }
        None
    }
}

/// The next entry of a walk. A walk only counts entries; the leaf's owner reads them.
pub(in crate::tree) struct SpineWalk<'a, const K: usize> {
    spine: &'a Spine<K>,
    arena: &'a Arena,
    direction: Direction,
    // None when there is no leaf to leave.
    path: Option<SpinePath>,
    // The next entry of the leaf going up, the one after it going down.
    at: usize,
    left: usize,
}

impl<'a, const K: usize> SpineWalk<'a, K> {
    /// A walk that is at its end.
    pub(in crate::tree) fn nowhere(spine: &'a Spine<K>, arena: &'a Arena, direction: Direction) -> Self {
        SpineWalk { spine, arena, direction, path: None, at: 0, left: 0 }
    }

    /// Begins at entry `at` of the leaf of `path`, which has `len` entries.
    pub(in crate::tree) fn begin(&mut self, path: SpinePath, at: usize, len: usize) {
        self.path = Some(path);
        (self.at, self.left) = match self.direction {
            Direction::Up => (at, len - at),
            Direction::Down => (at + 1, at + 1),
        };
    }

    /// The place of the next entry in this leaf, and passes it; `None` if the leaf has no more.
    #[inline(always)]
    pub(in crate::tree) fn place(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        match self.direction {
            Direction::Up => {
                self.at += 1;
                Some(self.at - 1)
            }
            Direction::Down => {
                self.at -= 1;
                Some(self.at)
            }
        }
    }

    /// Moves to the next leaf; `len` counts its entries. `None` at the end.
    #[cold]
    pub(in crate::tree) fn advance(&mut self, len: impl FnOnce(Handle) -> usize) -> Option<Handle> {
        let path = self.path.as_mut()?;
        let leaf = match self.direction {
            Direction::Up => self.spine.next(self.arena, path),
            Direction::Down => self.spine.prev(self.arena, path),
        };
        let Some(leaf) = leaf else {
            self.path = None;
            return None;
        };
        self.left = len(leaf);
        self.at = if self.direction == Direction::Up { 0 } else { self.left };
        Some(leaf)
    }
}

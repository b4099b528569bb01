//! Walking a sorted set from a rank, up or down.

use darter_slab::{Arena, Handle};

use super::Zset;
use super::leaf::Head;
use crate::entry::Item;
use crate::tree::Direction;
use crate::tree::spine::Path;

/// Members and scores in order; made by [`Zset::iter`].
pub struct Iter<'a> {
    set: &'a Zset,
    arena: &'a Arena,
    direction: Direction,
    // None when there is no leaf to leave.
    path: Option<Path>,
    block: &'a [u8],
    head: Option<Head>,
    // The next entry going up, the one after it going down.
    at: usize,
    left: usize,
}

impl Zset {
    /// Members and scores from this rank on, in a direction; nothing when `rank` is not below the length.
    pub fn iter<'a>(&'a self, arena: &'a Arena, rank: u64, direction: Direction) -> Iter<'a> {
        let mut iter =
            Iter { set: self, arena, direction, path: None, block: &[], head: None, at: 0, left: 0 };
        if rank < self.len {
            let (leaf, path, at) = self.spine.by_rank(arena, rank);
            iter.path = Some(path);
            iter.enter(leaf);
            match direction {
                Direction::Up => (iter.at, iter.left) = (at, iter.left - at),
                Direction::Down => (iter.at, iter.left) = (at + 1, at + 1),
            }
        }
        iter
    }
}

impl<'a> Iter<'a> {
    fn enter(&mut self, leaf: Handle) {
        self.block = self.arena.tail(leaf);
        let head = Head::of(self.block);
        self.left = head.len;
        self.at = if self.direction == Direction::Up { 0 } else { head.len };
        self.head = Some(head);
    }

    #[cold]
    fn advance(&mut self) -> Option<()> {
        let path = self.path.as_mut()?;
        let leaf = match self.direction {
            Direction::Up => self.set.spine.next(self.arena, path),
            Direction::Down => self.set.spine.prev(self.arena, path),
        };
        if leaf.is_none() {
            self.path = None;
        }
        self.enter(leaf?);
        Some(())
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Item<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<(Item<'a>, f64)> {
        if self.left == 0 {
            self.advance()?;
        }
        let head = self.head?;
        self.left -= 1;
        let at = match self.direction {
            Direction::Up => {
                self.at += 1;
                self.at - 1
            }
            Direction::Down => {
                self.at -= 1;
                self.at
            }
        };
        Some((head.member(self.block, at, self.arena, &self.set.spill), head.score(self.block, at)))
    }
}

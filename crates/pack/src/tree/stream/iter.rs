//! Walking a stream from a rank or through a range of ids, up or down.

use darter_slab::Arena;

use super::leaf::{self, StreamLeafHead};
use super::{StreamEntry, StreamId, StreamLog};
use crate::tree::Direction;
use crate::tree::block::bytes_of;
use crate::tree::spine::SpineWalk;

/// Entries in order; made by [`StreamLog::iter`].
pub struct StreamIter<'a> {
    log: &'a StreamLog,
    arena: &'a Arena,
    walk: SpineWalk<'a, 2>,
    // The leaf the walk is in, and its head; None before the first.
    leaf: Option<(&'a [u8], StreamLeafHead)>,
    // Entries to come, where there may be others behind them.
    left: u64,
}

impl StreamLog {
    /// Entries from this rank on, in a direction; nothing when `rank` is not below the length.
    pub fn iter<'a>(&'a self, arena: &'a Arena, rank: u64, direction: Direction) -> StreamIter<'a> {
        let mut iter = self.walk(arena, self.dead.saturating_add(rank), direction);
        if direction == Direction::Down {
            iter.left = rank.saturating_add(1);
        }
        iter
    }

    /// Like [`StreamLog::iter`], among all entries of the tree, trimmed or not.
    pub(super) fn walk<'a>(&'a self, arena: &'a Arena, rank: u64, direction: Direction) -> StreamIter<'a> {
        let walk = SpineWalk::nowhere(&self.spine, arena, direction);
        let mut iter = StreamIter { log: self, arena, walk, leaf: None, left: u64::MAX };
        if rank < self.dead + self.len {
            let (leaf, path, at) = self.spine.by_rank(arena, rank);
            let block = bytes_of(arena, leaf);
            let head = StreamLeafHead::of(block);
            iter.walk.begin(path, at, head.len);
            iter.leaf = Some((block, head));
        }
        iter
    }

    /// Entries with ids of `first..=last`, from the lowest up or from the highest down. Cost: O(log n) to begin.
    pub fn range<'a>(
        &'a self,
        arena: &'a Arena,
        first: StreamId,
        last: StreamId,
        direction: Direction,
    ) -> impl Iterator<Item = StreamEntry<'a>> + 'a {
        // The end of the range costs one comparison an entry, its start one search.
        let rank = match direction {
            Direction::Up => Some(self.rank(arena, first)),
            Direction::Down => {
                let below = self.rank(arena, last);
                if self.get(arena, last).is_some() { Some(below) } else { below.checked_sub(1) }
            }
        };
        let iter = self.iter(arena, rank.unwrap_or(u64::MAX), direction);
        iter.take_while(move |entry| first <= entry.id && entry.id <= last)
    }
}

impl<'a> Iterator for StreamIter<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'a>> {
        self.left = self.left.checked_sub(1)?;
        let at = match self.walk.place() {
            Some(at) => at,
            None => {
                let block = bytes_of(self.arena, self.walk.advance(|leaf| leaf::len(self.arena, leaf))?);
                self.leaf = Some((block, StreamLeafHead::of(block)));
                self.walk.place()?
            }
        };
        let (block, head) = self.leaf.as_ref()?;
        Some(self.log.entry(self.arena, block, head, at))
    }
}

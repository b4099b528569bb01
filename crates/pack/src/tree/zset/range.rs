//! Bounds as ranks: every range of a sorted set, by score or by member text, is two ranks and a walk between them.

use darter_slab::Arena;

use super::Zset;
use super::leaf::ZsetLeafHead;
use super::score::ord;
use crate::entry::Item;
use crate::tree::block::bytes_of;

/// A side of the entries equal to a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edge {
    /// Before them: an inclusive lower bound or an exclusive upper one.
    Before,
    /// After them: an exclusive lower bound or an inclusive upper one.
    After,
}

impl Zset {
    /// Number of members with a score below `score`, or at most `score` with [`Edge::After`]. Cost: O(log n).
    pub fn rank_of_score(&self, arena: &Arena, score: f64, edge: Edge) -> u64 {
        if self.len == 0 {
            return 0;
        }
        // After all of one score is before all of the next number; there is one, NaN being no score.
        let sought = ord(score) + u64::from(edge == Edge::After);
        let (leaf, path) = self.spine.by_key(
            arena,
            sought,
            || 0,
            |first| {
                // The empty text is before every other, so only an equal first entry keeps it from its leaf.
                let block = bytes_of(arena, first);
                sought.cmp(&ZsetLeafHead::of(block).ord(block, 0)).then(std::cmp::Ordering::Less)
            },
        );
        let block = bytes_of(arena, leaf);
        self.spine.entries_before(arena, &path) + ZsetLeafHead::of(block).below(block, sought) as u64
    }

    /// Number of members with a text below `text`, or at most `text` with [`Edge::After`], in a set whose scores are
    /// all equal. With other scores the result is some rank, as in Redis. Cost: O(log n).
    pub fn rank_of_text(&self, arena: &Arena, text: &[u8], edge: Edge) -> u64 {
        let Some((_, score)) = self.nth(arena, 0) else { return 0 };
        let (ord, member) = (ord(score), Item::of(text));
        let (leaf, path) = self.route(arena, ord, member);
        let block = bytes_of(arena, leaf);
        let head = ZsetLeafHead::of(block);
        let mut at = head.before(block, ord, member, arena, &self.spill);
        if edge == Edge::After && at < head.len {
            let equal = head.ord(block, at) == ord && head.member(block, at, arena, &self.spill) == member;
            at += usize::from(equal);
        }
        self.spine.entries_before(arena, &path) + at as u64
    }
}

//! `Zset`: members with a score each, in order of score and then of member text; ranks in O(log n).
//!
//! Called by the store for sorted sets. Members are kept once, in the leaves of a counted tree. With more than one
//! leaf, a member index finds the leaf of a member, at eight bytes a member. A set never parses scores and never sees
//! NaN.

mod bucket;
mod build;
mod edit;
mod expiry;
mod grow;
mod ids;
mod index;
mod iter;
mod leaf;
mod member;
mod range;
mod score;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use darter_base::hash::KeyHasher;
use darter_slab::{Arena, Handle};

use self::expiry::Expiries;
use self::ids::Ids;
use self::index::ZsetIndex;
use self::leaf::ZsetLeafHead;
use self::member::NewMember;
use self::score::ord;
use super::owned::OwnedEntry;
use super::spine::{Spine, SpinePath};
use super::window::{SeenLeaf, Windows, readable};
use crate::entry::Item;
use crate::spill::Spill;
use crate::tree::block::bytes_of;

pub use super::Direction;
pub use edit::ZsetEdit;
pub use iter::ZsetIter;
pub use range::Edge;

/// A sorted set: 64 bytes and blocks in the arena. [`Zset::clear`] must run before it is dropped, or the blocks are
/// lost.
///
/// Every call that takes a hasher must be given the same one for the life of the set. Members are given as
/// [`Item::of`] makes them: canonical integers are integers.
#[derive(Debug)]
pub struct Zset {
    spine: Spine<2>,
    // Empty unless there is more than one leaf.
    index: ZsetIndex,
    ids: Ids,
    len: u64,
    owned: OwnedEntry,
    spill: Spill,
    expiries: Expiries,
}

readable!(Zset);

/// An entry's leaf and its place there.
#[derive(Clone, Copy)]
struct ZsetPlace {
    leaf: Handle,
    at: usize,
}

impl Default for Zset {
    fn default() -> Self {
        Self::new()
    }
}

impl Zset {
    /// An empty set, which owns no block.
    pub const fn new() -> Zset {
        Zset {
            spine: Spine::EMPTY,
            index: ZsetIndex::EMPTY,
            ids: Ids::EMPTY,
            len: 0,
            owned: OwnedEntry::NONE,
            spill: Spill::new(),
            expiries: Expiries::NONE,
        }
    }

    /// A copy of the set in its present state, to be read by rank by a reader that looks back while the arena keeps
    /// pre-images. It must never be changed or cleared. Ends with [`Zset::thaw`].
    pub fn freeze(&mut self) -> Zset {
        self.expiries.keep_past();
        Zset { spine: self.spine.frozen(), len: self.len, ..Zset::new() }
    }

    /// Ends the frozen copy.
    pub fn thaw(&mut self) {
        self.expiries.forget_past();
    }

    /// Lends the data outside the arena to a frozen copy for a read, or takes it back.
    pub fn lend(&mut self, frozen: &mut Zset) {
        std::mem::swap(&mut self.spill, &mut frozen.spill);
        std::mem::swap(&mut self.expiries, &mut frozen.expiries);
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held in the arena, exactly.
    pub fn bytes(&self) -> usize {
        self.owned.bytes()
    }

    /// Bytes held outside the arena, by members past 32 KiB.
    pub fn spilled_bytes(&self) -> usize {
        self.spill.bytes()
    }

    /// The score of `member`. Cost: O(1): a probe of the index and a search in one leaf.
    #[inline]
    pub fn score(&self, arena: &Arena, hasher: &KeyHasher, member: Item<'_>) -> Option<f64> {
        let place = self.find(arena, &NewMember::of(member), || member::hash(hasher, member))?;
        let block = bytes_of(arena, place.leaf);
        Some(ZsetLeafHead::of(block).score(block, place.at))
    }

    /// Number of members before `member`, and its score. Cost: that of [`Zset::score`] plus O(log n).
    pub fn rank(&self, arena: &Arena, hasher: &KeyHasher, member: Item<'_>) -> Option<(u64, f64)> {
        let place = self.find(arena, &NewMember::of(member), || member::hash(hasher, member))?;
        let block = bytes_of(arena, place.leaf);
        let score = ZsetLeafHead::of(block).score(block, place.at);
        let (leaf, path) = self.route(arena, ord(score), member);
        debug_assert_eq!(leaf, place.leaf);
        Some((self.spine.entries_before(arena, &path) + place.at as u64, score))
    }

    fn each(
        &self,
        arena: &Arena,
        first: u64,
        len: u64,
        direction: Direction,
        see: &mut dyn FnMut(SeenLeaf<'_>),
    ) {
        let members = self.iter(arena, first, direction).take(len as usize);
        members.for_each(|(member, score)| see(SeenLeaf::Scored(member, score)));
    }

    fn windows_mut(&mut self) -> &mut Windows {
        self.spill.windows_mut()
    }

    fn settle_windows(&mut self) {
        self.spill.settle();
    }

    /// The member of this rank and its score. Cost: O(log n).
    pub fn nth<'a>(&'a self, arena: &'a Arena, rank: u64) -> Option<(Item<'a>, f64)> {
        self.iter(arena, rank, Direction::Up).next()
    }

    /// Passes members to `emit` in an order that survives any change in between. `cursor` is 0 at first; returns the
    /// next cursor, 0 at the end. Emits about `count` members, at least one in each call but the last.
    ///
    /// Every member that is present from the first call to the last is shown at least once. Members of one hash stay
    /// together. Cost: a search in one leaf for each member.
    pub fn scan(
        &self,
        arena: &Arena,
        hasher: &KeyHasher,
        cursor: u64,
        count: usize,
        mut emit: impl FnMut(Item<'_>, f64),
    ) -> u64 {
        // A cursor that never came from here must not pass the end.
        let mut next = cursor.min(u64::from(u32::MAX));
        if self.index.is_empty() {
            return self.scan_few(arena, hasher, next as u32, count, &mut emit);
        }
        let (mut shown, mut bucket) = (0, Vec::new());
        while next >> 32 == 0 && shown < count.max(1) {
            bucket.clear();
            next = self.index.scan(arena, next as u32, |hash, id| bucket.push((hash, id)));
            bucket.sort_unstable();
            let mut last = None;
            for &(hash, id) in &bucket {
                if shown >= count.max(1) && last != Some(hash) {
                    return u64::from(hash);
                }
                last = Some(hash);
                shown += self.show_hash(arena, hasher, hash, self.ids.get(arena, id), &mut emit);
            }
        }
        if next >> 32 == 0 { next } else { 0 }
    }

    /// [`Zset::scan`] for a set so small that it has no index. Cost: the hash of each member.
    fn scan_few(
        &self,
        arena: &Arena,
        hasher: &KeyHasher,
        from: u32,
        count: usize,
        emit: &mut impl FnMut(Item<'_>, f64),
    ) -> u64 {
        if from == 0 && self.len() <= count as u64 {
            self.iter(arena, 0, Direction::Up).for_each(|(member, score)| emit(member, score));
            return 0;
        }
        let members = self.iter(arena, 0, Direction::Up);
        let mut found: Vec<_> =
            members.map(|(member, score)| (member::hash(hasher, member), member, score)).collect();
        found.retain(|&(hash, ..)| hash >= from);
        found.sort_unstable_by_key(|&(hash, ..)| hash);
        let mut last = None;
        for (shown, (hash, member, score)) in found.into_iter().enumerate() {
            if shown >= count.max(1) && last != Some(hash) {
                return u64::from(hash);
            }
            last = Some(hash);
            emit(member, score);
        }
        0
    }

    /// Shows the members of a leaf whose hash is `hash`; returns their number.
    fn show_hash(
        &self,
        arena: &Arena,
        hasher: &KeyHasher,
        hash: u32,
        leaf: Handle,
        emit: &mut impl FnMut(Item<'_>, f64),
    ) -> usize {
        let block = bytes_of(arena, leaf);
        let head = ZsetLeafHead::of(block);
        let mut shown = 0;
        for at in 0..head.len {
            let member = head.member(block, at, arena, &self.spill);
            if member::hash(hasher, member) == hash {
                emit(member, head.score(block, at));
                shown += 1;
            }
        }
        shown
    }

    /// The place of a member; `hash` is only asked for when the index is.
    #[inline]
    fn find(&self, arena: &Arena, new: &NewMember<'_>, hash: impl FnOnce() -> u32) -> Option<ZsetPlace> {
        let look = |leaf: Handle| {
            let block = bytes_of(arena, leaf);
            ZsetLeafHead::of(block).find(block, new, arena, &self.spill).map(|at| ZsetPlace { leaf, at })
        };
        if !self.index.is_empty() {
            return self.index.find(arena, hash(), |id| look(self.ids.get(arena, id)));
        }
        if self.spine.is_empty() { None } else { look(self.spine.first(arena).0) }
    }

    /// The leaf where (`ord`, `member`) belongs.
    fn route(&self, arena: &Arena, ord: u64, member: Item<'_>) -> (Handle, SpinePath) {
        self.spine.by_key(
            arena,
            ord,
            || member::prefix(member),
            |leaf| self.compare_first(arena, leaf, ord, member),
        )
    }

    /// Compares (`ord`, `member`) with the first entry of a leaf.
    fn compare_first(&self, arena: &Arena, leaf: Handle, ord: u64, member: Item<'_>) -> Ordering {
        let block = bytes_of(arena, leaf);
        let head = ZsetLeafHead::of(block);
        // A leaf is empty only while its last entry moves, and then the entry's old place is still its own.
        if head.len == 0 {
            return Ordering::Greater;
        }
        ord.cmp(&head.ord(block, 0))
            .then_with(|| member::compare(member, head.member(block, 0, arena, &self.spill)))
    }
}

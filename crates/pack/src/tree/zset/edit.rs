//! Changes of a sorted set: add, move, remove, and freeing the whole set.

use darter_base::hash::KeyHasher;
use darter_slab::{Arena, Handle};

use super::expiry::Expiries;
use super::leaf::{self, LeafMembers, ZsetLeafHead};
use super::member::{self, NewMember};
use super::score::ord;
use super::{Zset, ZsetPlace};
use crate::decimal::Digits;
use crate::entry::Item;
use crate::tree::block::{bytes_of, bytes_of_mut};
use crate::tree::owned::Far;
use crate::tree::spine::SpinePath;
use crate::tree::{Direction, TreeFull};

/// The result of [`Zset::update`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ZsetEdit {
    /// The score before, if the member was there.
    pub old: Option<f64>,
    /// The score written, if one was.
    pub new: Option<f64>,
}

impl Zset {
    /// Gives `member` the score that `decide` returns for its present one; `None` leaves it unchanged. NaN is not a
    /// score.
    ///
    /// Errors: nothing is changed. Cost: O(log n); one leaf or two, sometimes a split of one.
    #[inline]
    pub fn update(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        member: Item<'_>,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Result<ZsetEdit, TreeFull> {
        let new = NewMember::of(member);
        let mut hash = None;
        let place = self.find(arena, &new, || *hash.insert(member::hash(hasher, member)));
        let Some(place) = place else {
            let wanted = decide(None);
            if let Some(score) = wanted {
                self.add(arena, hasher, hash, new, score)?;
                if self.spill.is_read() {
                    self.note_insertion(arena, hasher, member);
                }
            }
            return Ok(ZsetEdit { old: None, new: wanted });
        };
        let block = bytes_of(arena, place.leaf);
        let old = ZsetLeafHead::of(block).score(block, place.at);
        let wanted = decide(Some(old));
        if let Some(score) = wanted
            && score.to_bits() != old.to_bits()
        {
            let is_read = self.spill.is_read();
            if is_read && let Some((rank, _)) = self.rank(arena, hasher, member) {
                self.before_removal(arena, rank, 1);
            }
            let done = self.change(arena, hasher, new, place, old, score);
            // Readers keep the former position of the member.
            if is_read {
                self.note_insertion(arena, hasher, member);
            }
            done?;
        }
        Ok(ZsetEdit { old: Some(old), new: wanted })
    }

    /// Gives `member` this score, adding it if necessary; returns whether it was added. As [`Zset::update`].
    pub fn insert(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        member: Item<'_>,
        score: f64,
    ) -> Result<bool, TreeFull> {
        Ok(self.update(arena, hasher, member, |_| Some(score))?.old.is_none())
    }

    /// Removes `member`; returns its score. Cost: as [`Zset::update`].
    pub fn remove(&mut self, arena: &mut Arena, hasher: &KeyHasher, member: Item<'_>) -> Option<f64> {
        let place = self.find(arena, &NewMember::of(member), || member::hash(hasher, member))?;
        let block = bytes_of(arena, place.leaf);
        let score = ZsetLeafHead::of(block).score(block, place.at);
        let (leaf, path) = self.route(arena, ord(score), member);
        debug_assert_eq!(leaf, place.leaf);
        self.remove_run(arena, hasher, leaf, &path, place.at, place.at + 1);
        Some(score)
    }

    /// Passes the member with the lowest score ([`Direction::Up`]) or the highest to `emit` and removes it.
    ///
    /// Returns whether there was one. Cost: O(log n).
    pub fn pop(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        from: Direction,
        emit: impl FnOnce(Item<'_>, f64),
    ) -> bool {
        if self.len == 0 {
            return false;
        }
        let (leaf, path) = match from {
            Direction::Up => self.spine.first(arena),
            Direction::Down => self.spine.last(arena),
        };
        let block = bytes_of(arena, leaf);
        let head = ZsetLeafHead::of(block);
        let at = if from == Direction::Up { 0 } else { head.len - 1 };
        emit(head.member(block, at, arena, &self.spill), head.score(block, at));
        self.remove_run(arena, hasher, leaf, &path, at, at + 1);
        true
    }

    /// Removes up to `count` members from this rank on; returns their number.
    ///
    /// Cost: about 0.1 us each; callers with many thousands call it in slices.
    pub fn remove_ranks(&mut self, arena: &mut Arena, hasher: &KeyHasher, rank: u64, count: u64) -> u64 {
        let wanted = count.min(self.len.saturating_sub(rank));
        let mut left = wanted;
        while left > 0 {
            let (leaf, path, at) = self.spine.by_rank(arena, rank);
            let part = left.min((leaf::len(arena, leaf) - at) as u64) as usize;
            self.remove_run(arena, hasher, leaf, &path, at, at + part);
            left -= part as u64;
        }
        wanted
    }

    /// Frees up to about `blocks_max` blocks; the set is unusable from the first call until it returns `true`, and
    /// empty then.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        if !self.index.free_step(arena, &mut self.owned, blocks_max) {
            return false;
        }
        self.ids.clear(arena, &mut self.owned);
        self.expiries = Expiries::NONE;
        let mut freed = 0;
        while freed < blocks_max {
            let Some(leaf) = self.spine.take_last(arena, &mut self.owned) else {
                debug_assert_eq!(self.owned.bytes(), 0);
                self.len = 0;
                return true;
            };
            freed += 1 + self.release_run(arena, leaf, 0, leaf::len(arena, leaf));
            self.owned.free(arena, leaf);
        }
        false
    }

    /// Gives every block back. Cost: O(blocks).
    pub fn clear(&mut self, arena: &mut Arena) {
        while !self.free_step(arena, 1 << 16) {}
    }

    #[cold]
    fn note_insertion(&mut self, arena: &Arena, hasher: &KeyHasher, member: Item<'_>) {
        if let Some((rank, _)) = self.rank(arena, hasher, member) {
            self.after_insertion(rank, 1);
        }
    }

    /// Adds a member that is not there.
    fn add(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        hash: Option<u32>,
        mut new: NewMember<'_>,
        score: f64,
    ) -> Result<(), TreeFull> {
        new.spill(arena, &mut self.owned, &mut self.spill)?;
        let done = self.place(arena, hasher, &new, score).and_then(|id| {
            if self.index.is_empty() {
                return Ok(());
            }
            let hash = hash.unwrap_or_else(|| member::hash(hasher, new.item));
            self.index.insert(arena, &mut self.owned, hash, id).inspect_err(|_| {
                let (leaf, path) = self.route(arena, ord(score), new.item);
                let block = bytes_of(arena, leaf);
                let at = ZsetLeafHead::of(block).before(block, ord(score), new.item, arena, &self.spill);
                leaf::remove(bytes_of_mut(arena, leaf), at);
                self.spine.adjust(arena, &path, -1);
                self.settle(arena, hasher, leaf, &path);
            })
        });
        match done {
            Ok(()) => self.len += 1,
            Err(TreeFull) => new.unspill(arena, &mut self.owned, &mut self.spill),
        }
        done
    }

    /// Gives a member that is at `place` another score.
    fn change(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        new: NewMember<'_>,
        place: ZsetPlace,
        old: f64,
        score: f64,
    ) -> Result<(), TreeFull> {
        let ZsetPlace { leaf, at } = place;
        let block = bytes_of(arena, leaf);
        let head = ZsetLeafHead::of(block);
        let before = head.before(block, ord(score), new.item, arena, &self.spill);
        // Among the others of the leaf.
        let to = before - usize::from(before > at);
        let stays = self.spine.is_single() || (to > 0 && to + 1 < head.len);
        if stays && to == at && leaf::set_score(bytes_of_mut(arena, leaf), at, score) {
            return Ok(());
        }
        let new = match head.members {
            LeafMembers::Slots { .. } => new.keeping(head.code(bytes_of(arena, leaf), at)),
            LeafMembers::Ints { .. } => new,
        };
        if stays && head.scores.holds(score) {
            let block = bytes_of_mut(arena, leaf);
            leaf::remove(block, at);
            let moved = leaf::insert(block, to, score, &new);
            debug_assert!(moved, "there is the room the entry had");
            return Ok(());
        }
        if self.index.is_empty() {
            if self.reshape(arena, &new, at, to, score)? {
                return Ok(());
            }
            self.start_index(arena, hasher)?;
        }
        self.move_entry(arena, hasher, &new, at, old, score)
    }

    /// Moves the entry at `at` of its leaf to the position of its new score, with its code and index entry.
    fn move_entry(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        new: &NewMember<'_>,
        at: usize,
        old: f64,
        score: f64,
    ) -> Result<(), TreeFull> {
        let (leaf, path) = self.route(arena, ord(old), new.item);
        let id = leaf::id(arena, leaf);
        leaf::remove(bytes_of_mut(arena, leaf), at);
        self.spine.adjust(arena, &path, -1);
        let target = match self.place(arena, hasher, new, score) {
            Ok(target) => target,
            Err(full) => {
                let back = leaf::insert(bytes_of_mut(arena, leaf), at, old, new);
                debug_assert!(back, "there is the room the entry had");
                self.spine.adjust(arena, &path, 1);
                return Err(full);
            }
        };
        if target != id {
            self.index.replace(arena, member::hash(hasher, new.item), id, target);
        }
        // The leaf is usually the same block, which need not be searched again.
        if self.ids.get(arena, id) == leaf && !leaf::is_sparse(arena, leaf) {
            return Ok(());
        }
        let (leaf, path) = self.route(arena, ord(old), new.item);
        if leaf::id(arena, leaf) == id {
            self.settle(arena, hasher, leaf, &path);
        }
        Ok(())
    }

    /// Removes entries `from..to` of a leaf from the set.
    fn remove_run(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        leaf: Handle,
        path: &SpinePath,
        from: usize,
        to: usize,
    ) {
        if self.spill.is_read() {
            let rank = self.spine.entries_before(arena, path) + from as u64;
            self.before_removal(arena, rank, (to - from) as u64);
        }
        let id = leaf::id(arena, leaf);
        if !self.index.is_empty() {
            for at in from..to {
                let block = bytes_of(arena, leaf);
                let hash =
                    member::hash(hasher, ZsetLeafHead::of(block).member(block, at, arena, &self.spill));
                self.index.remove(arena, &mut self.owned, hash, id);
            }
        }
        if !self.expiries.is_none() {
            for at in from..to {
                let block = bytes_of(arena, leaf);
                let member = ZsetLeafHead::of(block).member(block, at, arena, &self.spill);
                self.expiries.remove(member.text(&mut Digits::new()));
            }
        }
        self.release_run(arena, leaf, from, to);
        for at in (from..to).rev() {
            leaf::remove(bytes_of_mut(arena, leaf), at);
        }
        self.len -= (to - from) as u64;
        self.spine.adjust(arena, path, -((to - from) as i64));
        self.settle(arena, hasher, leaf, path);
    }

    /// Frees the out-of-line parts of entries `from..to` of a leaf; returns the number of entries that had one.
    fn release_run(&mut self, arena: &mut Arena, leaf: Handle, from: usize, to: usize) -> usize {
        let head = ZsetLeafHead::of(bytes_of(arena, leaf));
        let LeafMembers::Slots { .. } = head.members else { return 0 };
        let mut released = 0;
        for at in from..to {
            let far = Far::of(head.code(bytes_of(arena, leaf), at));
            released += usize::from(self.owned.release_far(arena, &mut self.spill, far));
        }
        released
    }
}

//! Changes of a sorted set: add, move, remove, and taking the whole set apart.

use darter_base::hash::KeyHasher;
use darter_slab::{Arena, Handle};

use super::build::{Part, Shape, Slack, cut, enlarge};
use super::expiry::Expiries;
use super::leaf::{self, Head, LEN_MAX, Members};
use super::member::{self, New};
use super::score::ord;
use super::{Place, Zset};
use crate::decimal::Digits;
use crate::entry::{self, Item};
use crate::tree::spine::{Leaf, Path, Side};
use crate::tree::{Direction, Full, LEAF_BYTES_MAX};

/// What [`Zset::update`] found and did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// The score before, if the member was there.
    pub old: Option<f64>,
    /// The score written, if one was.
    pub new: Option<f64>,
}

impl Zset {
    /// Gives `member` the score that `decide` answers to its present one; `None` leaves it as it is. NaN is not a score.
    ///
    /// Errors: nothing is changed. Cost: O(log n); one leaf or two, at times a split of one.
    #[inline]
    pub fn update(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        member: Item<'_>,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Result<Change, Full> {
        let new = New::of(member);
        let mut hash = None;
        let place = self.find(arena, &new, || *hash.insert(member::hash(hasher, member)));
        let Some(place) = place else {
            let wanted = decide(None);
            if let Some(score) = wanted {
                self.add(arena, hasher, hash, new, score)?;
            }
            return Ok(Change { old: None, new: wanted });
        };
        let block = arena.tail(place.leaf);
        let old = Head::of(block).score(block, place.at);
        let wanted = decide(Some(old));
        if let Some(score) = wanted
            && score.to_bits() != old.to_bits()
        {
            self.change(arena, hasher, new, place, old, score)?;
        }
        Ok(Change { old: Some(old), new: wanted })
    }

    /// Gives `member` this score, adding it if need be; returns whether it was added. As [`Zset::update`].
    pub fn insert(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        member: Item<'_>,
        score: f64,
    ) -> Result<bool, Full> {
        Ok(self.update(arena, hasher, member, |_| Some(score))?.old.is_none())
    }

    /// Takes `member` out; returns its score. Cost: as [`Zset::update`].
    pub fn remove(&mut self, arena: &mut Arena, hasher: &KeyHasher, member: Item<'_>) -> Option<f64> {
        let place = self.find(arena, &New::of(member), || member::hash(hasher, member))?;
        let block = arena.tail(place.leaf);
        let score = Head::of(block).score(block, place.at);
        let (leaf, path) = self.route(arena, ord(score), member);
        debug_assert_eq!(leaf, place.leaf);
        self.remove_run(arena, hasher, leaf, &path, place.at, place.at + 1);
        Some(score)
    }

    /// Shows the member with the lowest score ([`Direction::Up`]) or the highest to `emit` and takes it out.
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
        let block = arena.tail(leaf);
        let head = Head::of(block);
        let at = if from == Direction::Up { 0 } else { head.len - 1 };
        emit(head.member(block, at, arena, &self.spill), head.score(block, at));
        self.remove_run(arena, hasher, leaf, &path, at, at + 1);
        true
    }

    /// Takes out up to `count` members from this rank on; returns how many there were.
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

    /// Gives back up to about `blocks_max` blocks; the set is unusable from the first call until it returns `true`, and
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

    /// Adds a member that is not there.
    fn add(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        hash: Option<u32>,
        mut new: New<'_>,
        score: f64,
    ) -> Result<(), Full> {
        new.spill(arena, &mut self.owned, &mut self.spill)?;
        let done = self.place(arena, hasher, &new, score).and_then(|id| {
            if self.index.is_empty() {
                return Ok(());
            }
            let hash = hash.unwrap_or_else(|| member::hash(hasher, new.item));
            self.index.insert(arena, &mut self.owned, hash, id).inspect_err(|_| {
                let (leaf, path) = self.route(arena, ord(score), new.item);
                let block = arena.tail(leaf);
                let at = Head::of(block).before(block, ord(score), new.item, arena, &self.spill);
                leaf::remove(arena.tail_mut(leaf), at);
                self.spine.adjust(arena, &path, -1);
                self.settle(arena, hasher, leaf, &path);
            })
        });
        match done {
            Ok(()) => self.len += 1,
            Err(Full) => new.unspill(arena, &mut self.owned, &mut self.spill),
        }
        done
    }

    /// Gives a member that is at `place` another score.
    fn change(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        new: New<'_>,
        place: Place,
        old: f64,
        score: f64,
    ) -> Result<(), Full> {
        let Place { leaf, at } = place;
        let block = arena.tail(leaf);
        let head = Head::of(block);
        let before = head.before(block, ord(score), new.item, arena, &self.spill);
        // Among the others of the leaf.
        let to = before - usize::from(before > at);
        let stays = self.spine.is_single() || (to > 0 && to + 1 < head.len);
        if stays && to == at && leaf::set_score(arena.tail_mut(leaf), at, score) {
            return Ok(());
        }
        let new = match head.members {
            Members::Slots { .. } => new.keeping(head.code(arena.tail(leaf), at)),
            Members::Ints { .. } => new,
        };
        if stays && head.scores.holds(score) {
            let block = arena.tail_mut(leaf);
            leaf::remove(block, at);
            let moved = leaf::insert(block, to, score, &new);
            debug_assert!(moved, "there is the room the entry had");
            return Ok(());
        }
        if self.index.is_empty() {
            self.start_index(arena, hasher)?;
        }
        self.move_entry(arena, hasher, &new, at, old, score)
    }

    /// Takes the entry at `at` of its leaf to wherever its new score belongs, its code and index entry with it.
    fn move_entry(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        new: &New<'_>,
        at: usize,
        old: f64,
        score: f64,
    ) -> Result<(), Full> {
        let (leaf, path) = self.route(arena, ord(old), new.item);
        let id = leaf::id(arena, leaf);
        leaf::remove(arena.tail_mut(leaf), at);
        self.spine.adjust(arena, &path, -1);
        let target = match self.place(arena, hasher, new, score) {
            Ok(target) => target,
            Err(full) => {
                let back = leaf::insert(arena.tail_mut(leaf), at, old, new);
                debug_assert!(back, "there is the room the entry had");
                self.spine.adjust(arena, &path, 1);
                return Err(full);
            }
        };
        if target != id {
            self.index.replace(arena, member::hash(hasher, new.item), id, target);
        }
        let (leaf, path) = self.route(arena, ord(old), new.item);
        if leaf::id(arena, leaf) == id {
            self.settle(arena, hasher, leaf, &path);
        }
        Ok(())
    }

    /// Writes an entry into the leaf where it belongs; returns that leaf's id. Neither the length nor the index knows it yet.
    ///
    /// Errors: nothing is changed.
    fn place(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        new: &New<'_>,
        score: f64,
    ) -> Result<u32, Full> {
        if self.spine.is_empty() {
            let parts = [Part::One(score, new)];
            let leaf = Shape::of(arena, &parts).build(arena, &mut self.owned, &parts, Slack::None, 0)?;
            self.spine.plant(leaf);
            return Ok(0);
        }
        let (leaf, path) = self.route(arena, ord(score), new.item);
        let block = arena.tail(leaf);
        let head = Head::of(block);
        let at = head.before(block, ord(score), new.item, arena, &self.spill);
        if leaf::insert(arena.tail_mut(leaf), at, score, new) {
            self.spine.adjust(arena, &path, 1);
            return Ok(head.id);
        }
        let parts = [Part::Run(leaf, 0, at), Part::One(score, new), Part::Run(leaf, at, head.len)];
        let slack = if self.index.is_empty() { Slack::Some } else { Slack::Ample };
        let larger = head.bytes_with(new);
        let fresh = if head.would_accept(score, new) && head.len < LEN_MAX && larger <= LEAF_BYTES_MAX {
            let fresh = enlarge(arena, &mut self.owned, leaf, new.len(), slack)?;
            let added = leaf::insert(arena.tail_mut(fresh), at, score, new);
            debug_assert!(added, "a larger block has the room");
            fresh
        } else {
            let shape = Shape::of(arena, &parts);
            if !shape.fits() {
                return self.split(arena, hasher, leaf, &path, &parts);
            }
            shape.build(arena, &mut self.owned, &parts, slack, head.id)?
        };
        self.swap(arena, &path, leaf, fresh);
        self.spine.adjust(arena, &path, 1);
        Ok(head.id)
    }

    /// Makes two leaves of one and a new entry; returns the id of the leaf that has the entry. Errors: nothing is changed.
    fn split(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        leaf: Handle,
        path: &Path,
        parts: &[Part<'_>; 3],
    ) -> Result<u32, Full> {
        if self.index.is_empty() {
            self.start_index(arena, hasher)?;
        }
        let (at, len) = (parts[0].len(), leaf::len(arena, leaf));
        // Entries that come in order leave full leaves behind.
        let keep = if at == len && self.spine.is_last(arena, path) { len } else { (len + 1).div_ceil(2) };
        let halves = cut(parts, keep);
        let id = leaf::id(arena, leaf);
        let other = self.ids.add(arena, &mut self.owned, Handle::NONE)?;
        let hung = self.hang(arena, path, &halves, [id, other]);
        let [left, right] = match hung {
            Ok(fresh) => fresh,
            Err(full) => {
                self.ids.remove(arena, other);
                return Err(full);
            }
        };
        self.ids.set(arena, id, left);
        self.ids.set(arena, other, right);
        let new_at = (at >= keep).then(|| at - keep);
        for moved in 0..leaf::len(arena, right) {
            if Some(moved) != new_at {
                self.reindex(arena, hasher, right, moved, id, other);
            }
        }
        self.owned.free(arena, leaf);
        Ok(if new_at.is_some() { other } else { id })
    }

    /// Builds two leaves and puts them where the one of `path` was.
    fn hang(
        &mut self,
        arena: &mut Arena,
        path: &Path,
        halves: &[[Part<'_>; 3]; 2],
        ids: [u32; 2],
    ) -> Result<[Handle; 2], Full> {
        let shapes = [Shape::of(arena, &halves[0]), Shape::of(arena, &halves[1])];
        let slack = if shapes[1].len == 1 { [Slack::None, Slack::Ample] } else { [Slack::Some; 2] };
        let left = shapes[0].build(arena, &mut self.owned, &halves[0], slack[0], ids[0])?;
        let right = match shapes[1].build(arena, &mut self.owned, &halves[1], slack[1], ids[1]) {
            Ok(right) => right,
            Err(full) => {
                self.owned.free(arena, left);
                return Err(full);
            }
        };
        let block = arena.tail(right);
        let head = Head::of(block);
        let prefix = member::prefix(head.member(block, 0, arena, &self.spill));
        let key = u128::from(head.ord(block, 0)) << 64 | u128::from(prefix);
        let pair = [(left, &shapes[0]), (right, &shapes[1])]
            .map(|(block, shape)| Leaf { block, entries: shape.len as u32 });
        if let Err(full) = self.spine.split(arena, &mut self.owned, path, pair[0], pair[1], key) {
            self.owned.free(arena, left);
            self.owned.free(arena, right);
            return Err(full);
        }
        Ok([left, right])
    }

    /// Gives the only leaf an id and puts its members into the index. Errors: nothing is changed.
    #[cold]
    fn start_index(&mut self, arena: &mut Arena, hasher: &KeyHasher) -> Result<(), Full> {
        let (leaf, _) = self.spine.first(arena);
        let id = self.ids.add(arena, &mut self.owned, leaf)?;
        for at in 0..leaf::len(arena, leaf) {
            let block = arena.tail(leaf);
            let hash = member::hash(hasher, Head::of(block).member(block, at, arena, &self.spill));
            if let Err(full) = self.index.insert(arena, &mut self.owned, hash, id) {
                self.stop_index(arena);
                return Err(full);
            }
        }
        leaf::set_id(arena.tail_mut(leaf), id);
        Ok(())
    }

    /// Drops the index of a set that has but one leaf.
    #[cold]
    fn stop_index(&mut self, arena: &mut Arena) {
        while !self.index.free_step(arena, &mut self.owned, 64) {}
        self.ids.clear(arena, &mut self.owned);
    }

    fn reindex(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        leaf: Handle,
        at: usize,
        id: u32,
        other: u32,
    ) {
        let block = arena.tail(leaf);
        let hash = member::hash(hasher, Head::of(block).member(block, at, arena, &self.spill));
        self.index.replace(arena, hash, id, other);
    }

    /// Puts `fresh` in the place of `leaf` and frees that.
    fn swap(&mut self, arena: &mut Arena, path: &Path, leaf: Handle, fresh: Handle) {
        self.spine.replace(arena, path, fresh);
        if !self.index.is_empty() {
            let id = leaf::id(arena, fresh);
            self.ids.set(arena, id, fresh);
        }
        self.owned.free(arena, leaf);
    }

    /// Takes entries `from..to` of a leaf out of the set.
    fn remove_run(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        leaf: Handle,
        path: &Path,
        from: usize,
        to: usize,
    ) {
        let id = leaf::id(arena, leaf);
        if !self.index.is_empty() {
            for at in from..to {
                let block = arena.tail(leaf);
                let hash = member::hash(hasher, Head::of(block).member(block, at, arena, &self.spill));
                self.index.remove(arena, &mut self.owned, hash, id);
            }
        }
        if !self.expiries.is_none() {
            for at in from..to {
                let block = arena.tail(leaf);
                let member = Head::of(block).member(block, at, arena, &self.spill);
                self.expiries.remove(member.text(&mut Digits::new()));
            }
        }
        self.release_run(arena, leaf, from, to);
        for at in (from..to).rev() {
            leaf::remove(arena.tail_mut(leaf), at);
        }
        self.len -= (to - from) as u64;
        self.spine.adjust(arena, path, -((to - from) as i64));
        self.settle(arena, hasher, leaf, path);
    }

    /// Frees what entries `from..to` of a leaf hold out of line; returns how many did.
    fn release_run(&mut self, arena: &mut Arena, leaf: Handle, from: usize, to: usize) -> usize {
        let head = Head::of(arena.tail(leaf));
        let Members::Slots { .. } = head.members else { return 0 };
        let mut released = 0;
        for at in from..to {
            if let Some(block) = entry::release(head.code(arena.tail(leaf), at), &mut self.spill) {
                self.owned.free(arena, block);
                released += 1;
            }
        }
        released
    }

    /// Puts a leaf that entries have left in order: frees it when it is empty, joins it with another, or shrinks it.
    fn settle(&mut self, arena: &mut Arena, hasher: &KeyHasher, leaf: Handle, path: &Path) {
        let head = Head::of(arena.tail(leaf));
        if head.len == 0 {
            self.spine.remove(arena, &mut self.owned, path, 0);
            if !self.index.is_empty() {
                self.ids.remove(arena, head.id);
            }
            self.owned.free(arena, leaf);
        } else if head.bytes() < LEAF_BYTES_MAX / 4 && self.join(arena, hasher, leaf, path) {
            // The leaf is gone.
        } else if head.bytes() < arena.size(leaf) / 2 {
            let parts = [Part::Run(leaf, 0, head.len)];
            // Shrinking only saves memory, so a full arena is no error here.
            let shape = Shape::of(arena, &parts);
            if Arena::fits(shape.bytes()) < arena.size(leaf)
                && let Ok(fresh) = shape.build(arena, &mut self.owned, &parts, Slack::None, head.id)
            {
                self.swap(arena, path, leaf, fresh);
            }
        }
        if !self.index.is_empty() && (self.spine.is_single() || self.spine.is_empty()) {
            self.stop_index(arena);
        }
    }

    /// Makes one leaf of this one and one beside it, when that leaves room; returns whether it did.
    fn join(&mut self, arena: &mut Arena, hasher: &KeyHasher, leaf: Handle, path: &Path) -> bool {
        for side in [Side::After, Side::Before] {
            let Some((other, beside)) = self.spine.sibling(arena, path, side) else { continue };
            let (pair, paths) = match side {
                Side::After => ([leaf, other], [path, &beside]),
                Side::Before => ([other, leaf], [&beside, path]),
            };
            let heads = pair.map(|leaf| Head::of(arena.tail(leaf)));
            let lens = heads.map(|head| head.len);
            // A rough look first: the exact one passes over all entries.
            let bytes = heads[0].bytes() + heads[1].bytes();
            if lens[0] + lens[1] > LEN_MAX * 3 / 4 || bytes > LEAF_BYTES_MAX * 3 / 4 {
                continue;
            }
            let parts = [Part::Run(pair[0], 0, lens[0]), Part::Run(pair[1], 0, lens[1])];
            let shape = Shape::of(arena, &parts);
            if shape.bytes() > LEAF_BYTES_MAX * 3 / 4 {
                continue;
            }
            let ids = pair.map(|leaf| leaf::id(arena, leaf));
            // Joining only saves memory, so a full arena is no error here.
            let Ok(fresh) = shape.build(arena, &mut self.owned, &parts, Slack::None, ids[0]) else {
                return false;
            };
            for at in lens[0]..lens[0] + lens[1] {
                self.reindex(arena, hasher, fresh, at, ids[1], ids[0]);
            }
            self.ids.remove(arena, ids[1]);
            self.swap(arena, paths[0], pair[0], fresh);
            self.spine.adjust(arena, paths[0], lens[1] as i64);
            self.spine.remove(arena, &mut self.owned, paths[1], lens[1] as u32);
            self.owned.free(arena, pair[1]);
            return true;
        }
        false
    }
}

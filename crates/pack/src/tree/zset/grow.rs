//! Leaves of a sorted set while entries are added and removed: growing, splitting, joining, and the index that
//! follows.

use darter_base::hash::KeyHasher;
use darter_slab::{Arena, Handle};

use super::Zset;
use super::build::{Slack, ZsetPart, ZsetShape, cut, enlarge, middle};
use super::leaf::{self, LEN_MAX, ZsetLeafHead};
use super::member::{self, NewMember};
use super::score::ord;
use crate::tree::block::{bytes_of, bytes_of_mut};
use crate::tree::spine::{Leaf, SpinePath, SpineSide};
use crate::tree::{LEAF_BYTES_MAX, TreeFull};

impl Zset {
    /// Writes an entry into the leaf where it belongs; returns that leaf's id. The caller updates the length and the
    /// index.
    ///
    /// Errors: nothing is changed.
    pub(super) fn place(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        new: &NewMember<'_>,
        score: f64,
    ) -> Result<u32, TreeFull> {
        if self.spine.is_empty() {
            let parts = [ZsetPart::One(score, new)];
            let leaf = ZsetShape::of(arena, &parts).build(arena, &mut self.owned, &parts, Slack::None, 0)?;
            self.spine.plant(leaf);
            return Ok(0);
        }
        let (leaf, path) = self.route(arena, ord(score), new.item);
        let block = bytes_of(arena, leaf);
        let head = ZsetLeafHead::of(block);
        let at = head.before(block, ord(score), new.item, arena, &self.spill);
        if leaf::insert(bytes_of_mut(arena, leaf), at, score, new) {
            self.spine.adjust(arena, &path, 1);
            return Ok(head.id);
        }
        let parts =
            [ZsetPart::Run(leaf, 0, at), ZsetPart::One(score, new), ZsetPart::Run(leaf, at, head.len)];
        let slack = if self.index.is_empty() { Slack::Some } else { Slack::Ample };
        // A set without an index is worth a larger leaf.
        let bytes_max = if self.index.is_empty() { 2 * LEAF_BYTES_MAX } else { LEAF_BYTES_MAX };
        let larger = head.bytes_with(new);
        let fresh = if head.would_accept(score, new) && head.len < LEN_MAX && larger <= bytes_max {
            let fresh = enlarge(arena, &mut self.owned, leaf, new.len(), slack)?;
            let added = leaf::insert(bytes_of_mut(arena, fresh), at, score, new);
            debug_assert!(added, "a larger block has the room");
            fresh
        } else {
            let shape = ZsetShape::of(arena, &parts);
            if !shape.fits(bytes_max) {
                let middle = middle(arena, &parts, shape.has_slots());
                return self.split(arena, hasher, leaf, &path, &parts, middle);
            }
            shape.build(arena, &mut self.owned, &parts, slack, head.id)?
        };
        self.swap(arena, &path, leaf, fresh);
        self.spine.adjust(arena, &path, 1);
        Ok(head.id)
    }

    /// Rebuilds the only leaf with the entry at `at` moved to place `to` and a score that the leaf's shape does not
    /// hold. Returns false, with nothing changed, if one leaf cannot hold that. Errors: nothing is changed.
    pub(super) fn reshape(
        &mut self,
        arena: &mut Arena,
        new: &NewMember<'_>,
        at: usize,
        to: usize,
        score: f64,
    ) -> Result<bool, TreeFull> {
        let (leaf, path) = self.spine.first(arena);
        let head = ZsetLeafHead::of(bytes_of(arena, leaf));
        let one = ZsetPart::One(score, new);
        let parts = if to <= at {
            [
                ZsetPart::Run(leaf, 0, to),
                one,
                ZsetPart::Run(leaf, to, at),
                ZsetPart::Run(leaf, at + 1, head.len),
            ]
        } else {
            [
                ZsetPart::Run(leaf, 0, at),
                ZsetPart::Run(leaf, at + 1, to + 1),
                one,
                ZsetPart::Run(leaf, to + 1, head.len),
            ]
        };
        let shape = ZsetShape::of(arena, &parts);
        if !shape.fits(2 * LEAF_BYTES_MAX) {
            return Ok(false);
        }
        let fresh = shape.build(arena, &mut self.owned, &parts, Slack::Some, head.id)?;
        self.swap(arena, &path, leaf, fresh);
        Ok(true)
    }

    /// Splits a leaf and adds an entry, with `middle` entries in the left leaf. Returns the id of the leaf of the new
    /// entry. Errors: nothing is changed.
    fn split(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        leaf: Handle,
        path: &SpinePath,
        parts: &[ZsetPart<'_>; 3],
        middle: usize,
    ) -> Result<u32, TreeFull> {
        if self.index.is_empty() {
            self.start_index(arena, hasher)?;
        }
        let (at, len) = (parts[0].len(), leaf::len(arena, leaf));
        // Entries that come in order leave full leaves behind.
        let keep = if at == len && self.spine.is_last(arena, path) { len } else { middle };
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
        let moved = (0..leaf::len(arena, right)).filter(|at| Some(*at) != new_at);
        self.reindex(arena, hasher, right, moved, id, other);
        self.owned.free(arena, leaf);
        Ok(if new_at.is_some() { other } else { id })
    }

    /// Builds two leaves and puts them where the one of `path` was.
    fn hang(
        &mut self,
        arena: &mut Arena,
        path: &SpinePath,
        halves: &[[ZsetPart<'_>; 3]; 2],
        ids: [u32; 2],
    ) -> Result<[Handle; 2], TreeFull> {
        let shapes = [ZsetShape::of(arena, &halves[0]), ZsetShape::of(arena, &halves[1])];
        let slack = if shapes[1].len == 1 { [Slack::None, Slack::Ample] } else { [Slack::Some; 2] };
        let left = shapes[0].build(arena, &mut self.owned, &halves[0], slack[0], ids[0])?;
        let right = match shapes[1].build(arena, &mut self.owned, &halves[1], slack[1], ids[1]) {
            Ok(right) => right,
            Err(full) => {
                self.owned.free(arena, left);
                return Err(full);
            }
        };
        let block = bytes_of(arena, right);
        let head = ZsetLeafHead::of(block);
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
    pub(super) fn start_index(&mut self, arena: &mut Arena, hasher: &KeyHasher) -> Result<(), TreeFull> {
        let (leaf, _) = self.spine.first(arena);
        let id = self.ids.add(arena, &mut self.owned, leaf)?;
        for at in 0..leaf::len(arena, leaf) {
            let block = bytes_of(arena, leaf);
            let hash = member::hash(hasher, ZsetLeafHead::of(block).member(block, at, arena, &self.spill));
            if let Err(full) = self.index.insert(arena, &mut self.owned, hash, id) {
                self.stop_index(arena);
                return Err(full);
            }
        }
        leaf::set_id(bytes_of_mut(arena, leaf), id);
        Ok(())
    }

    /// Drops the index of a set that has one leaf.
    #[cold]
    fn stop_index(&mut self, arena: &mut Arena) {
        while !self.index.free_step(arena, &mut self.owned, 64) {}
        self.ids.clear(arena, &mut self.owned);
    }

    /// Changes the index entries of the members at these places of a leaf from `id` to `other`. Their buckets are
    /// scattered, so several are prefetched together.
    fn reindex(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        leaf: Handle,
        mut places: impl Iterator<Item = usize>,
        id: u32,
        other: u32,
    ) {
        let mut hashes = [0; ASKED_AT_ONCE];
        loop {
            let mut len = 0;
            for (hash, at) in hashes.iter_mut().zip(places.by_ref()) {
                let block = bytes_of(arena, leaf);
                *hash = member::hash(hasher, ZsetLeafHead::of(block).member(block, at, arena, &self.spill));
                self.index.prefetch(arena, *hash);
                len += 1;
            }
            for &hash in &hashes[..len] {
                self.index.replace(arena, hash, id, other);
            }
            if len < hashes.len() {
                return;
            }
        }
    }

    /// Puts `fresh` in the place of `leaf` and frees that.
    fn swap(&mut self, arena: &mut Arena, path: &SpinePath, leaf: Handle, fresh: Handle) {
        self.spine.replace(arena, path, fresh);
        if !self.index.is_empty() {
            let id = leaf::id(arena, fresh);
            self.ids.set(arena, id, fresh);
        }
        self.owned.free(arena, leaf);
    }

    /// Tidies a leaf after removals: frees it if it is empty, joins it with another, or shrinks it.
    pub(super) fn settle(&mut self, arena: &mut Arena, hasher: &KeyHasher, leaf: Handle, path: &SpinePath) {
        let head = ZsetLeafHead::of(bytes_of(arena, leaf));
        if head.len == 0 {
            self.spine.remove(arena, &mut self.owned, path, 0);
            if !self.index.is_empty() {
                self.ids.remove(arena, head.id);
            }
            self.owned.free(arena, leaf);
        } else if head.bytes() < LEAF_BYTES_MAX / 4 && self.join(arena, hasher, leaf, path) {
            // The leaf is gone.
        } else if head.bytes() < arena.size(leaf) / 2 {
            let parts = [ZsetPart::Run(leaf, 0, head.len)];
            // Shrinking only saves memory, so a full arena is no error here.
            let shape = ZsetShape::of(arena, &parts);
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

    /// Joins this leaf with a neighbour, if both fit into one; returns whether it did.
    fn join(&mut self, arena: &mut Arena, hasher: &KeyHasher, leaf: Handle, path: &SpinePath) -> bool {
        for side in [SpineSide::After, SpineSide::Before] {
            let Some((other, beside)) = self.spine.sibling(arena, path, side) else { continue };
            let (pair, paths) = match side {
                SpineSide::After => ([leaf, other], [path, &beside]),
                SpineSide::Before => ([other, leaf], [&beside, path]),
            };
            let heads = pair.map(|leaf| ZsetLeafHead::of(bytes_of(arena, leaf)));
            let lens = heads.map(|head| head.len);
            // A rough look first: the exact one passes over all entries.
            let bytes = heads[0].bytes() + heads[1].bytes();
            if lens[0] + lens[1] > LEN_MAX * 3 / 4 || bytes > LEAF_BYTES_MAX * 3 / 4 {
                continue;
            }
            let parts = [ZsetPart::Run(pair[0], 0, lens[0]), ZsetPart::Run(pair[1], 0, lens[1])];
            let shape = ZsetShape::of(arena, &parts);
            if shape.bytes() > LEAF_BYTES_MAX * 3 / 4 {
                continue;
            }
            let ids = pair.map(|leaf| leaf::id(arena, leaf));
            // Joining only saves memory, so a full arena is no error here.
            let Ok(fresh) = shape.build(arena, &mut self.owned, &parts, Slack::None, ids[0]) else {
                return false;
            };
            self.reindex(arena, hasher, fresh, lens[0]..lens[0] + lens[1], ids[1], ids[0]);
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

/// Buckets of the index that are fetched side by side.
const ASKED_AT_ONCE: usize = 32;

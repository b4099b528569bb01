//! `RowTree`: a sorted table of fixed rows of `N` numbers, unique in their first `K` columns (the key, one or two).
//!
//! Called by `IntSet` and `Pel`, which give the columns their meaning.

mod leaf;

use std::cmp::Ordering;

use darter_slab::{Arena, Handle};

use self::leaf::{RowsLeafHead, RowsPart, RowsShape, cut};
use super::owned::OwnedEntry;
use super::spine::{Leaf, Spine, SpinePath, SpineSide, SpineWalk};
use super::{Direction, LEAF_BYTES_MAX, TreeFull};
use crate::tree::block::{bytes_of, bytes_of_mut};

/// A table: 24 bytes and blocks in the arena.
#[derive(Debug)]
pub(super) struct RowTree<const N: usize, const K: usize> {
    spine: Spine<K>,
    len: u64,
    owned: OwnedEntry,
}

/// The position of a row, or the one where it belongs.
#[derive(Clone, Copy)]
struct Spot {
    leaf: Handle,
    path: SpinePath,
    at: usize,
    found: bool,
}

impl<const N: usize, const K: usize> RowTree<N, K> {
    /// No row, no block.
    pub(super) const EMPTY: Self = Self { spine: Spine::EMPTY, len: 0, owned: OwnedEntry::NONE };

    /// The same rows in their present state, to be read while the arena keeps pre-images. Only one of the two may be
    /// changed.
    pub(super) fn frozen(&self) -> Self {
        Self { spine: self.spine.frozen(), len: self.len, owned: self.owned }
    }

    /// Number of rows.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes held in the arena, exactly.
    pub(super) fn bytes(&self) -> usize {
        self.owned.bytes()
    }

    /// Returns true if there is a row with this key.
    #[inline]
    pub(super) fn contains(&self, arena: &Arena, key: u128) -> bool {
        self.len > 0 && self.find(arena, key).is_some()
    }

    /// The row with this key.
    pub(super) fn get(&self, arena: &Arena, key: u128) -> Option<[u64; N]> {
        if self.len == 0 {
            return None;
        }
        let (block, at) = self.find(arena, key)?;
        Some(RowsLeafHead::of(block).row(block, at))
    }

    /// Number of rows with a key below `key`.
    pub(super) fn rank(&self, arena: &Arena, key: u128) -> u64 {
        if self.len == 0 {
            return 0;
        }
        let spot = self.locate(arena, key);
        self.spine.entries_before(arena, &spot.path) + spot.at as u64
    }

    /// The row of this rank.
    pub(super) fn nth(&self, arena: &Arena, rank: u64) -> Option<[u64; N]> {
        self.iter(arena, rank, Direction::Up).next()
    }

    /// Rows from this rank on; nothing when `rank` is not below the length.
    pub(super) fn iter<'a>(
        &'a self,
        arena: &'a Arena,
        rank: u64,
        direction: Direction,
    ) -> RowsIter<'a, N, K> {
        let mut iter =
            RowsIter { arena, walk: SpineWalk::nowhere(&self.spine, arena, direction), leaf: None };
        if rank < self.len {
            let (leaf, path, at) = self.spine.by_rank(arena, rank);
            iter.begin(leaf, path, at);
        }
        iter
    }

    /// Rows whose key is at least `key`, in order.
    pub(super) fn iter_from<'a>(&'a self, arena: &'a Arena, key: u128) -> RowsIter<'a, N, K> {
        let mut iter =
            RowsIter { arena, walk: SpineWalk::nowhere(&self.spine, arena, Direction::Up), leaf: None };
        if self.len > 0 {
            let spot = self.locate(arena, key);
            iter.begin(spot.leaf, spot.path, spot.at);
        }
        iter
    }

    /// Writes a row, over the one with its key if there is one; returns whether it is a new key.
    ///
    /// Errors: nothing is changed. Cost: O(log n), one leaf or a split of one.
    #[inline]
    pub(super) fn put(&mut self, arena: &mut Arena, row: [u64; N]) -> Result<bool, TreeFull> {
        if self.len == 0 {
            let parts = [RowsPart::<N>::One(row)];
            let leaf = RowsShape::<N>::of(arena, &parts).build(arena, &mut self.owned, &parts, 0)?;
            self.spine.plant(leaf);
            self.len = 1;
            return Ok(true);
        }
        let spot = self.locate(arena, Self::key(&row));
        if spot.found {
            if N > K {
                self.overwrite(arena, &spot, row)?;
            }
            return Ok(false);
        }
        if leaf::insert(bytes_of_mut(arena, spot.leaf), spot.at, &row) {
            self.spine.adjust(arena, &spot.path, 1);
        } else {
            self.rebuild(arena, &spot, row)?;
        }
        self.len += 1;
        Ok(true)
    }

    /// Removes and returns the row with this key. Cost: O(log n), one leaf or a join of two.
    pub(super) fn remove(&mut self, arena: &mut Arena, key: u128) -> Option<[u64; N]> {
        if self.len == 0 {
            return None;
        }
        let spot = self.locate(arena, key);
        if !spot.found {
            return None;
        }
        let block = bytes_of(arena, spot.leaf);
        let row = RowsLeafHead::of(block).row(block, spot.at);
        self.remove_run(arena, spot.leaf, &spot.path, spot.at, spot.at + 1);
        Some(row)
    }

    /// Removes up to `count` rows from this rank on; returns their number.
    pub(super) fn remove_ranks(&mut self, arena: &mut Arena, rank: u64, count: u64) -> u64 {
        let wanted = count.min(self.len.saturating_sub(rank));
        let mut left = wanted;
        while left > 0 {
            let (leaf, path, at) = self.spine.by_rank(arena, rank);
            let part = left.min((leaf::len(arena, leaf) - at) as u64) as usize;
            self.remove_run(arena, leaf, &path, at, at + part);
            left -= part as u64;
        }
        wanted
    }

    /// Frees up to about `blocks_max` blocks; returns true if none is left. Nothing else may be called before that.
    pub(super) fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        for _ in 0..blocks_max {
            let Some(leaf) = self.spine.take_last(arena, &mut self.owned) else {
                debug_assert_eq!(self.owned.bytes(), 0);
                self.len = 0;
                return true;
            };
            self.owned.free(arena, leaf);
        }
        false
    }

    #[inline(always)]
    fn key(row: &[u64; N]) -> u128 {
        match K {
            1 => u128::from(row[0]),
            _ => u128::from(row[0]) << 64 | u128::from(row[1]),
        }
    }

    /// The leaf and the place of the row with this key, in a table that has rows.
    #[inline]
    fn find<'a>(&self, arena: &'a Arena, key: u128) -> Option<(&'a [u8], usize)> {
        let leaf = self.spine.leaf_by_key(arena, Self::high(key), || key as u64, |_| Ordering::Greater);
        let block = bytes_of(arena, leaf);
        let head = RowsLeafHead::<N>::of(block);
        let at = head.below::<K>(block, key);
        (at < head.len && head.key::<K>(block, at) == key).then_some((block, at))
    }

    #[inline(always)]
    fn high(key: u128) -> u64 {
        if K == 1 { key as u64 } else { (key >> 64) as u64 }
    }

    /// The position where `key` is or belongs, in a table that has rows.
    #[inline]
    fn locate(&self, arena: &Arena, key: u128) -> Spot {
        // Keys are unique, so a leaf whose bound is the key is the one.
        let (leaf, path) = self.spine.by_key(arena, Self::high(key), || key as u64, |_| Ordering::Greater);
        let block = bytes_of(arena, leaf);
        let head = RowsLeafHead::<N>::of(block);
        let at = head.below::<K>(block, key);
        Spot { leaf, path, at, found: at < head.len && head.key::<K>(block, at) == key }
    }

    /// Writes over a row.
    fn overwrite(&mut self, arena: &mut Arena, spot: &Spot, row: [u64; N]) -> Result<(), TreeFull> {
        let block = bytes_of_mut(arena, spot.leaf);
        let head = RowsLeafHead::of(block);
        if head.holds(&row) {
            head.put(block, spot.at, &row);
            return Ok(());
        }
        self.rebuild(arena, spot, row)
    }

    /// Writes a row into a leaf that cannot take it in its present shape: into a larger one, another shape, or one of
    /// two halves.
    #[cold]
    fn rebuild(&mut self, arena: &mut Arena, spot: &Spot, row: [u64; N]) -> Result<(), TreeFull> {
        let Spot { leaf, path, at, found } = *spot;
        let head = RowsLeafHead::<N>::of(bytes_of(arena, leaf));
        let added = 1 - usize::from(found);
        let rest = at + usize::from(found);
        let parts = [
            RowsPart::<N>::Run(leaf, 0, at),
            RowsPart::<N>::One(row),
            RowsPart::<N>::Run(leaf, rest, head.len),
        ];
        let shape = RowsShape::<N>::of(arena, &parts);
        let appends = at == head.len && self.spine.is_last(arena, &path);
        // A last row that would only widen a good leaf begins a new leaf.
        let begins = appends && head.len >= LEN_WORTHY && !head.holds(&row);
        if shape.fits() && !begins {
            let spare = shape.len / 8 + usize::from(!self.spine.is_single()) * 4;
            let fresh = shape.build(arena, &mut self.owned, &parts, spare)?;
            self.swap(arena, &path, leaf, fresh);
            self.spine.adjust(arena, &path, added as i64);
            return Ok(());
        }
        let keep = if appends { head.len } else { shape.len.div_ceil(2) };
        let halves = cut(&parts, keep);
        let shapes = [RowsShape::<N>::of(arena, &halves[0]), RowsShape::<N>::of(arena, &halves[1])];
        let spare = if appends { [0, 16] } else { [shapes[0].len / 8, shapes[1].len / 8] };
        let left = shapes[0].build(arena, &mut self.owned, &halves[0], spare[0])?;
        let right = match shapes[1].build(arena, &mut self.owned, &halves[1], spare[1]) {
            Ok(right) => right,
            Err(full) => {
                self.owned.free(arena, left);
                return Err(full);
            }
        };
        let block = bytes_of(arena, right);
        let key = RowsLeafHead::<N>::of(block).key::<K>(block, 0);
        let pair = [(left, shapes[0].len), (right, shapes[1].len)];
        let pair = pair.map(|(block, len)| Leaf { block, entries: len as u32 });
        if let Err(full) = self.spine.split(arena, &mut self.owned, &path, pair[0], pair[1], key) {
            self.owned.free(arena, left);
            self.owned.free(arena, right);
            return Err(full);
        }
        self.owned.free(arena, leaf);
        Ok(())
    }

    fn swap(&mut self, arena: &mut Arena, path: &SpinePath, leaf: Handle, fresh: Handle) {
        self.spine.replace(arena, path, fresh);
        self.owned.free(arena, leaf);
    }

    /// Removes rows `from..to` of a leaf, and the leaf if it has none or few left.
    fn remove_run(&mut self, arena: &mut Arena, leaf: Handle, path: &SpinePath, from: usize, to: usize) {
        leaf::remove::<N>(bytes_of_mut(arena, leaf), from, to);
        self.len -= (to - from) as u64;
        self.spine.adjust(arena, path, -((to - from) as i64));
        let head = RowsLeafHead::<N>::of(bytes_of(arena, leaf));
        if head.len == 0 {
            self.spine.remove(arena, &mut self.owned, path, 0);
            self.owned.free(arena, leaf);
            return;
        }
        if head.bytes() < LEAF_BYTES_MAX / 4 && self.join(arena, leaf, path) {
            return;
        }
        if head.bytes() < arena.size(leaf) / 2 {
            let parts = [RowsPart::<N>::Run(leaf, 0, head.len)];
            let shape = RowsShape::<N>::of(arena, &parts);
            // Shrinking only saves memory, so a full arena is no error here.
            if Arena::fits(shape.bytes()) < arena.size(leaf)
                && let Ok(fresh) = shape.build(arena, &mut self.owned, &parts, 0)
            {
                self.swap(arena, path, leaf, fresh);
            }
        }
    }

    /// Joins this leaf with a neighbour, if both fit into one; returns whether it did.
    fn join(&mut self, arena: &mut Arena, leaf: Handle, path: &SpinePath) -> bool {
        for side in [SpineSide::After, SpineSide::Before] {
            let Some((other, beside)) = self.spine.sibling(arena, path, side) else { continue };
            // A rough look first: the exact one passes over all rows.
            let bytes = [leaf, other].map(|leaf| RowsLeafHead::<N>::of(bytes_of(arena, leaf)).bytes());
            if bytes[0] + bytes[1] > LEAF_BYTES_MAX * 3 / 4 {
                continue;
            }
            let runs = [leaf, other].map(|leaf| RowsPart::<N>::Run(leaf, 0, leaf::len(arena, leaf)));
            let (parts, paths) = match side {
                SpineSide::After => (runs, [path, &beside]),
                SpineSide::Before => ([runs[1], runs[0]], [&beside, path]),
            };
            let shape = RowsShape::<N>::of(arena, &parts);
            if shape.bytes() > LEAF_BYTES_MAX * 3 / 4 {
                continue;
            }
            // Joining only saves memory, so a full arena is no error here.
            let Ok(fresh) = shape.build(arena, &mut self.owned, &parts, 0) else { return false };
            let gone = parts[1].len();
            self.spine.replace(arena, paths[0], fresh);
            self.spine.adjust(arena, paths[0], gone as i64);
            self.spine.remove(arena, &mut self.owned, paths[1], gone as u32);
            self.owned.free(arena, leaf);
            self.owned.free(arena, other);
            return true;
        }
        false
    }

    /// Checks the tree; returns how many rows it has.
    #[cfg(test)]
    pub(super) fn check(&self, arena: &Arena) -> u64 {
        self.spine.check(arena, &mut |leaf| leaf::len(arena, leaf) as u32)
    }
}

/// Rows in order.
pub(super) struct RowsIter<'a, const N: usize, const K: usize> {
    arena: &'a Arena,
    walk: SpineWalk<'a, K>,
    // The leaf the walk is in, and its head; None before the first.
    leaf: Option<(&'a [u8], RowsLeafHead<N>)>,
}

impl<const N: usize, const K: usize> RowsIter<'_, N, K> {
    fn begin(&mut self, leaf: Handle, path: SpinePath, at: usize) {
        let block = bytes_of(self.arena, leaf);
        let head = RowsLeafHead::of(block);
        self.walk.begin(path, at, head.len);
        self.leaf = Some((block, head));
    }
}

impl<const N: usize, const K: usize> Iterator for RowsIter<'_, N, K> {
    type Item = [u64; N];

    #[inline]
    fn next(&mut self) -> Option<[u64; N]> {
        let at = match self.walk.place() {
            Some(at) => at,
            None => {
                let block = bytes_of(self.arena, self.walk.advance(|leaf| leaf::len(self.arena, leaf))?);
                self.leaf = Some((block, RowsLeafHead::of(block)));
                self.walk.place()?
            }
        };
        let (block, head) = self.leaf.as_ref()?;
        Some(head.row(block, at))
    }
}

/// From this many rows on a leaf is worth closing rather than widening for a row that comes after all.
const LEN_WORTHY: usize = 128;

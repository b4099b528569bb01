//! `IntSet`: a sorted set of integers, two or three bytes each when they are dense.
//!
//! Called by the store for sets of integers. It stores numbers only; other members belong into a table.

use darter_slab::Arena;

use super::rows::RowTree;
use super::window::{SeenLeaf, Windows, readable};
use super::{Direction, TreeFull};
use crate::entry::Item;

/// A set of integers: 32 bytes and blocks in the arena. [`IntSet::clear`] must run before it is dropped, or the blocks are lost.
#[derive(Debug)]
pub struct IntSet {
    rows: RowTree<1, 1>,
    windows: Windows,
}

readable!(IntSet);

impl Default for IntSet {
    fn default() -> Self {
        Self::new()
    }
}

impl IntSet {
    /// An empty set, which owns no block.
    pub const fn new() -> IntSet {
        IntSet { rows: RowTree::EMPTY, windows: Windows::NONE }
    }

    /// A copy of the set in its present state, for a reader that looks back while the arena keeps pre-images. It must
    /// never be changed or cleared.
    pub fn frozen(&self) -> IntSet {
        IntSet { rows: self.rows.frozen(), windows: Windows::NONE }
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> u64 {
        self.rows.len()
    }

    /// Returns true if there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Bytes held in the arena, exactly.
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// Returns true if `value` is a member. Cost: O(log n), three or four cache lines at a million members.
    #[inline]
    pub fn contains(&self, arena: &Arena, value: i64) -> bool {
        self.rows.contains(arena, u128::from(order(value)))
    }

    /// The lowest member.
    pub fn min(&self, arena: &Arena) -> Option<i64> {
        self.nth(arena, 0)
    }

    /// The highest member.
    pub fn max(&self, arena: &Arena) -> Option<i64> {
        self.nth(arena, self.len().checked_sub(1)?)
    }

    /// Number of members below `value`. Cost: O(log n).
    pub fn rank(&self, arena: &Arena, value: i64) -> u64 {
        self.rows.rank(arena, u128::from(order(value)))
    }

    /// The member that has `rank` members below it; with a random rank below the length, a random member. Cost: O(log n).
    pub fn nth(&self, arena: &Arena, rank: u64) -> Option<i64> {
        self.rows.nth(arena, rank).map(|[value]| number(value))
    }

    /// Members from this rank on, in a direction; nothing when `rank` is not below the length.
    pub fn iter<'a>(
        &'a self,
        arena: &'a Arena,
        rank: u64,
        direction: Direction,
    ) -> impl Iterator<Item = i64> + 'a {
        self.rows.iter(arena, rank, direction).map(|[value]| number(value))
    }

    /// Members that are at least `value`, rising.
    pub fn iter_from<'a>(&'a self, arena: &'a Arena, value: i64) -> impl Iterator<Item = i64> + 'a {
        self.rows.iter_from(arena, u128::from(order(value))).map(|[value]| number(value))
    }

    /// Shows about `count` members to `emit`; `cursor` is 0 at first, and the answer is the next one, 0 at the end.
    ///
    /// Shape: cursors are below 2^63, so the caller has a bit to tell them from others. Members are shown by value, so
    /// every one present from the first call to the last is shown, and none twice. Cost: O(log n + count).
    pub fn scan(&self, arena: &Arena, cursor: u64, count: usize, mut emit: impl FnMut(i64)) -> u64 {
        // A cursor covers two neighbouring values, shown together.
        let first = cursor.min(u64::MAX >> 1) << 1;
        let mut pair = 0;
        for (shown, [value]) in self.rows.iter_from(arena, u128::from(first)).enumerate() {
            if shown >= count.max(1) && value >> 1 != pair {
                return value >> 1;
            }
            pair = value >> 1;
            emit(number(value));
        }
        0
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
        members.for_each(|value| see(SeenLeaf::Item(Item::Int(value))));
    }

    fn windows_mut(&mut self) -> &mut Windows {
        &mut self.windows
    }

    fn settle_windows(&mut self) {}

    /// Returns true if the set has stepwise readers.
    #[inline]
    pub fn is_read(&self) -> bool {
        !self.windows.is_none()
    }

    /// Adds `value`; returns whether it was not there. Errors: nothing is changed. Cost: O(log n), one leaf.
    #[inline]
    pub fn insert(&mut self, arena: &mut Arena, value: i64) -> Result<bool, TreeFull> {
        let is_new = self.rows.put(arena, [order(value)])?;
        if is_new && !self.windows.is_none() {
            let rank = self.rank(arena, value);
            self.after_insertion(rank, 1);
        }
        Ok(is_new)
    }

    /// Removes `value`; returns whether it was there. Cost: O(log n), one leaf or two.
    pub fn remove(&mut self, arena: &mut Arena, value: i64) -> bool {
        if !self.windows.is_none() && self.contains(arena, value) {
            let rank = self.rank(arena, value);
            self.before_removal(arena, rank, 1);
        }
        self.rows.remove(arena, u128::from(order(value))).is_some()
    }

    /// Removes up to `count` members from this rank on; returns their number.
    pub fn remove_ranks(&mut self, arena: &mut Arena, rank: u64, count: u64) -> u64 {
        if !self.windows.is_none() {
            self.before_removal(arena, rank, count.min(self.len().saturating_sub(rank)));
        }
        self.rows.remove_ranks(arena, rank, count)
    }

    /// Frees up to `blocks_max` blocks; the set is unusable from the first call until it returns `true`, and empty
    /// then.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        self.rows.free_step(arena, blocks_max)
    }

    /// Gives every block back. Cost: O(blocks).
    pub fn clear(&mut self, arena: &mut Arena) {
        while !self.free_step(arena, 1 << 16) {}
    }
}

/// A number that sorts as `value` does.
#[inline(always)]
fn order(value: i64) -> u64 {
    value as u64 ^ 1 << 63
}

#[inline(always)]
fn number(order: u64) -> i64 {
    (order ^ 1 << 63) as i64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use darter_base::rng::Rng;

    use super::*;

    fn value(rng: &mut Rng, kind: u64) -> i64 {
        match kind {
            0 => rng.below(300) as i64 - 150,
            1 => rng.below(100_000) as i64,
            2 => rng.below(100_000_000) as i64,
            3 => rng.next_u64() as i64,
            _ => (rng.next_u64() as i64) >> rng.below(64),
        }
    }

    fn check(set: &IntSet, arena: &Arena, model: &BTreeSet<i64>) {
        assert_eq!(set.len(), model.len() as u64);
        assert_eq!(set.bytes(), arena.used_bytes());
        assert_eq!(set.rows.check(arena), set.len());
        assert!(set.iter(arena, 0, Direction::Up).eq(model.iter().copied()));
        assert!(
            set.iter(arena, set.len().saturating_sub(1), Direction::Down).eq(model.iter().rev().copied())
        );
        assert_eq!((set.min(arena), set.max(arena)), (model.first().copied(), model.last().copied()));
    }

    #[test]
    fn mixed_changes_follow_a_btree_set() {
        for kind in 0..5 {
            for ops in [300, 5_000, 120_000] {
                let mut rng = Rng::new(kind * 7 + ops);
                let mut arena = Arena::with_reserve(1 << 28).unwrap();
                let (mut set, mut model) = (IntSet::new(), BTreeSet::new());
                for op in 0..ops {
                    let growing = (op * 6 / ops).is_multiple_of(2);
                    let n = value(&mut rng, kind);
                    match rng.below(16) {
                        0..=9 if growing => assert_eq!(set.insert(&mut arena, n).unwrap(), model.insert(n)),
                        0..=5 => assert_eq!(set.remove(&mut arena, n), model.remove(&n)),
                        6..=9 => {
                            let near = model.range(n..).next().copied().unwrap_or(n);
                            assert_eq!(set.remove(&mut arena, near), model.remove(&near));
                        }
                        10 => {
                            let (rank, count) = (rng.below(set.len() + 1), rng.below(20));
                            let gone: Vec<_> =
                                model.iter().skip(rank as usize).take(count as usize).copied().collect();
                            assert_eq!(set.remove_ranks(&mut arena, rank, count), gone.len() as u64);
                            gone.iter().for_each(|n| assert!(model.remove(n)));
                        }
                        11 => {
                            let from = set.iter_from(&arena, n).take(5);
                            assert!(from.eq(model.range(n..).take(5).copied()));
                        }
                        12 if ops < 10_000 => {
                            assert_eq!(set.rank(&arena, n), model.range(..n).count() as u64)
                        }
                        _ => assert_eq!(set.contains(&arena, n), model.contains(&n)),
                    }
                    if op % (ops / 20 + 1) == 0 {
                        check(&set, &arena, &model);
                    }
                }
                check(&set, &arena, &model);
                set.clear(&mut arena);
                assert_eq!((set.len(), arena.used_bytes()), (0, 0));
            }
        }
    }

    #[test]
    fn members_that_come_into_gaps_are_found_after_nodes_are_joined() {
        let mut rng = Rng::new(11);
        let mut arena = Arena::with_reserve(1 << 28).unwrap();
        let (mut set, mut model) = (IntSet::new(), BTreeSet::new());
        // Eight bytes a member, so that the tree soon has three levels.
        let spread = |rng: &mut Rng| rng.next_u64() as i64;
        for round in 0..150 {
            while model.len() < 60_000 - round * 300 {
                let n = spread(&mut rng);
                assert_eq!(set.insert(&mut arena, n).unwrap(), model.insert(n));
            }
            let (rank, count) = (rng.below(set.len()), 2_000 + rng.below(12_000));
            let gone: Vec<_> = model.iter().skip(rank as usize).take(count as usize).copied().collect();
            assert_eq!(set.remove_ranks(&mut arena, rank, count), gone.len() as u64);
            gone.iter().for_each(|n| assert!(model.remove(n)));
            // Some come back, most of them where the first leaves of a node were.
            for n in gone.iter().take(200).chain(gone.iter().step_by(97)) {
                assert_eq!(set.insert(&mut arena, *n).unwrap(), model.insert(*n));
            }
            if round % 5 == 0 {
                assert!(model.iter().all(|n| set.contains(&arena, *n)));
                check(&set, &arena, &model);
            }
        }
        set.clear(&mut arena);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn extremes_and_scans() {
        let mut arena = Arena::with_reserve(1 << 24).unwrap();
        let mut set = IntSet::new();
        let values = [i64::MIN, i64::MIN + 1, -2, -1, 0, 1, 2, i64::MAX - 1, i64::MAX];
        for n in values {
            assert!(set.insert(&mut arena, n).unwrap());
            assert!(!set.insert(&mut arena, n).unwrap());
        }
        for count in 1..12 {
            let (mut seen, mut cursor, mut calls) = (Vec::new(), 0, 0);
            loop {
                cursor = set.scan(&arena, cursor, count, |n| seen.push(n));
                calls += 1;
                assert!(cursor < 1 << 63 && calls < 20);
                if cursor == 0 {
                    break;
                }
                // Members already shown may be removed without shifting the following ones.
                if count == 1 {
                    set.remove(&mut arena, seen[0]);
                    set.insert(&mut arena, seen[0]).unwrap();
                }
            }
            assert_eq!(seen, values);
        }
        set.clear(&mut arena);
    }

    #[test]
    fn order_of_insertion_and_density_decide_the_size() {
        let n = 100_000;
        let mut arena = Arena::with_reserve(1 << 28).unwrap();
        let per_member = |arena: &mut Arena, values: &mut dyn Iterator<Item = i64>| {
            let mut set = IntSet::new();
            values.for_each(|v| assert!(set.insert(arena, v).unwrap()));
            let bytes = set.bytes() as f64 / set.len() as f64;
            set.clear(arena);
            bytes
        };
        assert!(per_member(&mut arena, &mut (0..n)) < 1.4);
        assert!(per_member(&mut arena, &mut (0..n).rev()) < 3.0);
        assert!(per_member(&mut arena, &mut (0..n).map(|v| v * 100)) < 2.4);
        let mut rng = Rng::new(1);
        let mut values: Vec<i64> = (0..n).map(|v| v * 100 + 7).collect();
        rng.shuffle(&mut values);
        assert!(per_member(&mut arena, &mut values.into_iter()) < 3.0);
    }

    #[test]
    fn a_full_arena_is_an_error_that_changes_nothing() {
        let mut rng = Rng::new(2);
        let mut arena = Arena::with_reserve(1 << 20).unwrap();
        let (mut set, mut model) = (IntSet::new(), BTreeSet::new());
        let mut refused = 0;
        while refused < 2_000 {
            let n = rng.next_u64() as i64;
            match set.insert(&mut arena, n) {
                Ok(added) => assert_eq!(added, model.insert(n)),
                Err(TreeFull) => {
                    refused += 1;
                    if refused % 500 == 1 {
                        check(&set, &arena, &model);
                    }
                }
            }
        }
        check(&set, &arena, &model);
        set.clear(&mut arena);
        assert_eq!(arena.used_bytes(), 0);
    }
}

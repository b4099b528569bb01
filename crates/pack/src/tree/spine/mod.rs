//! The inner nodes of a tree: the leaf of a rank or a key, and changes when leaves are added and removed.
//!
//! Called by every ordered type; it never looks into a leaf. A node holds, for each child, its handle, how many
//! entries are below it and `K` words of a key that no entry below it is smaller than (`K` = 0: the tree is ordered
//! by rank only).

mod node;
mod spare;
mod walk;

use std::cmp::Ordering;

use darter_slab::{Arena, Handle};

use self::node::{Branch, CAPS, LEN_JOINED, LEN_LOW, LEN_MAX, SpineNode, divide, move_branches};
use self::spare::Spare;
pub(super) use self::walk::SpineWalk;
use super::TreeFull;
use super::owned::OwnedEntry;
use super::word::put_u16;
use crate::tree::block::{bytes_of, bytes_of_mut, two_of_mut};

/// The position of a leaf: the inner nodes from the root down and the child taken in each.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpinePath {
    depth: usize,
    nodes: [Handle; HEIGHT_MAX],
    at: [u8; HEIGHT_MAX],
}

impl SpinePath {
    const ROOT: SpinePath = SpinePath { depth: 0, nodes: [Handle::NONE; HEIGHT_MAX], at: [0; HEIGHT_MAX] };

    #[inline]
    fn push(&mut self, node: Handle, at: usize) {
        self.nodes[self.depth] = node;
        self.at[self.depth] = at as u8;
        self.depth += 1;
    }
}

/// The tree above the leaves. With one leaf there is no inner node at all.
#[derive(Debug)]
pub(super) struct Spine<const K: usize> {
    // The only leaf when height is 0.
    root: Handle,
    // 0 <= height <= HEIGHT_MAX
    height: u8,
}

impl<const K: usize> Spine<K> {
    /// No leaf.
    pub(super) const EMPTY: Self = Self { root: Handle::NONE, height: 0 };

    /// A copy of the tree in its present state, for [`darter_slab::Past`].
    pub(super) fn frozen(&self) -> Self {
        Self { root: self.root, height: self.height }
    }

    /// Returns true if there is no leaf.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Returns true if there is exactly one leaf.
    #[inline]
    pub(super) fn is_single(&self) -> bool {
        self.height == 0 && !self.root.is_none()
    }

    /// Makes `leaf` the only leaf of an empty tree.
    pub(super) fn plant(&mut self, leaf: Handle) {
        debug_assert!(self.root.is_none() && self.height == 0);
        self.root = leaf;
    }

    /// The first leaf of a tree that has one.
    #[inline]
    pub(super) fn first(&self, arena: &Arena) -> (Handle, SpinePath) {
        self.descend(arena, |_, _| 0)
    }

    /// The last leaf of a tree that has one.
    #[inline]
    pub(super) fn last(&self, arena: &Arena) -> (Handle, SpinePath) {
        self.descend(arena, |_, node| node.len - 1)
    }

    /// The leaf that holds the entry of this rank, and the entry's place in it; `rank` is below the tree's length.
    #[inline]
    pub(super) fn by_rank(&self, arena: &Arena, rank: u64) -> (Handle, SpinePath, usize) {
        let mut rest = rank;
        let (leaf, path) = self.descend(arena, |block, node| {
            let (at, left) = node.by_rank(block, rest);
            rest = left;
            at
        });
        (leaf, path, rest as usize)
    }

    /// The leaf where a key belongs, given by its first word and a function for its second.
    ///
    /// Where keys tie, `tie` compares the sought key with a leaf's first entry; with unique keys that is `Greater`.
    #[inline]
    pub(super) fn by_key(
        &self,
        arena: &Arena,
        high: u64,
        low: impl FnMut() -> u64,
        tie: impl FnMut(Handle) -> Ordering,
    ) -> (Handle, SpinePath) {
        let mut path = SpinePath::ROOT;
        let leaf = self.walk(arena, high, low, tie, |node, at| path.push(node, at));
        (leaf, path)
    }

    /// Like [`Spine::by_key`], without a path, for readers.
    #[inline]
    pub(super) fn leaf_by_key(
        &self,
        arena: &Arena,
        high: u64,
        low: impl FnMut() -> u64,
        tie: impl FnMut(Handle) -> Ordering,
    ) -> Handle {
        self.walk(arena, high, low, tie, |_, _| {})
    }

    #[inline(always)]
    fn walk(
        &self,
        arena: &Arena,
        high: u64,
        mut low: impl FnMut() -> u64,
        mut tie: impl FnMut(Handle) -> Ordering,
        mut pass: impl FnMut(Handle, usize),
    ) -> Handle {
        let mut child = self.root;
        let mut levels = usize::from(self.height);
        while levels > 0 {
            levels -= 1;
            let block = bytes_of(arena, child);
            let node = SpineNode::of(block);
            let at = node.route::<K>(block, high, &mut low, |leaf| tie(leftmost(arena, leaf, levels)));
            pass(child, at);
            child = node.child(block, at);
        }
        child
    }

    #[inline(always)]
    fn descend(
        &self,
        arena: &Arena,
        mut choose: impl FnMut(&[u8], SpineNode) -> usize,
    ) -> (Handle, SpinePath) {
        let mut path = SpinePath::ROOT;
        let mut child = self.root;
        while path.depth < self.height as usize {
            let block = bytes_of(arena, child);
            let node = SpineNode::of(block);
            let at = choose(block, node);
            path.push(child, at);
            child = node.child(block, at);
        }
        (child, path)
    }

    /// Number of entries before the leaf of `path`.
    #[inline]
    pub(super) fn entries_before(&self, arena: &Arena, path: &SpinePath) -> u64 {
        let mut sum = 0;
        for level in 0..path.depth {
            let block = bytes_of(arena, path.nodes[level]);
            sum += SpineNode::of(block).entries_below(block, path.at[level] as usize);
        }
        sum
    }

    /// The leaf beside that of `path` under the same parent, with its path; `after` or before it.
    pub(super) fn sibling(
        &self,
        arena: &Arena,
        path: &SpinePath,
        side: SpineSide,
    ) -> Option<(Handle, SpinePath)> {
        let level = path.depth.checked_sub(1)?;
        let block = bytes_of(arena, path.nodes[level]);
        let node = SpineNode::of(block);
        let at = side.of(path.at[level] as usize, node.len)?;
        let mut beside = *path;
        beside.at[level] = at as u8;
        Some((node.child(block, at), beside))
    }

    /// Returns true if the leaf of `path` is the last one.
    pub(super) fn is_last(&self, arena: &Arena, path: &SpinePath) -> bool {
        (0..path.depth)
            .all(|level| path.at[level] as usize + 1 == SpineNode::of(bytes_of(arena, path.nodes[level])).len)
    }

    /// Counts entries that came to (or, negative, left) the leaf of `path`.
    #[inline]
    pub(super) fn adjust(&mut self, arena: &mut Arena, path: &SpinePath, delta: i64) {
        for level in 0..path.depth {
            let block = bytes_of_mut(arena, path.nodes[level]);
            let node = SpineNode::of(block);
            let at = path.at[level] as usize;
            let entries = i64::from(node.entries(block, at)) + delta;
            node.set_entries(block, at, entries as u32);
        }
    }

    /// The leaf of `path` moved to another block.
    #[inline]
    pub(super) fn replace(&mut self, arena: &mut Arena, path: &SpinePath, leaf: Handle) {
        match path.depth.checked_sub(1) {
            None => self.root = leaf,
            Some(level) => {
                let block = bytes_of_mut(arena, path.nodes[level]);
                SpineNode::of(block).set_child(block, path.at[level] as usize, leaf);
            }
        }
    }

    /// Makes two leaves of the one at `path`: `left` in its place and `right`, whose entries are not below `right_key`, after it.
    ///
    /// Errors: the tree is unchanged. Cost: one node a level at most.
    pub(super) fn split(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        path: &SpinePath,
        left: Leaf,
        right: Leaf,
        right_key: u128,
    ) -> Result<(), TreeFull> {
        let mut spare = Spare::reserve::<K>(arena, owned, path)?;
        let mut grown = Branch { key: right_key, child: right.block, entries: right.entries };
        let mut total = left.entries;
        if path.depth > 0 {
            let bottom = bytes_of(arena, path.nodes[path.depth - 1]);
            let old = SpineNode::of(bottom).entries(bottom, path.at[path.depth - 1] as usize);
            let delta = i64::from(left.entries) + i64::from(right.entries) - i64::from(old);
            self.adjust(arena, path, delta);
            self.adjust_bottom(arena, path, left.entries);
        }
        self.replace(arena, path, left.block);
        let appending = self.is_last(arena, path);
        for level in (0..path.depth).rev() {
            let at = path.at[level] as usize + 1;
            let node_at = path.nodes[level];
            let node = SpineNode::of(bytes_of(arena, node_at));
            if node.len < LEN_MAX {
                let node_at = if node.len < node.cap {
                    node_at
                } else {
                    self.enlarge(arena, owned, path, level, &mut spare)
                };
                let block = bytes_of_mut(arena, node_at);
                SpineNode::of(block).insert::<K>(block, at, grown);
                return Ok(());
            }
            let fresh = spare.take();
            let keep = if appending { node.len } else { node.len / 2 };
            grown = divide::<K>(arena, node_at, fresh, keep, at, grown);
            let block = bytes_of(arena, node_at);
            total = SpineNode::of(block).total(block);
            if level > 0 {
                let above = bytes_of_mut(arena, path.nodes[level - 1]);
                SpineNode::of(above).set_entries(above, path.at[level - 1] as usize, total);
            }
        }
        let root = spare.take();
        let block = bytes_of_mut(arena, root);
        SpineNode::write_head(block, 0, CAPS[0]);
        let first = Branch { key: 0, child: self.root, entries: total };
        SpineNode::of(block).insert::<K>(block, 0, first);
        SpineNode::of(block).insert::<K>(block, 1, grown);
        self.root = root;
        self.height += 1;
        Ok(())
    }

    fn adjust_bottom(&mut self, arena: &mut Arena, path: &SpinePath, entries: u32) {
        let block = bytes_of_mut(arena, path.nodes[path.depth - 1]);
        SpineNode::of(block).set_entries(block, path.at[path.depth - 1] as usize, entries);
    }

    /// Moves the node of `level`, which has no room, into the spare block made for it.
    fn enlarge(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        path: &SpinePath,
        level: usize,
        spare: &mut Spare,
    ) -> Handle {
        let (old, fresh) = (path.nodes[level], spare.take());
        let node = SpineNode::of(bytes_of(arena, old));
        let (from, to) = two_of_mut(arena, old, fresh);
        SpineNode::write_head(to, 0, node.cap_after());
        move_branches::<K>(from, 0, node.len, to);
        owned.free(arena, old);
        self.relink(arena, path, level, fresh);
        fresh
    }

    fn relink(&mut self, arena: &mut Arena, path: &SpinePath, level: usize, node: Handle) {
        match level.checked_sub(1) {
            None => self.root = node,
            Some(above) => {
                let block = bytes_of_mut(arena, path.nodes[above]);
                SpineNode::of(block).set_child(block, path.at[above] as usize, node);
            }
        }
    }

    /// Removes the leaf of `path`, with `entries` entries still counted for it, from the tree. The caller frees its
    /// block.
    pub(super) fn remove(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        path: &SpinePath,
        entries: u32,
    ) {
        self.adjust(arena, path, -i64::from(entries));
        let mut level = path.depth;
        loop {
            if level == 0 {
                *self = Self::EMPTY;
                return;
            }
            level -= 1;
            let block = bytes_of_mut(arena, path.nodes[level]);
            let node = SpineNode::of(block);
            if node.len > 1 {
                node.remove::<K>(block, path.at[level] as usize);
                break;
            }
            owned.free(arena, path.nodes[level]);
        }
        if level > 0 {
            self.merge(arena, owned, path, level);
        }
        self.lower_root(arena, owned);
    }

    /// Joins the node of `level` with one beside it when both are nearly empty.
    fn merge(&mut self, arena: &mut Arena, owned: &mut OwnedEntry, path: &SpinePath, level: usize) {
        let len = SpineNode::of(bytes_of(arena, path.nodes[level])).len;
        if len >= LEN_LOW {
            return;
        }
        let (parent, at) = (path.nodes[level - 1], path.at[level - 1] as usize);
        let above = SpineNode::of(bytes_of(arena, parent));
        for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            if left + 1 >= above.len {
                continue;
            }
            let block = bytes_of(arena, parent);
            let pair = [above.child(block, left), above.child(block, left + 1)];
            let lens = pair.map(|node| SpineNode::of(bytes_of(arena, node)).len);
            if lens[0] + lens[1] > LEN_JOINED {
                continue;
            }
            // Joining only saves memory, so a full arena is no error here.
            let Ok(fresh) = owned.alloc(arena, SpineNode::bytes::<K>(LEN_JOINED)) else { return };
            let key = above.key::<K>(bytes_of(arena, parent), left + 1);
            for (node, len) in pair.into_iter().zip(lens) {
                let (from, to) = two_of_mut(arena, node, fresh);
                if node == pair[0] {
                    SpineNode::write_head(to, 0, LEN_JOINED);
                } else {
                    // The first key of a node is not kept up to date; its parent's is.
                    SpineNode::of(from).set_key::<K>(from, 0, key);
                }
                move_branches::<K>(from, 0, len, to);
                owned.free(arena, node);
            }
            let entries = {
                let b = bytes_of(arena, fresh);
                SpineNode::of(b).total(b)
            };
            let block = bytes_of_mut(arena, parent);
            above.set_child(block, left, fresh);
            above.set_entries(block, left, entries);
            above.remove::<K>(block, left + 1);
            return;
        }
    }

    fn lower_root(&mut self, arena: &mut Arena, owned: &mut OwnedEntry) {
        while self.height > 0 {
            let block = bytes_of(arena, self.root);
            let node = SpineNode::of(block);
            if node.len > 1 {
                return;
            }
            let child = node.child(block, 0);
            owned.free(arena, self.root);
            self.root = child;
            self.height -= 1;
        }
    }

    /// Removes the last leaf without updating counts, for a tree that is being destroyed. `None` if none is left.
    pub(super) fn take_last(&mut self, arena: &mut Arena, owned: &mut OwnedEntry) -> Option<Handle> {
        if self.root.is_none() {
            return None;
        }
        let (leaf, path) = self.last(arena);
        for level in (0..path.depth).rev() {
            let block = bytes_of_mut(arena, path.nodes[level]);
            let node = SpineNode::of(block);
            if node.len > 1 {
                put_u16(block, 0, node.len - 1);
                return Some(leaf);
            }
            owned.free(arena, path.nodes[level]);
        }
        *self = Self::EMPTY;
        Some(leaf)
    }

    /// Checks every count and key order below the root; `entries` counts a leaf. Returns the number of entries.
    #[cfg(test)]
    pub(super) fn check(&self, arena: &Arena, entries: &mut impl FnMut(Handle) -> u32) -> u64 {
        fn visit<const K: usize>(
            arena: &Arena,
            at: Handle,
            height: u8,
            leaf: &mut impl FnMut(Handle) -> u32,
        ) -> u64 {
            if height == 0 {
                return u64::from(leaf(at));
            }
            let block = bytes_of(arena, at);
            let node = SpineNode::of(block);
            assert!(node.len > 0 && node.len <= node.cap);
            let mut sum = 0;
            for i in 0..node.len {
                let below = visit::<K>(arena, node.child(block, i), height - 1, leaf);
                assert_eq!(below, u64::from(node.entries(block, i)));
                if i > 1 {
                    assert!(node.key::<K>(block, i - 1) <= node.key::<K>(block, i));
                }
                sum += below;
            }
            sum
        }
        if self.root.is_none() { 0 } else { visit::<K>(arena, self.root, self.height, entries) }
    }
}

/// The side of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SpineSide {
    Before,
    After,
}

impl SpineSide {
    fn of(self, at: usize, len: usize) -> Option<usize> {
        match self {
            SpineSide::Before => at.checked_sub(1),
            SpineSide::After => (at + 1 < len).then_some(at + 1),
        }
    }
}

/// A leaf block and how many entries it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) block: Handle,
    pub(super) entries: u32,
}

/// The first leaf `levels` below `node`.
fn leftmost(arena: &Arena, node: Handle, levels: usize) -> Handle {
    let mut child = node;
    for _ in 0..levels {
        let block = bytes_of(arena, child);
        child = SpineNode::of(block).child(block, 0);
    }
    child
}

/// Levels of inner nodes. Nodes are half full on average, so eight levels exceed the capacity of an arena.
const HEIGHT_MAX: usize = 10;

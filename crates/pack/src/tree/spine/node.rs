//! An inner node: its children, how many entries are below each, and their keys.
//!
//! Called by `Spine` only; it works on one block or two.
//!
//! ```text
//! u16 len | u16 cap | u32 unused | cap x u32 child | cap x u32 entries | K times cap x u64 key words, high word first
//! ```

use std::cmp::Ordering;

use darter_slab::{Arena, Handle};

use crate::tree::block::two_of_mut;
use crate::tree::word::{first_not, get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};

/// Most children of a node.
pub(super) const LEN_MAX: usize = 64;
/// Below this many children a node looks for another to join.
pub(super) const LEN_LOW: usize = 16;
/// Most children of a joined node, and its capacity.
pub(super) const LEN_JOINED: usize = 48;
/// Capacity of the right half of a divided node: it holds up to LEN_MAX / 2 + 1.
pub(super) const CAP_DIVIDED: usize = 48;
/// Capacities of nodes as they grow.
pub(super) const CAPS: [usize; 7] = [4, 8, 16, 24, 32, 48, LEN_MAX];
const HEAD: usize = 8;

/// A child with its key and count, on its way into a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    pub(super) key: u128,
    pub(super) child: Handle,
    pub(super) entries: u32,
}

/// The head of a node: everything needed to find its parts.
#[derive(Clone, Copy)]
pub(super) struct SpineNode {
    // 1 <= len <= cap, except while it is built
    pub(super) len: usize,
    pub(super) cap: usize,
}

impl SpineNode {
    #[inline(always)]
    pub(super) fn of(block: &[u8]) -> SpineNode {
        let node = SpineNode { len: get_u16(block, 0), cap: get_u16(block, 2) };
        debug_assert!(node.len <= node.cap && node.cap <= LEN_MAX);
        node
    }

    pub(super) fn write_head(block: &mut [u8], len: usize, cap: usize) {
        put_u16(block, 0, len);
        put_u16(block, 2, cap);
    }

    pub(super) const fn bytes<const K: usize>(cap: usize) -> usize {
        HEAD + cap * (8 + 8 * K)
    }

    /// The capacity of the next larger node.
    pub(super) fn cap_after(self) -> usize {
        CAPS.into_iter().find(|&cap| cap > self.len).unwrap_or(LEN_MAX)
    }

    #[inline(always)]
    pub(super) fn child(self, block: &[u8], at: usize) -> Handle {
        Handle::from_raw(get_u32(block, HEAD + 4 * at))
    }

    pub(super) fn set_child(self, block: &mut [u8], at: usize, child: Handle) {
        put_u32(block, HEAD + 4 * at, child.raw());
    }

    #[inline(always)]
    pub(super) fn entries(self, block: &[u8], at: usize) -> u32 {
        get_u32(block, HEAD + 4 * (self.cap + at))
    }

    #[inline(always)]
    pub(super) fn set_entries(self, block: &mut [u8], at: usize, entries: u32) {
        put_u32(block, HEAD + 4 * (self.cap + at), entries);
    }

    #[inline(always)]
    pub(super) fn entries_below(self, block: &[u8], at: usize) -> u64 {
        let start = HEAD + 4 * self.cap;
        block[start..start + 4 * at]
            .as_chunks::<4>()
            .0
            .iter()
            .map(|c| u64::from(u32::from_le_bytes(*c)))
            .sum()
    }

    pub(super) fn total(self, block: &[u8]) -> u32 {
        self.entries_below(block, self.len) as u32
    }

    #[inline(always)]
    pub(super) fn key<const K: usize>(self, block: &[u8], at: usize) -> u128 {
        let start = HEAD + 8 * self.cap + 8 * at;
        match K {
            0 => 0,
            1 => u128::from(get_u64(block, start)),
            _ => {
                let high = get_u64(block, start);
                let low = get_u64(block, start + 8 * self.cap);
                u128::from(high) << 64 | u128::from(low)
            }
        }
    }

    pub(super) fn set_key<const K: usize>(self, block: &mut [u8], at: usize, key: u128) {
        let start = HEAD + 8 * self.cap + 8 * at;
        match K {
            0 => {}
            1 => put_u64(block, start, key as u64),
            _ => {
                put_u64(block, start, (key >> 64) as u64);
                put_u64(block, start + 8 * self.cap, key as u64);
            }
        }
    }

    /// The child where a key belongs: the last one whose key is not above it, or the first. The first child's key is
    /// ignored. `low` gives the key's second word, `tie` compares the sought key with the first entry below a child.
    #[inline(always)]
    pub(super) fn route<const K: usize>(
        self,
        block: &[u8],
        high: u64,
        low: impl FnMut() -> u64,
        tie: impl FnMut(Handle) -> Ordering,
    ) -> usize {
        let highs = self.words(block, 0);
        let at = first_not(highs, |key| u64::from_le_bytes(*key) < high);
        match highs.get(at) {
            Some(key) if u64::from_le_bytes(*key) == high => match K {
                1 => at + 1,
                _ => self.route_among_equals(block, high, at, low, tie),
            },
            _ => at,
        }
    }

    /// [`SpineNode::route`] if the first word of the key after `at` equals `high` too.
    fn route_among_equals(
        self,
        block: &[u8],
        high: u64,
        at: usize,
        mut low: impl FnMut() -> u64,
        mut tie: impl FnMut(Handle) -> Ordering,
    ) -> usize {
        let equal = self.words(block, 0)[at..].partition_point(|key| u64::from_le_bytes(*key) == high);
        let lows = &self.words(block, 1)[at..at + equal];
        let low = low();
        let mut first = lows.partition_point(|key| u64::from_le_bytes(*key) < low);
        let mut last = first + lows[first..].partition_point(|key| u64::from_le_bytes(*key) == low);
        while first < last {
            let middle = (first + last) / 2;
            if tie(self.child(block, at + 1 + middle)) == Ordering::Less {
                last = middle;
            } else {
                first = middle + 1;
            }
        }
        at + first
    }

    /// One word of the keys of all children but the first.
    #[inline(always)]
    fn words(self, block: &[u8], word: usize) -> &[[u8; 8]] {
        let start = HEAD + 8 * self.cap + 8 * self.cap * word;
        block[start + 8..start + 8 * self.len].as_chunks::<8>().0
    }

    /// The child above the entry of this rank, and the entry's rank among those below the child.
    #[inline(always)]
    pub(super) fn by_rank(self, block: &[u8], rank: u64) -> (usize, u64) {
        let start = HEAD + 4 * self.cap;
        let counts = block[start..start + 4 * (self.len - 1)].as_chunks::<4>().0;
        let number = |count: &[u8; 4]| u64::from(u32::from_le_bytes(*count));
        let (mut at, mut rest) = (0, rank);
        for eight in counts.as_chunks::<8>().0 {
            let sum: u64 = eight.iter().map(number).sum();
            if rest < sum {
                break;
            }
            rest -= sum;
            at += 8;
        }
        for count in &counts[at..] {
            let entries = number(count);
            if rest < entries {
                break;
            }
            rest -= entries;
            at += 1;
        }
        (at, rest)
    }

    pub(super) fn insert<const K: usize>(self, block: &mut [u8], at: usize, branch: Branch) {
        debug_assert!(at <= self.len && self.len < self.cap);
        let (len, cap) = (self.len, self.cap);
        shift(block, HEAD, 4, at, len);
        shift(block, HEAD + 4 * cap, 4, at, len);
        for word in 0..K {
            shift(block, HEAD + 8 * cap + 8 * cap * word, 8, at, len);
        }
        self.set_child(block, at, branch.child);
        self.set_entries(block, at, branch.entries);
        self.set_key::<K>(block, at, branch.key);
        put_u16(block, 0, len + 1);
    }

    pub(super) fn remove<const K: usize>(self, block: &mut [u8], at: usize) {
        let (len, cap) = (self.len, self.cap);
        unshift(block, HEAD, 4, at, len);
        unshift(block, HEAD + 4 * cap, 4, at, len);
        for word in 0..K {
            unshift(block, HEAD + 8 * cap + 8 * cap * word, 8, at, len);
        }
        put_u16(block, 0, len - 1);
    }
}

/// Makes room for one item of `size` bytes at `at` in an array of `len`.
fn shift(block: &mut [u8], start: usize, size: usize, at: usize, len: usize) {
    block.copy_within(start + size * at..start + size * len, start + size * (at + 1));
}

/// Closes the room of one item.
fn unshift(block: &mut [u8], start: usize, size: usize, at: usize, len: usize) {
    block.copy_within(start + size * (at + 1)..start + size * len, start + size * at);
}

/// Appends branches `from..to` of one node to another.
pub(super) fn move_branches<const K: usize>(source: &[u8], from: usize, to: usize, target: &mut [u8]) {
    let node = SpineNode::of(source);
    for at in from..to {
        let branch = Branch {
            key: node.key::<K>(source, at),
            child: node.child(source, at),
            entries: node.entries(source, at),
        };
        let end = SpineNode::of(target);
        end.insert::<K>(target, end.len, branch);
    }
}

/// Moves the branches from `keep` on into `fresh` and inserts `grown` at `at` of the whole. Returns the branch of `fresh`.
pub(super) fn divide<const K: usize>(
    arena: &mut Arena,
    full: Handle,
    fresh: Handle,
    keep: usize,
    at: usize,
    grown: Branch,
) -> Branch {
    let (left, right) = two_of_mut(arena, full, fresh);
    let len = SpineNode::of(left).len;
    SpineNode::write_head(right, 0, CAP_DIVIDED);
    move_branches::<K>(left, keep, len, right);
    put_u16(left, 0, keep);
    if at < keep || (at == keep && keep < len) {
        SpineNode::of(left).insert::<K>(left, at, grown);
    } else {
        SpineNode::of(right).insert::<K>(right, at - keep, grown);
    }
    let node = SpineNode::of(right);
    Branch { key: node.key::<K>(right, 0), child: fresh, entries: node.total(right) }
}

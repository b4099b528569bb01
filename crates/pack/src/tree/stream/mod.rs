//! `StreamLog`: entries of fields and values under rising ids, appended at the end, read from anywhere in both
//! directions.
//!
//! Called by the store for streams. The names of the first entry of a leaf are written once for all entries of the
//! leaf that have the same names. It makes no ids and knows no groups; pending entries are in [`super::Pel`].

mod body;
mod iter;
mod leaf;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use darter_slab::{Arena, Handle};

use self::body::BodyPlan;
use self::leaf::StreamLeafHead;
use super::owned::OwnedEntry;
use super::spine::{Leaf, Spine, SpinePath, SpineSide};
use super::window::{SeenLeaf, Windows, readable};
use super::{Direction, TreeFull};
use crate::spill::Spill;
use crate::tree::block::{bytes_of, bytes_of_mut};

pub use body::StreamFields;
pub use iter::StreamIter;

/// The id of an entry; ids sort by time and then by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970, or any number that the client chooses.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The lowest id.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    pub(super) fn key(self) -> u128 {
        u128::from(self.ms) << 64 | u128::from(self.seq)
    }
}

/// An entry, read in place.
#[derive(Clone, Copy)]
pub struct StreamEntry<'a> {
    /// The entry's id.
    pub id: StreamId,
    /// Its names and values.
    pub fields: StreamFields<'a>,
}

/// A stream's entries: 32 bytes and blocks in the arena. [`StreamLog::clear`] must run before it is dropped, or the blocks
/// are lost.
#[derive(Debug)]
pub struct StreamLog {
    spine: Spine<2>,
    len: u64,
    // Entries in front of the first one that were trimmed and are still in the tree.
    dead: u64,
    owned: OwnedEntry,
    spill: Spill,
}

impl Default for StreamLog {
    fn default() -> Self {
        Self::new()
    }
}

readable!(StreamLog, dead);

impl StreamLog {
    /// No entry, no block.
    pub const fn new() -> StreamLog {
        StreamLog { spine: Spine::EMPTY, len: 0, dead: 0, owned: OwnedEntry::NONE, spill: Spill::new() }
    }

    /// A copy of the log in its present state, for a reader that looks back while the arena keeps pre-images. It must
    /// never be changed or cleared.
    pub fn frozen(&self) -> StreamLog {
        StreamLog { spine: self.spine.frozen(), len: self.len, dead: self.dead, ..StreamLog::new() }
    }

    /// Lends the data outside the arena to a frozen copy for a read, or takes it back.
    pub fn lend(&mut self, frozen: &mut StreamLog) {
        std::mem::swap(&mut self.spill, &mut frozen.spill);
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held in the arena, exactly.
    pub fn bytes(&self) -> usize {
        self.owned.bytes()
    }

    /// Bytes held outside the arena, by strings past 32 KiB.
    pub fn spilled_bytes(&self) -> usize {
        self.spill.bytes()
    }

    /// The id of the first entry.
    pub fn first_id(&self, arena: &Arena) -> Option<StreamId> {
        self.iter(arena, 0, Direction::Up).next().map(|e| e.id)
    }

    /// The id of the last entry.
    pub fn last_id(&self, arena: &Arena) -> Option<StreamId> {
        self.iter(arena, self.len.checked_sub(1)?, Direction::Down).next().map(|e| e.id)
    }

    /// The entry with this id. Cost: O(log n).
    pub fn get<'a>(&'a self, arena: &'a Arena, id: StreamId) -> Option<StreamEntry<'a>> {
        if self.len == 0 {
            return None;
        }
        let (leaf, path, at) = self.locate(arena, id);
        let block = bytes_of(arena, leaf);
        let head = StreamLeafHead::of(block);
        let is_there = at < head.len && head.id(block, at) == id && !self.is_dead(arena, &path, at);
        is_there.then(|| self.entry(arena, block, &head, at))
    }

    /// Number of entries with an id below `id`. Cost: O(log n).
    pub fn rank(&self, arena: &Arena, id: StreamId) -> u64 {
        if self.len == 0 {
            return 0;
        }
        let (_, path, at) = self.locate(arena, id);
        (self.spine.entries_before(arena, &path) + at as u64).saturating_sub(self.dead)
    }

    /// Appends an entry with its names and values; `false` when `id` is not above the last one's.
    ///
    /// Errors: nothing is changed. Cost: O(bytes of the entry + log n); `pairs` is walked up to four times.
    pub fn append<'a, P>(&mut self, arena: &mut Arena, id: StreamId, pairs: P) -> Result<bool, TreeFull>
    where
        P: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let plan = BodyPlan::of(pairs.clone());
        let tail = (!self.spine.is_empty()).then(|| {
            let (leaf, path) = self.spine.last(arena);
            (leaf, StreamLeafHead::of(bytes_of(arena, leaf)), path)
        });
        if let Some((leaf, head, _)) = &tail
            && head.id(bytes_of(arena, *leaf), head.len - 1) >= id
        {
            if self.len > 0 {
                return Ok(false);
            }
            // All are trimmed, and ids were set back.
            while !self.sweep(arena, usize::MAX) {}
            return self.append(arena, id, pairs);
        }
        let far = match plan.is_short() {
            true => None,
            false => Some(body::far(arena, &mut self.owned, &mut self.spill, &plan, pairs.clone())?),
        };
        let done = match tail {
            None => self.begin(arena, None, id, &plan, far.as_deref(), pairs),
            Some(tail) => self.append_to(arena, tail, id, &plan, far.as_deref(), pairs),
        };
        match done {
            Ok(()) => {
                self.len += 1;
                if self.spill.is_read() {
                    self.after_insertion(self.dead + self.len - 1, 1);
                }
            }
            Err(TreeFull) => {
                if let Some(far) = far {
                    body::release(arena, &mut self.owned, &mut self.spill, &far);
                }
            }
        }
        done.map(|()| true)
    }

    /// Removes the entry with this id; returns whether there was one. Cost: O(log n), one leaf or two.
    pub fn remove(&mut self, arena: &mut Arena, id: StreamId) -> bool {
        if self.len == 0 {
            return false;
        }
        let (leaf, path, at) = self.locate(arena, id);
        let block = bytes_of(arena, leaf);
        let head = StreamLeafHead::of(block);
        if at == head.len || head.id(block, at) != id || self.is_dead(arena, &path, at) {
            return false;
        }
        self.remove_run(arena, leaf, &path, at, at + 1);
        true
    }

    /// Removes up to `count` of the first entries; returns their number. Cost: bounded; many are removed from the
    /// tree later.
    pub fn remove_first(&mut self, arena: &mut Arena, count: u64) -> u64 {
        let gone = count.min(self.len);
        self.len -= gone;
        self.dead += gone;
        self.sweep(arena, LEAVES_AT_ONCE);
        gone
    }

    /// Returns true if entries that were trimmed are still in the tree.
    pub fn is_unswept(&self) -> bool {
        self.dead > 0
    }

    /// Removes trimmed entries from the tree, up to about `leaves_max` leaves. Returns true if that was all.
    pub fn sweep(&mut self, arena: &mut Arena, leaves_max: usize) -> bool {
        for _ in 0..leaves_max {
            if self.dead == 0 {
                break;
            }
            let (leaf, path) = self.spine.first(arena);
            let part = self.dead.min(leaf::len(arena, leaf) as u64);
            // The tree still counts them as entries.
            self.len += part;
            self.dead -= part;
            self.remove_run(arena, leaf, &path, 0, part as usize);
        }
        self.dead == 0
    }

    /// Returns true if the entry at a place of the tree was trimmed.
    #[inline]
    fn is_dead(&self, arena: &Arena, path: &SpinePath, at: usize) -> bool {
        self.dead > 0 && self.spine.entries_before(arena, path) + (at as u64) < self.dead
    }

    /// Number of entries in the first leaf, which an approximate trim removes together.
    pub fn first_leaf_len(&self, arena: &Arena) -> u64 {
        if self.len == 0 {
            return 0;
        }
        let (leaf, _, at) = self.spine.by_rank(arena, self.dead);
        (leaf::len(arena, leaf) - at) as u64
    }

    /// Frees up to about `blocks_max` blocks; the log is unusable from the first call until it returns `true`, and
    /// empty then.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        let mut freed = 0;
        while freed < blocks_max {
            let Some(leaf) = self.spine.take_last(arena, &mut self.owned) else {
                debug_assert_eq!(self.owned.bytes(), 0);
                (self.len, self.dead) = (0, 0);
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

    fn each(
        &self,
        arena: &Arena,
        first: u64,
        len: u64,
        direction: Direction,
        see: &mut dyn FnMut(SeenLeaf<'_>),
    ) {
        self.walk(arena, first, direction).take(len as usize).for_each(|entry| see(SeenLeaf::Logged(entry)));
    }

    fn windows_mut(&mut self) -> &mut Windows {
        self.spill.windows_mut()
    }

    fn settle_windows(&mut self) {
        self.spill.settle();
    }

    /// The position where `id` is or belongs, in a log that has entries.
    fn locate(&self, arena: &Arena, id: StreamId) -> (Handle, SpinePath, usize) {
        // Ids are unique, so a leaf whose bound is the id is the one.
        let (leaf, path) = self.spine.by_key(arena, id.ms, || id.seq, |_| Ordering::Greater);
        let block = bytes_of(arena, leaf);
        let at = StreamLeafHead::of(block).below(block, id);
        (leaf, path, at)
    }

    #[inline]
    fn entry<'a>(
        &'a self,
        arena: &'a Arena,
        block: &'a [u8],
        head: &StreamLeafHead,
        at: usize,
    ) -> StreamEntry<'a> {
        let fields =
            StreamFields::new(arena, &self.spill, head.shared(block), head.names, head.body(block, at));
        StreamEntry { id: head.id(block, at), fields }
    }

    /// Appends to the last leaf, to a larger copy of it, or to a new one.
    #[inline]
    fn append_to<'a, P>(
        &mut self,
        arena: &mut Arena,
        (leaf, head, path): (Handle, StreamLeafHead, SpinePath),
        id: StreamId,
        plan: &BodyPlan,
        far: Option<&[u8]>,
        pairs: P,
    ) -> Result<(), TreeFull>
    where
        P: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let names = head.shared_on(bytes_of(arena, leaf));
        let shares = far.is_none() && body::shares(names, head.names, pairs.clone(), arena, &self.spill);
        let bytes = far.map_or_else(|| plan.bytes(shares), <[u8]>::len);
        let mut home = leaf;
        let mut start = leaf::push_to(bytes_of_mut(arena, leaf), head, id, bytes);
        if start.is_none() {
            let wanted = head.bytes_with(id, bytes);
            if wanted > leaf::BYTES_MAX * 15 / 16 {
                return self.begin(arena, Some((leaf, path)), id, plan, far, pairs);
            }
            let spare = if self.spine.is_single() { wanted / 2 + 2 * bytes } else { leaf::BYTES_MAX };
            let spare = spare.max(wanted - head.bytes());
            (home, start) = self.push_to_larger(arena, (leaf, &head), id, bytes, spare)?;
            if start.is_none() {
                // The room was rounded to entries, and is too small for this one.
                self.owned.free(arena, home);
                return self.begin(arena, Some((leaf, path)), id, plan, far, pairs);
            }
            self.spine.replace(arena, &path, home);
            self.owned.free(arena, leaf);
        }
        self.spine.adjust(arena, &path, 1);
        write_body(&mut bytes_of_mut(arena, home)[start.unwrap_or(0)..], plan, far, shares, pairs);
        Ok(())
    }

    /// Makes room for an entry in a copy of a leaf that has `spare` bytes more; returns the copy and where to write the body.
    fn push_to_larger(
        &mut self,
        arena: &mut Arena,
        (leaf, head): (Handle, &StreamLeafHead),
        id: StreamId,
        body: usize,
        spare: usize,
    ) -> Result<(Handle, Option<usize>), TreeFull> {
        if head.holds(id) {
            let (larger, head) = leaf::enlarge(arena, &mut self.owned, leaf, head, spare)?;
            return Ok((larger, leaf::push_to(bytes_of_mut(arena, larger), head, id, body)));
        }
        let larger = leaf::rebuild(arena, &mut self.owned, &[leaf], Some(id), spare)?;
        Ok((larger, leaf::push(bytes_of_mut(arena, larger), id, body)))
    }

    /// Begins a leaf with an entry, after the last one if there is one.
    fn begin<'a, P>(
        &mut self,
        arena: &mut Arena,
        last: Option<(Handle, SpinePath)>,
        id: StreamId,
        plan: &BodyPlan,
        far: Option<&[u8]>,
        pairs: P,
    ) -> Result<(), TreeFull>
    where
        P: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let names = if far.is_none() { (plan.pairs, plan.names_bytes) } else { (0, 0) };
        let body = far.map_or_else(|| plan.bytes(true), <[u8]>::len);
        let likely = if last.is_some() { leaf::BYTES_MAX } else { 0 };
        let (fresh, names_at) = leaf::begin(arena, &mut self.owned, id, names, body, likely)?;
        match last {
            None => self.spine.plant(fresh),
            Some((leaf, path)) => {
                let tight = self.tightened(arena, leaf);
                let left = Leaf { block: tight, entries: leaf::len(arena, tight) as u32 };
                let right = Leaf { block: fresh, entries: 1 };
                if let Err(full) = self.spine.split(arena, &mut self.owned, &path, left, right, id.key()) {
                    self.owned.free(arena, fresh);
                    self.spine.replace(arena, &path, tight);
                    return Err(full);
                }
            }
        }
        let block = bytes_of_mut(arena, fresh);
        body::write_names(&mut block[names_at..names_at + names.1], pairs.clone().take(names.0));
        let start = leaf::push(block, id, body);
        debug_assert!(start.is_some(), "a leaf has the room it was begun with");
        write_body(&mut block[start.unwrap_or(names_at)..], plan, far, true, pairs);
        Ok(())
    }

    /// The leaf in a block of its exact size, the old block freed; the same leaf if little would be gained.
    fn tightened(&mut self, arena: &mut Arena, leaf: Handle) -> Handle {
        let bytes = StreamLeafHead::of(bytes_of(arena, leaf)).bytes();
        if Arena::fits(bytes) >= arena.size(leaf) {
            return leaf;
        }
        // Shrinking only saves memory, so a full arena is no error here.
        match leaf::rebuild(arena, &mut self.owned, &[leaf], None, 0) {
            Ok(fresh) => {
                self.owned.free(arena, leaf);
                fresh
            }
            Err(TreeFull) => leaf,
        }
    }

    /// Removes entries `from..to` of a leaf, and the leaf if it has none or few left.
    fn remove_run(&mut self, arena: &mut Arena, leaf: Handle, path: &SpinePath, from: usize, to: usize) {
        if self.spill.is_read() {
            let rank = self.spine.entries_before(arena, path) + from as u64;
            self.before_removal(arena, rank, (to - from) as u64);
        }
        self.release_run(arena, leaf, from, to);
        leaf::remove(bytes_of_mut(arena, leaf), from, to);
        self.len -= (to - from) as u64;
        self.spine.adjust(arena, path, -((to - from) as i64));
        let head = StreamLeafHead::of(bytes_of(arena, leaf));
        if head.len == 0 {
            self.spine.remove(arena, &mut self.owned, path, 0);
            self.owned.free(arena, leaf);
            return;
        }
        if head.bytes() < leaf::BYTES_MAX / 4 && self.join(arena, leaf, path) {
            return;
        }
        if head.bytes() < arena.size(leaf) / 2 {
            let fresh = self.tightened(arena, leaf);
            self.spine.replace(arena, path, fresh);
        }
    }

    /// Joins this leaf with a neighbour, if they share the same names and both fit into one.
    fn join(&mut self, arena: &mut Arena, leaf: Handle, path: &SpinePath) -> bool {
        for side in [SpineSide::After, SpineSide::Before] {
            let Some((other, beside)) = self.spine.sibling(arena, path, side) else { continue };
            let (pair, paths) = match side {
                SpineSide::After => ([leaf, other], [path, &beside]),
                SpineSide::Before => ([other, leaf], [&beside, path]),
            };
            let blocks = pair.map(|leaf| bytes_of(arena, leaf));
            let heads = blocks.map(StreamLeafHead::of);
            let same =
                heads[0].names == heads[1].names && heads[0].shared(blocks[0]) == heads[1].shared(blocks[1]);
            if !same || heads[0].bytes() + heads[1].bytes() > leaf::BYTES_MAX / 2 {
                continue;
            }
            // Joining only saves memory, so a full arena is no error here.
            let Ok(fresh) = leaf::rebuild(arena, &mut self.owned, &pair, None, 0) else { return false };
            let gone = heads[1].len;
            self.spine.replace(arena, paths[0], fresh);
            self.spine.adjust(arena, paths[0], gone as i64);
            self.spine.remove(arena, &mut self.owned, paths[1], gone as u32);
            self.owned.free(arena, leaf);
            self.owned.free(arena, other);
            return true;
        }
        false
    }

    /// Frees the out-of-line strings of entries `from..to` of a leaf; returns their number.
    fn release_run(&mut self, arena: &mut Arena, leaf: Handle, from: usize, to: usize) -> usize {
        let mut released = 0;
        for at in from..to {
            let block = bytes_of(arena, leaf);
            let body = StreamLeafHead::of(block).body(block, at);
            if body::holds(body) {
                let body = body.to_vec();
                released += body::release(arena, &mut self.owned, &mut self.spill, &body);
            }
        }
        released
    }
}

/// Leaves that a trim removes from the tree itself: some microseconds.
const LEAVES_AT_ONCE: usize = 16;

fn write_body<'a>(
    out: &mut [u8],
    plan: &BodyPlan,
    far: Option<&[u8]>,
    shares: bool,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    match far {
        Some(bytes) => out[..bytes.len()].copy_from_slice(bytes),
        None => body::write(out, plan, shares, pairs),
    }
}

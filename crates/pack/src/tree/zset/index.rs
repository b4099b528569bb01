//! The leaf of each member: a trie of small buckets over 32 bits of the member's hash.
//!
//! Called by `Zset` once it has more than one leaf. It holds no members: a probe finds a leaf that may hold the
//! member. Buckets grow by an eighth and split at 63 entries. Nodes double up to 1,024 slots and then branch. No
//! insertion touches more than a few KiB.
//!
//! ```text
//! bucket: u8 0 | u8 bits of its node that all its entries share | u16 len | u16 cap | u16 unused | cap x u32 hash | cap x u32 id
//! node:   u8 1 | u8 bits | u16 slots in use, for freeing | u32 unused | 2^bits x u32 block
//! ```

use darter_slab::{Arena, Handle};

use super::bucket::{HEAD, ScoreBucket};
use crate::tree::TreeFull;
use crate::tree::block::{bytes_of, bytes_of_mut, two_of_mut};
use crate::tree::owned::OwnedEntry;
use crate::tree::word::{find_u32, get_u16, get_u32, put_u16, put_u32};

/// The index of one sorted set: 4 bytes and blocks in the arena.
#[derive(Debug)]
pub(super) struct ZsetIndex {
    root: Handle,
}

/// The nodes passed on the way to a bucket.
struct Trail {
    steps: [IndexStep; LEVELS_MAX],
    // 0 <= len <= LEVELS_MAX
    len: usize,
    // Hash bits used up by the nodes before the last one, and by all of them.
    above: u32,
    bits: u32,
}

#[derive(Clone, Copy)]
struct IndexStep {
    node: Handle,
    slot: usize,
}

impl ZsetIndex {
    /// No entry, no block.
    pub(super) const EMPTY: ZsetIndex = ZsetIndex { root: Handle::NONE };

    /// Returns true if there is no block at all.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The first result of `look` for the ids of entries with this hash.
    #[inline]
    pub(super) fn find<T>(
        &self,
        arena: &Arena,
        hash: u32,
        mut look: impl FnMut(u32) -> Option<T>,
    ) -> Option<T> {
        if self.root.is_none() {
            return None;
        }
        let block = bytes_of(arena, self.bucket(arena, hash));
        let bucket = ScoreBucket::of(block);
        let mut from = 0;
        loop {
            let at = from + find_u32(&block[HEAD + 4 * from..HEAD + 4 * bucket.len], hash)?;
            if let Some(found) = look(bucket.id(block, at)) {
                return Some(found);
            }
            from = at + 1;
        }
    }

    /// The bucket of a hash; there is at least one bucket.
    #[inline]
    fn bucket(&self, arena: &Arena, hash: u32) -> Handle {
        let (mut at, mut rest) = (self.root, hash);
        loop {
            let block = bytes_of(arena, at);
            if block[0] != NODE {
                return at;
            }
            let bits = u32::from(block[1]);
            at = slot(block, (rest >> (32 - bits)) as usize);
            rest = rest.wrapping_shl(bits);
        }
    }

    /// Prefetches the memory of a hash's bucket.
    #[inline]
    pub(super) fn prefetch(&self, arena: &Arena, hash: u32) {
        if !self.root.is_none() {
            arena.prefetch(self.bucket(arena, hash));
        }
    }

    /// Adds an entry. Errors: nothing is changed. Cost: O(1); a split moves 63 entries, a node doubles up to 4 KiB.
    pub(super) fn insert(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        hash: u32,
        id: u32,
    ) -> Result<(), TreeFull> {
        if self.root.is_none() {
            self.root = ScoreBucket::alloc(arena, owned, 0, LEN_MAX / 8)?;
        }
        while !ScoreBucket::push(bytes_of_mut(arena, self.bucket(arena, hash)), hash, id) {
            self.make_room(arena, owned, hash)?;
        }
        Ok(())
    }

    /// Enlarges or splits the bucket of a hash, which is full. Errors: nothing is changed.
    #[cold]
    fn make_room(&mut self, arena: &mut Arena, owned: &mut OwnedEntry, hash: u32) -> Result<(), TreeFull> {
        let (block, trail) = self.walk(arena, hash);
        let bucket = ScoreBucket::of(bytes_of(arena, block));
        if bucket.len >= LEN_MAX && bucket.shared + trail.above < 32 {
            return self.split(arena, owned, block, &trail);
        }
        let fresh = ScoreBucket::alloc(arena, owned, bucket.shared, bucket.len + bucket.len / 8 + 1)?;
        ScoreBucket::copy(arena, block, fresh);
        self.point(arena, &trail, bucket.shared, fresh);
        owned.free(arena, block);
        Ok(())
    }

    /// Changes the id of one entry with this hash and id; it must exist.
    #[inline]
    pub(super) fn replace(&mut self, arena: &mut Arena, hash: u32, id: u32, other: u32) {
        let bytes = bytes_of_mut(arena, self.bucket(arena, hash));
        let bucket = ScoreBucket::of(bytes);
        let at = bucket.position(bytes, hash, id);
        debug_assert!(at.is_some(), "every member is in the index");
        if let Some(at) = at {
            put_u32(bytes, HEAD + 4 * (bucket.cap + at), other);
        }
    }

    /// Removes one entry with this hash and id, which must exist.
    pub(super) fn remove(&mut self, arena: &mut Arena, owned: &mut OwnedEntry, hash: u32, id: u32) {
        let (block, trail) = self.walk(arena, hash);
        let bytes = bytes_of_mut(arena, block);
        let bucket = ScoreBucket::of(bytes);
        let at = bucket.position(bytes, hash, id);
        debug_assert!(at.is_some(), "every member is in the index");
        let Some(at) = at else { return };
        ScoreBucket::swap_remove(bytes, at);
        let len = bucket.len - 1;
        if len < LEN_MAX / 4 && self.join(arena, owned, hash) {
            return;
        }
        if len + len / 2 + 4 < bucket.cap {
            // Shrinking only saves memory, so a full arena is no error here.
            let Ok(fresh) = ScoreBucket::alloc(arena, owned, bucket.shared, len + len / 8 + 1) else {
                return;
            };
            ScoreBucket::copy(arena, block, fresh);
            self.point(arena, &trail, bucket.shared, fresh);
            owned.free(arena, block);
        }
    }

    /// Passes to `emit` the hash and id of every entry from `from` to the end of the bucket that holds `from`;
    /// returns the start of the next one, at most 2^32. Any entry present throughout a pass from 0 is shown at least
    /// once.
    pub(super) fn scan(&self, arena: &Arena, from: u32, mut emit: impl FnMut(u32, u32)) -> u64 {
        if self.root.is_none() {
            return 1 << 32;
        }
        let (block, trail) = self.walk(arena, from);
        let bytes = bytes_of(arena, block);
        let bucket = ScoreBucket::of(bytes);
        for at in 0..bucket.len {
            let hash = get_u32(bytes, HEAD + 4 * at);
            if hash >= from {
                emit(hash, bucket.id(bytes, at));
            }
        }
        let span = 32 - (trail.above + bucket.shared);
        ((u64::from(from) >> span) + 1) << span
    }

    /// Frees up to `blocks_max` blocks; returns true if none is left. Nothing else may be called before that.
    pub(super) fn free_step(&mut self, arena: &mut Arena, owned: &mut OwnedEntry, blocks_max: usize) -> bool {
        for _ in 0..blocks_max {
            if self.root.is_none() {
                return true;
            }
            self.free_last(arena, owned);
        }
        self.root.is_none()
    }

    /// Frees the last bucket, or the node that has lost its last one.
    fn free_last(&mut self, arena: &mut Arena, owned: &mut OwnedEntry) {
        let mut parent = Handle::NONE;
        let mut block = self.root;
        loop {
            let bytes = bytes_of(arena, block);
            let live = get_u16(bytes, 2);
            if bytes[0] == NODE && live > 0 {
                parent = block;
                block = slot(bytes, live - 1);
                continue;
            }
            let shared = if bytes[0] == NODE { u32::MAX } else { u32::from(bytes[1]) };
            owned.free(arena, block);
            if parent.is_none() {
                self.root = Handle::NONE;
                return;
            }
            let bytes = bytes_of_mut(arena, parent);
            // A child node has one slot, a bucket as many as the bits it does not share leave open.
            let slots = if shared == u32::MAX { 1 } else { 1usize << (u32::from(bytes[1]) - shared) };
            let live = get_u16(bytes, 2);
            put_u16(bytes, 2, live - slots);
            return;
        }
    }

    /// The bucket of a hash and the way to it; there is at least one bucket.
    #[inline]
    fn walk(&self, arena: &Arena, hash: u32) -> (Handle, Trail) {
        let none = IndexStep { node: Handle::NONE, slot: 0 };
        let mut trail = Trail { steps: [none; LEVELS_MAX], len: 0, above: 0, bits: 0 };
        let mut block = self.root;
        loop {
            let bytes = bytes_of(arena, block);
            if bytes[0] != NODE {
                return (block, trail);
            }
            let bits = u32::from(bytes[1]);
            let at = slot_of(hash, trail.bits, bits);
            trail.steps[trail.len] = IndexStep { node: block, slot: at };
            trail.len += 1;
            trail.above = trail.bits;
            trail.bits += bits;
            block = slot(bytes, at);
        }
    }

    /// Points the slots of the bucket at the end of a trail to `block`; it shares `shared` bits.
    fn point(&mut self, arena: &mut Arena, trail: &Trail, shared: u32, block: Handle) {
        let Some(level) = trail.len.checked_sub(1) else {
            self.root = block;
            return;
        };
        let IndexStep { node, slot } = trail.steps[level];
        let bytes = bytes_of_mut(arena, node);
        let open = u32::from(bytes[1]) - shared;
        let first = slot >> open << open;
        for at in first..first + (1 << open) {
            put_u32(bytes, HEAD + 4 * at, block.raw());
        }
    }

    /// Points the slot that leads to the last node of a trail to `block`.
    fn point_node(&mut self, arena: &mut Arena, trail: &Trail, block: Handle) {
        match trail.len.checked_sub(2) {
            None => self.root = block,
            Some(level) => {
                let IndexStep { node, slot } = trail.steps[level];
                put_u32(bytes_of_mut(arena, node), HEAD + 4 * slot, block.raw());
            }
        }
    }

    /// Splits a full bucket, and makes the slots that distinguish the halves. Errors: nothing is changed.
    fn split(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        full: Handle,
        trail: &Trail,
    ) -> Result<(), TreeFull> {
        let bucket = ScoreBucket::of(bytes_of(arena, full));
        let parent_bits = match trail.len {
            0 => 0,
            len => u32::from(bytes_of(arena, trail.steps[len - 1].node)[1]),
        };
        let branches = trail.len == 0 || (bucket.shared == parent_bits && parent_bits == BITS_MAX);
        let doubles = !branches && bucket.shared == parent_bits;
        let shared = if branches { 1 } else { bucket.shared + 1 };
        // The first bit of the hash that the entries do not share yet.
        let bit = 31 - if branches { trail.bits } else { trail.above + bucket.shared };
        let ones = {
            let bytes = bytes_of(arena, full);
            (0..bucket.len).filter(|&at| get_u32(bytes, HEAD + 4 * at) >> bit & 1 == 1).count()
        };
        let halves = [bucket.len - ones, ones].map(|len| len + len / 8 + 1);
        let zero = ScoreBucket::alloc(arena, owned, shared, halves[0])?;
        let one = match ScoreBucket::alloc(arena, owned, shared, halves[1]) {
            Ok(block) => block,
            Err(error) => {
                owned.free(arena, zero);
                return Err(error);
            }
        };
        let node_bits = if branches { Some(1) } else { doubles.then_some(parent_bits + 1) };
        let node = match node_bits.map(|bits| owned.alloc(arena, HEAD + (4 << bits))) {
            Some(Err(error)) => {
                owned.free(arena, zero);
                owned.free(arena, one);
                return Err(error);
            }
            Some(Ok(block)) => block,
            None => Handle::NONE,
        };
        for at in 0..bucket.len {
            let bytes = bytes_of(arena, full);
            let (hash, id) = (get_u32(bytes, HEAD + 4 * at), bucket.id(bytes, at));
            ScoreBucket::push(bytes_of_mut(arena, if hash >> bit & 1 == 1 { one } else { zero }), hash, id);
        }
        if branches {
            write_node(bytes_of_mut(arena, node), 1, |at| if at == 0 { zero } else { one });
            self.point(arena, trail, bucket.shared, node);
        } else {
            self.settle_halves(arena, owned, trail, node, [zero, one]);
        }
        owned.free(arena, full);
        Ok(())
    }

    /// Puts two halves of a bucket into the last node of a trail, or into `larger` in its place if that is a block.
    fn settle_halves(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        trail: &Trail,
        larger: Handle,
        halves: [Handle; 2],
    ) {
        let IndexStep { node, slot: at } = trail.steps[trail.len - 1];
        let mut home = node;
        let mut at = at;
        if !larger.is_none() {
            let (from, to) = two_of_mut(arena, node, larger);
            write_node(to, u32::from(from[1]) + 1, |at| slot(from, at / 2));
            self.point_node(arena, trail, larger);
            owned.free(arena, node);
            (home, at) = (larger, 2 * at);
        }
        let shared = u32::from(bytes_of(arena, halves[0])[1]);
        let bytes = bytes_of_mut(arena, home);
        let open = u32::from(bytes[1]) - shared;
        let first = at >> (open + 1) << (open + 1);
        for (half, block) in halves.into_iter().enumerate() {
            for at in 0..1 << open {
                put_u32(bytes, HEAD + 4 * (first + (half << open) + at), block.raw());
            }
        }
    }

    /// Joins the bucket of a hash with the other half it was split from, as long as both are nearly empty. Returns whether it did.
    fn join(&mut self, arena: &mut Arena, owned: &mut OwnedEntry, hash: u32) -> bool {
        let mut joined = false;
        loop {
            let (block, trail) = self.walk(arena, hash);
            let bucket = ScoreBucket::of(bytes_of(arena, block));
            let Some(level) = trail.len.checked_sub(1) else { return joined };
            let IndexStep { node, slot: at } = trail.steps[level];
            if bucket.shared == 0 {
                self.fold(arena, owned, &trail, block);
                joined = true;
                continue;
            }
            let open = u32::from(bytes_of(arena, node)[1]) - bucket.shared;
            let buddy = slot(bytes_of(arena, node), at ^ (1 << open));
            let bytes = bytes_of(arena, buddy);
            let other = ScoreBucket::of(bytes);
            if bytes[0] == NODE || other.shared != bucket.shared || bucket.len + other.len > LEN_MAX / 2 {
                return joined;
            }
            let len = bucket.len + other.len;
            // Joining only saves memory, so a full arena is no error here.
            let Ok(fresh) = ScoreBucket::alloc(arena, owned, bucket.shared - 1, len + len / 8 + 1) else {
                return joined;
            };
            ScoreBucket::copy(arena, block, fresh);
            ScoreBucket::copy(arena, buddy, fresh);
            self.point(arena, &trail, bucket.shared - 1, fresh);
            owned.free(arena, block);
            owned.free(arena, buddy);
            joined = true;
        }
    }

    /// Puts the only bucket of the last node of a trail in that node's place.
    fn fold(&mut self, arena: &mut Arena, owned: &mut OwnedEntry, trail: &Trail, block: Handle) {
        let shared = match trail.len.checked_sub(2) {
            None => 0,
            Some(level) => bytes_of(arena, trail.steps[level].node)[1],
        };
        bytes_of_mut(arena, block)[1] = shared;
        self.point_node(arena, trail, block);
        owned.free(arena, trail.steps[trail.len - 1].node);
    }
}

fn write_node(bytes: &mut [u8], bits: u32, child: impl Fn(usize) -> Handle) {
    bytes[0] = NODE;
    bytes[1] = bits as u8;
    put_u16(bytes, 2, 1 << bits);
    for at in 0..1 << bits {
        put_u32(bytes, HEAD + 4 * at, child(at).raw());
    }
}

#[inline(always)]
fn slot(bytes: &[u8], at: usize) -> Handle {
    Handle::from_raw(get_u32(bytes, HEAD + 4 * at))
}

/// The slot of a hash in a node of `bits` bits, below nodes that used up `used` (at most 31) bits.
#[inline(always)]
fn slot_of(hash: u32, used: u32, bits: u32) -> usize {
    ((hash << used) >> (32 - bits)) as usize
}

const NODE: u8 = 1;
/// Entries at which a bucket splits.
const LEN_MAX: usize = 63;
/// Most hash bits that a node distinguishes: 1,024 slots.
const BITS_MAX: u32 = 10;
/// 10 + 10 + 10 + 2 bits.
const LEVELS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use darter_base::rng::Rng;

    use super::*;

    /// Hashes as `kind` names them: even, in clusters, on bucket borders, or a few only.
    fn hash(rng: &mut Rng, kind: u64) -> u32 {
        let even = rng.next_u64() as u32;
        match kind {
            0 => even,
            1 => (even & 0xF000_0000) | rng.below(5_000) as u32,
            2 => even & 0xFFF0_0000,
            _ => 0xABCD_0000 + rng.below(3) as u32,
        }
    }

    fn check(index: &ZsetIndex, arena: &Arena, model: &BTreeMap<(u32, u32), u32>) {
        let mut seen = BTreeMap::<(u32, u32), u32>::new();
        let mut next = 0;
        while next >> 32 == 0 {
            let end = index.scan(arena, next as u32, |hash, id| {
                assert!(u64::from(hash) >= next);
                *seen.entry((hash, id)).or_default() += 1;
            });
            assert!(end > next && end <= 1 << 32);
            next = end;
        }
        assert_eq!(&seen, model);
        for &(hash, id) in model.keys() {
            assert_eq!(index.find(arena, hash, |found| (found == id).then_some(())), Some(()));
        }
    }

    #[test]
    fn entries_of_all_kinds_of_hashes_are_found_and_scanned() {
        for kind in 0..4 {
            let entries = if kind == 3 { 1_500 } else { 12_000 };
            let mut rng = Rng::new(kind);
            let mut arena = Arena::with_reserve(1 << 26).unwrap();
            let (mut index, mut owned) = (ZsetIndex::EMPTY, OwnedEntry::default());
            let mut model = BTreeMap::new();
            let mut all = Vec::new();
            for phase in 0..4 {
                for _ in 0..entries {
                    let grows = phase % 2 == 0 || rng.below(20) == 0;
                    if grows {
                        let (hash, id) = (hash(&mut rng, kind), rng.below(50) as u32);
                        index.insert(&mut arena, &mut owned, hash, id).unwrap();
                        *model.entry((hash, id)).or_insert(0) += 1;
                        all.push((hash, id));
                    } else if !all.is_empty() {
                        let at = rng.below(all.len() as u64) as usize;
                        let (hash, id) = all[at];
                        take(&mut model, (hash, id));
                        if rng.below(4) == 0 {
                            index.replace(&mut arena, hash, id, id + 100);
                            *model.entry((hash, id + 100)).or_insert(0) += 1;
                            all[at].1 = id + 100;
                        } else {
                            index.remove(&mut arena, &mut owned, hash, id);
                            all.swap_remove(at);
                        }
                    }
                }
                check(&index, &arena, &model);
                assert_eq!(owned.bytes(), arena.used_bytes());
            }
            for (hash, id) in all {
                index.remove(&mut arena, &mut owned, hash, id);
            }
            // Only the few blocks of an empty trie are left.
            assert!(owned.bytes() < 1_000, "{kind}: {}", owned.bytes());
            while !index.free_step(&mut arena, &mut owned, 3) {}
            assert_eq!((owned.bytes(), arena.used_bytes()), (0, 0));
        }
    }

    fn take(model: &mut BTreeMap<(u32, u32), u32>, entry: (u32, u32)) {
        let count = model.get_mut(&entry).unwrap();
        *count -= 1;
        if *count == 0 {
            model.remove(&entry);
        }
    }
}

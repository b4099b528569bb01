//! Splits and merges: how a table grows and shrinks, one pack at a time.
//!
//! Called after insertions and removals. Each split or merge touches two packs and one or two directory
//! nodes; when the arena has no room for one it is left for later, and packs stay larger or smaller.

use darter_slab::{Arena, Handle};

use super::directory::{Bytes, bit};
use super::{DEPTH_MAX, Table, place_of};
use crate::decimal::Digits;
use crate::pack::{LEN_MAX, Pack, PackFull, PackHead, WINDOW_STEP, fingerprint, window};

/// Two future packs of one.
struct GrowthPlan {
    /// Entries of the low and of the high half, by index.
    chosen: [[u8; LEN_MAX]; 2],
    lens: [usize; 2],
    /// Bytes of entries of each half.
    contents: [usize; 2],
}

impl Table {
    /// Splits the pack that holds `x` if it is too large and its entries differ in some bit of place.
    #[inline]
    pub(super) fn split_if_full(
        &mut self,
        arena: &mut Arena,
        x: u64,
        h: Handle,
        head: PackHead,
        hasher: &impl Fn(&[u8]) -> u64,
    ) {
        let is_full = head.len() > SPLIT_LEN || head.used() > SPLIT_BYTES && head.len() > SPLIT_LEN_MIN;
        if is_full && head.depth() < DEPTH_MAX {
            // Without room for a split the pack grows until it reaches its own limits.
            let _ = self.split(arena, x, h, hasher);
        }
    }

    #[inline(never)]
    fn split(
        &mut self,
        arena: &mut Arena,
        x: u64,
        h: Handle,
        hasher: &impl Fn(&[u8]) -> u64,
    ) -> Result<(), PackFull> {
        let pack = Pack::open(arena, h);
        let head = pack.head();
        let mut offsets = [0; LEN_MAX + 1];
        pack.offsets(self.kind, &mut offsets);
        let plan = GrowthPlan::new(&pack, &offsets);
        // Entries that arrive in the order of their places, for example from another table, are all in one half at
        // first. The other half then starts empty.
        if plan.lens.contains(&0) && head.len() <= ONE_SIDED_LEN {
            return Err(PackFull);
        }
        // Every other split keeps the fingerprints.
        let rehash = window(head.depth() + 1) != window(head.depth());
        let mut fps = [0; LEN_MAX];
        if rehash {
            self.rehash(arena, &pack, &offsets, &mut fps, hasher);
        } else {
            fps[..head.len()].copy_from_slice(pack.fingerprints());
        }
        let mut bytes = self.take_bytes();
        let halves = create_halves(arena, &mut bytes, head.depth() + 1, head.timed(), &plan);
        let result = halves.and_then(|halves| {
            let bound_ms = Pack::open(arena, h).min_expiry_ms();
            for (side, half) in halves.into_iter().enumerate() {
                Pack::append_chosen(arena, half, h, plan.chosen(side), &offsets, &fps);
                Pack::note_min_expiry(arena, half, bound_ms);
            }
            let result = self.directory.split(arena, &mut bytes, x, head.depth(), halves);
            match result {
                Ok(()) => bytes.free(arena, h),
                Err(PackFull) => halves.into_iter().for_each(|half| bytes.free(arena, half)),
            }
            result
        });
        self.put_bytes(bytes);
        result
    }

    /// Fingerprints of all entries of `pack` for packs one deeper.
    fn rehash(
        &self,
        arena: &Arena,
        pack: &Pack<'_>,
        offsets: &[u16; LEN_MAX + 1],
        fps: &mut [u8; LEN_MAX],
        hasher: &impl Fn(&[u8]) -> u64,
    ) {
        let mut digits = Digits::new();
        for (fp, &at) in fps.iter_mut().zip(&offsets[..pack.head().len()]) {
            let key = pack.entry(at as usize, self.kind, arena, &self.spill).key();
            *fp = fingerprint(place_of(hasher(key.text(&mut digits))), pack.head().depth() + 1);
        }
    }

    /// Joins the pack that holds `x` with its buddy while the two are small together.
    #[inline]
    pub(super) fn merge_if_small(&mut self, arena: &mut Arena, x: u64) {
        if self.len == 0 {
            self.clear(arena);
            return;
        }
        if self.directory.level == 0 {
            return;
        }
        while Pack::open(arena, self.directory.find(arena, x)).head().len() <= MERGE_LEN / 2 {
            if !self.merge(arena, x) {
                return;
            }
        }
    }

    /// Joins the pack that holds `x` with its buddy, if it has one and both are small; returns true if it did.
    fn merge(&mut self, arena: &mut Arena, x: u64) -> bool {
        let h = self.directory.find(arena, x);
        let depth = Pack::open(arena, h).head().depth();
        if !self.directory.has_buddy(arena, x, depth) {
            return false;
        }
        let side = bit(depth);
        let halves = [x & !side, x | side].map(|x| (x, self.directory.find(arena, x)));
        let packs = halves.map(|(_, h)| Pack::open(arena, h));
        let len = packs[0].head().len() + packs[1].head().len();
        let content = packs[0].content() + packs[1].content();
        let timed = packs[0].head().timed() || packs[1].head().timed();
        let is_large = len > MERGE_LEN || content > MERGE_BYTES && len > SPLIT_LEN_MIN / 2;
        if packs[0].head().depth() != packs[1].head().depth() || is_large {
            return false;
        }
        let room = Pack::block_bytes(len, timed, content);
        let Ok(joined) = Pack::create(arena, depth - 1, timed, room) else { return false };
        let mut bytes = self.take_bytes();
        bytes.0 += arena.size(joined);
        for (x, half) in halves {
            let (mut offsets, mut fps) = ([0; LEN_MAX + 1], [0; LEN_MAX]);
            let pack = Pack::open(arena, half);
            pack.offsets(self.kind, &mut offsets);
            for (fp, &old) in fps.iter_mut().zip(pack.fingerprints()) {
                *fp = shallower(x, depth, old);
            }
            let bound_ms = pack.min_expiry_ms();
            let all = &ALL[..pack.head().len()];
            Pack::append_chosen(arena, joined, half, all, &offsets, &fps);
            Pack::note_min_expiry(arena, joined, bound_ms);
        }
        self.directory.merge(arena, &mut bytes, x, depth, joined);
        for (_, half) in halves {
            bytes.free(arena, half);
        }
        self.put_bytes(bytes);
        true
    }
}

impl GrowthPlan {
    fn new(pack: &Pack<'_>, offsets: &[u16; LEN_MAX + 1]) -> GrowthPlan {
        let head = pack.head();
        // The bit of place that distinguishes the halves, as a bit of the fingerprints.
        let side_bit = 7 - (head.depth() - window(head.depth()));
        let mut plan = GrowthPlan { chosen: [[0; LEN_MAX]; 2], lens: [0; 2], contents: [0; 2] };
        for (index, fp) in pack.fingerprints().iter().enumerate() {
            let side = (fp >> side_bit & 1) as usize;
            plan.chosen[side][plan.lens[side]] = index as u8;
            plan.lens[side] += 1;
            plan.contents[side] += (offsets[index + 1] - offsets[index]) as usize;
        }
        plan
    }

    fn chosen(&self, side: usize) -> &[u8] {
        &self.chosen[side][..self.lens[side]]
    }
}

/// The fingerprint one level up of `fp` in the pack of `depth` that holds `x`. When the window moves, it includes
/// bits of the pack's own place again.
fn shallower(x: u64, depth: u32, fp: u8) -> u8 {
    if window(depth - 1) == window(depth) {
        return fp;
    }
    let known = fingerprint(x, depth - 1) & !(0xFF >> WINDOW_STEP);
    known | fp >> WINDOW_STEP
}

/// Two empty packs of `depth` with room for the planned entries.
fn create_halves(
    arena: &mut Arena,
    bytes: &mut Bytes,
    depth: u32,
    timed: bool,
    plan: &GrowthPlan,
) -> Result<[Handle; 2], PackFull> {
    let [low, high] = [0, 1].map(|side| Pack::block_bytes(plan.lens[side], timed, plan.contents[side]));
    let low = Pack::create(arena, depth, timed, low)?;
    let Ok(high) = Pack::create(arena, depth, timed, high) else {
        arena.free(low);
        return Err(PackFull);
    };
    bytes.0 += arena.size(low) + arena.size(high);
    Ok([low, high])
}

/// The indexes of all entries.
static ALL: [u8; LEN_MAX] = {
    let mut all = [0; LEN_MAX];
    let mut index = 0;
    while index < LEN_MAX {
        all[index] = index as u8;
        index += 1;
    }
    all
};
/// A pack of more entries is split.
const SPLIT_LEN: usize = 64;
/// A pack of more bytes is split if it has more than `SPLIT_LEN_MIN` entries. Packs of fewer entries would need more
/// directory slots than entries.
const SPLIT_BYTES: usize = 2048;
const SPLIT_LEN_MIN: usize = 8;
/// Up to this many entries may all be in one half by chance.
const ONE_SIDED_LEN: usize = 16;
/// Two buddies of no more entries and bytes together become one pack.
const MERGE_LEN: usize = 40;
const MERGE_BYTES: usize = 1280;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Item;
    use crate::pack::PackKind;
    use crate::table::FieldExpiry;

    fn hash(key: &[u8]) -> u64 {
        let spread = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        let h = key.iter().fold(7, spread);
        (h ^ h >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }

    fn filled(arena: &mut Arena, keys: &[Vec<u8>], value: &[u8]) -> Table {
        let mut table = Table::new(PackKind::KeysAndValues);
        for key in keys {
            table.insert(arena, hash(key), key, Item::of(value), FieldExpiry::Keep, &hash).expect("room");
        }
        table
    }

    #[test]
    fn entries_in_the_order_of_their_places_all_fit() {
        let mut arena = Arena::with_reserve(1 << 28).expect("address space");
        for (len, value_len) in [(100, 3), (3000, 3), (3000, 400), (60_000, 3)] {
            let value = vec![b'v'; value_len];
            let mut keys: Vec<Vec<u8>> = (0..len).map(|n| format!("key:{n}").into_bytes()).collect();
            let mut shuffled = filled(&mut arena, &keys, &value);
            keys.sort_by_key(|key| place_of(hash(key)));
            for _ in ["rising", "falling"] {
                let mut sorted = filled(&mut arena, &keys, &value);
                assert!(keys.iter().all(|key| sorted.contains(&arena, hash(key), key)));
                assert!(sorted.iter(&arena).count() == len && sorted.len() == len);
                let (bytes, random_bytes) = (sorted.bytes(), shuffled.bytes());
                assert!(bytes < random_bytes * 5 / 4, "{bytes} bytes, {random_bytes} in random order");
                sorted.clear(&mut arena);
                keys.reverse();
            }
            shuffled.clear(&mut arena);
            assert_eq!(arena.used_bytes(), 0);
        }
    }
}

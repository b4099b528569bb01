//! One cache line of the index: ten slots, each a tag, four bits and the handle of a record.

use crate::due::Due;
use darter_slab::Handle;

/// Slots in one line.
pub(crate) const SLOTS: usize = 10;
/// Bits of a slot's flags: how often the entry was hit, saturating.
pub(crate) const FREQUENCY: u8 = 0b0011;
/// Bit of a slot's flags: the entry is in the main part, no longer on probation.
pub(crate) const MAIN: u8 = 0b0100;
/// Bit of a slot's flags: the entry sits in the line after its home.
pub(crate) const DISPLACED: u8 = 0b1000;
/// Bits of `overflow`: which of the four stash lines may hold entries of this home.
pub(crate) const STASHED: u8 = 0x0f;
/// Bit of `overflow`: entries of this home are in the next line.
pub(crate) const NEXT: u8 = 0x10;
/// `overflow` of a home with seven or more entries in the stash: no longer counted, and some may be spilled.
pub(crate) const SATURATED: u8 = 0xef;
/// One entry in the stash, in `overflow`.
const ONE_STASHED: u8 = 0x20;
const ALL: u32 = (1 << SLOTS) - 1;
/// `DISPLACED` of every slot in the flags of a line.
const ALL_DISPLACED: u64 = 0x88_8888_8888;

/// A line. All zeros is an empty one.
#[derive(Copy, Clone)]
#[repr(C, align(64))]
pub(crate) struct IndexBucket {
    tags: [u8; SLOTS],
    // Four bits a slot, low half first: `FREQUENCY`, `MAIN`, `DISPLACED`.
    flags: [u8; SLOTS / 2],
    /// Other lines with entries of this home. In the stash: see `IndexSegment`.
    pub overflow: u8,
    handles: [Handle; SLOTS],
    /// No entry of the line expires before this.
    pub due: Due,
    /// The last snapshot that has written the entries of this home line; 0 if none has.
    pub written: u16,
    // Three planes of a bit a slot, the lowest first: the generation that the entry came with.
    ages: u32,
}

const _: () = assert!(size_of::<IndexBucket>() == 64);

/// For every generation, its bits in the planes of all slots.
const PLANES: [u32; 8] = {
    let mut planes = [0; 8];
    let mut age = 0;
    while age < 8 {
        let bits = age as u32;
        let first = (bits & 1) | (bits >> 1 & 1) << SLOTS | (bits >> 2) << (2 * SLOTS);
        planes[age] = first * ALL;
        age += 1;
    }
    planes
};
/// The first slot in all three planes.
const FIRST: u32 = 1 | 1 << SLOTS | 1 << (2 * SLOTS);

/// Slots of a line, as one bit in every four of its flags.
#[derive(Copy, Clone)]
pub(crate) struct BucketSlots(u64);

impl Iterator for BucketSlots {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let i = self.0.trailing_zeros() as usize / 4;
        self.0 &= self.0 - 1;
        Some(i)
    }
}

/// An entry on its way into a line.
#[derive(Copy, Clone)]
pub(crate) struct IndexEntry {
    pub handle: Handle,
    pub due: Due,
    pub tag: u8,
    pub flags: u8,
    pub age: u8,
}

impl IndexBucket {
    pub(crate) const EMPTY: IndexBucket = IndexBucket {
        tags: [0; SLOTS],
        flags: [0; SLOTS / 2],
        overflow: 0,
        handles: [Handle::NONE; SLOTS],
        due: Due::NEVER,
        written: 0,
        ages: 0,
    };

    /// The slots whose tag is `tag`, as bits.
    #[inline]
    pub(crate) fn matches(&self, tag: u8) -> u32 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 belongs to x86-64; the line is 64 bytes at a 64-byte boundary, so 16 of them can be loaded.
        let mask = unsafe {
            use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8};
            let line = _mm_load_si128(std::ptr::from_ref(self).cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(line, _mm_set1_epi8(tag as i8))) as u32
        };
        #[cfg(not(target_arch = "x86_64"))]
        let mask = self.tags.iter().rev().fold(0, |mask, &t| mask << 1 | u32::from(t == tag));
        mask & ALL
    }

    /// The slots in use, as bits.
    #[inline]
    pub(crate) fn occupied(&self) -> u32 {
        self.matches(0) ^ ALL
    }

    /// The first empty slot.
    #[inline]
    pub(crate) fn vacant(&self) -> Option<usize> {
        let empty = self.matches(0);
        (empty != 0).then(|| empty.trailing_zeros() as usize)
    }

    /// The slots that hold entries of the line before this one.
    #[inline]
    pub(crate) fn displaced(&self) -> BucketSlots {
        BucketSlots(self.displaced_bits())
    }

    /// The first entry at home of a full line.
    #[inline]
    pub(crate) fn first_at_home(&self) -> Option<usize> {
        BucketSlots(self.displaced_bits() ^ ALL_DISPLACED).next()
    }

    /// The slot of the first entry that belongs to the line before this one.
    #[inline]
    pub(crate) fn first_displaced(&self) -> Option<usize> {
        self.displaced().next()
    }

    #[inline]
    pub(crate) fn has_displaced(&self) -> bool {
        self.displaced_bits() != 0
    }

    #[inline]
    fn displaced_bits(&self) -> u64 {
        let [a, b, c, d, e] = self.flags;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]) & ALL_DISPLACED
    }

    /// The slots of entries in the main part, as bits.
    #[inline]
    pub(crate) fn main(&self) -> u32 {
        let [a, b, c, d, e] = self.flags;
        let nibbles = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]) >> 2 & 0x11_1111_1111;
        // Bits of neighbours side by side: two, then four, then all.
        let twos = (nibbles | nibbles >> 3) & 0x03_0303_0303;
        let fours = (twos | twos >> 6) & 0x0f_000f_000f;
        (fours | fours >> 12 | fours >> 24) as u32 & ALL
    }

    /// The slots, used or not, whose generation is `age`, 0..8, as bits.
    #[inline]
    pub(crate) fn aged(&self, age: u8) -> u32 {
        let same = !(self.ages ^ PLANES[usize::from(age & 7)]);
        same & same >> SLOTS & same >> (2 * SLOTS) & ALL
    }

    /// The generation that the entry of slot `i` came with, 0..8.
    #[inline]
    pub(crate) fn age(&self, i: usize) -> u8 {
        let planes = self.ages >> i;
        (planes & 1 | planes >> (SLOTS - 1) & 2 | planes >> (2 * SLOTS - 2) & 4) as u8
    }

    #[inline]
    pub(crate) fn set_age(&mut self, i: usize, age: u8) {
        let slot = FIRST << i;
        self.ages = self.ages & !slot | PLANES[usize::from(age & 7)] & slot;
    }

    #[inline]
    pub(crate) fn handle(&self, i: usize) -> Handle {
        self.handles[i]
    }

    #[inline]
    pub(crate) fn set_handle(&mut self, i: usize, handle: Handle) {
        self.handles[i] = handle;
    }

    #[inline]
    pub(crate) fn tag(&self, i: usize) -> u8 {
        self.tags[i]
    }

    #[inline]
    pub(crate) fn flags(&self, i: usize) -> u8 {
        self.flags[i / 2] >> ((i & 1) * 4) & 0xf
    }

    #[inline]
    pub(crate) fn set_flags(&mut self, i: usize, flags: u8) {
        let shift = (i & 1) * 4;
        let two = &mut self.flags[i / 2];
        *two = *two & !(0xf << shift) | flags << shift;
    }

    /// The entry of slot `i` with the line's bound, which is at most its own.
    #[inline]
    pub(crate) fn entry(&self, i: usize) -> IndexEntry {
        IndexEntry {
            handle: self.handles[i],
            due: self.due,
            tag: self.tags[i],
            flags: self.flags(i),
            age: self.age(i),
        }
    }

    /// Fills the empty slot `i`; `now` orders the bounds.
    #[inline]
    pub(crate) fn put(&mut self, i: usize, entry: IndexEntry, now: Due) {
        debug_assert!(self.tags[i] == 0 && entry.tag != 0);
        self.tags[i] = entry.tag;
        self.handles[i] = entry.handle;
        // The flags of an empty slot are zero.
        self.flags[i / 2] |= entry.flags << ((i & 1) * 4);
        self.set_age(i, entry.age);
        if entry.due != Due::NEVER {
            self.due = self.due.earlier(entry.due, now);
        }
    }

    /// Empties slot `i`.
    #[inline]
    pub(crate) fn take(&mut self, i: usize) -> IndexEntry {
        let entry = self.entry(i);
        self.tags[i] = 0;
        self.set_flags(i, 0);
        entry
    }

    /// Notes that an entry of this home went to stash line `line`, 0..4.
    pub(crate) fn count_stashed(&mut self, line: usize) {
        self.overflow |= 1 << line;
        if self.overflow < 7 * ONE_STASHED {
            self.overflow += ONE_STASHED;
        }
    }

    /// Notes that an entry of this home left the stash. A saturated count stays until the segment is rebuilt.
    pub(crate) fn uncount_stashed(&mut self) {
        if self.overflow < 7 * ONE_STASHED {
            debug_assert!(self.overflow >= ONE_STASHED);
            self.overflow = self.overflow.saturating_sub(ONE_STASHED);
            if self.overflow < ONE_STASHED {
                self.overflow &= NEXT;
            }
        }
    }
}

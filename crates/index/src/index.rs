//! The index itself: find, insert, remove, and the bits of one entry. Growth, scans and sweeps are beside it.

use crate::bucket::{FREQUENCY, IndexBucket, IndexEntry, MAIN, NEXT, SATURATED, STASHED};
use crate::due::Due;
use crate::hash;
use crate::past::PastIndex;
use crate::segment::{HOMES, IndexSegment, Spot, after};
use darter_slab::Handle;
use std::ptr::NonNull;

/// From hashes to handles. An empty one owns no memory; the first entry brings one 4 KiB segment.
pub struct Index {
    // Length 0 or 1 << (32 - shift). Entry i is the segment of all places p with p >> shift == i; a segment of depth d
    // fills 1 << (32 - shift - d) neighbouring entries. Each segment is a leaked box, owned by its entries together
    // and reachable through this table only.
    pub(crate) directory: Vec<NonNull<IndexSegment>>,
    // 32 - depth of the directory, 0..=32.
    pub(crate) shift: u8,
    pub(crate) len: usize,
    pub(crate) segments: usize,
    // Segments of the directory's full depth.
    pub(crate) deepest: usize,
    // Entries that fit nowhere: more than 60 of one home whose segment cannot usefully split.
    pub(crate) spill: Vec<Spilled>,
    // The latest time told, which orders expiry bounds.
    pub(crate) now: Due,
    // The place at which `merge_step` continues. Then the length at the last start of a round; 0 if the round is not
    // the last one.
    pub(crate) merge_at: u32,
    pub(crate) merge_round_len: usize,
    // No pair of segments can be merged unless there are fewer entries than this.
    pub(crate) merge_below: usize,
    // The running snapshot, which marks the homes it has written; 0 without one.
    pub(crate) epoch: u16,
    // The fingerprints of recently evicted entries, while eviction is by use.
    pub(crate) past: Option<PastIndex>,
    // Entries of the visited segments for which no victim was chosen yet.
    pub(crate) visited: u32,
}

/// Entries of one line whose tag is that of a hash; an iterator over their handles.
pub struct Probe<'a> {
    line: &'a IndexBucket,
    found: u32,
    // Of the handle given last.
    slot: usize,
}

impl Probe<'_> {
    /// Returns true if entries of this home may be elsewhere, where [`Index::find_away`] searches.
    #[inline(always)]
    pub fn overflows(&self) -> bool {
        self.line.overflow != 0
    }

    /// Returns true if another hit of the last returned entry would change nothing: see [`Index::touch`].
    #[inline(always)]
    pub fn is_hit_often(&self) -> bool {
        self.line.flags(self.slot) & FREQUENCY == FREQUENCY
    }
}

impl Iterator for Probe<'_> {
    type Item = Handle;

    #[inline(always)]
    fn next(&mut self) -> Option<Handle> {
        if self.found == 0 {
            return None;
        }
        self.slot = self.found.trailing_zeros() as usize;
        self.found &= self.found - 1;
        Some(self.line.handle(self.slot))
    }
}

/// The place of an entry, valid until the next call that inserts, removes or merges. A stale one names some other
/// slot of the same index, or none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IndexSlot {
    pub(crate) place: u32,
    // Line and slot, or `SPILLED` and a position in the spill.
    pub(crate) spot: Spot,
}

/// An entry outside the segments, with the hash that its home cannot tell.
#[derive(Copy, Clone)]
pub(crate) struct Spilled {
    pub hash: u64,
    pub entry: IndexEntry,
}

pub(crate) const SPILLED: u32 = 1 << 31;

// SAFETY: the segments belong to this value alone and hold plain numbers.
unsafe impl Send for Index {}
// SAFETY: `&Index` only reads.
unsafe impl Sync for Index {}

impl Index {
    /// An empty index; allocates nothing.
    pub const fn new() -> Index {
        Index {
            directory: Vec::new(),
            shift: 32,
            len: 0,
            segments: 0,
            deepest: 0,
            spill: Vec::new(),
            now: Due::NEVER,
            merge_at: 0,
            merge_round_len: 0,
            merge_below: 0,
            epoch: 0,
            past: None,
            visited: 0,
        }
    }

    /// Entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Places for entries in all segments.
    pub fn slots(&self) -> usize {
        self.segments * crate::segment::LINES * crate::bucket::SLOTS
    }

    /// Bytes of segments, directory and spill.
    pub fn bytes(&self) -> usize {
        self.past.as_ref().map_or(0, PastIndex::bytes)
            + self.segments * size_of::<IndexSegment>()
            + self.directory.capacity() * size_of::<NonNull<IndexSegment>>()
            + self.spill.capacity() * size_of::<Spilled>()
    }

    /// Prefetches the home line of `hash`. Cost: one directory load.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(segment) = self.segment(hash::place(hash)) {
            let line = &segment.lines[hash::home(hash)];
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch reads nothing and never faults.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = line;
        }
    }

    /// The handle that `find` would most likely look at first, so that the caller can prefetch its record.
    #[inline]
    pub fn find_handle(&self, hash: u64) -> Option<Handle> {
        let line = &self.segment(hash::place(hash))?.lines[hash::home(hash)];
        let found = line.matches(hash::tag(hash));
        (found != 0).then(|| line.handle(found.trailing_zeros() as usize))
    }

    /// The entry of `hash` for which `eq` returns true. `eq` is called once in 256 times for another key's record.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut eq: impl FnMut(Handle) -> bool) -> Option<IndexSlot> {
        let place = hash::place(hash);
        let segment = self.segment(place)?;
        let home = hash::home(hash);
        let line = &segment.lines[home];
        let mut found = line.matches(hash::tag(hash));
        while found != 0 {
            let i = found.trailing_zeros();
            if eq(line.handle(i as usize)) {
                return Some(IndexSlot { place, spot: home as u32 * 16 + i });
            }
            found &= found - 1;
        }
        if line.overflow == 0 { None } else { self.find_away(hash, eq) }
    }

    /// The handles that [`Index::find`] would try first, for callers that inline their comparison: those in the home
    /// line of `hash`. `None`: the index is empty.
    #[inline(always)]
    pub fn probe(&self, hash: u64) -> Option<Probe<'_>> {
        let segment = self.segment(hash::place(hash))?;
        let line = &segment.lines[hash::home(hash)];
        Some(Probe { line, found: line.matches(hash::tag(hash)), slot: 0 })
    }

    /// [`Index::probe`] for the line after the home line, which takes entries first if the home line is full. `None`
    /// if it has none of them.
    #[inline]
    pub fn probe_next(&self, hash: u64) -> Option<Probe<'_>> {
        let segment = self.segment(hash::place(hash))?;
        let home = hash::home(hash);
        if segment.lines[home].overflow & NEXT == 0 {
            return None;
        }
        let line = &segment.lines[after(home)];
        Some(Probe { line, found: line.matches(hash::tag(hash)), slot: 0 })
    }

    /// The handle of an entry.
    #[inline]
    pub fn handle(&self, s: IndexSlot) -> Handle {
        match self.segment(s.place) {
            Some(segment) if s.spot & SPILLED == 0 => segment.lines[line_of(s)].handle(slot_of(s)),
            _ => self
                .spill
                .get((s.spot & !SPILLED) as usize)
                .map_or(Handle::NONE, |spilled| spilled.entry.handle),
        }
    }

    /// Replaces an entry's handle, after its record has moved.
    #[inline]
    pub fn set_handle(&mut self, s: IndexSlot, h: Handle) {
        if s.spot & SPILLED != 0 {
            if let Some(spilled) = self.spill.get_mut((s.spot & !SPILLED) as usize) {
                spilled.entry.handle = h;
            }
        } else if let Some(segment) = self.segment_mut(s.place) {
            segment.lines[line_of(s)].set_handle(slot_of(s), h);
        }
    }

    /// Adds an entry that the caller knows to be absent. `hash_of` is asked for the hashes of other entries when
    /// their segment splits. Cost: a split every 300 inserts, about 600 calls of `hash_of`.
    #[inline]
    pub fn insert(&mut self, hash: u64, h: Handle, hash_of: impl FnMut(Handle) -> u64) -> IndexSlot {
        debug_assert!(!h.is_none());
        let place = hash::place(hash);
        let mut entry = IndexEntry { handle: h, due: Due::NEVER, tag: hash::tag(hash), flags: 0, age: 0 };
        if self.past.is_some() {
            self.stamp(hash, &mut entry);
        }
        let now = self.now;
        self.len += 1;
        if let Some(segment) = self.segment_mut(place)
            && let Some(spot) = segment.place(hash::home(hash), entry, now)
        {
            return IndexSlot { place, spot };
        }
        self.insert_growing(hash, entry, hash_of)
    }

    /// Removes an entry; `hash` is its hash. Returns its handle.
    #[inline]
    pub fn remove(&mut self, s: IndexSlot, hash: u64) -> Handle {
        if s.spot & SPILLED != 0 {
            let at = (s.spot & !SPILLED) as usize;
            if at >= self.spill.len() {
                return Handle::NONE;
            }
            self.len -= 1;
            return self.spill.swap_remove(at).entry.handle;
        }
        let Some((segment, past)) = self.segment_and_past(s.place) else { return Handle::NONE };
        let (line, i) = (line_of(s), slot_of(s));
        debug_assert_eq!(segment.lines[line].tag(i), hash::tag(hash), "not the hash of this entry");
        if segment.lines[line].tag(i) == 0 {
            return Handle::NONE;
        }
        let entry = segment.remove(line, i, hash::home(hash));
        if let Some(past) = past {
            past.count(segment, entry.flags & MAIN != 0, -1);
        }
        self.len -= 1;
        entry.handle
    }

    /// Counts a hit, up to three; the line is written only when that changes something.
    #[inline]
    pub fn touch(&mut self, s: IndexSlot) {
        self.change_flags(s, |flags| if flags & FREQUENCY < FREQUENCY { flags + 1 } else { flags });
    }

    /// Eviction rank of an entry, 0..=7: its hits, plus four in the main part.
    pub fn eviction_rank(&self, s: IndexSlot) -> u8 {
        match self.segment(s.place) {
            Some(segment) if s.spot & SPILLED == 0 => {
                segment.lines[line_of(s)].flags(slot_of(s)) & (FREQUENCY | MAIN)
            }
            _ => 0,
        }
    }

    /// Gives an entry a standing, 0..=7.
    pub fn set_standing(&mut self, s: IndexSlot, standing: u8) {
        let standing = standing & (FREQUENCY | MAIN);
        self.change_flags(s, |flags| flags & !(FREQUENCY | MAIN) | standing);
        if let Some((segment, Some(past))) = self.segment_and_past(s.place) {
            past.forget_queues(segment.past_id());
        }
    }

    /// Drops all entries and their memory. Cost: one free per segment.
    pub fn clear(&mut self) {
        let directory = std::mem::take(&mut self.directory);
        let mut at = 0;
        while let Some(segment) = directory.get(at) {
            // SAFETY: the directory entries of one segment are neighbours, as many as its depth leaves, so each
            // segment is taken once. The table that named it is already removed from `self`.
            let segment = unsafe { Box::from_raw(segment.as_ptr()) };
            at += 1 << (32 - self.shift - segment.depth());
        }
        self.spill = Vec::new();
        self.past = self.past.take().map(|_| PastIndex::default());
        (self.shift, self.len, self.segments, self.deepest, self.merge_at) = (32, 0, 0, 0, 0);
        (self.merge_round_len, self.merge_below) = (0, 0);
    }

    #[inline]
    pub(crate) fn segment(&self, place: u32) -> Option<&IndexSegment> {
        let segment = self.directory.get((u64::from(place) >> self.shift) as usize)?;
        // SAFETY: every entry of the directory is a live segment; `&self` keeps all of them from being changed.
        Some(unsafe { segment.as_ref() })
    }

    #[inline]
    pub(crate) fn segment_mut(&mut self, place: u32) -> Option<&mut IndexSegment> {
        let segment = self.directory.get_mut((u64::from(place) >> self.shift) as usize)?;
        // SAFETY: as `segment`; `&mut self` makes this the only borrow of any segment.
        Some(unsafe { segment.as_mut() })
    }

    /// A segment, and the fingerprints if eviction is by use.
    #[inline]
    pub(crate) fn segment_and_past(
        &mut self,
        place: u32,
    ) -> Option<(&mut IndexSegment, Option<&mut PastIndex>)> {
        let segment = self.directory.get_mut((u64::from(place) >> self.shift) as usize)?;
        // SAFETY: as `segment_mut`; `past` owns none of the segments.
        Some((unsafe { segment.as_mut() }, self.past.as_mut()))
    }

    /// The second part of [`Index::find`], for an entry that is not in its home line. Searches the next line, the
    /// stash and the spill, as far as the overflow marks of the home line require.
    #[inline(never)]
    pub fn find_away(&self, hash: u64, mut eq: impl FnMut(Handle) -> bool) -> Option<IndexSlot> {
        let place = hash::place(hash);
        let segment = self.segment(place)?;
        let (home, tag) = (hash::home(hash), hash::tag(hash));
        let overflow = segment.lines[home].overflow;
        let mut look = |line: usize| {
            let mut found = segment.lines[line].matches(tag);
            while found != 0 {
                let i = found.trailing_zeros();
                if eq(segment.lines[line].handle(i as usize)) {
                    return Some(IndexSlot { place, spot: line as u32 * 16 + i });
                }
                found &= found - 1;
            }
            None
        };
        if overflow & NEXT != 0
            && let Some(slot) = look(after(home))
        {
            return Some(slot);
        }
        let mut stashes = overflow & STASHED;
        while stashes != 0 {
            if let Some(slot) = look(HOMES + stashes.trailing_zeros() as usize) {
                return Some(slot);
            }
            stashes &= stashes - 1;
        }
        if overflow & SATURATED != SATURATED {
            return None;
        }
        let at = self.spill.iter().position(|spilled| spilled.hash == hash && eq(spilled.entry.handle))?;
        Some(IndexSlot { place, spot: SPILLED | at as u32 })
    }

    #[inline]
    fn change_flags(&mut self, s: IndexSlot, change: impl Fn(u8) -> u8) {
        if s.spot & SPILLED != 0 {
            return;
        }
        let Some(segment) = self.segment_mut(s.place) else { return };
        let line = &mut segment.lines[line_of(s)];
        let had = line.flags(slot_of(s));
        let flags = change(had);
        if flags != had {
            line.set_flags(slot_of(s), flags);
        }
    }
}

impl Default for Index {
    fn default() -> Index {
        Index::new()
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The line of a slot that is not spilled.
#[inline]
pub(crate) fn line_of(s: IndexSlot) -> usize {
    (s.spot >> 4) as usize & 63
}

/// The slot in its line.
#[inline]
pub(crate) fn slot_of(s: IndexSlot) -> usize {
    s.spot as usize & 15
}

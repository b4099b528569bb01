//! Growing and shrinking by one segment at a time.

use crate::bucket::{DISPLACED, IndexEntry, SATURATED, SLOTS};
#[cfg(test)]
use crate::bucket::{NEXT, STASHED};
use crate::due::Due;
use crate::hash;
use crate::index::{Index, IndexSlot, SPILLED, Spilled};
use crate::scan::span_of;
use crate::segment::{HOMES, IndexSegment, LINES, before};
use darter_slab::Handle;
use std::ptr::NonNull;

/// Two buddies are merged when they hold at most this many entries together, 40 % of one segment.
const MERGED_ENTRIES_MAX: usize = LINES * SLOTS * 2 / 5;
/// A full segment with fewer entries than this is full because of one home. Splitting it would double memory without
/// gain. With a seeded hash that does not happen by chance.
const SPLIT_ENTRIES_MIN: usize = LINES * SLOTS / 4;
/// The directory may have this many entries per segment, so that keys that share a long prefix cannot blow it up.
const DIRECTORY_PER_SEGMENT_MAX: usize = 16;
/// Entries per reserved segment: three quarters of its slots.
const RESERVED_PER_SEGMENT: usize = LINES * SLOTS * 3 / 4;
/// The directory may have this many entries in any case, 32 KiB. A snapshot loaded with the seed it was written with
/// brings keys in the order of their hashes, so that some segments reach full depth before the others exist.
const DIRECTORY_ALWAYS: usize = 4096;
/// No more than this many bits of segments are reserved: a billion entries.
const RESERVED_DEPTH_MAX: u32 = 21;
/// Segments looked at by one `merge_step`.
const MERGE_SEGMENTS_MAX: usize = 8;
/// If no pair can be merged, the search rests until this part of the entries has been removed.
const MERGE_AGAIN_PART: usize = 8;

impl Index {
    /// Merges one pair of neighbouring segments that became nearly empty, or frees the memory of an empty index.
    /// Returns true if it did; housekeeping then calls it again soon. Cost: examines at most 8 segments, and none
    /// unless an eighth of the entries was removed since the table last grew or a round found no pair.
    pub fn merge_step(&mut self, mut hash_of: impl FnMut(Handle) -> u64) -> bool {
        if self.len == 0 {
            let had = self.segments > 0;
            self.clear();
            return had;
        }
        for _ in 0..MERGE_SEGMENTS_MAX {
            if self.len >= self.merge_below {
                return false;
            }
            let Some(segment) = self.segment(self.merge_at) else { return false };
            let depth = segment.depth();
            let (start, end) = span_of(segment, self.merge_at);
            // Only the lower one of a pair is asked.
            let has_upper = depth > 0 && start >> (32 - depth) & 1 == 0;
            if has_upper && self.merge(start, depth, &mut hash_of) {
                return true;
            }
            self.merge_at = end as u32;
            if self.merge_at == 0 {
                self.end_merge_round();
            }
        }
        false
    }

    /// Ends a round over all pairs. If none of them was merged or has to wait, the search rests.
    fn end_merge_round(&mut self) {
        if self.merge_round_len > 0 {
            self.merge_below = merge_below(self.merge_round_len);
        }
        self.merge_round_len = self.len;
    }

    /// Makes segments for about `entries` entries together; does nothing unless the index is new.
    ///
    /// For loading: no segment splits meanwhile. Entries may come in the order of their hashes, which the guards
    /// would otherwise take for an attack. Cost: about 14 bytes for each entry, which the entries would take anyway.
    pub fn reserve(&mut self, entries: usize) {
        let wanted = entries.div_ceil(RESERVED_PER_SEGMENT).max(1);
        let depth = wanted.next_power_of_two().trailing_zeros();
        if !self.directory.is_empty() || self.epoch > 0 || depth == 0 || depth > RESERVED_DEPTH_MAX {
            return;
        }
        let segments = 1 << depth;
        self.directory = (0..segments).map(|_| leak(Box::new(IndexSegment::new(depth as u8)))).collect();
        (self.shift, self.segments, self.deepest) = (32 - depth as u8, segments, segments);
        self.merge_below = usize::MAX;
    }

    /// Adds an entry whose segment is full or does not exist yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn insert_growing(
        &mut self,
        hash: u64,
        entry: IndexEntry,
        mut hash_of: impl FnMut(Handle) -> u64,
    ) -> IndexSlot {
        let place = hash::place(hash);
        if self.directory.is_empty() {
            self.directory = vec![leak(Box::new(IndexSegment::new(0)))];
            (self.shift, self.segments, self.deepest) = (32, 1, 1);
        }
        loop {
            let now = self.now;
            if let Some(spot) =
                self.segment_mut(place).and_then(|segment| segment.place(hash::home(hash), entry, now))
            {
                return IndexSlot { place, spot };
            }
            // Each split makes one segment deeper and depth ends at 32, so this loop ends.
            if !self.split(place, &mut hash_of) {
                self.spill_entry(hash, entry);
                return IndexSlot { place, spot: SPILLED | (self.spill.len() - 1) as u32 };
            }
        }
    }

    /// Splits the segment of `place` in two. `false`: that would not help, and nothing changed.
    fn split(&mut self, place: u32, hash_of: &mut impl FnMut(Handle) -> u64) -> bool {
        let Some(segment) = self.segment(place) else { return false };
        let depth = segment.depth();
        if segment.count() < SPLIT_ENTRIES_MIN || !self.make_room(depth) {
            return false;
        }
        // All hashes first: independent loads of 600 records overlap, and nothing has changed if `hash_of` panics.
        let mut hashes = Vec::with_capacity(LINES * SLOTS);
        let Some(segment) = self.segment(place) else { return false };
        let past_id = segment.past_id();
        segment.each(|_, entry| hashes.push(hash_of(entry.handle)));
        let now = self.now;
        let bit = 31 - depth;
        let mut upper = Box::new(IndexSegment::new(depth + 1));
        upper.copy_marks(segment);
        upper.copy_generations(segment);
        if let Some(past) = &mut self.past {
            past.forget_queues(past_id);
            upper.set_past_id(past.copy(past_id));
        }
        let Some(lower) = self.segment_mut(place) else { return false };
        let homeless = lower.divide(&mut upper, bit, &hashes, now);
        self.point((place >> bit | 1) << bit, depth + 1, leak(upper));
        self.segments += 1;
        (self.merge_round_len, self.merge_below) = (0, self.merge_below.max(merge_below(self.len)));
        self.deepest += if 32 - self.shift == depth + 1 { 2 } else { 0 };
        for (hash, entry) in homeless {
            self.spill_entry(hash, entry);
        }
        self.settle_spill();
        true
    }

    /// Makes the directory deeper than `depth`. `false`: it would be too large for its segments.
    fn make_room(&mut self, depth: u8) -> bool {
        if depth < 32 - self.shift {
            return true;
        }
        let most = DIRECTORY_ALWAYS.max(DIRECTORY_PER_SEGMENT_MAX * (self.segments + 1));
        if self.shift == 0 || self.directory.len() * 2 > most {
            return false;
        }
        self.directory = self.directory.iter().flat_map(|&segment| [segment, segment]).collect();
        self.shift -= 1;
        self.deepest = 0;
        true
    }

    /// Merges the pair of segments of depth `depth` that starts at `start`, if both have that depth and are small.
    fn merge(&mut self, start: u32, depth: u8, hash_of: &mut impl FnMut(Handle) -> u64) -> bool {
        let upper_start = start | 1 << (32 - depth);
        let (Some(lower), Some(upper)) = (self.segment(start), self.segment(upper_start)) else {
            return false;
        };
        if lower.depth() != depth || upper.depth() != depth {
            return false;
        }
        if lower.count() + upper.count() > MERGED_ENTRIES_MAX {
            return false;
        }
        if self.epoch > 0 && !lower.has_marks_of(upper, self.epoch) {
            self.merge_round_len = 0;
            return false;
        }
        let mut merged = Box::new(IndexSegment::new(depth - 1));
        merged.copy_marks(lower);
        merged.copy_generations(lower);
        merged.set_past_id(lower.past_id());
        let past_id = upper.past_id();
        let mut fits = true;
        for segment in [lower, upper] {
            segment.each(|home, entry| {
                let home = home.unwrap_or_else(|| hash::home(hash_of(entry.handle)));
                fits &= merged.place(home, entry, self.now).is_some();
            });
        }
        if !fits {
            return false;
        }
        if let Some(past) = &mut self.past {
            past.drop(past_id);
            past.forget_queues(merged.past_id());
        }
        let (lower, upper) = (self.entry_of(start), self.entry_of(upper_start));
        self.point(start, depth - 1, leak(merged));
        // SAFETY: `point` replaced every directory entry of both segments; nothing else names them.
        drop(unsafe { (Box::from_raw(lower.as_ptr()), Box::from_raw(upper.as_ptr())) });
        self.segments -= 1;
        (self.merge_round_len, self.merge_below) = (0, usize::MAX);
        self.deepest -= if 32 - self.shift == depth { 2 } else { 0 };
        self.settle_spill();
        self.shrink_directory();
        true
    }

    /// Halves the directory while no segment needs its last bit.
    fn shrink_directory(&mut self) {
        while self.deepest == 0 && self.shift < 32 {
            self.directory = self.directory.iter().copied().step_by(2).collect();
            self.shift += 1;
            let depth = 32 - self.shift;
            // SAFETY: every entry of the directory is a live segment, borrowed here for one read.
            let is_deepest = |segment: &&NonNull<IndexSegment>| unsafe { segment.as_ref() }.depth() == depth;
            self.deepest = self.directory.iter().filter(is_deepest).count();
        }
    }

    /// Names `segment` in all directory entries of the range of depth `depth` that starts at `start`.
    fn point(&mut self, start: u32, depth: u8, segment: NonNull<IndexSegment>) {
        let first = (u64::from(start) >> self.shift) as usize;
        let count = 1 << (32 - self.shift - depth);
        self.directory[first..first + count].fill(segment);
    }

    fn entry_of(&self, place: u32) -> NonNull<IndexSegment> {
        self.directory[(u64::from(place) >> self.shift) as usize]
    }

    /// Keeps an entry outside the segments; a saturated count in its home marks this.
    fn spill_entry(&mut self, hash: u64, entry: IndexEntry) {
        if let Some(segment) = self.segment_mut(hash::place(hash)) {
            segment.lines[hash::home(hash)].overflow |= SATURATED;
        }
        self.spill.push(Spilled { hash, entry });
    }

    /// After a rebuild: puts spilled entries where there is room now, and marks the homes of the others again.
    fn settle_spill(&mut self) {
        for Spilled { hash, entry } in std::mem::take(&mut self.spill) {
            let now = self.now;
            let segment = self.segment_mut(hash::place(hash));
            if segment.and_then(|segment| segment.place(hash::home(hash), entry, now)).is_none() {
                self.spill_entry(hash, entry);
            }
        }
    }
}

impl IndexSegment {
    /// Moves the entries with bit `bit` of their place set to `upper` and moves entries to their home lines if they
    /// have room. Returns the entries that fit in neither, with their hashes. `hashes` are those of all entries in
    /// the order of `each`.
    fn divide(
        &mut self,
        upper: &mut IndexSegment,
        bit: u8,
        hashes: &[u64],
        now: Due,
    ) -> Vec<(u64, IndexEntry)> {
        let mut away = Vec::with_capacity(LINES * SLOTS / 4);
        let mut hashes = hashes.iter();
        for (at, line) in self.lines.iter_mut().enumerate() {
            let mut used = line.occupied();
            while used != 0 {
                let i = used.trailing_zeros() as usize;
                used &= used - 1;
                let Some(&hash) = hashes.next() else { continue };
                let is_upper = hash::place(hash) >> bit & 1 == 1;
                if at >= HOMES || line.flags(i) & DISPLACED != 0 {
                    let mut entry = line.take(i);
                    entry.flags &= !DISPLACED;
                    away.push((hash, entry));
                } else if is_upper {
                    let entry = line.take(i);
                    if upper.place(at, entry, now).is_none() {
                        away.push((hash, entry));
                    }
                }
            }
            if at < HOMES {
                line.overflow = 0;
            }
        }
        self.lines[HOMES].overflow = upper.depth();
        away.retain(|&(hash, entry)| {
            let to = if hash::place(hash) >> bit & 1 == 0 { &mut *self } else { &mut *upper };
            to.place(hash::home(hash), entry, now).is_none()
        });
        away
    }

    /// Calls `visit` with every entry, as if it were at home, and with its home unless it is in the stash.
    fn each(&self, mut visit: impl FnMut(Option<usize>, IndexEntry)) {
        for (at, line) in self.lines.iter().enumerate() {
            let mut used = line.occupied();
            while used != 0 {
                let mut entry = line.entry(used.trailing_zeros() as usize);
                used &= used - 1;
                let home = match entry.flags & DISPLACED {
                    _ if at >= HOMES => None,
                    0 => Some(at),
                    _ => Some(before(at)),
                };
                entry.flags &= !DISPLACED;
                visit(home, entry);
            }
        }
    }
}

#[cfg(test)]
impl Index {
    /// Checks the overflow marks of every line, and the directory against its segments.
    pub(crate) fn check_lines(&self, hash_of: impl Fn(Handle) -> u64) {
        let (mut place, mut len, mut segments, mut deepest) = (0, 0, 0, 0);
        while let Some(segment) = self.segment(place) {
            let (start, end) = span_of(segment, place);
            assert_eq!(start, place);
            for at in (start..(end - 1) as u32).step_by(1 << self.shift.min(31)) {
                assert!(std::ptr::eq(self.entry_of(at).as_ptr(), segment));
            }
            segment.check(start, end, &hash_of);
            len += segment.count();
            segments += 1;
            deepest += usize::from(segment.depth() == 32 - self.shift);
            let Ok(next) = u32::try_from(end) else { break };
            place = next;
        }
        assert_eq!((len + self.spill.len(), segments, deepest), (self.len, self.segments, self.deepest));
        for spilled in &self.spill {
            let segment = self.segment(hash::place(spilled.hash)).unwrap();
            assert_eq!(segment.lines[hash::home(spilled.hash)].overflow & SATURATED, SATURATED);
        }
    }
}

#[cfg(test)]
impl IndexSegment {
    fn check(&self, start: u32, end: u64, hash_of: impl Fn(Handle) -> u64) {
        let mut stashed = [0; HOMES];
        for (at, line) in self.lines.iter().enumerate() {
            let mut displaced = 0;
            for i in (0..SLOTS).filter(|i| line.occupied() >> i & 1 == 1) {
                let hash = hash_of(line.handle(i));
                let (home, place) = (hash::home(hash), hash::place(hash));
                assert!(place >= start && u64::from(place) < end && line.tag(i) == hash::tag(hash));
                if at >= HOMES {
                    assert!(self.lines[home].overflow >> (at - HOMES) & 1 == 1);
                    stashed[home] += 1;
                } else if line.flags(i) & DISPLACED == 0 {
                    assert_eq!(home, at);
                } else {
                    assert_eq!(home, before(at));
                    displaced += 1;
                }
            }
            for i in (0..SLOTS).filter(|i| line.occupied() >> i & 1 == 0) {
                assert_eq!((line.tag(i), line.flags(i)), (0, 0));
            }
            if at < HOMES {
                assert_eq!(self.lines[before(at)].overflow & NEXT != 0, displaced > 0);
            }
        }
        for (line, stashed) in self.lines.iter().zip(stashed) {
            let counted = line.overflow >> 5;
            assert!(counted == 7 || counted == stashed);
            assert!(counted > 0 || line.overflow & STASHED == 0);
        }
    }
}

/// The number of entries below which pairs are examined again, if no pair could be merged with `len` entries.
fn merge_below(len: usize) -> usize {
    len - len / MERGE_AGAIN_PART
}

fn leak(segment: Box<IndexSegment>) -> NonNull<IndexSegment> {
    NonNull::from(Box::leak(segment))
}

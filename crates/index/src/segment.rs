//! One page of the index: 60 home lines and 4 stash lines, and the rules where an entry may sit.

use crate::bucket::{DISPLACED, IndexBucket, IndexEntry, NEXT};
use crate::due::Due;

/// Home lines; the last one's neighbour is the first.
pub(crate) const HOMES: usize = 60;
/// Lines for entries that fit neither at home nor next to it.
pub(crate) const STASHES: usize = 4;
/// Lines that may each give an entry to the next to make room for one. Raises the fill at which a segment splits
/// from 0.946 to 0.963; four would give 0.977, for 30 instructions more per insert.
const PUSHES_MAX: u32 = 2;
/// All lines.
pub(crate) const LINES: usize = HOMES + STASHES;

/// A segment. The stash lines need no `overflow` of their own: the first one's holds the segment's depth.
#[repr(C)]
pub(crate) struct IndexSegment {
    pub lines: [IndexBucket; LINES],
}

/// Line and slot of an entry in its segment: `line * 16 + slot`.
pub(crate) type Spot = u32;

impl IndexSegment {
    pub(crate) fn new(depth: u8) -> IndexSegment {
        let mut segment = IndexSegment { lines: [IndexBucket::EMPTY; LINES] };
        segment.lines[HOMES].overflow = depth;
        segment
    }

    /// Number of leading bits of the place that all entries share.
    pub(crate) fn depth(&self) -> u8 {
        self.lines[HOMES].overflow
    }

    /// Entries in use. Cost: all 64 lines.
    pub(crate) fn count(&self) -> usize {
        self.lines.iter().map(|line| line.occupied().count_ones() as usize).sum()
    }

    /// Puts an entry at home, next to it (making room there if necessary) or into the stash. `None`: none had room.
    #[inline]
    pub(crate) fn place(&mut self, home: usize, entry: IndexEntry, now: Due) -> Option<Spot> {
        match self.lines[home].vacant() {
            Some(i) => Some(self.put(home, i, entry, now)),
            None => self.place_away(home, entry, now),
        }
    }

    #[inline(never)]
    fn place_away(&mut self, home: usize, mut entry: IndexEntry, now: Due) -> Option<Spot> {
        let next = after(home);
        if let Some(i) = self.lines[next].vacant().or_else(|| self.push_on(next, PUSHES_MAX, now)) {
            entry.flags |= DISPLACED;
            self.lines[home].overflow |= NEXT;
            return Some(self.put(next, i, entry, now));
        }
        if let Some(i) = self.push_back(home, now) {
            return Some(self.put(home, i, entry, now));
        }
        for stash in 0..STASHES {
            if let Some(i) = self.lines[HOMES + stash].vacant() {
                self.lines[home].count_stashed(stash);
                return Some(self.put(HOMES + stash, i, entry, now));
            }
        }
        None
    }

    /// Empties a slot. `home` is that of the entry.
    pub(crate) fn remove(&mut self, line: usize, i: usize, home: usize) -> IndexEntry {
        let entry = self.lines[line].take(i);
        if line >= HOMES {
            self.lines[home].uncount_stashed();
        } else if entry.flags & DISPLACED != 0 && !self.lines[line].has_displaced() {
            self.lines[before(line)].overflow &= !NEXT;
        }
        entry
    }

    /// Moves an entry that is at home in the full line `line` to the line after it, up to `pushes` lines in a row.
    /// Returns the slot that became free.
    fn push_on(&mut self, line: usize, pushes: u32, now: Due) -> Option<usize> {
        let next = after(line);
        let vacant = self.lines[next].vacant();
        let to = if pushes > 1 { vacant.or_else(|| self.push_on(next, pushes - 1, now)) } else { vacant }?;
        let from = self.lines[line].first_at_home()?;
        let mut entry = self.lines[line].take(from);
        entry.flags |= DISPLACED;
        self.lines[line].overflow |= NEXT;
        self.put(next, to, entry, now);
        Some(from)
    }

    /// Moves an entry that was displaced into the full line `line` back to its home; returns the slot that became
    /// free.
    fn push_back(&mut self, line: usize, now: Due) -> Option<usize> {
        let home = before(line);
        let to = self.lines[home].vacant()?;
        let from = self.lines[line].first_displaced()?;
        let mut entry = self.remove(line, from, home);
        entry.flags &= !DISPLACED;
        self.put(home, to, entry, now);
        Some(from)
    }

    #[inline]
    fn put(&mut self, line: usize, i: usize, entry: IndexEntry, now: Due) -> Spot {
        self.lines[line].put(i, entry, now);
        (line * 16 + i) as Spot
    }
}

/// The neighbour of a home line.
#[inline]
pub(crate) fn after(home: usize) -> usize {
    if home == HOMES - 1 { 0 } else { home + 1 }
}

/// The line before this home line.
#[inline]
pub(crate) fn before(home: usize) -> usize {
    if home == 0 { HOMES - 1 } else { home - 1 }
}

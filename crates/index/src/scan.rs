//! Walking the index from outside, a line at a time, with a cursor that needs no state; and random entries.

use crate::bucket::{NEXT, SATURATED, SLOTS, STASHED};
use crate::hash;
use crate::index::{Index, IndexSlot};
use crate::segment::{HOMES, IndexSegment, LINES, after};
use darter_slab::Handle;

/// The position of a scan or a sweep. 38 bits, the same in every index.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanPosition {
    pub(crate) line: u8,
    pub(crate) place: u32,
}

impl ScanPosition {
    /// Before the first entry.
    pub const START: ScanPosition = ScanPosition { line: 0, place: 0 };

    /// As a number, 0 for `START`, below 2^38.
    pub fn raw(self) -> u64 {
        u64::from(self.place) << 6 | u64::from(self.line)
    }

    /// The inverse of `raw`; higher bits are ignored. Any number is safe to scan from.
    pub fn from_raw(raw: u64) -> ScanPosition {
        ScanPosition { line: raw as u8 & 63, place: (raw >> 6) as u32 }
    }
}

impl Index {
    /// Emits every entry whose home is the line at `at`; returns the next position, `None` at the end.
    ///
    /// The order is by home line first and by hash within it, which splits and merges do not change: an entry that is
    /// present from `START` to the end is emitted exactly once, whatever happens in between. `hash_of` is asked for
    /// stashed entries, and for others only after a merge.
    pub fn scan(
        &self,
        at: ScanPosition,
        mut hash_of: impl FnMut(Handle) -> u64,
        mut emit: impl FnMut(Handle),
    ) -> Option<ScanPosition> {
        let home = usize::from(at.line);
        if home >= HOMES {
            return None;
        }
        let segment = self.segment(at.place)?;
        let (start, end) = span_of(segment, at.place);
        let mut emit_from_here = |h: Handle, hash: Option<u64>| {
            if start == at.place || hash::place(hash.unwrap_or_else(|| hash_of(h))) >= at.place {
                emit(h);
            }
        };
        segment.each_at_home(home, |h| emit_from_here(h, None));
        let overflow = segment.lines[home].overflow;
        if overflow & STASHED != 0 {
            segment.each_stashed(overflow, |h| {
                let hash = hash_of(h);
                if hash::home(hash) == home && hash::place(hash) >= at.place {
                    emit(h);
                }
            });
        }
        if overflow & SATURATED == SATURATED {
            for spilled in self.spill.iter().filter(|spilled| hash::home(spilled.hash) == home) {
                let place = hash::place(spilled.hash);
                if place >= at.place && u64::from(place) < end {
                    emit(spilled.entry.handle);
                }
            }
        }
        match u32::try_from(end) {
            Ok(place) => Some(ScanPosition { place, ..at }),
            Err(_) if home + 1 < HOMES => Some(ScanPosition { line: at.line + 1, place: 0 }),
            Err(_) => None,
        }
    }

    /// Emits every entry, segment by segment: the fastest full walk, when nothing changes in between.
    pub fn each(&self, mut emit: impl FnMut(Handle)) {
        let mut place = 0;
        while let Some(segment) = self.segment(place) {
            for line in &segment.lines {
                let mut used = line.occupied();
                while used != 0 {
                    emit(line.handle(used.trailing_zeros() as usize));
                    used &= used - 1;
                }
            }
            let Ok(end) = u32::try_from(span_of(segment, place).1) else { break };
            place = end;
        }
        self.spill.iter().for_each(|spilled| emit(spilled.entry.handle));
    }

    /// A random entry, all about equally likely; `random` is 64 random bits. `None`: the index is empty.
    pub fn sample(&self, random: u64) -> Option<IndexSlot> {
        if self.len == 0 {
            return None;
        }
        let mut bits = random;
        for _ in 0..SAMPLE_TRIES {
            let place = hash::place(bits);
            let spot = ((u64::from(bits as u32) * (LINES * SLOTS) as u64) >> 32) as usize;
            let (line, i) = (spot / SLOTS, spot % SLOTS);
            if self.segment(place)?.lines[line].occupied() >> i & 1 == 1 {
                return Some(IndexSlot { place, spot: (line * 16 + i) as u32 });
            }
            bits = next_random(bits);
        }
        self.sample_walking(hash::place(bits), bits as usize % LINES)
    }

    /// The first entry from a line on: sparse indexes only.
    fn sample_walking(&self, mut place: u32, first: usize) -> Option<IndexSlot> {
        for _ in 0..=self.segments {
            let segment = self.segment(place)?;
            for line in (first..LINES).chain(0..first) {
                let used = segment.lines[line].occupied();
                if used != 0 {
                    return Some(IndexSlot { place, spot: line as u32 * 16 + used.trailing_zeros() });
                }
            }
            place = u32::try_from(span_of(segment, place).1).unwrap_or(0);
        }
        // All that is left are spilled entries.
        (!self.spill.is_empty()).then_some(IndexSlot { place, spot: crate::index::SPILLED })
    }
}

impl IndexSegment {
    fn each_at_home(&self, home: usize, mut visit: impl FnMut(Handle)) {
        let line = &self.lines[home];
        let mut used = line.occupied();
        line.displaced().for_each(|i| used &= !(1 << i));
        while used != 0 {
            visit(line.handle(used.trailing_zeros() as usize));
            used &= used - 1;
        }
        if line.overflow & NEXT != 0 {
            let line = &self.lines[after(home)];
            line.displaced().for_each(|i| visit(line.handle(i)));
        }
    }

    fn each_stashed(&self, overflow: u8, mut visit: impl FnMut(Handle)) {
        for stash in (0..LINES - HOMES).filter(|stash| overflow >> stash & 1 == 1) {
            let line = &self.lines[HOMES + stash];
            let mut used = line.occupied();
            while used != 0 {
                visit(line.handle(used.trailing_zeros() as usize));
                used &= used - 1;
            }
        }
    }
}

/// First place of the segment that `place` is in, and the first one after it.
pub(crate) fn span_of(segment: &IndexSegment, place: u32) -> (u32, u64) {
    let places = 1_u64 << (32 - u32::from(segment.depth()));
    let start = u64::from(place) & !(places - 1);
    (start as u32, start + places)
}

/// Random slots tried before `sample` walks: at the fullest a try hits with 97 %, at the emptiest steady state 40 %.
const SAMPLE_TRIES: usize = 24;

/// One step of splitmix64.
fn next_random(bits: u64) -> u64 {
    let mut z = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

//! Choosing victims when memory is short: S3-FIFO within each segment.
//!
//! New entries are on probation. When it ends, entries with a hit move to the main part. The others are evicted and
//! leave a fingerprint. An entry whose fingerprint is found when it comes back starts in the main part. A hit moves
//! nothing: it counts in the entry's flags, up to three. Probation is first in, first out by the generation of an
//! entry, three bits in its line. The main part is a queue of generations too, in which entries with hits move to the
//! end.
//!
//! Called by `store` with a position that cycles through all segments. Nothing is removed here.

use crate::bucket::{FREQUENCY, IndexBucket, IndexEntry, MAIN};
use crate::hash;
use crate::index::{Index, IndexSlot, SPILLED, line_of, slot_of};
use crate::past::PastIndex;
use crate::scan::{ScanPosition, span_of};
use crate::segment::{HOMES, IndexSegment, LINES, Spot};
use darter_slab::Handle;

/// One victim is chosen per this many entries of the visited segments: two or three of a segment, one by one. Nine at
/// a time miss 3 % more if the cache holds a hundredth of the objects.
const VISITED: usize = 144;
/// Entries of the main part that are passed in one search: all of them once.
const STEPS_MAX: usize = 640;
/// Share of probation in 1/1,024 of a segment's entries, if no fingerprints are kept.
const PROBATION: usize = 102;
/// Generations that come while an entry is on probation. Eight can be told apart.
const PROBATION_GENERATIONS: usize = 5;
const GENERATIONS: u8 = 8;
/// Generations in which the main part is passed once.
const MAIN_GENERATIONS: usize = 6;
/// Entries that come to the main part between two checks of whether the generation after this one is used up.
const AGAIN_AFTER: u16 = 8;
/// Hits on probation that lead to the main part. Exact S3-FIFO asks for two; with the fewer ghosts kept here one is
/// better on every trace of the grid, by 2 % at 100,000 objects.
const PROMOTION_HITS: u8 = 1;

/// Parameters of eviction, derived from the evicted entries that came back.
#[derive(Clone, Copy)]
pub(crate) struct VictimMode {
    /// Entries on probation, in 1/1024 of all.
    pub probation: usize,
    /// A passed entry of the main part loses all its hits instead of one.
    pub is_fickle: bool,
}

impl VictimMode {
    const DEFAULT: VictimMode = VictimMode { probation: PROBATION, is_fickle: false };
}

/// The two queues of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Queues {
    young: VictimQueue,
    main: VictimQueue,
}

/// Entries on probation, or those of the main part, in the order of eviction: all of one generation, line by line,
/// then those of the next. Entries that move behind the hand meanwhile wait for another round.
#[derive(Clone, Copy)]
struct VictimQueue {
    len: u16,
    // The generation being evicted, and the next line to examine, or `UNKNOWN`.
    age: u8,
    line: u8,
}

const UNKNOWN: u8 = u8::MAX;

/// A line, and a slot of it.
type Place = (usize, usize);

impl Queues {
    /// Those of a segment that has changed otherwise than by one entry since they were counted.
    pub(crate) const UNKNOWN: Queues = {
        let queue = VictimQueue { len: 0, age: 0, line: UNKNOWN };
        Queues { young: queue, main: queue }
    };

    /// Those of a segment, from the oldest entries on. Cost: 64 lines.
    fn of(segment: &IndexSegment) -> Queues {
        let (mut used, mut main) = (0, 0);
        for line in &segment.lines {
            used += line.occupied().count_ones() as u16;
            main += line.main().count_ones() as u16;
        }
        let after = |generation: u8| (generation + 1) % GENERATIONS;
        Queues {
            young: VictimQueue { len: used - main, age: after(segment.lines[HOMES + 1].overflow), line: 0 },
            main: VictimQueue { len: main, age: after(segment.main_generation()), line: 0 },
        }
    }

    fn is_known(&self) -> bool {
        self.young.line != UNKNOWN
    }

    fn len(&self) -> usize {
        usize::from(self.young.len) + usize::from(self.main.len)
    }

    fn is_probation_full(&self, way: VictimMode) -> bool {
        usize::from(self.young.len) << 10 > self.len() * way.probation
    }

    /// An entry came or went.
    pub(crate) fn count(&mut self, is_main: bool, by: i16) {
        let is_known = self.is_known();
        let queue = if is_main { &mut self.main } else { &mut self.young };
        queue.len = if is_known { queue.len.saturating_add_signed(by) } else { 0 };
    }
}

impl VictimQueue {
    /// The next entry to evict; `part` returns the slots of the queue's entries in a line.
    #[inline]
    fn next(&mut self, lines: &[IndexBucket; LINES], part: impl Fn(&IndexBucket) -> u32) -> Option<Place> {
        // The first generation may have been begun in the middle: it comes once more in the end.
        for _ in 0..=GENERATIONS {
            while let Some(line) = lines.get(usize::from(self.line)) {
                let aged = line.aged(self.age);
                if aged != 0 && aged & part(line) != 0 {
                    return Some((self.line.into(), (aged & part(line)).trailing_zeros() as usize));
                }
                self.line += 1;
            }
            self.line = 0;
            self.age = (self.age + 1) % GENERATIONS;
        }
        None
    }
}

impl Index {
    /// Starts or stops counting generations and keeping fingerprints. [`Index::choose`] works without them, but
    /// worse. Cost: a visit of each segment when it stops.
    pub fn remember(&mut self, on: bool) {
        if on == self.past.is_some() {
            return;
        }
        self.past = on.then(PastIndex::default);
        let mut place = 0;
        while let Some(segment) = self.segment_mut(place) {
            segment.forget_past();
            let Ok(next) = u32::try_from(span_of(segment, place).1) else { break };
            place = next;
        }
    }

    /// Notes that the entry at `s` is about to be evicted; `hash` is its hash.
    pub fn note_eviction(&mut self, s: IndexSlot, hash: u64) {
        if s.spot & SPILLED != 0 {
            return;
        }
        let Some((segment, Some(past))) = self.segment_and_past(s.place) else { return };
        let is_main = segment.lines[line_of(s)].flags(slot_of(s)) & MAIN != 0;
        past.put(segment, hash, is_main);
    }

    /// Visits the segment at `at` and names the entry that is least likely to be used again, if one may be removed.
    /// The caller removes it before the next call. Returns the next position, `START` after the end.
    ///
    /// `may_go` returns true if an entry may be removed. Cost: some ten lines of a filled segment.
    pub fn choose(
        &mut self,
        at: ScanPosition,
        mut may_go: impl FnMut(Handle) -> bool,
        chosen: &mut Vec<IndexSlot>,
    ) -> ScanPosition {
        if at == ScanPosition::START {
            let spilled = self.spill.iter().position(|spilled| may_go(spilled.entry.handle));
            chosen.extend(spilled.map(|i| IndexSlot { place: 0, spot: SPILLED | i as u32 }));
        }
        let part = (self.len / self.segments.max(1)).clamp(1, VISITED);
        let mut visited = self.visited as usize;
        let Some((segment, mut past)) = self.segment_and_past(at.place) else { return ScanPosition::START };
        let way = past.as_ref().map_or(VictimMode::DEFAULT, |past| past.way());
        // A segment that remembers nothing, a small one, is counted at each visit.
        let mut counted = Queues::UNKNOWN;
        let queues = past.as_mut().and_then(|past| past.queues(segment)).unwrap_or(&mut counted);
        if !queues.is_known() {
            *queues = Queues::of(segment);
        }
        visited += if at.line == 0 { queues.len() } else { 0 };
        let spot = if visited < part { None } else { segment.choose(way, queues, &mut may_go) };
        visited -= if spot.is_some() { part } else { 0 };
        let end = span_of(segment, at.place).1;
        chosen.extend(spot.map(|spot| IndexSlot { place: at.place, spot }));
        // If no entry may be removed, the visited entries are not counted for the segments that follow.
        self.visited = if spot.is_some() { visited } else { visited.min(part) } as u32;
        if spot.is_some() && visited >= part {
            return ScanPosition { line: 1, ..at };
        }
        u32::try_from(end).map_or(ScanPosition::START, |place| ScanPosition { line: 0, place })
    }

    /// Sets the fields of a new entry that eviction uses.
    #[inline(never)]
    pub(crate) fn stamp(&mut self, hash: u64, entry: &mut IndexEntry) {
        let Some((segment, Some(past))) = self.segment_and_past(hash::place(hash)) else { return };
        let is_main = past.take(segment, hash);
        if is_main {
            entry.flags |= MAIN;
            entry.age = segment.come_to_main();
        } else {
            entry.age = segment.next_generation();
        }
        past.count(segment, is_main, 1);
    }
}

/// The stash lines need no `overflow` and no `written` of their own. The first one's `overflow` is the depth.
impl IndexSegment {
    /// The generation of an entry that comes now; counts it.
    fn next_generation(&mut self) -> u8 {
        let left = &mut self.lines[HOMES + 2].overflow;
        if *left > 0 {
            *left -= 1;
        } else {
            *left = self.lines[HOMES + 3].written as u8;
            let generation = &mut self.lines[HOMES + 1].overflow;
            *generation = (*generation + 1) % GENERATIONS;
        }
        self.lines[HOMES + 1].overflow
    }

    /// The number under which the segment's fingerprints are kept.
    pub(crate) fn past_id(&self) -> Option<u32> {
        let number =
            u32::from(self.lines[HOMES + 1].written) | u32::from(self.lines[HOMES + 2].written) << 16;
        number.checked_sub(1)
    }

    pub(crate) fn set_past_id(&mut self, id: Option<u32>) {
        let number = id.map_or(0, |id| id + 1);
        self.lines[HOMES + 1].written = number as u16;
        self.lines[HOMES + 2].written = (number >> 16) as u16;
    }

    /// The generation of those that come to the main part now.
    fn main_generation(&self) -> u8 {
        // Below, the generation; above, how many come before the next one begins.
        (self.lines[HOMES].written % u16::from(GENERATIONS)) as u8
    }

    /// The generation of an entry that comes to the main part now; counts it.
    fn come_to_main(&mut self) -> u8 {
        let main = &mut self.lines[HOMES].written;
        *main -= if *main >= GENERATIONS.into() { GENERATIONS.into() } else { 0 };
        self.main_generation()
    }

    /// Takes over generations and pace from another segment, but not its fingerprints.
    pub(crate) fn copy_generations(&mut self, from: &IndexSegment) {
        for stash in 1..LINES - HOMES {
            self.lines[HOMES + stash].overflow = from.lines[HOMES + stash].overflow;
        }
        self.lines[HOMES + 3].written = from.lines[HOMES + 3].written;
        self.lines[HOMES].written = from.lines[HOMES].written;
    }

    fn forget_past(&mut self) {
        self.set_past_id(None);
    }

    /// The next entry to evict.
    fn choose(
        &mut self,
        way: VictimMode,
        queues: &mut Queues,
        may_go: &mut impl FnMut(Handle) -> bool,
    ) -> Option<Spot> {
        let probation = (queues.len() * way.probation) >> 10;
        self.lines[HOMES + 3].written = (probation / PROBATION_GENERATIONS).min(255) as u16;
        loop {
            if !queues.is_probation_full(way)
                && let Some(place) = self.next_in_main(way, queues, may_go)
            {
                return Some(spot(place));
            }
            let next = queues.young.next(&self.lines, |line| line.occupied() & !line.main());
            let Some((at, i)) = next else {
                *queues = Queues::of(self);
                return self.next_in_main(way, queues, may_go).map(spot);
            };
            let line = &mut self.lines[at];
            let flags = line.flags(i);
            if flags & FREQUENCY < PROMOTION_HITS && may_go(line.handle(i)) {
                return Some(spot((at, i)));
            }
            line.set_flags(i, flags & !FREQUENCY | MAIN);
            self.pass(queues, (at, i));
            queues.count(false, -1);
            queues.count(true, 1);
        }
    }

    /// The oldest entry of the main part without a hit since it came there or was passed. Entries with hits are
    /// passed: each loses a hit and gets the newest generation.
    fn next_in_main(
        &mut self,
        way: VictimMode,
        queues: &mut Queues,
        may_go: &mut impl FnMut(Handle) -> bool,
    ) -> Option<Place> {
        if queues.main.len == 0 {
            return None;
        }
        for _ in 0..STEPS_MAX {
            let (at, i) = queues.main.next(&self.lines, IndexBucket::main)?;
            let line = &mut self.lines[at];
            let flags = line.flags(i);
            if flags & FREQUENCY == 0 && may_go(line.handle(i)) {
                return Some((at, i));
            }
            line.set_flags(
                i,
                flags - if way.is_fickle { flags & FREQUENCY } else { (flags & FREQUENCY).min(1) },
            );
            self.pass(queues, (at, i));
        }
        None
    }

    /// Gives an entry of the main part the latest generation.
    fn pass(&mut self, queues: &Queues, (at, i): Place) {
        let (generation, oldest) = (self.main_generation(), queues.main.age);
        let next = (generation + 1) % GENERATIONS;
        let is_full = self.lines[HOMES].written < GENERATIONS.into();
        // The generation being evicted must not get new entries: older ones would be taken for young.
        if generation == oldest || is_full && next != oldest {
            let comes = (queues.main.len / MAIN_GENERATIONS as u16).max(1);
            self.lines[HOMES].written = u16::from(next) + comes * u16::from(GENERATIONS);
        } else if is_full {
            self.lines[HOMES].written += AGAIN_AFTER * u16::from(GENERATIONS);
        }
        let generation = self.come_to_main();
        self.lines[at].set_age(i, generation);
    }
}

fn spot((at, i): Place) -> Spot {
    (at * 16 + i) as Spot
}

#[cfg(test)]
mod tests;

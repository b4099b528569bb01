//! Choosing what goes when memory is short: S3-FIFO within each segment.
//!
//! New entries are on probation; those that were hit by the time it ends move to the main part, the others go
//! and leave a fingerprint behind, by which they are known should they come back soon: then they are in the main part
//! from the start. A hit moves nothing: it counts in the entry's flags, up to three. Probation is first in, first out
//! by the generation that an entry came with, three bits in its line; the main part is a queue of generations too, in
//! which what was hit goes to the end.
//!
//! Called by `store` with a position that goes round all segments. Nothing is removed here.

use crate::bucket::{Entry, FREQUENCY, MAIN, SLOTS};
use crate::hash;
use crate::index::{Index, SPILLED, Slot, line_of, slot_of};
use crate::past::Past;
use crate::scan::{Position, span_of};
use crate::segment::{HOMES, LINES, Segment};
use darter_slab::Handle;

/// Of the entries of a segment, one in this many goes in one visit: about three. Fewer visits that take more cost less,
/// and 3 % more misses where the cache is a hundredth of the objects.
const VISIT_PART: usize = 144;
/// Of the entries of a segment, so many of 1,024 are on probation where nothing is remembered.
const PROBATION: usize = 102;
/// Generations that come while an entry is on probation. Eight can be told apart.
const PROBATION_GENERATIONS: usize = 5;
const GENERATIONS: u8 = 8;
/// Generations in which the main part is passed once.
const MAIN_GENERATIONS: usize = 6;
/// Hits on probation that lead to the main part. Exact S3-FIFO asks for two; with the fewer ghosts kept here one is
/// better on every trace of the grid, by 2 % at 100,000 objects.
const PROMOTION_HITS: u8 = 1;

/// How victims are chosen, by what came back of earlier ones.
#[derive(Clone, Copy)]
struct Way {
    /// Entries on probation, in 1/1024 of all.
    probation: usize,
    /// An entry of the main part that is passed loses all its hits, not one.
    is_fickle: bool,
}

impl Way {
    const DEFAULT: Way = Way { probation: PROBATION, is_fickle: false };
}

/// How many entries there are of each generation.
type Ages = [usize; GENERATIONS as usize];

/// An entry on probation: how many generations ago it came, and where it is.
type Candidate = (u8, u32);

impl Index {
    /// Starts or stops counting generations and remembering what has gone: [`Index::choose`] works without, but
    /// worse. Cost: a look at each segment when it stops.
    pub fn remember(&mut self, on: bool) {
        if on == self.past.is_some() {
            return;
        }
        self.past = on.then(Past::default);
        let mut place = 0;
        while let Some(segment) = self.segment_mut(place) {
            segment.forget_past();
            let Ok(next) = u32::try_from(span_of(segment, place).1) else { break };
            place = next;
        }
    }

    /// Notes that the entry at `s` is about to be evicted; `hash` is its hash.
    pub fn note_eviction(&mut self, s: Slot, hash: u64) {
        if s.spot & SPILLED != 0 {
            return;
        }
        let Index { past: Some(past), directory, shift, .. } = self else { return };
        let Some(segment) = directory.get_mut((u64::from(s.place) >> *shift) as usize) else { return };
        // SAFETY: as `Index::segment_mut`: the directory names live segments, and `self` is borrowed as a whole.
        let segment = unsafe { segment.as_mut() };
        let is_main = segment.lines[line_of(s)].flags(slot_of(s)) & MAIN != 0;
        past.put(segment, hash, is_main);
    }

    /// Visits the segment at `at` and names some of its entries for removal, those least likely to be asked for again;
    /// the caller removes all of them before it inserts or merges. Returns where to go on, `START` after the end.
    ///
    /// `may_go` says of an entry whether it may be removed at all. Cost: a segment's 64 lines.
    pub fn choose(
        &mut self,
        at: Position,
        mut may_go: impl FnMut(Handle) -> bool,
        chosen: &mut Vec<Slot>,
    ) -> Position {
        if at == Position::START {
            let spilled = self.spill.iter().position(|spilled| may_go(spilled.entry.handle));
            chosen.extend(spilled.map(|i| Slot { place: 0, spot: SPILLED | i as u32 }));
        }
        let way = self
            .past
            .as_ref()
            .map_or(Way::DEFAULT, |past| Way { probation: past.probation(), is_fickle: past.is_fickle() });
        let Some(segment) = self.segment_mut(at.place) else { return Position::START };
        chosen
            .extend(segment.choose(way, &mut may_go).into_iter().map(|spot| Slot { place: at.place, spot }));
        u32::try_from(span_of(segment, at.place).1)
            .map_or(Position::START, |place| Position { line: 0, place })
    }

    /// Gives an entry on its way in what eviction wants to know of it.
    #[inline(never)]
    pub(crate) fn stamp(&mut self, hash: u64, entry: &mut Entry) {
        let Index { past: Some(past), directory, shift, .. } = self else { return };
        let Some(segment) = directory.get_mut((u64::from(hash::place(hash)) >> *shift) as usize) else {
            return;
        };
        // SAFETY: as `note_eviction`.
        let segment = unsafe { segment.as_mut() };
        if past.take(segment, hash) {
            entry.flags |= MAIN;
            entry.age = segment.main_generation();
        } else {
            entry.age = segment.next_generation();
        }
    }
}

/// The stash lines need no `overflow` and no `written` of their own. The first one's `overflow` is the depth.
impl Segment {
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

    /// The generation of an entry that comes to the main part now.
    fn main_generation(&self) -> u8 {
        self.lines[HOMES].written as u8
    }

    /// Takes over generation, hand and pace from another segment, but not its fingerprints.
    pub(crate) fn copy_clock(&mut self, from: &Segment) {
        for stash in 1..LINES - HOMES {
            self.lines[HOMES + stash].overflow = from.lines[HOMES + stash].overflow;
        }
        self.lines[HOMES + 3].written = from.lines[HOMES + 3].written;
        self.lines[HOMES].written = from.lines[HOMES].written;
    }

    fn forget_past(&mut self) {
        self.set_past_id(None);
    }

    fn choose(&mut self, way: Way, may_go: &mut impl FnMut(Handle) -> bool) -> Vec<u32> {
        let mut unsorted: Vec<Candidate> = Vec::with_capacity(LINES * SLOTS);
        let mut by_age = Ages::default();
        let mut main = Ages::default();
        let generation = self.lines[HOMES + 1].overflow;
        for (at, line) in self.lines.iter().enumerate() {
            let mut used = line.occupied();
            let is_main = line.main();
            while used != 0 {
                let i = used.trailing_zeros();
                used &= used - 1;
                let age = line.age(i as usize);
                if is_main >> i & 1 == 1 {
                    main[usize::from(age)] += 1;
                    continue;
                }
                let age = generation.wrapping_sub(age) % GENERATIONS;
                unsorted.push((age, at as u32 * 16 + i));
                by_age[usize::from(age)] += 1;
            }
        }
        let mut count = unsorted.len() + main.iter().sum::<usize>();
        let mut probation = sorted(&unsorted, by_age);
        let probation_len = (count * way.probation) >> 10;
        let pace = (probation_len / PROBATION_GENERATIONS).min(255) as u16;
        self.lines[HOMES + 3].written = pace;
        let mut left = count.div_ceil(VISIT_PART);
        let mut steps = LINES * SLOTS;
        let mut chosen = Vec::with_capacity(left);
        while left > 0 {
            let is_main_empty = probation.len() == count;
            let spot = if probation.len() > probation_len || is_main_empty {
                None
            } else {
                self.next_in_main(way, &mut main, &chosen, &mut steps, may_go)
            };
            let spot = match (spot, probation.pop()) {
                (Some(spot), young) => {
                    probation.extend(young);
                    spot
                }
                (None, Some(spot)) if self.is_to_stay(spot, may_go) => {
                    main[usize::from(self.main_generation())] += 1;
                    continue;
                }
                (None, Some(spot)) => spot,
                (None, None) => break,
            };
            chosen.push(spot);
            count -= 1;
            left -= 1;
        }
        chosen
    }

    /// Whether an entry at the end of its probation stays; it is in the main part then.
    fn is_to_stay(&mut self, spot: u32, may_go: &mut impl FnMut(Handle) -> bool) -> bool {
        let generation = self.main_generation();
        let (line, i) = (&mut self.lines[(spot >> 4) as usize & 63], (spot & 15) as usize);
        let flags = line.flags(i);
        let stays = flags & FREQUENCY >= PROMOTION_HITS || !may_go(line.handle(i));
        if stays {
            line.set_flags(i, flags & !FREQUENCY | MAIN);
            line.set_age(i, generation);
        }
        stays
    }

    /// The oldest entry of the main part that was not hit since it came there or was passed; those that were are
    /// passed, each for a hit, and are young again. `main` counts entries by their generation; every entry that is
    /// passed is one of `steps`.
    fn next_in_main(
        &mut self,
        way: Way,
        main: &mut Ages,
        chosen: &[u32],
        steps: &mut usize,
        may_go: &mut impl FnMut(Handle) -> bool,
    ) -> Option<u32> {
        while *steps > 0 {
            let generation = self.advance(main);
            let oldest = (1..=GENERATIONS)
                .map(|age| (generation + age) % GENERATIONS)
                .find(|&age| main[usize::from(age)] > 0)?;
            let spot = self.next_of(oldest, chosen)?;
            let (line, i) = (&mut self.lines[(spot >> 4) as usize & 63], (spot & 15) as usize);
            let flags = line.flags(i);
            main[usize::from(oldest)] -= 1;
            if flags & FREQUENCY == 0 && may_go(line.handle(i)) {
                return Some(spot);
            }
            let taken = if way.is_fickle { flags & FREQUENCY } else { (flags & FREQUENCY).min(1) };
            line.set_flags(i, flags - taken);
            line.set_age(i, generation);
            main[usize::from(generation)] += 1;
            *steps -= 1;
        }
        None
    }

    /// Begins another generation of the main part when the last one is large enough; returns the one that counts.
    fn advance(&mut self, main: &Ages) -> u8 {
        let generation = self.main_generation() % GENERATIONS;
        let next = (generation + 1) % GENERATIONS;
        let len: usize = main.iter().sum();
        let is_full = main[usize::from(generation)] > len / MAIN_GENERATIONS;
        if !is_full || main[usize::from(next)] > 0 {
            return generation;
        }
        self.lines[HOMES].written = u16::from(next);
        next
    }

    /// An entry of the main part with this generation, the next from where the hand is.
    fn next_of(&mut self, generation: u8, chosen: &[u32]) -> Option<u32> {
        let hand = usize::from(self.lines[HOMES + 3].overflow);
        for step in 0..LINES {
            let at = (hand + step) % LINES;
            let line = &self.lines[at];
            let mut main = line.occupied() & line.main();
            while main != 0 {
                let i = main.trailing_zeros() as usize;
                main &= main - 1;
                let spot = at as u32 * 16 + i as u32;
                if line.age(i) == generation && !chosen.contains(&spot) {
                    self.lines[HOMES + 3].overflow = at as u8;
                    return Some(spot);
                }
            }
        }
        None
    }
}

/// The places of entries on probation, the oldest last; `by_age` says how many there are of each age.
fn sorted(unsorted: &[Candidate], by_age: Ages) -> Vec<u32> {
    let mut next = 0;
    let mut ends = by_age.map(|len| {
        next += len;
        next - len
    });
    let mut places = vec![0; unsorted.len()];
    for &(age, spot) in unsorted {
        let end = &mut ends[usize::from(age)];
        places[*end] = spot;
        *end += 1;
    }
    places
}

#[cfg(test)]
mod tests;

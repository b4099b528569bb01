//! Choosing what goes when memory is short: S3-FIFO within each segment.
//!
//! New entries are on probation; those that were hit by the time it ends move to the main part, the others go
//! and leave a fingerprint behind, by which they are known should they come back soon: then they are in the main part
//! from the start. A hit moves nothing: it counts in the entry's flags, up to three. Probation is first in, first out
//! by the generation that an entry came with, three bits in its line; the main part is a clock with a hand.
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
/// Hits on probation that lead to the main part. Exact S3-FIFO asks for two; with the fewer ghosts kept here one is
/// better on every trace of the grid, by 2 % at 100,000 objects.
const PROMOTION_HITS: u8 = 1;

/// How victims are chosen, by what came back of earlier ones.
#[derive(Clone, Copy)]
struct Way {
    /// Entries on probation, in 1/1024 of all.
    probation: usize,
    /// The hand takes all hits of an entry that it passes, not one, and passes every entry of the main part once.
    is_fickle: bool,
}

impl Way {
    const DEFAULT: Way = Way { probation: PROBATION, is_fickle: false };
}

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
        segment.choose(way, &mut may_go, |spot| chosen.push(Slot { place: at.place, spot }));
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
            entry.flags |= MAIN | u8::from(past.is_fickle());
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

    /// Takes over generation, hand and pace from another segment, but not its fingerprints.
    pub(crate) fn copy_clock(&mut self, from: &Segment) {
        for stash in 1..LINES - HOMES {
            self.lines[HOMES + stash].overflow = from.lines[HOMES + stash].overflow;
        }
        self.lines[HOMES + 3].written = from.lines[HOMES + 3].written;
    }

    fn forget_past(&mut self) {
        self.set_past_id(None);
    }

    fn choose(&mut self, way: Way, may_go: &mut impl FnMut(Handle) -> bool, mut choose: impl FnMut(u32)) {
        let mut unsorted: Vec<Candidate> = Vec::with_capacity(LINES * SLOTS);
        let mut by_age = [0; GENERATIONS as usize];
        let generation = self.lines[HOMES + 1].overflow;
        let mut count = 0;
        for (at, line) in self.lines.iter().enumerate() {
            count += line.occupied().count_ones() as usize;
            let mut used = line.occupied() & !line.main();
            while used != 0 {
                let i = used.trailing_zeros();
                used &= used - 1;
                let age = generation.wrapping_sub(line.age(i as usize)) % GENERATIONS;
                unsorted.push((age, at as u32 * 16 + i));
                by_age[usize::from(age)] += 1;
            }
        }
        let mut probation = sorted(&unsorted, by_age);
        let probation_len = (count * way.probation) >> 10;
        let pace = (probation_len / PROBATION_GENERATIONS).min(255) as u16;
        self.lines[HOMES + 3].written = self.lines[HOMES + 3].written & 0xff00 | pace;
        let mut left = count.div_ceil(VISIT_PART);
        let mut steps = LINES * SLOTS;
        while left > 0 {
            let is_main_empty = probation.len() == count;
            let spot = if probation.len() > probation_len || is_main_empty {
                None
            } else {
                self.next_in_main(way, &mut steps, may_go)
            };
            let spot = match (spot, probation.pop()) {
                (Some(spot), young) => {
                    probation.extend(young);
                    spot
                }
                (None, Some(spot)) if self.is_to_stay(way, spot, may_go) => continue,
                (None, Some(spot)) => spot,
                (None, None) => return,
            };
            choose(spot);
            count -= 1;
            left -= 1;
        }
    }

    /// Whether an entry at the end of its probation stays; it is in the main part then.
    fn is_to_stay(&mut self, way: Way, spot: u32, may_go: &mut impl FnMut(Handle) -> bool) -> bool {
        let (line, i) = (&mut self.lines[(spot >> 4) as usize & 63], (spot & 15) as usize);
        let flags = line.flags(i);
        let stays = flags & FREQUENCY >= PROMOTION_HITS || !may_go(line.handle(i));
        if stays {
            line.set_flags(i, flags & !FREQUENCY | MAIN | u8::from(way.is_fickle));
        }
        stays
    }

    /// The next entry of the main part that was not hit since the hand came by; the hand takes hits of each it
    /// passes. Every step of `steps` is a slot.
    fn next_in_main(
        &mut self,
        way: Way,
        steps: &mut usize,
        may_go: &mut impl FnMut(Handle) -> bool,
    ) -> Option<u32> {
        let [mut at, mut i] = [self.lines[HOMES + 3].overflow, (self.lines[HOMES + 3].written >> 8) as u8];
        let mut found = None;
        while *steps > 0 && found.is_none() {
            let line = &mut self.lines[usize::from(at) % LINES];
            let mut main = line.occupied() & line.main() & (u32::MAX << i);
            let mut next = SLOTS as u32;
            while main != 0 {
                let slot = main.trailing_zeros() as usize;
                main &= main - 1;
                let flags = line.flags(slot);
                if flags & FREQUENCY > 0 {
                    let left = if way.is_fickle { flags & !FREQUENCY } else { flags - 1 };
                    line.set_flags(slot, left);
                } else if may_go(line.handle(slot)) {
                    found = Some(u32::from(at) * 16 + slot as u32);
                    next = slot as u32 + 1;
                    break;
                }
            }
            *steps = steps.saturating_sub((next as usize).saturating_sub(usize::from(i)).max(1));
            i = next as u8;
            if usize::from(i) >= SLOTS {
                i = 0;
                at = (at + 1) % LINES as u8;
            }
        }
        let pace = self.lines[HOMES + 3].written & 0xff;
        self.lines[HOMES + 3].written = pace | u16::from(i) << 8;
        self.lines[HOMES + 3].overflow = at;
        found
    }
}

/// The places of entries on probation, the oldest last; `by_age` says how many there are of each age.
fn sorted(unsorted: &[Candidate], by_age: [usize; GENERATIONS as usize]) -> Vec<u32> {
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

//! Choosing what goes when memory is short: S3-FIFO within each segment.
//!
//! New entries are on probation; those that were hit by the time it ends move to the main part, the others go
//! and leave a fingerprint behind, by which they are known should they come back soon: then they are in the main part
//! from the start. A hit moves nothing: it counts in the entry's flags, up to three. Probation is first in, first out
//! by the generation that an entry came with, three bits in its line; the main part is a queue of generations too, in
//! which what was hit goes to the end.
//!
//! Called by `store` with a position that goes round all segments. Nothing is removed here.

use crate::bucket::{Bucket, Entry, FREQUENCY, MAIN, SLOTS};
use crate::hash;
use crate::index::{Index, SPILLED, Slot, line_of, slot_of};
use crate::past::Past;
use crate::scan::{Position, span_of};
use crate::segment::{HOMES, LINES, Segment, Spot};
use darter_slab::Handle;

/// Lines of one visit, a quarter of a segment, among whose entries it is chosen. With eight the misses are 1 % more where
/// the cache is a hundredth of the objects.
const WINDOW: usize = 16;
/// Of the entries that visits look at, one in so many goes: two for a visit, in the mean.
const LOOKED_AT: usize = 53;
/// Visits after which a segment has been looked at.
pub const VISITS_OF_SEGMENT: usize = LINES / WINDOW;
/// Steps of one visit through the main part: all of its entries twice.
const STEPS_MAX: usize = 2 * WINDOW * SLOTS;
/// Where segments have fewer entries, twice as many lines are looked at, or all, so that there is something to choose from.
const SPARSE: usize = 4 * LOOKED_AT;
/// Of the entries of a segment, so many of 1,024 are on probation where nothing is remembered.
const PROBATION: usize = 102;
/// Generations that come while an entry is on probation. Eight can be told apart.
const PROBATION_GENERATIONS: usize = 5;
const GENERATIONS: u8 = 8;
/// Generations in which the main part is passed once.
const MAIN_GENERATIONS: usize = 6;
/// Entries that come to the main part before it is looked again whether the generation after this one has gone.
const AGAIN_AFTER: u16 = 8;
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

/// What a visit knows of its lines.
struct Window {
    first: usize,
    lines: usize,
    main: Part,
    young: Part,
}

/// Entries of a window: those of the main part, or those on probation, but the ones that were chosen.
struct Part {
    // Slots, line by line.
    slots: [u16; LINES],
    len: usize,
    // Generations before this step, the oldest being the first, have no entry here.
    step: u8,
}

impl Part {
    const EMPTY: Part = Part { slots: [0; LINES], len: 0, step: 0 };

    fn add(&mut self, (at, i): Place) {
        self.slots[at] |= 1 << i;
        self.len += 1;
    }

    fn take(&mut self, (at, i): Place) {
        self.slots[at] &= !(1 << i);
        self.len -= 1;
    }

    /// An entry of the generation that came longest ago, where `generation` is the one that comes now.
    fn oldest(&mut self, lines: &[Bucket], generation: u8) -> Option<Place> {
        if self.len == 0 {
            return None;
        }
        while self.step < GENERATIONS {
            let age = generation + self.step + 1;
            for (at, (line, slots)) in lines.iter().zip(&self.slots).enumerate() {
                let found = line.aged(age) & u32::from(*slots);
                if found != 0 {
                    return Some((at, found.trailing_zeros() as usize));
                }
            }
            self.step += 1;
        }
        None
    }
}

/// A line of a window, and a slot of it.
type Place = (usize, usize);

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

    /// Visits some lines at `at` and names entries for removal, those least likely to be asked for again: two in the mean.
    /// The caller removes all of them before it inserts or merges. Returns where to go on, `START` after the
    /// end.
    ///
    /// `may_go` says of an entry whether it may be removed at all. Cost: 16 lines of a segment that is filled.
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
        let mut looked_at = self.looked_at as usize;
        let lines = match self.len / self.segments.max(1) {
            SPARSE.. => WINDOW,
            few if 2 * few >= SPARSE => 2 * WINDOW,
            _ => LINES,
        };
        let Some(segment) = self.segment_mut(at.place) else { return Position::START };
        let mut window = segment.window(usize::from(at.line) % LINES / lines * lines, lines);
        segment.set_pace(way, &window);
        looked_at += window.len();
        // Of a few one goes.
        let part = if lines == LINES { window.len().clamp(1, LOOKED_AT) } else { LOOKED_AT };
        while looked_at >= part
            && let Some(spot) = segment.choose(way, &mut window, &mut may_go)
        {
            chosen.push(Slot { place: at.place, spot });
            looked_at -= part;
        }
        let end = span_of(segment, at.place).1;
        // Where nothing may go, what was looked at is not saved up for those that come next.
        self.looked_at = looked_at.min(2 * LOOKED_AT) as u32;
        match (u32::try_from(end), window.first + lines) {
            (Ok(place), _) => Position { place, ..at },
            (Err(_), line) if line < LINES => Position { line: line as u8, place: 0 },
            _ => Position::START,
        }
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
            entry.age = segment.come_to_main();
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

    /// The generation of an entry that comes to the main part now; counts it.
    fn come_to_main(&mut self) -> u8 {
        // Below, the generation; above, how many come before the next one begins.
        let main = &mut self.lines[HOMES].written;
        *main -= if *main >= GENERATIONS.into() { GENERATIONS.into() } else { 0 };
        (*main % u16::from(GENERATIONS)) as u8
    }

    /// Takes over generations and pace from another segment, but not its fingerprints.
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

    /// The entries of some lines from `first` on.
    fn window(&self, first: usize, lines: usize) -> Window {
        let mut window = Window { first, lines, main: Part::EMPTY, young: Part::EMPTY };
        for (at, line) in self.lines[first..first + lines].iter().enumerate() {
            let used = line.occupied();
            let main = line.main() & used;
            window.main.slots[at] = main as u16;
            window.young.slots[at] = (used ^ main) as u16;
        }
        for part in [&mut window.main, &mut window.young] {
            part.len = part.slots[..lines].iter().map(|slots| slots.count_ones() as usize).sum();
        }
        window
    }

    /// Sets how many entries come in one generation of probation.
    fn set_pace(&mut self, way: Way, window: &Window) {
        let probation = (window.len() * (LINES / window.lines) * way.probation) >> 10;
        self.lines[HOMES + 3].written = (probation / PROBATION_GENERATIONS).min(255) as u16;
    }

    /// The entry of a window that goes next.
    fn choose(
        &mut self,
        way: Way,
        window: &mut Window,
        may_go: &mut impl FnMut(Handle) -> bool,
    ) -> Option<Spot> {
        loop {
            let is_probation_full = window.young.len << 10 > window.len() * way.probation;
            if !is_probation_full && let Some(place) = self.next_in_main(way, window, may_go) {
                return Some(window.spot(place));
            }
            let generation = self.lines[HOMES + 1].overflow;
            let lines = &self.lines[window.first..window.first + window.lines];
            let place = window.young.oldest(lines, generation)?;
            window.young.take(place);
            if !self.is_to_stay(window, place, may_go) {
                return Some(window.spot(place));
            }
        }
    }

    /// Whether an entry at the end of its probation stays; it is in the main part then.
    fn is_to_stay(
        &mut self,
        window: &mut Window,
        (at, i): Place,
        may_go: &mut impl FnMut(Handle) -> bool,
    ) -> bool {
        let line = &self.lines[window.first + at];
        let flags = line.flags(i);
        let stays = flags & FREQUENCY >= PROMOTION_HITS || !may_go(line.handle(i));
        if stays {
            let generation = self.come_to_main();
            let line = &mut self.lines[window.first + at];
            line.set_flags(i, flags & !FREQUENCY | MAIN);
            line.set_age(i, generation);
            window.main.add((at, i));
        }
        stays
    }

    /// The oldest entry of the window's main part that was not hit since it came there or was passed; those that were
    /// are passed, each for a hit, and are young again.
    fn next_in_main(
        &mut self,
        way: Way,
        window: &mut Window,
        may_go: &mut impl FnMut(Handle) -> bool,
    ) -> Option<Place> {
        for _ in 0..STEPS_MAX {
            self.advance(window);
            let generation = (self.lines[HOMES].written % u16::from(GENERATIONS)) as u8;
            let lines = &self.lines[window.first..window.first + window.lines];
            let (at, i) = window.main.oldest(lines, generation)?;
            let line = &lines[at];
            let flags = line.flags(i);
            if flags & FREQUENCY == 0 && may_go(line.handle(i)) {
                window.main.take((at, i));
                return Some((at, i));
            }
            let taken = if way.is_fickle { flags & FREQUENCY } else { (flags & FREQUENCY).min(1) };
            let generation = self.come_to_main();
            let line = &mut self.lines[window.first + at];
            line.set_flags(i, flags - taken);
            line.set_age(i, generation);
        }
        None
    }

    /// Begins another generation of the main part when so many have come to this one, unless entries of the time
    /// before, eight generations ago, are left: they would be taken for young ones.
    fn advance(&mut self, window: &mut Window) {
        let main = self.lines[HOMES].written;
        if main >= GENERATIONS.into() {
            return;
        }
        let next = (main as u8 + 1) % GENERATIONS;
        let is_there = self.lines.iter().any(|line| line.aged(next) & line.main() & line.occupied() != 0);
        let (generation, comes) = if is_there {
            (main, AGAIN_AFTER)
        } else {
            window.main.step = 0;
            (next.into(), (window.main.len * (LINES / window.lines) / MAIN_GENERATIONS) as u16)
        };
        self.lines[HOMES].written = generation + comes.max(1) * u16::from(GENERATIONS);
    }
}

impl Window {
    fn len(&self) -> usize {
        self.main.len + self.young.len
    }

    fn spot(&self, (at, i): Place) -> Spot {
        ((self.first + at) * 16 + i) as Spot
    }
}

#[cfg(test)]
mod tests;

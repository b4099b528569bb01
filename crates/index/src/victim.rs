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
    entries: usize,
    // Slots of the main part, line by line, but those that were chosen.
    main: [u32; WINDOW],
    main_len: usize,
    // Entries on probation: how many generations ago each came, and where it is, 8 bits each.
    young: [u16; WINDOW * SLOTS],
    young_len: usize,
}

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
    /// `may_go` says of an entry whether it may be removed at all. Cost: 16 lines.
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
        // In a small index every visit may be for one.
        let part = (self.len / VISITS_OF_SEGMENT).clamp(1, LOOKED_AT);
        let Some(segment) = self.segment_mut(at.place) else { return Position::START };
        let mut window = segment.window(usize::from(at.line) / WINDOW % VISITS_OF_SEGMENT * WINDOW);
        segment.set_pace(way, &window);
        looked_at += window.entries;
        while looked_at >= part
            && let Some(spot) = segment.choose(way, &mut window, &mut may_go)
        {
            chosen.push(Slot { place: at.place, spot });
            looked_at -= part;
        }
        let end = span_of(segment, at.place).1;
        // Where nothing may go, what was looked at is not saved up for those that come next.
        self.looked_at = looked_at.min(2 * LOOKED_AT) as u32;
        match (u32::try_from(end), at.line + WINDOW as u8) {
            (Ok(place), _) => Position { place, ..at },
            (Err(_), line) if usize::from(line) < LINES => Position { line, place: 0 },
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

    /// The entries of 16 lines from `first` on.
    fn window(&self, first: usize) -> Window {
        let mut window = Window {
            first,
            entries: 0,
            main: [0; WINDOW],
            main_len: 0,
            young: [0; WINDOW * SLOTS],
            young_len: 0,
        };
        let generation = self.lines[HOMES + 1].overflow;
        for (at, line) in self.lines[first..first + WINDOW].iter().enumerate() {
            let used = line.occupied();
            let main = line.main() & used;
            window.main[at] = main;
            window.main_len += main.count_ones() as usize;
            let mut young = used ^ main;
            while young != 0 {
                let i = young.trailing_zeros() as usize;
                young &= young - 1;
                let age = generation.wrapping_sub(line.age(i)) % GENERATIONS;
                window.young[window.young_len % (WINDOW * SLOTS)] =
                    u16::from(age) << 8 | (at << 4 | i) as u16;
                window.young_len += 1;
            }
        }
        window.entries = window.main_len + window.young_len;
        window
    }

    /// Sets how many entries come in one generation of probation.
    fn set_pace(&mut self, way: Way, window: &Window) {
        let probation = (window.entries * VISITS_OF_SEGMENT * way.probation) >> 10;
        self.lines[HOMES + 3].written = (probation / PROBATION_GENERATIONS).min(255) as u16;
    }

    /// The entry of a window that goes next.
    fn choose(
        &mut self,
        way: Way,
        window: &mut Window,
        may_go: &mut impl FnMut(Handle) -> bool,
    ) -> Option<Spot> {
        let is_probation_full = |window: &Window| window.young_len << 10 > window.entries * way.probation;
        if !is_probation_full(window)
            && let Some(spot) = self.next_in_main(way, window, may_go)
        {
            return Some(spot);
        }
        while let Some(at) = window.oldest_young() {
            if !self.is_to_stay(window, at, may_go) {
                window.entries -= 1;
                return Some(window.spot(at));
            }
            if !is_probation_full(window)
                && let Some(spot) = self.next_in_main(way, window, may_go)
            {
                return Some(spot);
            }
        }
        None
    }

    /// Whether an entry at the end of its probation stays; it is in the main part then.
    fn is_to_stay(
        &mut self,
        window: &mut Window,
        (at, i): (usize, usize),
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
            window.main[at] |= 1 << i;
            window.main_len += 1;
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
    ) -> Option<Spot> {
        for _ in 0..STEPS_MAX {
            self.advance(window);
            let (at, i) = self.oldest_in_main(window)?;
            let line = &self.lines[window.first + at];
            let flags = line.flags(i);
            if flags & FREQUENCY == 0 && may_go(line.handle(i)) {
                window.main[at] &= !(1 << i);
                window.main_len -= 1;
                window.entries -= 1;
                return Some(window.spot((at, i)));
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
    fn advance(&mut self, window: &Window) {
        let main = self.lines[HOMES].written;
        if main >= GENERATIONS.into() {
            return;
        }
        let next = (main as u8 + 1) % GENERATIONS;
        let is_there = self.lines.iter().any(|line| line.aged(next) & line.main() & line.occupied() != 0);
        let (generation, comes) = if is_there {
            (main, AGAIN_AFTER)
        } else {
            (next.into(), (window.main_len * VISITS_OF_SEGMENT / MAIN_GENERATIONS) as u16)
        };
        self.lines[HOMES].written = generation + comes.max(1) * u16::from(GENERATIONS);
    }

    /// An entry of the window's main part, of the generation that came there or was passed longest ago.
    fn oldest_in_main(&self, window: &Window) -> Option<(usize, usize)> {
        if window.main_len == 0 {
            return None;
        }
        let generation = (self.lines[HOMES].written % u16::from(GENERATIONS)) as u8;
        let lines = &self.lines[window.first..window.first + WINDOW];
        (1..=GENERATIONS).find_map(|age| {
            let mut places = lines.iter().zip(window.main).enumerate();
            places.find_map(|(at, (line, main))| {
                let found = line.aged(generation + age) & main;
                (found != 0).then(|| (at, found.trailing_zeros() as usize))
            })
        })
    }
}

impl Window {
    /// Takes out the entry that is on probation longest: its line and slot.
    fn oldest_young(&mut self) -> Option<(usize, usize)> {
        let young = &mut self.young[..self.young_len];
        let (n, &oldest) = young.iter().enumerate().max_by_key(|(_, place)| **place)?;
        let last = young.len() - 1;
        young[n] = young[last];
        self.young_len = last;
        Some((usize::from(oldest >> 4 & 15), usize::from(oldest & 15)))
    }

    fn spot(&self, (at, i): (usize, usize)) -> Spot {
        ((self.first + at) * 16 + i) as Spot
    }
}

#[cfg(test)]
mod tests;

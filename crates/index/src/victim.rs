//! Choosing what goes when memory is short: entries that were read stay, those that never were go first.
//!
//! Called by `store` with a position that goes round; nothing is removed here.

use crate::bucket::{FREQUENCY, SLOTS};
use crate::index::{Index, SPILLED, Slot};
use crate::scan::{Position, span_of};
use crate::segment::LINES;
use darter_slab::Handle;

/// Of the entries of a segment, one in this many goes in one visit.
const VISIT_PART: usize = 48;

impl Index {
    /// Visits the segment at `at` and names some of its entries for removal, those least likely to be asked for
    /// again; the caller removes all of them before it inserts or merges. Returns where to go on, `START` after the end.
    ///
    /// `turn` is any number, another one each time: where in the segment to begin. `may_go` says of an entry whether it may be removed at all. Cost: a segment's 64 lines.
    pub fn choose(
        &mut self,
        at: Position,
        turn: u64,
        may_go: impl FnMut(Handle) -> bool,
        chosen: &mut Vec<Slot>,
    ) -> Position {
        let mut may_go = may_go;
        if at == Position::START {
            let spilled = self.spill.iter().enumerate().filter(|(_, s)| may_go(s.entry.handle));
            chosen.extend(spilled.take(1).map(|(i, _)| Slot { place: 0, spot: SPILLED | i as u32 }));
        }
        let Some(segment) = self.segment_mut(at.place) else { return Position::START };
        let quota = segment.count().div_ceil(VISIT_PART);
        let first = turn as usize % LINES;
        let mut left = quota;
        // Twice round at most: the first pass may only cool.
        for step in 0..2 * LINES {
            let line = &mut segment.lines[(first + step) % LINES];
            for i in 0..SLOTS {
                if left == 0 || line.tag(i) == 0 {
                    continue;
                }
                let flags = line.flags(i);
                if flags & FREQUENCY > 0 {
                    line.set_flags(i, flags - 1);
                } else if may_go(line.handle(i)) {
                    let spot = (((first + step) % LINES) * 16 + i) as u32;
                    let slot = Slot { place: at.place, spot };
                    if !chosen.contains(&slot) {
                        chosen.push(slot);
                        left -= 1;
                    }
                }
            }
            if left == 0 {
                break;
            }
        }
        u32::try_from(span_of(segment, at.place).1)
            .map_or(Position::START, |place| Position { line: 0, place })
    }
}

//! Finding what has expired: a stream over the lines that opens only those whose bound has passed.

use crate::due::Due;
use crate::index::{Index, SPILLED, Slot, line_of};
use crate::scan::{Position, span_of};
use crate::segment::LINES;
use darter_slab::Handle;

impl Index {
    /// Notes that the entry at `s` expires at `expiry_ms`. Both times in Unix milliseconds.
    #[inline]
    pub fn note_expiry(&mut self, s: Slot, expiry_ms: u64, now_ms: u64) {
        self.now = Due::now(now_ms);
        let now = self.now;
        if s.spot & SPILLED != 0 {
            // The spill has no bounds: every sweep from the start asks all of it.
            return;
        }
        if let Some(segment) = self.segment_mut(s.place) {
            let line = &mut segment.lines[line_of(s)];
            line.due = line.due.earlier(Due::at(expiry_ms, now_ms), now);
        }
    }

    /// Looks at up to `lines_max` lines from `from` on and reports the entries that have expired by `now_ms`; the
    /// caller removes them by key afterwards. Returns where to go on, `START` after the end, and the lines looked at.
    ///
    /// `expiry_of` tells when an entry expires in Unix milliseconds; it is asked only in lines whose bound has passed.
    /// An entry reported and not removed is reported again by the next pass.
    pub fn sweep(
        &mut self,
        from: Position,
        now_ms: u64,
        lines_max: usize,
        mut expiry_of: impl FnMut(Handle) -> Option<u64>,
        mut due: impl FnMut(Handle),
    ) -> (Position, usize) {
        self.now = Due::now(now_ms);
        let now = self.now;
        if from == Position::START {
            for spilled in &self.spill {
                if expiry_of(spilled.entry.handle).is_some_and(|ms| ms <= now_ms) {
                    due(spilled.entry.handle);
                }
            }
        }
        let mut at = from;
        let mut looked = 0;
        while looked < lines_max {
            let Some(segment) = self.segment_mut(at.place) else { return (Position::START, looked) };
            let first = usize::from(at.line);
            let last = LINES.min(first + (lines_max - looked));
            for line in &mut segment.lines[first..last] {
                if line.due.is_past(now) {
                    line.due = open(line.occupied(), |i| line.handle(i), now_ms, &mut expiry_of, &mut due);
                }
            }
            looked += last - first;
            at.line = last as u8;
            if last == LINES {
                let Ok(place) = u32::try_from(span_of(segment, at.place).1) else {
                    return (Position::START, looked);
                };
                at = Position { line: 0, place };
            }
        }
        (at, looked)
    }
}

/// Asks every entry of a line; returns the line's new bound.
fn open(
    mut used: u32,
    handle: impl Fn(usize) -> Handle,
    now_ms: u64,
    expiry_of: &mut impl FnMut(Handle) -> Option<u64>,
    due: &mut impl FnMut(Handle),
) -> Due {
    let mut earliest_ms = None;
    while used != 0 {
        let h = handle(used.trailing_zeros() as usize);
        used &= used - 1;
        let Some(ms) = expiry_of(h) else { continue };
        earliest_ms = Some(earliest_ms.map_or(ms, |earliest: u64| earliest.min(ms)));
        if ms <= now_ms {
            due(h);
        }
    }
    earliest_ms.map_or(Due::NEVER, |ms| Due::at(ms, now_ms))
}

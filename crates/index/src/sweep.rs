//! Passes over all lines for housekeeping: finding expired entries, and following records that move.

use crate::bucket::IndexBucket;
use crate::due::Due;
use crate::index::{Index, IndexSlot, SPILLED, line_of};
use crate::scan::{ScanPosition, span_of};
use crate::segment::LINES;
use darter_slab::Handle;

impl Index {
    /// Notes that the entry at `s` expires at `expiry_ms`. Both times in Unix milliseconds.
    #[inline]
    pub fn note_expiry(&mut self, s: IndexSlot, expiry_ms: u64, now_ms: u64) {
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

    /// Has the next sweep look into every line in which anything expires. For bounds that were noted at another time than
    /// `now_ms`, as by a load, or that no sweep has looked at for hours. Cost: two bytes of every line.
    pub fn distrust_bounds(&mut self, now_ms: u64) {
        self.now = Due::now(now_ms);
        let now = self.now;
        self.stream(ScanPosition::START, usize::MAX, |line| {
            if line.due != Due::NEVER {
                line.due = now;
            }
        });
    }

    /// Examines up to `lines_max` lines from `from` on and reports the entries that have expired by `now_ms`. The
    /// caller removes them by key afterwards. Returns the next position (`START` after the end) and the number of
    /// lines examined.
    ///
    /// `expiry_of` returns the expiry of an entry in Unix milliseconds; it is called only in lines whose bound has
    /// passed. An entry reported and not removed is reported again by the next pass.
    pub fn sweep(
        &mut self,
        from: ScanPosition,
        now_ms: u64,
        lines_max: usize,
        mut expiry_of: impl FnMut(Handle) -> Option<u64>,
        mut due: impl FnMut(Handle),
    ) -> (ScanPosition, usize) {
        self.now = Due::now(now_ms);
        let now = self.now;
        if from == ScanPosition::START {
            for spilled in &self.spill {
                if expiry_of(spilled.entry.handle).is_some_and(|ms| ms <= now_ms) {
                    due(spilled.entry.handle);
                }
            }
        }
        self.stream(from, lines_max, |line| {
            if line.due.is_past(now) {
                line.due = open(line, now_ms, &mut expiry_of, &mut due);
            }
        })
    }

    /// Offers the handles of up to `lines_max` lines from `from` on to `move_record`, which may give another one for
    /// the same record. Returns as `sweep` does. Cost: a line and ten calls each.
    pub fn move_records(
        &mut self,
        from: ScanPosition,
        lines_max: usize,
        mut move_record: impl FnMut(Handle) -> Option<Handle>,
    ) -> (ScanPosition, usize) {
        if from == ScanPosition::START {
            for spilled in &mut self.spill {
                let h = spilled.entry.handle;
                spilled.entry.handle = move_record(h).unwrap_or(h);
            }
        }
        self.stream(from, lines_max, |line| {
            let mut used = line.occupied();
            while used != 0 {
                let i = used.trailing_zeros() as usize;
                used &= used - 1;
                if let Some(h) = move_record(line.handle(i)) {
                    line.set_handle(i, h);
                }
            }
        })
    }

    /// Shows `visit` up to `lines_max` lines from `from` on, segment by segment.
    fn stream(
        &mut self,
        from: ScanPosition,
        lines_max: usize,
        mut visit: impl FnMut(&mut IndexBucket),
    ) -> (ScanPosition, usize) {
        let mut at = from;
        let mut looked = 0;
        while looked < lines_max {
            let Some(segment) = self.segment_mut(at.place) else { return (ScanPosition::START, looked) };
            let first = usize::from(at.line);
            let last = LINES.min(first + (lines_max - looked));
            segment.lines[first..last].iter_mut().for_each(&mut visit);
            looked += last - first;
            at.line = last as u8;
            if last == LINES {
                let Ok(place) = u32::try_from(span_of(segment, at.place).1) else {
                    return (ScanPosition::START, looked);
                };
                at = ScanPosition { line: 0, place };
            }
        }
        (at, looked)
    }
}

/// Asks every entry of a line; returns the line's new bound.
fn open(
    line: &IndexBucket,
    now_ms: u64,
    expiry_of: &mut impl FnMut(Handle) -> Option<u64>,
    due: &mut impl FnMut(Handle),
) -> Due {
    let mut earliest_ms = None;
    let mut used = line.occupied();
    while used != 0 {
        let h = line.handle(used.trailing_zeros() as usize);
        used &= used - 1;
        let Some(ms) = expiry_of(h) else { continue };
        earliest_ms = Some(earliest_ms.map_or(ms, |earliest: u64| earliest.min(ms)));
        if ms <= now_ms {
            due(h);
        }
    }
    earliest_ms.map_or(Due::NEVER, |ms| Due::at(ms, now_ms))
}

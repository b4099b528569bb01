//! Giving memory back: sparse pages are emptied by moving records, nearly empty index segments merge,
//! empty pages return to the kernel.
//!
//! Called by housekeeping in short visits. A record has one referrer, so moving it is a copy and one
//! changed handle. Packs of collections stay where they are.

use darter_index::Position;

use crate::record::Record;
use crate::shard::Shard;

/// Where a shard's tidying goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tidy {
    /// The pass over the records, while one is under way.
    pass: Option<(usize, Position)>,
    /// Live bytes when the last pass ended: none starts until they have changed by a sixteenth.
    used_at_end: usize,
    /// Bytes of free blocks that the last pass could not turn into empty pages.
    stuck_bytes: usize,
}

/// What a shard's tidying has done since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TidyCounters {
    /// Records looked at.
    pub misses: u64,
    /// Records moved.
    pub hits: u64,
    /// Passes ended.
    pub passes: u64,
}

/// Waste below this is left alone.
const WASTE_MIN_BYTES: usize = 256 << 10;
/// Empty pages kept at hand per shard before they go back to the kernel.
const EMPTY_KEEP_BYTES: usize = 64 << 10;

impl Shard {
    /// One short piece of tidying over at most `lines_max` index lines; returns whether there is more to do.
    /// Records are moved if `may_move`; merging and giving back cost little and are always done.
    pub fn tidy(&mut self, lines_max: usize, may_move: bool) -> bool {
        let more = match self.tidy.pass {
            Some((db, at)) => self.move_some(db, at, lines_max),
            None => may_move && self.is_worth_a_pass() && self.start_pass(),
        };
        let merged = self.merge_segments();
        let empty = self.arena.empty_bytes();
        if empty > EMPTY_KEEP_BYTES {
            self.arena.release_empty((empty - EMPTY_KEEP_BYTES).div_ceil(4096).min(PAGES_PER_STEP));
        }
        more || merged || empty > EMPTY_KEEP_BYTES
    }

    /// One short piece of a pass, whatever has changed since the last one; returns whether there is more to do.
    pub fn squeeze(&mut self, lines_max: usize) -> bool {
        let more = match self.tidy.pass {
            Some((db, at)) => self.move_some(db, at, lines_max),
            None => self.start_pass(),
        };
        self.arena.release_empty(PAGES_PER_STEP);
        more
    }

    /// Gives all empty pages back to the kernel, merges what index segments it can; returns the bytes given back.
    pub fn purge(&mut self) -> usize {
        while self.merge_segments() {}
        self.arena.release_empty(usize::MAX)
    }

    /// Whether records are being moved together.
    pub fn is_tidying(&self) -> bool {
        self.tidy.pass.is_some()
    }

    /// Free bytes in pages that also hold live blocks, as far as a pass could change that.
    pub(crate) fn movable_waste_bytes(&self) -> usize {
        let waste = self.arena.committed_bytes().saturating_sub(self.arena.used_bytes());
        waste.saturating_sub(self.tidy.stuck_bytes)
    }

    fn is_worth_a_pass(&self) -> bool {
        let (used, committed) = (self.arena.used_bytes(), self.arena.committed_bytes());
        let is_sparse = committed > used + used / 16 + WASTE_MIN_BYTES;
        is_sparse && used.abs_diff(self.tidy.used_at_end) >= self.tidy.used_at_end / 16
    }

    fn start_pass(&mut self) -> bool {
        if self.arena.start_compaction() == 0 {
            self.end_pass();
            return false;
        }
        self.tidy.pass = Some((0, Position::default()));
        true
    }

    fn end_pass(&mut self) {
        let used = self.arena.used_bytes();
        self.tidy = Tidy {
            pass: None,
            used_at_end: used,
            stuck_bytes: self.arena.committed_bytes().saturating_sub(used),
        };
    }

    fn move_some(&mut self, db: usize, at: Position, lines_max: usize) -> bool {
        let (arena, counters) = (&mut self.arena, &mut self.tidied);
        let (next, _) = self.dbs[db].index.move_records(at, lines_max, |handle| {
            let moved = arena.compact(handle);
            counters.hits += u64::from(moved.is_some());
            counters.misses += u64::from(moved.is_none());
            moved
        });
        self.tidy.pass = if next != Position::default() {
            Some((db, next))
        } else if db + 1 < self.dbs.len() {
            Some((db + 1, Position::default()))
        } else {
            self.arena.end_compaction();
            self.end_pass();
            self.tidied.passes += 1;
            None
        };
        self.tidy.pass.is_some()
    }

    pub(crate) fn merge_segments(&mut self) -> bool {
        let (arena, hasher) = (&self.arena, self.hasher);
        let mut merged = false;
        for db in &mut self.dbs {
            if db.index.bytes() > 0 {
                merged |= db.index.merge_step(|h| hasher.hash(Record { tail: arena.tail(h) }.key()));
            }
        }
        merged
    }
}

/// Pages given back to the kernel in one step.
const PAGES_PER_STEP: usize = 256;

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;

    use super::*;
    use crate::record::Expiry;
    use crate::{Key, Keyed};

    #[test]
    fn deleting_half_of_the_keys_gives_their_memory_back() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(2, 1, hasher).expect("address space");
        let name = |n: u32| format!("key:{n:012}");
        let value = |n: u32| vec![b'a' + (n % 26) as u8; 20 + n as usize % 40];
        for n in 0..60_000 {
            let name = name(n);
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            Keyed::find(&mut shard, n as usize % 2, key, 1).put_text(&value(n), Expiry::None).expect("room");
        }
        let is_kept = |n: u32| hasher.hash(&n.to_le_bytes()).is_multiple_of(2);
        for n in (0..60_000).filter(|&n| !is_kept(n)) {
            let name = name(n);
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            assert!(Keyed::find(&mut shard, n as usize % 2, key, 1).remove());
        }
        for _ in 0..5000 {
            shard.tidy(64, true);
        }
        let (used, committed) = (shard.arena.used_bytes(), shard.arena.committed_bytes());
        assert!(committed < used + used / 10 + WASTE_MIN_BYTES, "{committed} bytes for {used}");
        for n in 0..60_000 {
            let name = name(n);
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            let place = Keyed::find(&mut shard, n as usize % 2, key, 1);
            let text = place.text().expect("a string").map(|text| text.bytes().into_owned());
            assert_eq!(text, is_kept(n).then(|| value(n)), "{name}");
        }
    }
}

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
pub struct Tidy {
    /// The pass over the records, while one is under way.
    pass: Option<(usize, Position)>,
    /// Live bytes when the last pass ended: none starts until they have changed by a sixteenth.
    used_at_end: usize,
}

/// Waste below this is left alone.
const WASTE_MIN_BYTES: usize = 256 << 10;
/// Empty pages kept at hand per shard before they go back to the kernel.
const EMPTY_KEEP_BYTES: usize = 64 << 10;

impl Shard {
    /// One short piece of tidying over at most `lines_max` index lines; returns whether there is more to do.
    pub fn tidy(&mut self, tidy: &mut Tidy, lines_max: usize) -> bool {
        let more = match tidy.pass {
            Some((db, at)) => self.move_some(tidy, db, at, lines_max),
            None => self.start_pass(tidy),
        };
        let merged = self.merge_segments();
        let empty = self.arena.empty_bytes();
        if empty > EMPTY_KEEP_BYTES {
            self.arena.release_empty((empty - EMPTY_KEEP_BYTES).div_ceil(4096).min(PAGES_PER_STEP));
        }
        more || merged || empty > EMPTY_KEEP_BYTES
    }

    fn start_pass(&mut self, tidy: &mut Tidy) -> bool {
        let (used, committed) = (self.arena.used_bytes(), self.arena.committed_bytes());
        let is_sparse = committed > used + used / 16 + WASTE_MIN_BYTES;
        if !is_sparse || used.abs_diff(tidy.used_at_end) < tidy.used_at_end / 16 {
            return false;
        }
        if self.arena.start_compaction() == 0 {
            tidy.used_at_end = used;
            return false;
        }
        tidy.pass = Some((0, Position::default()));
        true
    }

    fn move_some(&mut self, tidy: &mut Tidy, db: usize, at: Position, lines_max: usize) -> bool {
        let arena = &mut self.arena;
        let (next, _) = self.dbs[db].index.move_records(at, lines_max, |handle| arena.compact(handle));
        tidy.pass = if next != Position::default() {
            Some((db, next))
        } else if db + 1 < self.dbs.len() {
            Some((db + 1, Position::default()))
        } else {
            self.arena.end_compaction();
            tidy.used_at_end = self.arena.used_bytes();
            None
        };
        tidy.pass.is_some()
    }

    fn merge_segments(&mut self) -> bool {
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
        let mut tidy = Tidy::default();
        for _ in 0..5000 {
            shard.tidy(&mut tidy, 64);
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

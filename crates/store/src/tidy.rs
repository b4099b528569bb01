//! Giving memory back: sparse pages are emptied by moving records, nearly empty index segments merge, empty pages
//! return to the kernel.
//!
//! Called by housekeeping in short visits. A record has one referrer, so moving it is a copy and one changed handle;
//! The packs of a hash and of a set of texts are moved with their directory, some at a time. Lists, sorted sets,
//! streams and sets of integers are not moved.

use darter_index::ScanPosition;
use darter_slab::{Arena, Handle};

use crate::object::Object;
use crate::record::{self, Record, RecordPayload, RecordValue};
use crate::shard::Shard;

/// The position of a shard's tidying.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tidy {
    /// The pass, while one is under way.
    pass: Option<TidyPass>,
    /// Live bytes when the last pass ended: none starts until they have changed by a sixteenth.
    used_at_end: usize,
    /// Bytes of free blocks that the last pass could not turn into empty pages.
    stuck_bytes: usize,
    /// Live bytes at the last visit, and whether they were the same at the one before.
    used_at_visit: usize,
    is_at_rest: bool,
    /// Bytes of empty pages that were in use since the visit before.
    reused_bytes: usize,
}

/// The position of a pass in a shard.
#[derive(Clone, Copy, Debug)]
enum TidyPass {
    /// Records of a database, by their places in the index.
    Records(usize, ScanPosition),
    /// Packs of the collection with this number, or of the next existing one, from a cursor on.
    Packs(u32, u64),
}

/// Totals of a shard's tidying since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TidyCounters {
    /// Records looked at.
    pub misses: u64,
    /// Records moved.
    pub hits: u64,
    /// Packs of collections looked at.
    pub packs: u64,
    /// Passes ended.
    pub passes: u64,
    /// Deleted collections whose last block was freed by housekeeping.
    pub buried: u64,
}

impl TidyCounters {
    /// Adds those of another shard.
    pub fn add(&mut self, other: &TidyCounters) {
        self.misses += other.misses;
        self.hits += other.hits;
        self.packs += other.packs;
        self.passes += other.passes;
        self.buried += other.buried;
    }
}

/// Waste below this is left alone.
const WASTE_MIN_BYTES: usize = 256 << 10;
/// Most empty pages that a growing shard keeps; the others are given back to the kernel.
const EMPTY_KEEP_BYTES: usize = 64 << 10;
/// The same of pages that were in use since the last visit: each costs a fault if it is taken again.
const REUSED_KEEP_BYTES: usize = 2 << 20;

impl Shard {
    /// One short piece of tidying over at most `lines_max` index lines; returns true if there is more to do. Records
    /// are moved if `may_move`; merging and giving back cost little and are always done.
    pub fn tidy(&mut self, lines_max: usize, may_move: bool) -> bool {
        let more = match self.tidy.pass {
            Some(pass) => self.go_on(pass, lines_max),
            None => may_move && self.is_worth_a_pass() && self.start_pass(),
        };
        let merged = self.merge_segments();
        let empty = self.arena.empty_bytes();
        // A small shard keeps little: there are many of them, and together they would keep as much as their data.
        let keep = if self.tidy.is_at_rest {
            0
        } else {
            EMPTY_KEEP_BYTES.max(self.tidy.reused_bytes).min(self.arena.committed_bytes() / 16)
        };
        if empty > keep {
            self.arena.release_empty((empty - keep).div_ceil(4096).min(PAGES_PER_STEP));
        }
        more || merged || empty > keep
    }

    /// To be called once before the tidying of a visit. If nothing has changed since the last visit, the shard gives
    /// up the pages and blocks it keeps for future changes.
    pub fn rest(&mut self) {
        let used = self.arena.used_bytes();
        let is_same = used == std::mem::replace(&mut self.tidy.used_at_visit, used);
        if is_same && !self.tidy.is_at_rest {
            self.arena.release_empty(0);
        }
        self.tidy.is_at_rest = is_same;
        self.tidy.reused_bytes = self.arena.take_reused_bytes().min(REUSED_KEEP_BYTES);
    }

    /// One short piece of a pass, whatever has changed since the last one; returns true if there is more to do.
    pub fn squeeze(&mut self, lines_max: usize) -> bool {
        let more = match self.tidy.pass {
            Some(pass) => self.go_on(pass, lines_max),
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

    /// Returns true if records are being moved together.
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
        self.tidy.pass = Some(TidyPass::Records(0, ScanPosition::default()));
        true
    }

    /// One step of a pass; returns true if it is not complete.
    fn go_on(&mut self, pass: TidyPass, lines_max: usize) -> bool {
        self.tidy.pass = match pass {
            TidyPass::Records(db, at) => Some(self.move_records(db, at, lines_max)),
            // A running snapshot reads the packs, so they must not move.
            TidyPass::Packs(..) if self.cut.is_some() => None,
            TidyPass::Packs(id, cursor) => self.move_packs(id, cursor, lines_max),
        };
        if self.tidy.pass.is_none() {
            self.arena.end_compaction();
            self.end_pass();
            self.tidied.passes += 1;
        }
        self.tidy.pass.is_some()
    }

    fn end_pass(&mut self) {
        let used = self.arena.used_bytes();
        let stuck_bytes = self.arena.committed_bytes().saturating_sub(used);
        self.tidy = Tidy { pass: None, used_at_end: used, stuck_bytes, ..self.tidy };
    }

    fn move_records(&mut self, db: usize, at: ScanPosition, lines_max: usize) -> TidyPass {
        let folds = self.folds && self.cut.is_none();
        let (arena, counters) = (&mut self.arena, &mut self.tidied);
        let (next, _) = self.dbs[db].index.move_records(at, lines_max, |handle| {
            let moved = arena.compact(handle);
            counters.hits += u64::from(moved.is_some());
            counters.misses += u64::from(moved.is_none());
            if folds {
                move_folded(arena, moved.unwrap_or(handle));
            }
            moved
        });
        if next != ScanPosition::default() {
            TidyPass::Records(db, next)
        } else {
            let next = (db + 1..self.dbs.len()).find(|&db| !self.dbs[db].index.is_empty());
            next.map_or(TidyPass::Packs(0, 0), |db| TidyPass::Records(db, ScanPosition::default()))
        }
    }

    /// Moves packs of one collection; returns the next position, `None` after the last one.
    fn move_packs(&mut self, id: u32, cursor: u64, packs_max: usize) -> Option<TidyPass> {
        let (found, object) = self.objects.next_from(id)?;
        let cursor = if found == id { cursor } else { 0 };
        self.tidied.packs += packs_max as u64;
        match object.compact_step(&mut self.arena, cursor, packs_max) {
            0 => Some(TidyPass::Packs(found + 1, 0)),
            cursor => Some(TidyPass::Packs(found, cursor)),
        }
    }

    pub(crate) fn merge_segments(&mut self) -> bool {
        let (arena, hasher) = (&self.arena, self.hasher);
        let mut merged = false;
        for db in &mut self.dbs[..self.dbs_filled] {
            if db.index.bytes() > 0 {
                merged |= db.index.merge_step(|h| hasher.hash_key(Record { tail: arena.tail(h) }.key()));
            }
        }
        merged
    }
}

/// Moves the only pack of a collection without a root.
fn move_folded(arena: &mut Arena, handle: Handle) {
    let RecordValue::Folded(kind, block) = (Record { tail: arena.tail(handle) }).value() else { return };
    let mut object = Object::unfold(kind, block, arena);
    object.compact_step(arena, 0, 1);
    if let Some(folded @ RecordPayload::Folded(_, now)) = object.fold(arena)
        && now != block
    {
        record::overwrite_object(arena.tail_mut(handle), &folded);
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

    #[test]
    fn a_shard_at_rest_keeps_nothing_at_hand() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 1, hasher).expect("address space");
        let set = |shard: &mut Shard, n: u32, bytes: usize| {
            let name = format!("key:{n}");
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            Keyed::find(shard, 0, key, 1).put_text(&vec![b'a'; bytes], Expiry::None).expect("room");
        };
        // Values of many sizes come and shrink: each size leaves blocks behind.
        (0..2_000).for_each(|n| set(&mut shard, n % 100, 3_000 - n as usize));
        (0..100).for_each(|n| set(&mut shard, n, 100));
        let before = shard.arena.occupied_bytes();
        for _ in 0..3 {
            shard.rest();
            while shard.tidy(64, false) {}
        }
        let (after, used) = (shard.arena.occupied_bytes(), shard.arena.used_bytes());
        assert_eq!(shard.arena.empty_bytes(), 0);
        assert!(
            after < before / 2 && after < used + (32 << 10),
            "{before} bytes, {after} at rest, {used} used"
        );
    }

    #[test]
    fn pages_that_are_used_again_and_again_stay() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 1, hasher).expect("address space");
        let key = Key { bytes: b"key", hash: hasher.hash(b"key") };
        let visit = |shard: &mut Shard| {
            shard.rest();
            while shard.tidy(64, false) {}
            shard.arena.empty_bytes()
        };
        for n in 0..20 {
            let name = format!("key:{n}");
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            Keyed::find(&mut shard, 0, key, 1).put_text(&vec![b'b'; 1 << 20], Expiry::None).expect("room");
        }
        let mut kept = 0;
        for n in 0..10 {
            Keyed::find(&mut shard, 0, key, 1).put_text(&vec![b'a'; 1 << 20], Expiry::None).expect("room");
            assert!(Keyed::find(&mut shard, 0, key, 1).remove());
            // Something has changed since the last visit.
            let other = Key { bytes: b"other", hash: hasher.hash(b"other") };
            Keyed::find(&mut shard, 0, other, 1).put_text(&vec![b'a'; 100 * n], Expiry::None).expect("room");
            kept = visit(&mut shard);
        }
        assert!(kept >= 1 << 20, "{kept}");
        let after = (0..3).map(|_| visit(&mut shard)).last();
        assert_eq!(after, Some(0), "a shard at rest keeps nothing");
    }

    #[test]
    fn packs_of_large_and_of_small_hashes_and_sets_move_too() {
        use darter_pack::entry::Item;
        use darter_pack::table::{FieldExpiry, PackKind, Table};

        use crate::set_value::SetValue;

        let hasher = KeyHasher::new(5);
        let mut shard = Shard::new(1, 1, hasher).expect("address space");
        let field = |n: u32| format!("field:{n:06}");
        // One hash and one set of 30,000, and 3,000 hashes of ten.
        let place_of = |n: u32| if n < 60_000 { n / 30_000 } else { 2 + (n - 60_000) / 10 };
        let at = |shard: &mut Shard, n: u32, change: &mut dyn FnMut(&mut Keyed<'_>)| {
            let name = format!("c:{}", place_of(n));
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            change(&mut Keyed::find(shard, 0, key, 1));
        };
        for n in 0..90_000 {
            let (name, is_set) = (field(n), place_of(n) == 1);
            at(&mut shard, n, &mut |place| {
                if is_set {
                    let add = |set: &mut SetValue, arena: &mut Arena, hasher| {
                        set.insert(arena, hasher, Item::Bytes(name.as_bytes()), FieldExpiry::Keep)
                    };
                    assert!(place.edit_or_create(SetValue::new, add).expect("a set").result.expect("room"));
                } else {
                    let put = |table: &mut Table, arena: &mut Arena, hasher: KeyHasher| {
                        let of_key = |key: &[u8]| hasher.hash(key);
                        let (key, hash) = (name.as_bytes(), hasher.hash(name.as_bytes()));
                        table.insert(arena, hash, key, Item::Bytes(key), FieldExpiry::Keep, &of_key)
                    };
                    let make = || Table::new(PackKind::KeysAndValues);
                    assert!(place.edit_or_create(make, put).expect("a hash").result.is_ok());
                }
            });
        }
        // Whole small hashes are removed, and runs of places in the large ones.
        let is_kept = |n: u32| {
            let of = if n < 60_000 { hasher.hash(field(n).as_bytes()) >> 58 } else { u64::from(place_of(n)) };
            of.is_multiple_of(2)
        };
        for n in (0..90_000).filter(|&n| !is_kept(n)) {
            let (name, is_set) = (field(n), place_of(n) == 1);
            at(&mut shard, n, &mut |place| {
                if is_set {
                    let item = Item::Bytes(name.as_bytes());
                    place
                        .edit(|set: &mut SetValue, arena, hasher| set.remove(arena, hasher, item))
                        .expect("a set");
                } else {
                    let hash = hasher.hash(name.as_bytes());
                    let cut = |table: &mut Table, arena: &mut Arena, _: KeyHasher| {
                        table.remove(arena, hash, name.as_bytes())
                    };
                    place.edit(cut).expect("a hash");
                }
            });
        }
        let waste = |shard: &Shard| shard.arena.committed_bytes() - shard.arena.used_bytes();
        let before = waste(&shard);
        while shard.squeeze(64) {}
        assert!(shard.tidied.packs > 0 && shard.tidied.passes > 0);
        // Some 60 classes of packs keep a page or two each.
        let after = waste(&shard);
        assert!(after < before / 2 && after < 512 << 10, "{before} bytes wasted, then {after}");
        for n in 0..90_000 {
            let (name, is_set) = (field(n), place_of(n) == 1);
            let mut found = None;
            at(&mut shard, n, &mut |place| {
                let item = Item::Bytes(name.as_bytes());
                found = Some(if is_set {
                    let view = place.view::<SetValue>().expect("a set").expect("it is there");
                    view.root.contains(view.arena, view.hasher, item, 1)
                } else {
                    let hash = place.hash(name.as_bytes());
                    let view = place.view::<Table>().expect("a hash");
                    view.is_some_and(|view| view.root.get(view.arena, hash, name.as_bytes()).is_some())
                });
            });
            assert_eq!(found, Some(is_kept(n)), "{name}");
        }
    }
}

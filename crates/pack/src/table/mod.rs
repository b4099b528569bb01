//! The table of packs: sets of strings and hashes, optionally with an expiry time per entry.
//!
//! The store owns the root and gives the arena, the hash of each key and the clock. A small table is one pack without
//! a directory; a large one is an extendible directory of packs. It grows and shrinks one pack at a time: no
//! operation touches more than two packs and one directory node.
//!
//! A key's *place* is its hash, bent so that places are denser at one end of hash space by a factor of two (as in
//! spiral storage). Otherwise all packs of a table would fill and split at the same time, and the arena would hold
//! the pages of every size they passed through. With bent places all sizes occur at any time, in constant proportion.

mod directory;
mod expire;
mod growth;
mod guard;
mod scan;
#[cfg(test)]
mod tests;
mod write;

use darter_slab::{Arena, Handle};

pub use crate::pack::{EntryRef, PackFull, PackKind};
pub use expire::Expired;
pub use guard::Guarding;
pub use scan::TableIter;

use crate::entry::{Coded, EXPIRY_MS_MAX, Item};
use crate::pack::Pack;
use crate::spill::Spill;
use directory::{Bytes, TableDirectory};
use expire::FieldTimes;
use guard::Guards;

/// A table of packs. An empty table holds no arena block. Dropping a table that is not empty leaks its blocks until
/// the arena is cleared, so its owner calls [`Table::clear`] or [`Table::free_step`] first.
#[derive(Debug)]
pub struct Table {
    directory: TableDirectory,
    kind: PackKind,
    len: u32,
    // All blocks of this table in the arena, in granules of 8 bytes.
    granules: u32,
    spill: Spill,
    // The parts that few tables have; a null pointer in all others.
    side: Option<Box<TableSide>>,
}

/// The parts that a table has only for some time.
#[derive(Debug, Default)]
struct TableSide {
    // Present while an entry may have an expiry time.
    times: Option<FieldTimes>,
    // Not empty while a snapshot or a client reads the table in steps.
    guards: Guards,
}

/// How a write treats the expiry time of its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldExpiry {
    /// Leave it unchanged; a new entry has no expiry.
    Keep,
    /// Remove it.
    Clear,
    /// Set it, in Unix milliseconds, 1..=[`EXPIRY_MS_MAX`] (values outside are moved to the nearest bound).
    At(u64),
}

/// The result of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// The key was absent.
    New,
    /// The key was present; its value was replaced.
    Replaced,
}

impl Table {
    /// An empty table. Costs nothing.
    pub const fn new(kind: PackKind) -> Table {
        Table { directory: TableDirectory::EMPTY, kind, len: 0, granules: 0, spill: Spill::new(), side: None }
    }

    /// The parts of its entries.
    pub fn kind(&self) -> PackKind {
        self.kind
    }

    /// Number of entries, expired ones not yet removed included.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory in bytes: arena blocks by size class, and strings past 32 KiB; without the root itself.
    pub fn bytes(&self) -> usize {
        self.arena_bytes() + self.heap_bytes()
    }

    /// The part of [`Table::bytes`] that lies in the arena.
    pub fn arena_bytes(&self) -> usize {
        self.granules as usize * 8
    }

    /// The part of [`Table::bytes`] that lies outside the arena.
    pub fn heap_bytes(&self) -> usize {
        self.spill.bytes() + if self.side.is_some() { size_of::<TableSide>() } else { 0 }
    }

    /// Returns true if the table is a single pack: at most a few dozen entries, in the order of their insertion.
    pub fn is_single_pack(&self) -> bool {
        self.directory.level == 0
    }

    /// The entry of `key`, whose hash is `hash`. An expired entry is found until it is removed.
    #[inline]
    pub fn get<'a>(&'a self, arena: &'a Arena, hash: u64, key: &[u8]) -> Option<EntryRef<'a>> {
        let h = self.directory.find(arena, place_of(hash));
        if h.is_none() {
            return None;
        }
        let pack = Pack::open(arena, h);
        let place = pack.find(place_of(hash), &Coded::of(key), self.kind, arena, &self.spill)?;
        Some(pack.entry(place.at, self.kind, arena, &self.spill))
    }

    /// Prefetches the memory an operation on a key of `hash` will touch first. Cost: the directory's lookup.
    #[inline]
    pub fn prefetch(&self, arena: &Arena, hash: u64) {
        arena.prefetch(self.directory.find(arena, place_of(hash)));
    }

    /// Returns true if `key` is present.
    #[inline]
    pub fn contains(&self, arena: &Arena, hash: u64, key: &[u8]) -> bool {
        self.get(arena, hash, key).is_some()
    }

    /// Writes `key` with `value` (ignored by a table of keys only); `hasher` gives the hash of any key.
    ///
    /// Errors: `PackFull`, and the entry is unchanged. Cost: one pack; sometimes the split of it.
    #[inline]
    pub fn insert(
        &mut self,
        arena: &mut Arena,
        hash: u64,
        key: &[u8],
        value: Item<'_>,
        expiry: FieldExpiry,
        hasher: &impl Fn(&[u8]) -> u64,
    ) -> Result<Inserted, PackFull> {
        let x = place_of(hash);
        self.before_change(arena, x);
        let key = Coded::of(key);
        let value = match self.kind {
            PackKind::Keys => Coded::of_item(Item::Int(0)),
            PackKind::KeysAndValues => Coded::of_item(value.canonical()),
        };
        let h = self.directory.find(arena, x);
        if h.is_none() {
            self.insert_first(arena, x, key, value, expiry)?;
            return Ok(Inserted::New);
        }
        if let Some(place) = Pack::open(arena, h).find(x, &key, self.kind, arena, &self.spill) {
            self.overwrite(arena, x, h, place, value, expiry)?;
            return Ok(Inserted::Replaced);
        }
        let is_plain = !matches!(expiry, FieldExpiry::At(_)) && !key.is_long() && !value.is_long();
        if is_plain && self.len < u32::MAX {
            let len = key.len() + if self.kind == PackKind::Keys { 0 } else { value.len() };
            if let Some(h) = self.room_within(arena, x, h, len) {
                let head = Pack::append_within(arena, h, x, &key, &value, self.kind);
                self.len += 1;
                self.split_if_full(arena, x, h, head, hasher);
                return Ok(Inserted::New);
            }
        }
        let (h, head) = self.append(arena, x, h, key, value, expiry)?;
        self.split_if_full(arena, x, h, head, hasher);
        Ok(Inserted::New)
    }

    /// Replaces the value of `key` by the integer that `change` makes of it. Returns false, with nothing changed, if
    /// `key` is absent, `change` returns `None`, or the new value needs another number of bytes.
    #[inline]
    pub fn replace_int(
        &mut self,
        arena: &mut Arena,
        hash: u64,
        key: &[u8],
        change: impl FnOnce(Item<'_>) -> Option<i64>,
    ) -> bool {
        let x = place_of(hash);
        self.before_change(arena, x);
        let h = self.directory.find(arena, x);
        if h.is_none() {
            return false;
        }
        let pack = Pack::open(arena, h);
        let Some(place) = pack.find(x, &Coded::of(key), self.kind, arena, &self.spill) else { return false };
        let old = pack.entry(place.at, self.kind, arena, &self.spill).value();
        let Some(new) = change(old) else { return false };
        Pack::overwrite_same_len(arena, h, place, &Coded::of_item(Item::Int(new)))
    }

    /// Removes `key`; whether it was there.
    pub fn remove(&mut self, arena: &mut Arena, hash: u64, key: &[u8]) -> bool {
        let x = place_of(hash);
        self.before_change(arena, x);
        let h = self.directory.find(arena, x);
        if h.is_none() {
            return false;
        }
        let Some(place) = Pack::open(arena, h).find(x, &Coded::of(key), self.kind, arena, &self.spill) else {
            return false;
        };
        self.take_out(arena, x, h, place);
        self.merge_if_small(arena, x);
        true
    }

    /// Sets or removes the expiry time of `key`, in Unix milliseconds. Returns true if the key was there.
    ///
    /// Errors: `PackFull`, and nothing was changed.
    pub fn set_expiry(
        &mut self,
        arena: &mut Arena,
        hash: u64,
        key: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<bool, PackFull> {
        let x = place_of(hash);
        self.before_change(arena, x);
        let h = self.directory.find(arena, x);
        if h.is_none() {
            return Ok(false);
        }
        let Some(place) = Pack::open(arena, h).find(x, &Coded::of(key), self.kind, arena, &self.spill) else {
            return Ok(false);
        };
        let expiry = expiry_ms.map_or(FieldExpiry::Clear, FieldExpiry::At);
        self.write_expiry(arena, x, h, place, expiry)?;
        Ok(true)
    }

    /// Moves blocks out of pages that the arena wants to empty (`Arena::start_compaction`): those of up to
    /// `packs_max` packs from `cursor` on. Returns the next cursor, 0 at the end. As in a scan, entries that stay are
    /// visited whatever else changes.
    pub fn compact_step(&mut self, arena: &mut Arena, cursor: u64, packs_max: usize) -> u64 {
        let mut x = cursor << (64 - DEPTH_MAX);
        for _ in 0..packs_max {
            if self.is_empty() {
                return 0;
            }
            self.directory.compact(arena, x);
            let h = self.directory.find(arena, x);
            let depth = Pack::open(arena, h).head().depth();
            let moved = Pack::compact(arena, h, self.kind);
            if moved != h {
                self.directory.replace(arena, x, depth, moved);
            }
            let Some(next) = scan::place_after(x, depth) else { return 0 };
            x = next;
        }
        x >> (64 - DEPTH_MAX)
    }

    /// The only block of this table, if it is one pack of short entries without expiry times. The owner may keep this
    /// handle alone, forget the table, and remake it with [`Table::unfold`].
    #[inline]
    pub fn fold(&self, arena: &Arena) -> Option<Handle> {
        let root = self.directory.root;
        if self.directory.level != 0 || root.is_none() || self.side.is_some() || !self.spill.is_none() {
            return None;
        }
        let head = Pack::open(arena, root).head();
        (!head.spilled() && head.len() != 0).then_some(root)
    }

    /// The table of `kind` whose [`Table::fold`] returned `pack`.
    #[inline]
    pub fn unfold(kind: PackKind, pack: Handle, arena: &Arena) -> Table {
        let len = Pack::open(arena, pack).head().len() as u32;
        let granules = (arena.size(pack) / 8) as u32;
        Table {
            directory: TableDirectory { root: pack, level: 0 },
            kind,
            len,
            granules,
            spill: Spill::new(),
            side: None,
        }
    }

    /// Frees everything. Cost: the whole table; see [`Table::free_step`] for large ones.
    pub fn clear(&mut self, arena: &mut Arena) {
        while !self.free_step(arena, usize::MAX) {}
    }

    /// Frees up to `packs_max` packs. Returns true if the table is now empty and may be used again. Until then only
    /// this and the sizes may be called.
    pub fn free_step(&mut self, arena: &mut Arena, packs_max: usize) -> bool {
        let mut bytes = self.take_bytes();
        for _ in 0..packs_max {
            let Some(pack) = self.directory.pop(arena, &mut bytes) else { break };
            self.len -= self.release_items(arena, &mut bytes, pack);
            bytes.free(arena, pack);
        }
        let done = self.directory.root.is_none();
        if done {
            debug_assert_eq!((self.len, bytes), (0, Bytes(0)));
            self.forget_times();
        }
        self.put_bytes(bytes);
        done
    }
}

impl Table {
    /// Drops what nothing needs any more.
    fn settle_side(&mut self) {
        if self.side.as_ref().is_some_and(|side| side.times.is_none() && side.guards.is_empty()) {
            self.side = None;
        }
    }
}

impl FieldExpiry {
    /// The time to set, within bounds.
    fn ms(self) -> Option<u64> {
        match self {
            FieldExpiry::At(ms) => Some(ms.clamp(1, EXPIRY_MS_MAX)),
            FieldExpiry::Keep | FieldExpiry::Clear => None,
        }
    }
}

/// The place of a hash: `u + c * u * (1 - u)` for the hash as a fraction u of one, close to `log2(1 + u)`.
#[inline]
fn place_of(hash: u64) -> u64 {
    let parabola = (u128::from(hash) * u128::from(!hash)) >> 64;
    hash.wrapping_add(((parabola * BEND) >> 64) as u64)
}

/// 0.344 * 2^64: the density of places then falls by half from one end of hash space to the other.
const BEND: u128 = 0x5810_624D_D2F1_A800;
/// Deepest pack: scan cursors have 48 bits.
const DEPTH_MAX: u32 = 48;

//! A snapshot of one shard while it changes: entries are written in their state at the cut before they change.
//!
//! The server begins a cut with all shards held, so that all begin at the same point in time. From then on every
//! change first writes the home line of its key, some ten keys at most, unless it is written already. Between changes
//! the server walks over the rest in short steps. Nothing is copied and nothing is written twice.

mod frozen;
mod pieces;

use std::collections::BTreeMap;

use darter_base::hash::KeyHasher;
use darter_index::ScanPosition;
use darter_slab::{Arena, Handle};

use crate::db::{Db, YOUNGER};
use crate::object::Object;
use crate::record::{Record, RecordValue};
use crate::shard::Shard;
use crate::slots::SlotKeys;
use crate::text::Text;

use frozen::Frozen;

/// A key in its state at the cut.
#[derive(Clone, Copy)]
pub struct CutEntry<'a> {
    /// Its database.
    pub db: usize,
    /// Its name, deadline and marks.
    pub record: Record<'a>,
    /// Its value.
    pub value: CutBody<'a>,
}

/// A value to be written.
#[derive(Clone, Copy)]
pub enum CutBody<'a> {
    /// A string.
    Text(Text<'a>),
    /// A collection, and the arena of its packs.
    Object(&'a Object, &'a Arena),
}

/// Takes the keys of one shard as they are written. Called with the shard held, so it must be quick.
pub trait Keeper: Send {
    /// Takes one key; each comes once, in no order.
    fn keep(&mut self, entry: CutEntry<'_>);
    /// Takes the key of a value that is too large to write at once. Its `total` members follow in pieces, written
    /// under type byte `kind`.
    fn keep_in_pieces(&mut self, db: usize, record: Record<'_>, kind: u8, total: u64)
    -> Box<dyn PieceKeeper>;
    /// Reports a change of the memory that is held because of the cut, in bytes.
    fn note_kept(&mut self, bytes: isize);
}

/// Takes the pieces of one large value, with the shard held.
pub trait PieceKeeper: Send {
    /// Takes a piece: a separate value in the format of RDB, without type byte. `before` elements were in earlier
    /// pieces of this keeper. Those of a list come in order.
    fn keep(&mut self, before: u64, piece: &[u8]);
    /// Another one for pieces of the same value.
    fn another(&self) -> Box<dyn PieceKeeper>;
}

/// A running cut of one shard.
pub(crate) struct Cut {
    keeper: Box<dyn Keeper>,
    // The database that is walked, by its number at the cut, and how far.
    db: usize,
    at: ScanPosition,
    // Databases that were emptied meanwhile and are not written yet.
    emptied: Vec<Db>,
    // Keys written because they, or others of their line, were about to change.
    early: u64,
    // Large values that are being written in pieces, by their numbers.
    guarded: Vec<u32>,
    // Large trees that are written in their state at the cut, by the numbers of their values.
    frozen: BTreeMap<u32, Frozen>,
    // Trees that are written and still free their pre-images.
    adrift: Vec<Frozen>,
}

impl Cut {
    /// Returns true if this value is being written in pieces.
    pub(crate) fn goes_through(&self, id: u32) -> bool {
        self.guarded.contains(&id) || self.frozen.contains_key(&id)
    }
}

impl Shard {
    /// Begins a cut: `keeper` gets every present key in its present state. `epoch` is above 0 and differs from those
    /// of the thousands of cuts before. The previous cut must have ended.
    pub fn begin_cut(&mut self, epoch: u16, keeper: Box<dyn Keeper>) {
        debug_assert!(self.cut.is_none() && epoch > 0);
        for (number, db) in self.dbs.iter_mut().enumerate() {
            db.index.set_epoch(epoch);
            db.cut_number = number as u16;
        }
        let (db, at) = (0, ScanPosition::START);
        self.cut = Some(Box::new(Cut {
            keeper,
            db,
            at,
            emptied: Vec::new(),
            early: 0,
            guarded: Vec::new(),
            frozen: BTreeMap::new(),
            adrift: Vec::new(),
        }));
    }

    /// Returns true if a cut is running.
    #[inline]
    pub fn has_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Writes keys of up to `homes_max` index lines that are not written yet; returns true if all are. Cost: some
    /// microseconds a line, or as long as its largest value takes.
    pub fn walk_cut(&mut self, homes_max: usize) -> bool {
        let mut left = homes_max;
        while left > 0 && self.has_pieces() {
            self.write_pieces();
            left -= 1;
        }
        let Shard { dbs, cut, arena, objects, hasher, .. } = self;
        let Some(cut) = cut else { return true };
        let hash_of = |h: Handle| hasher.hash_key(Record { tail: arena.tail(h) }.key());
        while cut.db < dbs.len() {
            let number = cut.db;
            let Cut { keeper, guarded, frozen, emptied, db: cut_db, at: cut_at, .. } = &mut **cut;
            let mut writer =
                CutWriter { keeper: &mut **keeper, guarded, frozen, objects, arena, hasher: *hasher };
            let mut all = dbs.iter_mut().chain(emptied);
            let Some(db) = all.find(|db| usize::from(db.cut_number) == number) else {
                (*cut_db, *cut_at) = (number + 1, ScanPosition::START);
                continue;
            };
            let mut at = Some(*cut_at);
            while let Some(position) = at {
                if left == 0 {
                    *cut_at = position;
                    return false;
                }
                left -= 1;
                at = db.index.mark_next(position, hash_of, |h| writer.write(number, h));
                if let Some(next) = at {
                    db.index.each_in_line(next, |h| arena.prefetch(h));
                }
            }
            (*cut_db, *cut_at) = (number + 1, ScanPosition::START);
        }
        !self.has_pieces()
    }

    fn has_pieces(&self) -> bool {
        self.cut
            .as_ref()
            .is_some_and(|cut| !cut.guarded.is_empty() || !cut.frozen.is_empty() || !cut.adrift.is_empty())
    }

    /// Writes a bit of one large value.
    fn write_pieces(&mut self) {
        let Shard { cut: Some(cut), arena, objects, .. } = self else { return };
        // Trees first. A value without a key is released as soon as all of it is written.
        if let Some(frozen) = cut.adrift.last_mut() {
            let kept = frozen.kept_bytes();
            if frozen.forget() {
                cut.adrift.pop();
                cut.keeper.note_kept(-(kept as isize));
            }
        } else if let Some(mut first) = cut.frozen.first_entry() {
            let id = *first.key();
            first.get_mut().step(objects.get_mut(id), arena);
            if first.get().is_written() {
                let (id, frozen) = first.remove_entry();
                cut.adrift.push(frozen);
                self.let_go(id);
            }
        } else if let Some(&id) = cut.guarded.last()
            && objects.get_mut(id).write_piece(arena)
        {
            cut.guarded.pop();
            self.let_go(id);
        }
    }

    /// To be called before value `id` changes. If it returns true, [`Shard::end_change`] must be called afterwards.
    #[inline]
    pub(crate) fn begin_change(&mut self, id: u32) -> bool {
        self.cut.is_some() && self.begin_kept_change(id)
    }

    #[cold]
    #[inline(never)]
    fn begin_kept_change(&mut self, id: u32) -> bool {
        let Shard { cut: Some(cut), arena, .. } = self else { return false };
        let frozen = cut.frozen.get_mut(&id);
        if let Some(frozen) = &frozen {
            cut.keeper.note_kept(-(frozen.kept_bytes() as isize));
        }
        frozen.map(|frozen| frozen.begin_change(arena)).is_some()
    }

    /// The change of value `id` that was begun has ended.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_change(&mut self, id: u32) {
        let Shard { cut: Some(cut), arena, objects, .. } = self else { return };
        if let Some(frozen) = cut.frozen.get_mut(&id) {
            frozen.end_change(objects.get(id), arena);
            cut.keeper.note_kept(frozen.kept_bytes() as isize);
        }
    }

    /// Ends a cut, complete or not. Returns its keeper and the number of keys written early.
    pub fn end_cut(&mut self) -> Option<(Box<dyn Keeper>, u64)> {
        let mut cut = *self.cut.take()?;
        let kept: usize = cut.frozen.values().chain(&cut.adrift).map(Frozen::kept_bytes).sum();
        cut.keeper.note_kept(-(kept as isize));
        for db in &mut self.dbs {
            db.index.set_epoch(0);
            db.cut_number = YOUNGER;
        }
        self.ruins.extend(cut.emptied);
        for id in cut.guarded {
            self.objects.get_mut(id).unguard();
            self.let_go(id);
        }
        for (id, mut frozen) in cut.frozen {
            frozen.end(self.objects.get_mut(id));
            self.let_go(id);
        }
        Some((cut.keeper, cut.early))
    }

    /// To be called before the key of this hash is created, changed or removed.
    #[inline]
    pub(crate) fn write_first(&mut self, db: usize, hash: u64) {
        if self.cut.is_some() {
            self.write_home(db, hash);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_home(&mut self, db: usize, hash: u64) {
        let Shard { dbs, cut: Some(cut), arena, objects, hasher, .. } = self else { return };
        let db = &mut dbs[db];
        if db.index.is_marked(hash) {
            return;
        }
        let hash_of = |h: Handle| hasher.hash_key(Record { tail: arena.tail(h) }.key());
        let Cut { keeper, early, guarded, frozen, .. } = &mut **cut;
        let mut writer =
            CutWriter { keeper: &mut **keeper, guarded, frozen, objects, arena, hasher: *hasher };
        db.index.each_like(hash, hash_of, |h| {
            *early += 1;
            writer.write(usize::from(db.cut_number), h);
        });
        db.index.mark(hash);
    }

    /// To be called after a key was added: in an index without memory its home could not be marked before.
    #[inline]
    pub(crate) fn wrote_first(&mut self, db: usize, hash: u64) {
        if self.cut.is_some() {
            self.dbs[db].index.mark(hash);
        }
    }

    /// Takes a database that was emptied. Its unwritten entries stay until the cut has written them.
    pub(crate) fn set_aside(&mut self, db: Db) {
        match &mut self.cut {
            Some(cut) if db.cut_number != YOUNGER => cut.emptied.push(db),
            _ => self.ruins.push(db),
        }
    }

    /// Frees up to about `lines_max` index lines of emptied databases and the records they name; true when none is
    /// left.
    pub(crate) fn clear_ruins(&mut self, lines_max: usize) -> bool {
        let Some(mut db) = self.ruins.pop() else { return true };
        let mut handles = Vec::new();
        // Line by line, because the homes of stashed records are unknown once some are freed.
        let (next, _) = db.index.move_records(db.ruined_to, lines_max, |handle| {
            handles.push(handle);
            None
        });
        for handle in handles {
            self.drop_object_of(handle);
            self.arena.free(handle);
        }
        if next != ScanPosition::START {
            db.ruined_to = next;
            self.ruins.push(db);
        }
        self.ruins.is_empty()
    }
}

/// Passes records and their values to a keeper.
pub(crate) struct CutWriter<'a> {
    keeper: &'a mut dyn Keeper,
    guarded: &'a mut Vec<u32>,
    frozen: &'a mut BTreeMap<u32, Frozen>,
    objects: &'a mut SlotKeys<Object>,
    arena: &'a Arena,
    hasher: KeyHasher,
}

impl CutWriter<'_> {
    fn write(&mut self, db: usize, handle: Handle) {
        let (keeper, arena) = (&mut *self.keeper, self.arena);
        let record = Record { tail: arena.tail(handle) };
        match record.value() {
            RecordValue::Text(bytes) => {
                keeper.keep(CutEntry { db, record, value: CutBody::Text(Text::Plain(bytes)) })
            }
            RecordValue::Packed(packed, len) => {
                keeper.keep(CutEntry { db, record, value: CutBody::Text(Text::Packed(packed, len)) });
            }
            RecordValue::Object(_, id) => {
                let object = self.objects.get_mut(id);
                if pieces::is_large(object) {
                    let (kind, total) = (pieces::kind_of(object), object.elements());
                    let keeper = keeper.keep_in_pieces(db, record, kind, total);
                    let begun = pieces::begin(object, arena, self.hasher, keeper);
                    if begun.is_guarded {
                        self.guarded.push(id);
                    }
                    self.frozen.extend(begun.frozen.map(|frozen| (id, frozen)));
                } else {
                    keeper.keep(CutEntry { db, record, value: CutBody::Object(object, arena) });
                }
            }
            RecordValue::Folded(kind, block) => {
                let object = Object::unfold(kind, block, arena);
                keeper.keep(CutEntry { db, record, value: CutBody::Object(&object, arena) });
            }
        }
    }
}

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod tests;

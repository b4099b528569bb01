//! Large hashes and sets in pieces, so that no write has to wait until a million members are written.

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::table::{EntryRef, Guarding, Table};
use darter_pack::tree::Direction;
use darter_slab::Arena;

use super::PieceKeeper;
use crate::object::Object;
use crate::rdb;

/// Tables above this are written in pieces.
const LARGE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 64 << 10 };
/// A piece is closed when it is longer.
const PIECE_BYTES: usize = if cfg!(test) { 200 } else { 32 << 10 };
/// Packs written in one step: some microseconds.
const PACKS_PER_STEP: usize = 2;

/// Whether a value is written in pieces.
pub(super) fn is_large(object: &Object) -> bool {
    let table = match object {
        Object::Hash(table) => Some(table),
        Object::Set(set) => set.texts(),
        _ => None,
    };
    table.is_some_and(|table| table.bytes() > LARGE_BYTES)
}

/// Begins to write a large value.
pub(super) fn guard(object: &mut Object, arena: &Arena, hasher: KeyHasher, keeper: Box<dyn PieceKeeper>) {
    let kind = rdb::type_of(object);
    let earliest_ms = object.next_expiry_ms();
    let mut scribe =
        Scribe { hasher, kind, earliest_ms, count: 0, members: Vec::new(), piece: Vec::new(), keeper };
    if let Object::Set(set) = object {
        for value in set.ints().map(|ints| ints.iter(arena, 0, Direction::Up)).into_iter().flatten() {
            rdb::write_member(kind, earliest_ms, Item::Int(value), None, None, &mut scribe.members);
            scribe.count += 1;
        }
    }
    if let Some(table) = object.table_mut() {
        table.guard(Box::new(scribe));
    }
}

impl Object {
    /// The table of a hash, or that of a set's texts.
    fn table_mut(&mut self) -> Option<&mut Table> {
        match self {
            Object::Hash(table) => Some(table),
            Object::Set(set) => set.guarded_texts_mut(),
            _ => None,
        }
    }

    /// Writes a bit of a value that was guarded; true when all of it is.
    pub(super) fn write_piece(&mut self, arena: &Arena) -> bool {
        // A set that has lost its texts, and with them the table, had them all written.
        let Some(table) = self.table_mut() else { return true };
        let is_done = table.guard_step(arena, PACKS_PER_STEP);
        if is_done {
            drop(table.unguard());
        }
        is_done
    }

    /// Ends writing in pieces.
    pub(super) fn unguard(&mut self) {
        drop(self.table_mut().and_then(Table::unguard));
    }

    /// Members of a hash or a set.
    pub(super) fn elements(&self) -> u64 {
        match self {
            Object::Hash(table) => table.len() as u64,
            Object::Set(set) => set.len(),
            _ => 0,
        }
    }
}

/// Writes members into pieces; what is left when it is dropped is the last one.
struct Scribe {
    hasher: KeyHasher,
    kind: u8,
    earliest_ms: Option<u64>,
    count: u64,
    members: Vec<u8>,
    piece: Vec<u8>,
    keeper: Box<dyn PieceKeeper>,
}

impl Scribe {
    fn close(&mut self) {
        if self.count == 0 {
            return;
        }
        self.piece.clear();
        rdb::write_members_head(self.kind, self.earliest_ms, self.count, &mut self.piece);
        self.piece.extend_from_slice(&self.members);
        self.keeper.keep(&self.piece);
        self.members.clear();
        self.count = 0;
    }
}

impl Guarding for Scribe {
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    fn keep(&mut self, entry: EntryRef<'_>) {
        let value = matches!(self.kind, rdb::TYPE_HASH | rdb::TYPE_HASH_WITH_TTL).then(|| entry.value());
        rdb::write_member(
            self.kind,
            self.earliest_ms,
            entry.key(),
            value,
            entry.expiry_ms(),
            &mut self.members,
        );
        self.count += 1;
        if self.members.len() >= PIECE_BYTES {
            self.close();
        }
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.close();
    }
}

//! Large collections in pieces, so that no write has to wait until a million elements are written.
//!
//! Tables are guarded (`pack::table::guard`), trees are frozen ([`Frozen`]); a set may be both.

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::table::{EntryRef, Guarding, Table};
use darter_pack::tree::Direction;
use darter_slab::Arena;

use super::PieceKeeper;
use super::frozen::{self, Frozen};
use crate::module::TYPE_MODULE;
use crate::object::Object;
use crate::rdb::{self, StreamPieces};

/// Collections above this are written in pieces.
const LARGE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 64 << 10 };
/// A piece is closed when it is longer.
const PIECE_BYTES: usize = if cfg!(test) { 200 } else { 32 << 10 };
/// The number of a snapshot's guard; readers have others.
const SNAPSHOT: u32 = 0;
/// Packs written in one step: some microseconds.
const PACKS_PER_STEP: usize = 2;

/// Returns true if a value is written in pieces.
pub(super) fn is_large(object: &Object) -> bool {
    let table = match object {
        Object::Hash(table) => Some(table),
        Object::Set(set) => set.texts(),
        _ => None,
    };
    table.is_some_and(|table| table.bytes() > LARGE_BYTES) || frozen::is_large(object, LARGE_BYTES)
}

/// The type byte of a large value's pieces. Pieces of streams are in the most general form: the choice of a lesser
/// one would need a pass over the consumers.
pub(super) fn kind_of(object: &Object) -> u8 {
    match object {
        Object::Stream(_) => rdb::TYPE_STREAM_5,
        // A whole array has its own type byte.
        Object::Module(_) => TYPE_MODULE,
        _ => rdb::type_of(object),
    }
}

/// The way in which a large value is written from now on.
pub(super) struct PiecesBegun {
    /// Its table is guarded.
    pub(super) is_guarded: bool,
    /// Its tree is frozen.
    pub(super) frozen: Option<Frozen>,
}

/// Begins to write a large value.
pub(super) fn begin(
    object: &mut Object,
    arena: &Arena,
    hasher: KeyHasher,
    keeper: Box<dyn PieceKeeper>,
) -> PiecesBegun {
    let (kind, earliest_ms) = (kind_of(object), object.next_expiry_ms());
    let frozen =
        Frozen::new(object, LARGE_BYTES, || PieceScribe::new(hasher, kind, earliest_ms, keeper.another()));
    let mut scribe = PieceScribe::new(hasher, kind, earliest_ms, keeper);
    if frozen.is_none()
        && let Object::Set(set) = object
    {
        for value in set.ints().map(|ints| ints.iter(arena, 0, Direction::Up)).into_iter().flatten() {
            scribe.add(Item::Int(value), None, None);
        }
    }
    let table = object.table_mut();
    let is_guarded = table.is_some();
    if let Some(table) = table {
        table.guard(SNAPSHOT, Box::new(scribe));
    }
    PiecesBegun { is_guarded, frozen }
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

    /// Writes a step of a guarded value; returns true if all of it is written.
    pub(super) fn write_piece(&mut self, arena: &Arena) -> bool {
        // A set that has lost all its texts, and the table with them, has written them.
        let Some(table) = self.table_mut() else { return true };
        let is_done = table.guard_step(arena, SNAPSHOT, PACKS_PER_STEP);
        if is_done {
            drop(table.unguard(SNAPSHOT));
        }
        is_done
    }

    /// Ends writing in pieces.
    pub(super) fn unguard(&mut self) {
        drop(self.table_mut().and_then(|table| table.unguard(SNAPSHOT)));
    }

    /// Elements of a collection that may be written in pieces.
    pub(super) fn elements(&self) -> u64 {
        match self {
            Object::Hash(table) => table.len() as u64,
            Object::Set(set) => set.len(),
            Object::List(list) => list.len(),
            Object::Zset(zset) => zset.len(),
            Object::Stream(stream) => StreamPieces::elements(stream),
            Object::Module(value) => value.pieces(),
        }
    }
}

/// Writes elements into pieces. Dropping it closes the last one.
pub(super) struct PieceScribe {
    hasher: KeyHasher,
    kind: u8,
    earliest_ms: Option<u64>,
    // Elements in the pieces before the present one.
    before: u64,
    count: u64,
    elements: Vec<u8>,
    piece: Vec<u8>,
    keeper: Box<dyn PieceKeeper>,
}

impl PieceScribe {
    fn new(
        hasher: KeyHasher,
        kind: u8,
        earliest_ms: Option<u64>,
        keeper: Box<dyn PieceKeeper>,
    ) -> PieceScribe {
        let (elements, piece) = (Vec::new(), Vec::new());
        PieceScribe { hasher, kind, earliest_ms, before: 0, count: 0, elements, piece, keeper }
    }

    /// Writes an element of a tree; one of a sorted set has a score and an expiry (0: never). Returns its length in
    /// bytes.
    pub(super) fn add(&mut self, item: Item<'_>, score: Option<f64>, expiry_ms: Option<u64>) -> usize {
        let before = self.elements.len();
        rdb::write_member(self.kind, self.earliest_ms, item, None, None, &mut self.elements);
        if let Some(score) = score {
            self.elements.extend_from_slice(&score.to_le_bytes());
        }
        if let Some(ms) = expiry_ms {
            rdb::write_length(&mut self.elements, ms);
        }
        let bytes = self.elements.len() - before;
        self.added();
        bytes
    }

    /// Writes a piece that is a complete value; returns its number of elements.
    pub(super) fn write_whole(&mut self, write: impl FnOnce(&mut Vec<u8>) -> u64) -> u64 {
        self.piece.clear();
        let count = write(&mut self.piece);
        if count > 0 {
            self.keeper.keep(self.before, &self.piece);
            self.before += count;
        }
        count
    }

    fn added(&mut self) {
        self.count += 1;
        if self.elements.len() >= PIECE_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        if self.count == 0 {
            return;
        }
        self.piece.clear();
        rdb::write_members_head(self.kind, self.earliest_ms, self.count, &mut self.piece);
        self.piece.extend_from_slice(&self.elements);
        self.keeper.keep(self.before, &self.piece);
        self.before += self.count;
        self.elements.clear();
        self.count = 0;
    }
}

impl Guarding for PieceScribe {
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
            &mut self.elements,
        );
        self.added();
    }
}

impl Drop for PieceScribe {
    fn drop(&mut self) {
        self.close();
    }
}

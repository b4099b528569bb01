//! A JSON document: one block that holds the bytes of `darter_document`, and for a large one others with its pieces.

use std::borrow::Cow;
use std::cell::RefCell;

use darter_document::cbor;
use darter_document::precision::has_short;
use darter_document::stage::{self, Doomed, WHOLE_BYTES_MAX};
use darter_document::{Doc, FloatRuns, Parsed, PrintStyle, Printing, Rewritten, Storing, alone, parse_for};
use darter_slab::{Arena, Handle};

use super::{ModuleFieldSource, ModuleFields, ModuleKind, ModuleType, ModuleValue};
use crate::error::ShardFull;
use crate::rdb_primitives::Corrupt;
use crate::value_type::Type;

/// A JSON document.
#[derive(Debug)]
pub struct Json {
    // The first block, and its bytes.
    block: Handle,
    bytes: usize,
    // Bytes of the other blocks.
    held: usize,
    is_pieced: bool,
    // Pieces that the document has given up.
    doomed: Doomed,
    // What it will be when all blocks are stored.
    draft: Option<Box<DraftDocument>>,
    progress: RefCell<PieceProgress>,
}

/// A document whose blocks are being stored.
#[derive(Debug)]
struct DraftDocument {
    first: Vec<u8>,
    storing: Storing,
}

/// The state of a document that is written to a snapshot, or read from one, piece by piece.
#[derive(Debug, Default)]
struct PieceProgress {
    printing: Option<Printing>,
    read: Vec<u8>,
    floats: FloatRuns,
}

/// Bytes of a document in a piece of a snapshot. Its text is longer.
const PIECE_BYTES: usize = 8 << 10;
/// Bytes of text between two looks at how much of the document is printed.
const STEP_TEXT_BYTES: usize = 512;
/// Flags of a piece: it is the last one; the formats of floats follow its text.
const PIECE_LAST: u64 = 1;
const PIECE_FLOATS: u64 = 2;
/// Blocks freed by one change.
const FREED_MAX: usize = 64;

/// Versions of Redis and Valkey whose value is one text.
const TEXT_VERSION: u16 = 3;
/// The version whose text has a flag behind it, and two more texts if the flag is set.
const FLAGGED_VERSION: u16 = 2;
/// The version whose value is CBOR: what Redis 8 writes, and what is written here of floats of less than 64 bits.
const CBOR_VERSION: u16 = 4;
/// The version of RedisJSON 1, with a field for each node.
const TREE_VERSION: u16 = 0;

pub(super) const KIND: ModuleKind = ModuleKind {
    kind: Type::Json,
    letters: b"ReJSON-RL",
    version: TEXT_VERSION,
    read,
    begin: Some(|| Box::new(Json::in_block(Handle::NONE, 0))),
    unfold: Some(|block, arena| Box::new(Json::at(block, arena))),
};

impl Json {
    /// A document of the bytes that `darter_document::parse` made, or `parse_for` with this arena.
    ///
    /// Errors: no room.
    pub fn new(bytes: &[u8], arena: &mut Arena) -> Result<Json, ShardFull> {
        if bytes.len() <= WHOLE_BYTES_MAX {
            return Json::whole(bytes, arena);
        }
        let own;
        let bytes = match alone(Doc::in_block(bytes, arena)) {
            Cow::Owned(made) => {
                own = made;
                &own
            }
            Cow::Borrowed(_) => bytes,
        };
        let (stage, mut first) = stage::cut(Doc::new(bytes));
        if first.len() == bytes.len() {
            return Json::whole(bytes, arena);
        }
        let mut doomed = Doomed::default();
        let (held, _) = stage.store(&mut first, arena, &mut doomed).map_err(|_| ShardFull)?;
        let mut json = Json { held, is_pieced: true, ..Json::in_block(Handle::NONE, 0) };
        match Json::whole(&first, arena) {
            Ok(whole) => {
                (json.block, json.bytes) = (whole.block, whole.bytes);
                Ok(json)
            }
            Err(full) => {
                json.doomed.add_node(Doc::new(&first).root().bytes());
                while !json.free_step(arena, usize::MAX) {}
                Err(full)
            }
        }
    }

    fn whole(bytes: &[u8], arena: &mut Arena) -> Result<Json, ShardFull> {
        let block = first_block(bytes.len(), arena)?;
        put(arena, block, 0, bytes);
        let json = Json::in_block(block, arena.size(block));
        debug_assert!(json.doc(arena).has_names(), "words went between the parse and the store");
        Ok(json)
    }

    fn in_block(block: Handle, bytes: usize) -> Json {
        let (doomed, progress) = (Doomed::default(), RefCell::default());
        Json { block, bytes, held: 0, is_pieced: false, doomed, draft: None, progress }
    }

    fn at(block: Handle, arena: &Arena) -> Json {
        Json::in_block(block, arena.size(block))
    }

    /// The document, to read.
    pub fn doc<'a>(&self, arena: &'a Arena) -> Doc<'a> {
        match self.block.is_none() {
            true => Doc::new(&[]),
            false if self.is_pieced => Doc::in_pieces(arena.seen(self.block), arena),
            false => Doc::in_block(arena.seen(self.block), arena),
        }
    }

    /// A document without a value, which [`Json::begin_store`] and [`Json::store_step`] give one. Until then nothing reads it.
    pub fn draft() -> Json {
        Json::in_block(Handle::NONE, 0)
    }

    /// Begins to store a document that was parsed in steps.
    pub fn begin_store(&mut self, parsed: Parsed) {
        let Parsed { first, stage, .. } = parsed;
        self.draft = Some(Box::new(DraftDocument { first, storing: Storing::new(stage) }));
    }

    /// Stores up to `blocks_max` blocks; returns true if the document is complete.
    ///
    /// Errors: no room.
    pub fn store_step(&mut self, arena: &mut Arena, blocks_max: usize) -> Result<bool, ShardFull> {
        let Some(draft) = &mut self.draft else { return Ok(true) };
        let stored = draft.storing.step(arena, blocks_max);
        self.held = draft.storing.made_bytes();
        if !stored.map_err(|_| ShardFull)? {
            return Ok(false);
        }
        let room = first_block(draft.first.len(), arena)?;
        if let Some(draft) = self.draft.take() {
            let DraftDocument { mut first, storing } = *draft;
            storing.end(&mut first);
            put(arena, room, 0, &first);
            (self.block, self.bytes) = (room, arena.size(room));
            self.is_pieced = stage::has_pieces(Doc::new(&first));
        }
        Ok(true)
    }

    /// The document, to be changed by a value that has pieces although it may have none itself. One with words of the
    /// arena is copied into `own` without them.
    pub fn doc_in_pieces<'a>(&self, arena: &'a Arena, own: &'a mut Vec<u8>) -> Doc<'a> {
        let doc = self.doc(arena);
        if doc.is_pieced() {
            return doc;
        }
        *own = alone(doc).into_owned();
        Doc::in_pieces(own, arena)
    }

    /// Takes over the pieces of a value that a change has put into this document.
    pub fn adopt(&mut self, value: &mut Json, arena: &mut Arena) {
        self.held += std::mem::take(&mut value.held);
        // Its pieces stay.
        value.is_pieced = false;
        value.give_up(arena);
    }

    /// Applies a change of the document. The caller handles [`Rewritten::Gone`].
    ///
    /// Errors: no room; nothing changed.
    pub fn apply(&mut self, done: Rewritten, arena: &mut Arena) -> Result<(), ShardFull> {
        match done {
            Rewritten::Same | Rewritten::Gone => Ok(()),
            Rewritten::Patch { at, bytes } => {
                put(arena, self.block, at, &bytes);
                Ok(())
            }
            Rewritten::Whole(bytes) => self.replace(&bytes, arena),
            Rewritten::Pieces { mut first, stage } => {
                let room = Json::whole(&first, arena)?;
                let Ok((made, freed)) = stage.store(&mut first, arena, &mut self.doomed) else {
                    arena.free(room.block);
                    arena.refer_less();
                    return Err(ShardFull);
                };
                put(arena, room.block, 0, &first);
                arena.give_up(self.block);
                arena.refer_less();
                (self.block, self.bytes) = (room.block, room.bytes);
                self.held = self.held + made - freed;
                self.is_pieced = stage::has_pieces(Doc::new(&first));
                self.held -= self.doomed.free_step(arena, FREED_MAX);
                Ok(())
            }
        }
    }

    /// Puts another document in place of this one.
    ///
    /// Errors: no room; nothing changed.
    pub fn replace(&mut self, bytes: &[u8], arena: &mut Arena) -> Result<(), ShardFull> {
        if !self.is_pieced && bytes.len() <= WHOLE_BYTES_MAX && Arena::fits(bytes.len()) == self.bytes {
            put(arena, self.block, 0, bytes);
            return Ok(());
        }
        let new = Json::new(bytes, arena)?;
        let mut old = std::mem::replace(self, new);
        old.give_up(arena);
        self.held += old.held - old.doomed.free_step(arena, FREED_MAX);
        self.doomed = old.doomed;
        Ok(())
    }

    /// Frees the first block, and notes the others to be freed.
    fn give_up(&mut self, arena: &mut Arena) {
        if self.block.is_none() {
            return;
        }
        if self.is_pieced {
            self.doomed.add_node(Doc::new(arena.block(self.block)).root().bytes());
        }
        arena.give_up(self.block);
        arena.refer_less();
        (self.block, self.is_pieced, self.bytes) = (Handle::NONE, false, 0);
    }
}

/// Room for the first block of a document, which may have words of the arena: these stay as long as it is there.
fn first_block(bytes: usize, arena: &mut Arena) -> Result<Handle, ShardFull> {
    let block = arena.alloc(bytes).ok_or(ShardFull)?;
    arena.keep_none(block);
    arena.refer();
    Ok(block)
}

fn put(arena: &mut Arena, block: Handle, at: usize, bytes: &[u8]) {
    if let Some(room) = arena.block_mut(block).get_mut(at..at + bytes.len()) {
        room.copy_from_slice(bytes);
    }
}

fn read(
    version: u16,
    fields: &mut ModuleFieldSource<'_, '_>,
    arena: &mut Arena,
) -> Result<Box<dyn ModuleValue>, Corrupt> {
    let text = match version {
        TEXT_VERSION => fields.text()?,
        CBOR_VERSION => {
            let bytes = cbor::read(&fields.text()?).map_err(|_| Corrupt)?;
            return Ok(Box::new(Json::new(&bytes, arena).map_err(|_| Corrupt)?));
        }
        TREE_VERSION => {
            let mut text = Vec::new();
            read_tree(fields, &mut text, 0)?;
            text.into()
        }
        FLAGGED_VERSION => {
            let text = fields.text()?;
            if fields.unsigned()? != 0 {
                fields.text()?;
                fields.text()?;
            }
            text
        }
        _ => return Err(Corrupt),
    };
    let bytes = parse_for(&text, arena).map_err(|_| Corrupt)?;
    Ok(Box::new(Json::new(&bytes, arena).map_err(|_| Corrupt)?))
}

/// Sorts of nodes in [`TREE_VERSION`].
mod node {
    pub const NULL: u64 = 1;
    pub const TEXT: u64 = 2;
    pub const FLOAT: u64 = 4;
    pub const INTEGER: u64 = 8;
    pub const BOOLEAN: u64 = 16;
    pub const OBJECT: u64 = 32;
    pub const ARRAY: u64 = 64;
    pub const MEMBER: u64 = 128;
}

/// Appends a node, and those below it, as JSON text.
fn read_tree(fields: &mut ModuleFieldSource<'_, '_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Corrupt> {
    if depth > darter_document::DEPTH_MAX {
        return Err(Corrupt);
    }
    match fields.unsigned()? {
        node::NULL => out.extend_from_slice(b"null"),
        node::BOOLEAN => {
            let is_true = fields.text()?.first() == Some(&b'1');
            out.extend_from_slice(if is_true { b"true" } else { b"false" });
        }
        node::INTEGER => out.extend(fields.signed()?.to_string().into_bytes()),
        node::FLOAT => {
            let value = fields.double()?;
            if !value.is_finite() {
                return Err(Corrupt);
            }
            darter_document::print::write_float(value, out);
        }
        node::TEXT => write_string(&fields.text()?, out)?,
        sort @ (node::OBJECT | node::ARRAY) => {
            let is_object = sort == node::OBJECT;
            out.push(if is_object { b'{' } else { b'[' });
            for nth in 0..fields.unsigned()? {
                if nth > 0 {
                    out.push(b',');
                }
                if is_object {
                    if fields.unsigned()? != node::MEMBER {
                        return Err(Corrupt);
                    }
                    write_string(&fields.text()?, out)?;
                    out.push(b':');
                }
                read_tree(fields, out, depth + 1)?;
            }
            out.push(if is_object { b'}' } else { b']' });
        }
        _ => return Err(Corrupt),
    }
    Ok(())
}

fn write_string(text: &[u8], out: &mut Vec<u8>) -> Result<(), Corrupt> {
    let text = std::str::from_utf8(text).map_err(|_| Corrupt)?;
    darter_document::print::write_string(text.as_bytes(), out);
    Ok(())
}

impl ModuleValue for Json {
    fn kind(&self) -> Type {
        Type::Json
    }

    fn len(&self, arena: &Arena) -> u64 {
        self.doc(arena).root().len().unwrap_or(1) as u64
    }

    fn memory_bytes(&self) -> usize {
        self.bytes + self.held
    }

    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        if let Some(draft) = &mut self.draft {
            if !draft.storing.free_step(arena, blocks_max) {
                return false;
            }
            (self.draft, self.held) = (None, 0);
        }
        self.give_up(arena);
        self.doomed.free_step(arena, blocks_max);
        self.doomed.is_empty()
    }

    fn is_unswept(&self) -> bool {
        !self.doomed.is_empty()
    }

    fn sweep(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        self.held -= self.doomed.free_step(arena, blocks_max);
        self.doomed.is_empty()
    }

    fn own_version(&self, arena: &Arena) -> Option<u16> {
        has_short(self.doc(arena).root()).then_some(CBOR_VERSION)
    }

    fn write(&self, arena: &Arena, out: &mut ModuleFields<'_>) {
        let mut bytes = Vec::new();
        let root = self.doc(arena).root();
        if !cbor::write(root, &mut bytes) {
            darter_document::print::print(root, &mut bytes);
        }
        out.text(&bytes);
    }

    fn fold(&self, _arena: &Arena) -> Option<Handle> {
        // Of one that is read in pieces the text stands beside the block, which is none yet.
        let is_all = !self.is_pieced && !self.block.is_none() && self.doomed.is_empty();
        is_all.then_some(self.block)
    }

    fn compact_step(&mut self, arena: &mut Arena, _cursor: u64, _packs_max: usize) -> u64 {
        if !self.is_pieced {
            self.block = arena.compact(self.block).unwrap_or(self.block);
        }
        0
    }

    fn frozen(&self) -> Option<Box<dyn ModuleValue>> {
        let root = Json { held: self.held, is_pieced: true, ..Json::in_block(self.block, self.bytes) };
        self.is_pieced.then(|| Box::new(root) as Box<_>)
    }

    fn pieces(&self) -> u64 {
        (self.held / PIECE_BYTES) as u64 + 1
    }

    fn write_piece(&self, number: u64, arena: &Arena, out: &mut ModuleFields<'_>) {
        let is_last = number + 1 >= self.pieces();
        let mut text = Vec::new();
        let (mut progress, doc) = (self.progress.borrow_mut(), self.doc(arena));
        let printing =
            progress.printing.get_or_insert_with(|| Printing::new(doc.root_spot(), 0).noting_floats());
        let until_bytes = if is_last { usize::MAX } else { (number as usize + 1) * PIECE_BYTES };
        // The text of a short form may be long: that of names that are kept once.
        while printing.passed_bytes() < until_bytes {
            let bytes_max = text.len() + STEP_TEXT_BYTES;
            if printing.step(doc, PrintStyle::default(), &mut text, bytes_max) {
                break;
            }
        }
        let mut floats = Vec::new();
        let has_floats = printing.take_floats(&mut floats);
        out.unsigned(if is_last { PIECE_LAST } else { 0 } | if has_floats { PIECE_FLOATS } else { 0 });
        out.text(&text);
        if has_floats {
            out.text(&floats);
        }
    }

    fn read_piece(
        &mut self,
        _number: u64,
        fields: &mut ModuleFieldSource<'_, '_>,
        arena: &mut Arena,
    ) -> Result<(), Corrupt> {
        let flags = fields.unsigned()?;
        let PieceProgress { read, floats, .. } = self.progress.get_mut();
        read.extend_from_slice(&fields.text()?);
        if flags & PIECE_FLOATS != 0 {
            floats.add(&fields.text()?).map_err(|_| Corrupt)?;
        }
        if flags & PIECE_LAST != 0 {
            let (read, floats) = (std::mem::take(read), std::mem::take(floats));
            let bytes = darter_document::parse(&read).map_err(|_| Corrupt)?;
            let bytes = floats.apply(bytes).map_err(|_| Corrupt)?;
            self.replace(&bytes, arena).map_err(|_| Corrupt)?;
        }
        Ok(())
    }
}

impl ModuleType for Json {
    const KIND: Type = Type::Json;

    fn unfold(block: Handle, arena: &Arena) -> Option<Json> {
        Some(Json::at(block, arena))
    }
}

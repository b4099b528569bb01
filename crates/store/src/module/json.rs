//! A JSON document: one block that holds the bytes of `darter_document`.

use darter_document::{Doc, Rewritten};
use darter_slab::{Arena, Handle};

use super::{FieldSource, Fields, Kind, ModuleType, ModuleValue};
use crate::object::Type;
use crate::rdb::Corrupt;
use crate::shard::Full;

/// A JSON document.
#[derive(Debug)]
pub struct Json {
    block: Handle,
    // bytes of the block
    bytes: usize,
}

/// Versions of Redis and Valkey whose value is one text.
const TEXT_VERSION: u16 = 3;
/// The version whose text has a flag behind it, and two more texts if the flag is set.
const FLAGGED_VERSION: u16 = 2;
/// The version whose value is CBOR: what Redis 8 writes.
const CBOR_VERSION: u16 = 4;
/// The version of RedisJSON 1, with a field for each node.
const TREE_VERSION: u16 = 0;

pub(super) const KIND: Kind = Kind {
    kind: Type::Json,
    letters: b"ReJSON-RL",
    version: TEXT_VERSION,
    read,
    begin: None,
    unfold: Some(|block, arena| Box::new(Json::at(block, arena))),
};

impl Json {
    /// A document of the bytes that `darter_document::parse` made.
    ///
    /// Errors: no room.
    pub fn new(bytes: &[u8], arena: &mut Arena) -> Result<Json, Full> {
        let block = arena.alloc(bytes.len()).ok_or(Full)?;
        put(arena, block, 0, bytes);
        Ok(Json::at(block, arena))
    }

    fn at(block: Handle, arena: &Arena) -> Json {
        Json { block, bytes: arena.size(block) }
    }

    /// The document, to read.
    pub fn doc<'a>(&self, arena: &'a Arena) -> Doc<'a> {
        Doc::new(arena.block(self.block))
    }

    /// Applies a change of the document. The caller handles [`Rewritten::Gone`].
    ///
    /// Errors: no room; nothing changed.
    pub fn apply(&mut self, done: &Rewritten, arena: &mut Arena) -> Result<(), Full> {
        match done {
            Rewritten::Same | Rewritten::Gone => Ok(()),
            Rewritten::Patch { at, bytes } => {
                put(arena, self.block, *at, bytes);
                Ok(())
            }
            Rewritten::Whole(bytes) => self.replace(bytes, arena),
        }
    }

    /// Puts another document in place of this one.
    ///
    /// Errors: no room; nothing changed.
    pub fn replace(&mut self, bytes: &[u8], arena: &mut Arena) -> Result<(), Full> {
        if Arena::fits(bytes.len()) != self.bytes {
            let new = Json::new(bytes, arena)?;
            arena.free(self.block);
            *self = new;
        } else {
            put(arena, self.block, 0, bytes);
        }
        Ok(())
    }
}

fn put(arena: &mut Arena, block: Handle, at: usize, bytes: &[u8]) {
    if let Some(room) = arena.block_mut(block).get_mut(at..at + bytes.len()) {
        room.copy_from_slice(bytes);
    }
}

fn read(
    version: u16,
    fields: &mut FieldSource<'_, '_>,
    arena: &mut Arena,
) -> Result<Box<dyn ModuleValue>, Corrupt> {
    let text = match version {
        TEXT_VERSION => fields.text()?,
        CBOR_VERSION => darter_document::cbor::to_json(&fields.text()?).map_err(|_| Corrupt)?.into(),
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
    let bytes = darter_document::parse(&text).map_err(|_| Corrupt)?;
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
fn read_tree(fields: &mut FieldSource<'_, '_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Corrupt> {
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
        self.bytes
    }

    fn free_step(&mut self, arena: &mut Arena, _blocks_max: usize) -> bool {
        arena.free(self.block);
        self.block = Handle::NONE;
        true
    }

    fn write(&self, arena: &Arena, out: &mut Fields<'_>) {
        let mut text = Vec::new();
        darter_document::print::print(self.doc(arena).root(), &mut text);
        out.text(&text);
    }

    fn fold(&self, _arena: &Arena) -> Option<Handle> {
        Some(self.block)
    }

    fn compact_step(&mut self, arena: &mut Arena, _cursor: u64, _packs_max: usize) -> u64 {
        self.block = arena.compact(self.block).unwrap_or(self.block);
        0
    }
}

impl ModuleType for Json {
    const KIND: Type = Type::Json;

    fn unfold(block: Handle, arena: &Arena) -> Option<Json> {
        Some(Json::at(block, arena))
    }
}

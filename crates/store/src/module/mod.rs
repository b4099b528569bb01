//! Values of the families that Redis keeps in modules: JSON, filters, sketches, time series.
//!
//! All of them are one arm of [`Object`](crate::Object), so a new type is one file here: its [`ModuleValue`] and [`ModuleType`], and its
//! row in [`KINDS`]. Everything else (TYPE, DUMP, files, COPY, eviction, MEMORY USAGE) asks the trait.

pub(crate) mod array;
mod fields;
mod json;
mod sketches;

use std::any::Any;
use std::fmt::Debug;

use darter_slab::{Arena, Handle};

use crate::rdb_primitives::{Corrupt, RdbSource, write_length};
use crate::value_type::Type;

pub use array::TYPE_ARRAY;
pub use fields::{ModuleFieldSource, ModuleFields};
pub use json::Json;

/// A value of a module's type: a small root whose blocks are in the shard's arena.
pub trait ModuleValue: Any + Debug + Send {
    /// Its type.
    fn kind(&self) -> Type;
    /// Its length, for statistics: children, items, samples.
    fn len(&self, arena: &Arena) -> u64;
    /// Bytes in the arena and on the heap, without the root.
    fn memory_bytes(&self) -> usize;
    /// Frees up to about `blocks_max` blocks; returns true if none is left.
    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool;
    /// Appends the value as the module's fields in an RDB file.
    fn write(&self, arena: &Arena, out: &mut ModuleFields<'_>);

    /// The version that [`ModuleValue::write`] writes of this value, if it is not that of its type.
    fn own_version(&self, _arena: &Arena) -> Option<u16> {
        None
    }
    /// Returns true if it is empty.
    fn is_empty(&self, arena: &Arena) -> bool {
        self.len(arena) == 0
    }
    /// Moves up to about `packs_max` blocks out of pages that the arena wants to empty, from `cursor` on. Returns the
    /// next cursor, 0 at the end.
    fn compact_step(&mut self, _arena: &mut Arena, _cursor: u64, _packs_max: usize) -> u64 {
        0
    }
    /// The block that says all about this value, if its record may keep that in place of a root.
    fn fold(&self, _arena: &Arena) -> Option<Handle> {
        None
    }
    /// Returns true if it holds blocks that it has given up.
    fn is_unswept(&self) -> bool {
        false
    }
    /// Frees up to about `blocks_max` blocks that it has given up; returns true if none is left.
    fn sweep(&mut self, _arena: &mut Arena, _blocks_max: usize) -> bool {
        true
    }
    /// A copy of the root, to be read while the value changes; `None`: the value is written to files at once. A value
    /// that returns one must call [`Arena::keep_first`] before it writes a block, and every reader uses
    /// [`Arena::seen`].
    fn frozen(&self) -> Option<Box<dyn ModuleValue>> {
        None
    }
    /// The same for a reader that needs its content only.
    fn frozen_to_read(&self) -> Option<Box<dyn ModuleValue>> {
        self.frozen()
    }
    /// Pieces in which a value with [`ModuleValue::frozen`] is written to a snapshot, at least 1.
    fn pieces(&self) -> u64 {
        1
    }
    /// Appends piece `number` of a frozen value.
    fn write_piece(&self, _number: u64, arena: &Arena, out: &mut ModuleFields<'_>) {
        self.write(arena, out);
    }
    /// Adds the next piece to a value that [`ModuleKind::begin`] made.
    ///
    /// Errors: damaged, or no room.
    fn read_piece(
        &mut self,
        _number: u64,
        _fields: &mut ModuleFieldSource<'_, '_>,
        _arena: &mut Arena,
    ) -> Result<(), Corrupt> {
        Err(Corrupt)
    }
}

/// The type of a module's value at compile time: makes it a [`Collection`](crate::Collection).
pub trait ModuleType: ModuleValue + Sized {
    /// Its type.
    const KIND: Type;
    /// The value that [`ModuleValue::fold`] gave `block` for.
    fn unfold(_block: Handle, _arena: &Arena) -> Option<Self> {
        None
    }
}

/// Builds a value from the fields of a version.
pub type Read = fn(u16, &mut ModuleFieldSource<'_, '_>, &mut Arena) -> Result<Box<dyn ModuleValue>, Corrupt>;
/// Makes the root of a value that is all in one block.
pub type Unfold = fn(Handle, &Arena) -> Box<dyn ModuleValue>;

/// The functions that read values of one type.
#[derive(Debug)]
pub struct ModuleKind {
    /// The type.
    pub kind: Type,
    /// The module type's name in RDB files: nine letters.
    pub letters: &'static [u8; 9],
    /// The version that is written.
    pub version: u16,
    /// Builds a value from the fields of a version.
    ///
    /// Errors: damaged, of a version that is not known, or no room; nothing is left in the arena.
    pub read: Read,
    /// An empty value for [`ModuleValue::read_piece`]; `None`: never written in pieces.
    pub begin: Option<fn() -> Box<dyn ModuleValue>>,
    /// Rebuilds the root of a folded value.
    pub unfold: Option<Unfold>,
}

/// Every type of a module.
pub const KINDS: &[ModuleKind] = &[
    json::KIND,
    sketches::BLOOM,
    sketches::CUCKOO,
    sketches::CMS,
    sketches::TOPK,
    sketches::DIGEST,
    sketches::SERIES,
    array::KIND,
];

/// The type byte of modules' values.
pub const TYPE_MODULE: u8 = 7;
/// In place of a version: a piece of a value in our own files.
const PIECE: u16 = VERSION_MASK;
const VERSION_BITS: u32 = 10;
const VERSION_MASK: u16 = (1 << VERSION_BITS) - 1;

/// The number of a module type in RDB files: nine letters of six bits above ten bits of version.
const fn number_of(letters: &[u8; 9], version: u16) -> u64 {
    let mut number = 0;
    let mut at = 0;
    while at < letters.len() {
        let value = match letters[at] {
            letter @ b'A'..=b'Z' => letter - b'A',
            letter @ b'a'..=b'z' => letter - b'a' + 26,
            letter @ b'0'..=b'9' => letter - b'0' + 52,
            b'-' => 62,
            _ => 63,
        };
        number = number << 6 | value as u64;
        at += 1;
    }
    number << VERSION_BITS | version as u64
}

fn kind_of(number: u64) -> Option<(&'static ModuleKind, u16)> {
    let version = number as u16 & VERSION_MASK;
    let kind = KINDS.iter().find(|kind| number_of(kind.letters, version) == number)?;
    Some((kind, version))
}

/// Returns true if values with this number, the first in an RDB file, can be read.
pub fn is_known(number: u64) -> bool {
    kind_of(number).is_some()
}

fn kind_named(kind: Type) -> Option<&'static ModuleKind> {
    KINDS.iter().find(|known| known.kind == kind)
}

/// Appends a value as it follows type byte [`TYPE_MODULE`].
pub(crate) fn write(value: &dyn ModuleValue, arena: &Arena, out: &mut Vec<u8>) {
    let Some(kind) = kind_named(value.kind()) else { return };
    write_length(out, number_of(kind.letters, value.own_version(arena).unwrap_or(kind.version)));
    let mut fields = ModuleFields::new(out);
    value.write(arena, &mut fields);
    fields.end();
}

/// Appends a piece of a value as [`read`] and [`read_more`] take it.
pub(crate) fn write_piece(value: &dyn ModuleValue, number: u64, arena: &Arena, out: &mut Vec<u8>) {
    let Some(kind) = kind_named(value.kind()) else { return };
    write_length(out, number_of(kind.letters, PIECE));
    let mut fields = ModuleFields::new(out);
    fields.unsigned(number);
    value.write_piece(number, arena, &mut fields);
    fields.end();
}

/// The value, or the first piece of one, that follows type byte [`TYPE_MODULE`].
///
/// Errors: an unknown type, damaged, or no room; nothing is left in the arena.
pub(crate) fn read(source: &mut RdbSource<'_>, arena: &mut Arena) -> Result<Box<dyn ModuleValue>, Corrupt> {
    let (kind, version) = kind_of(source.count()?).ok_or(Corrupt)?;
    let mut fields = ModuleFieldSource::new(source);
    let mut value = if version == PIECE {
        let mut value = kind.begin.ok_or(Corrupt)?();
        match read_piece(&mut *value, &mut fields, arena) {
            Ok(()) => value,
            Err(corrupt) => {
                clear(&mut *value, arena);
                return Err(corrupt);
            }
        }
    } else {
        (kind.read)(version, &mut fields, arena)?
    };
    if fields.end().is_err() {
        clear(&mut *value, arena);
        return Err(Corrupt);
    }
    Ok(value)
}

/// Adds a piece to a value.
///
/// Errors: of another type, damaged, or no room.
pub(crate) fn read_more(
    value: &mut dyn ModuleValue,
    source: &mut RdbSource<'_>,
    arena: &mut Arena,
) -> Result<(), Corrupt> {
    let (kind, version) = kind_of(source.count()?).ok_or(Corrupt)?;
    if kind.kind != value.kind() || version != PIECE {
        return Err(Corrupt);
    }
    let mut fields = ModuleFieldSource::new(source);
    read_piece(value, &mut fields, arena)?;
    fields.end()
}

fn read_piece(
    value: &mut dyn ModuleValue,
    fields: &mut ModuleFieldSource<'_, '_>,
    arena: &mut Arena,
) -> Result<(), Corrupt> {
    let number = fields.unsigned()?;
    value.read_piece(number, fields, arena)
}

fn clear(value: &mut dyn ModuleValue, arena: &mut Arena) {
    while !value.free_step(arena, usize::MAX) {}
}

/// Rebuilds the root of a folded value of `kind`.
pub(crate) fn unfold(kind: Type, block: Handle, arena: &Arena) -> Option<Box<dyn ModuleValue>> {
    Some(kind_named(kind)?.unfold?(block, arena))
}

#[cfg(test)]
mod pieces_tests;
#[cfg(test)]
mod tests;

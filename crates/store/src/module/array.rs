//! A sparse array as a value: Redis' own type, which travels as the families' values do.

use darter_slab::Arena;

use super::{ModuleFieldSource, ModuleFields, ModuleKind, ModuleType, ModuleValue};
use crate::array::{Array, PLACE_MAX};
use crate::rdb_primitives::{Corrupt, RdbSource, write_length, write_text};
use crate::value_type::Type;

/// No place was inserted at yet.
const NO_CURSOR: u64 = u64::MAX;
/// Sorts of elements in an RDB file.
const LONG_TEXT: u64 = 0;
const INTEGER: u64 = 1;
const DOUBLE: u64 = 2;
const SHORT_TEXT: u64 = 3;
/// The type byte in an RDB file of Redis 8.8.
pub const TYPE_ARRAY: u8 = 28;

pub(super) const KIND: ModuleKind = ModuleKind {
    kind: Type::Array,
    // Only pieces of snapshots have a name.
    letters: b"array----",
    version: 0,
    read: |_, _, _| Err(Corrupt),
    begin: Some(|| Box::new(Array::default())),
    unfold: None,
};

/// Reads the part after the type byte.
///
/// Errors: damaged, or no room; nothing is left in the arena.
pub(crate) fn read(source: &mut RdbSource<'_>, arena: &mut Arena) -> Result<Array, Corrupt> {
    let mut array = Array::default();
    let read = read_into(&mut array, source, arena);
    if read.is_err() || array.count() == 0 {
        while !Array::free_step(&mut array, arena, usize::MAX) {}
        return Err(Corrupt);
    }
    Ok(array)
}

fn read_into(array: &mut Array, source: &mut RdbSource<'_>, arena: &mut Arena) -> Result<(), Corrupt> {
    let count = source.count()?;
    if source.count()? != 0 {
        array.cursor = Some(source.count()?).filter(|&cursor| cursor != NO_CURSOR);
    }
    let mut run = ArrayRun::default();
    for _ in 0..count {
        let place = source.count()?;
        let mut text = Vec::new();
        match source.count()? {
            LONG_TEXT | SHORT_TEXT => text.extend_from_slice(&source.text()?),
            INTEGER => darter_base::number::write_i64(&mut text, i64::from_le_bytes(source.array()?)),
            DOUBLE => darter_base::number::write_f64(&mut text, source.double()?),
            _ => return Err(Corrupt),
        }
        run.add(array, arena, place, text)?;
    }
    run.end(array, arena)
}

/// Texts at places next to each other, which are put together.
#[derive(Default)]
struct ArrayRun {
    first: u64,
    texts: Vec<Vec<u8>>,
}

const RUN_MAX: usize = 64;

impl ArrayRun {
    fn add(
        &mut self,
        array: &mut Array,
        arena: &mut Arena,
        place: u64,
        text: Vec<u8>,
    ) -> Result<(), Corrupt> {
        if place > PLACE_MAX {
            return Err(Corrupt);
        }
        let is_next = place.checked_sub(self.first) == Some(self.texts.len() as u64);
        if !is_next || self.texts.len() >= RUN_MAX {
            self.end(array, arena)?;
            self.first = place;
        }
        self.texts.push(text);
        Ok(())
    }

    fn end(&mut self, array: &mut Array, arena: &mut Arena) -> Result<(), Corrupt> {
        let texts = std::mem::take(&mut self.texts);
        array.put(arena, self.first, texts.iter().map(Vec::as_slice)).map(drop).map_err(|_| Corrupt)
    }
}

/// Appends the part after the type byte.
pub(crate) fn write(array: &Array, arena: &Arena, out: &mut Vec<u8>) {
    write_length(out, array.count());
    write_length(out, u64::from(array.cursor.is_some()));
    if let Some(cursor) = array.cursor {
        write_length(out, cursor);
    }
    array.each(arena, 0, PLACE_MAX, &mut |place, text| {
        write_length(out, place);
        write_length(out, LONG_TEXT);
        write_text(out, text);
        true
    });
}

impl ModuleValue for Array {
    fn kind(&self) -> Type {
        Type::Array
    }

    fn len(&self, _arena: &Arena) -> u64 {
        self.count()
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Array>() + Array::memory_bytes(self)
    }

    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        Array::free_step(self, arena, blocks_max)
    }

    fn is_unswept(&self) -> bool {
        Array::is_unswept(self)
    }

    fn sweep(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        Array::sweep(self, arena, blocks_max)
    }

    fn write(&self, _arena: &Arena, _out: &mut ModuleFields<'_>) {
        debug_assert!(false, "an array has a type byte of its own");
    }

    fn frozen(&self) -> Option<Box<dyn ModuleValue>> {
        Some(Box::new(Array::frozen(self)))
    }

    fn pieces(&self) -> u64 {
        1 + self.pages_len() as u64
    }

    fn write_piece(&self, number: u64, arena: &Arena, out: &mut ModuleFields<'_>) {
        let Some(number) = number.checked_sub(1) else {
            return out.unsigned(self.cursor.unwrap_or(NO_CURSOR));
        };
        let Some((from, to)) = self.page_span(number as usize) else { return out.unsigned(0) };
        let mut count = 0;
        self.each(arena, from, to, &mut |_, _| {
            count += 1;
            true
        });
        out.unsigned(count);
        self.each(arena, from, to, &mut |place, text| {
            out.unsigned(place);
            out.text(text);
            true
        });
    }

    fn read_piece(
        &mut self,
        number: u64,
        fields: &mut ModuleFieldSource<'_, '_>,
        arena: &mut Arena,
    ) -> Result<(), Corrupt> {
        let count = fields.unsigned()?;
        if number == 0 {
            self.cursor = Some(count).filter(|&cursor| cursor != NO_CURSOR);
            return Ok(());
        }
        let mut run = ArrayRun::default();
        for _ in 0..count {
            let place = fields.unsigned()?;
            run.add(self, arena, place, fields.text()?.into_owned())?;
        }
        run.end(self, arena)
    }
}

impl ModuleType for Array {
    const KIND: Type = Type::Array;
}

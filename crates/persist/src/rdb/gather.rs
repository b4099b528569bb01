//! Joins parts of values: a file of Redis has each value in one place.

use std::collections::BTreeMap;
use std::fmt;

use darter_base::hash::KeyHasher;
use darter_store::rdb::{self as values, ObjectPieces, RdbSource, TYPE_STREAM_5};
use darter_store::{Arena, Object};

use super::rewrite::{split_hash, split_members};
use crate::cursor::{Cursor, CursorStop};
use crate::entry::{EntryPart, KeyEntry};
use crate::layout;

const LIST: u8 = 1;
const SET: u8 = 2;
const HASH: u8 = 4;
const ZSET: u8 = 5;

/// Values with missing parts. Memory: the present parts.
#[derive(Default)]
pub struct Gatherer {
    begun: BTreeMap<(u32, Vec<u8>), GatheredItem>,
    // streams, and values of modules
    built: BTreeMap<(u32, Vec<u8>), Object>,
    // where they are built
    arena: Option<Box<Arena>>,
}

impl fmt::Debug for Gatherer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Gatherer").field("begun", &self.incomplete().count()).finish_non_exhaustive()
    }
}

/// The present parts of a value.
#[derive(Debug)]
struct GatheredItem {
    // elements, without the number of them
    body: Vec<u8>,
    count: u64,
    // deadlines of members and the number of them
    deadlines: Vec<u8>,
    timed: u64,
}

/// A value that is complete.
#[derive(Debug)]
pub struct WholeObject {
    /// Its type byte.
    pub kind: u8,
    /// The number of elements and the elements.
    pub value: Vec<u8>,
    /// Deadlines of members, as an entry has them; empty when there are none.
    pub deadlines: Vec<u8>,
}

impl Gatherer {
    /// The keys with missing parts.
    pub fn incomplete(&self) -> impl Iterator<Item = &(u32, Vec<u8>)> {
        self.begun.keys().chain(self.built.keys())
    }

    /// Adds a part; returns the whole value with the last one.
    ///
    /// Errors: damaged, more elements than the value has, or a list's part out of order.
    pub fn add(
        &mut self,
        db: u32,
        entry: &KeyEntry<'_>,
        part: EntryPart,
    ) -> Result<Option<WholeObject>, CursorStop> {
        if matches!(entry.kind, TYPE_STREAM_5 | layout::MODULE_2) {
            return self.add_to_built(db, entry, part);
        }
        let bad = |what| Cursor::new(&[]).bad(what);
        let place = (db, entry.key.to_vec());
        let begun = self.begun.entry(place.clone()).or_insert_with(|| GatheredItem {
            body: Vec::new(),
            count: 0,
            deadlines: Vec::new(),
            timed: 0,
        });
        let (mut plain, mut deadlines) = (Vec::new(), Vec::new());
        let (kind, value) = match entry.kind {
            layout::HASH_WITH_TTL => (HASH, split_hash(entry.value, &mut plain, &mut deadlines)?),
            layout::SET_WITH_TTL => (SET, split_members::<0>(entry.value, &mut plain, &mut deadlines)?),
            layout::ZSET_WITH_TTL => (ZSET, split_members::<8>(entry.value, &mut plain, &mut deadlines)?),
            kind @ (LIST | SET | HASH | ZSET) => (kind, entry.value),
            _ => return Err(bad("a part of a value that is not written in parts")),
        };
        if kind == LIST && part.start != begun.count {
            return Err(bad("a part of a list that does not continue the previous part"));
        }
        let mut cursor = Cursor::new(value);
        begun.count = begun.count.saturating_add(cursor.number()?);
        begun.body.extend_from_slice(cursor.rest());
        if !deadlines.is_empty() {
            let mut cursor = Cursor::new(&deadlines);
            begun.timed += cursor.number()?;
            begun.deadlines.extend_from_slice(cursor.rest());
        }
        if begun.count < part.total {
            return Ok(None);
        }
        if begun.count > part.total {
            return Err(bad("parts with more elements than the value has"));
        }
        Ok(self.begun.remove(&place).map(|done| done.finish(kind)))
    }

    fn add_to_built(
        &mut self,
        db: u32,
        entry: &KeyEntry<'_>,
        part: EntryPart,
    ) -> Result<Option<WholeObject>, CursorStop> {
        let bad = |what| Cursor::new(&[]).bad(what);
        if self.arena.is_none() {
            self.arena = Some(Box::new(Arena::new().map_err(|_| bad("no room to build a value in"))?));
        }
        let arena = self.arena.as_mut().ok_or_else(|| bad("no room to build a value in"))?;
        let (place, hasher) = ((db, entry.key.to_vec()), KeyHasher::new(0));
        let mut source = RdbSource::new(entry.value);
        let read = match self.built.get_mut(&place) {
            Some(Object::Stream(stream)) => stream.read_more(entry.kind, &mut source, arena, hasher),
            Some(object) => object.read_piece(&mut source, arena),
            _ if part.start > 0 => Err(values::Corrupt),
            _ => values::read_object(entry.kind, &mut source, arena, hasher).map(|object| {
                self.built.insert(place.clone(), object);
            }),
        };
        read.map_err(|_| bad("a part of a value that does not fit what came before"))?;
        if part.start.checked_add(1) != Some(part.total) {
            return Ok(None);
        }
        let Some(mut object) = self.built.remove(&place) else { return Ok(None) };
        let (kind, mut value) = (values::type_of(&object), Vec::new());
        values::write_object(&object, arena, &mut value);
        object.clear(arena);
        Ok(Some(WholeObject { kind, value, deadlines: Vec::new() }))
    }
}

impl GatheredItem {
    fn finish(self, kind: u8) -> WholeObject {
        let mut value = Vec::with_capacity(self.body.len() + 9);
        values::write_length(&mut value, self.count);
        value.extend_from_slice(&self.body);
        let mut deadlines = Vec::new();
        if self.timed > 0 {
            values::write_length(&mut deadlines, self.timed);
            deadlines.extend_from_slice(&self.deadlines);
        }
        WholeObject { kind, value, deadlines }
    }
}

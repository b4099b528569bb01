//! Reading a large collection in slices while it changes: the reader gets the state at its start.
//!
//! A command with a long answer begins a read and leaves the rest of its answer to slices. Other commands run in
//! between, even ones that change the collection. They preserve for the reader the parts that they are about to
//! change (`pack`'s guards and windows). A collection that loses its key stays until its readers have finished. A
//! long string is read in place: its block is pinned, and a command that changes the string gives it another block.
//! Documents and series consist of blocks that never change: the reader has a copy of the root, and blocks that are
//! given up meanwhile stay until it ends.
//! Called by command bodies (to begin) and by the server (slices and the end), always with the shard held.

mod series;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use darter_base::hash::KeyHasher;
use darter_pack::table::{EntryRef, Guarding};
use darter_pack::tree::Direction;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_slab::{Arena, Handle};

pub use darter_pack::tree::window::Aside;
pub use series::{SeriesStep, SeriesStepped, SeriesToRead};

use crate::module::{ModuleType, ModuleValue};
use crate::object::Object;
use crate::record::{Record, RecordValue};
use crate::shard::{Key, PINNED_BYTES_MIN, Shard};
use series::OpenSeries;

/// The part of a collection that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stretch {
    /// All members of a set or fields of a hash, in no order.
    All,
    /// Members of an ordered collection: first rank, number and direction.
    Ranks(u64, u64, Direction),
}

/// The running reads of one shard.
#[derive(Default)]
pub(crate) struct Reads {
    // Numbers are not reused, so a late reader finds nothing.
    last: u32,
    open: Vec<OpenRead>,
    texts: Vec<OpenText>,
    // By their numbers: a command may read thousands.
    frozen: BTreeMap<u32, OpenFrozen>,
    series: BTreeMap<u32, OpenSeries>,
}

/// A value of a module that is read: its root at the start, whose blocks stay in the arena.
struct OpenFrozen {
    root: Box<dyn ModuleValue>,
    step: FrozenStep,
}

/// Writes a part of a value, some microseconds of work or bytes to the given length; returns true at the end.
type FrozenStep = Box<dyn FnMut(&dyn ModuleValue, &Arena, &mut Vec<u8>, usize) -> bool + Send>;

/// A string that is read.
struct OpenText {
    number: u32,
    block: Handle,
    // from <= to: the bytes still to be read
    from: usize,
    to: usize,
    // The reply before these bytes, until it is written, and the reply after them.
    head: Vec<u8>,
    end: &'static [u8],
}

struct OpenRead {
    number: u32,
    object: u32,
    early: Early,
}

/// Members written early; the order in hashes and sets is free. In pieces of some kilobytes, so that no step has to
/// copy all of it.
#[derive(Clone, Default)]
struct Early(Arc<Mutex<Vec<Vec<u8>>>>);

impl Early {
    fn with<R>(&self, act: impl FnOnce(&mut Vec<Vec<u8>>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn bytes(&self) -> usize {
        self.with(|pieces| pieces.iter().map(Vec::len).sum())
    }
}

/// Writes the entries of a table for one reader.
struct ReadScribe {
    hasher: KeyHasher,
    tell: Tell,
    has_values: bool,
    early: Early,
}

impl Guarding for ReadScribe {
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    fn keep(&mut self, entry: EntryRef<'_>) {
        let seen = match self.has_values {
            true => SeenLeaf::Field(entry.key(), entry.value()),
            false => SeenLeaf::Item(entry.key()),
        };
        self.early.with(|pieces| {
            if pieces.last().is_none_or(|last| last.len() > PIECE_BYTES) {
                pieces.push(Vec::new());
            }
            if let Some(piece) = pieces.last_mut() {
                (self.tell)(seen, piece);
            }
        });
    }
}

/// A piece of the early members is closed when it is longer.
const PIECE_BYTES: usize = 8 << 10;
/// Most readers of one shard; further ones get their answer at once. Each makes changes slightly more expensive.
const READERS_MAX: usize = 32;
/// The same for strings, whose readers cost only commands that change or free very long strings.
const TEXT_READERS_MAX: usize = 1024;

impl Shard {
    /// Begins to read a stretch of the collection at `key`, each member encoded by `tell`. Returns the number of the
    /// read; `None` if there is no such collection or too many reads are running. Cost: some microseconds, for any
    /// size.
    pub fn begin_read(&mut self, db: usize, key: Key<'_>, stretch: Stretch, tell: Tell) -> Option<u32> {
        let record = self.record_at(db, self.locate(db, key)?);
        let RecordValue::Object(_, id) = record.value() else { return None };
        if self.reads.as_ref().is_some_and(|reads| reads.open.len() >= READERS_MAX) {
            return None;
        }
        let reads = self.reads.get_or_insert_default();
        // 0 is the number of snapshots.
        let number = reads.last.wrapping_add(1).max(1);
        let early = Early::default();
        if !self.objects.get_mut(id).begin_read(number, stretch, tell, self.hasher, &early) {
            return None;
        }
        reads.last = number;
        reads.open.push(OpenRead { number, object: id, early });
        Some(number)
    }

    /// Begins to read the bytes `from..to` of the string at `key`, between `head` and `end`. Returns the number of
    /// the read; `None` if there is no such string, it has no separate block, or too many reads are running.
    pub fn begin_text(
        &mut self,
        db: usize,
        key: Key<'_>,
        (from, to): (usize, usize),
        (head, end): (Vec<u8>, &'static [u8]),
    ) -> Option<u32> {
        let block = self.dbs[db].index.handle(self.locate(db, key)?);
        let text = Record { tail: self.arena.tail(block) }.text()?;
        let (from, to) = (from.min(to), to.min(text.len()));
        let is_full = self.reads.as_ref().is_some_and(|reads| reads.texts.len() >= TEXT_READERS_MAX);
        if is_full || text.len() < PINNED_BYTES_MIN || !self.arena.pin(block) {
            return None;
        }
        let reads = self.reads.get_or_insert_default();
        reads.last = reads.last.wrapping_add(1).max(1);
        reads.texts.push(OpenText { number: reads.last, block, from, to, head, end });
        Some(reads.last)
    }

    /// Begins to read the module's value at `key` as it is now: each step calls `step` with its root, the arena, the
    /// output and the length that this should have. Returns the number of the read; `None` if there is no such value
    /// or it cannot be read in steps.
    pub fn begin_frozen<T: ModuleType>(
        &mut self,
        db: usize,
        key: Key<'_>,
        mut step: impl FnMut(&T, &Arena, &mut Vec<u8>, usize) -> bool + Send + 'static,
    ) -> Option<u32> {
        let record = self.record_at(db, self.locate(db, key)?);
        let RecordValue::Object(_, id) = record.value() else { return None };
        let Object::Module(value) = self.objects.get_mut(id) else { return None };
        let root = value.frozen_to_read().filter(|root| root.kind() == T::KIND)?;
        self.arena.hold_on();
        let reads = self.reads.get_or_insert_default();
        reads.last = reads.last.wrapping_add(1).max(1);
        let step: FrozenStep = Box::new(move |root, arena, out, bytes_max| {
            let root: &dyn Any = root;
            root.downcast_ref::<T>().is_none_or(|root| step(root, arena, out, bytes_max))
        });
        reads.frozen.insert(reads.last, OpenFrozen { root, step });
        Some(reads.last)
    }

    /// Continues a read: writes members until `out` has `bytes_max` or a few more. Returns true if that was all.
    pub fn read_step(&mut self, number: u32, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        if let Some(is_done) = self.series_step(number, out, bytes_max) {
            return is_done;
        }
        let Some(reads) = &mut self.reads else { return true };
        if let Some(open) = reads.texts.iter_mut().find(|open| open.number == number) {
            return open.step(&self.arena, out, bytes_max);
        }
        if let Some(open) = reads.frozen.get_mut(&number) {
            return (open.step)(&*open.root, &self.arena, out, bytes_max);
        }
        let Some(open) = reads.open.iter().find(|open| open.number == number) else { return true };
        loop {
            while let Some(piece) = open.early.with(Vec::pop) {
                out.extend_from_slice(&piece);
                if out.len() >= bytes_max {
                    return false;
                }
            }
            let object = self.objects.get_mut(open.object);
            let is_done = object.read_step(&self.arena, number, out, bytes_max);
            if open.early.with(|pieces| pieces.is_empty()) && (is_done || out.len() >= bytes_max) {
                return is_done;
            }
        }
    }

    /// The amounts that a read holds.
    pub fn read_aside(&mut self, number: u32) -> Aside {
        let Some(reads) = &self.reads else { return Aside::default() };
        if let Some(open) = reads.texts.iter().find(|open| open.number == number) {
            return Aside { bytes: self.arena.left_behind_bytes(open.block), pieces: 0 };
        }
        if reads.frozen.contains_key(&number) || reads.series.contains_key(&number) {
            return Aside { bytes: self.arena.left_bytes(), pieces: 0 };
        }
        let Some(open) = reads.open.iter().find(|open| open.number == number) else {
            return Aside::default();
        };
        let aside = self.objects.get_mut(open.object).read_aside(number);
        Aside { bytes: aside.bytes + open.early.bytes(), ..aside }
    }

    /// Ends a read, done or not.
    pub fn end_read(&mut self, number: u32) {
        if self.end_series(number) {
            return;
        }
        let Some(reads) = &mut self.reads else { return };
        if let Some(at) = reads.texts.iter().position(|open| open.number == number) {
            let open = reads.texts.swap_remove(at);
            return self.arena.unpin(open.block);
        }
        if reads.frozen.remove(&number).is_some() {
            return self.arena.let_go();
        }
        let Some(at) = reads.open.iter().position(|open| open.number == number) else { return };
        let id = reads.open.swap_remove(at).object;
        self.objects.get_mut(id).end_read(number);
        self.let_go(id);
    }

    /// Number of reads under way.
    pub fn reads_len(&self) -> usize {
        self.reads
            .as_ref()
            .map_or(0, |reads| reads.open.len() + reads.texts.len() + reads.frozen.len() + reads.series.len())
    }

    /// Returns true if the read with this number is of a string: it can be read in larger slices than members.
    pub fn is_text_read(&self, number: u32) -> bool {
        self.reads.as_ref().is_some_and(|reads| reads.texts.iter().any(|open| open.number == number))
    }

    /// Returns true if a collection is read or written in slices, so that it must outlive its key.
    pub(crate) fn is_gone_through(&self, id: u32) -> bool {
        self.reads.as_ref().is_some_and(|reads| reads.open.iter().any(|open| open.object == id))
            || self.cut.as_ref().is_some_and(|cut| cut.goes_through(id))
    }

    /// Frees a collection without a key if it has no reader left.
    pub(crate) fn let_go(&mut self, id: u32) {
        let Some(at) = self.orphans.iter().position(|orphan| *orphan == id) else { return };
        if !self.is_gone_through(id) {
            self.orphans.swap_remove(at);
            let object = self.objects.remove(id);
            self.discard(object);
        }
    }
}

impl OpenText {
    /// Writes bytes until `out` has `bytes_max`; returns true if that was all.
    fn step(&mut self, arena: &Arena, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let Some(text) = (Record { tail: arena.tail(self.block) }).text() else { return true };
        out.append(&mut self.head);
        let room = bytes_max.saturating_sub(out.len()).max(1);
        let to = self.to.min(self.from.saturating_add(room));
        text.range_to(self.from, to, out);
        self.from = to;
        if to < self.to {
            return false;
        }
        out.extend_from_slice(self.end);
        true
    }
}

impl Object {
    /// Begins a stepwise read of the stretch; returns false if it cannot be read in steps.
    fn begin_read(
        &mut self,
        number: u32,
        stretch: Stretch,
        tell: Tell,
        hasher: KeyHasher,
        early: &Early,
    ) -> bool {
        let has_values = matches!(self, Object::Hash(_));
        let scribe =
            |tell: Tell| Box::new(ReadScribe { hasher, tell, has_values, early: early.clone() }) as Box<_>;
        match (self, stretch) {
            (Object::Hash(table), Stretch::All) => table.guard(number, scribe(tell)),
            (Object::Set(set), Stretch::All) => {
                if let Some(texts) = set.guarded_texts_mut() {
                    texts.guard(number, scribe(tell.clone()));
                }
                if let Some(ints) = set.read_ints_mut() {
                    ints.begin_read(number, 0, ints.len(), Direction::Up, tell);
                }
            }
            (Object::List(list), Stretch::Ranks(first, len, towards)) => {
                list.begin_read(number, first, len, towards, tell);
            }
            (Object::Zset(zset), Stretch::Ranks(first, len, towards)) => {
                zset.begin_read(number, first, len, towards, tell);
            }
            (Object::Stream(stream), Stretch::Ranks(first, len, towards)) => {
                stream.log_mut().begin_read(number, first, len, towards, tell);
            }
            _ => return false,
        }
        true
    }

    /// Like [`Shard::read_step`]; the members of a table are added to those written early.
    fn read_step(&mut self, arena: &Arena, number: u32, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        match self {
            Object::Hash(table) => table.guard_step(arena, number, 1),
            Object::Set(set) => {
                let ints = set.read_ints_mut();
                ints.is_none_or(|ints| ints.read_step(arena, number, out, bytes_max))
                    && set.guarded_texts_mut().is_none_or(|texts| texts.guard_step(arena, number, 1))
            }
            Object::List(list) => list.read_step(arena, number, out, bytes_max),
            Object::Zset(zset) => zset.read_step(arena, number, out, bytes_max),
            Object::Stream(stream) => stream.log_mut().read_step(arena, number, out, bytes_max),
            Object::Module(_) => true,
        }
    }

    fn read_aside(&mut self, number: u32) -> Aside {
        match self {
            Object::Hash(_) | Object::Module(_) => Aside::default(),
            Object::Set(set) => set.read_ints_mut().map_or(Aside::default(), |ints| ints.read_aside(number)),
            Object::List(list) => list.read_aside(number),
            Object::Zset(zset) => zset.read_aside(number),
            Object::Stream(stream) => stream.log_mut().read_aside(number),
        }
    }

    fn end_read(&mut self, number: u32) {
        match self {
            Object::Hash(table) => drop(table.unguard(number)),
            Object::Set(set) => {
                if let Some(texts) = set.guarded_texts_mut() {
                    drop(texts.unguard(number));
                }
                if let Some(ints) = set.read_ints_mut() {
                    ints.end_read(number);
                }
            }
            Object::List(list) => list.end_read(number),
            Object::Zset(zset) => zset.end_read(number),
            Object::Stream(stream) => stream.log_mut().end_read(number),
            Object::Module(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;

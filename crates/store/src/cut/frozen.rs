//! Large lists, sorted sets, streams and sets of integers in pieces: an older version of them is read while they
//! change.
//!
//! Only the root is copied at the beginning. From then on the arena keeps each block before its first change. Called
//! by the cut, which reports the begin and the end of each change of such a value.

use darter_pack::entry::Item;
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{Direction, IntSet, List, Zset};
use darter_slab::{Arena, Past};

use super::pieces::PieceScribe;
use crate::module::{self, ModuleValue};
use crate::object::Object;
use crate::rdb::StreamPieces;
use crate::stream_value::StreamValue;

/// A value whose state at the cut is being written.
pub(super) struct Frozen {
    root: Root,
    // Elements that are written.
    at: u64,
    past: Option<Box<Past>>,
    // Bytes that the value itself keeps for it.
    beside_bytes: usize,
    scribe: Option<PieceScribe>,
}

/// The root at the cut.
enum Root {
    List(List),
    Zset(Box<Zset>, IsTimed),
    Ints(IntSet),
    Stream(StreamValue, StreamPieces),
    Module(Box<dyn ModuleValue>),
}

/// True if some members of a sorted set had an expiry at the cut.
type IsTimed = bool;

/// Elements written in one step, and bytes of them: some microseconds.
const ELEMENTS_PER_STEP: u64 = 128;
const BYTES_PER_STEP: usize = 16 << 10;
/// Kept blocks given back in one step.
const BLOCKS_PER_STEP: usize = 64;

/// Returns true if a value, or a part of it, is a tree larger than `bytes`.
pub(super) fn is_large(object: &Object, bytes: usize) -> bool {
    match object {
        Object::List(list) => list.bytes() + list.spilled_bytes() > bytes,
        Object::Zset(zset) => zset.bytes() + zset.spilled_bytes() > bytes,
        Object::Set(set) => set.ints().is_some_and(|ints| ints.bytes() > bytes),
        Object::Stream(stream) => stream.is_larger_than(bytes),
        Object::Module(value) => value.memory_bytes() > bytes && value.frozen().is_some(),
        Object::Hash(_) => false,
    }
}

impl Root {
    /// The part of a value that is a tree.
    fn of(object: &mut Object) -> Option<Root> {
        match object {
            Object::List(list) => Some(Root::List(list.frozen())),
            Object::Zset(zset) => {
                let is_timed = zset.next_expiry().is_some();
                Some(Root::Zset(Box::new(zset.freeze()), is_timed))
            }
            Object::Set(set) => set.ints().map(|ints| Root::Ints(ints.frozen())),
            Object::Stream(stream) => Some(Root::Stream(stream.frozen(), StreamPieces::new())),
            Object::Module(value) => value.frozen().map(Root::Module),
            Object::Hash(_) => None,
        }
    }

    /// Lends the root the value's data outside the arena for a read, or returns it.
    fn exchange(&mut self, object: &mut Object) {
        match (self, object) {
            (Root::List(root), Object::List(list)) => list.lend(root),
            (Root::Zset(root, _), Object::Zset(zset)) => zset.lend(root),
            (Root::Stream(root, _), Object::Stream(stream)) => stream.lend(root),
            _ => {}
        }
    }

    /// Writes elements from rank `at` on, a step of them; returns their number, and whether these were the last.
    fn write(&mut self, arena: &Arena, at: u64, scribe: &mut PieceScribe) -> (u64, bool) {
        let mut left = BYTES_PER_STEP;
        let mut written = 0;
        let mut add = |item: Item<'_>, score: Option<f64>, expiry_ms: Option<u64>| {
            let bytes = scribe.add(item, score, expiry_ms);
            written += 1;
            left = left.saturating_sub(bytes);
            left > 0 && written < ELEMENTS_PER_STEP
        };
        // Each ends with the first element that fills the step.
        let is_last = match self {
            Root::List(list) => list.iter(arena, at, ListEnd::Back).all(|item| add(item, None, None)),
            Root::Zset(zset, is_timed) => zset.iter(arena, at, Direction::Up).all(|(item, score)| {
                add(item, Some(score), is_timed.then(|| zset.past_expiry(item).unwrap_or(0)))
            }),
            Root::Ints(ints) => {
                ints.iter(arena, at, Direction::Up).all(|int| add(Item::Int(int), None, None))
            }
            Root::Stream(stream, pieces) => {
                written = scribe.write_whole(|out| pieces.write(stream, arena, BYTES_PER_STEP, out));
                pieces.is_done()
            }
            Root::Module(value) => {
                written = scribe.write_whole(|out| {
                    module::write_piece(&**value, at, arena, out);
                    1
                });
                at + 1 >= value.pieces()
            }
        };
        (written, is_last)
    }
}

impl Frozen {
    /// Begins to write the parts of a value that are trees larger than `bytes`; `scribe` takes the elements.
    pub(super) fn new(
        object: &mut Object,
        bytes: usize,
        scribe: impl FnOnce() -> PieceScribe,
    ) -> Option<Frozen> {
        if !is_large(object, bytes) {
            return None;
        }
        let root = Root::of(object)?;
        let past = Some(Box::new(Past::new()));
        Some(Frozen { root, at: 0, past, beside_bytes: 0, scribe: Some(scribe()) })
    }

    /// Returns true if all of it is written, so that no more pre-images are needed.
    pub(super) fn is_written(&self) -> bool {
        self.scribe.is_none()
    }

    /// A change begins.
    pub(super) fn begin_change(&mut self, arena: &mut Arena) {
        if let Some(past) = self.past.take() {
            arena.keep_into(past);
        }
    }

    /// To be called after each change of the value.
    pub(super) fn end_change(&mut self, object: &Object, arena: &mut Arena) {
        self.past = arena.end_past();
        if let Object::Zset(zset) = object {
            self.beside_bytes = zset.past_bytes();
        }
    }

    /// Bytes that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.past.as_ref().map_or(0, |past| past.bytes()) + self.beside_bytes
    }

    /// Writes a step of the value, whose present state is `object`.
    pub(super) fn step(&mut self, object: &mut Object, arena: &mut Arena) {
        let Some(scribe) = &mut self.scribe else { return };
        if let Some(past) = self.past.take() {
            arena.look_back(past);
        }
        self.root.exchange(object);
        let (written, is_last) = self.root.write(arena, self.at, scribe);
        self.root.exchange(object);
        self.past = arena.end_past();
        self.at += written;
        if is_last || written == 0 {
            self.end(object);
        }
    }

    /// Ends writing, complete or not. The value keeps nothing from now on.
    pub(super) fn end(&mut self, object: &mut Object) {
        // Dropping it sends the rest.
        self.scribe = None;
        match (&mut self.root, object) {
            (_, Object::Zset(zset)) => zset.thaw(),
            // The parts shared with the value belong to the value alone again.
            (Root::Stream(stream, _), _) => *stream = StreamValue::new(),
            _ => {}
        }
    }

    /// Frees a step of the pre-images; returns true if none are left.
    pub(super) fn forget(&mut self) -> bool {
        self.past.as_mut().is_none_or(|past| past.forget(BLOCKS_PER_STEP))
    }
}

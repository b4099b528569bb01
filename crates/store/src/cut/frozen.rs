//! Large lists, sorted sets and sets of integers in pieces: an older version of them is read while they change.
//!
//! What is copied at the beginning is the root; from then on the arena keeps each block before its first change. Called
//! by the cut, which says when a change of such a value begins and ends.

use darter_pack::entry::Item;
use darter_pack::tree::list::End;
use darter_pack::tree::{Direction, IntSet, List, Zset};
use darter_slab::{Arena, Past};

use super::pieces::Scribe;
use crate::object::Object;

/// A value whose state at the cut is being written.
pub(super) struct Frozen {
    root: Root,
    // Elements that are written.
    at: u64,
    past: Option<Box<Past>>,
    scribe: Option<Scribe>,
}

/// The root as it was.
enum Root {
    List(List),
    Zset(Box<Zset>),
    Ints(IntSet),
}

/// Elements written in one step, and bytes of them: some microseconds.
const ELEMENTS_PER_STEP: u64 = 128;
const BYTES_PER_STEP: usize = 16 << 10;
/// Kept blocks given back in one step.
const BLOCKS_PER_STEP: usize = 64;

impl Root {
    /// The part of a value that is a tree and larger than `bytes`.
    fn of(object: &Object, bytes: usize) -> Option<Root> {
        match object {
            Object::List(list) if list.bytes() > bytes => list.frozen().map(Root::List),
            Object::Zset(zset) if zset.bytes() > bytes => {
                zset.frozen().map(|zset| Root::Zset(Box::new(zset)))
            }
            Object::Set(set) => {
                set.ints().filter(|ints| ints.bytes() > bytes).map(|ints| Root::Ints(ints.frozen()))
            }
            _ => None,
        }
    }

    fn len(&self) -> u64 {
        match self {
            Root::List(list) => list.len(),
            Root::Zset(zset) => zset.len(),
            Root::Ints(ints) => ints.len(),
        }
    }

    /// Writes elements from rank `at` on, a step of them; returns how many.
    fn write(&self, arena: &Arena, at: u64, scribe: &mut Scribe) -> u64 {
        let mut left = BYTES_PER_STEP;
        let mut written = 0;
        let mut add = |item: Item<'_>, score: Option<f64>| {
            let bytes = scribe.add(item, score);
            written += 1;
            left = left.saturating_sub(bytes);
            left > 0 && written < ELEMENTS_PER_STEP
        };
        // Each ends with the first element that fills the step.
        let _is_at_end = match self {
            Root::List(list) => list.iter(arena, at, End::Back).all(|item| add(item, None)),
            Root::Zset(zset) => {
                zset.iter(arena, at, Direction::Up).all(|(item, score)| add(item, Some(score)))
            }
            Root::Ints(ints) => ints.iter(arena, at, Direction::Up).all(|int| add(Item::Int(int), None)),
        };
        written
    }
}

/// Whether a value, or a part of it, is a tree larger than `bytes`.
pub(super) fn is_large(object: &Object, bytes: usize) -> bool {
    Root::of(object, bytes).is_some()
}

impl Frozen {
    /// Begins to write a value as far as it is a tree larger than `bytes`; `scribe` takes its elements.
    pub(super) fn new(object: &Object, bytes: usize, scribe: impl FnOnce() -> Scribe) -> Option<Frozen> {
        let root = Root::of(object, bytes)?;
        Some(Frozen { root, at: 0, past: Some(Box::new(Past::new())), scribe: Some(scribe()) })
    }

    /// Whether all of it is written: from then on nothing has to be kept for it.
    pub(super) fn is_written(&self) -> bool {
        self.scribe.is_none()
    }

    /// A change begins.
    pub(super) fn begin_change(&mut self, arena: &mut Arena) {
        if let Some(past) = self.past.take() {
            arena.keep_into(past);
        }
    }

    /// It has ended.
    pub(super) fn end_change(&mut self, arena: &mut Arena) {
        self.past = arena.end_past();
    }

    /// Bytes that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.past.as_ref().map_or(0, |past| past.bytes())
    }

    /// Writes a bit of it, and gives back what was kept when all is written; true when that is done.
    pub(super) fn step(&mut self, arena: &mut Arena) -> bool {
        if let Some(scribe) = &mut self.scribe {
            if let Some(past) = self.past.take() {
                arena.look_back(past);
            }
            let written = self.root.write(arena, self.at, scribe);
            self.past = arena.end_past();
            self.at += written;
            if self.at < self.root.len() && written > 0 {
                return false;
            }
            // It sends what it still has.
            self.scribe = None;
        }
        self.past.as_mut().is_none_or(|past| past.forget(BLOCKS_PER_STEP))
    }
}

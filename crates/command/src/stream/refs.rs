//! Pending entries of an entry to be deleted: KEEPREF, DELREF, ACKED.

use darter_pack::tree::{Direction, StreamId};
use darter_store::{Arena, StreamValue};

use crate::reader::ArgReader;

/// The relation of entries and their pending entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Refs {
    /// Pending entries stay when the entry is deleted.
    #[default]
    Keep,
    /// Pending entries are removed with the entry.
    Delete,
    /// Only entries are deleted that every group has read and acknowledged.
    Acked,
}

impl Refs {
    /// Reads one of the words, if the next argument is one.
    pub fn take(read: &mut ArgReader<'_>) -> Option<Refs> {
        let words = [("keepref", Refs::Keep), ("delref", Refs::Delete), ("acked", Refs::Acked)];
        words.into_iter().find(|(word, _)| read.take(word)).map(|(_, refs)| refs)
    }
}

/// The result of an attempt to delete an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefsOutcome {
    /// There is no such entry.
    Missing,
    /// It was deleted.
    Deleted,
    /// It stays, because a group has not read or acknowledged it.
    Kept,
}

/// Returns true if a group has not read or acknowledged the entry.
fn is_wanted(stream: &StreamValue, arena: &Arena, id: StreamId) -> bool {
    stream.groups().any(|group| id > group.last_id || group.pending().get(arena, id).is_some())
}

/// Deletes an entry if `refs` allows it.
pub fn delete(stream: &mut StreamValue, arena: &mut Arena, id: StreamId, refs: Refs) -> RefsOutcome {
    if refs == Refs::Delete {
        // Pending entries of an already deleted entry are removed too.
        stream.release(arena, id);
    }
    if stream.log().get(arena, id).is_none() {
        return RefsOutcome::Missing;
    }
    if refs == Refs::Acked && is_wanted(stream, arena, id) {
        return RefsOutcome::Kept;
    }
    stream.delete(arena, id);
    RefsOutcome::Deleted
}

/// Removes up to `count` of the first entries if `refs` allows it; returns the number removed.
pub fn trim(stream: &mut StreamValue, arena: &mut Arena, count: u64, refs: Refs) -> u64 {
    if refs == Refs::Keep || stream.groups().len() == 0 {
        return stream.trim_first(arena, count);
    }
    let first = stream.log().iter(arena, 0, Direction::Up);
    let ids: Vec<StreamId> =
        first.map(|entry| entry.id).take(usize::try_from(count).unwrap_or(usize::MAX)).collect();
    if refs == Refs::Delete {
        for id in ids {
            stream.release(arena, id);
        }
        return stream.trim_first(arena, count);
    }
    let max_deleted_id = stream.max_deleted_id();
    let free: Vec<StreamId> = ids.into_iter().filter(|&id| !is_wanted(stream, arena, id)).collect();
    let leaves_gap = free.last().is_some_and(|&last| stream.log().rank(arena, last) + 1 > free.len() as u64);
    let gone = free.into_iter().filter(|&id| stream.delete(arena, id)).count() as u64;
    if !leaves_gap {
        // Trimming from the front makes no gap that a group's count must consider.
        stream.set_ids(stream.last_id(), None, Some(max_deleted_id));
    }
    gone
}

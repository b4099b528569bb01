//! A stream: its log of entries, the ids it remembers, and its consumer groups.
//!
//! Called by the stream commands and by RDB's forms; never knows keys, clocks or clients.

pub mod group;
pub mod producers;

use std::sync::Arc;

use darter_pack::tree::{StreamId, StreamLog, TreeFull};
use darter_slab::Arena;

use group::{ConsumerGroup, owned};
use producers::Producers;

/// A stream. Its blocks are given back by `free_step` before it is dropped.
#[derive(Debug, Default)]
pub struct StreamValue {
    log: StreamLog,
    more: Box<More>,
}

#[derive(Debug, Default)]
struct More {
    last_id: StreamId,
    max_deleted_id: StreamId,
    added: u64,
    // Sorted by name.
    groups: Vec<Arc<ConsumerGroup>>,
    // Most streams have none.
    producers: Option<Arc<Producers>>,
    // The mark of a stepwise reader; 0 if there is none yet.
    mark: u64,
}

/// The known facts about a stream without its entries, from which the progress of a group follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Number of entries.
    pub len: u64,
    /// Number of entries ever added.
    pub added: u64,
    /// Id of the first entry, or the lowest id.
    pub first_id: StreamId,
    /// Id of the entry added last, which may be deleted.
    pub last_id: StreamId,
    /// Highest id that was deleted, or the lowest id.
    pub max_deleted_id: StreamId,
}

impl Extent {
    /// Returns true if an entry that was deleted from the middle may lie at `id` or after it.
    pub fn has_gap_from(&self, id: StreamId) -> bool {
        let deleted = self.max_deleted_id;
        self.len > 0 && deleted != StreamId::MIN && self.first_id <= deleted && id <= deleted
    }

    /// Number of entries ever added up to `id`, if that is known.
    pub fn added_up_to(&self, id: StreamId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if id == self.last_id || self.len == 0 && id < self.last_id {
            return Some(self.added);
        }
        let has_gap = self.max_deleted_id != StreamId::MIN && self.max_deleted_id >= self.first_id;
        if id > self.last_id || has_gap || id > self.first_id {
            return None;
        }
        Some(self.added.wrapping_sub(self.len).wrapping_add(u64::from(id == self.first_id)))
    }

    /// Number of entries that the group has not seen yet, if that is known.
    pub fn lag(&self, group: &ConsumerGroup) -> Option<i64> {
        if self.len == 0 {
            return Some(0);
        }
        // All remaining entries came after the last one it has seen, and none is missing in between.
        if group.last_id < self.first_id && self.max_deleted_id < self.first_id {
            return Some(self.len as i64);
        }
        let read = match group.entries_read {
            Some(read) if !self.has_gap_from(group.last_id) => read,
            _ => self.added_up_to(group.last_id)?,
        };
        Some(self.added.wrapping_sub(read) as i64)
    }
}

impl StreamValue {
    /// An empty stream.
    pub fn new() -> StreamValue {
        StreamValue::default()
    }

    /// A copy of the stream in its present state, for a reader that looks back while the arena keeps pre-images. It
    /// must never be changed or cleared. Cost: O(groups), some nanoseconds each.
    pub(crate) fn frozen(&self) -> StreamValue {
        let More { last_id, max_deleted_id, added, ref groups, ref producers, mark } = *self.more;
        let (groups, producers) = (groups.clone(), producers.clone());
        let more = Box::new(More { last_id, max_deleted_id, added, groups, producers, mark });
        StreamValue { log: self.log.frozen(), more }
    }

    /// Lends the data outside the arena to a frozen copy for a read, or takes it back.
    pub(crate) fn lend(&mut self, frozen: &mut StreamValue) {
        self.log.lend(&mut frozen.log);
    }

    /// Returns true if it takes more than about `bytes`. Cost: bounded by that number.
    pub(crate) fn is_larger_than(&self, bytes: usize) -> bool {
        let mut left = bytes.checked_sub(self.log.bytes() + self.log.spilled_bytes());
        let producers = self.producers().map_or(0, Producers::bytes_min);
        let parts = self.groups().map(ConsumerGroup::bytes_min).chain([producers]);
        for part in parts {
            left = left.and_then(|left| left.checked_sub(part));
            if left.is_none() {
                break;
            }
        }
        left.is_none()
    }

    /// A stream without entries that has this group: a draft of the group.
    pub fn of_group(group: ConsumerGroup) -> StreamValue {
        let mut stream = StreamValue::new();
        stream.more.groups.push(Arc::new(group));
        stream
    }

    /// The entries.
    #[inline]
    pub fn log(&self) -> &StreamLog {
        &self.log
    }

    /// The entries, to be read in steps.
    pub(crate) fn log_mut(&mut self) -> &mut StreamLog {
        &mut self.log
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> u64 {
        self.log.len()
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Id of the entry added last, which may be deleted.
    #[inline]
    pub fn last_id(&self) -> StreamId {
        self.more.last_id
    }

    /// Highest id that was deleted, or the lowest id.
    pub fn max_deleted_id(&self) -> StreamId {
        self.more.max_deleted_id
    }

    /// Number of entries ever added.
    pub fn added(&self) -> u64 {
        self.more.added
    }

    /// The known facts without the entries. Cost: O(log n).
    pub fn extent(&self, arena: &Arena) -> Extent {
        Extent {
            len: self.log.len(),
            added: self.more.added,
            first_id: self.log.first_id(arena).unwrap_or_default(),
            last_id: self.more.last_id,
            max_deleted_id: self.more.max_deleted_id,
        }
    }

    /// Appends an entry, and remembers its id as the last; `false` when `id` is not above that.
    ///
    /// Errors: nothing is changed. Cost: O(bytes of the entry + log n).
    pub fn append<'a, P>(&mut self, arena: &mut Arena, id: StreamId, pairs: P) -> Result<bool, TreeFull>
    where
        P: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        if id <= self.more.last_id || !self.log.append(arena, id, pairs)? {
            return Ok(false);
        }
        self.more.last_id = id;
        self.more.added = self.more.added.wrapping_add(1);
        Ok(true)
    }

    /// Removes one entry; returns whether it was there. Cost: O(log n).
    pub fn delete(&mut self, arena: &mut Arena, id: StreamId) -> bool {
        let found = self.log.remove(arena, id);
        if found {
            self.more.max_deleted_id = self.more.max_deleted_id.max(id);
        }
        found
    }

    /// Removes up to `count` of the first entries; returns their number. Cost: bounded.
    pub fn trim_first(&mut self, arena: &mut Arena, count: u64) -> u64 {
        self.log.remove_first(arena, count)
    }

    /// Sets the remembered ids; `None` leaves a value unchanged.
    pub fn set_ids(&mut self, last_id: StreamId, added: Option<u64>, max_deleted_id: Option<StreamId>) {
        self.more.last_id = last_id;
        self.more.added = added.unwrap_or(self.more.added);
        self.more.max_deleted_id = max_deleted_id.unwrap_or(self.more.max_deleted_id);
    }

    /// The recent entries of producers, if any has named its entries or a limit was set.
    pub fn producers(&self) -> Option<&Producers> {
        self.more.producers.as_deref()
    }

    /// The same, to change; created by `make` if missing.
    pub fn producers_mut(&mut self, make: impl FnOnce() -> Producers) -> &mut Producers {
        Arc::make_mut(self.more.producers.get_or_insert_with(|| Arc::new(make())))
    }

    /// The groups, sorted by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &ConsumerGroup> + Clone {
        self.more.groups.iter().map(|group| &**group)
    }

    /// The group at this place of [`StreamValue::groups`].
    pub fn group_at(&self, at: usize) -> Option<&ConsumerGroup> {
        self.more.groups.get(at).map(|group| &**group)
    }

    /// Makes an entry no longer pending in any group; returns whether it was in one. Cost: O(groups log n).
    pub fn release(&mut self, arena: &mut Arena, id: StreamId) -> bool {
        let mut was_pending = false;
        for group in &mut self.more.groups {
            if group.pending().get(arena, id).is_some() {
                let group = owned(group, ConsumerGroup::twin);
                group.mark = 0;
                was_pending |= group.release(arena, id);
            }
        }
        was_pending
    }

    /// The group called `name`. Cost: O(log groups).
    pub fn group(&self, name: &[u8]) -> Option<&ConsumerGroup> {
        self.place_of(name).ok().and_then(|at| self.group_at(at))
    }

    /// The group called `name`, to change, beside the entries; clears its mark.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<(&mut ConsumerGroup, &StreamLog)> {
        let at = self.place_of(name).ok()?;
        let group = owned(self.more.groups.get_mut(at)?, ConsumerGroup::twin);
        group.mark = 0;
        Some((group, &self.log))
    }

    /// Marks the group called `name`, until it changes: see [`ConsumerGroup::mark`]. Returns the mark, which is the old one
    /// if it has one already; `None` if there is no such group.
    pub fn mark_group(&mut self, name: &[u8], mark: u64) -> Option<u64> {
        let at = self.place_of(name).ok()?;
        self.more.groups.get_mut(at).map(|group| marked(group, mark))
    }

    /// Marks the stream for its lifetime, and each group until it changes. Existing marks stay. Returns the marks,
    /// first that of the stream. A stepwise reader compares them to see whether the stream is still the same. Cost:
    /// O(groups).
    pub fn mark_all(&mut self, mark: u64) -> Vec<u64> {
        let own = &mut self.more.mark;
        if *own == 0 {
            *own = mark;
        }
        let own = *own;
        std::iter::once(own).chain(self.more.groups.iter_mut().map(|group| marked(group, mark))).collect()
    }

    /// The marks of the stream and of its groups, as [`StreamValue::mark_all`] returned them if nothing has changed.
    pub fn marks(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.more.mark).chain(self.groups().map(ConsumerGroup::mark))
    }

    /// The mark at this place of [`StreamValue::marks`].
    pub fn mark_at(&self, nth: usize) -> Option<u64> {
        match nth.checked_sub(1) {
            None => Some(self.more.mark),
            Some(at) => self.group_at(at).map(ConsumerGroup::mark),
        }
    }

    /// Puts the group called `name` of `draft` in place of the present one, and that one into `draft`.
    pub fn swap_group(&mut self, draft: &mut StreamValue, name: &[u8]) {
        if let (Ok(at), Ok(of_draft)) = (self.place_of(name), draft.place_of(name))
            && let (Some(here), Some(there)) =
                (self.more.groups.get_mut(at), draft.more.groups.get_mut(of_draft))
        {
            std::mem::swap(here, there);
        }
    }

    /// Makes a group; `false` if the name exists. Cost: O(groups).
    pub fn create_group(&mut self, name: &[u8], last_id: StreamId, entries_read: Option<u64>) -> bool {
        match self.place_of(name) {
            Ok(_) => false,
            Err(at) => {
                self.more.groups.insert(at, Arc::new(ConsumerGroup::new(name, last_id, entries_read)));
                true
            }
        }
    }

    /// Removes a group and its pending entries; returns whether it existed.
    pub fn destroy_group(&mut self, arena: &mut Arena, name: &[u8]) -> bool {
        let Ok(at) = self.place_of(name) else { return false };
        owned(&mut self.more.groups.remove(at), ConsumerGroup::twin).clear(arena);
        true
    }

    /// Returns true if entries were trimmed whose blocks are not free yet.
    pub fn is_unswept(&self) -> bool {
        self.log.is_unswept()
    }

    /// Bytes in the arena and on the heap, without the root.
    pub fn bytes(&self) -> usize {
        let groups: usize = self.groups().map(ConsumerGroup::bytes).sum();
        let producers = self.producers().map_or(0, Producers::bytes);
        self.log.bytes() + self.log.spilled_bytes() + size_of::<More>() + groups + producers
    }

    /// Frees up to about `blocks_max` blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        if !self.log.free_step(arena, blocks_max) {
            return false;
        }
        while let Some(group) = self.more.groups.last_mut() {
            if !owned(group, ConsumerGroup::twin).free_step(arena, blocks_max) {
                return false;
            }
            self.more.groups.pop();
        }
        true
    }

    fn place_of(&self, name: &[u8]) -> Result<usize, usize> {
        self.more.groups.binary_search_by(|group| group.name().cmp(name))
    }
}

/// Marks a group that is not marked; returns its mark.
fn marked(group: &mut Arc<ConsumerGroup>, mark: u64) -> u64 {
    if group.mark == 0 {
        owned(group, ConsumerGroup::twin).mark = mark;
    }
    group.mark
}

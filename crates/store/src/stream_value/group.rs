//! A consumer group: its progress, its consumers, and the unacknowledged entries of each.
//!
//! Every pending entry is in the group's list and, by its id alone, in that of its consumer. While a snapshot reads a
//! group, a change works on a copy of its root and of the consumers that it touches.

use std::sync::Arc;

use darter_pack::tree::{Direction, Pel, Pending, StreamId, TreeFull};
use darter_slab::Arena;

use super::Extent;

/// A consumer group of a stream.
#[derive(Debug)]
pub struct ConsumerGroup {
    name: Box<[u8]>,
    /// Id of the entry delivered last.
    pub last_id: StreamId,
    /// Number of entries added up to `last_id`, if that is known.
    pub entries_read: Option<u64>,
    pending: Pel,
    // By number; a freed place is taken by the next new consumer.
    consumers: Vec<Option<Arc<Consumer>>>,
    // Numbers in the order of names.
    order: Vec<u32>,
    // The mark of a draft that is being built.
    pub(super) mark: u64,
}

/// A consumer of a group.
#[derive(Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    number: u32,
    /// Time of the last command that named it, Unix milliseconds.
    pub seen_ms: u64,
    /// Time at which it last received an entry, Unix milliseconds.
    pub active_ms: Option<u64>,
    // The ids of its pending entries; the rest is in the group's list.
    ids: Pel,
}

/// A unique reference for a change: replaced by a twin if a reader shares it.
pub(super) fn owned<T>(shared: &mut Arc<T>, twin: impl FnOnce(&T) -> T) -> &mut T {
    if Arc::get_mut(shared).is_none() {
        *shared = Arc::new(twin(shared));
    }
    let Some(owned) = Arc::get_mut(shared) else { unreachable!("nobody else has it") };
    owned
}

/// The two counters of an `Arc`.
const ARC_BYTES: usize = 16;

/// The number that stands for no consumer: that of entries given back to the group.
pub const NOBODY: u32 = u32::MAX;

/// In a consumer's own list only ids mean anything.
const NOTHING: Pending = Pending { consumer: 0, delivered_ms: 0, deliveries: 0 };

impl Consumer {
    fn twin(&self) -> Consumer {
        let Consumer { name, number, seen_ms, active_ms, ids } = self;
        Consumer {
            name: name.clone(),
            number: *number,
            seen_ms: *seen_ms,
            active_ms: *active_ms,
            ids: ids.twin(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    fn bytes(&self) -> usize {
        ARC_BYTES + size_of::<Consumer>() + self.name.len() + self.ids.bytes()
    }

    /// The group's number for it, which its pending entries carry.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Number of its pending entries.
    pub fn pending_len(&self) -> u64 {
        self.ids.len()
    }

    /// Ids of its pending entries from `id` on, rising.
    pub fn ids_from<'a>(&'a self, arena: &'a Arena, id: StreamId) -> impl Iterator<Item = StreamId> + 'a {
        self.ids.iter_from(arena, id).map(|(id, _)| id)
    }
}

impl ConsumerGroup {
    pub(super) fn new(name: &[u8], last_id: StreamId, entries_read: Option<u64>) -> ConsumerGroup {
        ConsumerGroup {
            name: name.into(),
            last_id,
            entries_read,
            pending: Pel::new(),
            consumers: Vec::new(),
            order: Vec::new(),
            mark: 0,
        }
    }

    /// The same group without pending entries: the beginning of a draft. Cost: O(consumers).
    pub fn hollow(&self) -> ConsumerGroup {
        let empty = |consumer: &Arc<Consumer>| {
            let Consumer { name, number, seen_ms, active_ms, .. } = &**consumer;
            let (name, number, seen_ms, active_ms) = (name.clone(), *number, *seen_ms, *active_ms);
            Arc::new(Consumer { name, number, seen_ms, active_ms, ids: Pel::new() })
        };
        let consumers = self.consumers.iter().map(|place| place.as_ref().map(empty)).collect();
        let ConsumerGroup { name, last_id, entries_read, order, .. } = self;
        ConsumerGroup {
            name: name.clone(),
            last_id: *last_id,
            entries_read: *entries_read,
            pending: Pel::new(),
            consumers,
            order: order.clone(),
            mark: 0,
        }
    }

    /// Its mark, or 0 if it has changed since. A stepwise builder of a draft sees from this whether the draft is
    /// still valid.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// A second group on the same blocks. One of the two is only read. Cost: O(consumers), some nanoseconds each.
    pub(super) fn twin(&self) -> ConsumerGroup {
        let ConsumerGroup { name, last_id, entries_read, pending, consumers, order, mark } = self;
        ConsumerGroup {
            name: name.clone(),
            last_id: *last_id,
            entries_read: *entries_read,
            pending: pending.twin(),
            consumers: consumers.clone(),
            order: order.clone(),
            mark: *mark,
        }
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The pending entries, by id.
    pub fn pending(&self) -> &Pel {
        &self.pending
    }

    /// Ids of entries that were given back, rising. Cost: O(pending) if there are such, else O(consumers).
    pub fn given_back<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = StreamId> + 'a {
        let has_some = self.has_given_back();
        let pending = has_some.then(|| self.pending.iter(arena, 0, Direction::Up)).into_iter().flatten();
        pending.filter(|(_, pending)| pending.consumer == NOBODY).map(|(id, _)| id)
    }

    /// Returns true if some pending entry has no consumer. Cost: O(consumers).
    pub fn has_given_back(&self) -> bool {
        self.pending.len() > self.consumers().map(Consumer::pending_len).sum()
    }

    /// Number of consumers.
    pub fn consumers_len(&self) -> usize {
        self.order.len()
    }

    /// The consumers, in the order of names.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.consumers_from(0)
    }

    /// Those after the first `at`.
    pub fn consumers_from(&self, at: usize) -> impl Iterator<Item = &Consumer> {
        self.order.iter().skip(at).filter_map(|&number| self.consumer(number))
    }

    /// The consumer of this number.
    pub fn consumer(&self, number: u32) -> Option<&Consumer> {
        self.consumers.get(number as usize)?.as_deref()
    }

    /// The consumer of this number, to change.
    pub fn consumer_mut(&mut self, number: u32) -> Option<&mut Consumer> {
        self.consumers.get_mut(number as usize)?.as_mut().map(|consumer| owned(consumer, Consumer::twin))
    }

    /// The consumer called `name`. Cost: O(log consumers).
    pub fn find(&self, name: &[u8]) -> Option<&Consumer> {
        self.place_of(name).ok().and_then(|at| self.consumer(*self.order.get(at)?))
    }

    /// The number of the consumer called `name`, and whether it was missing and therefore created.
    pub fn find_or_create(&mut self, name: &[u8], now_ms: u64) -> (u32, bool) {
        let at = match self.place_of(name) {
            Ok(at) => return (self.order.get(at).copied().unwrap_or_default(), false),
            Err(at) => at,
        };
        let free = self.consumers.iter().position(Option::is_none).unwrap_or(self.consumers.len());
        let number = free as u32;
        let made = Consumer { name: name.into(), number, seen_ms: now_ms, active_ms: None, ids: Pel::new() };
        let made = Arc::new(made);
        match self.consumers.get_mut(free) {
            Some(place) => *place = Some(made),
            None => self.consumers.push(Some(made)),
        }
        self.order.insert(at, number);
        (number, true)
    }

    /// Removes a consumer and its pending entries; returns the number of these. Cost: O(pending log n).
    pub fn remove_consumer(&mut self, arena: &mut Arena, name: &[u8]) -> Option<u64> {
        let at = self.place_of(name).ok()?;
        let number = self.order.remove(at);
        let mut consumer = self.consumers.get_mut(number as usize)?.take()?;
        let consumer = owned(&mut consumer, Consumer::twin);
        let count = consumer.ids.len();
        let ids: Vec<StreamId> = consumer.ids_from(arena, StreamId::MIN).collect();
        ids.into_iter().for_each(|id| {
            self.pending.remove(arena, id);
        });
        consumer.ids.clear(arena);
        Some(count)
    }

    /// Makes an entry pending with `pending.consumer`, replacing its former consumer.
    ///
    /// Errors: no room; nothing is changed.
    pub fn give(&mut self, arena: &mut Arena, id: StreamId, pending: Pending) -> Result<(), TreeFull> {
        let before = self.pending.get(arena, id);
        let moves = before.is_none_or(|before| before.consumer != pending.consumer);
        if moves && let Some(consumer) = self.consumer_mut(pending.consumer) {
            consumer.ids.put(arena, id, NOTHING)?;
        }
        if let Err(full) = self.pending.put(arena, id, pending) {
            if moves && let Some(consumer) = self.consumer_mut(pending.consumer) {
                consumer.ids.remove(arena, id);
            }
            return Err(full);
        }
        if moves
            && let Some(before) = before
            && let Some(consumer) = self.consumer_mut(before.consumer)
        {
            consumer.ids.remove(arena, id);
        }
        Ok(())
    }

    /// Makes an entry no longer pending; returns whether it was. Cost: O(log n).
    pub fn release(&mut self, arena: &mut Arena, id: StreamId) -> bool {
        let Some(before) = self.pending.remove(arena, id) else { return false };
        if let Some(consumer) = self.consumer_mut(before.consumer) {
            consumer.ids.remove(arena, id);
        }
        true
    }

    /// Notes that the entry `id` was delivered for the first time, in a stream of this extent.
    pub fn advance(&mut self, extent: &Extent, id: StreamId) {
        if id <= self.last_id {
            return;
        }
        match self.entries_read {
            // Entries trimmed between the last one and this one were not counted.
            Some(read) if self.last_id >= extent.first_id && !extent.has_gap_from(self.last_id) => {
                self.entries_read = Some(read.wrapping_add(1));
            }
            _ if extent.added > 0 => self.entries_read = extent.added_up_to(id),
            _ => {}
        }
        self.last_id = id;
    }

    /// Bytes it takes beside its place in the stream.
    pub fn bytes(&self) -> usize {
        let consumers = self.consumers.iter().flatten();
        let consumers: usize = consumers.map(|consumer| consumer.bytes()).sum();
        let places = self.consumers.capacity() * size_of::<usize>() + self.order.capacity() * 4;
        ARC_BYTES + size_of::<ConsumerGroup>() + self.name.len() + self.pending.bytes() + consumers + places
    }

    /// Less than that, told at once.
    pub(super) fn bytes_min(&self) -> usize {
        let each = ARC_BYTES + size_of::<Consumer>();
        ARC_BYTES + size_of::<ConsumerGroup>() + self.pending.bytes() + self.order.len() * each
    }

    /// Frees up to about `blocks_max` blocks; returns true if none is left.
    pub(super) fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        if !self.pending.free_step(arena, blocks_max) {
            return false;
        }
        while let Some(last) = self.consumers.last_mut() {
            if let Some(consumer) = last
                && !owned(consumer, Consumer::twin).ids.free_step(arena, blocks_max)
            {
                return false;
            }
            self.consumers.pop();
        }
        true
    }

    pub(super) fn clear(&mut self, arena: &mut Arena) {
        while !self.free_step(arena, 1 << 16) {}
    }

    fn place_of(&self, name: &[u8]) -> Result<usize, usize> {
        self.order.binary_search_by(|&number| self.consumer(number).map_or(&[][..], Consumer::name).cmp(name))
    }
}

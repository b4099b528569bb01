//! The recent entries of a stream's producers, so that an entry sent twice is added once.
//!
//! A producer names itself and each entry. The stream remembers the last names for a while, with the ids of their
//! entries. Their age is computed from those ids. Called by XADD and RDB's forms; it never reads a clock.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use darter_pack::tree::StreamId;

/// The producers of a stream, and how much is remembered of each.
#[derive(Clone, Debug)]
pub struct Producers {
    /// Seconds that a name is remembered.
    pub duration_s: u64,
    /// Names remembered of each producer.
    pub names_max: u64,
    /// Entries ever added under a name.
    pub added: u64,
    /// Entries ever refused because their name was known.
    pub duplicates: u64,
    // shared with a snapshot while one reads them
    of: BTreeMap<Box<[u8]>, Arc<Producer>>,
    // position of the search for silent producers
    swept: Box<[u8]>,
}

/// One producer's names. Bytes: some 100 each beside the text, which is held twice.
#[derive(Clone, Debug, Default)]
struct Producer {
    ids: BTreeMap<Box<[u8]>, StreamId>,
    // the oldest first
    order: VecDeque<Box<[u8]>>,
}

impl Producer {
    /// Forgets names that are too old or too many.
    fn forget(&mut self, now_ms: u64, duration_ms: u64, names_max: usize) {
        while let Some(name) = self.order.front() {
            let is_old = self.ids.get(name).is_none_or(|id| id.ms.saturating_add(duration_ms) <= now_ms);
            if !is_old && self.order.len() <= names_max {
                break;
            }
            self.ids.remove(name);
            self.order.pop_front();
        }
    }

    fn live_len(&self, now_ms: u64, duration_ms: u64) -> usize {
        self.ids.values().filter(|id| id.ms.saturating_add(duration_ms) > now_ms).count()
    }
}

impl Default for Producers {
    fn default() -> Producers {
        Producers::new(100, 100)
    }
}

impl Producers {
    /// Longest time that names may be remembered for, in seconds.
    pub const DURATION_S_MAX: u64 = 86_400;
    /// Most names that may be remembered of each producer.
    pub const NAMES_MAX: u64 = 10_000;

    /// Returns true if no producer has named an entry and no limit was set.
    pub fn is_untouched(&self) -> bool {
        let none = Producers::default();
        self.is_empty()
            && (self.duration_s, self.names_max, self.added, self.duplicates)
                == (none.duration_s, none.names_max, none.added, none.duplicates)
    }

    /// No producer yet.
    pub fn new(duration_s: u64, names_max: u64) -> Producers {
        Producers {
            duration_s,
            names_max,
            added: 0,
            duplicates: 0,
            of: BTreeMap::new(),
            swept: Box::default(),
        }
    }

    /// Forgets all names.
    pub fn clear(&mut self) {
        self.of.clear();
    }

    /// The id of the entry that `producer` sent under `name`, if that is remembered at `now_ms`.
    ///
    /// Cost: O(log n), and the names that are forgotten on the way.
    pub fn find(&mut self, producer: &[u8], name: &[u8], now_ms: u64) -> Option<StreamId> {
        let duration_ms = self.duration_ms();
        let names_max = self.names_max as usize;
        let producer = Arc::make_mut(self.of.get_mut(producer)?);
        producer.forget(now_ms, duration_ms, names_max);
        producer.ids.get(name).copied()
    }

    /// Remembers that `producer` sent the entry `id` under `name`. Cost: O(log n).
    pub fn add(&mut self, producer: &[u8], name: &[u8], id: StreamId, now_ms: u64) {
        self.forget_one(now_ms);
        let (duration_ms, names_max) = (self.duration_ms(), self.names_max as usize);
        let producer = Arc::make_mut(self.of.entry(producer.into()).or_default());
        if producer.ids.insert(name.into(), id).is_none() {
            producer.order.push_back(name.into());
        }
        producer.forget(now_ms, duration_ms, names_max);
    }

    /// Numbers of producers and of names that are remembered at `now_ms`. Cost: O(n).
    pub fn tracked(&self, now_ms: u64) -> (usize, usize) {
        let duration_ms = self.duration_ms();
        let live = self.of.values().map(|producer| producer.live_len(now_ms, duration_ms));
        live.filter(|&len| len > 0).fold((0, 0), |(producers, names), len| (producers + 1, names + len))
    }

    /// Producers with their names, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], impl ExactSizeIterator<Item = (&[u8], StreamId)>)> {
        self.after(None)
    }

    /// Those whose names sort after `name`.
    pub fn after(
        &self,
        name: Option<&[u8]>,
    ) -> impl Iterator<Item = (&[u8], impl ExactSizeIterator<Item = (&[u8], StreamId)>)> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.of.range::<[u8], _>((from, Bound::Unbounded)).map(|(name, producer)| {
            let ids = &producer.ids;
            let names = producer.order.iter();
            (&**name, names.map(|name| (&**name, ids.get(name).copied().unwrap_or_default())))
        })
    }

    /// Number of producers, silent ones included.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Returns true if no producer is remembered.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Bytes on the heap, about. Cost: O(producers).
    pub fn bytes(&self) -> usize {
        let of = |(name, producer): (&[u8], &Producer)| {
            let names: usize = producer.order.iter().map(|name| NAME_BYTES + 2 * name.len()).sum();
            PRODUCER_BYTES + name.len() + names
        };
        size_of::<Producers>() + self.of.iter().map(|(name, producer)| of((name, producer))).sum::<usize>()
    }

    /// Less than that, told at once.
    pub(super) fn bytes_min(&self) -> usize {
        size_of::<Producers>() + self.of.len() * PRODUCER_BYTES
    }

    fn duration_ms(&self) -> u64 {
        self.duration_s.saturating_mul(1000)
    }

    /// Examines one producer a call, and drops it if it has been silent.
    fn forget_one(&mut self, now_ms: u64) {
        let (duration_ms, names_max) = (self.duration_ms(), self.names_max as usize);
        let after = (Bound::Excluded(&*self.swept), Bound::Unbounded);
        let Some((name, producer)) = self.of.range_mut::<[u8], _>(after).next() else {
            self.swept = Box::default();
            return;
        };
        self.swept = name.clone();
        let producer = Arc::make_mut(producer);
        producer.forget(now_ms, duration_ms, names_max);
        if producer.ids.is_empty() {
            self.of.remove(&self.swept);
        }
    }
}

/// Approximate bytes of two trees and a queue for a producer and for a name, beside the texts.
const PRODUCER_BYTES: usize = 120;
const NAME_BYTES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    #[test]
    fn names_are_remembered_for_a_time_and_up_to_a_number() {
        let mut producers = Producers::new(1, 3);
        for n in 0..3 {
            producers.add(b"p", format!("n{n}").as_bytes(), id(1000 + n), 1000 + n);
        }
        assert_eq!(producers.find(b"p", b"n0", 1999), Some(id(1000)));
        assert_eq!(producers.find(b"q", b"n0", 1999), None);
        assert_eq!(producers.tracked(2000), (1, 2));
        assert_eq!(producers.find(b"p", b"n0", 2000), None, "a second has passed");
        producers.add(b"p", b"n3", id(2000), 2000);
        producers.add(b"p", b"n4", id(2000), 2000);
        assert_eq!(producers.find(b"p", b"n1", 2000), None, "the oldest of four");
        assert_eq!(producers.find(b"p", b"n2", 2000), Some(id(1002)));
        producers.clear();
        assert_eq!(producers.tracked(2000), (0, 0));
    }

    #[test]
    fn silent_producers_are_dropped_while_others_send() {
        let mut producers = Producers::new(1, 3);
        (0..100).for_each(|n| producers.add(format!("p{n}").as_bytes(), b"x", id(1000), 1000));
        assert_eq!((producers.len(), producers.tracked(1000)), (100, (100, 100)));
        let full = producers.bytes();
        (0..102).for_each(|n| producers.add(b"p5", format!("{n}").as_bytes(), id(5000), 5000));
        assert_eq!((producers.len(), producers.tracked(5000)), (1, (1, 3)));
        assert!(producers.bytes() < full);
    }
}

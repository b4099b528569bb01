//! Keys of slots that are on their way to another node, and what has changed since they were sent.
//!
//! Shared by the shards and the thread that sends the keys. A key that changes is added with its shard held, before the change
//! is answered; the thread takes it out with the shard held, when it reads the value again. A large value is sent once: what
//! commands do to it from then on is kept here as records, and sent after it. A change that no record tells has it sent again.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use darter_base::crc::SLOTS_LEN;
use darter_base::slot::slot_of;

/// A key: its database and its name.
pub type NamedKey = (usize, Box<[u8]>);

/// What a command has done to a key, as the body of a journal record, and the clock that it ran with, Unix ms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FollowingRecord {
    /// See above.
    pub clock_ms: u64,
    /// See above.
    pub body: Vec<u8>,
}

/// See above.
#[derive(Debug)]
pub struct LeavingKeys {
    slots: Box<[bool]>,
    state: Mutex<LeavingState>,
}

#[derive(Debug, Default)]
struct LeavingState {
    changed: HashSet<NamedKey>,
    followed: HashMap<NamedKey, FollowedKey>,
    // followed keys that have records, once each
    waiting: Vec<NamedKey>,
    // of all records
    bytes: usize,
}

/// A key whose value was sent, or is being sent.
#[derive(Debug)]
struct FollowedKey {
    records: Vec<FollowingRecord>,
    // Changes with smaller numbers are in the value, or in a record.
    told_before: u64,
}

/// Bytes of records that may wait. A key whose record has no room is sent again.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// What a record takes beside its body.
const RECORD_BYTES: usize = 64;

impl FollowedKey {
    fn bytes(&self) -> usize {
        self.records.iter().map(FollowingRecord::bytes).sum()
    }
}

impl FollowingRecord {
    fn bytes(&self) -> usize {
        self.body.len() + RECORD_BYTES
    }
}

impl LeavingState {
    /// Has the key sent again as it will be then.
    fn send_again(&mut self, key: NamedKey) {
        self.stop_following(&key);
        self.changed.insert(key);
    }

    fn stop_following(&mut self, key: &NamedKey) {
        if let Some(followed) = self.followed.remove(key) {
            self.bytes -= followed.bytes();
            if !followed.records.is_empty() {
                self.waiting.retain(|waiting| waiting != key);
            }
        }
    }
}

impl LeavingKeys {
    /// Of these slots, none changed.
    pub fn new(slots: impl Iterator<Item = u16>) -> LeavingKeys {
        let mut bits = vec![false; usize::from(SLOTS_LEN)].into_boxed_slice();
        slots.for_each(|slot| bits.iter_mut().skip(usize::from(slot)).take(1).for_each(|bit| *bit = true));
        LeavingKeys { slots: bits, state: Mutex::default() }
    }

    /// The slots, in ascending order.
    pub fn slots(&self) -> impl Iterator<Item = u16> + '_ {
        (0..SLOTS_LEN).filter(|slot| self.slots.get(usize::from(*slot)).copied().unwrap_or_default())
    }

    /// Returns true if the key `name` is in one of the slots.
    pub fn has(&self, name: &[u8]) -> bool {
        self.slots.get(usize::from(slot_of(name))).copied().unwrap_or_default()
    }

    /// Notes that a key has changed, if it is in one of the slots, unless a record or the value has told of the change with
    /// this number. With its shard held.
    pub fn touch(&self, db: usize, name: &[u8], order: u64) {
        if self.has(name) {
            let (key, mut state) = ((db, name.into()), self.state());
            if state.followed.get(&key).is_none_or(|followed| order >= followed.told_before) {
                state.send_again(key);
            }
        }
    }

    /// Takes note that the value of a key is read. With its shard held.
    pub fn settle(&self, key: &NamedKey) {
        let mut state = self.state();
        state.stop_following(key);
        state.changed.remove(key);
    }

    /// Has records follow a key, whose value has just been read; it has all changes with smaller numbers than `told_before`.
    /// With its shard held.
    pub fn follow(&self, key: &NamedKey, told_before: u64) {
        let followed = FollowedKey { records: Vec::new(), told_before };
        self.state().followed.insert(key.clone(), followed);
    }

    /// Returns true if records follow a key. With its shard held.
    pub fn follows(&self, db: usize, name: &[u8]) -> bool {
        self.has(name) && self.state().followed.contains_key(&(db, name.into()))
    }

    /// Takes a record about a followed key; with those before it, it tells of all changes with smaller numbers than
    /// `told_before`. With its shard held.
    pub fn tell(&self, db: usize, name: &[u8], record: FollowingRecord, told_before: u64) {
        let (key, mut state) = ((db, name.into()), self.state());
        let bytes = record.bytes();
        if state.bytes + bytes > RECORD_BYTES_MAX {
            return state.send_again(key);
        }
        let Some(followed) = state.followed.get_mut(&key) else { return };
        let is_first = followed.records.is_empty();
        followed.records.push(record);
        followed.told_before = told_before;
        state.bytes += bytes;
        if is_first {
            state.waiting.push(key);
        }
    }

    /// Has a followed key sent again: something was done to it that no record tells. With its shard held.
    pub fn lose(&self, db: usize, name: &[u8]) {
        if self.has(name) {
            let (key, mut state) = ((db, name.into()), self.state());
            if state.followed.contains_key(&key) {
                state.send_again(key);
            }
        }
    }

    /// Up to `max` keys that have changed.
    pub fn some(&self, max: usize) -> Vec<NamedKey> {
        self.state().changed.iter().take(max).cloned().collect()
    }

    /// Takes the records that wait, those of one key in their order.
    pub fn take_records(&self) -> Vec<FollowingRecord> {
        let mut state = self.state();
        let mut records = Vec::new();
        for key in std::mem::take(&mut state.waiting) {
            if let Some(followed) = state.followed.get_mut(&key) {
                records.append(&mut followed.records);
            }
        }
        state.bytes = 0;
        records
    }

    /// Bytes of the records that wait.
    pub fn record_bytes(&self) -> usize {
        self.state().bytes
    }

    /// Number of keys that have changed.
    pub fn changed_len(&self) -> usize {
        self.state().changed.len()
    }

    /// Returns true if nothing has changed since it was sent.
    pub fn is_settled(&self) -> bool {
        let state = self.state();
        state.changed.is_empty() && state.waiting.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, LeavingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_foo() -> LeavingKeys {
        LeavingKeys::new([slot_of(b"foo")].into_iter())
    }

    fn key(name: &str) -> NamedKey {
        (0, name.as_bytes().into())
    }

    fn record(body: &str) -> FollowingRecord {
        FollowingRecord { clock_ms: 1, body: body.into() }
    }

    fn bodies(leaving: &LeavingKeys) -> Vec<String> {
        let records = leaving.take_records();
        records.into_iter().map(|record| String::from_utf8(record.body).unwrap()).collect()
    }

    #[test]
    fn changes_of_its_slots_are_kept_until_they_are_read() {
        let leaving = of_foo();
        leaving.touch(0, b"{foo}1", 1);
        leaving.touch(0, b"{foo}1", 2);
        leaving.touch(2, b"{foo}1", 3);
        leaving.touch(0, b"bar", 4);
        assert_eq!(leaving.changed_len(), 2);
        let some = leaving.some(1);
        assert_eq!(some.len(), 1);
        leaving.settle(&some[0]);
        assert_eq!(leaving.changed_len(), 1);
        leaving.touch(0, b"{foo}1", 5);
        leaving.touch(2, b"{foo}1", 6);
        assert_eq!(leaving.some(9).len(), 2);
    }

    #[test]
    fn a_change_that_a_record_tells_does_not_have_the_value_sent_again() {
        let leaving = of_foo();
        leaving.touch(0, b"{foo}1", 3);
        leaving.settle(&key("{foo}1"));
        leaving.follow(&key("{foo}1"), 4);
        // What the value has.
        leaving.touch(0, b"{foo}1", 3);
        assert!(leaving.is_settled());
        leaving.tell(0, b"{foo}1", record("a"), 6);
        leaving.touch(0, b"{foo}1", 4);
        leaving.tell(0, b"{foo}1", record("b"), 7);
        leaving.touch(0, b"{foo}1", 5);
        leaving.touch(0, b"{foo}1", 6);
        assert_eq!((leaving.changed_len(), leaving.is_settled()), (0, false));
        assert_eq!(bodies(&leaving), ["a", "b"]);
        assert!(leaving.is_settled());
        assert_eq!(leaving.record_bytes(), 0);
    }

    #[test]
    fn a_change_that_no_record_tells_has_the_value_sent_again_without_older_records() {
        let leaving = of_foo();
        leaving.follow(&key("{foo}1"), 1);
        leaving.follow(&key("{foo}2"), 1);
        leaving.tell(0, b"{foo}1", record("a"), 2);
        leaving.tell(0, b"{foo}2", record("b"), 2);
        leaving.touch(0, b"{foo}1", 2);
        assert!(!leaving.follows(0, b"{foo}1"));
        leaving.tell(0, b"{foo}1", record("c"), 4);
        assert_eq!(leaving.some(9), [key("{foo}1")]);
        assert_eq!(bodies(&leaving), ["b"]);
        leaving.lose(0, b"{foo}2");
        leaving.lose(0, b"{foo}3");
        assert_eq!(leaving.changed_len(), 2);
    }

    #[test]
    fn records_take_a_bounded_memory() {
        let leaving = of_foo();
        leaving.follow(&key("{foo}1"), 1);
        leaving.follow(&key("{foo}2"), 1);
        let megabyte = "x".repeat(1 << 20);
        for n in 0..100 {
            leaving.tell(0, b"{foo}1", record(&megabyte), n);
        }
        assert_eq!(leaving.record_bytes(), 0, "it is sent again, and none of its records is");
        assert_eq!(leaving.some(9), [key("{foo}1")]);
        leaving.tell(0, b"{foo}2", record("a"), 2);
        assert_eq!(bodies(&leaving), ["a"]);
    }
}

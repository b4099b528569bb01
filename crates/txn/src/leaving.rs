//! Keys of slots that are on their way to another node, and have changed since they were sent.
//!
//! Shared by the shards and the thread that sends the keys. A key is added with its shard held, before the change is answered;
//! the thread takes it out with the shard held, when it reads the value again.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use darter_base::crc::SLOTS_LEN;
use darter_base::slot::slot_of;

/// A key: its database and its name.
pub type NamedKey = (usize, Box<[u8]>);

/// See above.
#[derive(Debug)]
pub struct LeavingKeys {
    slots: Box<[bool]>,
    changed: Mutex<HashSet<NamedKey>>,
}

impl LeavingKeys {
    /// Of these slots, none changed.
    pub fn new(slots: impl Iterator<Item = u16>) -> LeavingKeys {
        let mut bits = vec![false; usize::from(SLOTS_LEN)].into_boxed_slice();
        slots.for_each(|slot| bits.iter_mut().skip(usize::from(slot)).take(1).for_each(|bit| *bit = true));
        LeavingKeys { slots: bits, changed: Mutex::default() }
    }

    /// The slots, in ascending order.
    pub fn slots(&self) -> impl Iterator<Item = u16> + '_ {
        (0..SLOTS_LEN).filter(|slot| self.slots.get(usize::from(*slot)).copied().unwrap_or_default())
    }

    /// Returns true if the key `name` is in one of the slots.
    pub fn has(&self, name: &[u8]) -> bool {
        self.slots.get(usize::from(slot_of(name))).copied().unwrap_or_default()
    }

    /// Notes that a key has changed, if it is in one of the slots. With its shard held.
    pub fn touch(&self, db: usize, name: &[u8]) {
        if self.has(name) {
            self.changed().insert((db, name.into()));
        }
    }

    /// Takes note that the value of a key is read. With its shard held.
    pub fn settle(&self, key: &NamedKey) {
        self.changed().remove(key);
    }

    /// Up to `max` keys that have changed.
    pub fn some(&self, max: usize) -> Vec<NamedKey> {
        self.changed().iter().take(max).cloned().collect()
    }

    /// Number of keys that have changed.
    pub fn changed_len(&self) -> usize {
        self.changed().len()
    }

    fn changed(&self) -> MutexGuard<'_, HashSet<NamedKey>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_its_slots_are_kept_until_they_are_read() {
        let leaving = LeavingKeys::new([slot_of(b"foo")].into_iter());
        leaving.touch(0, b"{foo}1");
        leaving.touch(0, b"{foo}1");
        leaving.touch(2, b"{foo}1");
        leaving.touch(0, b"bar");
        assert_eq!(leaving.changed_len(), 2);
        let some = leaving.some(1);
        assert_eq!(some.len(), 1);
        leaving.settle(&some[0]);
        assert_eq!(leaving.changed_len(), 1);
        leaving.touch(0, b"{foo}1");
        leaving.touch(2, b"{foo}1");
        assert_eq!(leaving.some(9).len(), 2);
    }
}

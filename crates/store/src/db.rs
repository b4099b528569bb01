//! One numbered database's part of a shard.

use darter_index::{Index, Position};

use crate::cut::YOUNGER;
use crate::labels::Labels;

/// The index of one database and its counters.
pub struct Db {
    pub(crate) index: Index,
    pub(crate) expiring: usize,
    /// Keys with members that expire.
    pub(crate) timed: usize,
    /// Its number at the start of the running cut.
    pub(crate) cut_number: u16,
    /// Its time series.
    pub(crate) labels: Labels,
    /// The position up to which it is freed, after it was emptied.
    pub(crate) ruined_to: Position,
}

impl Db {
    pub(crate) fn new() -> Db {
        Db {
            index: Index::new(),
            expiring: 0,
            timed: 0,
            cut_number: YOUNGER,
            labels: Labels::default(),
            ruined_to: Position::START,
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots of the index at its present size.
    pub fn slots(&self) -> usize {
        self.index.slots()
    }

    /// Number of keys with a deadline.
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// Number of keys with members or fields that have a deadline.
    pub fn expiring_in_part(&self) -> usize {
        self.timed
    }
}

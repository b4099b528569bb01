//! What a group asks of a store: one value, read with its revision, changed only if nobody else has changed it.
//!
//! The thread of the store calls it. A store never decides who leads.

use std::fmt;

/// A value and the revision of its last change, which grows with each change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// The revision; never 0.
    pub revision: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// What became of a write that the store has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreWritten {
    /// The value is in the store, with this revision.
    Done(u64),
    /// Another change was made before; the store keeps that.
    Conflict,
}

/// The store does not answer, or refuses. A write that ends with it may have been made, or may be made later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreFault(pub String);

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A store with consensus.
pub trait GroupStore: Send {
    /// The value; `None`: there is none. It is at least as new as every write that was answered before the call.
    ///
    /// Errors: the store cannot be asked.
    fn read(&mut self) -> Result<Option<Versioned>, StoreFault>;

    /// The value of [`GroupStore::read`] if its revision is larger than `known`.
    ///
    /// Errors: the store cannot be asked.
    fn read_newer(&mut self, known: u64) -> Result<Option<Versioned>, StoreFault> {
        Ok(self.read()?.filter(|value| value.revision > known))
    }

    /// Stores a value if the revision of the present one is `expected`; 0 means that there must be none.
    ///
    /// Errors: the outcome is not known.
    fn compare_and_set(&mut self, expected: u64, value: &[u8]) -> Result<StoreWritten, StoreFault>;
}

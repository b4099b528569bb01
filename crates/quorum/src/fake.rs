//! A store in memory with the contract of a real one, for tests and the simulator.
//!
//! Clones share one value. It can be cut off: then nothing is answered, and a write may come about all the same.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::store::{GroupStore, StoreFault, StoreWritten, Versioned};

/// What a write meets while the store is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StoreTrouble {
    /// All is well.
    #[default]
    None,
    /// Nothing reaches the store.
    Away,
    /// Writes are made, and the answer is lost.
    Deaf,
}

#[derive(Default)]
struct FakeKept {
    revision: u64,
    value: Option<Versioned>,
    trouble: StoreTrouble,
}

/// See above.
#[derive(Clone, Default)]
pub struct FakeStore(Arc<Mutex<FakeKept>>);

impl FakeStore {
    fn kept(&self) -> MutexGuard<'_, FakeKept> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What it has now.
    pub fn kept_value(&self) -> Option<Versioned> {
        self.kept().value.clone()
    }

    /// Has it lose all changes but this, as a store does that is restored from a copy.
    pub fn lose(&self, all_but: Option<Versioned>) {
        self.kept().value = all_but;
    }

    /// Cuts it off, or brings it back.
    pub fn set_trouble(&self, trouble: StoreTrouble) {
        self.kept().trouble = trouble;
    }
}

const LOST: &str = "the store does not answer";

impl GroupStore for FakeStore {
    fn read(&mut self) -> Result<Option<Versioned>, StoreFault> {
        let kept = self.kept();
        match kept.trouble {
            StoreTrouble::None => Ok(kept.value.clone()),
            StoreTrouble::Away | StoreTrouble::Deaf => Err(StoreFault(LOST.to_owned())),
        }
    }

    fn compare_and_set(&mut self, expected: u64, value: &[u8]) -> Result<StoreWritten, StoreFault> {
        let mut kept = self.kept();
        let trouble = kept.trouble;
        if trouble == StoreTrouble::Away {
            return Err(StoreFault(LOST.to_owned()));
        }
        let is_right = kept.value.as_ref().map_or(0, |value| value.revision) == expected;
        if is_right {
            kept.revision += 1;
            kept.value = Some(Versioned { revision: kept.revision, value: value.to_vec() });
        }
        match is_right {
            _ if trouble == StoreTrouble::Deaf => Err(StoreFault(LOST.to_owned())),
            true => Ok(StoreWritten::Done(kept.revision)),
            false => Ok(StoreWritten::Conflict),
        }
    }
}

//! Keys whose values name other keys: time series with rules name the series they feed, and those name their source.
//!
//! There is one table for all shards. The planning of a command reads the additional shards it needs from here. An
//! entry is made and removed with the shard of its owner held, so it is stable while that shard is held. A name
//! counts in every database: the answer may be too many, never too few.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{PoisonError, RwLock};

type Others = BTreeMap<Box<[u8]>, u32>;

/// Keys that name others.
#[derive(Debug, Default)]
pub struct Links {
    owners_len: AtomicUsize,
    owners: RwLock<BTreeMap<Box<[u8]>, Others>>,
}

impl Links {
    /// Returns true if any key names another.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.owners_len.load(Acquire) > 0
    }

    /// Visits the keys that the value of `owner` names, in any database.
    pub fn each(&self, owner: &[u8], visit: &mut dyn FnMut(&[u8])) {
        if self.is_any() {
            let owners = self.owners.read().unwrap_or_else(PoisonError::into_inner);
            owners.get(owner).into_iter().flatten().for_each(|(other, _)| visit(other));
        }
    }

    pub(crate) fn add(&self, owner: &[u8], other: &[u8]) {
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        *owners.entry(owner.into()).or_default().entry(other.into()).or_default() += 1;
        self.owners_len.store(owners.len(), Release);
    }

    pub(crate) fn remove(&self, owner: &[u8], other: &[u8]) {
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        let Some(others) = owners.get_mut(owner) else { return };
        if let Some(count) = others.get_mut(other) {
            *count -= 1;
            if *count == 0 {
                others.remove(other);
            }
        }
        if others.is_empty() {
            owners.remove(owner);
        }
        self.owners_len.store(owners.len(), Release);
    }
}

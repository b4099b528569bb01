//! Which keys' values name other keys: time series with rules name the series they feed, and those name their source.
//!
//! One table for all shards. Whoever plans a command asks it which shards the command needs beside those of its keys. An
//! entry is made and removed with the shard of its owner held, so it stands still while that shard is held. A name counts
//! in every database at once: the answer may be too many, never too few.

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
    /// Whether any key names another.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.owners_len.load(Acquire) > 0
    }

    /// Visits the keys that the value of `owner` names, in whichever database.
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

//! What one connection is subscribed to. Part of its session, and shown to other threads by its `ClientInfo`.
//!
//! Called by `pubsub`, and by what withdraws rights. It sends no message.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// What a subscription names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubscriptionKind {
    /// A channel.
    Channel,
    /// Every channel that a glob pattern matches.
    Pattern,
    /// A channel of its own name space, which a cluster keeps on the slot of its name.
    Shard,
}

impl SubscriptionKind {
    /// Its place in arrays with one entry a kind.
    pub const fn index(self) -> usize {
        self as usize
    }
}

type Names = BTreeSet<Box<[u8]>>;

/// What one connection is subscribed to. Its own thread changes it; others may look, when rights are withdrawn.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    names: Arc<Mutex<[Names; 3]>>,
    bytes: usize,
}

/// Bytes of a subscription beside its name: here, in the thread's table and in the directory.
const SUBSCRIPTION_BYTES: usize = 64;

impl Subscriptions {
    /// Adds a name; false when it is there already.
    pub fn add(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        let names = &mut lock(&self.names)[kind.index()];
        let is_new = !names.contains(name) && names.insert(name.into());
        self.bytes += usize::from(is_new) * (name.len() + SUBSCRIPTION_BYTES);
        is_new
    }

    /// Removes a name; false when it is not there.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        let was_there = lock(&self.names)[kind.index()].remove(name);
        self.bytes -= usize::from(was_there) * (name.len() + SUBSCRIPTION_BYTES);
        was_there
    }

    /// Bytes that count as the client's.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a name is there.
    pub fn has(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        lock(&self.names)[kind.index()].contains(name)
    }

    /// All names of a kind. Cost: a copy of them.
    pub fn names(&self, kind: SubscriptionKind) -> Vec<Box<[u8]>> {
        lock(&self.names)[kind.index()].iter().cloned().collect()
    }

    /// Whether `is_so` for every name of a kind.
    pub fn all(&self, kind: SubscriptionKind, is_so: impl Fn(&[u8]) -> bool) -> bool {
        lock(&self.names)[kind.index()].iter().all(|name| is_so(name))
    }

    /// Number of names of a kind.
    pub fn len(&self, kind: SubscriptionKind) -> usize {
        lock(&self.names)[kind.index()].len()
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        lock(&self.names).iter().all(BTreeSet::is_empty)
    }
}

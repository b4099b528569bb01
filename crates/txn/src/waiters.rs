//! Clients that wait for a key: the part of BLPOP and its kin that lives in the shard.
//!
//! A waiter stands in the queue of each of its keys, in as many shards as they are in. Whoever makes
//! a key ready serves the oldest waiter of that key while it still holds the shard. A waiter is
//! served once: the first to [`Ticket::claim`] it may answer, the other queues drop it when they
//! meet it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One client's place in the queues. `W` is what the server needs to answer it.
#[derive(Debug)]
pub struct Ticket<W: ?Sized> {
    claimed: AtomicBool,
    /// What the server keeps about the waiting command.
    pub what: W,
}

impl<W> Ticket<W> {
    /// A ticket nobody has claimed.
    pub fn new(what: W) -> Arc<Ticket<W>> {
        Arc::new(Ticket { claimed: AtomicBool::new(false), what })
    }
}

impl<W: ?Sized> Ticket<W> {
    /// Claims the right to answer; true for exactly one caller.
    pub fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    /// Whether somebody has claimed it.
    pub fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }
}

/// What the server keeps about a waiting command: opaque here.
pub type Parked = Arc<Ticket<dyn std::any::Any + Send + Sync>>;

/// The queues of one shard.
#[derive(Default)]
pub struct Waiters {
    keys: HashMap<(usize, Box<[u8]>), VecDeque<Parked>>,
}

impl Waiters {
    /// Puts a ticket at the end of a key's queue.
    pub fn add(&mut self, db: usize, key: &[u8], ticket: Parked) {
        self.keys.entry((db, key.into())).or_default().push_back(ticket);
    }

    /// Drops a ticket from a key's queue, and every claimed one before it.
    pub fn remove(&mut self, db: usize, key: &[u8], ticket: &Parked) {
        let place = (db, Box::from(key));
        if let Some(queue) = self.keys.get_mut(&place) {
            queue.retain(|t| !Arc::ptr_eq(t, ticket) && !t.is_claimed());
            if queue.is_empty() {
                self.keys.remove(&place);
            }
        }
    }

    /// The tickets of a key that nobody has claimed, oldest first.
    pub fn waiting(&mut self, db: usize, key: &[u8]) -> Vec<Parked> {
        if self.keys.is_empty() {
            return Vec::new();
        }
        let place = (db, Box::from(key));
        let Some(queue) = self.keys.get_mut(&place) else { return Vec::new() };
        queue.retain(|t| !t.is_claimed());
        if queue.is_empty() {
            self.keys.remove(&place);
            return Vec::new();
        }
        queue.iter().cloned().collect()
    }

    /// The keys of `db` that somebody waits for.
    pub fn keys_of(&self, db: usize) -> Vec<Box<[u8]>> {
        self.keys.keys().filter(|(at, _)| *at == db).map(|(_, key)| key.clone()).collect()
    }

    /// Whether nobody waits here.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys that somebody waits for.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

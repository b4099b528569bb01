//! MIGRATE: keys go to another server, and from here once that has them.
//!
//! A thread of its own talks to the other server, so that nobody waits for the network. The values are read, and later
//! deleted, by jobs that hold the shards of all keys for a moment. Between the two the keys are watched: one that was
//! changed is sent again, one that was deleted is deleted there too. So a key is given up only as it was sent.
//! A node of a cluster answers for a key until then: its clients are not sent on, even while the key is missing.

mod held;
mod peer;
mod work;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use darter_base::crc::key_slot;

use crate::shared::Shared;
use crate::snapshot::ending::Asking;
use crate::sync::lock;

pub use work::spawn;

use peer::Peer;

/// What MIGRATE was told.
pub struct MigrateOrder {
    /// The other server.
    pub place: Place,
    /// The database there.
    pub to_db: i64,
    /// How long each step of the conversation may take.
    pub patience: Duration,
    /// The keys stay here.
    pub copies: bool,
    /// Existing keys of the same names are overwritten.
    pub replaces: bool,
    /// What AUTH is told there: a password, or a user and a password.
    pub login: Vec<Vec<u8>>,
    /// The keys.
    pub keys: Vec<Box<[u8]>>,
    /// This server is one of a cluster: the other may be the target of a slot that moves.
    pub is_node: bool,
    /// The database here.
    pub db: usize,
    /// Client that waits for the answer.
    pub asking: Asking,
}

/// A host and a port, as they were said.
pub type Place = (String, String);

/// What all threads share of MIGRATE: connections that may be used again.
#[derive(Default)]
pub struct Migrations {
    idle: Mutex<HashMap<Place, Peer>>,
    running: AtomicUsize,
    custody: Mutex<Custody>,
}

/// Keys that were read and are not settled. The shard of a key is held when it comes or goes.
#[derive(Default)]
struct Custody {
    /// The database and the name of each.
    keys: HashSet<(usize, Box<[u8]>)>,
    /// By slot: how many there have been.
    begun: HashMap<u16, u64>,
}

/// Connections that are kept for another MIGRATE, and for how long.
const IDLE_MAX: usize = 64;
const IDLE: Duration = Duration::from_secs(10);
/// MIGRATEs at one time: each has a thread.
const RUNNING_MAX: usize = 32;

impl Migrations {
    /// Connections that are kept.
    pub fn idle_len(&self) -> usize {
        lock(&self.idle).len()
    }

    /// Closes connections that nobody used for a while; called once a second.
    pub fn keep(&self) {
        lock(&self.idle).retain(|_, peer| peer.used.elapsed() < IDLE);
    }

    /// Returns true if a key is on its way, and this server answers for it. With its shard held.
    pub fn has_custody(&self, db: usize, name: &[u8]) -> bool {
        let custody = lock(&self.custody);
        !custody.keys.is_empty() && custody.keys.contains(&(db, Box::from(name)))
    }

    /// The number of keys of a slot that have been on their way; `None` while one is.
    pub fn custody_of_slot(&self, slot: u16) -> Option<u64> {
        let custody = lock(&self.custody);
        let is_any = custody.keys.iter().any(|(_, name)| key_slot(name) == slot);
        (!is_any).then(|| custody.begun.get(&slot).copied().unwrap_or(0))
    }

    /// Returns true if a key is on its way whose name is as `is` says.
    pub fn has_custody_of(&self, is: impl Fn(&[u8]) -> bool) -> bool {
        lock(&self.custody).keys.iter().any(|(_, name)| is(name))
    }

    fn begin_custody(&self, order: &MigrateOrder, name: &[u8]) {
        if order.is_node && !order.copies {
            let mut custody = lock(&self.custody);
            if custody.keys.insert((order.db, name.into())) {
                *custody.begun.entry(key_slot(name)).or_default() += 1;
            }
        }
    }

    fn end_custody(&self, order: &MigrateOrder, name: &[u8]) {
        if order.is_node {
            lock(&self.custody).keys.remove(&(order.db, Box::from(name)));
        }
    }

    fn take(&self, place: &Place) -> Option<Peer> {
        lock(&self.idle).remove(place)
    }

    fn give_back(&self, place: &Place, mut peer: Peer) {
        peer.used = Instant::now();
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.insert(place.clone(), peer);
        }
    }
}

/// A place among the MIGRATEs that run; given back when it is dropped.
struct MigrateSeat(&'static Shared);

impl MigrateSeat {
    fn take(shared: &'static Shared) -> Option<MigrateSeat> {
        let running = &shared.migrations.running;
        let seat = (running.fetch_add(1, Ordering::Relaxed) < RUNNING_MAX).then_some(MigrateSeat(shared));
        if seat.is_none() {
            running.fetch_sub(1, Ordering::Relaxed);
        }
        seat
    }
}

impl Drop for MigrateSeat {
    fn drop(&mut self) {
        self.0.migrations.running.fetch_sub(1, Ordering::Relaxed);
    }
}

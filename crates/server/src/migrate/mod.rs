//! MIGRATE: keys go to another server, and from here once that has them.
//!
//! A thread of its own talks to the other server, so that nobody waits for the network. The values are read, and later
//! deleted, by jobs that hold the shards of all keys for a moment. Between the two the keys are watched: one that was
//! changed is sent again, one that was deleted is deleted there too. So a key is given up only as it was sent.

mod held;
mod peer;
mod work;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::shared::Shared;
use crate::snapshot::ending::Asking;
use crate::sync::lock;

pub use work::spawn;

use peer::Peer;

/// What MIGRATE was told.
pub struct Order {
    /// The other server.
    pub place: Place,
    /// The database there.
    pub to_db: i64,
    /// How long each step of the conversation may take.
    pub patience: Duration,
    /// The keys stay here.
    pub copies: bool,
    /// What is there under the same names is overwritten.
    pub replaces: bool,
    /// What AUTH is told there: a password, or a user and a password.
    pub login: Vec<Vec<u8>>,
    /// The keys.
    pub keys: Vec<Box<[u8]>>,
    /// The database here.
    pub db: usize,
    /// Who waits for the answer.
    pub asking: Asking,
}

/// A host and a port, as they were said.
pub type Place = (String, String);

/// What all threads share of MIGRATE: connections that may be used again.
#[derive(Default)]
pub struct Migrations {
    idle: Mutex<HashMap<Place, Peer>>,
    running: AtomicUsize,
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
struct Seat(&'static Shared);

impl Seat {
    fn take(shared: &'static Shared) -> Option<Seat> {
        let running = &shared.migrations.running;
        let seat = (running.fetch_add(1, Ordering::Relaxed) < RUNNING_MAX).then_some(Seat(shared));
        if seat.is_none() {
            running.fetch_sub(1, Ordering::Relaxed);
        }
        seat
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.migrations.running.fetch_sub(1, Ordering::Relaxed);
    }
}

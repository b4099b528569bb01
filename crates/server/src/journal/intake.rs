//! Records on their way to replicas: each thread hands over what it has noted, a thread of replication takes it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::worker::lock;

/// Where threads hand records over. Nothing is kept while it is off.
#[derive(Debug, Default)]
pub struct Intake {
    is_on: AtomicBool,
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

/// What was handed over since it was last taken.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Records of a thread, by the number of its slot.
    pub records: Vec<(u16, Vec<u8>)>,
    /// Sequences that nobody is given: from, to.
    pub jumps: Vec<(u64, u64)>,
    is_poked: bool,
}

impl Intake {
    /// Whether somebody takes records.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    /// Begins to take records, or ends it; what waits is dropped.
    pub fn switch(&self, on: bool) {
        let mut waiting = lock(&self.waiting);
        waiting.records.clear();
        waiting.jumps.clear();
        self.is_on.store(on, SeqCst);
    }

    /// Hands over records of the thread with this slot, one behind the other.
    pub fn give(&self, slot: u16, records: Vec<u8>) {
        let mut waiting = lock(&self.waiting);
        if self.is_on() {
            waiting.records.push((slot, records));
            self.wake.notify_one();
        }
    }

    /// Notes that nobody is given a sequence in `from..to`.
    pub fn jump(&self, from: u64, to: u64) {
        lock(&self.waiting).jumps.push((from, to));
    }

    /// Wakes who waits: something else has happened.
    pub fn poke(&self) {
        lock(&self.waiting).is_poked = true;
        self.wake.notify_one();
    }

    /// Takes what was handed over; waits for something for up to `patience`.
    pub fn take(&self, patience: Duration) -> Waiting {
        let waiting = lock(&self.waiting);
        let is_idle = |waiting: &mut Waiting| {
            waiting.records.is_empty() && waiting.jumps.is_empty() && !waiting.is_poked
        };
        let waited = self.wake.wait_timeout_while(waiting, patience, is_idle);
        let mut waiting = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        std::mem::take(&mut *waiting)
    }
}

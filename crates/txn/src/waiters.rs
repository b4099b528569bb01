//! Clients that wait for a key: the part of BLPOP and its kin that lives in the shard.
//!
//! A waiter stands in the queue of each of its keys, in as many shards as they are in. Whoever makes
//! a key ready tries to serve the oldest waiter of that key while it still holds the shard. A waiter
//! is answered once: the ticket's state decides between shards, the timeout and the client's end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// One client's place in the queues. `W` is what the server needs to answer it.
#[derive(Debug)]
pub struct Ticket<W: ?Sized> {
    state: AtomicU8,
    /// What the server keeps about the waiting command.
    pub what: W,
}

/// Nobody deals with it.
const WAITING: u8 = 0;
/// Somebody who holds one of its keys tries to serve it.
const TRYING: u8 = 1;
/// The same, and meanwhile another of its keys became ready.
const TRYING_AGAIN: u8 = 2;
/// It has been answered or given up.
const DONE: u8 = 3;

/// What came of a try to serve that found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missed {
    /// It waits as before.
    Nothing,
    /// Another key became ready during the try: the whole command must be looked at again.
    Something,
}

impl<W> Ticket<W> {
    /// A ticket nobody deals with.
    pub fn new(what: W) -> Arc<Ticket<W>> {
        Arc::new(Ticket { state: AtomicU8::new(WAITING), what })
    }
}

impl<W: ?Sized> Ticket<W> {
    /// Begins a try to serve; false when somebody else is at it or it is done. One who is at it will
    /// know that he was asked.
    pub fn begin(&self) -> bool {
        match self.state.compare_exchange(WAITING, TRYING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(TRYING) => {
                // Should the try end right now, the state is WAITING again and the second attempt gets it.
                match self.state.compare_exchange(TRYING, TRYING_AGAIN, Ordering::AcqRel, Ordering::Acquire) {
                    Err(WAITING) => self.begin(),
                    _ => false,
                }
            }
            Err(_) => false,
        }
    }

    /// Ends a try that served.
    pub fn finish(&self) {
        self.state.store(DONE, Ordering::Release);
    }

    /// Ends a try that found nothing to serve.
    pub fn give_back(&self) -> Missed {
        match self.state.swap(WAITING, Ordering::AcqRel) {
            TRYING_AGAIN => Missed::Something,
            _ => Missed::Nothing,
        }
    }

    /// Ends the wait from outside (timeout, UNBLOCK, disconnect); false when it is being served or done.
    pub fn cancel(&self) -> bool {
        self.state.compare_exchange(WAITING, DONE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether it has been answered or given up.
    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
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
        let queue = self.keys.entry((db, key.into())).or_default();
        queue.retain(|t| !t.is_done());
        queue.push_back(ticket);
    }

    /// Drops a ticket from a key's queue, and every finished one with it.
    pub fn remove(&mut self, db: usize, key: &[u8], ticket: &Parked) {
        let place = (db, Box::from(key));
        if let Some(queue) = self.keys.get_mut(&place) {
            queue.retain(|t| !Arc::ptr_eq(t, ticket) && !t.is_done());
            if queue.is_empty() {
                self.keys.remove(&place);
            }
        }
    }

    /// The tickets of a key that still wait, oldest first.
    pub fn waiting(&mut self, db: usize, key: &[u8]) -> Vec<Parked> {
        if self.keys.is_empty() {
            return Vec::new();
        }
        let place = (db, Box::from(key));
        let Some(queue) = self.keys.get_mut(&place) else { return Vec::new() };
        queue.retain(|t| !t.is_done());
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

    /// The same, without those that only tickets stand at that are done.
    pub fn waited_keys(&self, db: usize) -> impl Iterator<Item = Box<[u8]>> + '_ {
        let waited = self.keys.iter().filter(|(_, queue)| queue.iter().any(|t| !t.is_done()));
        waited.filter(move |((at, _), _)| *at == db).map(|((_, key), _)| key.clone())
    }

    /// Number of keys that somebody waits for, and of those where somebody's ticket is `special`.
    /// Cost: O(tickets).
    pub fn count(&self, special: impl Fn(&(dyn std::any::Any + Send + Sync)) -> bool) -> (usize, usize) {
        let waits = |t: &&Parked| !t.is_done();
        let keys = self.keys.values().filter(|queue| queue.iter().any(|t| !t.is_done()));
        keys.fold((0, 0), |(all, some), queue| {
            (all + 1, some + usize::from(queue.iter().filter(waits).any(|t| special(&t.what))))
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_answered_once() {
        let ticket = Ticket::new(());
        assert!(ticket.begin());
        assert!(!ticket.cancel() && !ticket.begin());
        assert_eq!(ticket.give_back(), Missed::Something);
        assert!(ticket.begin());
        assert_eq!(ticket.give_back(), Missed::Nothing);
        assert!(ticket.begin());
        ticket.finish();
        assert!(!ticket.begin() && !ticket.cancel() && ticket.is_done());
    }

    #[test]
    fn queues_are_first_in_first_out_and_forget_the_done() {
        let mut waiters = Waiters::default();
        let tickets: Vec<Parked> = (0..3).map(|n| Ticket::new(n) as Parked).collect();
        for ticket in &tickets {
            waiters.add(0, b"k", ticket.clone());
        }
        assert!(tickets[0].cancel());
        let waiting = waiters.waiting(0, b"k");
        assert_eq!(waiting.len(), 2);
        assert!(Arc::ptr_eq(&waiting[0], &tickets[1]));
        assert!(waiters.waiting(1, b"k").is_empty());
        waiters.add(0, b"gone", tickets[0].clone());
        assert!(waiters.waited_keys(0).eq([Box::from(&b"k"[..])]));
        waiters.remove(0, b"gone", &tickets[0]);
        waiters.remove(0, b"k", &tickets[1]);
        waiters.remove(0, b"k", &tickets[2]);
        assert!(waiters.is_empty());
    }
}

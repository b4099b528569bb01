//! Clients that wait for a key: the part of BLPOP and similar commands that lives in the shard.
//!
//! A waiter is in the queue of each of its keys, in the shards of these keys. A thread that makes a key ready tries
//! to serve the oldest waiter of that key while it still holds the shard. A waiter is answered once: the ticket's
//! state decides between shards, the timeout and the client's end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::sync::{AtomicU8, Ordering};

/// One client's place in the queues. `W` is the data that the server needs to answer it.
#[derive(Debug)]
pub struct Ticket<W: ?Sized> {
    state: AtomicU8,
    /// The server's data about the waiting command.
    pub what: W,
}

/// Nobody deals with it.
const WAITING: u8 = 0;
/// The holder of one of its shards tries to serve it.
const TRYING: u8 = 1;
/// The same, and meanwhile another of its keys became ready.
const TRYING_AGAIN: u8 = 2;
/// It has been answered or abandoned.
const DONE: u8 = 3;
/// Its client closed during a try to serve it. That try may still succeed, and is the last.
const ABANDONED: u8 = 4;

/// The result of a try that found nothing to serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missed {
    /// It waits as before.
    Nothing,
    /// Another key became ready during the try: the whole command must be tried again.
    Something,
}

impl<W> Ticket<W> {
    /// A waiting ticket.
    pub fn new(what: W) -> Arc<Ticket<W>> {
        Arc::new(Ticket { state: AtomicU8::new(WAITING), what })
    }
}

impl<W: ?Sized> Ticket<W> {
    /// Begins a try to serve. Returns false if another try is running or the ticket is done. The running try learns
    /// of this call.
    pub fn begin(&self) -> bool {
        match self.state.compare_exchange(WAITING, TRYING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(TRYING) => {
                // If that try ends right now, the state is WAITING again and the next iteration takes it.
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
        let end = |state| Some(if state == ABANDONED { DONE } else { WAITING });
        match self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, end) {
            Ok(TRYING_AGAIN) => Missed::Something,
            _ => Missed::Nothing,
        }
    }

    /// Ends the wait from outside (timeout, UNBLOCK); returns false if it is being served or done.
    pub fn cancel(&self) -> bool {
        self.state.compare_exchange(WAITING, DONE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the wait of a client that has closed. A running try to serve it is the last one.
    pub fn abandon(&self) {
        let end = |state| match state {
            WAITING => Some(DONE),
            TRYING | TRYING_AGAIN => Some(ABANDONED),
            _ => None,
        };
        // An error is a state that has ended already.
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, end);
    }

    /// Returns true if it has been answered or abandoned.
    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }
}

/// The server's data about a waiting command, opaque here.
pub type Parked = Arc<Ticket<dyn std::any::Any + Send + Sync>>;

/// The queues of one shard.
#[derive(Default)]
pub struct Waiters {
    keys: HashMap<(usize, Box<[u8]>), WaiterQueue>,
}

/// The waiters for one key, oldest first. Finished tickets may stay behind an unfinished one until they are half of
/// the queue. Thousands of clients that leave one after another therefore do not each search the whole queue.
#[derive(Default)]
struct WaiterQueue {
    tickets: VecDeque<Parked>,
    // Number of tickets that have left since the last search.
    left: usize,
}

impl WaiterQueue {
    /// Drops the tickets that are done.
    fn clean(&mut self) {
        self.left = 0;
        self.tickets.retain(|ticket| !ticket.is_done());
    }
}

impl Waiters {
    /// Puts a ticket at the end of a key's queue. Cost: O(1), amortized.
    pub fn add(&mut self, db: usize, key: &[u8], ticket: Parked) {
        let queue = self.keys.entry((db, key.into())).or_default();
        if queue.tickets.len().is_power_of_two() {
            queue.clean();
        }
        queue.tickets.push_back(ticket);
    }

    /// Notes that a ticket in a key's queue is finished. Cost: O(1), amortized.
    pub fn leave(&mut self, db: usize, key: &[u8]) {
        let place = (db, Box::from(key));
        if let Some(queue) = self.keys.get_mut(&place) {
            queue.left += 1;
            while queue.tickets.front().is_some_and(|ticket| ticket.is_done()) {
                queue.tickets.pop_front();
            }
            if queue.left * 2 >= queue.tickets.len() {
                queue.clean();
            }
            if queue.tickets.is_empty() {
                self.keys.remove(&place);
            }
        }
    }

    /// The tickets of a key that still wait, oldest first. Cost: O(tickets).
    pub fn waiting(&mut self, db: usize, key: &[u8]) -> Vec<Parked> {
        if self.keys.is_empty() {
            return Vec::new();
        }
        let place = (db, Box::from(key));
        let Some(queue) = self.keys.get_mut(&place) else { return Vec::new() };
        queue.clean();
        if queue.tickets.is_empty() {
            self.keys.remove(&place);
            return Vec::new();
        }
        queue.tickets.iter().cloned().collect()
    }

    /// The keys of `db` with waiters.
    pub fn keys_of(&self, db: usize) -> Vec<Box<[u8]>> {
        self.keys.keys().filter(|(at, _)| *at == db).map(|(_, key)| key.clone()).collect()
    }

    /// The same, without keys that have only finished tickets.
    pub fn waited_keys(&self, db: usize) -> impl Iterator<Item = Box<[u8]>> + '_ {
        let waited = self.keys.iter().filter(|(_, queue)| queue.tickets.iter().any(|t| !t.is_done()));
        waited.filter(move |((at, _), _)| *at == db).map(|((_, key), _)| key.clone())
    }

    /// Number of keys with waiters, and of those with a `special` ticket. Cost: O(tickets).
    pub fn count(&self, special: impl Fn(&(dyn std::any::Any + Send + Sync)) -> bool) -> (usize, usize) {
        let waits = |t: &&Parked| !t.is_done();
        let queues = self.keys.values().map(|queue| &queue.tickets);
        queues.filter(|queue| queue.iter().any(|t| !t.is_done())).fold((0, 0), |(all, some), queue| {
            (all + 1, some + usize::from(queue.iter().filter(waits).any(|t| special(&t.what))))
        })
    }

    /// Returns true if no client waits here.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys with waiters.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test of one thread: the atomics of unit tests work under the scheduler only.
    fn alone(test: impl Fn() + Send + Sync + 'static) {
        shuttle::check_random(test, 1);
    }

    #[test]
    fn a_ticket_is_answered_once() {
        alone(|| {
            let ticket = Ticket::new(());
            assert!(ticket.begin());
            assert!(!ticket.cancel() && !ticket.begin());
            assert_eq!(ticket.give_back(), Missed::Something);
            assert!(ticket.begin());
            assert_eq!(ticket.give_back(), Missed::Nothing);
            assert!(ticket.begin());
            ticket.finish();
            assert!(!ticket.begin() && !ticket.cancel() && ticket.is_done());
        });
    }

    /// Two threads that make keys ready, a timeout, and a client that closes, in every order of their steps.
    #[test]
    fn a_ticket_has_one_end_whoever_comes_first() {
        use shuttle::thread;
        use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        shuttle::check_random(
            || {
                let ticket = Ticket::new(());
                let (served, timed_out) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
                let element = Arc::new(AtomicUsize::new(1));
                let server = || {
                    let (ticket, served, element) = (ticket.clone(), served.clone(), element.clone());
                    thread::spawn(move || {
                        let mut looks = 2;
                        while looks > 0 && ticket.begin() {
                            looks -= 1;
                            thread::yield_now();
                            if element.compare_exchange(1, 0, Relaxed, Relaxed).is_ok() {
                                served.fetch_add(1, Relaxed);
                                ticket.finish();
                                return;
                            }
                            if ticket.give_back() == Missed::Nothing {
                                return;
                            }
                        }
                    })
                };
                let servers = [server(), server()];
                let timeout = {
                    let (ticket, timed_out) = (ticket.clone(), timed_out.clone());
                    thread::spawn(move || timed_out.fetch_add(usize::from(ticket.cancel()), Relaxed))
                };
                ticket.abandon();
                servers.into_iter().for_each(|server| server.join().expect("a server ends"));
                timeout.join().expect("the timeout ends");
                assert!(ticket.is_done(), "nothing of a closed client is left");
                assert!(served.load(Relaxed) + timed_out.load(Relaxed) <= 1, "one end");
                assert_eq!(served.load(Relaxed) + element.load(Relaxed), 1, "no element is lost");
                assert!(!ticket.begin() && !ticket.cancel());
            },
            20_000,
        );
    }

    #[test]
    fn queues_are_first_in_first_out_and_forget_the_done() {
        alone(|| {
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
            waiters.leave(0, b"gone");
            for ticket in &tickets[1..] {
                assert!(!waiters.is_empty() && ticket.cancel());
                waiters.leave(0, b"k");
            }
            assert!(waiters.is_empty());
        });
    }

    #[test]
    fn thousands_come_and_go_without_looking_at_each_other() {
        alone(|| {
            let mut waiters = Waiters::default();
            let tickets: Vec<Parked> = (0..20_000).map(|n| Ticket::new(n) as Parked).collect();
            let began = std::time::Instant::now();
            tickets.iter().for_each(|ticket| waiters.add(0, b"k", ticket.clone()));
            for (gone, ticket) in tickets.iter().enumerate().skip(1) {
                assert!(ticket.cancel());
                waiters.leave(0, b"k");
                let kept = waiters.keys.values().map(|queue| queue.tickets.len()).sum::<usize>();
                assert!(kept <= 2 * (tickets.len() - gone), "{kept} are kept when {gone} have gone");
            }
            let waiting = waiters.waiting(0, b"k");
            assert!(waiting.len() == 1 && Arc::ptr_eq(&waiting[0], &tickets[0]));
            // A search of all for each takes minutes.
            assert!(began.elapsed().as_secs() < 30);
        });
    }
}

//! Work over many shards that is divided into parts, for threads that have time.
//!
//! Who divides it runs parts until none is left, and waits for those that others have begun. Nobody waits for a thread that
//! has not come: what it does not take is done without it.

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// Threads that run parts `P`, each of which ends with an `E`. They work on one piece at a time.
pub struct Crew<P, E> {
    work: Mutex<CrewWork<P, E>>,
    ended: Condvar,
    // a thread has been called and has not come yet
    called: Vec<AtomicBool>,
}

struct CrewWork<P, E> {
    // those that were taken are `None`
    waiting: Vec<Option<P>>,
    waiting_len: usize,
    running: usize,
    ends: Vec<E>,
    is_awaited: bool,
}

impl<P, E> Crew<P, E> {
    /// A crew of up to `threads` threads without work.
    pub fn new(threads: usize) -> Crew<P, E> {
        let work =
            CrewWork { waiting: Vec::new(), waiting_len: 0, running: 0, ends: Vec::new(), is_awaited: false };
        let called = (0..threads).map(|_| AtomicBool::new(false)).collect();
        Crew { work: Mutex::new(work), ended: Condvar::new(), called }
    }

    /// Begins a piece of work. The one before has ended.
    pub fn begin(&self, parts: Vec<P>) {
        let mut work = self.lock();
        assert!(work.waiting_len == 0 && work.running == 0, "one piece at a time");
        work.ends.reserve(parts.len());
        work.waiting_len = parts.len();
        work.waiting = parts.into_iter().map(Some).collect();
    }

    /// Returns true if a thread is to be called for work that has begun. Else it has not come since it was called last, and
    /// will find this work too.
    pub fn should_call(&self, thread: usize) -> bool {
        self.called.get(thread).is_some_and(|called| !called.swap(true, Ordering::SeqCst))
    }

    /// A thread that was called has come. It takes parts from now on.
    pub fn come(&self, thread: usize) {
        if let Some(called) = self.called.get(thread) {
            called.store(false, Ordering::SeqCst);
        }
    }

    /// Takes a part for a thread, which ends with [`Crew::end`]; `None`: all are taken. Each thread begins elsewhere: it finds
    /// in its core's cache what it has left there the last time.
    pub fn take(&self, thread: usize) -> Option<P> {
        let mut work = self.lock();
        if work.waiting_len == 0 {
            return None;
        }
        let first = thread * work.waiting.len() / self.called.len().max(1);
        let (before, behind) = work.waiting.split_at_mut_checked(first)?;
        let part = behind.iter_mut().chain(before).find_map(Option::take)?;
        work.waiting_len -= 1;
        work.running += 1;
        Some(part)
    }

    /// Ends a part that was taken.
    pub fn end(&self, end: E) {
        let mut work = self.lock();
        work.ends.push(end);
        work.running -= 1;
        if work.running == 0 && work.is_awaited {
            work.is_awaited = false;
            drop(work);
            self.ended.notify_one();
        }
    }

    /// Waits for the parts that others have begun; returns all ends, in no order. The caller has found that all are taken.
    pub fn wait(&self) -> Vec<E> {
        let mut work = self.lock();
        while work.running > 0 {
            work.is_awaited = true;
            work = self.ended.wait(work).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        std::mem::take(&mut work.ends)
    }

    fn lock(&self) -> MutexGuard<'_, CrewWork<P, E>> {
        self.work.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::sync::mpsc::{Sender, channel};
    use shuttle::{Config, Runner, thread};

    use super::*;

    const PARTS: usize = 4;

    fn explore(model: impl Fn() + Send + Sync + Clone + 'static) {
        let mut config = Config::new();
        config.silence_warnings = true;
        Runner::new(RandomScheduler::new(4000), config.clone()).run(model.clone());
        for preemptions in 2..=4 {
            Runner::new(PctScheduler::new(preemptions, 2000), config.clone()).run(model.clone());
        }
    }

    fn run_parts(crew: &Crew<(u32, usize), (u32, usize)>, thread: usize) -> usize {
        let mut count = 0;
        while let Some(part) = crew.take(thread) {
            thread::yield_now();
            crew.end(part);
            count += 1;
        }
        count
    }

    /// One piece after the other, with helpers that sleep until they are called, and perhaps come too late.
    #[test]
    fn every_part_is_run_once_and_no_end_is_of_another_piece() {
        explore(|| {
            let crew = Arc::new(Crew::new(3));
            let (mut calls, mut helpers): (Vec<Sender<()>>, Vec<_>) = (Vec::new(), Vec::new());
            for helper in 1..3 {
                let (call, called) = channel();
                let crew = crew.clone();
                calls.push(call);
                helpers.push(thread::spawn(move || {
                    let mut count = 0;
                    while called.recv().is_ok() {
                        crew.come(helper);
                        count += run_parts(&crew, helper);
                    }
                    count
                }));
            }
            let (rounds, mut count) = (3, 0);
            for round in 0..rounds {
                crew.begin((0..PARTS).map(|part| (round, part)).collect());
                for (at, call) in calls.iter().enumerate() {
                    if crew.should_call(1 + at) {
                        call.send(()).expect("it listens");
                    }
                }
                count += run_parts(&crew, 0);
                let mut ends = crew.wait();
                ends.sort_unstable();
                assert_eq!(ends, (0..PARTS).map(|part| (round, part)).collect::<Vec<_>>());
            }
            drop(calls);
            count += helpers.into_iter().map(|helper| helper.join().expect("it ends")).sum::<usize>();
            assert_eq!(count, rounds as usize * PARTS);
        });
    }

    /// A thread with a call that it has not heard is called no second time, and finds what has begun since.
    #[test]
    fn a_call_that_was_not_heard_is_for_later_work_too() {
        explore(|| {
            let crew = Arc::new(Crew::new(1));
            let first = crew.should_call(0);
            let helper = {
                let crew = crew.clone();
                thread::spawn(move || {
                    crew.come(0);
                    run_parts(&crew, 0)
                })
            };
            crew.begin(vec![(0, 0)]);
            let again = crew.should_call(0);
            let done = helper.join().expect("it ends");
            assert!(first && (again || done == 1), "it was not called, and has not come");
            run_parts(&crew, 0);
            assert_eq!(crew.wait(), [(0, 0)]);
        });
    }
}

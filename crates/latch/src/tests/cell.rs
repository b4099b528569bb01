//! One shard: exclusion, no job lost, first come first served.

use std::sync::{Arc, Mutex};

use shuttle::thread;

use super::{explore, quiet, with_cells};
use crate::cell::{Cell, Held, QueuedJob};
use crate::waiter::Waiter;

type JobId = (usize, usize); // thread, sequence

#[derive(Default)]
struct Shard {
    busy: bool,
    ran: Vec<JobId>,
    visits: usize,
}

fn visit(shard: &mut Held<Shard, JobId>, work: impl FnOnce(&mut Shard)) {
    assert!(!shard.busy, "two owners");
    shard.busy = true;
    thread::yield_now();
    work(shard);
    shard.busy = false;
}

/// Order in which jobs got hold of the shard or of a place in its queue. Shuttle changes threads only *before* an
/// atomic operation, so noting it right after the call is part of the same step.
type Arrivals = Arc<Mutex<Vec<JobId>>>;

fn submit(cell: &'static Cell<Shard, JobId>, id: JobId, arrivals: &Arrivals) {
    let outcome = cell.take_or_queue(Waiter::new(id));
    arrivals.lock().unwrap().push(id);
    match outcome {
        Err(QueuedJob) => {}
        Ok((held, job)) => serve(held, job),
    }
}

fn serve(mut held: Held<Shard, JobId>, mut job: Box<Waiter<JobId>>) {
    loop {
        let id = job.into_inner();
        visit(&mut held, |shard| shard.ran.push(id));
        match held.release() {
            None => return,
            Some((next_held, next)) => (held, job) = (next_held, next),
        }
    }
}

fn fifo_model(threads: usize, jobs: usize) {
    let arrivals = Arrivals::default();
    let (_, shards) = with_cells(1, Shard::default, |cells| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let arrivals = arrivals.clone();
                thread::spawn(move || {
                    for sequence in 0..jobs {
                        submit(&cells[0], (thread, sequence), &arrivals);
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
    // Equal lists: none lost, none twice, in the order they came.
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len(), threads * jobs);
    assert_eq!(shards[0].ran, *arrivals);
}

#[test]
fn jobs_run_exactly_once_in_order_of_arrival() {
    explore(8_000, || fifo_model(3, 3));
    explore(2_000, || fifo_model(4, 5));
}

#[test]
fn two_threads_with_two_jobs_exhaustively() {
    let scheduler = shuttle::scheduler::DfsScheduler::new(None, false);
    let schedules = shuttle::Runner::new(scheduler, quiet()).run(|| fifo_model(2, 2));
    assert!(schedules > 1_000, "only {schedules} schedules explored");
}

#[test]
fn visitors_neither_overlap_nor_overtake() {
    explore(8_000, || {
        let arrivals = Arrivals::default();
        let (made, shards) = with_cells(1, Shard::default, |cells| {
            let cell = &cells[0];
            let owners: Vec<_> = (0..2)
                .map(|thread| {
                    let arrivals = arrivals.clone();
                    thread::spawn(move || {
                        for sequence in 0..3 {
                            submit(cell, (thread, sequence), &arrivals);
                        }
                    })
                })
                .collect();
            let keeper = thread::spawn(move || {
                let mut made = 0;
                for spins in 0..4 {
                    let Some(mut held) = cell.take_spinning(spins) else { continue };
                    visit(&mut held, |shard| shard.visits += 1);
                    made += 1;
                    // The visitor is in the way of a job, so it runs it.
                    if let Some((held, job)) = held.release() {
                        serve(held, job);
                    }
                }
                made
            });
            for owner in owners {
                owner.join().unwrap();
            }
            keeper.join().unwrap()
        });
        assert_eq!(shards[0].visits, made);
        assert_eq!(shards[0].ran, *arrivals.lock().unwrap());
    });
}

#[test]
fn an_owner_learns_that_it_is_wanted() {
    explore(1_000, || {
        with_cells(1, Shard::default, |cells| {
            let cell = &cells[0];
            let held = cell.try_take().unwrap();
            assert!(cell.try_take().is_none() && cell.take_spinning(3).is_none());
            assert!(!held.is_wanted());
            let workers: Vec<_> = (0..2)
                .map(|thread| {
                    thread::spawn(move || assert!(cell.take_or_queue(Waiter::new((thread, 0))).is_err()))
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
            assert!(held.is_wanted());
            let (held, _) = held.release().unwrap();
            // The second job is in the owner's queue now, not on the word.
            assert!(held.is_wanted());
            let (held, _) = held.release().unwrap();
            assert!(!held.is_wanted());
            assert!(held.release().is_none());
        });
    });
}

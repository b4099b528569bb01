//! The same promises as the models in `src/tests`, with real threads on the hardware's atomics.
//!
//! The models cannot see a memory ordering that is too weak; the thread sanitizer can, and runs on this file:
//!
//! ```sh
//! RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=/tmp/tsan \
//!     cargo test -Zbuild-std -p darter-latch --test stress --target x86_64-unknown-linux-gnu
//! ```
//!
//! It needs the `rust-src` component: with a standard library that is not instrumented it reports races in `Arc`.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use darter_latch::{
    Cell, Grant, LatchJob, Mailbox, QueuedJob, Runner, Waiter, acquire, drive, drive_one, queue_for,
};

const THREADS: usize = 4;
const JOBS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };

fn leak<T, W>(len: u16, data: impl Fn() -> T) -> &'static [Cell<T, W>] {
    Box::leak((0..len).map(|id| Cell::new(id, data())).collect())
}

/// xorshift64*, one per thread: the schedule is random enough, the picks need not be.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33
    }
}

/// Plain memory, so that the sanitizer sees every access the ownership is to order.
#[derive(Default)]
struct Shard {
    jobs: usize,
    last_of: [usize; THREADS], // the sequence number of the last job of each thread
    list: Vec<usize>,
}

struct Task {
    thread: usize,
    sequence: usize, // from 1
    wanted: Vec<u16>,
    grant: Grant<Shard, Task>,
    done: Arc<AtomicUsize>,
}

impl LatchJob for Task {
    type Shard = Shard;

    fn need(&mut self) -> (&[u16], &mut Grant<Shard, Task>) {
        (&self.wanted, &mut self.grant)
    }
}

struct Worker {
    homes: Arc<Vec<Mailbox<Task>>>,
    handed_over: usize,
}

impl Runner<Task> for Worker {
    fn run(&mut self, mut job: Box<Waiter<Task>>) -> Grant<Shard, Task> {
        execute(&mut job)
    }

    fn hand_over(&mut self, job: Box<Waiter<Task>>) {
        self.handed_over += 1;
        self.homes[job.thread].push_node(job);
    }
}

fn execute(job: &mut Task) -> Grant<Shard, Task> {
    let Task { thread, sequence, wanted, grant, done } = job;
    assert!(grant.covers(wanted));
    for held in grant.iter_mut() {
        held.jobs += 1;
        held.last_of[*thread] = *sequence;
        if held.list.len() == 64 {
            held.list.clear();
        }
        held.list.push(*sequence);
    }
    done.fetch_add(1, Ordering::Relaxed);
    mem::take(grant)
}

impl Worker {
    fn collect(&mut self, cells: &'static [Cell<Shard, Task>], home: usize, budget: u32) {
        let homes = self.homes.clone();
        for mut job in homes[home].drain_nodes() {
            let grant = execute(&mut job);
            drive(cells, grant, self, budget);
        }
    }
}

fn run_mixed(shards: u16, budget: u32, pick: fn(&mut Random, u16) -> Vec<u16>) {
    let cells = leak(shards, Shard::default);
    let homes = Arc::new((0..THREADS).map(|_| Mailbox::new()).collect::<Vec<_>>());
    let done = Arc::new(AtomicUsize::new(0));
    let wanted_total: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (homes, done) = (homes.clone(), done.clone());
                scope.spawn(move || {
                    let mut worker = Worker { homes, handed_over: 0 };
                    let mut random = Random(0x9E37_79B9 * (thread as u64 + 1));
                    let mut wanted_total = 0;
                    for sequence in 1..=JOBS {
                        let wanted = pick(&mut random, shards);
                        wanted_total += wanted.len();
                        let mut grant = Grant::empty();
                        let _ = acquire(cells, &wanted, &mut grant, 20);
                        let task = Task { thread, sequence, wanted, grant, done: done.clone() };
                        if let Some(mut job) = queue_for(cells, Waiter::new(task), 20) {
                            let grant = execute(&mut job);
                            drive(cells, grant, &mut worker, budget);
                        }
                        worker.collect(cells, thread, budget);
                    }
                    // Jobs of this thread may still be handed over to it.
                    while done.load(Ordering::Relaxed) < THREADS * JOBS {
                        worker.collect(cells, thread, budget);
                        thread::yield_now();
                    }
                    wanted_total
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let mut jobs = 0;
    for cell in cells {
        let held = cell.try_take().expect("every shard is free at the end");
        jobs += held.jobs;
        assert!(held.release().is_none());
    }
    assert_eq!(jobs, wanted_total);
}

#[test]
fn a_hot_shard() {
    run_mixed(1, 64, |_, _| vec![0]);
}

#[test]
fn a_hot_shard_handed_over_all_the_time() {
    run_mixed(1, 1, |_, _| vec![0]);
}

#[test]
fn random_sets_of_few_shards() {
    run_mixed(5, 64, some_shards);
}

#[test]
fn random_sets_of_few_shards_on_a_small_budget() {
    run_mixed(5, 1, some_shards);
}

fn some_shards(random: &mut Random, shards: u16) -> Vec<u16> {
    let mask = 1 + random.next() % ((1 << shards) - 1);
    (0..shards).filter(|shard| mask >> shard & 1 == 1).collect()
}

/// One shard, jobs of one thread run in the order in which it queued them.
#[test]
fn the_order_of_each_thread_is_kept() {
    struct Follower;
    impl Runner<Task> for Follower {
        fn run(&mut self, mut job: Box<Waiter<Task>>) -> Grant<Shard, Task> {
            let Task { thread, sequence, grant, .. } = &mut **job;
            let shard = grant.get_mut(0).unwrap();
            assert_eq!(shard.last_of[*thread] + 1, *sequence, "overtaken");
            shard.last_of[*thread] = *sequence;
            mem::take(grant)
        }

        fn hand_over(&mut self, _: Box<Waiter<Task>>) {
            unreachable!("the budget is beyond the number of jobs");
        }
    }
    let cells = leak(1, Shard::default);
    let done = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let done = done.clone();
            scope.spawn(move || {
                for sequence in 1..=JOBS {
                    let task =
                        Task { thread, sequence, wanted: vec![0], grant: Grant::empty(), done: done.clone() };
                    if let Some(job) = queue_for(cells, Waiter::new(task), 0) {
                        let mut grant = Follower.run(job);
                        drive_one(cells, grant.pop().unwrap(), &mut Follower, u32::MAX);
                    }
                }
            });
        }
    });
    assert_eq!(cells[0].try_take().unwrap().last_of, [JOBS; THREADS]);
}

/// Housekeeping visits with `try_take` while jobs come and finish. The owner of a busy shard runs the jobs that wait.
#[test]
fn visitors_and_jobs() {
    let cells = leak::<Vec<u64>, u64>(2, Vec::new);
    let visits: usize = thread::scope(|scope| {
        for thread in 0..2_u64 {
            scope.spawn(move || {
                for sequence in 0..JOBS as u64 {
                    let cell = &cells[(sequence % 2) as usize];
                    match cell.take_or_queue(Waiter::new(thread << 32 | sequence)) {
                        Err(QueuedJob) => {}
                        Ok((held, job)) => serve(held, job),
                    }
                }
            });
        }
        let keepers: Vec<_> = (0..2)
            .map(|home| {
                scope.spawn(move || {
                    let cell: &'static Cell<Vec<u64>, u64> = &cells[home];
                    let mut visits = 0;
                    for _ in 0..JOBS {
                        let Some(mut held) = cell.try_take() else { continue };
                        held.push(u64::MAX);
                        visits += 1;
                        if let Some((held, job)) = held.release() {
                            serve(held, job);
                        }
                    }
                    visits
                })
            })
            .collect();
        keepers.into_iter().map(|keeper| keeper.join().unwrap()).sum()
    });
    let mut jobs: Vec<u64> = Vec::new();
    for cell in cells {
        let held = cell.try_take().unwrap();
        for thread in 0..2 {
            assert!(held.iter().filter(|&&job| job >> 32 == thread).is_sorted(), "out of order");
        }
        jobs.extend(held.iter());
        assert!(held.release().is_none());
    }
    assert_eq!(jobs.len(), visits + 2 * JOBS);
    jobs.sort_unstable();
    jobs.dedup();
    assert_eq!(jobs.len(), 2 * JOBS + usize::from(visits > 0), "a job ran twice");
}

fn serve(mut held: darter_latch::Held<Vec<u64>, u64>, mut job: Box<Waiter<u64>>) {
    loop {
        held.push(job.into_inner());
        match held.release() {
            None => return,
            Some((next_held, next)) => (held, job) = (next_held, next),
        }
    }
}

#[test]
fn mail_from_many() {
    let mailbox = Mailbox::new();
    thread::scope(|scope| {
        for pusher in 0..THREADS {
            let mailbox = &mailbox;
            scope.spawn(move || {
                for sequence in 0..JOBS {
                    mailbox.push(Box::new((pusher, sequence)));
                }
            });
        }
        let mut next_of = [0; THREADS];
        let mut batch = Vec::new();
        while next_of != [JOBS; THREADS] {
            mailbox.drain(&mut batch);
            for message in batch.drain(..) {
                let (pusher, sequence) = *message;
                assert_eq!(next_of[pusher], sequence);
                next_of[pusher] += 1;
            }
            thread::yield_now();
        }
    });
    assert!(mailbox.is_empty());
}

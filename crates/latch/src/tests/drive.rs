//! Many shards: sets taken together, queues, budgets, hand-overs. Everyone finishes, nothing is torn.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::{explore, with_cells};
use crate::cell::Cell;
use crate::drive::{LatchJob, Runner, drive, drive_one, queue_for};
use crate::grant::{Grant, acquire};
use crate::mailbox::Mailbox;
use crate::waiter::Waiter;

type JobId = (usize, usize); // thread, sequence

#[derive(Default)]
struct Shard {
    busy: bool,
    ran: Vec<JobId>,
}

struct Task {
    id: JobId,
    wanted: Vec<u16>,
    grant: Grant<Shard, Task>,
}

impl LatchJob for Task {
    type Shard = Shard;

    fn need(&mut self) -> (&[u16], &mut Grant<Shard, Task>) {
        (&self.wanted, &mut self.grant)
    }
}

type Homes = Arc<Vec<Mailbox<Task>>>;

struct Worker {
    homes: Homes,
    budget: u32,
    run_in_drive: u32,
    handed_over: usize,
}

impl Worker {
    fn new(homes: &Homes, budget: u32) -> Self {
        Self { homes: homes.clone(), budget, run_in_drive: 0, handed_over: 0 }
    }

    fn drive(&mut self, cells: &'static [Cell<Shard, Task>], grant: Grant<Shard, Task>) {
        self.run_in_drive = 0;
        let run = drive(cells, grant, self, self.budget);
        assert_eq!(run, self.run_in_drive);
    }

    /// Runs the jobs handed over to `home`.
    fn collect(&mut self, cells: &'static [Cell<Shard, Task>], home: usize) -> bool {
        let mut any = false;
        let homes = self.homes.clone();
        for mut job in homes[home].drain_nodes() {
            any = true;
            let grant = execute(&mut job);
            self.drive(cells, grant);
        }
        any
    }
}

impl Runner<Task> for Worker {
    fn run(&mut self, mut job: Box<Waiter<Task>>) -> Grant<Shard, Task> {
        self.run_in_drive += 1;
        assert!(self.run_in_drive <= self.budget, "over the budget");
        execute(&mut job)
    }

    fn hand_over(&mut self, job: Box<Waiter<Task>>) {
        assert_eq!(self.run_in_drive, self.budget, "handed over within the budget");
        self.handed_over += 1;
        self.homes[job.id.0].push_node(job);
    }
}

fn execute(job: &mut Task) -> Grant<Shard, Task> {
    let Task { id, wanted, grant } = job;
    assert!(grant.covers(wanted) && grant.len() == wanted.len(), "ran without all its shards");
    for held in grant.iter_mut() {
        assert!(!held.busy, "two owners of shard {}", held.id());
        held.busy = true;
    }
    for shard in wanted {
        thread::yield_now();
        grant.get_mut(*shard).unwrap().ran.push(*id);
    }
    for held in grant.iter_mut() {
        held.busy = false;
    }
    mem::take(grant)
}

/// The result of one model run: jobs handed over, and each shard's history.
fn run_model(
    shards: u16,
    threads: usize,
    jobs: usize,
    budget: u32,
    pick: fn(u16) -> Vec<u16>,
) -> (usize, Vec<Shard>) {
    let homes: Homes = Arc::new((0..threads).map(|_| Mailbox::new()).collect());
    let wanted_of: Arc<Mutex<HashMap<JobId, Vec<u16>>>> = Arc::default();
    let (handed_over, shards) = with_cells(shards, Shard::default, |cells| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let mut worker = Worker::new(&homes, budget);
                let wanted_of = wanted_of.clone();
                thread::spawn(move || {
                    for sequence in 0..jobs {
                        let wanted = pick(shards);
                        wanted_of.lock().unwrap().insert((thread, sequence), wanted.clone());
                        let mut grant = Grant::empty();
                        // As in the server: first without a job, then as a queue entry.
                        let spins = thread_rng().gen_range(0..2);
                        let _ = acquire(cells, &wanted, &mut grant, spins);
                        let task = Waiter::new(Task { id: (thread, sequence), wanted, grant });
                        if let Some(mut job) = queue_for(cells, task, spins) {
                            let grant = execute(&mut job);
                            worker.drive(cells, grant);
                        }
                        worker.collect(cells, thread);
                    }
                    worker.handed_over
                })
            })
            .collect();
        let mut handed_over = 0;
        for worker in workers {
            handed_over += worker.join().unwrap();
        }
        // The jobs handed over to a thread after it last looked.
        let mut last = Worker::new(&homes, budget);
        while (0..threads).filter(|&home| last.collect(cells, home)).count() > 0 {}
        handed_over + last.handed_over
    });
    let wanted_of = wanted_of.lock().unwrap();
    assert_eq!(wanted_of.len(), threads * jobs);
    for (index, shard) in shards.iter().enumerate() {
        let index = u16::try_from(index).unwrap();
        let mut ran = shard.ran.clone();
        let mut expected: Vec<JobId> =
            wanted_of.iter().filter(|(_, wanted)| wanted.contains(&index)).map(|(id, _)| *id).collect();
        ran.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ran, expected, "shard {index} ran other jobs than those that wanted it");
    }
    assert_serializable(&shards);
    (handed_over, shards)
}

/// Jobs that share shards ran in the same order on each of them.
fn assert_serializable(shards: &[Shard]) {
    for (index, one) in shards.iter().enumerate() {
        for other in &shards[index + 1..] {
            let here: Vec<_> = one.ran.iter().filter(|id| other.ran.contains(id)).collect();
            let there: Vec<_> = other.ran.iter().filter(|id| one.ran.contains(id)).collect();
            assert_eq!(here, there, "two shards saw two orders");
        }
    }
}

/// 1 to all of the shards, ascending.
fn some_shards(shards: u16) -> Vec<u16> {
    let mut random = thread_rng();
    loop {
        let picked: Vec<u16> = (0..shards).filter(|_| random.gen_bool(0.5)).collect();
        if !picked.is_empty() {
            return picked;
        }
    }
}

#[test]
fn random_sets_all_finish_and_nothing_is_torn() {
    explore(4_000, || drop(run_model(3, 3, 3, 64, some_shards)));
    explore(1_500, || drop(run_model(4, 4, 3, 64, some_shards)));
}

#[test]
fn a_budget_bounds_what_one_owner_runs() {
    let seen = Arc::new(AtomicUsize::new(0));
    for budget in [0, 1, 2] {
        let before = seen.load(Ordering::Relaxed);
        let seen_in_model = seen.clone();
        explore(1_500, move || {
            let (handed_over, _) = run_model(3, 3, 3, budget, some_shards);
            seen_in_model.fetch_add(handed_over, Ordering::Relaxed);
        });
        assert!(seen.load(Ordering::Relaxed) > before, "no schedule reached the budget of {budget}");
    }
}

#[test]
fn opposite_neighbours_do_not_deadlock() {
    // Three philosophers: 01, 12, 02. Some get one shard and wait for the next in its queue.
    explore(3_000, || {
        let pick = |_| match thread_rng().gen_range(0..3) {
            0 => vec![0, 1],
            1 => vec![1, 2],
            _ => vec![0, 2],
        };
        drop(run_model(3, 3, 2, 64, pick));
    });
}

/// On one shard the order of arrival is the order of execution, also when jobs are handed over with the shard.
#[test]
fn handing_over_keeps_the_order_of_arrival() {
    explore(3_000, || {
        let arrivals: Arc<Mutex<Vec<JobId>>> = Arc::default();
        let homes: Homes = Arc::new((0..3).map(|_| Mailbox::new()).collect());
        let (_, shards) = with_cells(1, Shard::default, |cells| {
            let workers: Vec<_> = (0..3)
                .map(|thread| {
                    let mut worker = Worker::new(&homes, 1);
                    let arrivals = arrivals.clone();
                    thread::spawn(move || {
                        for sequence in 0..3 {
                            let id = (thread, sequence);
                            let task = Waiter::new(Task { id, wanted: vec![0], grant: Grant::empty() });
                            let mine = queue_for(cells, task, 0);
                            arrivals.lock().unwrap().push(id);
                            if let Some(mut job) = mine {
                                let mut grant = execute(&mut job);
                                worker.run_in_drive = 0;
                                drive_one(cells, grant.pop().unwrap(), &mut worker, 1);
                            }
                            worker.collect(cells, thread);
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
            let mut last = Worker::new(&homes, 1);
            while (0..3).filter(|&home| last.collect(cells, home)).count() > 0 {}
        });
        assert_eq!(shards[0].ran, *arrivals.lock().unwrap());
    });
}

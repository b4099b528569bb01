//! Long answers in slices, as in the server. Slices of a read are taken when the shard is free, or by a job in its
//! queue. Writers first preserve for the reader the members they change. Clients disconnect in the middle.
//!
//! Every answer is one state, every job comes back to its client, and no read is left behind.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::{explore, with_cells};
use crate::cell::{Cell, Held};
use crate::drive::{LatchJob, Runner, drive, drive_one, queue_for};
use crate::grant::Grant;
use crate::mailbox::Mailbox;
use crate::waiter::Waiter;

/// Members of the collection: a multiple of a slice's size.
const LEN: usize = 4;
/// Two slices read it.
const SLICE: usize = 2;
/// Jobs of others that a thread runs before it hands them over.
const BUDGET: u32 = 1;

/// One collection and its readers: the position of each, and the members preserved for it.
#[derive(Default)]
struct Shard {
    members: [i64; LEN],
    reads: BTreeMap<usize, (usize, BTreeMap<usize, i64>)>,
}

impl Shard {
    /// Takes from one member and gives to another: all add up to nothing.
    fn transfer(&mut self, from: usize, to: usize, amount: i64) {
        for (at, delta) in [(from, -amount), (to, amount)] {
            for (done, kept) in self.reads.values_mut() {
                if at >= *done {
                    kept.entry(at).or_insert(self.members[at]);
                }
            }
            self.members[at] += delta;
        }
    }

    /// The next members for a reader; whether these were the last.
    fn slice(&mut self, reader: usize, out: &mut Vec<i64>) -> bool {
        let (done, kept) = self.reads.get_mut(&reader).expect("a read that was begun and not ended");
        for at in *done..*done + SLICE {
            out.push(kept.remove(&at).unwrap_or(self.members[at]));
        }
        *done += SLICE;
        let is_done = *done == LEN;
        if is_done {
            self.reads.remove(&reader);
        }
        is_done
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    // The number of the read. Numbers are never reused, so a late end cannot hit another read.
    Slice(usize),
    End(usize),
    Transfer(usize, usize),
}

struct Task {
    work: Work,
    home: usize,
    wanted: [u16; 1],
    grant: Grant<Shard, Task>,
    out: Vec<i64>,
    is_done: bool,
}

impl LatchJob for Task {
    type Shard = Shard;

    fn need(&mut self) -> (&[u16], &mut Grant<Shard, Task>) {
        (&self.wanted, &mut self.grant)
    }
}

impl Task {
    fn new(work: Work, home: usize) -> Box<Waiter<Task>> {
        let (out, grant) = (Vec::new(), Grant::empty());
        Waiter::new(Task { work, home, wanted: [0], grant, out, is_done: false })
    }

    fn execute(&mut self) -> Grant<Shard, Task> {
        let shard = self.grant.get_mut(0).expect("held");
        match self.work {
            Work::Slice(read) => self.is_done = shard.slice(read, &mut self.out),
            Work::End(read) => drop(shard.reads.remove(&read)),
            Work::Transfer(from, to) => shard.transfer(from, to, 1),
        }
        mem::take(&mut self.grant)
    }
}

struct Worker {
    homes: Arc<Vec<Mailbox<Task>>>,
}

impl Runner<Task> for Worker {
    fn run(&mut self, mut job: Box<Waiter<Task>>) -> Grant<Shard, Task> {
        let grant = job.execute();
        if matches!(job.work, Work::Slice(_)) {
            self.homes[job.home].push_node(job);
        }
        grant
    }

    fn hand_over(&mut self, job: Box<Waiter<Task>>) {
        self.common().push_node(job);
    }
}

impl Worker {
    /// The mailbox for jobs handed over with their shard. Any thread may take them, because the threads of the model
    /// end and those of the server do not.
    fn common(&self) -> &Mailbox<Task> {
        self.homes.last().expect("one more than threads")
    }

    /// Does some work now if the shard is free, else leaves it there.
    fn post(&mut self, cells: &'static [Cell<Shard, Task>], work: Work, home: usize) {
        if let Some(job) = queue_for(cells, Task::new(work, home), 0) {
            let grant = self.run(job);
            drive(cells, grant, self, BUDGET);
        }
    }

    /// Runs the jobs handed over with their shards. Returns the slice that came home, if any.
    fn collect(&mut self, cells: &'static [Cell<Shard, Task>], home: usize) -> Option<Task> {
        for job in self.common().drain_nodes() {
            let grant = self.run(job);
            drive(cells, grant, self, BUDGET);
        }
        self.homes[home].drain_nodes().next().map(Waiter::into_inner)
    }

    /// Takes the shard when it comes free.
    fn take(&mut self, cells: &'static [Cell<Shard, Task>], home: usize) -> Held<Shard, Task> {
        loop {
            if let Some(held) = cells[0].try_take() {
                return held;
            }
            self.collect(cells, home);
            thread::yield_now();
        }
    }

    /// Runs one read, or starts one that its client abandons. Returns its answer.
    fn read(&mut self, cells: &'static [Cell<Shard, Task>], home: usize, number: usize) -> Option<Vec<i64>> {
        let mut held = self.take(cells, home);
        held.reads.insert(number, (0, BTreeMap::new()));
        drive_one(cells, held, self, BUDGET);
        let mut answer = Vec::new();
        loop {
            if thread_rng().gen_range(0..8) == 0 {
                self.post(cells, Work::End(number), home);
                return None;
            }
            let is_done = match cells[0].try_take() {
                Some(mut held) => {
                    let is_done = held.slice(number, &mut answer);
                    drive_one(cells, held, self, BUDGET);
                    is_done
                }
                None => {
                    self.post(cells, Work::Slice(number), home);
                    let slice = loop {
                        match self.collect(cells, home) {
                            Some(slice) => break slice,
                            None => thread::yield_now(),
                        }
                    };
                    answer.extend(&slice.out);
                    slice.is_done
                }
            };
            if is_done {
                return Some(answer);
            }
        }
    }
}

fn model() {
    const READERS: usize = 2;
    const WRITERS: usize = 2;
    let homes: Arc<Vec<Mailbox<Task>>> = Arc::new((0..=READERS + WRITERS).map(|_| Mailbox::new()).collect());
    let ((), shards) = with_cells(1, Shard::default, |cells| {
        let threads: Vec<_> = (0..READERS + WRITERS)
            .map(|home| {
                let mut worker = Worker { homes: homes.clone() };
                thread::spawn(move || {
                    for step in 0..2 {
                        if home < READERS {
                            if let Some(answer) = worker.read(cells, home, 2 * home + step) {
                                assert_eq!(answer.len(), LEN);
                                assert_eq!(answer.iter().sum::<i64>(), 0, "two states in {answer:?}");
                            }
                        } else {
                            worker.post(cells, Work::Transfer(step, LEN - 1 - step), home);
                        }
                        worker.collect(cells, home);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // The jobs handed over after the last thread had ended.
        let mut worker = Worker { homes: homes.clone() };
        while !worker.common().is_empty() {
            worker.collect(cells, 0);
        }
    });
    assert!(shards.iter().all(|shard| shard.reads.is_empty()), "a read is left behind");
    assert!(shards.iter().all(|shard| shard.members == [-2, -2, 2, 2]), "a transfer is lost");
}

#[test]
fn an_answer_in_slices_is_one_state_and_leaves_nothing() {
    explore(4000, model);
}

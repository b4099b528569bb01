//! Measures the cost of ownership.
//!
//! `cost time` prints nanoseconds per operation; `cost contended` hammers one shard from all threads. For
//! instructions, divide by 1,000,000 what this prints: `valgrind --tool=callgrind --toggle-collect='cost::measured_*'
//! --callgrind-out-file=/dev/null cost one` (or `ten`, `queue`, `mail`).

use darter_latch::{Cell, Grant, LatchJob, Mailbox, Runner, Waiter, acquire, drive, drive_one, queue_for};
use std::hint::black_box;
use std::mem;
use std::time::Instant;

const OPS: u32 = 1_000_000;
const SHARDS: u16 = 64;
const BUDGET: u32 = 64;

#[derive(Default)]
struct Shard {
    counter: u64,
    work: [u64; 14], // the rest of its two lines
}

impl Shard {
    /// Stands for a small command: some 100 ns.
    fn work(&mut self) {
        self.counter += 1;
        for round in 0..16 {
            self.work.iter_mut().for_each(|word| *word = word.rotate_left(7) ^ round);
        }
    }
}

struct Task {
    wanted: [u16; 1],
    grant: Grant<Shard, Task>,
}

impl LatchJob for Task {
    type Shard = Shard;

    fn need(&mut self) -> (&[u16], &mut Grant<Shard, Task>) {
        (&self.wanted, &mut self.grant)
    }
}

/// Does no work per job for the instruction counts, or that of a command.
struct Worker {
    works: bool,
    handed_over: &'static Mailbox<Task>,
}

impl Runner<Task> for Worker {
    fn run(&mut self, mut job: Box<Waiter<Task>>) -> Grant<Shard, Task> {
        let mut grant = mem::take(&mut job.grant);
        for held in grant.iter_mut() {
            if self.works { held.work() } else { held.counter += 1 }
        }
        grant
    }

    fn hand_over(&mut self, job: Box<Waiter<Task>>) {
        self.handed_over.push_node(job);
    }
}

type Cells = &'static [Cell<Shard, Task>];

fn cells() -> Cells {
    Box::leak((0..SHARDS).map(|id| Cell::new(id, Shard::default())).collect())
}

fn task(id: u16) -> Box<Waiter<Task>> {
    Waiter::new(Task { wanted: [id], grant: Grant::empty() })
}

/// Take a free shard, change it, release it.
#[inline(never)]
fn measured_one(cells: Cells, worker: &mut Worker) {
    for n in 0..OPS {
        if let Some(mut held) = cells[n as usize % cells.len()].take_spinning(100) {
            held.counter += 1;
            drive_one(cells, held, worker, BUDGET);
        }
    }
}

/// The same for ten shards at once.
#[inline(never)]
fn measured_ten(cells: Cells, worker: &mut Worker) {
    let wanted = [1, 7, 13, 19, 25, 31, 37, 43, 49, 55];
    for _ in 0..OPS {
        let mut grant = Grant::empty();
        if acquire(cells, black_box(&wanted), &mut grant, 100).is_ok() {
            grant.iter_mut().for_each(|held| held.counter += 1);
            drive(cells, grant, worker, BUDGET);
        }
    }
}

/// Leave a job in the queue of an owned shard, then run it as the owner. Includes making and freeing the node.
#[inline(never)]
fn measured_queue(cells: Cells, worker: &mut Worker) {
    for _ in 0..OPS {
        let Some(held) = cells[0].try_take() else { return };
        let _ = queue_for(cells, task(0), 0);
        drive_one(cells, held, worker, BUDGET);
    }
}

/// Push and read messages, eight at a time. Includes making and freeing the node.
#[inline(never)]
fn measured_mail(mailbox: &Mailbox<u64>) {
    let mut read = Vec::with_capacity(8);
    for n in 0..OPS {
        mailbox.push(u64::from(n));
        if n % 8 == 7 {
            mailbox.drain(&mut read);
            black_box(&read);
            read.clear();
        }
    }
}

/// One hot shard, no pause between operations: the worst there is.
fn contended(threads: usize, spins: u32) {
    let cells = cells();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(move || {
                let mut worker = Worker { works: true, handed_over: Box::leak(Box::default()) };
                for _ in 0..OPS {
                    match cells[0].take_spinning(spins) {
                        Some(mut held) => {
                            held.work();
                            drive_one(cells, held, &mut worker, BUDGET);
                        }
                        None => {
                            if let Some(mut job) = queue_for(cells, task(0), 0) {
                                let grant = mem::take(&mut job.grant);
                                drive(cells, grant, &mut worker, BUDGET);
                            }
                        }
                    }
                    for mut job in worker.handed_over.drain_nodes() {
                        let grant = mem::take(&mut job.grant);
                        drive(cells, grant, &mut worker, BUDGET);
                    }
                }
            });
        }
    });
    let nanos = begin.elapsed().as_nanos() as f64;
    println!(
        "{threads} threads, {spins:4} spins: {:6.1} ns per command",
        nanos / (threads as f64 * f64::from(OPS))
    );
}

fn timed(name: &str, operation: impl FnOnce()) {
    let begin = Instant::now();
    operation();
    println!("{name:10} {:6.1} ns", begin.elapsed().as_nanos() as f64 / f64::from(OPS));
}

fn main() {
    let cells = cells();
    let mut worker = Worker { works: false, handed_over: Box::leak(Box::default()) };
    let mailbox = Mailbox::new();
    match std::env::args().nth(1).as_deref() {
        Some("one") => measured_one(cells, &mut worker),
        Some("ten") => measured_ten(cells, &mut worker),
        Some("queue") => measured_queue(cells, &mut worker),
        Some("mail") => measured_mail(&mailbox),
        Some("time") => {
            timed("one", || measured_one(cells, &mut worker));
            timed("ten", || measured_ten(cells, &mut worker));
            timed("queue", || measured_queue(cells, &mut worker));
            timed("mail", || measured_mail(&mailbox));
        }
        Some("contended") => {
            for threads in [1, 2, 4] {
                for spins in [0, 50, 500] {
                    contended(threads, spins);
                }
            }
        }
        _ => eprintln!("cost one|ten|queue|mail|time|contended"),
    }
}

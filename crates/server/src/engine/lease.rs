//! Lease: how the shards of a command are taken, and how they are released.
//!
//! Shards are taken in ascending order, all before the first read. A thread looks at a busy shard a bounded number of
//! times; then the caller leaves a job. Releasing a shard runs the jobs that wait for it. Called by every stage that
//! works on data; nothing else calls `latch` to take, queue for or release a shard.

use std::time::Duration;

use darter_latch::{Grant, Held, Runner, Waiter, acquire, drive, drive_one, drive_waiting, queue_for};
use darter_txn::{LockSet, Part};

use crate::core::Core;
use crate::job::{BUDGET, Job, Shards};
use crate::shared::{Mail, ShardCell, Shared};

/// Looks at a busy shard before the command is queued there.
pub const SPINS: u32 = 200;

/// Takes the shards of `wanted`. Errors: one is busy; the shards taken so far wait with the caller's job.
#[inline]
pub fn take(core: &Core, wanted: &LockSet) -> Result<Shards, Shards> {
    take_patiently(core.shared, wanted, SPINS)
}

/// As [`take`], with `spins` looks at a busy shard.
#[inline]
pub fn take_patiently(shared: &'static Shared, wanted: &LockSet, spins: u32) -> Result<Shards, Shards> {
    let mut grant = Grant::empty();
    match acquire(shared.cells, wanted.ids(), &mut grant, spins) {
        Ok(()) => Ok(grant),
        Err(_) => Err(grant),
    }
}

/// Takes the shard of a command about one key; `None` if it is busy.
#[inline(always)]
pub fn take_one(cell: &'static ShardCell) -> Option<Held<Part, Job>> {
    cell.take_spinning(SPINS)
}

/// As [`take_one`], with `spins` looks.
#[inline(always)]
pub fn take_one_patiently(cell: &'static ShardCell, spins: u32) -> Option<Held<Part, Job>> {
    cell.take_spinning(spins)
}

/// Takes a shard if it is free this moment: for work that may as well come later.
#[inline(always)]
pub fn try_one(cell: &'static ShardCell) -> Option<Held<Part, Job>> {
    cell.try_take()
}

/// Releases shards; the jobs that wait for them run now.
#[inline]
pub fn release(core: &mut Core, grant: Shards) {
    drive(core.shared.cells, grant, core, BUDGET);
}

/// Releases shards while the caller holds others: the jobs that wait for them run on their own threads.
pub fn release_among_others(core: &mut Core, grant: Shards) {
    drive(core.shared.cells, grant, core, 0);
}

/// Releases one shard; the jobs that wait for it run now.
#[inline(always)]
pub fn release_one(core: &mut Core, held: Held<Part, Job>) {
    if let Some((held, job)) = held.release() {
        drive_waiting(core.shared.cells, held, job, core, BUDGET);
    }
}

/// Releases several shards, and runs the jobs that wait once all of them are free.
#[inline]
pub fn release_each(core: &mut Core, shards: &mut Vec<Held<Part, Job>>) {
    let mut waiting = Vec::new();
    while let Some(held) = shards.pop() {
        waiting.extend(held.release());
    }
    for (held, job) in waiting {
        drive_waiting(core.shared.cells, held, job, core, BUDGET);
    }
}

/// Leaves a job in the inbox of the first shard it lacks. Returns it if it has all its shards.
pub fn queue(shared: &'static Shared, job: Job) -> Option<Box<Waiter<Job>>> {
    queue_for(shared.cells, Waiter::new(job), 0)
}

/// Takes a shard for a thread that serves nobody, which sleeps while others have it.
pub fn take_asleep(cell: &'static ShardCell) -> Held<Part, Job> {
    let mut nap = Duration::from_micros(20);
    loop {
        if let Some(held) = cell.take_spinning(1000) {
            return held;
        }
        std::thread::sleep(nap);
        // A script may have it for seconds.
        nap = (2 * nap).min(Duration::from_millis(1));
    }
}

/// Releases a shard on behalf of a caller that runs no commands: jobs that wait for it are sent to their threads.
pub fn release_as_stranger(shared: &Shared, held: Held<Part, Job>) {
    struct Postman<'a>(&'a Shared);
    impl Runner<Job> for Postman<'_> {
        fn run(&mut self, job: Box<Waiter<Job>>) -> Shards {
            self.hand_over(job);
            Grant::empty()
        }
        fn hand_over(&mut self, job: Box<Waiter<Job>>) {
            self.0.door(job.origin.home).send(Mail::Run(job));
        }
    }
    drive_one(shared.cells, held, &mut Postman(shared), 0);
}

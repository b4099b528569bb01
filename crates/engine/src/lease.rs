//! Lease: how the shards of a command are taken, and how they are released.
//!
//! Shards are taken in ascending order, all before the first read. A thread looks at a busy shard a bounded number of
//! times; then the caller leaves a job. Releasing a shard runs the jobs that wait for it. Called by every stage that
//! works on data; nothing else calls `latch` to take, queue for or release a shard.

use std::time::Duration;

use darter_latch::{
    Cell, Grant, Held, LatchJob, Runner, Waiter, acquire, drive, drive_one, drive_waiting, queue_for,
};
use darter_txn::{LockSet, ShardPart};

/// A thread that takes shards, and runs the jobs that wait for those it releases.
pub trait Thread: Runner<Self::Job> {
    /// The jobs that wait for a shard.
    type Job: LatchJob<Shard = ShardPart>;

    /// All shards.
    fn cells(&self) -> &'static [Cell<ShardPart, Self::Job>];
}

/// The way to the shards and to threads, for callers that run no jobs themselves.
pub trait Post {
    /// The jobs that wait for a shard.
    type Job: LatchJob<Shard = ShardPart>;

    /// All shards.
    fn cells(&self) -> &'static [Cell<ShardPart, Self::Job>];

    /// Sends a job that has its shards to the thread it belongs to.
    fn send_home(&self, job: Box<Waiter<Self::Job>>);
}

/// Looks at a busy shard before the command is queued there.
pub const SPINS: u32 = 200;

/// Jobs of others that one thread runs before it hands the rest to their homes.
pub const BUDGET: u32 = 64;

/// Takes the shards of `wanted`. Errors: one is busy; the shards taken so far wait with the caller's job.
#[inline]
pub fn take<T: Thread>(
    local: &T,
    wanted: &LockSet,
) -> Result<Grant<ShardPart, T::Job>, Grant<ShardPart, T::Job>> {
    take_all(local.cells(), wanted, SPINS)
}

/// As [`take`], with `spins` looks at a busy shard.
#[inline]
pub fn take_patiently<P: Post>(
    post: &P,
    wanted: &LockSet,
    spins: u32,
) -> Result<Grant<ShardPart, P::Job>, Grant<ShardPart, P::Job>> {
    take_all(post.cells(), wanted, spins)
}

#[inline]
fn take_all<J: LatchJob<Shard = ShardPart>>(
    cells: &'static [Cell<ShardPart, J>],
    wanted: &LockSet,
    spins: u32,
) -> Result<Grant<ShardPart, J>, Grant<ShardPart, J>> {
    let mut grant = Grant::empty();
    match acquire(cells, wanted.ids(), &mut grant, spins) {
        Ok(()) => Ok(grant),
        Err(_) => Err(grant),
    }
}

/// Takes the shard of a command about one key; `None` if it is busy.
#[inline(always)]
pub fn take_one<J>(cell: &'static Cell<ShardPart, J>) -> Option<Held<ShardPart, J>> {
    cell.take_spinning(SPINS)
}

/// As [`take_one`], with `spins` looks.
#[inline(always)]
pub fn take_one_patiently<J>(cell: &'static Cell<ShardPart, J>, spins: u32) -> Option<Held<ShardPart, J>> {
    cell.take_spinning(spins)
}

/// Takes a shard if it is free this moment: for work that may as well come later.
#[inline(always)]
pub fn try_one<J>(cell: &'static Cell<ShardPart, J>) -> Option<Held<ShardPart, J>> {
    cell.try_take()
}

/// Releases shards; the jobs that wait for them run now.
#[inline]
pub fn release<T: Thread>(local: &mut T, grant: Grant<ShardPart, T::Job>) {
    drive(local.cells(), grant, local, BUDGET);
}

/// Releases shards while the caller holds others: the jobs that wait for them run on their own threads.
pub fn release_among_others<T: Thread>(local: &mut T, grant: Grant<ShardPart, T::Job>) {
    drive(local.cells(), grant, local, 0);
}

/// Releases one shard; the jobs that wait for it run now.
#[inline(always)]
pub fn release_one<T: Thread>(local: &mut T, held: Held<ShardPart, T::Job>) {
    if let Some((held, job)) = held.release() {
        drive_waiting(local.cells(), held, job, local, BUDGET);
    }
}

/// Releases several shards, and runs the jobs that wait once all of them are free.
#[inline]
pub fn release_each<T: Thread>(local: &mut T, shards: &mut Vec<Held<ShardPart, T::Job>>) {
    let mut waiting = Vec::new();
    while let Some(held) = shards.pop() {
        waiting.extend(held.release());
    }
    for (held, job) in waiting {
        drive_waiting(local.cells(), held, job, local, BUDGET);
    }
}

/// Leaves a job in the inbox of the first shard it lacks. Returns it if it has all its shards.
pub fn queue<P: Post>(post: &P, job: P::Job) -> Option<Box<Waiter<P::Job>>> {
    queue_for(post.cells(), Waiter::new(job), 0)
}

/// Takes a shard for a thread that serves nobody, which sleeps while others have it.
pub fn take_asleep<J>(cell: &'static Cell<ShardPart, J>) -> Held<ShardPart, J> {
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
pub fn release_as_stranger<P: Post>(post: &P, held: Held<ShardPart, P::Job>) {
    struct Postman<'a, P>(&'a P);
    impl<P: Post> Runner<P::Job> for Postman<'_, P> {
        fn run(&mut self, job: Box<Waiter<P::Job>>) -> Grant<ShardPart, P::Job> {
            self.hand_over(job);
            Grant::empty()
        }
        fn hand_over(&mut self, job: Box<Waiter<P::Job>>) {
            self.0.send_home(job);
        }
    }
    drive_one(post.cells(), held, &mut Postman(post), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Engine, Task, cells};

    #[test]
    fn all_shards_are_taken_in_order_or_a_job_waits_with_those_it_has() {
        let cells = cells(2);
        let mut engine = Engine::new(cells);
        let both = LockSet::all(2);
        let busy = take_one(&cells[1]).expect("it is free");
        let Err(grant) = take(&engine, &both) else { panic!("a shard is held") };
        assert!(grant.covers(&[0]) && !grant.covers(&[1]), "the lower one waits with the job");
        assert!(take_one_patiently(&cells[0], 1).is_none());
        assert!(queue(&engine, Task::new("waits", &both, grant)).is_none(), "it lies in the inbox");
        assert!(engine.log.is_empty());
        release_one(&mut engine, busy);
        assert_eq!(engine.log, ["run waits over 0 1"], "who releases the shard runs it");
        assert!(take(&engine, &both).is_ok_and(|grant| {
            release(&mut engine, grant);
            true
        }));
    }

    #[test]
    fn jobs_run_in_the_order_they_came_and_beyond_the_budget_at_home() {
        let cells = cells(2);
        let mut engine = Engine::new(cells);
        let held = take_one(&cells[0]).expect("it is free");
        for n in 0..BUDGET + 2 {
            let name = Box::leak(n.to_string().into_boxed_str());
            assert!(queue(&engine, Task::new(name, &LockSet::one(0), Grant::empty())).is_none());
        }
        release_one(&mut engine, held);
        let wanted: Vec<String> = (0..BUDGET).map(|n| format!("run {n} over 0")).collect();
        assert_eq!(engine.log[..wanted.len()], wanted);
        assert_eq!(
            engine.log[wanted.len()..],
            [format!("home {BUDGET}")],
            "the next one goes home with the shard"
        );
        engine.go_home();
    }

    #[test]
    fn strangers_and_those_who_hold_other_shards_run_nothing() {
        let cells = cells(2);
        let mut engine = Engine::new(cells);
        let (low, high) = (take_one(&cells[0]).expect("free"), take_one(&cells[1]).expect("free"));
        assert!(queue(&engine, Task::new("low", &LockSet::one(0), Grant::empty())).is_none());
        assert!(queue(&engine, Task::new("high", &LockSet::one(1), Grant::empty())).is_none());
        release_among_others(&mut engine, Grant::from(low));
        release_as_stranger(&engine, high);
        assert_eq!(engine.log, ["home low"]);
        assert_eq!(engine.sent.borrow()[..], ["high"]);
        engine.go_home();
    }

    #[test]
    fn threads_that_contend_lose_no_change() {
        const ROUNDS: usize = 2000;
        let cells = cells(2);
        let work = |one: LockSet| {
            move || {
                let mut engine = Engine::new(cells);
                for _ in 0..ROUNDS {
                    match take(&engine, &one) {
                        Ok(mut grant) => {
                            grant.iter_mut().for_each(|held| held.shard.changes.count(1));
                            release(&mut engine, grant);
                        }
                        Err(grant) => {
                            if let Some(ready) = queue(&engine, Task::new("count", &one, grant)) {
                                let grant = engine.run(ready);
                                release(&mut engine, grant);
                            }
                        }
                    }
                    engine.go_home();
                }
            }
        };
        let threads =
            [LockSet::all(2), LockSet::one(1), LockSet::all(2)].map(|set| std::thread::spawn(work(set)));
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        let counts = cells.iter().map(|cell| take_asleep(cell).shard.changes.total());
        assert_eq!(counts.collect::<Vec<_>>(), [2 * ROUNDS as u64, 3 * ROUNDS as u64]);
    }
}

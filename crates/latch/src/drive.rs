//! The loop that releases shards and runs the jobs that waited for them.
//!
//! Each release yields at most one job, the oldest of the shard. A job that has all its shards is run here. A job
//! that lacks one moves on to the queue of the next shard on its list, which always has a higher id. The loop is
//! iterative and bounded: beyond a budget, jobs are handed over with the shards they own. Per shard, jobs run in
//! order of arrival, because the ownership passes directly from one job to the next. Nothing here waits, so every
//! owner proceeds and every queue moves.

use crate::cell::{Cell, Held, QueuedJob};
use crate::grant::{Grant, acquire};
use crate::waiter::{Chain, Waiter};

/// A piece of work in a shard's queue, with the list of shards it wants and those it has.
pub trait LatchJob: Sized + 'static {
    /// The data of a shard.
    type Shard: 'static;

    /// The shards the job wants (strictly ascending, never changing while it waits) and those it owns, which are
    /// the beginning of that list.
    fn need(&mut self) -> (&[u16], &mut Grant<Self::Shard, Self>);
}

/// Runs jobs that own all the shards they want.
pub trait Runner<W: LatchJob> {
    /// Runs a job and returns the shards that it no longer needs: all of them, unless the job keeps some for later.
    fn run(&mut self, job: Box<Waiter<W>>) -> Grant<W::Shard, W>;

    /// Sends a job, with the shards it owns, to where it will be run; it must not run it here.
    fn hand_over(&mut self, job: Box<Waiter<W>>);
}

/// Releases the shards of `grant` and runs up to `budget` jobs that waited for them or for the shards released by
/// those jobs. Hands over the jobs beyond. Returns the number of jobs run.
pub fn drive<W: LatchJob>(
    cells: &'static [Cell<W::Shard, W>],
    grant: Grant<W::Shard, W>,
    runner: &mut impl Runner<W>,
    budget: u32,
) -> u32 {
    turn(cells, grant, Chain::new(), runner, budget)
}

/// [`drive`] for one shard. Cost: that of [`Held::release`] if no job waits.
#[inline]
pub fn drive_one<W: LatchJob>(
    cells: &'static [Cell<W::Shard, W>],
    held: Held<W::Shard, W>,
    runner: &mut impl Runner<W>,
    budget: u32,
) -> u32 {
    match held.release() {
        None => 0,
        Some((held, job)) => drive_waiting(cells, held, job, runner, budget),
    }
}

/// Gets the shards a job lacks, or leaves it in the queue of the first busy one. Returns the job if it has all.
///
/// Polls each busy shard up to `spins` times. A job left behind may be running elsewhere before this returns.
pub fn queue_for<W: LatchJob>(
    cells: &'static [Cell<W::Shard, W>],
    mut job: Box<Waiter<W>>,
    spins: u32,
) -> Option<Box<Waiter<W>>> {
    loop {
        let (wanted, grant) = job.need();
        let Err(busy) = acquire(cells, wanted, grant, spins) else { return Some(job) };
        // The shard may have come free since. Then the job owns it and continues with the shards above.
        match cells[usize::from(busy)].take_or_queue(job) {
            Err(QueuedJob) => return None,
            Ok((held, back)) => {
                job = back;
                job.need().1.push(held);
            }
        }
    }
}

/// The rest of [`drive_one`], after [`Held::release`] has returned a shard with its next job.
#[cold]
pub fn drive_waiting<W: LatchJob>(
    cells: &'static [Cell<W::Shard, W>],
    held: Held<W::Shard, W>,
    job: Box<Waiter<W>>,
    runner: &mut impl Runner<W>,
    budget: u32,
) -> u32 {
    let mut ready = Chain::new();
    resume(cells, held, job, &mut ready);
    turn(cells, Grant::empty(), ready, runner, budget)
}

fn turn<W: LatchJob>(
    cells: &'static [Cell<W::Shard, W>],
    mut freed: Grant<W::Shard, W>,
    mut ready: Chain<W>,
    runner: &mut impl Runner<W>,
    budget: u32,
) -> u32 {
    let mut jobs_run = 0;
    loop {
        // Release everything first: nobody can use a shard that is kept while a job runs.
        while let Some(held) = freed.pop() {
            if let Some((held, job)) = held.release() {
                resume(cells, held, job, &mut ready);
            }
        }
        let Some(job) = ready.pop_front() else { return jobs_run };
        if jobs_run == budget {
            runner.hand_over(job);
            continue;
        }
        jobs_run += 1;
        freed = runner.run(job);
    }
}

/// Gives `held` to the job that waited for it and continues with the shards that job lacks. Complete jobs are added
/// to `ready`.
fn resume<W: LatchJob>(
    cells: &'static [Cell<W::Shard, W>],
    held: Held<W::Shard, W>,
    mut job: Box<Waiter<W>>,
    ready: &mut Chain<W>,
) {
    job.need().1.push(held);
    // No polling: other jobs may be held up by this thread, and the queue loses nothing.
    if let Some(job) = queue_for(cells, job, 0) {
        ready.push_back(job);
    }
}

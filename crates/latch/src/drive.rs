//! The loop that lets go of shards and runs the jobs that waited for them.
//!
//! Each shard let go yields at most one job, its oldest. A job that now has all it wants is run here; one that lacks
//! more moves on to the queue of the next shard on its list, which is always a higher one. The loop is iterative,
//! and bounded: past a budget of jobs run for others, the rest are handed over with what they own. Per shard, jobs
//! run in the order in which they came, as the ownership goes from the oldest to the next and is never up for grabs
//! while somebody waits. Nothing here waits, so the owner of a shard always gets on, so every queue moves.

use crate::cell::{Cell, Held, Queued};
use crate::grant::{Grant, acquire};
use crate::waiter::{Chain, Waiter};

/// What waits in a shard's queue: a piece of work with the list of shards it wants and those it has.
pub trait Job: Sized + 'static {
    /// The data of a shard.
    type Shard: 'static;

    /// The shards the job wants (strictly ascending, never changing while it waits) and those it owns, which are
    /// the beginning of that list.
    fn need(&mut self) -> (&[u16], &mut Grant<Self::Shard, Self>);
}

/// What a thread does with jobs that own all they want.
pub trait Runner<W: Job> {
    /// Runs a job and returns the shards it is done with: all of them, unless the job keeps some for later.
    fn run(&mut self, job: Box<Waiter<W>>) -> Grant<W::Shard, W>;

    /// Sends a job, with the shards it owns, to where it will be run; it must not run it here.
    fn hand_over(&mut self, job: Box<Waiter<W>>);
}

/// Lets go of the shards of `grant`, runs up to `budget` jobs that waited for them or for the shards those jobs let
/// go, and hands over the jobs beyond. Returns how many were run.
pub fn drive<W: Job>(
    cells: &'static [Cell<W::Shard, W>],
    grant: Grant<W::Shard, W>,
    runner: &mut impl Runner<W>,
    budget: u32,
) -> u32 {
    turn(cells, grant, Chain::new(), runner, budget)
}

/// [`drive`] for one shard. Cost: that of [`Held::release`] when nobody waits.
#[inline]
pub fn drive_one<W: Job>(
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
pub fn queue_for<W: Job>(
    cells: &'static [Cell<W::Shard, W>],
    mut job: Box<Waiter<W>>,
    spins: u32,
) -> Option<Box<Waiter<W>>> {
    loop {
        let (wanted, grant) = job.need();
        let Err(busy) = acquire(cells, wanted, grant, spins) else { return Some(job) };
        // It may have come free since: then it is ours, and the search goes on above it.
        match cells[usize::from(busy)].take_or_queue(job) {
            Err(Queued) => return None,
            Ok((held, back)) => {
                job = back;
                job.need().1.push(held);
            }
        }
    }
}

/// The rest of [`drive_one`], when [`Held::release`] gave a shard back with the job whose turn it is.
#[cold]
pub fn drive_waiting<W: Job>(
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

fn turn<W: Job>(
    cells: &'static [Cell<W::Shard, W>],
    mut freed: Grant<W::Shard, W>,
    mut ready: Chain<W>,
    runner: &mut impl Runner<W>,
    budget: u32,
) -> u32 {
    let mut jobs_run = 0;
    loop {
        // First everything is let go: a shard kept while a job runs would be a shard nobody can use.
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

/// Gives `held` to the job that waited for it, and goes on for what it lacks; jobs that have all go to `ready`.
fn resume<W: Job>(
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

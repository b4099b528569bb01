//! Shard ownership: the present owner, the jobs that wait, and taking several shards together.
//!
//! A [`Cell`] owns one shard's data and the queue of jobs that wait for it. A thread takes the cell ([`Held`]), works
//! on the data as plain `&mut`, and releases it. If jobs wait, the release yields the oldest of them *with* the
//! ownership, so the previous owner runs it. [`acquire`] takes several cells in ascending order into a [`Grant`];
//! [`drive`] is the loop that releases a grant and runs the jobs that waited for it. [`Mailbox`] carries messages
//! between threads. Called by `txn` and `server`.
//!
//! ```
//! use darter_latch::{Cell, Grant, LatchJob, Mailbox, Runner, Waiter, acquire, drive, queue_for};
//!
//! struct Increment { wanted: Vec<u16>, grant: Grant<u64, Increment> }
//! impl LatchJob for Increment {
//!     type Shard = u64;
//!     fn need(&mut self) -> (&[u16], &mut Grant<u64, Increment>) { (&self.wanted, &mut self.grant) }
//! }
//! struct Thread { mailbox: Mailbox<Increment> }
//! impl Runner<Increment> for Thread {
//!     fn run(&mut self, mut job: Box<Waiter<Increment>>) -> Grant<u64, Increment> {
//!         job.grant.iter_mut().for_each(|shard| **shard += 1);
//!         std::mem::take(&mut job.grant) // and the answer goes to the client's thread
//!     }
//!     fn hand_over(&mut self, job: Box<Waiter<Increment>>) {
//!         self.mailbox.push_node(job); // here there is one thread; else that of the job's home
//!     }
//! }
//!
//! let cells: &'static [Cell<u64, Increment>] = Box::leak((0..4).map(|id| Cell::new(id, 0)).collect());
//! let mut thread = Thread { mailbox: Mailbox::new() };
//! let (wanted, mut grant) = (vec![1, 3], Grant::empty());
//! if acquire(cells, &wanted, &mut grant, 50).is_ok() {
//!     grant.iter_mut().for_each(|shard| **shard += 1); // no job was made
//!     drive(cells, grant, &mut thread, 64);
//! } else if let Some(job) = queue_for(cells, Waiter::new(Increment { wanted, grant }), 0) {
//!     let grant = thread.run(job); // it came free meanwhile
//!     drive(cells, grant, &mut thread, 64);
//! } // else the owner of the busy shard runs it
//! ```
//!
//! Nothing here blocks, sleeps, wakes a thread, or spins without a bound: a thread that loses queues a job and
//! continues.

mod cell;
mod drive;
mod grant;
mod mailbox;
mod sync;
#[cfg(test)]
mod tests;
mod waiter;

pub use cell::{Cell, Held, QueuedJob, Turn, prefetch};
pub use drive::{LatchJob, Runner, drive, drive_one, drive_waiting, queue_for};
pub use grant::{Grant, acquire};
pub use mailbox::Mailbox;
pub use waiter::{Chain, Waiter};

//! Shard ownership: who may touch a shard now, who is next, and how a job gets several shards at once.
//!
//! A [`Cell`] owns one shard's data and the queue of jobs that wait for it. A thread takes the cell ([`Held`]),
//! works on the data as plain `&mut`, and lets go; if jobs wait, letting go yields the oldest of them *with* the
//! ownership, so the one who was in the way runs it. [`acquire`] takes several cells in ascending order into a
//! [`Grant`]; [`drive`] is the loop that lets go of a grant and runs what waited for it. [`Mailbox`] carries
//! messages between threads. Called by `txn` and `server`.
//!
//! Nothing here blocks, sleeps, wakes a thread, or spins without a bound: a loser queues a job and goes away.

mod cell;
mod drive;
mod grant;
mod mailbox;
mod sync;
#[cfg(test)]
mod tests;
mod waiter;

pub use cell::{Cell, Held, Queued, Turn};
pub use drive::{Job, Runner, drive, drive_one, queue_for};
pub use grant::{Grant, acquire};
pub use mailbox::Mailbox;
pub use waiter::{Chain, Waiter};

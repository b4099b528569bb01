//! What the stages of `darter_engine` need of this server: shards, jobs, and who hears of changes.
//!
//! Called by those stages alone.

use darter_engine::blocking;
use darter_engine::commit::Sinks;
use darter_engine::lease::{Post, Thread};
use darter_latch::{Held, Waiter};
use darter_store::change::Change;
use darter_txn::{Router, ShardPart, ShardSet};

use super::origin::ChangedBy;
use crate::exec;
use crate::job::{Job, Shards};
use crate::journal::note as journal;
use crate::limit::relief;
use crate::pubsub;
use crate::registry::CommandEntry;
use crate::shared::{ShardCell, Shared, ThreadMessage};
use crate::snapshot;
use crate::thread_state::ThreadState;
use crate::tracking;

impl Thread for ThreadState {
    type Job = Job;

    #[inline(always)]
    fn cells(&self) -> &'static [ShardCell] {
        self.shared.cells
    }
}

impl Post for Shared {
    type Job = Job;

    #[inline]
    fn cells(&self) -> &'static [ShardCell] {
        self.cells
    }

    fn send_home(&self, job: Box<Waiter<Job>>) {
        self.handle(job.origin.home).send(ThreadMessage::Run(job));
    }
}

impl Sinks for ThreadState {
    type Entry = &'static CommandEntry;

    #[inline]
    fn router(&self) -> &'static Router {
        &self.shared.router
    }

    #[inline]
    fn note(&mut self, set: ShardSet<'_>, ran: Option<journal::Ran<'_>>) {
        journal::note(self, set, ran);
    }

    fn note_values<'k>(&mut self, grant: &mut Shards, db: usize, names: impl Iterator<Item = &'k [u8]>) {
        journal::note_values(self, grant, db, names);
    }

    fn make_room(&mut self, held: &mut Held<ShardPart, Job>) {
        let id = held.id();
        relief::settle(self, held, id);
    }

    #[inline]
    fn make_room_in(&mut self, grant: &mut Shards) {
        relief::settle_all(self, grant);
    }

    fn publish(&mut self, changes: &[Change]) {
        pubsub::notify(self, changes);
    }

    fn has_caches(&self) -> bool {
        self.shared.tracking.is_in_use()
    }

    fn invalidate(&mut self, grant: &mut Shards, changes: &[Change], by: ChangedBy) {
        tracking::invalidate(self, grant, changes, by);
    }

    fn sent_before(&mut self) -> &mut u64 {
        &mut self.told_before
    }

    fn serve(&mut self, grant: &mut Shards, db: usize, key: &[u8]) {
        blocking::serve(self, grant, db, key);
    }
}

/// Follows the body of a command that may have changed every key at once. The changes of single keys follow later inside
/// EXEC and scripts.
#[inline]
pub fn commit_body(local: &ThreadState, grant: &mut Shards, entry: &CommandEntry) {
    snapshot::note_run(local.shared, entry);
    if exec::flushes(entry) && local.shared.tracking.is_in_use() {
        tracking::invalidate_all(local, grant);
    }
}

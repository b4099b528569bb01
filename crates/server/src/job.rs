//! A command that could not be run at once: it waits in a shard's inbox with its arguments copied,
//! and whoever lets the shard go runs it.

use std::sync::Arc;

use darter_command::incremental::Incremental;
use darter_latch::{Grant, Runner, Waiter};
use darter_txn::waiters::Parked;
use darter_txn::{LockSet, ShardPart};
use darter_wire::OwnedArgs;

use crate::busy_rejection::BusyClaim;
use crate::engine::lease;
use crate::engine::origin::Origin;
use crate::exec;
use crate::long_reads::{ReadSlice, ReadSource};
use crate::registry::CommandEntry;
use crate::session::QueuedCommand;
use crate::shared::{Shared, ThreadMessage};
use crate::snapshot::SnapshotRun;
use crate::thread_state::ThreadState;
use crate::waiting::BlockedState;

/// Shards held for a job or an inline command.
pub type Shards = Grant<ShardPart, Job>;

/// What a job does.
pub enum JobBody {
    /// One data command; runs on any thread.
    One {
        /// Which.
        entry: &'static CommandEntry,
        /// With which arguments.
        args: OwnedArgs,
    },
    /// The body of an EXEC; runs at home, where the connection is.
    Exec(Vec<QueuedCommand>),
    /// A script, or a change of the libraries of functions; runs at home.
    Script {
        /// By which command.
        entry: &'static CommandEntry,
        /// With which arguments.
        args: OwnedArgs,
    },
    /// WATCH of these keys; runs at home.
    Watch(OwnedArgs),
    /// The end of all watches; runs at home.
    Unwatch,
    /// Another look at a waiting command; runs on any thread and answers nobody itself.
    Serve(Parked),
    /// A command of memcached: its bytes; runs on any thread.
    Memcached(Box<[u8]>),
    /// Starts or stops keeping changes for notifications; runs on any thread and answers nobody.
    Listen,
    /// The cut of a snapshot; runs on any thread and answers nobody.
    Cut(Arc<SnapshotRun>),
    /// What a data command has become that left its answer to slices.
    Left {
        /// Where the rest comes from.
        source: ReadSource,
        /// Which.
        entry: &'static CommandEntry,
        /// With which arguments.
        args: OwnedArgs,
    },
    /// A slice of such an answer, and what came of it once it has run; runs on any thread.
    Read {
        /// Where it comes from.
        source: ReadSource,
        /// What came of it.
        slice: Option<ReadSlice>,
    },
    /// The end of a command whose result was gathered and is to be stored now; runs on any thread.
    Keep {
        /// The result.
        incremental: Box<Incremental>,
        /// Which.
        entry: &'static CommandEntry,
        /// With which arguments.
        args: OwnedArgs,
    },
    /// Something to be done with the shards held, for somebody who waits elsewhere; runs on any thread and answers
    /// nobody.
    Call(Option<Called>),
    /// The end of the read of this number, whose client has gone; runs on any thread and answers nobody.
    EndRead(u32),
    /// The end of the draft of this number, whose client has gone; runs on any thread and answers nobody.
    EndDraft(u32),
}

/// What [`JobBody::Call`] does.
pub type Called = Box<dyn FnOnce(&mut ThreadState, &mut Shards) + Send>;

/// Something to do once its shards are free.
pub struct Job {
    /// Shards it owns so far.
    pub grant: Shards,
    /// Shards it needs, ascending.
    pub wanted: LockSet,
    /// Whose it is; it is answered on that thread.
    pub origin: Origin,
    /// Its number among those of its thread; 0 where no connection waits for it by number.
    pub number: u32,
    /// Taken by the thread that begins the job.
    pub claim: Option<Arc<BusyClaim>>,
    /// What to do.
    pub body: JobBody,
    /// The answer.
    pub reply: Vec<u8>,
    /// Set when the command was parked to wait for its keys.
    pub blocked: Option<BlockedState>,
}

impl Job {
    /// A job that lacks some of the shards in `wanted`.
    pub fn new(origin: Origin, body: JobBody, wanted: LockSet, grant: Shards) -> Job {
        Job { grant, wanted, origin, number: 0, claim: None, body, reply: Vec::new(), blocked: None }
    }

    /// Leaves it in the inbox of the first shard it lacks; it runs as soon as it has all, on a later turn at the
    /// earliest.
    pub fn enqueue(self, local: &ThreadState) {
        if let Some(ready) = lease::queue(local.shared, self) {
            local.shared.handle(local.thread).send(ThreadMessage::Run(ready));
        }
    }

    /// [`Job::enqueue`] for a thread that serves nobody.
    pub fn enqueue_from_outside(self, shared: &'static Shared) {
        let home = self.origin.home;
        if let Some(ready) = lease::queue(shared, self) {
            shared.handle(home).send(ThreadMessage::Run(ready));
        }
    }

    /// Whether only its home thread can run it.
    pub fn is_home_only(&self) -> bool {
        matches!(self.body, JobBody::Exec(_) | JobBody::Script { .. } | JobBody::Watch(_) | JobBody::Unwatch)
    }

    /// Whether no connection waits for it.
    pub fn is_for_nobody(&self) -> bool {
        matches!(
            self.body,
            JobBody::Serve(_)
                | JobBody::Listen
                | JobBody::Cut(_)
                | JobBody::EndRead(_)
                | JobBody::EndDraft(_)
                | JobBody::Call(_)
        )
    }
}

impl darter_latch::LatchJob for Job {
    type Shard = ShardPart;

    fn need(&mut self) -> (&[u16], &mut Grant<ShardPart, Job>) {
        (self.wanted.ids(), &mut self.grant)
    }
}

impl Runner<Job> for ThreadState {
    fn run(&mut self, mut job: Box<Waiter<Job>>) -> Shards {
        if job.is_home_only() {
            self.hand_over(job);
            return Grant::empty();
        }
        let mut grant = std::mem::take(&mut job.grant);
        exec::run_job(self, &mut grant, &mut job);
        if !job.is_for_nobody() {
            let home = job.origin.home;
            self.shared.handle(home).send(ThreadMessage::Done(Box::new(job.into_inner())));
        }
        grant
    }

    fn hand_over(&mut self, job: Box<Waiter<Job>>) {
        self.shared.handle(job.origin.home).send(ThreadMessage::Run(job));
    }
}

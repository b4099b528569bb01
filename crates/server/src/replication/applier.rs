//! Batches on their way from the thread of a link to those that run them: one behind the other, each with its own shards held,
//! so that a reader sees the state between two of them.
//!
//! The thread of the link makes the next ones ready meanwhile. It is woken when there is room for more, not for each.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use darter_latch::Grant;
use darter_txn::LockSet;

use super::apply::{ApplyOutcome, apply};
use super::batch::ApplyBatch;
use super::link::LinkCard;
use super::split;
use crate::clock::unix_ms;
use crate::engine::origin::Origin;
use crate::job::{Job, JobBody, Shards};
use crate::shared::Shared;
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// Batches that are ready and not run.
const AHEAD_MAX: usize = 8;
/// The thread of the link is woken when so many are left.
const AHEAD_LOW: usize = 1;
/// While more is at hand, batches are run from so many on: to wake a thread costs more than to make one ready.
const BEGIN_AT: usize = 2;
/// Time between two looks at what keeps batches from being run.
const LOOK: Duration = Duration::from_millis(5);

/// Why no more batches are run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ApplyEnd {
    /// The link was ended.
    Stopped,
    /// It would end the same way again.
    Failed(String),
}

impl std::fmt::Display for ApplyEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ApplyEnd::Stopped => write!(f, "the link was ended"),
            ApplyEnd::Failed(why) => write!(f, "{why}"),
        }
    }
}

/// Has the batches of one link run.
pub struct Applier {
    shared: &'static Shared,
    info: Arc<LinkCard>,
    queue: Mutex<ReadyBatches>,
    room: Condvar,
}

#[derive(Default)]
struct ReadyBatches {
    waiting: VecDeque<(Arc<ApplyBatch>, LockSet)>,
    // a job is on its way to run the first
    is_running: bool,
    is_waited_for: bool,
    ended: Option<ApplyEnd>,
}

impl Applier {
    /// None yet.
    pub fn new(shared: &'static Shared, info: Arc<LinkCard>) -> Arc<Applier> {
        Arc::new(Applier { shared, info, queue: Mutex::default(), room: Condvar::new() })
    }

    /// Threads that run parts of one batch.
    pub fn threads(&self) -> usize {
        self.shared.handles.len().min(split::THREADS_MAX)
    }

    /// Has a batch run after those before; waits while many wait. The first may not begin before another call.
    ///
    /// Errors: no more are run.
    pub fn submit(self: &Arc<Applier>, mut batch: ApplyBatch) -> Result<(), ApplyEnd> {
        let mut wanted = batch.plan(self.shared, unix_ms());
        if wanted.is_empty() {
            // A job belongs to a shard.
            wanted = LockSet::one(0);
        }
        lock(&self.queue).waiting.push_back((Arc::new(batch), wanted));
        self.wait_until(BEGIN_AT, |queue| queue.waiting.len() < AHEAD_MAX)
    }

    /// Begins with what was submitted.
    ///
    /// Errors: no more are run.
    pub fn begin(self: &Arc<Applier>) -> Result<(), ApplyEnd> {
        self.wait_until(1, |_| true)
    }

    /// Waits until all batches are run.
    ///
    /// Errors: no more are run.
    pub fn settle(self: &Arc<Applier>) -> Result<(), ApplyEnd> {
        self.wait_until(1, |queue| queue.waiting.is_empty() && !queue.is_running)
    }

    /// Returns true if the next batch would be waited for.
    pub fn is_full(&self) -> bool {
        lock(&self.queue).waiting.len() + 1 >= AHEAD_MAX
    }

    /// Waits until another batch may be submitted without waiting.
    ///
    /// Errors: no more are run.
    pub fn make_room(self: &Arc<Applier>) -> Result<(), ApplyEnd> {
        self.wait_until(1, |queue| queue.waiting.len() + 1 < AHEAD_MAX)
    }

    /// Returns true while batches are run, or wait for that.
    pub fn is_busy(&self) -> bool {
        let queue = lock(&self.queue);
        queue.is_running || !queue.waiting.is_empty()
    }

    /// Waits until there is enough; has batches run if at least `least` wait.
    fn wait_until(
        self: &Arc<Applier>,
        least: usize,
        is_enough: impl Fn(&ReadyBatches) -> bool,
    ) -> Result<(), ApplyEnd> {
        loop {
            let mut queue = lock(&self.queue);
            if let Some(end) = &queue.ended {
                return Err(end.clone());
            }
            if !queue.is_running && queue.waiting.len() >= least && !self.is_held_up() {
                queue.is_running = true;
                let wanted =
                    queue.waiting.front().map_or_else(|| LockSet::one(0), |(_, wanted)| wanted.clone());
                drop(queue);
                self.job(wanted).enqueue_from_outside(self.shared);
                continue;
            }
            if is_enough(&queue) {
                return Ok(());
            }
            queue.is_waited_for = true;
            drop(self.room.wait_timeout(queue, LOOK));
        }
    }

    /// DEBUG RELOAD and the like: nobody else reaches a shard meanwhile. An ended link is not held up, or it would not end.
    fn is_held_up(&self) -> bool {
        let is_held = self.shared.snapshots.loading.is_on() || self.shared.replication.is_held();
        is_held && !self.info.is_stopped()
    }

    fn job(self: &Arc<Applier>, wanted: LockSet) -> Job {
        let turn = ApplyTurn { applier: self.clone(), is_over: false };
        let call = move |local: &mut ThreadState, grant: &mut Shards| turn.run(local, grant);
        Job::new(Origin::nobody(0), JobBody::Call(Some(Box::new(call))), wanted, Grant::empty())
    }

    fn tell<'q>(&self, mut queue: MutexGuard<'q, ReadyBatches>) {
        let is_low = queue.waiting.len() <= AHEAD_LOW;
        if queue.is_waited_for && (is_low || queue.ended.is_some() || !queue.is_running) {
            queue.is_waited_for = false;
            drop(queue);
            self.room.notify_all();
        }
    }
}

/// The job that runs the first of the batches.
struct ApplyTurn {
    applier: Arc<Applier>,
    is_over: bool,
}

impl ApplyTurn {
    fn run(mut self, local: &mut ThreadState, grant: &mut Shards) {
        self.is_over = true;
        let applier = self.applier.clone();
        let Some((batch, wanted)) = lock(&applier.queue).waiting.pop_front() else {
            return applier.end_run(local, None);
        };
        let ended = match apply(local, grant, &applier.info, &batch) {
            Ok(ApplyOutcome::Ran) => None,
            Ok(ApplyOutcome::Stopped) => Some(ApplyEnd::Stopped),
            Ok(ApplyOutcome::Later) => {
                let mut queue = lock(&applier.queue);
                queue.waiting.push_front((batch, wanted));
                queue.is_running = false;
                return applier.tell(queue);
            }
            Err(why) => Some(ApplyEnd::Failed(why)),
        };
        applier.end_run(local, ended);
    }
}

impl Applier {
    /// Goes on with the next batch, if there is one.
    fn end_run(self: &Arc<Applier>, local: &ThreadState, ended: Option<ApplyEnd>) {
        let mut queue = lock(&self.queue);
        if ended.is_some() {
            queue.ended = ended;
            queue.waiting.clear();
        }
        let next = queue.waiting.front().map(|(_, wanted)| wanted.clone());
        queue.is_running = next.is_some();
        self.tell(queue);
        if let Some(wanted) = next {
            self.job(wanted).enqueue(local);
        }
    }
}

impl Drop for ApplyTurn {
    /// A job that is dropped before it has run tells of the end of the server.
    fn drop(&mut self) {
        if !self.is_over {
            let mut queue = lock(&self.applier.queue);
            queue.ended = Some(ApplyEnd::Failed("the server ends".to_owned()));
            queue.is_running = false;
            self.applier.tell(queue);
        }
    }
}

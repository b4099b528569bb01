//! Clients that wait for a key or for time: what `engine::blocking` needs of this server, and a connection's side of a wait.
//!
//! Called by the stages run and commit, and by the thread of a connection when its wait ends from outside.

use darter_command::{BlockingWait, Ctx, Fault, Flags, Marks, Spec};
use darter_engine::blocking::{self, Blocking};
use darter_txn::waiters::Parked;
use darter_txn::{LockSet, ShardPart, ShardSet};
use darter_wire::{Args, OwnedArgs, Reply};

use crate::command_log::{large, timing};
use crate::engine::admit;
use crate::engine::cluster::moving;
use crate::engine::lease_timer::LeaseTimer;
use crate::engine::origin::{ChangedBy, Origin};
use crate::exec;
use crate::job::Shards;
use crate::registry::{CommandEntry, RunKind};
use crate::shared::ThreadMessage;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use crate::tracking;

/// A command that waits, as its ticket carries it.
pub type Waiting = blocking::BlockedKeys<Origin, &'static CommandEntry>;

/// A connection's side of its wait.
pub struct BlockedState {
    /// Its place in the queues; none for a wait that is only for time to pass.
    pub ticket: Option<Parked>,
    /// When it ends, Unix ms; `None` is never.
    pub deadline_ms: Option<u64>,
    /// When time alone will have something for it, as it stands in its thread's list of deadlines.
    pub ready_at_ms: Option<u64>,
    /// What it is answered then.
    pub on_timeout: TimeUp,
}

/// The answer to a wait that ends without result.
pub enum TimeUp {
    /// A null array.
    Null,
    /// This reply.
    Reply(Vec<u8>),
}

impl Blocking for ThreadState {
    type Origin = Origin;
    type Effort = LeaseTimer;

    fn spec(entry: &'static CommandEntry) -> &'static Spec {
        &entry.spec
    }

    fn db(origin: Origin) -> usize {
        origin.db
    }

    fn changed_by(origin: Origin) -> ChangedBy {
        origin.changed_by()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    #[inline]
    fn ends(&mut self, ticket: &Parked, waiting: &Waiting) -> bool {
        let is_stale = waiting.origin.acl_version != self.shared.acl.version() || self.shared.cluster.is_on();
        is_stale && refuse(self, ticket, waiting)
    }

    fn try_again<'a>(
        &'a mut self,
        set: ShardSet<'a>,
        waiting: &Waiting,
        only_key: Option<&'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Option<LeaseTimer> {
        let hold = LeaseTimer::begin();
        run(self, set, waiting, only_key, out).then_some(hold)
    }

    fn answer(&mut self, waiting: &Waiting, effort: LeaseTimer, reply: Vec<u8>) {
        let (entry, Origin { home, token, client, .. }) = (waiting.entry, waiting.origin);
        let took = effort.end(self);
        timing::note_job(self, client, entry, waiting.args(), took);
        large::note_reply(self, client, entry, waiting.args(), reply.len());
        self.shared.handle(home).send(ThreadMessage::Served { token, client, reply });
    }

    fn remember(&mut self, grant: &mut Shards, waiting: &Waiting) {
        if let Some(reader) = waiting.origin.tracks {
            tracking::remember(self, grant, reader, waiting.entry, waiting.args());
        }
    }

    fn post(&mut self, origin: Origin, ticket: Parked, wanted: LockSet) {
        exec::post_ticket(self, origin, ticket, wanted);
    }
}

/// Ends the wait with an error if the client's user may not run the command any more, and without a word if the client
/// has been closed.
#[cold]
fn refuse(local: &ThreadState, ticket: &Parked, waiting: &Waiting) -> bool {
    let (entry, Origin { home, token, client, resp3, .. }) = (waiting.entry, waiting.origin);
    if !lock(&local.shared.clients).contains_key(&client) {
        ticket.finish();
        return true;
    }
    let line = admit::after_wait(local, waiting.origin, entry, waiting.args());
    let Some(line) = line.or_else(|| moving::refusal_of_waiting(local, waiting)) else { return false };
    let mut reply = Vec::new();
    Reply::new(&mut reply, resp3).error(&line);
    local.stats().commands[entry.id].rejected.add(1);
    local.stats().commands[entry.id].withdrawn.add(1);
    local.count_error(admit::code_of(&line));
    ticket.finish();
    local.shared.handle(home).send(ThreadMessage::Served { token, client, reply });
    true
}

fn run<'a>(
    local: &'a ThreadState,
    set: ShardSet<'a>,
    waiting: &Waiting,
    only_key: Option<&'a [u8]>,
    out: &mut Vec<u8>,
) -> bool {
    let RunKind::Data(body) = waiting.entry.run else { return false };
    let mut ctx = Ctx::new(set, &local.env, waiting.origin.db, local.live.dbnum as usize, local.now_ms, None);
    ctx.only_key = only_key;
    let mut reply = Reply::new(out, waiting.origin.resp3);
    match body(&mut ctx, waiting.args(), &mut reply) {
        Ok(()) => {
            if let Some(ready_at_ms) = ctx.wait.as_ref().and_then(|wait| wait.ready_at_ms)
                && waiting.be_ready_at(ready_at_ms)
            {
                let Origin { home, token, client, .. } = waiting.origin;
                local.shared.handle(home).send(ThreadMessage::ReadyAt { token, client });
            }
            ctx.wait.is_none()
        }
        // A key that holds another type now is no reason to end the wait.
        Err(Fault::WrongType) => false,
        Err(fault) => {
            exec::refuse(local, waiting.entry, &fault, &mut reply, 0);
            true
        }
    }
}

/// Puts a command into the queues of its keys, whose shards are held.
pub fn park(
    local: &ThreadState,
    grant: &mut Shards,
    origin: Origin,
    entry: &'static CommandEntry,
    args: OwnedArgs,
    wait: BlockingWait,
) -> BlockedState {
    BlockedState {
        ticket: Some(blocking::park(local, grant, origin, entry, args, &wait)),
        deadline_ms: wait.timeout_ms.map(|ms| local.now_ms.saturating_add(ms)),
        ready_at_ms: None,
        on_timeout: TimeUp::Null,
    }
}

/// Number of keys that clients wait for, and of those that XREADGROUP waits for, which a deletion answers too.
pub fn count(part: &ShardPart) -> (usize, usize) {
    let hears_of_end = |waiting: &Waiting| waiting.entry.spec.has(Marks::ENDS_WITH_KEY);
    part.waiters.count(|what| what.downcast_ref::<Waiting>().is_some_and(hears_of_end))
}

/// The command that waits.
pub fn command_of(ticket: &Parked) -> Option<(&'static CommandEntry, Args<'_>)> {
    waiting_of(ticket).map(|waiting| (waiting.entry, waiting.args()))
}

fn waiting_of(ticket: &Parked) -> Option<&Waiting> {
    blocking::waiting_of(ticket)
}

/// Has a command looked at again that time alone has something for now.
pub fn look_again(local: &mut ThreadState, ticket: &Parked) {
    if let Some(waiting) = waiting_of(ticket) {
        waiting.forget_ready_at();
        blocking::look_again_later(local, waiting, ticket);
    }
}

/// Ends the wait of a client that has closed.
pub fn abandon(local: &mut ThreadState, blocked: &BlockedState) {
    if let Some(ticket) = &blocked.ticket {
        ticket.abandon();
        blocking::leave_queues(local, ticket);
    }
}

impl BlockedState {
    /// Ends the wait from the connection's side; false when somebody is serving it this moment or has.
    pub fn cancel(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.cancel())
    }

    /// Returns true while a thread tries to serve it.
    pub fn is_tried(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| !ticket.is_done())
    }

    /// When time alone will have something for it, Unix ms.
    pub fn ready_at_ms(&self) -> Option<u64> {
        self.ticket.as_ref().and_then(waiting_of)?.ready_at_ms()
    }

    /// Whether a command waits that changes data, or for replicas.
    pub fn would_write(&self) -> bool {
        let Some(ticket) = &self.ticket else { return false };
        waiting_of(ticket).is_none_or(|waiting| waiting.entry.spec.flags.any(Flags::WRITE))
    }

    /// The command that waits, if it waits for keys.
    pub fn entry_id(&self) -> Option<usize> {
        self.ticket.as_ref().and_then(waiting_of).map(|waiting| waiting.entry.id)
    }

    /// A wait for nothing but time, which then answers `reply`.
    pub fn until(deadline_ms: Option<u64>, reply: Vec<u8>) -> BlockedState {
        BlockedState { ticket: None, deadline_ms, ready_at_ms: None, on_timeout: TimeUp::Reply(reply) }
    }

    /// Writes what the client is told when the time is up.
    pub fn write_timeout(&self, out: &mut Vec<u8>, resp3: bool) {
        match &self.on_timeout {
            TimeUp::Null => Reply::new(out, resp3).null_array(),
            TimeUp::Reply(reply) => out.extend_from_slice(reply),
        }
    }
}

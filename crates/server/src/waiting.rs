//! Clients that wait for a key: blocked them, serving them when a key is ready, ending their wait.
//!
//! A command that wants to wait stands, as a ticket, in the queue of each of its keys. Whoever changes
//! one of these keys looks at the command again before it lets the shard go.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use darter_command::{Ctx, Fault, Flags, Marks, Wait};
use darter_store::change::Listeners;
use darter_txn::waiters::{Missed, Parked, Ticket};
use darter_txn::{Part, ShardSet};
use darter_wire::{Args, OwnedArgs, Reply};

use crate::command_log::{large, timing};
use crate::engine::lease_timer::LeaseTimer;
use crate::engine::origin::Origin;
use crate::engine::{admit, commit, lease, plan};
use crate::exec;
use crate::job::Shards;
use crate::journal::note as journal;
use crate::registry::{Entry, Run};
use crate::shared::ThreadMessage;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use crate::tracking;

/// A command that waits, as its ticket carries it.
pub struct Waiting {
    origin: Origin,
    entry: &'static Entry,
    args: OwnedArgs,
    keys: Vec<usize>,
    dest: usize,
    // When time alone will have something for it, Unix ms; `NEVER` if nothing is known of that.
    ready_at_ms: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Waiting {
    /// Notes that time alone will have something for it, and tells its thread.
    fn be_ready_at(&self, local: &ThreadState, ready_at_ms: u64) {
        let Origin { home, token, client, .. } = self.origin;
        if self.ready_at_ms.fetch_min(ready_at_ms, AcqRel) > ready_at_ms {
            local.shared.handle(home).send(ThreadMessage::ReadyAt { token, client });
        }
    }

    /// Whether it is answered when its key goes: a group goes with it.
    fn hears_of_end(&self) -> bool {
        self.entry.spec.has(Marks::ENDS_WITH_KEY)
    }

    /// The keys it waits for.
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        let args = self.args.args();
        self.keys.iter().map(move |&at| args.at(at))
    }
}

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

/// Puts a command into the queues of its keys, whose shards are held.
pub fn park(
    local: &ThreadState,
    grant: &mut Shards,
    origin: Origin,
    entry: &'static Entry,
    args: OwnedArgs,
    wait: Wait,
) -> BlockedState {
    let mut keys = Vec::new();
    entry.spec.each_key(args.args(), &mut |at| {
        if wait.dest == 0 || at != wait.dest {
            keys.push(at);
        }
    });
    let ready_at_ms = AtomicU64::new(wait.ready_at_ms.unwrap_or(NEVER));
    let ticket: Parked = Ticket::new(Waiting { origin, entry, args, keys, dest: wait.dest, ready_at_ms });
    let router = &local.shared.router;
    for name in waiting_of(&ticket).into_iter().flat_map(Waiting::names) {
        if let Some(part) = grant.get_mut(router.shard_of(router.key(name).hash)) {
            part.waiters.add(origin.db, name, ticket.clone());
            part.shard.changes.listen(Listeners::WAITERS, true);
        }
    }
    BlockedState {
        ticket: Some(ticket),
        deadline_ms: wait.timeout_ms.map(|ms| local.now_ms.saturating_add(ms)),
        ready_at_ms: None,
        on_timeout: TimeUp::Null,
    }
}

/// Serves whoever waits for the key `name`, in the order they came, as far as it has something for them.
pub fn serve(local: &mut ThreadState, grant: &mut Shards, db: usize, name: &[u8]) {
    let router = &local.shared.router;
    let key = router.key(name);
    let id = router.shard_of(key.hash);
    let Some(part) = grant.get_mut(id) else { return };
    let tickets = part.waiters.waiting(db, name);
    let is_there = |local: &ThreadState, grant: &Shards| {
        grant.get(id).is_some_and(|part| part.shard.peek(db, key, local.now_ms).is_some())
    };
    // Thousands may wait for what the first of them takes: they are not looked at one by one then.
    let mut has_some = !tickets.is_empty() && is_there(local, grant);
    for ticket in tickets {
        let Some(waiting) = waiting_of(&ticket) else { continue };
        if !(has_some || waiting.hears_of_end()) || !ticket.begin() {
            continue;
        }
        match attempt(local, grant, &ticket, waiting, Some(name)) {
            Attempt::Served => {}
            Attempt::Nothing => {
                if ticket.give_back() == Missed::Something {
                    look_again_later(local, waiting, &ticket);
                }
            }
            Attempt::Busy => {
                ticket.give_back();
                look_again_later(local, waiting, &ticket);
            }
        }
        has_some = is_there(local, grant);
    }
}

/// Looks at a whole waiting command again, with the shards of all its keys held.
pub fn serve_ticket(local: &mut ThreadState, grant: &mut Shards, ticket: &Parked) {
    let Some(waiting) = waiting_of(ticket) else { return };
    if !ticket.begin() {
        return;
    }
    match attempt(local, grant, ticket, waiting, None) {
        Attempt::Served => {}
        Attempt::Nothing | Attempt::Busy => {
            ticket.give_back();
        }
    }
}

/// Number of keys that clients wait for, and of those that XREADGROUP waits for, which a deletion answers too.
pub fn count(part: &Part) -> (usize, usize) {
    part.waiters.count(|what| what.downcast_ref::<Waiting>().is_some_and(Waiting::hears_of_end))
}

/// The command that waits.
pub fn command_of(ticket: &Parked) -> Option<(&'static Entry, Args<'_>)> {
    waiting_of(ticket).map(|waiting| (waiting.entry, waiting.args.args()))
}

fn waiting_of(ticket: &Parked) -> Option<&Waiting> {
    ticket.what.downcast_ref::<Waiting>()
}

enum Attempt {
    Served,
    Nothing,
    /// The destination's shard is owned by somebody else right now.
    Busy,
}

/// Runs a waiting command's body once more, over the held shards and its destination's, and answers it.
fn attempt(
    local: &mut ThreadState,
    grant: &mut Shards,
    ticket: &Parked,
    waiting: &Waiting,
    only_key: Option<&[u8]>,
) -> Attempt {
    let shared = local.shared;
    let args = waiting.args.args();
    let is_stale = waiting.origin.acl_version != shared.acl.version() || shared.cluster.is_on();
    if is_stale && refuse(local, ticket, waiting, args) {
        return Attempt::Served;
    }
    if waiting.dest != 0 {
        let id = shared.router.shard_of(shared.router.key(args.at(waiting.dest)).hash);
        if grant.get(id).is_none() {
            // It stays held with the others: what happens in all of them is told in the order it happened.
            match lease::try_one(&shared.cells[usize::from(id)]) {
                Some(held) => grant.insert(held),
                None => return Attempt::Busy,
            }
        }
    }
    let mut reply = Vec::new();
    let hold = LeaseTimer::begin();
    let set = plan::set_of(&shared.router, grant);
    if !run(local, set, waiting, args, only_key, &mut reply) {
        return Attempt::Nothing;
    }
    let (entry, Origin { home, token, client, db, .. }) = (waiting.entry, waiting.origin);
    let set = plan::set_of(&shared.router, grant);
    let ran = journal::Ran { entry, args, db, served: Some(only_key), reply: &reply };
    journal::note(local, set, Some(ran));
    timing::note_job(local, client, entry, args, hold.end(local));
    large::note_reply(local, client, entry, args, reply.len());
    // Before the changes are passed on, so that the client hears of its own ones after its reply.
    ticket.finish();
    shared.handle(home).send(ThreadMessage::Served { token, client, reply });
    if let Some(reader) = waiting.origin.tracks {
        tracking::remember(local, grant, reader, entry, args);
    }
    // They are the served client's changes, whoever made its key ready.
    commit::caches(local, grant, waiting.origin.changed_by());
    Attempt::Served
}

/// Ends the wait with an error if the client's user may not run the command any more, and without a word if the client
/// has been closed.
#[cold]
fn refuse(local: &ThreadState, ticket: &Parked, waiting: &Waiting, args: Args<'_>) -> bool {
    let (entry, Origin { home, token, client, db, resp3, .. }) = (waiting.entry, waiting.origin);
    if !lock(&local.shared.clients).contains_key(&client) {
        ticket.finish();
        return true;
    }
    let Some(line) = admit::after_wait(local, client, entry, args, db) else { return false };
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
    args: Args<'_>,
    only_key: Option<&'a [u8]>,
    out: &mut Vec<u8>,
) -> bool {
    let Run::Data(body) = waiting.entry.run else { return false };
    let mut ctx = Ctx::new(set, &local.env, waiting.origin.db, local.live.dbnum as usize, local.now_ms, None);
    ctx.only_key = only_key;
    let mut reply = Reply::new(out, waiting.origin.resp3);
    match body(&mut ctx, args, &mut reply) {
        Ok(()) => {
            if let Some(ready_at_ms) = ctx.wait.as_ref().and_then(|wait| wait.ready_at_ms) {
                waiting.be_ready_at(local, ready_at_ms);
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

/// Sends the whole command through the shards' inboxes, to be looked at with all its keys held.
fn look_again_later(local: &mut ThreadState, waiting: &Waiting, ticket: &Parked) {
    let router = &local.shared.router;
    let wanted = plan::lock_set(&waiting.entry.spec, waiting.args.args(), router);
    exec::post_ticket(local, waiting.origin, ticket.clone(), wanted);
}

/// The same for one that time alone has something for now.
pub fn look_again(local: &mut ThreadState, ticket: &Parked) {
    if let Some(waiting) = waiting_of(ticket) {
        waiting.ready_at_ms.store(NEVER, Release);
        look_again_later(local, waiting, ticket);
    }
}

/// Takes a ticket that is done out of the queues it still stands in, where the shard is free; elsewhere
/// whoever meets it drops it.
pub fn leave_queues(local: &mut ThreadState, ticket: &Parked) {
    let Some(waiting) = waiting_of(ticket) else { return };
    let shared = local.shared;
    for name in waiting.names() {
        let id = shared.router.shard_of(shared.router.key(name).hash);
        if let Some(mut held) = lease::take_one_patiently(&shared.cells[usize::from(id)], LEAVE_SPINS) {
            held.waiters.leave(waiting.origin.db, name);
            let is_waited = !held.waiters.is_empty();
            held.shard.changes.listen(Listeners::WAITERS, is_waited);
            lease::release_one(local, held);
        }
    }
}

/// Ends the wait of a client that has closed.
pub fn abandon(local: &mut ThreadState, blocked: &BlockedState) {
    if let Some(ticket) = &blocked.ticket {
        ticket.abandon();
        leave_queues(local, ticket);
    }
}

const LEAVE_SPINS: u32 = 500;

impl BlockedState {
    /// Ends the wait from the connection's side; false when somebody is serving it this moment or has.
    pub fn cancel(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.cancel())
    }

    /// Whether somebody tries to serve it this moment.
    pub fn is_tried(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| !ticket.is_done())
    }

    /// When time alone will have something for it, Unix ms.
    pub fn ready_at_ms(&self) -> Option<u64> {
        let ready_at_ms = self.ticket.as_ref().and_then(waiting_of)?.ready_at_ms.load(Acquire);
        (ready_at_ms != NEVER).then_some(ready_at_ms)
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

const _: () = {
    const fn is_send_sync<T: Send + Sync>() {}
    is_send_sync::<Arc<Ticket<Waiting>>>();
};

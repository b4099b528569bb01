//! Clients that wait for a key: parking them, serving them when a key is ready, ending their wait.
//!
//! A command that wants to wait stands, as a ticket, in the queue of each of its keys. Whoever changes
//! one of these keys looks at the command again before it lets the shard go.

use std::sync::Arc;
use std::time::Instant;

use darter_command::{Ctx, Fault, Wait};
use darter_latch::drive_one;
use darter_reactor::Token;
use darter_store::change::Listeners;
use darter_txn::waiters::{Missed, Parked, Ticket};
use darter_txn::{Part, Reader, ShardSet};
use darter_wire::{Args, OwnedArgs, Reply};

use crate::acl::guard;
use crate::core::Core;
use crate::exec;
use crate::job::{BUDGET, Shards};
use crate::journal::note as journal;
use crate::large;
use crate::registry::{Entry, Run};
use crate::shared::Mail;

/// A command that waits, as its ticket carries it.
pub struct Waiting {
    home: u16,
    token: Token,
    client: u64,
    entry: &'static Entry,
    args: OwnedArgs,
    keys: Vec<usize>,
    dest: usize,
    db: usize,
    resp3: bool,
    acl_version: u64,
}

impl Waiting {
    /// The keys it waits for.
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        let args = self.args.args();
        self.keys.iter().map(move |&at| args.at(at))
    }
}

/// A connection's side of its wait.
pub struct Parking {
    /// Its place in the queues; none for a wait that is only for time to pass.
    pub ticket: Option<Parked>,
    /// When it ends, Unix ms; `None` is never.
    pub deadline_ms: Option<u64>,
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

/// Whose command wants to wait.
#[derive(Clone, Copy)]
pub struct Whose {
    /// Thread of the connection.
    pub home: u16,
    /// The connection there.
    pub token: Token,
    /// The client's id.
    pub client: u64,
    /// Selected database.
    pub db: usize,
    /// Whether to answer in RESP3.
    pub resp3: bool,
    /// Whether the keys are remembered for the client's cache.
    pub tracks: Option<Reader>,
    /// Whether its reads do not count as uses.
    pub no_touch: bool,
    /// The version of the users that it was let through by.
    pub acl_version: u64,
    /// Whether a long answer may be left to slices.
    pub may_slice: bool,
}

/// Puts a command into the queues of its keys, whose shards are held.
pub fn park(
    core: &Core,
    grant: &mut Shards,
    whose: Whose,
    entry: &'static Entry,
    args: OwnedArgs,
    wait: Wait,
) -> Parking {
    let mut keys = Vec::new();
    entry.spec.each_key(args.args(), &mut |at| {
        if wait.dest == 0 || at != wait.dest {
            keys.push(at);
        }
    });
    let ticket: Parked = Ticket::new(Waiting {
        home: whose.home,
        token: whose.token,
        client: whose.client,
        entry,
        args,
        keys,
        dest: wait.dest,
        db: whose.db,
        resp3: whose.resp3,
        acl_version: whose.acl_version,
    });
    let router = &core.shared.router;
    for name in waiting_of(&ticket).into_iter().flat_map(Waiting::names) {
        if let Some(part) = grant.get_mut(router.shard_of(router.key(name).hash)) {
            part.waiters.add(whose.db, name, ticket.clone());
            part.shard.changes.listen(Listeners::WAITERS, true);
        }
    }
    Parking {
        ticket: Some(ticket),
        deadline_ms: wait.timeout_ms.map(|ms| core.now_ms.saturating_add(ms)),
        on_timeout: TimeUp::Null,
    }
}

/// Serves whoever waits for `key`, in the order they came, as far as the key has something for them.
pub fn serve(core: &mut Core, grant: &mut Shards, db: usize, key: &[u8]) {
    let router = &core.shared.router;
    let id = router.shard_of(router.key(key).hash);
    let Some(part) = grant.get_mut(id) else { return };
    for ticket in part.waiters.waiting(db, key) {
        let Some(waiting) = waiting_of(&ticket) else { continue };
        if !ticket.begin() {
            continue;
        }
        match attempt(core, grant, &ticket, waiting, Some(key)) {
            Attempt::Served => {}
            Attempt::Nothing => {
                if ticket.give_back() == Missed::Something {
                    look_again_later(core, waiting, &ticket);
                }
            }
            Attempt::Busy => {
                ticket.give_back();
                look_again_later(core, waiting, &ticket);
            }
        }
    }
}

/// Looks at a whole waiting command again, with the shards of all its keys held.
pub fn serve_ticket(core: &mut Core, grant: &mut Shards, ticket: &Parked) {
    let Some(waiting) = waiting_of(ticket) else { return };
    if !ticket.begin() {
        return;
    }
    match attempt(core, grant, ticket, waiting, None) {
        Attempt::Served => {}
        Attempt::Nothing | Attempt::Busy => {
            ticket.give_back();
        }
    }
}

/// Number of keys that clients wait for, and of those that XREADGROUP waits for, which a deletion answers too.
pub fn count(part: &Part) -> (usize, usize) {
    part.waiters.count(|what| {
        what.downcast_ref::<Waiting>().is_some_and(|waiting| waiting.entry.spec.name == "xreadgroup")
    })
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
    core: &mut Core,
    grant: &mut Shards,
    ticket: &Parked,
    waiting: &Waiting,
    only_key: Option<&[u8]>,
) -> Attempt {
    let shared = core.shared;
    let args = waiting.args.args();
    if waiting.acl_version != shared.acl.version() && refuse(core, ticket, waiting, args) {
        return Attempt::Served;
    }
    if waiting.dest != 0 {
        let id = shared.router.shard_of(shared.router.key(args.at(waiting.dest)).hash);
        if grant.get(id).is_none() {
            // It stays held with the others: what happens in all of them is told in the order it happened.
            match shared.cells[usize::from(id)].try_take() {
                Some(held) => grant.insert(held),
                None => return Attempt::Busy,
            }
        }
    }
    let mut reply = Vec::new();
    let began = Instant::now();
    let set = exec::set_of(&shared.router, grant);
    if !run(core, set, waiting, args, only_key, &mut reply) {
        return Attempt::Nothing;
    }
    let (entry, db) = (waiting.entry, waiting.db);
    let set = exec::set_of(&shared.router, grant);
    let ran = journal::Ran { entry, args, db, served: Some(only_key), reply: &reply };
    journal::note(core, set, Some(ran));
    crate::timing::note_job(core, waiting.client, entry, args, began.elapsed());
    large::note_reply(core, waiting.client, entry, args, reply.len());
    // Before the changes are passed on, so that the client hears of its own ones after its reply.
    ticket.finish();
    let (token, client) = (waiting.token, waiting.client);
    shared.door(waiting.home).send(Mail::Served { token, client, reply });
    Attempt::Served
}

/// Ends the wait with an error if the client's user may not run the command any more.
#[cold]
fn refuse(core: &Core, ticket: &Parked, waiting: &Waiting, args: Args<'_>) -> bool {
    let (entry, client, token) = (waiting.entry, waiting.client, waiting.token);
    let Err(line) = guard::check_after_wait(core, client, entry, args, waiting.db) else { return false };
    let mut reply = Vec::new();
    Reply::new(&mut reply, waiting.resp3).error(&line);
    core.stats().commands[entry.id].rejected.add(1);
    core.stats().commands[entry.id].withdrawn.add(1);
    core.count_error("NOPERM");
    ticket.finish();
    core.shared.door(waiting.home).send(Mail::Served { token, client, reply });
    true
}

fn run<'a>(
    core: &'a Core,
    set: ShardSet<'a>,
    waiting: &Waiting,
    args: Args<'_>,
    only_key: Option<&'a [u8]>,
    out: &mut Vec<u8>,
) -> bool {
    let Run::Data(body) = waiting.entry.run else { return false };
    let mut ctx = Ctx::new(set, &core.env, waiting.db, core.live.dbnum as usize, core.now_ms, None);
    ctx.only_key = only_key;
    let mut reply = Reply::new(out, waiting.resp3);
    match body(&mut ctx, args, &mut reply) {
        Ok(()) => ctx.wait.is_none(),
        // A key that holds another type now is no reason to end the wait.
        Err(Fault::WrongType) => false,
        Err(fault) => {
            exec::refuse(core, waiting.entry, &fault, &mut reply, 0);
            true
        }
    }
}

/// Sends the whole command through the shards' inboxes, to be looked at with all its keys held.
fn look_again_later(core: &mut Core, waiting: &Waiting, ticket: &Parked) {
    let router = &core.shared.router;
    let wanted = exec::lock_set(&waiting.entry.spec, waiting.args.args(), router);
    let whose = Whose {
        home: waiting.home,
        token: waiting.token,
        client: waiting.client,
        db: waiting.db,
        resp3: waiting.resp3,
        tracks: None,
        no_touch: false,
        acl_version: waiting.acl_version,
        may_slice: false,
    };
    exec::post_ticket(core, whose, ticket.clone(), wanted);
}

/// Takes a ticket that is done out of the queues it still stands in, where the shard is free; elsewhere
/// whoever meets it drops it.
pub fn leave_queues(core: &mut Core, ticket: &Parked) {
    let Some(waiting) = waiting_of(ticket) else { return };
    let shared = core.shared;
    for name in waiting.names() {
        let id = shared.router.shard_of(shared.router.key(name).hash);
        if let Some(mut held) = shared.cells[usize::from(id)].take_spinning(LEAVE_SPINS) {
            held.waiters.remove(waiting.db, name, ticket);
            let is_waited = !held.waiters.is_empty();
            held.shard.changes.listen(Listeners::WAITERS, is_waited);
            drive_one(shared.cells, held, core, BUDGET);
        }
    }
}

const LEAVE_SPINS: u32 = 500;

impl Parking {
    /// Ends the wait from the connection's side; false when somebody is serving it this moment or has.
    pub fn cancel(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.cancel())
    }

    /// The command that waits, if it waits for keys.
    pub fn entry_id(&self) -> Option<usize> {
        self.ticket.as_ref().and_then(waiting_of).map(|waiting| waiting.entry.id)
    }

    /// A wait for nothing but time, which then answers `reply`.
    pub fn until(deadline_ms: Option<u64>, reply: Vec<u8>) -> Parking {
        Parking { ticket: None, deadline_ms, on_timeout: TimeUp::Reply(reply) }
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

//! Blocking: commands that wait for a key stand as tickets in the queues of their keys, and are served when a key is ready.
//!
//! Called by the stage run, which parks a command, and by commit, for each change while the shards are held. A served client
//! is a run of its own with its own origin. Timeouts, UNBLOCK and disconnects end a wait from outside (`txn::waiters`).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use darter_command::{BlockingWait, Marks, Spec};
use darter_latch::Grant;
use darter_store::change::Listeners;
use darter_txn::waiters::{Missed, Parked, Ticket};
use darter_txn::{LockSet, ShardPart, ShardSet};
use darter_wire::{Args, OwnedArgs};

use crate::commit::{self, ChangedBy, RanCommand, Sinks};
use crate::lease;
use crate::plan::{lock_set, set_of};

/// A command that waits, as its ticket carries it: `O` is its origin, `E` its row.
pub struct BlockedKeys<O, E> {
    /// The client that asked, and where.
    pub origin: O,
    /// Which command.
    pub entry: E,
    args: OwnedArgs,
    // indexes of the keys it waits for
    keys: Vec<usize>,
    // index of one more key, which it writes; 0 is none
    dest: usize,
    // When time alone will have something for it, Unix ms; `NEVER` if nothing is known of that.
    ready_at_ms: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl<O, E> BlockedKeys<O, E> {
    /// The position of its destination among its arguments; 0: it has none.
    pub fn dest(&self) -> usize {
        self.dest
    }

    /// Its words.
    pub fn args(&self) -> Args<'_> {
        self.args.args()
    }

    /// The keys it waits for.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let args = self.args.args();
        self.keys.iter().map(move |&at| args.at(at))
    }

    /// Unix ms of the moment at which time alone will have something for it, if that is known.
    pub fn ready_at_ms(&self) -> Option<u64> {
        let ready_at_ms = self.ready_at_ms.load(Acquire);
        (ready_at_ms != NEVER).then_some(ready_at_ms)
    }

    /// Notes that time alone will have something for it; returns true if that is sooner than what was known.
    pub fn be_ready_at(&self, ready_at_ms: u64) -> bool {
        self.ready_at_ms.fetch_min(ready_at_ms, AcqRel) > ready_at_ms
    }

    /// Forgets when time alone will have something for it, because it is looked at now.
    pub fn forget_ready_at(&self) {
        self.ready_at_ms.store(NEVER, Release);
    }
}

/// What serving a client needs of a thread, beside its sinks.
pub trait Blocking: Sinks<Entry: Send + Sync + 'static> {
    /// Where a command comes from.
    type Origin: Copy + Send + Sync + 'static;
    /// A measured run.
    type Effort;

    /// The row of a command.
    fn spec(entry: Self::Entry) -> &'static Spec;

    /// The database of a command.
    fn db(origin: Self::Origin) -> usize;

    /// The client of a command as the maker of its changes.
    fn changed_by(origin: Self::Origin) -> ChangedBy;

    /// The clock of this turn, Unix ms.
    fn now_ms(&self) -> u64;

    /// Ends a wait that may not go on: its client has gone, or lost a right. Returns true if it has ended.
    fn ends(&mut self, ticket: &Parked, waiting: &BlockedKeys<Self::Origin, Self::Entry>) -> bool;

    /// Runs the body once more; `only_key` is the key that is ready, `None` means all. `None`: it has nothing to answer yet.
    fn try_again<'a>(
        &'a mut self,
        set: ShardSet<'a>,
        waiting: &BlockedKeys<Self::Origin, Self::Entry>,
        only_key: Option<&'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Option<Self::Effort>;

    /// Counts a run that served, and sends its reply.
    fn answer(
        &mut self,
        waiting: &BlockedKeys<Self::Origin, Self::Entry>,
        effort: Self::Effort,
        reply: Vec<u8>,
    );

    /// Remembers the keys of a command for its client's cache.
    fn remember(
        &mut self,
        grant: &mut Grant<ShardPart, Self::Job>,
        waiting: &BlockedKeys<Self::Origin, Self::Entry>,
    );

    /// Sends a whole command through the inboxes of its shards: with all of them held it is looked at by [`serve_ticket`].
    fn post(&mut self, origin: Self::Origin, ticket: Parked, wanted: LockSet);
}

/// The command of a ticket.
pub fn waiting_of<O: 'static, E: 'static>(ticket: &Parked) -> Option<&BlockedKeys<O, E>> {
    ticket.what.downcast_ref()
}

/// Puts a command into the queues of its keys, whose shards are held.
pub fn park<B: Blocking>(
    local: &B,
    grant: &mut Grant<ShardPart, B::Job>,
    origin: B::Origin,
    entry: B::Entry,
    args: OwnedArgs,
    wait: &BlockingWait,
) -> Parked {
    let mut keys = Vec::new();
    B::spec(entry).each_key(args.args(), &mut |at| {
        if wait.dest == 0 || at != wait.dest {
            keys.push(at);
        }
    });
    let ready_at_ms = AtomicU64::new(wait.ready_at_ms.unwrap_or(NEVER));
    let ticket: Parked = Ticket::new(BlockedKeys { origin, entry, args, keys, dest: wait.dest, ready_at_ms });
    let router = local.router();
    for name in waiting_of::<B::Origin, B::Entry>(&ticket).into_iter().flat_map(BlockedKeys::names) {
        if let Some(part) = grant.get_mut(router.shard_of(router.key(name).hash)) {
            part.waiters.add(B::db(origin), name, ticket.clone());
            part.shard.changes.listen(Listeners::WAITERS, true);
        }
    }
    ticket
}

/// Serves the clients that wait for the key `name`, in the order they came, as far as it has something for them.
pub fn serve<B: Blocking>(local: &mut B, grant: &mut Grant<ShardPart, B::Job>, db: usize, name: &[u8]) {
    let router = local.router();
    let key = router.key(name);
    let id = router.shard_of(key.hash);
    let Some(part) = grant.get_mut(id) else { return };
    let tickets = part.waiters.waiting(db, name);
    let is_there = |local: &B, grant: &Grant<ShardPart, B::Job>| {
        grant.get(id).is_some_and(|part| part.shard.peek(db, key, local.now_ms()).is_some())
    };
    // Thousands may wait for what the first of them takes: they are not looked at one by one then.
    let mut has_some = !tickets.is_empty() && is_there(local, grant);
    for ticket in tickets {
        let Some(waiting) = waiting_of::<B::Origin, B::Entry>(&ticket) else { continue };
        // A group goes with its key, and so do those that wait for it.
        let hears_of_end = B::spec(waiting.entry).has(Marks::ENDS_WITH_KEY);
        if !(has_some || hears_of_end) || !ticket.begin() {
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
pub fn serve_ticket<B: Blocking>(local: &mut B, grant: &mut Grant<ShardPart, B::Job>, ticket: &Parked) {
    let Some(waiting) = waiting_of::<B::Origin, B::Entry>(ticket) else { return };
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

/// Sends the whole command of a ticket through the inboxes of its shards.
pub fn look_again_later<B: Blocking>(
    local: &mut B,
    waiting: &BlockedKeys<B::Origin, B::Entry>,
    ticket: &Parked,
) {
    let wanted = lock_set(B::spec(waiting.entry), waiting.args(), local.router());
    local.post(waiting.origin, ticket.clone(), wanted);
}

/// Takes a ticket that is done out of the queues it still stands in, where the shard is free; elsewhere the next that meets it
/// drops it.
pub fn leave_queues<B: Blocking>(local: &mut B, ticket: &Parked) {
    let Some(waiting) = waiting_of::<B::Origin, B::Entry>(ticket) else { return };
    let (router, cells) = (local.router(), local.cells());
    for name in waiting.names() {
        let Some(cell) = cells.get(usize::from(router.shard_of(router.key(name).hash))) else { continue };
        if let Some(mut held) = lease::take_one_patiently(cell, LEAVE_SPINS) {
            held.waiters.leave(B::db(waiting.origin), name);
            let is_waited = !held.waiters.is_empty();
            held.shard.changes.listen(Listeners::WAITERS, is_waited);
            lease::release_one(local, held);
        }
    }
}

const LEAVE_SPINS: u32 = 500;

enum Attempt {
    Served,
    Nothing,
    /// The destination's shard is owned by somebody else right now.
    Busy,
}

/// Runs a waiting command's body once more, over the held shards and its destination's, and answers it.
fn attempt<B: Blocking>(
    local: &mut B,
    grant: &mut Grant<ShardPart, B::Job>,
    ticket: &Parked,
    waiting: &BlockedKeys<B::Origin, B::Entry>,
    only_key: Option<&[u8]>,
) -> Attempt {
    let (router, args) = (local.router(), waiting.args());
    if local.ends(ticket, waiting) {
        return Attempt::Served;
    }
    if waiting.dest != 0 {
        let id = router.shard_of(router.key(args.at(waiting.dest)).hash);
        if grant.get(id).is_none() {
            // It stays held with the others: what happens in all of them is told in the order it happened.
            match local.cells().get(usize::from(id)).and_then(lease::try_one) {
                Some(held) => grant.insert(held),
                None => return Attempt::Busy,
            }
        }
    }
    let mut reply = Vec::new();
    let Some(effort) = local.try_again(set_of(router, grant), waiting, only_key, &mut reply) else {
        return Attempt::Nothing;
    };
    let (entry, db) = (waiting.entry, B::db(waiting.origin));
    let ran = RanCommand { entry, args, db, served: Some(only_key), reply: &reply };
    local.note(set_of(router, grant), Some(ran));
    // Before the changes are passed on, so that the client hears of its own ones after its reply.
    ticket.finish();
    local.answer(waiting, effort, reply);
    local.remember(grant, waiting);
    // They are the served client's changes, whichever client made its key ready.
    commit::caches(local, grant, B::changed_by(waiting.origin));
    Attempt::Served
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Engine, Task, cells, router, run_body};

    /// A key of a shard.
    fn key(shard: u16, at: usize) -> String {
        let names = (0..).map(|n| format!("k{n}"));
        names
            .filter(|name| router().shard_of(router().key(name.as_bytes()).hash) == shard)
            .nth(at)
            .expect("a key")
    }

    fn owned(line: &str) -> OwnedArgs {
        OwnedArgs::from_slices(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    fn name(line: &str) -> &'static str {
        crate::testing::row(line.split(' ').next().unwrap_or_default()).spec.name
    }

    /// Runs a command of `client` over both shards, as the stage run does: it is answered, or it waits.
    fn run(engine: &mut Engine, client: u64, line: &str) -> Option<Parked> {
        let mut grant = lease::take(engine, &LockSet::all(2)).unwrap_or_else(|_| panic!("free"));
        let (args, mut out) = (owned(line), Vec::new());
        let wait = run_body(set_of(router(), &mut grant), name(line), args.args(), None, &mut out);
        let ticket = wait.map(|wait| park(engine, &mut grant, client, name(line), args.clone(), &wait));
        let ran = RanCommand { entry: name(line), args: args.args(), db: 0, served: None, reply: &out };
        commit::command(engine, &mut grant, ChangedBy(client), ran);
        lease::release(engine, grant);
        ticket
    }

    fn answers(engine: &Engine) -> Vec<&str> {
        let lines = engine.log.iter().map(String::as_str);
        lines.filter(|line| line.starts_with("answer") || line.starts_with("refuse")).collect()
    }

    #[test]
    fn clients_are_served_in_the_order_they_came_as_far_as_there_is_something() {
        let mut engine = Engine::new(cells(2));
        let list = key(0, 0);
        for client in [1, 2, 3] {
            assert!(run(&mut engine, client, &format!("blpop {list} 0")).is_some());
        }
        run(&mut engine, 9, &format!("rpush {list} a b"));
        let pair = |client: u64, element: &str| format!("answer {client}: *2 $2 {list} $1 {element}");
        assert_eq!(answers(&engine), [pair(1, "a"), pair(2, "b")]);
        engine.log.clear();
        run(&mut engine, 9, &format!("rpush {list} c"));
        assert_eq!(answers(&engine), [pair(3, "c")]);
    }

    #[test]
    fn what_a_served_client_does_is_committed_as_its_own_and_serves_others_in_turn() {
        let mut engine = Engine::new(cells(2));
        let (from, to) = (key(0, 0), key(1, 0));
        assert!(run(&mut engine, 1, &format!("blmove {from} {to} left right 0")).is_some());
        assert!(run(&mut engine, 2, &format!("blpop {to} 0")).is_some());
        engine.log.clear();
        run(&mut engine, 9, &format!("rpush {from} a"));
        assert_eq!(answers(&engine), ["answer 1: $1 a".to_owned(), format!("answer 2: *2 $2 {to} $1 a")]);
        // The pusher's change of the source is its own; the move is the served client's.
        let notes: Vec<&String> = engine.log.iter().filter(|line| line.starts_with("journal")).collect();
        assert_eq!(notes, ["journal blmove", "journal blpop"]);
    }

    #[test]
    fn a_destination_that_another_thread_owns_is_waited_for() {
        let cells = cells(2);
        let mut engine = Engine::new(cells);
        let (from, to) = (key(0, 0), key(1, 0));
        assert!(run(&mut engine, 1, &format!("blmove {from} {to} left right 0")).is_some());
        let owned_elsewhere = lease::try_one::<Task>(&cells[1]).expect("free");
        let mut grant = lease::take(&engine, &LockSet::one(0)).unwrap_or_else(|_| panic!("free"));
        let (args, mut out) = (owned(&format!("rpush {from} a")), Vec::new());
        run_body(set_of(router(), &mut grant), "rpush", args.args(), None, &mut out);
        commit::changes(&mut engine, &mut grant, ChangedBy(9));
        lease::release(&mut engine, grant);
        assert!(answers(&engine).is_empty());
        let (_, ticket, wanted) = engine.posted.pop().expect("it is looked at again");
        assert_eq!(wanted.ids(), [0, 1]);
        lease::release_one(&mut engine, owned_elsewhere);
        let mut grant = lease::take(&engine, &wanted).unwrap_or_else(|_| panic!("free"));
        serve_ticket(&mut engine, &mut grant, &ticket);
        lease::release(&mut engine, grant);
        assert_eq!(answers(&engine), ["answer 1: $1 a"]);
        assert!(ticket.is_done());
    }

    #[test]
    fn a_wait_that_has_ended_takes_nothing() {
        let mut engine = Engine::new(cells(2));
        let list = key(1, 0);
        let cancelled = run(&mut engine, 1, &format!("blpop {list} 0")).expect("it waits");
        assert!(run(&mut engine, 2, &format!("blpop {list} 0")).is_some());
        assert!(run(&mut engine, 3, &format!("blpop {list} 0")).is_some());
        assert!(cancelled.cancel());
        leave_queues(&mut engine, &cancelled);
        engine.refused = vec![2];
        run(&mut engine, 9, &format!("rpush {list} a"));
        assert_eq!(answers(&engine), ["refuse 2".to_owned(), format!("answer 3: *2 $2 {list} $1 a")]);
    }

    #[test]
    fn a_reader_of_a_stream_waits_on_when_the_stream_is_removed() {
        let mut engine = Engine::new(cells(2));
        let stream = key(0, 0);
        run(&mut engine, 9, &format!("xadd {stream} 1-1 f v"));
        assert!(run(&mut engine, 1, &format!("xread block 0 streams {stream} 1-1")).is_some());
        run(&mut engine, 9, &format!("del {stream}"));
        assert!(answers(&engine).is_empty(), "XREAD waits for a stream that is yet to come");
        run(&mut engine, 9, &format!("xadd {stream} 2-1 f w"));
        assert_eq!(answers(&engine).len(), 1);
    }
}

//! How shards are entered: the one place that knows about ownership.
//!
//! A command takes its shards, runs as a plain function and lets them go. When one is busy the command
//! is copied into a job, left in that shard's inbox, and its connection stalls until the reply comes.

pub mod multi_key;

use crate::engine::cluster::links::Routed;
use darter_command::incremental::{Incremental, Staged, TRIES_MAX};
use darter_command::slices::{SlicesRest, WRITE_BYTES_MIN};
use darter_command::{BlockingWait, Ctx, Fault, Flags, Marks};
use darter_engine::blocking;
use darter_latch::{Grant, Held};
use darter_reactor::Token;
use darter_store::{Key, Shard};
use darter_txn::waiters::Parked;
use darter_txn::{LockSet, ShardPart, ShardSet};
use darter_wire::{Args, Reply};

use crate::acl::guard;
use crate::busy_rejection::{self, WaitingClient};
use crate::command_log::large;
use crate::engine::cluster::{moving, route};
use crate::engine::lease_timer::LeaseTimer;
use crate::engine::origin::{ChangedBy, Origin};
use crate::engine::sinks::commit_body;
use crate::engine::{admit, commit, lease, plan};
use crate::job::{Job, JobBody, Shards};
use crate::journal::note as journal;
use crate::long_reads::{LongRead, ReadSlice, ReadSource};
use crate::pubsub;
use crate::registry::{CommandEntry, RunKind};
use crate::session::Session;
use crate::shared::{ShardCell, Shared};
use crate::snapshot;
use crate::thread_state::ThreadState;
use crate::tracking;
use crate::waiting::{self, BlockedState};

/// Whether a command has been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// Its reply is in the output.
    Done,
    /// It waits for a shard or a key; the connection stalls.
    Stalled,
    /// It has not run: CLIENT PAUSE is on, and it is to be tried again.
    Postponed,
}

/// Where the reply goes and whose it is.
pub struct CommandCall<'a> {
    /// The connection's state.
    pub session: &'a mut Session,
    /// The connection's output.
    pub out: &'a mut Vec<u8>,
    /// The connection.
    pub token: Token,
}

impl CommandCall<'_> {
    /// The same once more, for a part of the way.
    #[inline]
    pub fn again(&mut self) -> CommandCall<'_> {
        CommandCall { session: self.session, out: self.out, token: self.token }
    }
}

/// Brings the memory that the keys of a window of commands will touch towards this core, in two rounds: first the
/// index lines, then the records they name. Each visit owns its shard for some ten nanoseconds; a shard that is
/// busy is left alone.
///
/// With `tracks` also what is known of the keys' readers.
#[inline(never)]
pub fn prefetch(
    local: &mut ThreadState,
    db: usize,
    tracks: bool,
    keys: impl Iterator<Item = (&'static ShardCell, u64)> + Clone,
) {
    for (cell, hash) in keys.clone() {
        visit(local, cell, |part| {
            part.shard.prefetch_line(db, hash);
            if tracks {
                part.readers.prefetch(hash);
            }
        });
    }
    for (cell, hash) in keys {
        visit(local, cell, |part| part.shard.prefetch_record(db, hash));
    }
}

#[inline(always)]
fn visit(local: &mut ThreadState, cell: &'static ShardCell, look: impl FnOnce(&ShardPart)) {
    if let Some(held) = lease::try_one(cell) {
        look(&held);
        lease::release_one(local, held);
    }
}

/// The shard of a hash, for [`prefetch`].
pub fn cell_of(shared: &'static Shared, hash: u64) -> (&'static ShardCell, u64) {
    (&shared.cells[usize::from(shared.router.shard_of(hash))], hash)
}

/// Runs a data command with one key, whose shard and hash are known.
#[inline(always)]
pub fn run_single(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    entry: &'static CommandEntry,
    args: Args<'_>,
    cell: &'static ShardCell,
    key: Key<'_>,
) -> Ran {
    let Some(held) = lease::take_one(cell) else {
        let body = one(entry, args);
        return post(local, call, body, LockSet::one(cell.id()), Grant::empty());
    };
    run_held(local, call, entry, args, key, (cell, held))
}

/// As [`run_single`], for a client that tracks what it reads.
pub fn run_tracked(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    entry: &'static CommandEntry,
    args: Args<'_>,
    cell: &'static ShardCell,
    key: Key<'_>,
) -> Ran {
    let Some(mut held) = lease::take_one(cell) else {
        let body = one(entry, args);
        return post(local, call, body, LockSet::one(cell.id()), Grant::empty());
    };
    if let Some(reader) = tracking::reader_of(call.session, entry) {
        tracking::remember_key(local, &mut held.readers, reader, key);
    }
    run_held(local, call, entry, args, key, (cell, held))
}

#[inline(always)]
fn run_held(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    entry: &'static CommandEntry,
    args: Args<'_>,
    key: Key<'_>,
    (cell, mut held): (&'static ShardCell, Held<ShardPart, Job>),
) -> Ran {
    let mark = call.out.len();
    let mut rest = None;
    if let RunKind::Data(run) = entry.run {
        let set = ShardSet::one(&local.shared.router, cell.id(), &mut held);
        let mut ctx = Ctx::new(set, &local.env, call.session.db, local.dbs_len, local.now_ms, Some(key));
        ctx.may_slice = args.len() >= entry.slices_from && call.session.may_slice();
        let mut reply = Reply::new(call.out, call.session.resp3);
        if let Err(fault) = run(&mut ctx, args, &mut reply) {
            refuse(local, entry, &fault, &mut reply, mark);
        } else if ctx.rest.is_some() {
            rest = ctx.rest.take();
        }
    }
    if held.shard.changes.has_pending() || held.shard.is_over_quota() {
        let reply = call.out.get(mark..).unwrap_or_default();
        let ran = journal::Ran { entry, args, db: call.session.db, served: None, reply };
        commit::single(local, held, ChangedBy(call.session.id), ran);
    } else {
        lease::release_one(local, held);
    }
    match rest {
        None => Ran::Done,
        Some(rest) => read_on(local, call.session, rest, entry, args),
    }
}

/// Has a connection fetch the rest of its answer.
#[cold]
fn read_on(
    local: &ThreadState,
    session: &mut Session,
    rest: SlicesRest,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Ran {
    let source = ReadSource::new(local, rest, args, session.db);
    let reading = match source {
        ReadSource::Write(_) if args.iter().any(|word| word.len() >= WRITE_BYTES_MIN) => {
            LongRead::without_words(source, entry, args)
        }
        _ => LongRead::new(source, entry, args.to_owned()),
    };
    session.reading = Some(Box::new(reading));
    Ran::Stalled
}

/// Runs a data command over whatever shards it needs.
pub fn run_multi(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Ran {
    let mut wanted = plan::lock_set(&entry.spec, args, &local.shared.router);
    let mut grant = loop {
        match lease::take(local, &wanted) {
            Ok(grant) => match plan::lacks(&entry.spec, args, &local.shared.router, &grant) {
                None => break grant,
                Some(more) => {
                    lease::release(local, grant);
                    wanted = more;
                }
            },
            Err(grant) => return post(local, call, one(entry, args), wanted, grant),
        }
    };
    if let Some(line) = moving::refusal(local, &mut grant, Routed::of(local, call.session), entry, args) {
        lease::release(local, grant);
        turn_away(local, entry, &line, &mut Reply::new(call.out, call.session.resp3));
        return Ran::Done;
    }
    let origin = Origin::of(local, call.session, call.token, Some(entry));
    let after = run_granted(local, &mut grant, origin, entry, args, call.out);
    call.session.blocked = after.blocked;
    lease::release(local, grant);
    if let Some(rest) = after.rest {
        return read_on(local, call.session, rest, entry, args);
    }
    if call.session.blocked.is_some() { Ran::Stalled } else { Ran::Done }
}

/// Answers a command whose keys are served elsewhere by now.
#[cold]
fn turn_away(local: &ThreadState, entry: &CommandEntry, line: &[u8], reply: &mut Reply<'_>) {
    reply.error(line);
    local.stats().commands[entry.id].rejected.add(1);
    local.count_error(admit::code_of(line));
}

/// Why a command that has waited is not served here any more, with its shards held.
fn refusal_after_wait(
    local: &mut ThreadState,
    grant: &mut Shards,
    client: Routed,
    (entry, args): (&'static CommandEntry, Args<'_>),
) -> Option<route::Line> {
    if !local.shared.cluster.is_on() {
        return None;
    }
    route::refusal_after_wait(local, client.link, entry, args)
        .or_else(|| moving::refusal(local, grant, client, entry, args))
}

fn one(entry: &'static CommandEntry, args: Args<'_>) -> JobBody {
    JobBody::One { entry, args: args.to_owned() }
}

/// Leaves a job in the inbox of the shard it lacks. Should that shard have come free meanwhile, the job
/// goes to this thread's own mailbox with everything it needs, so that it still runs in order.
pub fn post(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    body: JobBody,
    wanted: LockSet,
    grant: Shards,
) -> Ran {
    local.stats().contended.add(1);
    let entry = match &body {
        JobBody::One { entry, .. } => Some(*entry),
        _ => None,
    };
    let origin = Origin::of(local, call.session, call.token, entry);
    let (number, claim) = WaitingClient::begin(local, call.session, &body);
    let job = Job { number, claim, ..Job::new(origin, body, wanted, grant) };
    job.enqueue(local);
    Ran::Stalled
}

/// Sends a waiting command through the inboxes of its shards, to be looked at with all of them held.
pub fn post_ticket(local: &mut ThreadState, origin: Origin, ticket: Parked, wanted: LockSet) {
    Job::new(origin, JobBody::Serve(ticket), wanted, Grant::empty()).enqueue(local);
}

/// Runs a job with its shards held, wherever this thread is.
pub fn run_job(local: &mut ThreadState, grant: &mut Shards, job: &mut Job) {
    if let JobBody::One { entry, args } = &job.body
        && let Some(wanted) = plan::lacks(&entry.spec, args.args(), &local.shared.router, grant)
    {
        // Another job takes its place.
        let body = std::mem::replace(&mut job.body, JobBody::Call(None));
        let again = Job::new(job.origin, body, wanted, Grant::empty());
        Job { number: job.number, claim: job.claim.take(), ..again }.enqueue(local);
        return;
    }
    if busy_rejection::is_over(local, job) {
        return;
    }
    let origin = job.origin;
    match &mut job.body {
        JobBody::One { entry, args } => {
            // The map may have changed while the command waited for its shards.
            if let Some(line) = refusal_after_wait(local, grant, origin.routed(), (*entry, args.args())) {
                return turn_away(local, entry, &line, &mut Reply::new(&mut job.reply, origin.resp3));
            }
            let hold = LeaseTimer::begin();
            let after = run_granted(local, grant, origin, entry, args.args(), &mut job.reply);
            let took = hold.end(local);
            job.blocked = after.blocked;
            if let Some(rest) = after.rest {
                let source = ReadSource::new(local, rest, args.args(), origin.db);
                job.body = JobBody::Left { source, entry, args: args.args().to_owned() };
            } else if job.blocked.is_none() {
                crate::command_log::timing::note_job(local, origin.client, entry, args.args(), took);
                large::note_reply(local, origin.client, entry, args.args(), job.reply.len());
            }
        }
        JobBody::Serve(ticket) => {
            let ticket = ticket.clone();
            blocking::serve_ticket(local, grant, &ticket);
            commit::changes(local, grant, ChangedBy::SERVER);
        }
        JobBody::Memcached(raw) => {
            let hold = LeaseTimer::begin();
            crate::memcached::run_job(local, grant, origin, raw, &mut job.reply);
            hold.end(local);
        }
        JobBody::Listen => grant.iter_mut().for_each(|part| pubsub::settle(local, part)),
        JobBody::Cut(run) => snapshot::cut(local, grant, run),
        JobBody::Read { source, slice } => {
            if let Some(part) = grant.iter_mut().next() {
                *slice = Some(ReadSlice::take(local, part, source, &mut job.reply));
            }
            commit::growth(local, grant, origin.changed_by());
        }
        JobBody::Keep { incremental, entry, args } => {
            let hold = LeaseTimer::begin();
            let left = keep(local, grant, origin, incremental, (entry, args.args()), &mut job.reply);
            hold.end(local);
            if let Some(rest) = left {
                let source = ReadSource::new(local, rest, args.args(), origin.db);
                job.body = JobBody::Left { source, entry, args: args.args().to_owned() };
            }
        }
        JobBody::Call(call) => {
            if let Some(call) = call.take() {
                let hold = LeaseTimer::begin();
                call(local, grant);
                hold.end(local);
            }
        }
        JobBody::EndRead(number) => grant.iter_mut().for_each(|part| part.shard.end_read(*number)),
        JobBody::EndDraft(number) => grant.iter_mut().for_each(|part| part.shard.drop_draft(*number)),
        JobBody::Left { .. }
        | JobBody::Exec(_)
        | JobBody::Script { .. }
        | JobBody::Watch(_)
        | JobBody::Unwatch => {}
    }
}

/// Follow-up work of a command that has run.
#[derive(Default)]
pub struct After {
    /// It waits for its keys.
    pub blocked: Option<BlockedState>,
    /// The rest of its answer is left to slices.
    pub rest: Option<SlicesRest>,
}

/// Has a command store the result that was gathered for it, its shards held. If what it was made of has changed, the
/// command begins again: then its new result is yet to be gathered. What it returns is left to slices.
pub fn keep(
    local: &mut ThreadState,
    grant: &mut Shards,
    origin: Origin,
    incremental: &mut Incremental,
    (entry, args): (&'static CommandEntry, Args<'_>),
    out: &mut Vec<u8>,
) -> Option<SlicesRest> {
    let shared = local.shared;
    let tries = incremental.tries() + 1;
    incremental.look(&mut context(local, plan::set_of(&shared.router, grant), origin));
    commit::changes(local, grant, origin.changed_by());
    let kept = incremental.end(&mut context(local, plan::set_of(&shared.router, grant), origin));
    if let Some(line) = late_refusal(local, grant, origin, (entry, args)) {
        if let Some(kept) = kept {
            kept.give_up(&mut context(local, plan::set_of(&shared.router, grant), origin));
        }
        turn_away(local, entry, &line, &mut Reply::new(out, origin.resp3));
        return None;
    }
    let origin = Origin { may_slice: origin.may_slice && tries < TRIES_MAX, ..origin };
    let mut rest = run_with(local, grant, origin, (entry, args), kept, out).rest;
    if let Some(SlicesRest::Incremental(incremental)) = &mut rest {
        incremental.tried(tries);
    }
    rest
}

/// Runs a data command over granted shards and passes on what changed. A command that wants to wait is
/// parked in the queues of its keys.
pub fn run_granted(
    local: &mut ThreadState,
    grant: &mut Shards,
    origin: Origin,
    entry: &'static CommandEntry,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> After {
    run_with(local, grant, origin, (entry, args), None, out)
}

/// Why a command that was prepared in slices may not end here, with its shards held.
fn late_refusal(
    local: &mut ThreadState,
    grant: &mut Shards,
    origin: Origin,
    (entry, args): (&'static CommandEntry, Args<'_>),
) -> Option<route::Line> {
    let is_stale = origin.acl_version != local.shared.acl.version() || local.shared.cluster.is_on();
    let line = is_stale.then(|| admit::after_wait(local, origin, entry, args)).flatten();
    line.or_else(|| moving::refusal(local, grant, origin.routed(), entry, args))
}

/// Runs a command whose long string is written already: its shard is to use it. What its user may do is looked at again.
pub fn run_written(
    local: &mut ThreadState,
    grant: &mut Shards,
    origin: Origin,
    (entry, args): (&'static CommandEntry, Args<'_>),
    out: &mut Vec<u8>,
) {
    if let Some(line) = late_refusal(local, grant, origin, (entry, args)) {
        return turn_away(local, entry, &line, &mut Reply::new(out, origin.resp3));
    }
    run_with(local, grant, origin, (entry, args), None, out);
}

fn run_with(
    local: &mut ThreadState,
    grant: &mut Shards,
    origin: Origin,
    (entry, args): (&'static CommandEntry, Args<'_>),
    kept: Option<Staged>,
    out: &mut Vec<u8>,
) -> After {
    let shared = local.shared;
    if let Some(reader) = origin.tracks {
        tracking::remember(local, grant, reader, entry, args);
    }
    let mark = out.len();
    pause_uses(grant, origin.no_touch);
    let sees = Sees::of(local, entry, origin.imports);
    sees.begin(grant.iter_mut().map(|held| &mut held.shard));
    let set = plan::set_of(&shared.router, grant);
    let left = run_body(local, set, (entry, args), origin, kept, out);
    sees.end(local, grant.iter_mut().map(|held| &mut held.shard));
    note_own_deadlines(local, grant, (entry, args), origin.db);
    pause_uses(grant, false);
    let reply = out.get(mark..).unwrap_or_default();
    let ran = journal::Ran { entry, args, db: origin.db, served: None, reply };
    commit::command(local, grant, origin.changed_by(), ran);
    commit_body(local, grant, entry);
    let blocked = left.wait.map(|mut wait| {
        let args = wait.args.take().unwrap_or_else(|| args.to_owned());
        waiting::park(local, grant, origin, entry, args, *wait)
    });
    After { blocked, rest: left.rest }
}

/// Has shards count no uses while they are held for a client that asked for that, or count them again.
pub fn pause_uses(grant: &mut Shards, on: bool) {
    grant.iter_mut().for_each(|held| held.shard.pause_uses(on));
}

/// What a command sees of keys whose time is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sees {
    /// None, and it removes those it meets, as far as the server's role lets it.
    Living,
    /// None, and they stay: data is imported or that of a master, and this only reads.
    LivingOnly,
    /// All: its client imports data, or it removes keys of a master.
    Dead,
}

impl Sees {
    /// What a call of `entry` sees whose client is marked as one that imports, or is not.
    pub fn of(local: &ThreadState, entry: &CommandEntry, imports: bool) -> Sees {
        if !local.shows_dead_apart {
            return Sees::Living;
        }
        match local.live.import_mode {
            false if local.shared.replication.is_writable_replica(&local.live) => match entry.spec.flags {
                _ if entry.spec.has(Marks::COUNTS_DEAD) => Sees::Dead,
                flags if flags.any(Flags::WRITE) => Sees::Living,
                _ => Sees::LivingOnly,
            },
            false => Sees::Living,
            true if imports => Sees::Dead,
            true if entry.spec.flags.any(Flags::WRITE) => Sees::Living,
            true => Sees::LivingOnly,
        }
    }

    /// Before its body.
    #[inline]
    pub fn begin<'s>(self, shards: impl Iterator<Item = &'s mut Shard>) {
        match self {
            Sees::Living => {}
            Sees::LivingOnly => shards.for_each(|shard| shard.keep_dead(true)),
            Sees::Dead => shards.for_each(|shard| shard.show_dead(true)),
        }
    }

    /// After it.
    #[inline]
    pub fn end<'s>(self, local: &ThreadState, shards: impl Iterator<Item = &'s mut Shard>) {
        if self != Sees::Living {
            let keeps = local.shared.replication.leaves_dead(&local.live);
            shards.for_each(|shard| {
                shard.show_dead(false);
                shard.keep_dead(keeps);
            });
        }
    }
}

/// On a writable replica, keys to which a command gives a deadline expire by themselves.
pub fn note_own_deadlines(
    local: &ThreadState,
    grant: &mut Shards,
    (entry, args): (&CommandEntry, Args<'_>),
    db: usize,
) {
    if !local.shows_dead_apart
        || !entry.spec.flags.any(Flags::WRITE)
        || !local.shared.replication.is_writable_replica(&local.live)
    {
        return;
    }
    let router = &local.shared.router;
    entry.spec.each_key(args, &mut |at| {
        let key = router.key(args.at(at));
        let Some(part) = grant.get_mut(router.shard_of(key.hash)) else { return };
        let record = part.shard.peek(db, key, local.now_ms);
        if record.is_some_and(|record| record.deadline_ms().is_some())
            && let Some(own) = &mut part.own_deadlines
        {
            own.note(db, key.bytes);
        }
    });
}

/// Whether a command may change every key at once, which no key's change tells.
pub fn flushes(entry: &CommandEntry) -> bool {
    entry.spec.has(Marks::FLUSHES)
}

/// What a body has left to do.
#[derive(Default)]
struct Left {
    wait: Option<Box<BlockingWait>>,
    rest: Option<SlicesRest>,
}

/// What a command's body works on that runs over `set`.
fn context<'a>(local: &'a ThreadState, set: ShardSet<'a>, origin: Origin) -> Ctx<'a> {
    let mut ctx = Ctx::new(set, &local.env, origin.db, local.live.dbnum as usize, local.now_ms, None);
    ctx.may_slice = origin.may_slice;
    ctx
}

#[inline]
fn run_body<'a>(
    local: &'a ThreadState,
    set: ShardSet<'a>,
    (entry, args): (&'static CommandEntry, Args<'_>),
    origin: Origin,
    kept: Option<Staged>,
    out: &mut Vec<u8>,
) -> Left {
    let RunKind::Data(run) = entry.run else { return Left::default() };
    let mut ctx = context(local, set, origin);
    ctx.may_read = guard::may_read(local, entry, args, origin.db, origin.client);
    ctx.staged = kept;
    let mut reply = Reply::new(out, origin.resp3);
    let mark = reply.len();
    let ran = run(&mut ctx, args, &mut reply);
    if let Some(kept) = ctx.staged.take() {
        kept.give_up(&mut ctx);
    }
    if let Err(fault) = ran {
        refuse(local, entry, &fault, &mut reply, mark);
        return Left::default();
    }
    if ctx.wait.is_some() {
        reply.truncate_to(mark);
    }
    Left { wait: ctx.wait, rest: ctx.rest }
}

/// Replaces what a failed command has written since `mark` by its error.
#[cold]
pub fn refuse(
    local: &ThreadState,
    entry: &'static CommandEntry,
    fault: &Fault,
    reply: &mut Reply<'_>,
    mark: usize,
) {
    reply.truncate_to(mark);
    let line = fault.line();
    reply.error(line.as_bytes());
    let stats = local.stats();
    stats.commands[entry.id].failed.add(1);
    local.count_error(&line);
}

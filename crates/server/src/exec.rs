//! How shards are entered: the one place that knows about ownership.
//!
//! A command takes its shards, runs as a plain function and lets them go. When one is busy the command
//! is copied into a job, left in that shard's inbox, and its connection stalls until the reply comes.

use darter_command::gather::{Gather, Kept, TRIES_MAX};
use darter_command::slices::Rest;
use darter_command::{Ctx, Fault, Flags, Marks, Reach, Spec, Wait};
use darter_latch::{Grant, Held};
use darter_reactor::Token;
use darter_store::Key;
use darter_txn::waiters::Parked;
use darter_txn::{LockSet, Part, Router, ShardSet};
use darter_wire::{Args, Reply};

use crate::acl::guard;
use crate::core::Core;
use crate::engine::hold::Hold;
use crate::engine::origin::{ChangedBy, Origin};
use crate::engine::{commit, lease};
use crate::job::{Body, Job, Shards};
use crate::journal::note as journal;
use crate::large;
use crate::pubsub;
use crate::reading::{Reading, Slice, Source};
use crate::registry::{Entry, Run};
use crate::session::Session;
use crate::shared::{ShardCell, Shared};
use crate::snapshot;
use crate::tracking;
use crate::turned_away::{self, Waiting};
use crate::waiting::{self, Parking};

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
pub struct Call<'a> {
    /// The connection's state.
    pub session: &'a mut Session,
    /// The connection's output.
    pub out: &'a mut Vec<u8>,
    /// The connection.
    pub token: Token,
}

impl Call<'_> {
    /// The same once more, for a part of the way.
    #[inline]
    pub fn again(&mut self) -> Call<'_> {
        Call { session: self.session, out: self.out, token: self.token }
    }
}

/// The shards `spec` needs for `args`.
pub fn lock_set(spec: &Spec, args: Args<'_>, router: &Router) -> LockSet {
    let mut set = LockSet::new();
    add_locks(spec, args, router, &mut set);
    set.seal();
    set
}

/// Adds the shards `spec` needs for `args`; the caller seals the set.
pub fn add_locks(spec: &Spec, args: Args<'_>, router: &Router, set: &mut LockSet) {
    match spec.reach {
        Reach::Keys => {
            spec.each_key(args, &mut |at| set.add(router.shard_of(router.key(args.at(at)).hash)));
        }
        Reach::AllIf(needs_all) if !needs_all(args) => {
            spec.each_key(args, &mut |at| set.add(router.shard_of(router.key(args.at(at)).hash)));
        }
        Reach::Linked(asks, _) => add_linked(spec, args, router, set, asks(args) && router.links().is_any()),
        Reach::All | Reach::AllIf(_) => (0..router.shards_len()).for_each(|id| set.add(id)),
        Reach::Run(find) => {
            let (first, len) = find(args, router.shards_len());
            (first..first.saturating_add(len).min(router.shards_len())).for_each(|id| set.add(id));
        }
    }
}

/// Adds the shards of the keys, and of those that their values name if they are `asked` for.
fn add_linked(spec: &Spec, args: Args<'_>, router: &Router, set: &mut LockSet, asked: bool) {
    spec.each_key(args, &mut |at| {
        let name = args.at(at);
        set.add(router.shard_of(router.key(name).hash));
        if asked {
            router.links().each(name, &mut |other| set.add(router.shard_of(router.key(other).hash)));
        }
    });
}

/// The shards that a command needs beside those of `grant`, which it has taken: what its keys name may have changed while
/// it waited for them. While the shards of the keys are held it stands still.
fn lacks(entry: &Entry, args: Args<'_>, router: &Router, grant: &Shards) -> Option<LockSet> {
    if !matches!(entry.spec.reach, Reach::Linked(..)) || !router.links().is_any() {
        return None;
    }
    let wanted = lock_set(&entry.spec, args, router);
    (!grant.covers(wanted.ids())).then_some(wanted)
}

/// Brings the memory that the keys of a window of commands will touch towards this core, in two rounds: first the
/// index lines, then the records they name. Each visit owns its shard for some ten nanoseconds; a shard that is
/// busy is left alone.
///
/// With `tracks` also what is known of the keys' readers.
#[inline(never)]
pub fn warm(
    core: &mut Core,
    db: usize,
    tracks: bool,
    keys: impl Iterator<Item = (&'static ShardCell, u64)> + Clone,
) {
    for (cell, hash) in keys.clone() {
        visit(core, cell, |part| {
            part.shard.prefetch_line(db, hash);
            if tracks {
                part.readers.prefetch(hash);
            }
        });
    }
    for (cell, hash) in keys {
        visit(core, cell, |part| part.shard.prefetch_record(db, hash));
    }
}

#[inline(always)]
fn visit(core: &mut Core, cell: &'static ShardCell, look: impl FnOnce(&Part)) {
    if let Some(held) = lease::try_one(cell) {
        look(&held);
        lease::release_one(core, held);
    }
}

/// The shard of a hash, for [`warm`].
pub fn cell_of(shared: &'static Shared, hash: u64) -> (&'static ShardCell, u64) {
    (&shared.cells[usize::from(shared.router.shard_of(hash))], hash)
}

/// Runs a data command with one key, whose shard and hash are known.
#[inline(always)]
pub fn run_single(
    core: &mut Core,
    call: Call<'_>,
    entry: &'static Entry,
    args: Args<'_>,
    cell: &'static ShardCell,
    key: Key<'_>,
) -> Ran {
    let Some(held) = lease::take_one(cell) else {
        let body = one(entry, args);
        return post(core, call, body, LockSet::one(cell.id()), Grant::empty());
    };
    run_held(core, call, entry, args, key, (cell, held))
}

/// As [`run_single`], for a client that tracks what it reads.
pub fn run_tracked(
    core: &mut Core,
    call: Call<'_>,
    entry: &'static Entry,
    args: Args<'_>,
    cell: &'static ShardCell,
    key: Key<'_>,
) -> Ran {
    let Some(mut held) = lease::take_one(cell) else {
        let body = one(entry, args);
        return post(core, call, body, LockSet::one(cell.id()), Grant::empty());
    };
    if let Some(reader) = tracking::reader_of(call.session, entry) {
        tracking::remember_key(core, &mut held.readers, reader, key);
    }
    run_held(core, call, entry, args, key, (cell, held))
}

#[inline(always)]
fn run_held(
    core: &mut Core,
    call: Call<'_>,
    entry: &'static Entry,
    args: Args<'_>,
    key: Key<'_>,
    (cell, mut held): (&'static ShardCell, Held<Part, Job>),
) -> Ran {
    let mark = call.out.len();
    let mut rest = None;
    if let Run::Data(run) = entry.run {
        let set = ShardSet::one(&core.shared.router, cell.id(), &mut held);
        let mut ctx = Ctx::new(set, &core.env, call.session.db, core.dbs_len, core.now_ms, Some(key));
        ctx.may_slice = args.len() >= entry.slices_from && call.session.may_slice();
        let mut reply = Reply::new(call.out, call.session.resp3);
        if let Err(fault) = run(&mut ctx, args, &mut reply) {
            refuse(core, entry, &fault, &mut reply, mark);
        } else if ctx.rest.is_some() {
            rest = ctx.rest.take();
        }
    }
    if held.shard.changes.has_pending() || held.shard.is_pressed() {
        let reply = call.out.get(mark..).unwrap_or_default();
        let ran = journal::Ran { entry, args, db: call.session.db, served: None, reply };
        commit::single(core, held, ChangedBy(call.session.id), ran);
    } else {
        lease::release_one(core, held);
    }
    match rest {
        None => Ran::Done,
        Some(rest) => read_on(core, call.session, rest, entry, args),
    }
}

/// Has a connection fetch the rest of its answer.
#[cold]
fn read_on(core: &Core, session: &mut Session, rest: Rest, entry: &'static Entry, args: Args<'_>) -> Ran {
    let source = Source::new(core, rest, args, session.db);
    let reading = match source {
        Source::Write(_) => Reading::without_words(source, entry, args),
        _ => Reading::new(source, entry, args.to_owned()),
    };
    session.reading = Some(Box::new(reading));
    Ran::Stalled
}

/// Runs a data command over whatever shards it needs.
pub fn run_multi(core: &mut Core, call: Call<'_>, entry: &'static Entry, args: Args<'_>) -> Ran {
    let mut wanted = lock_set(&entry.spec, args, &core.shared.router);
    let mut grant = loop {
        match lease::take(core, &wanted) {
            Ok(grant) => match lacks(entry, args, &core.shared.router, &grant) {
                None => break grant,
                Some(more) => {
                    lease::release(core, grant);
                    wanted = more;
                }
            },
            Err(grant) => return post(core, call, one(entry, args), wanted, grant),
        }
    };
    let origin = Origin::of(core, call.session, call.token, Some(entry));
    let after = run_granted(core, &mut grant, origin, entry, args, call.out);
    call.session.parking = after.parking;
    lease::release(core, grant);
    if let Some(rest) = after.rest {
        return read_on(core, call.session, rest, entry, args);
    }
    if call.session.parking.is_some() { Ran::Stalled } else { Ran::Done }
}

fn one(entry: &'static Entry, args: Args<'_>) -> Body {
    Body::One { entry, args: args.to_owned() }
}

/// Leaves a job in the inbox of the shard it lacks. Should that shard have come free meanwhile, the job
/// goes to this thread's own mailbox with everything it needs, so that it still runs in order.
pub fn post(core: &mut Core, call: Call<'_>, body: Body, wanted: LockSet, grant: Shards) -> Ran {
    core.stats().contended.add(1);
    let entry = match &body {
        Body::One { entry, .. } => Some(*entry),
        _ => None,
    };
    let origin = Origin::of(core, call.session, call.token, entry);
    let (number, claim) = Waiting::begin(core, call.session, &body);
    let job = Job { number, claim, ..Job::new(origin, body, wanted, grant) };
    job.enqueue(core);
    Ran::Stalled
}

/// Sends a waiting command through the inboxes of its shards, to be looked at with all of them held.
pub fn post_ticket(core: &mut Core, origin: Origin, ticket: Parked, wanted: LockSet) {
    Job::new(origin, Body::Serve(ticket), wanted, Grant::empty()).enqueue(core);
}

/// Runs a job with its shards held, wherever this thread is.
pub fn run_job(core: &mut Core, grant: &mut Shards, job: &mut Job) {
    if let Body::One { entry, args } = &job.body
        && let Some(wanted) = lacks(entry, args.args(), &core.shared.router, grant)
    {
        // Another job takes its place.
        let body = std::mem::replace(&mut job.body, Body::Call(None));
        let again = Job::new(job.origin, body, wanted, Grant::empty());
        Job { number: job.number, claim: job.claim.take(), ..again }.enqueue(core);
        return;
    }
    if turned_away::is_over(core, job) {
        return;
    }
    let origin = job.origin;
    match &mut job.body {
        Body::One { entry, args } => {
            let hold = Hold::begin();
            let after = run_granted(core, grant, origin, entry, args.args(), &mut job.reply);
            let took = hold.end(core);
            job.parking = after.parking;
            if let Some(rest) = after.rest {
                let source = Source::new(core, rest, args.args(), origin.db);
                job.body = Body::Left { source, entry, args: args.args().to_owned() };
            } else if job.parking.is_none() {
                crate::timing::note_job(core, origin.client, entry, args.args(), took);
                large::note_reply(core, origin.client, entry, args.args(), job.reply.len());
            }
        }
        Body::Serve(ticket) => {
            let ticket = ticket.clone();
            waiting::serve_ticket(core, grant, &ticket);
            commit::changes(core, grant, ChangedBy::SERVER);
        }
        Body::Memcached(raw) => {
            let hold = Hold::begin();
            crate::memcached::run_job(core, grant, origin, raw, &mut job.reply);
            hold.end(core);
        }
        Body::Listen => grant.iter_mut().for_each(|part| pubsub::settle(core, part)),
        Body::Cut(run) => snapshot::cut(core, grant, run),
        Body::Read { source, slice } => {
            if let Some(part) = grant.iter_mut().next() {
                *slice = Some(Slice::take(core, part, source, &mut job.reply));
            }
            commit::growth(core, grant, origin.changed_by());
        }
        Body::Keep { gather, entry, args } => {
            let hold = Hold::begin();
            let left = keep(core, grant, origin, gather, (entry, args.args()), &mut job.reply);
            hold.end(core);
            if let Some(rest) = left {
                let source = Source::new(core, rest, args.args(), origin.db);
                job.body = Body::Left { source, entry, args: args.args().to_owned() };
            }
        }
        Body::Call(call) => {
            if let Some(call) = call.take() {
                call(core, grant);
            }
        }
        Body::EndRead(number) => grant.iter_mut().for_each(|part| part.shard.end_read(*number)),
        Body::EndDraft(number) => grant.iter_mut().for_each(|part| part.shard.drop_draft(*number)),
        Body::Left { .. } | Body::Exec(_) | Body::Script { .. } | Body::Watch(_) | Body::Unwatch => {}
    }
}

/// What is still to come of a command that has run.
#[derive(Default)]
pub struct After {
    /// It waits for its keys.
    pub parking: Option<Parking>,
    /// The rest of its answer is left to slices.
    pub rest: Option<Rest>,
}

/// Has a command store the result that was gathered for it, its shards held. If what it was made of has changed, the
/// command begins again: then its new result is yet to be gathered. What it returns is left to slices.
pub fn keep(
    core: &mut Core,
    grant: &mut Shards,
    origin: Origin,
    gather: &mut Gather,
    (entry, args): (&'static Entry, Args<'_>),
    out: &mut Vec<u8>,
) -> Option<Rest> {
    let shared = core.shared;
    let tries = gather.tries() + 1;
    gather.look(&mut context(core, set_of(&shared.router, grant), origin));
    commit::changes(core, grant, origin.changed_by());
    let kept = gather.end(&mut context(core, set_of(&shared.router, grant), origin));
    if origin.acl_version != shared.acl.version()
        && let Err(line) = guard::check_after_wait(core, origin.client, entry, args, origin.db)
    {
        if let Some(kept) = kept {
            kept.give_up(&mut context(core, set_of(&shared.router, grant), origin));
        }
        Reply::new(out, origin.resp3).error(&line);
        core.stats().commands[entry.id].rejected.add(1);
        core.count_error("NOPERM");
        return None;
    }
    let origin = Origin { may_slice: origin.may_slice && tries < TRIES_MAX, ..origin };
    let mut rest = run_with(core, grant, origin, (entry, args), kept, out).rest;
    if let Some(Rest::Gather(gather)) = &mut rest {
        gather.tried(tries);
    }
    rest
}

/// Runs a data command over granted shards and passes on what changed. A command that wants to wait is
/// parked in the queues of its keys.
pub fn run_granted(
    core: &mut Core,
    grant: &mut Shards,
    origin: Origin,
    entry: &'static Entry,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> After {
    run_with(core, grant, origin, (entry, args), None, out)
}

/// Runs a command whose long string is written already: its shard is to use it. What its user may do is looked at again.
pub fn run_written(
    core: &mut Core,
    grant: &mut Shards,
    origin: Origin,
    (entry, args): (&'static Entry, Args<'_>),
    out: &mut Vec<u8>,
) {
    if origin.acl_version != core.shared.acl.version()
        && let Err(line) = guard::check_after_wait(core, origin.client, entry, args, origin.db)
    {
        Reply::new(out, origin.resp3).error(&line);
        core.stats().commands[entry.id].rejected.add(1);
        core.count_error("NOPERM");
        return;
    }
    run_with(core, grant, origin, (entry, args), None, out);
}

fn run_with(
    core: &mut Core,
    grant: &mut Shards,
    origin: Origin,
    (entry, args): (&'static Entry, Args<'_>),
    kept: Option<Kept>,
    out: &mut Vec<u8>,
) -> After {
    let shared = core.shared;
    if let Some(reader) = origin.tracks {
        tracking::remember(core, grant, reader, entry, args);
    }
    let mark = out.len();
    pause_uses(grant, origin.no_touch);
    let sees = Sees::of(core, entry, origin.imports);
    sees.begin(grant);
    let set = set_of(&shared.router, grant);
    let left = run_body(core, set, (entry, args), origin, kept, out);
    sees.end(core, grant);
    pause_uses(grant, false);
    let reply = out.get(mark..).unwrap_or_default();
    let ran = journal::Ran { entry, args, db: origin.db, served: None, reply };
    commit::command(core, grant, origin.changed_by(), ran);
    commit::body(core, grant, entry);
    let parking = left.wait.map(|mut wait| {
        let args = wait.args.take().unwrap_or_else(|| args.to_owned());
        waiting::park(core, grant, origin, entry, args, *wait)
    });
    After { parking, rest: left.rest }
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
    /// None, and they stay: data is imported, and this only reads.
    LivingOnly,
    /// All: its client imports data.
    Dead,
}

impl Sees {
    /// What a call of `entry` sees whose client is marked as one that imports, or is not.
    pub fn of(core: &Core, entry: &Entry, imports: bool) -> Sees {
        match core.live.import_mode {
            false => Sees::Living,
            true if imports => Sees::Dead,
            true if entry.spec.flags.any(Flags::WRITE) => Sees::Living,
            true => Sees::LivingOnly,
        }
    }

    /// Before its body.
    pub fn begin(self, grant: &mut Shards) {
        match self {
            Sees::Living => {}
            Sees::LivingOnly => grant.iter_mut().for_each(|held| held.shard.keep_dead(true)),
            Sees::Dead => grant.iter_mut().for_each(|held| held.shard.show_dead(true)),
        }
    }

    /// After it.
    pub fn end(self, core: &Core, grant: &mut Shards) {
        if self != Sees::Living {
            let keeps = core.shared.replication.keeps_dead();
            grant.iter_mut().for_each(|held| {
                held.shard.show_dead(false);
                held.shard.keep_dead(keeps);
            });
        }
    }
}

/// Whether a command may change every key at once, which no key's change tells.
pub fn flushes(entry: &Entry) -> bool {
    entry.spec.has(Marks::FLUSHES)
}

/// The shards of a grant as commands see them.
pub fn set_of<'a>(router: &'a Router, grant: &'a mut Shards) -> ShardSet<'a> {
    let is_one = grant.len() == 1;
    let mut held = grant.iter_mut().map(|held| (held.id(), &mut **held));
    match held.next() {
        Some((id, part)) if is_one => ShardSet::one(router, id, part),
        first => ShardSet::many(router, first.into_iter().chain(held)),
    }
}

/// What a body has left to do.
#[derive(Default)]
struct Left {
    wait: Option<Box<Wait>>,
    rest: Option<Rest>,
}

/// What a command's body works on that runs over `set`.
fn context<'a>(core: &'a Core, set: ShardSet<'a>, origin: Origin) -> Ctx<'a> {
    let mut ctx = Ctx::new(set, &core.env, origin.db, core.live.dbnum as usize, core.now_ms, None);
    ctx.may_slice = origin.may_slice;
    ctx
}

#[inline]
fn run_body<'a>(
    core: &'a Core,
    set: ShardSet<'a>,
    (entry, args): (&'static Entry, Args<'_>),
    origin: Origin,
    kept: Option<Kept>,
    out: &mut Vec<u8>,
) -> Left {
    let Run::Data(run) = entry.run else { return Left::default() };
    let mut ctx = context(core, set, origin);
    ctx.kept = kept;
    let mut reply = Reply::new(out, origin.resp3);
    let mark = reply.len();
    let ran = run(&mut ctx, args, &mut reply);
    if let Some(kept) = ctx.kept.take() {
        kept.give_up(&mut ctx);
    }
    if let Err(fault) = ran {
        refuse(core, entry, &fault, &mut reply, mark);
        return Left::default();
    }
    if ctx.wait.is_some() {
        reply.truncate_to(mark);
    }
    Left { wait: ctx.wait, rest: ctx.rest }
}

/// Replaces what a failed command has written since `mark` by its error.
#[cold]
pub fn refuse(core: &Core, entry: &'static Entry, fault: &Fault, reply: &mut Reply<'_>, mark: usize) {
    reply.truncate_to(mark);
    let line = fault.line();
    reply.error(line.as_bytes());
    let stats = core.stats();
    stats.commands[entry.id].failed.add(1);
    core.count_error(&line);
}

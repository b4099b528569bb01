//! Admission: what the checks of `darter_engine::admit` ask of this server, and what becomes of a command by their answer.
//!
//! Called by dispatch when the connection or the thread has a gate shut, by memcached's connections, for each command of a
//! script or an EXEC, and when a wait has ended. The checks of a user's rights are in `acl::guard`.

use crate::engine::cluster::links::Routed;
use crate::engine::origin::Origin;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::{Flags, Marks, Spec};
use darter_engine::admit::{AdmitFacts, EntryPoints, Line, ScriptRights, refusal};
use darter_script::engine::killed;
use darter_wire::{Args, Reply};

use crate::acl::commands::find_command;
use crate::acl::guard;
use crate::clients::ClientInfo;
use crate::commands::debug;
use crate::dispatch::{self, Resolved};
use crate::engine::cluster::{moving, route};
use crate::exec::{CommandCall, Ran};
use crate::limit::relief;
use crate::monitor;
use crate::pause::WRITES;
use crate::registry::{CommandEntry, RunKind};
use crate::script_run;
use crate::script_run::host::Bridge;
use crate::scripts::busy_line;
use crate::session::{Gate, QueuedCommand, ReplyMode, Session};
use crate::thread_state::ThreadState;
use crate::transaction;

/// Runs, queues, postpones or refuses a command.
#[cold]
pub fn execute(
    local: &mut ThreadState,
    mut call: CommandCall<'_>,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    ready: Resolved,
    args: Args<'_>,
) -> Ran {
    if call.session.gate.has(Gate::ASKING) {
        call.session.asks_left = call.session.asks_left.saturating_sub(1);
        let still_asks = call.session.asks_left > 0;
        call.session.gate.set(Gate::ASKING, still_asks);
    }
    let gate = call.session.gate;
    let mark = call.out.len();
    let refusal = refusal_after_relief(local, call.session, info, (EntryPoints::CLIENT, entry), args);
    if refusal.is_none() && must_wait(local, call.session, entry, args) {
        call.session.usage.commands -= 1;
        call.session.asks_left += u8::from(call.session.gate.has(Gate::ASKING));
        return Ran::Postponed;
    }
    if let Some(own) = call.session.tracking.as_mut().filter(|_| call.session.multi.is_none()) {
        own.begin_command(entry);
    }
    if let Some(line) = refusal {
        refuse(local, &mut call, entry, args, &line);
    } else if gate.has(Gate::MULTI) && !entry.spec.has(Marks::NOT_QUEUED) {
        queue(&mut call, entry, args);
    } else {
        let (session, out, token) = (call.session, call.out, call.token);
        let inner = CommandCall { session: &mut *session, out: &mut *out, token };
        let goes_long = gate.has(Gate::NO_TOUCH) || local.shows_dead_apart || moving::is_any(local);
        let ready = if goes_long { Resolved { cell: None, ..ready } } else { ready };
        let ran = dispatch::run_checked(local, inner, info, entry, ready, args);
        if local.shared.monitors.is_any() {
            monitor::show(local, info, session.db, entry, args);
        }
        if gate.has(Gate::REPLY) && !entry.spec.has(Marks::ANSWERS_BY_PUSH) {
            let waits = ran == Ran::Stalled || session.blocked.is_some();
            session.drops_reply = waits;
            mute(session, out, mark);
        }
        return ran;
    }
    if gate.has(Gate::REPLY) {
        mute(call.session, call.out, mark);
    }
    Ran::Done
}

/// Whether a command must wait: CLIENT PAUSE is on, or a snapshot or the journal's first base has fallen behind, and it
/// may change data.
pub fn must_wait(
    local: &mut ThreadState,
    session: &Session,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> bool {
    if local.cluster.map.is_holding() && route::must_wait(local, session, entry, args) {
        return true;
    }
    let pause = &local.shared.pause;
    let is_paused = pause.is_on(local.now_ms);
    if is_paused && pause.holds_reads(local.now_ms) {
        return true;
    }
    if !is_paused && !local.shared.snapshots.holds_writers() {
        return false;
    }
    let mut writes = |entry: &'static CommandEntry, args: Args<'_>| {
        let is_tame = matches!(entry.run, RunKind::Script(way) if script_run::only_reads(local, way, args));
        entry.spec.flags.any(WRITES) && !is_tame
    };
    match &session.multi {
        Some(multi) if entry.spec.has(Marks::RUNS_QUEUE) => {
            multi.queued.iter().any(|queued| writes(queued.entry, queued.args.args()))
        }
        _ => writes(entry, args),
    }
}

/// Takes back what was written since `mark` if CLIENT REPLY says so.
pub fn mute(session: &mut Session, out: &mut Vec<u8>, mark: usize) {
    match session.reply_mode {
        ReplyMode::On => {}
        ReplyMode::Off => out.truncate(mark),
        ReplyMode::SkipNext => {
            out.truncate(mark);
            session.reply_mode = ReplyMode::On;
            session.gate.set(Gate::REPLY, false);
        }
    }
}

/// [`darter_engine::admit::refusal`] of a client's command, where a lack of memory is one only if no room can be made.
pub(crate) fn refusal_after_relief(
    local: &mut ThreadState,
    session: &Session,
    info: &ClientInfo,
    (by, entry): (EntryPoints, &'static CommandEntry),
    args: Args<'_>,
) -> Option<Line> {
    let ask = |local: &ThreadState| {
        let script = ScriptRights::default();
        refusal(by, &Candidate { local, session, info, entry, args, by, script })
    };
    let line = ask(local)?;
    if line.starts_with(b"OOM ") && !relief::refuses(local) {
        return ask(local);
    }
    Some(line)
}

/// Why a queued command may not run any more.
pub fn in_exec(
    local: &ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Option<Line> {
    let acl = &local.shared.acl;
    if session.is_user_stale(acl) {
        session.settle_user(acl);
    }
    let by = EntryPoints::EXEC;
    refusal(by, &Candidate { local, session, info, entry, args, by, script: ScriptRights::default() })
}

/// Why a command of `client` may not run that has waited.
pub fn after_wait(
    local: &ThreadState,
    origin: Origin,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Option<Line> {
    refusal(EntryPoints::WAITED, &Waited { local, origin, entry, args })
}

/// The first word of an error line.
pub fn code_of(line: &[u8]) -> &str {
    let word = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(word).unwrap_or("ERR")
}

/// The command that `args` name, if a script may run it now. Errors: the error line; it is counted as a rejected call.
pub fn in_script(
    bridge: &mut Bridge<'_>,
    args: Args<'_>,
) -> Result<&'static CommandEntry, Cow<'static, str>> {
    const UNKNOWN: &str = "ERR Unknown Redis command called from script";
    let entry = find_command(&bridge.local.shared.registry, args).ok_or(UNKNOWN)?;
    match refusal_in_script(bridge, entry, args) {
        None => Ok(entry),
        Some(line) => {
            bridge.local.stats().commands[entry.id].rejected.add(1);
            Err(match line {
                Cow::Borrowed(line) => String::from_utf8_lossy(line),
                Cow::Owned(line) => String::from_utf8_lossy(&line).into_owned().into(),
            })
        }
    }
}

fn refusal_in_script(bridge: &mut Bridge<'_>, entry: &'static CommandEntry, args: Args<'_>) -> Option<Line> {
    let Bridge { local, session, info, .. } = &*bridge;
    let by = EntryPoints::SCRIPT;
    let script = ScriptRights {
        may_write: bridge.may_write,
        allows_oom: bridge.allows_oom,
        has_written: bridge.has_written,
    };
    if let Some(line) = refusal(by, &Candidate { local, session, info, entry, args, by, script }) {
        return Some(line);
    }
    if session.gate.has(Gate::CLUSTER) {
        let call = (entry, args);
        let mut slots = bridge.slots;
        let line = route::refusal_in_script(local, session, call, &mut slots);
        bridge.slots = slots;
        if line.is_some() {
            return line;
        }
        let client = Routed::of(bridge.local, bridge.session);
        if moving::refusal(bridge.local, bridge.grant, client, entry, args).is_some() {
            return Some(route::NOT_LOCAL.as_bytes().into());
        }
    }
    if !entry.spec.flags.any(Flags::WRITE) {
        return None;
    }
    bridge.has_written = true;
    (!bridge.watch.note_write()).then(|| killed(bridge.watch.kind()).as_bytes().into())
}

/// A command with its connection, as the checks see it.
struct Candidate<'a> {
    local: &'a ThreadState,
    session: &'a Session,
    info: &'a ClientInfo,
    entry: &'static CommandEntry,
    args: Args<'a>,
    by: EntryPoints,
    script: ScriptRights,
}

impl Candidate<'_> {
    /// Where a client of a replica is sent that follows redirects; in a cluster the map says that. While a failover hands the
    /// role over, the other server would send it back.
    #[cold]
    fn to_master(&self) -> Option<Line> {
        let shared = self.local.shared;
        if !shared.replication.is_replica()
            || self.session.gate.has(Gate::CLUSTER)
            || shared.replication.is_failing_over()
        {
            return None;
        }
        let state = shared.replication.state();
        let master = state.master.as_ref().filter(|master| master.port != 0)?;
        Some(format!("REDIRECT {}:{}", master.host, master.port).into_bytes().into())
    }

    fn queued(&self) -> &[QueuedCommand] {
        self.session.multi.as_ref().map_or(&[], |multi| &multi.queued)
    }
}

impl AdmitFacts for Candidate<'_> {
    #[inline]
    fn spec(&self) -> &Spec {
        &self.entry.spec
    }

    #[inline]
    fn misuse(&self) -> Option<Line> {
        let Candidate { entry, args, .. } = *self;
        // A script that lacks a subcommand is told so by the body.
        let lacks_sub = self.by != EntryPoints::SCRIPT && entry.lacks_sub(args.len());
        (lacks_sub || !entry.spec.accepts(args.len())).then(|| dispatch::misuse(entry, args).into())
    }

    fn must_log_in(&self) -> bool {
        self.session.gate.has(Gate::LOGIN) && self.local.shared.acl.default_needs_login()
    }

    #[inline]
    fn is_restricted(&self) -> bool {
        self.session.gate.has(Gate::RESTRICTED) && self.entry.is_restricted
    }

    fn is_in_multi(&self) -> bool {
        self.session.gate.has(Gate::MULTI)
    }

    fn may_debug(&self) -> bool {
        may_debug(self.local, self.info, self.entry)
    }

    #[inline]
    fn denied(&self) -> Option<Line> {
        let Candidate { local, session, info, entry, args, by, .. } = *self;
        let checked = match by {
            EntryPoints::SCRIPT => guard::check_in_script(local, session, info, entry, args),
            EntryPoints::EXEC => guard::check_in_exec(local, session, info, entry, args),
            _ => guard::check(local, session, info, entry, args),
        };
        checked.err().map(Cow::Owned)
    }

    #[inline]
    fn misrouted(&self) -> Option<Line> {
        let Candidate { local, session, entry, args, by, .. } = *self;
        // A script is checked with the slots of its other commands.
        if !session.gate.has(Gate::CLUSTER) || by == EntryPoints::SCRIPT {
            return None;
        }
        // memcached's clients know no way to another node: they wait for the end of the move.
        let is_lost = by == EntryPoints::MEMCACHED && route::must_look(local, session, entry, args);
        if is_lost {
            Some(moving::TRY_AGAIN.as_bytes().into())
        } else {
            route::refusal(local, session, entry, args)
        }
    }

    #[inline]
    fn redirected_write(&self) -> Option<Line> {
        if self.info.takes_redirects.load(Relaxed) { self.to_master() } else { None }
    }

    #[inline]
    fn redirected_read(&self) -> Option<Line> {
        if self.session.reads_replica { None } else { self.redirected_write() }
    }

    #[inline]
    fn script(&self) -> ScriptRights {
        self.script
    }

    #[inline]
    fn is_over_memory(&self) -> bool {
        self.local.is_over_memory()
    }

    #[inline]
    fn snapshots_fail(&self) -> bool {
        self.local.refuses_writes()
    }

    #[inline]
    fn journal_fault(&self) -> Option<Line> {
        let journal = &self.local.shared.journal;
        journal.is_failing().then(|| journal.refusal().into())
    }

    #[inline]
    fn lacks_replicas(&self) -> bool {
        self.local.lacks_replicas()
    }

    #[inline]
    fn follows(&self) -> bool {
        self.local.follows()
    }

    fn is_subscribed(&self) -> bool {
        self.session.gate.has(Gate::SUBSCRIBED)
    }

    fn is_stale(&self) -> bool {
        self.local.is_stale()
    }

    fn is_loading(&self) -> bool {
        self.local.shared.snapshots.loading.is_on()
    }

    fn is_loading_aside(&self) -> bool {
        self.local.shared.snapshots.loading.is_aside()
    }

    fn busy(&self) -> Option<Line> {
        self.local.busy.map(|kind| busy_line(kind).as_bytes().into())
    }

    fn queues_any(&self, flags: Flags) -> bool {
        self.queued().iter().any(|queued| queued.entry.spec.flags.any(flags))
    }

    fn queues_only(&self, flags: Flags) -> bool {
        self.queued().iter().all(|queued| queued.entry.spec.flags.any(flags))
    }
}

/// A command that has waited, whose connection may be another thread's.
struct Waited<'a> {
    local: &'a ThreadState,
    origin: Origin,
    entry: &'static CommandEntry,
    args: Args<'a>,
}

impl AdmitFacts for Waited<'_> {
    fn spec(&self) -> &Spec {
        &self.entry.spec
    }

    fn denied(&self) -> Option<Line> {
        let Waited { local, origin: Origin { client, db, .. }, entry, args } = *self;
        guard::check_after_wait(local, client, entry, args, db).err().map(Cow::Owned)
    }

    fn misrouted(&self) -> Option<Line> {
        let is_on = self.local.shared.cluster.is_on();
        if is_on {
            route::refusal_after_wait(self.local, self.origin.link, self.entry, self.args)
        } else {
            None
        }
    }
}

/// Whether `entry` is a DEBUG that tests call from scripts, and may.
#[cold]
fn may_debug(local: &ThreadState, info: &ClientInfo, entry: &CommandEntry) -> bool {
    entry.is_debug && local.shared.scripts.may_debug.load(Relaxed) && debug::is_allowed(local, info)
}

/// Answers a refused command. One between MULTI and EXEC breaks the transaction; a refused EXEC ends it.
#[cold]
pub fn refuse(
    local: &mut ThreadState,
    call: &mut CommandCall<'_>,
    entry: &'static CommandEntry,
    args: Args<'_>,
    line: &[u8],
) {
    if entry.spec.has(Marks::RUNS_QUEUE) {
        transaction::forget(call.session);
        if route::is_redirect(line) || line.starts_with(b"REDIRECT ") {
            return dispatch::reject(local, call, entry, args, line);
        }
        let cause = line.strip_prefix(b"ERR ").unwrap_or(line);
        let whole = [b"EXECABORT Transaction discarded because of: ", cause].concat();
        return dispatch::reject(local, call, entry, args, &whole);
    }
    if let Some(multi) = &mut call.session.multi {
        multi.is_broken = true;
    }
    dispatch::reject(local, call, entry, args, line);
}

fn queue(call: &mut CommandCall<'_>, entry: &'static CommandEntry, args: Args<'_>) {
    let Some(multi) = &mut call.session.multi else { return };
    let args = args.to_owned();
    multi.bytes += args.heap_bytes();
    if call.session.gate.has(Gate::ACL) && entry.spec.has(Marks::SELECTS) {
        multi.db = std::str::from_utf8(args.args().at(1)).ok().and_then(|text| text.parse().ok());
    }
    multi.queued.push(QueuedCommand { entry, args });
    Reply::new(call.out, call.session.resp3).status("QUEUED");
}

//! Admission: whether a command may run now, must wait, or is refused, and with which text.
//!
//! The order of the checks is Redis': one list for commands of clients ([`refusal`]), one for commands of scripts
//! ([`in_script`]). Called by dispatch when the connection or the thread has a gate shut, by memcached's connections, and
//! for each command of a script. The checks of a user's rights are in `acl::guard`.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::{Fault, Flags, Marks};
use darter_script::engine::killed;
use darter_wire::{Args, Reply};

use crate::acl::commands::find_command;
use crate::acl::guard;
use crate::clients::ClientCard;
use crate::commands::debug;
use crate::core::Core;
use crate::dispatch::{self, Ready};
use crate::exec::{Call, Ran};
use crate::limit::relief;
use crate::monitor;
use crate::multi;
use crate::pause::WRITES;
use crate::registry::{Entry, Run};
use crate::script_host::Bridge;
use crate::script_run;
use crate::scripts::busy_line;
use crate::session::{Gate, Queued, ReplyMode, Session};

/// Runs, queues, postpones or refuses a command.
#[cold]
pub fn execute(
    core: &mut Core,
    mut call: Call<'_>,
    card: &ClientCard,
    entry: &'static Entry,
    ready: Ready,
    args: Args<'_>,
) -> Ran {
    let gate = call.session.gate;
    let mark = call.out.len();
    let refusal = refusal_after_relief(core, call.session, card, entry, args);
    if refusal.is_none() && must_wait(core, call.session, entry, args) {
        call.session.usage.commands -= 1;
        return Ran::Postponed;
    }
    if let Some(own) = call.session.tracking.as_mut().filter(|_| call.session.multi.is_none()) {
        own.begin_command(entry);
    }
    if let Some(line) = refusal {
        refuse(core, &mut call, entry, args, &line);
    } else if gate.has(Gate::MULTI) && !entry.spec.has(Marks::NOT_QUEUED) {
        queue(&mut call, entry, args);
    } else {
        let (session, out, token) = (call.session, call.out, call.token);
        let inner = Call { session: &mut *session, out: &mut *out, token };
        let goes_long = gate.has(Gate::NO_TOUCH) || core.live.import_mode;
        let ready = if goes_long { Ready { cell: None, ..ready } } else { ready };
        let ran = dispatch::run_checked(core, inner, card, entry, ready, args);
        if core.shared.monitors.is_any() {
            monitor::show(core, card, session.db, entry, args);
        }
        if gate.has(Gate::REPLY) && !entry.spec.has(Marks::ANSWERS_BY_PUSH) {
            let waits = ran == Ran::Stalled || session.parking.is_some();
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
pub fn must_wait(core: &mut Core, session: &Session, entry: &'static Entry, args: Args<'_>) -> bool {
    let pause = &core.shared.pause;
    let is_paused = pause.is_on(core.now_ms);
    if is_paused && pause.holds_reads(core.now_ms) {
        return true;
    }
    if !is_paused && !core.shared.snapshots.holds_writers() {
        return false;
    }
    let mut writes = |entry: &'static Entry, args: Args<'_>| {
        let is_tame = matches!(entry.run, Run::Script(way) if script_run::only_reads(core, way, args));
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

/// [`refusal`], where a lack of memory is one only if no room can be made.
pub(crate) fn refusal_after_relief(
    core: &mut Core,
    session: &Session,
    card: &ClientCard,
    entry: &'static Entry,
    args: Args<'_>,
) -> Option<Cow<'static, [u8]>> {
    let line = refusal(core, session, card, entry, args)?;
    if line.starts_with(b"OOM ") && !relief::refuses(core) {
        return refusal(core, session, card, entry, args);
    }
    Some(line)
}

/// Why a command may not run now, as an error line.
pub(crate) fn refusal(
    core: &Core,
    session: &Session,
    card: &ClientCard,
    entry: &'static Entry,
    args: Args<'_>,
) -> Option<Cow<'static, [u8]>> {
    let flags = entry.spec.flags;
    if !entry.spec.accepts(args.len()) || entry.lacks_sub(args.len()) {
        return Some(dispatch::misuse(entry, args).into());
    }
    if session.gate.has(Gate::LOGIN) && !flags.any(Flags::NO_AUTH) && core.shared.acl.default_needs_login() {
        return Some(b"NOAUTH Authentication required.".into());
    }
    if session.gate.has(Gate::RESTRICTED) && entry.is_restricted {
        return Some(RESTRICTED.as_bytes().into());
    }
    if session.gate.has(Gate::MULTI) && flags.any(Flags::NO_MULTI) {
        return Some(b"ERR Command not allowed inside a transaction".into());
    }
    if let Err(line) = guard::check(core, session, card, entry, args) {
        return Some(line.into());
    }
    if let Some(kind) = core.busy.filter(|_| !flags.any(Flags::ALLOW_BUSY)) {
        return Some(busy_line(kind).as_bytes().into());
    }
    if core.shared.snapshots.loading.is_on() && !flags.any(Flags::LOADING) {
        return Some(LOADING.into());
    }
    if core.refuses_writes() && (entry.spec.has(Marks::FAILS_WITH_SNAPSHOTS) || writes(session, entry)) {
        return Some(MISCONF.as_bytes().into());
    }
    if (flags.any(Flags::DENYOOM) || queued_some(session, entry, Flags::DENYOOM)) && core.is_over_memory() {
        return Some(Fault::OutOfMemory.line().into_owned().into_bytes().into());
    }
    if core.lacks_replicas() && writes(session, entry) {
        return Some(NO_REPLICAS.as_bytes().into());
    }
    if core.follows() && writes(session, entry) {
        return Some(READ_ONLY.as_bytes().into());
    }
    if core.is_stale()
        && !(flags.any(Flags::STALE)
            || entry.spec.has(Marks::RUNS_QUEUE) && !queued_unlike(session, Flags::STALE))
    {
        return Some(MASTER_DOWN.as_bytes().into());
    }
    if core.shared.journal.is_failing()
        && (flags.any(Flags::WRITE) || queued_some(session, entry, Flags::WRITE))
    {
        return Some(core.shared.journal.refusal().into());
    }
    if session.gate.has(Gate::SUBSCRIBED) && !entry.spec.has(Marks::ALLOWED_SUBSCRIBED) {
        let line = format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context",
            entry.spec.name
        );
        return Some(line.into_bytes().into());
    }
    None
}

/// The command that `args` name, if a script may run it now. Errors: the error line; it is counted as a rejected call.
pub fn in_script(bridge: &mut Bridge<'_>, args: Args<'_>) -> Result<&'static Entry, Cow<'static, str>> {
    const UNKNOWN: &str = "ERR Unknown Redis command called from script";
    let entry = find_command(&bridge.core.shared.registry, args).ok_or(UNKNOWN)?;
    match refusal_in_script(bridge, entry, args) {
        None => Ok(entry),
        Some(line) => {
            bridge.core.stats().commands[entry.id].rejected.add(1);
            Err(line)
        }
    }
}

fn refusal_in_script(
    bridge: &mut Bridge<'_>,
    entry: &'static Entry,
    args: Args<'_>,
) -> Option<Cow<'static, str>> {
    let core = &*bridge.core;
    let flags = entry.spec.flags;
    if !entry.spec.accepts(args.len()) {
        return Some("ERR Wrong number of args calling Redis command from script".into());
    }
    if flags.any(Flags::NOSCRIPT) && !may_debug(core, bridge.card, entry) {
        return Some("ERR This Redis command is not allowed from script".into());
    }
    if bridge.session.gate.has(Gate::RESTRICTED) && entry.is_restricted {
        return Some(RESTRICTED.into());
    }
    if let Err(line) = guard::check_in_script(core, bridge.session, bridge.card, entry, args) {
        return Some(String::from_utf8_lossy(&line).into_owned().into());
    }
    if flags.any(WRITES) && !bridge.may_write {
        return Some("ERR Write commands are not allowed from read-only scripts.".into());
    }
    let fills = flags.any(Flags::DENYOOM) && !bridge.has_written && !bridge.allows_oom;
    if fills && core.is_over_memory() {
        return Some("OOM command not allowed when used memory > 'maxmemory'.".into());
    }
    if !flags.any(Flags::WRITE) {
        return None;
    }
    if core.shared.journal.is_failing() {
        return Some("MISCONF Errors writing to the AOF file".into());
    }
    if !bridge.has_written && core.refuses_writes() {
        return Some(MISCONF.into());
    }
    if !bridge.has_written && core.lacks_replicas() {
        return Some(NO_REPLICAS.into());
    }
    if !bridge.has_written && core.follows() {
        return Some(READ_ONLY.into());
    }
    bridge.has_written = true;
    (!bridge.watch.note_write()).then(|| killed(bridge.watch.kind()).into())
}

/// Whether `entry` is a DEBUG that tests call from scripts, and may.
#[cold]
fn may_debug(core: &Core, card: &ClientCard, entry: &Entry) -> bool {
    entry.is_debug && core.shared.scripts.may_debug.load(Relaxed) && debug::is_allowed(core, card)
}

/// Whether a command changes data; EXEC does when one of its commands does.
fn writes(session: &Session, entry: &Entry) -> bool {
    entry.spec.flags.any(Flags::WRITE) || queued_some(session, entry, Flags::WRITE)
}

/// Why nothing runs while a snapshot is loading.
const LOADING: &[u8] = b"LOADING Redis is loading the dataset in memory";
/// Why nothing is written while `min-replicas-to-write` asks for some.
pub const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
/// Why nothing is written on a replica.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
/// Why nothing is answered while the master is away.
const MASTER_DOWN: &str = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
/// Why nothing is written after a snapshot has failed.
pub const MISCONF: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to \
disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during \
writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the \
RDB error.";
/// What a command of `restricted_commands` is answered elsewhere than on the admin port.
pub const RESTRICTED: &str = "ERR Cannot execute restricted command (admin only)";

/// Whether `entry` is EXEC and one of the commands it would run has one of `flags`.
pub fn queued_some(session: &Session, entry: &Entry, flags: Flags) -> bool {
    let queued = session.multi.as_ref().map_or(&[] as &[Queued], |multi| &multi.queued);
    entry.spec.has(Marks::RUNS_QUEUE) && queued.iter().any(|q| q.entry.spec.flags.any(flags))
}

/// Whether one of the commands that EXEC would run has none of `flags`.
fn queued_unlike(session: &Session, flags: Flags) -> bool {
    let queued = session.multi.as_ref().map_or(&[] as &[Queued], |multi| &multi.queued);
    queued.iter().any(|q| !q.entry.spec.flags.any(flags))
}

/// Answers a refused command. One between MULTI and EXEC breaks the transaction; a refused EXEC ends it.
#[cold]
pub fn refuse(core: &mut Core, call: &mut Call<'_>, entry: &'static Entry, args: Args<'_>, line: &[u8]) {
    if entry.spec.has(Marks::RUNS_QUEUE) {
        multi::forget(call.session);
        let cause = line.strip_prefix(b"ERR ").unwrap_or(line);
        let whole = [b"EXECABORT Transaction discarded because of: ", cause].concat();
        return dispatch::reject(core, call, entry, args, &whole);
    }
    if let Some(multi) = &mut call.session.multi {
        multi.is_broken = true;
    }
    dispatch::reject(core, call, entry, args, line);
}

fn queue(call: &mut Call<'_>, entry: &'static Entry, args: Args<'_>) {
    let Some(multi) = &mut call.session.multi else { return };
    let args = args.to_owned();
    multi.bytes += args.heap_bytes();
    if call.session.gate.has(Gate::ACL) && entry.spec.has(Marks::SELECTS) {
        multi.db = std::str::from_utf8(args.args().at(1)).ok().and_then(|text| text.parse().ok());
    }
    multi.queued.push(Queued { entry, args });
    Reply::new(call.out, call.session.resp3).status("QUEUED");
}

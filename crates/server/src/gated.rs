//! The way of commands that something stands before: login, MULTI, subscriptions, CLIENT REPLY and PAUSE, MONITOR,
//! a memory limit reached.
//!
//! Called by dispatch when the connection or the thread has a gate shut. The order of the checks is Redis'.

use std::borrow::Cow;

use darter_command::{Fault, Flags};
use darter_wire::{Args, Reply};

use crate::acl::guard;
use crate::clients::ClientCard;
use crate::core::Core;
use crate::dispatch::{self, Ready};
use crate::exec::{Call, Ran};
use crate::limit::relief;
use crate::monitor;
use crate::multi;
use crate::pause::WRITES;
use crate::registry::{Entry, Run};
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
    if let Some(line) = refusal_after_relief(core, call.session, card, entry, args) {
        refuse(core, &mut call, entry, &line);
    } else if must_wait(core, call.session, entry, args) {
        call.session.usage.commands -= 1;
        return Ran::Postponed;
    } else if gate.has(Gate::MULTI) && !is_run_inside_multi(entry) {
        queue(&mut call, entry, args);
    } else {
        let (session, out, token) = (call.session, call.out, call.token);
        let inner = Call { session: &mut *session, out: &mut *out, token };
        let ready = if gate.has(Gate::NO_TOUCH) { Ready { cell: None, ..ready } } else { ready };
        let ran = dispatch::run_checked(core, inner, card, entry, ready, args);
        if core.shared.monitors.is_any() {
            monitor::show(core, card, session.db, entry, args);
        }
        if let Some(own) = session.tracking.as_mut().filter(|own| own.caching) {
            own.caching = session.multi.is_some() || entry.spec.name.starts_with("client|");
        }
        if gate.has(Gate::REPLY) && !answers_by_push(entry) {
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

/// Whether a command must wait: CLIENT PAUSE is on, or a snapshot has fallen behind, and it may change data.
fn must_wait(core: &mut Core, session: &Session, entry: &'static Entry, args: Args<'_>) -> bool {
    let pause = &core.shared.pause;
    let is_paused = pause.is_on(core.now_ms);
    if is_paused && pause.holds_reads() {
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
        Some(multi) if entry.spec.name == "exec" => {
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
    if core.refuses_writes() && (entry.spec.name == "ping" || writes(session, entry)) {
        return Some(MISCONF.as_bytes().into());
    }
    if (flags.any(Flags::DENYOOM) || queued_some(session, entry, Flags::DENYOOM)) && core.is_over_memory() {
        return Some(Fault::OutOfMemory.line().into_owned().into_bytes().into());
    }
    if core.lacks_replicas() && writes(session, entry) {
        return Some(NO_REPLICAS.as_bytes().into());
    }
    if core.shared.journal.is_failing()
        && (flags.any(Flags::WRITE) || queued_some(session, entry, Flags::WRITE))
    {
        return Some(core.shared.journal.refusal().into());
    }
    if session.gate.has(Gate::SUBSCRIBED) && !is_allowed_subscribed(entry) {
        let line = format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context",
            entry.spec.name
        );
        return Some(line.into_bytes().into());
    }
    None
}

/// Whether a command changes data; EXEC does when one of its commands does.
fn writes(session: &Session, entry: &Entry) -> bool {
    entry.spec.flags.any(Flags::WRITE) || queued_some(session, entry, Flags::WRITE)
}

/// Why nothing runs while a snapshot is loading.
const LOADING: &[u8] = b"LOADING Redis is loading the dataset in memory";
/// Why nothing is written while `min-replicas-to-write` asks for some.
pub const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
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
    entry.spec.name == "exec" && queued.iter().any(|q| q.entry.spec.flags.any(flags))
}

/// Answers a refused command. One between MULTI and EXEC breaks the transaction; a refused EXEC ends it.
#[cold]
pub fn refuse(core: &mut Core, call: &mut Call<'_>, entry: &'static Entry, line: &[u8]) {
    if entry.spec.name == "exec" {
        multi::forget(call.session);
        let cause = line.strip_prefix(b"ERR ").unwrap_or(line);
        let whole = [b"EXECABORT Transaction discarded because of: ", cause].concat();
        return dispatch::reject(core, call, entry, &whole);
    }
    if let Some(multi) = &mut call.session.multi {
        multi.is_broken = true;
    }
    dispatch::reject(core, call, entry, line);
}

fn is_allowed_subscribed(entry: &Entry) -> bool {
    answers_by_push(entry) || matches!(entry.spec.name, "ping" | "quit" | "reset")
}

/// The commands that change subscriptions: what they answer are messages, which CLIENT REPLY lets through.
fn answers_by_push(entry: &Entry) -> bool {
    matches!(
        entry.spec.name,
        "subscribe" | "unsubscribe" | "psubscribe" | "punsubscribe" | "ssubscribe" | "sunsubscribe"
    )
}

fn is_run_inside_multi(entry: &Entry) -> bool {
    matches!(entry.spec.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

fn queue(call: &mut Call<'_>, entry: &'static Entry, args: Args<'_>) {
    let Some(multi) = &mut call.session.multi else { return };
    let args = args.to_owned();
    multi.bytes += args.heap_bytes();
    if call.session.gate.has(Gate::ACL) && entry.spec.name == "select" {
        multi.db = std::str::from_utf8(args.args().at(1)).ok().and_then(|text| text.parse().ok());
    }
    multi.queued.push(Queued { entry, args });
    Reply::new(call.out, call.session.resp3).status("QUEUED");
}

//! From parsed arguments to a running command: lookup, the checks that come first, and the two ways on.

use std::time::Instant;

use darter_command::{Fault, Flags};
use darter_store::Key;
use darter_wire::{Args, Reply};

use crate::core::Core;
use crate::exec::{self, Call, Ran};
use crate::registry::{Entry, Run};
use crate::session::{Gate, Queued, ReplyMode, Session};
use crate::slowlog::{SlowEntry, shorten};

/// The body of a command about the connection or the server.
pub type ServerRun = fn(&mut Caller<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), Fault>;

/// What a server command may touch.
pub struct Caller<'a> {
    /// The thread.
    pub core: &'a mut Core,
    /// The connection's state.
    pub session: &'a mut Session,
    /// What others see of it.
    pub card: &'a crate::clients::ClientCard,
}

/// A command of the parse window, looked up and with its first key hashed.
#[derive(Clone, Copy)]
pub struct Ready {
    /// Which, if there is one of that name.
    pub entry: Option<&'static Entry>,
    /// Hash of its only key, when it is a data command with one key.
    pub hash: Option<u64>,
}

/// Looks a command up and asks for the memory it will touch first.
#[inline]
pub fn prepare(core: &Core, args: Args<'_>) -> Ready {
    let shared = core.shared;
    let entry = shared.registry.find(args.at(0));
    let hash = match entry {
        Some(found) if found.is_single && args.len() > 1 => {
            let hash = shared.router.hasher().hash(args.at(1));
            shared.cells[usize::from(shared.router.shard_of(hash))].prefetch();
            Some(hash)
        }
        _ => None,
    };
    Ready { entry, hash }
}

/// Runs one command of a connection.
#[inline]
pub fn execute(
    core: &mut Core,
    mut call: Call<'_>,
    card: &crate::clients::ClientCard,
    ready: Ready,
    args: Args<'_>,
) -> Ran {
    let Some(entry) = ready.entry else {
        unknown_command(core, &mut call, args);
        return Ran::Done;
    };
    if call.session.gate.0 != 0 || core.is_gated {
        return execute_gated(core, call, card, entry, ready, args);
    }
    run_checked(core, call, card, entry, ready, args)
}

#[inline]
fn run_checked(
    core: &mut Core,
    mut call: Call<'_>,
    card: &crate::clients::ClientCard,
    entry: &'static Entry,
    ready: Ready,
    args: Args<'_>,
) -> Ran {
    if !entry.spec.accepts(args.len()) {
        wrong_arity(core, &mut call, entry);
        return Ran::Done;
    }
    let stats = &core.stats().commands[entry.id];
    stats.calls.add(1);
    core.ticks = core.ticks.wrapping_add(1);
    if entry.is_cheap && !core.times_all && core.ticks % SAMPLE != 0 {
        return run(core, call, card, entry, ready, args);
    }
    let weight = if entry.is_cheap && !core.times_all { u64::from(SAMPLE) } else { 1 };
    let began = Instant::now();
    let ran = run(core, call, card, entry, ready, args);
    let took = began.elapsed();
    stats.nanos.add(took.as_nanos() as u64 * weight);
    if took.as_micros() >= u128::from(core.live.slowlog.slower_us)
        && !entry.spec.flags.any(Flags::SKIP_SLOWLOG)
    {
        note_slow(core, card, took.as_micros() as u64, args);
    }
    ran
}

/// One of so many cheap commands is timed.
const SAMPLE: u32 = 64;

#[inline]
fn run(
    core: &mut Core,
    call: Call<'_>,
    card: &crate::clients::ClientCard,
    entry: &'static Entry,
    ready: Ready,
    args: Args<'_>,
) -> Ran {
    if let Some(hash) = ready.hash {
        return exec::run_single(core, call, entry, args, Key { bytes: args.at(1), hash });
    }
    if !entry.subs.is_empty() {
        return run_sub(core, call, card, entry, args);
    }
    match entry.run {
        Run::Data(_) => exec::run_multi(core, call, entry, args),
        Run::Server(body) => run_server(core, call, card, entry, body, args),
        Run::Txn(body) => body(core, call, card, args),
    }
}

fn run_sub(
    core: &mut Core,
    mut call: Call<'_>,
    card: &crate::clients::ClientCard,
    entry: &'static Entry,
    args: Args<'_>,
) -> Ran {
    let Some(sub) = entry.sub(args.at(1)) else {
        let name = entry.spec.name.to_ascii_uppercase();
        let line = format!("ERR unknown subcommand '{}'. Try {name} HELP.", printable(args.at(1)));
        fail(core, &mut call, entry, &line);
        return Ran::Done;
    };
    if !sub.spec.accepts(args.len()) {
        wrong_arity(core, &mut call, sub);
        return Ran::Done;
    }
    core.stats().commands[sub.id].calls.add(1);
    match sub.run {
        Run::Data(_) => exec::run_multi(core, call, sub, args),
        Run::Server(body) => run_server(core, call, card, sub, body, args),
        Run::Txn(body) => body(core, call, card, args),
    }
}

fn run_server(
    core: &mut Core,
    call: Call<'_>,
    card: &crate::clients::ClientCard,
    entry: &'static Entry,
    body: ServerRun,
    args: Args<'_>,
) -> Ran {
    let mut reply = Reply::new(call.out, call.session.resp3);
    let mark = reply.len();
    let mut caller = Caller { core, session: call.session, card };
    if let Err(fault) = body(&mut caller, args, &mut reply) {
        exec::refuse(core, entry, &fault, &mut reply, mark);
    }
    Ran::Done
}

/// The way of commands that something stands before: login, MULTI, subscriptions, CLIENT REPLY.
#[cold]
fn execute_gated(
    core: &mut Core,
    mut call: Call<'_>,
    card: &crate::clients::ClientCard,
    entry: &'static Entry,
    ready: Ready,
    args: Args<'_>,
) -> Ran {
    let gate = call.session.gate;
    let mark = call.out.len();
    let is_muted = gate.has(Gate::REPLY);
    if let Some(line) = refusal(core, call.session, entry, args) {
        if let Some(multi) = &mut call.session.multi {
            multi.is_broken = true;
        }
        core.stats().commands[entry.id].rejected.add(1);
        Reply::new(call.out, call.session.resp3).error(line.as_bytes());
        core.count_error(&line);
    } else if gate.has(Gate::MULTI) && !is_run_inside_multi(entry) {
        queue(core, &mut call, entry, args);
    } else {
        let (session, out, token) = (call.session, call.out, call.token);
        let inner = Call { session: &mut *session, out: &mut *out, token };
        let ran = run_checked(core, inner, card, entry, ready, args);
        if is_muted {
            mute(session, out, mark);
        }
        return ran;
    }
    if is_muted {
        mute(call.session, call.out, mark);
    }
    Ran::Done
}

fn mute(session: &mut Session, out: &mut Vec<u8>, mark: usize) {
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

/// Why a command may not run now, as an error line.
fn refusal(core: &Core, session: &Session, entry: &Entry, args: Args<'_>) -> Option<String> {
    let flags = entry.spec.flags;
    if session.gate.has(Gate::LOGIN) && !flags.any(Flags::NO_AUTH) {
        return Some("NOAUTH Authentication required.".into());
    }
    if session.gate.has(Gate::SUBSCRIBED) && !is_allowed_subscribed(entry) {
        return Some(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            entry.spec.name
        ));
    }
    if session.gate.has(Gate::MULTI) {
        if !entry.spec.accepts(args.len()) {
            return Some(format!("ERR wrong number of arguments for '{}' command", entry.spec.name));
        }
        if flags.any(Flags::NO_MULTI) {
            return Some("ERR Command not allowed inside a transaction".into());
        }
    }
    let is_over = core.shared.is_over_limit.load(std::sync::atomic::Ordering::Relaxed);
    if is_over && flags.any(Flags::DENYOOM) {
        return Some(Fault::OutOfMemory.line().into_owned());
    }
    None
}

fn is_allowed_subscribed(entry: &Entry) -> bool {
    matches!(
        entry.spec.name,
        "subscribe"
            | "unsubscribe"
            | "psubscribe"
            | "punsubscribe"
            | "ssubscribe"
            | "sunsubscribe"
            | "ping"
            | "quit"
            | "reset"
    )
}

fn is_run_inside_multi(entry: &Entry) -> bool {
    matches!(entry.spec.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

fn queue(core: &mut Core, call: &mut Call<'_>, entry: &'static Entry, args: Args<'_>) {
    let Some(multi) = &mut call.session.multi else { return };
    if !entry.subs.is_empty() && entry.sub(args.at(1)).is_none() {
        multi.is_broken = true;
        let name = entry.spec.name.to_ascii_uppercase();
        let line = format!("ERR unknown subcommand '{}'. Try {name} HELP.", printable(args.at(1)));
        fail(core, call, entry, &line);
        return;
    }
    multi.queued.push(Queued { entry, args: args.to_owned() });
    Reply::new(call.out, call.session.resp3).status("QUEUED");
}

#[cold]
fn unknown_command(core: &mut Core, call: &mut Call<'_>, args: Args<'_>) {
    if call.session.gate.has(Gate::LOGIN) {
        Reply::new(call.out, call.session.resp3).error("NOAUTH Authentication required.");
        core.count_error("NOAUTH");
        return;
    }
    let mut shown = String::new();
    for arg in args.iter().skip(1) {
        if shown.len() >= 128 {
            break;
        }
        let text = printable(arg);
        let room = 128usize.saturating_sub(shown.len());
        shown.push_str(&format!("'{}' ", text.chars().take(room).collect::<String>()));
    }
    let name: String = printable(args.at(0)).chars().take(128).collect();
    let line = format!("ERR unknown command '{name}', with args beginning with: {shown}");
    if let Some(multi) = &mut call.session.multi {
        multi.is_broken = true;
    }
    Reply::new(call.out, call.session.resp3).error(line.as_bytes());
    core.count_error(&line);
}

fn printable(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect::<String>()
}

#[cold]
fn wrong_arity(core: &mut Core, call: &mut Call<'_>, entry: &'static Entry) {
    let line = format!("ERR wrong number of arguments for '{}' command", entry.spec.name);
    core.stats().commands[entry.id].rejected.add(1);
    Reply::new(call.out, call.session.resp3).error(line.as_bytes());
    core.count_error(&line);
}

#[cold]
fn fail(core: &mut Core, call: &mut Call<'_>, entry: &'static Entry, line: &str) {
    core.stats().commands[entry.id].rejected.add(1);
    Reply::new(call.out, call.session.resp3).error(line.as_bytes());
    core.count_error(line);
}

#[cold]
fn note_slow(core: &Core, card: &crate::clients::ClientCard, duration_us: u64, args: Args<'_>) {
    let words = card.words.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let entry = SlowEntry {
        id: 0,
        unix_s: core.now_ms / 1000,
        duration_us,
        args: shorten(args),
        peer: card.peer.clone(),
        name: words.name.clone(),
    };
    drop(words);
    let mut log = core.shared.slowlog.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    log.push(entry, core.live.slowlog.max_len as usize);
}

impl Core {
    /// Counts an error reply under its first word.
    #[cold]
    pub fn count_error(&self, line: &str) {
        self.stats().errors.add(1);
        let prefix = line.split(' ').next().unwrap_or("ERR");
        let mut errors = self.shared.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *errors.entry(prefix.to_owned()).or_default() += 1;
    }
}

//! From parsed arguments to a running command: lookup, the checks that come first, and the two ways on.

use std::time::Duration;

use darter_command::{Fault, Reach};
use darter_store::Key;
use darter_wire::{Args, Reply, Short};

use crate::acl::guard;
use crate::clients::ClientInfo;
use crate::command_log::large;
use crate::commands;
use crate::engine::cluster::{moving, route};
use crate::engine::lease_timer::LeaseTimer;
use crate::engine::{admit, lease, plan};
use crate::exec::multi_key;
use crate::exec::{self, CommandCall, Ran};
use crate::fieldsets;
use crate::job::{JobBody, Shards};
use crate::registry::{CommandEntry, RunKind};
use crate::script_run;
use crate::session::{Gate, Session};
use crate::shared::ShardCell;
use crate::thread_state::ThreadState;
use crate::transaction;

/// The body of a command about the connection or the server.
pub type ServerRun = fn(&mut Caller<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), Fault>;

/// What a server command may touch.
pub struct Caller<'a> {
    /// The thread.
    pub local: &'a mut ThreadState,
    /// The connection's state.
    pub session: &'a mut Session,
    /// What others see of it.
    pub info: &'a ClientInfo,
    /// False inside MULTI and scripts, where nothing may wait.
    pub may_wait: bool,
    /// The shards that EXEC or the script has already; nobody else can look into them meanwhile.
    pub held: Option<&'a mut Shards>,
}

/// A command looked up, and with its only key hashed.
#[derive(Clone, Copy)]
pub struct Resolved {
    /// Which, if there is one of that name.
    pub entry: Option<&'static CommandEntry>,
    /// The shard of its only key, when it is a data command with one key and as many arguments as it takes.
    pub cell: Option<&'static ShardCell>,
    /// Hash of that key.
    pub hash: u64,
}

/// Looks a command or subcommand up and asks for the memory it will touch first.
#[inline]
pub fn prepare(local: &ThreadState, args: Args<'_>) -> Resolved {
    let shared = local.shared;
    let entry = shared.registry.find_named(args);
    match entry {
        Some(found) if found.is_single_of(args.len() as u32) => {
            let hash = shared.router.hasher().hash_key(args.at(1));
            let cell = shared.cells.get(usize::from(shared.router.shard_of(hash)));
            cell.inspect(|cell| cell.prefetch());
            Resolved { entry, cell, hash }
        }
        Some(found) if !found.subs.is_empty() => {
            Resolved { entry: found.sub(args.at(1)).or(entry), cell: None, hash: 0 }
        }
        _ => Resolved { entry, cell: None, hash: 0 },
    }
}

/// [`prepare`] for a request in one piece; `None` when it is no data command with one key.
#[inline(always)]
pub fn prepare_short(local: &ThreadState, short: &Short<'_>) -> Option<Resolved> {
    let entry = local.shared.registry.find_word(short.name)?;
    match entry.is_single_of(short.args_len) {
        true if local.shared.router.hasher().is_by_slot() => prepare_like::<true>(local, entry, short),
        true => prepare_like::<false>(local, entry, short),
        false => None,
    }
}

/// [`prepare_short`] when another request of as many arguments was prepared before. `BY_SLOT`: shards follow slots. Not asked
/// here, for the other hash is a call, beside which a loop keeps nothing in registers.
#[inline(always)]
pub fn prepare_like<const BY_SLOT: bool>(
    local: &ThreadState,
    entry: &'static CommandEntry,
    short: &Short<'_>,
) -> Option<Resolved> {
    let shared = local.shared;
    let hasher = shared.router.hasher();
    let hash = if BY_SLOT { hasher.hash_with_slot(short.key) } else { hasher.hash(short.key) };
    let cell = shared.cells.get(usize::from(shared.router.shard_of(hash)))?;
    cell.prefetch();
    Some(Resolved { entry: Some(entry), cell: Some(cell), hash })
}

/// Runs one command of a connection.
#[inline]
pub fn execute(
    local: &mut ThreadState,
    mut call: CommandCall<'_>,
    info: &ClientInfo,
    ready: Resolved,
    args: Args<'_>,
) -> Ran {
    let Some(entry) = ready.entry else {
        unknown_command(local, &mut call, args);
        return Ran::Done;
    };
    let usage = &mut call.session.usage;
    usage.commands += 1;
    usage.last_command = entry.id as u32;
    let gate = call.session.gate;
    let is_shut = gate.0 != 0 || local.is_gated;
    let is_brief = gate.0 & !(Gate::ACL.0 | Gate::CLUSTER.0) == 0 && !local.is_gated;
    if is_shut && !(is_brief && lets_through(local, call.session, entry, args)) {
        return admit::execute(local, call, info, entry, ready, args);
    }
    run_checked(local, call, info, entry, ready, args)
}

/// Whether the rights of the connection's user and the slots of this node let a command run. If not, the long way finds
/// out why.
#[inline]
fn lets_through(
    local: &ThreadState,
    session: &Session,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> bool {
    let gate = session.gate;
    (!gate.has(Gate::ACL) || guard::lets_through(local, session, entry, args))
        && (!gate.has(Gate::CLUSTER) || route::lets_through(local, session, entry, args))
}

/// Runs a command that nothing stands before but its own number of arguments.
#[inline]
pub(crate) fn run_checked(
    local: &mut ThreadState,
    mut call: CommandCall<'_>,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    ready: Resolved,
    args: Args<'_>,
) -> Ran {
    if !entry.spec.accepts(args.len()) || entry.lacks_sub(args.len()) {
        admit::refuse(local, &mut call, entry, args, &misuse(entry, args));
        return Ran::Done;
    }
    let calls = local.stats().commands[entry.id].calls.bump();
    let (client, before) = (call.session.id, call.out.len());
    let has_one_key = ready.cell.is_some() || entry.is_brief_many(args.len());
    if !entry.is_timed(calls, local.times_all, has_one_key) {
        let ran = run(local, call.again(), info, entry, ready, args);
        if ran == Ran::Done {
            large::note_reply(local, client, entry, args, call.out.len().saturating_sub(before));
        }
        return ran;
    }
    let hold = LeaseTimer::begin();
    let ran = run(local, call.again(), info, entry, ready, args);
    let took = hold.took();
    if matches!(entry.run, RunKind::Data(_)) {
        hold.note(local, took);
    }
    // What waits is timed, and its reply measured, where it runs in the end.
    if ran == Ran::Done {
        large::note_reply(local, client, entry, args, call.out.len().saturating_sub(before));
        let weight = entry.weight(local.times_all, has_one_key);
        crate::command_log::timing::note(local, info, entry, args, took, weight);
        if took >= CLOCK_STEP {
            // What follows in the same turn finds dead what has died meanwhile.
            local.now_ms = crate::clock::unix_ms();
        }
    }
    ran
}

#[inline]
fn run(
    local: &mut ThreadState,
    mut call: CommandCall<'_>,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    ready: Resolved,
    args: Args<'_>,
) -> Ran {
    if let Some(cell) = ready.cell {
        let key = Key { bytes: args.at(1), hash: ready.hash };
        if call.session.gate.has(Gate::TRACKING) {
            return exec::run_tracked(local, call, entry, args, cell, key);
        }
        return exec::run_single(local, call, entry, args, cell, key);
    }
    if entry.is_debug && !commands::debug::is_allowed(local, info) {
        reject(local, &mut call, entry, args, commands::debug::NOT_ALLOWED.as_bytes());
        return Ran::Done;
    }
    match entry.run {
        RunKind::Data(_) if entry.is_import => {
            match fieldsets::expand(call.session.fieldsets.as_deref(), args) {
                Ok(whole) => exec::run_multi(local, call, entry, whole.args()),
                Err(fault) => {
                    let mut reply = Reply::new(call.out, call.session.resp3);
                    let mark = reply.len();
                    exec::refuse(local, entry, &fault, &mut reply, mark);
                    Ran::Done
                }
            }
        }
        RunKind::Data(_)
            if !local.shows_dead_apart
                && !moving::is_any(local)
                && multi_key::is_for(entry, call.session, args)
                && multi_key::run(local, &mut call, entry, args) =>
        {
            Ran::Done
        }
        RunKind::Data(_) => exec::run_multi(local, call, entry, args),
        RunKind::Server(id) if matches!(entry.spec.reach, Reach::Keys) => {
            run_server(local, call, info, entry, commands::rows::body(id), args)
        }
        RunKind::Server(id) => run_holding(local, call, info, entry, commands::rows::body(id), args),
        RunKind::Txn(id) => transaction::body(id)(local, call, info, args),
        RunKind::Script(way) => script_run::start(local, call, info, entry, way, args),
    }
}

fn run_server(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    body: ServerRun,
    args: Args<'_>,
) -> Ran {
    let mut reply = Reply::new(call.out, call.session.resp3);
    let mark = reply.len();
    let mut caller = Caller { local, session: call.session, info, may_wait: true, held: None };
    if let Err(fault) = body(&mut caller, args, &mut reply) {
        exec::refuse(local, entry, &fault, &mut reply, mark);
    }
    call.session.send_own_messages(call.out);
    Ran::Done
}

/// As [`run_server`], with shards held.
#[cold]
fn run_holding(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    body: ServerRun,
    args: Args<'_>,
) -> Ran {
    let wanted = plan::lock_set(&entry.spec, args, &local.shared.router);
    let grant = match lease::take(local, &wanted) {
        Ok(grant) => grant,
        Err(grant) => {
            let body = JobBody::Script { entry, args: args.to_owned() };
            return exec::post(local, call, body, wanted, grant);
        }
    };
    let ran = run_server(local, call, info, entry, body, args);
    lease::release(local, grant);
    ran
}

/// Returns the error of a command that is not called as its row says.
#[cold]
pub(crate) fn misuse(entry: &CommandEntry, args: Args<'_>) -> Vec<u8> {
    if !entry.spec.accepts(args.len()) {
        return format!("ERR wrong number of arguments for '{}' command", entry.spec.name).into_bytes();
    }
    let mut line = b"ERR unknown subcommand '".to_vec();
    line.extend_from_slice(cut(args.at(1), ECHOED_BYTES_MAX));
    line.extend_from_slice(b"'. Try ");
    line.extend_from_slice(&args.at(0).to_ascii_uppercase());
    line.extend_from_slice(b" HELP.");
    line
}

#[cold]
fn unknown_command(local: &mut ThreadState, call: &mut CommandCall<'_>, args: Args<'_>) {
    let name = args.at(0);
    if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
        // A browser that was made to talk to this port: nothing it says may be run.
        tracing::warn!("possible attack: client {} speaks HTTP, connection closed", call.session.id);
        call.session.is_closing = true;
        return;
    }
    let line = unknown_line(args);
    let mark = call.out.len();
    if let Some(multi) = &mut call.session.multi {
        multi.is_broken = true;
    }
    Reply::new(call.out, call.session.resp3).error(&line);
    local.count_error("ERR");
    admit::mute(call.session, call.out, mark);
}

/// The error of a command that is not known.
pub(crate) fn unknown_line(args: Args<'_>) -> Vec<u8> {
    let mut line = b"ERR unknown command '".to_vec();
    line.extend_from_slice(cut(args.at(0), ECHOED_BYTES_MAX));
    line.extend_from_slice(b"', with args beginning with: ");
    let start = line.len();
    for arg in args.iter().skip(1) {
        let shown = line.len() - start;
        if shown >= ECHOED_BYTES_MAX {
            break;
        }
        line.push(b'\'');
        line.extend_from_slice(cut(arg, ECHOED_BYTES_MAX - shown));
        line.extend_from_slice(b"' ");
    }
    line
}

/// A command that took as long moves the turn's clock on.
const CLOCK_STEP: Duration = Duration::from_millis(1);

/// Bytes of a wrong word, and of the arguments after it, that an error repeats.
const ECHOED_BYTES_MAX: usize = 128;

/// At most `len_max` bytes of `text`, which ends at a NUL as it does in C.
fn cut(text: &[u8], len_max: usize) -> &[u8] {
    let text = &text[..text.len().min(len_max)];
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Answers a command that is not run.
#[cold]
pub(crate) fn reject(
    local: &mut ThreadState,
    call: &mut CommandCall<'_>,
    entry: &'static CommandEntry,
    args: Args<'_>,
    line: &[u8],
) {
    // A subcommand that does not exist is no command, and nothing is counted for its container.
    if !(entry.spec.accepts(args.len()) && entry.lacks_sub(args.len())) {
        local.stats().commands[entry.id].rejected.add(1);
    }
    Reply::new(call.out, call.session.resp3).error(line);
    let code = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    local.count_error(std::str::from_utf8(code).unwrap_or("ERR"));
}

impl ThreadState {
    /// Counts an error reply under its first word.
    #[cold]
    pub fn count_error(&self, line: &str) {
        self.count_error_below(line, ERRORS_MAX);
    }

    /// Notes that a command called by a script has failed with this line, and was counted.
    #[cold]
    pub fn note_script_error(&mut self, line: &[u8]) {
        self.script_error = code_of(line).to_vec();
    }

    /// Counts the error that a script ends with, unless it is the one of a command that it has called.
    #[cold]
    pub fn count_script_error(&mut self, line: &[u8]) {
        let (code, called) = (code_of(line), std::mem::take(&mut self.script_error));
        if code != called {
            self.count_error_below(&String::from_utf8_lossy(code), MADE_ERRORS_MAX);
        }
    }

    fn count_error_below(&self, line: &str, kinds_max: usize) {
        self.stats().errors.add(1);
        let prefix = line.split(' ').next().unwrap_or("ERR");
        let mut errors = self.shared.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(count) = errors.get_mut(prefix) {
            *count += 1;
        } else {
            let name = if errors.len() < kinds_max { prefix } else { ERRORS_BEYOND };
            *errors.entry(name.to_owned()).or_default() += 1;
        }
    }
}

/// The first word of an error.
fn code_of(line: &[u8]) -> &[u8] {
    line.split(|byte| matches!(byte, b' ' | b'\r')).next().unwrap_or_default()
}

/// Kinds of errors that are counted one by one: scripts can make up any number, the server has a few dozen.
const ERRORS_MAX: usize = 256;
const MADE_ERRORS_MAX: usize = 128;
/// Under which name INFO counts the others.
const ERRORS_BEYOND: &str = "ERRORSTATS_OVERFLOW";

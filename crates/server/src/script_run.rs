//! EVAL and its kin: a script takes its shards as EXEC does, then runs as one on its connection's thread.
//!
//! A script whose source shows that it touches only declared keys takes their shards; any other takes them all, so
//! that no key can turn up whose shard is not held, no run has to begin again, and none waits while it holds.

pub mod host;

use crate::engine::cluster::links::Routed;
use std::collections::HashMap;
use std::sync::Arc;

use darter_base::number;
use darter_command::spec::{Group, Keys};
use darter_command::{Fault, Flags, Spec};
use darter_config::Live;
use darter_engine::admit::NO_REPLICAS;
use darter_script::script::ScriptFlags;
use darter_script::{Engine, Library, Script};
use darter_txn::LockSet;
use darter_wire::{Args, Reply};

use crate::clients::ClientInfo;
use crate::engine::cluster::moving;
use crate::engine::cluster::route::{self, ScriptSlots};
use crate::engine::lease_timer::LeaseTimer;
use crate::engine::origin::ChangedBy;
use crate::engine::{admit, commit, lease, plan};
use crate::exec::{self, CommandCall, Ran};
use crate::job::{JobBody, Shards};
use crate::libraries::Libraries;
use crate::monitor;
use crate::registry::{CommandEntry, RunBy, RunKind, RunWay};
use crate::script_run::host::{Bridge, serve_others};
use crate::scripts::{Cached, Scripts};
use crate::session::{Gate, Session};
use crate::static_keys::is_contained;
use crate::thread_state::ThreadState;

const KEYS: Keys = Keys::Count { at: 2, dest: 0 };
const BASE: Flags = Flags::NOSCRIPT
    .with(Flags::STALE)
    .with(Flags::SKIP_MONITOR)
    .with(Flags::NO_MANDATORY_KEYS)
    .with(Flags::MOVABLEKEYS);
const WRITER: Flags = BASE.with(Flags::MAY_REPLICATE);
const READER: Flags = BASE.with(Flags::READONLY);
const COST: &str = "Depends on the script that is executed.";

const fn eval(name: &'static str, flags: Flags, since: &'static str, syntax: &'static str) -> Spec {
    Spec { keys: KEYS, ..Spec::other(name, -3) }
        .flag(flags)
        .doc(Group::Scripting, since, syntax, "Runs a Lua script as one command.")
        .cost(COST)
}

const BY_TEXT: &str = "script numkeys [key [key ...]] [arg [arg ...]]";
const BY_NAME: &str = "function numkeys [key [key ...]] [arg [arg ...]]";
const BY_SHA: &str = "sha1 numkeys [key [key ...]] [arg [arg ...]]";

/// The commands that run scripts.
pub const FAMILY: &[(Spec, RunWay)] = &[
    (
        eval("eval", WRITER, "2.6.0", BY_TEXT)
            .key_access("RW access update")
            .key_notes("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
        RunWay { by: RunBy::Text, may_write: true },
    ),
    (
        eval("evalsha", WRITER, "2.6.0", BY_SHA)
            .key_access("RW access update")
            .key_notes("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
        RunWay { by: RunBy::Sha, may_write: true },
    ),
    (
        eval("eval_ro", READER, "7.0.0", BY_TEXT)
            .key_notes("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
        RunWay { by: RunBy::Text, may_write: false },
    ),
    (eval("evalsha_ro", READER, "7.0.0", BY_SHA), RunWay { by: RunBy::Sha, may_write: false }),
    (
        eval("fcall", WRITER, "7.0.0", BY_NAME)
            .key_access("RW access update")
            .key_notes("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
        RunWay { by: RunBy::Function, may_write: true },
    ),
    (
        eval("fcall_ro", READER, "7.0.0", BY_NAME)
            .key_notes("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
        RunWay { by: RunBy::Function, may_write: false },
    ),
];

/// A thread's Lua, made when its first script comes.
#[derive(Default)]
pub struct Interpreter {
    engine: Option<Box<Engine>>,
    /// Scripts that came by EVAL, by a hash of their text: finding one there is cheaper than its SHA-1.
    texts: HashMap<u64, Arc<Cached>>,
    flushes: u64,
}

/// Texts one thread remembers.
const TEXTS_MAX: usize = 512;

impl Interpreter {
    /// Starts over if all scripts were forgotten.
    fn settle(&mut self, scripts: &Scripts) {
        let flushes = scripts.flushes();
        if self.flushes != flushes {
            *self = Interpreter { flushes, ..Interpreter::default() };
        }
    }

    fn by_text(&mut self, scripts: &Scripts, hash: u64, source: &[u8]) -> Option<Arc<Cached>> {
        self.settle(scripts);
        let cached = self.texts.get(&hash).filter(|cached| *cached.script.source == *source)?;
        // Others may have pushed it out since, and EVALSHA must find it again.
        Some(scripts.find(&cached.script.sha).unwrap_or_else(|| scripts.add(cached.clone(), true)))
    }

    fn remember(&mut self, hash: u64, cached: &Arc<Cached>) {
        if self.texts.len() >= TEXTS_MAX {
            self.texts.clear();
        }
        self.texts.insert(hash, cached.clone());
    }

    fn ready(&mut self, scripts: &Scripts, thread: u16, live: &Live) -> Result<&mut Engine, Fault> {
        self.settle(scripts);
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => {
                let watch = scripts.watches[usize::from(thread)].clone();
                let engine =
                    Engine::new(watch).map_err(|cause| Fault::Text(format!("ERR {cause}").into()))?;
                none.insert(Box::new(engine))
            }
        };
        engine.limit_memory(live.script_memory_max());
        Ok(engine)
    }
}

/// Knows a script by its text from now on. Errors: it cannot be compiled.
pub fn learn(local: &mut ThreadState, source: &[u8], by_eval: bool) -> Result<Arc<Cached>, Fault> {
    let as_fault = |line: String| Fault::Text(line.into());
    let scripts = &local.shared.scripts;
    let hash = local.shared.router.hasher().hash(source);
    if let Some(cached) = local.lua.by_text(scripts, hash, source).filter(|_| by_eval) {
        return Ok(cached);
    }
    let script = Script::new(source).map_err(as_fault)?;
    let cached = match scripts.find(&script.sha).filter(|_| by_eval) {
        Some(cached) => cached,
        None => {
            local.lua.ready(scripts, local.thread, &local.live)?.compile(&script).map_err(as_fault)?;
            let is_contained = is_contained(&local.shared.registry, script.code());
            scripts.add(Cached { script, is_contained }, by_eval)
        }
    };
    if by_eval {
        local.lua.remember(hash, &cached);
    }
    Ok(cached)
}

/// Knows a library by its text. Errors: it cannot be loaded.
pub fn load_library(local: &mut ThreadState, source: &[u8]) -> Result<Library, Fault> {
    let engine = local.lua.ready(&local.shared.scripts, local.thread, &local.live)?;
    engine.load_library(source).map_err(|line| Fault::Text(line.into()))
}

/// Replaces all libraries by those of a snapshot. One that cannot be loaded is left out, and the log says so.
pub fn know_libraries(local: &mut ThreadState, codes: &[Vec<u8>]) {
    let mut known = Libraries::default();
    for code in codes {
        let added = load_library(local, code).and_then(|library| known.insert(Arc::new(library)));
        if let Err(fault) = added {
            tracing::error!("a library of functions is left out: {}", fault.line());
        }
    }
    *local.shared.scripts.libraries_mut() = known;
}

/// What can be run, and how its words divide.
struct ScriptPlan {
    what: ScriptSubject,
    keys_len: usize,
    may_write: bool,
}

enum ScriptSubject {
    Script(Arc<Cached>),
    Function(Arc<Library>, usize),
}

impl ScriptSubject {
    fn flags(&self) -> ScriptFlags {
        match self {
            ScriptSubject::Script(cached) => cached.script.flags,
            ScriptSubject::Function(library, at) => library.functions[*at].flags,
        }
    }
}

/// Characters of a script's digest.
const SHA1_HEX_LEN: usize = 40;

fn plan(local: &mut ThreadState, way: RunWay, args: Args<'_>) -> Result<ScriptPlan, Fault> {
    let is_function = way.by == RunBy::Function;
    const UNKNOWN_FUNCTION: Fault = Fault::text("ERR Function not found");
    let function = if is_function {
        let (library, at) = local.shared.scripts.function(args.at(1)).ok_or(UNKNOWN_FUNCTION)?;
        Some(ScriptSubject::Function(library, at))
    } else {
        None
    };
    const UNKNOWN: Fault = Fault::text("NOSCRIPT No matching script. Please use EVAL.");
    // What cannot be a digest is not looked up, whatever else is wrong.
    if way.by == RunBy::Sha && args.at(1).len() != SHA1_HEX_LEN {
        return Err(UNKNOWN);
    }
    let no_number =
        if is_function { Fault::text("ERR Bad number of keys provided") } else { Fault::NotInteger };
    let keys_len = number::parse_i64(args.at(2)).ok_or(no_number)?;
    if keys_len > (args.len() - 3) as i64 {
        return Err(Fault::text("ERR Number of keys can't be greater than number of args"));
    }
    let keys_len =
        usize::try_from(keys_len).map_err(|_| Fault::text("ERR Number of keys can't be negative"))?;
    let what = match (function, way.by) {
        (Some(function), _) => function,
        (None, RunBy::Sha) => ScriptSubject::Script(local.shared.scripts.find(args.at(1)).ok_or(UNKNOWN)?),
        (None, _) => ScriptSubject::Script(learn(local, args.at(1), true)?),
    };
    let flags = what.flags();
    if flags.no_cluster && local.live.cluster.mode.has_slots() {
        return Err(Fault::text("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    if !way.may_write && flags.is_declared && !flags.no_writes {
        return Err(Fault::text("ERR Can not execute a script with write flag using *_ro command."));
    }
    let may_fill = flags.is_declared && !flags.allow_oom && !flags.no_writes;
    if may_fill && local.is_over_memory() {
        return Err(Fault::text(
            "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
        ));
    }
    if flags.is_declared && !flags.no_writes && local.follows() {
        return Err(Fault::text("READONLY You can not run script with write flag on readonly replica."));
    }
    if flags.is_declared && !flags.no_writes && local.lacks_replicas() {
        return Err(Fault::text(NO_REPLICAS));
    }
    Ok(ScriptPlan { what, keys_len, may_write: way.may_write })
}

/// Whether a script has said that it does not write.
pub fn only_reads(local: &mut ThreadState, way: RunWay, args: Args<'_>) -> bool {
    plan(local, way, args).is_ok_and(|plan| plan.what.flags().no_writes)
}

/// Adds the shards that a script inside EXEC needs; the caller seals the set. One that is not known may be by the time
/// it runs.
pub fn add_locks(
    local: &mut ThreadState,
    entry: &CommandEntry,
    way: RunWay,
    args: Args<'_>,
    set: &mut LockSet,
) {
    let plan = plan(local, way, args).ok();
    add_planned(local, entry, plan.as_ref(), args, set);
}

fn add_planned(
    local: &ThreadState,
    entry: &CommandEntry,
    plan: Option<&ScriptPlan>,
    args: Args<'_>,
    set: &mut LockSet,
) {
    let router = &local.shared.router;
    match plan {
        Some(ScriptPlan { what: ScriptSubject::Script(cached), .. }) if cached.is_contained => {
            plan::add_locks(&entry.spec, args, router, set)
        }
        _ => (0..router.shards_len()).for_each(|id| set.add(id)),
    }
}

/// Runs a script that a client asked for.
pub fn start(
    local: &mut ThreadState,
    call: CommandCall<'_>,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    way: RunWay,
    args: Args<'_>,
) -> Ran {
    let plan = plan(local, way, args);
    let mut wanted = LockSet::new();
    // What will be refused is refused with nothing held.
    if let Ok(plan) = &plan {
        add_planned(local, entry, Some(plan), args, &mut wanted);
    }
    wanted.seal();
    let mut grant = match lease::take(local, &wanted) {
        Ok(grant) => grant,
        Err(grant) => {
            let body = JobBody::Script { entry, args: args.to_owned() };
            return exec::post(local, call, body, wanted, grant);
        }
    };
    let hold = LeaseTimer::begin();
    local.frozen = None;
    let mut reply = Reply::new(call.out, call.session.resp3);
    run_planned(local, call.session, info, &mut grant, entry, plan, args, &mut reply);
    exec::pause_uses(&mut grant, false);
    commit::growth(local, &mut grant, ChangedBy(call.session.id));
    hold.end(local);
    lease::release(local, grant);
    call.session.send_own_messages(call.out);
    Ran::Done
}

/// Runs a script with its shards held; the caller passes its changes on and has uses counted again.
pub fn run_held(
    local: &mut ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    grant: &mut Shards,
    entry: &'static CommandEntry,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) {
    let RunKind::Script(way) = entry.run else { return };
    if session.gate.has(Gate::CLUSTER)
        && let Some(line) = route::refusal(local, session, entry, args)
    {
        // The map has changed while the script waited for its shards.
        reply.error(&line);
        local.stats().commands[entry.id].rejected.add(1);
        local.count_error(admit::code_of(&line));
        return;
    }
    let plan = plan(local, way, args);
    run_planned(local, session, info, grant, entry, plan, args, reply);
}

#[allow(clippy::too_many_arguments, reason = "what every run has, and its plan")]
fn run_planned(
    local: &mut ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    grant: &mut Shards,
    entry: &'static CommandEntry,
    plan: Result<ScriptPlan, Fault>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) {
    if let Some(line) = moving::refusal(local, grant, Routed::of(local, session), entry, args) {
        reply.error(&line);
        local.stats().commands[entry.id].rejected.add(1);
        return local.count_error(admit::code_of(&line));
    }
    let mark = reply.len();
    let db = session.db;
    if local.shared.monitors.is_any() {
        monitor::show_script(local, info, db, entry, args);
    }
    let begins = local.journal.begin_group();
    local.script_error.clear();
    exec::pause_uses(grant, session.no_touch);
    let ended = plan
        .map_err(|fault| fault.line().into_owned().into_bytes())
        .and_then(|plan| run_script(local, session, info, grant, (entry, &plan), args, reply));
    if begins {
        local.journal.end_group(&local.shared.journal, local.now_ms);
    }
    session.db = db;
    if let Err(line) = ended {
        reply.truncate_to(mark);
        reply.error(&line);
        local.stats().commands[entry.id].failed.add(1);
        local.count_script_error(&line);
    } else if let Some(line) = reply.since(mark).strip_prefix(b"-") {
        // The script has run to its end, yet its client sees an error.
        local.stats().commands[entry.id].failed.add(1);
        local.count_script_error(line);
    }
}

fn run_script(
    local: &mut ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    grant: &mut Shards,
    (entry, plan): (&'static CommandEntry, &ScriptPlan),
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Vec<u8>> {
    let as_line = |fault: Fault| fault.line().into_owned().into_bytes();
    let flags = plan.what.flags();
    let may_write = plan.may_write && !flags.no_writes;
    let (keys, argv) = (args.tail(3).head(plan.keys_len), args.tail(3 + plan.keys_len));
    let mut lua = std::mem::take(&mut local.lua);
    let shared = local.shared;
    let watch = &*shared.scripts.watches[usize::from(local.thread)];
    let ended = match lua.ready(&shared.scripts, local.thread, &local.live) {
        Ok(engine) => {
            let allows_oom = flags.allow_oom;
            let now_ms = crate::clock::unix_ms();
            match &plan.what {
                ScriptSubject::Script(_) => watch.begin(now_ms),
                ScriptSubject::Function(library, at) => {
                    watch.begin_function(now_ms, &library.functions[*at].name, args);
                }
            }
            let mut bridge = Bridge {
                local: &mut *local,
                session,
                info,
                grant: &mut *grant,
                watch,
                may_write,
                allows_oom,
                has_written: false,
                slots: ScriptSlots {
                    crosses: flags.crosses_slots || !flags.is_declared,
                    used: route::declared_slot(entry, args),
                },
            };
            let ended = match &plan.what {
                ScriptSubject::Script(cached) => engine.run(&mut bridge, &cached.script, keys, argv, reply),
                ScriptSubject::Function(library, at) => {
                    let name = &library.functions[*at].name;
                    engine.run_function(&mut bridge, library, name, keys, argv, reply)
                }
            };
            if watch.is_forced() {
                // One that came to its end all the same is whole, and answered.
                if ended.is_err() {
                    local.journal.spoil_group();
                    // A part of it, which no file will have, is nothing to go on from: nobody gets these shards again.
                    std::mem::forget(std::mem::take(grant));
                }
            } else if watch.is_killed() {
                // What has come but was not read yet is not to begin now.
                serve_others(local, watch);
            }
            watch.end();
            if local.busy.is_some() {
                // What follows in this turn is not to be told that the server is busy.
                local.refresh_gate();
            }
            ended
        }
        Err(fault) => Err(as_line(fault)),
    };
    local.lua = lua;
    ended
}

impl CommandEntry {
    /// Whether it runs a script: EXEC does when one is queued.
    #[inline]
    pub fn may_run_script(&self, session: &Session) -> bool {
        match self.run {
            RunKind::Script(_) => true,
            RunKind::Txn(_) => session.multi.as_ref().is_some_and(|multi| {
                multi.queued.iter().any(|queued| matches!(queued.entry.run, RunKind::Script(_)))
            }),
            _ => false,
        }
    }
}

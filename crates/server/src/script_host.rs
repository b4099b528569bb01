//! The commands of a running script: their checks, their shards, and who is told of what they did.
//!
//! Called by the script through the trait `Host`; all its shards are held, and none is taken here.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use darter_command::{Ctx, Fault, Flags};
use darter_script::engine::killed;
use darter_script::{Host, NoCall, Watch};
use darter_wire::{Args, Reply};

use crate::acl::commands::find_command;
use crate::acl::{CheckedCall, guard};
use crate::clients::ClientCard;
use crate::core::Core;
use crate::dispatch::{self, Caller};
use crate::exec;
use crate::gated;
use crate::job::Shards;
use crate::journal::log::settle;
use crate::journal::note as journal;
use crate::monitor;
use crate::pause::WRITES;
use crate::registry::{Entry, Run};
use crate::session::{Gate, Session};
use crate::signals;
use crate::snapshot::{self, ending};
use crate::tracking;
use crate::wanted::Wanted;

/// The way of a script's commands to the shards held for it, for the length of one run.
pub struct Bridge<'a> {
    /// The thread.
    pub core: &'a mut Core,
    /// The connection's state.
    pub session: &'a mut Session,
    /// What others see of it.
    pub card: &'a ClientCard,
    /// The shards held.
    pub grant: &'a mut Shards,
    /// The run as other threads see it.
    pub watch: &'a Watch,
    /// The script may write.
    pub may_write: bool,
    /// It may when memory is full.
    pub allows_oom: bool,
    /// It has written.
    pub has_written: bool,
}

/// The end of the server waits so long for a script, or less where it is overdue earlier.
const PATIENCE_MS: u64 = 5000;

impl Host for Bridge<'_> {
    fn breathe(&mut self) {
        // What this thread did before waits for no script: after a kill nothing is read back that comes after it.
        settle(self.core);
        let busy_ms = self.core.live.busy_reply_threshold_ms;
        let now_ms = crate::core::unix_ms();
        let patience_ms = if busy_ms == 0 { PATIENCE_MS } else { busy_ms.min(PATIENCE_MS) };
        signals::look(self.core);
        if self.watch.runs_for(patience_ms, now_ms) {
            ending::hurry(self.core.shared, self.watch);
        }
        if busy_ms == 0 || !self.watch.runs_for(busy_ms, now_ms) {
            return;
        }
        // A script that waits for a time by asking TIME would never end; from here on it moves, as in Redis.
        self.core.frozen = None;
        serve_others(self.core, self.watch);
    }

    fn allows(&mut self, args: Args<'_>) -> Result<bool, NoCall> {
        self.may_run(args)
    }

    fn call(&mut self, args: Args<'_>, resp3: bool, out: &mut Vec<u8>) {
        let entry = match self.allowed(args) {
            Ok(entry) => entry,
            Err(line) => {
                Reply::new(out, resp3).error(&*line);
                self.core.count_error(&line);
                self.core.note_script_error(line.as_bytes());
                return;
            }
        };
        let calls = self.core.stats().commands[entry.id].calls.bump();
        let began = entry
            .is_timed(calls, self.core.times_all, entry.is_single_of(args.len() as u32))
            .then(Instant::now);
        self.session.usage.commands += 1;
        if self.core.shared.monitors.is_any() {
            let db = self.session.db;
            monitor::show_scripted(self.core, db, entry, args);
        }
        if let Some(reader) = tracking::reader_of(self.session, entry) {
            exec::tell_caches(self.core, self.grant);
            tracking::remember(self.core, self.grant, reader, entry, args);
        }
        let mut reply = Reply::new(out, resp3);
        let db = self.session.db;
        let wanted = Wanted::of(entry, args, &self.core.shared.router);
        if let Err(fault) = self.run(entry, args, &wanted, &mut reply) {
            exec::refuse(self.core, entry, &fault, &mut reply, 0);
            self.core.note_script_error(fault.line().as_bytes());
        }
        if wanted.is_journalled(self.grant) {
            let ran = journal::Ran { entry, args, db, served: None, reply: out };
            journal::note_grant(self.core, self.grant, Some(ran));
        }
        if let Some(began) = began {
            crate::timing::note(self.core, self.card, entry, args, began.elapsed());
        }
        snapshot::note_run(self.core.shared, entry);
        if self.core.shared.tracking.is_any() && exec::flushes(entry) {
            tracking::invalidate_all(self.core, self.grant);
        }
    }
}

/// Tells others that the script which `watch` sees is overdue, or was.
pub fn serve_others(core: &mut Core, watch: &Watch) {
    // What runs meanwhile runs outside of the script: it finds no floor, and no reply of its protocol.
    if let Some(mut floor) = core.floor.take() {
        floor.turn_inside(core, watch.kind());
        core.floor = Some(floor);
    }
}

impl Bridge<'_> {
    /// Whether the user may run a command; `None`: there is no such command.
    fn may_run(&self, args: Args<'_>) -> Result<bool, NoCall> {
        let shared = self.core.shared;
        let entry = find_command(&shared.registry, args).ok_or(NoCall::Unknown)?;
        if !entry.spec.accepts(args.len()) {
            return Err(NoCall::Arity);
        }
        let call = CheckedCall { entry, args, db: self.session.db };
        Ok(self.session.user.check(shared.acl.catalog(), call).is_ok())
    }

    /// Whether `entry` is a DEBUG that tests want to call, and may.
    #[cold]
    fn may_debug(&self, entry: &Entry) -> bool {
        entry.is_debug
            && self.core.shared.scripts.may_debug.load(Relaxed)
            && crate::commands::debug::is_allowed(self.core, self.card)
    }

    /// The command, if a script may run it now. The order of the checks is Redis'.
    fn allowed(&mut self, args: Args<'_>) -> Result<&'static Entry, Cow<'static, str>> {
        const UNKNOWN: &str = "ERR Unknown Redis command called from script";
        let entry = find_command(&self.core.shared.registry, args).ok_or(UNKNOWN)?;
        let flags = entry.spec.flags;
        if !entry.spec.accepts(args.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        if flags.any(Flags::NOSCRIPT) && !self.may_debug(entry) {
            return Err("ERR This Redis command is not allowed from script".into());
        }
        if self.session.gate.has(Gate::RESTRICTED) && entry.is_restricted {
            return Err(gated::RESTRICTED.into());
        }
        let refused = guard::check_in_script(self.core, self.session, self.card, entry, args);
        refused.map_err(|line| String::from_utf8_lossy(&line).into_owned())?;
        if flags.any(WRITES) && !self.may_write {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        let fills = flags.any(Flags::DENYOOM) && !self.has_written && !self.allows_oom;
        if fills && self.core.is_over_memory() {
            return Err("OOM command not allowed when used memory > 'maxmemory'.".into());
        }
        if flags.any(Flags::WRITE) && self.core.shared.journal.is_failing() {
            return Err("MISCONF Errors writing to the AOF file".into());
        }
        if flags.any(Flags::WRITE) && !self.has_written && self.core.refuses_writes() {
            return Err(gated::MISCONF.into());
        }
        if flags.any(Flags::WRITE) && !self.has_written && self.core.lacks_replicas() {
            return Err(gated::NO_REPLICAS.into());
        }
        if flags.any(Flags::WRITE) {
            self.has_written = true;
            if !self.watch.note_write() {
                return Err(killed(self.watch.kind()).into());
            }
        }
        Ok(entry)
    }

    fn run(
        &mut self,
        entry: &'static Entry,
        args: Args<'_>,
        wanted: &Wanted<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let Bridge { core, session, card, grant, .. } = self;
        match entry.run {
            Run::Data(run) => {
                const NOT_HELD: Fault =
                    Fault::text("ERR Script attempted to access a key it did not declare");
                let (set, key) = wanted.set(&core.shared.router, grant).ok_or(NOT_HELD)?;
                let mut ctx =
                    Ctx::new(set, &core.env, session.db, core.live.dbnum as usize, core.now_ms, key);
                ctx.may_wait = false;
                run(&mut ctx, args, reply)
            }
            Run::Server(run) => {
                if entry.lacks_sub(args.len()) && !entry.spec.name.contains('|') {
                    let line = dispatch::misuse(entry, args);
                    return Err(Fault::Text(String::from_utf8_lossy(&line).into_owned().into()));
                }
                // A server command answers in the connection's protocol, which the script may have changed for itself.
                let was_resp3 = std::mem::replace(&mut session.resp3, reply.is_resp3());
                let now_ms = core.now_ms;
                let ended = {
                    let held = Some(&mut **grant);
                    run(&mut Caller { core, session, card, may_wait: false, held }, args, reply)
                };
                session.resp3 = was_resp3;
                // Time stands still while a script runs, also where it sleeps (DEBUG SLEEP).
                core.now_ms = now_ms;
                ended
            }
            Run::Txn(_) | Run::Script(_) => {
                Err(Fault::text("ERR This Redis command is not allowed from script"))
            }
        }
    }
}

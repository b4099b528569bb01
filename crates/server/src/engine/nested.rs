//! Nested: one command of an EXEC or of a script, with the shards of the whole held.
//!
//! Called by both for each of their commands, once it is admitted. Its changes are noted in the journal at once, as a part
//! of the record of the whole; memory, listeners and clients that wait follow when the whole ends.

use std::time::Instant;

use darter_command::{Ctx, Fault};
use darter_wire::{Args, Reply};

use super::commit;
use super::lock_scope::LockScope;
use super::origin::ChangedBy;
use super::sinks::commit_body;
use crate::acl::guard;
use crate::clients::ClientInfo;
use crate::command_log::large;
use crate::command_log::timing;
use crate::commands::{debug, rows};
use crate::dispatch::{self, Caller};
use crate::exec::{self, Sees};
use crate::fieldsets;
use crate::job::Shards;
use crate::journal::note as journal;
use crate::monitor;
use crate::registry::{CommandEntry, RunKind};
use crate::script_run;
use crate::session::{Gate, Session};
use crate::thread_state::ThreadState;
use crate::tracking;

/// What a command is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    /// A transaction.
    Exec,
    /// A script or a function.
    Script,
}

/// What a nested command runs with.
pub struct Nested<'a> {
    /// The thread.
    pub local: &'a mut ThreadState,
    /// The connection's state.
    pub session: &'a mut Session,
    /// What others see of it.
    pub info: &'a ClientInfo,
    /// The shards held.
    pub grant: &'a mut Shards,
    /// What it is a part of.
    pub within: Within,
}

impl Nested<'_> {
    /// Runs a command that was admitted, and appends its reply to `out`.
    pub fn run(&mut self, entry: &'static CommandEntry, args: Args<'_>, resp3: bool, out: &mut Vec<u8>) {
        let db = self.session.db;
        let calls = self.local.stats().commands[entry.id].calls.bump();
        let is_single = entry.is_single_of(args.len() as u32);
        let began = entry.is_timed(calls, self.local.times_all, is_single).then(Instant::now);
        if self.within == Within::Script {
            self.session.usage.commands += 1;
            if self.local.shared.monitors.is_any() {
                monitor::show_scripted(self.local, db, entry, args);
            }
        }
        if let Some(reader) = tracking::reader_of(self.session, entry) {
            commit::caches(self.local, self.grant, ChangedBy(self.session.id));
            tracking::remember(self.local, self.grant, reader, entry, args);
        }
        let wanted = LockScope::of(entry, args, &self.local.shared.router);
        let mut reply = Reply::new(out, resp3);
        let mark = reply.len();
        let sees = Sees::of(self.local, entry, self.session.gate.has(Gate::IMPORTS));
        sees.begin(self.grant.iter_mut().map(|held| &mut held.shard));
        let ended = self.body(entry, args, &wanted, &mut reply);
        sees.end(self.local, self.grant.iter_mut().map(|held| &mut held.shard));
        exec::note_own_deadlines(self.local, self.grant, (entry, args), db);
        if let Err(fault) = ended {
            exec::refuse(self.local, entry, &fault, &mut reply, mark);
            if self.within == Within::Script {
                self.local.note_script_error(fault.line().as_bytes());
            }
        }
        if wanted.is_journalled(self.grant) {
            let reply = out.get(mark..).unwrap_or_default();
            let ran = journal::Ran { entry, args, db, served: None, reply };
            commit::note(self.local, self.grant, Some(ran));
        }
        if let Some(began) = began {
            let weight = entry.weight(self.local.times_all, is_single);
            let note = if self.within == Within::Script { timing::note_part } else { timing::note };
            note(self.local, self.info, entry, args, began.elapsed(), weight);
        }
        commit_body(self.local, self.grant, entry);
        if self.within == Within::Exec {
            large::note_reply(self.local, self.session.id, entry, args, out.len().saturating_sub(mark));
            if self.local.shared.monitors.is_any() {
                monitor::show(self.local, self.info, db, entry, args);
            }
        }
    }

    fn body(
        &mut self,
        entry: &'static CommandEntry,
        args: Args<'_>,
        wanted: &LockScope<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        match (entry.run, self.within) {
            (_, Within::Exec) if entry.is_debug && !debug::is_allowed(self.local, self.info) => {
                Err(Fault::text(debug::NOT_ALLOWED))
            }
            (RunKind::Data(run), _) if entry.is_import => {
                let whole = fieldsets::expand(self.session.fieldsets.as_deref(), args)?;
                self.data((entry, run), &LockScope::Any, whole.args(), reply)
            }
            (RunKind::Data(run), _) => self.data((entry, run), wanted, args, reply),
            (RunKind::Server(id), Within::Exec) => rows::body(id)(&mut self.caller(), args, reply),
            (RunKind::Server(id), Within::Script) => {
                if entry.lacks_sub(args.len()) && !entry.is_sub() {
                    let line = dispatch::misuse(entry, args);
                    return Err(Fault::Text(String::from_utf8_lossy(&line).into_owned().into()));
                }
                // A server command answers in the connection's protocol, which the script may have changed for itself.
                let was_resp3 = std::mem::replace(&mut self.session.resp3, reply.is_resp3());
                let now_ms = self.local.now_ms;
                let ended = rows::body(id)(&mut self.caller(), args, reply);
                self.session.resp3 = was_resp3;
                // Time stands still while a script runs, even if it sleeps (DEBUG SLEEP).
                self.local.now_ms = now_ms;
                ended
            }
            (RunKind::Script(_), Within::Exec) => {
                script_run::run_held(self.local, self.session, self.info, self.grant, entry, args, reply);
                Ok(())
            }
            // UNWATCH is the only one that can be queued; EXEC has ended the watches already.
            (RunKind::Txn(_), Within::Exec) => {
                reply.ok();
                Ok(())
            }
            (RunKind::Txn(_) | RunKind::Script(_), Within::Script) => {
                Err(Fault::text("ERR This Redis command is not allowed from script"))
            }
        }
    }

    fn data(
        &mut self,
        (entry, run): (&CommandEntry, darter_command::Run),
        wanted: &LockScope<'_>,
        args: Args<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let Nested { local, session, grant, within, .. } = self;
        let (set, key) = wanted.set(&local.shared.router, grant).ok_or(Fault::text(match within {
            Within::Exec => "ERR the transaction does not hold the keys of its command",
            Within::Script => "ERR Script attempted to access a key it did not declare",
        }))?;
        let mut ctx = Ctx::new(set, &local.env, session.db, local.live.dbnum as usize, local.now_ms, key);
        ctx.may_read = guard::may_read(local, entry, args, session.db, session.id);
        ctx.may_wait = false;
        run(&mut ctx, args, reply)
    }

    fn caller(&mut self) -> Caller<'_> {
        let held = Some(&mut *self.grant);
        Caller { local: self.local, session: self.session, info: self.info, may_wait: false, held }
    }
}

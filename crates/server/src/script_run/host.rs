//! The commands of a running script: their checks, their shards, and the notifications of what they did.
//!
//! Called by the script through the trait `Host`; all its shards are held, and none is taken here.

use darter_script::{Host, NoCall, ScriptWatch};
use darter_wire::{Args, Reply};

use crate::acl::CheckedCall;
use crate::acl::commands::find_command;
use crate::clients::ClientInfo;
use crate::engine::admit;
use crate::engine::cluster::route::ScriptSlots;
use crate::engine::nested::{Nested, Within};
use crate::job::Shards;
use crate::journal::turn::settle;
use crate::session::Session;
use crate::snapshot::ending;
use crate::snapshot::signals;
use crate::thread_state::ThreadState;

/// The way of a script's commands to the shards held for it, for the length of one run.
pub struct Bridge<'a> {
    /// The thread.
    pub local: &'a mut ThreadState,
    /// The connection's state.
    pub session: &'a mut Session,
    /// What others see of it.
    pub info: &'a ClientInfo,
    /// The shards held.
    pub grant: &'a mut Shards,
    /// The run as other threads see it.
    pub watch: &'a ScriptWatch,
    /// The script may write.
    pub may_write: bool,
    /// It may when memory is full.
    pub allows_oom: bool,
    /// It has written.
    pub has_written: bool,
    /// The slots of a cluster that it may use.
    pub slots: ScriptSlots,
}

/// The end of the server waits so long for a script, or less where it is overdue earlier.
const PATIENCE_MS: u64 = 5000;

impl Host for Bridge<'_> {
    fn breathe(&mut self) {
        // What this thread did before waits for no script: after a kill nothing is read back that comes after it.
        settle(self.local);
        let busy_ms = self.local.live.busy_reply_threshold_ms;
        let now_ms = crate::clock::unix_ms();
        let patience_ms = if busy_ms == 0 { PATIENCE_MS } else { busy_ms.min(PATIENCE_MS) };
        signals::look(self.local);
        if self.watch.runs_for(patience_ms, now_ms) {
            ending::hurry(self.local.shared, self.watch);
        }
        if busy_ms == 0 || !self.watch.runs_for(busy_ms, now_ms) {
            return;
        }
        // A script that waits for a time by asking TIME would never end; from here on it moves, as in Redis.
        self.local.frozen = None;
        serve_others(self.local, self.watch);
    }

    fn allows(&mut self, args: Args<'_>) -> Result<bool, NoCall> {
        self.may_run(args)
    }

    fn call(&mut self, args: Args<'_>, resp3: bool, out: &mut Vec<u8>) {
        let entry = match admit::in_script(self, args) {
            Ok(entry) => entry,
            Err(line) => {
                Reply::new(out, resp3).error(&*line);
                self.local.count_error(&line);
                self.local.note_script_error(line.as_bytes());
                return;
            }
        };
        let Bridge { local, session, info, grant, .. } = self;
        Nested { local, session, info, grant, within: Within::Script }.run(entry, args, resp3, out);
    }
}

/// Tells others that the script which `watch` sees is overdue, or was.
pub fn serve_others(local: &mut ThreadState, watch: &ScriptWatch) {
    // What runs meanwhile runs outside of the script: it finds no event_loop, and no reply of its protocol.
    if let Some(mut event_loop) = local.event_loop.take() {
        event_loop.turn_inside(local, watch.kind());
        local.event_loop = Some(event_loop);
    }
}

impl Bridge<'_> {
    /// Whether the user may run a command; `None`: there is no such command.
    fn may_run(&self, args: Args<'_>) -> Result<bool, NoCall> {
        let shared = self.local.shared;
        let entry = find_command(&shared.registry, args).ok_or(NoCall::Unknown)?;
        if !entry.spec.accepts(args.len()) {
            return Err(NoCall::Arity);
        }
        let call = CheckedCall { command: entry.id, args, db: self.session.db };
        Ok(self.session.user.check(shared.acl.catalog(), call).is_ok())
    }
}

//! The commands of a running script: their checks, their shards, and who is told of what they did.
//!
//! Called by the script through the trait `Host`; all its shards are held, and none is taken here.

use darter_script::{Host, NoCall, Watch};
use darter_wire::{Args, Reply};

use crate::acl::CheckedCall;
use crate::acl::commands::find_command;
use crate::clients::ClientCard;
use crate::core::Core;
use crate::engine::admit;
use crate::engine::nested::{Nested, Within};
use crate::job::Shards;
use crate::journal::log::settle;
use crate::session::Session;
use crate::signals;
use crate::snapshot::ending;

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
        let entry = match admit::in_script(self, args) {
            Ok(entry) => entry,
            Err(line) => {
                Reply::new(out, resp3).error(&*line);
                self.core.count_error(&line);
                self.core.note_script_error(line.as_bytes());
                return;
            }
        };
        let Bridge { core, session, card, grant, .. } = self;
        Nested { core, session, card, grant, within: Within::Script }.run(entry, args, resp3, out);
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
}

//! Apply: a command that has run before, or elsewhere, runs again with its shards held.
//!
//! Called by journal replay, with the journal off, and by what a master sends, with the journal on. Nothing is admitted,
//! tracked, timed or counted: that was done where the command ran first. Memory, listeners and waiting clients follow when
//! the caller commits all that it has applied (`commit::growth`).

use darter_command::{Ctx, Fault, Marks};
use darter_store::Key;
use darter_wire::{Args, Reply};

use super::lock_scope::LockScope;
use crate::commands::function;
use crate::job::Shards;
use crate::journal::note as journal;
use crate::registry::{CommandEntry, RunKind};
use crate::thread_state::ThreadState;

/// Whether the journal gets what is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Journalled {
    /// It does.
    Yes,
    /// It has it already.
    No,
}

/// Why a command was not applied.
#[derive(Debug)]
pub enum NotApplied {
    /// Its body refused it.
    Refused(Fault),
    /// It is no command that changes data.
    NoChange,
}

/// A command to be run again.
pub struct Applied<'a> {
    /// Its row.
    pub entry: &'static CommandEntry,
    /// Its words.
    pub args: Args<'a>,
    /// Its database.
    pub db: usize,
    /// The only key it looked at, if it was a waiting client's.
    pub only_key: Option<&'a [u8]>,
    /// The hash of its only key, if that is known.
    pub hash: Option<u64>,
}

impl Applied<'_> {
    /// Runs it over `grant`, which has the shards of its keys; what it answers is appended to `out`.
    pub fn run(
        &self,
        local: &mut ThreadState,
        grant: &mut Shards,
        journalled: Journalled,
        out: &mut Vec<u8>,
    ) -> Result<(), NotApplied> {
        let Applied { entry, args, db, only_key, hash } = *self;
        let shared = local.shared;
        let mark = out.len();
        let mut reply = Reply::new(out, false);
        let run = match entry.run {
            RunKind::Data(run) => run,
            RunKind::Server(_) if entry.spec.has(Marks::REPLAYED) => {
                return function::change(local, args, &mut reply).map_err(NotApplied::Refused);
            }
            _ => return Err(NotApplied::NoChange),
        };
        let router = &shared.router;
        let scope = match hash {
            Some(hash) => LockScope::One(router.shard_of(hash), Key { bytes: args.at(1), hash }),
            None if entry.is_single => LockScope::of(entry, args, router),
            None => LockScope::Any,
        };
        let Some((set, key)) = scope.set(router, grant) else { return Err(NotApplied::NoChange) };
        let mut ctx = Ctx::new(set, &local.env, db, local.dbs_len, local.now_ms, key);
        ctx.may_wait = false;
        ctx.only_key = only_key;
        let ended = run(&mut ctx, args, &mut reply);
        drop(ctx);
        if journalled == Journalled::Yes && scope.is_journalled(grant) {
            let reply = out.get(mark..).unwrap_or_default();
            let ran = journal::Ran { entry, args, db, served: None, reply };
            if let Some((set, _)) = scope.set(router, grant) {
                journal::note(local, set, Some(ran));
            }
        }
        ended.map_err(NotApplied::Refused)
    }
}

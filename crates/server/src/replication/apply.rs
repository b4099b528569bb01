//! What a master sends, run here: a batch of commands with all shards held, transactions whole.
//!
//! The clock stands still at zero while a batch runs: nothing expires by itself on a replica. Commands of streams note
//! times and get the clock of this machine.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;

use darter_command::{Ctx, Fault, Marks};
use darter_latch::Grant;
use darter_replica::stream::{self, Command};
use darter_txn::{LockSet, ShardSet};
use darter_wire::{Args, OwnedArgs, Reply};

use super::link::LinkCard;
use crate::core::Core;
use crate::engine::commit;
use crate::engine::origin::{ChangedBy, Origin};
use crate::exec;
use crate::job::{Body, Job, Shards};
use crate::journal::note;
use crate::pubsub;
use crate::registry::{Entry, Run};
use crate::shared::Shared;
use crate::snapshot;
use crate::tracking;
use crate::worker::lock;

/// Time between two looks at a load.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);
/// A batch takes no more bytes, unless one transaction does.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// What bytes of a stream hold: whole commands, none of them half a transaction.
#[derive(Debug, Default)]
pub struct Batch {
    /// The bytes.
    pub bytes: Vec<u8>,
    commands: Vec<Command>,
    starts: Vec<usize>,
    /// The master asks how far this server is.
    pub asks_for_ack: bool,
}

impl Batch {
    /// Takes what is whole at the beginning of `received`; `None`: nothing is.
    ///
    /// Errors: the bytes are no commands.
    pub fn cut(received: &[u8]) -> Result<Option<Batch>, stream::Garbled> {
        let mut batch = Batch::default();
        let (mut at, mut whole, mut whole_commands, mut is_open) = (0, 0, 0, false);
        loop {
            let mut command = Command::default();
            let rest = received.get(at..).unwrap_or_default();
            if !stream::read(rest, &mut command)? {
                break;
            }
            let word =
                |n: usize| command.words.get(n).and_then(|word| rest.get(word.clone())).unwrap_or_default();
            let is = |name: &str| word(0).eq_ignore_ascii_case(name.as_bytes());
            is_open = is("multi") || is_open && !is("exec");
            batch.asks_for_ack |= is("replconf") && word(1).eq_ignore_ascii_case(b"getack");
            let start = at;
            at += command.len;
            batch.starts.push(start);
            batch.commands.push(command);
            if !is_open {
                (whole, whole_commands) = (at, batch.commands.len());
                if whole >= BATCH_BYTES_MAX {
                    break;
                }
            }
        }
        batch.commands.truncate(whole_commands);
        batch.starts.truncate(whole_commands);
        batch.bytes = received.get(..whole).unwrap_or_default().to_vec();
        Ok((whole > 0).then_some(batch))
    }

    fn each(&self, mut run: impl FnMut(Args<'_>) -> Result<(), String>) -> Result<(), String> {
        for (command, start) in self.commands.iter().zip(&self.starts) {
            let rest = self.bytes.get(*start..).unwrap_or_default();
            let mut args = OwnedArgs::with_capacity(command.words.len(), command.len);
            command.words.iter().for_each(|word| args.push(rest.get(word.clone()).unwrap_or_default()));
            run(args.args())?;
        }
        Ok(())
    }
}

/// Runs a batch on whichever thread gets the shards; returns when that is done. False: the link was ended before, and
/// nothing was run.
///
/// Errors: a command is unknown here; what came before it was run.
pub fn apply(shared: &'static Shared, card: &Arc<LinkCard>, batch: Batch) -> Result<bool, String> {
    let card = card.clone();
    // DEBUG RELOAD and the like: nobody else reaches a shard meanwhile.
    while shared.snapshots.loading.is_on() && !card.is_stopped() {
        std::thread::sleep(LOOK);
    }
    with_all_shards(shared, move |core, grant| {
        let _applying = lock(&core.shared.replication.applying);
        if card.is_stopped() {
            return Ok(false);
        }
        let ran = run(core, grant, &batch);
        let mut state = core.shared.replication.state();
        if ran.is_ok() {
            state.backlog.append(&batch.bytes);
        } else {
            // Some of it may have run: what is here is no state that the master had.
            state.is_continuous = false;
        }
        drop(state);
        core.shared.journal.intake.poke();
        ran.map(|()| true)
    })
    .unwrap_or_else(|| Err("the server ends".to_owned()))
}

/// Calls `act` with all shards held, on whichever thread that is; `None` when the server ends before.
pub fn with_all_shards<T: Send + 'static>(
    shared: &'static Shared,
    act: impl FnOnce(&mut Core, &mut Shards) -> T + Send + 'static,
) -> Option<T> {
    let (tell, hear) = sync_channel(1);
    let call = move |core: &mut Core, grant: &mut Shards| {
        let _ = tell.send(act(core, grant));
    };
    let body = Body::Call(Some(Box::new(call)));
    let wanted = LockSet::all(shared.router.shards_len());
    Job::new(Origin::nobody(0), body, wanted, Grant::empty()).enqueue_from_outside(shared);
    hear.recv().ok()
}

/// Runs the commands of a batch and tells everybody who listens what has changed.
fn run(core: &mut Core, grant: &mut Shards, batch: &Batch) -> Result<(), String> {
    let now_ms = core.now_ms;
    let mut db = core.shared.replication.state().db;
    let mut reply = Vec::new();
    let mut flushed = false;
    let ran = batch.each(|args| {
        let name = args.at(0);
        match name.to_ascii_lowercase().as_slice() {
            b"ping" | b"replconf" => {}
            b"select" => {
                let wanted = std::str::from_utf8(args.at(1)).ok().and_then(|text| text.parse().ok());
                db = wanted
                    .filter(|db| *db < core.dbs_len)
                    .ok_or("the master uses a database that is not here (databases)")?;
            }
            b"multi" => {
                core.journal.begin_group();
            }
            b"exec" => {
                let journal = &core.shared.journal;
                core.journal.end_group(journal, 0);
            }
            b"publish" => {
                pubsub::publish(core.shared, args.at(1), args.at(2));
            }
            b"spublish" => pubsub::publish_shard(core.shared, args.at(1), args.at(2)),
            _ => {
                reply.clear();
                let entry = find(core, args)?;
                core.now_ms = if name.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'x')) {
                    now_ms
                } else {
                    0
                };
                run_one(core, grant, db, entry, args, &mut reply)?;
                if exec::flushes(entry) {
                    snapshot::note_run(core.shared, entry);
                    flushed = true;
                }
            }
        }
        Ok(())
    });
    if ran.is_err() {
        // Half a transaction is no record.
        core.journal.spoil_group();
        core.journal.end_group(&core.shared.journal, 0);
    }
    core.now_ms = now_ms;
    core.shared.replication.state().db = db;
    if flushed && core.shared.tracking.is_in_use() {
        tracking::invalidate_all(core, grant);
    }
    commit::growth(core, grant, ChangedBy::SERVER);
    ran
}

fn find(core: &Core, args: Args<'_>) -> Result<&'static Entry, String> {
    let found = core.shared.replication.command(core.shared, args.at(0));
    let entry = match found {
        Some(entry) if !entry.subs.is_empty() => entry.sub(args.at(1)),
        other => other,
    };
    entry
        .filter(|entry| entry.spec.accepts(args.len()))
        .ok_or_else(|| format!("the master sent '{}', which is not known here", args.at(0).escape_ascii()))
}

fn run_one(
    core: &mut Core,
    grant: &mut Shards,
    db: usize,
    entry: &'static Entry,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let shared = core.shared;
    let mut reply = Reply::new(out, false);
    let ended = match entry.run {
        Run::Data(run) => {
            let router = &shared.router;
            let key = entry.is_single.then(|| router.key(args.at(1)));
            let single = key.map(|key| router.shard_of(key.hash));
            let set = match single.and_then(|id| grant.get_mut(id).map(|part| (id, part))) {
                Some((id, part)) => ShardSet::one(router, id, part),
                None => exec::set_of(router, grant),
            };
            let mut ctx = Ctx::new(set, &core.env, db, core.dbs_len, core.now_ms, key);
            ctx.may_wait = false;
            let ended = run(&mut ctx, args, &mut reply);
            drop(ctx);
            let ran = note::Ran { entry, args, db, served: None, reply: out };
            match single.and_then(|id| grant.get_mut(id).map(|part| (id, part))) {
                Some((id, part)) if part.shard.changes.is_journalled() => {
                    note::note(core, ShardSet::one(router, id, part), Some(ran));
                }
                Some(_) => {}
                None => note::note_grant(core, grant, Some(ran)),
            }
            ended
        }
        Run::Server(_) if entry.spec.has(Marks::REPLAYED) => {
            crate::commands::function::change(core, args, &mut reply)
        }
        _ => return Err(format!("the master sent '{}', which is no change of data", entry.spec.name)),
    };
    core.stats().commands[entry.id].calls.add(1);
    if let Err(fault) = ended {
        tell_failure(core, entry, &fault);
    }
    Ok(())
}

/// Says that a command of the master has failed here. The master has run it, so the two differ.
#[cold]
fn tell_failure(core: &Core, entry: &Entry, fault: &Fault) {
    core.stats().commands[entry.id].failed.add(1);
    let shown = FAILURES.fetch_add(1, Relaxed);
    if shown < FAILURES_SHOWN {
        tracing::error!("a command of the master fails here: {}: {}", entry.spec.name, fault.line());
    }
}

static FAILURES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// Failures that are logged one by one.
const FAILURES_SHOWN: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn stream_of(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            stream::write(&mut out, &words);
        }
        out
    }

    #[test]
    fn half_a_transaction_is_not_part_of_a_batch() {
        let first = stream_of(&["SET a 1"]);
        let open = [first.clone(), stream_of(&["MULTI", "SET b 2"])].concat();
        let batch = Batch::cut(&open).expect("commands").expect("one is whole");
        assert_eq!(batch.bytes, first);
        let all = [open, stream_of(&["EXEC", "REPLCONF GETACK *"])].concat();
        let batch = Batch::cut(&all).expect("commands").expect("all are whole");
        assert!(batch.bytes == all && batch.commands.len() == 5 && batch.asks_for_ack);
        assert!(Batch::cut(&stream_of(&["MULTI", "SET b 2"])).expect("commands").is_none());
        assert!(Batch::cut(b"").expect("nothing").is_none());
        assert!(Batch::cut(b"+OK\r\n").is_err());
    }
}

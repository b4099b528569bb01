//! The batch path: runs of data commands with one key each, on a connection and a thread that nothing stands before.
//!
//! Called by the connection for what its parse window holds; it does what `dispatch::execute` does for such commands,
//! and keeps their counters in registers for as long as one command follows another of its kind. It never runs a
//! command that is to be timed, or one that the gates concern: those end the run.

use darter_command::slices::WRITE_BYTES_MIN;
use darter_command::spec::Inlined;
use darter_command::string::kernel::{self, KernelPlace};
use darter_latch::Held;
use darter_reactor::Token;
use darter_store::{Key, Look, Shard};
use darter_txn::{Reader, ShardPart};
use darter_wire::{Reply, ReplyBuffer, Span};

use crate::acl::guard;
use crate::command_log::large;
use crate::conn::window::{Prepared, WINDOW_LEN};
use crate::engine::cluster::route;
use crate::engine::origin::ChangedBy;
use crate::engine::{commit, lease};
use crate::exec::{self, CommandCall, Ran};
use crate::job::Job;
use crate::journal::note as journal;
use crate::registry::{CommandEntry, SAMPLE};
use crate::session::{Gate, Session};
use crate::stats::Count;
use crate::thread_state::ThreadState;
use crate::tracking;

/// Where commands come from and replies go.
pub struct CommandBatch<'a> {
    /// The bytes that were parsed.
    pub buf: &'a [u8],
    /// Places of the arguments in them.
    pub spans: &'a [Span],
    /// Where short replies are put together; empty between runs.
    pub reply_buffer: &'a mut ReplyBuffer,
    /// The connection's state.
    pub session: &'a mut Session,
    /// The connection's output.
    pub out: &'a mut Vec<u8>,
    /// The output may grow to this many bytes before a further command runs.
    pub out_bytes_max: usize,
    /// The connection.
    pub token: Token,
}

impl CommandBatch<'_> {
    /// Whether the output has room for a further command's reply.
    #[inline]
    fn has_room(&self) -> bool {
        self.out.len() <= self.out_bytes_max
    }

    /// Whether nothing stands before the connection's commands but what is looked at on this way, too.
    #[inline]
    fn is_open(&self) -> bool {
        let gate = self.session.gate;
        gate.0 == 0
            || gate.0 & !(Gate::ACL.0 | Gate::TRACKING.0 | Gate::CLUSTER.0) == 0
                // Other modes look back at the command before.
                && self.session.tracking.as_ref().is_none_or(|own| own.mode == tracking::TrackingMode::All)
    }

    /// As whom a client that caches is remembered with the key of such a command.
    #[inline]
    fn reader(&self, entry: &CommandEntry) -> Option<Reader> {
        if self.session.gate.has(Gate::TRACKING) { tracking::reader_of(self.session, entry) } else { None }
    }
}

/// Runs commands from the front of `commands` as far as the batch path goes; returns how many, and how the last ended.
#[inline(never)]
pub fn run(local: &mut ThreadState, way: &mut CommandBatch<'_>, commands: &[Prepared]) -> (usize, Ran) {
    // The session's gates are opened and shut by commands that do not go this way; the thread's may be shut by any that
    // finds no memory left.
    let is_open = way.is_open() && !local.is_gated && !local.times_all;
    let first = if is_open { commands.first() } else { None };
    let Some(mut tally) = first.and_then(|first| BatchTally::new(local, first.ready.entry?)) else {
        return (0, Ran::Done);
    };
    let (mut done, mut ran) = (0, Ran::Done);
    // As far as its user may go with commands like this one.
    let is_limited = way.session.gate.has(Gate(Gate::ACL.0 | Gate::CLUSTER.0));
    let mut allowed = if is_limited { 0 } else { commands.len() };
    while let Some(planned) = commands.get(done) {
        let Some(entry) = planned.ready.entry.filter(|_| planned.ready.cell.is_some()) else { break };
        if !std::ptr::eq(entry, tally.entry) {
            tally.settle(way.session);
            let Some(next) = BatchTally::new(local, entry) else { break };
            tally = next;
            allowed = if is_limited { done } else { allowed };
        }
        if entry.is_timed(tally.calls, false, true) || !way.has_room() || local.is_gated {
            break;
        }
        let rest = commands.get(done..).unwrap_or_default();
        if done == allowed {
            allowed += allowed_len(local, way, entry, rest);
            if done == allowed {
                break;
            }
        }
        // As far as the next one that is to be timed.
        let most = ((SAMPLE - tally.calls % SAMPLE) as usize).min(allowed - done);
        let rest = rest.get(..most).unwrap_or(rest);
        let is_brief = planned.args_len() == entry.inlined_len;
        let mut len = match entry.inlined {
            Inlined::Set if is_brief => run_alike::<true, false>(local, way, entry, rest, 0),
            Inlined::Get if is_brief => match way.reader(entry) {
                None => run_alike::<false, false>(local, way, entry, rest, 0),
                Some(reader) => run_alike::<false, true>(local, way, entry, rest, reader),
            },
            _ => 0,
        };
        if len == 0 {
            // Of GET and SET one with options, or whose shard is busy.
            let rest = if entry.inlined_len == 0 { rest } else { rest.get(..1).unwrap_or(rest) };
            (len, ran) = run_each(local, way, entry, rest);
        }
        tally.calls += len as u64;
        done += len;
        if ran != Ran::Done {
            break;
        }
    }
    tally.settle(way.session);
    (done, ran)
}

/// How many of `commands`, calls of `entry`, may run: by the rights of their user, and by the slots of this node.
#[inline]
fn allowed_len(
    local: &ThreadState,
    way: &CommandBatch<'_>,
    entry: &'static CommandEntry,
    commands: &[Prepared],
) -> usize {
    let (gate, place) = (way.session.gate, (way.buf, way.spans));
    let len = match gate.has(Gate::ACL) {
        true => guard::permitted_len(local, way.session, entry, place, commands),
        false => commands.len(),
    };
    match gate.has(Gate::CLUSTER) {
        true => route::own_len(local, entry, commands.get(..len).unwrap_or_default()),
        false => len,
    }
}

/// Runs GETs, or SETs without options, from the front of `commands` up to another command or a busy shard; returns
/// how many. With `IS_TRACKED` they are remembered as read by `reader`.
#[inline(never)]
fn run_alike<const IS_SET: bool, const IS_TRACKED: bool>(
    local: &mut ThreadState,
    way: &mut CommandBatch<'_>,
    entry: &'static CommandEntry,
    commands: &[Prepared],
    reader: Reader,
) -> usize {
    const { assert!(WINDOW_LEN * ReplyBuffer::REPLY_MAX <= ReplyBuffer::BYTES) };
    let (buf, db) = (way.buf, way.session.db);
    let mut done = 0;
    for planned in commands {
        let is_alike = planned.ready.entry.is_some_and(|other| std::ptr::eq(other, entry));
        // Only SET takes others that are not alike; no GET of another length has a cell.
        if !is_alike || IS_SET && planned.args_len() != 3 {
            break;
        }
        let Some(mut held) = planned.ready.cell.and_then(lease::take_one) else {
            break;
        };
        let key = Key { bytes: planned.own_arg::<1>(buf), hash: planned.ready.hash };
        done += 1;
        if IS_TRACKED {
            tracking::remember_key(local, &mut held.readers, reader, key);
        }
        let look = if IS_SET {
            kernel::set(&mut held.shard, db, key, planned.own_arg::<2>(buf), way.reply_buffer)
        } else {
            kernel::get(&mut held.shard, db, key, way.reply_buffer)
        };
        // A plain read changes nothing: nobody waits to hear of it.
        let is_told = !IS_SET || look.is_none() && tell(local, &mut held.shard, db, key.bytes, planned, buf);
        if look.is_none() && is_told {
            lease::release_one(local, held);
            continue;
        }
        match finish::<IS_SET>(local, way, planned, held, look) {
            AfterBatch::Next => {}
            AfterBatch::Stop => break,
            AfterBatch::NotRun => {
                done -= 1;
                break;
            }
        }
    }
    way.reply_buffer.flush(way.out);
    done
}

/// Tells the journal of a SET; false when there are others to be told, or room is to be made.
#[inline(always)]
fn tell(
    local: &mut ThreadState,
    shard: &mut Shard,
    db: usize,
    key: &[u8],
    planned: &Prepared,
    buf: &[u8],
) -> bool {
    if shard.is_over_quota() {
        return false;
    }
    !shard.changes.has_pending() || journal::note_set(local, shard, db, key, planned.own_arg::<2>(buf))
}

/// What comes after a command that [`finish`] was given.
enum AfterBatch {
    /// The next one.
    Next,
    /// Another way.
    Stop,
    /// Another way, for this one too: its reply is long.
    NotRun,
}

/// The rest of a GET or a SET: of one with `look`, all of it but the finding; then who listens is told, and the shard
/// let go.
#[inline(never)]
fn finish<const IS_SET: bool>(
    local: &mut ThreadState,
    way: &mut CommandBatch<'_>,
    planned: &Prepared,
    mut held: Held<ShardPart, Job>,
    look: Option<Look>,
) -> AfterBatch {
    way.reply_buffer.flush(way.out);
    let Some(entry) = planned.ready.entry else { return AfterBatch::Stop };
    let is_long = match look {
        None => false,
        Some(_) if IS_SET => {
            planned.own_arg::<2>(way.buf).len() >= WRITE_BYTES_MIN && way.session.may_slice()
        }
        Some(look) => kernel::is_long(&held.shard, look),
    };
    if is_long {
        lease::release_one(local, held);
        return AfterBatch::NotRun;
    }
    if let Some(look) = look {
        let before = way.out.len();
        answer::<IS_SET>(local, way, entry, planned, &mut held.shard, look);
        let bytes = way.out.len() - before;
        large::note_reply(local, way.session.id, entry, planned.args(way.buf, way.spans), bytes);
    }
    let (db, key) = (way.session.db, planned.own_arg::<1>(way.buf));
    // A read may have found what had expired.
    let is_told = match IS_SET {
        true => tell(local, &mut held.shard, db, key, planned, way.buf),
        false => !held.shard.changes.has_pending(),
    };
    if !is_told {
        let args = planned.args(way.buf, &[]);
        // The journal asks the replies of other commands than these what they did.
        let ran = journal::Ran { entry, args, db: way.session.db, served: None, reply: &[] };
        commit::single(local, held, ChangedBy(way.session.id), ran);
    } else {
        lease::release_one(local, held);
    }
    // Making room may have shut the gate.
    if way.has_room() && !local.is_gated { AfterBatch::Next } else { AfterBatch::Stop }
}

/// A GET or a SET when the value there is not the plainest, or too long to be staged.
fn answer<const IS_SET: bool>(
    local: &ThreadState,
    way: &mut CommandBatch<'_>,
    entry: &'static CommandEntry,
    planned: &Prepared,
    shard: &mut Shard,
    look: Look,
) {
    let key = Key { bytes: planned.own_arg::<1>(way.buf), hash: planned.ready.hash };
    let place = KernelPlace { db: way.session.db, now_ms: local.now_ms };
    let mut reply = Reply::new(way.out, way.session.resp3);
    let mark = reply.len();
    let result = if IS_SET {
        kernel::set_looked(shard, place, key, look, planned.own_arg::<2>(way.buf), &mut reply)
    } else {
        kernel::get_looked(shard, place, key, look, &mut reply)
    };
    if let Err(fault) = result {
        exec::refuse(local, entry, &fault, &mut reply, mark);
    }
}

/// Runs commands of one kind from the front of `commands`, at least the first; returns how many, and how the last ended.
#[inline(never)]
fn run_each(
    local: &mut ThreadState,
    way: &mut CommandBatch<'_>,
    entry: &'static CommandEntry,
    commands: &[Prepared],
) -> (usize, Ran) {
    let is_tracked = way.session.gate.has(Gate::TRACKING);
    let mut done = 0;
    for planned in commands {
        let is_alike = planned.ready.entry.is_some_and(|other| std::ptr::eq(other, entry));
        let Some(cell) = planned.ready.cell.filter(|_| is_alike) else { break };
        if done > 0 && (local.is_gated || !way.has_room()) {
            break;
        }
        done += 1;
        let args = planned.args(way.buf, way.spans);
        let key = Key { bytes: args.at(1), hash: planned.ready.hash };
        let before = way.out.len();
        let call = CommandCall { session: way.session, out: way.out, token: way.token };
        let ran = if is_tracked {
            exec::run_tracked(local, call, entry, args, cell, key)
        } else {
            exec::run_single(local, call, entry, args, cell, key)
        };
        if ran != Ran::Done {
            return (done, ran);
        }
        large::note_reply(local, way.session.id, entry, args, way.out.len() - before);
    }
    (done, Ran::Done)
}

/// Calls of one command, counted here until another one comes.
struct BatchTally {
    entry: &'static CommandEntry,
    count: &'static Count,
    before: u64,
    calls: u64,
}

impl BatchTally {
    #[inline]
    fn new(local: &ThreadState, entry: &'static CommandEntry) -> Option<BatchTally> {
        let count = &local.stats().commands.get(entry.id)?.calls;
        let calls = count.get();
        Some(BatchTally { entry, count, before: calls, calls })
    }

    /// Writes the counts where others read them.
    #[inline]
    fn settle(&self, session: &mut Session) {
        let new = self.calls - self.before;
        if new > 0 {
            self.count.add(new);
            session.usage.commands += new;
            session.usage.last_command = self.entry.id as u32;
        }
    }
}

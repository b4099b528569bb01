//! Clients that wait for replicas: WAIT, and WAITAOF with replicas.

use darter_replica::history::ReplId;
use darter_txn::waiters::{Parked, Ticket};
use darter_wire::Reply;

use super::Replication;
use super::replicas::Replica;
use crate::clock::unix_ms;
use crate::dispatch::Caller;
use crate::journal::waitaof;
use crate::replication::group::FailoverGroup;
use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;
use crate::thread_state::ThreadState;
use crate::waiting::{BlockedState, TimeUp};

/// Acknowledgement that a client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// So many replicas have applied it (WAIT).
    Applied(usize),
    /// It is on the disks of so many replicas, and here as well if `here` (WAITAOF).
    Synced {
        /// Replicas.
        replicas: usize,
        /// This server too.
        here: bool,
    },
    /// This server has applied all before a sequence of a history (DARTER WAITSEQ).
    Sequence {
        /// Which history.
        history: ReplId,
        /// Everything below it.
        sequence: u64,
    },
}

/// A client that waits.
struct AckWait {
    goal: Goal,
    /// Everything with a smaller sequence.
    before: u64,
    /// The offset that replicas have to reach, once it is known.
    offset: Option<u64>,
    deadline_ms: Option<u64>,
    home: u16,
    token: darter_reactor::Token,
    client: u64,
    resp3: bool,
    ticket: Parked,
}

/// All who wait.
#[derive(Default)]
pub struct Waits(Vec<AckWait>);

/// Has the client wait for replicas, up to a time.
pub fn wait_for(caller: &mut Caller<'_>, goal: Goal, timeout_ms: u64) {
    let (shared, local) = (caller.local.shared, &mut *caller.local);
    shared.replication.start_feeder(shared);
    let deadline_ms = (timeout_ms > 0).then(|| unix_ms().saturating_add(timeout_ms));
    let ticket: Parked = Ticket::new(());
    let wait = AckWait {
        goal,
        before: shared.journal.end(),
        offset: None,
        deadline_ms,
        home: local.thread,
        token: caller.info.token,
        client: caller.info.id,
        resp3: caller.session.resp3,
        ticket: ticket.clone(),
    };
    lock(&shared.replication.waits).0.push(wait);
    if matches!(goal, Goal::Synced { here: true, .. }) {
        shared.journal.ask_for_sync();
    }
    // What this turn has noted is handed over at its end.
    shared.journal.intake.poke();
    caller.session.blocked = Some(BlockedState {
        ticket: Some(ticket),
        deadline_ms: None,
        ready_at_ms: None,
        on_timeout: TimeUp::Reply(timed_out(goal)),
    });
}

/// What CLIENT UNBLOCK has a client answered.
fn timed_out(goal: Goal) -> Vec<u8> {
    match goal {
        Goal::Applied(_) | Goal::Sequence { .. } => b":0\r\n".to_vec(),
        Goal::Synced { .. } => b"*2\r\n:0\r\n:0\r\n".to_vec(),
    }
}

impl Replication {
    /// Returns true if a client waits for replicas.
    pub fn has_waits(&self) -> bool {
        !lock(&self.waits).0.is_empty()
    }

    /// Finds the offsets for those whose changes are in the stream by now, all before sequence `next`. Returns whether
    /// replicas are to be asked how far they are.
    pub fn place_waits(&self, next: Option<u64>) -> bool {
        let mut waits = lock(&self.waits);
        if waits.0.is_empty() {
            return false;
        }
        let end = self.state().offset();
        let mut is_new = false;
        for wait in waits.0.iter_mut().filter(|wait| wait.offset.is_none()) {
            if next.is_none_or(|next| next >= wait.before) {
                wait.offset = Some(end);
                is_new = true;
            }
        }
        is_new
    }

    /// Answers those whose goal is reached or whose time is up; returns whether others go on waiting.
    pub fn answer_waits(&self, shared: &Shared) -> bool {
        let mut waits = lock(&self.waits);
        if waits.0.is_empty() {
            return false;
        }
        let now_ms = unix_ms();
        let members = shared.group.as_ref().map(|group| group.commit.members()).unwrap_or_default();
        let (reached, has, least): (Vec<(u64, u64)>, _, _) = {
            let state = self.state();
            let has = |history: &ReplId, sequence: u64| state.has_sequence(history, sequence);
            let wanted = waits.0.iter().map(|wait| match &wait.goal {
                Goal::Sequence { history, sequence } => has(history, *sequence),
                Goal::Applied(_) | Goal::Synced { .. } => false,
            });
            let has: Vec<bool> = wanted.collect();
            let online = state.replicas.iter().filter(|replica| replica.has(0));
            // What every member that may lead next has.
            let acked = |boot: &ReplId| {
                let of = |replica: &&Replica| replica.boot.as_ref() == Some(boot);
                state.replicas.iter().find(of).map_or(0, Replica::acked_offset)
            };
            let least = members.iter().map(acked).min().unwrap_or(u64::MAX);
            (online.map(|replica| (replica.acked_offset(), replica.synced)).collect(), has, least)
        };
        let mut has = has.into_iter();
        let durable = shared.journal.durable_before();
        waits.0.retain(|wait| {
            let has_sequence = has.next().unwrap_or(false);
            if wait.ticket.is_done() {
                return false;
            }
            let is_late = wait.deadline_ms.is_some_and(|at| at <= now_ms);
            let count = |of: fn(&(u64, u64)) -> u64| match wait.offset {
                Some(offset) => reached.iter().filter(|one| of(one) >= offset).count(),
                None => 0,
            };
            let mut reply = Vec::new();
            let mut out = Reply::new(&mut reply, wait.resp3);
            let is_reached = match wait.goal {
                Goal::Applied(replicas) => {
                    let has_all = wait.offset.is_some_and(|offset| least >= offset);
                    let count = count(|one| one.0);
                    let there = if has_all { count } else { count.min(replicas.saturating_sub(1)) };
                    out.int_len(there);
                    there >= replicas
                }
                Goal::Sequence { .. } => {
                    out.int(i64::from(has_sequence));
                    has_sequence
                }
                Goal::Synced { replicas, here } => {
                    let there = count(|one| one.1);
                    let is_here = shared.journal.is_on() && durable >= wait.before;
                    waitaof::write_reply_of(&mut out, is_here, there);
                    there >= replicas && (is_here || !here)
                }
            };
            if !(is_reached || is_late) || !wait.ticket.begin() {
                return true;
            }
            wait.ticket.finish();
            let (token, client) = (wait.token, wait.client);
            shared.handle(wait.home).send(ThreadMessage::Served { token, client, reply });
            false
        });
        !waits.0.is_empty()
    }

    /// Replicas that have applied everything so far, as far as they have said so.
    pub fn applied_all(&self) -> usize {
        let state = self.state();
        let end = state.offset();
        state.replicas.iter().filter(|replica| replica.has(end)).count()
    }
}

impl ThreadState {
    /// Whether there are fewer replicas than writes need.
    pub fn lacks_replicas(&self) -> bool {
        let wanted = self.live.replication.min_replicas;
        let replication = &self.shared.replication;
        let lacks_acks = self.shared.group.as_ref().is_some_and(FailoverGroup::lacks_acks);
        let is_master = !replication.is_replica();
        is_master && (lacks_acks || wanted > 0 && replication.good_replicas() < wanted)
    }
}

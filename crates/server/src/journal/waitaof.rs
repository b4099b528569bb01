//! Clients that wait for a sync (WAITAOF).

use std::sync::Mutex;

use darter_reactor::Token;
use darter_txn::waiters::{Parked, Ticket};
use darter_wire::Reply;

use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// A client that waits until its writes have been synced.
pub struct WaitingAof {
    before: u64,
    home: u16,
    token: Token,
    client: u64,
    resp3: bool,
    ticket: Parked,
}

/// The reply of WAITAOF: whether this server has synced, and how many replicas have.
pub fn write_reply(reply: &mut Reply<'_>, is_local: bool) {
    write_reply_of(reply, is_local, 0);
}

/// The same with replicas.
pub fn write_reply_of(reply: &mut Reply<'_>, is_local: bool, replicas: usize) {
    reply.array(2);
    reply.int(i64::from(is_local));
    reply.int_len(replicas);
}

/// All that wait.
#[derive(Default)]
pub struct SyncWaiters(Mutex<Vec<WaitingAof>>);

impl SyncWaiters {
    /// Makes a client wait until everything written so far is synced; the ticket is to be parked.
    pub fn add(&self, local: &ThreadState, token: Token, client: u64, resp3: bool, before: u64) -> Parked {
        let ticket: Parked = Ticket::new(());
        let waiting = WaitingAof { before, home: local.thread, token, client, resp3, ticket: ticket.clone() };
        lock(&self.0).push(waiting);
        local.shared.journal.ask_for_sync();
        ticket
    }

    /// Answers those whose writes have been synced by now.
    pub fn answer(&self, shared: &Shared) {
        let mut waiting = lock(&self.0);
        if waiting.is_empty() {
            return;
        }
        let durable = shared.journal.durable_before();
        waiting.retain(|one| {
            if one.ticket.is_done() {
                return false;
            }
            if one.before > durable || !one.ticket.begin() {
                return true;
            }
            one.ticket.finish();
            let mut reply = Vec::new();
            write_reply(&mut Reply::new(&mut reply, one.resp3), true);
            let (token, client) = (one.token, one.client);
            shared.handle(one.home).send(ThreadMessage::Served { token, client, reply });
            false
        });
    }

    /// Returns true if a client waits for a sync.
    pub fn has_any(&self) -> bool {
        !lock(&self.0).is_empty()
    }
}

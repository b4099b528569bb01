//! What a thread does when the map has changed: from here on it routes by the new one. Clients that wait for keys of slots
//! which have left are sent to the new owner, and their subscriptions to channels of such slots end.
//!
//! Called by the worker for the message about a new map. It touches connections and takes no shard.

use darter_base::crc::key_slot;
use darter_cluster::SlotMap;
use darter_wire::Reply;

use super::{links, route};
use crate::conn::Conn;
use crate::pubsub::{self, SubscriptionKind};
use crate::thread_state::ThreadState;
use crate::waiting;

/// The answer to a client that waits, if what it waits for is served elsewhere now.
pub fn answer_to_waiting(local: &ThreadState, conn: &Conn) -> Option<Vec<u8>> {
    let ticket = conn.session.blocked.as_ref()?.ticket.as_ref()?;
    let (entry, args) = waiting::command_of(ticket)?;
    let line = route::refusal_after_wait(local, links::of_client(local, &conn.session), entry, args)?;
    let mut reply = Vec::new();
    Reply::new(&mut reply, conn.session.resp3).error(&line);
    Some(reply)
}

/// Ends a client's subscriptions to channels of slots that are not this group's, each with its own message. Returns
/// whether there were any.
pub fn end_subscriptions(local: &mut ThreadState, map: &SlotMap, conn: &mut Conn) -> bool {
    let Some(own) = &conn.session.subscriptions else { return false };
    let mut names = own.names(SubscriptionKind::Shard);
    names.retain(|name| !map.is_own(key_slot(name)));
    let info = conn.info.clone();
    for name in &names {
        pubsub::unsubscribe(local, &mut conn.session, &info, SubscriptionKind::Shard, name);
        let left = conn.session.subscriptions.as_ref().map_or(0, |own| own.len(SubscriptionKind::Shard));
        let resp3 = conn.session.resp3;
        let mut reply = Reply::new(conn.messages(), resp3);
        reply.push(3);
        reply.bulk(b"sunsubscribe");
        reply.bulk(name);
        reply.int_len(left);
    }
    !names.is_empty()
}

//! What a client is told, in the form it can understand: on its own thread, or on that of the client it named.

use std::sync::Arc;

use darter_wire::Reply;

use super::{Tracker, TrackingMode};
use crate::conn::Conn;

/// A message that keys have changed.
#[derive(Debug)]
pub struct Invalidation {
    /// Client that is notified.
    pub to: Tracker,
    /// The keys as an array of strings; nothing means all keys.
    pub keys: Arc<[u8]>,
}

/// Tells a tracking client, unless it does not track any more, or that the client it named has gone. Called on its own
/// thread; returns whether there is something to send to it, or to show of it.
pub fn deliver(conn: &mut Conn, message: &Invalidation) -> bool {
    let resp3 = conn.session.resp3;
    let Some(own) = &mut conn.session.tracking else { return false };
    if (own.mode == TrackingMode::Broadcast) != message.to.is_broadcast {
        return false;
    }
    let Some(other) = own.redirect.filter(|_| own.redirect == message.to.redirect) else {
        return write(conn, &message.keys, false);
    };
    own.is_broken = true;
    if resp3 {
        let mut reply = Reply::new(conn.messages(), true);
        reply.push(2);
        reply.bulk(b"tracking-redir-broken");
        reply.int(i64::try_from(other).unwrap_or(i64::MAX));
    }
    true
}

/// Tells a client what another one has asked to be told there; returns whether there is something to send to it.
pub fn redirected(conn: &mut Conn, keys: &[u8]) -> bool {
    write(conn, keys, true)
}

/// RESP2 has no messages between replies, but a subscribed client expects them.
fn write(conn: &mut Conn, keys: &[u8], is_redirected: bool) -> bool {
    let resp3 = conn.session.resp3;
    let is_subscribed = conn.session.subscriptions.is_some();
    if resp3 {
        push(conn.messages(), keys);
        return true;
    }
    if !(is_redirected && is_subscribed) {
        return false;
    }
    let mut reply = Reply::new(conn.messages(), false);
    reply.push(3);
    reply.bulk(b"message");
    reply.bulk(b"__redis__:invalidate");
    reply.raw(if keys.is_empty() { b"$-1\r\n" } else { keys });
    true
}

/// Appends the message of RESP3 that `keys`, an array of strings, have changed; nothing means all keys.
pub fn push(out: &mut Vec<u8>, keys: &[u8]) {
    let mut reply = Reply::new(out, true);
    reply.push(2);
    reply.bulk(b"invalidate");
    reply.raw(if keys.is_empty() { b"_\r\n" } else { keys });
}

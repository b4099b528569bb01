//! Publish and subscribe: who is subscribed to what, and how a message reaches them.
//!
//! A directory shared by all threads knows which threads have subscribers of a channel; each thread knows which of
//! its connections they are. A message is encoded once, one reference to it goes to each thread concerned, and the
//! thread appends it to its connections' outputs. Messages of one channel reach all subscribers in one order.

mod directory;
mod message;
mod notify;
pub mod run;
mod subscribers;

pub use directory::ChannelDirectory;
pub use message::Message;
pub use notify::{listen, notify, settle};
pub use subscribers::Subscribers;

pub use crate::subscriptions::{SubscriptionKind, Subscriptions};

use std::sync::Arc;

use directory::may_hear_of_keys;

use crate::clients::ClientInfo;
use crate::session::Session;
use crate::shared::{Shared, ThreadMessage};
use crate::thread_state::ThreadState;

/// Sends `payload` to the subscribers of `channel` and of patterns that match it; returns how many they are.
///
/// Cost: a lock of the channel's part of the directory, a message a thread with subscribers.
pub fn publish(shared: &Shared, channel: &[u8], payload: &[u8]) -> usize {
    send(shared, SubscriptionKind::Channel, channel, payload, None).0
}

/// As [`publish`], to the subscribers of a shard channel.
pub fn publish_shard(shared: &Shared, channel: &[u8], payload: &[u8]) {
    send(shared, SubscriptionKind::Shard, channel, payload, None);
}

/// As [`publish`], from a client that may be among the receivers: its own copy follows the reply of its command.
/// `kind` is `Channel` or `Shard`.
pub fn publish_from(
    shared: &Shared,
    session: &mut Session,
    kind: SubscriptionKind,
    channel: &[u8],
    payload: &[u8],
) -> usize {
    if session.subscriptions.is_none() {
        return send(shared, kind, channel, payload, None).0;
    }
    let (receivers, message) = send(shared, kind, channel, payload, Some(session.id));
    let (Some(message), Some(own)) = (message, &session.subscriptions) else { return receivers };
    if own.has(kind, channel) {
        message.write_to(&mut session.own_messages, None, session.resp3);
    }
    for pattern in message.patterns().iter().filter(|pattern| own.has(SubscriptionKind::Pattern, pattern)) {
        message.write_to(&mut session.own_messages, Some(pattern), session.resp3);
    }
    receivers
}

fn send(
    shared: &Shared,
    kind: SubscriptionKind,
    channel: &[u8],
    payload: &[u8],
    except: Option<u64>,
) -> (usize, Option<Arc<Message>>) {
    let mut sent = None;
    let receivers = shared.pubsub.find(kind, channel, |found| {
        let message = Arc::new(Message::new(kind, channel, payload, found.seq, except, found.patterns));
        for thread in found.threads {
            shared.handle(*thread).send(ThreadMessage::Publish(message.clone()));
        }
        sent = Some(message);
    });
    (receivers, sent)
}

/// Subscribes a client of this thread; returns whether it was not subscribed before.
pub fn subscribe(
    local: &mut ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    kind: SubscriptionKind,
    name: &[u8],
) -> bool {
    let own = session.subscriptions.get_or_insert_default();
    if !own.add(kind, name) {
        return false;
    }
    let since = local.shared.pubsub.add(kind, name, local.thread);
    local.subscribers.add(kind, name, info.token, info.id, since);
    if may_hear_of_keys(kind, name) {
        listen(local);
    }
    own.show_on(info);
    session.settle_subscribed();
    true
}

/// Ends a client's subscription; returns whether there was one.
pub fn unsubscribe(
    local: &mut ThreadState,
    session: &mut Session,
    info: &ClientInfo,
    kind: SubscriptionKind,
    name: &[u8],
) -> bool {
    let Some(own) = &mut session.subscriptions else { return false };
    if !own.remove(kind, name) {
        return false;
    }
    local.shared.pubsub.remove(kind, name, local.thread);
    local.subscribers.remove(kind, name, info.id);
    if may_hear_of_keys(kind, name) && !local.shared.pubsub.hears_keys() {
        listen(local);
    }
    own.show_on(info);
    if own.is_empty() {
        session.subscriptions = None;
    }
    session.settle_subscribed();
    true
}

/// Ends all subscriptions of a client that leaves or resets.
pub fn unsubscribe_all(local: &mut ThreadState, session: &mut Session, info: &ClientInfo) {
    let Some(own) = session.subscriptions.take() else { return };
    let heard_keys = local.shared.pubsub.hears_keys();
    for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard] {
        for name in own.names(kind) {
            local.shared.pubsub.remove(kind, &name, local.thread);
            local.subscribers.remove(kind, &name, info.id);
        }
    }
    if heard_keys && !local.shared.pubsub.hears_keys() {
        listen(local);
    }
    Subscriptions::default().show_on(info);
    session.settle_subscribed();
}

#[cfg(test)]
mod tests;

//! The subscribed connections of a thread, and what other threads see of a connection's subscriptions.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use darter_reactor::Token;

use super::{Message, SubscriptionKind, Subscriptions};
use crate::clients::ClientInfo;

impl Subscriptions {
    /// Shows them and their numbers to other threads.
    pub fn show_on(&self, info: &ClientInfo) {
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard] {
            info.subscriptions[kind.index()].store(self.len(kind) as u32, Relaxed);
        }
        info.show_subscribed((!self.is_empty()).then(|| self.clone()));
    }
}

/// The subscribed connections of one thread.
#[derive(Debug, Default)]
pub struct Subscribers {
    by_name: [HashMap<Box<[u8]>, Vec<Subscriber>>; 3],
}

#[derive(Clone, Copy, Debug)]
struct Subscriber {
    token: Token,
    client: u64,
    // number of the first message it is to get
    since: u64,
}

impl Subscribers {
    /// Adds a connection to a name it is not subscribed to yet.
    pub fn add(&mut self, kind: SubscriptionKind, name: &[u8], token: Token, client: u64, since: u64) {
        let subscriber = Subscriber { token, client, since };
        let by_name = &mut self.by_name[kind.index()];
        match by_name.get_mut(name) {
            Some(list) => list.push(subscriber),
            None => {
                by_name.insert(name.into(), vec![subscriber]);
            }
        }
    }

    /// Removes a connection from a name. Cost: O(subscribers of it on this thread).
    pub fn remove(&mut self, kind: SubscriptionKind, name: &[u8], client: u64) {
        let by_name = &mut self.by_name[kind.index()];
        let Some(list) = by_name.get_mut(name) else { return };
        if let Some(at) = list.iter().position(|subscriber| subscriber.client == client) {
            list.swap_remove(at);
        }
        if list.is_empty() {
            by_name.remove(name);
        }
    }

    /// Calls `to` with every connection that is subscribed to the channel of `message`, and the number of the first message
    /// that it is to get.
    pub fn each_of_channel(&self, message: &Message, mut to: impl FnMut(Token, u64, u64)) {
        let list = self.by_name[message.kind().index()].get(message.channel());
        for subscriber in list.into_iter().flatten() {
            to(subscriber.token, subscriber.client, subscriber.since);
        }
    }

    /// Calls `to` with every connection that gets `message`, and the pattern if it is by one.
    pub fn each_receiver(&self, message: &Message, mut to: impl FnMut(Token, u64, Option<&[u8]>)) {
        let mut tell = |kind: SubscriptionKind, name: &[u8], pattern: Option<&[u8]>| {
            let list = self.by_name[kind.index()].get(name).map_or(&[] as &[Subscriber], |list| list);
            for subscriber in list {
                if message.seq() >= subscriber.since && message.is_for(subscriber.client) {
                    to(subscriber.token, subscriber.client, pattern);
                }
            }
        };
        tell(message.kind(), message.channel(), None);
        for pattern in message.patterns() {
            tell(SubscriptionKind::Pattern, pattern, Some(pattern));
        }
    }
}

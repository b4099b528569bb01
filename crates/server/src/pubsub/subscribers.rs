//! Subscriptions of one connection, and of all connections of a thread.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use darter_reactor::Token;

use super::{Kind, Message};
use crate::clients::ClientInfo;
use crate::worker::lock;

type Names = BTreeSet<Box<[u8]>>;

/// What one connection is subscribed to. Its own thread changes it; others may look, when rights are withdrawn.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    names: Arc<Mutex<[Names; 3]>>,
    bytes: usize,
}

/// Bytes of a subscription beside its name: here, in the thread's table and in the directory.
const SUBSCRIPTION_BYTES: usize = 64;

impl Subscriptions {
    /// Adds a name; false when it is there already.
    pub fn add(&mut self, kind: Kind, name: &[u8]) -> bool {
        let names = &mut lock(&self.names)[kind.index()];
        let is_new = !names.contains(name) && names.insert(name.into());
        self.bytes += usize::from(is_new) * (name.len() + SUBSCRIPTION_BYTES);
        is_new
    }

    /// Removes a name; false when it is not there.
    pub fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let was_there = lock(&self.names)[kind.index()].remove(name);
        self.bytes -= usize::from(was_there) * (name.len() + SUBSCRIPTION_BYTES);
        was_there
    }

    /// Bytes that count as the client's.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a name is there.
    pub fn has(&self, kind: Kind, name: &[u8]) -> bool {
        lock(&self.names)[kind.index()].contains(name)
    }

    /// All names of a kind. Cost: a copy of them.
    pub fn names(&self, kind: Kind) -> Vec<Box<[u8]>> {
        lock(&self.names)[kind.index()].iter().cloned().collect()
    }

    /// Whether `is_so` for every name of a kind.
    pub fn all(&self, kind: Kind, is_so: impl Fn(&[u8]) -> bool) -> bool {
        lock(&self.names)[kind.index()].iter().all(|name| is_so(name))
    }

    /// Number of names of a kind.
    pub fn len(&self, kind: Kind) -> usize {
        lock(&self.names)[kind.index()].len()
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        lock(&self.names).iter().all(BTreeSet::is_empty)
    }

    /// Shows them and their numbers to other threads.
    pub fn show_on(&self, info: &ClientInfo) {
        let mut is_empty = true;
        for (shown, names) in info.subscriptions.iter().zip(&*lock(&self.names)) {
            shown.store(names.len() as u32, Relaxed);
            is_empty &= names.is_empty();
        }
        info.show_subscribed((!is_empty).then(|| self.clone()));
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
    pub fn add(&mut self, kind: Kind, name: &[u8], token: Token, client: u64, since: u64) {
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
    pub fn remove(&mut self, kind: Kind, name: &[u8], client: u64) {
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
        let mut tell = |kind: Kind, name: &[u8], pattern: Option<&[u8]>| {
            let list = self.by_name[kind.index()].get(name).map_or(&[] as &[Subscriber], |list| list);
            for subscriber in list {
                if message.seq() >= subscriber.since && message.is_for(subscriber.client) {
                    to(subscriber.token, subscriber.client, pattern);
                }
            }
        };
        tell(message.kind(), message.channel(), None);
        for pattern in message.patterns() {
            tell(Kind::Pattern, pattern, Some(pattern));
        }
    }
}

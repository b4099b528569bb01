//! Which threads have subscribers of a channel or pattern, and how many.
//!
//! Publishers on any thread ask it, so it is cut into parts with a lock each. A publisher keeps the lock of its
//! channel while it sends, which puts the messages of a channel into one order for everybody.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use darter_base::glob;
use darter_base::hash::KeyHasher;
use hashbrown::HashTable;

use super::SubscriptionKind;
use crate::sync::lock;

const PARTS: usize = 64;

/// The directory of all subscriptions.
#[derive(Debug)]
pub struct ChannelDirectory {
    hasher: KeyHasher,
    channels: Vec<Mutex<Channels>>,
    shard_channels: Vec<Mutex<Channels>>,
    patterns: RwLock<Patterns>,
    // == patterns.len, to be looked at without the lock
    patterns_len: AtomicUsize,
    // subscriptions to what may be the channel of a notification
    key_hearers: AtomicUsize,
    // number of the next message
    clock: AtomicU64,
}

/// Channels of one part and their subscribers; the caller brings the hash of a name.
type Channels = HashTable<(Box<[u8]>, Spread)>;

/// Subscribers by thread, each thread once.
#[derive(Clone, Debug, Default)]
struct Spread(Vec<(u16, u32)>);

impl Spread {
    fn add(&mut self, thread: u16) {
        match self.0.iter_mut().find(|(there, _)| *there == thread) {
            Some((_, n)) => *n += 1,
            None => self.0.push((thread, 1)),
        }
    }

    fn remove(&mut self, thread: u16) -> bool {
        let Some(at) = self.0.iter().position(|(there, _)| *there == thread) else { return false };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.swap_remove(at);
        }
        true
    }

    fn total(&self) -> usize {
        self.0.iter().map(|(_, n)| *n as usize).sum()
    }
}

/// Patterns and who is subscribed to each.
type Subscribed = BTreeMap<Arc<[u8]>, Spread>;

/// Patterns by the bytes they begin with literally; only those whose beginning a channel has are tried.
#[derive(Debug, Default)]
struct Patterns {
    by_prefix: HashMap<Box<[u8]>, Subscribed>,
    // how many prefixes there are of each length
    prefix_lens: BTreeMap<usize, usize>,
    len: usize,
}

impl Patterns {
    fn add(&mut self, pattern: &[u8], thread: u16) {
        let prefix = glob::literal_prefix(pattern);
        if !self.by_prefix.contains_key(prefix) {
            self.by_prefix.insert(prefix.into(), Subscribed::new());
            *self.prefix_lens.entry(prefix.len()).or_default() += 1;
        }
        let Some(list) = self.by_prefix.get_mut(prefix) else { return };
        match list.get_mut(pattern) {
            Some(spread) => spread.add(thread),
            None => {
                list.insert(pattern.into(), Spread(vec![(thread, 1)]));
                self.len += 1;
            }
        }
    }

    fn remove(&mut self, pattern: &[u8], thread: u16) -> bool {
        let prefix = glob::literal_prefix(pattern);
        let Some(list) = self.by_prefix.get_mut(prefix) else { return false };
        let Some(spread) = list.get_mut(pattern) else { return false };
        let was_there = spread.remove(thread);
        if spread.0.is_empty() {
            list.remove(pattern);
            self.len -= 1;
        }
        if list.is_empty() {
            self.by_prefix.remove(prefix);
            if let Some(n) = self.prefix_lens.get_mut(&prefix.len()) {
                *n -= 1;
                if *n == 0 {
                    self.prefix_lens.remove(&prefix.len());
                }
            }
        }
        was_there
    }

    fn each_match(&self, channel: &[u8], mut visit: impl FnMut(&Arc<[u8]>, &Spread)) {
        for &len in self.prefix_lens.keys() {
            let Some(prefix) = channel.get(..len) else { break };
            for (pattern, spread) in self.by_prefix.get(prefix).into_iter().flatten() {
                if glob::matches(pattern, channel, false) {
                    visit(pattern, spread);
                }
            }
        }
    }
}

/// Whether who subscribes to `name` may hear of keys: notifications go to `__keyspace@…` and `__keyevent@…`.
pub fn may_hear_of_keys(kind: SubscriptionKind, name: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"__key";
    match kind {
        SubscriptionKind::Channel => name.starts_with(BEGINNING),
        SubscriptionKind::Pattern => {
            let prefix = glob::literal_prefix(name);
            prefix.starts_with(BEGINNING) || BEGINNING.starts_with(prefix)
        }
        SubscriptionKind::Shard => false,
    }
}

/// Receivers of a message, found by [`ChannelDirectory::find`].
pub struct FoundChannel<'a> {
    /// The message's number.
    pub seq: u64,
    /// Threads with subscribers, each once.
    pub threads: &'a [u16],
    /// Patterns that match.
    pub patterns: Vec<Arc<[u8]>>,
}

impl Default for ChannelDirectory {
    fn default() -> ChannelDirectory {
        let parts = || (0..PARTS).map(|_| Mutex::default()).collect();
        ChannelDirectory {
            hasher: KeyHasher::random(),
            channels: parts(),
            shard_channels: parts(),
            patterns: RwLock::default(),
            patterns_len: AtomicUsize::new(0),
            key_hearers: AtomicUsize::new(0),
            clock: AtomicU64::new(0),
        }
    }
}

impl ChannelDirectory {
    /// Notes one more subscriber on `thread`; returns the number of the first message it is to get.
    pub fn add(&self, kind: SubscriptionKind, name: &[u8], thread: u16) -> u64 {
        if may_hear_of_keys(kind, name) {
            self.key_hearers.fetch_add(1, Ordering::AcqRel);
        }
        match kind {
            SubscriptionKind::Pattern => {
                let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
                patterns.add(name, thread);
                self.patterns_len.store(patterns.len, Ordering::Release);
                self.clock.load(Ordering::Acquire)
            }
            SubscriptionKind::Channel | SubscriptionKind::Shard => {
                let hash = self.hasher.hash(name);
                let mut part = lock(self.part(kind, hash));
                match part.find_mut(hash, |(there, _)| **there == *name) {
                    Some((_, spread)) => spread.add(thread),
                    None => {
                        let new = (name.into(), Spread(vec![(thread, 1)]));
                        part.insert_unique(hash, new, |(name, _)| self.hasher.hash(name));
                    }
                }
                self.clock.load(Ordering::Acquire)
            }
        }
    }

    /// Notes one subscriber less on `thread`.
    pub fn remove(&self, kind: SubscriptionKind, name: &[u8], thread: u16) {
        let was_there = match kind {
            SubscriptionKind::Pattern => {
                let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
                let was_there = patterns.remove(name, thread);
                self.patterns_len.store(patterns.len, Ordering::Release);
                was_there
            }
            SubscriptionKind::Channel | SubscriptionKind::Shard => {
                let hash = self.hasher.hash(name);
                let mut part = lock(self.part(kind, hash));
                match part.find_entry(hash, |(there, _)| **there == *name) {
                    Ok(mut known) => {
                        let spread = &mut known.get_mut().1;
                        let was_there = spread.remove(thread);
                        if spread.0.is_empty() {
                            known.remove();
                        }
                        was_there
                    }
                    Err(_) => false,
                }
            }
        };
        if was_there && may_hear_of_keys(kind, name) {
            self.key_hearers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether anybody is subscribed to what may be the channel of a keyspace notification.
    #[inline]
    pub fn hears_keys(&self) -> bool {
        self.key_hearers.load(Ordering::Acquire) != 0
    }

    /// Returns how many subscribers a message to `channel` has. If any, `send` gets them, with the channel locked.
    pub fn find(&self, kind: SubscriptionKind, channel: &[u8], send: impl FnOnce(FoundChannel<'_>)) -> usize {
        let hash = self.hasher.hash(channel);
        let part = lock(self.part(kind, hash));
        let direct = part.find(hash, |(there, _)| **there == *channel).map(|(_, spread)| spread);
        if direct.is_none()
            && (kind == SubscriptionKind::Shard || self.patterns_len.load(Ordering::Acquire) == 0)
        {
            return 0;
        }
        let mut receivers = direct.map_or(0, Spread::total);
        let mut threads: Vec<u16> = direct.map_or(Vec::new(), |s| s.0.iter().map(|(t, _)| *t).collect());
        let mut matched = Vec::new();
        // Kept until the message is numbered, so that a subscriber that comes now gets it or is not counted.
        let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
        if kind == SubscriptionKind::Channel {
            patterns.each_match(channel, |pattern, spread| {
                receivers += spread.total();
                matched.push(pattern.clone());
                for (thread, _) in &spread.0 {
                    if !threads.contains(thread) {
                        threads.push(*thread);
                    }
                }
            });
        }
        if receivers > 0 {
            let seq = self.clock.fetch_add(1, Ordering::AcqRel);
            drop(patterns);
            send(FoundChannel { seq, threads: &threads, patterns: matched });
        }
        receivers
    }

    /// Subscribers of one channel, those by pattern apart.
    pub fn subscribers(&self, kind: SubscriptionKind, channel: &[u8]) -> usize {
        let hash = self.hasher.hash(channel);
        let part = lock(self.part(kind, hash));
        part.find(hash, |(there, _)| **there == *channel).map_or(0, |(_, spread)| spread.total())
    }

    /// Names of channels with subscribers that `pattern` matches; all without one.
    pub fn channels(&self, kind: SubscriptionKind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let mut found = Vec::new();
        for part in self.parts(kind) {
            let part = lock(part);
            let is_wanted = |name: &[u8]| pattern.is_none_or(|p| glob::matches(p, name, false));
            found.extend(part.iter().map(|(name, _)| name).filter(|name| is_wanted(name)).cloned());
        }
        found
    }

    /// Number of channels with subscribers.
    pub fn channels_len(&self, kind: SubscriptionKind) -> usize {
        self.parts(kind).iter().map(|part| lock(part).len()).sum()
    }

    /// Number of patterns with subscribers.
    pub fn patterns_len(&self) -> usize {
        self.patterns_len.load(Ordering::Acquire)
    }

    fn parts(&self, kind: SubscriptionKind) -> &[Mutex<Channels>] {
        if kind == SubscriptionKind::Shard { &self.shard_channels } else { &self.channels }
    }

    /// The part of a name; by other bits of its hash than those that a table looks at first.
    fn part(&self, kind: SubscriptionKind, hash: u64) -> &Mutex<Channels> {
        &self.parts(kind)[(hash >> 32) as usize % PARTS]
    }
}

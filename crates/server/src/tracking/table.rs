//! Which clients have read which keys, and which want to hear of which prefixes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Tracker;
use crate::worker::lock;

const PARTS: usize = 64;

/// The table, cut into parts with a lock each. Keys are remembered without their database, as Redis does.
#[derive(Debug)]
pub struct Table {
    hasher: RandomState,
    parts: Vec<Mutex<Readers>>,
    // what all parts hold together
    keys_len: AtomicUsize,
    items_len: AtomicUsize,
    clients: Mutex<Clients>,
    // == clients.trackers.len(), to be looked at without the lock
    clients_len: AtomicUsize,
}

type Readers = HashMap<Box<[u8]>, Vec<Tracker>>;

#[derive(Debug, Default)]
struct Clients {
    trackers: Vec<Tracker>,
    prefixes: HashMap<Box<[u8]>, Vec<Tracker>>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            hasher: RandomState::new(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            keys_len: AtomicUsize::new(0),
            items_len: AtomicUsize::new(0),
            clients: Mutex::default(),
            clients_len: AtomicUsize::new(0),
        }
    }
}

impl Table {
    /// Whether any client tracks.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.clients_len.load(Relaxed) != 0
    }

    /// Whether any client tracks, or keys are left that one has read.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.is_any() || self.keys_len.load(Relaxed) != 0
    }

    /// Adds a client, with the prefixes it wants to hear of.
    pub fn add(&self, tracker: Tracker, prefixes: &[Box<[u8]>]) {
        let mut clients = lock(&self.clients);
        clients.trackers.push(tracker);
        for prefix in prefixes {
            clients.prefixes.entry(prefix.clone()).or_default().push(tracker);
        }
        self.clients_len.store(clients.trackers.len(), Relaxed);
    }

    /// Removes a client and its prefixes.
    pub fn remove(&self, client: u64, prefixes: &[Box<[u8]>]) {
        let mut clients = lock(&self.clients);
        clients.trackers.retain(|tracker| tracker.client != client);
        for prefix in prefixes {
            if let Some(list) = clients.prefixes.get_mut(prefix) {
                list.retain(|tracker| tracker.client != client);
                if list.is_empty() {
                    clients.prefixes.remove(prefix);
                }
            }
        }
        self.clients_len.store(clients.trackers.len(), Relaxed);
    }

    /// Remembers that a client has read `key`. With more than `keys_max` keys (0: no limit) another one is given up;
    /// its readers are to be told.
    pub fn remember(&self, key: &[u8], tracker: Tracker, keys_max: u64) -> Option<(Box<[u8]>, Vec<Tracker>)> {
        let mut part = lock(self.part(key));
        match part.get_mut(key) {
            Some(list) if list.contains(&tracker) => return None,
            Some(list) => list.push(tracker),
            None => {
                part.insert(key.into(), vec![tracker]);
                self.keys_len.fetch_add(1, Relaxed);
            }
        }
        self.items_len.fetch_add(1, Relaxed);
        if keys_max == 0 || self.keys_len.load(Relaxed) as u64 <= keys_max {
            return None;
        }
        let victim = part.keys().find(|other| &***other != key).cloned();
        let victim = victim.unwrap_or_else(|| key.into());
        let readers = part.remove(&victim)?;
        self.count_out(1, readers.len());
        Some((victim, readers))
    }

    /// Forgets some key if there are more than `keys_max` (0: no limit), and returns it with its readers.
    pub fn give_up(&self, keys_max: u64) -> Option<(Box<[u8]>, Vec<Tracker>)> {
        if keys_max == 0 || self.keys_len.load(Relaxed) as u64 <= keys_max {
            return None;
        }
        let found = self.parts.iter().find_map(|part| {
            let mut part = lock(part);
            let key = part.keys().next()?.clone();
            part.remove_entry(&key)
        })?;
        self.count_out(1, found.1.len());
        Some(found)
    }

    /// Forgets who has read `key`, and returns them.
    pub fn forget(&self, key: &[u8]) -> Vec<Tracker> {
        if self.keys_len.load(Relaxed) == 0 {
            return Vec::new();
        }
        let readers = lock(self.part(key)).remove(key).unwrap_or_default();
        self.count_out(usize::from(!readers.is_empty()), readers.len());
        readers
    }

    /// Forgets all keys, and returns all tracking clients.
    pub fn forget_all(&self) -> Vec<Tracker> {
        for part in &self.parts {
            let old = std::mem::take(&mut *lock(part));
            self.count_out(old.len(), old.values().map(Vec::len).sum());
        }
        lock(&self.clients).trackers.clone()
    }

    /// Calls `visit` with every prefix that clients want to hear of, and these.
    pub fn each_prefix(&self, mut visit: impl FnMut(&[u8], &[Tracker])) {
        let clients = lock(&self.clients);
        clients.prefixes.iter().for_each(|(prefix, trackers)| visit(prefix, trackers));
    }

    /// Number of clients that track.
    pub fn clients_len(&self) -> usize {
        self.clients_len.load(Relaxed)
    }

    /// Number of keys, of keys times their readers, and of prefixes.
    pub fn totals(&self) -> (usize, usize, usize) {
        let prefixes = lock(&self.clients).prefixes.len();
        (self.keys_len.load(Relaxed), self.items_len.load(Relaxed), prefixes)
    }

    fn count_out(&self, keys: usize, items: usize) {
        self.keys_len.fetch_sub(keys, Relaxed);
        self.items_len.fetch_sub(items, Relaxed);
    }

    fn part(&self, key: &[u8]) -> &Mutex<Readers> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }
}

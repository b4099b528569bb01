//! Which clients have read which keys, and which want to hear of which prefixes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use darter_base::hash::KeyHasher;
use darter_store::Key;

use super::Tracker;
use super::readers::{Forgotten, Reader, Readers};
use crate::worker::lock;

/// With a million keys a part has room for a seventh more before its hash table doubles.
const PARTS: usize = 160;

/// The table, cut into parts with a lock each. Keys are remembered without their database, as Redis does.
#[derive(Debug)]
pub struct Table {
    hasher: KeyHasher,
    parts: Vec<Mutex<Readers>>,
    // keys of all parts together
    keys_len: AtomicUsize,
    clients: RwLock<Clients>,
    // == clients.len and clients.prefixes.len(), to be looked at without the lock
    clients_len: AtomicUsize,
    prefixes_len: AtomicUsize,
}

#[derive(Debug, Default)]
struct Clients {
    // by the low half of their ids, as readers are known; nearly always one
    trackers: HashMap<Reader, Vec<Tracker>>,
    len: usize,
    prefixes: HashMap<Box<[u8]>, Vec<Tracker>>,
    // how many prefixes there are of each length
    prefix_lens: BTreeMap<usize, usize>,
}

/// Keys with one prefix, and who wants to hear of them.
pub struct Prefixed<'a> {
    /// The keys, each once.
    pub keys: Vec<&'a [u8]>,
    /// Who is told.
    pub trackers: Vec<Tracker>,
}

impl Table {
    /// An empty table of keys hashed by `hasher`, as the shards' are.
    pub fn new(hasher: KeyHasher) -> Table {
        Table {
            hasher,
            parts: (0..PARTS).map(|_| Mutex::new(Readers::new(hasher))).collect(),
            keys_len: AtomicUsize::new(0),
            clients: RwLock::default(),
            clients_len: AtomicUsize::new(0),
            prefixes_len: AtomicUsize::new(0),
        }
    }

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
        let mut clients = self.write_clients();
        clients.trackers.entry(tracker.client as Reader).or_default().push(tracker);
        clients.len += 1;
        for prefix in prefixes {
            if !clients.prefixes.contains_key(prefix) {
                *clients.prefix_lens.entry(prefix.len()).or_default() += 1;
            }
            clients.prefixes.entry(prefix.clone()).or_default().push(tracker);
        }
        self.show(&clients);
    }

    /// Removes a client and its prefixes.
    pub fn remove(&self, client: u64, prefixes: &[Box<[u8]>]) {
        let mut clients = self.write_clients();
        let reader = client as Reader;
        if let Some(same) = clients.trackers.get_mut(&reader) {
            let before = same.len();
            same.retain(|tracker| tracker.client != client);
            let (gone, is_empty) = (before - same.len(), same.is_empty());
            clients.len -= gone;
            if is_empty {
                clients.trackers.remove(&reader);
            }
        }
        for prefix in prefixes {
            clients.remove_prefix(client, prefix);
        }
        self.show(&clients);
    }

    /// Remembers that a client has read `key`. With more than `keys_max` keys (0: no limit) others are given up; their
    /// readers are to be told. The key itself stays, as its value is on its way to the client.
    pub fn remember(&self, key: Key<'_>, reader: Reader, keys_max: u64) -> Vec<Forgotten> {
        let Key { bytes: key, hash } = key;
        let mut part = lock(self.part(hash));
        let mut given_up = if part.has_room(key) { Vec::new() } else { part.give_up_all() };
        let keys = part.add(hash, key, reader);
        if keys > 0 {
            self.keys_len.fetch_add(keys, Relaxed);
        }
        let is_over = keys > 0 && keys_max > 0 && self.keys_len.load(Relaxed) as u64 > keys_max;
        if is_over && given_up.is_empty() {
            given_up.extend(part.give_up(Some(key)));
        }
        drop(part);
        self.count_out(given_up.len());
        if is_over && given_up.is_empty() {
            given_up.extend(self.give_up(keys_max, Some(key)));
        }
        given_up
    }

    /// Forgets some key, but not `except`, if there are more than `keys_max` (0: no limit); returns it with its readers.
    pub fn give_up(&self, keys_max: u64, except: Option<&[u8]>) -> Option<Forgotten> {
        if keys_max == 0 || self.keys_len.load(Relaxed) as u64 <= keys_max {
            return None;
        }
        let found = self.parts.iter().find_map(|part| lock(part).give_up(except))?;
        self.count_out(1);
        Some(found)
    }

    /// Forgets who has read `key`, and returns them.
    pub fn forget(&self, key: &[u8]) -> Vec<Reader> {
        if self.keys_len.load(Relaxed) == 0 {
            return Vec::new();
        }
        let hash = self.hasher.hash(key);
        let readers = lock(self.part(hash)).forget(hash, key);
        self.count_out(usize::from(!readers.is_empty()));
        readers
    }

    /// Forgets all keys, and returns all tracking clients.
    pub fn forget_all(&self) -> Vec<Tracker> {
        for part in &self.parts {
            let mut part = lock(part);
            let fresh = part.emptied();
            self.count_out(std::mem::replace(&mut *part, fresh).len());
        }
        self.read_clients().trackers.values().flatten().copied().collect()
    }

    /// The clients behind `readers` that still track.
    pub fn trackers(&self, readers: &[Reader]) -> Vec<Tracker> {
        let clients = self.read_clients();
        readers.iter().filter_map(|reader| clients.trackers.get(reader)).flatten().copied().collect()
    }

    /// Sorts `keys` under the prefixes that clients want to hear of.
    /// Cost: a look a key and length of prefix; nothing where there are no prefixes.
    pub fn prefixed<'a>(&self, keys: &[&'a [u8]]) -> Vec<Prefixed<'a>> {
        if self.prefixes_len.load(Relaxed) == 0 {
            return Vec::new();
        }
        let clients = self.read_clients();
        let mut hit: BTreeMap<&[u8], Vec<&'a [u8]>> = BTreeMap::new();
        for key in keys {
            for &len in clients.prefix_lens.keys() {
                let Some(prefix) = key.get(..len) else { break };
                if clients.prefixes.contains_key(prefix) {
                    hit.entry(prefix).or_default().push(key);
                }
            }
        }
        let prefixed = |(prefix, mut keys): (&[u8], Vec<&'a [u8]>)| {
            keys.sort_unstable();
            keys.dedup();
            Prefixed { keys, trackers: clients.prefixes.get(prefix).cloned().unwrap_or_default() }
        };
        hit.into_iter().map(prefixed).collect()
    }

    /// Number of clients that track.
    pub fn clients_len(&self) -> usize {
        self.clients_len.load(Relaxed)
    }

    /// Number of keys, of keys times their readers, and of prefixes. Cost: a lock a part.
    pub fn totals(&self) -> (usize, usize, usize) {
        let items = self.parts.iter().map(|part| lock(part).totals().1).sum();
        (self.keys_len.load(Relaxed), items, self.prefixes_len.load(Relaxed))
    }

    fn show(&self, clients: &Clients) {
        self.clients_len.store(clients.len, Relaxed);
        self.prefixes_len.store(clients.prefixes.len(), Relaxed);
    }

    fn count_out(&self, keys: usize) {
        if keys > 0 {
            self.keys_len.fetch_sub(keys, Relaxed);
        }
    }

    fn read_clients(&self) -> RwLockReadGuard<'_, Clients> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_clients(&self) -> RwLockWriteGuard<'_, Clients> {
        self.clients.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of a key; by other bits of its hash than those that a part's table looks at first.
    fn part(&self, hash: u64) -> &Mutex<Readers> {
        &self.parts[(hash >> 20) as u32 as usize % PARTS]
    }
}

impl Clients {
    fn remove_prefix(&mut self, client: u64, prefix: &[u8]) {
        let Some(list) = self.prefixes.get_mut(prefix) else { return };
        list.retain(|tracker| tracker.client != client);
        if !list.is_empty() {
            return;
        }
        self.prefixes.remove(prefix);
        if let Some(n) = self.prefix_lens.get_mut(&prefix.len()) {
            *n -= 1;
            if *n == 0 {
                self.prefix_lens.remove(&prefix.len());
            }
        }
    }
}

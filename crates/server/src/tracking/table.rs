//! Which clients have read which keys, and which want to hear of which prefixes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use darter_txn::Reader;
use darter_txn::readers::ReaderTotals;

use super::Tracker;
use super::numbers::Numbers;

/// Tracking clients, beside the tables of the shards, which say who has read what. Keys are remembered
/// without their database, as Redis does.
#[derive(Debug)]
pub struct TrackingTable {
    /// The clients' numbers.
    pub numbers: Numbers,
    totals: Vec<Arc<ReaderTotals>>,
    // keys of all shards together
    keys_len: AtomicUsize,
    clients: RwLock<TrackingClients>,
    // == clients.len and clients.prefixes.len(), to be looked at without the lock
    clients_len: AtomicUsize,
    prefixes_len: AtomicUsize,
}

#[derive(Debug, Default)]
struct TrackingClients {
    // nearly always one
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
    /// Clients that are notified.
    pub trackers: Vec<Tracker>,
}

impl TrackingTable {
    /// A table over as many shards as there are `totals`, which their own tables count in.
    pub fn new(totals: Vec<Arc<ReaderTotals>>) -> TrackingTable {
        TrackingTable {
            numbers: Numbers::default(),
            totals,
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
        clients.trackers.entry(tracker.reader).or_default().push(tracker.clone());
        clients.len += 1;
        for prefix in prefixes {
            if !clients.prefixes.contains_key(prefix) {
                *clients.prefix_lens.entry(prefix.len()).or_default() += 1;
            }
            clients.prefixes.entry(prefix.clone()).or_default().push(tracker.clone());
        }
        self.show(&clients);
    }

    /// Removes a client and its prefixes.
    pub fn remove(&self, reader: Reader, client: u64, prefixes: &[Box<[u8]>]) {
        let mut clients = self.write_clients();
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

    /// Counts a key that is new in the table of a shard; returns whether there are more than `keys_max` now (0: no limit).
    #[inline]
    pub fn count_in(&self, keys_max: u64) -> bool {
        let before = self.keys_len.fetch_add(1, Relaxed) as u64;
        keys_max > 0 && before >= keys_max
    }

    /// Counts keys that a shard's table has forgotten.
    pub fn count_out(&self, keys: usize) {
        if keys > 0 {
            self.keys_len.fetch_sub(keys, Relaxed);
        }
    }

    /// Number of keys in the tables of all shards.
    pub fn keys_len(&self) -> usize {
        self.keys_len.load(Relaxed)
    }

    /// All clients that track.
    pub fn all_trackers(&self) -> Vec<Tracker> {
        self.read_clients().trackers.values().flatten().cloned().collect()
    }

    /// The clients behind `readers` that still track.
    pub fn trackers(&self, readers: &[Reader]) -> Vec<Tracker> {
        let clients = self.read_clients();
        readers.iter().filter_map(|reader| clients.trackers.get(reader)).flatten().cloned().collect()
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

    /// Number of keys, of keys times their readers, and of prefixes. Cost: a look for each shard.
    pub fn totals(&self) -> (usize, usize, usize) {
        let items = self.totals.iter().map(|totals| totals.items.load(Relaxed)).sum();
        (self.keys_len(), items, self.prefixes_len.load(Relaxed))
    }

    fn show(&self, clients: &TrackingClients) {
        self.clients_len.store(clients.len, Relaxed);
        self.prefixes_len.store(clients.prefixes.len(), Relaxed);
    }

    fn read_clients(&self) -> RwLockReadGuard<'_, TrackingClients> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_clients(&self) -> RwLockWriteGuard<'_, TrackingClients> {
        self.clients.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackingClients {
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

//! The clients that have read each key of a shard, for the notification of clients that cache.
//!
//! The executor writes to it with the shard held, before the read. A read that was noted before costs one cache line:
//! places of 24 bytes lie at the position given by the hash of their key, or right behind. A key of up to 16 bytes
//! takes only its place, with any of the first 56 readers or up to three others. Clients are known by small numbers.

mod place;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use darter_base::hash::KeyHasher;
use darter_store::Key;
use darter_store::slots::SlotKeys;

pub use place::READER_MAX;
use place::{Crowds, ReaderName, ReaderPlace};

/// A client by its number, at most [`READER_MAX`].
pub type Reader = u32;

/// A key that was dropped from the table, and its readers.
pub type Forgotten = (Box<[u8]>, Vec<Reader>);

/// Totals of the tables of one shard, readable without the shard.
#[derive(Debug, Default)]
// On a separate cache line: the owners of different shards write to theirs all the time.
#[repr(align(64))]
pub struct ReaderTotals {
    /// Readers of all keys together.
    pub items: AtomicUsize,
}

/// Keys and their readers.
#[derive(Debug)]
pub struct Readers {
    hasher: KeyHasher,
    // none until the first key comes
    tables: Vec<ReaderTable>,
    names: SlotKeys<Box<[u8]>>,
    crowds: Crowds,
    totals: Arc<ReaderTotals>,
    // where the search for a key to drop continues
    next: ReaderSlotAt,
    sweep: ReaderSweep,
}

/// A table with open addressing: a key is at the position given by its hash, or behind that without a gap.
#[derive(Debug, Default)]
struct ReaderTable {
    places: Vec<ReaderPlace>,
    len: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct ReaderSlotAt {
    table: usize,
    place: usize,
}

/// The position of a search for readers that have disconnected.
#[derive(Debug, Default)]
struct ReaderSweep {
    round: u64,
    at: ReaderSlotAt,
}

/// The result of one step of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SweptReaders {
    /// Keys without a reader left.
    pub keys: usize,
    /// All keys have been looked at.
    pub is_done: bool,
}

/// Tables of a shard: each is small enough to be rebuilt at once.
const TABLES: usize = 16;
/// A table grows when this many of ten places hold keys.
const FULL: usize = 8;

impl Readers {
    /// No keys yet, hashed by `hasher`.
    pub fn new(hasher: KeyHasher) -> Readers {
        let (tables, names, crowds, totals) = Default::default();
        Readers {
            hasher,
            tables,
            names,
            crowds,
            totals,
            next: ReaderSlotAt::default(),
            sweep: ReaderSweep::default(),
        }
    }

    /// The totals that it maintains for other threads.
    pub fn totals(&self) -> &Arc<ReaderTotals> {
        &self.totals
    }

    /// Number of keys. Cost: a visit of each table.
    pub fn len(&self) -> usize {
        self.tables.iter().map(|table| table.len).sum()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefetches the memory that [`Readers::note`] reads for a key of this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(table) = self.tables.get(table_of(hash)) {
            let home = table.home(hash);
            // Half of all keys are behind their home line.
            for place in [home, home + 2] {
                if let Some(place) = table.places.get(place) {
                    darter_latch::prefetch(place);
                }
            }
        }
    }

    /// Notes that `reader` has read `key`, if the key is short and known and `reader` is one of the first readers.
    /// Returns false if the caller must use [`Readers::add`].
    #[inline(always)]
    pub fn note(&mut self, key: Key<'_>, reader: Reader) -> bool {
        let Some(name) = ReaderName::short(key.bytes) else { return false };
        let Some(table) = self.tables.get_mut(table_of(key.hash)) else { return false };
        let home = table.home(key.hash);
        for place in table.places.get_mut(home..).unwrap_or_default() {
            if place.is(name) {
                let noted = place.note(reader);
                if noted == Some(true) {
                    self.totals.items.store(self.totals.items.load(Relaxed) + 1, Relaxed);
                }
                return noted.is_some();
            }
            if place.is_vacant() {
                break;
            }
        }
        false
    }

    /// Notes that `reader` has read `key`; returns whether the key is new.
    pub fn add(&mut self, key: Key<'_>, reader: Reader) -> bool {
        let reader = reader.min(READER_MAX);
        if self.tables.is_empty() {
            self.tables.resize_with(TABLES, ReaderTable::default);
        }
        let number = table_of(key.hash);
        let Readers { tables, names, crowds, .. } = self;
        if let Some(place) = tables[number].find(key, names) {
            let is_new = tables[number].places[place].add(reader, crowds);
            self.count(usize::from(is_new), 0);
            return false;
        }
        if tables[number].is_full() {
            let places_len = tables[number].places.len() * 5 / 4 + 8;
            self.remake(number, places_len);
        }
        let names = &mut self.names;
        let name = ReaderName::short(key.bytes)
            .unwrap_or_else(|| ReaderName::long(key.hash, names.insert(key.bytes.into())));
        self.tables[number].insert(key.hash, ReaderPlace::new(name, reader));
        self.count(1, 0);
        true
    }

    /// Forgets `key`; returns its readers.
    pub fn forget(&mut self, key: Key<'_>) -> Vec<Reader> {
        let number = table_of(key.hash);
        let found = self.tables.get(number).and_then(|table| table.find(key, &self.names));
        found.map_or(Vec::new(), |place| self.remove(ReaderSlotAt { table: number, place }))
    }

    /// Forgets some key, but not `except`.
    pub fn give_up(&mut self, except: Option<&[u8]>) -> Option<Forgotten> {
        let ReaderSlotAt { table: begin, .. } = self.next;
        // The first table of the search is visited twice: the part before the start comes last.
        for step in 0..=TABLES {
            let number = (begin + step) % TABLES;
            let table = self.tables.get(number)?;
            let from = if step == 0 { self.next.place } else { 0 };
            let found = (from..table.places.len()).find(|&place| {
                !table.places[place].is_vacant() && except != Some(&*self.name(&table.places[place]))
            });
            if let Some(place) = found {
                let name = self.name(&self.tables[number].places[place]);
                self.next = ReaderSlotAt { table: number, place };
                return Some((name, self.remove(self.next)));
            }
        }
        None
    }

    /// Forgets all keys; returns their number.
    pub fn clear(&mut self) -> usize {
        let keys = self.len();
        let totals = self.totals.clone();
        totals.items.store(0, Relaxed);
        *self = Readers { totals, ..Readers::new(self.hasher) };
        keys
    }

    /// Forgets the readers in `gone`, in up to `places_max` further places. All steps with the same `round` together
    /// visit every key that was present at the first of them.
    pub fn sweep(&mut self, round: u64, gone: &HashSet<Reader>, places_max: usize) -> SweptReaders {
        if self.sweep.round != round {
            self.sweep = ReaderSweep { round, at: ReaderSlotAt::default() };
        }
        let (mut keys, mut left) = (0, places_max);
        while let Some(table) = self.tables.get_mut(self.sweep.at.table) {
            let Some(place) = table.places.get_mut(self.sweep.at.place) else {
                self.sweep.at = ReaderSlotAt { table: self.sweep.at.table + 1, place: 0 };
                continue;
            };
            if left == 0 {
                return SweptReaders { keys, is_done: false };
            }
            left -= 1;
            if place.is_vacant() {
                self.sweep.at.place += 1;
                continue;
            }
            let (items, is_read) = place.retain(gone, &mut self.crowds);
            if is_read {
                self.count(0, items);
                self.sweep.at.place += 1;
            } else {
                // Another key may move here: examine it next.
                self.remove(self.sweep.at);
                keys += 1;
            }
        }
        SweptReaders { keys, is_done: true }
    }

    fn count(&self, more: usize, less: usize) {
        let items = &self.totals.items;
        items.store((items.load(Relaxed) + more).saturating_sub(less), Relaxed);
    }

    fn name(&self, place: &ReaderPlace) -> Box<[u8]> {
        match place.long_name() {
            Some((_, number)) => self.names.get(number).clone(),
            None => {
                let (bytes, len) = place.short_name();
                bytes[..len].into()
            }
        }
    }

    /// Removes the key there; returns its readers.
    fn remove(&mut self, at: ReaderSlotAt) -> Vec<Reader> {
        let Readers { tables, crowds, hasher, .. } = self;
        let table = &mut tables[at.table];
        let place = &mut table.places[at.place];
        let readers = place.readers(crowds);
        place.disband(crowds);
        if let Some((_, number)) = place.long_name() {
            self.names.remove(number);
        }
        table.close(at.place, hasher);
        let (len, places_len) = (table.len, table.places.len());
        self.count(0, readers.len());
        if self.sweep.at.table == at.table {
            // Keys not yet examined may have moved before the sweep's position.
            self.sweep.at.place = self.sweep.at.place.min(at.place);
        }
        if len * SPARSE < places_len && places_len > PLACES_KEPT {
            self.remake(at.table, len * 3 / 2 + 8);
        }
        readers
    }

    /// Rebuilds a table with this many places, more than it has keys.
    fn remake(&mut self, number: usize, places_len: usize) {
        let table = &mut self.tables[number];
        let mut wider = ReaderTable { places: vec![ReaderPlace::default(); places_len], len: 0 };
        // Nearly in the order of their hashes, so that this is a walk through both.
        for place in table.places.iter().filter(|place| !place.is_vacant()) {
            wider.insert(hash_of(place, &self.hasher), *place);
        }
        debug_assert_eq!(wider.len, table.len, "no key is lost");
        *table = wider;
        if self.sweep.at.table == number {
            self.sweep.at.place = 0;
        }
    }
}

/// A table with this many times more places than keys is rebuilt, if it has more than [`PLACES_KEPT`].
const SPARSE: usize = 8;
const PLACES_KEPT: usize = 64;

/// The table of a hash, by other bits than those that choose a place in it.
#[inline(always)]
fn table_of(hash: u64) -> usize {
    (hash >> 48) as usize % TABLES
}

fn hash_of(place: &ReaderPlace, hasher: &KeyHasher) -> u64 {
    place.long_name().map_or_else(
        || {
            let (bytes, len) = place.short_name();
            hasher.hash_key(&bytes[..len])
        },
        |(hash, _)| hash,
    )
}

impl ReaderTable {
    /// The home position of a hash; larger hashes have later ones. 0 if there are no places.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.places.len() as u64) >> 32) as usize
    }

    fn is_full(&self) -> bool {
        (self.len + 1) * 10 > self.places.len() * FULL
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() { 0 } else { place + 1 }
    }

    fn find(&self, key: Key<'_>, names: &SlotKeys<Box<[u8]>>) -> Option<usize> {
        let short = ReaderName::short(key.bytes);
        let is_key = |place: &ReaderPlace| match (short, place.long_name()) {
            (Some(name), _) => place.is(name),
            (None, Some((hash, number))) => hash == key.hash && **names.get(number) == *key.bytes,
            (None, None) => false,
        };
        let mut at = self.home(key.hash);
        while let Some(place) = self.places.get(at).filter(|place| !place.is_vacant()) {
            if is_key(place) {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    /// Inserts a missing key; a vacant place must exist.
    fn insert(&mut self, hash: u64, place: ReaderPlace) {
        debug_assert!(self.len < self.places.len());
        let mut at = self.home(hash);
        while !self.places[at].is_vacant() {
            at = self.after(at);
        }
        self.places[at] = place;
        self.len += 1;
    }

    /// Removes the key at `hole`, and moves the keys behind it that would not be found any more.
    fn close(&mut self, mut hole: usize, hasher: &KeyHasher) {
        let places_len = self.places.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + places_len - from };
        let mut at = self.after(hole);
        while !self.places[at].is_vacant() && at != hole {
            let home = self.home(hash_of(&self.places[at], hasher));
            if distance(home, at) >= distance(hole, at) {
                self.places[hole] = self.places[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.places[hole] = ReaderPlace::default();
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests;

//! Who has read which key: one part of the table, in little memory.
//!
//! Entries lie one behind the other in the order in which their keys were first read, and a hash table finds them by
//! their places: a key of 11 bytes with one reader takes 17 bytes there and 6 to 12 in the hash table. The oldest entry
//! is the first that is given up. Entries that are gone leave holes until half as much as lives is holes.

use std::collections::{HashMap, HashSet};

use darter_base::hash::KeyHasher;
use darter_base::varint;
use hashbrown::HashTable;

/// A client: the low half of its id. Two clients that share it are both told.
pub type Reader = u32;

/// A key that was forgotten or given up, and who had read it.
pub type Forgotten = (Box<[u8]>, Vec<Reader>);

/// Keys and their readers.
#[derive(Debug)]
pub struct Readers {
    hasher: KeyHasher,
    // places of entries in `log`
    places: HashTable<u32>,
    log: Vec<u8>,
    // where the oldest entry may be; nothing lives before it
    oldest: usize,
    // bytes of `log` that are holes, those before `oldest` included
    dead_len: usize,
    // readers of all keys together
    items_len: usize,
    // readers of keys that have more than `FEW`, by the number in their entry
    crowds: HashMap<u32, HashSet<Reader>>,
    next_crowd: u32,
}

/// What an entry says, and how long it is.
struct Entry<'a> {
    key: &'a [u8],
    /// Room for readers, four bytes each; of a crowd its number.
    tail: &'a [u8],
    /// Readers there are in it.
    count: usize,
    is_dead: bool,
    is_crowd: bool,
    len: usize,
}

impl Entry<'_> {
    fn readers(&self) -> impl Iterator<Item = Reader> {
        self.tail.chunks_exact(4).take(self.count).map(number)
    }
}

// The first byte of an entry: a mark, or how many readers there are. The key follows with its length, then they.
const DEAD: u8 = 0x80;
const CROWD: u8 = 0x40;
const COUNT: u8 = 0x3f;
/// Readers that stand in the entry itself.
const FEW: usize = 8;

/// Readers that an entry with `count` of them has room for.
fn room_for(count: usize) -> usize {
    count.next_power_of_two()
}

/// A log that would pass this gives all its keys up.
const LOG_BYTES_MAX: usize = u32::MAX as usize;
/// Fewer holes than this are not worth a walk.
const HOLES_MIN: usize = 4096;

impl Readers {
    /// No keys yet, hashed by `hasher`.
    pub fn new(hasher: KeyHasher) -> Readers {
        Readers {
            hasher,
            places: HashTable::new(),
            log: Vec::new(),
            oldest: 0,
            dead_len: 0,
            items_len: 0,
            crowds: HashMap::new(),
            next_crowd: 0,
        }
    }

    /// The same without keys.
    pub fn emptied(&self) -> Readers {
        Readers::new(self.hasher)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether one more key of this length finds a place.
    pub fn has_room(&self, key: &[u8]) -> bool {
        self.log.len() + entry_len(key.len(), FEW) <= LOG_BYTES_MAX
    }

    /// Notes that `reader` has read `key` of this hash, for which there is room; returns how many keys that makes more.
    pub fn add(&mut self, hash: u64, key: &[u8], reader: Reader) -> usize {
        let Some(place) = self.find(hash, key) else {
            let place = self.append(key, 1, &reader.to_le_bytes());
            let Readers { hasher, places, log, .. } = self;
            places.insert_unique(hash, place, |&place| hasher.hash(entry_at(log, place as usize).key));
            self.items_len += 1;
            return 1;
        };
        let entry = entry_at(&self.log, place as usize);
        if entry.is_crowd {
            let crowd = self.crowds.entry(number(entry.tail)).or_default();
            self.items_len += usize::from(crowd.insert(reader));
            return 0;
        }
        if entry.readers().any(|there| there == reader) {
            return 0;
        }
        self.items_len += 1;
        let (count, room) = (entry.count, entry.tail.len() / 4);
        if count < room {
            let at = place as usize + entry.len - (room - count) * 4;
            self.log[at..at + 4].copy_from_slice(&reader.to_le_bytes());
            self.log[place as usize] += 1;
            return 0;
        }
        let new_place = if count < FEW {
            let mut tail = [0; FEW * 4];
            let len = room_for(count + 1) * 4;
            tail[..count * 4].copy_from_slice(entry.tail);
            tail[count * 4..count * 4 + 4].copy_from_slice(&reader.to_le_bytes());
            self.append(key, count as u8 + 1, &tail[..len])
        } else {
            let crowd = entry.readers().chain([reader]).collect();
            let id = self.next_crowd;
            self.next_crowd = self.next_crowd.wrapping_add(1);
            self.crowds.insert(id, crowd);
            self.append(key, CROWD, &id.to_le_bytes())
        };
        if let Some(known) = self.places.find_mut(hash, |&there| there == place) {
            *known = new_place;
        }
        self.bury(place);
        0
    }

    /// Forgets `key` of this hash; returns who had read it.
    pub fn forget(&mut self, hash: u64, key: &[u8]) -> Vec<Reader> {
        self.find(hash, key).map_or(Vec::new(), |place| self.remove(hash, place))
    }

    /// Forgets the key that was first read longest ago, but not `except`.
    pub fn give_up(&mut self, except: Option<&[u8]>) -> Option<Forgotten> {
        let mut at = self.oldest;
        while at < self.log.len() {
            let entry = entry_at(&self.log, at);
            if !entry.is_dead && except != Some(entry.key) {
                let key: Box<[u8]> = entry.key.into();
                let readers = self.remove(self.hasher.hash(&key), at as u32);
                return Some((key, readers));
            }
            at += entry.len;
            if entry.is_dead && self.oldest + entry.len == at {
                self.oldest = at;
            }
        }
        None
    }

    /// Gives all keys up.
    pub fn give_up_all(&mut self) -> Vec<Forgotten> {
        let all = std::iter::from_fn(|| self.give_up(None)).collect();
        *self = self.emptied();
        all
    }

    /// Number of keys and of all their readers.
    pub fn totals(&self) -> (usize, usize) {
        (self.len(), self.items_len)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.places.find(hash, |&place| entry_at(&self.log, place as usize).key == key).copied()
    }

    fn remove(&mut self, hash: u64, place: u32) -> Vec<Reader> {
        if let Ok(known) = self.places.find_entry(hash, |&there| there == place) {
            known.remove();
        }
        let entry = entry_at(&self.log, place as usize);
        let found: Vec<Reader> = match entry.is_crowd {
            true => self.crowds.remove(&number(entry.tail)).into_iter().flatten().collect(),
            false => entry.readers().collect(),
        };
        self.items_len -= found.len();
        self.bury(place);
        found
    }

    /// Makes the entry at `place` a hole, and closes all holes when there are many.
    fn bury(&mut self, place: u32) {
        let place = place as usize;
        self.dead_len += entry_at(&self.log, place).len;
        self.log[place] |= DEAD;
        if self.dead_len > HOLES_MIN.max((self.log.len() - self.dead_len) / 2) {
            self.close_holes();
        }
    }

    fn close_holes(&mut self) {
        let live_len = self.log.len() - self.dead_len;
        let old = std::mem::replace(&mut self.log, Vec::with_capacity(live_len + live_len / 16));
        let mut at = 0;
        while at < old.len() {
            let entry = entry_at(&old, at);
            if !entry.is_dead {
                let hash = self.hasher.hash(entry.key);
                if let Some(place) = self.places.find_mut(hash, |&place| place as usize == at) {
                    *place = self.log.len() as u32;
                }
                self.log.extend_from_slice(&old[at..at + entry.len]);
            }
            at += entry.len;
        }
        (self.oldest, self.dead_len) = (0, 0);
        if self.places.len() < self.places.capacity() / 4 {
            let Readers { hasher, places, log, .. } = self;
            places.shrink_to(places.len() * 2, |&place| hasher.hash(entry_at(log, place as usize).key));
        }
    }

    fn append(&mut self, key: &[u8], head: u8, tail: &[u8]) -> u32 {
        let len = entry_len(key.len(), FEW);
        if self.log.capacity() - self.log.len() < len {
            // Doubling would leave half of it unused.
            self.log.reserve_exact(len + self.log.len() / 16);
        }
        let place = self.log.len() as u32;
        self.log.push(head);
        varint::write(&mut self.log, key.len() as u64);
        self.log.extend_from_slice(key);
        self.log.extend_from_slice(tail);
        place
    }
}

/// The most bytes an entry takes.
fn entry_len(key_len: usize, readers: usize) -> usize {
    1 + 10 + key_len + readers * 4
}

/// Reads the entry at `place`; only places that entries begin at are asked for.
fn entry_at(log: &[u8], place: usize) -> Entry<'_> {
    let head = log[place];
    let mut rest = &log[place + 1..];
    let key_len = varint::take(&mut rest).unwrap_or_default() as usize;
    let (key, rest) = rest.split_at(key_len);
    let is_crowd = head & CROWD != 0;
    let count = if is_crowd { 1 } else { usize::from(head & COUNT) };
    let (tail, rest) = rest.split_at(room_for(count) * 4);
    Entry { key, tail, count, is_dead: head & DEAD != 0, is_crowd, len: log.len() - place - rest.len() }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The same by maps: keys in the order in which they were first read.
    #[derive(Default)]
    struct Oracle(Vec<(Vec<u8>, BTreeMap<Reader, ()>)>);

    impl Oracle {
        fn add(&mut self, key: &[u8], reader: Reader) -> usize {
            match self.0.iter_mut().find(|(there, _)| there == key) {
                Some((_, readers)) => {
                    readers.insert(reader, ());
                    0
                }
                None => {
                    self.0.push((key.to_vec(), BTreeMap::from([(reader, ())])));
                    1
                }
            }
        }

        fn forget(&mut self, key: &[u8]) -> Vec<Reader> {
            let Some(at) = self.0.iter().position(|(there, _)| there == key) else { return Vec::new() };
            self.0.remove(at).1.into_keys().collect()
        }
    }

    fn add(readers: &mut Readers, key: &[u8], reader: Reader) -> usize {
        readers.add(readers.hasher.hash(key), key, reader)
    }

    fn forget(readers: &mut Readers, key: &[u8]) -> Vec<Reader> {
        readers.forget(readers.hasher.hash(key), key)
    }

    fn sorted(mut readers: Vec<Reader>) -> Vec<Reader> {
        readers.sort_unstable();
        readers
    }

    #[test]
    fn it_is_a_map_from_keys_to_sets() {
        for seed in 1..=4u64 {
            let (mut readers, mut oracle) = (Readers::new(KeyHasher::new(seed)), Oracle::default());
            let mut state = seed;
            let mut below = |n: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % n
            };
            for step in 0..20_000 {
                let n = below(300);
                let key = "k".repeat((n % 7) as usize * 9) + &n.to_string();
                let reader = below(if n % 10 == 0 { 40 } else { 6 }) as Reader;
                match below(10) {
                    0 => assert_eq!(
                        sorted(forget(&mut readers, key.as_bytes())),
                        oracle.forget(key.as_bytes())
                    ),
                    1 if step % 7 == 0 => {
                        let (key, gone) = readers.give_up(Some(key.as_bytes())).expect("more than one key");
                        assert_eq!(sorted(gone), oracle.forget(&key));
                    }
                    _ => {
                        assert_eq!(
                            add(&mut readers, key.as_bytes(), reader),
                            oracle.add(key.as_bytes(), reader)
                        )
                    }
                }
                if step % 1000 == 0 {
                    let items = oracle.0.iter().map(|(_, readers)| readers.len()).sum();
                    assert_eq!(readers.totals(), (oracle.0.len(), items));
                }
            }
            assert!(readers.log.len() < 3 * (HOLES_MIN + 300 * 100), "holes are closed");
        }
    }

    #[test]
    fn the_oldest_key_is_given_up_first() {
        let mut readers = Readers::new(KeyHasher::new(7));
        for n in 0..5000u32 {
            add(&mut readers, n.to_string().as_bytes(), n);
        }
        for n in 0..5000u32 {
            let except = (n == 0).then_some(b"0".as_slice());
            let wanted = if n == 0 {
                1
            } else if n == 1 {
                0
            } else {
                n
            };
            let (key, gone) = readers.give_up(except).expect("a key");
            assert_eq!((&*key, gone), (wanted.to_string().as_bytes(), vec![wanted]));
        }
        assert!(readers.give_up(None).is_none() && readers.len() == 0);
        add(&mut readers, b"k", 1);
        assert!(readers.give_up(Some(b"k")).is_none());
    }

    #[test]
    fn a_key_of_sixteen_bytes_takes_less_than_forty() {
        let mut readers = Readers::new(KeyHasher::new(7));
        for n in 0..100_000u32 {
            add(&mut readers, format!("key:{n:012}").as_bytes(), 1);
        }
        let bytes = readers.log.capacity() + readers.places.allocation_size();
        assert!(bytes < 40 * readers.len(), "{} bytes a key", bytes as f64 / readers.len() as f64);
    }
}

//! A cuckoo filter: fingerprints of a byte in buckets, which can be counted and deleted again.
//!
//! Fingerprints, buckets, kicks and growth are those of RedisBloom, so the same calls give the same bytes.

mod dump;
#[cfg(test)]
mod tests;

use darter_slab::Arena;

use crate::SketchFull;
use crate::blocks::{Blocks, bytes_across, read_across, write_across};
use crate::murmur::murmur64a;

pub use dump::VERSION;

/// The multiplier that leads from one bucket of a fingerprint to the other.
const OTHER_PLACE: u64 = 0x5bd1_e995;
/// A filter has at most this many buckets.
const BUCKETS_MAX: u64 = (1 << 56) - 1;
/// No fingerprint.
const EMPTY: u8 = 0;

/// Why an item was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CuckooFault {
    /// The filter is full and does not grow.
    FilterFull,
    /// There is no room for a further filter.
    NoRoom,
}

impl From<SketchFull> for CuckooFault {
    fn from(_: SketchFull) -> CuckooFault {
        CuckooFault::NoRoom
    }
}

/// The parameters of a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CuckooSettings {
    /// Fingerprints in a bucket, 1 to 255.
    pub bucket_size: u16,
    /// Fingerprints moved before the filter counts as full.
    pub iterations_max: u16,
    /// The factor by which each further filter is larger; 0 if none is added.
    pub expansion: u16,
}

/// One table of buckets.
#[derive(Debug)]
struct CuckooTable {
    buckets: u64,
    cells: Blocks,
}

/// Tables of buckets, the newest last.
#[derive(Debug)]
pub struct Cuckoo {
    tables: Vec<CuckooTable>,
    buckets: u64,
    items: u64,
    deletes: u64,
    settings: CuckooSettings,
}

/// The possible places of an item's fingerprint.
#[derive(Clone, Copy)]
struct Places {
    fingerprint: u8,
    first: u64,
    second: u64,
}

impl Places {
    fn of(hash: u64) -> Places {
        let fingerprint = (hash % 255 + 1) as u8;
        Places { fingerprint, first: hash, second: other(fingerprint, hash) }
    }
}

fn other(fingerprint: u8, place: u64) -> u64 {
    place ^ u64::from(fingerprint).wrapping_mul(OTHER_PLACE)
}

/// The hash of an item.
pub fn hash(item: &[u8]) -> u64 {
    murmur64a(item, 0)
}

impl CuckooTable {
    fn bucket(&self, place: u64, size: u16) -> std::ops::Range<u64> {
        let start = place % self.buckets * u64::from(size);
        start..start + u64::from(size)
    }

    fn find(&self, arena: &Arena, place: u64, size: u16, fingerprint: u8) -> Option<u64> {
        self.bucket(place, size).find(|&at| self.cells.byte(arena, at) == fingerprint)
    }

    fn find_either(&self, arena: &Arena, places: Places, size: u16, fingerprint: u8) -> Option<u64> {
        let first = self.find(arena, places.first, size, fingerprint);
        first.or_else(|| self.find(arena, places.second, size, fingerprint))
    }

    fn swap(&mut self, arena: &mut Arena, at: u64, fingerprint: u8) -> Result<u8, SketchFull> {
        let before = self.cells.byte(arena, at);
        self.cells.set_byte(arena, at, fingerprint)?;
        Ok(before)
    }
}

impl Cuckoo {
    /// A filter without items for about `capacity` of them. Fails if it would fit no arena.
    pub fn new(capacity: u64, settings: CuckooSettings) -> Result<Cuckoo, SketchFull> {
        let wanted = capacity / u64::from(settings.bucket_size.max(1));
        let buckets = wanted.max(1).checked_next_power_of_two().ok_or(SketchFull)?;
        let expansion = match settings.expansion {
            0 => 0,
            some => some.checked_next_power_of_two().ok_or(SketchFull)?,
        };
        let settings = CuckooSettings { expansion, ..settings };
        let mut filter = Cuckoo { tables: Vec::new(), buckets, items: 0, deletes: 0, settings };
        filter.grow()?;
        Ok(filter)
    }

    /// Buckets of the next table; `None` if there is no further one.
    fn next_buckets(&self) -> Option<u64> {
        let tables = u32::try_from(self.tables.len()).ok().filter(|&n| n < u32::from(u16::MAX))?;
        let growth = u64::from(self.settings.expansion).checked_pow(tables)?;
        self.buckets.checked_mul(growth).filter(|&buckets| buckets > 0 && buckets <= BUCKETS_MAX)
    }

    /// Bytes of the table that would be added next.
    pub fn growth_bytes(&self) -> u64 {
        self.next_buckets().map_or(0, |buckets| buckets.saturating_mul(u64::from(self.settings.bucket_size)))
    }

    fn grow(&mut self) -> Result<(), SketchFull> {
        let buckets = self.next_buckets().ok_or(SketchFull)?;
        let bytes = buckets.checked_mul(u64::from(self.settings.bucket_size)).ok_or(SketchFull)?;
        self.tables.push(CuckooTable { buckets, cells: Blocks::zeroed(bytes)? });
        Ok(())
    }

    /// Returns true if an item may have been added.
    pub fn contains(&self, arena: &Arena, hash: u64) -> bool {
        let (places, size) = (Places::of(hash), self.settings.bucket_size);
        self.tables.iter().any(|table| table.find_either(arena, places, size, places.fingerprint).is_some())
    }

    /// Number of times an item may have been added.
    pub fn count(&self, arena: &Arena, hash: u64) -> u64 {
        let (places, size) = (Places::of(hash), self.settings.bucket_size);
        let in_bucket = |table: &CuckooTable, place| {
            let bucket = table.bucket(place, size);
            bucket.filter(|&at| table.cells.byte(arena, at) == places.fingerprint).count() as u64
        };
        let both = |table: &CuckooTable| in_bucket(table, places.first) + in_bucket(table, places.second);
        self.tables.iter().map(both).sum()
    }

    /// Adds an item, even if it is present. Fails if the filter is full or has no room.
    pub fn add(&mut self, arena: &mut Arena, hash: u64) -> Result<(), CuckooFault> {
        let (places, size) = (Places::of(hash), self.settings.bucket_size);
        loop {
            for table in self.tables.iter_mut().rev() {
                if let Some(at) = table.find_either(arena, places, size, EMPTY) {
                    table.cells.set_byte(arena, at, places.fingerprint)?;
                    self.items += 1;
                    return Ok(());
                }
            }
            if self.kick(arena, places)? {
                self.items += 1;
                return Ok(());
            }
            if self.settings.expansion == 0 {
                return Err(CuckooFault::FilterFull);
            }
            self.grow()?;
        }
    }

    /// Makes room in the newest table by moving fingerprints; returns false, with the table unchanged, if that fails.
    fn kick(&mut self, arena: &mut Arena, places: Places) -> Result<bool, SketchFull> {
        let (size, most) = (self.settings.bucket_size, self.settings.iterations_max);
        let Some(table) = self.tables.last_mut() else { return Err(SketchFull) };
        let mut fingerprint = places.fingerprint;
        let mut bucket = places.first % table.buckets;
        let mut victim = 0_u64;
        for _ in 0..most {
            let at = bucket * u64::from(size) + victim;
            fingerprint = table.swap(arena, at, fingerprint)?;
            bucket = other(fingerprint, bucket) % table.buckets;
            if let Some(at) = table.find(arena, bucket, size, EMPTY) {
                table.cells.set_byte(arena, at, fingerprint)?;
                return Ok(true);
            }
            victim = (victim + 1) % u64::from(size);
        }
        for _ in 0..most {
            victim = (victim + u64::from(size) - 1) % u64::from(size);
            bucket = other(fingerprint, bucket) % table.buckets;
            fingerprint = table.swap(arena, bucket * u64::from(size) + victim, fingerprint)?;
        }
        Ok(false)
    }

    /// Removes one of an item's fingerprints; returns false if there is none.
    pub fn remove(&mut self, arena: &mut Arena, hash: u64) -> Result<bool, SketchFull> {
        let (places, size) = (Places::of(hash), self.settings.bucket_size);
        for table in self.tables.iter_mut().rev() {
            let Some(at) = table.find_either(arena, places, size, places.fingerprint) else { continue };
            table.cells.set_byte(arena, at, EMPTY)?;
            self.items = self.items.wrapping_sub(1);
            self.deletes += 1;
            if self.tables.len() > 1 && self.deletes as f64 > self.items as f64 * 0.10 {
                self.compact(arena, KickEffort::UntilStuck)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves fingerprints into older tables, and drops newest tables that become empty.
    pub fn compact(&mut self, arena: &mut Arena, effort: KickEffort) -> Result<(), SketchFull> {
        for from in (1..self.tables.len()).rev() {
            let is_empty = self.empty_table(arena, from)?;
            if is_empty && from + 1 == self.tables.len() {
                if let Some(mut table) = self.tables.pop() {
                    table.cells.free_step(arena, usize::MAX);
                }
            } else if !is_empty && effort == KickEffort::UntilStuck {
                break;
            }
        }
        self.deletes = 0;
        Ok(())
    }

    /// Moves the content of table `from` into older ones as far as there are places; returns true if the table is
    /// empty.
    fn empty_table(&mut self, arena: &mut Arena, from: usize) -> Result<bool, SketchFull> {
        let size = self.settings.bucket_size;
        let (older, newer) = self.tables.split_at_mut(from);
        let Some(table) = newer.first_mut() else { return Ok(true) };
        let mut is_empty = true;
        for bucket in 0..table.buckets {
            for at in table.bucket(bucket, size) {
                let fingerprint = table.cells.byte(arena, at);
                if fingerprint == EMPTY {
                    continue;
                }
                let places = Places { fingerprint, first: bucket, second: other(fingerprint, bucket) };
                let free = older.iter_mut().find_map(|table| {
                    let free = table.find_either(arena, places, size, EMPTY)?;
                    Some((table, free))
                });
                match free {
                    Some((target, free)) => {
                        target.cells.set_byte(arena, free, fingerprint)?;
                        table.cells.set_byte(arena, at, EMPTY)?;
                    }
                    None => is_empty = false,
                }
            }
        }
        Ok(is_empty)
    }

    /// Its parameters; the expansion is a power of two.
    pub fn settings(&self) -> CuckooSettings {
        self.settings
    }

    /// Buckets of the first table.
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Tables.
    pub fn tables_len(&self) -> usize {
        self.tables.len()
    }

    /// Items added and not deleted.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Items deleted since fingerprints were last moved together.
    pub fn deletes(&self) -> u64 {
        self.deletes
    }

    /// Bytes that RedisBloom would hold, as CF.INFO says.
    pub fn nominal_bytes(&self) -> u64 {
        const ROOT: u64 = 40;
        const TABLE: u64 = 16;
        self.tables.iter().fold(ROOT, |sum, table| sum + TABLE + table.cells.bytes())
    }

    /// A value without content, until its root is read.
    pub fn empty() -> Cuckoo {
        let settings = CuckooSettings { bucket_size: 1, iterations_max: 1, expansion: 0 };
        Cuckoo { tables: Vec::new(), buckets: 1, items: 0, deletes: 0, settings }
    }

    /// Bytes in the arena and on the heap, without the root.
    pub fn memory_bytes(&self) -> usize {
        let cells: usize = self.tables.iter().map(|table| table.cells.memory_bytes()).sum();
        cells + self.tables.capacity() * size_of::<CuckooTable>()
    }

    /// A copy of the root for a reader of the present state. The copy must never free its blocks.
    pub fn frozen(&self) -> Cuckoo {
        let frozen =
            |table: &CuckooTable| CuckooTable { buckets: table.buckets, cells: table.cells.frozen() };
        Cuckoo { tables: self.tables.iter().map(frozen).collect(), ..*self }
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> u64 {
        let all: Vec<&Blocks> = self.tables.iter().map(|table| &table.cells).collect();
        bytes_across(&all)
    }

    /// Fingerprints of all tables from byte `from` on, `len` of them as far as they exist.
    pub fn read(&self, arena: &Arena, from: u64, len: u64) -> Vec<u8> {
        let all: Vec<&Blocks> = self.tables.iter().map(|table| &table.cells).collect();
        read_across(&all, arena, from, len)
    }

    /// Writes the output of [`Cuckoo::read`]. Fails if it is too long or there is no room.
    pub fn write(&mut self, arena: &mut Arena, from: u64, bytes: &[u8]) -> Result<(), SketchFull> {
        write_across(self.tables.iter_mut().map(|table| &mut table.cells), arena, from, bytes)
    }

    /// Frees up to `blocks_max` blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        if let Some(table) = self.tables.last_mut()
            && table.cells.free_step(arena, blocks_max)
        {
            self.tables.pop();
        }
        self.tables.is_empty()
    }
}

/// The effort of moving fingerprints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KickEffort {
    /// Until a table keeps one.
    UntilStuck,
    /// Over all tables.
    All,
}

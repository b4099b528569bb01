//! The two outside forms of a cuckoo filter: the fields of an RDB file, and the header and chunks of CF.SCANDUMP.

use darter_base::fields::{FieldSink, FieldSource};
use darter_slab::Arena;

use super::{BUCKETS_MAX, Cuckoo, CuckooSettings, CuckooTable};
use crate::blocks::Blocks;
use crate::packed::Unpacker;
use crate::{CorruptSketch, SketchLoadFault};

/// The newest version of the RDB form that can be read; the one that is written.
pub const VERSION: u16 = 4;
const HEADER_BYTES: usize = 4 * 8 + 3 * 2;
/// A filter has at most this many tables.
const TABLES_MAX: u64 = 1 << 16;
/// The settings of a file that is too old to have them.
const OLD: CuckooSettings = CuckooSettings { bucket_size: 2, iterations_max: 20, expansion: 1 };

impl CuckooSettings {
    fn check(self, tables: u64, buckets: u64) -> Result<(), CorruptSketch> {
        let is_range = (1..=255).contains(&self.bucket_size)
            && self.iterations_max > 0
            && self.expansion <= 32_768
            && (self.expansion == 0 || self.expansion.is_power_of_two());
        let is_count = (1..TABLES_MAX).contains(&tables) && (self.expansion > 0 || tables == 1);
        let is_buckets = buckets.is_power_of_two() && buckets <= BUCKETS_MAX;
        if is_range && is_count && is_buckets { Ok(()) } else { Err(CorruptSketch) }
    }
}

impl Cuckoo {
    /// Writes the fields of an RDB file, in the form of [`VERSION`].
    pub fn save(&self, arena: &Arena, out: &mut dyn FieldSink) {
        out.unsigned(self.tables.len() as u64);
        out.unsigned(self.buckets);
        out.unsigned(self.items);
        out.unsigned(self.deletes);
        out.unsigned(u64::from(self.settings.bucket_size));
        out.unsigned(u64::from(self.settings.iterations_max));
        out.unsigned(u64::from(self.settings.expansion));
        for table in &self.tables {
            out.unsigned(table.buckets);
            out.string(&table.cells.all(arena));
        }
    }

    /// Reads the fields of an RDB file of version `version`. Fails if they are not those of a filter.
    pub fn load(
        source: &mut dyn FieldSource,
        version: u16,
        arena: &mut Arena,
    ) -> Result<Cuckoo, SketchLoadFault> {
        let (tables, buckets, items) = (source.unsigned()?, source.unsigned()?, source.unsigned()?);
        let (mut deletes, mut settings) = (0, OLD);
        if version >= 4 {
            deletes = source.unsigned()?;
            let mut small = || u16::try_from(source.unsigned()?).map_err(|_| SketchLoadFault::Corrupt);
            settings =
                CuckooSettings { bucket_size: small()?, iterations_max: small()?, expansion: small()? };
        }
        settings.check(tables, buckets)?;
        if version > VERSION {
            return Err(SketchLoadFault::Corrupt);
        }
        let mut filter = Cuckoo { tables: Vec::new(), buckets, items, deletes, settings };
        for _ in 0..tables {
            if let Err(fault) = filter.load_table(source, version, arena) {
                while !filter.free_step(arena, usize::MAX) {}
                return Err(fault);
            }
        }
        Ok(filter)
    }

    fn load_table(
        &mut self,
        source: &mut dyn FieldSource,
        version: u16,
        arena: &mut Arena,
    ) -> Result<(), SketchLoadFault> {
        let buckets = if version >= 4 { source.unsigned()? } else { self.buckets };
        let bytes = source.string()?;
        let expected = buckets.checked_mul(u64::from(self.settings.bucket_size));
        if !buckets.is_power_of_two() || expected != Some(bytes.len() as u64) {
            return Err(SketchLoadFault::Corrupt);
        }
        self.tables.push(CuckooTable { buckets, cells: Blocks::zeroed(bytes.len() as u64)? });
        if let Some(table) = self.tables.last_mut() {
            table.cells.write(arena, 0, &bytes)?;
        }
        Ok(())
    }

    /// The header that CF.SCANDUMP gives first.
    pub fn dump_header(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        for number in [self.items, self.buckets, self.deletes, self.tables.len() as u64] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.settings.bucket_size, self.settings.iterations_max, self.settings.expansion] {
            out.extend(number.to_le_bytes());
        }
        out
    }

    /// Returns true if `header` is as long as a header.
    pub fn is_header(header: &[u8]) -> bool {
        header.len() == HEADER_BYTES
    }

    /// The filter that a header describes, without its fingerprints. Fails if the header contradicts itself.
    pub fn of_header(header: &[u8]) -> Result<Cuckoo, SketchLoadFault> {
        let mut from = Unpacker(header);
        let (items, buckets, deletes, tables) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
        let settings =
            CuckooSettings { bucket_size: from.u16()?, iterations_max: from.u16()?, expansion: from.u16()? };
        settings.check(tables, buckets)?;
        let mut filter = Cuckoo { tables: Vec::new(), buckets, items, deletes, settings };
        for _ in 0..tables {
            filter.grow()?;
        }
        Ok(filter)
    }

    /// The table at byte `at` of all tables, and the byte within the table.
    fn table_at(&self, mut at: u64) -> Option<(usize, u64)> {
        for (n, table) in self.tables.iter().enumerate() {
            if at < table.cells.bytes() {
                return Some((n, at));
            }
            at -= table.cells.bytes();
        }
        None
    }

    /// The bytes at iterator `iterator` of CF.SCANDUMP, at most `bytes_max`, and the next iterator; `None` at the end.
    pub fn dump_chunk(&self, arena: &Arena, iterator: i64, bytes_max: u64) -> Option<(i64, Vec<u8>)> {
        let (n, at) = self.table_at(u64::try_from(iterator).ok()?.checked_sub(1)?)?;
        let bytes = self.tables.get(n)?.cells.parts(arena, at, bytes_max).concat();
        Some((iterator + bytes.len() as i64, bytes))
    }

    /// Takes the output of [`Cuckoo::dump_chunk`] for `iterator`. Fails if they do not fit.
    pub fn load_chunk(
        &mut self,
        arena: &mut Arena,
        iterator: i64,
        bytes: &[u8],
    ) -> Result<(), SketchLoadFault> {
        let end = u64::try_from(iterator).ok().and_then(|end| end.checked_sub(1)).ok_or(CorruptSketch)?;
        let at = end.checked_sub(bytes.len() as u64).filter(|_| !bytes.is_empty()).ok_or(CorruptSketch)?;
        let (n, at) = self.table_at(at).ok_or(CorruptSketch)?;
        let table = self.tables.get_mut(n).ok_or(CorruptSketch)?;
        if bytes.len() as u64 > table.cells.bytes() - at {
            return Err(SketchLoadFault::Corrupt);
        }
        Ok(table.cells.write(arena, at, bytes)?)
    }
}

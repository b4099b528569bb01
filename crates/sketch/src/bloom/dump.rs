//! The two outside forms of a Bloom filter: the fields of an RDB file, and the header and chunks of BF.SCANDUMP.

use std::borrow::Cow;

use darter_base::fields::{FieldSink, FieldSource};
use darter_slab::Arena;

use super::link::{BloomLink, Params};
use super::{Bloom, ENTRIES_ARE_BITS, FORCE_64, NO_ROUND, NO_SCALING};
use crate::packed::Unpacker;
use crate::{CorruptSketch, SketchLoadFault};

/// The newest version of the RDB form that can be read; the one that is written.
pub const VERSION: u16 = 4;
const LINKS_MAX: u64 = 1 << 16;
const HEADER_BYTES: usize = 8 + 4 + 4 + 4;
const LINK_BYTES: usize = 8 * 5 + 4 + 8 + 1;
const OPTIONS: u32 = NO_ROUND | ENTRIES_ARE_BITS | FORCE_64 | NO_SCALING;

/// Why a chunk was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkFault {
    /// The iterator does not fit the bytes.
    BadData,
    /// The iterator points behind the filter.
    NoLink,
    /// The bytes reach beyond their link.
    TooBig,
    /// There is no room.
    Full,
}

impl Bloom {
    /// Writes the fields of an RDB file, in the form of [`VERSION`].
    pub fn save(&self, arena: &Arena, out: &mut dyn FieldSink) {
        out.unsigned(self.items);
        out.unsigned(self.links.len() as u64);
        out.unsigned(u64::from(self.options));
        out.unsigned(u64::from(self.growth));
        for link in &self.links {
            let params = link.params();
            out.unsigned(params.entries);
            out.double(params.error);
            out.unsigned(u64::from(params.hashes));
            out.double(params.bits_per_entry);
            out.unsigned(params.bits);
            out.unsigned(u64::from(params.n2));
            out.string(&link.bits().all(arena));
            out.unsigned(params.items);
        }
    }

    /// Reads the fields of an RDB file of version `version`. Fails if they are not those of a filter.
    pub fn load(
        source: &mut dyn FieldSource,
        version: u16,
        arena: &mut Arena,
    ) -> Result<Bloom, SketchLoadFault> {
        if version > VERSION {
            return Err(SketchLoadFault::Corrupt);
        }
        let items = source.unsigned()?;
        let links = source.unsigned()?;
        let options = if version >= 2 { number(source.unsigned()?)? } else { 0 };
        let growth = if version >= 4 { number(source.unsigned()?)? } else { 2 };
        if links == 0 || links > LINKS_MAX || options & !OPTIONS != 0 {
            return Err(SketchLoadFault::Corrupt);
        }
        let mut bloom = Bloom { links: Vec::new(), items, options, growth };
        for _ in 0..links {
            if let Err(fault) = bloom.load_link(source, version, arena) {
                while !bloom.free_step(arena, usize::MAX) {}
                return Err(fault);
            }
        }
        let sum = bloom.links.iter().fold(0_u64, |sum, link| sum.saturating_add(link.items()));
        if sum != items {
            while !bloom.free_step(arena, usize::MAX) {}
            return Err(SketchLoadFault::Corrupt);
        }
        Ok(bloom)
    }

    fn load_link(
        &mut self,
        source: &mut dyn FieldSource,
        version: u16,
        arena: &mut Arena,
    ) -> Result<(), SketchLoadFault> {
        let entries = source.unsigned()?;
        let error = source.double()?;
        let hashes = number(source.unsigned()?)?;
        let bits_per_entry = source.double()?;
        let mut bits = (entries as f64 * bits_per_entry) as u64;
        let mut n2 = 0;
        if version > 0 {
            bits = source.unsigned()?;
            n2 = u8::try_from(source.unsigned()?).map_err(|_| SketchLoadFault::Corrupt)?;
        }
        let params = Params { entries, error, bits_per_entry, hashes, bits, n2, items: 0 };
        let bytes: Cow<'_, [u8]> = source.string()?;
        self.links.push(BloomLink::of_params(params, bytes.len() as u64)?);
        if let Some(link) = self.links.last_mut() {
            link.bits_mut().write(arena, 0, &bytes)?;
        }
        drop(bytes);
        let items = source.unsigned()?;
        if let Some(link) = self.links.last_mut() {
            link.set_items(items);
        }
        Ok(())
    }

    /// The header that BF.SCANDUMP gives first.
    pub fn dump_header(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + LINK_BYTES * self.links.len());
        out.extend(self.items.to_le_bytes());
        out.extend((self.links.len() as u32).to_le_bytes());
        out.extend(self.options.to_le_bytes());
        out.extend(self.growth.to_le_bytes());
        for link in &self.links {
            let params = link.params();
            for number in [params.bits / 8, params.bits, params.items] {
                out.extend(number.to_le_bytes());
            }
            out.extend(params.error.to_le_bytes());
            out.extend(params.bits_per_entry.to_le_bytes());
            out.extend(params.hashes.to_le_bytes());
            out.extend(params.entries.to_le_bytes());
            out.push(params.n2);
        }
        out
    }

    /// The filter that a header describes, without its bits. Fails if the header contradicts itself.
    pub fn of_header(header: &[u8]) -> Result<Bloom, SketchLoadFault> {
        let mut from = Unpacker(header);
        let items = from.u64()?;
        let links_len = from.u32()? as usize;
        let (options, growth) = (from.u32()?, from.u32()?);
        let is_whole = header.len() == HEADER_BYTES.saturating_add(LINK_BYTES.saturating_mul(links_len));
        if links_len == 0 || !is_whole || options & !OPTIONS != 0 {
            return Err(SketchLoadFault::Corrupt);
        }
        let mut bloom = Bloom { links: Vec::new(), items, options, growth };
        let mut sum = 0_u64;
        for _ in 0..links_len {
            let (bytes, bits, items) = (from.u64()?, from.u64()?, from.u64()?);
            let (error, bits_per_entry) = (from.f64()?, from.f64()?);
            let (hashes, entries, [n2]) = (from.u32()?, from.u64()?, from.take()?);
            sum = sum.checked_add(items).ok_or(CorruptSketch)?;
            let params = Params { entries, error, bits_per_entry, hashes, bits, n2, items };
            bloom.links.push(BloomLink::of_params(params, bytes)?);
        }
        if sum == items { Ok(bloom) } else { Err(SketchLoadFault::Corrupt) }
    }

    /// The link at byte `at` of all bits, and the byte within the link.
    fn link_at(&self, mut at: u64) -> Option<(usize, u64)> {
        for (n, link) in self.links.iter().enumerate() {
            if at < link.bits().bytes() {
                return Some((n, at));
            }
            at -= link.bits().bytes();
        }
        None
    }

    /// The bytes at iterator `iterator` of BF.SCANDUMP, at most `bytes_max`, and the next iterator; 0 ends.
    pub fn dump_chunk(&self, arena: &Arena, iterator: i64, bytes_max: u64) -> (i64, Vec<u8>) {
        let at = u64::try_from(iterator).ok().and_then(|at| at.checked_sub(1));
        let Some((n, at)) = at.and_then(|at| self.link_at(at)) else { return (0, Vec::new()) };
        let Some(link) = self.links.get(n) else { return (0, Vec::new()) };
        let bytes = link.bits().parts(arena, at, bytes_max).concat();
        (iterator + bytes.len() as i64, bytes)
    }

    /// Takes the output of [`Bloom::dump_chunk`] for `iterator`. Fails if they do not fit.
    pub fn load_chunk(&mut self, arena: &mut Arena, iterator: i64, bytes: &[u8]) -> Result<(), ChunkFault> {
        let end = u64::try_from(iterator).map_err(|_| ChunkFault::BadData)?;
        let at = end.checked_sub(bytes.len() as u64).filter(|_| end > 0).ok_or(ChunkFault::BadData)?;
        let found = at.checked_sub(1).and_then(|at| self.link_at(at)).ok_or(ChunkFault::NoLink)?;
        let link = self.links.get_mut(found.0).ok_or(ChunkFault::NoLink)?;
        if bytes.len() as u64 > link.bits().bytes() - found.1 {
            return Err(ChunkFault::TooBig);
        }
        link.bits_mut().write(arena, found.1, bytes).map_err(|_| ChunkFault::Full)
    }
}

fn number(value: u64) -> Result<u32, CorruptSketch> {
    u32::try_from(value).map_err(|_| CorruptSketch)
}

impl BloomLink {
    fn set_items(&mut self, items: u64) {
        self.params_mut().items = items;
    }
}

//! Writes a snapshot file front to back.

use std::io::Write;

use darter_base::crc::crc32c;
use darter_store::rdb as values;

use super::block::{self, BlockKind, BlockPlace, Label};
use super::{AUX, BLOCK_BYTES, FUNCTION, HEADER_LEN, MAGIC, MAGIC_END, SIZES, VERSION};
use crate::cursor::CursorStop;
use crate::entry::Entries;
use crate::error::PersistError;

/// The totals of a written file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WrittenTotals {
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of its content before compression.
    pub raw_bytes: u64,
    /// Entries: keys, and parts of keys.
    pub entries: u64,
}

/// Entries of so many bytes make a block of their own, without a copy, where nothing is compressed.
const DIRECT_BYTES_MIN: usize = 128 << 10;

/// Writes a file: facts and functions first, then entries.
///
/// Memory: 1 MiB of content and as much compressed, or the longest entry.
#[derive(Debug)]
pub struct SnapshotWriter<W: Write> {
    out: W,
    id: u64,
    compresses: bool,
    raw: Vec<u8>,
    packed: Vec<u8>,
    // the kind of `raw`
    kind: BlockKind,
    is_ordered: bool,
    shard: u32,
    entries: u32,
    places: Vec<BlockPlace>,
    offset: u64,
    totals: WrittenTotals,
}

impl<W: Write> SnapshotWriter<W> {
    /// Starts a file at `now_ms`, Unix milliseconds; `id` is a random number.
    ///
    /// Errors: the disk failed.
    pub fn new(
        mut out: W,
        id: u64,
        now_ms: u64,
        compresses: bool,
    ) -> Result<SnapshotWriter<W>, PersistError> {
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 2]);
        header.extend_from_slice(&id.to_le_bytes());
        header.extend_from_slice(&now_ms.to_le_bytes());
        let crc = crc32c(&header);
        header.extend_from_slice(&crc.to_le_bytes());
        out.write_all(&header)?;
        Ok(SnapshotWriter {
            out,
            id,
            compresses,
            raw: Vec::new(),
            packed: Vec::new(),
            kind: BlockKind::Facts,
            is_ordered: false,
            shard: 0,
            entries: 0,
            places: Vec::new(),
            offset: HEADER_LEN as u64,
            totals: WrittenTotals::default(),
        })
    }

    /// Bytes of the file so far, without those buffered for the next block.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Writes a fact about the writer.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> Result<(), PersistError> {
        self.fact(AUX, &[name, value])
    }

    /// Writes a library of functions: its code.
    pub fn function(&mut self, code: &[u8]) -> Result<(), PersistError> {
        self.fact(FUNCTION, &[code])
    }

    fn fact(&mut self, opcode: u8, texts: &[&[u8]]) -> Result<(), PersistError> {
        self.turn_to(BlockKind::Facts, false, 0, texts.iter().map(|text| text.len()).sum())?;
        self.raw.push(opcode);
        texts.iter().for_each(|text| values::write_text(&mut self.raw, text));
        Ok(())
    }

    /// Announces the number of keys of database `db`.
    pub fn sizes(&mut self, db: u32, keys: u64, expiring: u64) -> Result<(), PersistError> {
        self.turn_to(BlockKind::Facts, false, 0, 0)?;
        self.raw.push(SIZES);
        [u64::from(db), keys, expiring].into_iter().for_each(|n| values::write_length(&mut self.raw, n));
        Ok(())
    }

    /// Writes the `entries` entries in `bytes`, of database `db` and from shard `shard`.
    ///
    /// Errors: the disk failed, or `bytes` is longer than a block and holds no entries.
    pub fn entries(&mut self, db: u32, shard: u32, entries: u32, bytes: &[u8]) -> Result<(), PersistError> {
        self.chunk(db, shard, entries, bytes, false)
    }

    /// The same for parts that must be read in the order in which they are written: those of lists.
    pub fn entries_in_order(
        &mut self,
        db: u32,
        shard: u32,
        entries: u32,
        bytes: &[u8],
    ) -> Result<(), PersistError> {
        self.chunk(db, shard, entries, bytes, true)
    }

    fn chunk(
        &mut self,
        db: u32,
        shard: u32,
        entries: u32,
        bytes: &[u8],
        is_ordered: bool,
    ) -> Result<(), PersistError> {
        if bytes.len() <= BLOCK_BYTES {
            return self.segment(db, shard, entries, bytes, is_ordered);
        }
        // cut at the ends of entries
        let (mut start, mut count) = (0, 0);
        let mut rest = Entries::new(bytes);
        loop {
            let before = rest.at();
            let Some(entry) = rest.next() else { break };
            entry.map_err(|fault| PersistError::of_stop(0, CursorStop::Bad(fault), ""))?;
            if rest.at() - start > BLOCK_BYTES && count > 0 {
                self.segment(db, shard, count, bytes.get(start..before).unwrap_or_default(), is_ordered)?;
                (start, count) = (before, 0);
            }
            count += 1;
        }
        self.segment(db, shard, count, bytes.get(start..).unwrap_or_default(), is_ordered)
    }

    fn segment(
        &mut self,
        db: u32,
        shard: u32,
        entries: u32,
        bytes: &[u8],
        is_ordered: bool,
    ) -> Result<(), PersistError> {
        if entries == 0 {
            return Ok(());
        }
        self.turn_to(BlockKind::Entries, is_ordered, shard, bytes.len())?;
        for number in [u64::from(db), u64::from(entries), bytes.len() as u64] {
            values::write_length(&mut self.raw, number);
        }
        self.entries += entries;
        self.totals.entries += u64::from(entries);
        if !self.compresses && bytes.len() >= DIRECT_BYTES_MIN {
            return self.write_out(bytes);
        }
        self.raw.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the block, whose content is what is gathered and these bytes, which are not copied.
    fn write_out(&mut self, bytes: &[u8]) -> Result<(), PersistError> {
        if u32::try_from(self.raw.len() + bytes.len()).is_err() {
            return Err(PersistError::corrupt(self.offset, "an entry of 4 GiB or more"));
        }
        let label = self.label()?;
        let head = block::head_of_parts(self.id, label, &[&self.raw, bytes]);
        self.packed.clear();
        self.packed.extend_from_slice(&head);
        self.packed.extend_from_slice(&self.raw);
        self.out.write_all(&self.packed)?;
        self.out.write_all(bytes)?;
        self.note_block(label, self.raw.len() + bytes.len(), self.packed.len() + bytes.len());
        Ok(())
    }

    fn label(&self) -> Result<Label, PersistError> {
        Ok(Label {
            kind: self.kind,
            is_ordered: self.is_ordered,
            shard: self.shard,
            entries: self.entries,
            number: u32::try_from(self.places.len())
                .map_err(|_| PersistError::corrupt(self.offset, "more than 2^32 blocks"))?,
        })
    }

    /// Notes that the block is written, and begins another.
    fn note_block(&mut self, label: Label, raw_len: usize, len: usize) {
        self.places.push(BlockPlace {
            kind: self.kind,
            number: label.number,
            offset: self.offset,
            len: len as u64,
            entries: self.entries,
            shard: self.shard,
            is_ordered: self.is_ordered,
        });
        self.offset += len as u64;
        self.totals.raw_bytes += raw_len as u64;
        self.entries = 0;
        self.raw.clear();
        // the room of one long value is not kept
        self.raw.shrink_to(2 * BLOCK_BYTES);
        self.packed.shrink_to(2 * BLOCK_BYTES);
    }

    /// Makes the current block one of `kind` with room for `len` bytes.
    fn turn_to(
        &mut self,
        kind: BlockKind,
        is_ordered: bool,
        shard: u32,
        len: usize,
    ) -> Result<(), PersistError> {
        const HEADS: usize = 32;
        let is_same = (self.kind, self.is_ordered) == (kind, is_ordered);
        if !is_same || self.raw.len() + len + HEADS > BLOCK_BYTES {
            self.flush()?;
        }
        if self.raw.is_empty() {
            (self.kind, self.is_ordered, self.shard) = (kind, is_ordered, shard);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PersistError> {
        if self.raw.is_empty() {
            return Ok(());
        }
        if u32::try_from(self.raw.len()).is_err() {
            return Err(PersistError::corrupt(self.offset, "an entry of 4 GiB or more"));
        }
        let label = self.label()?;
        block::pack(self.id, label, &self.raw, self.compresses, &mut self.packed);
        self.out.write_all(&self.packed)?;
        self.note_block(label, self.raw.len(), self.packed.len());
        Ok(())
    }

    /// Ends the file: the index and the trailer. Returns the underlying writer, flushed.
    ///
    /// Errors: the disk failed.
    pub fn finish(mut self) -> Result<(W, WrittenTotals), PersistError> {
        self.flush()?;
        let index_at = self.offset;
        values::write_length(&mut self.raw, self.places.len() as u64);
        for place in &self.places {
            let flags = u64::from(place.is_ordered);
            let fields =
                [place.kind as u64, flags, u64::from(place.shard), u64::from(place.entries), place.len];
            fields.into_iter().for_each(|field| values::write_length(&mut self.raw, field));
        }
        (self.kind, self.is_ordered, self.shard) = (BlockKind::Index, false, 0);
        self.flush()?;
        let mut trailer = index_at.to_le_bytes().to_vec();
        trailer.extend_from_slice(&super::trailer_crc(self.id, index_at).to_le_bytes());
        trailer.extend_from_slice(&[0; 4]);
        trailer.extend_from_slice(MAGIC_END);
        self.out.write_all(&trailer)?;
        self.out.flush()?;
        self.totals.bytes = self.offset + trailer.len() as u64;
        Ok((self.out, self.totals))
    }
}

//! Reads a snapshot file, block by block in any order, and trusts none of it.

use std::borrow::Cow;

use darter_base::crc::crc32c;

use super::block::{BlockKind, BlockPlace, HEAD_LEN, SnapshotBlockHead};
use super::{AUX, FUNCTION, HEADER_LEN, MAGIC, MAGIC_END, SIZES, TRAILER_LEN, VERSION};
use crate::cursor::{Cursor, CursorStop};
use crate::entry::Chunk;
use crate::error::PersistError;
use crate::item::RdbItem;
use crate::read_at::ReadAt;

/// A file whose header, trailer and index are right.
#[derive(Debug)]
pub struct SnapshotFile<R> {
    source: R,
    id: u64,
    made_ms: u64,
    len: u64,
    places: Vec<BlockPlace>,
}

/// The content of a block.
#[derive(Debug)]
pub struct SnapshotBlock {
    /// The position.
    pub place: BlockPlace,
    raw: Vec<u8>,
}

/// Entries of one database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotSegment<'a> {
    /// The database.
    pub db: u32,
    /// Number of entries.
    pub entries: u64,
    /// The entries.
    pub bytes: &'a [u8],
}

impl SnapshotSegment<'_> {
    /// A copy that outlives its block, which is at `place`.
    pub fn to_chunk(&self, place: &BlockPlace) -> Chunk {
        Chunk { db: self.db, entries: self.entries, bytes: self.bytes.to_vec(), offset: place.offset }
    }
}

impl<R: ReadAt> SnapshotFile<R> {
    /// Opens a file.
    ///
    /// Errors: not a file of ours, cut off, or its header, trailer or index is damaged.
    pub fn open(source: R) -> Result<SnapshotFile<R>, PersistError> {
        let len = source.len()?;
        let header: [u8; HEADER_LEN] = piece(&source, 0, len, "the header")?;
        let (id, made_ms) = read_header(&header)?;
        let trailer_at = len.checked_sub(TRAILER_LEN as u64).filter(|&at| at >= HEADER_LEN as u64);
        let cut_off = || PersistError::CutOff { len, what: "the index at its end".to_owned() };
        let trailer: [u8; TRAILER_LEN] = piece(&source, trailer_at.ok_or_else(cut_off)?, len, "the trailer")?;
        let (index_at, rest) =
            trailer.split_first_chunk().map_or(([0; 8], &[][..]), |(at, rest)| (*at, rest));
        let index_at = u64::from_le_bytes(index_at);
        if !trailer.ends_with(MAGIC_END) {
            return Err(cut_off());
        }
        let trailer_at = len - TRAILER_LEN as u64;
        let crc = super::trailer_crc(id, index_at).to_le_bytes();
        if rest.get(..8) != Some(&[crc, [0; 4]].concat()[..]) {
            return Err(PersistError::corrupt(trailer_at, "the trailer: its checksum is wrong"));
        }
        let mut file = SnapshotFile { source, id, made_ms, len, places: Vec::new() };
        let index = file.content_at(index_at)?;
        if index_at + index.place.len != trailer_at {
            return Err(PersistError::corrupt(trailer_at, "the trailer does not follow the index"));
        }
        file.places = read_index(&index)?;
        Ok(file)
    }

    /// When the file was begun, Unix milliseconds.
    pub fn made_ms(&self) -> u64 {
        self.made_ms
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the file holds no key and no fact.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The blocks, in the order of the file.
    pub fn places(&self) -> &[BlockPlace] {
        &self.places
    }

    /// Keys and parts of keys in all blocks.
    pub fn entries(&self) -> u64 {
        self.places.iter().map(|place| u64::from(place.entries)).sum()
    }

    /// Reads one of [`SnapshotFile::places`]. Any number of threads may do so concurrently.
    ///
    /// Errors: the source failed, or the block is damaged or not the one that the index names.
    pub fn read(&self, place: &BlockPlace) -> Result<SnapshotBlock, PersistError> {
        let block = self.content_at(place.offset)?;
        if block.place != *place {
            return Err(damaged(place, "its head is not as the index says"));
        }
        Ok(block)
    }

    /// The facts, functions and sizes of all blocks that hold such.
    pub fn facts(&self) -> Result<Vec<RdbItem>, PersistError> {
        let mut items = Vec::new();
        for place in self.places.iter().filter(|place| place.kind == BlockKind::Facts) {
            let block = self.read(place)?;
            items.append(&mut block.facts()?);
        }
        Ok(items)
    }

    fn content_at(&self, offset: u64) -> Result<SnapshotBlock, PersistError> {
        block_at(&self.source, self.id, offset, self.len)
    }
}

/// Reads the block that begins at `offset` in a file of `len` bytes.
fn block_at<R: ReadAt>(source: &R, id: u64, offset: u64, len: u64) -> Result<SnapshotBlock, PersistError> {
    let bytes: [u8; HEAD_LEN] = piece(source, offset, len, "the head of a block")?;
    let head = SnapshotBlockHead::read(&bytes, offset)?;
    let place = BlockPlace {
        kind: head.kind,
        number: head.number,
        offset,
        len: head.len(),
        entries: head.entries,
        shard: head.shard,
        is_ordered: head.is_ordered,
    };
    // the length is checked against the file before anything is allocated
    if offset.checked_add(head.len()).is_none_or(|end| end > len) {
        let what = format!("block {} that begins at byte {offset}", head.number);
        return Err(PersistError::CutOff { len, what });
    }
    let mut stored = vec![0; head.packed_len as usize];
    source.read_at(offset + HEAD_LEN as u64, &mut stored)?;
    let raw = match head.unpack(id, &bytes, &stored).map_err(|what| damaged(&place, &what))? {
        Cow::Owned(raw) => raw,
        Cow::Borrowed(_) => stored,
    };
    Ok(SnapshotBlock { place, raw })
}

fn damaged(place: &BlockPlace, what: &str) -> PersistError {
    PersistError::corrupt(place.offset, format!("block {}: {what}", place.number))
}

fn piece<R: ReadAt, const N: usize>(
    source: &R,
    offset: u64,
    len: u64,
    what: &str,
) -> Result<[u8; N], PersistError> {
    let mut bytes = [0; N];
    if offset.checked_add(N as u64).is_none_or(|end| end > len) {
        return Err(PersistError::CutOff { len, what: what.to_owned() });
    }
    source.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// The id in the header that bytes begin with, if that is what they are.
pub fn id_of(bytes: &[u8]) -> Option<u64> {
    let header = bytes.first_chunk::<HEADER_LEN>()?;
    read_header(header).ok().map(|(id, _)| id)
}

/// Id and time in a header.
fn read_header(header: &[u8; HEADER_LEN]) -> Result<(u64, u64), PersistError> {
    let [magic @ .., _, _, _, _] = header;
    if !header.starts_with(MAGIC) {
        return Err(PersistError::corrupt(0, "no snapshot file: it does not begin with DARTERDB"));
    }
    if !header.ends_with(&crc32c(magic).to_le_bytes()) {
        return Err(PersistError::corrupt(0, "the header: its checksum is wrong"));
    }
    let mut cursor = Cursor::new(header);
    let mut read = || {
        cursor.array::<8>()?;
        let version = u16::from_le_bytes(cursor.array()?);
        cursor.array::<2>()?;
        Ok((version, u64::from_le_bytes(cursor.array()?), u64::from_le_bytes(cursor.array()?)))
    };
    let (version, id, made_ms) =
        read().map_err(|stop: CursorStop| PersistError::of_stop(0, stop, "the header"))?;
    if version != VERSION {
        return Err(PersistError::Unknown {
            offset: 8,
            what: format!("version {version} of snapshot files is not known"),
        });
    }
    Ok((id, made_ms))
}

fn read_index(index: &SnapshotBlock) -> Result<Vec<BlockPlace>, PersistError> {
    let bad = |what: &str| damaged(&index.place, what);
    if index.place.kind != BlockKind::Index {
        return Err(bad("it is no index"));
    }
    let mut cursor = Cursor::new(&index.raw);
    let mut places = Vec::new();
    let mut offset = HEADER_LEN as u64;
    let count = cursor.number().map_err(|_| bad("a row is cut off"))?;
    for number in 0..count {
        let mut field = || cursor.number().map_err(|_| bad("a row is cut off"));
        let (kind, flags, shard, entries, len) = (field()?, field()?, field()?, field()?, field()?);
        let small = |number: u64| u32::try_from(number).map_err(|_| bad("a row with a number past 2^32"));
        places.push(BlockPlace {
            kind: BlockKind::of(kind).ok_or_else(|| bad("a row of an unknown kind"))?,
            number: small(number)?,
            offset,
            len,
            entries: small(entries)?,
            shard: small(shard)?,
            is_ordered: flags == 1,
        });
        offset = offset.checked_add(len).ok_or_else(|| bad("rows past the end of the file"))?;
    }
    if offset != index.place.offset || !cursor.is_done() || u64::from(index.place.number) != count {
        return Err(bad("its rows do not add up to the file"));
    }
    Ok(places)
}

impl SnapshotBlock {
    /// Reads a block that came without its file, whose id is `id`.
    ///
    /// Errors: it is cut off, longer than it says, or damaged.
    pub fn alone(id: u64, bytes: &[u8]) -> Result<SnapshotBlock, PersistError> {
        let len = bytes.len() as u64;
        let cut_off = || PersistError::CutOff { len, what: "a block".to_owned() };
        let (head_bytes, stored) = bytes.split_first_chunk::<HEAD_LEN>().ok_or_else(cut_off)?;
        let head = SnapshotBlockHead::read(head_bytes, 0)?;
        if head.len() != len {
            return Err(cut_off());
        }
        let place = BlockPlace {
            kind: head.kind,
            number: head.number,
            offset: 0,
            len,
            entries: head.entries,
            shard: head.shard,
            is_ordered: head.is_ordered,
        };
        let raw = head.unpack(id, head_bytes, stored).map_err(|what| damaged(&place, &what))?;
        Ok(SnapshotBlock { place, raw: raw.into_owned() })
    }

    /// Its items besides keys; empty for a block of entries.
    ///
    /// Errors: the content makes no sense, which only a faulty writer can cause.
    pub fn facts(&self) -> Result<Vec<RdbItem>, PersistError> {
        let mut items = Vec::new();
        let mut cursor = Cursor::new(if self.place.kind == BlockKind::Facts { &self.raw } else { &[] });
        while !cursor.is_done() {
            let item = read_fact(&mut cursor).map_err(|_| damaged(&self.place, "a damaged fact"))?;
            items.push(item);
        }
        Ok(items)
    }

    /// Its entries, by database; empty for a block of facts.
    ///
    /// Errors: as [`SnapshotBlock::facts`].
    pub fn segments(&self) -> Result<Vec<SnapshotSegment<'_>>, PersistError> {
        let mut segments = Vec::new();
        let mut cursor = Cursor::new(if self.place.kind == BlockKind::Entries { &self.raw } else { &[] });
        let mut entries = 0u64;
        while !cursor.is_done() {
            let segment = read_segment(&mut cursor).map_err(|_| damaged(&self.place, "damaged segments"))?;
            entries = entries.saturating_add(segment.entries);
            segments.push(segment);
        }
        if entries != u64::from(self.place.entries) {
            return Err(damaged(&self.place, "its segments have more or fewer entries than its head says"));
        }
        Ok(segments)
    }

    /// Bytes of the content.
    pub fn raw_len(&self) -> usize {
        self.raw.len()
    }
}

fn read_fact(cursor: &mut Cursor<'_>) -> Result<RdbItem, CursorStop> {
    let text = |cursor: &mut Cursor<'_>| cursor.text().map(|text| text.into_owned());
    Ok(match cursor.byte()? {
        AUX => RdbItem::Aux { name: text(cursor)?, value: text(cursor)? },
        FUNCTION => RdbItem::Function(text(cursor)?),
        SIZES => {
            let db = u32::try_from(cursor.number()?).map_err(|_| cursor.bad("a database past 2^32"))?;
            RdbItem::Sizes { db, keys: cursor.number()?, expiring: cursor.number()? }
        }
        _ => return Err(cursor.bad("an unknown kind of fact")),
    })
}

fn read_segment<'a>(cursor: &mut Cursor<'a>) -> Result<SnapshotSegment<'a>, CursorStop> {
    let db = u32::try_from(cursor.number()?).map_err(|_| cursor.bad("a database past 2^32"))?;
    let entries = cursor.number()?;
    let len = usize::try_from(cursor.number()?).map_err(|_| CursorStop::More)?;
    // so that a caller that reserves room by this number reserves no more than the content needs
    if entries > len as u64 {
        return Err(cursor.bad("more entries than bytes"));
    }
    Ok(SnapshotSegment { db, entries, bytes: cursor.take(len)? })
}

/// Reads the blocks of a file from its front as far as they are complete, with or without an index.
///
/// Shows each to `visit`. Errors: the header, or the first incomplete block.
pub fn walk<R: ReadAt>(
    source: &R,
    mut visit: impl FnMut(&SnapshotBlock) -> Result<(), PersistError>,
) -> Result<(), PersistError> {
    let len = source.len()?;
    let header: [u8; HEADER_LEN] = piece(source, 0, len, "the header")?;
    let (id, _) = read_header(&header)?;
    let mut offset = HEADER_LEN as u64;
    loop {
        let block = block_at(source, id, offset, len)?;
        visit(&block)?;
        if block.place.kind == BlockKind::Index {
            return Ok(());
        }
        offset += block.place.len;
    }
}

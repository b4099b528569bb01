//! A block: 32 bytes of head, then its content, compressed or not.
//!
//! ```text
//! "DBLK"  kind 1  codec 1  flags 2  shard 4  entries 4  raw length 4  packed length 4  number 4  CRC32C 4
//! ```
//!
//! The checksum is over the file's id, the head before it, and the content as it is stored.

use std::borrow::Cow;

use darter_base::crc::Crc32c;

use crate::error::PersistError;

/// Bytes of a head.
pub const HEAD_LEN: usize = 32;
const MAGIC: &[u8; 4] = b"DBLK";
const ORDERED: u16 = 1;
const CODEC_NONE: u8 = 0;
const CODEC_LZ4: u8 = 1;
/// Bytes that one byte of LZ4 can produce at most.
const GAIN_MAX: u64 = 255;

/// The content of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockKind {
    /// Facts about the writer, functions, sizes of databases.
    Facts = 1,
    /// Keys.
    Entries = 2,
    /// A row for each block before it.
    Index = 3,
}

impl BlockKind {
    /// The kind of number `byte`.
    pub fn of(byte: u64) -> Option<BlockKind> {
        [BlockKind::Facts, BlockKind::Entries, BlockKind::Index].into_iter().find(|kind| *kind as u64 == byte)
    }
}

/// The position of a block, and its row in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// Its content.
    pub kind: BlockKind,
    /// Its number, from 0.
    pub number: u32,
    /// Offset of its head, in bytes from the start of the file.
    pub offset: u64,
    /// Bytes in the file, its head included.
    pub len: u64,
    /// Number of entries.
    pub entries: u32,
    /// The shard of the writer from which its entries come. Readers may use it to avoid each other.
    pub shard: u32,
    /// True if it must be read after all ordered blocks before it.
    pub is_ordered: bool,
}

/// A head, read and checked as far as it can be alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotBlockHead {
    /// The content of the block.
    pub kind: BlockKind,
    codec: u8,
    /// True if it must be read in order.
    pub is_ordered: bool,
    /// The shard its entries are from.
    pub shard: u32,
    /// Number of entries.
    pub entries: u32,
    /// Bytes of the content.
    pub raw_len: u32,
    /// Bytes of it in the file.
    pub packed_len: u32,
    /// The block's number.
    pub number: u32,
    crc: u32,
}

impl SnapshotBlockHead {
    /// Reads the head at byte `offset` of a file.
    ///
    /// Errors: not a head, or one that contradicts itself.
    pub fn read(bytes: &[u8; HEAD_LEN], offset: u64) -> Result<SnapshotBlockHead, PersistError> {
        let bad = |what: &str| PersistError::corrupt(offset, format!("the head of a block: {what}"));
        let u32_at = |at: usize| {
            bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
        };
        let [a, b, c, d, kind, codec, flag_low, flag_high, ..] = *bytes;
        if [a, b, c, d] != *MAGIC {
            return Err(bad("its mark is missing"));
        }
        let flags = u16::from_le_bytes([flag_low, flag_high]);
        let head = SnapshotBlockHead {
            kind: BlockKind::of(u64::from(kind)).ok_or_else(|| bad("an unknown kind"))?,
            codec,
            is_ordered: flags & ORDERED != 0,
            shard: u32_at(8),
            entries: u32_at(12),
            raw_len: u32_at(16),
            packed_len: u32_at(20),
            number: u32_at(24),
            crc: u32_at(28),
        };
        let longest = match codec {
            CODEC_NONE => u64::from(head.packed_len),
            CODEC_LZ4 => u64::from(head.packed_len) * GAIN_MAX,
            _ => return Err(bad("an unknown compression")),
        };
        if flags & !ORDERED != 0 {
            return Err(bad("unknown flags"));
        }
        if u64::from(head.raw_len) > longest || (codec == CODEC_NONE && head.raw_len != head.packed_len) {
            return Err(bad("impossible lengths"));
        }
        Ok(head)
    }

    /// Bytes of the block in the file.
    pub fn len(&self) -> u64 {
        HEAD_LEN as u64 + u64::from(self.packed_len)
    }

    /// Checks `stored`, the content in the file, and returns it unpacked.
    ///
    /// Errors: the checksum is wrong. Cost: at most 255 times the bytes of `stored`.
    pub fn unpack<'a>(
        &self,
        id: u64,
        head: &[u8; HEAD_LEN],
        stored: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, String> {
        let computed = crc_of(id, head, &[stored]);
        if computed != self.crc {
            return Err(format!("its checksum is {computed:08x}, but {:08x} is written", self.crc));
        }
        if self.codec == CODEC_NONE {
            return Ok(Cow::Borrowed(stored));
        }
        let mut raw = vec![0; self.raw_len as usize];
        match lz4_flex::block::decompress_into(stored, &mut raw) {
            Ok(len) if len == raw.len() => Ok(Cow::Owned(raw)),
            _ => Err("its content cannot be unpacked".to_owned()),
        }
    }
}

/// The properties of a block to be written, besides its content.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its content.
    pub kind: BlockKind,
    /// True if it must be read in order.
    pub is_ordered: bool,
    /// The shard its entries are from.
    pub shard: u32,
    /// Number of entries.
    pub entries: u32,
    /// Its number.
    pub number: u32,
}

/// The length of the block that `bytes` begin with, if it holds facts or keys.
pub fn block_len(bytes: &[u8]) -> Option<usize> {
    let head = SnapshotBlockHead::read(bytes.first_chunk()?, 0).ok()?;
    usize::try_from(head.len()).ok().filter(|_| head.kind != BlockKind::Index)
}

/// Returns true if `bytes` begin with a block that is to be read after those before it.
pub fn is_ordered_block(bytes: &[u8]) -> bool {
    bytes
        .first_chunk()
        .and_then(|head| SnapshotBlockHead::read(head, 0).ok())
        .is_some_and(|head| head.is_ordered)
}

/// Builds a block in `out`, which is overwritten. The content is compressed if that makes it shorter.
#[expect(clippy::indexing_slicing, reason = "the head is as long as its fields")]
pub fn pack(id: u64, label: Label, raw: &[u8], compresses: bool, out: &mut Vec<u8>) {
    out.clear();
    let room = if compresses { lz4_flex::block::get_maximum_output_size(raw.len()) } else { 0 };
    out.resize(HEAD_LEN + room, 0);
    let packed = match out.get_mut(HEAD_LEN..) {
        Some(place) if compresses => lz4_flex::block::compress_into(raw, place).ok(),
        _ => None,
    };
    let codec = match packed.filter(|&len| len < raw.len()) {
        Some(len) => {
            out.truncate(HEAD_LEN + len);
            CODEC_LZ4
        }
        None => {
            out.truncate(HEAD_LEN);
            out.extend_from_slice(raw);
            CODEC_NONE
        }
    };
    let mut head = head_of(label, codec, raw.len(), out.len() - HEAD_LEN);
    let crc = crc_of(id, &head, &[&out[HEAD_LEN..]]);
    head[HEAD_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
    out[..HEAD_LEN].copy_from_slice(&head);
}

/// The head of a block whose content, not compressed, is these parts, one behind the other.
pub fn head_of_parts(id: u64, label: Label, parts: &[&[u8]]) -> [u8; HEAD_LEN] {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut head = head_of(label, CODEC_NONE, len, len);
    let crc = crc_of(id, &head, parts);
    head[HEAD_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// A head with zeros in the place of the checksum.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "the head is as long as its fields, and a block is below 4 GiB"
)]
fn head_of(label: Label, codec: u8, raw_len: usize, packed_len: usize) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    let flags = if label.is_ordered { ORDERED } else { 0 };
    let fields: [&[u8]; 8] = [
        MAGIC,
        &[label.kind as u8, codec],
        &flags.to_le_bytes(),
        &label.shard.to_le_bytes(),
        &label.entries.to_le_bytes(),
        &(raw_len as u32).to_le_bytes(),
        &(packed_len as u32).to_le_bytes(),
        &label.number.to_le_bytes(),
    ];
    let mut at = 0;
    for field in fields {
        head[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    head
}

fn crc_of(id: u64, head: &[u8; HEAD_LEN], stored: &[&[u8]]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&id.to_le_bytes());
    crc.update(&head[..HEAD_LEN - 4]);
    stored.iter().for_each(|part| crc.update(part));
    crc.value()
}

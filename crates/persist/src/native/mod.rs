//! Darter's own snapshot files: compressed blocks of entries, each with a checksum, and an index at the end.
//!
//! ```text
//! header    32 B   "DARTERDB", version 2, flags 2, id 8, made at (Unix ms) 8, CRC32C of these 4
//! blocks           see `block`: facts first, then entries
//! index            a block with a row for each block before it
//! trailer   24 B   offset of the index 8, CRC32C of id and offset 4, zeros 4, "DARTEREN"
//! ```
//!
//! All numbers are little-endian; inside blocks they are written as RDB writes lengths. Blocks can be read in any
//! order and in parallel, except those marked as ordered: these hold lists in parts and are read front to back by one
//! reader. The id is part of every checksum, so that a block of another file is not accepted. Nothing in a file
//! depends on the number of shards or threads that wrote it.

mod block;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use block::{BlockKind, BlockPlace, block_len, is_ordered_block};
pub use reader::{SnapshotBlock, SnapshotFile, SnapshotSegment, id_of, walk};
pub use writer::{SnapshotWriter, WrittenTotals};

/// The end of a file's name.
pub const SUFFIX: &str = ".darter";
/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;
/// Bytes of a block before compression, unless it holds a single entry that is longer.
pub const BLOCK_BYTES: usize = 1 << 20;

/// The first bytes of a file.
pub const MAGIC: &[u8; 8] = b"DARTERDB";
const MAGIC_END: &[u8; 8] = b"DARTEREN";
const HEADER_LEN: usize = 32;
const TRAILER_LEN: usize = 24;

// In facts and entries, as in RDB files.
const AUX: u8 = 0xfa;
const SIZES: u8 = 0xfb;
const FUNCTION: u8 = 0xf5;

fn trailer_crc(id: u64, index_at: u64) -> u32 {
    let mut both = id.to_le_bytes().to_vec();
    both.extend_from_slice(&index_at.to_le_bytes());
    darter_base::crc::crc32c(&both)
}

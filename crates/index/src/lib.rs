//! The index of a shard: from a key's hash to the handle of its record, in cache lines.
//!
//! Extendible hashing after Dash. A segment is one 4 KiB page of 64 lines; growing splits one segment, never the
//! table. `store` calls it with closures that read its records. The index never reads a record itself, keeps no
//! key, and never returns a handle twice in one full scan unless the key was removed and added meanwhile.
//!
//! The 64 bits of a hash: 63..32 order the directory, 31..18 choose the line, 7..0 are the tag in the line.
//! Bits 17..8 hardly matter here and are free for choosing the shard.

mod bucket;
mod due;
mod grow;
mod hash;
mod index;
mod mark;
mod past;
mod scan;
mod segment;
mod sweep;
#[cfg(test)]
mod tests;
mod victim;

pub use index::{Index, IndexSlot, Probe};
pub use scan::ScanPosition;

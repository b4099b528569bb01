//! Ordered collections: counted B+trees whose leaves are ordered packs of at most 1 KiB.
//!
//! Called by the store's value types and the commands. Each type is a small root of at most 64 bytes plus blocks in
//! the shard's arena; any single change touches a bounded number of blocks, whatever the length of the collection.
//! Nothing here knows keys, clocks or replies.

mod block;
pub mod intset;
pub mod list;
mod owned;
pub mod pel;
mod rows;
mod spine;
pub mod stream;
pub mod window;
mod word;
pub mod zset;

pub use intset::IntSet;
pub use list::List;
pub use pel::{Pel, Pending};
pub use stream::{StreamId, StreamLog};
pub use zset::Zset;

/// The arena's reservation is used up; the collection is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeFull;

impl std::fmt::Display for TreeFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the shard's memory reservation is used up")
    }
}

impl std::error::Error for TreeFull {}

/// The direction of a walk over an ordered collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the lowest to the highest.
    Up,
    /// From the highest to the lowest.
    Down,
}

/// Largest leaf block that a split leaves behind, in bytes.
const LEAF_BYTES_MAX: usize = 1024;

/// The block size for a leaf of `wanted` bytes that will change. There are few sizes, so that blocks freed by growing
/// leaves are reused by others.
fn leaf_bytes(wanted: usize) -> usize {
    if wanted > LEAF_BYTES_MAX / 2 {
        wanted.next_multiple_of(LEAF_BYTES_MAX / 8)
    } else if wanted > LEAF_BYTES_MAX / 4 {
        wanted.next_multiple_of(LEAF_BYTES_MAX / 16)
    } else {
        wanted
    }
}

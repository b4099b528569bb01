//! Probabilistic types: Bloom and cuckoo filters, count-min sketches, top-k lists and t-digests.
//!
//! Hashes, positions, growth and file forms are those of RedisBloom, so equal commands give equal answers and equal
//! bytes. Bits and cells live in blocks of 16 KiB of the shard's arena. No type here knows keys, clocks or clients.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod bloom;
pub mod cms;
pub mod cuckoo;
pub mod digest;
pub mod murmur;
mod packed;
pub mod topk;

pub use bloom::Bloom;
pub use cms::Cms;
pub use cuckoo::Cuckoo;
pub use digest::Digest;
pub use topk::TopK;

/// The arena has no room, or the wanted size exceeds its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SketchFull;

/// A file or dump does not describe a valid value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CorruptSketch;

/// The reason why a value could not be built from a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SketchLoadFault {
    /// The bytes do not describe a valid value.
    Corrupt,
    /// There is no room for the value.
    Full,
}

impl From<CorruptSketch> for SketchLoadFault {
    fn from(_: CorruptSketch) -> SketchLoadFault {
        SketchLoadFault::Corrupt
    }
}

impl From<SketchFull> for SketchLoadFault {
    fn from(_: SketchFull) -> SketchLoadFault {
        SketchLoadFault::Full
    }
}

impl From<darter_base::fields::Malformed> for SketchLoadFault {
    fn from(_: darter_base::fields::Malformed) -> SketchLoadFault {
        SketchLoadFault::Corrupt
    }
}

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
pub struct Full;

/// A file or dump does not describe a valid value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

/// The reason why a value could not be built from a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadFault {
    /// The bytes do not describe a valid value.
    Corrupt,
    /// There is no room for the value.
    Full,
}

impl From<Corrupt> for LoadFault {
    fn from(_: Corrupt) -> LoadFault {
        LoadFault::Corrupt
    }
}

impl From<Full> for LoadFault {
    fn from(_: Full) -> LoadFault {
        LoadFault::Full
    }
}

impl From<darter_base::fields::Malformed> for LoadFault {
    fn from(_: darter_base::fields::Malformed) -> LoadFault {
        LoadFault::Corrupt
    }
}

//! Time series: samples in compressed blocks of the shard's arena, queries by buckets, and compaction rules.
//!
//! Answers and file forms are those of RedisTimeSeries; the blocks in memory are our own. No type here knows keys of
//! other series, clocks or clients.
#![forbid(unsafe_code)]

pub mod aggregate;
mod bits;
mod codec;
mod file;
mod gorilla;
pub mod query;
pub mod sample;
pub mod series;

pub use aggregate::Aggregator;
pub use file::{CrossReferences, VERSION};
pub use sample::{DuplicatePolicy, Sample};
pub use series::{Added, CompactionRule, Fed, Series, SeriesChange, SeriesSettings};

/// The arena has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeriesFull;

/// The reason why a series could not be built from a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeriesLoadFault {
    /// The bytes do not describe a series.
    Corrupt,
    /// There is no room for it.
    Full,
}

impl From<SeriesFull> for SeriesLoadFault {
    fn from(_: SeriesFull) -> SeriesLoadFault {
        SeriesLoadFault::Full
    }
}

impl From<darter_base::fields::Malformed> for SeriesLoadFault {
    fn from(_: darter_base::fields::Malformed) -> SeriesLoadFault {
        SeriesLoadFault::Corrupt
    }
}

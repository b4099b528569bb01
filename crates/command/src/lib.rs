//! The commands that work on data: a folder per family, a file per command or close group.
//!
//! Called by the server's executor with the shards held that a command's [`Spec`] names. Nothing in
//! here knows sockets, threads or replicas; time, hashes and limits are arguments.
#![forbid(unsafe_code)]

pub mod array;
pub mod bitmap;
pub mod bloom;
pub mod call_keys;
pub mod category;
pub mod cms;
pub mod ctx;
pub mod cuckoo;
pub mod deadline;
pub mod digest;
#[cfg(test)]
mod dragonfly_tests;
pub mod fault;
pub mod geo;
pub mod hash;
pub mod hll;
pub mod incremental;
pub mod inspect;
pub mod item;
pub mod json;
pub mod keys;
pub mod keyspec;
pub mod list;
mod member_scan;
mod probabilistic;
mod random;
pub mod reader;
pub mod series;
pub mod set;
pub mod slices;
pub mod slot_usage;
pub mod spec;
pub mod stream;
pub mod string;
pub mod syntax;
mod taking;
pub mod tdigest;
#[cfg(test)]
pub(crate) mod testing;
pub mod topk;
pub mod zset;

pub use ctx::{BlockingWait, Ctx, Env, MayRead};
pub use fault::Fault;
pub use reader::ArgReader;
pub use spec::{Command, Flags, Group, Keys, Marks, Rarity, Reach, Spec};

/// A data command's body. It runs with its shards held, at one point in time.
pub type Run = fn(&mut Ctx<'_>, darter_wire::Args<'_>, &mut darter_wire::Reply<'_>) -> Result<(), Fault>;

/// A data command: its row and its body.
pub type DataCommand = Command<Run>;

/// Every family, in the order `COMMAND` lists them.
pub const FAMILIES: &[&[DataCommand]] = &[
    string::FAMILY,
    list::FAMILY,
    keys::FAMILY,
    hash::FAMILY,
    set::FAMILY,
    bitmap::FAMILY,
    hll::FAMILY,
    zset::FAMILY,
    geo::FAMILY,
    stream::FAMILY,
    inspect::FAMILY,
    json::FAMILY,
    bloom::FAMILY,
    cuckoo::FAMILY,
    cms::FAMILY,
    topk::FAMILY,
    tdigest::FAMILY,
    series::FAMILY,
    array::FAMILY,
];

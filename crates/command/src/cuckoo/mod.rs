//! Cuckoo filters: tests for items that were probably added, approximate counts, and removal.

mod add;
mod ask;
mod dump;
mod reserve;
#[cfg(test)]
mod tests;

use darter_sketch::cuckoo::CuckooSettings;

use crate::spec::{Group, Spec};
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    reserve::RESERVE,
    add::ADD,
    add::ADDNX,
    add::INSERT,
    add::INSERTNX,
    ask::EXISTS,
    ask::MEXISTS,
    ask::COUNT,
    ask::DEL,
    ask::INFO,
    ask::DEBUG,
    ask::COMPACT,
    dump::SCANDUMP,
    dump::LOADCHUNK,
];

/// Items of a new filter without options.
const CAPACITY: i64 = 1024;
const CAPACITY_MAX: i64 = 1 << 30;
/// A new filter without options.
const SETTINGS: CuckooSettings = CuckooSettings { bucket_size: 2, iterations_max: 20, expansion: 1 };
/// A filter with this many tables takes no further item.
const TABLES_MAX: usize = 32;

const NOT_FOUND: Fault = Fault::text("ERR not found");
const EXISTS: Fault = Fault::text("ERR item exists");
const NO_MEMORY: Fault = Fault::text("ERR Insufficient memory to create filter");

const fn doc(spec: Spec, syntax: &'static str, summary: &'static str) -> Spec {
    spec.doc(Group::Cuckoo, "1.0.0", syntax, summary)
}

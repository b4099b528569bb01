//! Bloom filters: tests for items that were probably added.

mod add;
mod dump;
mod info;
mod reserve;
#[cfg(test)]
mod tests;

use darter_sketch::bloom;

use crate::spec::{Group, Spec};
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    reserve::RESERVE,
    add::ADD,
    add::MADD,
    add::INSERT,
    add::EXISTS,
    add::MEXISTS,
    info::INFO,
    info::CARD,
    info::DEBUG,
    dump::SCANDUMP,
    dump::LOADCHUNK,
];

/// Items of a new filter without options.
const CAPACITY: i64 = 100;
const CAPACITY_MAX: i64 = 1 << 30;
const ERROR: f64 = 0.01;
const EXPANSION: i64 = 2;
const EXPANSION_MAX: i64 = 32_768;

const NOT_FOUND: Fault = Fault::text("ERR not found");
const EXISTS: Fault = Fault::text("ERR item exists");

const fn doc(spec: Spec, since: &'static str, syntax: &'static str, summary: &'static str) -> Spec {
    spec.doc(Group::Bloom, since, syntax, summary)
}

/// Why a filter was not made.
fn not_made(fault: bloom::BloomFault) -> Fault {
    match fault {
        bloom::BloomFault::NoRoom => Fault::text("ERR Insufficient memory to create filter"),
        bloom::BloomFault::FilterFull | bloom::BloomFault::Invalid => {
            Fault::text("ERR could not create filter")
        }
    }
}

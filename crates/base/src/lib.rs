//! The ground every other crate stands on: hashing, numbers as text, patterns, units, checksums, varints, random numbers.
//!
//! Called by every crate. It never touches the clock, the network, the disk or a thread, and it keeps no state of its own.
#![forbid(unsafe_code)]

pub mod ascii;
pub mod crc;
pub mod fields;
pub mod glob;
pub mod hash;
pub mod long;
pub mod longdouble;
pub mod number;
pub mod rng;
pub mod sha1;
pub mod short;
pub mod slot;
pub mod units;
pub mod varint;

mod hex_float;
mod natural;

//! RDB files, as Redis and Valkey save and load them.
//!
//! ```text
//! REDIS0010  or VALKEY080
//! 0xfa name value      facts about the writer          0xf5 library           a library of functions
//! 0xfe number          the database of the following keys    0xfb keys, expiring    its sizes
//! entries (see `entry`)
//! 0xff CRC64           the end; 0 without a checksum
//! ```
//!
//! [`RdbWriter`] writes version 10, which Redis 7.0 reads. Marks that this version cannot express are in facts named
//! [`NEXT`] before the entry. Other readers skip them, and [`RdbReader`] restores them.

mod gather;
pub mod lzf;
pub(crate) mod module;
mod reader;
mod rewrite;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::RdbReader;
pub(crate) use reader::shown;
pub use rewrite::Rewriter;
pub use writer::{RdbOptions, RdbWriter};

/// The version that is written.
pub const VERSION_WRITTEN: u32 = 10;
/// The name of the fact that holds the marks of the next entry that RDB cannot express.
pub const NEXT: &[u8] = b"darter-next";

const AUX: u8 = 0xfa;
const SIZES: u8 = 0xfb;
const SELECT: u8 = 0xfe;
const END: u8 = 0xff;
const FUNCTION: u8 = 0xf5;
const FUNCTION_PRE_RELEASE: u8 = 0xf6;
const MODULE_AUX: u8 = 0xf7;
const SLOT_SIZES: u8 = 0xf4;
/// Facts of modules about a key, by Redis 8.6; slots being imported, by Valkey 9.
const KEY_FACTS_OR_SLOT_IMPORT: u8 = 0xf3;

//! The parts that all values of an RDB file consist of: lengths, strings, and a position in bytes that are not trusted.
//!
//! Called by the values of modules, and by `rdb`, which writes and reads whole values. Never knows keys or types.

mod lzf;
mod source;
pub(crate) mod text;

pub use source::{RdbLength, RdbSource};
pub use text::{write_length, write_text};

/// The bytes are not a value of this format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

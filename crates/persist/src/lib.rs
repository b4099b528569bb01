//! Everything that outlives the process: snapshot files, RDB files, the journal, and their directories.
//!
//! `server` writes and loads through this crate, `darter --check` reads through it. It knows bytes and values, never
//! sockets, threads or clients, and trusts no input.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::cast_possible_truncation))]

pub mod check;
pub mod convert;
mod counted;
pub mod cursor;
pub mod entry;
pub mod error;
pub mod file;
pub mod files;
pub mod item;
pub mod journal;
pub mod layout;
pub mod native;
pub mod rdb;
pub mod read_at;
pub mod storage;
#[cfg(test)]
mod testing;

pub use entry::Chunk;
pub use error::PersistError;
pub use item::RdbItem;
pub use read_at::ReadAt;

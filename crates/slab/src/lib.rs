//! Per-shard arenas for everything in the keyspace, and the allocator of everything outside it.
//!
//! An [`Arena`] hands out blocks of 1 byte to 32 KiB named by 32-bit [`Handle`]s, counts its own bytes exactly
//! and gives empty pages back to the kernel. `store`, `pack` and `index` build on it. It never locks, never
//! looks into a live block and never moves one by itself.

mod arena;
mod class;
pub mod counting;
pub mod global;
mod handle;
mod lexicon;
mod page;
mod region;
mod runs;
pub mod streaming;
#[cfg(test)]
mod tests;
pub mod touched;

pub use arena::{Arena, Past};
pub use handle::Handle;
pub use lexicon::Lexicon;

/// The largest block an arena hands out, in bytes. Longer values live outside the arena.
pub const BLOCK_BYTES_MAX: usize = class::BYTES_MAX;

/// Bytes of the largest block that [`Arena::alloc`] gives; past [`BLOCK_BYTES_MAX`] a block is a run of pages.
pub const LARGE_BYTES_MAX: usize = 2 << 30;

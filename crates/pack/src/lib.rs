//! The building blocks every collection is made of: packs of tagged entries, tables and trees of packs.
//!
//! A collection is a small root owned by the store plus blocks in the shard's `Arena`; every method is
//! given the arena. Nothing here knows keys, clocks, clients or commands.

pub mod decimal;
pub mod entry;
pub mod pack;
pub mod spill;
pub mod table;
pub mod tree;

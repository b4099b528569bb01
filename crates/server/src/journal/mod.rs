//! The append-only journal as the server uses it: what of a command is written, and reading it back.
//!
//! The writer itself is the crate `durability`, which knows no command and no shard. `note` says what of a command is
//! written, `rewrite` switches the journal on and off and takes the snapshots that are its bases, `sync` runs its thread,
//! `turn` ends a thread's turn,
//! `replay` reads it all back at start, `waitaof` holds clients that wait for a sync.

mod following;
pub mod note;
pub mod plainly;
pub mod redis;
pub mod reload;
pub mod replay;
pub mod rewrite;
pub mod sync;
pub mod turn;
pub mod waitaof;

pub use darter_durability::{Fsync, Journal, JournalHost, intake, log, report};

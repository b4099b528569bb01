//! The life of a command in this server: admit, plan, lease, run, commit, release.
//!
//! The stages are those of the crate `darter_engine`. `admit` and `sinks` implement what they ask; `nested` runs a command
//! of an EXEC or a script, whose shards are held already; `apply` runs what a journal or a master sends.

pub mod admit;
pub mod apply;
pub mod cluster;
pub mod lease_timer;
pub mod lock_scope;
pub mod nested;
pub mod origin;
pub mod sinks;

pub use darter_engine::{commit, lease, plan};

//! Everything across several shards: routing, lock sets, watches and waiting clients.
//!
//! Called by `command` (through [`ShardSet`]) and by the server's executor. A pure state machine: it never takes a
//! shard itself and knows no socket. Nothing waits here but who has divided its work ([`crew`]).
#![forbid(unsafe_code)]

pub mod crew;
pub mod leaving;
pub mod own_deadlines;
pub mod part;
pub mod readers;
pub mod route;
pub mod set;
mod sync;
pub mod waiters;
pub mod watch;

pub use crew::Crew;
pub use leaving::LeavingKeys;
pub use own_deadlines::OwnDeadlines;
pub use part::ShardPart;
pub use readers::{Reader, Readers};
pub use route::{LockSet, Router};
pub use set::ShardSet;

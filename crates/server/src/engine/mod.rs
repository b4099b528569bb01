//! The life of a command: admit, plan, lease, run, commit, release.
//!
//! Commands of clients pass these stages: RESP one by one and in batches, EXEC, scripts, memcached, HTTP, clients that
//! waited, slices of long answers, MIGRATE. `admit` holds the two ordered lists of checks, for clients and for scripts.
//! `lease` is the only place that takes and releases shards, `commit` the only place that publishes changes. `nested` runs
//! a command of an EXEC or a script, whose shards are held already. Journal replay, DEBUG POPULATE and a replica's batches
//! lease their shards here, but call the bodies themselves.

pub mod admit;
pub mod commit;
pub mod hold;
pub mod lease;
pub mod nested;
pub mod origin;
pub mod wanted;

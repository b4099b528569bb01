//! The server: connections, dispatch, configuration and everything a user sees that is not data.
//!
//! Called by the `darter` binary. It owns threads, clocks and sockets (through `reactor`); the crates
//! below it get them as arguments.
#![forbid(unsafe_code)]

pub mod acl;
pub mod backup;
pub mod busy_rejection;
pub mod clients;
pub mod clock;
mod coalescing;
pub mod command_log;
pub mod commands;
pub mod conn;
pub mod cron;
pub mod dispatch;
pub mod duration_counter;
pub mod engine;
mod event_loop;
pub mod exec;
pub mod fieldsets;
pub mod hot_keys;
pub mod http;
pub mod idling;
pub mod job;
pub mod journal;
pub mod libraries;
pub mod limit;
pub mod listening;
pub mod logging;
pub mod long_reads;
pub mod memcached;
pub mod migrate;
pub mod monitor;
mod notify;
pub mod oom_score;
pub mod pause;
pub mod protocol;
pub mod pubsub;
pub mod redact;
pub mod registry;
pub mod replication;
pub mod report;
pub mod rlimits;
pub mod script_run;
pub mod scripts;
pub mod session;
pub mod shared;
pub mod snapshot;
pub mod start;
pub mod static_keys;
pub mod stats;
pub mod subscriptions;
pub mod sync;
pub mod thread_state;
pub mod tls;
pub mod tracking;
pub mod transaction;
pub mod waiting;
pub mod worker;

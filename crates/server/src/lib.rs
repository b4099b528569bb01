//! The server: connections, dispatch, configuration and everything a user sees that is not data.
//!
//! Called by the `darter` binary. It owns threads, clocks and sockets (through `reactor`); the crates
//! below it get them as arguments.
#![forbid(unsafe_code)]

pub mod acl;
pub mod backup;
pub mod call_keys;
pub mod clients;
mod coalescing;
pub mod command_log;
pub mod commands;
pub mod config;
pub mod conn;
pub mod contained;
pub mod core;
pub mod dispatch;
pub mod engine;
pub mod exec;
pub mod fieldsets;
mod floor;
pub mod hot_keys;
pub mod house;
pub mod http;
pub mod idling;
pub mod job;
pub mod journal;
pub mod large;
pub mod libraries;
pub mod limit;
pub mod listening;
pub mod logging;
pub mod many;
pub mod memcached;
pub mod migrate;
pub mod monitor;
pub mod multi;
mod notify;
pub mod oom_score;
pub mod output;
pub mod pause;
pub mod pubsub;
pub mod reading;
pub mod redact;
pub mod registry;
pub mod replication;
pub mod report;
pub mod rlimits;
mod script_host;
pub mod script_run;
pub mod scripts;
pub mod session;
pub mod shared;
mod signals;
pub mod snapshot;
pub mod speech;
pub mod spell;
pub mod start;
pub mod stats;
pub mod straight;
pub mod timing;
pub mod tls;
pub mod tracking;
pub mod turned_away;
pub mod waiting;
pub mod window;
pub mod worker;

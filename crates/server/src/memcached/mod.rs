//! The memcached entry: classic and meta commands on the keys of database 0.
//!
//! `wire` reads the lines; `connection` is the connection's side of it, `run` takes the shards, and the bodies (`read`,
//! `store`, `count`, `meta`) work on one key with its shard held; `batch` is the short way of plain `get` and `set`. Statistics and administration are in `stats` and
//! `admin`, the dumps of all items in `listing`. A collection of RESP is a miss for reads and a wrong value for what edits it; `set` and `delete` replace
//! and delete it like any key.

mod admin;
mod auth;
mod batch;
pub mod binary;
mod connection;
mod count;
mod detail;
mod flush;
mod life;
mod listing;
mod meta;
mod read;
mod run;
mod stats;
mod store;
mod verbs;

pub(crate) use connection::process;
pub use detail::Detail;
pub use flush::Flush;
pub use listing::Listing;
pub use run::run_job;
pub use verbs::Verbs;

use darter_store::Event;
use darter_store::change::Class;

use crate::stats::memcached::{Counter, MemcachedCounts};

/// The database that memcached's commands work on.
const DB: usize = 0;

const SET_EVENT: Event = Event::new(Class::STRING, "set");
const APPEND_EVENT: Event = Event::new(Class::STRING, "append");
const PREPEND_EVENT: Event = Event::new(Class::STRING, "prepend");
const COUNT_EVENT: Event = Event::new(Class::STRING, "incrby");
const EXPIRE_EVENT: Event = Event::new(Class::GENERIC, "expire");
const PERSIST_EVENT: Event = Event::new(Class::GENERIC, "persist");

/// What a server without room answers.
const NO_ROOM: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";

//! The protocols as bytes: RESP requests and replies, memcached text and meta commands.
//!
//! Called by the server, the Lua bridge, the console and the test tools. It does no I/O, holds no connection, and
//! trusts no length it reads: whatever the bytes, it answers, waits for more, or fails with an error.
#![forbid(unsafe_code)]

pub mod args;
pub mod error;
pub mod memcache;
pub mod parser;
pub mod reply;
pub mod request;
pub mod short;
pub mod stage;
pub mod value;

#[cfg(test)]
mod cpu_time;
mod inline;

pub use args::{Args, OwnedArgs, Span};
pub use error::ProtocolError;
pub use memcache::base64;
pub use parser::{Limits, Parser, Step};
pub use reply::{Deferred, Reply};
pub use short::{ARGS_MAX, Like, Short, short_request};
pub use stage::Stage;

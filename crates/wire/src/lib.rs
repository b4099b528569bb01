//! The protocols as bytes: RESP requests and replies, memcached text and meta commands.
//!
//! Called by the server, the Lua bridge, the console and the test tools. It does no I/O, holds no connection, and
//! trusts no length it reads. For any bytes it returns a result, asks for more, or fails with an error.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::cast_possible_truncation))]

pub mod args;
pub mod error;
pub mod memcache;
pub mod parser;
pub mod reply;
pub mod reply_buffer;
pub mod request;
pub mod short;
pub mod value;

#[cfg(test)]
mod cpu_time;
mod inline;

pub use args::{Args, OwnedArgs, Span};
pub use error::ProtocolError;
pub use memcache::base64;
pub use parser::{Parser, ParserLimits, ParserStep};
pub use reply::{Deferred, Reply};
pub use reply_buffer::ReplyBuffer;
pub use short::{ARGS_MAX, Like, Short, short_request};

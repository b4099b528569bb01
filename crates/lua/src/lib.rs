//! The most frequent operations of scripts, as plain C functions: `redis.call`, `cjson`, `cmsgpack`, and the run itself with
//! its lists and its result.
//!
//! Called by `script`, which makes the functions once for a state and runs scripts inside [`with_host`]. A function
//! of mlua's safe kind costs some 190 ns a call, because every value becomes a counted reference and every table's
//! field a protected call; `redis.call` costs 40 to 50. The crate uses `unsafe` for nothing else: it compiles
//! nothing, keeps no value of Lua and knows no command.

mod call;
mod enter;
mod host;
mod json;
mod msgpack;
mod push;
mod read;
mod result;
mod run;
mod scratch;
#[cfg(test)]
mod tests;

pub use call::{Functions, functions};
pub use enter::{ScriptEntry, enter};
pub use host::{Host, NoCall};
pub use json::json;
pub use msgpack::msgpack;
pub use run::{breathe, is_resp3, set_resp3, with_host};

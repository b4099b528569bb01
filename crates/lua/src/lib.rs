//! `redis.call` as a plain C function: words off Lua's stack, the command, its reply onto the stack.
//!
//! Called by `script`, which makes the functions once for a state and runs scripts inside [`with_host`]. A function of
//! mlua's safe kind costs some 190 ns a call, as every value becomes a counted reference; this one 40 to 50. That is all
//! this crate does with `unsafe`: it compiles nothing, keeps no value of Lua and knows no command.

mod call;
mod host;
mod push;
mod run;
#[cfg(test)]
mod tests;

pub use call::{Functions, functions};
pub use host::Host;
pub use run::{is_resp3, set_resp3, with_host};

//! Lua scripts behind a narrow trait: the state and its sandbox, and the conversion of values between Lua and
//! replies.
//!
//! Called by the server, which keeps one [`Engine`] a thread and lends it a [`Host`] for the length of a run. Nothing
//! in here knows shards, sockets or threads, and no script reaches files, processes or another script's variables.
#![forbid(unsafe_code)]

mod bit;
mod dragonfly;
pub mod engine;
pub mod functions;
mod globals;
mod layout;
mod library;
mod random;
mod reply;
pub mod script;
pub mod watch;

pub use darter_lua::{Host, NoCall};
pub use engine::Engine;
pub use functions::Library;
pub use script::Script;
pub use watch::{Killing, RunningScript, ScriptKind, ScriptWatch};

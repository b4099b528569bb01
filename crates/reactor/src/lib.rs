//! The system calls of an I/O thread: one [`Reactor`] per thread, which accepts, receives and sends through epoll or
//! io_uring and passes received bytes to the worker of that thread.
//!
//! Called by `server`, which forbids unsafe code; so the few other system calls a server needs live here too
//! ([`cpu`], [`process`], [`ring`], [`signal`]). It parses nothing, buffers no output and knows no shards. Bytes are
//! lent to the sink for the length of one call, and bytes that a send did not take stay with the caller.

pub mod cpu;
pub mod process;
pub mod ring;
pub mod signal;

mod cgroup;
mod config;
mod epoll;
mod event;
mod listener;
mod reactor;
mod socket;
mod sys;
mod table;
mod token;
mod uring;
mod waker;

pub use config::{Config, DriverChoice};
pub use event::{CloseReason, ReactorEvent};
pub use listener::ListenAddr;
pub use reactor::Reactor;
pub use socket::Socket;
pub use token::{ListenerId, Token};
pub use waker::Waker;

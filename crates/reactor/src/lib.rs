//! The thread's door to the kernel: one [`Reactor`] per I/O thread, which accepts, receives and sends through
//! epoll or io_uring and hands what arrived to the worker of that thread.
//!
//! Called by `server`, which forbids unsafe code; so the few other system calls a server needs live here too
//! ([`cpu`], [`process`], [`ring`], [`signal`]). It parses nothing, buffers no output and knows no shards: bytes are lent to
//! the sink for the length of one call, and what a send did not take stays with the caller.

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
pub use event::{CloseReason, Event};
pub use listener::ListenAddr;
pub use reactor::Reactor;
pub use socket::Socket;
pub use token::{ListenerId, Token};
pub use waker::Waker;

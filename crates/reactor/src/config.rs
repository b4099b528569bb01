//! The settings of a reactor. Read once, by `Reactor::new`.

use std::time::Duration;

/// The kernel interface that carries the bytes. Both behave the same; every test runs on both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring if the kernel allows it and passes a live probe, else epoll with a note of the reason.
    #[default]
    Auto,
    /// epoll, always there.
    Epoll,
    /// io_uring or an error.
    Uring,
}

/// Limits and socket options of one reactor.
#[derive(Clone, Debug)]
pub struct Config {
    /// Most kernel events handled in one turn, 1..=4,096.
    pub events_max: usize,
    /// Microseconds to look for work before sleeping, only while recent sleeps were shorter than that; 0 never spins.
    pub spin_us: u32,
    /// Length of the kernel's queue of connections not yet accepted.
    pub backlog: u32,
    /// Lets several reactors listen on one TCP port, the kernel spreading connections (SO_REUSEPORT).
    pub reuse_port: bool,
    /// Accepted TCP sockets send small packets at once (TCP_NODELAY).
    pub nodelay: bool,
    /// Idle time before TCP keepalive probes on accepted sockets; `None` sends none.
    pub keepalive: Option<Duration>,
    /// Most bytes one epoll receive takes, hence the longest `Data` slice there.
    pub recv_bytes_max: usize,
    /// Receive buffers of the io_uring driver, a power of two, 1..=32,768.
    pub ring_buffers_len: u16,
    /// Bytes in each of them, hence the longest `Data` slice there.
    pub ring_buffer_bytes: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            events_max: 512,
            spin_us: 0,
            backlog: 4096,
            reuse_port: false,
            nodelay: true,
            keepalive: None,
            recv_bytes_max: 64 * 1024,
            ring_buffers_len: 64,
            ring_buffer_bytes: 16 * 1024,
        }
    }
}

//! A connected stream socket, before it is registered with a reactor, and for reading its names and options there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::sys::{self, RawAddress};

/// A connected, non-blocking TCP or Unix stream. Dropping it closes it.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    // `None` is a Unix socket, whose clients have no name of their own.
    peer: Option<SocketAddr>,
}

impl Socket {
    /// Adopts a Unix stream, making it non-blocking.
    pub fn from_unix(stream: UnixStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        Ok(Socket::new(stream.into(), None))
    }

    pub(crate) fn new(fd: OwnedFd, peer: Option<SocketAddr>) -> Socket {
        Socket { fd, peer }
    }

    /// A freshly accepted descriptor with the address `accept` gave for it.
    pub(crate) fn accepted(fd: OwnedFd, address: &RawAddress) -> Socket {
        Socket::new(fd, address.internet())
    }

    /// The other end as Redis shows it: `127.0.0.1:1234`, `[::1]:1234`, or `/path:0` on a Unix socket.
    pub fn peer(&self) -> String {
        match self.peer {
            Some(address) => address.to_string(),
            None => self.local(),
        }
    }

    /// The other end's address; `None` on a Unix socket.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// This end, in the same form as [`Socket::peer`]. Costs a system call.
    pub fn local(&self) -> String {
        match sys::local_address(self.fd.as_fd()) {
            Ok(raw) => match raw.internet() {
                Some(address) => address.to_string(),
                None => format!("{}:0", String::from_utf8_lossy(raw.unix_path())),
            },
            Err(_) => String::from("?:0"),
        }
    }

    /// Returns true if this is a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.peer.is_none()
    }

    /// Probes a silent peer after `idle`, then every third of it, and gives up after three; `None` never probes.
    /// Accepted sockets already follow [`Config`](crate::Config). No effect on Unix sockets.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        match self.peer {
            Some(_) => set_keepalive(self.fd.as_fd(), idle),
            None => Ok(()),
        }
    }

    /// Breaks the connection when sent bytes stay unacknowledged for `ms` milliseconds (TCP_USER_TIMEOUT); 0 leaves
    /// it to the system. No effect on Unix sockets.
    pub fn set_user_timeout(&self, ms: u32) -> io::Result<()> {
        let ms = i32::try_from(ms).unwrap_or(i32::MAX);
        match self.peer {
            Some(_) => sys::set_option(self.fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms),
            None => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets keepalive on a connection, or on a listener whose connections inherit it.
pub(crate) fn set_keepalive(fd: BorrowedFd<'_>, idle: Option<Duration>) -> io::Result<()> {
    let Some(idle) = idle else {
        return sys::set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0);
    };
    let idle_s = i32::try_from(idle.as_secs()).unwrap_or(i32::MAX).clamp(1, KEEPALIVE_S_MAX);
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle_s)?;
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (idle_s / 3).max(1))?;
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)
}

// The kernel's MAX_TCP_KEEPIDLE; more is refused.
const KEEPALIVE_S_MAX: i32 = 32_767;

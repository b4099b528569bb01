//! Thin safe wrappers of the system calls that both drivers share. Nothing here keeps state.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Turns the -1 convention into an error.
#[inline]
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes ownership of a descriptor that a system call just returned.
pub(crate) fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the call that returned `fd` succeeded, so it is open, and the caller passes each result only here.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an integer socket option.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: i32,
) -> io::Result<()> {
    // SAFETY: `value` lives over the call and its size is the one given.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Receives once without blocking; 0 is the end of the stream.
#[inline]
pub(crate) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`, which is borrowed for the call.
    let n = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// Receives up to `bytes_max` bytes, 1 or more, behind those of `buffer`, without blocking; 0 is the end of the stream.
pub(crate) fn receive_behind(fd: RawFd, buffer: &mut Vec<u8>, bytes_max: usize) -> io::Result<usize> {
    buffer.reserve(bytes_max);
    let room = buffer.spare_capacity_mut();
    let bytes_max = bytes_max.min(room.len());
    // SAFETY: the kernel writes at most `bytes_max` bytes into the room, which is borrowed for the call.
    let n = unsafe { libc::recv(fd, room.as_mut_ptr().cast(), bytes_max, libc::MSG_DONTWAIT) };
    let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has written the next `n` bytes, and `n` is no larger than the room.
    unsafe { buffer.set_len(buffer.len() + n) };
    Ok(n)
}

/// Sends as much as the kernel takes without blocking; a full send buffer is `Ok(0)`.
#[inline]
pub(crate) fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`, which is borrowed for the call.
        let n = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), SEND_FLAGS) };
        if let Some(done) = sent(n) {
            return done;
        }
    }
}

/// [`send`] of two pieces, one behind the other, with one call.
pub(crate) fn send_two(fd: RawFd, first: &[u8], second: &[u8]) -> io::Result<usize> {
    let piece =
        |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut pieces = [piece(first), piece(second)];
    // SAFETY: all fields of a message are numbers and pointers, for which zero means that there is nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = 2;
    loop {
        // SAFETY: the kernel reads both pieces, which are borrowed for the call, and writes to nothing.
        let n = unsafe { libc::sendmsg(fd, &raw const message, SEND_FLAGS) };
        if let Some(done) = sent(n) {
            return done;
        }
    }
}

/// Reads the result of a send; `None` asks to repeat it after a signal.
#[inline]
fn sent(n: libc::ssize_t) -> Option<io::Result<usize>> {
    if n >= 0 {
        return Some(Ok(n as usize));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINTR) => None,
        Some(libc::EAGAIN) => Some(Ok(0)),
        _ => Some(Err(error)),
    }
}

/// The same for a send by a ring: its result is negative for an error.
#[inline]
pub(crate) fn sent_by_ring(result: i32) -> io::Result<usize> {
    match result {
        n if n >= 0 => Ok(n as usize),
        n if matches!(-n, libc::EAGAIN | libc::EINTR | libc::ECANCELED) => Ok(0),
        n => Err(io::Error::from_raw_os_error(-n)),
    }
}

/// Returns true if a receive or accept should simply be tried again later.
#[inline]
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}

/// A socket address as the kernel writes it.
pub(crate) struct RawAddress {
    pub(crate) storage: libc::sockaddr_storage,
    pub(crate) len: libc::socklen_t,
}

impl RawAddress {
    /// Room for any address.
    pub(crate) fn empty() -> RawAddress {
        RawAddress {
            // SAFETY: sockaddr_storage is plain integers; all-zero is AF_UNSPEC.
            storage: unsafe { std::mem::zeroed() },
            len: size_of::<libc::sockaddr_storage>() as libc::socklen_t,
        }
    }

    /// The kernel's form of an internet address.
    pub(crate) fn of(address: &SocketAddr) -> RawAddress {
        let mut raw = RawAddress::empty();
        match address {
            SocketAddr::V4(v4) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                raw.len = size_of_val(&sin) as libc::socklen_t;
                // SAFETY: sockaddr_storage is at least as large and as aligned as every sockaddr_*.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in>().write(sin) };
            }
            SocketAddr::V6(v6) => {
                let sin6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                raw.len = size_of_val(&sin6) as libc::socklen_t;
                // SAFETY: as above.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in6>().write(sin6) };
            }
        }
        raw
    }

    /// The internet address in it; `None` for any other family.
    pub(crate) fn internet(&self) -> Option<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family tells which sockaddr the storage holds; it is large and aligned enough for all.
                let sin = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(sin.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let sin6 = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                let port = u16::from_be(sin6.sin6_port);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, sin6.sin6_flowinfo, sin6.sin6_scope_id)))
            }
            _ => None,
        }
    }

    /// The path of a Unix socket address, as bytes; empty for an unnamed one.
    pub(crate) fn unix_path(&self) -> &[u8] {
        let header_bytes = std::mem::offset_of!(libc::sockaddr_un, sun_path);
        let path_bytes = (self.len as usize).saturating_sub(header_bytes).min(UNIX_PATH_BYTES_MAX);
        // SAFETY: sockaddr_un lies within sockaddr_storage, and `path_bytes` stays within its sun_path.
        let path = unsafe {
            std::slice::from_raw_parts((&raw const self.storage).cast::<u8>().add(header_bytes), path_bytes)
        };
        path.split(|&b| b == 0).next().unwrap_or_default()
    }
}

/// The address a socket is bound to.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<RawAddress> {
    let mut raw = RawAddress::empty();
    // SAFETY: `storage` has `len` bytes of room and both are borrowed for the call.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut raw.storage).cast(), &raw mut raw.len) })?;
    Ok(raw)
}

/// The address of a connected socket's other end.
pub(crate) fn peer_address(fd: BorrowedFd<'_>) -> io::Result<RawAddress> {
    let mut raw = RawAddress::empty();
    // SAFETY: `storage` has `len` bytes of room and both are borrowed for the call.
    check(unsafe { libc::getpeername(fd.as_raw_fd(), (&raw mut raw.storage).cast(), &raw mut raw.len) })?;
    Ok(raw)
}

/// Longest path of a Unix socket address, its final zero included.
pub(crate) const UNIX_PATH_BYTES_MAX: usize = 108;

// SIGPIPE would kill the process on a send to a closed peer wherever the signal was not ignored.
pub(crate) const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

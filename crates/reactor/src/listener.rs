//! Listening sockets: making them, accepting from them, and cleaning a Unix socket's path up.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::socket::set_keepalive;
use crate::sys::{self, RawAddress};
use crate::{Config, Socket};

/// The address to listen at, or that of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddr {
    /// A TCP address; port 0 lets the kernel choose one. An IPv6 address takes IPv6 clients only.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix {
        /// Its file, shorter than 108 bytes. A socket left there by a dead server is replaced.
        path: PathBuf,
        /// Permission bits of the file, e.g. `0o700`; `None` leaves them to the umask.
        mode: Option<u32>,
    },
}

/// An open listening socket; dropping it closes it and removes its path if the path is still its own.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    address: ListenAddr,
    // Device and inode of the Unix socket's file, so that a successor's file is never removed.
    file: Option<(u64, u64)>,
}

/// The result of one accept.
pub(crate) enum Accept {
    Socket(Socket),
    /// This one failed, the next may not.
    Skip,
    /// Nothing is waiting.
    Empty,
    /// Out of descriptors or memory, or an unexpected fault: try again after `ACCEPT_PAUSE`.
    Pause,
}

impl Listener {
    /// Binds and listens. Errors as the kernel gives them; `AddrInUse` also for a Unix path with a live server.
    pub(crate) fn open(address: &ListenAddr, config: &Config) -> io::Result<Listener> {
        let listener = match address {
            ListenAddr::Tcp(address) => open_tcp(address, config)?,
            ListenAddr::Unix { path, mode } => open_unix(path, *mode)?,
        };
        let backlog = i32::try_from(config.backlog).unwrap_or(i32::MAX);
        // SAFETY: listen takes no pointers.
        sys::check(unsafe { libc::listen(listener.fd.as_raw_fd(), backlog) })?;
        Ok(listener)
    }

    /// The real address, with the port that the kernel chose.
    pub(crate) fn address(&self) -> &ListenAddr {
        &self.address
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn accept(&self) -> Accept {
        let mut raw = RawAddress::empty();
        // SAFETY: `storage` has `len` bytes of room and both are borrowed for the call.
        let result = unsafe {
            libc::accept4(
                self.fd.as_raw_fd(),
                (&raw mut raw.storage).cast(),
                &raw mut raw.len,
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            )
        };
        match sys::owned(result) {
            Ok(fd) => Accept::Socket(Socket::accepted(fd, &raw)),
            Err(error) => accept_failure(&error),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (ListenAddr::Unix { path, .. }, Some(file)) = (&self.address, self.file)
            && file_identity(path).is_ok_and(|now| now == file)
        {
            // The file is a leftover without meaning once we are gone; the next server replaces it anyway.
            let _ = fs::remove_file(path);
        }
    }
}

/// Sorts the errors of accepting by the reaction.
pub(crate) fn accept_failure(error: &io::Error) -> Accept {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Accept::Empty,
        // The client gave up, or its network did; accept(2) asks to treat these like EAGAIN on the next one.
        Some(
            libc::EINTR
            | libc::ECONNABORTED
            | libc::EPROTO
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EPERM,
        ) => Accept::Skip,
        _ => Accept::Pause,
    }
}

fn open_tcp(address: &SocketAddr, config: &Config) -> io::Result<Listener> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let fd = stream_socket(family)?;
    sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if config.reuse_port {
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if address.is_ipv6() {
        sys::set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    // Accepted sockets inherit both, which saves a system call or five for each of them.
    if config.nodelay {
        sys::set_option(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    }
    if config.keepalive.is_some() {
        set_keepalive(fd.as_fd(), config.keepalive)?;
    }
    bind(fd.as_fd(), &RawAddress::of(address))?;
    let bound = sys::local_address(fd.as_fd())?.internet().unwrap_or(*address);
    Ok(Listener { fd, address: ListenAddr::Tcp(bound), file: None })
}

fn open_unix(path: &Path, mode: Option<u32>) -> io::Result<Listener> {
    let raw = unix_address(path)?;
    clear_stale_file(path)?;
    let fd = stream_socket(libc::AF_UNIX)?;
    match mode {
        None => bind(fd.as_fd(), &raw)?,
        Some(mode) => {
            // The umask makes the file appear with no more than its final rights: there is no unprotected moment
            // between bind and chmod. It belongs to the whole process, so listeners are opened before other work
            // begins. SAFETY: umask takes no pointers and cannot fail.
            let before = unsafe { libc::umask((!mode & 0o777) as libc::mode_t) };
            let bound = bind(fd.as_fd(), &raw);
            // SAFETY: as above.
            unsafe { libc::umask(before) };
            bound?;
        }
    }
    let file = Some(file_identity(path)?);
    let address = ListenAddr::Unix { path: path.to_path_buf(), mode };
    Ok(Listener { fd, address, file })
}

fn stream_socket(family: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers.
    sys::owned(unsafe { libc::socket(family, kind, 0) })
}

fn bind(fd: BorrowedFd<'_>, raw: &RawAddress) -> io::Result<()> {
    // SAFETY: `storage` holds an address of `len` bytes and is borrowed for the call.
    sys::check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw.storage).cast(), raw.len) }).map(drop)
}

/// The kernel's form of a Unix path; `InvalidInput` if it is empty, too long or has a zero byte.
fn unix_address(path: &Path) -> io::Result<RawAddress> {
    let bytes = OsStr::as_bytes(path.as_os_str());
    if bytes.is_empty() || bytes.len() >= sys::UNIX_PATH_BYTES_MAX || bytes.contains(&0) {
        let text = format!("unix socket path must have 1 to {} bytes", sys::UNIX_PATH_BYTES_MAX - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut sun = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    for (to, &from) in sun.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    let mut raw = RawAddress::empty();
    raw.len = size_of_val(&sun) as libc::socklen_t;
    // SAFETY: sockaddr_storage is at least as large and as aligned as sockaddr_un.
    unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_un>().write(sun) };
    Ok(raw)
}

/// Removes a socket file without a listener; anything else in the way is an error.
fn clear_stale_file(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the unix socket's path is taken by a file",
        ));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens at the unix socket"));
    }
    fs::remove_file(path)
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Pause of accepting if the process or the machine has no descriptor left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

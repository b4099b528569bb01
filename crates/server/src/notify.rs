//! Messages to the service manager that started the process: a datagram each to the socket that `$NOTIFY_SOCKET` names
//! (`Type=notify` of systemd). Without that variable nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Clients are served from now on.
pub fn ready() {
    tell("READY=1\nSTATUS=Ready to accept connections");
}

/// The end has begun.
pub fn stopping() {
    tell("STOPPING=1\nSTATUS=Shutting down");
}

/// What the process does now, for people who ask the manager.
pub fn status(text: &str) {
    tell(&format!("STATUS={text}"));
}

fn tell(message: &str) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&place, message) {
        tracing::warn!("the service manager at {} cannot be notified: {error}", place.display());
    }
}

/// Sends one datagram to `place`: a path, or a name in the abstract namespace behind an `@`.
fn send(place: &OsStr, message: &str) -> io::Result<()> {
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold the server up.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_address_are_reached() {
        let name = format!("darter-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&path);
        let abstracted = SocketAddr::from_abstract_name(&name).expect("a name");
        for (place, address) in [
            (path.display().to_string(), SocketAddr::from_pathname(&path).expect("a path")),
            (format!("@{name}"), abstracted),
        ] {
            let manager = UnixDatagram::bind_addr(&address).expect("a socket");
            send(OsStr::new(&place), "READY=1").expect("sent");
            let mut bytes = [0; 64];
            let len = manager.recv(&mut bytes).expect("a message");
            assert_eq!(&bytes[..len], b"READY=1", "{place}");
        }
        let _ = std::fs::remove_file(&path);
        assert!(send(OsStr::new("/nowhere/at/all"), "READY=1").is_err());
    }
}

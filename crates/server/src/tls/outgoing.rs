//! The connection to a master, encrypted: a socket with timeouts, on a thread of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::identity::{self, IdentityFault, PeerNames};
use darter_config::Tls;

/// A connection whose bytes are encrypted.
pub struct Outgoing(StreamOwned<ClientConnection, TcpStream>);

impl Outgoing {
    /// Reads the files. Errors: no authority is named, or a file is not what it should be.
    pub fn check(tls: &Tls) -> Result<(), IdentityFault> {
        identity::outgoing(tls, PeerNames::Checked).map(drop)
    }

    /// Shakes hands over a connected socket, for `patience` at most; the socket has a read timeout.
    ///
    /// Errors: of the settings, of the certificate, or of the socket.
    pub fn over(
        socket: TcpStream,
        host: &str,
        tls: &Tls,
        names: PeerNames,
        patience: Duration,
    ) -> io::Result<Outgoing> {
        let config = identity::outgoing(tls, names).map_err(|fault| io::Error::other(fault.to_string()))?;
        let name = ServerName::try_from(host.to_owned()).or_else(|_| ServerName::try_from("master"));
        let name = name.map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(session, socket);
        let began = Instant::now();
        while stream.conn.is_handshaking() {
            match stream.conn.complete_io(&mut stream.sock) {
                Ok(_) => {}
                Err(error) if is_for_now(&error) && began.elapsed() < patience => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Outgoing(stream))
    }
}

fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

impl Read for Outgoing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

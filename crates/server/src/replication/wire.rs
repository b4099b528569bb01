//! The connection to a master: bytes as they come, line by line or as a stream.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::tls::{Outgoing, PeerNames};
use darter_config::Tls;

/// A read that brings nothing returns after this, so that other things are looked at.
const PATIENCE: Duration = Duration::from_millis(50);
/// Time to connect, for one address.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// The longest line of a handshake.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What carries the bytes.
enum WireStream {
    Plain(TcpStream),
    Encrypted(Box<Outgoing>),
}

/// The connection to a master.
pub struct Wire {
    stream: WireStream,
    // to end the connection by
    handle: TcpStream,
    // what was received is at..end of it, at <= end <= input.len()
    input: Vec<u8>,
    at: usize,
    end: usize,
}

impl Wire {
    /// Connects, encrypted if `tls` says so.
    ///
    /// Errors: the name is unknown, nobody listens there, it takes too long, or one side does not trust the other.
    pub fn connect(host: &str, port: u16, tls: &Tls) -> io::Result<Wire> {
        Wire::connect_within(host, port, tls, CONNECT)
    }

    /// Connects to another node of a cluster: as [`Wire::connect`], but `tls-cluster` encrypts it too.
    pub fn to_node(host: &str, port: u16, tls: &Tls) -> io::Result<Wire> {
        Wire::open(host, port, tls.encrypts_nodes().then_some(tls), CONNECT)
    }

    /// As [`Wire::connect`], with the time for each address.
    pub fn connect_within(host: &str, port: u16, tls: &Tls, patience: Duration) -> io::Result<Wire> {
        Wire::open(host, port, tls.replication.then_some(tls), patience)
    }

    fn open(host: &str, port: u16, tls: Option<&Tls>, patience: Duration) -> io::Result<Wire> {
        let mut last = io::Error::new(ErrorKind::NotFound, "no such host");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(patience))?;
                    let handle = stream.try_clone()?;
                    let stream = match tls {
                        Some(tls) => WireStream::Encrypted(Box::new(Outgoing::over(
                            stream,
                            host,
                            tls,
                            PeerNames::Ignored,
                            patience,
                        )?)),
                        None => WireStream::Plain(stream),
                    };
                    return Ok(Wire { stream, handle, input: Vec::new(), at: 0, end: 0 });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A second handle, to end the connection by.
    pub fn handle(&self) -> io::Result<TcpStream> {
        self.handle.try_clone()
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            WireStream::Plain(stream) => stream.write_all(bytes),
            WireStream::Encrypted(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Whether the other side has closed the connection, as far as can be known without waiting. For a connection on which
    /// nothing comes any more.
    pub fn is_closed(&self) -> bool {
        if self.handle.set_nonblocking(true).is_err() {
            return true;
        }
        let peeked = self.handle.peek(&mut [0]);
        let is_waiting =
            |error: &io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
        let is_closed = match &peeked {
            Ok(len) => *len == 0,
            Err(error) => !is_waiting(error),
        };
        self.handle.set_nonblocking(false).is_err() || is_closed
    }

    /// What was received and not used.
    pub fn received(&self) -> &[u8] {
        self.input.get(self.at..self.end).unwrap_or_default()
    }

    /// Passes over bytes that were used.
    pub fn use_up(&mut self, len: usize) {
        self.at = (self.at + len).min(self.end);
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
        }
    }

    /// Receives more, or nothing for a moment; returns the number of bytes.
    ///
    /// Errors: the connection is closed or broken.
    pub fn fill(&mut self) -> io::Result<usize> {
        self.fill_with(READ_BYTES)
    }

    /// [`Wire::fill`] with up to so many bytes.
    pub fn fill_with(&mut self, bytes_max: usize) -> io::Result<usize> {
        if self.at > READ_BYTES {
            self.input.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        if self.input.len() < self.end + bytes_max {
            self.input.resize(self.end + bytes_max, 0);
        }
        let room = self.input.get_mut(self.end..self.end + bytes_max).unwrap_or_default();
        let read = match &mut self.stream {
            WireStream::Plain(stream) => stream.read(room),
            WireStream::Encrypted(stream) => stream.read(room),
        };
        let len = received(read)?;
        self.end += len;
        Ok(len)
    }

    /// Receives more behind what is in `body`, until that has `len` bytes; nothing that was received before is there still.
    /// Returns the number of bytes.
    ///
    /// Errors: as [`Wire::fill`].
    pub fn fill_body(&mut self, body: &mut Vec<u8>, len: usize) -> io::Result<usize> {
        let before = body.len();
        let lacks = (len - before) as u64;
        let read = match &mut self.stream {
            WireStream::Plain(stream) => Read::take(stream, lacks).read_to_end(body),
            WireStream::Encrypted(stream) => Read::take(stream, lacks).read_to_end(body),
        };
        match read {
            Ok(_) if body.len() < len => received(Ok(0)),
            // What came before an error stays.
            read => received(read).map(|_| body.len() - before),
        }
    }

    /// Takes a line without its end, if one is there.
    ///
    /// Errors: the line is too long to be one.
    pub fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let received = self.received();
        let Some(end) = received.iter().position(|byte| *byte == b'\n') else {
            let is_endless = received.len() > LINE_BYTES_MAX;
            let fault = || io::Error::new(ErrorKind::InvalidData, "the master sent a line without end");
            return if is_endless { Err(fault()) } else { Ok(None) };
        };
        let line = received.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.use_up(end + 1);
        Ok(Some(line))
    }
}

/// Tells the end of a connection from a moment without news.
fn received(read: io::Result<usize>) -> io::Result<usize> {
    let is_moment =
        |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted);
    match read {
        Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the master closed the connection")),
        Err(error) if is_moment(error.kind()) => Ok(0),
        read => read,
    }
}

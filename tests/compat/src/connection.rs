//! A client connection: writes commands, reads replies, never waits without end.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::reply::Reply;

/// A reply that takes longer counts as missing. A test of ours awaits every reply, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 120 } else { 60 });

/// One connection to a server.
pub struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
    skim: Skim,
}

/// How far the next reply has been looked through. A long one comes in many pieces, and only a whole one is read.
#[derive(Clone, Copy)]
struct Skim {
    at: usize,
    // Values that the reply still needs from `at` on.
    owed: usize,
}

impl Skim {
    const START: Self = Self { at: 0, owed: 1 };

    /// Goes on through `inbox`; whether the reply is whole, or is none, which reading it will say.
    fn is_whole(&mut self, inbox: &[u8]) -> bool {
        while self.owed > 0 {
            let rest = &inbox[self.at..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return rest.len() > LINE_MAX };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or_default();
            let len =
                line.get(1..).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            let (bytes, values) = match (line.first(), len) {
                (Some(b'$' | b'!' | b'='), Some(len)) => (len + 2, 0),
                (Some(b'*' | b'~' | b'>'), Some(len)) => (0, len),
                (Some(b'%' | b'|'), Some(len)) => (0, 2 * len),
                _ => (0, 0),
            };
            if rest.len() < end + 1 + bytes {
                return false;
            }
            self.at += end + 1 + bytes;
            self.owed += values;
            self.owed -= 1;
        }
        true
    }
}

/// A line that is longer is no reply.
const LINE_MAX: usize = 64 * 1024;

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, inbox: Vec::new(), skim: Skim::START })
    }

    /// Sends commands in one write.
    pub fn send<'a>(&mut self, commands: impl Iterator<Item = &'a [Vec<u8>]>) -> io::Result<()> {
        let mut out = Vec::new();
        for args in commands {
            out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
            for arg in args {
                out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                out.extend_from_slice(arg);
                out.extend_from_slice(b"\r\n");
            }
        }
        self.stream.write_all(&out)
    }

    /// Waits for the next reply.  Errors: `TimedOut` after `PATIENCE`, the connection ended, bytes that are no reply.
    pub fn next(&mut self) -> io::Result<Reply> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(reply) = self.parsed()? {
                return Ok(reply);
            }
            if !self.receive(deadline.saturating_duration_since(Instant::now()))? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Takes the replies that are there, without waiting: a read timeout would be rounded up to the kernel's tick.
    pub fn arrived(&mut self) -> io::Result<Vec<Reply>> {
        let mut replies = Vec::new();
        self.stream.set_nonblocking(true)?;
        let received = loop {
            match self.read_once() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.stream.set_nonblocking(false)?;
        while let Some(reply) = self.parsed()? {
            replies.push(reply);
        }
        if replies.is_empty() {
            received?;
        }
        Ok(replies)
    }

    /// Sends one command and waits for its reply.
    pub fn ask(&mut self, args: &[&str]) -> io::Result<Reply> {
        let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        self.send(std::iter::once(&args[..]))?;
        self.next()
    }

    /// Sends raw bytes, closes the sending side, and returns all that comes back until the server closes too.
    /// The flag says whether it did within two seconds.
    pub fn exchange(mut self, bytes: &[u8]) -> io::Result<(Vec<u8>, bool)> {
        // A server may close on the first bad byte, while we still write.
        let _ = self.stream.write_all(bytes);
        let _ = self.stream.shutdown(Shutdown::Write);
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            match self.receive(deadline.saturating_duration_since(Instant::now())) {
                Ok(true) => {}
                Ok(false) => return Ok((self.inbox, false)),
                Err(_) => return Ok((self.inbox, true)),
            }
        }
    }

    fn parsed(&mut self) -> io::Result<Option<Reply>> {
        if !self.skim.is_whole(&self.inbox) {
            return Ok(None);
        }
        let mut rest = &self.inbox[..];
        match Reply::read(&mut rest) {
            Ok(reply) => {
                let used = self.inbox.len() - rest.len();
                self.inbox.drain(..used);
                self.skim = Skim::START;
                Ok(Some(reply))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads once; false when nothing came within `wait`.
    fn receive(&mut self, wait: Duration) -> io::Result<bool> {
        // A timeout of zero would mean none at all.
        self.stream.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        self.read_once()
    }

    fn read_once(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(len) => {
                self.inbox.extend_from_slice(&chunk[..len]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_with_its_last_byte() {
        for reply in
            ["+OK\r\n", "$5\r\na\r\nbc\r\n", "$-1\r\n", "*0\r\n", "*2\r\n*1\r\n:1\r\n%1\r\n+a\r\n$0\r\n\r\n"]
        {
            let bytes = reply.as_bytes();
            let mut skim = Skim::START;
            for len in 0..bytes.len() {
                assert!(!skim.is_whole(&bytes[..len]), "{reply:?} at {len}");
            }
            assert!(skim.is_whole(bytes), "{reply:?}");
            assert_eq!(skim.at, bytes.len());
        }
    }
}

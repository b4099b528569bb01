//! A connection whose replies keep their bytes as they came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::Server;

/// A reply, its bytes untouched.
#[derive(Clone, PartialEq, Debug)]
pub enum Raw {
    /// A status, an error or an integer, with its first byte.
    Line(Vec<u8>),
    /// A string, or none.
    Bulk(Option<Vec<u8>>),
    /// An array.
    Array(Vec<Raw>),
}

impl Raw {
    /// The bytes of a line or a string.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Raw::Line(bytes) | Raw::Bulk(Some(bytes)) => bytes,
            _ => b"",
        }
    }

    /// The elements of an array.
    pub fn items(&self) -> &[Raw] {
        if let Raw::Array(items) = self { items } else { &[] }
    }

    /// All of it as words.
    pub fn text(&self) -> String {
        match self {
            Raw::Array(items) => items.iter().map(Raw::text).collect::<Vec<_>>().join(" "),
            other => other.bytes().escape_ascii().to_string(),
        }
    }
}

/// Sends a line of memcached, with a value or without; returns the answer.
pub fn memcached(port: u16, lines: &str, end: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(super::PATIENCE)).expect("a socket");
    stream.write_all(lines.as_bytes()).expect("it reads");
    let (mut said, mut bytes) = (String::new(), [0; 512]);
    while !said.ends_with(end) {
        let len = stream.read(&mut bytes).expect("an answer");
        assert!(len > 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..len]));
    }
    said
}

/// A connection.
pub struct Link(pub BufReader<TcpStream>);

impl Link {
    /// A new one.
    pub fn new(server: &Server) -> Link {
        Link::to(server.port())
    }

    /// A new one to a port of this machine.
    pub fn to(port: u16) -> Link {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(super::PATIENCE)).expect("an option");
        stream.set_nodelay(true).expect("an option");
        Link(BufReader::new(stream))
    }

    /// Sends a command.
    pub fn send(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<()> {
        self.0.get_mut().write_all(&encoded(args))
    }

    /// Its reply; `None` when the server has gone.
    pub fn try_call(&mut self, args: &[impl AsRef<[u8]>]) -> Option<Raw> {
        self.send(args).ok()?;
        self.read()
    }

    /// Its reply.
    pub fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Raw {
        self.try_call(args).expect("a reply")
    }

    /// The next reply; `None` when the server has gone.
    pub fn read(&mut self) -> Option<Raw> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\r\n")?;
        let (kind, rest) = line.split_first()?;
        let len = || std::str::from_utf8(rest).ok()?.parse::<i64>().ok();
        match kind {
            b'$' => {
                let Ok(len) = usize::try_from(len()?) else { return Some(Raw::Bulk(None)) };
                let mut bytes = vec![0; len + 2];
                self.0.read_exact(&mut bytes).ok()?;
                bytes.truncate(len);
                Some(Raw::Bulk(Some(bytes)))
            }
            b'*' => {
                let Ok(len) = usize::try_from(len()?) else { return Some(Raw::Bulk(None)) };
                (0..len).map(|_| self.read()).collect::<Option<Vec<_>>>().map(Raw::Array)
            }
            _ => Some(Raw::Line(line.to_vec())),
        }
    }
}

/// A command as it is sent.
pub fn encoded(args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        bytes.extend_from_slice(arg.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

//! A connection that sends commands and waits for their replies.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use darter_wire::value::{DecodeLimits, Value, decode};

/// A connection.
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Client {
    /// Connects to a port of this machine.
    pub fn connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client { stream, input: Vec::new(), output: Vec::new() })
    }

    /// Connects to another port, and forgets what is under way.
    pub fn reconnect(&mut self, port: u16) -> io::Result<()> {
        *self = Client::connect(port)?;
        Ok(())
    }

    /// The port of the server.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.stream.peer_addr()?.port())
    }

    /// Puts a command into what is sent next.
    pub fn add<T: AsRef<[u8]>>(&mut self, words: &[T]) {
        self.output.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.output.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
            self.output.extend_from_slice(word.as_ref());
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Sends what was put together.
    pub fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// Reads a reply. Errors: the connection, an error reply, bytes that are none.
    pub fn read(&mut self) -> io::Result<Value> {
        loop {
            let decoded = decode(&self.input, &DecodeLimits::default());
            match decoded.map_err(|error| io::Error::other(format!("no reply: {error:?}")))? {
                Some((Value::Error(line), len)) => {
                    self.input.drain(..len);
                    return Err(io::Error::other(String::from_utf8_lossy(&line).into_owned()));
                }
                Some((value, len)) => {
                    self.input.drain(..len);
                    return Ok(value);
                }
                None => {}
            }
            let mut chunk = [0; 16 << 10];
            let len = self.stream.read(&mut chunk)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.input.extend_from_slice(&chunk[..len]);
        }
    }

    /// Sends one command and reads its reply.
    pub fn call<T: AsRef<[u8]>>(&mut self, words: &[T]) -> io::Result<Value> {
        self.add(words);
        self.send()?;
        self.read()
    }
}

/// What a node of a cluster has not done, and where to ask instead.
pub enum Refusal {
    /// Another node serves the slot.
    Moved(u16),
    /// Another node has the key, and serves it after ASKING.
    Ask(u16),
    /// Later it may be done.
    Later,
}

impl Refusal {
    /// Reads an error; `None` if it says something else.
    pub fn of(error: &io::Error) -> Option<Refusal> {
        let line = error.to_string();
        let port = || line.rsplit(':').next().and_then(|port| port.parse().ok());
        match line.split(' ').next()? {
            "MOVED" => port().map(Refusal::Moved),
            "ASK" => port().map(Refusal::Ask),
            "TRYAGAIN" | "CLUSTERDOWN" => Some(Refusal::Later),
            _ => None,
        }
    }
}

/// Returns the numbers of an array of texts. Errors: the reply is no such array.
pub fn numbers(value: &Value) -> io::Result<Vec<u64>> {
    let Value::Array(items) = value else { return Err(io::Error::other(format!("no list: {value:?}"))) };
    items.iter().map(number).collect()
}

/// The number of a text.
pub fn number(value: &Value) -> io::Result<u64> {
    let text = value.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.and_then(|text| text.parse().ok()).ok_or_else(|| io::Error::other(format!("no number: {value:?}")))
}

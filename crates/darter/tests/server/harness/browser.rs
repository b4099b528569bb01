//! A connection that speaks HTTP, for the tests of pages, the console's API and metrics.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// One answer.
#[derive(Debug)]
pub struct Answer {
    /// Its code.
    pub status: u16,
    /// Header lines; names in small letters.
    pub headers: HashMap<String, String>,
    /// All of it, as text.
    pub body: String,
}

/// A connection that speaks HTTP.
pub struct Browser {
    /// Its bytes.
    pub reader: BufReader<TcpStream>,
}

impl Browser {
    /// A new connection.
    pub fn to(port: u16) -> Browser {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(super::PATIENCE)).expect("a timeout");
        Browser { reader: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        // A server that has refused the beginning may be gone before the end.
        let _ = self.reader.get_mut().write_all(bytes);
    }

    /// Reads an answer.
    pub fn read(&mut self) -> Answer {
        self.try_read(false).expect("an answer")
    }

    /// `None` when the server closes instead.
    pub fn try_read(&mut self, is_head: bool) -> Option<Answer> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status line");
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            let before = headers.insert(name.to_ascii_lowercase(), value.to_owned());
            assert!(before.is_none(), "{name} twice");
        }
        let length: usize = headers["content-length"].parse().expect("a length");
        let mut body = vec![0; if is_head { 0 } else { length }];
        self.reader.read_exact(&mut body).expect("the body");
        let body = String::from_utf8(body).expect("text");
        Some(Answer { status: status.parse().expect("a number"), headers, body })
    }

    /// Sends GET with these header lines, and reads the answer.
    pub fn get(&mut self, path: &str, headers: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes());
        self.read()
    }

    /// The same for POST with a body.
    pub fn post(&mut self, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        self.send(
            format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
            )
            .as_bytes(),
        );
        self.read()
    }

    /// Runs commands as the console does; their replies as JSON text.
    pub fn run(&mut self, commands: &str) -> String {
        let answer = self.post("/api/command", CONSOLE, &format!(r#"{{"commands":{commands}}}"#));
        assert_eq!(answer.status, 200, "{answer:?}");
        let replies = answer.body.strip_prefix(r#"{"replies":"#).expect("replies");
        replies.split_once(r#","us":"#).expect("a time").0.to_owned()
    }

    /// Waits for the server: true if it closes, false if it sends more.
    pub fn is_closed(&mut self) -> bool {
        !matches!(self.reader.fill_buf(), Ok(bytes) if !bytes.is_empty())
    }
}

/// What the console says with each request.
pub const CONSOLE: &str = "X-Darter-Console: 1\r\nContent-Type: application/json\r\n";

/// The value of a sample in a page of metrics.
pub fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not there")).parse().expect("a number")
}

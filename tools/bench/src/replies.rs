//! Counts complete replies in a byte stream, RESP2/RESP3 or memcached text, without building them.
//!
//! One counter per connection, fed with whatever a read returned. It keeps only the unfinished line between two reads,
//! so that the client costs little beside the server it measures.

/// The protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Redis protocol, version 2 or 3.
    Resp,
    /// The classic memcached text protocol.
    Memcached,
}

/// A stream that is not the expected protocol; carries the line that was not understood.
#[derive(Debug)]
pub struct NotAReply(pub String);

/// The state between two reads.
#[derive(Debug)]
pub struct ReplyCounter {
    protocol: Protocol,
    /// Bytes of a bulk (with its CRLF) still to pass over.
    skip: usize,
    /// Values still missing in the reply under way; zero between replies.
    values: u64,
    /// An unfinished line.
    line: Vec<u8>,
    errors: u64,
    first_error: Option<String>,
}

impl ReplyCounter {
    /// A counter at a reply border.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, skip: 0, values: 0, line: Vec::new(), errors: 0, first_error: None }
    }

    /// Takes the next bytes and returns how many replies ended in them.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<u64, NotAReply> {
        let mut done = 0;
        loop {
            if self.skip > 0 {
                let passed = self.skip.min(bytes.len());
                self.skip -= passed;
                bytes = &bytes[passed..];
                if self.skip > 0 {
                    return Ok(done);
                }
                done += u64::from(self.close_value());
            }
            let Some(end) = bytes.iter().position(|b| *b == b'\n') else {
                self.line.extend_from_slice(bytes);
                return Ok(done);
            };
            let ended = if self.line.is_empty() {
                self.header(&bytes[..end])?
            } else {
                self.line.extend_from_slice(&bytes[..end]);
                let line = std::mem::take(&mut self.line);
                self.header(&line)?
            };
            done += u64::from(ended);
            bytes = &bytes[end + 1..];
        }
    }

    /// How many replies were errors or misses that a filled key space cannot explain.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// The text of the first error reply.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Reads one line; true when it ended a reply.
    fn header(&mut self, line: &[u8]) -> Result<bool, NotAReply> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.protocol {
            Protocol::Resp => self.resp_header(line),
            Protocol::Memcached => self.memcached_header(line),
        }
    }

    fn resp_header(&mut self, line: &[u8]) -> Result<bool, NotAReply> {
        let Some((kind, rest)) = line.split_first() else { return Err(not_a_reply(line)) };
        if self.values == 0 {
            self.values = 1;
        }
        match kind {
            b'-' | b'!' => self.count_error(rest),
            b'+' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'=' => {
                if let Some(len) = length(rest) {
                    self.skip = len + 2;
                    return Ok(false);
                }
            }
            b'*' | b'~' | b'>' => self.values += length(rest).unwrap_or(0) as u64,
            b'%' => self.values += 2 * length(rest).unwrap_or(0) as u64,
            _ => return Err(not_a_reply(line)),
        }
        Ok(self.close_value())
    }

    fn memcached_header(&mut self, line: &[u8]) -> Result<bool, NotAReply> {
        if line.starts_with(b"VALUE ") {
            let len = line.rsplit(|b| *b == b' ').next().and_then(length);
            self.skip = len.ok_or_else(|| not_a_reply(line))? + 2;
            self.values = 2; // the data and the END that follows it
            return Ok(false);
        }
        self.values = 0;
        match line {
            b"STORED" | b"END" | b"DELETED" | b"TOUCHED" | b"OK" => Ok(true),
            _ if line.starts_with(b"VERSION") => Ok(true),
            b"ERROR" | b"NOT_STORED" | b"NOT_FOUND" => {
                self.count_error(line);
                Ok(true)
            }
            _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
                self.count_error(line);
                Ok(true)
            }
            _ => Err(not_a_reply(line)),
        }
    }

    /// One value is complete; true when the whole reply is.
    fn close_value(&mut self) -> bool {
        self.values -= 1;
        self.values == 0
    }

    fn count_error(&mut self, text: &[u8]) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(String::from_utf8_lossy(text).into_owned());
        }
    }
}

/// A decimal length; `None` for -1 and for anything that is no number.
fn length(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    digits.iter().try_fold(0usize, |sum, b| b.is_ascii_digit().then(|| sum * 10 + usize::from(b - b'0')))
}

fn not_a_reply(line: &[u8]) -> NotAReply {
    let start = &line[..line.len().min(80)];
    NotAReply(String::from_utf8_lossy(start).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_in_pieces(protocol: Protocol, bytes: &[u8], piece: usize) -> (u64, u64) {
        let mut counter = ReplyCounter::new(protocol);
        let done = bytes.chunks(piece).map(|c| counter.feed(c).unwrap()).sum();
        (done, counter.errors())
    }

    #[test]
    fn resp_replies_are_counted_at_every_split() {
        let stream = b"+OK\r\n$5\r\nhe\r\no\r\n$-1\r\n:42\r\n*2\r\n$1\r\na\r\n*1\r\n:1\r\n-ERR no\r\n*0\r\n*-1\r\n$0\r\n\r\n\
                       %1\r\n+k\r\n+v\r\n_\r\n~2\r\n:1\r\n:2\r\n";
        for piece in 1..=stream.len() {
            assert_eq!(count_in_pieces(Protocol::Resp, stream, piece), (12, 1), "in pieces of {piece}");
        }
    }

    #[test]
    fn memcached_replies_are_counted_at_every_split() {
        let stream = b"STORED\r\nVALUE k 0 3\r\nEND\r\nEND\r\nEND\r\nSERVER_ERROR out of memory\r\n";
        for piece in 1..=stream.len() {
            assert_eq!(count_in_pieces(Protocol::Memcached, stream, piece), (4, 1), "in pieces of {piece}");
        }
    }

    #[test]
    fn another_protocol_is_refused() {
        assert!(ReplyCounter::new(Protocol::Resp).feed(b"HTTP/1.1 400\r\n").is_err());
    }
}

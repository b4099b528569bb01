//! A request to an HTTP/1.1 server and its answer, on a connection that is kept.
//!
//! `etcd` calls it. Heads are read by `httparse`; a body has a length or comes in chunks. Everything ends by one deadline,
//! and an answer that is longer than it may be ends the connection. Nothing is sent twice here: the caller knows whether
//! that does harm.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// What carries the bytes; a read that brings nothing for a moment fails with `WouldBlock` or `TimedOut`.
pub trait Carrier: Read + Write + Send {}

impl<T: Read + Write + Send> Carrier for T {}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// The longest answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const HEADERS_MAX: usize = 64;

/// Sends a POST with a JSON body, and reads the answer.
///
/// Errors: the connection is broken, the answer is none, or it takes too long.
pub fn post(
    carrier: &mut dyn Carrier,
    (host, path): (&str, &str),
    token: Option<&str>,
    body: &[u8],
    patience: Duration,
) -> io::Result<HttpAnswer> {
    let until = Instant::now() + patience;
    send(carrier, (host, path), token, body)?;
    let mut bytes = Vec::new();
    loop {
        if let Some(answer) = parse(&bytes)? {
            return Ok(answer);
        }
        let mut room = [0; 4096];
        match carrier.read(&mut room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => bytes.extend_from_slice(room.get(..len).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(garbled("its answer is too long"));
        }
        if Instant::now() >= until {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

/// etcd refuses a request, and ends a watch, at a server that is cut off from the others. It would answer from an old state,
/// or tell of nothing.
const NEEDS_LEADER: &str = "Grpc-Metadata-hasleader: true";

/// Sends the request alone.
pub fn send(
    carrier: &mut dyn Carrier,
    (host, path): (&str, &str),
    token: Option<&str>,
    body: &[u8],
) -> io::Result<()> {
    let login = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{NEEDS_LEADER}\r\n{login}\r\n",
        body.len()
    );
    carrier.write_all(&[head.as_bytes(), body].concat())?;
    carrier.flush()
}

/// The length of an answer's head and its status, if all of the head is there.
pub fn stream_head(bytes: &[u8]) -> io::Result<Option<(usize, u16)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(bytes).map_err(|_| garbled("it answers with no HTTP"))?;
    let httparse::Status::Complete(len) = parsed else { return Ok(None) };
    Ok(Some((len, head.code.unwrap_or(0))))
}

fn garbled(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// The answer, if all of it is there.
fn parse(bytes: &[u8]) -> io::Result<Option<HttpAnswer>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(bytes).map_err(|_| garbled("it answers with no HTTP"))?;
    let httparse::Status::Complete(begin) = parsed else { return Ok(None) };
    let status = head.code.unwrap_or(0);
    let value = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let rest = bytes.get(begin..).unwrap_or_default();
    if value("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return Ok(chunked(rest)?.map(|body| HttpAnswer { status, body }));
    }
    let len = value("content-length").and_then(|len| len.trim().parse::<usize>().ok());
    let len = len.ok_or_else(|| garbled("its answer has no length"))?;
    Ok(rest.get(..len).map(|body| HttpAnswer { status, body: body.to_vec() }))
}

/// The body that comes in chunks, if all of it is there.
fn chunked(mut rest: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let size = httparse::parse_chunk_size(rest).map_err(|_| garbled("its answer has a broken chunk"))?;
        let httparse::Status::Complete((begin, len)) = size else { return Ok(None) };
        let len = usize::try_from(len).ok().filter(|len| *len <= ANSWER_BYTES_MAX);
        let len = len.ok_or_else(|| garbled("its answer is too long"))?;
        // Behind the last chunk there are no trailers, only an empty line.
        let (Some(chunk), Some(next)) = (rest.get(begin..begin + len), rest.get(begin + len + 2..)) else {
            return Ok(None);
        };
        if len == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(chunk);
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let parts = b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
        for (bytes, status) in [(&plain[..], 200), (&parts[..], 400)] {
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]).expect("no damage"), None, "{end}");
            }
            let answer = parse(bytes).expect("no damage").expect("all of it");
            assert_eq!((answer.status, &answer.body[..]), (status, &b"hello"[..]));
        }
        for bytes in [&b"SSH-2.0-x\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n"] {
            assert!(parse(bytes).is_err());
        }
    }
}

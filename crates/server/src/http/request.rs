//! One HTTP/1.x request at the front of a connection's bytes: its head, and the position of its body.
//!
//! Called by the HTTP connection. Pure: it answers nothing and keeps only its position. Input that two parsers could
//! understand in two ways is refused, so that nothing can be smuggled past a proxy in front.

use httparse::{EMPTY_HEADER, Status as Parsed};

use super::response::HttpStatus;

/// Bytes of a request line and its headers.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a body.
pub const BODY_BYTES_MAX: u64 = 1 << 20;
/// Headers of one request.
const HEADERS_MAX: usize = 64;
/// Bytes of a host name with its port.
const HOST_BYTES_MAX: usize = 255;

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// The thing itself.
    Get,
    /// Its headers alone.
    Head,
    /// An action on the body.
    Post,
    /// Anything else, which no route takes.
    Other,
}

/// The part of a request before its body, as far as it is used here.
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: Method,
    /// The path: begins with a slash, without the query.
    pub path: &'a str,
    /// After the question mark.
    pub query: &'a str,
    /// The connection continues after the answer.
    pub keep_alive: bool,
    /// The name the client used for this server; empty only in HTTP/1.0.
    pub host: &'a str,
    /// Credentials.
    pub authorization: Option<&'a str>,
    /// The site whose page sent the request; set by browsers.
    pub origin: Option<&'a str>,
    /// The relation of that site to ours, as seen by the browser.
    pub fetch_site: Option<&'a str>,
    /// The type of the body.
    pub content_type: Option<&'a str>,
    /// The header that only a page of ours can set.
    pub is_from_console: bool,
    /// Bytes of the head with the empty line.
    pub head_bytes: usize,
    /// Bytes of the body.
    pub body_bytes: usize,
}

/// The front of the bytes.
#[derive(Debug)]
pub enum RequestStep<'a> {
    /// Not a whole head yet.
    More,
    /// A head.
    Head(Box<RequestHead<'a>>),
    /// Not a request that may be answered; the connection must be closed.
    Bad(HttpStatus),
}

/// Reads the head at the front of `buf`. `looked_at` is the number of its bytes without an end of a head; it is
/// updated.
///
/// Cost: each byte is examined twice, for pieces of any size.
pub fn parse<'a>(buf: &'a [u8], looked_at: &mut usize) -> RequestStep<'a> {
    let end = match find_end(buf, *looked_at) {
        Ok(Some(end)) if end <= HEAD_BYTES_MAX => end,
        Ok(None) if buf.len() <= HEAD_BYTES_MAX => {
            *looked_at = buf.len();
            return RequestStep::More;
        }
        Ok(_) => return RequestStep::Bad(HttpStatus::HeadTooLarge),
        Err(status) => return RequestStep::Bad(status),
    };
    *looked_at = 0;
    match read(&buf[..end]) {
        Ok(head) => RequestStep::Head(Box::new(head)),
        Err(status) => RequestStep::Bad(status),
    }
}

/// The end of the head, if `buf` has it. Lines end with CR LF; another LF alone makes it invalid.
fn find_end(buf: &[u8], looked_at: usize) -> Result<Option<usize>, HttpStatus> {
    for (at, _) in buf.iter().enumerate().skip(looked_at).filter(|(_, byte)| **byte == b'\n') {
        let line = &buf[..=at];
        if !line.ends_with(b"\r\n") {
            return Err(HttpStatus::BadRequest);
        }
        if line.ends_with(b"\r\n\r\n") {
            return Ok(Some(at + 1));
        }
    }
    Ok(None)
}

fn read(buf: &[u8]) -> Result<RequestHead<'_>, HttpStatus> {
    let mut room = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut room);
    match request.parse(buf) {
        Ok(Parsed::Complete(bytes)) if bytes == buf.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(HttpStatus::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(HttpStatus::VersionNotSupported),
        _ => return Err(HttpStatus::BadRequest),
    }
    let target = request.path.unwrap_or_default();
    if !target.starts_with('/') {
        return Err(HttpStatus::BadRequest);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let is_new = request.version == Some(1);
    let mut head = RequestHead {
        method: match request.method.unwrap_or_default() {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            _ => Method::Other,
        },
        path,
        query,
        keep_alive: is_new,
        host: "",
        authorization: None,
        origin: None,
        fetch_site: None,
        content_type: None,
        is_from_console: false,
        head_bytes: buf.len(),
        body_bytes: 0,
    };
    read_headers(&mut head, request.headers)?;
    if is_new && head.host.is_empty() {
        return Err(HttpStatus::BadRequest);
    }
    if head.body_bytes > 0 && head.method != Method::Post {
        return Err(HttpStatus::BadRequest);
    }
    Ok(head)
}

/// Headers that may occur only once: another parser could use the second one.
const ONCE: &[&str] = &[
    "host",
    "content-length",
    "content-type",
    "authorization",
    "origin",
    "sec-fetch-site",
    "transfer-encoding",
];

fn read_headers<'a>(head: &mut RequestHead<'a>, headers: &[httparse::Header<'a>]) -> Result<(), HttpStatus> {
    let is = |header: &httparse::Header<'_>, name: &str| header.name.eq_ignore_ascii_case(name);
    for name in ONCE {
        if headers.iter().filter(|header| is(header, name)).count() > 1 {
            return Err(HttpStatus::BadRequest);
        }
    }
    let encoded = headers.iter().any(|header| is(header, "transfer-encoding"));
    for header in headers {
        let value = std::str::from_utf8(header.value).map_err(|_| HttpStatus::BadRequest)?.trim();
        match header.name.to_ascii_lowercase().as_str() {
            "host" if value.len() > HOST_BYTES_MAX => return Err(HttpStatus::BadRequest),
            "host" => head.host = value,
            "authorization" => head.authorization = Some(value),
            "origin" => head.origin = Some(value),
            "sec-fetch-site" => head.fetch_site = Some(value),
            "content-type" => head.content_type = Some(value),
            "x-darter-console" => head.is_from_console = true,
            "connection" => read_connection(head, value),
            "content-length" if encoded => return Err(HttpStatus::BadRequest),
            "content-length" => head.body_bytes = read_length(value)?,
            _ => {}
        }
    }
    // No client of ours needs a body in chunks, and half of the known ways to smuggle do.
    if encoded { Err(HttpStatus::NotImplemented) } else { Ok(()) }
}

fn read_connection(head: &mut RequestHead<'_>, value: &str) {
    for word in value.split(',').map(str::trim) {
        if word.eq_ignore_ascii_case("close") {
            head.keep_alive = false;
        } else if word.eq_ignore_ascii_case("keep-alive") {
            head.keep_alive = true;
        }
    }
}

/// Digits alone: a sign, a list or a space would be read otherwise elsewhere.
fn read_length(value: &str) -> Result<usize, HttpStatus> {
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HttpStatus::BadRequest);
    }
    match value.parse::<u64>() {
        Ok(bytes) if bytes <= BODY_BYTES_MAX => usize::try_from(bytes).map_err(|_| HttpStatus::BodyTooLarge),
        _ => Err(HttpStatus::BodyTooLarge),
    }
}

#[cfg(test)]
mod tests;

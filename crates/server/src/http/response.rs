//! Answers: status lines, headers and bodies, appended to a connection's output.
//!
//! Called by the HTTP connection and its routes. Every answer tells browsers not to guess its type, not to cache it,
//! and not to show it to other sites.

use std::io::Write;

use super::request::{Method, RequestHead};

/// Statuses that are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpStatus {
    /// 200
    Ok,
    /// 400: not a request, or one that could be read in two ways.
    BadRequest,
    /// 401: a password is wanted.
    Unauthorized,
    /// 403: not from there.
    Forbidden,
    /// 404
    NotFound,
    /// 405: not with this method.
    MethodNotAllowed,
    /// 408: the rest of the request did not come in time.
    TimedOut,
    /// 413
    BodyTooLarge,
    /// 415: the body is not JSON.
    UnsupportedMediaType,
    /// 421: the name in `Host` is not one of ours.
    Misdirected,
    /// 431
    HeadTooLarge,
    /// 501
    NotImplemented,
    /// 503: alive, but not ready yet.
    Unavailable,
    /// 505
    VersionNotSupported,
}

impl HttpStatus {
    /// Number and words.
    pub const fn line(self) -> &'static str {
        match self {
            HttpStatus::Ok => "200 OK",
            HttpStatus::BadRequest => "400 Bad Request",
            HttpStatus::Unauthorized => "401 Unauthorized",
            HttpStatus::Forbidden => "403 Forbidden",
            HttpStatus::NotFound => "404 Not Found",
            HttpStatus::MethodNotAllowed => "405 Method Not Allowed",
            HttpStatus::TimedOut => "408 Request Timeout",
            HttpStatus::BodyTooLarge => "413 Content Too Large",
            HttpStatus::UnsupportedMediaType => "415 Unsupported Media Type",
            HttpStatus::Misdirected => "421 Misdirected Request",
            HttpStatus::HeadTooLarge => "431 Request Header Fields Too Large",
            HttpStatus::NotImplemented => "501 Not Implemented",
            HttpStatus::Unavailable => "503 Service Unavailable",
            HttpStatus::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// The type of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentKind {
    /// Plain text.
    Text,
    /// Prometheus' text format.
    Metrics,
    /// A page.
    Html,
    /// A style sheet.
    Css,
    /// A script.
    Script,
    /// A picture.
    Svg,
    /// JSON.
    Json,
}

impl ContentKind {
    const fn mime(self) -> &'static str {
        match self {
            ContentKind::Text => "text/plain; charset=utf-8",
            ContentKind::Metrics => "text/plain; version=0.0.4; charset=utf-8",
            ContentKind::Html => "text/html; charset=utf-8",
            ContentKind::Css => "text/css; charset=utf-8",
            ContentKind::Script => "text/javascript; charset=utf-8",
            ContentKind::Svg => "image/svg+xml",
            ContentKind::Json => "application/json",
        }
    }
}

/// The framing of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// The connection continues.
    pub keep_alive: bool,
    /// The body is left out (HEAD).
    pub is_head: bool,
}

impl Framing {
    /// The framing that a request asks for.
    pub fn of(head: &RequestHead<'_>) -> Framing {
        Framing { keep_alive: head.keep_alive, is_head: head.method == Method::Head }
    }

    /// The last answer of a connection.
    pub const LAST: Framing = Framing { keep_alive: false, is_head: false };
}

/// The rights of our pages: they may only load their own parts and call their own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Appends an answer to `out`.
pub fn write(out: &mut Vec<u8>, framing: Framing, status: HttpStatus, kind: ContentKind, body: &[u8]) {
    // Writing to a Vec does not fail.
    let _ = write!(
        out,
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Content-Security-Policy: {POLICY}\r\nReferrer-Policy: no-referrer\r\n",
        status.line(),
        kind.mime(),
        body.len(),
    );
    match status {
        HttpStatus::Unauthorized => {
            out.extend_from_slice(b"WWW-Authenticate: Basic realm=\"Darter\", charset=\"UTF-8\"\r\n")
        }
        HttpStatus::MethodNotAllowed => out.extend_from_slice(b"Allow: GET, HEAD, POST\r\n"),
        _ => {}
    }
    out.extend_from_slice(if framing.keep_alive {
        b"Connection: keep-alive\r\n\r\n" as &[u8]
    } else {
        b"Connection: close\r\n\r\n"
    });
    if !framing.is_head {
        out.extend_from_slice(body);
    }
}

/// Appends an answer that consists of a status and a line that explains it.
pub fn refuse(out: &mut Vec<u8>, framing: Framing, status: HttpStatus, why: &str) {
    let body = if why.is_empty() { status.line() } else { why };
    write(out, framing, status, ContentKind::Text, format!("{body}\n").as_bytes());
}

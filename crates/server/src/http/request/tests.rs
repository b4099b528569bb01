//! Tests of valid and refused requests.

use super::*;

fn status_of(text: &str) -> Option<HttpStatus> {
    match parse(text.as_bytes(), &mut 0) {
        RequestStep::Bad(status) => Some(status),
        _ => None,
    }
}

fn head(text: &str) -> RequestHead<'_> {
    match parse(text.as_bytes(), &mut 0) {
        RequestStep::Head(head) => *head,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn a_request_is_read_with_the_headers_that_count() {
    let got = head(
        "POST /api/command?x=1 HTTP/1.1\r\nHost: a:1\r\norigin: http://a:1\r\nSEC-FETCH-SITE: same-origin\r\n\
         Content-Type: application/json\r\nX-Darter-Console: 1\r\nAuthorization: Basic x\r\nContent-Length: 5\r\n\r\nbody!",
    );
    assert_eq!((got.method, got.path, got.query), (Method::Post, "/api/command", "x=1"));
    assert_eq!((got.host, got.origin, got.fetch_site), ("a:1", Some("http://a:1"), Some("same-origin")));
    assert_eq!((got.content_type, got.authorization), (Some("application/json"), Some("Basic x")));
    assert!(got.is_from_console && got.keep_alive);
    assert_eq!(got.body_bytes, 5);
}

#[test]
fn the_connection_goes_on_as_the_client_says() {
    let keeps = |text: &str| head(text).keep_alive;
    assert!(keeps("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(!keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n"));
    assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
    assert!(keeps("GET / HTTP/1.0\r\nConnection: foo, keep-alive\r\n\r\n"));
}

#[test]
fn a_head_may_come_byte_by_byte() {
    let text = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut looked_at = 0;
    for len in 0..text.len() {
        assert!(matches!(parse(&text[..len], &mut looked_at), RequestStep::More), "{len}");
        assert_eq!(looked_at, len);
    }
    assert!(matches!(parse(text, &mut looked_at), RequestStep::Head(_)));
    assert_eq!(looked_at, 0);
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let bad = Some(HttpStatus::BadRequest);
    for (text, status) in [
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", bad),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", bad),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", bad),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n", bad),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", bad),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", bad),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", bad),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n", bad),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n", bad),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", bad),
        ("GET / HTTP/1.1\r\n\r\n", bad),
        ("GET / HTTP/1.1\nHost: a\n\n", bad),
        ("GET / HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n", bad),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", bad),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", bad),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", bad),
        ("GET /\r\nHost: a\r\n\r\n", bad),
        ("\r\n\r\n", bad),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            Some(HttpStatus::NotImplemented),
        ),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Some(HttpStatus::VersionNotSupported)),
    ] {
        assert_eq!(status_of(text), status, "{text:?}");
    }
}

#[test]
fn no_bytes_do_harm() {
    let whole = b"POST /api/command?x HTTP/1.1\r\nHost: [::1]:1\r\nContent-Type: a\r\nContent-Length: 12\r\nAuthorization: Basic x\r\n\r\n";
    let odd = b"\r\n\0:; ,/?\xff\x80\t0[";
    let mut rng = darter_base::rng::Rng::new(7);
    for _ in 0..200_000 {
        let mut bytes = whole.to_vec();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = odd[rng.below(odd.len() as u64) as usize],
                1 => bytes.insert(at, odd[rng.below(odd.len() as u64) as usize]),
                _ => drop(bytes.remove(at)),
            }
        }
        if let RequestStep::Head(head) = parse(&bytes, &mut 0) {
            assert!(head.head_bytes <= bytes.len() && head.body_bytes as u64 <= BODY_BYTES_MAX);
            assert!(head.path.starts_with('/'));
        }
    }
}

#[test]
fn sizes_are_limited() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(HEAD_BYTES_MAX));
    assert_eq!(status_of(&long), Some(HttpStatus::HeadTooLarge));
    assert_eq!(status_of(&"a".repeat(HEAD_BYTES_MAX + 1)), Some(HttpStatus::HeadTooLarge));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "x: 1\r\n".repeat(HEADERS_MAX));
    assert_eq!(status_of(&many), Some(HttpStatus::HeadTooLarge));
    let body = |bytes: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
    assert_eq!(status_of(&body("1048577")), Some(HttpStatus::BodyTooLarge));
    assert_eq!(status_of(&body("99999999999999999999999")), Some(HttpStatus::BodyTooLarge));
    assert_eq!(head(&body("1048576")).body_bytes, 1 << 20);
    assert_eq!(
        status_of(&format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(256))),
        Some(HttpStatus::BadRequest)
    );
}

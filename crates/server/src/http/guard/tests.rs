//! Tests of requests from other sites.

use super::*;
use crate::http::request::{RequestStep, parse};

fn checked(headers: &str, is_page: bool, has_password: bool) -> Option<HttpStatus> {
    let text = format!("GET / HTTP/1.1\r\n{headers}\r\n");
    let RequestStep::Head(head) = parse(text.as_bytes(), &mut 0) else { panic!("{text:?}") };
    check_site(&head, is_page, has_password).err().map(|(status, _)| status)
}

#[test]
fn names_that_the_web_could_point_here_are_refused() {
    for name in [
        "127.0.0.1",
        "127.0.0.1:6379",
        "[::1]:6379",
        "[::1]",
        "localhost:1",
        "darter",
        "a.localhost",
        "10.0.0.7:6379",
    ] {
        assert!(is_private_name(name), "{name}");
    }
    for name in [
        "",
        "evil.com",
        "127.0.0.1.evil.com",
        "evil.com:6379",
        "localhost.evil.com",
        "a:b:c",
        "[::1",
        "[evil]",
        "a:999999",
        ".localhost",
        "a..localhost",
        "a b",
    ] {
        assert!(!is_private_name(name), "{name}");
    }
    assert_eq!(checked("Host: evil.com\r\n", true, false), Some(HttpStatus::Misdirected));
    assert_eq!(checked("Host: evil.com\r\n", true, true), None);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let host = "Host: localhost:1\r\n";
    for (rest, refused) in [
        ("", false),
        ("Sec-Fetch-Site: same-origin\r\n", false),
        ("Sec-Fetch-Site: none\r\n", false),
        ("Sec-Fetch-Site: same-site\r\n", true),
        ("Sec-Fetch-Site: cross-site\r\n", true),
        ("Origin: http://localhost:1\r\n", false),
        ("Origin: https://LOCALHOST:1\r\n", false),
        ("Origin: http://localhost:2\r\n", true),
        ("Origin: http://evil.com\r\n", true),
        ("Origin: null\r\n", true),
        ("Origin: http://localhost:1.evil.com\r\n", true),
    ] {
        let wanted = refused.then_some(HttpStatus::Forbidden);
        assert_eq!(checked(&format!("{host}{rest}"), false, false), wanted, "{rest}");
        assert_eq!(checked(&format!("{host}{rest}"), true, false), None, "a link to the page: {rest}");
    }
}

#[test]
fn the_api_wants_what_only_our_page_sends() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nX-Darter-Console: 1\r\nContent-Type: application/json; charset=utf-8\r\n\r\n";
    for (text, wanted) in [
        (text.to_owned(), None),
        (text.replace("X-Darter-Console: 1\r\n", ""), Some(HttpStatus::Forbidden)),
        (text.replace("application/json", "text/plain"), Some(HttpStatus::UnsupportedMediaType)),
        (
            text.replace("Content-Type: application/json; charset=utf-8\r\n", ""),
            Some(HttpStatus::UnsupportedMediaType),
        ),
    ] {
        let RequestStep::Head(head) = parse(text.as_bytes(), &mut 0) else { panic!("{text:?}") };
        assert_eq!(check_api(&head).err().map(|(status, _)| status), wanted, "{text:?}");
    }
}

#[test]
fn credentials_are_read() {
    let pair = |user: &str, password: &str| Some((user.as_bytes().to_vec(), password.as_bytes().to_vec()));
    assert_eq!(credentials("Basic dXNlcjpwYTpzcw=="), pair("user", "pa:ss"));
    assert_eq!(credentials("basic OnB3"), pair("default", "pw"));
    for wrong in ["", "Basic", "Basic !!!!", "Bearer dXNlcjpwYXNz", "Basic dXNlcg=="] {
        assert_eq!(credentials(wrong), None, "{wrong:?}");
    }
}

//! Admission of requests: refuses requests that a page of another site made a browser send, and guesses of passwords.
//!
//! Called by the routes before anything is done. Without a password, a browser is protected from foreign pages only
//! because they cannot use our own name. Names that the web could point at this machine (DNS rebinding) are therefore
//! refused.

use std::net::{Ipv4Addr, Ipv6Addr};

use darter_wire::base64;

use super::request::{Method, RequestHead};
use super::response::HttpStatus;

/// Refuses what another site's page sent. A link from elsewhere to the page itself is fine.
///
/// Errors: the status, and a line with the reason.
pub fn check_site(
    head: &RequestHead<'_>,
    is_page: bool,
    has_password: bool,
) -> Result<(), (HttpStatus, &'static str)> {
    if !has_password && !is_private_name(head.host) {
        return Err((HttpStatus::Misdirected, WRONG_NAME));
    }
    if is_page && head.method != Method::Post {
        return Ok(());
    }
    // Older browsers do not send it; the headers that they do send are checked below.
    if head.fetch_site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err((HttpStatus::Forbidden, CROSS_SITE));
    }
    if head.origin.is_some_and(|origin| !is_same_origin(origin, head.host)) {
        return Err((HttpStatus::Forbidden, CROSS_SITE));
    }
    Ok(())
}

/// Refuses what only a script of another site, or a form, would send to the API.
///
/// Errors: the status, and a line with the reason.
pub fn check_api(head: &RequestHead<'_>) -> Result<(), (HttpStatus, &'static str)> {
    if !head.is_from_console {
        return Err((HttpStatus::Forbidden, "the header X-Darter-Console is missing"));
    }
    if head.method == Method::Post && !head.content_type.is_some_and(is_json) {
        return Err((HttpStatus::UnsupportedMediaType, "the body has to be application/json"));
    }
    Ok(())
}

const CROSS_SITE: &str = "requests of other sites are refused";
const WRONG_NAME: &str = "without a password the console is served under addresses and local names only";

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn is_same_origin(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|name| name.eq_ignore_ascii_case(host))
}

/// Returns true if no one on the web can point `host`, a name with or without a port, at this machine. It is an
/// address, a name of one word, or one reserved for the local machine.
fn is_private_name(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || is_port(port));
    }
    let name = match host.split_once(':') {
        None => host,
        Some((name, _)) if is_port(&host[name.len()..]) => name,
        Some(_) => return false,
    };
    let is_word = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let bare = name.strip_suffix(".localhost").unwrap_or(name);
    name.parse::<Ipv4Addr>().is_ok()
        || is_word(bare)
        || (bare.len() < name.len() && bare.split('.').all(is_word))
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| digits.is_empty() || digits.parse::<u16>().is_ok())
}

/// User and password of an `Authorization: Basic` header; an empty user is `default`.
pub fn credentials(authorization: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, code) = authorization.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = base64::decode(code.trim().as_bytes())?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let user = if colon == 0 { b"default".to_vec() } else { text[..colon].to_vec() };
    Some((user, text[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests;

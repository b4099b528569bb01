//! What a connection speaks: decided once, by its listener and its first bytes, and kept for its life.
//!
//! Called by `conn` for the first bytes only; reads nothing but them. On the main port a request that could be an
//! inline command of Redis is one (`get k`, `touch k 10`): memcached is recognised only where Redis has no such command
//! or refuses it with these words.

/// Which clients a listener is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ListenerKind {
    /// All: what they speak is recognised.
    #[default]
    Main,
    /// Those that speak memcached's protocol.
    Memcached,
    /// Administrators: RESP and HTTP, however many clients there are.
    Admin,
    /// As the main one, and always encrypted.
    Tls,
    /// As the main one, for clients of Sentinel: they stay when the leader of the group changes.
    Sentinel,
}

impl ListenerKind {
    /// How many kinds there are.
    pub const LEN: usize = 5;

    /// The word for it in settings and logs.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            ListenerKind::Main => "main",
            ListenerKind::Memcached => "memcached",
            ListenerKind::Admin => "admin",
            ListenerKind::Tls => "tls",
            ListenerKind::Sentinel => "sentinel",
        }
    }

    /// Whether it is for all clients.
    pub const fn is_main(self) -> bool {
        matches!(self, ListenerKind::Main | ListenerKind::Tls | ListenerKind::Sentinel)
    }
}

/// A protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// Nothing has come that tells.
    #[default]
    Unknown,
    /// Redis' protocol, inline commands too.
    Resp,
    /// memcached's text and meta commands.
    Memcached,
    /// memcached's binary protocol, which is not served.
    MemcachedBinary,
    /// HTTP/1.
    Http,
}

/// What the settings allow a listener to recognise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllowedProtocols {
    /// HTTP; where it is not allowed its requests are what RESP makes of them.
    pub http: bool,
}

/// What the client of a `kind` of listener speaks; `None` when `bytes`, the first it sent, do not tell yet.
///
/// At most [`UNDECIDED_BYTES_MAX`] bytes are undecided.  Cost: O(first line), for RESP arrays O(1).
pub fn recognise(kind: ListenerKind, allowed: AllowedProtocols, bytes: &[u8]) -> Option<Protocol> {
    let &first = bytes.first()?;
    match kind {
        _ if first == BINARY_MAGIC => Some(Protocol::MemcachedBinary),
        ListenerKind::Memcached => Some(Protocol::Memcached),
        _ if kind.is_main() && first.is_ascii_lowercase() => guess(bytes, is_memcached, Protocol::Memcached),
        _ if first.is_ascii_uppercase() && allowed.http => guess(bytes, is_http, Protocol::Http),
        _ => Some(Protocol::Resp),
    }
}

/// `protocol` or RESP, by the first line; `None` while it is neither whole nor clear.
fn guess(bytes: &[u8], is_it: fn(&[u8], bool) -> Option<bool>, protocol: Protocol) -> Option<Protocol> {
    let (line, is_whole) = match memchr::memchr(b'\n', bytes) {
        Some(end) => (bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]), true),
        None => (bytes, bytes.len() > UNDECIDED_BYTES_MAX),
    };
    match is_it(line, is_whole) {
        Some(true) => Some(protocol),
        Some(false) => Some(Protocol::Resp),
        None => None,
    }
}

/// How a line that begins with one of memcached's words must go on to be no command of Redis.
#[derive(Clone, Copy)]
enum CommandRest {
    /// In any way.
    Any,
    /// Key, three numbers, at most one word more.
    Storage,
    /// Key and a number.
    Number,
    /// Two keys at least.
    Keys,
}

const VERBS: &[(&[u8], CommandRest)] = &[
    (b"get", CommandRest::Keys),
    (b"set", CommandRest::Storage),
    (b"append", CommandRest::Storage),
    (b"incr", CommandRest::Number),
    (b"decr", CommandRest::Number),
    (b"gets", CommandRest::Any),
    (b"add", CommandRest::Any),
    (b"replace", CommandRest::Any),
    (b"prepend", CommandRest::Storage),
    (b"cas", CommandRest::Any),
    (b"gat", CommandRest::Any),
    (b"gats", CommandRest::Any),
    (b"delete", CommandRest::Any),
    (b"mg", CommandRest::Any),
    (b"ms", CommandRest::Any),
    (b"md", CommandRest::Any),
    (b"ma", CommandRest::Any),
    (b"mn", CommandRest::Any),
    (b"me", CommandRest::Any),
    (b"stats", CommandRest::Any),
    (b"version", CommandRest::Any),
    (b"verbosity", CommandRest::Any),
    (b"flush_all", CommandRest::Any),
    (b"cache_memlimit", CommandRest::Any),
    (b"slabs", CommandRest::Any),
    (b"lru", CommandRest::Any),
    (b"lru_crawler", CommandRest::Any),
];

fn is_memcached(line: &[u8], is_whole: bool) -> Option<bool> {
    let end = memchr::memchr(b' ', line);
    let verb = &line[..end.unwrap_or(line.len())];
    if end.is_none() && !is_whole {
        return VERBS.iter().all(|(name, _)| !name.starts_with(verb)).then_some(false);
    }
    let Some(&(_, rest)) = VERBS.iter().find(|(name, _)| *name == verb) else { return Some(false) };
    if let CommandRest::Any = rest {
        return Some(true);
    }
    if !is_whole {
        return None;
    }
    let words: Vec<&[u8]> =
        line.split(|&b| b == b' ').skip(1).filter(|word| !word.is_empty()).take(WORDS_MAX).collect();
    Some(match rest {
        CommandRest::Any => true,
        CommandRest::Storage => {
            (4..=5).contains(&words.len()) && words[1..4].iter().all(|word| is_number(word))
        }
        CommandRest::Number => (2..=3).contains(&words.len()) && is_number(words[1]),
        CommandRest::Keys => words.len() > 1,
    })
}

fn is_number(word: &[u8]) -> bool {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

const METHODS: &[&[u8]] =
    &[b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT"];

/// A method, and the version at the line's end: `GET k` alone is a command.
fn is_http(line: &[u8], is_whole: bool) -> Option<bool> {
    let end = memchr::memchr(b' ', line);
    let method = &line[..end.unwrap_or(line.len())];
    let may_be =
        METHODS.iter().any(|name| if end.is_some() { *name == method } else { name.starts_with(method) });
    match (may_be, is_whole) {
        (false, _) => Some(false),
        (true, false) => None,
        (true, true) => Some(memchr::memmem::rfind(line, b" HTTP/1.").is_some()),
    }
}

/// The first byte of every request of memcached's binary protocol.
const BINARY_MAGIC: u8 = 0x80;
/// A first line that is longer is taken for RESP, which has its own limits.
pub const UNDECIDED_BYTES_MAX: usize = 8 << 10;
/// More words than any rule counts.
const WORDS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: AllowedProtocols = AllowedProtocols { http: true };

    fn on_main(bytes: &[u8]) -> Option<Protocol> {
        recognise(ListenerKind::Main, ALL, bytes)
    }

    #[test]
    fn first_bytes_tell() {
        use Protocol::{Http, Memcached, MemcachedBinary, Resp};
        let table: &[(&str, Protocol)] = &[
            ("*1\r\n$4\r\nPING\r\n", Resp),
            ("\r\n", Resp),
            ("PING\r\n", Resp),
            ("ping\r\n", Resp),
            ("get k\r\n", Resp),
            ("get a b\r\n", Memcached),
            ("set k v\r\n", Resp),
            ("set k v ex 10\r\n", Resp),
            ("set k 0 0 5\r\nhello\r\n", Memcached),
            ("set k 0 -1 5 noreply\r\n", Memcached),
            ("set k 0 0 5\n", Memcached),
            ("append k v\r\n", Resp),
            ("append k 0 0 1\r\n", Memcached),
            ("incr k\r\n", Resp),
            ("incr k 5\r\n", Memcached),
            ("decr k x\r\n", Resp),
            ("touch k 10\r\n", Resp),
            ("watch fetchers\r\n", Resp),
            ("quit\r\n", Resp),
            ("gets k\r\n", Memcached),
            ("mg ", Memcached),
            ("mn\r\n", Memcached),
            ("mget a b\r\n", Resp),
            ("MG k v\r\n", Resp),
            ("version\r\n", Memcached),
            ("stats items\r\n", Memcached),
            ("GET / HTTP/1.1\r\n", Http),
            ("GET /\r\n", Resp),
            ("GET foo\r\n", Resp),
            ("POST /x HTTP/1.0\r\n", Http),
            ("post / HTTP/1.1\r\n", Resp),
            ("HELLO 3\r\n", Resp),
        ];
        for &(text, protocol) in table {
            assert_eq!(on_main(text.as_bytes()), Some(protocol), "{text:?}");
        }
        for (early, protocol) in
            [("*", Some(Resp)), ("gets k", Some(Memcached)), ("get k", None), ("GET /", None)]
        {
            assert_eq!(on_main(early.as_bytes()), protocol, "{early:?}");
        }
        assert_eq!(on_main(b"\x80\x00\x00\x01"), Some(MemcachedBinary));
        assert_eq!(on_main(b""), None);
    }

    #[test]
    fn a_piece_never_tells_otherwise_than_the_whole() {
        for whole in
            ["set k 0 0 5\r\n", "set k v\r\n", "GET / HTTP/1.1\r\n", "GET k\r\n", "gets k\r\n", "get k\r\n"]
        {
            let told = on_main(whole.as_bytes());
            assert!(told.is_some());
            for len in 1..whole.len() {
                let piece = on_main(&whole.as_bytes()[..len]);
                assert!(piece.is_none() || piece == told, "{whole:?} cut to {len}");
            }
        }
    }

    #[test]
    fn what_never_ends_is_resp() {
        for start in ["get ", "set ", "GET ", "GET"] {
            let mut bytes = start.as_bytes().to_vec();
            bytes.resize(UNDECIDED_BYTES_MAX + 1, b'x');
            assert_eq!(on_main(&bytes), Some(Protocol::Resp), "{start:?}");
        }
    }

    #[test]
    fn listeners_and_settings_tell_too() {
        let http = b"GET / HTTP/1.1\r\n";
        assert_eq!(
            recognise(ListenerKind::Main, AllowedProtocols { http: false }, http),
            Some(Protocol::Resp)
        );
        assert_eq!(recognise(ListenerKind::Memcached, ALL, http), Some(Protocol::Memcached));
        assert_eq!(recognise(ListenerKind::Admin, ALL, http), Some(Protocol::Http));
        assert_eq!(recognise(ListenerKind::Admin, ALL, b"mg k v\r\n"), Some(Protocol::Resp));
        assert_eq!(recognise(ListenerKind::Memcached, ALL, b"get k"), Some(Protocol::Memcached));
        assert_eq!(recognise(ListenerKind::Memcached, ALL, b"\x80"), Some(Protocol::MemcachedBinary));
    }

    #[test]
    fn no_command_of_redis_is_taken_for_memcached() {
        let registry = crate::registry::Registry::build();
        for (name, rest) in VERBS {
            assert_eq!(
                registry.find(name).is_some(),
                !matches!(rest, CommandRest::Any),
                "{}",
                name.escape_ascii()
            );
        }
    }
}

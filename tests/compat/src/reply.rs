//! A reply of either protocol version, kept byte for byte, and its reader.
//!
//! Nothing is interpreted: numbers keep their digits, so that two replies are equal only when their bytes are.

use std::fmt;
use std::io::{self, BufRead, Read};

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// A line: its type byte and its text (`+ - : , # ( _` and the nulls `$-1` and `*-1`).
    Line(u8, Vec<u8>),
    /// A counted text: its type byte (`$ ! =`) and its bytes.
    Text(u8, Vec<u8>),
    /// A counted list of replies: its type byte (`* ~ > % |`); maps are flat.
    List(u8, Vec<Reply>),
}

/// Replies nested deeper than this are refused: no command answers so.
const NESTING_MAX: usize = 64;
/// Longer replies are refused: the grammar asks for nothing near it.
const LENGTH_MAX: usize = 256 << 20;

impl Reply {
    /// Reads one reply.  Errors: `UnexpectedEof` when it is not complete, `InvalidData` when the bytes are no reply.
    pub fn read(from: &mut impl BufRead) -> io::Result<Self> {
        Self::read_nested(from, 0)
    }

    fn read_nested(from: &mut impl BufRead, depth: usize) -> io::Result<Self> {
        let mut line = Vec::new();
        from.take(64 * 1024).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(line) = line.strip_suffix(b"\r\n") else { return Err(malformed(&line)) };
        let Some((kind, rest)) = line.split_first() else { return Err(malformed(line)) };
        match kind {
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => Ok(Self::Line(*kind, rest.to_vec())),
            b'$' | b'*' if rest == b"-1" => Ok(Self::Line(*kind, rest.to_vec())),
            b'$' | b'!' | b'=' => {
                let mut text = vec![0; length(rest).ok_or_else(|| malformed(line))? + 2];
                from.read_exact(&mut text)?;
                if !text.ends_with(b"\r\n") {
                    return Err(malformed(&text));
                }
                text.truncate(text.len() - 2);
                Ok(Self::Text(*kind, text))
            }
            b'*' | b'~' | b'>' | b'%' | b'|' if depth < NESTING_MAX => {
                let pairs = matches!(kind, b'%' | b'|');
                let len = length(rest).ok_or_else(|| malformed(line))? * if pairs { 2 } else { 1 };
                let items: io::Result<Vec<Self>> =
                    (0..len).map(|_| Self::read_nested(from, depth + 1)).collect();
                Ok(Self::List(*kind, items?))
            }
            _ => Err(malformed(line)),
        }
    }

    /// Whether it is an error of either kind.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Line(b'-', _) | Self::Text(b'!', _))
    }

    /// Whether it says that a command was queued by MULTI.
    pub fn is_queued(&self) -> bool {
        matches!(self, Self::Line(b'+', text) if text == b"QUEUED")
    }

    /// The items of a list; `None` for anything else.
    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::List(_, items) => Some(items),
            _ => None,
        }
    }

    /// The bytes of a text or line.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Line(_, bytes) | Self::Text(_, bytes) => Some(bytes),
            Self::List(..) => None,
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Line(b':', digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The type byte.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Line(kind, _) | Self::Text(kind, _) | Self::List(kind, _) => *kind,
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(kind, text) => write!(f, "{}{}", char::from(*kind), text.escape_ascii()),
            Self::Text(kind, text) if text.len() > 400 => {
                write!(f, "{}{} bytes \"{}…\"", char::from(*kind), text.len(), text[..100].escape_ascii())
            }
            Self::Text(kind, text) => write!(f, "{}\"{}\"", char::from(*kind), text.escape_ascii()),
            Self::List(kind, items) => {
                write!(f, "{}[", char::from(*kind))?;
                for (at, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if at == 0 { "" } else { ", " })?;
                }
                write!(f, "]")
            }
        }
    }
}

fn length(digits: &[u8]) -> Option<usize> {
    let len: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (len <= LENGTH_MAX).then_some(len)
}

fn malformed(bytes: &[u8]) -> io::Error {
    let start = &bytes[..bytes.len().min(80)];
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: \"{}\"", start.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> String {
        Reply::read(&mut &bytes[..]).map_or_else(|e| e.to_string(), |r| r.to_string())
    }

    #[test]
    fn every_kind_is_read() {
        assert_eq!(read(b"+OK\r\n"), "+OK");
        assert_eq!(read(b"$-1\r\n"), "$-1");
        assert_eq!(read(b"*2\r\n$3\r\na\r\n\r\n_\r\n"), "*[$\"a\\r\\n\", _]");
        assert_eq!(read(b"%1\r\n+k\r\n,1.5\r\n"), "%[+k, ,1.5]");
        assert_eq!(read(b">2\r\n+a\r\n#t\r\n"), ">[+a, #t]");
    }

    #[test]
    fn bad_bytes_are_refused() {
        assert!(read(b"$3\r\nabcde").contains("not a reply"));
        assert!(read(b"+OK\n").contains("not a reply"));
        assert!(read(b"*99999999999\r\n").contains("not a reply"));
        assert!(Reply::read(&mut &b"*1\r\n".repeat(100)[..]).is_err());
    }
}

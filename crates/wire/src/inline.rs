//! Commands typed as a line of text: words, with quotes and escapes as in a shell.

use darter_base::ascii::is_space;

use crate::args::{OwnedArgs, Span};
use crate::error::ProtocolError;

/// Appends the words of `line` to `spans`, each start raised by `base`, when no word needs unquoting.
///
/// Errors: `None` when there is a quote anywhere, and then `spans` is as before.
pub(crate) fn split_plain(line: &[u8], base: u32, spans: &mut Vec<Span>) -> Option<()> {
    let line = c_string(line);
    if memchr::memchr2(b'"', b'\'', line).is_some() {
        return None;
    }
    let mut at = 0;
    while let Some(start) = next_word(line, at) {
        let rest = line.get(start..)?;
        let len = rest.iter().position(|&b| ends_word(b)).unwrap_or(rest.len());
        // A line is at most `inline_bytes_max` long and lies in a buffer below 4 GiB.
        spans.push(Span::new(start, len).after(base));
        at = start + len;
    }
    Some(())
}

/// The words of `line`, unquoted. Source: Redis sdssplitargs.
pub(crate) fn split_quoted(line: &[u8]) -> Result<OwnedArgs, ProtocolError> {
    let line = c_string(line);
    let mut words = OwnedArgs::default();
    let mut at = 0;
    while let Some(start) = next_word(line, at) {
        at = word(line, start, &mut words)?;
    }
    Ok(words)
}

/// Adds the word at `at` of `line`; returns its end.
fn word(line: &[u8], mut at: usize, words: &mut OwnedArgs) -> Result<usize, ProtocolError> {
    let start = words.begin();
    while let Some(&byte) = line.get(at) {
        at = match byte {
            b'"' => double_quoted(line, at + 1, words)?,
            b'\'' => single_quoted(line, at + 1, words)?,
            _ if ends_word(byte) => break,
            _ => {
                words.add_byte(byte);
                at + 1
            }
        };
        if matches!(byte, b'"' | b'\'') {
            // A closing quote ends its word.
            break;
        }
    }
    words.finish(start);
    Ok(at)
}

fn double_quoted(line: &[u8], mut at: usize, words: &mut OwnedArgs) -> Result<usize, ProtocolError> {
    loop {
        let (byte, width) = match line.get(at..).unwrap_or_default() {
            [b'"', rest @ ..] => return closed(rest, at + 1),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), 4)
            }
            [b'\\', escaped, ..] => (unescape(*escaped), 2),
            [byte, ..] => (*byte, 1),
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
        words.add_byte(byte);
        at += width;
    }
}

fn single_quoted(line: &[u8], mut at: usize, words: &mut OwnedArgs) -> Result<usize, ProtocolError> {
    loop {
        let (byte, width) = match line.get(at..).unwrap_or_default() {
            [b'\\', b'\'', ..] => (b'\'', 2),
            [b'\'', rest @ ..] => return closed(rest, at + 1),
            [byte, ..] => (*byte, 1),
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
        words.add_byte(byte);
        at += width;
    }
}

/// A closing quote must be followed by a space or the end.
fn closed(rest: &[u8], at: usize) -> Result<usize, ProtocolError> {
    match rest.first() {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(at),
    }
}

fn next_word(line: &[u8], at: usize) -> Option<usize> {
    line.get(at..)?.iter().position(|&b| !is_space(b)).map(|skipped| at + skipped)
}

fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Redis reads the line as a C string: bytes after a NUL are ignored.
fn c_string(line: &[u8]) -> &[u8] {
    memchr::memchr(0, line).and_then(|end| line.get(..end)).unwrap_or(line)
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split_quoted(line.as_bytes()).ok()?;
        let mut plain = Vec::new();
        if split_plain(line.as_bytes(), 0, &mut plain).is_some() {
            // If both apply, they agree.
            let quoted: Vec<&[u8]> = words.args().iter().collect();
            let plain: Vec<&[u8]> = plain.iter().filter_map(|s| s.of(line.as_bytes())).collect();
            assert_eq!(plain, quoted);
        }
        Some(words.args().iter().map(|w| String::from_utf8_lossy(w).into_owned()).collect())
    }

    #[test]
    fn lines_split_as_in_redis() {
        for (line, expected) in [
            ("", Some(vec![])),
            ("  \t ", Some(vec![])),
            ("PING", Some(vec!["PING"])),
            (" set  a\tb ", Some(vec!["set", "a", "b"])),
            ("set a \"x y\"", Some(vec!["set", "a", "x y"])),
            ("set a 'x \\'y'", Some(vec!["set", "a", "x 'y"])),
            ("set a \"\\x41\\n\\q\\xzz\"", Some(vec!["set", "a", "A\nqxzz"])),
            ("set a pre\"fix\"", Some(vec!["set", "a", "prefix"])),
            ("set a \"\"", Some(vec!["set", "a", ""])),
            ("set a ''", Some(vec!["set", "a", ""])),
            ("a\\nb", Some(vec!["a\\nb"])),
            ("a\u{b}b", Some(vec!["a\u{b}b"])),
            ("a\0b c", Some(vec!["a"])),
            ("set a \"x\"y", None),
            ("set a 'x'y", None),
            ("set a \"x", None),
            ("set a 'x", None),
            ("set a \"x\\", None),
            ("set a \"x\\\"", None),
        ] {
            let got = words(line);
            assert_eq!(
                got,
                expected.map(|w| w.into_iter().map(String::from).collect::<Vec<_>>()),
                "{line:?}"
            );
        }
    }
}

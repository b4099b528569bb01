//! Lines of configuration files as words, with Redis' quotes.

/// Splits `line` into words. Double quotes know `\n \r \t \b \a \" \\` and `\x41`, single quotes only `\'`; a closing
/// quote ends its word.
///
/// Errors: `None` when a quote is not closed, something follows a closing quote, or a word is not UTF-8.
pub(super) fn split(line: &str) -> Option<Vec<String>> {
    let mut rest = line.as_bytes();
    let mut words = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let (word, after) = take_word(rest)?;
        words.push(String::from_utf8(word).ok()?);
        rest = after;
    }
}

/// `text` as one word of a line: unchanged if that reads back the same, else in double quotes.
pub(super) fn quote(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\'' | '\\' | '#');
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The word at the start of `rest`, which is not blank, and the rest after it.
fn take_word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Some((word, rest)),
            [blank, ..] if blank.is_ascii_whitespace() => return Some((word, rest)),
            [b'"', quoted @ ..] => return take_double(quoted, word),
            [b'\'', quoted @ ..] => return take_single(quoted, word),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn take_double(mut rest: &[u8], mut word: Vec<u8>) -> Option<(Vec<u8>, &[u8])> {
    loop {
        let (byte, after) = match rest {
            [b'"', after @ ..] => return ends_word(after).then_some((word, after)),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), after)
            }
            [b'\\', escaped, after @ ..] => (unescape(*escaped), after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        word.push(byte);
        rest = after;
    }
}

fn take_single(mut rest: &[u8], mut word: Vec<u8>) -> Option<(Vec<u8>, &[u8])> {
    loop {
        let (byte, after) = match rest {
            [b'\'', after @ ..] => return ends_word(after).then_some((word, after)),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        word.push(byte);
        rest = after;
    }
}

fn ends_word(after: &[u8]) -> bool {
    after.first().is_none_or(u8::is_ascii_whitespace)
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

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

//! An answer in words that two servers can be compared by.

use std::collections::HashMap;
use std::fmt;

use super::Op;

/// A piece of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// Must be the same.
    Exact(Vec<u8>),
    /// A number of seconds, by its letter.
    Seconds(u8, i64),
    /// A token: the how manyth of its key.
    Token(usize),
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Exact(bytes) => write!(f, "{}", bytes.escape_ascii()),
            Word::Seconds(letter, seconds) => write!(f, "{}~{seconds}", char::from(*letter)),
            Word::Token(number) => write!(f, "token#{number}"),
        }
    }
}

/// Seconds by which two clocks may differ.
const SECONDS_APART_MAX: i64 = 3;

/// Larger times are negative ones in 32 bits.
const UNDERFLOWN_MIN: i64 = 4_000_000_000;

/// Whether two answers are the same.
pub fn is_same(left: &[Word], right: &[Word]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|pair| match pair {
            // For ever is no time, and no time is not soon.
            (Word::Seconds(a, l), Word::Seconds(b, r)) => {
                a == b && l.is_negative() == r.is_negative() && (l - r).abs() <= SECONDS_APART_MAX
            }
            (left, right) => left == right,
        })
}

/// Where the line `MN` begins that ends the first answer of `inbox`, if that is all there.
pub fn end_of(inbox: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = line_at(inbox, at)?;
        if line == b"MN" {
            return Some(at);
        }
        at += line.len() + 2 + value_len(line).map_or(0, |len| len + 2);
    }
}

fn line_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&rest[..end])
}

/// The length of the value that follows a line.
fn value_len(line: &[u8]) -> Option<usize> {
    let mut words = line.split(|&byte| byte == b' ');
    let word = match words.next()? {
        b"VALUE" => words.nth(2)?,
        b"VA" => words.next()?,
        _ => return None,
    };
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The words of the answer `text` to `op`; tokens that are new are added to those of their key.
pub fn words(op: &Op, text: &[u8], tokens: &mut HashMap<Vec<u8>, Vec<u64>>) -> Vec<Word> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(line) = line_at(text, at) {
        read_line(op, line, tokens, &mut out);
        at += line.len() + 2;
        if let Some(len) = value_len(line) {
            out.push(Word::Exact(text.get(at..at + len).unwrap_or_default().to_vec()));
            at += len + 2;
        }
    }
    if at < text.len() {
        out.push(Word::Exact(text[at..].to_vec()));
    }
    out
}

fn read_line(op: &Op, line: &[u8], tokens: &mut HashMap<Vec<u8>, Vec<u64>>, out: &mut Vec<Word>) {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let is_meta = matches!(words[0], b"HD" | b"VA" | b"NS" | b"EX" | b"NF" | b"EN");
    let mut token = |key: &[u8], value: u64| {
        let seen = tokens.entry(key.to_vec()).or_default();
        let at = seen.iter().position(|&other| other == value).unwrap_or_else(|| {
            seen.push(value);
            seen.len() - 1
        });
        Word::Token(at)
    };
    match words[0] {
        b"VALUE" if words.len() == 5 => {
            out.extend(words[..4].iter().map(|word| Word::Exact(word.to_vec())));
            out.push(number(words[4]).map_or(Word::Exact(words[4].to_vec()), |value| token(words[1], value)));
        }
        // Each has its own memory layout and its own idea of a time of access.
        b"ME" => {
            out.extend(words.iter().filter(|word| !has_prefix(word)).map(|word| Word::Exact(word.to_vec())))
        }
        // 1.6.18 has one text for all wrong flags of these two.
        b"CLIENT_ERROR" if op.has_plain_errors => out.push(Word::Exact(b"CLIENT_ERROR".to_vec())),
        _ if is_meta => {
            for word in &words {
                let (letter, value) = (word.first().copied(), word.get(1..).and_then(signed));
                out.push(match (letter, value) {
                    (Some(b'c'), Some(value @ 1..)) => token(&op.key, value.unsigned_abs()),
                    // what has expired has less than no time left, which memcached prints as a lot
                    (Some(b't'), Some(UNDERFLOWN_MIN..)) => Word::Seconds(b't', 0),
                    (Some(letter @ (b't' | b'l')), Some(value)) => Word::Seconds(letter, value),
                    _ => Word::Exact(word.to_vec()),
                });
            }
        }
        _ => out.push(Word::Exact(line.to_vec())),
    }
}

fn has_prefix(word: &[u8]) -> bool {
    [&b"exp="[..], b"la=", b"cas=", b"cls=", b"size="].iter().any(|prefix| word.starts_with(prefix))
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn signed(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_at_their_own_line() {
        assert_eq!(end_of(b"HD\r\nMN\r\nHD"), Some(4));
        assert_eq!(end_of(b"VA 4 t3\r\nMN\r\n\r\nMN\r\n"), Some(15));
        assert_eq!(end_of(b"VALUE k 0 2\r\nMN\r\nEND\r\nMN"), None);
    }

    #[test]
    fn tokens_count_by_their_key() {
        let op = Op { key: b"k".to_vec(), parts: Vec::new(), counts: false, has_plain_errors: false };
        let mut tokens = HashMap::new();
        let first = words(&op, b"HD c70 t30\r\n", &mut tokens);
        assert_eq!(first, [Word::Exact(b"HD".to_vec()), Word::Token(0), Word::Seconds(b't', 30)]);
        let second = words(&op, b"VALUE k 0 1 71\r\nx\r\nEND\r\n", &mut tokens);
        assert!(second.contains(&Word::Token(1)), "{second:?}");
        assert!(!is_same(&first, &second));
    }
}

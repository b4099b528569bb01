//! The replies of the memcached protocol that are more than one fixed line.

use super::base64;

/// Appends `VALUE <key> <flags> <bytes> [<cas>]`, the value and its line end, as `get` answers.
pub fn write_value(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, value: &[u8]) {
    write_value_line(out, key, flags, cas, value.len());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line before a value of `len` bytes; the value and a line end must follow.
#[inline]
#[expect(clippy::indexing_slicing, reason = "`TAIL_MAX` has room for three of the longest numbers")]
pub fn write_value_line(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, len: usize) {
    // Written from its end, as digits come.
    let (mut tail, mut at) = ([0; TAIL_MAX], TAIL_MAX);
    let mut put = |byte| {
        at -= 1;
        tail[at] = byte;
    };
    put(b'\n');
    put(b'\r');
    let numbers = [cas, Some(len as u64), Some(u64::from(flags))];
    for mut n in numbers.into_iter().flatten() {
        loop {
            put(b'0' + (n % 10) as u8);
            n /= 10;
            if n == 0 {
                break;
            }
        }
        put(b' ');
    }
    // The word, the value that follows, and two lines' ends.
    out.reserve(key.len() + len + TAIL_MAX + 16);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.extend_from_slice(&tail[at..]);
}

/// Three spaces, the longest flags, length and token, and the line's end.
const TAIL_MAX: usize = 3 + 10 + 20 + 20 + 2;

/// Appends a line of `stats`.
pub fn write_stat(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a key in a meta command's answer: plain, or in base64.
pub fn write_key(out: &mut Vec<u8>, key: &[u8], base64: bool) {
    if base64 { base64::encode(out, key) } else { out.extend_from_slice(key) }
}

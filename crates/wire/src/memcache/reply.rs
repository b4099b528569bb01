//! The replies of the memcached protocol that are more than one fixed line.

use darter_base::number;

use super::base64;

/// Appends `VALUE <key> <flags> <bytes> [<cas>]`, the value and its line end, as `get` answers.
pub fn write_value(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, value: &[u8]) {
    write_value_line(out, key, flags, cas, value.len());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line before a value of `len` bytes; the value and a line end are to follow.
#[inline]
pub fn write_value_line(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, len: usize) {
    // the longest numbers, the words between them, and the value that follows
    out.reserve(key.len() + len + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number::write_u64(out, u64::from(flags));
    out.push(b' ');
    number::write_u64(out, len as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        number::write_u64(out, cas);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a line of `stats`.
pub fn write_stat(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a key as meta commands answer it: as it is, or in base64.
pub fn write_key(out: &mut Vec<u8>, key: &[u8], base64: bool) {
    if base64 { base64::encode(out, key) } else { out.extend_from_slice(key) }
}

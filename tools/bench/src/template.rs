//! A request as fixed bytes with slots that each operation fills in: a number from the picked key, or bytes of a pool.
//!
//! Building a request is one copy and a few digits, so that the client stays far cheaper than the server.

use crate::keys::mix;
use crate::replies::Protocol;

/// One argument of a request.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes that never change.
    Fixed(Vec<u8>),
    /// `prefix`, then a decimal number of `width` digits: `base + stride * (pick / group)`.
    Number {
        /// Bytes before the digits.
        prefix: &'static str,
        /// Digits, padded with zeros.
        width: usize,
        /// Added to the number.
        base: u64,
        /// Distance between the numbers of two neighbouring picks.
        stride: u64,
        /// Picks that share a number.
        group: u64,
        /// False: the pick of the part before this one is used again.
        fresh: bool,
    },
    /// `len` letters and digits that are a function of the pick.
    Text {
        /// Their number.
        len: usize,
        /// False: the pick of the part before this one is used again.
        fresh: bool,
    },
    /// So many bytes from the pool, from a place that follows from the pick.
    Value(usize),
}

impl Part {
    /// A 16-byte key: a prefix of four bytes and twelve digits.
    pub fn key(prefix: &'static str) -> Self {
        Self::Number { prefix, width: 12, base: 0, stride: 1, group: 1, fresh: true }
    }

    /// A number of eight digits without leading zeros, scattered over its range; up to a million of them.
    pub fn id8(fresh: bool) -> Self {
        Self::Number { prefix: "", width: 8, base: 10_000_000, stride: 83, group: 1, fresh }
    }

    /// A number of ten digits without leading zeros.
    pub fn number10(fresh: bool) -> Self {
        Self::Number { prefix: "", width: 10, base: 1_700_000_000, stride: 1, group: 1, fresh }
    }

    fn len(&self) -> usize {
        match self {
            Self::Fixed(bytes) => bytes.len(),
            Self::Number { prefix, width, .. } => prefix.len() + width,
            Self::Text { len, .. } | Self::Value(len) => *len,
        }
    }
}

#[derive(Clone, Debug)]
struct Slot {
    offset: usize,
    part: Part,
}

/// A request with its slots.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl Template {
    /// A RESP request of these arguments, the command's name first.
    pub fn resp(parts: &[Part]) -> Self {
        let mut template = Self { bytes: format!("*{}\r\n", parts.len()).into_bytes(), slots: Vec::new() };
        for part in parts {
            template.bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            template.append(part);
            template.bytes.extend_from_slice(b"\r\n");
        }
        template
    }

    /// Parts one after the other with nothing between them, for memcached text.
    pub fn plain(parts: &[Part]) -> Self {
        let mut template = Self { bytes: Vec::new(), slots: Vec::new() };
        parts.iter().for_each(|part| template.append(part));
        template
    }

    /// A GET of a 16-byte key.
    pub fn get(protocol: Protocol, prefix: &'static str) -> Self {
        match protocol {
            Protocol::Resp => Self::resp(&[fixed("GET"), Part::key(prefix)]),
            Protocol::Memcached => Self::plain(&[fixed("get "), Part::key(prefix), fixed("\r\n")]),
        }
    }

    /// A SET of a 16-byte key to `value_bytes` bytes of the pool.
    pub fn set(protocol: Protocol, prefix: &'static str, value_bytes: usize) -> Self {
        let value = Part::Value(value_bytes);
        match protocol {
            Protocol::Resp => Self::resp(&[fixed("SET"), Part::key(prefix), value]),
            Protocol::Memcached => {
                let head = format!(" 0 0 {value_bytes}\r\n");
                Self::plain(&[fixed("set "), Part::key(prefix), fixed(&head), value, fixed("\r\n")])
            }
        }
    }

    /// An UNLINK of a 16-byte key.
    pub fn unlink(prefix: &'static str) -> Self {
        Self::resp(&[fixed("UNLINK"), Part::key(prefix)])
    }

    /// Bytes of one request; the same for every pick.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a request to `out`; `pick` is asked for each fresh number.
    pub fn write(&self, out: &mut Vec<u8>, pool: &Pool, mut pick: impl FnMut() -> u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let request = &mut out[start..];
        let mut current = 0;
        for Slot { offset, part } in &self.slots {
            match part {
                Part::Number { prefix, width, base, stride, group, fresh } => {
                    if *fresh {
                        current = pick();
                    }
                    let first = offset + prefix.len();
                    write_digits(&mut request[first..first + width], base + stride * (current / group));
                }
                Part::Text { len, fresh } => {
                    if *fresh {
                        current = pick();
                    }
                    write_text(&mut request[*offset..offset + len], current);
                }
                Part::Value(len) => pool.copy_to(&mut request[*offset..offset + len], current),
                Part::Fixed(_) => {}
            }
        }
    }

    fn append(&mut self, part: &Part) {
        let offset = self.bytes.len();
        match part {
            Part::Fixed(bytes) => self.bytes.extend_from_slice(bytes),
            Part::Number { prefix, width, .. } => {
                self.bytes.extend_from_slice(prefix.as_bytes());
                self.bytes.resize(self.bytes.len() + width, b'0');
                self.slots.push(Slot { offset, part: part.clone() });
            }
            Part::Text { len, .. } | Part::Value(len) => {
                self.bytes.resize(self.bytes.len() + len, b'x');
                self.slots.push(Slot { offset, part: part.clone() });
            }
        }
    }
}

/// A fixed argument.
pub fn fixed(text: &str) -> Part {
    Part::Fixed(text.as_bytes().to_vec())
}

/// A MiB of bytes that values are cut from, so that no two values are alike and none costs a generator call.
#[derive(Clone, Debug)]
pub struct Pool(Vec<u8>);

/// What values are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// Any byte.
    Binary,
    /// Letters, digits and blanks.
    Ascii,
}

impl Pool {
    /// The pool for a filling; the same bytes in every run.
    pub fn new(filling: Filling) -> Self {
        let mut bytes: Vec<u8> =
            (0..POOL_BYTES as u64 / 8).flat_map(|word| mix(word + 1).to_le_bytes()).collect();
        if filling == Filling::Ascii {
            for byte in &mut bytes {
                *byte = LETTERS[usize::from(*byte) % LETTERS.len()];
            }
        }
        Self(bytes)
    }

    fn copy_to(&self, target: &mut [u8], pick: u64) {
        let room = self.0.len().saturating_sub(target.len()) as u64;
        let from = if room == 0 { 0 } else { (mix(pick) % room) as usize };
        target.copy_from_slice(&self.0[from..from + target.len()]);
    }
}

const POOL_BYTES: usize = 1 << 20;
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -";

/// Values longer than this do not fit the pool.
pub const VALUE_BYTES_MAX: usize = POOL_BYTES - 1;

fn write_digits(target: &mut [u8], mut number: u64) {
    for digit in target.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn write_text(target: &mut [u8], pick: u64) {
    let mut bits = mix(pick.wrapping_add(99));
    for (at, byte) in target.iter_mut().enumerate() {
        if at % 10 == 9 {
            bits = mix(bits ^ pick);
        }
        *byte = LETTERS[(bits & 63) as usize];
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(template: &Template, picks: &[u64]) -> String {
        let mut out = Vec::new();
        let mut picks = picks.iter();
        template.write(&mut out, &Pool::new(Filling::Ascii), || *picks.next().unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn get_is_a_resp_request() {
        let text = text_of(&Template::get(Protocol::Resp, "key:"), &[42]);
        assert_eq!(text, "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n");
    }

    #[test]
    fn memcached_set_says_its_length() {
        let text = text_of(&Template::set(Protocol::Memcached, "key:", 5), &[1]);
        assert!(text.starts_with("set key:000000000001 0 0 5\r\n"), "{text}");
        assert_eq!(text.len(), "set key:000000000001 0 0 5\r\n".len() + 7);
    }

    #[test]
    fn a_repeated_number_keeps_its_pick() {
        let template = Template::resp(&[fixed("ZADD"), Part::number10(true), Part::id8(false)]);
        let text = text_of(&template, &[7]);
        assert!(text.contains("1700000007") && text.contains("10000581"), "{text}");
    }
}

//! CBOR as Redis 8 saves documents: maps, arrays, texts, numbers, and arrays of one kind of number after RFC 8746.
//!
//! Read into JSON text, which the parser takes like any other. The input is not trusted: lengths are compared with
//! the remaining bytes before they are used.

use crate::DEPTH_MAX;
use crate::precision::Precision;
use crate::print::{write_float, write_string};

/// The bytes are no document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotCbor;

/// Numbers of 16 bits with the exponents of 32: a number that RFC 8746 does not have.
const BF16: u64 = 0x10000;

/// The JSON text of a document.
///
/// Errors: the bytes are not such a document, continue after it, or are too deep.
pub fn to_json(bytes: &[u8]) -> Result<Vec<u8>, NotCbor> {
    let mut reader = Reader { bytes, out: Vec::new() };
    reader.value(0)?;
    if reader.bytes.is_empty() { Ok(reader.out) } else { Err(NotCbor) }
}

struct Reader<'a> {
    bytes: &'a [u8],
    out: Vec<u8>,
}

/// The length in a head.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Known(u64),
    /// Up to a break.
    Open,
}

const BREAK: u8 = 0xff;
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], NotCbor> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(NotCbor)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], NotCbor> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(NotCbor)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, NotCbor> {
        self.number::<1>().map(|[byte]| byte)
    }

    fn length(&mut self, low: u8) -> Result<Length, NotCbor> {
        Ok(Length::Known(match low {
            0..=23 => u64::from(low),
            24 => u64::from(self.byte()?),
            25 => u64::from(u16::from_be_bytes(self.number()?)),
            26 => u64::from(u32::from_be_bytes(self.number()?)),
            27 => u64::from_be_bytes(self.number()?),
            31 => return Ok(Length::Open),
            _ => return Err(NotCbor),
        }))
    }

    /// Returns true if `nth` is behind the last part; passes a break.
    fn is_end(&mut self, nth: u64, length: Length) -> Result<bool, NotCbor> {
        match length {
            Length::Known(length) => Ok(nth >= length),
            Length::Open if self.bytes.first() == Some(&BREAK) => self.byte().map(|_| true),
            Length::Open => Ok(false),
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), NotCbor> {
        if depth > DEPTH_MAX {
            return Err(NotCbor);
        }
        let head = self.byte()?;
        let (kind, low) = (head >> 5, head & 0x1f);
        if kind == 7 {
            return self.simple(low);
        }
        let length = self.length(low)?;
        match (kind, length) {
            (UNSIGNED, Length::Known(number)) => self.out.extend(number.to_string().into_bytes()),
            (NEGATIVE, Length::Known(number)) => {
                let number = i64::try_from(number).map_err(|_| NotCbor)?;
                self.out.extend((-1 - number).to_string().into_bytes());
            }
            (TEXT, length) => self.text(length)?,
            (ARRAY, length) => {
                self.out.push(b'[');
                let mut nth = 0;
                while !self.is_end(nth, length)? {
                    self.comma(nth);
                    self.value(depth + 1)?;
                    nth += 1;
                }
                self.out.push(b']');
            }
            (MAP, length) => {
                self.out.push(b'{');
                let mut nth = 0;
                while !self.is_end(nth, length)? {
                    self.comma(nth);
                    let head = self.byte()?;
                    let length = self.length(head & 0x1f)?;
                    if head >> 5 != TEXT {
                        return Err(NotCbor);
                    }
                    self.text(length)?;
                    self.out.push(b':');
                    self.value(depth + 1)?;
                    nth += 1;
                }
                self.out.push(b'}');
            }
            (TAG, Length::Known(tag)) => self.numbers(tag)?,
            _ => return Err(NotCbor),
        }
        Ok(())
    }

    fn comma(&mut self, nth: u64) {
        if nth > 0 {
            self.out.push(b',');
        }
    }

    fn text(&mut self, length: Length) -> Result<(), NotCbor> {
        let Length::Known(len) = length else { return Err(NotCbor) };
        let text = self.take(usize::try_from(len).map_err(|_| NotCbor)?)?;
        let text = std::str::from_utf8(text).map_err(|_| NotCbor)?;
        write_string(text.as_bytes(), &mut self.out);
        Ok(())
    }

    fn simple(&mut self, low: u8) -> Result<(), NotCbor> {
        let value = match low {
            20 => {
                self.out.extend_from_slice(b"false");
                return Ok(());
            }
            21 => {
                self.out.extend_from_slice(b"true");
                return Ok(());
            }
            // A value that is not a number is null, as in RedisJSON.
            22 | 23 => f64::NAN,
            25 => of_half(u16::from_be_bytes(self.number()?)),
            26 => f64::from(f32::from_be_bytes(self.number()?)),
            27 => f64::from_be_bytes(self.number()?),
            _ => return Err(NotCbor),
        };
        write_float(value, &mut self.out);
        Ok(())
    }

    /// An array of numbers of one kind.
    fn numbers(&mut self, tag: u64) -> Result<(), NotCbor> {
        let head = self.byte()?;
        let (BYTES, Length::Known(len)) = (head >> 5, self.length(head & 0x1f)?) else { return Err(NotCbor) };
        let bytes = self.take(usize::try_from(len).map_err(|_| NotCbor)?)?;
        match tag {
            64 | 68 => self.list(bytes, |out, [byte]: [u8; 1]| out.extend(byte.to_string().into_bytes())),
            72 => self.integers(bytes, |byte: [u8; 1]| i128::from(i8::from_le_bytes(byte))),
            69 => self.integers(bytes, |two| i128::from(u16::from_le_bytes(two))),
            77 => self.integers(bytes, |two| i128::from(i16::from_le_bytes(two))),
            70 => self.integers(bytes, |four| i128::from(u32::from_le_bytes(four))),
            78 => self.integers(bytes, |four| i128::from(i32::from_le_bytes(four))),
            71 => self.integers(bytes, |eight| i128::from(u64::from_le_bytes(eight))),
            79 => self.integers(bytes, |eight| i128::from(i64::from_le_bytes(eight))),
            84 => self.floats(bytes, b"FP16", |two| of_half(u16::from_le_bytes(two))),
            85 => self.floats(bytes, b"FP32", |four| f64::from(f32::from_le_bytes(four))),
            86 => self.floats(bytes, b"FP64", f64::from_le_bytes),
            BF16 => self.floats(bytes, b"BF16", |two: [u8; 2]| {
                f64::from(f32::from_bits(u32::from(u16::from_le_bytes(two)) << 16))
            }),
            _ => Err(NotCbor),
        }
    }

    fn list<const N: usize>(
        &mut self,
        bytes: &[u8],
        mut write: impl FnMut(&mut Vec<u8>, [u8; N]),
    ) -> Result<(), NotCbor> {
        let (items, []) = bytes.as_chunks::<N>() else { return Err(NotCbor) };
        self.out.push(b'[');
        for (nth, item) in items.iter().enumerate() {
            self.comma(nth as u64);
            write(&mut self.out, *item);
        }
        self.out.push(b']');
        Ok(())
    }

    fn integers<const N: usize>(
        &mut self,
        bytes: &[u8],
        of: impl Fn([u8; N]) -> i128,
    ) -> Result<(), NotCbor> {
        self.list(bytes, |out, item| out.extend(of(item).to_string().into_bytes()))
    }

    /// Floats with the fewest digits that mean the same in their precision.
    fn floats<const N: usize>(
        &mut self,
        bytes: &[u8],
        precision: &[u8],
        of: impl Fn([u8; N]) -> f64,
    ) -> Result<(), NotCbor> {
        let precision = Precision::named(precision).ok_or(NotCbor)?;
        self.list(bytes, |out, item| {
            let value = of(item);
            let shortest = if value.is_finite() { precision.shortest(value) } else { None };
            write_float(shortest.unwrap_or(f64::NAN), out);
        })
    }
}

/// A float of 16 bits.
fn of_half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(bytes: &[u8]) -> Option<String> {
        to_json(bytes).ok().map(|text| String::from_utf8(text).expect("UTF-8"))
    }

    #[test]
    fn documents_of_redis_8_are_read() {
        for (bytes, text) in [
            (&b"\xf6"[..], "null"),
            (b"\x18\x2a", "42"),
            (b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", "-9223372036854775808"),
            (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
            (b"\xf9\x3e\x00", "1.5"),
            (b"\xf9\x3c\x00", "1.0"),
            (b"\xfb\x7f\xf0\x00\x00\x00\x00\x00\x00", "null"),
            (b"\xa2\x61a\x83\xf5\xf4\xf6\x62b\"\x80", "{\"a\":[true,false,null],\"b\\\"\":[]}"),
            (b"\x9f\x01\x02\xff", "[1,2]"),
            (b"\xd8\x54\x44\x00\x3c\x66\x2e", "[1.0,0.1]"),
            (b"\xda\x00\x01\x00\x00\x44\x80\x3f\xcd\x3d", "[1.0,0.1]"),
            (b"\xd8\x55\x44\xcd\xcc\xcc\x3d", "[0.1]"),
            (b"\xd8\x48\x42\xff\x05", "[-1,5]"),
            (b"\xd8\x47\x48\xff\xff\xff\xff\xff\xff\xff\xff", "[18446744073709551615]"),
        ] {
            assert_eq!(json(bytes).as_deref(), Some(text), "{}", bytes.escape_ascii());
            crate::parse(text.as_bytes()).expect("JSON");
        }
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let deep = [b"\x81".repeat(200), b"\x01".to_vec()].concat();
        for bytes in [
            &b""[..],
            b"\x01\x01",
            b"\x61",
            b"\x62\xff\xfe",
            b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x7b\xff\xff\xff\xff\xff\xff\xff\xffa",
            b"\xa1\x01\x01",
            b"\x42ab",
            b"\xd8\x55\x43abc",
            b"\xd8\x20\x41a",
            b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x1c",
            &deep,
        ] {
            assert_eq!(json(bytes), None, "{}", bytes.escape_ascii());
        }
    }
}

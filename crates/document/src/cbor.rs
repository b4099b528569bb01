//! CBOR as Redis 8 saves documents: maps, arrays, texts, numbers, and arrays of one kind of number after RFC 8746.
//!
//! Read into JSON text, which the parser takes like any other, and the precision of its arrays of floats. The input is
//! not trusted: lengths are compared with the remaining bytes before they are used.

use crate::form::FormView;
use crate::precision::{self, Precision, document_in, of_half};
use crate::print::{write_float, write_string};
use crate::{DEPTH_MAX, DocNode, parse};

/// The bytes are no document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotCbor;

/// Numbers of 16 bits with the exponents of 32: a number that RFC 8746 does not have.
const BF16: u64 = 0x10000;

/// The bytes of a document, as [`parse`] makes them.
///
/// Errors: the input is not such a document, continues after it, or is too deep.
pub fn read(bytes: &[u8]) -> Result<Vec<u8>, NotCbor> {
    let (text, precisions) = to_json(bytes)?;
    let bytes = parse(&text).map_err(|_| NotCbor)?;
    if precisions.iter().all(Option::is_none) {
        return Ok(bytes);
    }
    let mut precisions = precisions.into_iter();
    document_in(&bytes, &mut || precisions.next().flatten()).map_err(|_| NotCbor)
}

/// The JSON text of a document, and for each of its arrays of floats the precision, if it is below 64 bits.
fn to_json(bytes: &[u8]) -> Result<(Vec<u8>, Vec<Option<Precision>>), NotCbor> {
    let mut reader = CborReader { bytes, out: Vec::new(), precisions: Vec::new() };
    reader.value(0)?;
    if reader.bytes.is_empty() { Ok((reader.out, reader.precisions)) } else { Err(NotCbor) }
}

/// Appends the CBOR of `node` if an array in it has floats of less than 64 bits; returns whether it did.
pub fn write(node: DocNode<'_>, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    let is_typed = write_node(node, out);
    if !is_typed {
        out.truncate(before);
    }
    is_typed
}

/// Appends a node; returns true if there is an array with such floats in it.
fn write_node(node: DocNode<'_>, out: &mut Vec<u8>) -> bool {
    let mut is_typed = false;
    match node.view() {
        FormView::Null => out.push(SIMPLE << 5 | 22),
        FormView::Bool(value) => out.push(SIMPLE << 5 | if value { 21 } else { 20 }),
        FormView::Int(value) if value < 0 => write_head(out, NEGATIVE, (-1 - value).cast_unsigned()),
        FormView::Int(value) => write_head(out, UNSIGNED, value.cast_unsigned()),
        FormView::Uint(value) => write_head(out, UNSIGNED, value),
        FormView::Float(value) => {
            out.push(SIMPLE << 5 | 27);
            out.extend_from_slice(&value.to_be_bytes());
        }
        FormView::Text(text) => write_text(out, text),
        FormView::Array(count) => {
            if let Some(precision) = precision::of_array(node) {
                write_floats(node, precision, count, out);
                return true;
            }
            write_head(out, ARRAY, count as u64);
            node.items().for_each(|item| is_typed |= write_node(item, out));
        }
        FormView::Object(count) => {
            write_head(out, MAP, count as u64);
            for (name, value) in node.members() {
                write_text(out, name);
                is_typed |= write_node(value, out);
            }
        }
    }
    is_typed
}

/// Appends an array whose items are all floats of `precision`.
fn write_floats(node: DocNode<'_>, precision: Precision, count: usize, out: &mut Vec<u8>) {
    let tag = match precision {
        Precision::Half => 84,
        Precision::Single => 85,
        Precision::Double => 86,
        Precision::Brain => BF16,
    };
    write_head(out, TAG, tag);
    write_head(out, BYTES, (count * precision.width()) as u64);
    // A node is its tag and the bytes of the float.
    node.items().for_each(|item| out.extend_from_slice(item.bytes().get(1..).unwrap_or_default()));
}

fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    write_head(out, TEXT, text.len() as u64);
    out.extend_from_slice(text);
}

/// Appends the head of a value of sort `kind` with a number in as few bytes as it needs.
fn write_head(out: &mut Vec<u8>, kind: u8, number: u64) {
    let bytes = number.to_be_bytes();
    let (low, width) = match number {
        0..=23 => (number as u8, 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    out.push(kind << 5 | low);
    out.extend_from_slice(bytes.get(8 - width..).unwrap_or_default());
}

struct CborReader<'a> {
    bytes: &'a [u8],
    out: Vec<u8>,
    // Of each array of floats so far.
    precisions: Vec<Option<Precision>>,
}

/// The length in a head.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CborLength {
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
const SIMPLE: u8 = 7;

impl<'a> CborReader<'a> {
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

    fn length(&mut self, low: u8) -> Result<CborLength, NotCbor> {
        Ok(CborLength::Known(match low {
            0..=23 => u64::from(low),
            24 => u64::from(self.byte()?),
            25 => u64::from(u16::from_be_bytes(self.number()?)),
            26 => u64::from(u32::from_be_bytes(self.number()?)),
            27 => u64::from_be_bytes(self.number()?),
            31 => return Ok(CborLength::Open),
            _ => return Err(NotCbor),
        }))
    }

    /// Returns true if `nth` is behind the last part; passes a break.
    fn is_end(&mut self, nth: u64, length: CborLength) -> Result<bool, NotCbor> {
        match length {
            CborLength::Known(length) => Ok(nth >= length),
            CborLength::Open if self.bytes.first() == Some(&BREAK) => self.byte().map(|_| true),
            CborLength::Open => Ok(false),
        }
    }

    /// Reads a value; returns true if it is a float.
    fn value(&mut self, depth: usize) -> Result<bool, NotCbor> {
        if depth > DEPTH_MAX {
            return Err(NotCbor);
        }
        let head = self.byte()?;
        let (kind, low) = (head >> 5, head & 0x1f);
        if kind == SIMPLE {
            return self.simple(low);
        }
        let length = self.length(low)?;
        match (kind, length) {
            (UNSIGNED, CborLength::Known(number)) => self.out.extend(number.to_string().into_bytes()),
            (NEGATIVE, CborLength::Known(number)) => {
                let number = i64::try_from(number).map_err(|_| NotCbor)?;
                self.out.extend((-1 - number).to_string().into_bytes());
            }
            (TEXT, length) => self.text(length)?,
            (ARRAY, length) => {
                self.out.push(b'[');
                let (mut nth, mut are_floats) = (0, true);
                let place = self.precisions.len();
                while !self.is_end(nth, length)? {
                    self.comma(nth);
                    are_floats &= self.value(depth + 1)?;
                    nth += 1;
                }
                if are_floats && nth > 0 {
                    self.precisions.insert(place, None);
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
            (TAG, CborLength::Known(tag)) => self.numbers(tag)?,
            _ => return Err(NotCbor),
        }
        Ok(false)
    }

    fn comma(&mut self, nth: u64) {
        if nth > 0 {
            self.out.push(b',');
        }
    }

    fn text(&mut self, length: CborLength) -> Result<(), NotCbor> {
        let CborLength::Known(len) = length else { return Err(NotCbor) };
        let text = self.take(usize::try_from(len).map_err(|_| NotCbor)?)?;
        let text = std::str::from_utf8(text).map_err(|_| NotCbor)?;
        write_string(text.as_bytes(), &mut self.out);
        Ok(())
    }

    fn simple(&mut self, low: u8) -> Result<bool, NotCbor> {
        let value = match low {
            20 => {
                self.out.extend_from_slice(b"false");
                return Ok(false);
            }
            21 => {
                self.out.extend_from_slice(b"true");
                return Ok(false);
            }
            // A value that is not a number is null, as in RedisJSON.
            22 | 23 => f64::NAN,
            25 => of_half(u16::from_be_bytes(self.number()?)),
            26 => f64::from(f32::from_be_bytes(self.number()?)),
            27 => f64::from_be_bytes(self.number()?),
            _ => return Err(NotCbor),
        };
        write_float(value, &mut self.out);
        Ok(value.is_finite())
    }

    /// An array of numbers of one kind.
    fn numbers(&mut self, tag: u64) -> Result<(), NotCbor> {
        let head = self.byte()?;
        let (BYTES, CborLength::Known(len)) = (head >> 5, self.length(head & 0x1f)?) else {
            return Err(NotCbor);
        };
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
            84 => self.floats::<2>(bytes, Precision::Half),
            85 => self.floats::<4>(bytes, Precision::Single),
            86 => self.floats::<8>(bytes, Precision::Double),
            BF16 => self.floats::<2>(bytes, Precision::Brain),
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

    /// An array of floats, each with the fewest digits that mean the same in their precision.
    fn floats<const N: usize>(&mut self, bytes: &[u8], precision: Precision) -> Result<(), NotCbor> {
        let mut are_numbers = !bytes.is_empty();
        self.list(bytes, |out, item: [u8; N]| {
            let value = precision.read(&item);
            are_numbers &= value.is_finite();
            write_float(precision.shortest(value), out);
        })?;
        if are_numbers {
            self.precisions.push(Some(precision).filter(|precision| *precision != Precision::Double));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(bytes: &[u8]) -> Option<String> {
        to_json(bytes).ok().map(|(text, _)| String::from_utf8(text).expect("UTF-8"))
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
    fn arrays_of_short_floats_come_back() {
        let text = br#"{"a":[0.1,0.2],"b":[[1.5],[1,2.5],[-0.0,7e-8]],"c":[1,-300,null,true,"x",18446744073709551615]}"#;
        for name in [&b"FP16"[..], b"BF16", b"FP32"] {
            let precision = Precision::named(name).expect("a format");
            let bytes = precision::parse_in(text, precision).expect("fits");
            let mut cbor = Vec::new();
            assert!(write(crate::Doc::new(&bytes).root(), &mut cbor));
            assert_eq!(read(&cbor).as_ref(), Ok(&bytes), "{name:?}");
        }
        let mut cbor = Vec::new();
        assert!(!write(crate::Doc::new(&parse(text).expect("JSON")).root(), &mut cbor));
        assert!(cbor.is_empty());
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

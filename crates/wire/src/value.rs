//! The reply side of RESP as a client reads it: RESP2 and RESP3 into one tree of values.
//!
//! Called by the Lua bridge, the console, the bench and the tests. Depth and sizes are limited, and no count that the
//! bytes claim reserves memory before as many bytes are there.

use darter_base::number;

use crate::reply::Reply;

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A status line, such as `OK`.
    Status(Vec<u8>),
    /// An error, its code first.
    Error(Vec<u8>),
    /// An integer.
    Int(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// No value: RESP3's null and RESP2's null string.
    Null,
    /// RESP2's null array.
    NullArray,
    /// An array.
    Array(Vec<Value>),
    /// Keys and values in order.
    Map(Vec<(Value, Value)>),
    /// A set, in the order sent.
    Set(Vec<Value>),
    /// A message that answers no command.
    Push(Vec<Value>),
    /// A value with attributes in front.
    Attributed(Vec<(Value, Value)>, Box<Value>),
    /// A double.
    Double(f64),
    /// A whole number of any size, as its digits.
    BigNumber(Vec<u8>),
    /// True or false.
    Boolean(bool),
    /// Text with a format of three letters.
    Verbatim([u8; 3], Vec<u8>),
}

/// Limits of a reply.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Deepest nesting of arrays; at most 256 is used.
    pub depth_max: usize,
    /// Elements of all arrays of one reply together; a map's keys and values count one each.
    pub elements_max: usize,
    /// Longest string, in bytes.
    pub bulk_bytes_max: u64,
    /// Longest line, in bytes.
    pub line_bytes_max: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { depth_max: 64, elements_max: 1 << 26, bulk_bytes_max: 512 << 20, line_bytes_max: 1 << 20 }
    }
}

/// Why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// An element starts with a byte that no type has.
    UnknownType(u8),
    /// A number, length, boolean or line end is not what its type asks for.
    Malformed,
    /// Arrays lie too deep.
    TooDeep,
    /// Too many elements, or a string or line too long.
    TooLong,
}

/// Reads one reply from the start of `buf`; returns it and its length, or `None` when it is not complete.
///
/// Cost: O(bytes); each call starts from the beginning, so it does not suit replies of many MB in small pieces.
pub fn decode(buf: &[u8], limits: &DecodeLimits) -> Result<Option<(Value, usize)>, DecodeError> {
    let mut reader = ValueReader { buf, at: 0, elements_left: limits.elements_max, limits };
    match reader.value(limits.depth_max.min(DEPTH_MAX)) {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(ValueStop::Incomplete) => Ok(None),
        Err(ValueStop::Error(error)) => Err(error),
    }
}

impl Value {
    /// Writes the value as a reply, in RESP2 with its RESP2 form.
    pub fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Value::Status(text) => reply.status(text),
            Value::Error(text) => reply.error(text),
            Value::Int(value) => reply.int(*value),
            Value::Bulk(bytes) => reply.bulk(bytes),
            Value::Null => reply.null(),
            Value::NullArray => reply.null_array(),
            Value::Array(items) => {
                reply.array(items.len());
                items.iter().for_each(|item| item.write(reply));
            }
            Value::Map(pairs) => {
                reply.map(pairs.len());
                write_pairs(pairs, reply);
            }
            Value::Set(items) => {
                reply.set(items.len());
                items.iter().for_each(|item| item.write(reply));
            }
            Value::Push(items) => {
                reply.push(items.len());
                items.iter().for_each(|item| item.write(reply));
            }
            Value::Attributed(pairs, value) => {
                if reply.attribute(pairs.len()) {
                    write_pairs(pairs, reply);
                }
                value.write(reply);
            }
            Value::Double(value) => reply.double(*value),
            Value::BigNumber(digits) => reply.big_number(digits),
            Value::Boolean(value) => reply.boolean(*value),
            Value::Verbatim(format, text) => reply.verbatim(*format, text),
        }
    }

    /// The bytes of a status, error, string or verbatim text.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Status(b) | Value::Error(b) | Value::Bulk(b) | Value::Verbatim(_, b) => Some(b),
            _ => None,
        }
    }
}

fn write_pairs(pairs: &[(Value, Value)], reply: &mut Reply<'_>) {
    for (key, value) in pairs {
        key.write(reply);
        value.write(reply);
    }
}

struct ValueReader<'a> {
    buf: &'a [u8],
    // at <= buf.len()
    at: usize,
    elements_left: usize,
    limits: &'a DecodeLimits,
}

enum ValueStop {
    Incomplete,
    Error(DecodeError),
}

impl<'a> ValueReader<'a> {
    /// Recursive, `depth_left` deep at most.
    fn value(&mut self, depth_left: usize) -> Result<Value, ValueStop> {
        let &kind = self.buf.get(self.at).ok_or(ValueStop::Incomplete)?;
        self.at += 1;
        let value = match kind {
            b'+' => Value::Status(self.line()?.to_vec()),
            b'-' => Value::Error(self.line()?.to_vec()),
            b':' => Value::Int(number::parse_i64(self.unsigned_line()?).ok_or(MALFORMED)?),
            b'$' => self.string()?.map_or(Value::Null, |bytes| Value::Bulk(bytes.to_vec())),
            b'!' => Value::Error(self.string()?.ok_or(MALFORMED)?.to_vec()),
            b'=' => match self.string()?.ok_or(MALFORMED)? {
                [a, b, c, b':', text @ ..] => Value::Verbatim([*a, *b, *c], text.to_vec()),
                _ => return Err(MALFORMED),
            },
            b'_' => match self.line()? {
                [] => Value::Null,
                _ => return Err(MALFORMED),
            },
            b'#' => match self.line()? {
                b"t" => Value::Boolean(true),
                b"f" => Value::Boolean(false),
                _ => return Err(MALFORMED),
            },
            b',' => Value::Double(parse_double(self.line()?).ok_or(MALFORMED)?),
            b'(' => Value::BigNumber(self.big_number()?),
            b'*' => match self.count(1)? {
                Some(len) => Value::Array(self.items(len, depth_left)?),
                None => Value::NullArray,
            },
            b'~' => Value::Set(self.counted_items(depth_left)?),
            b'>' => Value::Push(self.counted_items(depth_left)?),
            b'%' => Value::Map(self.pairs(depth_left)?),
            b'|' => {
                let pairs = self.pairs(depth_left)?;
                let depth_left = depth_left.checked_sub(1).ok_or(ValueStop::Error(DecodeError::TooDeep))?;
                Value::Attributed(pairs, Box::new(self.value(depth_left)?))
            }
            other => return Err(ValueStop::Error(DecodeError::UnknownType(other))),
        };
        Ok(value)
    }

    fn counted_items(&mut self, depth_left: usize) -> Result<Vec<Value>, ValueStop> {
        let len = self.count(1)?.ok_or(MALFORMED)?;
        self.items(len, depth_left)
    }

    fn items(&mut self, len: usize, depth_left: usize) -> Result<Vec<Value>, ValueStop> {
        let depth_left = depth_left.checked_sub(1).ok_or(ValueStop::Error(DecodeError::TooDeep))?;
        let mut items = Vec::with_capacity(len.min(self.elements_possible()));
        for _ in 0..len {
            items.push(self.value(depth_left)?);
        }
        Ok(items)
    }

    fn pairs(&mut self, depth_left: usize) -> Result<Vec<(Value, Value)>, ValueStop> {
        let len = self.count(2)?.ok_or(MALFORMED)?;
        let depth_left = depth_left.checked_sub(1).ok_or(ValueStop::Error(DecodeError::TooDeep))?;
        let mut pairs = Vec::with_capacity(len.min(self.elements_possible() / 2));
        for _ in 0..len {
            pairs.push((self.value(depth_left)?, self.value(depth_left)?));
        }
        Ok(pairs)
    }

    /// A count of elements of `width` values each; `None` for -1.
    fn count(&mut self, width: usize) -> Result<Option<usize>, ValueStop> {
        let text = self.line()?;
        if text == b"-1" {
            return Ok(None);
        }
        let len = usize::try_from(number::parse_u64(text).ok_or(MALFORMED)?).map_err(|_| TOO_LONG)?;
        let elements = len.checked_mul(width).ok_or(TOO_LONG)?;
        self.elements_left = self.elements_left.checked_sub(elements).ok_or(TOO_LONG)?;
        Ok(Some(len))
    }

    /// Number of elements to reserve room for: those that the received bytes can hold, an element taking at least 3,
    /// bounded so that nested arrays cannot multiply it.
    fn elements_possible(&self) -> usize {
        ((self.buf.len() - self.at) / 3).min(1024)
    }

    /// The bytes that are not read yet.
    fn rest(&self) -> &'a [u8] {
        self.buf.get(self.at..).unwrap_or_default()
    }

    /// A counted string; `None` for -1.
    fn string(&mut self) -> Result<Option<&'a [u8]>, ValueStop> {
        let text = self.line()?;
        if text == b"-1" {
            return Ok(None);
        }
        let len = number::parse_u64(text).ok_or(MALFORMED)?;
        if len > self.limits.bulk_bytes_max {
            return Err(TOO_LONG);
        }
        let rest = self.rest();
        let len = usize::try_from(len).map_err(|_| TOO_LONG)?;
        let Some((bytes, end)) = rest.split_at_checked(len) else { return Err(ValueStop::Incomplete) };
        match end {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Err(ValueStop::Incomplete),
            _ => return Err(MALFORMED),
        }
        self.at += len + 2;
        Ok(Some(bytes))
    }

    /// The rest of the line, which ends with CR LF.
    fn line(&mut self) -> Result<&'a [u8], ValueStop> {
        let rest = self.rest();
        let found = memchr::memchr(b'\r', rest);
        if found.unwrap_or(rest.len()) > self.limits.line_bytes_max {
            return Err(TOO_LONG);
        }
        let len = found.ok_or(ValueStop::Incomplete)?;
        match rest.get(len + 1) {
            Some(b'\n') => {}
            Some(_) => return Err(MALFORMED),
            None => return Err(ValueStop::Incomplete),
        }
        self.at += len + 2;
        rest.get(..len).ok_or(ValueStop::Incomplete)
    }

    /// A line with a number that may carry a plus sign.
    fn unsigned_line(&mut self) -> Result<&'a [u8], ValueStop> {
        let line = self.line()?;
        Ok(line.strip_prefix(b"+").filter(|rest| rest.first() != Some(&b'-')).unwrap_or(line))
    }

    fn big_number(&mut self) -> Result<Vec<u8>, ValueStop> {
        let line = self.line()?;
        let digits = line.strip_prefix(b"-").or(line.strip_prefix(b"+")).unwrap_or(line);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(MALFORMED);
        }
        Ok(line.to_vec())
    }
}

fn parse_double(text: &[u8]) -> Option<f64> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    if unsigned.eq_ignore_ascii_case(b"nan") { Some(f64::NAN) } else { number::parse_f64(text) }
}

const MALFORMED: ValueStop = ValueStop::Error(DecodeError::Malformed);
const TOO_LONG: ValueStop = ValueStop::Error(DecodeError::TooLong);
// The decoder calls itself as deep; at about 300 bytes of stack a level.
const DEPTH_MAX: usize = 256;

#[cfg(test)]
mod tests;

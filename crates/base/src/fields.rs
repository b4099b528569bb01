//! The fields of a module value in an RDB file: unsigned numbers, floats and byte strings in a fixed order.
//!
//! Types describe themselves with these traits; the encoding of each field belongs to the crates that read and write
//! files.

use std::borrow::Cow;

/// The next field is missing or has another kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Takes the fields of a value in order.
pub trait FieldSink {
    /// Writes an unsigned number; signed ones are written as their bits.
    fn unsigned(&mut self, value: u64);
    /// Writes a 64-bit float.
    fn double(&mut self, value: f64);
    /// Writes one byte string, which is the concatenation of `parts`.
    fn string(&mut self, parts: &[&[u8]]);

    /// Writes a signed number.
    fn signed(&mut self, value: i64) {
        self.unsigned(value.cast_unsigned());
    }
}

/// Gives the fields of a value in order.
pub trait FieldSource {
    /// Reads an unsigned number.
    fn unsigned(&mut self) -> Result<u64, Malformed>;
    /// Reads a 64-bit float.
    fn double(&mut self) -> Result<f64, Malformed>;
    /// Reads a byte string.
    fn string(&mut self) -> Result<Cow<'_, [u8]>, Malformed>;

    /// Reads a signed number.
    fn signed(&mut self) -> Result<i64, Malformed> {
        Ok(self.unsigned()?.cast_signed())
    }
}

/// One field, for tests and for callers that gather them.
#[derive(Clone, PartialEq, Debug)]
pub enum Field {
    /// A number.
    Unsigned(u64),
    /// A float.
    Double(f64),
    /// A byte string.
    String(Vec<u8>),
}

impl FieldSink for Vec<Field> {
    fn unsigned(&mut self, value: u64) {
        self.push(Field::Unsigned(value));
    }

    fn double(&mut self, value: f64) {
        self.push(Field::Double(value));
    }

    fn string(&mut self, parts: &[&[u8]]) {
        self.push(Field::String(parts.concat()));
    }
}

impl FieldSource for std::slice::Iter<'_, Field> {
    fn unsigned(&mut self) -> Result<u64, Malformed> {
        match self.next() {
            Some(Field::Unsigned(value)) => Ok(*value),
            _ => Err(Malformed),
        }
    }

    fn double(&mut self) -> Result<f64, Malformed> {
        match self.next() {
            Some(Field::Double(value)) => Ok(*value),
            _ => Err(Malformed),
        }
    }

    fn string(&mut self) -> Result<Cow<'_, [u8]>, Malformed> {
        match self.next() {
            Some(Field::String(bytes)) => Ok(Cow::Borrowed(bytes)),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_order() {
        let mut fields = Vec::new();
        fields.signed(-5);
        fields.double(0.5);
        fields.string(&[b"ab", b"c"]);
        let mut source = fields.iter();
        assert_eq!(source.signed(), Ok(-5));
        assert_eq!(source.double(), Ok(0.5));
        assert_eq!(source.string(), Ok(Cow::Borrowed(&b"abc"[..])));
        assert_eq!(source.unsigned(), Err(Malformed));
    }
}

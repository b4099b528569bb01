//! The fields of a module's value in an RDB file: each after a number that gives its sort.

use std::borrow::Cow;

use crate::rdb_primitives::{Corrupt, RdbSource, write_length, write_text};

const END: u64 = 0;
const SIGNED: u64 = 1;
const UNSIGNED: u64 = 2;
const FLOAT: u64 = 3;
const DOUBLE: u64 = 4;
const TEXT: u64 = 5;

/// Writes fields.
#[derive(Debug)]
pub struct ModuleFields<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> ModuleFields<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>) -> ModuleFields<'o> {
        ModuleFields { out }
    }

    /// A signed integer: as Redis writes and reads it, with the sort of an unsigned one.
    pub fn signed(&mut self, value: i64) {
        self.unsigned(value as u64);
    }

    /// An unsigned integer.
    pub fn unsigned(&mut self, value: u64) {
        write_length(self.out, UNSIGNED);
        write_length(self.out, value);
    }

    /// A float of four bytes.
    pub fn float(&mut self, value: f32) {
        write_length(self.out, FLOAT);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A float of eight bytes.
    pub fn double(&mut self, value: f64) {
        write_length(self.out, DOUBLE);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A text.
    pub fn text(&mut self, text: &[u8]) {
        write_length(self.out, TEXT);
        write_text(self.out, text);
    }

    pub(super) fn end(self) {
        write_length(self.out, END);
    }
}

/// Reads fields, which are not trusted.
#[derive(Debug)]
pub struct ModuleFieldSource<'s, 'a> {
    source: &'s mut RdbSource<'a>,
}

impl<'s, 'a> ModuleFieldSource<'s, 'a> {
    pub(super) fn new(source: &'s mut RdbSource<'a>) -> ModuleFieldSource<'s, 'a> {
        ModuleFieldSource { source }
    }

    /// Bytes not yet read: no text can be longer.
    pub fn left(&self) -> usize {
        self.source.left()
    }

    fn expect(&mut self, sort: u64) -> Result<(), Corrupt> {
        if self.source.count()? == sort { Ok(()) } else { Err(Corrupt) }
    }

    /// The next field, a signed integer.
    pub fn signed(&mut self) -> Result<i64, Corrupt> {
        match self.source.count()? {
            SIGNED | UNSIGNED => Ok(self.source.count()? as i64),
            _ => Err(Corrupt),
        }
    }

    /// The next field, an unsigned integer.
    pub fn unsigned(&mut self) -> Result<u64, Corrupt> {
        self.expect(UNSIGNED)?;
        self.source.count()
    }

    /// The next field, a float of four bytes.
    pub fn float(&mut self) -> Result<f32, Corrupt> {
        self.expect(FLOAT)?;
        Ok(f32::from_le_bytes(self.source.array()?))
    }

    /// The next field, a float of eight bytes.
    pub fn double(&mut self) -> Result<f64, Corrupt> {
        self.expect(DOUBLE)?;
        self.source.double()
    }

    /// The next field, a text.
    pub fn text(&mut self) -> Result<Cow<'a, [u8]>, Corrupt> {
        self.expect(TEXT)?;
        self.source.text()
    }

    pub(super) fn end(self) -> Result<(), Corrupt> {
        if self.source.count()? == END { Ok(()) } else { Err(Corrupt) }
    }
}

//! Writes an RDB file of version 10, which Redis 7.0 and everything since reads.

use std::io::{self, Write};

use darter_base::crc::Crc64;
use darter_store::rdb as values;

use super::gather::Gatherer;
use super::rewrite::Rewriter;
use super::{AUX, END, FUNCTION, SELECT, SIZES, VERSION_WRITTEN};
use crate::cursor::CursorStop;
use crate::entry::{Entries, KeyEntry};
use crate::error::PersistError;
use crate::layout;

/// Options for writing a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RdbOptions {
    /// Long texts are packed (`rdbcompression`).
    pub packs: bool,
    /// The file ends with a checksum (`rdbchecksum`).
    pub has_checksum: bool,
}

impl Default for RdbOptions {
    fn default() -> RdbOptions {
        RdbOptions { packs: true, has_checksum: true }
    }
}

/// Writes a file from front to end: facts and functions first, then keys.
///
/// Memory: 64 KiB, and values that come in parts until they are whole.
#[derive(Debug)]
pub struct RdbWriter<W: Write> {
    out: W,
    // not yet written
    buffer: Vec<u8>,
    bytes: u64,
    crc: Option<Crc64>,
    rewriter: Rewriter,
    gatherer: Gatherer,
    db: Option<u32>,
    leaves_modules_out: bool,
    left_out: u64,
}

const BUFFER_BYTES: usize = 64 << 10;

impl<W: Write> RdbWriter<W> {
    /// Starts a file.
    pub fn new(out: W, options: RdbOptions) -> RdbWriter<W> {
        RdbWriter {
            out,
            buffer: format!("REDIS{VERSION_WRITTEN:04}").into_bytes(),
            bytes: 0,
            crc: options.has_checksum.then(Crc64::new),
            rewriter: Rewriter::new(options.packs),
            gatherer: Gatherer::default(),
            db: None,
            leaves_modules_out: false,
            left_out: 0,
        }
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.buffer.len() as u64
    }

    /// Writes a fact about the writer.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> Result<(), PersistError> {
        self.buffer.push(AUX);
        values::write_text(&mut self.buffer, name);
        values::write_text(&mut self.buffer, value);
        self.flush_if_full()
    }

    /// Writes a library of functions: its code.
    pub fn function(&mut self, code: &[u8]) -> Result<(), PersistError> {
        self.buffer.push(FUNCTION);
        values::write_text(&mut self.buffer, code);
        self.flush_if_full()
    }

    /// Announces the number of keys of database `db`, so that a reader can reserve room.
    pub fn sizes(&mut self, db: u32, keys: u64, expiring: u64) -> Result<(), PersistError> {
        self.select(db);
        self.buffer.push(SIZES);
        values::write_length(&mut self.buffer, keys);
        values::write_length(&mut self.buffer, expiring);
        self.flush_if_full()
    }

    /// Writes entries of database `db`; returns their number.
    ///
    /// Errors: the disk failed, or the bytes are not entries.
    pub fn entries(&mut self, db: u32, bytes: &[u8]) -> Result<u64, PersistError> {
        let mut count = 0;
        for entry in Entries::new(bytes) {
            let entry = entry.map_err(|fault| PersistError::of_fault(0, fault))?;
            self.entry(db, &entry)?;
            count += 1;
        }
        Ok(count)
    }

    /// Writes one entry of database `db`; a part of a value with the last of its parts.
    ///
    /// Errors: the disk failed, or the value is damaged.
    pub fn entry(&mut self, db: u32, entry: &KeyEntry<'_>) -> Result<(), PersistError> {
        let whole;
        let mut entry = entry.clone();
        if let Some(part) = entry.part.take() {
            match self.gatherer.add(db, &entry, part).map_err(of_stop)? {
                None => return Ok(()),
                Some(gathered) => whole = gathered,
            }
            entry.kind = whole.kind;
            entry.value = &whole.value;
            if !whole.deadlines.is_empty() {
                entry.member_deadlines = Some(&whole.deadlines);
            }
        }
        if self.leaves_modules_out && matches!(entry.kind, layout::MODULE_2 | layout::ARRAY) {
            self.left_out += 1;
            return Ok(());
        }
        self.select(db);
        self.rewriter.append(&entry, &mut self.buffer).map_err(of_stop)?;
        self.flush_if_full()
    }

    /// Leaves out, from now on, keys whose values a server without modules, or before Redis 8.8, cannot read.
    pub fn leave_modules_out(&mut self) {
        self.leaves_modules_out = true;
    }

    /// Keys that were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Ends the file; returns the underlying writer, flushed, and the length of the file in bytes.
    ///
    /// Errors: the disk failed, or parts of a value are missing.
    pub fn finish(mut self) -> Result<(W, u64), PersistError> {
        if let Some((db, key)) = self.gatherer.incomplete().next() {
            let key = super::reader::shown(key);
            return Err(PersistError::corrupt(
                self.bytes(),
                format!("parts of key {key}, database {db}, are missing"),
            ));
        }
        self.buffer.push(END);
        self.flush()?;
        let crc = self.crc.as_ref().map_or(0, Crc64::value);
        self.out.write_all(&crc.to_le_bytes())?;
        self.out.flush()?;
        Ok((self.out, self.bytes + size_of_val(&crc) as u64))
    }

    fn select(&mut self, db: u32) {
        if self.db != Some(db) {
            self.db = Some(db);
            self.buffer.push(SELECT);
            values::write_length(&mut self.buffer, u64::from(db));
        }
    }

    fn flush_if_full(&mut self) -> Result<(), PersistError> {
        if self.buffer.len() >= BUFFER_BYTES { self.flush().map_err(PersistError::Io) } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(crc) = &mut self.crc {
            crc.update(&self.buffer);
        }
        self.out.write_all(&self.buffer)?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        // the room of one long value is not kept
        self.buffer.shrink_to(4 * BUFFER_BYTES);
        Ok(())
    }
}

fn of_stop(stop: CursorStop) -> PersistError {
    PersistError::of_stop(0, stop, "an entry to write that is cut off")
}

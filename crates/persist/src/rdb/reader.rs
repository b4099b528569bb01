//! Reads an RDB file from a stream of bytes, which is not trusted.
//!
//! Keys are returned as chunks of entries, so that other threads may build the values in parallel. Memory: twice the
//! longest value, whatever lengths the file claims.

use std::io::Read;
use std::ops::Range;

use darter_base::crc::Crc64;
use darter_store::rdb::{RdbSource, VALKEY_VERSIONS, VERSION_MAX};

use super::NEXT;
use super::scan::{self, RdbOrigin, Scanned};
use crate::cursor::{Cursor, CursorStop};
use crate::entry::{self, Chunk, KeyEntry};
use crate::error::PersistError;
use crate::item::RdbItem;

/// Reads a file from front to end.
#[derive(Debug)]
pub struct RdbReader<R> {
    source: R,
    buffer: Vec<u8>,
    // start <= buffer.len(): the bytes before it have been read
    start: usize,
    // the file offset of buffer[0]
    base: u64,
    crc: Crc64,
    origin: RdbOrigin,
    db: u32,
    // marks for the next entry
    next_marks: Vec<u8>,
    is_at_end: bool,
    is_checked: bool,
}

/// A chunk is closed when it is longer.
const CHUNK_BYTES: usize = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;

impl<R: Read> RdbReader<R> {
    /// Starts at the front of a file.
    ///
    /// Errors: not an RDB file, or of a version that is not known.
    pub fn new(source: R) -> Result<RdbReader<R>, PersistError> {
        let mut reader = RdbReader {
            source,
            buffer: Vec::new(),
            start: 0,
            base: 0,
            crc: Crc64::new(),
            origin: RdbOrigin { version: 0, is_valkey: false },
            db: 0,
            next_marks: Vec::new(),
            is_at_end: false,
            is_checked: false,
        };
        while reader.buffer.len() < HEADER_LEN && reader.fill()? > 0 {}
        let Some(header) = reader.buffer.first_chunk::<HEADER_LEN>() else {
            return Err(PersistError::CutOff {
                len: reader.buffer.len() as u64,
                what: "the header".to_owned(),
            });
        };
        reader.origin = origin_of(header)?;
        reader.consume(HEADER_LEN);
        Ok(reader)
    }

    /// The file's version.
    pub fn version(&self) -> u32 {
        self.origin.version
    }

    /// Returns true if Valkey 9 or newer wrote the file.
    pub fn is_valkey(&self) -> bool {
        self.origin.is_valkey
    }

    /// Returns true if the end was reached and a checksum was right; false for files without one.
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The next item; [`RdbItem::End`] when all is read.
    ///
    /// Errors: the source failed, or the file is damaged, cut off or unknown.
    #[allow(clippy::should_implement_trait, reason = "an iterator could go on after an error")]
    pub fn next(&mut self) -> Result<RdbItem, PersistError> {
        let mut chunk = Chunk { db: self.db, entries: 0, bytes: Vec::new(), offset: self.offset() };
        loop {
            let mut cursor = Cursor::new(self.buffer.get(self.start..).unwrap_or_default());
            let scanned = match scan::next(self.origin, &mut cursor) {
                Ok(scanned) => scanned,
                Err(CursorStop::More) => {
                    if self.fill()? == 0 {
                        return Err(self.cut_off());
                    }
                    continue;
                }
                Err(CursorStop::Bad(fault)) => return Err(self.fault(fault)),
            };
            let len = cursor.at();
            if let Scanned::Entry { deadline_ms, kind, body } = scanned {
                self.append(&mut chunk, deadline_ms, kind, body);
                self.consume(len);
                if chunk.bytes.len() >= CHUNK_BYTES {
                    return Ok(RdbItem::Entries(chunk));
                }
                continue;
            }
            if chunk.entries > 0 {
                return Ok(RdbItem::Entries(chunk));
            }
            let item = self.item(scanned)?;
            self.consume(len);
            match item {
                Some(RdbItem::End) => return self.finish(),
                Some(item) => return Ok(item),
                None => (chunk.db, chunk.offset) = (self.db, self.offset()),
            }
        }
    }

    fn append(&mut self, chunk: &mut Chunk, deadline_ms: Option<u64>, kind: u8, body: Range<usize>) {
        let out = &mut chunk.bytes;
        if let Some(ms) = deadline_ms {
            out.push(entry::DEADLINE_MS);
            out.extend_from_slice(&ms.to_le_bytes());
        }
        out.append(&mut self.next_marks);
        out.push(kind);
        out.extend_from_slice(at(&self.buffer, self.start, &body));
        chunk.entries += 1;
    }

    fn item(&mut self, scanned: Scanned) -> Result<Option<RdbItem>, PersistError> {
        let start = self.start;
        let text = |range: &Range<usize>| {
            let written = at(&self.buffer, start, range);
            let text = RdbSource::new(written).text().map(|text| text.into_owned());
            text.map_err(|_| {
                PersistError::corrupt(
                    self.base + (start + range.start) as u64,
                    "a compressed text that does not unpack",
                )
            })
        };
        Ok(Some(match scanned {
            Scanned::Aux { name, value } => {
                let (name, value) = (text(&name)?, text(&value)?);
                if name == NEXT {
                    check_marks(&value).map_err(|what| PersistError::corrupt(self.offset(), what))?;
                    self.next_marks = value;
                    return Ok(None);
                }
                RdbItem::Aux { name, value }
            }
            Scanned::Select(db) => {
                self.db = u32::try_from(db)
                    .map_err(|_| PersistError::corrupt(self.offset(), "a database number past 2^32"))?;
                return Ok(None);
            }
            Scanned::Sizes(keys, expiring) => RdbItem::Sizes { db: self.db, keys, expiring },
            Scanned::Function(code) => RdbItem::Function(text(&code)?),
            Scanned::OldFunction { name, code } => {
                let mut whole = b"#!lua name=".to_vec();
                whole.append(&mut text(&name)?);
                whole.push(b'\n');
                whole.append(&mut text(&code)?);
                RdbItem::Function(whole)
            }
            Scanned::Strange { key, what } => RdbItem::Skipped { db: self.db, key: Some(text(&key)?), what },
            Scanned::ModuleAux(module) => {
                RdbItem::Skipped { db: self.db, key: None, what: format!("notes of module {module}") }
            }
            Scanned::End => RdbItem::End,
            Scanned::Nothing | Scanned::Entry { .. } => return Ok(None),
        }))
    }

    /// Checks the checksum behind the end.
    fn finish(&mut self) -> Result<RdbItem, PersistError> {
        if self.is_at_end {
            return Ok(RdbItem::End);
        }
        self.is_at_end = true;
        if self.origin.version < FIRST_WITH_CHECKSUM {
            return Ok(RdbItem::End);
        }
        while self.buffer.len() - self.start < CHECKSUM_LEN {
            if self.fill()? == 0 {
                return Err(self.cut_off());
            }
        }
        let stored = self.buffer.get(self.start..).and_then(|rest| rest.first_chunk::<CHECKSUM_LEN>());
        let stored = stored.copied().map_or(0, u64::from_le_bytes);
        let computed = self.crc.value();
        if stored != 0 && stored != computed {
            return Err(PersistError::corrupt(
                self.offset(),
                format!("the checksum of the file is {computed:016x}, but {stored:016x} is written"),
            ));
        }
        self.is_checked = stored != 0;
        self.start += CHECKSUM_LEN;
        Ok(RdbItem::End)
    }

    /// Marks `len` bytes as read.
    fn consume(&mut self, len: usize) {
        let end = self.start + len;
        self.crc.update(self.buffer.get(self.start..end).unwrap_or_default());
        self.start = end;
    }

    /// Reads more bytes from the source; returns their number, 0 at its end.
    fn fill(&mut self) -> Result<usize, PersistError> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.base += self.start as u64;
            self.start = 0;
        }
        let before = self.buffer.len();
        // As much again as is buffered, so that a long item is parsed from its start only a few times.
        let wanted = before.max(BUFFER_BYTES) as u64;
        (&mut self.source).take(wanted).read_to_end(&mut self.buffer)?;
        Ok(self.buffer.len() - before)
    }

    fn cut_off(&self) -> PersistError {
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        let what = match rest.first() {
            None => "the end mark".to_owned(),
            Some(_) if self.is_at_end => "the checksum".to_owned(),
            Some(_) => format!("what begins at byte {}{}", self.offset(), self.key_near()),
        };
        PersistError::CutOff { len: self.base + self.buffer.len() as u64, what }
    }

    fn fault(&self, fault: crate::cursor::CursorFault) -> PersistError {
        let offset = self.offset() + fault.at as u64;
        PersistError::corrupt(offset, format!("{}{}", fault.what, self.key_near()))
    }

    /// The key of the next item, as part of a sentence.
    fn key_near(&self) -> String {
        let mut cursor = Cursor::new(self.buffer.get(self.start..).unwrap_or_default());
        match scan::key_of_next(&mut cursor) {
            Some(key) => format!(" (key {}, database {})", shown(&key), self.db),
            None => String::new(),
        }
    }
}

const HEADER_LEN: usize = 9;
const CHECKSUM_LEN: usize = 8;
const FIRST_WITH_CHECKSUM: u32 = 5;
/// Bytes of a key that a message shows.
const SHOWN_MAX: usize = 100;

/// A key as messages show it.
pub(crate) fn shown(key: &[u8]) -> String {
    let cut = key.get(..SHOWN_MAX).unwrap_or(key);
    let dots = if cut.len() < key.len() { "..." } else { "" };
    format!("'{}{dots}'", cut.escape_ascii())
}

fn at<'a>(buffer: &'a [u8], start: usize, range: &Range<usize>) -> &'a [u8] {
    buffer.get(start + range.start..start + range.end).unwrap_or_default()
}

fn origin_of(header: &[u8; HEADER_LEN]) -> Result<RdbOrigin, PersistError> {
    let (is_valkey, digits) = match (header.strip_prefix(b"REDIS"), header.strip_prefix(b"VALKEY")) {
        (Some(digits), _) => (false, digits),
        (_, Some(digits)) => (true, digits),
        _ => {
            return Err(PersistError::corrupt(
                0,
                "no RDB file: it begins neither with REDIS nor with VALKEY",
            ));
        }
    };
    let version = digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')));
    let version = version.ok_or_else(|| {
        PersistError::corrupt(header.len() as u64 - digits.len() as u64, "a version without digits")
    })?;
    let is_known = u16::try_from(version).is_ok_and(|version| {
        if is_valkey { VALKEY_VERSIONS.contains(&version) } else { (1..=VERSION_MAX).contains(&version) }
    });
    if !is_known {
        let server = if is_valkey { "Valkey" } else { "Redis" };
        return Err(PersistError::Unknown {
            offset: 0,
            what: format!("version {version} of {server}'s RDB is not known"),
        });
    }
    Ok(RdbOrigin { version, is_valkey })
}

/// Fails unless `marks` are marks and nothing else.
fn check_marks(marks: &[u8]) -> Result<(), &'static str> {
    const DAMAGED: &str = "a damaged fact about the next key";
    let (mut cursor, mut entry) = (Cursor::new(marks), KeyEntry::none());
    while !cursor.is_done() {
        let byte = cursor.byte().map_err(|_| DAMAGED)?;
        if !entry.read_mark(byte, &mut cursor).map_err(|_| DAMAGED)? || entry.part.is_some() {
            return Err(DAMAGED);
        }
    }
    Ok(())
}

//! A segment: the file one thread appends its records to during one generation.
//!
//! Head, little-endian: magic (8), version (2), thread (2), generations since the journal was switched on, one more than
//! that, or 0 (4), generation (8), time it was made as Unix milliseconds (8), kind (4), zeros (4), length when it was
//! closed, or 0 (8), the smallest sequence that may wait in memory, or 0 (8), zeros (4), CRC32C of all that (4). Version 1 ends behind the time, with its CRC32C. Records follow
//! without gaps, each with a larger sequence than the one before; zeros may be all there is from the last one to the end.

use std::io::{self, Read};

use darter_base::crc::crc32c;

use super::Damage;
use super::record::{HEAD_BYTES, RecordHead};

/// Bytes of a segment's head.
pub const FILE_HEAD_BYTES: usize = 64;
/// The same of version 1.
const FILE_HEAD_BYTES_1: usize = 36;

const MAGIC: &[u8; 8] = b"DARTJRNL";
const VERSION: u16 = 2;

/// How records come into a segment, as its head says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SegmentKind {
    /// Written by a version that did not say.
    #[default]
    Unknown,
    /// By plain writes.
    Plain,
    /// Through a tail beside it, which is there until the segment is closed.
    Ringed,
    /// In groups of whole pages, with zeros behind the last.
    Direct,
}

impl SegmentKind {
    fn code(self) -> u32 {
        match self {
            SegmentKind::Unknown => 0,
            SegmentKind::Plain => 1,
            SegmentKind::Ringed => 2,
            SegmentKind::Direct => 3,
        }
    }

    fn of(code: u64) -> Option<SegmentKind> {
        Some(match code {
            0 => SegmentKind::Unknown,
            1 => SegmentKind::Plain,
            2 => SegmentKind::Ringed,
            3 => SegmentKind::Direct,
            _ => return None,
        })
    }
}

/// What a segment says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileHead {
    /// The thread that wrote it.
    pub thread: u16,
    /// Counts rewrites and starts: later segments have larger numbers.
    pub generation: u64,
    /// The generation with which the journal was switched on while the server ran, if it had no base since when this was
    /// made: what stands here continues a base that comes after that, and no other.
    pub since: Option<u64>,
    /// When it was made, Unix milliseconds.
    pub made_ms: u64,
    /// How records come into it.
    pub kind: SegmentKind,
    /// Its length when it was closed; `None` while records may follow.
    pub closed: Option<u64>,
    /// The smallest sequence of a record that the thread may have kept in memory of its process. A killed process loses
    /// such a record though its command has ended. `None` if there is none, or if an older version wrote the segment.
    pub waits_from: Option<u64>,
}

impl FileHead {
    /// The head as bytes.
    pub fn to_bytes(self) -> [u8; FILE_HEAD_BYTES] {
        let mut bytes = Vec::with_capacity(FILE_HEAD_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.thread.to_le_bytes());
        let back = self.since.map_or(0, |since| self.generation.saturating_sub(since).saturating_add(1));
        bytes.extend_from_slice(&u32::try_from(back).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.made_ms.to_le_bytes());
        bytes.extend_from_slice(&u64::from(self.kind.code()).to_le_bytes());
        bytes.extend_from_slice(&self.closed.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&self.waits_from.unwrap_or(0).to_le_bytes());
        bytes.resize(FILE_HEAD_BYTES - 4, 0);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        let mut head = [0; FILE_HEAD_BYTES];
        head.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        head
    }

    /// Reads the head that `bytes` begin with; returns its length, too.
    ///
    /// Errors: not a segment, cut off, damaged, or of a later version.
    pub fn read(bytes: &[u8]) -> Result<(FileHead, usize), Damage> {
        let damage = |offset, what| Err(Damage { offset, what });
        let Some(first) = bytes.get(..FILE_HEAD_BYTES_1) else {
            return damage(0, "the head of the segment is cut off");
        };
        if !first.starts_with(MAGIC) {
            return damage(0, "this is no segment of a journal");
        }
        let version = word_at(first, 8) & 0xffff;
        let len = if version == 1 { FILE_HEAD_BYTES_1 } else { FILE_HEAD_BYTES };
        let Some((fields, crc)) = bytes.get(..len).and_then(|head| head.split_last_chunk::<4>()) else {
            return damage(0, "the head of the segment is cut off");
        };
        if crc32c(fields).to_le_bytes() != *crc {
            return damage(0, "the head of the segment is damaged");
        }
        if version != 1 && version != u64::from(VERSION) {
            return damage(8, "the segment was written by a later version");
        }
        let thread = (word_at(fields, 8) >> 16 & 0xffff) as u16;
        let generation = word_at(fields, 16);
        let since = (word_at(fields, 8) >> 32).checked_sub(1).map(|back| generation.saturating_sub(back));
        let mut head =
            FileHead { thread, generation, since, made_ms: word_at(fields, 24), ..FileHead::default() };
        if version != 1 {
            head.closed = Some(word_at(fields, 40)).filter(|len| *len != 0);
            head.waits_from = Some(word_at(fields, 48)).filter(|sequence| *sequence != 0);
            let Some(kind) = SegmentKind::of(word_at(fields, 32)) else {
                return damage(32, "the segment was written by a later version");
            };
            head.kind = kind;
        }
        Ok((head, len))
    }

    /// Whether it continues the base with which `generation` begins.
    pub fn continues(&self, generation: u64) -> bool {
        self.since.is_none_or(|since| generation > since)
    }
}

/// The number of eight bytes at `at`; bytes that are missing count as zeros.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes.iter().skip(at)).for_each(|(place, byte)| *place = *byte);
    u64::from_le_bytes(word)
}

/// What stands next in a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextRecordAt {
    /// A record with this sequence; its body is at hand.
    Record(RecordHead),
    /// Nothing more.
    End,
    /// Bytes that are no whole record.
    Damaged(Damage),
}

/// A segment being read, one record at hand.
pub struct SegmentReader<R> {
    input: R,
    left: u64,
    // offset of the record at hand
    at: u64,
    after: u64,
    body: Vec<u8>,
    next: NextRecordAt,
    /// What the segment says about itself.
    pub head: FileHead,
}

impl<R: Read> SegmentReader<R> {
    /// Reads the head and the first record of a segment of `len` bytes.
    ///
    /// Errors: of `input` only; a head that is cut off or damaged is an `Err` inside.
    pub fn open(mut input: R, len: u64) -> io::Result<Result<SegmentReader<R>, Damage>> {
        let mut bytes = [0; FILE_HEAD_BYTES];
        let cut_off = || Ok(Err(Damage { offset: 0, what: "the head of the segment is cut off" }));
        let (first, more) = bytes.split_at_mut(FILE_HEAD_BYTES_1);
        if len < FILE_HEAD_BYTES_1 as u64 || !fill(&mut input, first)? {
            return cut_off();
        }
        let is_first_version = first.starts_with(MAGIC) && word_at(first, 8) & 0xffff == 1;
        if !is_first_version && (len < FILE_HEAD_BYTES as u64 || !fill(&mut input, more)?) {
            return match FileHead::read(&bytes) {
                Err(damage) if !bytes.starts_with(MAGIC) => Ok(Err(damage)),
                _ => cut_off(),
            };
        }
        let (head, at) = match FileHead::read(&bytes) {
            Ok(read) => read,
            Err(damage) => return Ok(Err(damage)),
        };
        let at = at as u64;
        let mut segment = SegmentReader {
            input,
            left: len - at,
            at,
            after: at,
            body: Vec::new(),
            next: NextRecordAt::End,
            head,
        };
        segment.advance()?;
        Ok(Ok(segment))
    }

    /// What stands next.
    pub fn next(&self) -> &NextRecordAt {
        &self.next
    }

    /// The body of the record at hand.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Offset of what stands next.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Goes on to the next record. Cost: reads it and sums its bytes; keeps no more than one body.
    ///
    /// Errors: of the input.
    pub fn advance(&mut self) -> io::Result<()> {
        let before = match self.next {
            NextRecordAt::Record(head) => Some(head.sequence),
            NextRecordAt::End => None,
            NextRecordAt::Damaged(_) => return Ok(()),
        };
        self.at = self.after;
        self.next = match self.read_record()? {
            NextRecordAt::Record(head) if before.is_some_and(|before| head.sequence <= before) => {
                self.damaged("records are out of order")
            }
            NextRecordAt::End if self.head.closed.is_some_and(|closed| self.at < closed) => {
                self.damaged("the segment ends before the length it was closed with")
            }
            next => next,
        };
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> NextRecordAt {
        NextRecordAt::Damaged(Damage { offset: self.at, what })
    }

    fn read_record(&mut self) -> io::Result<NextRecordAt> {
        if self.left == 0 {
            return Ok(NextRecordAt::End);
        }
        let mut bytes = [0; HEAD_BYTES];
        let left = usize::try_from(self.left).unwrap_or(HEAD_BYTES).min(HEAD_BYTES);
        let (wanted, _) = bytes.split_at_mut(left);
        if !fill(&mut self.input, wanted)? {
            return Ok(self.damaged("a record is cut off"));
        }
        if bytes == [0; HEAD_BYTES] && self.is_empty_from_here()? {
            self.left = 0;
            return Ok(NextRecordAt::End);
        }
        if left < HEAD_BYTES {
            return Ok(self.damaged("a record is cut off"));
        }
        let head = RecordHead::read(&bytes);
        let left = self.left - HEAD_BYTES as u64;
        if head.body_len > left {
            return Ok(self.damaged("a record is cut off or its length is wrong"));
        }
        self.body.clear();
        // no more than the file has; a body of another size was read to its end
        let read = self.input.by_ref().take(head.body_len).read_to_end(&mut self.body)?;
        if read as u64 != head.body_len {
            return Ok(self.damaged("a record is cut off"));
        }
        if !head.is_sound(&self.body) {
            return Ok(self.damaged("the checksum of a record is wrong"));
        }
        self.left = left - head.body_len;
        self.after = self.at + HEAD_BYTES as u64 + head.body_len;
        Ok(NextRecordAt::Record(head))
    }

    /// Whether nothing but zeros follows, which a server writes ahead of its records.
    fn is_empty_from_here(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        loop {
            match self.input.read(&mut piece) {
                Ok(0) => return Ok(true),
                Ok(len) if piece.iter().take(len).any(|byte| *byte != 0) => return Ok(false),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

/// Fills `bytes`; false when the input ends before.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

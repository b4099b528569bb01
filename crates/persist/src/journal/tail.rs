//! The tail of a segment: the last bytes of its stream, in a ring that the server has mapped into memory.
//!
//! What a thread notes is in the ring before its shards are released, and in the segment some hundred kilobytes later. A
//! clean stop leaves no tail. After a kill [`read`] finds what only the tail has; the two are one stream. After a loss of
//! power the ring may be older or newer than the segment, or half of either: so whatever is taken from it continues the
//! last whole record of the segment, checksum by checksum and in order.
//!
//! Layout, little-endian: magic (8), version (4), capacity (4), generation (8), thread (2), six zeros, id of the boot of
//! the machine (16), CRC32C of that (4); bytes ever appended at [`END_AT`] (8), the smallest sequence that the thread may
//! be about to take, 0 or [`STUCK`], at [`BEGUN_AT`] (8), bytes that are in the segment at [`TAKEN_AT`] (8); the ring at [`DATA_AT`],
//! byte `n` of the segment at `n % capacity`. Version 1 has no id and no such sequence.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use darter_base::crc::crc32c;

use super::Damage;
use super::folder;
use super::record::{HEAD_BYTES, RecordHead};
use super::segment::{FileHead, NextRecordAt, SegmentKind};
use crate::files::{Files, OpenMode};
use crate::read_at::ReadAt;

/// Where the number of bytes ever appended stands.
pub const END_AT: usize = 1024;
/// Where the smallest sequence stands that the thread may be about to take; 0 while it takes none.
pub const BEGUN_AT: usize = 1032;
/// Stands at [`BEGUN_AT`] if the thread has records in memory that fit neither its ring nor a file.
pub const STUCK: u64 = u64::MAX;
/// Where the number of bytes stands that are in the segment, whatever happens.
pub const TAKEN_AT: usize = 2048;
/// Where the ring begins.
pub const DATA_AT: usize = 4096;
/// A ring holds at most this many bytes.
pub const CAPACITY_MAX: usize = 64 << 20;

const MAGIC: &[u8; 8] = b"DARTTAIL";
const VERSION: u32 = 2;
const VERSION_AT: usize = 8;
const CAPACITY_AT: usize = 12;
const FIELDS_BYTES_1: usize = 32;

/// The tail of a segment, by its path.
pub fn path_of(segment: &Path) -> PathBuf {
    segment.with_extension("tail")
}

/// How the file of a tail begins; no `boot` counts as another one at each start.
pub fn head(generation: u64, thread: u16, capacity: u32, boot: Option<[u8; 16]>) -> Vec<u8> {
    let mut bytes = fields(VERSION, generation, thread, capacity);
    bytes.extend_from_slice(&boot.unwrap_or_default());
    with_crc(bytes)
}

fn fields(version: u32, generation: u64, thread: u16, capacity: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&capacity.to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&thread.to_le_bytes());
    bytes.resize(FIELDS_BYTES_1, 0);
    bytes
}

fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Whole records that continue a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TailRest {
    /// Bytes of the segment that stay as they are.
    pub offset: u64,
    /// What comes after these.
    pub bytes: Arc<[u8]>,
}

/// How far a thread was when its process ended, as its tail says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The smallest sequence that the thread may have been about to take; 0 if it took none, or [`STUCK`].
    pub begun: u64,
    /// The last sequence in the segment and its tail; 0 without any.
    pub last: u64,
}

/// The tail of a segment, as it was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TailReading {
    /// There is a tail.
    pub is_there: bool,
    /// What continues the segment's whole records, if that is known.
    pub rest: Option<TailRest>,
    /// How far the thread was; `None` after a loss of power, or without a tail.
    pub mark: Option<Mark>,
    /// Damage of the tail.
    pub damage: Option<Damage>,
}

/// Reads the tail of `segment`, whose head is `head` unless that is damaged. `boot` is the machine's. Cost: reads the
/// segment if there is a tail.
///
/// Errors: a file cannot be read. A damaged tail is no error.
pub fn read(
    files: &impl Files,
    segment: &Path,
    head: Option<&FileHead>,
    boot: Option<[u8; 16]>,
) -> io::Result<TailReading> {
    let file = match files.open(&path_of(segment), OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TailReading::default()),
        Err(error) => return Err(error),
    };
    let mut reading = TailReading { is_there: true, ..TailReading::default() };
    // It was removed when the segment was closed, or written as records come from then on, or is about to be. Or it is of a
    // segment that had this name, and that a loss of power took.
    let has_none = |head: &FileHead| {
        head.closed.is_some() || matches!(head.kind, SegmentKind::Plain | SegmentKind::Direct)
    };
    if head.is_some_and(has_none) {
        return Ok(reading);
    }
    let Some(name) = segment.file_name().and_then(folder::parse_name) else { return Ok(reading) };
    let (offset, last) = whole_of(files, segment)?;
    let ring = match TailRing::read(&file, name)? {
        Ok(ring) => ring,
        Err(damage) => {
            // A version before this one made the file first and its head last.
            let is_unborn = last.is_none() && head.is_none_or(|head| head.kind == SegmentKind::Unknown);
            reading.damage = (!is_unborn).then_some(damage);
            return Ok(reading);
        }
    };
    let is_same_boot = boot.is_some() && ring.boot == boot;
    let mut bytes = ring.stream(files, segment, offset)?;
    let (whole, last) = whole_records(&bytes, offset, last);
    bytes.truncate(whole);
    let reached = offset + whole as u64;
    if reached < ring.end {
        let at = if ring.data.is_empty() { 0 } else { reached % ring.data.len() as u64 };
        let damage =
            Damage { offset: DATA_AT as u64 + at, what: "the tail does not hold the records it should" };
        reading.damage = Some(damage);
    } else if is_same_boot {
        reading.mark = Some(Mark { begun: ring.begun, last: last.unwrap_or(0) });
    }
    // What is behind the end, by a process that was killed before it had counted it, is nothing.
    let is_all = is_same_boot && reading.damage.is_none();
    reading.rest = (!bytes.is_empty() || is_all).then(|| TailRest { offset, bytes: bytes.into() });
    Ok(reading)
}

/// Where the whole records of a segment end, by itself, and the sequence of the last.
fn whole_of(files: &impl Files, segment: &Path) -> io::Result<(u64, Option<u64>)> {
    let (_, opened) = folder::open_alone(files, segment)?;
    let Ok(mut opened) = opened else { return Ok((0, None)) };
    let mut last = None;
    while let NextRecordAt::Record(head) = *opened.next() {
        last = Some(head.sequence);
        opened.advance()?;
    }
    Ok((opened.offset(), last))
}

/// Bytes of the whole records at the start of `bytes`, which continue a segment at `offset` behind sequence `last`, and
/// the last of their sequences.
fn whole_records(bytes: &[u8], offset: u64, mut last: Option<u64>) -> (usize, Option<u64>) {
    let mut at = 0;
    if offset == 0 {
        let Ok((_, len)) = FileHead::read(bytes) else { return (0, last) };
        at = len;
    }
    while let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<HEAD_BYTES>()) {
        let head = RecordHead::read(head);
        let body_at = at + HEAD_BYTES;
        let end = usize::try_from(head.body_len).ok().and_then(|len| body_at.checked_add(len));
        let Some((end, body)) = end.and_then(|end| Some((end, bytes.get(body_at..end)?))) else { break };
        if !head.is_sound(body) || last.is_some_and(|last| head.sequence <= last) {
            break;
        }
        (at, last) = (end, Some(head.sequence));
    }
    (at, last)
}

/// A ring as its file has it.
struct TailRing {
    end: u64,
    taken: u64,
    begun: u64,
    boot: Option<[u8; 16]>,
    data: Vec<u8>,
}

impl TailRing {
    /// Reads it.
    ///
    /// Errors: of the file; one that is damaged, of a later version, or another segment's is an `Err` inside.
    fn read(file: &impl ReadAt, (generation, thread): (u64, u16)) -> io::Result<Result<TailRing, Damage>> {
        let damage = |offset, what| Ok(Err(Damage { offset, what }));
        let mut page = [0; DATA_AT];
        match file.read_at(0, &mut page) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return damage(0, "the tail is cut off");
            }
            read => read?,
        }
        if !page.starts_with(MAGIC) {
            return damage(0, "this is no tail of a segment");
        }
        let half = |at: usize| {
            page.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |half| u32::from_le_bytes(*half))
        };
        let word = |at: usize| {
            page.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
        };
        let (capacity, is_first) = (half(CAPACITY_AT), half(VERSION_AT) == 1);
        let boot: Option<[u8; 16]> = page.get(FIELDS_BYTES_1..).and_then(|rest| rest.first_chunk()).copied();
        let boot = boot.filter(|_| !is_first);
        let expected = match is_first {
            true => with_crc(fields(1, generation, thread, capacity)),
            false => head(generation, thread, capacity, boot),
        };
        if !page.starts_with(&expected) || capacity as usize > CAPACITY_MAX {
            return damage(0, "the head of the tail is damaged, or another segment's");
        }
        let mut data = vec![0; capacity as usize];
        match file.read_at(DATA_AT as u64, &mut data) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return damage(DATA_AT as u64, "the tail is cut off");
            }
            read => read?,
        }
        let boot = boot.filter(|boot| *boot != [0; 16]);
        let begun = if is_first { 0 } else { word(BEGUN_AT) };
        Ok(Ok(TailRing { end: word(END_AT), taken: word(TAKEN_AT), begun, boot, data }))
    }

    /// Bytes of the stream from `offset` on, where whole records of the segment end: what of a record is in the segment,
    /// then what may be in the ring. What is older there has smaller sequences.
    fn stream(&self, files: &impl Files, segment: &Path, offset: u64) -> io::Result<Vec<u8>> {
        let capacity = self.data.len() as u64;
        let mut bytes = Vec::new();
        if capacity == 0 {
            return Ok(bytes);
        }
        let mut from = offset;
        // A record that reaches into the ring was pushed into it whole.
        if offset < self.taken && self.taken - offset <= capacity {
            bytes.resize(usize::try_from(self.taken - offset).unwrap_or(0), 0);
            match files.open(segment, OpenMode::Read)?.read_at(offset, &mut bytes) {
                Ok(()) => from = self.taken,
                // The power went before the disk had it, or the counter is damaged.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => bytes.clear(),
                Err(error) => return Err(error),
            }
        }
        // The ring has these bytes, and not later ones in their place.
        if from.saturating_add(capacity) >= self.end {
            let (second, first) = self.data.split_at(usize::try_from(from % capacity).unwrap_or(0));
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;

//! The tail of a segment: the last bytes of its stream, in a ring that the server has mapped into memory.
//!
//! What a thread notes is in the ring before its reply goes out, and in the segment some hundred kilobytes later. A clean
//! stop leaves no tail. After a kill [`settle`] moves what only the tail has into the segment; until then
//! [`super::folder::open_segment`] reads the two as one. After a loss of power the ring may be older or newer than the
//! segment, or half of either: so whatever is taken from it continues the last whole record of the segment, checksum by
//! checksum and in order.
//!
//! Layout, little-endian: magic (8), version (4), capacity (4), generation (8), thread (2), six zeros, CRC32C of that (4);
//! bytes ever appended at [`END_AT`] (8), bytes of these that are in the segment at [`TAKEN_AT`] (8); the ring at
//! [`DATA_AT`], byte `n` of the segment at `n % capacity`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use darter_base::crc::crc32c;

use super::folder;
use super::record::{HEAD_BYTES, Head};
use super::segment::Next;

/// Where the number of bytes ever appended stands.
pub const END_AT: usize = 1024;
/// Where the number of bytes stands that are in the segment, whatever happens.
pub const TAKEN_AT: usize = 2048;
/// Where the ring begins.
pub const DATA_AT: usize = 4096;
/// A ring holds at most so many bytes.
pub const CAPACITY_MAX: usize = 64 << 20;

const MAGIC: &[u8; 8] = b"DARTTAIL";
const VERSION: u32 = 1;
const CAPACITY_AT: usize = 12;
const FIELDS_BYTES: usize = 32;

/// The tail of a segment, by its path.
pub fn path_of(segment: &Path) -> PathBuf {
    segment.with_extension("tail")
}

/// How the file of a tail begins.
pub fn head(generation: u64, thread: u16, capacity: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&capacity.to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&thread.to_le_bytes());
    bytes.resize(FIELDS_BYTES, 0);
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Whole records that continue a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rest {
    /// Bytes of the segment that stay as they are.
    pub offset: u64,
    /// What comes after these.
    pub bytes: Vec<u8>,
}

/// What the tail of `segment` has beyond its last whole record; `None`: nothing. Cost: reads the segment when there is a
/// tail.
///
/// Errors: a file cannot be read. A damaged tail is no error: it has nothing.
pub fn rest_of(segment: &Path) -> io::Result<Option<Rest>> {
    let file = match File::open(path_of(segment)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(name) = segment.file_name().and_then(folder::parse_name) else { return Ok(None) };
    let Some(ring) = Ring::read(&file, name)? else { return Ok(None) };
    let (offset, last) = whole_of(segment)?;
    // A record that reaches into the ring was pushed into it whole.
    if offset >= ring.end || ring.taken.saturating_sub(offset) > ring.data.len() as u64 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    if offset < ring.taken {
        bytes.resize((ring.taken - offset) as usize, 0);
        match File::open(segment)?.read_exact_at(&mut bytes, offset) {
            Ok(()) => {}
            // The power went before the disk had it: no ring holds what comes next.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    ring.copy(offset.max(ring.taken), &mut bytes);
    bytes.truncate(whole_records(&bytes, offset, last));
    Ok((!bytes.is_empty()).then_some(Rest { offset, bytes }))
}

/// Moves what only tails have into the segments of `dir`, and removes the tails; to be called when no server writes there.
///
/// Errors: of the files.
pub fn settle(dir: &Path) -> io::Result<()> {
    for found in folder::segments(dir)? {
        if let Some(Rest { offset, bytes }) = rest_of(&found.path)? {
            let segment = OpenOptions::new().write(true).open(&found.path)?;
            segment.write_all_at(&bytes, offset)?;
            segment.set_len(offset + bytes.len() as u64)?;
            segment.sync_all()?;
        }
        match fs::remove_file(path_of(&found.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Where the whole records of a segment end, by itself, and the sequence of the last.
fn whole_of(segment: &Path) -> io::Result<(u64, Option<u64>)> {
    let (_, opened) = folder::open_alone(segment)?;
    let Ok(mut opened) = opened else { return Ok((0, None)) };
    let mut last = None;
    while let Next::Record(head) = *opened.next() {
        last = Some(head.sequence);
        opened.advance()?;
    }
    Ok((opened.offset(), last))
}

/// Bytes of the whole records at the start of `bytes`, which continue a segment at `offset` behind sequence `last`.
fn whole_records(bytes: &[u8], offset: u64, mut last: Option<u64>) -> usize {
    let mut at = 0;
    if offset == 0 {
        let Some(head) = bytes.first_chunk() else { return 0 };
        if super::segment::FileHead::read(head).is_err() {
            return 0;
        }
        at = head.len();
    }
    while let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<HEAD_BYTES>()) {
        let head = Head::read(head);
        let body_at = at + HEAD_BYTES;
        let end = usize::try_from(head.body_len).ok().and_then(|len| body_at.checked_add(len));
        let Some((end, body)) = end.and_then(|end| Some((end, bytes.get(body_at..end)?))) else { break };
        if !head.is_sound(body) || last.is_some_and(|last| head.sequence <= last) {
            break;
        }
        (at, last) = (end, Some(head.sequence));
    }
    at
}

/// A ring as its file has it.
struct Ring {
    end: u64,
    // taken <= end <= taken + data.len()
    taken: u64,
    data: Vec<u8>,
}

impl Ring {
    /// Reads it; `None` when it is damaged, of a later version, or another segment's.
    fn read(file: &File, (generation, thread): (u64, u16)) -> io::Result<Option<Ring>> {
        let mut page = [0; DATA_AT];
        match file.read_exact_at(&mut page, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let word = |at: usize| {
            page.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_le_bytes(*word))
        };
        let capacity =
            page.get(CAPACITY_AT..).and_then(|rest| rest.first_chunk()).map(|half| u32::from_le_bytes(*half));
        let (Some(capacity), Some(end), Some(taken)) = (capacity, word(END_AT), word(TAKEN_AT)) else {
            return Ok(None);
        };
        let is_its_own = page.starts_with(&head(generation, thread, capacity));
        let capacity = capacity as usize;
        let holds = end.checked_sub(taken);
        if !is_its_own || capacity > CAPACITY_MAX || holds.is_none_or(|held| held > capacity as u64) {
            return Ok(None);
        }
        let mut data = vec![0; capacity];
        match file.read_exact_at(&mut data, DATA_AT as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(Ring { end, taken, data })),
        }
    }

    /// Appends the bytes from number `from` to the end, all of which it holds.
    fn copy(&self, from: u64, out: &mut Vec<u8>) {
        let capacity = self.data.len() as u64;
        if from >= self.end || capacity == 0 {
            return;
        }
        let (begin, end) = ((from % capacity) as usize, (self.end % capacity) as usize);
        if begin < end {
            out.extend_from_slice(self.data.get(begin..end).unwrap_or_default());
        } else {
            out.extend_from_slice(self.data.get(begin..).unwrap_or_default());
            out.extend_from_slice(self.data.get(..end).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;

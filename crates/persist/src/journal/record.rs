//! A record: a head of fixed size with checksum, length, place in the order and clock, then the parts of one change.
//!
//! Layout, little-endian: CRC32C of all that follows (4), bytes of the body (8), sequence (8), clock as Unix
//! milliseconds (8), body. The server writes records into a thread's buffer; [`crate::journal::segment`] reads them.

use darter_base::crc::Crc32c;

/// Bytes before the body.
pub const HEAD_BYTES: usize = 28;

/// A record being written at the end of a buffer.
#[must_use = "a record that is not finished is damaged"]
pub struct RecordDraft {
    start: usize,
}

impl RecordDraft {
    /// Begins a record in `out`; the parts of its body are appended next.
    #[inline(always)]
    pub fn begin(out: &mut Vec<u8>) -> RecordDraft {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        RecordDraft { start }
    }

    /// Ends the record, but for its checksum: its place in the order is `sequence`, its commands ran at `clock_ms`. Before it
    /// is written [`seal`] has to see it.
    #[inline]
    pub fn end(self, out: &mut [u8], sequence: u64, clock_ms: u64) {
        let body_len = out.len().saturating_sub(self.start + HEAD_BYTES) as u64;
        let head = out.get_mut(self.start..).and_then(|record| record.first_chunk_mut::<HEAD_BYTES>());
        if let Some(head) = head {
            *head = head_of(0, body_len, sequence, clock_ms);
        }
    }

    /// Ends a record that is for replicas and for no file: in the place of its checksum stands how many bytes its RESP form
    /// has, 0 if that is not known.
    #[inline]
    pub fn end_counted(self, out: &mut [u8], place: (u64, u64), resp_bytes: u64) {
        let start = self.start;
        self.end(out, place.0, place.1);
        count(out.get_mut(start..).unwrap_or_default(), resp_bytes);
    }

    /// Ends the record, with its checksum.
    #[inline]
    pub fn finish(self, out: &mut [u8], sequence: u64, clock_ms: u64) {
        let Some(record) = out.get_mut(self.start..) else { return };
        let body_len = record.len().saturating_sub(HEAD_BYTES) as u64;
        if let Some(head) = record.first_chunk_mut::<HEAD_BYTES>() {
            *head = head_of(0, body_len, sequence, clock_ms);
        }
        if let Some((place, summed)) = record.split_first_chunk_mut() {
            *place = darter_base::crc::crc32c(summed).to_le_bytes();
        }
    }
}

/// Puts the number of bytes of a record's RESP form in the place of its checksum; 0: it is not known.
#[inline]
pub fn count(record: &mut [u8], resp_bytes: u64) {
    if let Some(place) = record.first_chunk_mut() {
        *place = u32::try_from(resp_bytes).unwrap_or(0).to_le_bytes();
    }
}

/// Gives the records in `records`, one behind the other, their checksums. Cost: reads all of it; done for many at a time,
/// the processor need not wait for what it has just stored.
pub fn seal(mut records: &mut [u8]) {
    while let Some(head) = records.first_chunk::<HEAD_BYTES>() {
        let len =
            usize::try_from(RecordHead::read(head).body_len).unwrap_or(usize::MAX).saturating_add(HEAD_BYTES);
        let Some((record, after)) = records.split_at_mut_checked(len) else { return };
        if let Some((place, summed)) = record.split_first_chunk_mut() {
            *place = darter_base::crc::crc32c(summed).to_le_bytes();
        }
        records = after;
    }
}

fn head_of(crc: u32, body_len: u64, sequence: u64, clock_ms: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    // Four stores; an iterator over the bytes would be one for each.
    head[..4].copy_from_slice(&crc.to_le_bytes());
    head[4..12].copy_from_slice(&body_len.to_le_bytes());
    head[12..20].copy_from_slice(&sequence.to_le_bytes());
    head[20..].copy_from_slice(&clock_ms.to_le_bytes());
    head
}

/// The head of a record as it was read; its checksum is not known to be right yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    crc: u32,
    /// Bytes of the body.
    pub body_len: u64,
    /// Place in the order of all changes.
    pub sequence: u64,
    /// The clock its commands ran with, Unix milliseconds.
    pub clock_ms: u64,
}

impl RecordHead {
    /// Takes the fields apart.
    pub fn read(bytes: &[u8; HEAD_BYTES]) -> RecordHead {
        let field = |at: usize| {
            bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u64::from_le_bytes(*field))
        };
        let crc = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        RecordHead { crc, body_len: field(4), sequence: field(12), clock_ms: field(20) }
    }

    /// Bytes of the RESP form of a record that never was in a file ([`count`]); 0: not known.
    #[inline]
    pub fn resp_bytes(&self) -> u64 {
        self.crc.into()
    }

    /// Whether head and body are what was written.
    pub fn is_sound(&self, body: &[u8]) -> bool {
        let mut crc = Crc32c::new();
        crc.update(&head_of(0, self.body_len, self.sequence, self.clock_ms)[4..]);
        crc.update(body);
        crc.value() == self.crc
    }
}

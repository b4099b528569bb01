//! Memcached's part of a record: client flags, CAS token, time of the last access, marks. Each takes room only if it
//! is needed.
//!
//! ```text
//! byte 0     has access:1 | has flags:1 | has cas:1 | marks:4 | has frequency:1
//! 0 or 4 B   last access, Unix seconds
//! 0 or 4 B   client flags
//! 0 or 8 B   CAS token
//! 0 or 1 B   frequency set by RESTORE
//! ```
//!
//! Called by `record`, which puts it between deadline and key, and by `item`.

/// Memcached's part of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extras {
    /// Client flags.
    pub flags: u32,
    /// The CAS token, after a client has asked for it. Until then no client knows one, so none is kept.
    pub cas: Option<u64>,
    /// Time of the last use, Unix seconds, if a client has asked for it.
    pub access_s: Option<u32>,
    /// Further marks.
    pub marks: RecordMarks,
    /// The OBJECT FREQ value set by RESTORE; not saved in files.
    pub frequency: Option<u8>,
}

/// Marks of an item, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordMarks(pub u8);

impl RecordMarks {
    /// Has been read since it was stored.
    pub const FETCHED: RecordMarks = RecordMarks(1);
    /// Was invalidated: readers are told that it is stale.
    pub const STALE: RecordMarks = RecordMarks(2);
    /// A client was told to fetch it again.
    pub const WON: RecordMarks = RecordMarks(4);

    /// Returns true if `which` is set.
    pub fn has(self, which: RecordMarks) -> bool {
        self.0 & which.0 != 0
    }

    /// Sets or clears `which`.
    pub fn set(&mut self, which: RecordMarks, on: bool) {
        if on {
            self.0 |= which.0;
        } else {
            self.0 &= !which.0;
        }
    }
}

const ACCESS: u8 = 1;
const FLAGS: u8 = 2;
const CAS: u8 = 4;
const MARKS_SHIFT: u32 = 3;
const MARKS: u8 = 0x0f;
const FREQUENCY_SHIFT: u32 = 7;
const FREQUENCY: u8 = 1 << FREQUENCY_SHIFT;
const FIELDS: u8 = ACCESS | FLAGS | CAS | FREQUENCY;
/// Bytes by the first three fields that are there.
const LENS: [u8; 8] = [1, 5, 5, 9, 9, 13, 13, 17];

/// Bytes of extras that begin with `first`.
#[inline]
pub(crate) fn len_of(first: u8) -> usize {
    usize::from(LENS[usize::from(first & (ACCESS | FLAGS | CAS))]) + usize::from(first >> FREQUENCY_SHIFT)
}

impl Extras {
    /// Bytes it takes in a record.
    #[inline]
    pub(crate) fn encoded_len(&self) -> usize {
        len_of(self.first())
    }

    fn first(&self) -> u8 {
        let fields = u8::from(self.access_s.is_some()) * ACCESS
            + u8::from(self.flags != 0) * FLAGS
            + u8::from(self.cas.is_some()) * CAS
            + u8::from(self.frequency.is_some()) * FREQUENCY;
        fields | (self.marks.0 & MARKS) << MARKS_SHIFT
    }

    /// Writes it to the front of `out`.
    pub(crate) fn encode(&self, out: &mut [u8]) {
        out[0] = self.first();
        let mut at = 1;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(access_s) = self.access_s {
            put(&access_s.to_le_bytes());
        }
        if self.flags != 0 {
            put(&self.flags.to_le_bytes());
        }
        if let Some(cas) = self.cas {
            put(&cas.to_le_bytes());
        }
        if let Some(frequency) = self.frequency {
            put(&[frequency]);
        }
    }

    /// Returns true if extras that begin with `first` have the same fields, and thus the same length.
    #[inline]
    pub(crate) fn has_fields_of(&self, first: u8) -> bool {
        self.first() & FIELDS == first & FIELDS
    }

    /// The client flags in encoded extras.
    #[inline]
    pub(crate) fn flags_of(bytes: &[u8]) -> u32 {
        let [first, rest @ ..] = bytes else { return 0 };
        if first & FLAGS == 0 {
            return 0;
        }
        let mut rest = rest.get(if first & ACCESS == 0 { 0 } else { 4 }..).unwrap_or_default();
        u32::from_le_bytes(take(&mut rest))
    }

    /// Reads what [`Extras::encode`] wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Extras {
        let first = bytes[0];
        let mut rest = &bytes[1..];
        let access_s = (first & ACCESS != 0).then(|| u32::from_le_bytes(take(&mut rest)));
        let flags = if first & FLAGS != 0 { u32::from_le_bytes(take(&mut rest)) } else { 0 };
        let cas = (first & CAS != 0).then(|| u64::from_le_bytes(take(&mut rest)));
        let frequency = (first & FREQUENCY != 0).then(|| u8::from_le_bytes(take(&mut rest)));
        Extras { flags, cas, access_s, marks: RecordMarks(first >> MARKS_SHIFT & MARKS), frequency }
    }

    /// The extras as bytes, for another server.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = vec![0; self.encoded_len()];
        self.encode(&mut out);
        out
    }

    /// Reads what [`Extras::to_bytes`] has made; `None`: it is something else.
    pub fn parse(bytes: &[u8]) -> Option<Extras> {
        let first = *bytes.first()?;
        (bytes.len() == len_of(first)).then(|| Extras::decode(bytes))
    }

    /// Notes an access in encoded extras, if they keep a time of access.
    #[inline]
    pub(crate) fn touch(bytes: &mut [u8], now_s: u32) {
        let fetched = bytes[0] | RecordMarks::FETCHED.0 << MARKS_SHIFT;
        if bytes[0] != fetched {
            bytes[0] = fetched;
        }
        // most reads come in the same second as another, and leave the line unchanged
        if fetched & ACCESS != 0 && bytes[1..5] != now_s.to_le_bytes() {
            bytes[1..5].copy_from_slice(&now_s.to_le_bytes());
        }
    }
}

impl Extras {
    /// Notes a use by another protocol in encoded extras, if they keep a time.
    #[inline]
    pub(crate) fn note_use(bytes: &mut [u8], now_s: u32) {
        if bytes[0] & ACCESS != 0 && bytes[1..5] != now_s.to_le_bytes() {
            bytes[1..5].copy_from_slice(&now_s.to_le_bytes());
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let mut out = [0; N];
    if let Some((bytes, after)) = rest.split_first_chunk::<N>() {
        out = *bytes;
        *rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_reads_back() {
        for flags in [0, 1, u32::MAX] {
            for cas in [None, Some(0), Some(u64::MAX - 3)] {
                for access_s in [None, Some(0), Some(1_700_000_000)] {
                    for marks in [0, 1, 2, 4, 7] {
                        let frequency = (marks == 4).then_some(u8::MAX);
                        let extras = Extras { flags, cas, access_s, marks: RecordMarks(marks), frequency };
                        let mut bytes = vec![0xaa; extras.encoded_len() + 2];
                        extras.encode(&mut bytes);
                        assert_eq!(Extras::decode(&bytes), extras);
                        assert_eq!(Extras::flags_of(&bytes), flags);
                        assert!(extras.has_fields_of(bytes[0]));
                        assert_eq!(len_of(bytes[0]), extras.encoded_len());
                        assert_eq!(bytes[extras.encoded_len()..], [0xaa; 2]);
                        Extras::touch(&mut bytes, 9);
                        let mut wanted = extras;
                        wanted.marks.set(RecordMarks::FETCHED, true);
                        wanted.access_s = access_s.map(|_| 9);
                        assert_eq!(Extras::decode(&bytes), wanted);
                    }
                }
            }
        }
    }
}

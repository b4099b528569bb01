//! The bytes of one key: header, deadline, memcached extras, key, and value or object number.
//!
//! ```text
//! byte 0     kind:3 | ttl:2 | extras:1 | sticky:1 | wide:1
//! 1 or 4 B   key length
//! 0, 5, 8 B  deadline: ms since 2020-01-01 (5 B), or ms since 1970 (8 B) if that is out of range
//! 0 to 17 B  memcached extras, as in `extras`
//! key
//! Text       varint length, bytes            Raw     u32 length, bytes (was grown in place)
//! Packed     varint length, 7-bit packed     Object  type byte, u32 number in `Shard::objects`; with the
//!                                                    type's top bit, the handle of a folded collection
//! Float      as Text, but made by INCRBYFLOAT: Redis never calls it `int`
//! ```
//!
//! A record has exactly one referrer, its index slot, so the shard may move it at any time.

mod item;

pub(crate) use item::{ItemAt, ItemMatch, match_item};

use darter_base::short::is_equal;
use darter_slab::streaming;

use crate::ascii7;
use crate::extras::{self, Extras};
use crate::value_type::Type;

/// Milliseconds between 1970 and 2020, the origin of short deadlines.
const SHORT_TTL_ORIGIN_MS: u64 = 1_577_836_800_000;
/// Short deadlines are below this many milliseconds after their origin (34 years).
const SHORT_TTL_SPAN_MS: u64 = 1 << 40;
/// Bytes of a collection's payload.
const OBJECT_LEN: usize = 5;
/// In its type byte: the number is a block's handle.
const FOLDED: u8 = 0x80;
/// Shorter values are not worth packing.
pub(crate) const PACK_BYTES_MIN: usize = 512;
/// Longer values are not packed: a SET of a megabyte of ASCII would take three times its CPU.
pub(crate) const PACK_BYTES_MAX: usize = 256 << 10;

const KIND: u8 = 0b0000_0111;
const TTL: u8 = 0b0001_1000;
const TTL_SHORT: u8 = 0b0000_1000;
const TTL_LONG: u8 = 0b0001_0000;
const EXTRAS: u8 = 0b0010_0000;
const STICKY: u8 = 0b0100_0000;
const WIDE: u8 = 0b1000_0000;

/// The form of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum RecordKind {
    Text = 0,
    Raw = 1,
    Packed = 2,
    Object = 3,
    Float = 4,
}

/// The effect of a write on a key's deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// The key has no deadline.
    None,
    /// The key keeps the deadline it has, if any.
    Keep,
    /// The key dies at this Unix time in milliseconds.
    At(u64),
}

/// The parts before the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RecordMeta {
    pub deadline_ms: Option<u64>,
    pub extras: Option<Extras>,
    pub sticky: bool,
}

impl RecordMeta {
    /// The same without a CAS token, because the value has changed.
    pub fn without_cas(self) -> RecordMeta {
        RecordMeta { extras: self.extras.map(|extras| Extras { cas: None, ..extras }), ..self }
    }
}

/// A payload to write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordPayload<'a> {
    Text(&'a [u8]),
    /// `len` bytes; the first are `prefix`, the rest zeros. Behind them is `room` for more.
    Raw {
        prefix: &'a [u8],
        len: usize,
        room: usize,
    },
    Packed(&'a [u8]),
    Object(Type, u32),
    /// A collection that lies completely in the block of this handle.
    Folded(Type, u32),
    Float(&'a [u8]),
}

impl<'a> RecordPayload<'a> {
    /// The payload for a string value: packed if that saves memory.
    pub fn of_text(value: &'a [u8]) -> RecordPayload<'a> {
        if is_worth_packing(value) { RecordPayload::Packed(value) } else { RecordPayload::Text(value) }
    }

    fn kind(&self) -> RecordKind {
        match self {
            RecordPayload::Text(_) => RecordKind::Text,
            RecordPayload::Raw { .. } => RecordKind::Raw,
            RecordPayload::Packed(_) => RecordKind::Packed,
            RecordPayload::Object(..) | RecordPayload::Folded(..) => RecordKind::Object,
            RecordPayload::Float(_) => RecordKind::Float,
        }
    }

    fn bytes_len(&self) -> usize {
        match self {
            RecordPayload::Text(v) | RecordPayload::Float(v) => varint_len(v.len()) + v.len(),
            RecordPayload::Raw { len, room, .. } => 4 + len + room,
            RecordPayload::Packed(v) => varint_len(v.len()) + ascii7::packed_len(v.len()),
            RecordPayload::Object(..) | RecordPayload::Folded(..) => OBJECT_LEN,
        }
    }

    fn write(&self, out: &mut [u8]) {
        match *self {
            RecordPayload::Text(v) | RecordPayload::Float(v) => {
                let at = write_varint(out, v.len());
                streaming::copy(&mut out[at..at + v.len()], v);
            }
            RecordPayload::Raw { prefix, len, .. } => {
                out[..4].copy_from_slice(&(len as u32).to_le_bytes());
                out[4..4 + prefix.len()].copy_from_slice(prefix);
                out[4 + prefix.len()..4 + len].fill(0);
            }
            RecordPayload::Packed(v) => {
                let at = write_varint(out, v.len());
                ascii7::pack(v, &mut out[at..at + ascii7::packed_len(v.len())]);
            }
            RecordPayload::Object(kind, id) => write_object(out, kind as u8, id),
            RecordPayload::Folded(kind, block) => write_object(out, kind as u8 | FOLDED, block),
        }
    }
}

fn write_object(out: &mut [u8], kind: u8, number: u32) {
    out[0] = kind;
    out[1..OBJECT_LEN].copy_from_slice(&number.to_le_bytes());
}

/// Overwrites a collection's payload in place, with its new number or handle.
pub(crate) fn overwrite_object(block: &mut [u8], payload: &RecordPayload<'_>) {
    let at = Record { tail: block }.payload_at();
    debug_assert!(
        Record { tail: block }.kind() == RecordKind::Object && payload.kind() == RecordKind::Object
    );
    payload.write(&mut block[at..]);
}

#[inline]
fn varint_len(n: usize) -> usize {
    match n {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => 5,
    }
}

/// Bytes that a text takes in a record, including its length.
#[inline]
pub(crate) fn text_bytes(value: &[u8]) -> usize {
    varint_len(value.len()) + value.len()
}

#[inline]
fn write_varint(out: &mut [u8], mut n: usize) -> usize {
    let mut at = 0;
    while n >= 0x80 {
        out[at] = n as u8 | 0x80;
        n >>= 7;
        at += 1;
    }
    out[at] = n as u8;
    at + 1
}

#[inline]
fn read_varint(bytes: &[u8]) -> (usize, usize) {
    let first = bytes[0] as usize;
    if first < 0x80 {
        return (first, 1);
    }
    let (mut n, mut at, mut shift) = (first & 0x7f, 1, 7);
    loop {
        let byte = bytes[at] as usize;
        n |= (byte & 0x7f) << shift;
        at += 1;
        shift += 7;
        if byte < 0x80 {
            return (n, at);
        }
    }
}

/// Bytes a record of this shape takes.
pub(crate) fn encoded_len(key: &[u8], meta: &RecordMeta, payload: &RecordPayload<'_>) -> usize {
    let extras_len = meta.extras.map_or(0, |extras| extras.encoded_len());
    fixed_len(header_of(key, meta, payload)) + extras_len + key.len() + payload.bytes_len()
}

/// Offset of the first byte of a text of `len` bytes in its record.
pub(crate) fn text_at(key: &[u8], meta: &RecordMeta, len: usize) -> usize {
    encoded_len(key, meta, &RecordPayload::Text(b"")) - varint_len(0) + varint_len(len)
}

/// Offset of the first byte of a string that may be changed in place, in its record.
pub(crate) fn raw_at(key: &[u8], meta: &RecordMeta) -> usize {
    encoded_len(key, meta, &RecordPayload::Raw { prefix: &[], len: 0, room: 0 })
}

/// Writes the part before a string of `len` bytes that may be changed in place, and its first bytes.
pub(crate) fn encode_raw_head(out: &mut [u8], key: &[u8], meta: &RecordMeta, prefix: &[u8], len: usize) {
    encode(out, key, meta, &RecordPayload::Raw { prefix, len: prefix.len(), room: 0 });
    let at = raw_at(key, meta);
    out[at - 4..at].copy_from_slice(&(len as u32).to_le_bytes());
}

/// Writes the part before a text of `len` bytes.
pub(crate) fn encode_text_head(out: &mut [u8], key: &[u8], meta: &RecordMeta, len: usize) {
    // Encode an empty text; the length is written afterwards.
    encode(out, key, meta, &RecordPayload::Text(b""));
    let at = encoded_len(key, meta, &RecordPayload::Text(b"")) - varint_len(0);
    write_varint(&mut out[at..], len);
}

fn header_of(key: &[u8], meta: &RecordMeta, payload: &RecordPayload<'_>) -> u8 {
    let mut header = payload.kind() as u8;
    if let Some(ms) = meta.deadline_ms {
        header |= if is_short(ms) { TTL_SHORT } else { TTL_LONG };
    }
    if meta.extras.is_some() {
        header |= EXTRAS;
    }
    if meta.sticky {
        header |= STICKY;
    }
    if key.len() > 255 {
        header |= WIDE;
    }
    header
}

#[inline]
fn is_short(deadline_ms: u64) -> bool {
    deadline_ms.wrapping_sub(SHORT_TTL_ORIGIN_MS) < SHORT_TTL_SPAN_MS
}

#[inline]
fn ttl_len(header: u8) -> usize {
    match header & TTL {
        0 => 0,
        TTL_SHORT => 5,
        _ => 8,
    }
}

/// Bytes before the extras, or before the key if there are none.
#[inline]
fn fixed_len(header: u8) -> usize {
    let plain = if header & WIDE == 0 { 2 } else { 5 };
    if header & TTL == 0 { plain } else { plain + ttl_len(header) }
}

/// Bytes before the key.
#[inline]
fn head_len(tail: &[u8]) -> usize {
    let header = tail[0];
    let fixed = fixed_len(header);
    if header & EXTRAS == 0 { fixed } else { fixed + extras::len_of(tail[fixed]) }
}

/// Writes a whole record to the front of `out`.
pub(crate) fn encode(out: &mut [u8], key: &[u8], meta: &RecordMeta, payload: &RecordPayload<'_>) {
    let header = header_of(key, meta, payload);
    out[0] = header;
    let mut at = if header & WIDE == 0 {
        out[1] = key.len() as u8;
        2
    } else {
        out[1..5].copy_from_slice(&(key.len() as u32).to_le_bytes());
        5
    };
    if let Some(ms) = meta.deadline_ms {
        write_deadline(&mut out[at..], header, ms);
        at += ttl_len(header);
    }
    if let Some(extras) = meta.extras {
        extras.encode(&mut out[at..]);
        at += extras.encoded_len();
    }
    out[at..at + key.len()].copy_from_slice(key);
    payload.write(&mut out[at + key.len()..]);
}

fn write_deadline(out: &mut [u8], header: u8, ms: u64) {
    if header & TTL == TTL_SHORT {
        out[..5].copy_from_slice(&(ms - SHORT_TTL_ORIGIN_MS).to_le_bytes()[..5]);
    } else {
        out[..8].copy_from_slice(&ms.to_le_bytes());
    }
}

/// Returns true if the record at the front of `tail` belongs to `key`.
#[inline]
pub(crate) fn is_of(tail: &[u8], key: &[u8]) -> bool {
    let [header, key_len, rest @ ..] = tail else { return false };
    if header & (WIDE | TTL | EXTRAS) == 0 {
        return usize::from(*key_len) == key.len()
            && rest.get(..key.len()).is_some_and(|own| is_equal(own, key));
    }
    is_of_long(tail, key)
}

/// [`is_of`] of a record with more than the two bytes of the usual head.
#[inline(never)]
fn is_of_long(tail: &[u8], key: &[u8]) -> bool {
    Record { tail }.key() == key
}

/// Offset of the payload of a plain string: one without deadline, extras, packing or a wide key.
#[inline]
pub(crate) fn plain_payload_at(tail: &[u8]) -> Option<usize> {
    let [header, key_len, ..] = tail else { return None };
    (header & !STICKY == RecordKind::Text as u8).then_some(2 + usize::from(*key_len))
}

/// The relation of a record to a key.
pub(crate) enum RecordMatch {
    /// It belongs to another key.
    Other,
    /// It belongs to the key.
    Key,
    /// It belongs to the key and is a plain string of less than 16 KiB: start and end of its value in the record.
    Plain(usize, usize),
}

/// Compares the key of the record at the front of `tail`, and locates its value if it is plain.
#[inline(always)]
pub(crate) fn match_key(tail: &[u8], key: &[u8]) -> RecordMatch {
    let [header, key_len, rest @ ..] = tail else { return RecordMatch::Other };
    if header & !STICKY != RecordKind::Text as u8 {
        return if is_of(tail, key) { RecordMatch::Key } else { RecordMatch::Other };
    }
    if usize::from(*key_len) != key.len() {
        return RecordMatch::Other;
    }
    let Some((own, payload)) = rest.split_at_checked(key.len()) else { return RecordMatch::Other };
    if !is_equal(own, key) {
        return RecordMatch::Other;
    }
    let (start, len) = match payload {
        [len @ 0..0x80, ..] => (key.len() + 3, usize::from(*len)),
        [low, high @ 0..0x80, ..] => (key.len() + 4, usize::from(low & 0x7f) | usize::from(*high) << 7),
        _ => return RecordMatch::Key,
    };
    RecordMatch::Plain(start, start + len)
}

/// Returns true if a value would be stored packed.
#[inline]
pub(crate) fn is_worth_packing(value: &[u8]) -> bool {
    (PACK_BYTES_MIN..=PACK_BYTES_MAX).contains(&value.len()) && ascii7::fits(value)
}

/// A record to read. `tail` starts at the record and may run past its end.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    pub(crate) tail: &'a [u8],
}

/// A value to read.
#[derive(Clone, Copy)]
pub(crate) enum RecordValue<'a> {
    Text(&'a [u8]),
    Packed(&'a [u8], usize),
    Object(Type, u32),
    Folded(Type, u32),
}

impl<'a> Record<'a> {
    #[inline]
    fn header(self) -> u8 {
        self.tail[0]
    }

    #[inline]
    fn key_len(self) -> usize {
        if self.header() & WIDE == 0 { self.tail[1] as usize } else { u32_at(self.tail, 1) as usize }
    }

    /// The key.
    #[inline]
    pub fn key(self) -> &'a [u8] {
        let at = head_len(self.tail);
        &self.tail[at..at + self.key_len()]
    }

    /// The deadline in Unix milliseconds, if there is one.
    #[inline]
    pub fn deadline_ms(self) -> Option<u64> {
        let header = self.header();
        if header & TTL == 0 { None } else { Some(self.read_deadline(header)) }
    }

    fn read_deadline(self, header: u8) -> u64 {
        let at = if header & WIDE == 0 { 2 } else { 5 };
        let mut bytes = [0u8; 8];
        if header & TTL == TTL_SHORT {
            bytes[..5].copy_from_slice(&self.tail[at..at + 5]);
            u64::from_le_bytes(bytes) + SHORT_TTL_ORIGIN_MS
        } else {
            bytes.copy_from_slice(&self.tail[at..at + 8]);
            u64::from_le_bytes(bytes)
        }
    }

    /// Returns true if the key is dead at `now_ms`.
    #[inline]
    pub fn is_expired(self, now_ms: u64) -> bool {
        self.header() & TTL != 0 && self.read_deadline(self.header()) <= now_ms
    }

    /// Its bytes; a few may be unused.
    pub fn bytes_len(self) -> usize {
        self.tail.len()
    }

    /// Returns true if eviction must leave the key alone.
    pub fn is_sticky(self) -> bool {
        self.header() & STICKY != 0
    }

    /// Memcached's part, if it has one.
    pub fn extras(self) -> Option<Extras> {
        let header = self.header();
        (header & EXTRAS != 0).then(|| Extras::decode(&self.tail[fixed_len(header)..]))
    }

    /// Bytes of memcached's part.
    #[inline]
    pub(crate) fn extras_len(self) -> usize {
        let header = self.header();
        if header & EXTRAS == 0 { 0 } else { extras::len_of(self.tail[fixed_len(header)]) }
    }

    pub(crate) fn meta(self) -> RecordMeta {
        RecordMeta { deadline_ms: self.deadline_ms(), extras: self.extras(), sticky: self.is_sticky() }
    }

    #[inline]
    pub(crate) fn kind(self) -> RecordKind {
        match self.header() & KIND {
            0 => RecordKind::Text,
            1 => RecordKind::Raw,
            2 => RecordKind::Packed,
            3 => RecordKind::Object,
            _ => RecordKind::Float,
        }
    }

    /// Offset of the payload from the record's start.
    #[inline]
    pub(crate) fn payload_at(self) -> usize {
        head_len(self.tail) + self.key_len()
    }

    #[inline]
    pub(crate) fn value(self) -> RecordValue<'a> {
        match self.plain_object() {
            Some(value) => value,
            None => self.any_value(),
        }
    }

    /// The collection of a record with nothing but its key before it, as most are.
    #[inline(always)]
    pub(crate) fn plain_object(self) -> Option<RecordValue<'a>> {
        let [header, key_len, rest @ ..] = self.tail else { return None };
        if header & !STICKY != RecordKind::Object as u8 {
            return None;
        }
        let &[kind, a, b, c, d] = rest.get(usize::from(*key_len)..)?.first_chunk::<OBJECT_LEN>()?;
        let number = u32::from_le_bytes([a, b, c, d]);
        Some(match kind & FOLDED {
            0 => RecordValue::Object(Type::from_byte(kind), number),
            _ => RecordValue::Folded(Type::from_byte(kind & !FOLDED), number),
        })
    }

    fn any_value(self) -> RecordValue<'a> {
        let payload = &self.tail[self.payload_at()..];
        match self.kind() {
            RecordKind::Text | RecordKind::Float => {
                let (len, at) = read_varint(payload);
                RecordValue::Text(&payload[at..at + len])
            }
            RecordKind::Raw => {
                let len = u32_at(payload, 0) as usize;
                RecordValue::Text(&payload[4..4 + len])
            }
            RecordKind::Packed => {
                let (len, at) = read_varint(payload);
                RecordValue::Packed(&payload[at..at + ascii7::packed_len(len)], len)
            }
            RecordKind::Object if payload[0] & FOLDED != 0 => {
                RecordValue::Folded(Type::from_byte(payload[0] & !FOLDED), u32_at(payload, 1))
            }
            RecordKind::Object => RecordValue::Object(Type::from_byte(payload[0]), u32_at(payload, 1)),
        }
    }

    /// Bytes the record takes, without the slack of its block.
    #[cfg(test)]
    pub(crate) fn encoded_len(self) -> usize {
        let at = self.payload_at();
        let payload = &self.tail[at..];
        at + match self.kind() {
            RecordKind::Text | RecordKind::Float => {
                let (len, n) = read_varint(payload);
                n + len
            }
            RecordKind::Raw => 4 + u32_at(payload, 0) as usize,
            RecordKind::Packed => {
                let (len, n) = read_varint(payload);
                n + ascii7::packed_len(len)
            }
            RecordKind::Object => 5,
        }
    }
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0u8; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

/// Overwrites the payload of a record in place with a text and keeps the part before it. The caller has checked that
/// the block is large enough.
pub(crate) fn overwrite_text(block: &mut [u8], payload_at: usize, value: &[u8]) {
    block[0] = (block[0] & !KIND) | RecordKind::Text as u8;
    let out = &mut block[payload_at..];
    let at = write_varint(out, value.len());
    streaming::copy(&mut out[at..at + value.len()], value);
}

/// Changes the deadline if its width stays the same; returns whether it did.
pub(crate) fn overwrite_deadline(block: &mut [u8], ms: u64) -> bool {
    let header = block[0];
    let wanted = if is_short(ms) { TTL_SHORT } else { TTL_LONG };
    if header & TTL != wanted {
        return false;
    }
    let at = if header & WIDE == 0 { 2 } else { 5 };
    write_deadline(&mut block[at..], header, ms);
    true
}

/// Memcached's part of a record that has one.
pub(crate) fn extras_mut(block: &mut [u8]) -> &mut [u8] {
    let at = fixed_len(block[0]);
    &mut block[at..]
}

/// The bytes of a `Raw` record's value, to change in place.
pub(crate) fn raw_value_mut(block: &mut [u8]) -> &mut [u8] {
    let record = Record { tail: block };
    debug_assert_eq!(record.kind(), RecordKind::Raw);
    let at = record.payload_at();
    let len = u32_at(block, at) as usize;
    &mut block[at + 4..at + 4 + len]
}

/// Grows or shrinks a `Raw` record's value in place; new bytes are zeros.
pub(crate) fn raw_resize(block: &mut [u8], len: usize) {
    let record = Record { tail: block };
    debug_assert_eq!(record.kind(), RecordKind::Raw);
    let at = record.payload_at();
    let old = u32_at(block, at) as usize;
    block[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
    if len > old {
        block[at + 4 + old..at + 4 + len].fill(0);
    }
}

/// Sets or clears the mark that prevents eviction.
pub(crate) fn set_sticky(block: &mut [u8], on: bool) {
    block[0] = if on { block[0] | STICKY } else { block[0] & !STICKY };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_reads_back() {
        let keys: Vec<Vec<u8>> = [0usize, 1, 16, 255, 256, 5000].iter().map(|&n| vec![b'k'; n]).collect();
        let values: Vec<Vec<u8>> =
            [0usize, 1, 127, 128, 600, 20_000].iter().map(|&n| vec![b'v'; n]).collect();
        let deadlines = [None, Some(1), Some(SHORT_TTL_ORIGIN_MS), Some(1_800_000_000_123), Some(u64::MAX)];
        for key in &keys {
            for value in &values {
                for deadline_ms in deadlines {
                    for extras in [
                        None,
                        Some(Extras::default()),
                        Some(Extras { flags: 7, cas: Some(u64::MAX - 3), ..Extras::default() }),
                    ] {
                        let meta = RecordMeta { deadline_ms, extras, sticky: extras.is_some() };
                        for payload in [
                            RecordPayload::Text(value),
                            RecordPayload::Packed(value),
                            RecordPayload::Raw { prefix: value, len: value.len(), room: 0 },
                            RecordPayload::Float(value),
                        ] {
                            let len = encoded_len(key, &meta, &payload);
                            let mut block = vec![0xaa; len + 3];
                            encode(&mut block, key, &meta, &payload);
                            let record = Record { tail: &block };
                            assert!(is_of(&block, key));
                            assert_eq!(record.key(), &key[..]);
                            assert_eq!(record.meta(), meta);
                            assert_eq!(record.encoded_len(), len);
                            match record.value() {
                                RecordValue::Text(text) => assert_eq!(text, &value[..]),
                                RecordValue::Packed(packed, n) => {
                                    let mut out = Vec::new();
                                    ascii7::unpack(packed, n, &mut out);
                                    assert_eq!(&out, value);
                                }
                                RecordValue::Object(..) | RecordValue::Folded(..) => {
                                    panic!("a text became an object")
                                }
                            }
                            assert_eq!(block[len..], [0xaa; 3]);
                        }
                    }
                }
            }
        }
    }
}

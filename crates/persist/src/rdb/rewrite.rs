//! Entries as Redis 7.0 reads them.
//!
//! Marks that 7.0 cannot express are put into a fact before the entry, which it skips. Values that newer servers pack
//! in unknown forms are built and written anew. Texts are packed.

use std::borrow::Cow;
use std::fmt;

use darter_base::hash::KeyHasher;
use darter_store::rdb::{self as values, RdbSource};
use darter_store::{Arena, Object};

use super::lzf::Packer;
use super::{AUX, NEXT};
use crate::cursor::{Cursor, CursorStop};
use crate::entry::{DEADLINE_MS, KeyEntry, MEMBER_DEADLINES};
use crate::layout::{self, LayoutToken};

const HASH: u8 = 4;
const SET: u8 = 2;
const ZSET: u8 = 5;
const STREAM_OF_7_0: u8 = 19;
const STREAM_OF_7_2: u8 = 21;
const STREAM_OF_8_6: u8 = 26;
const STREAM_OF_8_8: u8 = 27;
/// The consumer that gets the entries that others gave back, so that they remain pending and can be claimed.
const GIVEN_BACK_TO: &[u8] = b"nacked";

/// Writes entries; keeps the memory it needs for that.
#[derive(Default)]
pub struct Rewriter {
    packer: Option<Packer>,
    // for building values that cannot be copied
    arena: Option<Box<Arena>>,
    built: Vec<u8>,
    deadlines: Vec<u8>,
}

impl fmt::Debug for Rewriter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Rewriter").field("packs", &self.packer.is_some()).finish_non_exhaustive()
    }
}

impl Rewriter {
    /// With texts packed, or not.
    pub fn new(packs: bool) -> Rewriter {
        Rewriter { packer: packs.then(Packer::default), ..Rewriter::default() }
    }

    /// Appends `entry`.
    ///
    /// Errors: its value is damaged, or of a type that Redis does not know.
    pub fn append(&mut self, entry: &KeyEntry<'_>, out: &mut Vec<u8>) -> Result<(), CursorStop> {
        if entry.kind == values::TYPE_STRING && entry.is_plain() {
            self.append_head(entry, values::TYPE_STRING, out);
            return self.append_value(entry.kind, entry.value, out);
        }
        if needs_building(entry.kind) {
            let kind = self.build(entry)?;
            let built = std::mem::take(&mut self.built);
            let done = self.append_mapped(entry, kind, &built, out);
            self.built = built;
            return done;
        }
        self.append_mapped(entry, entry.kind, entry.value, out)
    }

    /// Appends the type byte, the value and the footer of `entry`, as RESTORE of Redis 7.0 takes them. Returns the
    /// marks that cannot be expressed there, in the form before an entry; empty if there are none.
    ///
    /// Errors: the value is damaged, or of a type that Redis does not know.
    pub fn append_payload(&mut self, entry: &KeyEntry<'_>, out: &mut Vec<u8>) -> Result<Vec<u8>, CursorStop> {
        let nameless = KeyEntry { key: Cow::Borrowed(b""), deadline_ms: None, part: None, ..entry.clone() };
        let mut whole = Vec::new();
        self.deadlines.clear();
        self.append(&nameless, &mut whole)?;
        // They are written to a fact before the entry.
        let (mut cursor, mut marks) = (Cursor::new(&whole), Vec::new());
        if whole.first() == Some(&AUX) {
            cursor.byte()?;
            cursor.pass_text()?;
            marks = cursor.text()?.into_owned();
        }
        let mut payload = vec![cursor.byte()?];
        cursor.pass_text()?;
        payload.extend_from_slice(cursor.rest());
        values::seal(&mut payload);
        out.extend_from_slice(&payload);
        Ok(marks)
    }

    fn append_mapped(
        &mut self,
        entry: &KeyEntry<'_>,
        kind: u8,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), CursorStop> {
        let mut plain = Vec::new();
        self.deadlines.clear();
        let (kind, value) = match kind {
            layout::HASH_WITH_TTL => (HASH, split_hash(value, &mut plain, &mut self.deadlines)?),
            layout::SET_WITH_TTL => (SET, split_members::<0>(value, &mut plain, &mut self.deadlines)?),
            layout::ZSET_WITH_TTL => (ZSET, split_members::<8>(value, &mut plain, &mut self.deadlines)?),
            STREAM_OF_7_2 | STREAM_OF_8_6 | STREAM_OF_8_8 => {
                (STREAM_OF_7_0, as_stream_of_7_0(kind, value, &mut plain)?)
            }
            kind => (kind, value),
        };
        self.append_marks(entry, out);
        self.append_head(entry, kind, out);
        self.append_value(kind, value, out)
    }

    fn append_marks(&mut self, entry: &KeyEntry<'_>, out: &mut Vec<u8>) {
        let mut marks = Vec::new();
        entry.write_marks(&mut marks);
        let deadlines = entry.member_deadlines.unwrap_or(&self.deadlines);
        if !deadlines.is_empty() {
            marks.push(MEMBER_DEADLINES);
            marks.extend_from_slice(deadlines);
        }
        if !marks.is_empty() {
            out.push(AUX);
            values::write_text(out, NEXT);
            values::write_text(out, &marks);
        }
    }

    fn append_head(&mut self, entry: &KeyEntry<'_>, kind: u8, out: &mut Vec<u8>) {
        if let Some(ms) = entry.deadline_ms {
            out.push(DEADLINE_MS);
            out.extend_from_slice(&ms.to_le_bytes());
        }
        out.push(kind);
        self.append_text(&entry.key, out);
    }

    fn append_value(&mut self, kind: u8, value: &[u8], out: &mut Vec<u8>) -> Result<(), CursorStop> {
        if self.packer.is_none() {
            out.extend_from_slice(value);
            return Ok(());
        }
        let mut cursor = Cursor::new(value);
        let layout = layout::of(kind).ok_or_else(|| cursor.bad("a value of an unknown type"))?;
        layout::walk(layout.pieces, &mut cursor, &mut |token| match token {
            LayoutToken::Plain(bytes) => out.extend_from_slice(bytes),
            LayoutToken::Text(written) => self.append_written(written, out),
        })
    }

    /// Appends an encoded text: packed if it is plain and that saves memory.
    fn append_written(&mut self, written: &[u8], out: &mut Vec<u8>) {
        let plain = match written.first() {
            // integers and packed texts
            Some(0xc0..) | None => None,
            Some(_) => {
                let mut cursor = Cursor::new(written);
                cursor.number().ok().map(|_| cursor.rest())
            }
        };
        match plain.and_then(|text| Some((text.len(), self.packer.as_mut()?.pack(text)?))) {
            Some((len, packed)) => push_packed(packed, len, out),
            None => out.extend_from_slice(written),
        }
    }

    fn append_text(&mut self, text: &[u8], out: &mut Vec<u8>) {
        match self.packer.as_mut().and_then(|packer| packer.pack(text)) {
            Some(packed) => push_packed(packed, text.len(), out),
            None => values::write_text(out, text),
        }
    }

    /// Builds the value and writes it in our form to `built`; returns its type byte.
    fn build(&mut self, entry: &KeyEntry<'_>) -> Result<u8, CursorStop> {
        let fault = |what| Cursor::new(&[]).bad(what);
        if self.arena.is_none() {
            self.arena = Some(Box::new(Arena::new().map_err(|_| fault("no room to build a value in"))?));
        }
        let arena = self.arena.as_mut().ok_or_else(|| fault("no room to build a value in"))?;
        let mut source = RdbSource::new(entry.value);
        let mut object: Object = values::read_object(entry.kind, &mut source, arena, KeyHasher::new(0))
            .map_err(|_| fault("a damaged value"))?;
        self.built.clear();
        values::write_object(&object, arena, &mut self.built);
        let kind = values::type_of(&object);
        object.clear(arena);
        Ok(kind)
    }
}

/// Returns true if Redis 7.0 cannot read this type, and a walk over its pieces cannot make it readable.
fn needs_building(kind: u8) -> bool {
    matches!(kind, 20 | 22 | 23 | 25 | 28..=31 | 33.. if kind != layout::ZSET_WITH_TTL)
}

fn push_packed(packed: &[u8], len: usize, out: &mut Vec<u8>) {
    out.push(0xc3);
    values::write_length(out, packed.len() as u64);
    values::write_length(out, len as u64);
    out.extend_from_slice(packed);
}

/// A hash without its deadlines, which are written to `deadlines`.
pub(super) fn split_hash<'a>(
    value: &[u8],
    plain: &'a mut Vec<u8>,
    deadlines: &mut Vec<u8>,
) -> Result<&'a [u8], CursorStop> {
    let mut cursor = Cursor::new(value);
    let earliest = u64::from_le_bytes(cursor.array()?);
    let count = cursor.number()?;
    values::write_length(plain, count);
    let (mut timed, mut list) = (0, Vec::new());
    for _ in 0..count {
        let ttl = cursor.number()?;
        let (field, value) = (cursor.pass_text()?, cursor.pass_text()?);
        plain.extend_from_slice(field);
        plain.extend_from_slice(value);
        if let Some(after) = ttl.checked_sub(1) {
            timed += 1;
            list.extend_from_slice(field);
            values::write_length(&mut list, earliest.saturating_add(after));
        }
    }
    push_list(timed, &list, deadlines);
    Ok(plain)
}

/// A set, or a sorted set with `SCORE_BYTES` of score after each member, without its deadlines. These are written to
/// `deadlines`.
pub(super) fn split_members<'a, const SCORE_BYTES: usize>(
    value: &[u8],
    plain: &'a mut Vec<u8>,
    deadlines: &mut Vec<u8>,
) -> Result<&'a [u8], CursorStop> {
    let mut cursor = Cursor::new(value);
    let count = cursor.number()?;
    values::write_length(plain, count);
    let (mut timed, mut list) = (0, Vec::new());
    for _ in 0..count {
        let (member, score, ms) = (cursor.pass_text()?, cursor.array::<SCORE_BYTES>()?, cursor.number()?);
        plain.extend_from_slice(member);
        plain.extend_from_slice(&score);
        if ms > 0 {
            timed += 1;
            list.extend_from_slice(member);
            values::write_length(&mut list, ms);
        }
    }
    push_list(timed, &list, deadlines);
    Ok(plain)
}

fn push_list(count: u64, list: &[u8], deadlines: &mut Vec<u8>) {
    if count > 0 {
        values::write_length(deadlines, count);
        deadlines.extend_from_slice(list);
    }
}

/// A stream without the times of the last deliveries to consumers, and without the entries of producers. Entries
/// given back to the group get a consumer, because 7.0 has no pending entries without one.
fn as_stream_of_7_0<'a>(kind: u8, value: &[u8], plain: &'a mut Vec<u8>) -> Result<&'a [u8], CursorStop> {
    let mut cursor = Cursor::new(value);
    for _ in 0..cursor.number()? {
        cursor.pass_text()?;
        cursor.pass_text()?;
    }
    for _ in 0..8 {
        cursor.number()?;
    }
    let groups = cursor.number()?;
    plain.extend_from_slice(cursor.since(0));
    for _ in 0..groups {
        let start = cursor.at();
        cursor.pass_text()?;
        for _ in 0..3 {
            cursor.number()?;
        }
        for _ in 0..cursor.number()? {
            cursor.array::<24>()?;
            cursor.number()?;
        }
        plain.extend_from_slice(cursor.since(start));
        let (mut consumers, mut count) = (Vec::new(), cursor.number()?);
        let mut given_back_to = GIVEN_BACK_TO.to_vec();
        for _ in 0..count {
            let start = cursor.at();
            if *cursor.text()? == given_back_to {
                given_back_to.push(b'_');
            }
            cursor.array::<8>()?;
            consumers.extend_from_slice(cursor.since(start));
            cursor.array::<8>()?;
            let start = cursor.at();
            for _ in 0..cursor.number()? {
                cursor.array::<16>()?;
            }
            consumers.extend_from_slice(cursor.since(start));
        }
        if kind == STREAM_OF_8_8 {
            let start = cursor.at();
            let given_back = cursor.number()?;
            for _ in 0..given_back {
                cursor.array::<16>()?;
            }
            if given_back > 0 {
                count = count.saturating_add(1);
                values::write_text(&mut consumers, &given_back_to);
                consumers.extend_from_slice(&[0; 8]);
                consumers.extend_from_slice(cursor.since(start));
            }
        }
        values::write_length(plain, count);
        plain.extend_from_slice(&consumers);
    }
    Ok(plain)
}

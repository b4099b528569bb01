//! One key as bytes: written by a shard's walker, held by both file formats, read by loading.
//!
//! ```text
//! [0xfc deadline]  Unix ms, 8 bytes           as in RDB files
//! [0xd0 extras]    memcached's part         ours, from here to the type byte: a byte of flags for last
//!                                           access 4, flags 4, CAS 8 bytes follow, and five marks above
//! [0xd1]           never evicted
//! [0xd2 start, total]  a part: members before it (lists), members of the whole value
//! [0xd3 list]      deadlines of members, from an RDB file: count, then member and deadline each
//! type byte, key, value                       as in RDB files
//! ```
//!
//! An entry without our marks is an entry of an RDB file. Numbers are written as RDB writes lengths.

use std::borrow::Cow;

use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry as MemberExpiry, Table};
use darter_pack::tree::{List, Zset};
use darter_store::cut::CutBody;
use darter_store::extras::{Extras, RecordMarks};
use darter_store::rdb::{self, ObjectPieces, RdbSource};
use darter_store::{Expiry, Key, Keyed, Object, Record, SetValue, Shard, StreamValue, Text};

use crate::cursor::{Cursor, CursorFault, CursorStop};
use crate::layout;

/// A deadline in Unix milliseconds follows.
pub(crate) const DEADLINE_MS: u8 = 0xfc;
/// A deadline in Unix seconds follows: Redis before 2.6.
pub(crate) const DEADLINE_SECS: u8 = 0xfd;
pub(crate) const IDLE_SECS: u8 = 0xf8;
pub(crate) const FREQUENCY: u8 = 0xf9;
const EXTRAS: u8 = 0xd0;
const HAS_ACCESS: u8 = 1;
const HAS_FLAGS: u8 = 2;
const HAS_CAS: u8 = 4;
const MARKS_SHIFT: u32 = 3;
const STICKY: u8 = 0xd1;
const PART: u8 = 0xd2;
/// Deadlines of members follow.
pub(crate) const MEMBER_DEADLINES: u8 = 0xd3;

/// A piece of a value that is written in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryPart {
    /// Elements of a list or a stream that come before this piece; 0 for other types, whose pieces come in any order.
    /// The last piece of a stream, and no other, has one element.
    pub start: u64,
    /// Elements of the whole value.
    pub total: u64,
}

/// One key, or a part of one, borrowed from the bytes it was read from.
#[derive(Clone, Debug)]
pub struct KeyEntry<'a> {
    /// The key.
    pub key: Cow<'a, [u8]>,
    /// The type byte.
    pub kind: u8,
    /// The encoded value.
    pub value: &'a [u8],
    /// When the key dies, Unix milliseconds.
    pub deadline_ms: Option<u64>,
    /// Memcached's part.
    pub extras: Option<Extras>,
    /// True if eviction must leave the key alone.
    pub is_sticky: bool,
    /// Set when this is only a part of the value.
    pub part: Option<EntryPart>,
    /// Deadlines of members that the value itself does not tell: count, then member and deadline each.
    pub member_deadlines: Option<&'a [u8]>,
}

/// The result of loading an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadedEntry {
    /// A key was made.
    Key,
    /// A part was added to an existing key.
    Part,
    /// The key had expired; nothing was created.
    Dead,
    /// The collection has no element, which some old files hold; nothing was created.
    Empty,
}

/// Why an entry could not be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedEntry {
    /// The value is damaged.
    Damaged,
    /// The key is there already.
    Duplicate,
    /// A part of a list that does not start at the end of the list, or a part of another type than the key.
    OutOfPlace,
    /// No room.
    Full,
}

impl RefusedEntry {
    /// The reason, as part of a sentence.
    pub fn what(self) -> &'static str {
        match self {
            RefusedEntry::Damaged => "a damaged value",
            RefusedEntry::Duplicate => "a key that was there already",
            RefusedEntry::OutOfPlace => "a part of a value that does not fit what came before",
            RefusedEntry::Full => "no room in memory for the value",
        }
    }
}

/// Appends the entry that a RESTORE makes of its payload, after `marks`; a deadline of 0 means none. `None`: the
/// payload is too short.
pub fn of_payload(
    marks: &[u8],
    key: &[u8],
    deadline_ms: u64,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    let body = payload.get(..payload.len().checked_sub(rdb::FOOTER_LEN)?)?;
    let (kind, value) = body.split_first()?;
    out.extend_from_slice(marks);
    if deadline_ms > 0 {
        out.push(DEADLINE_MS);
        out.extend_from_slice(&deadline_ms.to_le_bytes());
    }
    out.push(*kind);
    rdb::write_text(out, key);
    out.extend_from_slice(value);
    Some(())
}

/// Appends the entry of a record of `shard`. Cost: a copy of the value, no allocation except that of `out`.
pub fn write(shard: &Shard, record: Record<'_>, out: &mut Vec<u8>) {
    let done =
        shard.with_object(record, |object, arena| write_body(record, CutBody::Object(object, arena), out));
    if done.is_none()
        && let Some(text) = record.text()
    {
        write_body(record, CutBody::Text(text), out);
    }
}

/// Appends the entry of a record with the value `body`. Cost: as [`write`].
pub fn write_body(record: Record<'_>, body: CutBody<'_>, out: &mut Vec<u8>) {
    match body {
        CutBody::Text(text) => {
            write_head(record, rdb::TYPE_STRING, out);
            match text {
                Text::Plain(bytes) => rdb::write_text(out, bytes),
                packed => {
                    rdb::write_length(out, packed.len() as u64);
                    packed.write_to(out);
                }
            }
        }
        CutBody::Object(object, arena) => {
            write_head(record, rdb::type_of(object), out);
            rdb::write_object(object, arena, out);
        }
    }
}

/// Appends all of an entry except its value of type byte `kind`, which the caller appends.
fn write_head(record: Record<'_>, kind: u8, out: &mut Vec<u8>) {
    write_front(record, out);
    out.push(kind);
    rdb::write_text(out, record.key());
}

fn write_front(record: Record<'_>, out: &mut Vec<u8>) {
    if let Some(ms) = record.deadline_ms() {
        out.push(DEADLINE_MS);
        out.extend_from_slice(&ms.to_le_bytes());
    }
    write_marks(record.extras(), record.is_sticky(), out);
}

/// The common beginning of all parts of a value.
#[derive(Clone, Debug)]
pub struct PartHead {
    front: Vec<u8>,
    name: Vec<u8>,
    total: u64,
    /// True if parts must be read in the order in which they are written: those of lists and streams.
    pub is_ordered: bool,
}

impl PartHead {
    /// The head for a record whose value has `total` elements and is written under type byte `kind`.
    pub fn new(record: Record<'_>, kind: u8, total: u64) -> PartHead {
        let (mut front, mut name) = (Vec::new(), vec![kind]);
        write_front(record, &mut front);
        rdb::write_text(&mut name, record.key());
        PartHead {
            front,
            name,
            total,
            is_ordered: matches!(kind, rdb::TYPE_LIST | rdb::TYPE_STREAM_5 | layout::MODULE_2),
        }
    }

    /// Appends all of a part except its value. `before` elements are in the parts written earlier.
    pub fn write(&self, before: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.front);
        out.push(PART);
        rdb::write_length(out, if self.is_ordered { before } else { 0 });
        rdb::write_length(out, self.total);
        out.extend_from_slice(&self.name);
    }
}

fn write_marks(extras: Option<Extras>, is_sticky: bool, out: &mut Vec<u8>) {
    if let Some(extras) = extras {
        let fields = u8::from(extras.access_s.is_some()) * HAS_ACCESS
            + u8::from(extras.flags != 0) * HAS_FLAGS
            + u8::from(extras.cas.is_some()) * HAS_CAS;
        out.extend_from_slice(&[EXTRAS, fields | extras.marks.0 << MARKS_SHIFT]);
        if let Some(access) = extras.access_s {
            out.extend_from_slice(&access.to_le_bytes());
        }
        if extras.flags != 0 {
            out.extend_from_slice(&extras.flags.to_le_bytes());
        }
        if let Some(cas) = extras.cas {
            out.extend_from_slice(&cas.to_le_bytes());
        }
    }
    if is_sticky {
        out.push(STICKY);
    }
}

impl<'a> KeyEntry<'a> {
    /// The next entry of `cursor`.
    ///
    /// Errors: incomplete, or damaged as far as that is visible without building the value.
    #[inline]
    pub fn read(cursor: &mut Cursor<'a>) -> Result<KeyEntry<'a>, CursorStop> {
        let mut entry = KeyEntry::none();
        loop {
            match cursor.byte()? {
                DEADLINE_MS => entry.deadline_ms = Some(u64::from_le_bytes(cursor.array()?)),
                DEADLINE_SECS => {
                    // negative: long dead
                    let secs = u64::try_from(i32::from_le_bytes(cursor.array()?)).unwrap_or(0);
                    entry.deadline_ms = Some(secs * 1000);
                }
                IDLE_SECS => drop(cursor.number()?),
                FREQUENCY => drop(cursor.byte()?),
                kind if !entry.read_mark(kind, cursor)? => {
                    entry.kind = kind;
                    entry.key = cursor.text()?;
                    entry.value = layout::pass(kind, cursor)?;
                    return Ok(entry);
                }
                _ => {}
            }
        }
    }

    pub(crate) fn none() -> KeyEntry<'a> {
        KeyEntry {
            key: Cow::Borrowed(&[]),
            kind: 0,
            value: &[],
            deadline_ms: None,
            extras: None,
            is_sticky: false,
            part: None,
            member_deadlines: None,
        }
    }

    /// Reads the mark `byte`; returns false if it is not a mark.
    pub(crate) fn read_mark(&mut self, byte: u8, cursor: &mut Cursor<'a>) -> Result<bool, CursorStop> {
        match byte {
            EXTRAS => {
                let fields = cursor.byte()?;
                let mut extras = Extras { marks: RecordMarks(fields >> MARKS_SHIFT), ..Extras::default() };
                if fields & HAS_ACCESS != 0 {
                    extras.access_s = Some(u32::from_le_bytes(cursor.array()?));
                }
                if fields & HAS_FLAGS != 0 {
                    extras.flags = u32::from_le_bytes(cursor.array()?);
                }
                if fields & HAS_CAS != 0 {
                    extras.cas = Some(u64::from_le_bytes(cursor.array()?));
                }
                self.extras = Some(extras);
            }
            STICKY => self.is_sticky = true,
            PART => self.part = Some(EntryPart { start: cursor.number()?, total: cursor.number()? }),
            MEMBER_DEADLINES => {
                let start = cursor.at();
                for _ in 0..cursor.number()? {
                    cursor.pass_text()?;
                    cursor.number()?;
                }
                self.member_deadlines = Some(cursor.since(start));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns true if a file of Redis can express the whole entry.
    pub fn is_plain(&self) -> bool {
        self.extras.is_none() && !self.is_sticky && self.part.is_none() && self.member_deadlines.is_none()
    }

    /// Appends the marks that a file of Redis cannot express, except deadlines of members.
    pub(crate) fn write_marks(&self, out: &mut Vec<u8>) {
        write_marks(self.extras, self.is_sticky, out);
    }

    /// The value, if it is a text.
    pub fn text(&self) -> Option<Cow<'a, [u8]>> {
        if self.kind == rdb::TYPE_STRING { RdbSource::new(self.value).text().ok() } else { None }
    }

    /// Number of elements that the value claims, if it begins with a number.
    pub fn elements(&self) -> Option<u64> {
        let at = match self.kind {
            1..=5 | layout::SET_WITH_TTL | layout::ZSET_WITH_TTL | layout::foreign::VALKEY_HASH | 22 => 0,
            layout::HASH_WITH_TTL => 8,
            _ => return None,
        };
        Cursor::new(self.value.get(at..)?).number().ok()
    }

    /// Creates the key in database `db` of the shard that `hash`, the key's hash, belongs to.
    ///
    /// Errors: see [`RefusedEntry`]; the shard is unchanged, except for parts of this key loaded earlier.
    pub fn load(
        &self,
        shard: &mut Shard,
        db: usize,
        hash: u64,
        now_ms: u64,
    ) -> Result<LoadedEntry, RefusedEntry> {
        if self.deadline_ms.is_some_and(|ms| ms <= now_ms) {
            return Ok(LoadedEntry::Dead);
        }
        if self.elements() == Some(0) {
            return Ok(LoadedEntry::Empty);
        }
        let mut place = Keyed::find(shard, db, Key { bytes: &self.key, hash }, now_ms);
        if place.exists() {
            return match self.part {
                Some(part) => self.load_more(&mut place, part).map(|()| LoadedEntry::Part),
                None => Err(RefusedEntry::Duplicate),
            };
        }
        if self.part.is_some_and(|part| part.start > 0) {
            return Err(RefusedEntry::OutOfPlace);
        }
        let expiry = self.deadline_ms.map_or(Expiry::None, Expiry::At);
        let mut source = RdbSource::new(self.value);
        if self.kind == rdb::TYPE_STRING {
            let text = source.text().map_err(|_| RefusedEntry::Damaged)?;
            match self.extras {
                Some(extras) => place.put_item(&text, expiry, extras),
                None => place.put_text(&text, expiry),
            }
            .map_err(|_| RefusedEntry::Full)?;
        } else {
            let hasher = place.hasher();
            let object = rdb::read_object(self.kind, &mut source, place.arena_mut(), hasher)
                .map_err(|_| RefusedEntry::Damaged)?;
            place.put_object(object, expiry).map_err(|_| RefusedEntry::Full)?;
            if let Some(deadlines) = self.member_deadlines {
                set_member_deadlines(&mut place, deadlines)?;
            }
        }
        if self.is_sticky {
            place.set_sticky(true);
        }
        Ok(LoadedEntry::Key)
    }

    fn load_more(&self, place: &mut Keyed<'_>, part: EntryPart) -> Result<(), RefusedEntry> {
        let mut source = RdbSource::new(self.value);
        let done = match self.kind {
            1 => {
                let len = place.view::<List>().ok().flatten().map(|view| view.root.len());
                if len != Some(part.start) {
                    return Err(RefusedEntry::OutOfPlace);
                }
                read_into::<List>(place, self.kind, &mut source)
            }
            2 | layout::SET_WITH_TTL => read_into::<SetValue>(place, self.kind, &mut source),
            4 | layout::HASH_WITH_TTL => read_into::<Table>(place, self.kind, &mut source),
            5 | layout::ZSET_WITH_TTL => read_into::<Zset>(place, self.kind, &mut source),
            rdb::TYPE_STREAM_5 => read_into::<StreamValue>(place, self.kind, &mut source),
            layout::MODULE_2 => Ok(place.read_piece(&mut source)),
            _ => return Err(RefusedEntry::OutOfPlace),
        };
        done?.map_err(|_| RefusedEntry::Damaged)
    }
}

/// Adds the elements of `source` to the collection at `place`, which must have this type.
fn read_into<T: ObjectPieces>(
    place: &mut Keyed<'_>,
    kind: u8,
    source: &mut RdbSource<'_>,
) -> Result<Result<(), rdb::Corrupt>, RefusedEntry> {
    let edited =
        place.edit::<T, _>(|collection, arena, hasher| collection.read_more(kind, source, arena, hasher));
    match edited {
        Ok(Some(edited)) => Ok(edited.result),
        _ => Err(RefusedEntry::OutOfPlace),
    }
}

fn set_member_deadlines(place: &mut Keyed<'_>, deadlines: &[u8]) -> Result<(), RefusedEntry> {
    let damaged = |_| RefusedEntry::Damaged;
    let mut cursor = Cursor::new(deadlines);
    for _ in 0..cursor.number().map_err(damaged)? {
        let (member, ms) = (cursor.text().map_err(damaged)?, cursor.number().map_err(damaged)?);
        let hash = place.hash(&member);
        let done = match place.object().map(|(object, _)| object) {
            Some(Object::Hash(_)) => place
                .edit(|table: &mut Table, arena, _| table.set_expiry(arena, hash, &member, Some(ms)))
                .map(|edited| edited.is_some_and(|edited| edited.result == Ok(true))),
            Some(Object::Set(_)) => place
                .edit(|set: &mut SetValue, arena, hasher| {
                    let member = Item::of(&member);
                    let is_there = set.contains(arena, hasher, member, 0);
                    is_there && set.insert(arena, hasher, member, MemberExpiry::At(ms)).is_ok()
                })
                .map(|edited| edited.is_some_and(|edited| edited.result)),
            Some(Object::Zset(_)) => place
                .edit(|zset: &mut Zset, arena, hasher| {
                    zset.set_expiry(arena, &hasher, Item::of(&member), Some(ms))
                })
                .map(|edited| edited.is_some_and(|edited| edited.result)),
            _ => Ok(false),
        };
        if done != Ok(true) {
            return Err(RefusedEntry::Damaged);
        }
    }
    Ok(())
}

/// Entries of one database, one after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The database.
    pub db: u32,
    /// Number of entries.
    pub entries: u64,
    /// The entries.
    pub bytes: Vec<u8>,
    /// Offset of the entries in bytes from the start of the file; for compressed blocks, offset of the block.
    pub offset: u64,
}

impl Chunk {
    /// The entries, one by one.
    pub fn iter(&self) -> Entries<'_> {
        Entries { cursor: Cursor::new(&self.bytes) }
    }
}

/// Entries read one by one from complete bytes.
#[derive(Debug)]
pub struct Entries<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Entries<'a> {
    /// Entries of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Entries<'a> {
        Entries { cursor: Cursor::new(bytes) }
    }

    /// Bytes read so far.
    pub fn at(&self) -> usize {
        self.cursor.at()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<KeyEntry<'a>, CursorFault>;

    #[inline]
    fn next(&mut self) -> Option<Result<KeyEntry<'a>, CursorFault>> {
        if self.cursor.is_done() {
            return None;
        }
        let read = KeyEntry::read(&mut self.cursor).map_err(|stop| match stop {
            CursorStop::More => CursorFault { at: self.cursor.at(), what: "an entry that is cut off" },
            CursorStop::Bad(fault) => fault,
        });
        if read.is_err() {
            self.cursor = Cursor::new(&[]);
        }
        Some(read)
    }
}

//! The parts of a record's body: commands as they ran, and what the server removed by itself.
//!
//! The body was checked against its checksum before it is taken apart; a length that does not fit is refused all the
//! same.

use darter_base::varint;

pub use darter_store::change::Loss;

use super::Damage;

const COMMAND: u8 = 1;
const SERVED: u8 = 2;
const GONE: u8 = 3;
const MEMBERS: u8 = 4;
const VALUE: u8 = 5;
const MESSAGE: u8 = 7;
const POSITION: u8 = 8;
const STREAM: u8 = 9;
const EXPIRED: u8 = 10;
const EVICTED: u8 = 11;
const UNCOMMITTED: u8 = 12;

/// One step of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordPart<'a> {
    /// A command.
    Command {
        /// Selected database.
        db: u64,
        /// The one key it looked at, when a waiting client was served.
        only_key: Option<&'a [u8]>,
        /// Its arguments, the name first.
        args: ArgList<'a>,
    },
    /// A key that the server removed by itself.
    Gone {
        /// Its database.
        db: u64,
        /// Its name.
        key: &'a [u8],
        /// Why it has gone.
        loss: Loss,
    },
    /// A key as it was afterwards, whatever was there before.
    Value {
        /// Its database.
        db: u64,
        /// The key, as snapshots hold it ([`crate::entry`]).
        entry: &'a [u8],
    },
    /// A collection whose dead members were removed.
    Members {
        /// Its database.
        db: u64,
        /// Its name.
        key: &'a [u8],
    },
    /// A message to subscribers, for those of replicas; no data.
    Message {
        /// The command that sends it, PUBLISH or SPUBLISH, and its arguments. Empty in files.
        args: ArgList<'a>,
        /// Bytes of its RESP form; 0 unless it is in a file.
        bytes: u64,
    },
    /// Where the stream of a master stands behind this record.
    Position {
        /// The id of its history.
        id: &'a [u8],
        /// Bytes of it so far.
        offset: u64,
        /// The database that it has selected.
        db: u64,
    },
    /// A place in the stream that this server makes of its records, as a master.
    Stream(StreamPlace<'a>),
    /// Records of a leader that a member has received and not applied; no data yet.
    Uncommitted(UncommittedPart<'a>),
}

/// Records of a leader, as a member of a group keeps them before it acknowledges them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UncommittedPart<'a> {
    /// The id of their history.
    pub id: &'a [u8],
    /// Bytes of the stream that the member had applied then.
    pub offset: u64,
    /// It had applied every record of the stream below.
    pub applied: u64,
    /// The records, one behind the other, with their sequences in the stream.
    pub records: &'a [u8],
}

/// Where the stream of a master stood before one of its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPlace<'a> {
    /// The sequence of that record in the journal; 0: this record only marks a place that a later one tells about.
    pub journal: u64,
    /// The sequence of that record in the stream.
    pub stream: u64,
    /// Bytes of the stream before that record.
    pub offset: u64,
    /// The histories that the stream continues, each with its end, the current one last. Texts of `id:end`.
    pub histories: ArgList<'a>,
}

/// Arguments whose lengths have been checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArgList<'a> {
    len: usize,
    bytes: &'a [u8],
}

impl<'a> ArgList<'a> {
    /// Number of arguments, the name included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none, not even a name.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The arguments in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || take_text(&mut rest)).take(self.len)
    }
}

/// Appends a command of `args_len` arguments that ran in database `db`.
pub fn write_command<'a>(
    out: &mut Vec<u8>,
    db: usize,
    args_len: usize,
    args: impl Iterator<Item = &'a [u8]>,
) {
    out.push(COMMAND);
    write_args(out, db, args_len, args);
}

/// Appends `SET key value`, as [`write_command`] does, in one go: no other command is journalled as often.
pub fn write_set(out: &mut Vec<u8>, db: usize, key: &[u8], value: &[u8]) {
    out.reserve(7 + 3 * varint::BYTES_MAX + key.len() + value.len());
    match (u8::try_from(db), u8::try_from(key.len())) {
        // Numbers of one byte: all before the key is one word.
        (Ok(db @ ..0x80), Ok(key_len @ ..0x80)) => {
            out.extend_from_slice(&[COMMAND, db, 3, 3, b's', b'e', b't', key_len]);
            out.extend_from_slice(key);
        }
        _ => {
            out.push(COMMAND);
            varint::write(out, db as u64);
            out.extend_from_slice(&[3, 3, b's', b'e', b't']);
            write_text(out, key);
        }
    }
    write_text(out, value);
}

/// The words of a body that is one [`write_set`] in database 0 and no more.
#[inline]
pub fn plain_set(body: &[u8]) -> Option<[&[u8]; 3]> {
    let mut rest = body.strip_prefix(&[COMMAND, 0, 3, 3])?;
    let (name, after) = rest.split_first_chunk::<3>()?;
    rest = after;
    let (key, value) = (take_text(&mut rest)?, take_text(&mut rest)?);
    (name == b"set" && rest.is_empty()).then_some([name, key, value])
}

/// Appends a command that a waiting client had sent and that now looked at `only_key`, or at all its keys.
pub fn write_served<'a>(
    out: &mut Vec<u8>,
    db: usize,
    only_key: &[u8],
    args_len: usize,
    args: impl Iterator<Item = &'a [u8]>,
) {
    out.push(SERVED);
    write_text(out, only_key);
    write_args(out, db, args_len, args);
}

/// Bytes that the arguments of most commands take, or more.
const ARGS_ROOM: usize = 512;

fn write_args<'a>(out: &mut Vec<u8>, db: usize, args_len: usize, args: impl Iterator<Item = &'a [u8]>) {
    varint::write(out, db as u64);
    varint::write(out, args_len as u64);
    // One look at the room for most commands, not one for each of their lengths and texts.
    out.reserve(ARGS_ROOM);
    args.for_each(|arg| write_text(out, arg));
}

/// Appends a key that the server removed by itself.
pub fn write_gone(out: &mut Vec<u8>, db: usize, key: &[u8], loss: Loss) {
    out.push(match loss {
        Loss::Removed => GONE,
        Loss::Expired => EXPIRED,
        Loss::Evicted => EVICTED,
    });
    varint::write(out, db as u64);
    write_text(out, key);
}

/// Appends a key as it is now, as an entry of a snapshot.
pub fn write_value(out: &mut Vec<u8>, db: usize, entry: &[u8]) {
    out.push(VALUE);
    varint::write(out, db as u64);
    write_text(out, entry);
}

/// Appends a collection whose dead members the server removed by itself.
pub fn write_members(out: &mut Vec<u8>, db: usize, key: &[u8]) {
    out.push(MEMBERS);
    varint::write(out, db as u64);
    write_text(out, key);
}

/// Appends a message to subscribers: the command that sends it, without words where it is kept in files.
pub fn write_message(out: &mut Vec<u8>, args: &[&[u8]]) {
    out.push(MESSAGE);
    write_args(out, 0, args.len(), args.iter().copied());
}

/// Appends a message whose words are not kept: its RESP form has `bytes` bytes.
pub fn write_message_len(out: &mut Vec<u8>, bytes: u64) {
    out.push(MESSAGE);
    varint::write(out, bytes);
    varint::write(out, 0);
}

/// Appends a place in the stream that a master makes: sequences in the journal and in the stream, offset, histories.
pub fn write_stream(out: &mut Vec<u8>, (journal, stream): (u64, u64), offset: u64, histories: &[String]) {
    out.push(STREAM);
    varint::write(out, journal);
    varint::write(out, stream);
    varint::write(out, offset);
    varint::write(out, histories.len() as u64);
    histories.iter().for_each(|text| write_text(out, text.as_bytes()));
}

/// Appends where the stream of a master stands.
pub fn write_position(out: &mut Vec<u8>, id: &[u8], offset: u64, db: usize) {
    out.push(POSITION);
    varint::write(out, db as u64);
    varint::write(out, offset);
    write_text(out, id);
}

/// Appends records of a leader that are not applied yet: the id of their history, bytes and sequence that were applied.
pub fn write_uncommitted<'a>(
    out: &mut Vec<u8>,
    id: &[u8],
    (offset, applied): (u64, u64),
    chunks: impl Iterator<Item = &'a [u8]> + Clone,
) {
    out.push(UNCOMMITTED);
    write_text(out, id);
    varint::write(out, offset);
    varint::write(out, applied);
    varint::write(out, chunks.clone().map(<[u8]>::len).sum::<usize>() as u64);
    chunks.for_each(|chunk| out.extend_from_slice(chunk));
}

/// The records of a leader that a body holds, if it is such a body.
pub fn uncommitted(body: &[u8]) -> Option<UncommittedPart<'_>> {
    match Parts::new(body.starts_with(&[UNCOMMITTED]).then_some(body)?).try_next() {
        Ok(Some(RecordPart::Uncommitted(part))) => Some(part),
        _ => None,
    }
}

/// The place that a record tells about, if it is a record of places.
#[inline]
pub fn stream_place(body: &[u8]) -> Option<StreamPlace<'_>> {
    match Parts::new(body.starts_with(&[STREAM]).then_some(body)?).try_next() {
        Ok(Some(RecordPart::Stream(place))) => Some(place),
        _ => None,
    }
}

fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    varint::write(out, text.len() as u64);
    out.extend_from_slice(text);
}

#[inline]
fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(varint::take(rest)?).ok()?;
    let (text, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(text)
}

/// The parts of a body, in the order they happened.
pub struct Parts<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Parts<'a> {
    /// The parts of `body`.
    pub fn new(body: &'a [u8]) -> Parts<'a> {
        Parts { rest: body, len: body.len() }
    }

    /// Whether no part is left.
    pub fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next part.
    ///
    /// Errors: the bytes are no part; the offset is the one in the body.
    pub fn try_next(&mut self) -> Result<Option<RecordPart<'a>>, Damage> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let offset = self.len.saturating_sub(self.rest.len()) as u64;
        let part = take_part(&mut self.rest);
        part.map(Some).ok_or(Damage { offset, what: "a record's body does not hold what it says" })
    }
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<RecordPart<'a>> {
    let (kind, after) = rest.split_first()?;
    *rest = after;
    match *kind {
        COMMAND => {
            let (db, args) = take_args(rest)?;
            Some(RecordPart::Command { db, only_key: None, args })
        }
        SERVED => {
            let only_key = take_text(rest)?;
            let (db, args) = take_args(rest)?;
            Some(RecordPart::Command { db, only_key: Some(only_key), args })
        }
        GONE => take_gone(rest, Loss::Removed),
        EXPIRED => take_gone(rest, Loss::Expired),
        EVICTED => take_gone(rest, Loss::Evicted),
        VALUE => Some(RecordPart::Value { db: varint::take(rest)?, entry: take_text(rest)? }),
        MEMBERS => Some(RecordPart::Members { db: varint::take(rest)?, key: take_text(rest)? }),
        MESSAGE => {
            let (bytes, args) = take_args(rest)?;
            Some(RecordPart::Message { args, bytes })
        }
        STREAM => {
            let (journal, stream) = (varint::take(rest)?, varint::take(rest)?);
            let (offset, histories) = take_args(rest)?;
            Some(RecordPart::Stream(StreamPlace { journal, stream, offset, histories }))
        }
        POSITION => {
            let (db, offset) = (varint::take(rest)?, varint::take(rest)?);
            Some(RecordPart::Position { id: take_text(rest)?, offset, db })
        }
        UNCOMMITTED => {
            let id = take_text(rest)?;
            let (offset, applied) = (varint::take(rest)?, varint::take(rest)?);
            Some(RecordPart::Uncommitted(UncommittedPart { id, offset, applied, records: take_text(rest)? }))
        }
        _ => None,
    }
}

fn take_gone<'a>(rest: &mut &'a [u8], loss: Loss) -> Option<RecordPart<'a>> {
    Some(RecordPart::Gone { db: varint::take(rest)?, key: take_text(rest)?, loss })
}

fn take_args<'a>(rest: &mut &'a [u8]) -> Option<(u64, ArgList<'a>)> {
    let db = varint::take(rest)?;
    let len = usize::try_from(varint::take(rest)?).ok()?;
    let before = *rest;
    // each argument takes a byte at least, so this ends however large the number is
    for _ in 0..len {
        take_text(rest)?;
    }
    let bytes = before.get(..before.len() - rest.len())?;
    Some((db, ArgList { len, bytes }))
}

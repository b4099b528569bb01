//! What HSCAN and SSCAN have in common: cursor and options in, cursor and members out.

use darter_base::{glob, number};
use darter_pack::decimal::Digits;
use darter_pack::entry::Item;
use darter_wire::{Args, Reply};

use crate::reader::Reader;
use crate::{Env, Fault};

/// The cursor, as a client sent it; a negative one wraps around, as in C.
pub(crate) fn cursor(arg: &[u8]) -> Result<u64, Fault> {
    let (is_negative, digits) = match arg {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let cursor = number::parse_u64_digits(digits).ok_or(Fault::text("ERR invalid cursor"))?;
    Ok(if is_negative { cursor.wrapping_neg() } else { cursor })
}

/// Writes the end of a scan that found nothing.
pub(crate) fn reply_nothing(reply: &mut Reply<'_>) {
    reply.array(2);
    reply.bulk(b"0");
    reply.array(0);
}

/// Writes a cursor and begins its members.
pub(crate) fn reply_cursor(reply: &mut Reply<'_>, cursor: u64) {
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
}

/// Members one call looks at at most, however many were asked for: the shard is held meanwhile.
pub(crate) const COUNT_MAX: usize = 1000;

/// What to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    pattern: Option<&'a [u8]>,
    /// Members to look at, about.
    pub count: usize,
    /// Fields without their values.
    pub no_values: bool,
}

impl<'a> Options<'a> {
    /// Reads the options, which start at argument 3.
    pub fn parse(args: Args<'a>, is_hash: bool) -> Result<Options<'a>, Fault> {
        let mut options = Options { pattern: None, count: 10, no_values: false };
        let mut reader = Reader::new(args, 3);
        while !reader.is_done() {
            if reader.take_with("COUNT", 1) {
                let count = usize::try_from(reader.int()?).ok().filter(|&n| n > 0);
                options.count = count.ok_or(Fault::Syntax)?.min(COUNT_MAX);
            } else if reader.take_with("MATCH", 1) {
                options.pattern = Some(reader.bytes()?).filter(|&pattern| pattern != b"*");
            } else if reader.take("NOVALUES") {
                if !is_hash {
                    return Err(Fault::text("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.no_values = true;
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }

    /// Whether the pattern, if any, matches.
    pub fn accepts(&self, member: Item<'_>) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, member.text(&mut Digits::new()), false))
    }
}

/// Whether Redis would hold so many members in one piece, which it shows whole whatever the count.
pub(crate) fn is_shown_whole(len: u64, entries_max: u64) -> bool {
    len <= entries_max
}

/// Fails a reply that counts from a client have made larger than any string may be.
pub(crate) fn check_budget(reply: &Reply<'_>, mark: usize, env: &Env) -> Result<(), Fault> {
    let bytes = reply.len().saturating_sub(mark) as u64;
    if bytes > env.proto_max_bulk_len { Err(Fault::OutOfRange) } else { Ok(()) }
}

/// As [`check_budget`], before anything is written: no element takes fewer than five bytes.
pub(crate) fn check_count(count: u64, env: &Env) -> Result<(), Fault> {
    if count > env.proto_max_bulk_len / 5 { Err(Fault::OutOfRange) } else { Ok(()) }
}

//! The memcached protocol, text and meta: commands out of bytes, and the longer replies.
//!
//! One decoder a connection. A command is returned only when its value has arrived too; both stay in the buffer. The
//! value of a refused command is skipped as it arrives, so that it is never read as commands. Source: memcached's
//! doc/protocol.txt and its answers (1.6.18 and July 2026).

use std::borrow::Cow;

pub mod base64;
mod brief;
mod command;
mod error;
mod line;
mod meta;
mod reply;

pub use brief::{Brief, BriefItem, brief};
pub use command::{MemcacheCommand, MemcacheKeys, MemcacheWords, Store};
pub use error::MemcacheError;
pub use meta::{MetaMode, MetaRequest, MetaVerb};
pub use reply::{write_key, write_stat, write_value, write_value_line};

/// Limits of a memcached client's requests.
#[derive(Clone, Copy, Debug)]
pub struct MemcacheLimits {
    /// Largest item, in bytes (`-I`), with its key and memcached's own header; at most 2 GiB is used.
    pub item_bytes_max: u32,
    /// Longest line, in bytes, of any command except `get` and `gets`.
    pub line_bytes_max: usize,
    /// Longest line of `get` and `gets`, which may name many keys.
    pub get_line_bytes_max: usize,
}

impl MemcacheLimits {
    /// Returns true if a value of this length may be stored under `key`, counted as memcached does.
    #[inline]
    pub fn allow(&self, key: &[u8], flags: u32, value_len: usize) -> bool {
        let flags_len = if flags == 0 { 0 } else { 4 };
        (ITEM_HEAD_BYTES + key.len() + flags_len) as u64 + value_len as u64 <= u64::from(self.item_bytes_max)
    }
}

/// Bytes that memcached adds to a key and a value: the item's head, its token, a zero behind the key, a line end
/// behind the value.
pub const ITEM_HEAD_BYTES: usize = 48 + 8 + 1 + 2;

impl Default for MemcacheLimits {
    fn default() -> Self {
        Self { item_bytes_max: 1 << 20, line_bytes_max: 2048, get_line_bytes_max: 1 << 20 }
    }
}

/// The result of reading the bytes so far.
#[derive(Debug, PartialEq)]
pub enum MemcacheStep<'a> {
    /// A command in the first `consumed` bytes.
    Command {
        /// The command.
        command: MemcacheCommand<'a>,
        /// Length of the line, and of the value with its line end.
        consumed: usize,
    },
    /// A line that is not a valid command; the connection continues.
    Refused {
        /// The answer.
        error: MemcacheError,
        /// The client asked for no answer.
        noreply: bool,
        /// A key to delete, because its new value is too large to replace the old one with.
        remove: Option<Cow<'a, [u8]>>,
        /// Length of the line; its value, if it has one, is skipped next.
        consumed: usize,
    },
    /// The first `consumed` bytes belong to a value that was refused.
    Skipped {
        /// Number of bytes to drop.
        consumed: usize,
    },
    /// Not a whole command yet.
    More {
        /// Bytes that are needed at least; at most `item_bytes_max` plus 2.
        want: usize,
    },
    /// A line without an end, or a browser; the connection is closed without an answer.
    Close,
}

/// The progress of a connection's unfinished command, 16 bytes.
#[derive(Debug, Default)]
pub struct MemcacheDecoder {
    /// Bytes of a refused value still to come.
    skip: u64,
    /// Bytes at the start of the buffer that hold no line feed.
    scanned: usize,
}

impl MemcacheDecoder {
    /// A decoder before the first byte of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns true if the next bytes begin a command.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.skip == 0 && self.scanned == 0
    }

    /// Reads one command from the start of `buf`.
    ///
    /// `buf` starts at the first byte that was not consumed; after `More` it must start with the same bytes and hold
    /// more. Cost: O(line); the bytes of a value are not examined.
    pub fn next<'a>(&mut self, buf: &'a [u8], limits: &MemcacheLimits) -> MemcacheStep<'a> {
        if self.skip > 0 {
            let consumed = usize::try_from(self.skip).unwrap_or(usize::MAX).min(buf.len());
            self.skip -= consumed as u64;
            return if consumed == 0 {
                MemcacheStep::More { want: 1 }
            } else {
                MemcacheStep::Skipped { consumed }
            };
        }
        let end = match self.line_end(buf, limits) {
            Ok(Some(end)) => end,
            Ok(None) => return MemcacheStep::More { want: 1 },
            Err(LineTooLong) => return MemcacheStep::Close,
        };
        let Some((line, [_, rest @ ..])) = buf.split_at_checked(end) else {
            return MemcacheStep::More { want: 1 };
        };
        let (line, consumed) = (line.strip_suffix(b"\r").unwrap_or(line), end + 1);
        match command::parse(line, rest, limits) {
            Ok((command, value_len)) => MemcacheStep::Command { command, consumed: consumed + value_len },
            Err(command::MemcacheStop::Value { want }) => MemcacheStep::More { want },
            Err(command::MemcacheStop::Refused { error, noreply, remove, skip }) => {
                self.skip = skip;
                MemcacheStep::Refused { error, noreply, remove, consumed }
            }
            Err(command::MemcacheStop::Close) => MemcacheStep::Close,
        }
    }

    /// Offset of the line feed; `None` if it has not arrived.
    fn line_end(&mut self, buf: &[u8], limits: &MemcacheLimits) -> Result<Option<usize>, LineTooLong> {
        let from = self.scanned.min(buf.len());
        let found = buf.get(from..).and_then(|rest| memchr::memchr(b'\n', rest)).map(|end| from + end);
        if found.unwrap_or(buf.len()) > limits.line_bytes_max {
            let line = found.and_then(|end| buf.get(..end)).unwrap_or(buf);
            // Leading spaces are allowed, though not many.
            let spaces = line.iter().take_while(|&&b| b == b' ').count();
            let words = line.get(spaces..).unwrap_or_default();
            let many = words.starts_with(b"get ") || words.starts_with(b"gets ");
            if spaces > 100 || !many || line.len() > limits.get_line_bytes_max {
                return Err(LineTooLong);
            }
        }
        self.scanned = if found.is_none() { buf.len() } else { 0 };
        Ok(found)
    }
}

struct LineTooLong;

/// Longest key, in bytes, after base64 decoding too.
pub const KEY_BYTES_MAX: usize = 250;

#[cfg(test)]
mod tests;

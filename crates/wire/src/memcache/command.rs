//! The commands of the memcached protocol as types, and how a line becomes one.

use std::borrow::Cow;

use super::error::MemcacheError;
use super::line::{Line, parse_seconds, parse_u32, parse_u64};
use super::meta::{self, MetaRequest};
use super::{KEY_BYTES_MAX, MemcacheLimits};

/// The mode of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Whatever is there.
    Set,
    /// Only where nothing is.
    Add,
    /// Only where something is.
    Replace,
    /// Append to the present value.
    Append,
    /// Prepend to the present value.
    Prepend,
    /// Only if the value still has this number.
    Cas(u64),
}

/// A whole command. Times are seconds as sent: 0 never, negative at once, up to 30 days from now, larger absolute.
#[derive(Debug, PartialEq)]
pub enum MemcacheCommand<'a> {
    /// Stores a value.
    Store {
        /// How.
        store: Store,
        /// Under which key.
        key: &'a [u8],
        /// A number kept with the value for the client.
        flags: u32,
        /// When it expires.
        exptime: i64,
        /// The value.
        value: &'a [u8],
        /// The client wants no answer.
        noreply: bool,
    },
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        /// At least one.
        keys: MemcacheKeys<'a>,
        /// True to answer each value's number.
        cas: bool,
        /// A new expiry time for each.
        touch: Option<i64>,
    },
    /// Deletes a key.
    Delete {
        /// Which.
        key: &'a [u8],
        /// The client wants no answer.
        noreply: bool,
    },
    /// `incr` and `decr`.
    Count {
        /// The key.
        key: &'a [u8],
        /// The amount.
        delta: u64,
        /// True to subtract, which stops at 0; false to add, which wraps.
        decrement: bool,
        /// The client wants no answer.
        noreply: bool,
    },
    /// Changes a key's expiry time.
    Touch {
        /// The key.
        key: &'a [u8],
        /// When it expires.
        exptime: i64,
        /// The client wants no answer.
        noreply: bool,
    },
    /// Deletes everything, now or later.
    FlushAll {
        /// Delay in seconds; immediately if not positive.
        delay: i64,
        /// The client wants no answer.
        noreply: bool,
    },
    /// `verbosity`, which is answered and has no effect.
    Verbosity {
        /// The client wants no answer.
        noreply: bool,
    },
    /// `stats` and what to tell.
    Stats(MemcacheWords<'a>),
    /// Asks for the version.
    Version,
    /// Closes the connection.
    Quit,
    /// Administration: `shutdown`, `slabs`, `lru`, `lru_crawler`, `watch`, `cache_memlimit` and so on.
    Admin {
        /// The first word.
        name: &'a [u8],
        /// The others.
        words: MemcacheWords<'a>,
        /// The client wants no answer.
        noreply: bool,
    },
    /// A meta command with a key.
    Meta(MetaRequest<'a>),
    /// `mn`: answers `MN`.
    MetaNoop,
    /// `me`: tells about a key.
    MetaDebug {
        /// The key, decoded if it was base64.
        key: Cow<'a, [u8]>,
        /// True if the key is in base64, in the request and in the answer.
        base64: bool,
    },
}

/// The keys of a `get`, in order, each of 1 to 250 bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct MemcacheKeys<'a>(Line<'a>);

impl MemcacheKeys<'_> {
    /// Returns true if there is exactly one.
    #[inline]
    pub fn is_one(&self) -> bool {
        let mut keys = self.0;
        keys.next().is_some() && keys.next().is_none()
    }
}

impl<'a> Iterator for MemcacheKeys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next()
    }
}

/// The words after a command's name.
#[derive(Clone, Debug, PartialEq)]
pub struct MemcacheWords<'a>(Line<'a>);

impl<'a> Iterator for MemcacheWords<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next()
    }
}

/// Why a line gives no command.
#[derive(Debug)]
pub(super) enum MemcacheStop<'a> {
    /// Its value is not all there.
    Value {
        want: usize,
    },
    Refused {
        error: MemcacheError,
        noreply: bool,
        remove: Option<Cow<'a, [u8]>>,
        /// Length of the value to skip, its line end included.
        skip: u64,
    },
    Close,
}

impl<'a> MemcacheStop<'a> {
    pub(super) fn refused(error: MemcacheError) -> Self {
        MemcacheStop::Refused { error, noreply: false, remove: None, skip: 0 }
    }
}

/// The command of `line`, whose value, if any, starts `rest`, and the length of that value with its line end.
pub(super) fn parse<'a>(
    line: &'a [u8],
    rest: &'a [u8],
    limits: &MemcacheLimits,
) -> Result<(MemcacheCommand<'a>, usize), MemcacheStop<'a>> {
    let mut words = Line(line);
    let name = words.next().ok_or(MemcacheStop::refused(MemcacheError::Unknown))?;
    let store = match name {
        b"get" => return get(words, false, None).map(no_value),
        b"mg" | b"md" | b"ma" => return meta::parse(name, words).map(MemcacheCommand::Meta).map(no_value),
        b"set" => Store::Set,
        b"gets" => return get(words, true, None).map(no_value),
        b"add" => Store::Add,
        b"replace" => Store::Replace,
        b"append" => Store::Append,
        b"prepend" => Store::Prepend,
        b"cas" => Store::Cas(0),
        b"ms" => return meta::parse_store(words, rest, limits),
        _ => return other(name, words).map(no_value),
    };
    storage(store, words, rest, limits)
}

fn no_value(command: MemcacheCommand<'_>) -> (MemcacheCommand<'_>, usize) {
    (command, 0)
}

fn other<'a>(name: &'a [u8], mut words: Line<'a>) -> Result<MemcacheCommand<'a>, MemcacheStop<'a>> {
    let noreply = words.last() == Some(b"noreply");
    let refused = |error| MemcacheStop::Refused { error, noreply, remove: None, skip: 0 };
    let all = words;
    match name {
        b"gat" | b"gats" => {
            let exptime = words.next().ok_or(MemcacheStop::refused(MemcacheError::Unknown))?;
            let exptime =
                parse_seconds(exptime).ok_or(MemcacheStop::refused(MemcacheError::InvalidExptime))?;
            get(words, name == b"gats", Some(exptime))
        }
        b"delete" => {
            let key = key(words.next())?;
            match (words.next(), words.next()) {
                // An old client may send a time of 0.
                (None, _) | (Some(b"noreply"), None) | (Some(b"0"), None | Some(b"noreply")) => {
                    Ok(MemcacheCommand::Delete { key, noreply })
                }
                _ => Err(refused(MemcacheError::DeleteUsage)),
            }
        }
        b"incr" | b"decr" => {
            let (key, delta) = (words.next(), words.next().ok_or(refused(MemcacheError::Unknown))?);
            let key = self::key(key)?;
            let delta = parse_u64(delta).ok_or(refused(MemcacheError::InvalidDelta))?;
            Ok(MemcacheCommand::Count { key, delta, decrement: name == b"decr", noreply })
        }
        b"touch" => {
            let (key, exptime) = (words.next(), words.next().ok_or(refused(MemcacheError::Unknown))?);
            let key = self::key(key)?;
            let exptime = parse_seconds(exptime).ok_or(refused(MemcacheError::InvalidExptime))?;
            Ok(MemcacheCommand::Touch { key, exptime, noreply })
        }
        b"flush_all" => {
            let delay = match words.next() {
                None | Some(b"noreply") => 0,
                Some(delay) => parse_seconds(delay).ok_or(refused(MemcacheError::InvalidExptime))?,
            };
            Ok(MemcacheCommand::FlushAll { delay, noreply })
        }
        b"verbosity" => match (words.next(), words.next(), words.next()) {
            (None, ..) | (.., Some(_)) => Err(MemcacheStop::refused(MemcacheError::Unknown)),
            (Some(level), ..) if parse_u32(level).is_none() => Err(refused(MemcacheError::BadFormat)),
            _ => Ok(MemcacheCommand::Verbosity { noreply }),
        },
        b"stats" => Ok(MemcacheCommand::Stats(MemcacheWords(all))),
        b"version" => Ok(MemcacheCommand::Version),
        b"quit" => Ok(MemcacheCommand::Quit),
        b"mn" => Ok(MemcacheCommand::MetaNoop),
        b"me" => meta::parse_debug(words),
        b"shutdown" | b"slabs" | b"lru" | b"lru_crawler" | b"watch" | b"cache_memlimit"
        | b"refresh_certs" | b"extstore" => {
            Ok(MemcacheCommand::Admin { name, words: MemcacheWords(all), noreply })
        }
        // A browser: the lines after its first one are not for us.
        _ if all.last().is_some_and(|word| word.starts_with(b"HTTP/")) => Err(MemcacheStop::Close),
        _ => Err(refused(MemcacheError::Unknown)),
    }
}

fn get<'a>(words: Line<'a>, cas: bool, touch: Option<i64>) -> Result<MemcacheCommand<'a>, MemcacheStop<'a>> {
    let mut len = 0;
    for key in words {
        self::key(Some(key))?;
        len += 1;
    }
    if len == 0 {
        return Err(MemcacheStop::refused(MemcacheError::Unknown));
    }
    Ok(MemcacheCommand::Get { keys: MemcacheKeys(words), cas, touch })
}

/// `<key> <flags> <exptime> <bytes> [<cas>] [noreply]`
fn storage<'a>(
    store: Store,
    mut words: Line<'a>,
    rest: &'a [u8],
    limits: &MemcacheLimits,
) -> Result<(MemcacheCommand<'a>, usize), MemcacheStop<'a>> {
    let mut next = || words.next().ok_or(MemcacheStop::refused(MemcacheError::Unknown));
    let (key, flags, exptime, bytes) = (next()?, next()?, next()?, next()?);
    let cas = if let Store::Cas(_) = store { Some(words.next().unwrap_or_default()) } else { None };
    let noreply = words.next() == Some(b"noreply");
    let value_len = value_len(bytes)?;
    // From here on the value is skipped, whatever other errors follow.
    let refused = |error| MemcacheStop::Refused { error, noreply, remove: None, skip: value_len as u64 + 2 };
    if key.len() > KEY_BYTES_MAX {
        return Err(refused(MemcacheError::BadFormat));
    }
    let (Some(flags), Some(exptime)) = (parse_u32(flags), parse_seconds(exptime)) else {
        return Err(refused(MemcacheError::BadFormat));
    };
    let store = match cas {
        Some(cas) => Store::Cas(parse_u64(cas).ok_or_else(|| refused(MemcacheError::BadFormat))?),
        None => store,
    };
    if !limits.allow(key, flags, value_len) {
        let remove = (store == Store::Set).then_some(Cow::Borrowed(key));
        return Err(MemcacheStop::Refused {
            error: MemcacheError::TooLarge,
            noreply,
            remove,
            skip: value_len as u64 + 2,
        });
    }
    let value = value(rest, value_len, noreply)?;
    Ok((MemcacheCommand::Store { store, key, flags, exptime, value, noreply }, value_len + 2))
}

/// A key of a classic command.
fn key<'a>(word: Option<&'a [u8]>) -> Result<&'a [u8], MemcacheStop<'a>> {
    match word {
        None => Err(MemcacheStop::refused(MemcacheError::Unknown)),
        Some(key) if key.len() > KEY_BYTES_MAX => Err(MemcacheStop::refused(MemcacheError::BadFormat)),
        Some(key) => Ok(key),
    }
}

/// A value's length: at most 2 GiB, for any limit, so that it can be skipped.
pub(super) fn value_len<'a>(word: &[u8]) -> Result<usize, MemcacheStop<'a>> {
    let len = parse_u32(word).filter(|&len| len <= i32::MAX as u32 - 2);
    len.map(|len| len as usize).ok_or(MemcacheStop::refused(MemcacheError::BadFormat))
}

/// The value of `len` bytes that starts `rest`, once it and its line end are there.
pub(super) fn value<'a>(rest: &'a [u8], len: usize, noreply: bool) -> Result<&'a [u8], MemcacheStop<'a>> {
    match rest.get(..len + 2) {
        None => Err(MemcacheStop::Value { want: len + 2 - rest.len() }),
        Some([value @ .., b'\r', b'\n']) => Ok(value),
        Some(_) => Err(MemcacheStop::Refused {
            error: MemcacheError::BadDataChunk,
            noreply,
            remove: None,
            skip: len as u64 + 2,
        }),
    }
}

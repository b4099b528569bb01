//! Meta commands: two letters, a key, and flags of one letter each with or without a token.

use std::borrow::Cow;

use super::command::{self, MemcacheCommand, MemcacheStop};
use super::error::MemcacheError;
use super::line::{Line, parse_seconds, parse_u32, parse_u64};
use super::{KEY_BYTES_MAX, MemcacheLimits, base64};

/// The verb of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Count,
}

/// The mode of `ms` or `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaMode {
    /// Store in any case; the default of `ms`.
    Set,
    /// Store only if the key is missing.
    Add,
    /// Store only if the key exists.
    Replace,
    /// Append to the present value.
    Append,
    /// Prepend to the present value.
    Prepend,
    /// Add; the default of `ma`.
    Increment,
    /// Subtract, down to 0.
    Decrement,
}

/// A meta command with its flags read. For flags without a number, use `has`.
#[derive(Debug, PartialEq)]
pub struct MetaRequest<'a> {
    /// The verb.
    pub verb: MetaVerb,
    /// The key, decoded if it was base64.
    pub key: Cow<'a, [u8]>,
    /// The value to store; empty unless `verb` is `Set`.
    pub value: &'a [u8],
    /// `M`, or the command's default.
    pub mode: MetaMode,
    /// `F`: client flags.
    pub client_flags: Option<u32>,
    /// `T`: a new expiry time in seconds.
    pub ttl: Option<i64>,
    /// `N`: create on a miss, with this expiry time.
    pub vivify: Option<i64>,
    /// `R`: recache when less than this is left.
    pub recache: Option<i64>,
    /// `C`: the number that the value must still have.
    pub cas: Option<u64>,
    /// `E`: the number the value gets.
    pub new_cas: Option<u64>,
    /// `J`: the initial number on a miss.
    pub initial: u64,
    /// `D`: how much to count.
    pub delta: u64,
    // A bit for each letter, A to z.
    seen: u64,
    flags: Line<'a>,
}

impl<'a> MetaRequest<'a> {
    /// Returns true if the flag `letter` is present.
    #[inline]
    pub fn has(&self, letter: u8) -> bool {
        bit(letter).is_some_and(|bit| self.seen & bit != 0)
    }

    /// The flags as sent, letter and token, in whose order the answer gives its own.
    pub fn flags(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.flags.filter_map(|word| word.split_first().map(|(&letter, token)| (letter, token)))
    }

    fn of_key(verb: MetaVerb, key: &'a [u8], flags: Line<'a>) -> Self {
        MetaRequest {
            verb,
            key: Cow::Borrowed(key),
            value: &[],
            mode: if verb == MetaVerb::Count { MetaMode::Increment } else { MetaMode::Set },
            client_flags: None,
            ttl: None,
            vivify: None,
            recache: None,
            cas: None,
            new_cas: None,
            initial: 0,
            delta: 1,
            seen: 0,
            flags,
        }
    }

    fn read_flags(&mut self) -> Result<(), MemcacheError> {
        for (letter, token) in self.flags() {
            let bit = bit(letter).filter(|_| KNOWN.contains(&letter)).ok_or(MemcacheError::InvalidFlag)?;
            if self.seen & bit != 0 {
                return Err(MemcacheError::DuplicateFlag);
            }
            self.seen |= bit;
            self.read_token(letter, token)?;
        }
        if self.has(b'b') {
            let key = base64::decode(&self.key).ok_or(MemcacheError::KeyDecoding)?;
            self.key = Cow::Owned(key);
        }
        Ok(())
    }

    fn read_token(&mut self, letter: u8, token: &'a [u8]) -> Result<(), MemcacheError> {
        let seconds = || parse_seconds(token).map(Some).ok_or(MemcacheError::BadToken);
        let number = || parse_u64(token).map(Some).ok_or(MemcacheError::BadToken);
        match letter {
            b'F' => self.client_flags = Some(parse_u32(token).ok_or(MemcacheError::BadFormat)?),
            b'T' => self.ttl = seconds()?,
            b'N' => self.vivify = seconds()?,
            b'R' => self.recache = seconds()?,
            b'C' => self.cas = number()?,
            b'E' => self.new_cas = number()?,
            b'J' => self.initial = parse_u64(token).ok_or(MemcacheError::BadToken)?,
            b'D' => self.delta = parse_u64(token).ok_or(MemcacheError::BadToken)?,
            b'M' => self.mode = mode(self.verb, token)?,
            // 32 bytes with the letter.
            b'O' if token.len() > OPAQUE_BYTES_MAX => return Err(MemcacheError::OpaqueTooLong),
            _ => {}
        }
        Ok(())
    }
}

/// `mg`, `md`, `ma`.
pub(super) fn parse<'a>(name: &[u8], mut words: Line<'a>) -> Result<MetaRequest<'a>, MemcacheStop<'a>> {
    let verb = match name {
        b"mg" => MetaVerb::Get,
        b"md" => MetaVerb::Delete,
        _ => MetaVerb::Count,
    };
    let key = words.next().ok_or(MemcacheStop::refused(MemcacheError::Unknown))?;
    if key.len() > KEY_BYTES_MAX {
        return Err(MemcacheStop::refused(MemcacheError::BadFormat));
    }
    let mut meta = MetaRequest::of_key(verb, key, words);
    meta.read_flags().map_err(|error| {
        MemcacheStop::refused(if verb == MetaVerb::Count { of_count(error) } else { error })
    })?;
    Ok(meta)
}

/// The answer of `ma` to a fault in its flags; it distinguishes few of them.
fn of_count(error: MemcacheError) -> MemcacheError {
    match error {
        MemcacheError::OpaqueTooLong | MemcacheError::InvalidCountMode => error,
        _ => MemcacheError::InvalidCountFlag,
    }
}

/// `ms <key> <datalen> <flags>*`
pub(super) fn parse_store<'a>(
    mut words: Line<'a>,
    rest: &'a [u8],
    limits: &MemcacheLimits,
) -> Result<(MemcacheCommand<'a>, usize), MemcacheStop<'a>> {
    let (Some(key), Some(bytes)) = (words.next(), words.next()) else {
        return Err(MemcacheStop::refused(MemcacheError::BadFormat));
    };
    let value_len = command::value_len(bytes)?;
    // Errors are answered even to quiet commands, and the value is skipped.
    let refused =
        |error| MemcacheStop::Refused { error, noreply: false, remove: None, skip: value_len as u64 + 2 };
    if key.len() > KEY_BYTES_MAX {
        return Err(refused(MemcacheError::BadFormat));
    }
    let mut meta = MetaRequest::of_key(MetaVerb::Set, key, words);
    meta.read_flags().map_err(refused)?;
    if !limits.allow(&meta.key, meta.client_flags.unwrap_or(0), value_len) {
        let remove = Some(meta.key);
        return Err(MemcacheStop::Refused {
            error: MemcacheError::TooLarge,
            noreply: false,
            remove,
            skip: value_len as u64 + 2,
        });
    }
    meta.value = command::value(rest, value_len, false)?;
    Ok((MemcacheCommand::Meta(meta), value_len + 2))
}

/// `me <key> [b]`
pub(super) fn parse_debug<'a>(mut words: Line<'a>) -> Result<MemcacheCommand<'a>, MemcacheStop<'a>> {
    let key = words.next().filter(|key| key.len() <= KEY_BYTES_MAX);
    let key = key.ok_or(MemcacheStop::refused(MemcacheError::BadFormat))?;
    if words.next() == Some(b"b") {
        let key = base64::decode(key).ok_or(MemcacheStop::refused(MemcacheError::BadFormat))?;
        return Ok(MemcacheCommand::MetaDebug { key: Cow::Owned(key), base64: true });
    }
    Ok(MemcacheCommand::MetaDebug { key: Cow::Borrowed(key), base64: false })
}

fn mode(verb: MetaVerb, token: &[u8]) -> Result<MetaMode, MemcacheError> {
    let &[letter] = token else { return Err(MemcacheError::ModeLength) };
    match (verb, letter.to_ascii_uppercase()) {
        (MetaVerb::Count, b'I' | b'+') => Ok(MetaMode::Increment),
        (MetaVerb::Count, b'D' | b'-') => Ok(MetaMode::Decrement),
        (MetaVerb::Count, _) => Err(MemcacheError::InvalidCountMode),
        (MetaVerb::Set, b'E') => Ok(MetaMode::Add),
        (MetaVerb::Set, b'A') => Ok(MetaMode::Append),
        (MetaVerb::Set, b'P') => Ok(MetaMode::Prepend),
        (MetaVerb::Set, b'R') => Ok(MetaMode::Replace),
        (MetaVerb::Set, b'S') => Ok(MetaMode::Set),
        (MetaVerb::Set, _) => Err(MemcacheError::InvalidStoreMode),
        // Without meaning there, and ignored.
        _ => Ok(MetaMode::Set),
    }
}

fn bit(letter: u8) -> Option<u64> {
    letter.is_ascii_alphabetic().then(|| 1 << (letter - b'A'))
}

const KNOWN: &[u8] = b"bNTRlOPLkstcfvhuqxFCEMJDI";
const OPAQUE_BYTES_MAX: usize = 31;

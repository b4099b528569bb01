//! Names of connections and listeners: a slot index with the generation of its tenant.

use std::fmt;

/// One connection of one reactor. A token outlives its connection harmlessly: every call ignores a stale one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub(crate) u64);

/// One listening socket of one reactor; stale ones are ignored like stale tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) u64);

impl Token {
    /// The name of no connection.
    pub const NOBODY: Token = Token(NAME_MASK);

    /// Slot of the connection: small, dense and unique among the live ones, so a caller may index an array with it.
    #[inline]
    pub fn index(self) -> usize {
        index_of(self.0)
    }

    /// The whole name as a number, unique among live connections of this reactor.
    #[inline]
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}.{})", index_of(self.0), generation_of(self.0))
    }
}

impl fmt::Debug for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListenerId({}.{})", index_of(self.0), generation_of(self.0))
    }
}

/// The kind of a kernel event, in the top four bits of epoll's data and io_uring's user_data. Listeners (`Accept`,
/// `CancelAccept`) and connections (the rest except `Wake`) have the same names, so only the kind distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Receive,
    Accept,
    Wake,
    Poll,
    Cancel,
    CancelAccept,
    Readable,
}

/// Joins index and generation: `kind(4) | generation(28) | index(32)`, with kind `Receive` being zero.
#[inline]
pub(crate) fn name(index: u32, generation: u32) -> u64 {
    u64::from(generation & GENERATION_MASK) << 32 | u64::from(index)
}

#[inline]
pub(crate) fn index_of(name: u64) -> usize {
    name as u32 as usize
}

#[inline]
pub(crate) fn generation_of(name: u64) -> u32 {
    (name >> 32) as u32 & GENERATION_MASK
}

#[inline]
pub(crate) fn with_kind(name: u64, kind: TokenKind) -> u64 {
    name & NAME_MASK | (kind as u64) << 60
}

/// Splits a kernel event's datum; `None` for a kind this crate never wrote.
#[inline]
pub(crate) fn split_kind(data: u64) -> Option<(TokenKind, u64)> {
    let kind = match data >> 60 {
        0 => TokenKind::Receive,
        1 => TokenKind::Accept,
        2 => TokenKind::Wake,
        3 => TokenKind::Poll,
        4 => TokenKind::Cancel,
        5 => TokenKind::CancelAccept,
        6 => TokenKind::Readable,
        _ => return None,
    };
    Some((kind, data & NAME_MASK))
}

pub(crate) const GENERATION_MASK: u32 = (1 << 28) - 1;
const NAME_MASK: u64 = (1 << 60) - 1;

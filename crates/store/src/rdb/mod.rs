//! The value format of RDB files, as DUMP and RESTORE carry it: a type byte, the value, a footer.
//!
//! Called by DUMP, RESTORE, COPY and RENAME, and by `persist` for whole files. What is read is outside
//! data: every length is checked against the bytes that are there before anything is allocated.

mod compact;
mod lzf;
mod object;
mod packed;
mod source;
mod stream;
mod stream_pieces;
#[cfg(test)]
mod tests;
mod text;

use std::ops::RangeInclusive;

use darter_base::crc::crc64;

pub use object::{
    Pieces, TYPE_HASH, TYPE_HASH_WITH_TTL, TYPE_LIST, TYPE_VALKEY_HASH, TYPE_ZSET_WITH_TTL, read_object,
    type_of, write_member, write_members_head, write_object,
};
pub use source::{Length, Source};
pub use stream::TYPE_STREAM_5;
pub use stream_pieces::StreamPieces;
pub use text::{write_length, write_text};

/// The type byte of a string.
pub const TYPE_STRING: u8 = 0;

/// The version that DUMP writes: what Redis 7.0 reads.
const VERSION_WRITTEN: u16 = 10;
/// The versions that are known: those of Redis up to 8.8, and those of Valkey from 9.0 on.
const REDIS_VERSIONS: RangeInclusive<u16> = 0..=16;
const VALKEY_VERSIONS: RangeInclusive<u16> = 80..=89;
/// What Valkey calls its hash with deadlines, a number that Redis gives another one.
const TYPE_HASH_OF_VALKEY: u8 = 22;
/// Version (2) and CRC64 (8).
const FOOTER_LEN: usize = 10;

/// The bytes are no value of this format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

/// Ends a payload: `out` holds the type byte and the value, and nothing else.
pub fn seal(out: &mut Vec<u8>) {
    out.extend_from_slice(&VERSION_WRITTEN.to_le_bytes());
    let crc = crc64(out);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Which versions are let pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Versions {
    /// Those that are known.
    Known,
    /// Newer ones too, whose values may have types that are not known.
    Any,
}

/// What a payload holds whose footer is good.
pub struct Payload<'a> {
    /// Type bytes, each with its value.
    pub source: Source<'a>,
    is_valkey: bool,
}

impl Payload<'_> {
    /// The next type byte, as [`read_object`] knows it. Errors: there is none.
    pub fn kind(&mut self) -> Result<u8, Corrupt> {
        let kind = self.source.byte()?;
        Ok(if self.is_valkey && kind == TYPE_HASH_OF_VALKEY { TYPE_VALKEY_HASH } else { kind })
    }
}

/// Looks at the footer of a payload.
///
/// Errors: too short, of a version that is not let pass, or its checksum is wrong.
pub fn open(payload: &[u8], versions: Versions) -> Result<Payload<'_>, Corrupt> {
    let body_len = payload.len().checked_sub(FOOTER_LEN).ok_or(Corrupt)?;
    let (body, footer) = payload.split_at(body_len);
    let (version, crc) = footer.split_first_chunk::<2>().ok_or(Corrupt)?;
    let number = u16::from_le_bytes(*version);
    let is_valkey = VALKEY_VERSIONS.contains(&number);
    if versions == Versions::Known && !is_valkey && !REDIS_VERSIONS.contains(&number) {
        return Err(Corrupt);
    }
    let sealed = payload.get(..body_len + version.len()).ok_or(Corrupt)?;
    if crc64(sealed).to_le_bytes() != *crc {
        return Err(Corrupt);
    }
    Ok(Payload { source: Source::new(body), is_valkey })
}
